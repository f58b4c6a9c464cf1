//! What a search may spend, how it stands, and who looks on.

use std::fmt::Display;
use std::time::Duration;

use tilewright_autosched::Decisions;

use crate::task::{Task, TaskKey};

/// What a search may spend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Time; without it, none but that of the trials.
    pub time: Option<Duration>,
    /// Points measured.
    pub trials: Option<usize>,
    /// Seed of what is taken at random.
    pub seed: u64,
}

/// How a task stands.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskOutcome {
    /// Its key.
    pub key: TaskKey,
    /// Nanoseconds of the rules' own schedule; 0 where it could not be measured.
    pub baseline_ns: f64,
    /// Time of the best schedule over that.
    pub ratio: f64,
    /// The best schedule's decisions.
    pub decisions: Decisions,
    /// Points measured by this search.
    pub trials: usize,
    /// How often it runs.
    pub calls: u32,
    /// Points in its space, if all choices were free of each other.
    pub space: f64,
}

/// How a search stands, or ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The tasks, in the order given.
    pub tasks: Vec<TaskOutcome>,
    /// Points measured.
    pub trials: usize,
    /// Of those, how many failed.
    pub failed: usize,
    /// Schedules that computed something else than the rules' own, each a defect of the compiler.
    pub wrong: Vec<String>,
    /// Schedules that the rules offered and that do not apply, what is wrong with each once: defects of the compiler.
    pub illegal: Vec<String>,
    /// Functions whose schedule by the rules could not be measured, each with the reason.
    pub unmeasured: Vec<String>,
    /// Whether nothing worth trying was left when it ended.
    pub exhausted: bool,
    /// Whether it was asked to stop. What was found until then counts.
    pub cancelled: bool,
    /// Why nothing could be measured any more, where that ended it. What was found until then counts.
    pub unavailable: Option<String>,
}

impl Outcome {
    pub(crate) fn note_illegal(&mut self, task: &Task, error: impl Display) {
        let message = format!("{}: {error}", task.computation.func.name);
        if !self.illegal.contains(&message) {
            self.illegal.push(message);
        }
    }

    /// Whether it was asked to stop, or cannot go on.
    pub(crate) fn is_over(&self) -> bool {
        self.cancelled || self.unavailable.is_some()
    }

    /// Time of all tasks with the rules' own schedules over that with the best ones.
    pub fn gain(&self) -> f64 {
        let time = |t: &TaskOutcome| f64::from(t.calls) * t.baseline_ns;
        let before: f64 = self.tasks.iter().map(time).sum();
        let after: f64 = self.tasks.iter().map(|t| time(t) * t.ratio).sum();
        if after > 0.0 { before / after } else { 1.0 }
    }
}

/// Looks on while a search runs.
pub trait Watch {
    /// Something was measured; `share` of the budget is spent, by time or trials, whichever is nearer its end.
    fn progress(&mut self, _outcome: &Outcome, _share: f64) {}

    /// Whether the search is to stop with the measurement that is under way.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl Watch for () {}
