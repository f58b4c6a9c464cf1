//! One client's connection, behind the handshake.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::blob::{Blob, Digest};
use crate::child::{self, Control};
use crate::fault::Fault;
use crate::frame::{self, FrameError, Kind, MESSAGE, PIECE};
use crate::message::{ToClient, ToServer};
use crate::peer::{Peer, Until};
use crate::shared::Shared;
use crate::worker::{Call, blob_of};

/// A client that may ask.
pub(crate) struct Session {
    shared: Arc<Shared>,
    client: u64,
    peer: Arc<Peer>,
    running: Option<Running>,
}

/// A job at work.
struct Running {
    thread: JoinHandle<()>,
    control: Arc<Control>,
    /// Whether the child has ended, so that nothing but the answer is left to send.
    is_done: Arc<AtomicBool>,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, client: u64, peer: Arc<Peer>) -> Session {
        Session { shared, client, peer, running: None }
    }

    fn read(&self, limit: usize) -> Result<(Kind, Vec<u8>), FrameError> {
        frame::read(&mut Until::within(self.peer.stream(), self.shared.limits.silence), limit)
    }

    /// Does what the client asks for, until the connection ends.
    pub(crate) fn serve(&mut self) -> FrameError {
        loop {
            let asked = match self.read(MESSAGE) {
                Ok((Kind::Message, bytes)) => frame::parse(&bytes),
                Ok((Kind::Piece, _)) => {
                    Err(FrameError::Unexpected { got: "a piece of a blob", expected: "a request" })
                }
                Err(error) => Err(error),
            };
            if let Err(error) = asked.and_then(|request| self.answer(request)) {
                return error;
            }
        }
    }

    fn answer(&mut self, request: ToServer) -> Result<(), FrameError> {
        let done = match request {
            ToServer::Beat => return self.peer.send(&ToClient::Beat),
            ToServer::Status => return self.peer.send(&ToClient::Status(self.shared.status())),
            ToServer::Lease => self.shared.leases.ask(self.client, &self.peer),
            ToServer::Release => {
                self.end_job();
                self.shared.leases.leave(self.client);
                return self.peer.send(&ToClient::Released);
            }
            ToServer::Lacks(blobs) => match self.may_work() {
                Ok(()) => return self.peer.send(&ToClient::Lacks(self.shared.store.keep(blobs))),
                Err(fault) => Err(fault),
            },
            ToServer::Put { digest, bytes } => match self.may_work() {
                Ok(()) => return self.put(digest, bytes),
                Err(fault) => Err(fault),
            },
            ToServer::Job { kind, request, blobs, limit_ms } => {
                self.begin(kind, request, &blobs, Duration::from_millis(limit_ms))
            }
        };
        done.or_else(|fault| self.peer.send(&ToClient::Fault(fault)))
    }

    /// Whether the client has the machine, and nothing runs.
    fn may_work(&mut self) -> Result<(), Fault> {
        if !self.shared.leases.has(self.client) {
            return Err(Fault::NoLease);
        }
        match self.running.take_if(|running| running.is_done.load(Ordering::Acquire)) {
            // The answer was sent.
            Some(running) => drop(running.thread.join()),
            None if self.running.is_some() => return Err(Fault::Busy),
            None => {}
        }
        Ok(())
    }

    /// Takes a blob. What goes wrong with it is told at its end: then the client hears again.
    fn put(&self, digest: Digest, bytes: u64) -> Result<(), FrameError> {
        let mut upload = match self.shared.store.begin(digest, bytes) {
            Ok(upload) => upload,
            Err(fault) => return self.peer.send(&ToClient::Fault(fault)),
        };
        self.peer.send(&ToClient::Agreed)?;
        let mut taken = Ok(());
        while upload.left() > 0 {
            match self.read(PIECE)? {
                (Kind::Piece, piece) if !piece.is_empty() && piece.len() as u64 <= upload.left() => {
                    let took = upload.take(&piece);
                    taken = taken.and(took);
                }
                (Kind::Piece, _) => {
                    let got = "an empty piece, or more than was announced";
                    return Err(FrameError::Unexpected { got, expected: "a piece of a blob" });
                }
                (Kind::Message, bytes) => match frame::parse(&bytes)? {
                    ToServer::Beat => self.peer.send(&ToClient::Beat)?,
                    _ => {
                        let (got, expected) = ("a request", "a piece of a blob");
                        return Err(FrameError::Unexpected { got, expected });
                    }
                },
            }
        }
        match taken.and_then(|()| upload.finish()) {
            Ok(()) => self.peer.send(&ToClient::Stored),
            Err(fault) => self.peer.send(&ToClient::Fault(fault)),
        }
    }

    /// Starts a job, whose thread tells the client what comes of it.
    fn begin(
        &mut self,
        kind: String,
        request: Vec<u8>,
        blobs: &[Digest],
        limit: Duration,
    ) -> Result<(), Fault> {
        self.may_work()?;
        let known = &self.shared.machine.kinds;
        if !known.contains(&kind) {
            return Err(Fault::NoKind { kind, known: known.clone() });
        }
        let find = |digest: &Digest| self.shared.store.find(*digest).ok_or(Fault::LacksBlob(*digest));
        let blobs = blobs.iter().map(find).collect::<Result<_, _>>()?;
        let number = self.shared.jobs.fetch_add(1, Ordering::Relaxed);
        let folder = self.shared.store.folder().join(format!("job-{number}"));
        fs::create_dir(&folder).map_err(|error| Fault::Store(error.to_string()))?;
        let call = Call { kind, request, blobs, folder };
        let limit = limit.min(self.shared.limits.job);
        let (control, is_done) = (Arc::new(Control::default()), Arc::new(AtomicBool::new(false)));
        let job = JobThread { shared: self.shared.clone(), peer: self.peer.clone(), call, limit };
        let thread = thread::Builder::new().name("job".to_string()).spawn({
            let (control, is_done) = (control.clone(), is_done.clone());
            move || job.run(&control, &is_done)
        });
        let thread = thread.map_err(|error| Fault::Start(error.to_string()))?;
        self.running = Some(Running { thread, control, is_done });
        Ok(())
    }

    /// Kills the job, if one runs.
    fn end_job(&mut self) {
        if let Some(Running { thread, control, .. }) = self.running.take() {
            control.cancel();
            // It tells nobody but the client what went wrong.
            _ = thread.join();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Before the job's thread is waited for: it may be sending.
        self.peer.end();
        self.end_job();
        self.shared.leases.leave(self.client);
    }
}

struct JobThread {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    call: Call,
    limit: Duration,
}

impl JobThread {
    fn run(&self, control: &Control, is_done: &AtomicBool) {
        self.shared.is_busy.store(true, Ordering::Relaxed);
        let made = child::run((self.shared.command)(), &self.call, self.limit, control);
        self.shared.is_busy.store(false, Ordering::Relaxed);
        is_done.store(true, Ordering::Release);
        let told = made.and_then(|(answer, n)| Ok((answer, blobs(&self.call.folder, n)?)));
        let sent = match told {
            Ok((answer, blobs)) => self.send(answer, &blobs),
            Err(fault) => self.peer.send(&ToClient::Fault(fault)),
        };
        if sent.is_err() {
            // Half an answer is none; the client's own thread finds the connection ended.
            self.peer.end();
        }
        // What stays goes with the server.
        _ = fs::remove_dir_all(&self.call.folder);
    }

    fn send(&self, answer: Vec<u8>, blobs: &[Blob]) -> Result<(), FrameError> {
        self.peer.send(&ToClient::Done { answer, blobs: blobs.iter().map(Blob::bytes).collect() })?;
        blobs.iter().try_for_each(|blob| blob.pieces(&mut |piece| self.peer.write(Kind::Piece, piece)))
    }
}

/// The blobs that a job has left.
fn blobs(folder: &Path, n: u32) -> Result<Vec<Blob>, Fault> {
    let blob = |index| Blob::of_file(blob_of(folder, index)).map_err(|error| Fault::Store(error.to_string()));
    (0..n as usize).map(blob).collect()
}
