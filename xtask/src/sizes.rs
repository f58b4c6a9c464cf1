//! `cargo xtask sizes`: bytes of what is deployed, held to the figures of `xtask/data/sizes.toml`.
//!
//! A part fails where it takes over 2 % more than its figure, or more than its limit. To add one: a row of [`PARTS`], and an entry of the file,
//! whose figure `--bless` writes.

mod figures;
mod parts;

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::project::Verdict;
use crate::tally::Tally;

use figures::{Entry, Figures};
use parts::{PARTS, Part, Workshop};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write what is found as the new figures
    #[arg(long)]
    bless: bool,
    /// Only parts whose name begins so
    #[arg(long)]
    part: Option<String>,
    /// Another `tilewright` program than the one of this tree
    #[arg(long)]
    program: Option<PathBuf>,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    let tally = check_some(args.program.as_deref(), args.part.as_deref(), args.bless)?;
    println!("{tally}");
    Ok(tally.failed == 0)
}

/// Holds every part to its figure; `program` is the compiler.
pub(crate) fn check(program: &Path) -> anyhow::Result<Tally> {
    check_some(Some(program), None, false)
}

fn check_some(program: Option<&Path>, prefix: Option<&str>, bless: bool) -> anyhow::Result<Tally> {
    let mut figures = Figures::read()?;
    figures.are_of(PARTS)?;
    let workshop = Workshop::new(program);
    let (mut tally, mut rows) = (Tally::default(), Vec::new());
    for part in PARTS.iter().filter(|part| prefix.is_none_or(|prefix| part.name.starts_with(prefix))) {
        let entry = figures.of(part).with_context(|| format!("no figure of {part}"))?;
        let outcome = measure(part, entry, &workshop, bless);
        rows.push(row(part, entry, &outcome));
        tally.add(outcome.tally());
        if let (true, Outcome::Found { bytes, by, .. }) = (bless, outcome) {
            (entry.bytes, entry.by) = (bytes, by);
        }
    }
    ensure!(!rows.is_empty(), "no part begins so: there are {}", names());
    println!("{:<44} {:>9} {:>9} {:>9}", "", "bytes", "figure", "limit");
    rows.iter().for_each(|row| println!("{row}"));
    if bless {
        figures.write()?;
    }
    Ok(tally)
}

fn names() -> String {
    PARTS.iter().map(|part| part.name).collect::<Vec<_>>().join(", ")
}

/// What came of measuring a part.
enum Outcome {
    Found {
        bytes: u64,
        /// The tool that made it.
        by: String,
        /// Why that is too much, if it is.
        fault: Option<String>,
    },
    Skipped(String),
    Failed(String),
}

impl Outcome {
    fn tally(&self) -> Tally {
        match self {
            Outcome::Found { fault, .. } => Tally::of_check(fault.is_none()),
            Outcome::Skipped(_) => Tally { skipped: 1, ..Tally::default() },
            Outcome::Failed(_) => Tally::of_check(false),
        }
    }
}

fn measure(part: &Part, entry: &Entry, workshop: &Workshop<'_>, bless: bool) -> Outcome {
    if let Some(missing) = workshop.missing(part) {
        return Outcome::Skipped(missing);
    }
    let by = match workshop.tool(part) {
        Ok(by) => by,
        Err(error) => return Outcome::Failed(format!("{error:#}")),
    };
    // Another version makes other code: its bytes say nothing of ours.
    if by != entry.by && !bless {
        return Outcome::Skipped(format!("made by {by} here, and the figure is of {}", entry.by));
    }
    match workshop.bytes(part) {
        Ok(bytes) => Outcome::Found { bytes, by, fault: entry.fault(bytes, bless) },
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

fn row(part: &Part, entry: &Entry, outcome: &Outcome) -> String {
    let limit = entry.limit.map_or(String::new(), |limit| limit.to_string());
    let (bytes, remark) = match outcome {
        Outcome::Found { bytes, fault: None, .. } => (bytes.to_string(), String::new()),
        Outcome::Found { bytes, fault: Some(fault), .. } => (bytes.to_string(), format!("  failed: {fault}")),
        Outcome::Skipped(why) => (String::new(), format!("  skipped: {why}")),
        Outcome::Failed(why) => (String::new(), format!("  failed: {why}")),
    };
    format!("{:<44} {bytes:>9} {:>9} {limit:>9}{remark}", part.to_string(), entry.bytes)
}
