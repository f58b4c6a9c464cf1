//! The thread pool: fork and join with shares that even out, a short spin, then sleep.
//!
//! The tasks of a round are cut into one contiguous part per thread, the same in every round; the caller works on the
//! first. A thread takes its part in pieces from the front, each a quarter of what is left, and when it is through it takes
//! over half of what another has left, from the back: cores of a shared machine do not run at one speed, and a kernel ends with its
//! slowest thread. Which thread runs a task has no influence on its results. A worker that has not begun when all tasks are taken is
//! not waited for: it may have been asleep, or its core is at something else. Threads that wait spin for up to [`SPIN`], because
//! the next kernel usually follows at once, and then park; workers do not while a run keeps them awake ([`Pool::keep_awake`]), nor
//! for [`LINGER`] after it. Only as many workers are woken as there are tasks. One job runs at a time: a caller that finds the pool
//! busy (another session, or a job inside a job) does its work on its own thread, which never blocks. Several callers at once keep
//! the processors busy by themselves, so that for the next [`APART`] jobs every caller works on its own thread: to share them would
//! only make threads wait for each other. In a child process after `fork`, where the workers do not exist, likewise.
#![allow(unsafe_code, reason = "hands borrowed jobs to threads that outlive them")]

mod sync;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::vec::Vec;

use sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, JoinHandle, Mutex, Thread, UnsafeCell};

use crate::pool::{Pool, TaskGrid, share};

/// How long a thread spins before it sleeps.
pub const SPIN: Duration = Duration::from_micros(50);

/// How long workers stay awake after a run that kept them awake: until the next one where runs come as fast as pictures of a
/// film or pieces of speech do.
pub const LINGER: Duration = Duration::from_millis(50);

/// Jobs that callers run on their own threads after one has found the pool busy. A few runs of a small model: enough that
/// asking again costs nothing, few enough that a caller soon has the pool to itself when the others are gone.
pub const APART: usize = 256;

/// Environment variable that overrides the number of threads.
pub const NUM_THREADS: &str = "TILEWRIGHT_NUM_THREADS";

/// Threads this process may use: [`NUM_THREADS`] if it is a number over 0, else what cgroup quotas (v1 and v2),
/// cpuset and affinity mask leave of the machine.
pub fn available_threads() -> usize {
    let asked = std::env::var(NUM_THREADS).ok().and_then(|value| parse_threads(&value));
    // The standard library reads quotas and mask as described.
    asked.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

fn parse_threads(value: &str) -> Option<usize> {
    value.trim().parse().ok().filter(|&threads| threads > 0)
}

type Job = dyn Fn(i64, i64) + Sync;

/// A job for the workers.
#[derive(Clone, Copy)]
struct Order {
    /// The caller waits until the workers that began are done, so the job outlives it although the type does not say so.
    job: *const Job,
    /// Threads that work on the job.
    parts: usize,
    grid: TaskGrid,
}

/// Most threads that work on a job, and most tasks of a part: what the fields of a [`Range`] hold.
const MAX_PARTS: usize = 1 << 8;
const MAX_TASKS: i64 = (1 << 28) - 1;

/// Some tasks of a part, by their numbers among the part's own, which go from round to round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    part: u64,
    begin: u64,
    end: u64,
}

impl Piece {
    fn from_word(word: u64) -> Piece {
        let field = |shift: u32, bits: u32| (word >> shift) & ((1 << bits) - 1);
        Piece { part: field(56, 8), begin: field(28, 28), end: field(0, 28) }
    }

    fn word(self) -> u64 {
        self.part << 56 | self.begin << 28 | self.end
    }

    /// Calls a job on the piece: once for each round that it has tasks of.
    fn run(self, job: &(dyn Fn(i64, i64) + Sync), grid: TaskGrid, parts: usize) {
        let (first, last) = share(grid.per_round(), self.part as usize, parts);
        let (width, end) = (last - first, self.end as i64);
        let mut at = self.begin as i64;
        while at < end {
            let (round, offset) = (at / width, at % width);
            let n = (width - offset).min(end - at);
            let task = round * grid.per_round() + first + offset;
            job(task, task + n);
            at += n;
        }
    }
}

/// The piece that a thread has before it, in one word, so that its owner and others can take pieces off it without a lock.
/// On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Range(AtomicU64);

impl Range {
    fn set(&self, piece: Piece) {
        self.0.store(piece.word(), Ordering::Release);
    }

    /// Takes the first quarter of what is left.
    fn take_front(&self) -> Option<Piece> {
        self.take(|Piece { part, begin, end }| {
            let middle = begin + (end - begin).div_ceil(4);
            (Piece { part, begin, end: middle }, Piece { part, begin: middle, end })
        })
    }

    /// Takes the last half of what is left.
    fn take_back(&self) -> Option<Piece> {
        self.take(|Piece { part, begin, end }| {
            let middle = begin + (end - begin) / 2;
            (Piece { part, begin: middle, end }, Piece { part, begin, end: middle })
        })
    }

    /// Takes the first of what `cut` makes of what is left and leaves the second; `None` if nothing is left.
    fn take(&self, cut: impl Fn(Piece) -> (Piece, Piece)) -> Option<Piece> {
        let cut = |word: u64| {
            let left = Piece::from_word(word);
            (left.begin < left.end).then(|| cut(left))
        };
        let update = |word: u64| cut(word).map(|(_, kept)| kept.word());
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, update).ok()?;
        cut(before).map(|(taken, _)| taken)
    }
}

/// Where a worker hears of orders. On cache lines of its own: the worker spins on it.
#[derive(Default)]
#[repr(align(128))]
struct Mailbox {
    state: AtomicU32,
    /// Whether the worker sleeps, or is about to.
    asleep: AtomicBool,
}

impl Mailbox {
    /// No order.
    const EMPTY: u32 = 0;
    /// [`Shared::order`] is for this worker, which has not begun.
    const POSTED: u32 = 1;
    /// The worker is at it.
    const TAKEN: u32 = 2;

    fn is_posted(&self) -> bool {
        // In one order with `asleep`: of a worker that falls asleep and a caller that posts, one sees the other.
        self.state.load(Ordering::SeqCst) == Mailbox::POSTED
    }

    /// Goes from posted to another state; fails if the order is gone or taken.
    fn leave_posted(&self, to: u32) -> bool {
        self.state.compare_exchange(Mailbox::POSTED, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

struct Shared {
    mailboxes: Vec<Mailbox>,
    /// The current job.
    order: UnsafeCell<Option<Order>>,
    /// What each thread has before it of the current job, the caller first.
    ranges: Vec<Range>,
    /// Workers that still work on the current job, or were told of it and have not begun.
    pending: AtomicUsize,
    /// Whether the caller sleeps, or is about to, until `pending` is 0; it is the thread in `caller` then.
    caller_sleeps: AtomicBool,
    caller: Mutex<Option<Thread>>,
    busy: AtomicBool,
    /// Runs that keep workers awake.
    awake: AtomicUsize,
    /// Until when workers stay awake after the last such run, in nanoseconds from `start`.
    linger: AtomicU64,
    start: Instant,
    /// Jobs still to be run apart.
    apart: AtomicUsize,
    stop: AtomicBool,
    panicked: AtomicBool,
    /// Whether waiting threads spin: not where there are more threads than processors.
    spin: bool,
    process: usize,
}

// SAFETY: `order` is written by the caller that holds `busy`, before it posts in mailboxes, and read by workers between taking
// it there and counting themselves off `pending`; the next write follows `pending` reaching 0.
unsafe impl Sync for Shared {}
// SAFETY: an order's job is `Sync`, and lives until the caller has seen it done.
unsafe impl Send for Shared {}

/// A pool of threads. The threads end when the pool is dropped.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// A pool of `threads` threads, the caller of a job included. Fewer if the system refuses to make them.
    pub fn new(threads: usize) -> ThreadPool {
        let shared = Arc::new(Shared {
            mailboxes: (1..threads).map(|_| Mailbox::default()).collect(),
            order: UnsafeCell::new(None),
            ranges: (0..threads.max(1)).map(|_| Range::default()).collect(),
            pending: AtomicUsize::new(0),
            caller_sleeps: AtomicBool::new(false),
            caller: Mutex::new(None),
            busy: AtomicBool::new(false),
            awake: AtomicUsize::new(0),
            linger: AtomicU64::new(0),
            start: Instant::now(),
            apart: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            // Under loom nothing spins: to wait is to sleep.
            spin: cfg!(not(loom)) && threads <= thread::available_parallelism().map_or(1, usize::from),
            process: process(),
        });
        let spawn = |index: usize| {
            let shared = shared.clone();
            let builder = sync::Builder::new().name(std::format!("tilewright-{}", index + 1));
            builder.spawn(move || shared.work(index)).ok()
        };
        let workers = (0..shared.mailboxes.len()).map_while(spawn).collect();
        ThreadPool { shared, workers }
    }

    /// The pool shared by the process, with [`available_threads`] threads; made at the first call.
    pub fn global() -> Arc<ThreadPool> {
        static GLOBAL: OnceLock<Arc<ThreadPool>> = OnceLock::new();
        GLOBAL.get_or_init(|| Arc::new(ThreadPool::new(available_threads()))).clone()
    }
}

impl Pool for ThreadPool {
    fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    fn run(&self, grid: TaskGrid, job: &(dyn Fn(i64, i64) + Sync)) {
        let shared = &*self.shared;
        let threads = self.threads().min(MAX_PARTS);
        // With too few tasks in a round for all threads, the rounds are shared too.
        let grid = if grid.per_round() < threads as i64 { TaskGrid::flat(grid.tasks()) } else { grid };
        let parts = usize::try_from(grid.per_round()).unwrap_or(0).min(threads);
        let alone = parts < 2 || grid.tasks() > MAX_TASKS || shared.process != process() || !shared.enter();
        if alone {
            return job(0, grid.tasks());
        }
        for (part, range) in shared.ranges[..parts].iter().enumerate() {
            let (first, last) = share(grid.per_round(), part, parts);
            range.set(Piece { part: part as u64, begin: 0, end: (grid.rounds() * (last - first)) as u64 });
        }
        shared.pending.store(parts - 1, Ordering::Relaxed);
        // SAFETY: only the lifetime changes; no worker uses the pointer once `pending` is 0.
        let job_ptr =
            unsafe { std::mem::transmute::<*const (dyn Fn(i64, i64) + Sync + '_), *const Job>(job) };
        // SAFETY: see `Shared`: this thread holds `busy`, and no worker is at the last order.
        shared.order.with_mut(|order| unsafe { *order = Some(Order { job: job_ptr, parts, grid }) });
        let told = &shared.mailboxes[..parts - 1];
        for (mailbox, worker) in told.iter().zip(&self.workers) {
            mailbox.state.store(Mailbox::POSTED, Ordering::SeqCst);
            if mailbox.asleep.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        // The workers use the job until they are done, whatever happens to this thread's share.
        let own = catch_unwind(AssertUnwindSafe(|| shared.share_in(job, 0, grid, parts)));
        // After a panic the shares of those who have not begun are still to be run: by them, as they are told.
        if own.is_ok() {
            let gone = told.iter().filter(|mailbox| mailbox.leave_posted(Mailbox::EMPTY)).count();
            shared.pending.fetch_sub(gone, Ordering::AcqRel);
        }
        shared.wait_for_workers();
        let panicked = shared.panicked.swap(false, Ordering::Relaxed);
        shared.busy.store(false, Ordering::Release);
        match own {
            Err(payload) => resume_unwind(payload),
            Ok(()) => assert!(!panicked, "a task panicked on another thread"),
        }
    }

    fn keep_awake(&self, awake: bool) {
        let shared = &*self.shared;
        if !shared.spin || shared.process != process() {
            return;
        }
        if !awake {
            let until = (shared.start.elapsed() + LINGER).as_nanos();
            shared.linger.fetch_max(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Relaxed);
            shared.awake.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        shared.awake.fetch_add(1, Ordering::SeqCst);
        for (mailbox, worker) in shared.mailboxes.iter().zip(&self.workers) {
            if mailbox.asleep.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
    }
}

impl Shared {
    /// Takes the pool for a job, unless another caller has it or had it of late.
    fn enter(&self) -> bool {
        let apart = self.apart.load(Ordering::Relaxed);
        if apart > 0 {
            // Callers that count at the same time may count one job for two.
            self.apart.store(apart - 1, Ordering::Relaxed);
            return false;
        }
        let free = !self.busy.swap(true, Ordering::Acquire);
        if !free {
            self.apart.store(APART, Ordering::Relaxed);
        }
        free
    }

    fn work(&self, index: usize) {
        let mailbox = &self.mailboxes[index];
        let ready = || mailbox.is_posted() || self.stop.load(Ordering::Relaxed);
        loop {
            if !self.spin_until(ready, || self.is_kept_awake()) {
                mailbox.asleep.store(true, Ordering::SeqCst);
                while !ready() && self.awake.load(Ordering::SeqCst) == 0 {
                    sync::park();
                }
                mailbox.asleep.store(false, Ordering::Relaxed);
            }
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            if !mailbox.leave_posted(Mailbox::TAKEN) {
                continue;
            }
            // SAFETY: see `Shared`: this worker has taken the order.
            let order = self.order.with(|order| unsafe { *order });
            if let Some(Order { job, parts, grid }) = order {
                // SAFETY: the caller waits for `pending` before it lets go of the job.
                let job = unsafe { &*job };
                if catch_unwind(AssertUnwindSafe(|| self.share_in(job, index + 1, grid, parts))).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
            }
            mailbox.state.store(Mailbox::EMPTY, Ordering::Relaxed);
            if self.pending.fetch_sub(1, Ordering::SeqCst) == 1 && self.caller_sleeps.load(Ordering::SeqCst) {
                // A caller that has gone on meanwhile is only woken for nothing, as is the next one.
                if let Some(caller) = &*self.caller.lock().unwrap_or_else(PoisonError::into_inner) {
                    caller.unpark();
                }
            }
        }
    }

    /// Runs the tasks of thread `own`, then what others have left, until no thread has any before it.
    fn share_in(&self, job: &(dyn Fn(i64, i64) + Sync), own: usize, grid: TaskGrid, parts: usize) {
        let mine = &self.ranges[own];
        loop {
            while let Some(piece) = mine.take_front() {
                piece.run(job, grid, parts);
            }
            let others = (1..parts).map(|distance| &self.ranges[(own + distance) % parts]);
            let Some(piece) = others.into_iter().find_map(Range::take_back) else { return };
            mine.set(piece);
        }
    }

    /// Whether workers that wait had better not sleep.
    fn is_kept_awake(&self) -> bool {
        let lingers = || self.start.elapsed().as_nanos() < u128::from(self.linger.load(Ordering::Relaxed));
        self.awake.load(Ordering::SeqCst) > 0 || lingers()
    }

    /// Waits until no worker is at the job.
    fn wait_for_workers(&self) {
        let done = || self.pending.load(Ordering::SeqCst) == 0;
        if self.spin_until(done, || false) {
            return;
        }
        *self.caller.lock().unwrap_or_else(PoisonError::into_inner) = Some(sync::current());
        self.caller_sleeps.store(true, Ordering::SeqCst);
        while !done() {
            sync::park();
        }
        self.caller_sleeps.store(false, Ordering::Relaxed);
    }

    /// Spins for up to [`SPIN`], or while `longer`, until `ready`; whether it is.
    fn spin_until(&self, ready: impl Fn() -> bool, longer: impl Fn() -> bool) -> bool {
        if !self.spin {
            return ready();
        }
        let mut start = None;
        loop {
            for _ in 0..64 {
                if ready() {
                    return true;
                }
                std::hint::spin_loop();
            }
            let waited = start.get_or_insert_with(Instant::now).elapsed();
            if waited > SPIN && !longer() {
                return false;
            }
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if self.shared.process != process() {
            return;
        }
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker cannot fail: jobs that panic are caught.
            _ = worker.join();
        }
    }
}

/// Which process of a line of forks this is: the number of forks since the first pool.
fn process() -> usize {
    static FORKS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    static REGISTER: Once = Once::new();
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    REGISTER.call_once(|| {
        // SAFETY: the handler only touches an atomic. If registering fails, forks are not noticed.
        _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

/// A pool of one's own as a session option.
impl From<ThreadPool> for Arc<dyn Pool> {
    fn from(pool: ThreadPool) -> Arc<dyn Pool> {
        Arc::new(pool)
    }
}
