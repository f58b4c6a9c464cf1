//! A database in a file that is only ever appended to.
//!
//! Every entry is written by one call, whole lines only. A process killed at any moment loses the line that
//! it was writing and nothing else: what is left of that line is ended before the next is written, and skipped by
//! its checksum when it is read. Several processes may append at once.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::database::{Database, LeftOut};
use crate::entry::Entry;

/// A journal that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// An entry that cannot be written as text.
    #[error("an entry without a text: {0}")]
    Entry(#[from] serde_json::Error),
}

/// A file open for appending.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// The entries of a file, and which of its lines are left out; no entries where there is no such file.
    ///
    /// # Errors
    /// Where the file is there and cannot be read.
    pub fn read(path: &Path) -> Result<(Database, LeftOut), JournalError> {
        Ok(Database::parse(&text_of(path)?))
    }

    /// The confirmed best schedules of a file; none where there is no such file.
    ///
    /// # Errors
    /// Where the file is there and cannot be read.
    pub fn read_best(path: &Path) -> Result<Database, JournalError> {
        Ok(Database::parse_best(&text_of(path)?))
    }

    /// Opens a file for appending, and makes it and its folder where they are not there.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn append_to(path: &Path) -> Result<Journal, JournalError> {
        let failed = |error| JournalError::Write { path: path.to_path_buf(), error };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut file = File::options().read(true).append(true).create(true).open(path).map_err(failed)?;
        end_last_line(&mut file).map_err(failed)?;
        Ok(Journal { path: path.to_path_buf(), file })
    }

    /// Appends an entry. It is in the hands of the system when this returns.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn append(&mut self, entry: &Entry) -> Result<(), JournalError> {
        let line = entry.to_line()? + "\n";
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|error| JournalError::Write { path: self.path.clone(), error })
    }
}

/// The text of a file, empty where there is none. A damaged line may be anything; the others are whole.
fn text_of(path: &Path) -> Result<String, JournalError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(JournalError::Read { path: path.to_path_buf(), error }),
    }
}

/// Ends a line that a killed process has left unfinished.
fn end_last_line(file: &mut File) -> io::Result<()> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(());
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}
