//! The model that learns which schedules are fast: ridge regression on features and their squares.
//!
//! It predicts the logarithm of a schedule's time over that of the rules' own schedule. Measurements of other
//! tasks count, those of the task itself count more. It is fitted anew before each round of proposals, from all
//! measurements there are: some thousands of samples of some tens of numbers, a few milliseconds.

use std::collections::BTreeMap;

use crate::space::Features;

/// Weight of what another task's measurement says.
const FOREIGN: f64 = 0.1;

/// How much a coefficient costs: keeps what few samples say near nothing.
const RIDGE: f64 = 0.05;

/// Fewest samples that say anything.
const MIN_SAMPLES: usize = 6;

/// Measurements.
#[derive(Clone, Debug, Default)]
pub struct CostModel {
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    task: usize,
    features: Features,
    log_ratio: f64,
}

/// A model fitted for one task.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// Scale of each feature, and its place among the coefficients.
    scales: BTreeMap<&'static str, (usize, f64)>,
    coefficients: Vec<f64>,
}

impl CostModel {
    /// Adds a measurement of a task: the time's quotient.
    pub fn add(&mut self, task: usize, features: Features, ratio: f64) {
        if ratio.is_finite() && ratio > 0.0 {
            self.samples.push(Sample { task, features, log_ratio: ratio.ln() });
        }
    }

    /// The model for a task; nothing while too little was measured.
    pub fn fit(&self, task: usize) -> Option<Fitted> {
        if self.samples.len() < MIN_SAMPLES {
            return None;
        }
        let mut scales: BTreeMap<&'static str, (usize, f64)> = BTreeMap::new();
        for (name, value) in self.samples.iter().flat_map(|s| &s.features) {
            let (_, scale) = scales.entry(name).or_insert((0, 0.0));
            *scale = scale.max(value.abs());
        }
        scales.retain(|_, (_, scale)| *scale > 0.0);
        for (place, (position, _)) in scales.values_mut().enumerate() {
            *position = place;
        }
        let n = 2 * scales.len();
        let mut fitted = Fitted { scales, coefficients: Vec::new() };
        // The normal equations of the weighted samples. The rules' own schedule is at the origin, so there is
        // no constant term.
        let mut matrix = vec![vec![0.0; n]; n];
        let mut right = vec![0.0; n];
        for sample in &self.samples {
            let weight = if sample.task == task { 1.0 } else { FOREIGN };
            let row = fitted.row(&sample.features);
            for (i, a) in row.iter().enumerate().filter(|(_, a)| **a != 0.0) {
                right[i] += weight * a * sample.log_ratio;
                for (j, b) in row.iter().enumerate().take(i + 1) {
                    matrix[i][j] += weight * a * b;
                }
            }
        }
        for (i, row) in matrix.iter_mut().enumerate() {
            row[i] += RIDGE;
        }
        fitted.coefficients = solve(matrix, right);
        Some(fitted)
    }
}

impl Fitted {
    /// The predicted logarithm of the quotient of times.
    pub fn predict(&self, features: &Features) -> f64 {
        self.row(features).iter().zip(&self.coefficients).map(|(x, c)| x * c).sum()
    }

    /// Scaled features, then their squares with sign.
    fn row(&self, features: &Features) -> Vec<f64> {
        let n = self.scales.len();
        let mut row = vec![0.0; 2 * n];
        for (name, value) in features {
            if let Some(&(place, scale)) = self.scales.get(name) {
                let x = value / scale;
                row[place] = x;
                row[n + place] = x * x;
            }
        }
        row
    }
}

/// Solves a system with a symmetric positive definite matrix, of which the lower triangle is given, by Cholesky
/// factors.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let n = right.len();
    for i in 0..n {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum();
            let rest = matrix[i][j] - dot;
            matrix[i][j] = if i == j { rest.max(f64::MIN_POSITIVE).sqrt() } else { rest / matrix[j][j] };
        }
    }
    for i in 0..n {
        let dot: f64 = (0..i).map(|k| matrix[i][k] * right[k]).sum();
        right[i] = (right[i] - dot) / matrix[i][i];
    }
    for i in (0..n).rev() {
        let dot: f64 = (i + 1..n).map(|k| matrix[k][i] * right[k]).sum();
        right[i] = (right[i] - dot) / matrix[i][i];
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time with an optimum at some distance from the rules' own schedule, and a feature that does not matter.
    fn truth(rows: f64, order: f64) -> f64 {
        (0.2 * (rows - 1.0) * (rows - 1.0) - 0.2 + 0.1 * order).exp()
    }

    fn features(rows: f64, order: f64, noise: f64) -> Features {
        Features::from([("rows", rows), ("order", order), ("noise", noise)])
    }

    #[test]
    fn it_finds_the_optimum_between_what_was_measured() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut model = CostModel::default();
        assert!(model.fit(0).is_none());
        for rows in [-2.0, -1.0, 0.0, 2.0, 3.0] {
            for order in [0.0, 1.0] {
                model.add(0, features(rows, order, random.f64()), truth(rows, order));
            }
        }
        let fitted = model.fit(0).expect("enough samples");
        let predicted = |rows: f64, order: f64| fitted.predict(&features(rows, order, 0.5));
        let best = (-20..=30)
            .map(|r| f64::from(r) / 10.0)
            .min_by(|a, b| predicted(*a, 0.0).total_cmp(&predicted(*b, 0.0)));
        assert!((best.expect("a range") - 1.0).abs() < 0.3, "{best:?}");
        assert!(predicted(1.0, 1.0) > predicted(1.0, 0.0));
        assert!((predicted(1.0, 0.0) - truth(1.0, 0.0).ln()).abs() < 0.1);
    }

    #[test]
    fn its_own_measurements_outweigh_those_of_other_tasks() {
        let mut model = CostModel::default();
        for rows in 1..=8 {
            model.add(0, features(f64::from(rows), 0.0, 0.0), (f64::from(rows) * 0.1).exp());
            model.add(1, features(f64::from(rows), 0.0, 0.0), (f64::from(rows) * -0.1).exp());
        }
        let predict = |task| model.fit(task).map(|fitted| fitted.predict(&features(4.0, 0.0, 0.0)));
        assert!(predict(0).is_some_and(|log| log > 0.1));
        assert!(predict(1).is_some_and(|log| log < -0.1));
    }
}
