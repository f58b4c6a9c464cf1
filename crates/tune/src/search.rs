//! The search: which task next, which of its points, until the budget is spent.
//!
//! Tasks are taken by the share of the time they stand for and by how long ago their last gain was. Of a
//! task, first every choice is tried on its own; then the neighbours and mutations of the fastest points so far
//! are proposed, and those measured that the learned model predicts to be the fastest, with one at random among them.
//! What looks faster than the rules' own schedule is measured again at length, and recorded as the best only when that
//! confirms it: a record never makes a function slower.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::{Duration, Instant};

use tilewright_autosched::Decisions;

use crate::cost::CostModel;
use crate::database::Database;
use crate::entry::{COMPILER, Entry, Finding};
use crate::journal::JournalError;
use crate::measure::{Effort, Measure, MeasureError, Times};
use crate::space::Point;
use crate::task::{Task, TaskKey};

/// Points measured in a round.
const BATCH: usize = 6;

/// Points of a round that are taken at random.
const AT_RANDOM: usize = 1;

/// Points proposed for a round.
const POOL: usize = 20;

/// Fast points that proposals start from.
const ELITE: usize = 4;

/// Rounds without a gain after which a task is left.
const PATIENCE: u32 = 5;

/// How much longer than its least time the rules' own schedule may take in a measurement that is to be trusted: when
/// other work slows the machine down, it slows one schedule more than another.
const DISTURBED: f64 = 1.2;

/// Known points of a task that the learned model is given at the start: scheduling them again takes time.
const REMEMBERED: usize = 16;

/// What a search may spend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Time; without it, none but that of the trials.
    pub time: Option<Duration>,
    /// Points measured.
    pub trials: Option<usize>,
    /// Seed of what is taken at random.
    pub seed: u64,
}

/// How a task stands.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskOutcome {
    /// Its key.
    pub key: TaskKey,
    /// Nanoseconds of the rules' own schedule; 0 where it could not be measured.
    pub baseline_ns: f64,
    /// Time of the best schedule over that.
    pub ratio: f64,
    /// The best schedule's decisions.
    pub decisions: Decisions,
    /// Points measured by this search.
    pub trials: usize,
    /// How often it runs.
    pub calls: u32,
    /// Points in its space, if all choices were free of each other.
    pub space: f64,
}

/// How a search stands, or ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The tasks, in the order given.
    pub tasks: Vec<TaskOutcome>,
    /// Points measured.
    pub trials: usize,
    /// Of those, how many failed.
    pub failed: usize,
    /// Schedules that computed something else than the rules' own, each a defect of the compiler.
    pub wrong: Vec<String>,
    /// Schedules that the rules offered and that do not apply, what is wrong with each once: defects of the compiler.
    pub illegal: Vec<String>,
    /// Functions whose schedule by the rules could not be measured, each with the reason.
    pub unmeasured: Vec<String>,
    /// Whether nothing worth trying was left when it ended.
    pub exhausted: bool,
    /// Whether it was asked to stop. What was found until then counts.
    pub cancelled: bool,
}

impl Outcome {
    fn note_illegal(&mut self, task: &Task, error: impl Display) {
        let message = format!("{}: {error}", task.computation.func.name);
        if !self.illegal.contains(&message) {
            self.illegal.push(message);
        }
    }

    /// Time of all tasks with the rules' own schedules over that with the best ones.
    pub fn gain(&self) -> f64 {
        let time = |t: &TaskOutcome| f64::from(t.calls) * t.baseline_ns;
        let before: f64 = self.tasks.iter().map(time).sum();
        let after: f64 = self.tasks.iter().map(|t| time(t) * t.ratio).sum();
        if after > 0.0 { before / after } else { 1.0 }
    }
}

/// Looks on while a search runs.
pub trait Watch {
    /// Something was measured; `share` of the budget is spent, by time or trials, whichever is nearer its end.
    fn progress(&mut self, _outcome: &Outcome, _share: f64) {}

    /// Whether the search is to stop before the next measurement.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl Watch for () {}

/// Searches for schedules of tasks that are faster than the rules' own.
///
/// `known` is what earlier searches found: it is not measured again. What is found is added to it, after
/// `record` has put it where it survives.
///
/// # Errors
/// Where `record` fails.
pub fn tune(
    tasks: &[Task],
    measure: &mut dyn Measure,
    known: &mut Database,
    record: &mut dyn FnMut(&Entry) -> Result<(), JournalError>,
    budget: Budget,
    watch: &mut dyn Watch,
) -> Result<Outcome, JournalError> {
    let mut search = Search {
        measure,
        known,
        record,
        budget,
        start: Instant::now(),
        random: fastrand::Rng::with_seed(budget.seed),
        model: CostModel::default(),
        outcome: Outcome::default(),
    };
    let mut standings = Vec::new();
    for (index, task) in tasks.iter().enumerate() {
        standings.push(search.begin(index, task, watch));
        watch.progress(&search.outcome, search.spent());
    }
    while search.spent() < 1.0 && !search.outcome.cancelled {
        let Some(next) = search.next(&standings) else {
            search.outcome.exhausted = true;
            break;
        };
        search.round(next, &mut standings[next], watch)?;
        watch.progress(&search.outcome, search.spent());
    }
    Ok(search.outcome)
}

/// Schedules to measure elsewhere, at most `n` of all tasks together: each the place of its task and the decisions. They follow from
/// what is known and from the seed.
pub fn propose(tasks: &[Task], known: &mut Database, n: usize, seed: u64) -> Vec<(usize, Point)> {
    let mut search = Search {
        measure: &mut Elsewhere,
        known,
        record: &mut |_| Ok(()),
        budget: Budget { seed, ..Budget::default() },
        start: Instant::now(),
        random: fastrand::Rng::with_seed(seed),
        model: CostModel::default(),
        outcome: Outcome::default(),
    };
    let mut standings: Vec<Standing<'_>> =
        tasks.iter().enumerate().map(|(index, task)| search.stand(index, task)).collect();
    // Of a task that was never measured nothing but its calls is known.
    for outcome in &mut search.outcome.tasks {
        outcome.baseline_ns = outcome.baseline_ns.max(1.0);
    }
    let mut proposed = Vec::new();
    while proposed.len() < n {
        let Some(next) = search.next(&standings) else { break };
        let standing = &mut standings[next];
        let batch = search.propose(next, standing, BATCH.min(n - proposed.len()));
        standing.rounds += 1;
        standing.stale += 1;
        standing.is_done = batch.is_empty();
        proposed.extend(batch.into_iter().map(|point| (next, point)));
    }
    proposed
}

/// What measures nothing.
struct Elsewhere;

impl Measure for Elsewhere {
    fn measure(&mut self, _: &Task, _: &Decisions, _: Effort) -> Result<Times, MeasureError> {
        Err(MeasureError::Failed("it is measured elsewhere".to_string()))
    }
}

struct Search<'a> {
    measure: &'a mut dyn Measure,
    known: &'a mut Database,
    record: &'a mut dyn FnMut(&Entry) -> Result<(), JournalError>,
    budget: Budget,
    start: Instant,
    random: fastrand::Rng,
    model: CostModel,
    outcome: Outcome,
}

/// Where the search of one task stands.
struct Standing<'a> {
    task: &'a Task,
    key: TaskKey,
    /// The rules' own schedule, and where it is the best the point to go on from.
    rules: Option<Point>,
    /// Digests of schedules that need no measurement.
    seen: BTreeSet<String>,
    /// What earlier searches have measured, or tried to.
    known: BTreeSet<Decisions>,
    /// The fastest points measured and their ratios, the fastest first.
    elite: Vec<(f64, Point)>,
    /// Promising points whose confirmation was disturbed.
    pending: Vec<Point>,
    /// Least nanoseconds of the rules' own schedule in any measurement of this search.
    least_ns: f64,
    rounds: u32,
    /// Rounds since the last gain.
    stale: u32,
    /// Whether nothing is left to be tried.
    is_done: bool,
}

impl Search<'_> {
    /// The part of the budget that is spent.
    fn spent(&self) -> f64 {
        let of_time = self
            .budget
            .time
            .map(|time| self.start.elapsed().as_secs_f64() / time.as_secs_f64().max(f64::MIN_POSITIVE));
        let of_trials = self.budget.trials.map(|trials| self.outcome.trials as f64 / trials.max(1) as f64);
        of_time.into_iter().chain(of_trials).fold(0.0, f64::max)
    }

    /// Measures the rules' own schedule of a task, unless that is known, and recalls what else is.
    fn begin<'t>(&mut self, index: usize, task: &'t Task, watch: &dyn Watch) -> Standing<'t> {
        let mut standing = self.stand(index, task);
        if self.is_over(watch) || standing.is_done || self.outcome.tasks[index].baseline_ns != 0.0 {
            return standing;
        }
        match self.measure.measure(task, &Decisions::default(), Effort::Trial) {
            Ok(times) => {
                standing.least_ns = times.baseline_ns();
                self.outcome.tasks[index].baseline_ns = standing.least_ns;
            }
            Err(error) => {
                match error {
                    MeasureError::Illegal(message) => self.outcome.note_illegal(task, message),
                    MeasureError::Failed(message) | MeasureError::Wrong(message) => {
                        let name = &task.computation.func.name;
                        self.outcome.unmeasured.push(format!("{name}: {message}"));
                    }
                    MeasureError::Cancelled | MeasureError::Unavailable(_) => self.outcome.cancelled = true,
                }
                standing.is_done = true;
            }
        }
        standing
    }

    /// Where a task stands by what is known of it; it is the next of the outcome's.
    fn stand<'t>(&mut self, index: usize, task: &'t Task) -> Standing<'t> {
        let key = task.key();
        let rules = Point::of(task, &Decisions::default());
        let rules = rules.map_err(|error| self.outcome.note_illegal(task, error)).ok();
        let mut standing = Standing {
            task,
            key: key.clone(),
            is_done: rules.is_none(),
            rules,
            seen: BTreeSet::new(),
            known: BTreeSet::new(),
            elite: Vec::new(),
            pending: Vec::new(),
            least_ns: f64::INFINITY,
            rounds: 0,
            stale: 0,
        };
        let mut outcome = TaskOutcome {
            key,
            baseline_ns: 0.0,
            ratio: 1.0,
            decisions: Decisions::default(),
            trials: 0,
            calls: task.calls,
            space: standing.rules.as_ref().map_or(0.0, Point::space_size),
        };
        if let Some(rules) = standing.rules.clone() {
            standing.seen.insert(rules.digest.clone());
            self.recall(index, &mut standing, &rules, &mut outcome);
        }
        self.outcome.tasks.push(outcome);
        standing
    }

    /// Takes over what earlier searches have measured.
    fn recall(
        &mut self,
        index: usize,
        standing: &mut Standing<'_>,
        rules: &Point,
        outcome: &mut TaskOutcome,
    ) {
        let key = standing.key.clone();
        let entries: Vec<&Entry> = self.known.of(&key, &rules.digest).collect();
        standing.known.extend(entries.iter().map(|entry| entry.decisions.clone()));
        if let Some(best) = entries.iter().find(|e| e.finding == Finding::Best) {
            outcome.ratio = best.ratio;
            outcome.decisions = best.decisions.clone();
        }
        if let Some(entry) = entries.iter().find(|e| e.finding != Finding::Failed) {
            outcome.baseline_ns = entry.baseline_ns;
        }
        let mut trials: Vec<&Entry> = entries.into_iter().filter(|e| e.finding == Finding::Trial).collect();
        trials.sort_by(|a, b| a.preference(b));
        for entry in trials.into_iter().take(REMEMBERED) {
            // What an older compiler recorded may be no schedule any more.
            if let Ok(point) = Point::of(standing.task, &entry.decisions) {
                self.model.add(index, point.features(), entry.ratio);
                standing.learn(entry.ratio, point);
            }
        }
    }

    /// The task to go on with.
    fn next(&self, standings: &[Standing<'_>]) -> Option<usize> {
        let priority = |n: usize| {
            let (standing, outcome) = (&standings[n], &self.outcome.tasks[n]);
            let time = f64::from(outcome.calls) * outcome.baseline_ns * outcome.ratio;
            time / (1.0 + f64::from(standing.stale) + 0.1 * f64::from(standing.rounds))
        };
        let open = (0..standings.len()).filter(|&n| !standings[n].is_done);
        open.max_by(|&a, &b| priority(a).total_cmp(&priority(b)).then(b.cmp(&a)))
    }

    /// Whether the search was asked to stop.
    fn is_over(&mut self, watch: &dyn Watch) -> bool {
        self.outcome.cancelled |= watch.is_cancelled();
        self.outcome.cancelled
    }

    /// Measures a batch of a task's points and confirms what is promising.
    fn round(
        &mut self,
        index: usize,
        standing: &mut Standing<'_>,
        watch: &dyn Watch,
    ) -> Result<(), JournalError> {
        let left = self.budget.trials.map_or(BATCH, |trials| trials.saturating_sub(self.outcome.trials));
        let batch = self.propose(index, standing, BATCH.min(left));
        standing.rounds += 1;
        standing.stale += 1;
        if batch.is_empty() || standing.stale > PATIENCE {
            standing.is_done = true;
        }
        if let Some(point) = standing.pending.pop() {
            self.confirm(index, standing, &point)?;
        }
        let decisions: Vec<Decisions> = batch.iter().map(|point| point.decisions.clone()).collect();
        self.measure.prepare(standing.task, &decisions);
        for point in batch {
            if self.is_over(watch) {
                break;
            }
            let result = self.measure.measure(standing.task, &point.decisions, Effort::Trial);
            if matches!(result, Err(MeasureError::Cancelled | MeasureError::Unavailable(_))) {
                self.outcome.cancelled = true;
                break;
            }
            self.outcome.trials += 1;
            self.outcome.tasks[index].trials += 1;
            let Some(times) = self.take(standing, &point, result, Finding::Trial)? else { continue };
            let ratio = times.ratio();
            standing.least_ns = standing.least_ns.min(times.baseline_ns());
            self.outcome.tasks[index].baseline_ns = standing.least_ns;
            self.model.add(index, point.features(), ratio);
            standing.learn(ratio, point.clone());
            if times.is_faster() && ratio < self.outcome.tasks[index].ratio {
                self.confirm(index, standing, &point)?;
            }
        }
        Ok(())
    }

    /// Measures a promising point at length, and records it where it is the best so far.
    fn confirm(
        &mut self,
        index: usize,
        standing: &mut Standing<'_>,
        point: &Point,
    ) -> Result<(), JournalError> {
        let times = match self.measure.measure(standing.task, &point.decisions, Effort::Confirm) {
            Ok(times) => times,
            Err(MeasureError::Wrong(message)) => {
                self.outcome.wrong.push(message);
                return Ok(());
            }
            Err(MeasureError::Illegal(message)) => {
                self.outcome.note_illegal(standing.task, message);
                return Ok(());
            }
            Err(MeasureError::Failed(_)) => return Ok(()),
            Err(MeasureError::Cancelled | MeasureError::Unavailable(_)) => {
                self.outcome.cancelled = true;
                return Ok(());
            }
        };
        let ratio = times.ratio();
        if !times.is_faster() || ratio >= self.outcome.tasks[index].ratio {
            return Ok(());
        }
        standing.least_ns = standing.least_ns.min(times.baseline_ns());
        if times.baseline_ns() > DISTURBED * standing.least_ns {
            standing.pending.push(point.clone());
            return Ok(());
        }
        self.take(standing, point, Ok(times), Finding::Best)?;
        let outcome = &mut self.outcome.tasks[index];
        (outcome.ratio, outcome.decisions) = (ratio, point.decisions.clone());
        standing.stale = 0;
        Ok(())
    }

    /// Records a measurement; gives it back where it is one.
    fn take(
        &mut self,
        standing: &Standing<'_>,
        point: &Point,
        result: Result<Times, MeasureError>,
        finding: Finding,
    ) -> Result<Option<Times>, JournalError> {
        let times = match result {
            Ok(times) if times.ratio().is_finite() => Some(times),
            Ok(_) | Err(MeasureError::Failed(_) | MeasureError::Cancelled | MeasureError::Unavailable(_)) => {
                None
            }
            Err(MeasureError::Illegal(message)) => {
                self.outcome.note_illegal(standing.task, message);
                None
            }
            Err(MeasureError::Wrong(message)) => {
                self.outcome.wrong.push(message);
                None
            }
        };
        self.outcome.failed += usize::from(times.is_none());
        let entry = Entry {
            task: standing.key.clone(),
            baseline: standing.rules.as_ref().map(|rules| rules.digest.clone()).unwrap_or_default(),
            finding: if times.is_some() { finding } else { Finding::Failed },
            decisions: point.decisions.clone(),
            ratio: times.as_ref().map_or(0.0, Times::ratio),
            baseline_ns: times.as_ref().map_or(0.0, Times::baseline_ns),
            compiler: COMPILER.to_string(),
        };
        (self.record)(&entry)?;
        self.known.insert(entry);
        Ok(times)
    }

    /// Points of a task to measure next, none of which was before.
    fn propose(&mut self, index: usize, standing: &mut Standing<'_>, n: usize) -> Vec<Point> {
        let Some(rules) = standing.rules.clone() else { return Vec::new() };
        let fitted = self.model.fit(index).filter(|_| standing.rounds > 0);
        let pool = self.pool(standing, &rules, if fitted.is_some() { POOL.max(n) } else { n });
        let Some(fitted) = fitted else { return pool };
        let mut pool: Vec<(f64, Point)> =
            pool.into_iter().map(|point| (fitted.predict(&point.features()), point)).collect();
        pool.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut chosen: Vec<Point> = Vec::new();
        while chosen.len() < n && !pool.is_empty() {
            let is_random = chosen.len() + AT_RANDOM >= n;
            let place = if is_random { self.random.usize(..pool.len()) } else { 0 };
            chosen.push(pool.remove(place).1);
        }
        // Those not taken may be proposed again.
        for (_, point) in &pool {
            standing.seen.remove(&point.digest);
        }
        chosen
    }

    /// Up to `n` points not seen before: neighbours of the fastest, then mutations of them.
    fn pool(&mut self, standing: &mut Standing<'_>, rules: &Point, n: usize) -> Vec<Point> {
        /// Mutations tried for each point wanted.
        const TRIES: usize = 3;
        let bases: Vec<Point> = match standing.elite.is_empty() {
            true => vec![rules.clone()],
            false => standing.elite.iter().map(|(_, point)| point.clone()).collect(),
        };
        let mut neighbours: Vec<Decisions> = bases[0].neighbours();
        if !standing.elite.is_empty() {
            self.random.shuffle(&mut neighbours);
            // Half of the pool is for points further away.
            neighbours.truncate(n.div_ceil(2));
        }
        let mut points = Vec::new();
        let mut mutations = 0;
        let mut proposals = neighbours.into_iter();
        while points.len() < n && mutations < TRIES * n {
            let decisions = match proposals.next() {
                Some(decisions) => decisions,
                None => {
                    mutations += 1;
                    let base = &bases[self.random.usize(..bases.len())];
                    base.mutation(1 + self.random.usize(..3), &mut self.random)
                }
            };
            let point = Point::of(standing.task, &decisions);
            let point = point.map_err(|error| self.outcome.note_illegal(standing.task, error));
            if let Ok(point) = point
                && !standing.known.contains(&point.decisions)
                && standing.seen.insert(point.digest.clone())
            {
                points.push(point);
            }
        }
        points
    }
}

impl Standing<'_> {
    /// Remembers a measured point.
    fn learn(&mut self, ratio: f64, point: Point) {
        self.seen.insert(point.digest.clone());
        self.elite.push((ratio, point));
        self.elite.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.elite.truncate(ELITE);
    }
}
