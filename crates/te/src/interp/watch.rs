//! Watches loops whose iterations may run at the same time, tasks, threads and lanes: which iteration wrote and which read
//! every element.
//!
//! Iterations run one after the other, and any order of them finds the same conflicts: two different iterations of one
//! execution of a loop that access the same element, at least one of which writes it. Of the readers of an element two
//! different ones are kept, since a later writer is in conflict with one of these or with none.

use super::memory::{SKIP, Span};
use crate::func::ThreadLevel;

/// How the iterations of a loop may run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Together {
    /// As tasks, each with local buffers of its own. Those of a loop of tasks inside another one are all tasks of one grid.
    Tasks,
    /// As threads of a task, those of one execution of the loop.
    Threads(ThreadLevel),
    /// As lanes of vectors.
    Lanes,
}

/// A loop to watch: how its iterations run, its variable, and the buffers of which each iteration has its own.
#[derive(Clone, Debug)]
pub(super) struct WatchedLoop {
    pub(super) together: Together,
    pub(super) var: usize,
    pub(super) private: Vec<usize>,
}

/// Who accessed an element: an iteration of a loop, its number, and a block in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Party {
    pub(super) var: usize,
    pub(super) value: i64,
    pub(super) block: usize,
    /// Counts the iterations of the run.
    iteration: u64,
}

/// Two iterations that may not run at the same time, in the order in which they ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct Race {
    pub(super) position: usize,
    pub(super) first: Party,
    pub(super) second: Party,
    /// Whether each writes.
    pub(super) writes: [bool; 2],
}

/// What happened to an element since the outermost watched loop around began.
#[derive(Clone, Copy, Default)]
struct Mark {
    epoch: u64,
    writer: Option<Party>,
    readers: [Option<Party>; 2],
}

/// The loops of one kind.
struct Watcher {
    /// The loops around and the iteration that each is at, outermost first.
    around: Vec<(usize, i64, u64)>,
    /// Counts the executions of outermost loops.
    epoch: u64,
    iterations: u64,
    /// By buffer and position.
    marks: Vec<Vec<Mark>>,
    /// How many of the loops around make a buffer private.
    private: Vec<u32>,
}

impl Watcher {
    fn new(elements: &[usize]) -> Watcher {
        Watcher {
            around: Vec::new(),
            epoch: 0,
            iterations: 0,
            marks: elements.iter().map(|&n| vec![Mark::default(); n]).collect(),
            private: vec![0; elements.len()],
        }
    }

    fn access(&mut self, buffer: usize, position: usize, writes: bool, block: usize) -> Result<(), Race> {
        let Some(&(var, value, iteration)) = self.around.last() else { return Ok(()) };
        if self.private[buffer] > 0 {
            return Ok(());
        }
        let own = Party { var, value, block, iteration };
        let mark = &mut self.marks[buffer][position];
        if mark.epoch != self.epoch {
            *mark = Mark { epoch: self.epoch, ..Mark::default() };
        }
        let is_other = |party: &Party| party.iteration != iteration;
        let race = |first, wrote| Err(Race { position, first, second: own, writes: [wrote, writes] });
        if let Some(writer) = mark.writer.filter(is_other) {
            return race(writer, true);
        }
        if writes {
            if let Some(reader) = mark.readers.into_iter().flatten().find(is_other) {
                return race(reader, false);
            }
            mark.writer = Some(own);
        } else if let Some(free) = mark.readers.iter_mut().find(|reader| reader.is_none_or(|r| !is_other(&r)))
        {
            *free = Some(own);
        }
        Ok(())
    }
}

/// All watched loops of a run.
pub(super) struct Watch {
    tasks: Watcher,
    warps: Watcher,
    threads: Watcher,
    lanes: Watcher,
}

impl Watch {
    /// Watches buffers of so many elements.
    pub(super) fn new(elements: &[usize]) -> Watch {
        let [tasks, warps, threads, lanes] = [(); 4].map(|()| Watcher::new(elements));
        Watch { tasks, warps, threads, lanes }
    }

    fn of(&mut self, together: Together) -> &mut Watcher {
        match together {
            Together::Tasks => &mut self.tasks,
            Together::Threads(ThreadLevel::Warp) => &mut self.warps,
            Together::Threads(ThreadLevel::Lane) => &mut self.threads,
            Together::Lanes => &mut self.lanes,
        }
    }

    /// A loop begins.
    pub(super) fn enter(&mut self, watched: &WatchedLoop) {
        let watcher = self.of(watched.together);
        if watcher.around.is_empty() {
            watcher.epoch += 1;
        }
        watcher.around.push((watched.var, 0, watcher.iterations));
        watched.private.iter().for_each(|&buffer| watcher.private[buffer] += 1);
    }

    /// The innermost loop of its kind begins an iteration.
    pub(super) fn iterate(&mut self, watched: &WatchedLoop, value: i64) {
        let watcher = self.of(watched.together);
        watcher.iterations += 1;
        if let Some(innermost) = watcher.around.last_mut() {
            *innermost = (watched.var, value, watcher.iterations);
        }
    }

    /// The innermost loop of its kind ends.
    pub(super) fn leave(&mut self, watched: &WatchedLoop) {
        let watcher = self.of(watched.together);
        watcher.around.pop();
        watched.private.iter().for_each(|&buffer| watcher.private[buffer] -= 1);
    }

    /// Notes an access of a block to elements of a buffer.
    pub(super) fn access(
        &mut self,
        buffer: usize,
        span: &Span<'_>,
        writes: bool,
        block: usize,
    ) -> Result<(), Race> {
        let mut note = |position: usize| {
            self.tasks.access(buffer, position, writes, block)?;
            self.warps.access(buffer, position, writes, block)?;
            self.threads.access(buffer, position, writes, block)?;
            self.lanes.access(buffer, position, writes, block)
        };
        match span {
            Span::Run { start, from, to } => (*start..start + to - from).try_for_each(note),
            Span::Even { start, step, last } => (*start..=*last).step_by(*step).try_for_each(note),
            Span::Each(at) => at.iter().filter(|&&at| at != SKIP).try_for_each(|&at| note(at)),
        }
    }
}
