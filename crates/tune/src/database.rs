//! Sets of entries: what is known of which function.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::fmt;

use tilewright_autosched::Decisions;
use tilewright_digest::Digest;

use crate::entry::{Entry, Finding};
use crate::task::TaskKey;

/// What an entry is about. Of several about the same the fastest is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    task: TaskKey,
    baseline: String,
    finding: Finding,
    /// Nothing for the best of a task, of which there is one.
    decisions: Option<Decisions>,
}

/// Entries, each subject once, in an order of their own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Database {
    entries: BTreeMap<Subject, Entry>,
}

/// Lines of a text that are no entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Cut short, or changed by somebody else.
    pub damaged: usize,
    /// Written by a compiler that knew functions by other digests.
    pub outdated: usize,
}

impl LeftOut {
    /// Whether there are any.
    pub fn any(&self) -> bool {
        *self != LeftOut::default()
    }
}

impl std::ops::AddAssign for LeftOut {
    fn add_assign(&mut self, other: LeftOut) {
        self.damaged += other.damaged;
        self.outdated += other.outdated;
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.damaged, self.outdated) {
            (damaged, 0) => write!(f, "{damaged} damaged lines"),
            (0, outdated) => write!(f, "{outdated} lines of another version"),
            (damaged, outdated) => {
                write!(f, "{damaged} damaged lines and {outdated} of another version")
            }
        }
    }
}

/// How much is in a database.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Functions with an entry.
    pub functions: usize,
    /// Families of machines.
    pub families: usize,
    /// Confirmed best schedules.
    pub best: usize,
    /// Measured schedules.
    pub trials: usize,
    /// Schedules that could not be measured.
    pub failed: usize,
    /// Geometric mean of the best schedules' speed over the rules' own; 1 without any.
    pub mean_gain: f64,
}

/// Schedules that a compilation may use. The order of databases counts: the first with an entry decides.
#[derive(Clone, Debug, Default)]
pub struct Lookup {
    databases: Vec<Database>,
}

impl Database {
    /// The database of this text, and which lines of it are left out.
    pub fn parse(text: &str) -> (Database, LeftOut) {
        let mut database = Database::default();
        let mut left_out = LeftOut::default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match Entry::parse(line) {
                Some(entry) => drop(database.insert(entry)),
                None if Entry::is_outdated(line) => left_out.outdated += 1,
                None => left_out.damaged += 1,
            }
        }
        (database, left_out)
    }

    /// The confirmed best schedules of a text: all that a compilation asks for. Other lines are not even looked at.
    pub fn parse_best(text: &str) -> Database {
        let mut database = Database::default();
        let lines = text.lines().filter(|line| line.contains(Finding::BEST_IN_LINE));
        for entry in lines.filter_map(Entry::parse).filter(|e| e.finding == Finding::Best) {
            database.insert(entry);
        }
        database
    }

    /// The database as text, one line an entry: equal databases give equal texts.
    ///
    /// # Errors
    /// Where a number is none.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        self.iter().map(|entry| entry.to_line().map(|line| line + "\n")).collect()
    }

    /// Adds an entry, unless it or a faster one about the same is there; whether it was added.
    pub fn insert(&mut self, entry: Entry) -> bool {
        let decisions = match entry.finding {
            Finding::Best => None,
            Finding::Trial | Finding::Failed => Some(entry.decisions.clone()),
        };
        let (task, baseline, finding) = (entry.task.clone(), entry.baseline.clone(), entry.finding);
        match self.entries.entry(Subject { task, baseline, finding, decisions }) {
            btree_map::Entry::Vacant(place) => {
                place.insert(entry);
                true
            }
            btree_map::Entry::Occupied(mut place) => {
                let is_preferred = entry.preference(place.get()).is_lt();
                if is_preferred {
                    place.insert(entry);
                }
                is_preferred
            }
        }
    }

    /// Adds every entry of another database; those that were added.
    pub fn merge<'a>(&mut self, other: &'a Database) -> Vec<&'a Entry> {
        other.iter().filter(|entry| self.insert(Entry::clone(entry))).collect()
    }

    /// Keeps the entries that `keep` says.
    pub fn retain(&mut self, keep: impl Fn(&Entry) -> bool) {
        self.entries.retain(|_, entry| keep(entry));
    }

    /// Every entry.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// The entries of a task whose rules' own schedule is `baseline`.
    pub fn of<'a, 'k>(
        &'a self,
        task: &'k TaskKey,
        baseline: &'k str,
    ) -> impl Iterator<Item = &'a Entry> + use<'a, 'k> {
        self.of_task(task).filter(move |entry| entry.baseline == baseline)
    }

    /// The entries of a task, whatever the rules did when they were made.
    fn of_task<'a, 'k>(&'a self, task: &'k TaskKey) -> impl Iterator<Item = &'a Entry> + use<'a, 'k> {
        let first =
            Subject { task: task.clone(), baseline: String::new(), finding: Finding::Best, decisions: None };
        self.entries.range(first..).map(|(_, entry)| entry).take_while(move |entry| entry.task == *task)
    }

    /// The confirmed best schedule of a task.
    pub fn best(&self, task: &TaskKey, baseline: &str) -> Option<&Entry> {
        let (task, baseline) = (task.clone(), baseline.to_string());
        self.entries.get(&Subject { task, baseline, finding: Finding::Best, decisions: None })
    }

    /// How much is in it.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats { mean_gain: 1.0, ..Stats::default() };
        let mut logarithms = 0.0;
        let (mut functions, mut families) = (Vec::new(), Vec::new());
        for entry in self.iter() {
            functions.push(&entry.task.function);
            families.push(&entry.task.family);
            match entry.finding {
                Finding::Best => {
                    stats.best += 1;
                    logarithms -= entry.ratio.max(f64::MIN_POSITIVE).ln();
                }
                Finding::Trial => stats.trials += 1,
                Finding::Failed => stats.failed += 1,
            }
        }
        let count = |names: &mut Vec<&String>| {
            names.sort_unstable();
            names.dedup();
            names.len()
        };
        stats.functions = count(&mut functions);
        stats.families = count(&mut families);
        if stats.best > 0 {
            stats.mean_gain = (logarithms / stats.best as f64).exp();
        }
        stats
    }
}

impl Lookup {
    /// Databases in the order in which they are asked.
    pub fn new(databases: impl IntoIterator<Item = Database>) -> Lookup {
        Lookup { databases: databases.into_iter().collect() }
    }

    /// The same, asked after another database.
    #[must_use]
    pub fn after(&self, first: Database) -> Lookup {
        Lookup::new(std::iter::once(first).chain(self.databases.iter().cloned()))
    }

    /// Whether nothing is known of anything.
    pub fn is_empty(&self) -> bool {
        self.databases.iter().all(|database| database.entries.is_empty())
    }

    /// What is known of a task, the schedules to be tried first in front; those for other schedules of the rules too.
    pub fn candidates<'a, 'k>(&'a self, task: &'k TaskKey) -> impl Iterator<Item = &'a Entry> + use<'a, 'k> {
        let of = move |database: &'a Database| database.of_task(task);
        self.databases.iter().flat_map(of).filter(|entry| entry.finding == Finding::Best)
    }
}

/// Digest of the decisions that a compilation took from databases, by function; empty where it took none.
pub fn decisions_digest<'a>(taken: impl IntoIterator<Item = (&'a str, &'a Decisions)>) -> String {
    let taken: Vec<_> = taken.into_iter().filter(|(_, decisions)| !decisions.is_empty()).collect();
    if taken.is_empty() { String::new() } else { Digest::of_data("decisions", &taken).short(16) }
}
