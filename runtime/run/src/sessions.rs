//! The sessions of a model: each run has one for itself, and leaves it to later ones.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::panicking;
use std::time::Duration;

use tilewright_runtime::threads::available_threads;
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

/// The sessions, made as runs need them that happen at the same time.
///
/// The first have places. A run holds the lock of a place, and each thread tries the one that it had last first: so one that
/// runs again finds the memory that its core has in its caches, and threads do not meet at one lock. Places are several times as many as
/// processors, for threads that hold one without a processor to run on. Beyond them, sessions lie in a list.
pub(crate) struct Sessions {
    places: Box<[Slot]>,
    rest: Mutex<Rest>,
    /// Runs that wait for a session.
    n_waiting: AtomicUsize,
    waiting: Mutex<()>,
    released: Condvar,
}

/// Apart from the others in the caches of cores.
#[derive(Default)]
#[repr(align(128))]
struct Slot(Mutex<Option<Box<Own>>>);

/// Places for a processor.
const PLACES: usize = 4;

/// Sessions without a place.
struct Rest {
    /// Those that no run has, the last used last.
    #[expect(clippy::vec_box, reason = "each run that takes one moves it, and it is large")]
    idle: Vec<Box<Own>>,
    /// How many more may be made.
    n_more: usize,
}

/// A session that a run has for itself. Fields are dropped in this order: it is free when others are told.
pub(crate) struct Held<'a> {
    origin: Origin<'a>,
    _release: Release<'a>,
}

/// Where a session came from, and goes back to.
enum Origin<'a> {
    Place(MutexGuard<'a, Option<Box<Own>>>),
    Rest(Lent<'a>),
}

/// One of the rest, made when it is first used.
struct Lent<'a> {
    own: Option<Box<Own>>,
    rest: &'a Mutex<Rest>,
}

/// Tells who waits that a session is free.
struct Release<'a>(&'a Sessions);

impl Sessions {
    /// At most so many.
    pub(crate) fn new(max: usize) -> Sessions {
        let max = max.max(1);
        let n_places = max.min(PLACES * available_threads());
        Sessions {
            places: (0..n_places).map(|_| Slot::default()).collect(),
            rest: Mutex::new(Rest { idle: Vec::new(), n_more: max - n_places }),
            n_waiting: AtomicUsize::new(0),
            waiting: Mutex::new(()),
            released: Condvar::new(),
        }
    }

    /// Takes a session, and waits for one where all are taken; `None` where the run is cancelled meanwhile.
    pub(crate) fn hold(&self, cancel: Option<&Cancel>) -> Option<Held<'_>> {
        if let Some(held) = self.try_hold() {
            return Some(held);
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.n_waiting.fetch_add(1, Ordering::Relaxed);
        let held = loop {
            // Either this sees the session that was released last, or who released it sees the count.
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

    /// Takes what nobody has: the place of the thread or another with a session, else one without, else one of the rest.
    fn try_hold(&self) -> Option<Held<'_>> {
        let n = self.places.len();
        let home = HOME.get() % n;
        let mut found = None;
        for place in (home..n).chain(0..home) {
            let Some(guard) = self.places[place].try_lock() else { continue };
            let has_session = guard.is_some();
            if has_session || found.is_none() {
                found = Some((place, guard));
            }
            if has_session {
                break;
            }
        }
        let origin = match found {
            Some((place, guard)) => {
                HOME.set(place);
                Origin::Place(guard)
            }
            None => Origin::Rest(Lent::of(&self.rest)?),
        };
        Some(Held { origin, _release: Release(self) })
    }
}

impl<'a> Lent<'a> {
    /// One that no run has, else one to be made; `None` where all that may be are at work.
    fn of(rest: &'a Mutex<Rest>) -> Option<Lent<'a>> {
        let mut locked = rest.lock().unwrap_or_else(PoisonError::into_inner);
        let own = locked.idle.pop();
        if own.is_none() {
            locked.n_more = locked.n_more.checked_sub(1)?;
        }
        Some(Lent { own, rest })
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // Where something panicked in a run, its session is in no state to be used.
        let own = self.own.take().filter(|_| !panicking());
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        match own {
            Some(own) => rest.idle.push(own),
            None => rest.n_more += 1,
        }
    }
}

impl Slot {
    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Box<Own>>>> {
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
    /// What the session has, made where it is new.
    pub(crate) fn own(&mut self, make: impl FnOnce() -> Own) -> &mut Own {
        self.origin.own().get_or_insert_with(|| Box::new(make()))
    }

    /// Drops what it has: the next run makes another.
    pub(crate) fn discard(&mut self) {
        *self.origin.own() = None;
    }
}

impl Origin<'_> {
    fn own(&mut self) -> &mut Option<Box<Own>> {
        match self {
            Origin::Place(place) => place,
            Origin::Rest(lent) => &mut lent.own,
        }
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        fence(Ordering::SeqCst);
        if self.0.n_waiting.load(Ordering::Relaxed) > 0 {
            // Who waits holds this lock from looking for a session to sleeping.
            drop(self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            self.0.released.notify_one();
        }
    }
}

thread_local! {
    /// The place that the thread had last. At first a count of threads, so that those of a program have places of their own.
    static HOME: Cell<usize> = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        Cell::new(THREADS.fetch_add(1, Ordering::Relaxed))
    };
}
