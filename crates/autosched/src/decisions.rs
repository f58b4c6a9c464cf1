//! Choice points: where a rule could do one of several right things.
//!
//! A rule asks [`Context::decide`](crate::Context::decide) with what it could do, the best by its own model
//! first. That one is done unless [`Decisions`] say otherwise. Every decision is recorded with all that was
//! offered, so the space of a function's schedules is found by scheduling it: no second description of it
//! exists that could differ from what the rules do. A decision may change which points come after it.
//!
//! Values are compared by their printed form, which is what a tuning database stores.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use tilewright_te::schedule::{FinishError, ScheduleError};

/// What a choice point offers: a value, and what the rule knows of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate<T> {
    /// What would be done.
    pub value: T,
    /// By the analytic model; comparable among the candidates of one choice point only, less is better.
    pub cost: f64,
    /// What a learned model may go by; the same names for every candidate of such a choice point.
    pub features: Vec<(&'static str, f64)>,
}

impl<T: Display> Candidate<T> {
    /// The candidate by its printed value.
    fn printed(&self) -> Candidate<String> {
        Candidate { value: self.value.to_string(), cost: self.cost, features: self.features.clone() }
    }
}

/// A decision that a rule has taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The choice point: `BLOCK/WHAT`.
    pub point: String,
    /// What was offered; the first is what the rule does by default.
    pub candidates: Vec<Candidate<String>>,
    /// Which of them was taken.
    pub chosen: usize,
}

impl Decision {
    /// The value taken.
    pub fn value(&self) -> &str {
        self.candidates.get(self.chosen).map_or("", |c| &c.value)
    }
}

/// Values for choice points, by the points' names. Points without one are decided by the rules' model.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Decisions(BTreeMap<String, String>);

impl Decisions {
    /// The value for a point.
    pub fn get(&self, point: &str) -> Option<&str> {
        self.0.get(point).map(String::as_str)
    }

    /// Decides a point, anew where it was decided.
    pub fn set(&mut self, point: &str, value: &str) {
        self.0.insert(point.to_string(), value.to_string());
    }

    /// Leaves a point to the rules.
    pub fn unset(&mut self, point: &str) {
        self.0.remove(point);
    }

    /// Whether everything is left to the rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Points and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(point, value)| (point.as_str(), value.as_str()))
    }

    /// Those of the decisions taken that differ from what the rules do by default.
    pub fn deviations(taken: &[Decision]) -> Decisions {
        let differs = |d: &&Decision| d.chosen != 0;
        Decisions(taken.iter().filter(differs).map(|d| (d.point.clone(), d.value().to_string())).collect())
    }
}

/// `conv/order=rows-stay conv/tile=7x4`, or `default`.
impl Display for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("default");
        }
        for (n, (point, value)) in self.iter().enumerate() {
            let space = if n > 0 { " " } else { "" };
            write!(f, "{space}{point}={value}")?;
        }
        Ok(())
    }
}

/// Why a function could not be scheduled as decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AutoscheduleError {
    /// A primitive failed where it must not: a defect.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The schedule has no result, or an illegal one: a defect.
    #[error(transparent)]
    Finish(#[from] FinishError),
    /// A choice point does not offer the value decided: the decision is of another function, target or version.
    #[error("`{point}` does not offer `{value}`, but {offered}")]
    NotOffered {
        /// The choice point.
        point: String,
        /// The value decided.
        value: String,
        /// What it offers.
        offered: String,
    },
    /// No rule came to a choice point of that name: the decision is of another function, target or version.
    #[error("no rule asks for `{point}`")]
    NotAsked {
        /// The choice point.
        point: String,
    },
}

/// The decisions given, and those taken so far.
#[derive(Clone, Debug)]
pub(crate) struct Decider<'a> {
    given: &'a Decisions,
    taken: Vec<Decision>,
    /// The first decision given that could not be followed.
    stale: Option<AutoscheduleError>,
}

impl<'a> Decider<'a> {
    pub(crate) fn new(given: &'a Decisions) -> Decider<'a> {
        Decider { given, taken: Vec::new(), stale: None }
    }

    /// Takes the value given for the point, else the first; nothing where nothing is offered.
    pub(crate) fn decide<T: Clone + Display>(
        &mut self,
        block: &str,
        what: &str,
        candidates: &[Candidate<T>],
    ) -> Option<T> {
        let point = format!("{block}/{what}");
        let candidates_printed: Vec<Candidate<String>> = candidates.iter().map(Candidate::printed).collect();
        let chosen = match self.given.get(&point) {
            None => 0,
            Some(value) => candidates_printed.iter().position(|c| c.value == value).unwrap_or_else(|| {
                let offered: Vec<&str> = candidates_printed.iter().map(|c| c.value.as_str()).collect();
                let offered = offered.join(", ");
                let value = value.to_string();
                self.stale.get_or_insert(AutoscheduleError::NotOffered {
                    point: point.clone(),
                    value,
                    offered,
                });
                0
            }),
        };
        let value = candidates.get(chosen)?.value.clone();
        self.taken.push(Decision { point, candidates: candidates_printed, chosen });
        Some(value)
    }

    /// The decisions taken.
    ///
    /// # Errors
    /// Where one of those given could not be followed, or was never asked for.
    pub(crate) fn finish(self) -> Result<Vec<Decision>, AutoscheduleError> {
        if let Some(error) = self.stale {
            return Err(error);
        }
        let is_asked = |point: &str| self.taken.iter().any(|d| d.point == point);
        match self.given.iter().find(|(point, _)| !is_asked(point)) {
            Some((point, _)) => Err(AutoscheduleError::NotAsked { point: point.to_string() }),
            None => Ok(self.taken),
        }
    }
}
