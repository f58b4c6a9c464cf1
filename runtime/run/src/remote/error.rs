//! Why a model on another machine gives nothing.

use std::path::PathBuf;

use tilewright_rpc::{ClientError, Fault, HandshakeError, ServeError, TokenError};
use tilewright_runtime::artifact::ArtifactError;

use crate::exit::Exit;
use crate::files::PbError;
use crate::measure::{BlobError, RequestError};

/// Why a model on another machine gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The server, the way to it, or the job.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The artifact is for another machine than the server's.
    #[error("{server} is {machine}, and {} is for {code}: compile it with --target for that machine", path.display())]
    OtherMachine {
        /// The server.
        server: String,
        /// What machine it is.
        machine: String,
        /// The artifact.
        path: PathBuf,
        /// What it has code for.
        code: String,
    },
    /// The artifact cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The artifact.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// It is none, or damaged.
    #[error("{}: {error}", path.display())]
    Artifact {
        /// The artifact.
        path: PathBuf,
        /// What is wrong with it.
        error: ArtifactError,
    },
    /// A request that cannot be told.
    #[error("cannot tell {server} what to do: {error}")]
    Request {
        /// The server.
        server: String,
        /// Why.
        error: postcard::Error,
    },
    /// An answer that makes no sense.
    #[error("{server} answers what makes no sense: {error}")]
    Answer {
        /// The server.
        server: String,
        /// Why.
        error: postcard::Error,
    },
    /// A measurement that cannot be told.
    #[error("cannot tell a measurement: {0}")]
    Json(serde_json::Error),
    /// A schedule that is to be measured is not there.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// An answer that is none to the measurement.
    #[error("{server}: {error}")]
    Measurement {
        /// The server.
        server: String,
        /// Why.
        error: RequestError,
    },
    /// Outputs that cannot be read.
    #[error("{server} answers with outputs that cannot be read: {error}")]
    Outputs {
        /// The server.
        server: String,
        /// Why.
        error: PbError,
    },
}

impl RemoteError {
    /// The exit code of a program that fails so: that of the same failure without another machine, where there is one.
    pub fn exit_code(&self) -> u8 {
        let exit = match self {
            RemoteError::Client(ClientError::Fault { fault: Fault::Failed { code, .. }, .. }) => {
                return *code;
            }
            RemoteError::Client(error) => exit_of(error),
            RemoteError::Token(TokenError::Read { .. }) | RemoteError::Read { .. } => Exit::Io,
            RemoteError::Token(TokenError::Length { .. }) => Exit::Usage,
            RemoteError::OtherMachine { .. } | RemoteError::Artifact { .. } => Exit::Data,
            RemoteError::Blob(_) => Exit::Io,
            RemoteError::Request { .. }
            | RemoteError::Json(_)
            | RemoteError::Answer { .. }
            | RemoteError::Measurement { .. }
            | RemoteError::Outputs { .. } => Exit::Internal,
        };
        exit as u8
    }
}

fn exit_of(error: &ClientError) -> Exit {
    match error {
        ClientError::Handshake { error, .. } => match error {
            HandshakeError::Protocol { .. } | HandshakeError::Version { .. } => Exit::Unsupported,
            HandshakeError::NoClientToken
            | HandshakeError::NoServerToken
            | HandshakeError::WrongToken
            | HandshakeError::WrongClientToken
            | HandshakeError::Impostor => Exit::Usage,
            HandshakeError::Full { .. } => Exit::Limit,
            HandshakeError::Foreign | HandshakeError::Random(_) | HandshakeError::Frame(_) => Exit::Io,
        },
        ClientError::Fault { fault, .. } => match fault {
            Fault::QueueFull { .. } | Fault::NoRoom { .. } => Exit::Limit,
            Fault::NoKind { .. } => Exit::Unsupported,
            Fault::NoLease | Fault::Busy | Fault::WrongDigest { .. } | Fault::LacksBlob(_) => Exit::Internal,
            Fault::Failed { .. }
            | Fault::Store(_)
            | Fault::Start(_)
            | Fault::Died(_)
            | Fault::Hung { .. }
            | Fault::Cancelled => Exit::Io,
        },
        ClientError::TooMuch { .. } | ClientError::Thread(_) => Exit::Limit,
        ClientError::Unexpected { .. } => Exit::Internal,
        ClientError::Connect { .. }
        | ClientError::Frame { .. }
        | ClientError::Blob { .. }
        | ClientError::Changed { .. } => Exit::Io,
    }
}

impl From<&ServeError> for Exit {
    fn from(error: &ServeError) -> Exit {
        match error {
            ServeError::Open { .. } => Exit::Usage,
            ServeError::Listen { .. } | ServeError::Store(_) => Exit::Io,
        }
    }
}
