//! Jobs on other machines: a client asks a server to run a job of some kind, and gets an answer.
//!
//! A job is a small request and blobs. The server runs it in a child process, because the code in it may crash or hang. What the
//! kinds are is not known here: the program that serves says how its child processes are started, and these call [`worker::work`]
//! with a function from request and blobs to an answer.
//!
//! # The protocol
//! 1. *Preamble*: both sides send [`MAGIC`] and the version of the protocol. These eight bytes are alike in all versions.
//! 2. *Hello*: both say the version of their program, send a nonce, and say whether they have a token.
//! 3. *Proof*: with a token, the client and then the server prove that they know it, by an HMAC over both hellos. The token
//!    itself is never sent. The server then tells what machine it is.
//! 4. *Requests*: one at a time. Uploads and jobs need a lease, which one client has at a time; others wait in a queue.
//! 5. *Heartbeats*: a client sends one every few seconds, and the server answers it. Who hears nothing for too long ends the
//!    connection; a server then takes the lease back and kills the child. The server says how long that is.
//!
//! All of it is in frames: a length, a kind, and the bytes. A frame that is longer than its limit ends the connection before
//! anything is allocated for it. What goes over the wire is authenticated at its beginning and not encrypted.

mod blob;
mod child;
mod client;
mod error;
mod fault;
mod frame;
mod handshake;
mod lease;
mod machine;
mod message;
mod peer;
mod server;
mod session;
mod shared;
mod store;
mod token;
pub mod worker;

use std::time::Duration;

pub use blob::{Blob, Digest};
pub use client::{Client, Job, Lease, Made};
pub use error::{ClientError, ServeError};
pub use fault::Fault;
pub use frame::FrameError;
pub use handshake::HandshakeError;
pub use machine::{Machine, Status};
pub use server::{Config, Server, Stopper};
pub use shared::Limits;
pub use token::{TOKEN_VARIABLE, Token, TokenError};

/// What both sides of a connection send first, before the version of the protocol.
pub const MAGIC: [u8; 6] = *b"TWRPC\0";

/// The version of the protocol.
pub const PROTOCOL: u16 = 1;

/// How long a side may be silent until the other ends the connection, unless the server's limits say otherwise.
pub const SILENCE: Duration = Duration::from_secs(30);
