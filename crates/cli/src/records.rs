//! Where records of tuning are: the user's file, and those that come with this program.

use std::path::{Path, PathBuf};

use tilewright::tune::{Journal, Lookup, shipped};

use crate::failure::Failure;

/// The user's file of records: `$TILEWRIGHT_DATABASE`, else in the folder of the user's data. Nothing where the system
/// names no such folder.
pub(crate) fn default_path() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = || variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    variable("TILEWRIGHT_DATABASE").or_else(|| Some(data()?.join("tilewright").join("tuning.jsonl")))
}

/// What a compilation asks: the user's records, then those that come with this program; none without a path.
pub(crate) fn lookup(path: Option<&Path>) -> Result<Lookup, Failure> {
    match path {
        None => Ok(Lookup::default()),
        Some(path) => Ok(Lookup::new([Journal::read_best(path)?, shipped::records().clone()])),
    }
}
