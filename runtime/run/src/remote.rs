//! Models on other machines: what a client asks for, and what the process does that a server starts for it.
//!
//! [`tilewright_rpc`] has the connection, leases and uploads. Here is what jobs are: a run, a measurement, a profile. A job is a function of
//! its request and its blobs, the first of which is the artifact; the others are values of inputs.
//!
//! Loading an artifact executes its code. So whoever may ask a server may run any code there, with all that its user may do.

mod client;
mod error;
mod jobs;
mod model;
mod serve;
mod values;

pub use client::{Access, Remote};
pub use error::RemoteError;
pub use jobs::{How, JobFailure, work};
pub use model::RemoteModel;
pub use serve::{PORT, Serve, ServeFailure, serve};
pub use tilewright_rpc::{
    ClientError, Fault, Limits, Machine, ServeError, Status, TOKEN_VARIABLE, Token, TokenError,
};

/// The version that both sides must have: requests are told in its types.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
