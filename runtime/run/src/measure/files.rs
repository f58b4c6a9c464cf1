//! Requests as files: the request is one, and the bytes of each digest in it are another in the same folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tilewright_runtime::Bytes;

use super::bench::Bench;
use super::blobs::{BlobFolder, BlobId};
use super::request::{Answer, Request, RequestError};

/// A request that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is none.
    #[error("{}: {error}", path.display())]
    Request {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: RequestError,
    },
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    std::fs::read(path).map_err(|error| FileError::Read { path: path.to_path_buf(), error })
}

/// The request in a file.
///
/// # Errors
/// [`FileError`].
pub fn read_request(path: &Path) -> Result<Request, FileError> {
    let request = Request::from_bytes(&read(path)?);
    request.map_err(|error| FileError::Request { path: path.to_path_buf(), error })
}

/// Writes a request, after all that it names: who finds it finds these too.
///
/// # Errors
/// [`FileError::Write`].
pub fn write_request(
    path: &Path,
    request: &Request,
    blobs: &BTreeMap<BlobId, Bytes>,
) -> Result<(), FileError> {
    let folder = BlobFolder::new(path.parent().unwrap_or(Path::new("")));
    let written = |path: &Path| {
        let path = path.to_path_buf();
        move |error| FileError::Write { path, error }
    };
    for (id, bytes) in blobs {
        let path = folder.path_of(id);
        // What has the name has the contents, unless it is damaged, which is told when it is read.
        if !path.exists() {
            std::fs::write(&path, &bytes[..]).map_err(written(&path))?;
        }
    }
    let bytes = request.to_bytes().map_err(std::io::Error::other);
    bytes.and_then(|bytes| std::fs::write(path, bytes)).map_err(written(path))
}

/// Measures what a file asks for.
///
/// # Errors
/// [`FileError`]. All that can go wrong with a measurement is part of the answer.
pub fn answer_file(path: &Path) -> Result<Answer, FileError> {
    let folder = BlobFolder::new(path.parent().unwrap_or(Path::new("")));
    let answer = Bench::default().answer(&read(path)?, &folder);
    answer.map_err(|error| FileError::Request { path: path.to_path_buf(), error })
}
