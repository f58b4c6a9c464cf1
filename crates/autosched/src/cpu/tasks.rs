//! Tasks: which loops around a kernel's work threads share.
//!
//! The loops around a tile of an image go over its channels (each with its own weights) and its rows. Threads that
//! share the channels read all of the image, most of which other cores have just written and hold in their caches;
//! threads that share the rows find their part in their own, but each reads all weights. Which of them costs less is
//! a matter of how many bytes there are of each. It must come out alike for kernels that follow one another.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError};

/// The loops that threads share, of those around a kernel's work, outermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tasks {
    /// How many of the loops, the outermost, have tasks for iterations; none where there is a single task.
    pub loops: usize,
    /// How many of these, the outermost, are rounds: threads share the iterations of the others in each.
    pub rounds: usize,
    /// How many iterations of the innermost of them are one task, where several are.
    pub grouped: Option<i64>,
    /// Outside of which of the loops the groups of the innermost go by: threads share rows then, and channels where rows are few.
    pub ahead_of: Option<usize>,
}

/// `one`, `loops 2`, `loops 1+2` with rounds, `loops 3 by 4 ahead of 1` with iterations of the innermost in groups outside of the second.
impl fmt::Display for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.loops, self.rounds) {
            (0, _) => return f.write_str("one"),
            (loops, 0) => write!(f, "loops {loops}")?,
            (loops, rounds) => write!(f, "loops {rounds}+{}", loops - rounds)?,
        }
        self.grouped.map_or(Ok(()), |n| write!(f, " by {n}"))?;
        self.ahead_of.map_or(Ok(()), |at| write!(f, " ahead of {at}"))
    }
}

/// The size of tasks that a plan aims at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grain {
    /// Elements of one iteration of the innermost of the loops, where known.
    pub(crate) elements: Option<i64>,
    /// Elements of a task.
    pub(crate) task: i64,
}

/// Iterations that a loop inside of tasks is taken to have where its extent is open.
const OPEN: i64 = 16;

/// The same of a loop inside of rows that are shared: small images have to come out even.
const FEW_OPEN: i64 = 4;

/// Loops that have to be left for tasks without it: one of them may have a single iteration.
const AROUND_OPEN: usize = 2;

impl Tasks {
    /// Tasks of all iterations of so many loops.
    pub(crate) fn of_all(loops: usize) -> Tasks {
        Tasks { loops, ..Tasks::default() }
    }

    /// Tasks of about the size `grain` of the loops with these extents, outermost first and each directly inside the one before; the
    /// first `rounds` of the loops, if there are such, are those of rounds.
    pub(crate) fn plan(outer: &[Option<i64>], rounds: Option<usize>, grain: Grain) -> Tasks {
        let is_loop = |n: &usize| outer[*n] != Some(1);
        // The outermost of the loops that threads share, which must keep some iterations.
        let rounds = rounds.filter(|&n| n <= outer.len() && (0..n).any(|at| is_loop(&at)));
        let first = rounds.and_then(|n| (n..outer.len()).find(is_loop));
        let mut tasks = Tasks::of_all(outer.len());
        let mut elements = grain.elements.unwrap_or(grain.task).max(1);
        // The innermost loop stays inside where its extent is open and others are around: as one of tasks it would cost each iteration a
        // division by an extent that is not known.
        if let Some((None, around)) = outer.split_last()
            && elements < grain.task
            && (0..around.len()).filter(is_loop).count() >= AROUND_OPEN
        {
            elements = elements.saturating_mul(OPEN);
            tasks.loops -= 1;
        }
        // Inner loops stay inside a task as long as it is no larger for them. An open extent may be 1 in the loops
        // around: it stays a source of tasks.
        while tasks.loops > 0 {
            let last = tasks.loops - 1;
            let Some(extent) = outer[last].filter(|_| elements < grain.task) else { break };
            let wanted = grain.task / elements;
            let is_first = first == Some(last);
            if extent > wanted || is_first {
                tasks.grouped = even_group(extent, wanted, is_first);
                break;
            }
            elements = elements.saturating_mul(extent.max(1));
            tasks.loops -= 1;
        }
        tasks.rounds = rounds.filter(|&n| first.is_some() && tasks.loops > n).unwrap_or(0);
        tasks
    }

    /// Puts iterations of the innermost of the loops in groups, which take its place.
    fn group(&self, schedule: &mut Schedule, loops: &mut [String]) -> Result<(), ScheduleError> {
        if let (Some(n), Some(last)) = (self.grouped, loops.last_mut()) {
            *last = schedule.split(last, &[None, Some(n)])?.remove(0);
        }
        Ok(())
    }

    /// Tasks of the loops with these extents, outermost first, in which threads share open rows, the first loop of several iterations inside
    /// of that over channels at the position `channels`. Rows that follow one another are one task, but few of them: the last task may
    /// have fewer. Nothing where no rows are open.
    pub(crate) fn of_open_rows(outer: &[Option<i64>], channels: usize, grain: Grain) -> Option<Tasks> {
        let inside = outer.get(channels + 1..)?;
        let at = inside.iter().position(|extent| *extent != Some(1)).filter(|&at| inside[at].is_none())?;
        let others = inside[at + 1..].iter().map(|extent| extent.unwrap_or(FEW_OPEN)).product::<i64>();
        let elements = grain.elements.unwrap_or(grain.task).saturating_mul(others).max(1);
        let rows = (grain.task / elements).max(1).unsigned_abs().next_power_of_two().cast_signed();
        Some(Tasks {
            grouped: Some(rows).filter(|&rows| rows > 1),
            ahead_of: Some(channels),
            ..Tasks::of_all(channels + at + 2)
        })
    }

    /// Makes tasks of the loops, outermost first: as many of them as can be shown to write apart from each other. With open extents
    /// that is not always all.
    pub(crate) fn apply(&self, schedule: &mut Schedule, outer: &[String]) -> Result<(), ScheduleError> {
        let mut loops = outer[..self.loops.min(outer.len())].to_vec();
        let one_group = |schedule: &Schedule| {
            let most = loops.last().and_then(|last| schedule.most_iterations(last));
            most.is_some_and(|most| most <= self.grouped.unwrap_or(1))
        };
        if self.ahead_of.is_some() && one_group(schedule) {
            loops.pop();
        } else if let Some(at) = self.ahead_of.filter(|&at| at < loops.len()) {
            let mut turned = schedule.clone();
            let mut order = loops.clone();
            self.group(&mut turned, &mut order)?;
            order[at..].rotate_right(1);
            turned.reorder(&order[at..].iter().map(String::as_str).collect::<Vec<_>>())?;
            if turned.may_share(&[&order]) {
                *schedule = turned;
                return share(schedule, &order);
            }
            // Where that cannot be shown, the innermost loop stays inside.
            loops.pop();
        } else {
            self.group(schedule, &mut loops)?;
        }
        let (rounds, shared) = loops.split_at(self.rounds.min(loops.len()));
        if !rounds.is_empty() && schedule.may_share(&[rounds, shared]) {
            share(schedule, rounds)?;
            return share(schedule, shared);
        }
        let provable = (1..=loops.len()).rev().find(|&n| schedule.may_share(&[&loops[..n]]));
        provable.map_or(Ok(()), |n| share(schedule, &loops[..n]))
    }
}

/// Iterations of a loop for each task, so that no task has a guard: at most `wanted`; of the loop that threads share, in an even number
/// of parts where that is possible.
fn even_group(extent: i64, wanted: i64, is_shared: bool) -> Option<i64> {
    let divides = |n: &i64| extent % n == 0 && (!is_shared || extent / n >= 2);
    let is_even = |n: &i64| !is_shared || (extent / n) % 2 == 0;
    let divisors = || (2..=wanted.min(extent)).rev().filter(divides);
    divisors().find(is_even).or_else(|| divisors().next().filter(|_| extent % 2 == 1))
}

/// Makes one loop of tasks of several loops, each directly inside the one before.
fn share(schedule: &mut Schedule, loops: &[String]) -> Result<(), ScheduleError> {
    let task = match loops {
        [one] => one.clone(),
        many => schedule.fuse(&many.iter().map(String::as_str).collect::<Vec<_>>())?,
    };
    schedule.parallel(&task)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(outer: &[i64], rounds: Option<usize>, elements: i64) -> String {
        let outer: Vec<Option<i64>> = outer.iter().map(|&n| Some(n)).collect();
        Tasks::plan(&outer, rounds, Grain { elements: Some(elements), task: 8192 }).to_string()
    }

    #[test]
    fn tasks_have_about_the_size_that_is_asked_for() {
        assert_eq!(plan(&[4, 64], None, 8192), "loops 2");
        assert_eq!(plan(&[4, 64], None, 512), "loops 2 by 16");
        assert_eq!(plan(&[4, 64], None, 64), "loops 1 by 2");
        assert_eq!(plan(&[4, 7], None, 2048), "loops 2");
        assert_eq!(plan(&[2, 2], None, 1), "one");
    }

    #[test]
    fn an_innermost_loop_of_an_open_extent_stays_inside() {
        let plan = |outer: &[Option<i64>]| {
            Tasks::plan(outer, None, Grain { elements: Some(8), task: 8192 }).to_string()
        };
        assert_eq!(plan(&[None, Some(4), None, None]), "loops 3");
        assert_eq!(plan(&[Some(1), Some(4), None, None]), "loops 3");
        assert_eq!(plan(&[None, Some(1), None]), "loops 3");
        assert_eq!(plan(&[None, None]), "loops 2");
    }

    #[test]
    fn threads_share_open_rows_in_small_groups() {
        let plan = |outer: &[Option<i64>], channels: usize, elements: i64| {
            let grain = Grain { elements: Some(elements), task: 8192 };
            Tasks::of_open_rows(outer, channels, grain).map(|tasks| tasks.to_string())
        };
        let found = |text: &str| Some(text.to_string());
        assert_eq!(plan(&[None, Some(8), None], 1, 512), found("loops 3 by 16 ahead of 1"));
        assert_eq!(plan(&[None, Some(8), None, None], 1, 512), found("loops 3 by 4 ahead of 1"));
        assert_eq!(plan(&[None, Some(8), None, None], 1, 8192), found("loops 3 ahead of 1"));
        // A row of a signal is no loop.
        assert_eq!(plan(&[None, Some(8), Some(1), None], 1, 4096), found("loops 4 by 2 ahead of 1"));
        assert_eq!(plan(&[None, Some(8), Some(7), None], 1, 512), None);
        assert_eq!(plan(&[None, None, Some(8)], 2, 512), None);
    }

    #[test]
    fn rounds_leave_an_even_number_of_tasks_to_threads() {
        assert_eq!(plan(&[1, 8, 56], Some(2), 2048), "loops 2+1 by 4");
        assert_eq!(plan(&[1, 1, 56], Some(2), 2048), "loops 3 by 4");
    }
}
