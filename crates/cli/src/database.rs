//! `tilewright database`: merging, exporting and pruning records of tuning.

use std::path::{Path, PathBuf};

use serde_json::json;
use tilewright_driver::records;
use tilewright_driver::tune::{Database, Finding, Journal, LeftOut};

use crate::failure::{Exit, Failure};
use crate::output;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(clap::Subcommand)]
enum Task {
    /// Add records of other files; what is there already is not added again
    Merge {
        /// Files whose records are added
        #[arg(value_name = "FROM", required = true)]
        from: Vec<PathBuf>,
        #[command(flatten)]
        database: DatabaseFile,
        /// Print figures as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Write the fastest schedules, in an order that does not depend on how they were found
    Export {
        /// File to write [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write what was tried, too
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        database: DatabaseFile,
    },
    /// Drop what compilations do not use: trials, failures, damaged and superseded lines
    Prune {
        #[command(flatten)]
        database: DatabaseFile,
        /// Print figures as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Say how much is known
    Stats {
        #[command(flatten)]
        database: DatabaseFile,
        /// Print figures as one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args)]
struct DatabaseFile {
    /// Records of tuning [default: the user's, as for compile]
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
}

impl DatabaseFile {
    fn path(&self) -> Result<PathBuf, Failure> {
        let path = self.database.clone().or_else(records::of_user);
        path.ok_or_else(|| {
            Failure::usage("there is no folder for records of tuning: name a file by --database")
        })
    }
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.task {
        Task::Merge { from, database, json } => merge(from, &database.path()?, *json),
        Task::Export { output, all, database } => export(output.as_deref(), *all, &existing(database)?),
        Task::Prune { database, json } => prune(&existing(database)?, *json),
        Task::Stats { database, json } => stats(&existing(database)?, *json),
    }
}

/// The path of a file that is there.
fn existing(place: &DatabaseFile) -> Result<PathBuf, Failure> {
    let path = place.path()?;
    match std::fs::metadata(&path) {
        Ok(_) => Ok(path),
        Err(error) => Err(Failure::read(&path, &error)),
    }
}

fn merge(from: &[PathBuf], path: &Path, json: bool) -> Result<(), Failure> {
    let (mut database, _) = Journal::read(path)?;
    // A wrong name among them adds nothing.
    let mut others = Vec::new();
    for file in from {
        if let Err(error) = std::fs::metadata(file) {
            return Err(Failure::read(file, &error));
        }
        others.push(Journal::read(file)?);
    }
    let mut journal = Journal::append_to(path)?;
    let mut n_added = 0;
    for (other, _) in &others {
        for entry in database.merge(other) {
            journal.append(entry)?;
            n_added += 1;
        }
    }
    let mut left_out = LeftOut::default();
    others.iter().for_each(|(_, of_file)| left_out += *of_file);
    if json {
        let LeftOut { damaged, outdated } = left_out;
        return output::print_json(&json!({ "added": n_added, "damaged": damaged, "outdated": outdated }));
    }
    let left_out = if left_out.any() { format!(", {left_out} left out") } else { String::new() };
    output::print(&format!("{}: {n_added} records added{left_out}\n", path.display()))
}

fn export(to: Option<&Path>, all: bool, path: &Path) -> Result<(), Failure> {
    let database = if all { Journal::read(path)?.0 } else { Journal::read_best(path)? };
    let text = text_of(&database)?;
    match to {
        Some(to) => output::write_file(to, text.as_bytes()),
        None => output::print(&text),
    }
}

fn prune(path: &Path, json: bool) -> Result<(), Failure> {
    let (mut database, left_out) = Journal::read(path)?;
    let before = database.iter().count();
    database.retain(|entry| entry.finding == Finding::Best);
    let kept = database.iter().count();
    output::write_file(path, text_of(&database)?.as_bytes())?;
    if json {
        let (dropped, LeftOut { damaged, outdated }) = (before - kept, left_out);
        return output::print_json(
            &json!({ "kept": kept, "dropped": dropped, "damaged": damaged, "outdated": outdated }),
        );
    }
    let dropped = before - kept;
    output::print(&format!("{}: {kept} records kept, {dropped} and {left_out} dropped\n", path.display()))
}

fn stats(path: &Path, json: bool) -> Result<(), Failure> {
    let (database, LeftOut { damaged, outdated }) = Journal::read(path)?;
    let stats = database.stats();
    if json {
        return output::print_json(&json!({
            "functions": stats.functions, "families": stats.families, "best": stats.best, "trials": stats.trials,
            "failed": stats.failed, "damaged": damaged, "outdated": outdated, "mean_gain": stats.mean_gain,
        }));
    }
    let row = |name: &str, value: String| (name.to_string(), value);
    output::print(&output::table(&[
        row("functions", stats.functions.to_string()),
        row("families of machines", stats.families.to_string()),
        row("fastest schedules", stats.best.to_string()),
        row("their mean gain", format!("{:.3}x", stats.mean_gain)),
        row("trials", stats.trials.to_string()),
        row("failed trials", stats.failed.to_string()),
        row("damaged lines", damaged.to_string()),
        row("lines of another version", outdated.to_string()),
    ]))
}

fn text_of(database: &Database) -> Result<String, Failure> {
    database.to_text().map_err(|error| Failure::new(Exit::Internal, error))
}
