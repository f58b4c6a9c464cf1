//! What goes wrong between a client and a server, with both of them named.

use std::io;
use std::net::SocketAddr;

use crate::fault::Fault;
use crate::frame::FrameError;
use crate::handshake::HandshakeError;
use crate::token::TOKEN_VARIABLE;

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
        got: &'static str,
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
