//! The thread pool: fork and join with shares that even out, a short spin, then sleep.
//!
//! The tasks of a round are cut into one contiguous part per thread, the same in every round; the caller works on the
//! first. A thread takes its part in pieces from the front, each a quarter of what is left, and when it is through it takes
//! over half of what another has left, from the back: cores of a shared machine do not run at one speed, and a kernel ends with its
//! slowest thread. Which thread runs a task has no influence on its results. Threads that wait
//! spin for up to [`SPIN`], because the next kernel usually follows at once, and then park. Only as many workers are woken as
//! there are tasks. One job runs at a time: a caller that finds the pool busy (another session, or a job
//! inside a job) does its work on its own thread, which never blocks. Several callers at once keep the processors busy by
//! themselves, so that for the next [`APART`] jobs every caller works on its own thread: to share them would only make
//! threads wait for each other. In a child process after `fork`, where the workers do not exist, likewise.
#![allow(unsafe_code, reason = "hands borrowed jobs to threads that outlive them")]

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};
use std::vec::Vec;

use crate::pool::{Pool, TaskGrid, share};

/// How long a thread spins before it sleeps.
pub const SPIN: Duration = Duration::from_micros(50);

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

/// A job, left for a worker.
struct Order {
    /// The caller waits until the worker is done, so the job outlives it although the type does not say so.
    job: *const Job,
    /// Threads that work on the job.
    parts: usize,
    grid: TaskGrid,
    caller: Thread,
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

/// Where a worker gets its orders. On cache lines of its own: the worker spins on it.
#[repr(align(128))]
struct Mailbox {
    /// Number of orders left so far.
    posted: AtomicUsize,
    order: UnsafeCell<Option<Order>>,
}

// SAFETY: `order` is written by the caller that holds `Shared::busy`, before it increments `posted`, and taken by the
// one worker after it has seen the increment; the next write follows `Shared::pending` reaching 0.
unsafe impl Sync for Mailbox {}
// SAFETY: an order's job is `Sync`, and lives until the caller has seen it done.
unsafe impl Send for Mailbox {}

struct Shared {
    mailboxes: Vec<Mailbox>,
    /// What each thread has before it of the current job, the caller first.
    ranges: Vec<Range>,
    /// Workers that still work on the current job.
    pending: AtomicUsize,
    busy: AtomicBool,
    /// Jobs still to be run apart.
    apart: AtomicUsize,
    stop: AtomicBool,
    panicked: AtomicBool,
    /// Whether waiting threads spin: not where there are more threads than processors.
    spin: bool,
    process: usize,
}

/// A pool of threads. The threads end when the pool is dropped.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// A pool of `threads` threads, the caller of a job included. Fewer if the system refuses to make them.
    pub fn new(threads: usize) -> ThreadPool {
        let mailbox = || Mailbox { posted: AtomicUsize::new(0), order: UnsafeCell::new(None) };
        let shared = Arc::new(Shared {
            mailboxes: (1..threads).map(|_| mailbox()).collect(),
            ranges: (0..threads.max(1)).map(|_| Range::default()).collect(),
            pending: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            apart: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            spin: threads <= thread::available_parallelism().map_or(1, usize::from),
            process: process(),
        });
        let spawn = |index: usize| {
            let shared = shared.clone();
            let builder = thread::Builder::new().name(std::format!("tilewright-{}", index + 1));
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
        let caller = thread::current();
        // SAFETY: only the lifetime changes; the pointer is not used after `wait`.
        let job_ptr =
            unsafe { std::mem::transmute::<*const (dyn Fn(i64, i64) + Sync + '_), *const Job>(job) };
        for (mailbox, worker) in shared.mailboxes.iter().zip(&self.workers).take(parts - 1) {
            // SAFETY: see `Mailbox`: this thread holds `busy`, and the worker has taken its last order.
            unsafe {
                *mailbox.order.get() = Some(Order { job: job_ptr, parts, grid, caller: caller.clone() })
            };
            mailbox.posted.fetch_add(1, Ordering::Release);
            worker.thread().unpark();
        }
        // The workers use the job until they are done, whatever happens to this thread's share.
        let own = catch_unwind(AssertUnwindSafe(|| shared.share_in(job, 0, grid, parts)));
        shared.wait(|| shared.pending.load(Ordering::Acquire) == 0);
        let panicked = shared.panicked.swap(false, Ordering::Relaxed);
        shared.busy.store(false, Ordering::Release);
        match own {
            Err(payload) => resume_unwind(payload),
            Ok(()) => assert!(!panicked, "a task panicked on another thread"),
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
        let mut done = 0;
        loop {
            self.wait(|| mailbox.posted.load(Ordering::Acquire) != done || self.stop.load(Ordering::Relaxed));
            if mailbox.posted.load(Ordering::Acquire) == done {
                return;
            }
            done += 1;
            // SAFETY: see `Mailbox`.
            let Some(order) = (unsafe { (*mailbox.order.get()).take() }) else { continue };
            // SAFETY: the caller waits for `pending` before it lets go of the job.
            let job = unsafe { &*order.job };
            if catch_unwind(AssertUnwindSafe(|| self.share_in(job, index + 1, order.grid, order.parts)))
                .is_err()
            {
                self.panicked.store(true, Ordering::Relaxed);
            }
            if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                order.caller.unpark();
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

    /// Waits until `ready`, which another thread makes true before it unparks this one.
    fn wait(&self, ready: impl Fn() -> bool) {
        if self.spin {
            let start = Instant::now();
            loop {
                for _ in 0..64 {
                    if ready() {
                        return;
                    }
                    std::hint::spin_loop();
                }
                if start.elapsed() > SPIN {
                    break;
                }
            }
        }
        while !ready() {
            thread::park();
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
    static FORKS: AtomicUsize = AtomicUsize::new(0);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicI64;
    use std::vec;

    #[test]
    fn every_task_runs_once_at_any_number_of_threads() {
        for threads in [1, 2, 3, 8] {
            let pool = ThreadPool::new(threads);
            for (rounds, per_round) in
                [1, 2, 7].into_iter().flat_map(|r| (0..40).chain([500]).map(move |n| (r, n)))
            {
                let grid = TaskGrid::new(rounds, per_round).expect("few tasks");
                let counts: Vec<AtomicI64> = (0..grid.tasks()).map(|_| AtomicI64::new(0)).collect();
                pool.run(grid, &|begin, end| {
                    for task in begin..end {
                        counts[task as usize].fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(
                    counts.iter().all(|count| count.load(Ordering::Relaxed) == 1),
                    "{threads} threads, {grid:?}"
                );
            }
        }
    }

    #[test]
    fn a_thread_that_is_through_takes_over_from_a_slow_one() {
        let pool = ThreadPool::new(2);
        let (caller, helped) = (thread::current().id(), AtomicI64::new(0));
        // The caller's first task lasts until a task of the caller's own share has run on the other thread.
        pool.run(TaskGrid::flat(64), &|begin, end| {
            let on_caller = thread::current().id() == caller;
            if !on_caller && begin < 32 {
                _ = helped.fetch_add(end.min(32) - begin, Ordering::Relaxed);
            }
            while on_caller && begin == 0 && helped.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
        });
        assert!(helped.into_inner() > 0);
    }

    #[test]
    fn shares_are_contiguous_and_even() {
        assert_eq!([0, 1, 2].map(|part| share(8, part, 3)), [(0, 3), (3, 6), (6, 8)]);
        assert_eq!(share(i64::MAX, 1, 2), (i64::MAX / 2 + 1, i64::MAX));
    }

    #[test]
    fn a_part_is_the_same_tasks_of_every_round() {
        let grid = TaskGrid::new(3, 5).expect("few tasks");
        let tasks = |part, begin, end| {
            let tasks = Mutex::new(Vec::new());
            Piece { part, begin, end }.run(&|a, b| tasks.lock().expect("no panic").push((a, b)), grid, 2);
            tasks.into_inner().expect("no panic")
        };
        assert_eq!(tasks(0, 0, 9), [(0, 3), (5, 8), (10, 13)]);
        assert_eq!(tasks(1, 0, 6), [(3, 5), (8, 10), (13, 15)]);
        assert_eq!(tasks(1, 1, 4), [(4, 5), (8, 10)], "a piece that starts and ends inside of rounds");
    }

    #[test]
    fn concurrent_and_nested_jobs_finish() {
        let pool = ThreadPool::new(3);
        let total = AtomicI64::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        pool.run(TaskGrid::flat(7), &|begin, end| {
                            pool.run(TaskGrid::flat(end - begin), &|from, to| {
                                _ = total.fetch_add(to - from, Ordering::Relaxed)
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 4 * 2000 * 7);
    }

    #[test]
    fn after_two_callers_have_met_each_works_alone_for_a_while() {
        let pool = ThreadPool::new(2);
        let met = AtomicBool::new(false);
        pool.run(TaskGrid::flat(2), &|_, _| {
            if !met.swap(true, Ordering::Relaxed) {
                thread::scope(|scope| _ = scope.spawn(|| pool.run(TaskGrid::flat(2), &|_, _| {})));
            }
        });
        let ranges = || {
            let ranges = AtomicI64::new(0);
            pool.run(TaskGrid::flat(2), &|_, _| _ = ranges.fetch_add(1, Ordering::Relaxed));
            ranges.into_inner()
        };
        assert!((0..APART).all(|_| ranges() == 1), "apart: one range a job");
        assert_eq!(ranges(), 2, "together again");
    }

    #[test]
    fn a_panic_reaches_the_caller_and_leaves_the_pool_usable() {
        let pool = ThreadPool::new(2);
        for bad in [0, 1] {
            let run = || pool.run(TaskGrid::flat(2), &|begin, _| assert!(begin != bad, "task {bad}"));
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
            let sum = AtomicI64::new(0);
            pool.run(TaskGrid::flat(10), &|begin, end| _ = sum.fetch_add(end - begin, Ordering::Relaxed));
            assert_eq!(sum.into_inner(), 10);
        }
    }

    #[test]
    fn the_variable_overrides_only_with_a_number() {
        assert_eq!(parse_threads(" 3 "), Some(3));
        assert_eq!(vec!["", "0", "-1", "x"].into_iter().find_map(parse_threads), None);
        assert!(available_threads() >= 1);
    }
}
