//! One run as a Chrome trace: what each thread did when.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use serde_json::{Value, json};
use tilewright::runtime::plan::Instr;
use tilewright::runtime::pool::{Pool, TaskGrid};
use tilewright::runtime::threads::ThreadPool;
use tilewright::runtime::{Inputs, Inspect, Observer, Session};

use super::rows::kind;
use crate::failure::Failure;

/// A pool that notes what its threads do while it is told to.
pub(crate) struct TracePool {
    inner: ThreadPool,
    on: AtomicBool,
    /// The instruction that runs.
    instr: AtomicUsize,
    shares: Mutex<Vec<Share>>,
}

/// A range of tasks that one thread ran.
struct Share {
    instr: usize,
    thread: ThreadId,
    tasks: (i64, i64),
    begin: Instant,
    end: Instant,
}

impl TracePool {
    /// A pool that notes nothing yet.
    pub(crate) fn new(inner: ThreadPool) -> TracePool {
        let (on, instr) = (AtomicBool::new(false), AtomicUsize::new(0));
        TracePool { inner, on, instr, shares: Mutex::new(Vec::new()) }
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
            let share = Share { instr, thread: thread::current().id(), tasks: (first, last), begin, end };
            self.shares.lock().unwrap_or_else(PoisonError::into_inner).push(share);
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

impl Observer for Tracer<'_> {
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

/// Runs once and gives what happened in Chrome's trace event format.
pub(crate) fn record(
    session: &mut Session,
    inputs: &Inputs<'_>,
    pool: &TracePool,
) -> Result<String, Failure> {
    let start = Instant::now();
    let mut tracer = Tracer { pool, begun: start, spans: Vec::new() };
    pool.on.store(true, Ordering::Relaxed);
    let result = session.run_observed(&inputs.tensors, &inputs.values, &mut tracer).map(drop);
    pool.on.store(false, Ordering::Relaxed);
    result?;
    let shares = std::mem::take(&mut *pool.shares.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(events(session, start, &tracer.spans, &shares).to_string())
}

fn events(session: &Session, start: Instant, spans: &[(usize, Instant, Instant)], shares: &[Share]) -> Value {
    let plan = session.program().plan();
    let micros = |at: Instant| at.saturating_duration_since(start).as_secs_f64() * 1e6;
    // The caller of the runs is the first thread.
    let mut tracks: HashMap<ThreadId, usize> = HashMap::from([(thread::current().id(), 0)]);
    let mut events = Vec::new();
    let name = |instr: usize| kind(plan, &plan.instrs[instr].op);
    for &(index, begin, end) in spans {
        events.push(json!({
            "name": name(index), "cat": "instruction", "ph": "X", "pid": 1, "tid": 0,
            "ts": micros(begin), "dur": micros(end) - micros(begin),
            "args": {"nodes": plan.text(plan.instrs[index].provenance), "instruction": index},
        }));
    }
    for share in shares {
        let next = tracks.len();
        let track = *tracks.entry(share.thread).or_insert(next);
        let (first, last) = share.tasks;
        events.push(json!({
            "name": if track == 0 { "tasks" } else { name(share.instr) }, "cat": "tasks", "ph": "X", "pid": 1, "tid": track,
            "ts": micros(share.begin), "dur": micros(share.end) - micros(share.begin),
            "args": {"first": first, "last": last - 1, "instruction": share.instr},
        }));
    }
    let process = json!({"name": session.model().manifest().model});
    events.push(json!({"name": "process_name", "ph": "M", "pid": 1, "args": process}));
    for track in 0..tracks.len() {
        let thread = if track == 0 { "caller".to_string() } else { format!("worker {track}") };
        events.push(
            json!({"name": "thread_name", "ph": "M", "pid": 1, "tid": track, "args": {"name": thread}}),
        );
    }
    json!({"traceEvents": events, "displayTimeUnit": "ms"})
}
