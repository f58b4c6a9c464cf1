//! Fit of a machine's timing: numbers by which predicted costs rank schedules as measured times do.
//!
//! Some numbers of a [`Timing`](tilewright_machine::Timing) cannot be measured by themselves: what a line costs beside the arithmetic of
//! a tile, how much of a cache may be filled. They are found by coordinate search. What counts is in which order the model has the
//! candidates of a function, and first of all which it has first: see [`score`].

use tilewright_machine::Numbers;

/// A function whose candidates were measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// What it is.
    pub name: String,
    /// Cost of each candidate by the model.
    pub predicted: Vec<f64>,
    /// Time of each candidate, in any unit.
    pub measured: Vec<f64>,
}

impl Ranked {
    /// Spearman's rank correlation: 1 where the model has the candidates in the order of their times, -1 where it has them in the opposite
    /// one, 0 where it cannot tell.
    pub fn correlation(&self) -> f64 {
        let [a, b] = [&self.predicted, &self.measured].map(|values| ranks(values));
        pearson(&a, &b)
    }

    /// The longest time over the shortest.
    pub fn spread(&self) -> f64 {
        let least = self.measured.iter().copied().fold(f64::INFINITY, f64::min);
        self.measured.iter().copied().fold(0.0, f64::max) / least
    }

    /// How much the order of the candidates says: all where the slowest takes [`TELLING_SPREAD`] times as long as the fastest, and a
    /// sixteenth at half of that (in logarithms), where it is mostly noise.
    fn weight(&self) -> f64 {
        (self.spread().ln() / TELLING_SPREAD.ln()).clamp(0.0, 1.0).powi(4)
    }

    /// The time of the candidate that the model has first over the shortest.
    pub fn regret(&self) -> f64 {
        let first = self.predicted.iter().zip(&self.measured).min_by(|a, b| a.0.total_cmp(b.0));
        let least = self.measured.iter().copied().fold(f64::INFINITY, f64::min);
        first.map_or(1.0, |(_, time)| time / least)
    }

    /// The logarithm of [`Ranked::regret`] that is to be expected where the model's costs are a few hundredths off.
    fn expected_regret(&self) -> f64 {
        let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
        let (first, best) = (least(&self.predicted), least(&self.measured));
        let weight = |cost: f64| if cost == first { 1.0 } else { (first / cost).powf(SURE) };
        let weighted = self.predicted.iter().zip(&self.measured).map(|(&cost, time)| {
            let weight = weight(cost);
            (weight, weight * (time / best).ln())
        });
        let (weights, logs) = weighted.fold((0.0, 0.0), |sum, (a, b)| (sum.0 + a, sum.1 + b));
        if weights > 0.0 { logs / weights } else { 0.0 }
    }
}

/// The slowest candidate over the fastest from which on their order is no noise.
pub const TELLING_SPREAD: f64 = 1.5;

/// How sure first choices are: of two candidates the one that the model has dearer by `1 / SURE`, a twentieth, counts for 1/e of the other.
/// Costs are a few hundredths off, so which of two that are nearly equal comes first is luck.
const SURE: f64 = 20.0;

/// How much rank correlation it is worth that first choices take as much less time as a factor of e: a twentieth less is as good as
/// 0.05 more of it. More of it was tried: then numbers follow the few functions whose first choices are bad, and others are ranked worse.
const FIRST: f64 = 1.0;

/// How well the model ranks: the mean of Spearman's rank correlation over functions, each weighted by what it says, less how much longer
/// first choices take than the best ones, for the schedules of functions and for algorithms, times [`FIRST`].
pub fn score(functions: &[Ranked], algorithms: &[Ranked]) -> f64 {
    let weights: f64 = functions.iter().map(Ranked::weight).sum();
    let correlations: f64 = functions.iter().map(|function| function.weight() * function.correlation()).sum();
    let correlation = if weights > 0.0 { correlations / weights } else { 0.0 };
    let regret = |functions: &[Ranked]| {
        let regrets: f64 = functions.iter().map(Ranked::expected_regret).sum();
        regrets / functions.len().max(1) as f64
    };
    correlation - FIRST * (regret(functions) + regret(algorithms))
}

/// The geometric mean; 1 of nothing.
pub fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len().max(1) as f64).exp()
}

/// Ranks of values, the mean of their places where several are equal.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |value: f64| values.iter().filter(|other| **other < value).count();
    let equal = |value: f64| values.iter().filter(|other| **other == value).count();
    values.iter().map(|&value| below(value) as f64 + (equal(value) as f64 - 1.0) / 2.0).collect()
}

/// The correlation of two series; 0 where one of them is constant.
fn pearson(a: &[f64], b: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
        a.iter().zip(b).map(|(a, b)| f(a - mean_a, b - mean_b)).sum()
    };
    let scale = (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt();
    if scale > 0.0 { sum(&|a, b| a * b) / scale } else { 0.0 }
}

/// Numbers that are fitted, by their keys in a file, with the value that the search begins at where there is none.
pub const FITTED: &[(&str, f64)] = &[
    ("core.load_cycles", 0.1),
    ("core.accumulator_slack", 1.25),
    ("core.spill_cycles", 0.15),
    ("l1.usable", 0.75),
    ("l2.stream_cycles", 0.2),
    ("l2.start_cycles", 1.0),
    ("l2.usable", 0.6),
    ("l3.stream_cycles", 0.7),
    ("l3.start_cycles", 15.0),
    ("l3.resume_cycles", 4.0),
    ("l3.line_cycles", 6.0),
];

/// Factors by which a number is changed, one after the other.
const FACTORS: [f64; 4] = [3.0, 1.7, 1.3, 1.12];

/// The least part of a cache that the search takes for usable: less would say of the level behind it that it is as near, not how much
/// stays.
const LEAST_USABLE: f64 = 0.2;

/// What a factor of e away from where the search began must gain in score, at least: the first is what the noise of measurements
/// would do, with the last a few numbers change.
pub const INERTIAS: [f64; 2] = [0.003, 0.04];

/// The numbers that make `score` greatest, near to those `before`, by coordinate search. Each factor of e that a number goes away from
/// where it began has to gain `inertia`.
pub fn fit(before: &Numbers, inertia: f64, score: impl Fn(&Numbers) -> f64) -> Numbers {
    let began = |key: &str, least: f64| before.get(key).map(|value| value.max(least / 10.0));
    let distance = |numbers: &Numbers| -> f64 {
        let of = |(key, start): &(&str, f64)| Some((numbers.get(key)? / began(key, *start)?).ln().abs());
        FITTED.iter().filter_map(of).filter(|distance| distance.is_finite()).sum()
    };
    let score = |numbers: &Numbers| score(numbers) - inertia * distance(numbers);
    let mut best = before.clone();
    let mut best_score = score(&best);
    for factor in FACTORS {
        for (key, start) in FITTED {
            for factor in [factor, 1.0 / factor] {
                // As far as it leads somewhere.
                while let Some(next) = moved(&best, key, *start, factor) {
                    let next_score = score(&next);
                    if next_score <= best_score {
                        break;
                    }
                    (best, best_score) = (next, next_score);
                }
            }
        }
    }
    farther_is_slower(best)
}

/// The numbers, memory's stream no faster than what the fit makes of L3's, which it is measured like but not fitted with.
fn farther_is_slower(numbers: Numbers) -> Numbers {
    let [l3, memory] = ["l3", "memory"].map(|level| numbers.get(&format!("{level}.stream_cycles")));
    let raised = l3.zip(memory).filter(|(l3, memory)| l3 > memory);
    raised.and_then(|(l3, _)| numbers.with("memory.stream_cycles", l3)).unwrap_or(numbers)
}

/// The numbers with one of them changed; nothing where it has to stay.
fn moved(numbers: &Numbers, key: &str, start: f64, factor: f64) -> Option<Numbers> {
    let value = numbers.get(key)?;
    // What is nothing cannot be scaled.
    let value = if value > 0.0 { value * factor } else { start / 10.0 };
    let rounded = (value * 1e4).round() / 1e4;
    if key.ends_with(".usable") && rounded < LEAST_USABLE {
        return None;
    }
    numbers.with(key, rounded).filter(|changed| changed != numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::Timing;

    fn ranked(predicted: &[f64], measured: &[f64]) -> Ranked {
        Ranked { name: String::new(), predicted: predicted.to_vec(), measured: measured.to_vec() }
    }

    #[test]
    fn correlation_is_of_ranks() {
        let of = |predicted: &[f64], measured: &[f64]| ranked(predicted, measured).correlation();
        assert_eq!(of(&[1.0, 2.0, 30.0], &[5.0, 6.0, 7.0]), 1.0);
        assert_eq!(of(&[3.0, 2.0, 1.0], &[5.0, 6.0, 7.0]), -1.0);
        assert_eq!(of(&[1.0, 1.0, 1.0], &[5.0, 6.0, 7.0]), 0.0);
        // Of four in a row two neighbours are the other way round: 1 - 6 * 2 / (4 * 15).
        assert!((of(&[1.0, 2.0, 4.0, 3.0], &[1.0, 2.0, 3.0, 4.0]) - 0.8).abs() < 1e-12);
        assert_eq!(ranks(&[2.0, 1.0, 2.0]), [1.5, 0.0, 1.5]);
        let one = ranked(&[2.0, 1.0], &[3.0, 4.5]);
        assert_eq!((one.spread(), one.regret()), (1.5, 1.5));
        let other = ranked(&[1.0, 2.0], &[3.0, 4.5]);
        let worse = -FIRST * 1.5f64.ln() / 2.0;
        assert!((score(&[one.clone(), other.clone()], &[]) - worse).abs() < 1e-12);
        // Candidates that are nearly as fast as each other say little by their order.
        let close = ranked(&[2.0, 1.0], &[3.0, 3.0 * 1.5f64.sqrt()]);
        let [order, first] = [(1.0 - 1.0 / 16.0) / (1.0 + 1.0 / 16.0), 1.5f64.ln() / 4.0];
        assert!((score(&[close, other], &[]) - (order - FIRST * first)).abs() < 1e-3);
        // What is twice as dear may come first, too, but that is not to be expected.
        let twice = 2.0 * worse / (1.0 + 0.5f64.powf(SURE));
        assert!((score(&[], &[one.clone(), one]) - twice).abs() < 1e-12);
        // Of equals either may come first.
        let equal = ranked(&[1.0, 1.0], &[3.0, 4.5]);
        assert_eq!(equal.expected_regret(), 1.5f64.ln() / 2.0);
        assert_eq!(geometric_mean(&[2.0, 8.0]), 4.0);
    }

    /// Times are made by other numbers than those that the search begins with: it ranks as they do, and leaves alone what does not matter.
    #[test]
    fn numbers_are_found_by_which_times_were_made() {
        let before = Timing::committed("zen3").expect("a file").numbers;
        let truth = before
            .with("l2.stream_cycles", 2.0)
            .and_then(|n| n.with("l3.start_cycles", 2.0))
            .expect("in range");
        let mut random = fastrand::Rng::with_seed(3);
        let lines: Vec<Vec<[f64; 3]>> = (0..20)
            .map(|_| (0..8).map(|_| [random.f64(), random.f64() * 5.0, random.f64()]).collect())
            .collect();
        let cost = |numbers: &Numbers, [base, streamed, runs]: [f64; 3]| {
            let l3 = numbers.l3.map_or(0.0, |l3| l3.start_cycles);
            10.0 * base + numbers.l2.stream_cycles * streamed + l3 * runs
        };
        let costs = |numbers: &Numbers| -> Vec<Vec<f64>> {
            lines.iter().map(|lines| lines.iter().map(|&line| cost(numbers, line)).collect()).collect()
        };
        let times = costs(&truth);
        let mean = |numbers: &Numbers| {
            let all = costs(numbers);
            all.iter().zip(&times).map(|(p, m)| ranked(p, m).correlation()).sum::<f64>() / all.len() as f64
        };
        let fitted = fit(&before, INERTIAS[0], mean);
        assert!(mean(&before) < 0.8, "{}", mean(&before));
        assert!(mean(&fitted) > 0.97, "{}", mean(&fitted));
        assert_eq!(fitted.core, before.core);
    }

    #[test]
    fn a_cache_is_never_said_to_be_a_small_part_of_itself() {
        let before = Timing::committed("zen3").expect("a file").numbers;
        let fitted = fit(&before, INERTIAS[0], |numbers| -numbers.l2.usable);
        assert!((LEAST_USABLE..1.2 * LEAST_USABLE).contains(&fitted.l2.usable), "{}", fitted.l2.usable);
    }

    #[test]
    fn memory_is_no_nearer_than_the_third_level() {
        let before = Timing::committed("zen3").expect("a file").numbers;
        let far = |numbers: &Numbers| -numbers.l3.map_or(0.0, |l3| (l3.stream_cycles - 3.0).abs());
        let fitted = fit(&before, INERTIAS[0], far);
        let l3 = fitted.get("l3.stream_cycles").expect("a level");
        assert!(l3 > 2.5 && fitted.memory.stream_cycles == l3, "{l3}, {:?}", fitted.memory);
    }
}
