//! One run as a trace: what each thread did when.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use tilewright_runtime::plan::Instr;
use tilewright_runtime::pool::{Pool, TaskGrid};
use tilewright_runtime::{Inputs, Inspect, RunError, RunObserver, Session};

/// A pool that notes what its threads do while a run is traced.
pub struct TracePool {
    inner: Arc<dyn Pool>,
    on: AtomicBool,
    /// The instruction that runs.
    instr: AtomicUsize,
    tasks: Mutex<Vec<Tasks>>,
}

/// A range of tasks that one thread ran.
struct Tasks {
    instr: usize,
    thread: ThreadId,
    range: (i64, i64),
    begin: Instant,
    end: Instant,
}

impl TracePool {
    /// A pool that runs all on another one.
    pub fn new(inner: Arc<dyn Pool>) -> TracePool {
        let (on, instr) = (AtomicBool::new(false), AtomicUsize::new(0));
        TracePool { inner, on, instr, tasks: Mutex::new(Vec::new()) }
    }
}

impl Pool for TracePool {
    fn threads(&self) -> usize {
        self.inner.threads()
    }

    fn run(&self, grid: TaskGrid, job: &(dyn Fn(i64, i64) + Sync)) {
        if !self.on.load(Ordering::Relaxed) {
            return self.inner.run(grid, job);
        }
        let instr = self.instr.load(Ordering::Relaxed);
        self.inner.run(grid, &|first, last| {
            let begin = Instant::now();
            job(first, last);
            let end = Instant::now();
            let tasks = Tasks { instr, thread: thread::current().id(), range: (first, last), begin, end };
            self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(tasks);
        });
    }

    fn keep_awake(&self, awake: bool) {
        self.inner.keep_awake(awake);
    }
}

/// Notes when instructions run.
struct Tracer<'a> {
    pool: &'a TracePool,
    begun: Instant,
    spans: Vec<(usize, Instant, Instant)>,
}

impl RunObserver for Tracer<'_> {
    fn waits(&self) -> bool {
        true
    }

    fn begin(&mut self, index: usize, _instr: &Instr) {
        self.pool.instr.store(index, Ordering::Relaxed);
        self.begun = Instant::now();
    }

    fn end(&mut self, index: usize, _instr: &Instr, _state: &Inspect<'_>) {
        self.spans.push((index, self.begun, Instant::now()));
    }
}

/// What happened in a run; times count from its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The instructions, in the order in which they ran.
    pub spans: Vec<Span>,
    /// What the threads did of them.
    pub shares: Vec<Share>,
    /// Threads that did something; the caller of the run is the first.
    pub threads: usize,
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its index in the plan.
    pub instr: usize,
    /// When it began.
    pub begin: Duration,
    /// When it ended.
    pub end: Duration,
}

/// Tasks of an instruction that one thread ran, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The instruction's index in the plan.
    pub instr: usize,
    /// Which thread; 0 is the caller of the run.
    pub thread: usize,
    /// The first task, and the one after the last.
    pub tasks: (i64, i64),
    /// When it began with them.
    pub begin: Duration,
    /// When it was done.
    pub end: Duration,
}

/// Runs once, and tells what happened. `pool` is that of the session, else no shares are known.
///
/// # Errors
/// As any run.
pub fn trace(session: &mut Session, inputs: &Inputs<'_>, pool: &TracePool) -> Result<Trace, RunError> {
    let start = Instant::now();
    let mut tracer = Tracer { pool, begun: start, spans: Vec::new() };
    pool.on.store(true, Ordering::Relaxed);
    let result = session.run_observed(inputs.tensors(), inputs.values(), &mut tracer).map(drop);
    pool.on.store(false, Ordering::Relaxed);
    let tasks = std::mem::take(&mut *pool.tasks.lock().unwrap_or_else(PoisonError::into_inner));
    result?;
    let since = |at: Instant| at.saturating_duration_since(start);
    let mut threads: HashMap<ThreadId, usize> = HashMap::from([(thread::current().id(), 0)]);
    let share = |tasks: Tasks| {
        let next = threads.len();
        let thread = *threads.entry(tasks.thread).or_insert(next);
        let (begin, end) = (since(tasks.begin), since(tasks.end));
        Share { instr: tasks.instr, thread, tasks: tasks.range, begin, end }
    };
    let shares = tasks.into_iter().map(share).collect();
    let span = |(instr, begin, end)| Span { instr, begin: since(begin), end: since(end) };
    Ok(Trace { spans: tracer.spans.into_iter().map(span).collect(), shares, threads: threads.len() })
}
