//! The sessions of a model: each run has one for itself, and leaves it to later ones.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use tilewright_runtime::{Cancel, Session};

use crate::outputs::Spare;

/// What a run has for itself: a session, and what its outputs share with those of later ones.
///
/// Counts of owners are each place's own as well: threads would wait for one another where they change one.
pub(crate) struct Own {
    pub(crate) session: Session,
    /// The names of the outputs.
    pub(crate) names: Arc<[Arc<str>]>,
    /// Memory of outputs that were dropped.
    pub(crate) spare: Arc<Spare>,
}

/// Places for sessions, which are made when they are first needed.
///
/// A run holds the lock of a place. Each thread tries its own first: so one that runs again finds the memory that its
/// core has in its caches, and threads do not meet at one lock.
pub(crate) struct Sessions {
    places: Box<[Slot]>,
    /// Runs that wait for a place.
    n_waiting: AtomicUsize,
    waiting: Mutex<()>,
    released: Condvar,
}

/// Apart from the others in the caches of cores.
#[derive(Default)]
#[repr(align(128))]
struct Slot(Mutex<Option<Own>>);

/// A place that a run has for itself. Fields are dropped in this order: the place is free when others are told.
pub(crate) struct Held<'a> {
    place: MutexGuard<'a, Option<Own>>,
    _release: Release<'a>,
}

/// Tells who waits that a place is free.
struct Release<'a>(&'a Sessions);

impl Sessions {
    pub(crate) fn new(max: usize) -> Sessions {
        Sessions {
            places: (0..max.max(1)).map(|_| Slot::default()).collect(),
            n_waiting: AtomicUsize::new(0),
            waiting: Mutex::new(()),
            released: Condvar::new(),
        }
    }

    /// Takes a place, and waits for one where all are taken; `None` where the run is cancelled meanwhile.
    pub(crate) fn hold(&self, cancel: Option<&Cancel>) -> Option<Held<'_>> {
        if let Some(held) = self.try_hold() {
            return Some(held);
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.n_waiting.fetch_add(1, Ordering::Relaxed);
        let held = loop {
            // Either this sees the place that was released last, or who released it sees the count.
            fence(Ordering::SeqCst);
            if let Some(held) = self.try_hold() {
                break Some(held);
            }
            waiting = match cancel {
                None => self.released.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(cancel) if cancel.is_cancelled() => break None,
                // A request to stop wakes nobody.
                Some(_) => {
                    let woken = self.released.wait_timeout(waiting, Duration::from_millis(5));
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        self.n_waiting.fetch_sub(1, Ordering::Relaxed);
        held
    }

    /// Takes a place that nobody has: the thread's own or another with a session, else one without.
    fn try_hold(&self) -> Option<Held<'_>> {
        let n = self.places.len();
        let home = HOME.with(|home| *home) % n;
        let mut empty = None;
        for place in (home..n).chain(0..home) {
            let Some(guard) = self.places[place].try_lock() else { continue };
            if guard.is_some() {
                return Some(self.held(guard));
            }
            empty.get_or_insert(guard);
        }
        empty.map(|guard| self.held(guard))
    }

    fn held<'a>(&'a self, place: MutexGuard<'a, Option<Own>>) -> Held<'a> {
        Held { place, _release: Release(self) }
    }
}

impl Slot {
    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Own>>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => {
                // Something panicked in a run: its session is in no state to be used.
                self.0.clear_poison();
                let mut guard = poisoned.into_inner();
                *guard = None;
                Some(guard)
            }
        }
    }
}

impl Held<'_> {
    /// What this place has, made where it has nothing.
    pub(crate) fn own(&mut self, make: impl FnOnce() -> Own) -> &mut Own {
        self.place.get_or_insert_with(make)
    }

    /// Drops what it has: the next run makes another.
    pub(crate) fn discard(&mut self) {
        *self.place = None;
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        fence(Ordering::SeqCst);
        if self.0.n_waiting.load(Ordering::Relaxed) > 0 {
            // Who waits holds this lock from looking at the places to sleeping.
            drop(self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            self.0.released.notify_one();
        }
    }
}

thread_local! {
    /// Counts threads, so that those of a program have places of their own.
    static HOME: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed)
    };
}
