//! What all threads of a server share.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::SILENCE;
use crate::lease::Leases;
use crate::machine::{Machine, Status};
use crate::peer::Peer;
use crate::store::Store;
use crate::token::Token;

/// What a server allows.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most connections at once.
    pub connections: usize,
    /// Most clients that wait for the machine.
    pub waiting: usize,
    /// Most bytes of uploads that are kept.
    pub store: u64,
    /// Longest time of a job.
    pub job: Duration,
    /// How long a client may be silent.
    pub silence: Duration,
    /// How long a handshake may take.
    pub handshake: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 32,
            waiting: 16,
            store: 4 << 30,
            job: Duration::from_secs(600),
            silence: SILENCE,
            handshake: Duration::from_secs(10),
        }
    }
}

/// What all threads of a server share.
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) machine: Machine,
    pub(crate) command: Box<dyn Fn() -> Command + Send + Sync>,
    pub(crate) leases: Leases,
    pub(crate) store: Store,
    pub(crate) jobs: AtomicU64,
    pub(crate) is_busy: AtomicBool,
    pub(crate) token: Option<Token>,
    pub(crate) version: String,
    pub(crate) log: Box<dyn Fn(&str) + Send + Sync>,
    pub(crate) is_stopping: AtomicBool,
    pub(crate) connections: Mutex<Vec<(u64, Arc<Peer>)>>,
}

impl Shared {
    /// The connections, with the numbers of their clients.
    pub(crate) fn connections(&self) -> MutexGuard<'_, Vec<(u64, Arc<Peer>)>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who uses the machine.
    pub(crate) fn status(&self) -> Status {
        let (is_leased, waiting) = self.leases.taken();
        Status {
            machine: self.machine.clone(),
            is_leased,
            is_busy: self.is_busy.load(Ordering::Relaxed),
            waiting,
            jobs: self.jobs.load(Ordering::Relaxed),
            stored: self.store.bytes(),
        }
    }
}
