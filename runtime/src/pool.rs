//! How the executor spreads the tasks of a kernel over threads.

/// Runs tasks, possibly at once on several threads.
///
/// Every task must run exactly once, and all before `run` returns. The results of a kernel do not depend on how the
/// tasks are cut into ranges.
pub trait Pool: Send + Sync {
    /// Threads that work on a job, the caller included; at least 1.
    fn threads(&self) -> usize;

    /// Calls `job(begin, end)` on disjoint ranges that cover `0..tasks`.
    fn run(&self, tasks: i64, job: &(dyn Fn(i64, i64) + Sync));
}

/// Runs everything on the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Pool for Serial {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, tasks: i64, job: &(dyn Fn(i64, i64) + Sync)) {
        job(0, tasks);
    }
}

/// The share `part` of `parts` of the tasks `0..tasks`: contiguous, and as even as possible.
pub fn share(tasks: i64, part: usize, parts: usize) -> (i64, i64) {
    let (part, parts) = (part as i64, parts as i64);
    let (even, rest) = (tasks / parts, tasks % parts);
    let begin = |part: i64| part * even + part.min(rest);
    (begin(part), begin(part + 1))
}
