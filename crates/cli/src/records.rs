//! Where records of tuning are: the user's file, and those that come with this program.

use std::path::{Path, PathBuf};

use tilewright::tune::{Database, Journal, Lookup, shipped};

use crate::failure::Failure;
use crate::output;

/// The user's file of records: `$TILEWRIGHT_DATABASE`, else in the folder of the user's data. Nothing where the system
/// names no such folder.
pub(crate) fn default_path() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = || variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    variable("TILEWRIGHT_DATABASE").or_else(|| Some(data()?.join("tilewright").join("tuning.jsonl")))
}

/// What a compilation asks: the user's records, then those that come with this program. A file that the user has not
/// named is not worth a failure.
pub(crate) fn lookup(named: Option<&Path>) -> Result<Lookup, Failure> {
    let own = match (named, default_path()) {
        (Some(path), _) => Journal::read_best(path)?,
        (None, Some(path)) => Journal::read_best(&path).unwrap_or_else(|error| {
            output::note(&format!("{error}: compiling without your records of tuning\n"));
            Database::default()
        }),
        (None, None) => Database::default(),
    };
    Ok(Lookup::new([own, shipped::records().clone()]))
}
