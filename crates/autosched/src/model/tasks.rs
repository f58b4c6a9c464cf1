//! Prices of tasks: how large they are, and whether threads share the rows of an image or its channels.

use tilewright_machine::Target;

use crate::decisions::Candidate;
use crate::model::machine::{n_cores, numbers};

/// Elements below which a loop is not worth distributing over threads: a few microseconds of the cheapest of them, several times what
/// the hand-over to another thread takes on any machine whose threads wait awake.
pub(crate) const PARALLEL_GRAIN: i64 = 8192;

/// Tasks that threads share evenly whatever their number: at most a sixteenth of the time is lost with four threads, and the same with
/// more cores only where there are more tasks by themselves.
pub(crate) const ENOUGH_TASKS: i64 = 16;

/// Elements of a task for a block of so many (`None` where not known): [`PARALLEL_GRAIN`], or less or more where
/// there are tasks for every core still.
pub(crate) fn grains(target: &Target, work: Option<i64>) -> Vec<Candidate<i64>> {
    let n_cores = n_cores(target);
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
pub(crate) fn shares_rows(target: &Target, weights: i64, image: i64) -> bool {
    let numbers = numbers(target);
    // Weights are streamed from memory, while the image comes from the caches of other cores.
    (weights as f64) * numbers.memory.line_cycles < image as f64 * numbers.threads.remote_line_cycles
}

/// The same for what has no weights itself, a window or an elementwise block, by what convolutions with as many channels
/// at as many positions would do.
pub(crate) fn shares_rows_of(target: &Target, channels: i64, positions: i64) -> bool {
    shares_rows(target, channels * channels, 2 * channels * positions)
}

/// How many of the loops of a block in the order of its blocked result, `[N, C/block, ...]`, are around its rows, if
/// threads are to share these.
pub(crate) fn rounds_of(target: &Target, extents: &[Option<i64>], lane: usize) -> Option<usize> {
    let extents: Option<Vec<i64>> = extents.iter().copied().collect();
    let extents = extents?;
    let [1, channels, positions @ ..] = &extents[..] else { return None };
    (lane == 1 && shares_rows_of(target, *channels, positions.iter().product())).then_some(2)
}

/// Groups in which threads share the panels of a product, and the rows for which a panel stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    /// Groups of panels, where these are shared out.
    pub(crate) panels: Option<i64>,
    /// Groups of rows, where these are.
    pub(crate) rows: Option<i64>,
    /// Tasks that this makes.
    pub(crate) tasks: i64,
}

/// Into how many groups panels, and then the iterations of a loop over rows, are best shared out, so that `others` tasks become enough.
pub(crate) fn groups_of_tiles(others: i64, panels: i64, rows: i64) -> Groups {
    let panels = groups(others, panels);
    let tasks = others.saturating_mul(panels.unwrap_or(1));
    let rows = groups(tasks, rows);
    Groups { panels, rows, tasks: tasks.saturating_mul(rows.unwrap_or(1)) }
}

/// Into how many groups so many iterations are best shared out, so that `others` tasks become enough.
fn groups(others: i64, iterations: i64) -> Option<i64> {
    let is_even = |n: i64| n % 4 == 0 || n >= ENOUGH_TASKS;
    if is_even(others) {
        return None;
    }
    let divisors = || (2..=iterations.min(ENOUGH_TASKS)).filter(|groups| iterations % groups == 0);
    divisors().find(|groups| is_even(others * groups)).or_else(|| divisors().next_back())
}

/// How many of the loops around a tile, given by their extents, may be one task's: the innermost, along which the tiles share what
/// stays in cache; none or more where enough tasks for every core are left.
///
/// The first `rounds` of them, and one more with several iterations if they are not 0, never are.
pub(crate) fn serial_loops(target: &Target, extents: &[Option<i64>], rounds: usize) -> Vec<Candidate<usize>> {
    let n_tasks = |n_serial: usize| {
        extents.iter().rev().skip(n_serial).try_fold(1i64, |n, extent| n.checked_mul((*extent)?))
    };
    let candidate = |n_serial: usize| {
        let tasks = n_tasks(n_serial).unwrap_or(1) as f64;
        Candidate { value: n_serial, cost: 1.0, features: vec![("serial.tasks", tasks.max(1.0).log2())] }
    };
    // A single task (a product with one row) would leave all cores but one idle.
    let is_shared = |n_serial: usize| {
        rounds == 0 || extents[rounds..extents.len() - n_serial].iter().any(|extent| *extent != Some(1))
    };
    let default = usize::from(extents.len() > 1 && n_tasks(1) != Some(1) && is_shared(1));
    let enough = 2 * n_cores(target);
    let is_loop = |n: usize| extents.get(extents.len() - n).is_some_and(|extent| *extent != Some(1));
    let others = (0..extents.len() - rounds).filter(|&n| n != default && is_shared(n));
    // Leaving a loop of one iteration out, or taking it in, changes nothing.
    let others = others.filter(|&n| match n < default {
        true => is_loop(default),
        false => is_loop(n) && n_tasks(n).is_some_and(|tasks| tasks >= enough),
    });
    std::iter::once(default).chain(others).map(candidate).collect()
}
