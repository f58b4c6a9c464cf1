//! How the executor spreads the tasks of a kernel over threads.

/// Tasks of a job, numbered round by round.
///
/// Threads share the tasks of a round, and each keeps its part in every round: what one task of a part leaves in a core's
/// cache, those of other rounds find there. A convolution's parts are rows of its image, its rounds channels of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskGrid {
    rounds: i64,
    per_round: i64,
}

impl TaskGrid {
    /// So many rounds of so many tasks; `None` if a number is negative or the product exceeds `i64`.
    pub fn new(rounds: i64, per_round: i64) -> Option<TaskGrid> {
        let sound = rounds >= 0 && per_round >= 0 && rounds.checked_mul(per_round).is_some();
        sound.then_some(TaskGrid { rounds, per_round })
    }

    /// A single round; none of a negative number.
    pub fn flat(tasks: i64) -> TaskGrid {
        TaskGrid { rounds: 1, per_round: tasks.max(0) }
    }

    /// Number of rounds.
    pub fn rounds(self) -> i64 {
        self.rounds
    }

    /// Tasks of a round.
    pub fn per_round(self) -> i64 {
        self.per_round
    }

    /// Number of all tasks.
    pub fn tasks(self) -> i64 {
        self.rounds * self.per_round
    }
}

/// Runs tasks, possibly at once on several threads.
///
/// Every task must run exactly once, and all before `run` returns. The results of a kernel do not depend on how the
/// tasks are cut into ranges.
pub trait Pool: Send + Sync {
    /// Threads that work on a job, the caller included; at least 1.
    fn threads(&self) -> usize;

    /// Calls `job(begin, end)` on disjoint ranges that cover `0..grid.tasks()`.
    fn run(&self, grid: TaskGrid, job: &(dyn Fn(i64, i64) + Sync));

    /// A run begins (`true`) or ends whose threads had better not sleep between its jobs, nor before the next run if that comes soon:
    /// to wake them takes longer than the jobs do. Pools that have no such choice do nothing.
    fn keep_awake(&self, awake: bool) {
        let _ = awake;
    }
}

/// Runs the tasks of a job, one round after the other where rounds are in order.
pub fn run_tasks(pool: &dyn Pool, grid: TaskGrid, in_order: bool, job: &(dyn Fn(i64, i64) + Sync)) {
    let tasks = grid.tasks();
    // On one thread tasks run in the order of their numbers, which is that of the rounds.
    if tasks == 1 || (in_order && (grid.per_round() == 1 || pool.threads() == 1)) {
        return job(0, tasks);
    }
    if !in_order {
        return pool.run(grid, job);
    }
    let round = TaskGrid::flat(grid.per_round());
    for first in (0..grid.rounds()).map(|n| n * grid.per_round()) {
        pool.run(round, &|begin, end| job(first + begin, first + end));
    }
}

/// Runs everything on the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Pool for Serial {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, grid: TaskGrid, job: &(dyn Fn(i64, i64) + Sync)) {
        job(0, grid.tasks());
    }
}

/// The share `part` of `parts` of the tasks `0..tasks`: contiguous, and as even as possible.
pub fn share(tasks: i64, part: usize, parts: usize) -> (i64, i64) {
    let (part, parts) = (part as i64, parts as i64);
    let (even, rest) = (tasks / parts, tasks % parts);
    let begin = |part: i64| part * even + part.min(rest);
    (begin(part), begin(part + 1))
}
