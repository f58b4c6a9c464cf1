//! What a measurement gives: times of a candidate and of the rules' own schedule, and what they say.

use serde::{Deserialize, Serialize};

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// As long as it takes to see whether a candidate is promising.
    Trial,
    /// Several times that, and whether it computes what the rules' own schedule does.
    Confirm,
}

/// Times of a candidate and of the rules' own schedule, in nanoseconds a run. The n-th of both were measured
/// one right after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The candidate's.
    pub candidate: Vec<f64>,
    /// The rules' own schedule's.
    pub baseline: Vec<f64>,
}

/// Why a candidate has no times.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeasureError {
    /// It could not be compiled or run.
    #[error("{0}")]
    Failed(String),
    /// What the rules offered does not apply: a defect of the compiler.
    #[error("{0}")]
    Illegal(String),
    /// It computes something else than the rules' own schedule: a defect of the compiler.
    #[error("{0}")]
    Wrong(String),
    /// The measurement was asked to stop, which says nothing of the schedule.
    #[error("the measurement was cancelled")]
    Cancelled,
    /// Nothing that could measure it is there: no machine, not one that runs its code, or not all that the request names. This says
    /// nothing of the schedule either.
    #[error("{0}")]
    Unavailable(String),
}

/// How much faster a candidate must be to be worth a record: less than this is within what a later measurement
/// may take back.
const WORTH: f64 = 0.98;

/// Share of pairs of runs in which a faster candidate must have been the faster.
const MAJORITY: f64 = 0.75;

impl Times {
    /// The candidate's time over the baseline's: the quotient of the least times, which other processes
    /// disturb least, but no less than the median quotient of neighbouring runs would allow with some noise.
    pub fn ratio(&self) -> f64 {
        let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
        let of_least = least(&self.candidate) / least(&self.baseline);
        let of_pairs = median(self.pairs().collect());
        if of_pairs.is_finite() && of_least.is_finite() { (of_least + of_pairs) / 2.0 } else { f64::INFINITY }
    }

    /// Nanoseconds of the baseline: the least.
    pub fn baseline_ns(&self) -> f64 {
        self.baseline.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Whether the candidate is faster beyond what noise explains: by its least time, by the median of the pairs, and in
    /// most of the pairs.
    pub fn is_faster(&self) -> bool {
        let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
        let n_pairs = self.pairs().count();
        let n_won = self.pairs().filter(|quotient| *quotient < 1.0).count();
        n_pairs > 0
            && least(&self.candidate) < WORTH * least(&self.baseline)
            && median(self.pairs().collect()) < WORTH
            && n_won as f64 >= MAJORITY * n_pairs as f64
    }

    /// Quotients of neighbouring runs.
    fn pairs(&self) -> impl Iterator<Item = f64> {
        self.candidate.iter().zip(&self.baseline).map(|(candidate, baseline)| candidate / baseline)
    }
}

/// The median; not a number without any.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disturbed_run_decides_nothing() {
        let baseline = vec![100.0, 101.0, 100.0, 102.0, 100.0, 101.0, 100.0, 100.0];
        let slower = baseline.iter().map(|t| t * 1.05).collect::<Vec<f64>>();
        let faster = baseline.iter().map(|t| t * 0.9).collect::<Vec<f64>>();
        let mut disturbed = baseline.clone();
        disturbed[3] = 900.0;
        let times = |candidate: &[f64], baseline: &[f64]| Times {
            candidate: candidate.to_vec(),
            baseline: baseline.to_vec(),
        };
        assert!(times(&faster, &baseline).is_faster());
        assert!(times(&faster, &disturbed).is_faster());
        assert!(!times(&baseline, &baseline).is_faster());
        assert!(!times(&slower, &disturbed).is_faster());
        assert!(!times(&baseline, &disturbed).is_faster());
        assert!((times(&faster, &disturbed).ratio() - 0.9).abs() < 0.01);
        assert_eq!(times(&[], &[]).ratio(), f64::INFINITY);
        assert!(!times(&[], &[]).is_faster());
    }
}
