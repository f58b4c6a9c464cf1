//! What is to be measured by several machines, and how these are.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tilewright_run::Cancel;

use crate::measure::{MeasureError, Measured, Times};

/// How often it is looked whether a machine hangs, while a result is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// How long to wait for machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The longest that a measurement may take before a machine that has nothing else to do is asked too.
    pub slow: Duration,
    /// The longest that it may take before the machine counts as lost.
    pub answer: Duration,
    /// From the loss of a machine until it is asked again; then twice as long, and so on.
    pub backoff: Duration,
    /// The longest of these.
    pub longest: Duration,
    /// How often a machine is asked in vain before it counts as gone. It is still asked as long as others are there.
    pub attempts: u32,
    /// How many machines may be lost with a schedule before that counts as failed.
    pub losses: usize,
}

impl Default for Patience {
    /// A machine that is stopped for a minute comes back.
    fn default() -> Patience {
        Patience {
            slow: Duration::from_secs(5),
            answer: Duration::from_secs(60),
            backoff: Duration::from_millis(100),
            longest: Duration::from_secs(10),
            attempts: 14,
            losses: 3,
        }
    }
}

/// A queue of requests. Batches follow one another; what comes late of an earlier one is nobody's any more.
pub(crate) struct Queue<T> {
    names: Vec<String>,
    patience: Patience,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    batch: u64,
    slots: Vec<Slot<T>>,
    machines: Vec<Machine>,
    closed: bool,
}

struct Machine {
    health: Health,
    /// What it measures, and since when.
    busy: Option<Busy>,
}

#[derive(Clone, Copy)]
struct Busy {
    place: usize,
    batch: u64,
    since: Instant,
}

/// A request of the batch.
struct Slot<T> {
    step: Step<T>,
    /// Machines that were lost with it.
    lost_by: Vec<usize>,
}

enum Step<T> {
    Compiling,
    Waiting(Arc<T>),
    Running { request: Arc<T>, by: usize },
    Done(Result<Measured, MeasureError>),
    Taken,
}

/// How a machine is.
enum Health {
    /// It measures, or would.
    There,
    /// It was lost, and asked in vain so often since.
    Lost { attempts: u32, why: String },
    /// It has not answered in time.
    Hangs { limit: Duration },
    /// It cannot measure what it was asked.
    Unfit { why: String },
}

/// A request that a machine has taken.
pub(crate) struct Ticket<T> {
    pub(crate) request: Arc<T>,
    pub(crate) place: usize,
    pub(crate) batch: u64,
}

impl<T> Queue<T> {
    /// A queue for machines of these names.
    pub(crate) fn new(names: Vec<String>, patience: Patience) -> Queue<T> {
        let machines = names.iter().map(|_| Machine { health: Health::There, busy: None }).collect();
        let state = State { batch: 0, slots: Vec::new(), machines, closed: false };
        Queue { names, patience, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Each change is whole, whatever became of who made it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and lets all see it.
    fn change<V>(&self, change: impl FnOnce(&mut State<T>) -> V) -> V {
        let value = change(&mut self.lock());
        self.changed.notify_all();
        value
    }

    /// Begins a batch of so many requests.
    pub(crate) fn begin(&self, n: usize) {
        self.change(|state| {
            state.batch += 1;
            state.slots = (0..n).map(|_| Slot { step: Step::Compiling, lost_by: Vec::new() }).collect();
        });
    }

    /// Ends the batch, whatever of it is under way.
    pub(crate) fn end(&self) {
        self.begin(0);
    }

    /// Sends the machines home.
    pub(crate) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// A request was compiled, or could not be.
    pub(crate) fn offer(&self, place: usize, compiled: Result<T, MeasureError>) {
        self.change(|state| {
            // There may be nobody left to measure it.
            if let Some(slot) = state.slots.get_mut(place).filter(|slot| matches!(slot.step, Step::Compiling))
            {
                slot.step = match compiled {
                    Ok(request) => Step::Waiting(Arc::new(request)),
                    Err(error) => Step::Done(Err(error)),
                };
            }
        });
    }

    /// The next request for a machine, as soon as there is one; nothing when there will be none.
    pub(crate) fn next(&self, me: usize) -> Option<Ticket<T>> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(ticket) = state.take(me) {
                return Some(ticket);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A machine has answered. That it seemed to hang is forgotten.
    pub(crate) fn done(&self, me: usize, place: usize, batch: u64, result: Result<Times, MeasureError>) {
        self.change(|state| {
            state.machines[me] = Machine { health: Health::There, busy: None };
            if let Some(slot) = state.open_slot(place, batch) {
                slot.step = Step::Done(result.map(|times| Measured { times, machine: me }));
            }
        });
    }

    /// A machine was lost with a request.
    pub(crate) fn lost(&self, me: usize, place: usize, batch: u64, why: String) {
        let losses = self.patience.losses;
        self.change(|state| {
            state.give_back(me, place, batch, losses, &why);
            state.machines[me] = Machine { health: Health::Lost { attempts: 0, why }, busy: None };
        });
    }

    /// A machine cannot measure such requests. Another may.
    pub(crate) fn unfit(&self, me: usize, place: usize, batch: u64, why: String) {
        self.change(|state| {
            state.give_back(me, place, batch, usize::MAX, &why);
            state.machines[me] = Machine { health: Health::Unfit { why }, busy: None };
        });
    }

    /// A machine is there again.
    pub(crate) fn found(&self, me: usize) {
        self.change(|state| state.machines[me].health = Health::There);
    }

    /// A machine was asked in vain.
    pub(crate) fn still_lost(&self, me: usize, why: String) {
        self.change(|state| {
            let attempts = match &state.machines[me].health {
                Health::Lost { attempts, .. } => *attempts,
                Health::There | Health::Hangs { .. } | Health::Unfit { .. } => 0,
            };
            state.machines[me].health = Health::Lost { attempts: attempts + 1, why };
        });
    }

    /// Waits for some time; whether the queue is still open then.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut state = self.lock();
        while !state.closed {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// The result of a request, as soon as it is there.
    pub(crate) fn wait(&self, place: usize, cancel: &Cancel) -> Result<Measured, MeasureError> {
        let mut state = self.lock();
        loop {
            if let Some(result) = state.result(place) {
                return result;
            }
            if cancel.is_cancelled() {
                return Err(MeasureError::Cancelled);
            }
            let has_changed = state.ask_others(self.patience);
            if state.machines.iter().all(|machine| machine.health.is_gone(self.patience)) {
                state.give_up(&self.names);
            } else {
                if has_changed {
                    self.changed.notify_all();
                }
                state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl<T> State<T> {
    /// The slot of a request of a batch, unless that has its result.
    fn open_slot(&mut self, place: usize, batch: u64) -> Option<&mut Slot<T>> {
        let slot = self.slots.get_mut(place).filter(|_| self.batch == batch)?;
        match slot.step {
            Step::Compiling | Step::Waiting(_) | Step::Running { .. } => Some(slot),
            Step::Done(_) | Step::Taken => None,
        }
    }

    /// Gives a machine the first request that waits. One that it was lost with goes to another if any is there.
    fn take(&mut self, me: usize) -> Option<Ticket<T>> {
        let is_there = |n: usize| matches!(self.machines.get(n), Some(Machine { health: Health::There, .. }));
        let suits = |slot: &Slot<T>| {
            let others = (0..self.machines.len()).filter(|n| !slot.lost_by.contains(n) && is_there(*n));
            !slot.lost_by.contains(&me) || others.count() == 0
        };
        let waits = |slot: &Slot<T>| matches!(slot.step, Step::Waiting(_));
        let place = self.slots.iter().position(|slot| waits(slot) && suits(slot))?;
        let slot = self.slots.get_mut(place)?;
        let Step::Waiting(request) = &slot.step else { return None };
        let request = request.clone();
        slot.step = Step::Running { request: request.clone(), by: me };
        let batch = self.batch;
        self.machines[me].busy = Some(Busy { place, batch, since: Instant::now() });
        Some(Ticket { request, place, batch })
    }

    /// Lets a request wait again that a machine has and does not measure, or has it fail if that happened too often.
    fn give_back(&mut self, me: usize, place: usize, batch: u64, losses: usize, why: &str) {
        let Some(slot) = self.open_slot(place, batch) else { return };
        let Step::Running { request, by } = &slot.step else { return };
        if *by != me {
            return;
        }
        let request = request.clone();
        slot.lost_by.push(me);
        slot.step = match slot.lost_by.len() {
            n if n >= losses => {
                Step::Done(Err(MeasureError::Failed(format!("machines were lost with it {n} times: {why}"))))
            }
            _ => Step::Waiting(request),
        };
    }

    /// Lets requests wait again that machines take long to answer, if others have nothing to do, and those of machines that hang;
    /// whether there were any.
    fn ask_others(&mut self, patience: Patience) -> bool {
        let mut has_changed = false;
        for me in 0..self.machines.len() {
            let Machine { health: Health::There, busy: Some(busy) } = &self.machines[me] else { continue };
            let (Busy { place, batch, .. }, waited) = (*busy, busy.since.elapsed());
            if waited > patience.answer {
                let health = Health::Hangs { limit: patience.answer };
                self.give_back(me, place, batch, patience.losses, &health.to_string());
                self.machines[me].health = health;
                has_changed = true;
            } else if waited > patience.slow {
                has_changed |= self.offer_again(me, place, batch);
            }
        }
        has_changed
    }

    /// Lets a request wait again that a machine measures still, if another has nothing to do; whether it does.
    fn offer_again(&mut self, me: usize, place: usize, batch: u64) -> bool {
        let is_idle = |machine: &Machine| machine.busy.is_none() && matches!(machine.health, Health::There);
        if !self.machines.iter().any(is_idle) {
            return false;
        }
        let Some(slot) = self.open_slot(place, batch) else { return false };
        match &slot.step {
            Step::Running { request, by } if *by == me => {
                slot.step = Step::Waiting(request.clone());
                true
            }
            _ => false,
        }
    }

    /// Takes a result.
    fn result(&mut self, place: usize) -> Option<Result<Measured, MeasureError>> {
        let slot = self.slots.get_mut(place)?;
        match std::mem::replace(&mut slot.step, Step::Taken) {
            Step::Done(result) => Some(result),
            other => {
                slot.step = other;
                None
            }
        }
    }

    /// Nobody is left for what has no result.
    fn give_up(&mut self, names: &[String]) {
        let machines = names.iter().zip(&self.machines);
        let list = machines.map(|(name, machine)| format!("{name} {}", machine.health));
        let list: Vec<String> = list.collect();
        let why = format!("no machine is left to measure on: {}", list.join("; "));
        for slot in &mut self.slots {
            match slot.step {
                Step::Compiling | Step::Waiting(_) | Step::Running { .. } => {
                    slot.step = Step::Done(Err(MeasureError::Unavailable(why.clone())));
                }
                Step::Done(_) | Step::Taken => {}
            }
        }
    }
}

impl Health {
    /// Whether nothing is to be expected of the machine.
    fn is_gone(&self, patience: Patience) -> bool {
        match self {
            Health::There => false,
            Health::Lost { attempts, .. } => *attempts >= patience.attempts,
            Health::Hangs { .. } | Health::Unfit { .. } => true,
        }
    }
}

impl std::fmt::Display for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Health::There => f.write_str("is there"),
            Health::Lost { why, .. } => write!(f, "is lost ({why})"),
            Health::Hangs { limit } => write!(f, "has not answered for {} s", limit.as_secs_f64()),
            Health::Unfit { why } => write!(f, "cannot measure this ({why})"),
        }
    }
}
