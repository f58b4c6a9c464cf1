//! The protobuf messages of ONNX (IR version 14), as code generated from `proto/*.proto`, and [`tensor`]: the tensors in
//! them.
//!
//! The schema files carry the documentation of messages and fields. Byte fields are [`bytes::Bytes`]: decoded
//! from a `Bytes`, they share its memory, so that weights stay slices of the mapped file.

mod error;
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, reason = "generated; documented in proto/*.proto")]
#[allow(clippy::all, clippy::pedantic, reason = "generated")]
mod generated;
pub mod tensor;

pub use error::{ExternalFault, TensorError, TensorFault};
pub use generated::*;

/// The newest IR version whose fields and semantics Tilewright knows.
pub const MAX_IR_VERSION: i64 = Version::IrVersion as i64;

/// The newest version of the default operator set that Tilewright knows.
pub const MAX_OPSET: i64 = 28;
