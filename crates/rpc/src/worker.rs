//! The child's side of a job: what a process does that a server has started for it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::frame::{self, FrameError};

/// Most bytes of what server and child say to each other: a message of a client's with the paths of its blobs.
pub(crate) const MOST: usize = frame::MESSAGE + (64 << 10);

/// Most bytes of an answer; what is larger is a blob.
const MOST_ANSWERED: usize = frame::MESSAGE - (1 << 10);

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its kind.
    pub kind: String,
    /// What is asked for.
    pub request: Vec<u8>,
    /// Files with the blobs that it needs.
    pub blobs: Vec<PathBuf>,
    /// Where blobs of the answer go.
    pub(crate) folder: PathBuf,
}

/// What a job has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The answer, below a mebibyte.
    pub answer: Vec<u8>,
    /// What is large.
    pub blobs: Vec<Vec<u8>>,
}

/// Why a job has made nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code that a program has which fails so.
    pub code: u8,
    /// What the user is told.
    pub message: String,
}

/// What a child tells its server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// The answer, and how many blobs lie in the folder.
    Done { answer: Vec<u8>, blobs: u32 },
    /// The job failed.
    Failed { code: u8, message: String },
}

/// The file of a blob of an answer.
pub(crate) fn blob_of(folder: &std::path::Path, index: usize) -> PathBuf {
    folder.join(index.to_string())
}

/// Does the job that standard input tells, and tells standard output what came of it. The process ends where standard input does:
/// then the server has gone, whatever the job is at.
///
/// # Errors
/// When the server cannot be heard or told.
pub fn work(handle: impl FnOnce(&Call) -> Result<Reply, Failure>) -> Result<(), FrameError> {
    let call: Call = frame::receive(&mut io::stdin().lock(), MOST)?;
    let watch = std::thread::Builder::new().name("watch".to_string()).spawn(|| {
        // Nothing more comes; only the end does.
        _ = io::stdin().lock().read(&mut [0]);
        std::process::exit(1);
    });
    watch?;
    let told = match handle(&call).and_then(|reply| keep(&call, reply)) {
        Ok(told) => told,
        Err(Failure { code, message }) => Told::Failed { code, message: cut(message) },
    };
    frame::send(&mut io::stdout().lock(), &told, MOST)
}

/// Writes the blobs of an answer where the server finds them.
fn keep(call: &Call, reply: Reply) -> Result<Told, Failure> {
    /// The exit code for files that cannot be written, and that for a bug.
    const IO: u8 = 6;
    const INTERNAL: u8 = 70;
    // Around the answer there are a few bytes more, and a number for each blob.
    let bytes = reply.answer.len() + 10 * reply.blobs.len();
    if bytes > MOST_ANSWERED {
        let message = format!("the answer of a job has {bytes} bytes, and {MOST_ANSWERED} are the most");
        return Err(Failure { code: INTERNAL, message });
    }
    for (index, blob) in reply.blobs.iter().enumerate() {
        let path = blob_of(&call.folder, index);
        let written = File::create_new(&path).and_then(|mut file| file.write_all(blob));
        let failed = |error| Failure { code: IO, message: format!("cannot keep an answer: {error}") };
        written.map_err(failed)?;
    }
    Ok(Told::Done { answer: reply.answer, blobs: reply.blobs.len() as u32 })
}

/// A message that fits.
fn cut(mut message: String) -> String {
    const FITS: usize = frame::MESSAGE / 2;
    if message.len() > FITS {
        let end = (0..=FITS).rev().find(|&at| message.is_char_boundary(at)).unwrap_or(0);
        message.truncate(end);
    }
    message
}
