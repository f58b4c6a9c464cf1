//! Memory and threads that the C program brings, as the runtime asks for them.
#![allow(unsafe_code, reason = "calls functions of C")]
#![allow(non_camel_case_types, reason = "the names of C")]

use std::ffi::c_void;
use std::hint;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use tilewright_runtime::Allocator;
use tilewright_runtime::plan::ALIGN;
use tilewright_runtime::pool::{Pool, TaskGrid, share};

use crate::failure::{Failure, Status};

/// Memory of the caller's: `tw_allocator`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct tw_allocator {
    pub(crate) size: usize,
    pub(crate) ctx: *mut c_void,
    pub(crate) allocate: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>,
    pub(crate) free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize)>,
}

/// One task of a job: `tw_task`.
pub type tw_task = unsafe extern "C" fn(*mut c_void, usize);

/// Threads of the caller's: `tw_threads`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct tw_threads {
    pub(crate) size: usize,
    pub(crate) ctx: *mut c_void,
    pub(crate) count: usize,
    pub(crate) parallel_for: Option<unsafe extern "C" fn(*mut c_void, usize, tw_task, *mut c_void)>,
}

/// What the functions of a caller want to know. They are called from any thread, as the header says.
#[derive(Clone, Copy)]
struct Context(*mut c_void);

// SAFETY: the caller's word: its functions may be called from any thread, with this.
unsafe impl Send for Context {}
// SAFETY: likewise.
unsafe impl Sync for Context {}

/// Memory from `tw_allocator`.
pub(crate) struct OwnMemory {
    ctx: Context,
    allocate: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize),
}

impl OwnMemory {
    pub(crate) fn new(own: &tw_allocator) -> Result<OwnMemory, Failure> {
        match (own.allocate, own.free) {
            (Some(allocate), Some(free)) => Ok(OwnMemory { ctx: Context(own.ctx), allocate, free }),
            _ => Err(Failure::null("tw_allocator: allocate or free")),
        }
    }
}

impl Allocator for OwnMemory {
    fn allocate(&self, bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: the caller's function, with what it asked for.
        NonNull::new(unsafe { (self.allocate)(self.ctx.0, bytes, ALIGN) }.cast())
    }

    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: as above; `start` is from there, by the caller's word.
        unsafe { (self.free)(self.ctx.0, start.as_ptr().cast(), bytes, ALIGN) }
    }
}

/// Threads from `tw_threads`.
pub(crate) struct OwnThreads {
    ctx: Context,
    count: usize,
    parallel_for: unsafe extern "C" fn(*mut c_void, usize, tw_task, *mut c_void),
}

/// Most parts that a job is cut into.
const MOST_PARTS: usize = 256;
/// Parts of a job for each thread: so that one that is late leaves its parts to the others.
const PARTS_A_THREAD: usize = 4;

impl OwnThreads {
    pub(crate) fn new(own: &tw_threads) -> Result<OwnThreads, Failure> {
        let Some(parallel_for) = own.parallel_for else {
            return Err(Failure::null("tw_threads: parallel_for"));
        };
        if own.count == 0 {
            return Err(Failure::new(Status::Argument, "tw_threads: `count` is 0, and the caller is one"));
        }
        Ok(OwnThreads { ctx: Context(own.ctx), count: own.count, parallel_for })
    }
}

/// A job while the caller's threads are at it.
struct Job<'j> {
    work: &'j (dyn Fn(i64, i64) + Sync),
    tasks: i64,
    parts: usize,
    /// A bit for each part that somebody has begun.
    begun: [AtomicU64; MOST_PARTS / 64],
    done: AtomicUsize,
}

impl Job<'_> {
    /// Works on a part that nobody has begun.
    fn part(&self, part: usize) {
        let bit = 1 << (part % 64);
        if part >= self.parts || self.begun[part / 64].fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return;
        }
        let (begin, end) = share(self.tasks, part, self.parts);
        (self.work)(begin, end);
        self.done.fetch_add(1, Ordering::Release);
    }
}

/// What the caller's threads call. Kernels do not panic, so nothing unwinds into them.
///
/// # Safety
/// `job` is the one that `parallel_for` was called with, which has not returned.
unsafe extern "C" fn task(job: *mut c_void, part: usize) {
    // SAFETY: by the caller's word.
    unsafe { &*job.cast::<Job<'_>>() }.part(part);
}

impl Pool for OwnThreads {
    fn threads(&self) -> usize {
        self.count
    }

    fn run(&self, grid: TaskGrid, work: &(dyn Fn(i64, i64) + Sync)) {
        let tasks = grid.tasks();
        let most = self.count.saturating_mul(PARTS_A_THREAD).min(MOST_PARTS);
        let parts = usize::try_from(tasks).unwrap_or(0).min(most);
        if parts < 2 || self.count == 1 {
            return work(0, tasks);
        }
        let job = Job { work, tasks, parts, begun: Default::default(), done: AtomicUsize::new(0) };
        // SAFETY: the caller's function; the job lives until it has returned, and each part may be asked for by any thread.
        unsafe { (self.parallel_for)(self.ctx.0, parts, task, (&raw const job).cast_mut().cast()) };
        // What was left out, or is still at work, would be wrong results without a word.
        (0..parts).for_each(|part| job.part(part));
        for spins in 0.. {
            if job.done.load(Ordering::Acquire) == parts {
                break;
            }
            if spins < 100 { hint::spin_loop() } else { thread::yield_now() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(parallel_for: unsafe extern "C" fn(*mut c_void, usize, tw_task, *mut c_void)) {
        let own = tw_threads {
            size: size_of::<tw_threads>(),
            ctx: std::ptr::null_mut(),
            count: 3,
            parallel_for: Some(parallel_for),
        };
        let threads = OwnThreads::new(&own).expect("sound");
        for tasks in [0, 1, 2, 5, 1000] {
            let runs: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            threads.run(TaskGrid::flat(tasks as i64), &|begin, end| {
                for run in &runs[begin as usize..end as usize] {
                    run.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(runs.iter().all(|run| run.load(Ordering::Relaxed) == 1), "{tasks}");
        }
    }

    unsafe extern "C" fn in_turn(_: *mut c_void, n: usize, task: tw_task, job: *mut c_void) {
        for i in 0..n {
            // SAFETY: as the header has it.
            unsafe { task(job, i) };
        }
    }

    /// Leaves one out, does another twice, and one that there is not.
    unsafe extern "C" fn wrong(_: *mut c_void, n: usize, task: tw_task, job: *mut c_void) {
        for i in (1..n).chain([1, 1 << 40]) {
            // SAFETY: as the header has it, but for the numbers.
            unsafe { task(job, i) };
        }
    }

    #[test]
    fn every_task_runs_once_whatever_the_callers_function_does() {
        check(in_turn);
        check(wrong);
    }
}
