//! Choice points: where a rule could do one of several right things.
//!
//! A rule's plan asks a [`Chooser`] with what it could do, the best by its own model first. That one is done unless
//! [`Decisions`] say otherwise. Every decision is recorded with all that was offered, so the space of a function's
//! strategies is found by planning it: no second description of it exists that could differ from what the rules do. A
//! decision may change which points come after it.
//!
//! Values are compared by their printed form, which is what a tuning database stores. Points and values are a projection of the
//! strategy: it follows from them, the function and the target.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use tilewright_te::schedule::ScheduleError;

use crate::refusal::Refusal;

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

/// Sorts by cost, least first; of those that differ by less than about `unit` the first stays first.
pub(crate) fn sort_by_cost<T>(candidates: &mut [Candidate<T>], unit: f64) {
    candidates.sort_by(|a, b| (a.cost / unit).round().total_cmp(&(b.cost / unit).round()));
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
    /// The cost of the value taken, that of what the rule does by default being 1.
    pub fn relative_cost(&self) -> f64 {
        let cost = |n: usize| self.candidates.get(n).map_or(0.0, |candidate| candidate.cost);
        if self.chosen == 0 { 1.0 } else { cost(self.chosen) / cost(0) }
    }

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
    /// A strategy that was offered could not be applied: a defect.
    #[error("a defect: the strategy `{strategy}` does not apply: {source}")]
    Apply {
        /// The strategy, printed.
        strategy: String,
        /// The primitive that failed.
        source: ScheduleError,
    },
    /// A primitive failed before any rule, or after all of them: a defect.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
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

/// Takes decisions: those given, else what a rule does by default.
#[derive(Clone, Debug)]
pub struct Chooser<'a> {
    given: &'a Decisions,
    taken: Vec<Decision>,
    /// The first decision given that could not be followed.
    stale: Option<AutoscheduleError>,
}

impl<'a> Chooser<'a> {
    /// A chooser that has taken no decision yet.
    pub fn new(given: &'a Decisions) -> Chooser<'a> {
        Chooser { given, taken: Vec::new(), stale: None }
    }

    /// Takes the value given for the point `what` of a block, else the first candidate.
    ///
    /// # Errors
    /// Where there is no candidate.
    pub fn decide<T: Clone + Display>(
        &mut self,
        block: &str,
        what: &'static str,
        candidates: &[Candidate<T>],
    ) -> Result<T, Refusal> {
        let point = format!("{block}/{what}");
        let printed: Vec<Candidate<String>> = candidates.iter().map(Candidate::printed).collect();
        let chosen = match self.given.get(&point) {
            None => 0,
            Some(value) => printed.iter().position(|c| c.value == value).unwrap_or_else(|| {
                let offered: Vec<&str> = printed.iter().map(|c| c.value.as_str()).collect();
                let (offered, value) = (offered.join(", "), value.to_string());
                let point = point.clone();
                self.stale.get_or_insert(AutoscheduleError::NotOffered { point, value, offered });
                0
            }),
        };
        let Some(candidate) = candidates.get(chosen) else {
            return Err(Refusal::new(what, block, "nothing fits"));
        };
        self.taken.push(Decision { point, candidates: printed, chosen });
        Ok(candidate.value.clone())
    }

    /// Goes on after the decisions of a rule that takes a block.
    pub(crate) fn accept(&mut self, of_rule: Chooser<'a>) {
        self.taken.extend(of_rule.taken);
        self.stale = self.stale.take().or(of_rule.stale);
    }

    /// A chooser for a rule that may refuse its block, and whose decisions count only if it does not.
    pub(crate) fn for_rule(&self) -> Chooser<'a> {
        Chooser::new(self.given)
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
