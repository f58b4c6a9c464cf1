//! Errors of reading a model: files and protobuf. Those of its tensors are [`TensorError`](crate::proto::TensorError)s.

use std::path::PathBuf;

/// Why a file could not be read as an ONNX model.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// The file could not be opened or mapped.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The path leads to a folder, pipe or device.
    #[error("{}: not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The bytes are not a protobuf `ModelProto`.
    #[error("not an ONNX model: {hint}")]
    NotOnnx {
        /// What the bytes look like.
        hint: String,
    },
    /// The file starts as an ONNX model but ends too early.
    #[error(
        "the ONNX model is truncated: field {field} at byte {offset} needs {needed} bytes, {available} are left"
    )]
    Truncated {
        /// Number of the `ModelProto` field that is cut.
        field: u64,
        /// Where the field's payload starts.
        offset: usize,
        /// Length of the payload.
        needed: u64,
        /// Bytes up to the end of the file.
        available: usize,
    },
    /// The file starts as an ONNX model but a field of it is damaged.
    #[error("the ONNX model is damaged: {0}")]
    Damaged(#[from] prost::DecodeError),
    /// A valid `ModelProto` without a graph.
    #[error("the ONNX model has no graph")]
    NoGraph,
    /// The model declares an IR version outside the known ones.
    #[error("the ONNX model has IR version {version}; versions 1 to {newest} are known", newest = crate::proto::MAX_IR_VERSION)]
    IrVersion {
        /// The declared version.
        version: i64,
    },
    /// A model that protobuf has no room for in one file.
    #[error("the ONNX model would have {bytes} bytes; a file of protobuf has {most} at most", most = i32::MAX)]
    TooLarge {
        /// What it would have.
        bytes: usize,
    },
}
