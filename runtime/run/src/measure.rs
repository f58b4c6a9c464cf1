//! Measurements of schedules, as a function of requests.
//!
//! A [`Request`] names two schedules of one function by the digests of their artifacts, and says how they are measured. A [`Bench`]
//! answers it with [`Times`], given the bytes behind the digests ([`Blobs`]). No compiler is needed, and nothing else decides the
//! answer but the machine: whoever compiles a candidate may measure it in this process, or have another machine do it.
//!
//! Artifacts are code, which runs with all that the process may do: requests must come from somebody who may have code run here.
//!
//! - [`times`]: what a measurement gives, or why it gives nothing.
//! - [`request`]: requests and answers, as data.
//! - [`blobs`]: digests, and where the bytes behind them come from.
//! - [`made_up`]: data that functions are measured on.
//! - [`turns`]: runs of two schedules by turns.
//! - [`repeat`]: plans that run their function several times at once.
//! - [`bench`]: the function itself, with what it keeps from one request to the next.
//! - [`files`]: requests as files.

pub mod bench;
pub mod blobs;
pub mod files;
pub mod made_up;
pub mod repeat;
pub mod request;
pub mod times;
pub mod turns;

pub use bench::Bench;
pub use blobs::{BlobError, BlobFolder, BlobId, Blobs};
pub use request::{Answer, Check, Contents, Padding, Request, RequestError, Schedule, Work};
pub use times::{Effort, MeasureError, Times};
