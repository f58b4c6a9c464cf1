//! What goes wrong between a client and a server, with both of them named.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::blob::Digest;
use crate::frame::FrameError;
use crate::handshake::HandshakeError;
use crate::token::TOKEN_VARIABLE;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Its file cannot be read.
    #[error("cannot read the token in {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is too short to protect anything, or too long.
    #[error("a token of {bytes} bytes: give {least} to {most}, as `openssl rand -hex 32` makes them")]
    Length {
        /// Its bytes.
        bytes: usize,
        /// Fewest.
        least: usize,
        /// Most.
        most: usize,
    },
}

/// Why a server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Others than this machine would reach it, and it has no token.
    #[error(
        "{address} is reached from other machines, and whoever reaches a server runs code on it: give a token by --token-file or \
         {TOKEN_VARIABLE}, or serve on 127.0.0.1 behind a tunnel"
    )]
    Open {
        /// Where it would listen.
        address: SocketAddr,
    },
    /// The address is none, or taken.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// No folder for blobs.
    #[error("no folder for uploads: {0}")]
    Store(io::Error),
}

/// Why a server does not do what it is asked for. The connection stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Fault {
    /// What needs a lease was asked without one.
    #[error("uploads and jobs need a lease")]
    NoLease,
    /// A job runs already.
    #[error("a job of this client runs already")]
    Busy,
    /// Too many wait for the machine.
    #[error("{waiting} clients wait for the machine, which is the most: try again later")]
    QueueFull {
        /// Clients that wait.
        waiting: u32,
    },
    /// A blob that no eviction makes room for.
    #[error(
        "no room for {bytes} bytes: uploads may have {limit} bytes together, and {used} of them belong to this job"
    )]
    NoRoom {
        /// Bytes of the blob.
        bytes: u64,
        /// Most bytes of all blobs.
        limit: u64,
        /// Bytes that cannot be given up.
        used: u64,
    },
    /// What came is not what was announced.
    #[error("announced was the blob {announced}, and what came is {came}")]
    WrongDigest {
        /// The digest announced.
        announced: Digest,
        /// The digest of what came.
        came: Digest,
    },
    /// A job without a blob that it needs.
    #[error("the blob {0} is not there: it was never uploaded, or had to make room")]
    LacksBlob(Digest),
    /// The file system of the server.
    #[error("uploads cannot be kept: {0}")]
    Store(String),
    /// A kind of job that the server does not run.
    #[error("no jobs of the kind `{kind}`: there are {}", known.join(", "))]
    NoKind {
        /// The kind asked for.
        kind: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The child process cannot be started.
    #[error("no process for the job: {0}")]
    Start(String),
    /// The job says that it failed.
    #[error("{message}")]
    Failed {
        /// The exit code that the same failure has where nothing is remote.
        code: u8,
        /// What the user is told.
        message: String,
    },
    /// The child process ended without an answer.
    #[error("the process of the job ended: {0}")]
    Died(String),
    /// The child process was killed because it took too long.
    #[error("the job took more than {} s, and its process was killed", *limit_ms as f64 / 1e3)]
    Hung {
        /// How long it had, in milliseconds.
        limit_ms: u64,
    },
    /// The server is being ended, or the client has gone.
    #[error("the job was cancelled")]
    Cancelled,
}

/// Why a client has no answer. All name the server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing is reached there.
    #[error("cannot reach {server}: {error}: is a server running there?")]
    Connect {
        /// The server.
        server: String,
        /// What the system says.
        error: io::Error,
    },
    /// The two do not get along.
    #[error("{server}: {error}")]
    Handshake {
        /// The server.
        server: String,
        /// Why.
        error: HandshakeError,
    },
    /// The connection does not hold.
    #[error("{server}: {error}")]
    Frame {
        /// The server.
        server: String,
        /// Why.
        error: FrameError,
    },
    /// An answer that does not belong to the question.
    #[error("{server}: the server answers {got}, where {expected} belongs")]
    Unexpected {
        /// The server.
        server: String,
        /// What it answers.
        got: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// The server refuses, or the job failed.
    #[error("{server}: {fault}")]
    Fault {
        /// The server.
        server: String,
        /// Why.
        fault: Fault,
    },
    /// A blob cannot be read here.
    #[error("cannot read what {server} lacks: {error}")]
    Blob {
        /// The server.
        server: String,
        /// What the system says.
        error: io::Error,
    },
    /// A file changed while it was uploaded.
    #[error("a file changed while it was uploaded to {server}")]
    Changed {
        /// The server.
        server: String,
    },
    /// More than is taken of a server.
    #[error("{server} answers with {bytes} bytes, and {limit} are the most")]
    TooMuch {
        /// The server.
        server: String,
        /// Bytes that it announces.
        bytes: u64,
        /// Most bytes.
        limit: u64,
    },
    /// No thread can be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}
