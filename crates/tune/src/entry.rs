//! What a measurement taught: one line of a database.
//!
//! A line is JSON: the version of the format, the entry and a checksum of its text, so that a line cut short or damaged is known as
//! such. Lines of another version name functions and schedules otherwise, and are of no use.
//!
//! ```text
//! {"v":2,"crc":"1f0c9a3e","entry":{"function":"..","family":"..","baseline":"..","finding":"best",..}}
//! ```

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tilewright_autosched::Decisions;

use crate::task::TaskKey;

/// What is known of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// It was faster than the rules' own schedule, and a second, longer measurement confirmed it.
    Best,
    /// It was measured.
    Trial,
    /// It could not be compiled or measured.
    Failed,
}

/// A schedule of a function, and how it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The function and the family of machines.
    #[serde(flatten)]
    pub task: TaskKey,
    /// Digest of the rules' own strategy for the function. Where that is another one by now, the comparison says nothing.
    pub baseline: String,
    /// What is known.
    pub finding: Finding,
    /// The schedule, by the decisions that differ from the rules' own.
    pub decisions: Decisions,
    /// Its time over that of the rules' own schedule, measured alternately; 0 where it could not be measured.
    pub ratio: f64,
    /// Nanoseconds that the rules' own schedule took.
    pub baseline_ns: f64,
    /// The compiler that measured.
    pub compiler: String,
}

impl Finding {
    /// What the lines of confirmed best schedules have in them.
    pub(crate) const BEST_IN_LINE: &str = r#""finding":"best""#;
}

/// The compiler that measures, as entries name it.
pub(crate) const COMPILER: &str = concat!("tilewright ", env!("CARGO_PKG_VERSION"));

/// Version of the format. Version 1, which no line says, knew functions and schedules by digests of their `Debug` text.
const VERSION: u32 = 2;

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    #[serde(default)]
    v: u32,
    crc: String,
    #[serde(borrow)]
    entry: &'a RawValue,
}

impl Entry {
    /// The line of a database, without the end of the line.
    ///
    /// # Errors
    /// Where a number is none.
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        let entry = serde_json::value::to_raw_value(self)?;
        let crc = checksum(entry.get());
        serde_json::to_string(&Line { v: VERSION, crc, entry: &entry })
    }

    /// The entry of a line; nothing where the line is damaged or of another version.
    pub fn parse(line: &str) -> Option<Entry> {
        let line: Line<'_> = serde_json::from_str(line).ok().filter(|line: &Line<'_>| line.v == VERSION)?;
        let is_whole = checksum(line.entry.get()) == line.crc;
        let entry: Entry = is_whole.then(|| serde_json::from_str(line.entry.get()).ok()).flatten()?;
        let is_sound = entry.ratio.is_finite() && entry.baseline_ns.is_finite();
        is_sound.then_some(entry)
    }

    /// Whether a line is whole and of another version.
    pub(crate) fn is_outdated(line: &str) -> bool {
        let line: Option<Line<'_>> = serde_json::from_str(line).ok();
        line.is_some_and(|line| line.v != VERSION && checksum(line.entry.get()) == line.crc)
    }

    /// Which of two entries about the same is kept: the faster; a total order, so that it does not matter in which order
    /// databases are merged.
    pub(crate) fn preference(&self, other: &Entry) -> Ordering {
        (self.ratio.total_cmp(&other.ratio))
            .then_with(|| self.decisions.cmp(&other.decisions))
            .then_with(|| self.baseline_ns.total_cmp(&other.baseline_ns))
            .then_with(|| self.compiler.cmp(&other.compiler))
    }
}

pub(crate) fn checksum(text: &str) -> String {
    format!("{:08x}", crc32fast::hash(text.as_bytes()))
}
