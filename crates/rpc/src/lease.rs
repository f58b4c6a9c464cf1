//! Who has the machine: one client at a time, the others in the order in which they asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fault::Fault;
use crate::message::ToClient;
use crate::peer::Peer;

/// The client that has the machine, and those that wait.
pub(crate) struct Leases {
    most_waiting: usize,
    /// The first has the machine.
    line: Mutex<VecDeque<(u64, Arc<Peer>)>>,
}

impl Leases {
    /// Nobody, and so many at most that wait.
    pub(crate) fn new(most_waiting: usize) -> Leases {
        Leases { most_waiting, line: Mutex::default() }
    }

    fn line(&self) -> MutexGuard<'_, VecDeque<(u64, Arc<Peer>)>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody has the machine, and how many wait.
    pub(crate) fn taken(&self) -> (bool, u32) {
        let n = self.line().len() as u32;
        (n > 0, n.saturating_sub(1))
    }

    /// Whether a client has the machine.
    pub(crate) fn has(&self, client: u64) -> bool {
        self.line().front().is_some_and(|(first, _)| *first == client)
    }

    /// Puts a client in line and tells it where. Who is in line stays where it is.
    pub(crate) fn ask(&self, client: u64, peer: &Arc<Peer>) -> Result<(), Fault> {
        let mut line = self.line();
        let place = line.iter().position(|(other, _)| *other == client);
        if place.is_none() {
            if line.len() > self.most_waiting {
                return Err(Fault::QueueFull { waiting: (line.len() - 1) as u32 });
            }
            line.push_back((client, peer.clone()));
        }
        tell(peer, place.unwrap_or(line.len() - 1));
        Ok(())
    }

    /// Takes a client out of the line. Those behind it are told.
    pub(crate) fn leave(&self, client: u64) {
        let mut line = self.line();
        let Some(place) = line.iter().position(|(other, _)| *other == client) else { return };
        line.remove(place);
        for (place, (_, peer)) in line.iter().enumerate().skip(place) {
            tell(peer, place);
        }
    }
}

/// A client that cannot be told is found gone by its own thread.
fn tell(peer: &Peer, place: usize) {
    _ = match place {
        0 => peer.send(&ToClient::Granted),
        ahead => peer.send(&ToClient::Queued { ahead: ahead as u32 }),
    };
}
