//! The client: connects, takes the machine, uploads what it lacks, and has jobs run.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::SILENCE;
use crate::blob::Blob;
use crate::error::ClientError;
use crate::fault::Fault;
use crate::frame::{self, FrameError, Kind, MESSAGE, PIECE};
use crate::handshake;
use crate::machine::{Machine, Status};
use crate::message::{ToClient, ToServer};
use crate::peer::{Peer, Until};
use crate::token::Token;

/// Heartbeats in the time for which a client may be silent.
const BEATS: u32 = 6;

/// Shortest time between two of them, whatever a server says.
const SHORTEST: Duration = Duration::from_millis(10);

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Most bytes of an answer's blobs.
const MOST_ANSWERED: u64 = 8 << 30;

/// A connection to a server. Heartbeats go out while it lives.
pub struct Client {
    server: String,
    machine: Machine,
    peer: Arc<Peer>,
    beats: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

/// A job for a server.
#[derive(Clone, Copy, Debug)]
pub struct Job<'j> {
    /// Its kind.
    pub kind: &'j str,
    /// What is asked for, below a mebibyte.
    pub request: &'j [u8],
    /// What is large.
    pub blobs: &'j [Blob],
    /// How long it may take; the server may allow less.
    pub limit: Duration,
}

/// What a job has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The answer.
    pub answer: Vec<u8>,
    /// What is large.
    pub blobs: Vec<Vec<u8>>,
}

impl Client {
    /// Connects to HOST:PORT. Both sides must have the same version and the same token, or none.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect(server: &str, version: &str, token: Option<&Token>) -> Result<Client, ClientError> {
        let failed = |error| ClientError::Connect { server: server.to_string(), error };
        let stream = reach(server).map_err(failed)?;
        stream.set_nodelay(true).and_then(|()| stream.set_write_timeout(Some(SILENCE))).map_err(failed)?;
        let machine = handshake::as_client(&mut Until::within(&stream, CONNECT), version, token);
        let (machine, silence) =
            machine.map_err(|error| ClientError::Handshake { server: server.to_string(), error })?;
        let beat = (silence / BEATS).max(SHORTEST);
        let peer = Arc::new(Peer::new(stream));
        let is_ended = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("heartbeats".to_string()).spawn({
            let (peer, is_ended) = (peer.clone(), is_ended.clone());
            move || loop {
                thread::park_timeout(beat);
                // Whoever asks next is told that the connection is lost.
                if is_ended.load(Ordering::Acquire) || peer.send(&ToServer::Beat).is_err() {
                    return;
                }
            }
        });
        let thread = thread.map_err(ClientError::Thread)?;
        Ok(Client { server: server.to_string(), machine, peer, beats: Some((is_ended, thread)) })
    }

    /// The server, as it was named.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The server's machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    fn lost(&self, error: FrameError) -> ClientError {
        ClientError::Frame { server: self.server.clone(), error }
    }

    fn send(&self, message: &ToServer) -> Result<(), ClientError> {
        self.peer.send(message).map_err(|error| self.lost(error))
    }

    fn read(&self) -> Result<(Kind, Vec<u8>), ClientError> {
        frame::read(&mut Until::within(self.peer.stream(), SILENCE), MESSAGE.max(PIECE))
            .map_err(|error| self.lost(error))
    }

    /// The next answer that is none to a heartbeat.
    fn receive(&self) -> Result<ToClient, ClientError> {
        loop {
            let answer = match self.read()? {
                (Kind::Message, bytes) => frame::parse(&bytes).map_err(|error| self.lost(error))?,
                (Kind::Piece, _) => return Err(self.unexpected("a piece of a blob", "an answer")),
            };
            match answer {
                ToClient::Beat => {}
                ToClient::Fault(fault) => {
                    return Err(ClientError::Fault { server: self.server.clone(), fault });
                }
                answer => return Ok(answer),
            }
        }
    }

    fn unexpected(&self, got: &'static str, expected: &'static str) -> ClientError {
        ClientError::Unexpected { server: self.server.clone(), got, expected }
    }

    /// Who uses the machine.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn status(&mut self) -> Result<Status, ClientError> {
        self.send(&ToServer::Status)?;
        match self.receive()? {
            ToClient::Status(status) => Ok(status),
            other => Err(self.unexpected(other.name(), "the status")),
        }
    }

    /// Waits until this client has the machine; `queued` is told how many are before it.
    ///
    /// # Errors
    /// [`ClientError`]; [`Fault::QueueFull`] where too many wait.
    pub fn lease(&mut self, queued: &mut dyn FnMut(u32)) -> Result<Lease<'_>, ClientError> {
        self.send(&ToServer::Lease)?;
        loop {
            match self.receive()? {
                ToClient::Granted => return Ok(Lease { client: self }),
                ToClient::Queued { ahead } => queued(ahead),
                other => return Err(self.unexpected(other.name(), "a place in the queue")),
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.peer.end();
        if let Some((is_ended, thread)) = self.beats.take() {
            is_ended.store(true, Ordering::Release);
            thread.thread().unpark();
            // It has nothing to tell.
            _ = thread.join();
        }
    }
}

fn reach(server: &str) -> io::Result<TcpStream> {
    let mut failed = io::Error::other("the name has no address");
    for address in server.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// The machine, for one client.
pub struct Lease<'c> {
    client: &'c mut Client,
}

impl Lease<'_> {
    /// The server's machine.
    pub fn machine(&self) -> &Machine {
        &self.client.machine
    }

    /// Has a job run: uploads the blobs that the server lacks, and waits for the answer.
    ///
    /// # Errors
    /// [`ClientError`]; after a [`ClientError::Fault`] the lease is as good as before.
    pub fn run(&mut self, job: &Job<'_>) -> Result<Made, ClientError> {
        let digests: Vec<_> = job.blobs.iter().map(Blob::digest).collect();
        if !digests.is_empty() {
            self.upload(job.blobs)?;
        }
        let limit_ms = u64::try_from(job.limit.as_millis()).unwrap_or(u64::MAX);
        let (kind, request) = (job.kind.to_string(), job.request.to_vec());
        self.client.send(&ToServer::Job { kind, request, blobs: digests, limit_ms })?;
        match self.client.receive()? {
            ToClient::Done { answer, blobs } => {
                let blobs = self.download(&blobs)?;
                Ok(Made { answer, blobs })
            }
            other => Err(self.client.unexpected(other.name(), "the answer of a job")),
        }
    }

    fn upload(&mut self, blobs: &[Blob]) -> Result<(), ClientError> {
        self.client.send(&ToServer::Lacks(blobs.iter().map(Blob::digest).collect()))?;
        let lacks = match self.client.receive()? {
            ToClient::Lacks(lacks) => lacks,
            other => return Err(self.client.unexpected(other.name(), "what it lacks")),
        };
        lacks.into_iter().filter_map(|at| blobs.get(at as usize)).try_for_each(|blob| self.put(blob))
    }

    fn put(&mut self, blob: &Blob) -> Result<(), ClientError> {
        /// What stops an upload.
        enum Stop {
            Read(io::Error),
            Lost(FrameError),
            Changed,
        }
        impl From<io::Error> for Stop {
            fn from(error: io::Error) -> Stop {
                Stop::Read(error)
            }
        }
        let client = &self.client;
        let (digest, bytes) = (blob.digest(), blob.bytes());
        client.send(&ToServer::Put { digest, bytes })?;
        match client.receive()? {
            ToClient::Agreed => {}
            other => return Err(client.unexpected(other.name(), "that a blob may come")),
        }
        let mut left = bytes;
        let sent = blob.pieces(&mut |piece| {
            left = left.checked_sub(piece.len() as u64).ok_or(Stop::Changed)?;
            client.peer.write(Kind::Piece, piece).map_err(Stop::Lost)
        });
        let sent = sent.and(if left == 0 { Ok(()) } else { Err(Stop::Changed) });
        if let Err(stop) = sent {
            // The server waits for pieces that do not come.
            client.peer.end();
            let server = client.server.clone();
            return Err(match stop {
                Stop::Read(error) => ClientError::Blob { server, error },
                Stop::Lost(error) => ClientError::Frame { server, error },
                Stop::Changed => ClientError::Changed { server },
            });
        }
        match client.receive() {
            Ok(ToClient::Stored) => Ok(()),
            Ok(other) => Err(client.unexpected(other.name(), "that a blob is kept")),
            Err(ClientError::Fault { server, fault: Fault::WrongDigest { .. } }) => {
                Err(ClientError::Changed { server })
            }
            Err(error) => Err(error),
        }
    }

    fn download(&self, blobs: &[u64]) -> Result<Vec<Vec<u8>>, ClientError> {
        let client = &self.client;
        let bytes = blobs.iter().fold(0u64, |sum, &bytes| sum.saturating_add(bytes));
        if bytes > MOST_ANSWERED {
            let server = client.server.clone();
            return Err(ClientError::TooMuch { server, bytes, limit: MOST_ANSWERED });
        }
        let whole = |&bytes: &u64| {
            let mut blob = Vec::new();
            while (blob.len() as u64) < bytes {
                match client.read()? {
                    (Kind::Piece, piece)
                        if !piece.is_empty() && (blob.len() + piece.len()) as u64 <= bytes =>
                    {
                        blob.extend_from_slice(&piece);
                    }
                    (Kind::Piece, _) => {
                        return Err(client.unexpected("more than it announced", "a piece of a blob"));
                    }
                    (Kind::Message, bytes) => match frame::parse(&bytes) {
                        Ok(ToClient::Beat) => {}
                        Ok(other) => {
                            return Err(client.unexpected(other.name(), "a piece of a blob"));
                        }
                        Err(error) => return Err(client.lost(error)),
                    },
                }
            }
            Ok(blob)
        };
        blobs.iter().map(whole).collect()
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // A connection that does not hold has no lease either.
        if self.client.send(&ToServer::Release).is_ok() {
            while let Ok(answer) = self.client.receive() {
                if matches!(answer, ToClient::Released) {
                    break;
                }
            }
        }
    }
}
