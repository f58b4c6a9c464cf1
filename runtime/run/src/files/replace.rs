//! Files that are whole or not there.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes a file: a temporary one beside it that takes its place when complete, so that nothing is left
/// and nothing is lost where writing fails. What is no regular file (a device, a pipe) is written to as it is.
///
/// # Errors
/// What the system says; also for a folder.
pub fn replace<T>(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>) -> io::Result<T> {
    // A symbolic link stays one: what it leads to is replaced.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let complete = |file: File| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let result = write(&mut out)?;
        out.flush()?;
        Ok(result)
    };
    match std::fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(metadata) if !metadata.is_file() => return complete(File::options().write(true).open(&path)?),
        Ok(_) | Err(_) => {}
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let result = File::create_new(&temporary)
        .and_then(complete)
        .and_then(|result| std::fs::rename(&temporary, &path).map(|()| result));
    if result.is_err() {
        // That removal fails too (a vanished disk) changes nothing.
        _ = std::fs::remove_file(&temporary);
    }
    result
}
