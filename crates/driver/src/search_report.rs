//! What a search before a compilation came to.

use std::fmt;
use std::time::Duration;

use tilewright_tune::Outcome;

/// What a search found, and what it is worth to the whole model.
#[derive(Clone, Debug)]
pub struct SearchReport {
    /// How the search went: functions by themselves.
    pub outcome: Outcome,
    /// The model compiled by what was found against the model compiled without.
    pub whole: WholeModel,
}

/// The whole model, compiled by what a search found and without. Functions that are faster by themselves may leave worse in the
/// caches for those after them, so only this tells what is gained.
#[derive(Clone, Debug, PartialEq)]
pub enum WholeModel {
    /// Nothing was found that is not in the default's schedules.
    Same,
    /// Both ran here by turns, and the faster one was kept.
    Timed {
        /// Median time of a run by default.
        default: Duration,
        /// Median time of a run by what was found.
        found: Duration,
        /// The time by what was found as a part of the default's: the median over the turns.
        ratio: f64,
    },
    /// They could not be timed, so what was found was kept unseen: why.
    Untimed(String),
}

impl WholeModel {
    /// Whether the model is compiled by what was found.
    pub fn keeps_found(&self) -> bool {
        match self {
            WholeModel::Timed { ratio, .. } => *ratio < 1.0,
            WholeModel::Same | WholeModel::Untimed(_) => true,
        }
    }

    /// How many times as fast the model is that was kept; nothing where that is not known.
    pub fn gain(&self) -> Option<f64> {
        match self {
            WholeModel::Timed { ratio, .. } => Some(1.0 / ratio.min(1.0)),
            WholeModel::Same => Some(1.0),
            WholeModel::Untimed(_) => None,
        }
    }
}

impl fmt::Display for WholeModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WholeModel::Same => f.write_str("the search found no schedules faster than the default's"),
            WholeModel::Timed { default, found, ratio } => {
                let ms = |time: &Duration| time.as_secs_f64() * 1e3;
                let kept = if self.keeps_found() { "which is kept" } else { "so the default is kept" };
                write!(
                    f,
                    "a run takes {:.4} ms by default and {:.4} ms ({:.3}x the speed) by what the search found, {kept}",
                    ms(default),
                    ms(found),
                    1.0 / ratio
                )
            }
            WholeModel::Untimed(why) => {
                write!(f, "what the search found is taken, but the whole model could not be timed: {why}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_one_is_kept() {
        let timed = |ratio: f64| WholeModel::Timed {
            default: Duration::from_millis(2),
            found: Duration::from_millis(2).mul_f64(ratio),
            ratio,
        };
        assert_eq!((timed(0.5).keeps_found(), timed(0.5).gain()), (true, Some(2.0)));
        assert_eq!((timed(1.25).keeps_found(), timed(1.25).gain()), (false, Some(1.0)));
        let text = "a run takes 2.0000 ms by default and 1.0000 ms (2.000x the speed) by what the search found, which is kept";
        assert_eq!(timed(0.5).to_string(), text);
        assert!(timed(1.25).to_string().ends_with("so the default is kept"));
        assert_eq!(WholeModel::Untimed("no device".into()).gain(), None);
    }
}
