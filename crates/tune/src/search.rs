//! The search: which task next, which of its points, until the budget is spent.
//!
//! Tasks are taken by the share of the time they stand for and by how long ago their last gain was. Of a
//! task, first every choice is tried on its own; then the neighbours and mutations of the fastest points so far
//! are proposed, and those measured that the learned model predicts to be the fastest, with one at random among them.
//! What looks faster than the rules' own schedule is measured again at length, and recorded as the best only when that
//! confirms it: a record never makes a function slower.
//!
//! Measurements are asked for in waves: points of several tasks, and what is to be confirmed of the waves before. What is in a wave
//! follows from the waves before it, and results count in the order in which they were asked for. So the search is the same on one
//! machine and on many, given the same times.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Instant;

use tilewright_autosched::Decisions;

use crate::cost::CostModel;
use crate::database::Database;
use crate::entry::{COMPILER, Entry, Finding};
use crate::journal::JournalError;
use crate::measure::{Effort, Job, Measure, MeasureError, Measured, Times};
use crate::outcome::{Budget, Outcome, TaskOutcome, Watch};
use crate::space::Point;
use crate::standing::{Promising, Standing};
use crate::task::Task;

/// Points of a task measured in a wave.
const BATCH: usize = 6;

/// Tasks of which a wave has points: enough to keep several machines busy, and few enough that the next wave soon makes use of
/// their times.
const TASKS_AT_ONCE: usize = 4;

/// Points of a batch that are taken at random.
const AT_RANDOM: usize = 1;

/// Points proposed for a batch.
const POOL: usize = 20;

/// Waves without a gain after which a task is left.
const PATIENCE: u32 = 5;

/// Known points of a task that the learned model is given at the start: scheduling them again takes time.
const REMEMBERED: usize = 16;

/// Searches for schedules of tasks that are faster than the rules' own.
///
/// `known` is what earlier searches found: it is not measured again. What is found is added to it, after
/// `record` has put it where it survives. When the budget is spent, what is promising is still confirmed.
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
    let mut search = Search::new(known, record, budget);
    let mut standings: Vec<Standing<'_>> =
        tasks.iter().enumerate().map(|(index, task)| search.stand(index, task)).collect();
    search.measure_rules(&mut standings, measure, watch);
    while !search.outcome.is_over() {
        let wave = search.wave(&mut standings);
        if wave.is_empty() {
            search.outcome.exhausted = search.spent() < 1.0;
            break;
        }
        search.measure_wave(wave, &mut standings, measure, watch)?;
    }
    Ok(search.outcome)
}

/// Schedules to measure elsewhere, at most `n` of all tasks together: each the place of its task and the decisions. They follow from
/// what is known and from the seed.
pub fn propose(tasks: &[Task], known: &mut Database, n: usize, seed: u64) -> Vec<(usize, Point)> {
    let mut record = |_: &Entry| Ok(());
    let mut search = Search::new(known, &mut record, Budget { seed, ..Budget::default() });
    let mut standings: Vec<Standing<'_>> =
        tasks.iter().enumerate().map(|(index, task)| search.stand(index, task)).collect();
    // Of a task that was never measured nothing but its calls is known.
    for outcome in &mut search.outcome.tasks {
        outcome.baseline_ns = outcome.baseline_ns.max(1.0);
    }
    let mut proposed = Vec::new();
    while proposed.len() < n {
        let Some(next) = search.next(&standings) else { break };
        let batch = search.batch(next, &mut standings[next], BATCH.min(n - proposed.len()));
        proposed.extend(batch.into_iter().map(|point| (next, point)));
    }
    proposed
}

struct Search<'a> {
    known: &'a mut Database,
    record: &'a mut dyn FnMut(&Entry) -> Result<(), JournalError>,
    budget: Budget,
    start: Instant,
    random: fastrand::Rng,
    model: CostModel,
    outcome: Outcome,
}

/// What is to be measured of a task.
struct Wanted {
    /// Its place.
    task: usize,
    what: What,
}

enum What {
    /// A new point.
    Trial(Point),
    /// Whether a point is as fast as it looks.
    Confirmation(Promising),
}

impl What {
    fn point(&self) -> &Point {
        match self {
            What::Trial(point) | What::Confirmation(Promising { point, .. }) => point,
        }
    }

    fn effort(&self) -> Effort {
        match self {
            What::Trial(_) => Effort::Trial,
            What::Confirmation(_) => Effort::Confirm,
        }
    }
}

impl<'a> Search<'a> {
    fn new(
        known: &'a mut Database,
        record: &'a mut dyn FnMut(&Entry) -> Result<(), JournalError>,
        budget: Budget,
    ) -> Search<'a> {
        let random = fastrand::Rng::with_seed(budget.seed);
        let (start, model, outcome) = (Instant::now(), CostModel::default(), Outcome::default());
        Search { known, record, budget, start, random, model, outcome }
    }
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

    /// Where a task stands by what is known of it; it is the next of the outcome's.
    fn stand<'t>(&mut self, index: usize, task: &'t Task) -> Standing<'t> {
        let rules = Point::of(task, &Decisions::default());
        let rules = rules.map_err(|error| self.outcome.note_illegal(task, error)).ok();
        let mut standing = Standing::new(task, rules.clone());
        let mut outcome = TaskOutcome {
            key: standing.key.clone(),
            baseline_ns: 0.0,
            ratio: 1.0,
            decisions: Decisions::default(),
            trials: 0,
            calls: task.calls,
            space: rules.as_ref().map_or(0.0, Point::space_size),
        };
        if let Some(rules) = &rules {
            self.recall(index, &mut standing, rules, &mut outcome);
        }
        self.outcome.tasks.push(outcome);
        standing
    }

    /// Measures the rules' own schedules that were not before.
    fn measure_rules(
        &mut self,
        standings: &mut [Standing<'_>],
        measure: &mut dyn Measure,
        watch: &mut dyn Watch,
    ) {
        let is_known = |n: usize| standings[n].is_done || self.outcome.tasks[n].baseline_ns != 0.0;
        let places: Vec<usize> = (0..standings.len()).filter(|&n| !is_known(n)).collect();
        let job = |&n: &usize| Job {
            task: standings[n].task,
            candidate: Decisions::default(),
            effort: Effort::Trial,
        };
        let jobs: Vec<Job<'_>> = places.iter().map(job).collect();
        self.outcome.cancelled |= watch.is_cancelled();
        if self.outcome.cancelled {
            return;
        }
        measure.measure_batch(&jobs, &mut |n, result| {
            let Some(&place) = places.get(n) else { return ControlFlow::Break(()) };
            let standing = &mut standings[place];
            match result {
                Ok(measured) => self.outcome.tasks[place].baseline_ns = standing.note_baseline(&measured),
                Err(error) => {
                    standing.is_done = true;
                    self.note_rules_unmeasured(standing.task, error);
                }
            }
            self.go_on(watch)
        });
    }

    fn note_rules_unmeasured(&mut self, task: &Task, error: MeasureError) {
        match error {
            MeasureError::Illegal(message) => self.outcome.note_illegal(task, message),
            MeasureError::Failed(message) | MeasureError::Wrong(message) => {
                let name = &task.computation.func.name;
                self.outcome.unmeasured.push(format!("{name}: {message}"));
            }
            MeasureError::Cancelled => self.outcome.cancelled = true,
            MeasureError::Unavailable(why) => drop(self.outcome.unavailable.get_or_insert(why)),
        }
    }

    /// Whether the results that are still to come are wanted.
    fn go_on(&mut self, watch: &mut dyn Watch) -> ControlFlow<()> {
        watch.progress(&self.outcome, self.spent());
        self.outcome.cancelled |= watch.is_cancelled();
        // What was measured before the last machine went counts, though it comes later.
        if self.outcome.cancelled { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
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
        let is_open = |n: &usize| !standings[*n].is_done && standings[*n].stale <= PATIENCE;
        let open = (0..standings.len()).filter(is_open);
        open.max_by(|&a, &b| priority(a).total_cmp(&priority(b)).then(b.cmp(&a)))
    }

    /// What to measure next: of each task what looks fastest and is not confirmed, and while the budget lasts new points, of the tasks
    /// that are next if none of them gains anything.
    fn wave(&mut self, standings: &mut [Standing<'_>]) -> Vec<Wanted> {
        let mut wave = Vec::new();
        for (task, standing) in standings.iter_mut().enumerate() {
            let promising = standing.next_to_confirm(self.outcome.tasks[task].ratio);
            wave.extend(promising.map(|promising| Wanted { task, what: What::Confirmation(promising) }));
        }
        if self.spent() >= 1.0 {
            return wave;
        }
        let trials = self.budget.trials.map(|trials| trials.saturating_sub(self.outcome.trials));
        let mut left = trials.unwrap_or(usize::MAX);
        let mut of_tasks = BTreeSet::new();
        while of_tasks.len() < TASKS_AT_ONCE && left > 0 {
            let Some(task) = self.next(standings) else { break };
            // Its next points follow from those that it has in this wave.
            if !of_tasks.insert(task) {
                break;
            }
            let batch = self.batch(task, &mut standings[task], BATCH.min(left));
            left -= batch.len();
            wave.extend(batch.into_iter().map(|point| Wanted { task, what: What::Trial(point) }));
        }
        wave
    }

    /// New points of a task.
    fn batch(&mut self, index: usize, standing: &mut Standing<'_>, n: usize) -> Vec<Point> {
        let batch = self.propose(index, standing, n);
        standing.rounds += 1;
        standing.stale += 1;
        standing.is_done = batch.is_empty();
        batch
    }

    /// Measures a wave. Of what is not measured when the budget is spent, nothing is.
    fn measure_wave(
        &mut self,
        wave: Vec<Wanted>,
        standings: &mut [Standing<'_>],
        measure: &mut dyn Measure,
        watch: &mut dyn Watch,
    ) -> Result<(), JournalError> {
        let job = |Wanted { task, what }: &Wanted| Job {
            task: standings[*task].task,
            candidate: what.point().decisions.clone(),
            effort: what.effort(),
        };
        let jobs: Vec<Job<'_>> = wave.iter().map(job).collect();
        let mut wave = wave.into_iter();
        let mut taken = Ok(());
        measure.measure_batch(&jobs, &mut |_, result| {
            let Some(Wanted { task, what }) = wave.next() else { return ControlFlow::Break(()) };
            taken = match (result, what) {
                (Err(MeasureError::Cancelled), _) => {
                    self.outcome.cancelled = true;
                    Ok(())
                }
                (Err(MeasureError::Unavailable(why)), _) => {
                    self.outcome.unavailable.get_or_insert(why);
                    Ok(())
                }
                (result, What::Trial(point)) => self.take_trial(task, &mut standings[task], point, result),
                (result, What::Confirmation(promising)) => {
                    self.take_confirmation(task, &mut standings[task], promising, result)
                }
            };
            let is_trial = wave.as_slice().first().is_some_and(|next| matches!(next.what, What::Trial(_)));
            match taken.is_err() || (is_trial && self.spent() >= 1.0) {
                true => ControlFlow::Break(()),
                false => self.go_on(watch),
            }
        });
        taken
    }

    /// Records a point that was measured; whether it is promising.
    fn take_trial(
        &mut self,
        index: usize,
        standing: &mut Standing<'_>,
        point: Point,
        result: Result<Measured, MeasureError>,
    ) -> Result<(), JournalError> {
        self.outcome.trials += 1;
        self.outcome.tasks[index].trials += 1;
        let Some(measured) = self.take(standing, &point, result, Finding::Trial)? else { return Ok(()) };
        let ratio = measured.times.ratio();
        self.outcome.tasks[index].baseline_ns = standing.note_baseline(&measured);
        self.model.add(index, point.features(), ratio);
        if measured.times.is_faster() && ratio < self.outcome.tasks[index].ratio {
            standing.promising.push(Promising { point: point.clone(), ratio, disturbed: 0 });
        }
        standing.learn(ratio, point);
        Ok(())
    }

    /// Records a point that was measured at length, where it is the best so far.
    fn take_confirmation(
        &mut self,
        index: usize,
        standing: &mut Standing<'_>,
        promising: Promising,
        result: Result<Measured, MeasureError>,
    ) -> Result<(), JournalError> {
        let measured = match result {
            Ok(measured) => measured,
            Err(error) => {
                self.note_defect(standing.task, error);
                return Ok(());
            }
        };
        let ratio = measured.times.ratio();
        if !measured.times.is_faster() || ratio >= self.outcome.tasks[index].ratio {
            return Ok(());
        }
        standing.note_baseline(&measured);
        if standing.was_disturbed(&measured) {
            standing.confirm_again(promising);
            return Ok(());
        }
        self.take(standing, &promising.point, Ok(measured), Finding::Best)?;
        let outcome = &mut self.outcome.tasks[index];
        (outcome.ratio, outcome.decisions) = (ratio, promising.point.decisions);
        standing.stale = 0;
        Ok(())
    }

    /// Notes what is a defect of the compiler.
    fn note_defect(&mut self, task: &Task, error: MeasureError) {
        match error {
            MeasureError::Illegal(message) => self.outcome.note_illegal(task, message),
            MeasureError::Wrong(message) => self.outcome.wrong.push(message),
            MeasureError::Failed(_) | MeasureError::Cancelled | MeasureError::Unavailable(_) => {}
        }
    }

    /// Records a measurement; gives it back where it is one.
    fn take(
        &mut self,
        standing: &Standing<'_>,
        point: &Point,
        result: Result<Measured, MeasureError>,
        finding: Finding,
    ) -> Result<Option<Measured>, JournalError> {
        let measured = match result {
            Ok(measured) => Some(measured).filter(|measured| measured.times.ratio().is_finite()),
            Err(error) => {
                self.note_defect(standing.task, error);
                None
            }
        };
        let times = measured.as_ref().map(|measured| &measured.times);
        self.outcome.failed += usize::from(times.is_none());
        let entry = Entry {
            task: standing.key.clone(),
            baseline: standing.rules.as_ref().map(|rules| rules.digest.clone()).unwrap_or_default(),
            finding: if times.is_some() { finding } else { Finding::Failed },
            decisions: point.decisions.clone(),
            ratio: times.map_or(0.0, Times::ratio),
            baseline_ns: times.map_or(0.0, Times::baseline_ns),
            compiler: COMPILER.to_string(),
        };
        (self.record)(&entry)?;
        self.known.insert(entry);
        Ok(measured)
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
