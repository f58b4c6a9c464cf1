//! Tasks: which loops around a kernel's work threads share.
//!
//! The loops around a tile of an image go over its channels (each with its own weights) and its rows. Threads that
//! share the channels read all of the image, most of which other cores have just written and hold in their caches;
//! threads that share the rows find their part in their own, but each reads all weights. Which of them costs less is
//! a matter of how many bytes there are of each. It must come out alike for kernels that follow one another.

use tilewright_machine::Target;
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Block, Buffer, Expr, Func};

use crate::Candidate;
use crate::pattern::constant_product;

/// Elements below which a loop is not worth distributing over threads.
pub(crate) const PARALLEL_GRAIN: i64 = 8192;

/// Bytes of a buffer on the stack of the thread that runs a task, at most: callers' threads have small stacks, too.
pub(crate) const MAX_STACK: i64 = 128 << 10;

/// How many bytes of weights, which are asked for in advance, arrive in the time that takes a byte from the cache of another
/// core, which is waited for.
const REMOTE: f64 = 3.0;

/// Elements of a task for a block of so many (`None` where not known): [`PARALLEL_GRAIN`], or less or more where
/// there are tasks for every core still.
pub(crate) fn grains(target: &Target, work: Option<i64>) -> Vec<Candidate<i64>> {
    let n_cores = i64::from(target.machine.n_cores);
    let candidate = |grain: i64| {
        let features = vec![("grain.elements", (grain as f64).log2())];
        Candidate { value: grain, cost: 1.0, features }
    };
    let others = [PARALLEL_GRAIN / 4, PARALLEL_GRAIN * 4, PARALLEL_GRAIN * 16].into_iter();
    let others = others.filter(|grain| work.is_some_and(|n| n / grain >= n_cores));
    std::iter::once(PARALLEL_GRAIN).chain(others).map(candidate).collect()
}

/// Whether threads share the rows of an image rather than its channels, given the bytes of the weights and of the
/// image, before and after.
pub(crate) fn shares_rows(weights: i64, image: i64) -> bool {
    (weights as f64) < REMOTE * image as f64
}

/// The same for what has no weights itself, a window or an elementwise block, by what convolutions with as many channels
/// at as many positions would do.
pub(crate) fn shares_rows_of(channels: i64, positions: i64) -> bool {
    shares_rows(channels * channels, 2 * channels * positions)
}

/// Bytes of a buffer, if they are known.
pub(crate) fn bytes_of(func: &Func, buffer: Buffer) -> Option<i64> {
    let data = &func.buffers[buffer];
    constant_product(&data.shape).map(|elements| elements * data.dtype.bytes() as i64)
}

/// How many of the loops of a block in the order of its blocked result, `[N, C/block, ...]`, are around its rows, if
/// threads are to share these.
pub(crate) fn rounds_of(block: &Block, lane: usize) -> Option<usize> {
    let extents: Option<Vec<i64>> = block.iters.iter().map(|i| i.extent.as_int()).collect();
    let extents = extents?;
    let [1, channels, positions @ ..] = &extents[..] else { return None };
    (lane == 1 && shares_rows_of(*channels, positions.iter().product())).then_some(2)
}

/// Makes tasks of the loops, outermost first and each directly inside the one before, given the elements of
/// one iteration of the innermost: tasks of about `task` elements each.
pub(crate) fn parallelize(
    schedule: &mut Schedule,
    outer: &[String],
    elements: &Expr,
    task: i64,
) -> Result<(), ScheduleError> {
    parallelize_rounds(schedule, outer, None, elements, task)
}

/// Like [`parallelize`]; the first `rounds` of the loops, if there are such, are those of rounds, and threads share the others.
pub(crate) fn parallelize_rounds(
    schedule: &mut Schedule,
    outer: &[String],
    rounds: Option<usize>,
    elements: &Expr,
    task: i64,
) -> Result<(), ScheduleError> {
    let is_loop = |name: &&String| extent_of(schedule, name) != Some(1);
    // The outermost of the loops that threads share, which must keep some iterations.
    let first = rounds.and_then(|n| outer.get(n..)?.iter().find(is_loop)).cloned();
    let first = first.filter(|_| rounds.is_some_and(|n| outer[..n].iter().any(|name| is_loop(&name))));
    let mut tasks = outer.to_vec();
    let mut grain = elements.as_int().unwrap_or(task).max(1);
    // Inner loops stay inside a task as long as it is no larger for them. An open extent may be 1 in the loops
    // around: it stays a source of tasks.
    while let Some(last) = tasks.last().cloned() {
        let Some(extent) = extent_of(schedule, &last).filter(|_| grain < task) else { break };
        let wanted = task / grain;
        let is_first = first.as_ref() == Some(&last);
        if extent > wanted || is_first {
            // Iterations are shared out evenly, so that no task has a guard; what threads share, in an even number of
            // parts where that is possible.
            let divides = |n: &i64| extent % n == 0 && (!is_first || extent / n >= 2);
            let is_even = |n: &i64| !is_first || (extent / n) % 2 == 0;
            let divisors = || (2..=wanted.min(extent)).rev().filter(divides);
            let best = divisors().find(is_even).or_else(|| divisors().next().filter(|_| extent % 2 == 1));
            if let Some(n) = best {
                let parts = schedule.split(&last, &[None, Some(n)])?;
                tasks.pop();
                tasks.push(parts[0].clone());
            }
            break;
        }
        grain = grain.saturating_mul(extent.max(1));
        tasks.pop();
    }
    match (&tasks[..], rounds.filter(|_| first.is_some())) {
        ([], _) => Ok(()),
        (tasks, Some(n)) if tasks.len() > n => {
            let (rounds, shared) = tasks.split_at(n);
            nest(schedule, rounds, shared)
        }
        (tasks, _) => parallelize_prefix(schedule, tasks),
    }
}

/// Makes tasks of two nests of loops, one around the other: rounds, and what threads share in each of them.
pub(crate) fn nest(
    schedule: &mut Schedule,
    rounds: &[String],
    shared: &[String],
) -> Result<(), ScheduleError> {
    let mut trial = schedule.clone();
    let made = fused(&mut trial, rounds)
        .and_then(|rounds| trial.parallel(&rounds))
        .and_then(|()| fused(&mut trial, shared))
        .and_then(|shared| trial.parallel(&shared));
    match made {
        Ok(()) => {
            *schedule = trial;
            Ok(())
        }
        Err(_) => parallelize_prefix(schedule, &[rounds, shared].concat()),
    }
}

/// One loop of several, each directly inside the one before.
fn fused(schedule: &mut Schedule, loops: &[String]) -> Result<String, ScheduleError> {
    match loops {
        [one] => Ok(one.clone()),
        many => schedule.fuse(&many.iter().map(String::as_str).collect::<Vec<_>>()),
    }
}

/// Makes one loop of tasks of as many of the loops, outermost first, as can be shown to write apart from each
/// other: with open extents that is not always all.
pub(crate) fn parallelize_prefix(schedule: &mut Schedule, loops: &[String]) -> Result<(), ScheduleError> {
    for n in (1..=loops.len()).rev() {
        let mut trial = schedule.clone();
        if fused(&mut trial, &loops[..n]).and_then(|task| trial.parallel(&task)).is_ok() {
            *schedule = trial;
            return Ok(());
        }
    }
    // Of extents that are not known it may not show: then there is a single task.
    Ok(())
}

/// The constant extent of the loop of that name.
pub(crate) fn extent_of(schedule: &Schedule, name: &str) -> Option<i64> {
    let blocks = schedule.blocks();
    let loops = blocks.iter().filter_map(|b| schedule.loops(b).ok()).flatten();
    loops.filter(|l| l.name == name).find_map(|l| l.extent.as_int())
}
