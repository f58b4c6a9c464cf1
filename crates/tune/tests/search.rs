//! The search on measurements that are computed: what is the fastest is known.

mod common;

use std::collections::BTreeMap;

use common::task;
use tilewright_autosched::Decisions;
use tilewright_tune::space::Point;
use tilewright_tune::{
    Budget, Database, Effort, Entry, Finding, JournalError, Measure, MeasureError, Outcome, Task, Times,
    Watch, tune,
};

/// Times by a function of the decisions, with some noise.
struct Computed {
    time: fn(&BTreeMap<String, String>) -> f64,
    noise: f64,
    random: fastrand::Rng,
    measured: Vec<Decisions>,
}

impl Computed {
    fn new(time: fn(&BTreeMap<String, String>) -> f64, noise: f64) -> Computed {
        Computed { time, noise, random: fastrand::Rng::with_seed(3), measured: Vec::new() }
    }
}

impl Measure for Computed {
    fn measure(&mut self, task: &Task, candidate: &Decisions, effort: Effort) -> Result<Times, MeasureError> {
        let n = if effort == Effort::Trial { 6 } else { 30 };
        let mut sample = |decisions: &Decisions| {
            let point = Point::of(task, decisions).expect("a schedule");
            let values = point.taken.iter().map(|d| (d.point.clone(), d.value().to_string())).collect();
            let time = (self.time)(&values);
            (0..n).map(|_| time * (1.0 + self.noise * self.random.f64())).collect::<Vec<f64>>()
        };
        let times = Times { candidate: sample(candidate), baseline: sample(&Decisions::default()) };
        if effort == Effort::Trial && !candidate.is_empty() {
            self.measured.push(candidate.clone());
        }
        Ok(times)
    }
}

fn search(measure: &mut Computed, known: &mut Database, trials: usize) -> (Outcome, Vec<Entry>) {
    let mut recorded = Vec::new();
    let mut record = |entry: &Entry| -> Result<(), JournalError> {
        recorded.push(entry.clone());
        Ok(())
    };
    let budget = Budget { time: None, trials: Some(trials), seed: 1 };
    let outcome = tune(&[task("f", 96)], measure, known, &mut record, budget, &mut ());
    (outcome.expect("nothing to fail"), recorded)
}

/// Tiles are the faster the nearer they are to 8 x 2, and the rows' order costs a little.
fn has_an_optimum(values: &BTreeMap<String, String>) -> f64 {
    let (rows, vectors) = values["product/tile"].split_once('x').expect("a tile");
    let number = |text: &str| text.parse::<f64>().expect("a number").log2();
    let distance = (number(rows) - 3.0).abs() + (number(vectors) - 1.0).abs();
    let order = if values["product/order"] == "rows-stay" { 3.0 } else { 0.0 };
    100.0 + 20.0 * distance + order
}

#[test]
fn it_finds_the_fastest_schedule_of_a_space_it_measures_half_of() {
    let mut measure = Computed::new(has_an_optimum, 0.01);
    let space = Point::of(&task("f", 96), &Decisions::default()).expect("a schedule").space_size();
    let trials = space as usize / 2;
    let (outcome, recorded) = search(&mut measure, &mut Database::default(), trials);
    let best = &outcome.tasks[0];
    assert_eq!(best.decisions.get("product/tile"), Some("8x2"), "{best:?} of {space}");
    assert!(best.ratio < 1.0 && outcome.gain() > 1.0);
    assert!(outcome.trials <= trials);
    let of = |finding| recorded.iter().filter(move |entry| entry.finding == finding).count();
    assert_eq!(of(Finding::Trial), outcome.trials);
    assert!(of(Finding::Best) >= 1);
}

#[test]
fn noise_alone_makes_no_record() {
    let mut measure = Computed::new(|_| 100.0, 0.2);
    let (outcome, recorded) = search(&mut measure, &mut Database::default(), 200);
    assert!(recorded.iter().all(|entry| entry.finding == Finding::Trial));
    assert_eq!(outcome.gain(), 1.0);
}

#[test]
fn a_search_goes_on_where_another_ended() {
    let mut known = Database::default();
    let mut measured = Vec::new();
    let mut ratios = Vec::new();
    for _ in 0..4 {
        let mut measure = Computed::new(has_an_optimum, 0.01);
        let (outcome, recorded) = search(&mut measure, &mut known, 7);
        ratios.push(outcome.tasks[0].ratio);
        measured.extend(measure.measured);
        assert!(recorded.iter().all(|entry| known.iter().any(|k| k.decisions == entry.decisions)));
    }
    assert!(ratios.is_sorted_by(|a, b| a >= b), "{ratios:?}");
    let n = measured.len();
    measured.sort();
    measured.dedup();
    assert_eq!(measured.len(), n, "something was measured twice");
    assert_eq!(known.stats().trials, n);
}

#[test]
fn it_ends_when_nothing_is_left() {
    let mut measure = Computed::new(|_| 100.0, 0.0);
    let (outcome, _) = search(&mut measure, &mut Database::default(), 100_000);
    assert!(outcome.exhausted && outcome.trials < 100_000);
}

/// Finds that one of the tiles offered does not apply.
struct Refuses(Computed);

impl Measure for Refuses {
    fn measure(&mut self, task: &Task, candidate: &Decisions, effort: Effort) -> Result<Times, MeasureError> {
        match candidate.get("product/tile") {
            Some("8x2") => Err(MeasureError::Illegal("it has no such loop".to_string())),
            _ => self.0.measure(task, candidate, effort),
        }
    }
}

#[test]
fn schedules_that_are_offered_and_do_not_apply_are_told() {
    let mut measure = Refuses(Computed::new(has_an_optimum, 0.01));
    let mut record = |_: &Entry| Ok(());
    let budget = Budget { time: None, trials: Some(100_000), seed: 1 };
    let mut known = Database::default();
    let outcome =
        tune(&[task("f", 96)], &mut measure, &mut known, &mut record, budget, &mut ()).expect("ends");
    assert_eq!(outcome.illegal, ["f: it has no such loop"]);
    assert!(outcome.failed > 0 && outcome.wrong.is_empty());
    assert_ne!(outcome.tasks[0].decisions.get("product/tile"), Some("8x2"));
}

/// Is asked to stop after five trials.
struct Stopped(Computed);

impl Measure for Stopped {
    fn measure(&mut self, task: &Task, candidate: &Decisions, effort: Effort) -> Result<Times, MeasureError> {
        match self.0.measured.len() {
            5.. => Err(MeasureError::Cancelled),
            _ => self.0.measure(task, candidate, effort),
        }
    }
}

/// Stops a search once so much was measured.
struct After(usize);

impl Watch for After {
    fn progress(&mut self, outcome: &Outcome, _share: f64) {
        self.0 = self.0.saturating_sub(outcome.trials);
    }

    fn is_cancelled(&self) -> bool {
        self.0 == 0
    }
}

#[test]
fn a_search_that_was_stopped_keeps_what_it_found() {
    let mut measure = Stopped(Computed::new(|_| 100.0, 0.01));
    let (mut known, mut recorded) = (Database::default(), Vec::new());
    let mut record = |entry: &Entry| {
        recorded.push(entry.clone());
        Ok(())
    };
    let budget = Budget { time: None, trials: Some(100_000), seed: 1 };
    let tasks = [task("f", 96)];
    let outcome = tune(&tasks, &mut measure, &mut known, &mut record, budget, &mut ()).expect("ends");
    assert!(outcome.cancelled && !outcome.exhausted && outcome.failed == 0);
    assert_eq!(recorded.len(), outcome.trials);
    assert!(recorded.iter().all(|entry| entry.finding != Finding::Failed));

    let mut measure = Computed::new(has_an_optimum, 0.01);
    let mut record = |_: &Entry| Ok(());
    let outcome = tune(&tasks, &mut measure, &mut known, &mut record, budget, &mut After(1)).expect("ends");
    assert!(outcome.cancelled && outcome.trials < 100, "{outcome:?}");
}
