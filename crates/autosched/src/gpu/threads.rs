//! Threads of a task: how the loops around a block's results become tasks, warps and lanes.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_machine::Gpu;
use tilewright_te::ThreadLevel;
use tilewright_te::schedule::{Schedule, ScheduleError};

use crate::decisions::Candidate;

/// Lanes of a warp.
pub(crate) const LANES: i64 = Gpu::LANES as i64;

/// The factors by which a loop becomes tasks, warps, lanes, and elements of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Threads {
    /// Warps of a task.
    pub warps: i64,
    /// Elements of a thread, which follow one another.
    pub elements: i64,
}

/// `4 warps`, `4 warps of 2 elements a thread`.
impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} warps", self.warps)?;
        if self.elements > 1 {
            write!(f, " of {} elements a thread", self.elements)?;
        }
        Ok(())
    }
}

/// Threads as a value of a decision: `4x2` for 4 warps of 2 elements a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offered(pub(crate) Threads);

impl fmt::Display for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.0.warps, self.0.elements)
    }
}

/// Warps that tasks are offered with.
const WARPS: [i64; 4] = [8, 4, 2, 1];

/// The values of a decision of which nothing but the order is known: the first is what a rule does by default. Features are logarithms.
pub(crate) fn in_order<T>(
    values: Vec<T>,
    features: impl Fn(&T) -> Vec<(&'static str, f64)>,
) -> Vec<Candidate<T>> {
    let candidate = |(n, value): (usize, T)| {
        let features = features(&value);
        Candidate { cost: 1.0 + n as f64, features, value }
    };
    values.into_iter().enumerate().map(candidate).collect()
}

impl Threads {
    /// These threads and what else there could be, with as many elements each or one, where `fits` says so.
    pub(crate) fn candidates(self, fits: impl Fn(&Threads) -> bool) -> Vec<Candidate<Offered>> {
        let others = [self.elements, 1]
            .into_iter()
            .flat_map(|elements| WARPS.into_iter().map(move |warps| Threads { warps, elements }));
        let mut offered = vec![self];
        for threads in others {
            if !offered.contains(&threads) && fits(&threads) {
                offered.push(threads);
            }
        }
        in_order(offered.into_iter().map(Offered).collect(), |Offered(threads)| {
            let log = |n: i64| (n as f64).log2();
            vec![("threads.warps", log(threads.warps)), ("threads.elements", log(threads.elements))]
        })
    }

    /// Threads for so many results, where that is known: large tasks as long as every multiprocessor has some.
    pub(crate) fn for_results(gpu: &Gpu, results: Option<i64>, elements: i64) -> Threads {
        let all = results.unwrap_or(i64::MAX) / i64::from(gpu.multiprocessors);
        let elements = if all >= 4 * LANES * elements { elements } else { 1 };
        let warps = [8, 4, 2].into_iter().find(|warps| warps * LANES * elements <= all).unwrap_or(1);
        Threads { warps, elements }
    }

    /// The factors for `split`.
    pub(crate) fn factors(self) -> Vec<Option<i64>> {
        let elements = (self.elements > 1).then_some(Some(self.elements));
        [None, Some(self.warps), Some(LANES)].into_iter().chain(elements).collect()
    }

    /// Splits a loop and binds its parts; gives the loop over tasks and that over lanes, which is innermost but for a thread's elements.
    pub(crate) fn apply(self, schedule: &mut Schedule, name: &str) -> Result<[String; 2], ScheduleError> {
        let parts = schedule.split(name, &self.factors())?;
        schedule.bind(&parts[1], ThreadLevel::Warp)?;
        schedule.bind(&parts[2], ThreadLevel::Lane)?;
        if let Some(elements) = parts.get(3) {
            schedule.vectorize(elements)?;
        }
        Ok([parts[0].clone(), parts[2].clone()])
    }
}
