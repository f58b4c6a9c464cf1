//! What a server tells a client that asked for what it does not do.

use serde::{Deserialize, Serialize};

use crate::blob::Digest;

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
