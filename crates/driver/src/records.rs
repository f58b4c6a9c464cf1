//! Records of tuning: where the user's are, and what a compilation asks.

use std::path::{Path, PathBuf};

use tilewright_tune::{Database, Journal, JournalError, Lookup, shipped};

/// The user's file of records: `$TILEWRIGHT_DATABASE`, else in the folder of the user's data. Nothing where the system
/// names no such folder.
pub fn of_user() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = || variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    variable("TILEWRIGHT_DATABASE").or_else(|| Some(data()?.join("tilewright").join("tuning.jsonl")))
}

/// The records of a file, if one is given, then those that come with this crate.
///
/// # Errors
/// Where the file is there and cannot be read.
pub fn lookup(file: Option<&Path>) -> Result<Lookup, JournalError> {
    let own = file.map_or(Ok(Database::default()), Journal::read_best)?;
    Ok(Lookup::new([own, shipped::records().clone()]))
}
