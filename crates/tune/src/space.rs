//! Points of a task's space, found by planning it.

use std::collections::BTreeMap;

use tilewright_autosched::{AutoscheduleError, Decision, Decisions, plan};

use crate::task::{Task, strategy_digest};

/// What a learned model goes by: how a point differs from the rules' own schedule, by name.
pub type Features = BTreeMap<&'static str, f64>;

/// A schedule of a task.
#[derive(Clone, Debug)]
pub struct Point {
    /// The decisions that differ from the rules' own.
    pub decisions: Decisions,
    /// Every decision, with what else was offered.
    pub taken: Vec<Decision>,
    /// Digest of the strategy: equal for equal schedules.
    pub digest: String,
}

impl Point {
    /// The point that decisions lead to. Decisions that are no longer asked for, or not offered after the others, are
    /// left to the rules.
    ///
    /// # Errors
    /// Where the function cannot be planned so: a defect of the rules, which offered it.
    pub fn of(task: &Task, decisions: &Decisions) -> Result<Point, AutoscheduleError> {
        let mut decisions = decisions.clone();
        loop {
            match plan(&task.computation, &task.target, &decisions) {
                Ok(planned) => {
                    return Ok(Point {
                        decisions: Decisions::deviations(&planned.decisions),
                        digest: strategy_digest(&planned.strategy),
                        taken: planned.decisions,
                    });
                }
                // One decision less each time.
                Err(AutoscheduleError::NotAsked { point } | AutoscheduleError::NotOffered { point, .. }) => {
                    decisions.unset(&point)
                }
                Err(
                    defect @ (AutoscheduleError::Schedule(_)
                    | AutoscheduleError::Finish(_)
                    | AutoscheduleError::Apply { .. }),
                ) => return Err(defect),
            }
        }
    }

    /// How many points there would be if every decision were free of the others.
    pub fn space_size(&self) -> f64 {
        self.taken.iter().map(|d| d.candidates.len() as f64).product()
    }

    /// The decisions that differ from this point's in one choice: first all second candidates, then all third ones,
    /// and so on.
    pub fn neighbours(&self) -> Vec<Decisions> {
        let most = self.taken.iter().map(|d| d.candidates.len()).max().unwrap_or(0);
        let ranks = (0..most).flat_map(|rank| self.taken.iter().map(move |d| (d, rank)));
        ranks
            .filter(|(d, rank)| *rank != d.chosen && *rank < d.candidates.len())
            .map(|(d, rank)| self.with(d, rank))
            .collect()
    }

    /// The decisions with `n` choices, at random, taken anew at random.
    pub fn mutation(&self, n: usize, random: &mut fastrand::Rng) -> Decisions {
        let mut decisions = self.decisions.clone();
        let free: Vec<&Decision> = self.taken.iter().filter(|d| d.candidates.len() > 1).collect();
        for _ in 0..n {
            let Some(decision) = random.choice(&free) else { break };
            set(&mut decisions, decision, random.usize(..decision.candidates.len()));
        }
        decisions
    }

    /// This point's decisions with one of them taken otherwise.
    fn with(&self, decision: &Decision, rank: usize) -> Decisions {
        let mut decisions = self.decisions.clone();
        set(&mut decisions, decision, rank);
        decisions
    }

    /// How the point differs from the rules' own schedule: each choice's features less those of what the rules
    /// would have chosen there.
    pub fn features(&self) -> Features {
        let mut features = Features::new();
        for decision in &self.taken {
            let (Some(chosen), Some(default)) =
                (decision.candidates.get(decision.chosen), decision.candidates.first())
            else {
                continue;
            };
            for ((name, value), (_, usual)) in chosen.features.iter().zip(&default.features) {
                *features.entry(name).or_default() += value - usual;
            }
        }
        features
    }
}

/// Decides one point; what the rules do by default is not decided.
fn set(decisions: &mut Decisions, decision: &Decision, rank: usize) {
    match decision.candidates.get(rank) {
        Some(candidate) if rank > 0 => decisions.set(&decision.point, &candidate.value),
        Some(_) | None => decisions.unset(&decision.point),
    }
}
