//! The search on several machines: the same as on one, whatever becomes of them.

mod common;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use common::task;
use tilewright_autosched::Decisions;
use tilewright_tune::space::Point;
use tilewright_tune::{
    Budget, Database, Effort, Entry, Finding, Job, Lost, Measure, MeasureError, Measured, Outcome, Patience,
    Runner, Runners, Take, Task, Times, tune,
};

/// What a machine is asked.
struct Asked {
    task: Task,
    candidate: Decisions,
    effort: Effort,
}

/// Times that follow from the decisions: tiles are the faster the nearer they are to 8 x 2.
fn recorded(Asked { task, candidate, effort }: &Asked) -> Result<Times, MeasureError> {
    let time = |decisions: &Decisions| {
        let point = Point::of(task, decisions).expect("a schedule");
        let value = |name: &str| {
            let decision = point.taken.iter().find(|d| d.point == name).expect("a choice");
            decision.value().to_string()
        };
        let (tile, order) = (value("product/tile"), value("product/order"));
        let (rows, vectors) = tile.split_once('x').expect("a tile");
        let number = |text: &str| text.parse::<f64>().expect("a number").log2();
        let distance = (number(rows) - 3.0).abs() + (number(vectors) - 1.0).abs();
        100.0 + 20.0 * distance + if order == "rows-stay" { 3.0 } else { 0.0 }
    };
    match candidate.get("product/tile") {
        Some(tile) if tile.ends_with("x4") => {
            Err(MeasureError::Failed("it has too many of everything".to_string()))
        }
        _ => {
            let n = if *effort == Effort::Trial { 6 } else { 30 };
            Ok(Times { candidate: vec![time(candidate); n], baseline: vec![time(&Decisions::default()); n] })
        }
    }
}

fn asked(job: &Job<'_>) -> Result<Asked, MeasureError> {
    // One of the choices does not apply.
    match job.candidate.get("product/tile") {
        Some("4x3") => Err(MeasureError::Illegal("it has no such loop".to_string())),
        _ => Ok(Asked { task: job.task.clone(), candidate: job.candidate.clone(), effort: job.effort }),
    }
}

/// Measures in this thread; sees how many jobs are asked for at once.
#[derive(Default)]
struct InThread {
    batches: Vec<usize>,
}

impl Measure for InThread {
    fn measure(&mut self, task: &Task, candidate: &Decisions, effort: Effort) -> Result<Times, MeasureError> {
        recorded(&asked(&Job { task, candidate: candidate.clone(), effort })?)
    }

    fn measure_batch(&mut self, jobs: &[Job<'_>], take: &mut Take<'_>) {
        self.batches.push(jobs.len());
        for (place, Job { task, candidate, effort }) in jobs.iter().enumerate() {
            let measured = self.measure(task, candidate, *effort);
            let measured = measured.map(|times| Measured { times, machine: 0 });
            if take(place, measured).is_break() {
                return;
            }
        }
    }
}

type OnCall = dyn FnMut(&Asked) -> Result<Result<Times, MeasureError>, Lost> + Send;

/// A machine that does what a function says, and comes back when it is asked for the third time.
struct Machine {
    name: &'static str,
    on_call: Box<OnCall>,
    asked_in_vain: usize,
    comes_back: bool,
}

impl Machine {
    fn new(
        name: &'static str,
        on_call: impl FnMut(&Asked) -> Result<Result<Times, MeasureError>, Lost> + Send + 'static,
    ) -> Machine {
        Machine { name, on_call: Box::new(on_call), asked_in_vain: 0, comes_back: true }
    }

    fn sound(name: &'static str) -> Machine {
        Machine::new(name, |asked| Ok(recorded(asked)))
    }
}

impl Runner for Machine {
    type Request = Asked;

    fn name(&self) -> String {
        self.name.to_string()
    }

    fn measure(&mut self, asked: &Asked) -> Result<Result<Times, MeasureError>, Lost> {
        (self.on_call)(asked)
    }

    fn reconnect(&mut self) -> Result<(), Lost> {
        self.asked_in_vain += 1;
        match self.comes_back && self.asked_in_vain.is_multiple_of(3) {
            true => Ok(()),
            false => Err(Lost("nobody listens there".to_string())),
        }
    }
}

const PATIENCE: Patience = Patience {
    slow: Duration::from_secs(60),
    answer: Duration::from_secs(60),
    backoff: Duration::from_micros(100),
    longest: Duration::from_millis(1),
    attempts: 5,
    losses: 3,
};

fn runners(machines: Vec<Machine>) -> Runners<Machine> {
    Runners::new(machines, PATIENCE, 2, asked)
}

fn tasks() -> Vec<Task> {
    [96, 128, 144, 256, 320].into_iter().map(|rows| Task { calls: rows as u32, ..task("f", rows) }).collect()
}

/// All that a search records, and how it ends.
fn search(measure: &mut dyn Measure, trials: usize) -> (Outcome, Vec<Entry>) {
    let mut recorded = Vec::new();
    let mut record = |entry: &Entry| {
        recorded.push(entry.clone());
        Ok(())
    };
    let budget = Budget { time: None, trials: Some(trials), seed: 5 };
    let outcome = tune(&tasks(), measure, &mut Database::default(), &mut record, budget, &mut ());
    (outcome.expect("nothing to fail"), recorded)
}

const TRIALS: usize = 150;

/// Demands the records of a search on one machine that never fails.
fn check_records(measure: &mut dyn Measure) {
    let (expect, expect_recorded) = search(&mut InThread::default(), TRIALS);
    let (outcome, recorded) = search(measure, TRIALS);
    assert_eq!(recorded, expect_recorded);
    assert_eq!(outcome, expect);
}

#[test]
fn one_machine_and_several_find_the_same() {
    let (outcome, recorded) = search(&mut InThread::default(), TRIALS);
    let of = |finding| recorded.iter().filter(move |entry| entry.finding == finding).count();
    assert_eq!(of(Finding::Trial) + of(Finding::Failed), TRIALS);
    assert!(of(Finding::Best) >= 5 && of(Finding::Failed) > 0 && outcome.gain() > 1.0, "{recorded:?}");
    for n in 1..=3 {
        let machines = ["a", "b", "c"].into_iter().take(n).map(Machine::sound);
        check_records(&mut runners(machines.collect()));
    }
}

#[test]
fn machines_that_are_lost_at_random_moments_cost_no_record_and_make_none_twice() {
    for seed in 0..20 {
        let lost = Arc::new(AtomicUsize::new(0));
        let unreliable = |name, seed| {
            let (mut random, lost) = (fastrand::Rng::with_seed(seed), lost.clone());
            Machine::new(name, move |asked| match random.u32(..10) {
                0 => {
                    lost.fetch_add(1, Ordering::Relaxed);
                    Err(Lost("the connection was reset".to_string()))
                }
                _ => Ok(recorded(asked)),
            })
        };
        let machines = vec![Machine::sound("a"), unreliable("b", seed), unreliable("c", seed + 100)];
        check_records(&mut runners(machines));
        assert!(lost.load(Ordering::Relaxed) > 0, "nothing was lost with seed {seed}");
    }
}

/// A machine that does not answer its third request until it is told to.
fn hanging(until: Receiver<()>) -> Machine {
    let mut n = 0;
    Machine::new("hangs", move |asked| {
        n += 1;
        if n == 3 {
            // The end of the test tells too.
            _ = until.recv();
        }
        Ok(recorded(asked))
    })
}

#[test]
fn a_machine_that_hangs_gives_its_schedule_to_another() {
    let soon = Duration::from_millis(200);
    for patience in [Patience { answer: soon, ..PATIENCE }, Patience { slow: soon, ..PATIENCE }] {
        let (tell, until) = channel();
        let machines = vec![hanging(until), Machine::sound("b")];
        check_records(&mut Runners::new(machines, patience, 2, asked));
        drop(tell);
    }
}

/// A schedule that two machines have measured in the end counts once, and the slow machine measures others later.
#[test]
fn a_machine_that_was_slow_is_asked_again() {
    let (tell, until) = channel();
    let patience = Patience { slow: Duration::from_millis(50), ..PATIENCE };
    let calls = Arc::new(AtomicUsize::new(0));
    let slow = {
        let calls = calls.clone();
        Machine::new("slow", move |asked| {
            // The end of the test tells too.
            _ = (calls.fetch_add(1, Ordering::Relaxed) == 0).then(|| until.recv());
            Ok(recorded(asked))
        })
    };
    let task = task("f", 96);
    let job = || Job { task: &task, candidate: Decisions::default(), effort: Effort::Trial };
    let mut measure = Runners::new(vec![slow, Machine::sound("b")], patience, 2, asked);
    let mut batch = |n: usize| {
        let jobs: Vec<Job<'_>> = (0..n).map(|_| job()).collect();
        let mut machines = Vec::new();
        measure.measure_batch(&jobs, &mut |_, result| {
            machines.push(result.expect("times").machine);
            ControlFlow::Continue(())
        });
        machines
    };
    assert_eq!(batch(4), [1; 4]);
    tell.send(()).expect("a machine that waits");
    drop(tell);
    // It takes part as soon as it has answered.
    assert!((0..10_000).any(|_| batch(8).contains(&0)));
}

#[test]
fn where_no_machine_is_left_what_was_measured_is_kept() {
    let machine = |name, answers: usize| {
        let mut n = 0;
        let machine = Machine::new(name, move |asked| {
            n += 1;
            if n > answers { Err(Lost("it was switched off".to_string())) } else { Ok(recorded(asked)) }
        });
        Machine { comes_back: false, ..machine }
    };
    let answers = [20, 31];
    let (outcome, mut found) = search(&mut runners(vec![machine("a", 20), machine("b", 31)]), TRIALS);
    let why = outcome.unavailable.expect("a reason");
    assert_eq!(
        why,
        "no machine is left to measure on: a is lost (nobody listens there); b is lost (nobody listens there)"
    );
    assert!(!outcome.exhausted && !outcome.cancelled);
    let (_, all) = search(&mut InThread::default(), TRIALS);
    assert!(found.iter().all(|entry| all.contains(entry)));
    // All answers are there: those about the rules' own schedules, which make no record, and confirmations, of which some make none.
    let n_confirmed = found.iter().filter(|entry| entry.finding == Finding::Best).count();
    let n_trials = found.iter().filter(|entry| entry.finding == Finding::Trial).count();
    assert!(n_trials + n_confirmed + tasks().len() <= answers.iter().sum::<usize>());
    assert!(n_trials > 20, "{n_trials} of {answers:?}");
    let n = found.len();
    found.dedup();
    assert_eq!(found.len(), n);
}

#[test]
fn a_schedule_that_takes_machines_down_with_it_fails() {
    let poison = |name| {
        Machine::new(name, |asked| match asked.candidate.get("product/tile") {
            Some("8x2") => Err(Lost("the connection was reset".to_string())),
            _ => Ok(recorded(asked)),
        })
    };
    let (outcome, recorded) = search(&mut runners(vec![poison("a"), poison("b")]), TRIALS);
    assert_eq!((outcome.trials, outcome.unavailable), (TRIALS, None));
    let of_tile = recorded.iter().filter(|entry| entry.decisions.get("product/tile") == Some("8x2"));
    let findings: BTreeSet<Finding> = of_tile.map(|entry| entry.finding).collect();
    assert_eq!(findings, BTreeSet::from([Finding::Failed]));
}

#[test]
fn a_machine_that_cannot_run_the_code_is_asked_once() {
    let n = Arc::new(AtomicUsize::new(0));
    let calls = n.clone();
    let unfit = || {
        Machine::new("old", move |_| {
            calls.fetch_add(1, Ordering::Relaxed);
            Ok(Err(MeasureError::Unavailable("the code needs avx512f".to_string())))
        })
    };
    check_records(&mut runners(vec![unfit(), Machine::sound("b")]));
    // The other one may have been faster each time.
    assert!(n.load(Ordering::Relaxed) <= 1);
    let alone = Machine::new("old", |_| Ok(Err(MeasureError::Unavailable("the code needs avx512f".into()))));
    let (outcome, recorded) = search(&mut runners(vec![alone]), TRIALS);
    let why = "no machine is left to measure on: old cannot measure this (the code needs avx512f)";
    assert_eq!((outcome.unavailable.as_deref(), recorded), (Some(why), vec![]));
}

/// Two machines measure at the same time: each of these waits for the other.
#[test]
fn machines_measure_at_once_and_share_evenly() {
    let barrier = Arc::new(Barrier::new(2));
    let counts = Arc::new(Mutex::new([0; 2]));
    let machine = |me: usize| {
        let (barrier, counts) = (barrier.clone(), counts.clone());
        Machine::new("one of two", move |asked| {
            barrier.wait();
            counts.lock().expect("counts")[me] += 1;
            Ok(recorded(asked))
        })
    };
    let task = task("f", 96);
    let job = || Job { task: &task, candidate: Decisions::default(), effort: Effort::Trial };
    let jobs: Vec<Job<'_>> = (0..12).map(|_| job()).collect();
    let mut places = Vec::new();
    runners(vec![machine(0), machine(1)]).measure_batch(&jobs, &mut |place, result| {
        places.push(place);
        assert!(result.is_ok());
        ControlFlow::Continue(())
    });
    assert_eq!(places, (0..12).collect::<Vec<usize>>());
    assert_eq!(*counts.lock().expect("counts"), [6, 6]);
}

/// By a clock that ticks once a measurement: all of a batch are asked for at once, so two machines need half the ticks, but for the
/// odd one of each batch.
#[test]
fn two_machines_need_little_more_than_half_the_time_of_one() {
    let mut measure = InThread::default();
    search(&mut measure, TRIALS);
    let ticks = |machines: usize| measure.batches.iter().map(|n| n.div_ceil(machines)).sum::<usize>();
    let ratio = ticks(1) as f64 / ticks(2) as f64;
    assert!(ratio >= 1.8, "{ratio}: {:?}", measure.batches);
}
