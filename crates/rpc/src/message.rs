//! What client and server say to each other behind the preamble.

use serde::{Deserialize, Serialize};

use crate::blob::Digest;
use crate::fault::Fault;
use crate::machine::{Machine, Status};

/// What a client says first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClientHello {
    pub(crate) version: String,
    pub(crate) nonce: [u8; 32],
    pub(crate) has_token: bool,
}

/// What a server says first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ServerHello {
    /// It listens.
    Ready { version: String, nonce: [u8; 32], has_token: bool },
    /// It has so many connections, and takes no more.
    Full { connections: u32 },
}

/// That a client knows the token, where there is one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Proof(pub(crate) Option<[u8; 32]>);

/// What a server says of the client's proof.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Welcome {
    /// The client may ask. With a token, the server proves that it knows it too. A client that says nothing for so long is gone.
    Come { proof: Option<[u8; 32]>, silence_ms: u64, machine: Machine },
    /// The proof is wrong.
    WrongToken,
}

/// What a client asks for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToServer {
    /// Nothing: it is there.
    Beat,
    /// Who uses the machine.
    Status,
    /// To have the machine.
    Lease,
    /// To have it no longer.
    Release,
    /// Which of the blobs that its next job needs are not there. These are kept until it asks again.
    Lacks(Vec<Digest>),
    /// To keep a blob, which follows in pieces once the server agrees.
    Put { digest: Digest, bytes: u64 },
    /// To run a job.
    Job { kind: String, request: Vec<u8>, blobs: Vec<Digest>, limit_ms: u64 },
}

/// What a server answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToClient {
    /// To a heartbeat.
    Beat,
    /// Who uses the machine.
    Status(Status),
    /// So many clients have the machine before this one.
    Queued { ahead: u32 },
    /// The client has the machine.
    Granted,
    /// It has it no longer.
    Released,
    /// These of the blobs, by their places in the question, are not there.
    Lacks(Vec<u32>),
    /// The pieces of the blob may come.
    Agreed,
    /// The blob is kept.
    Stored,
    /// The job's answer, and how many bytes the blobs of it have, which follow in pieces.
    Done { answer: Vec<u8>, blobs: Vec<u64> },
    /// What was asked for is not done.
    Fault(Fault),
}

impl ToClient {
    /// What it is, for who expects something else.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ToClient::Beat => "a heartbeat",
            ToClient::Status(_) => "the status",
            ToClient::Queued { .. } | ToClient::Granted => "a place in the queue",
            ToClient::Released => "a release",
            ToClient::Lacks(_) => "what it lacks",
            ToClient::Agreed => "that a blob may come",
            ToClient::Stored => "that a blob is kept",
            ToClient::Done { .. } => "the answer of a job",
            ToClient::Fault(_) => "a fault",
        }
    }
}
