//! Fits a machine's timing to how fast candidates for functions are.
//!
//! Candidates for products and convolutions of many shapes ([`training`]) are measured in this process. Numbers that cannot be measured by
//! themselves are fitted on some of the functions; how well the model ranks candidates is told by the others.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use tilewright_autosched::strategy::FuncStrategy;
use tilewright_autosched::{Algorithms, Decisions, Planned, Strategy, algorithm_costs, cycles, plan};
use tilewright_machine::{Numbers, Target};
use tilewright_runtime::Cancel;
use tilewright_tune::fit::{self, Ranked, TELLING_SPREAD};
use tilewright_tune::{Effort, Measure, Task};

use crate::error::CompileError;
use crate::options::Options;
use crate::parallel::{self, Jobs};
use crate::tuning::InProcess;
use crate::tuning::training::{self, Shape};

/// Candidates of a function.
const CANDIDATES: usize = 10;

/// Fewest that say something about the order in which the model has them.
pub const LEAST_CANDIDATES: usize = 8;

/// Threads that compile.
const JOBS: usize = 2;

/// A function with the plans of its candidates and what they took.
pub struct Sample {
    shape: Shape,
    task: Task,
    /// Its algorithms, prepared once for all prices.
    prepared: Algorithms,
    plans: Vec<Planned<Strategy>>,
    /// Times over that of what the rules did by default.
    times: Vec<f64>,
    /// Times of what the rules do by default with each algorithm, over the same; none where there is only one.
    algorithms: Vec<(String, f64)>,
}

/// The choice point of a function's algorithm.
const ALGORITHM: &str = "function/algorithm";

/// A sample as it is kept: strategies with the times of what they made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    shape: Shape,
    /// Whether numbers are told by it, and not fitted on it.
    held_out: bool,
    candidates: Vec<(FuncStrategy<Strategy>, f64)>,
    algorithms: Vec<(String, f64)>,
}

impl Sample {
    /// What is kept of it; whether it is held out.
    fn record(&self, held_out: bool) -> Record {
        let strategies = self.plans.iter().map(|planned| planned.strategy.clone());
        let candidates = strategies.zip(self.times.iter().copied()).collect();
        Record { shape: self.shape, held_out, candidates, algorithms: self.algorithms.clone() }
    }

    /// A sample that was kept; candidates that the model has no price for are left out.
    ///
    /// # Errors
    /// A function that cannot be compiled, and strategies that are not for it.
    pub fn of_record(record: Record, options: &Options) -> Result<Sample, CompileError> {
        let task = record.shape.task(options)?;
        let mut sample = Sample { algorithms: record.algorithms, ..Sample::new(record.shape, task) };
        let Sample { task: Task { computation, target, .. }, .. } = &sample;
        let mut kept = Vec::new();
        for (strategy, time) in record.candidates {
            // What the function is prepared for follows from its algorithm.
            let mut decisions = Decisions::default();
            decisions.set(ALGORITHM, &strategy.algorithm);
            let planned = plan(computation, target, &decisions)
                .or_else(|_| plan(computation, target, &Decisions::default()))
                .map_err(|error| CompileError::internal("calibrate", error))?;
            if planned.strategy.algorithm != strategy.algorithm {
                let (name, algorithm) = (record.shape.name(), strategy.algorithm);
                return Err(CompileError::Option(format!("{name} has no algorithm `{algorithm}`")));
            }
            let planned = Planned { strategy, ..planned };
            if cycles(&planned, computation, target).is_some() {
                kept.push((planned, time));
            }
        }
        (sample.plans, sample.times) = kept.into_iter().unzip();
        Ok(sample)
    }

    /// Measures candidates for a function; nothing where the model has no price for them.
    ///
    /// # Errors
    /// A function that cannot be compiled, a defect.
    pub fn measure(
        shape: Shape,
        options: &Options,
        measurer: &mut InProcess,
        random: &mut fastrand::Rng,
    ) -> Result<Sample, CompileError> {
        let task = shape.task(options)?;
        let candidates = training::candidates(&task, CANDIDATES, random);
        measurer.prepare(&task, &candidates);
        let mut sample = Sample::new(shape, task);
        // What cannot be measured says nothing.
        for decisions in &candidates {
            let time = measurer.measure(&sample.task, decisions, Effort::Trial);
            if let (Some(planned), Ok(times)) = (sample.plan(decisions), time) {
                sample.plans.push(planned);
                sample.times.push(times.ratio());
            }
        }
        for (algorithm, _) in algorithm_costs(&sample.prepared, &sample.task.target) {
            let mut decisions = Decisions::default();
            decisions.set(ALGORITHM, &algorithm);
            if let Ok(times) = measurer.measure(&sample.task, &decisions, Effort::Trial) {
                sample.algorithms.push((algorithm, times.ratio()));
            }
        }
        Ok(sample)
    }

    fn new(shape: Shape, task: Task) -> Sample {
        let prepared = Algorithms::new(&task.computation, &task.target);
        Sample { shape, task, prepared, plans: Vec::new(), times: Vec::new(), algorithms: Vec::new() }
    }

    fn plan(&self, decisions: &Decisions) -> Option<Planned<Strategy>> {
        let planned = plan(&self.task.computation, &self.task.target, decisions).ok()?;
        cycles(&planned, &self.task.computation, &self.task.target).map(|_| planned)
    }

    /// Measures what the rules take where the machine has these numbers, unless it is known. Whether it was new.
    fn measure_choice(&mut self, numbers: &Numbers, measurer: &mut InProcess) -> bool {
        let target = with_numbers(&self.task.target, numbers);
        let Ok(planned) = plan(&self.task.computation, &target, &Decisions::default()) else { return false };
        let is_priced = cycles(&planned, &self.task.computation, &target).is_some();
        // Strategies of different algorithms have no prices that could be compared; all algorithms are measured.
        let is_other = |known: &Planned<Strategy>| known.strategy.algorithm != planned.strategy.algorithm;
        let is_known = |known: &Planned<Strategy>| known.strategy == planned.strategy;
        if !is_priced || self.plans.iter().any(|known| is_other(known) || is_known(known)) {
            return false;
        }
        let times = measurer.measure_default(&self.task, &target, Effort::Trial);
        if let Ok(times) = &times {
            self.plans.push(planned);
            self.times.push(times.ratio());
        }
        times.is_ok()
    }

    /// The candidates as the model with these numbers has them.
    pub fn ranked(&self, numbers: &Numbers) -> Ranked {
        let target = with_numbers(&self.task.target, numbers);
        let cost = |plan| cycles(plan, &self.task.computation, &target).unwrap_or(f64::INFINITY);
        let predicted = self.plans.iter().map(cost).collect();
        Ranked { name: self.shape.name(), predicted, measured: self.times.clone() }
    }

    /// Its algorithms as the model with these numbers has them; nothing where there is only one.
    pub fn ranked_algorithms(&self, numbers: &Numbers) -> Option<Ranked> {
        if self.algorithms.len() < 2 {
            return None;
        }
        let costs = algorithm_costs(&self.prepared, &with_numbers(&self.task.target, numbers));
        let cost = |name: &str| costs.iter().find(|(other, _)| other == name).map_or(f64::INFINITY, |c| c.1);
        let predicted = self.algorithms.iter().map(|(name, _)| cost(name)).collect();
        let measured = self.algorithms.iter().map(|(_, time)| *time).collect();
        Some(Ranked { name: self.shape.name(), predicted, measured })
    }

    /// Whether its candidates are enough, and far enough apart, to say something.
    pub fn tells(&self) -> bool {
        let least = self.times.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.times.iter().copied().fold(0.0, f64::max);
        self.times.len() >= LEAST_CANDIDATES && most >= TELLING_SPREAD * least
    }
}

/// A target whose machine has other numbers.
fn with_numbers(target: &Target, numbers: &Numbers) -> Target {
    let mut target = target.clone();
    target.machine.timing.numbers = numbers.clone();
    target
}

/// Functions with their candidates measured.
#[derive(Default)]
pub struct Samples {
    /// Those that the numbers are fitted on.
    pub fitted: Vec<Sample>,
    /// Those that tell how well they fit.
    pub held_out: Vec<Sample>,
    /// How many functions were left out, because they were known, or their candidates were too few or too close together to tell anything by
    /// and there were enough to fit on.
    pub left_out: usize,
}

/// How well a model ranks candidates.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The functions, the worst ranked first.
    pub functions: Vec<Ranked>,
    /// The algorithms of those that have several.
    pub algorithms: Vec<Ranked>,
}

impl Samples {
    /// Measures functions until there are `n_fitted` to fit on and `n_held_out` besides, or it is `until`. `seen` is told of each.
    ///
    /// # Errors
    /// As [`Sample::measure`].
    pub fn measure(
        options: &Options,
        [n_fitted, n_held_out]: [usize; 2],
        until: Instant,
        seed: u64,
        mut seen: impl FnMut(&Samples),
    ) -> Result<Samples, CompileError> {
        let mut samples = Samples::default();
        let mut random = fastrand::Rng::with_seed(seed);
        // Of some of them all candidates are about as fast.
        for shape in Shape::several(4 * (n_fitted + n_held_out), seed) {
            let (fitted, held_out) = (samples.fitted.len(), samples.held_out.len());
            if Instant::now() > until || (fitted >= n_fitted && held_out >= n_held_out) {
                break;
            }
            let mut measurer = InProcess::on_one_core(JOBS);
            let sample = Sample::measure(shape, options, &mut measurer, &mut random)?;
            samples.add(sample, [n_fitted, n_held_out]);
            seen(&samples);
        }
        Ok(samples)
    }

    /// Samples that were kept, shared out as they were: what the model would take was measured only where it is fitted.
    ///
    /// # Errors
    /// As [`Sample::of_record`].
    pub fn of_records(records: Vec<Record>, options: &Options) -> Result<Samples, CompileError> {
        let mut samples = Samples::default();
        for record in records {
            let held_out = record.held_out;
            let sample = Sample::of_record(record, options)?;
            match (samples.knows(&sample) || held_out && !sample.tells(), held_out) {
                (true, _) => samples.left_out += 1,
                (false, false) => samples.fitted.push(sample),
                (false, true) => samples.held_out.push(sample),
            }
        }
        Ok(samples)
    }

    /// What is kept of them.
    pub fn records(&self) -> Vec<Record> {
        let fitted = self.fitted.iter().map(|sample| sample.record(false));
        fitted.chain(self.held_out.iter().map(|sample| sample.record(true))).collect()
    }

    /// Whether a sample's function is one of these: none is both fitted on and held out.
    fn knows(&self, sample: &Sample) -> bool {
        self.fitted.iter().chain(&self.held_out).any(|known| known.shape == sample.shape)
    }

    /// Shares a sample out. Of three that tell something two are held out, until these are enough; the others are fitted on, and so are
    /// those that tell little by their order, where first choices count still.
    fn add(&mut self, sample: Sample, [n_fitted, n_held_out]: [usize; 2]) {
        let (fitted, held_out) = (self.fitted.len(), self.held_out.len());
        let is_third = || {
            let telling = self.fitted.iter().filter(|sample| sample.tells()).count();
            2 * telling <= held_out || held_out >= n_held_out
        };
        match sample.plans.len() < 2 || self.knows(&sample) {
            false if fitted < n_fitted && (!sample.tells() || is_third()) => self.fitted.push(sample),
            false if sample.tells() => self.held_out.push(sample),
            _ => self.left_out += 1,
        }
    }

    /// The numbers by which the model ranks the candidates best, near to those that were measured by themselves or to these with what is
    /// fitted as it was `before`: from either a search leads to a hill of its own. Where it begins, and how hard it is to go far, is
    /// decided by cross-validation: by how well numbers that are fitted on either half of the functions rank the other half.
    ///
    /// # Errors
    /// A search that panics, a defect.
    pub fn fit(&self, before: &Numbers, measured: &Numbers) -> Result<Numbers, CompileError> {
        let with_old = fit::FITTED.iter().fold(measured.clone(), |numbers, (key, _)| {
            before.get(key).and_then(|value| numbers.with(key, value)).unwrap_or(numbers)
        });
        let begins = [measured.clone(), with_old];
        let searches: Vec<(&Numbers, f64)> =
            begins.iter().flat_map(|begin| fit::INERTIAS.map(|inertia| (begin, inertia))).collect();
        let halves: [Vec<&Sample>; 2] = [0, 1].map(|half| self.fitted.iter().skip(half).step_by(2).collect());
        let all: Vec<&Sample> = self.fitted.iter().collect();
        let folds = [[&halves[0], &halves[1]], [&halves[1], &halves[0]]];
        let tries: Vec<_> =
            searches.iter().flat_map(|search| folds.map(|[seen, unseen]| (*search, seen, unseen))).collect();
        let validate =
            |((begin, inertia), seen, unseen): &((&Numbers, f64), &Vec<&Sample>, &Vec<&Sample>)| {
                score(unseen, &fit::fit(begin, *inertia, |numbers| score(seen, numbers)))
            };
        let scores =
            parallel::map("calibrate", &tries, &Jobs::new(JOBS, Cancel::new()), &mut |_| {}, validate)?;
        let scores: Vec<f64> = scores.chunks(folds.len()).map(|scores| scores.iter().sum()).collect();
        let best = searches.iter().zip(&scores).max_by(|a, b| a.1.total_cmp(b.1));
        let Some(((begin, inertia), _)) = best else { return Ok(measured.clone()) };
        Ok(fit::fit(begin, *inertia, |numbers| score(&all, numbers)))
    }

    /// Measures what the rules take for the functions to fit on where the machine has these numbers, as far as there is time `until`
    /// then; how many of the schedules were new. Random candidates are seldom those that a model errs most in favour of: these it takes
    /// itself.
    pub fn refine(&mut self, numbers: &Numbers, until: Instant) -> usize {
        let mut found = 0;
        for sample in &mut self.fitted {
            if Instant::now() > until {
                break;
            }
            found += usize::from(sample.measure_choice(numbers, &mut InProcess::on_one_core(JOBS)));
        }
        found
    }
}

/// Measures default schedules with one machine's numbers against those with another's: for each function the time with `after` over that
/// with `before`, 1 where the schedules are the same.
///
/// # Errors
/// Where a function cannot be measured.
pub fn compare(
    samples: &[Sample],
    before: &Numbers,
    after: &Numbers,
) -> Result<Vec<(String, f64)>, CompileError> {
    let compare = |sample: &Sample| {
        let task = Task { target: with_numbers(&sample.task.target, before), ..sample.task.clone() };
        let target = with_numbers(&task.target, after);
        let strategy = |target: &Target| {
            let planned = plan(&task.computation, target, &Decisions::default());
            planned.map(|planned| planned.strategy).ok()
        };
        if strategy(&task.target) == strategy(&target) {
            return Ok((sample.shape.name(), 1.0));
        }
        let times = InProcess::on_one_core(JOBS).measure_default(&task, &target, Effort::Confirm);
        let times = times.map_err(|error| CompileError::internal("calibrate", error))?;
        Ok((sample.shape.name(), times.ratio()))
    };
    samples.iter().map(compare).collect()
}

/// How well the model with these numbers ranks the candidates of some functions, and their algorithms, as one number.
fn score(samples: &[&Sample], numbers: &Numbers) -> f64 {
    let functions: Vec<Ranked> = samples.iter().map(|sample| sample.ranked(numbers)).collect();
    let algorithms: Vec<Ranked> =
        samples.iter().filter_map(|sample| sample.ranked_algorithms(numbers)).collect();
    fit::score(&functions, &algorithms)
}

/// How well the model with these numbers ranks the candidates of some functions.
pub fn report(samples: &[Sample], numbers: &Numbers) -> Report {
    let mut functions: Vec<Ranked> = samples.iter().map(|sample| sample.ranked(numbers)).collect();
    functions.sort_by(|a, b| a.correlation().total_cmp(&b.correlation()));
    let algorithms = samples.iter().filter_map(|sample| sample.ranked_algorithms(numbers)).collect();
    Report { functions, algorithms }
}

impl Report {
    /// The median of Spearman's rank correlation; not a number without functions.
    pub fn median(&self) -> f64 {
        self.functions.get(self.functions.len() / 2).map_or(f64::NAN, Ranked::correlation)
    }

    /// The geometric mean of the time of what the model has first over the shortest.
    pub fn regret(&self) -> f64 {
        regret(&self.functions)
    }

    /// The same for algorithms.
    pub fn regret_of_algorithms(&self) -> f64 {
        regret(&self.algorithms)
    }
}

fn regret(functions: &[Ranked]) -> f64 {
    fit::geometric_mean(&functions.iter().map(Ranked::regret).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::{CodegenKind, Timing};

    /// A function with its candidates, whose times are what the model has for them.
    fn sample(shape: Shape, options: &Options) -> Sample {
        let task = shape.task(options).expect("a task");
        let mut sample = Sample::new(shape, task);
        for decisions in training::candidates(&sample.task, CANDIDATES, &mut fastrand::Rng::with_seed(1)) {
            sample.plans.extend(sample.plan(&decisions));
        }
        sample.times = sample.ranked(&sample.task.target.machine.timing.numbers).predicted;
        sample
    }

    #[test]
    fn what_was_recorded_is_ranked_as_it_was() {
        let options = Options::for_target(Target::parse("x86-64-v4", CodegenKind::Llvm).expect("a target"));
        let other = Timing::committed("zen5").expect("a file").numbers;
        for shape in Shape::several(5, 2) {
            let sample = sample(shape, &options);
            assert!(sample.plans.len() > 1, "{}", shape.name());
            let line = serde_json::to_string(&sample.record(true)).expect("text");
            let record = serde_json::from_str(&line).expect("the record");
            let again = Sample::of_record(record, &options).expect("the sample");
            assert_eq!(again.plans.len(), sample.plans.len());
            assert_eq!(again.ranked(&other).predicted, sample.ranked(&other).predicted, "{}", shape.name());
            let nearly = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-12 * b;
            assert!(again.times.iter().zip(&sample.times).all(nearly), "{}", shape.name());
        }
    }

    /// Times are what the model has with the numbers before: the search from these has nothing to find, that from others may not find them.
    #[test]
    fn where_the_search_begins_is_cross_validated() {
        let options = Options::for_target(Target::parse("x86-64-v4", CodegenKind::Llvm).expect("a target"));
        let before = options.target.machine.timing.numbers.clone();
        let far = Timing::committed("sapphire-rapids").expect("a file").numbers;
        let measured = fit::FITTED.iter().fold(before.clone(), |numbers, (key, _)| {
            far.get(key).and_then(|value| numbers.with(key, value)).unwrap_or(numbers)
        });
        let fitted: Vec<Sample> =
            Shape::several(6, 2).into_iter().map(|shape| sample(shape, &options)).collect();
        let samples = Samples { fitted, ..Samples::default() };
        let all: Vec<&Sample> = samples.fitted.iter().collect();
        assert!(score(&all, &before) > score(&all, &measured));
        let best = samples.fit(&before, &measured).expect("numbers");
        assert_eq!(best, before);
    }

    #[test]
    fn a_function_recorded_twice_counts_once() {
        let options = Options::for_target(Target::parse("x86-64-v4", CodegenKind::Llvm).expect("a target"));
        let mut sample = sample(Shape::Product { rows: 128, depth: 512, columns: 512 }, &options);
        // So far apart that they say something.
        sample.times = (1..).map(f64::from).take(sample.plans.len()).collect();
        let records = vec![sample.record(true), sample.record(false)];
        let samples = Samples::of_records(records, &options).expect("samples");
        let counts = [samples.fitted.len(), samples.held_out.len(), samples.left_out];
        assert_eq!(counts, [0, 1, 1]);
        assert!(samples.records()[0].held_out);
    }

    #[test]
    fn records_of_other_algorithms_are_refused() {
        let options = Options::for_target(Target::parse("x86-64-v4", CodegenKind::Llvm).expect("a target"));
        let shape = Shape::Product { rows: 64, depth: 64, columns: 512 };
        let mut record = sample(shape, &options).record(false);
        record.candidates[0].0.algorithm = "by-magic".to_string();
        let error = Sample::of_record(record, &options).err().expect("an error");
        assert_eq!(error.to_string(), "product 64x64x512 has no algorithm `by-magic`");
    }
}
