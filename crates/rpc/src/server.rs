//! The server: accepts connections, a thread for each, until it is stopped. Where nothing happens, all threads sleep in the system.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::ServeError;
use crate::handshake;
use crate::lease::Leases;
use crate::machine::Machine;
use crate::peer::{Peer, Until};
use crate::session::Session;
use crate::shared::{Limits, Shared};
use crate::store::Store;
use crate::token::Token;

/// What a server is made of.
pub struct Config {
    /// What is allowed.
    pub limits: Limits,
    /// What clients must know; without one, only this machine's programs are served.
    pub token: Option<Token>,
    /// What clients are told of the machine.
    pub machine: Machine,
    /// The version of the program, which clients must have too.
    pub version: String,
    /// Starts a process that calls [`crate::worker::work`].
    pub command: Box<dyn Fn() -> Command + Send + Sync>,
    /// Is told, line by line, what happens.
    pub log: Box<dyn Fn(&str) + Send + Sync>,
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What stops a server from another thread.
#[derive(Clone)]
pub struct Stopper {
    address: SocketAddr,
    /// It may live longer than the server, whose files go with the last who shares it.
    shared: Weak<Shared>,
}

impl Stopper {
    /// Ends all connections, kills the job, and lets [`Server::run`] return.
    pub fn stop(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        shared.is_stopping.store(true, Ordering::SeqCst);
        shared.connections().iter().for_each(|(_, peer)| peer.end());
        drop(shared);
        // It sleeps until somebody comes.
        let ip = match self.address.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        _ = TcpStream::connect_timeout(&(ip, self.address.port()).into(), Duration::from_secs(1));
    }
}

impl Server {
    /// Listens on a host's port; port 0 is one that the system picks.
    ///
    /// # Errors
    /// [`ServeError::Open`] where other machines would reach it and it has no token; or where it cannot listen.
    pub fn bind(host: &str, port: u16, config: Config) -> Result<Server, ServeError> {
        let failed = |error| ServeError::Listen { address: format!("{host}:{port}"), error };
        let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(failed)?.collect();
        if let (Some(&address), None) =
            (addresses.iter().find(|address| !address.ip().is_loopback()), &config.token)
        {
            return Err(ServeError::Open { address });
        }
        let listener = TcpListener::bind(&addresses[..]).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let Config { limits, token, machine, version, command, log } = config;
        let shared = Shared {
            leases: Leases::new(limits.waiting),
            store: Store::new(limits.store).map_err(ServeError::Store)?,
            limits,
            machine,
            command,
            jobs: AtomicU64::new(0),
            is_busy: AtomicBool::new(false),
            token,
            version,
            log,
            is_stopping: AtomicBool::new(false),
            connections: Mutex::default(),
        };
        Ok(Server { listener, address, shared: Arc::new(shared) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What stops it.
    pub fn stopper(&self) -> Stopper {
        Stopper { address: self.address, shared: Arc::downgrade(&self.shared) }
    }

    /// Serves until it is stopped. Then no thread and no child is left.
    pub fn run(self) {
        /// How long it waits where the system has no more connections.
        const PAUSE: Duration = Duration::from_millis(100);
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        for client in 0.. {
            let accepted = self.listener.accept();
            if self.shared.is_stopping.load(Ordering::SeqCst) {
                break;
            }
            threads.retain(|thread| !thread.is_finished());
            let started = accepted.and_then(|(stream, address)| self.start(client, stream, address));
            match started {
                Ok(thread) => threads.extend(thread),
                Err(error) => {
                    (self.shared.log)(&format!("no connection: {error}"));
                    thread::sleep(PAUSE);
                }
            }
        }
        // Also those that came while it was being stopped.
        self.shared.connections().iter().for_each(|(_, peer)| peer.end());
        for thread in threads {
            // What a thread panicked with was told.
            _ = thread.join();
        }
    }

    /// Starts a connection's thread, unless there are too many.
    fn start(
        &self,
        client: u64,
        stream: TcpStream,
        address: SocketAddr,
    ) -> io::Result<Option<JoinHandle<()>>> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(self.shared.limits.silence))?;
        let peer = Arc::new(Peer::new(stream));
        let mut connections = self.shared.connections();
        let (n, most) = (connections.len(), self.shared.limits.connections);
        // As many again are told why they are turned away.
        if n >= 2 * most {
            return Ok(None);
        }
        let full = (n >= most).then_some(n as u32);
        let shared = self.shared.clone();
        let thread = thread::Builder::new().name(format!("client {client}")).spawn({
            let peer = peer.clone();
            move || {
                let why = connection(&shared, client, peer, full);
                shared.connections().retain(|(other, _)| *other != client);
                if let Some(why) = why {
                    (shared.log)(&format!("{address}: {why}"));
                }
            }
        })?;
        // The thread takes it out behind this one's lock.
        connections.push((client, peer));
        Ok(Some(thread))
    }
}

/// Serves one client; why the connection ended, where it did not end well.
fn connection(shared: &Arc<Shared>, client: u64, peer: Arc<Peer>, full: Option<u32>) -> Option<String> {
    let mut stream = Until::within(peer.stream(), shared.limits.handshake);
    let server = handshake::Server {
        version: &shared.version,
        token: shared.token.as_ref(),
        machine: &shared.machine,
        silence: shared.limits.silence,
        full,
    };
    if let Err(error) = handshake::as_server(&mut stream, &server) {
        peer.end();
        return Some(error.to_string());
    }
    match Session::new(shared.clone(), client, peer).serve() {
        crate::FrameError::Closed => None,
        error => Some(error.to_string()),
    }
}
