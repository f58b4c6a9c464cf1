//! Where the search of one task stands.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_autosched::Decisions;

use crate::measure::Measured;
use crate::space::Point;
use crate::task::{Task, TaskKey};

/// Fast points that proposals start from.
const ELITE: usize = 4;

/// How much longer than its least time the rules' own schedule may take in a measurement that is to be trusted: when
/// other work slows the machine down, it slows one schedule more than another.
const DISTURBED: f64 = 1.2;

/// How often a point is measured at length until that is not disturbed.
const CONFIRMATIONS: u32 = 3;

/// Where the search of one task stands.
pub(crate) struct Standing<'a> {
    pub(crate) task: &'a Task,
    pub(crate) key: TaskKey,
    /// The rules' own schedule, and where it is the best the point to go on from.
    pub(crate) rules: Option<Point>,
    /// Digests of schedules that need no measurement.
    pub(crate) seen: BTreeSet<String>,
    /// What earlier searches have measured, or tried to.
    pub(crate) known: BTreeSet<Decisions>,
    /// The fastest points measured and their ratios, the fastest first.
    pub(crate) elite: Vec<(f64, Point)>,
    /// Points that looked faster than the best, and are not confirmed.
    pub(crate) promising: Vec<Promising>,
    /// Least nanoseconds of the rules' own schedule in any measurement of this search, for each machine: times of one machine say
    /// nothing of whether another is disturbed.
    least_ns: BTreeMap<usize, f64>,
    pub(crate) rounds: u32,
    /// Rounds since the last gain.
    pub(crate) stale: u32,
    /// Whether nothing is left to be tried.
    pub(crate) is_done: bool,
}

/// A point that a short measurement found faster.
#[derive(Clone, Debug)]
pub(crate) struct Promising {
    pub(crate) point: Point,
    /// Its time over that of the rules' own schedule.
    pub(crate) ratio: f64,
    /// How often it was measured at length, and disturbed.
    pub(crate) disturbed: u32,
}

impl<'a> Standing<'a> {
    /// A task of which nothing is known, with the rules' own schedule where there is one.
    pub(crate) fn new(task: &'a Task, rules: Option<Point>) -> Standing<'a> {
        Standing {
            task,
            key: task.key(),
            is_done: rules.is_none(),
            seen: rules.iter().map(|rules| rules.digest.clone()).collect(),
            rules,
            known: BTreeSet::new(),
            elite: Vec::new(),
            promising: Vec::new(),
            least_ns: BTreeMap::new(),
            rounds: 0,
            stale: 0,
        }
    }

    /// Remembers a measured point.
    pub(crate) fn learn(&mut self, ratio: f64, point: Point) {
        self.seen.insert(point.digest.clone());
        self.elite.push((ratio, point));
        self.elite.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.elite.truncate(ELITE);
    }

    /// Remembers how long the rules' own schedule took; the least that it took anywhere.
    pub(crate) fn note_baseline(&mut self, measured: &Measured) -> f64 {
        let ns = measured.times.baseline_ns();
        let least = self.least_ns.entry(measured.machine).or_insert(ns);
        *least = least.min(ns);
        self.least_ns.values().copied().fold(f64::INFINITY, f64::min)
    }

    /// Whether other work slowed the machine down in a measurement whose baseline was noted.
    pub(crate) fn was_disturbed(&self, measured: &Measured) -> bool {
        let least = self.least_ns.get(&measured.machine);
        least.is_some_and(|least| measured.times.baseline_ns() > DISTURBED * least)
    }

    /// The point to confirm next: the one that looks fastest. Points that are no faster than `best` are forgotten.
    pub(crate) fn next_to_confirm(&mut self, best: f64) -> Option<Promising> {
        self.promising.retain(|promising| promising.ratio < best);
        let places = 0..self.promising.len();
        let ratio = |place: &usize| self.promising[*place].ratio;
        let place = places.min_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
        Some(self.promising.remove(place))
    }

    /// Takes back a point whose confirmation was disturbed, unless it was so too often.
    pub(crate) fn confirm_again(&mut self, mut promising: Promising) {
        promising.disturbed += 1;
        if promising.disturbed < CONFIRMATIONS {
            self.promising.push(promising);
        }
    }
}
