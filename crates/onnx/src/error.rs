//! Errors of reading a model: files, protobuf, external data and tensors.

use std::path::PathBuf;

use tilewright_dtype::DType;

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
}

/// Why a `TensorProto` could not be turned into a tensor.
#[derive(Debug, thiserror::Error)]
#[error("tensor `{name}`: {reason}")]
pub struct TensorError {
    /// Name of the tensor; may be empty.
    pub name: String,
    /// What is wrong with it.
    pub reason: TensorFault,
}

/// What is wrong with a `TensorProto`.
#[derive(Debug, thiserror::Error)]
pub enum TensorFault {
    /// The element type is none that ONNX defines.
    #[error("unknown element type {0}")]
    UnknownType(i32),
    /// The element type exists in ONNX but not in the compiler.
    #[error("element type {0} is not supported")]
    UnsupportedType(&'static str),
    /// An extent is negative, or the number of bytes exceeds the address space.
    #[error("impossible extents {0:?}")]
    Extents(Vec<i64>),
    /// Data and extents contradict each other.
    #[error("{dtype}{dims:?} takes {expected} {unit}, but {got} are there")]
    Size {
        /// Element type.
        dtype: DType,
        /// Extents.
        dims: Vec<usize>,
        /// `bytes` or `elements`.
        unit: &'static str,
        /// Number needed.
        expected: usize,
        /// Number found.
        got: usize,
    },
    /// Segmented tensors were never specified to the point of being usable.
    #[error("segmented tensors are not supported")]
    Segmented,
    /// A sparse tensor whose dense form would be too large.
    #[error("the dense form of the sparse tensor takes {0} bytes, over the limit of {limit}", limit = crate::tensor::MAX_DENSE_BYTES)]
    SparseTooLarge(usize),
    /// A sparse tensor whose parts do not fit together.
    #[error("malformed sparse tensor: {0}")]
    Sparse(&'static str),
    /// The data is in another file and that file cannot be used.
    #[error("external data `{location}`: {reason}")]
    External {
        /// The file named by the tensor, relative to the model's folder.
        location: String,
        /// Why it cannot be used.
        reason: ExternalFault,
    },
}

/// Why external data cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExternalFault {
    /// The tensor does not name a file.
    #[error("no `location` is given")]
    NoLocation,
    /// The model came from memory, so that relative paths lead nowhere.
    #[error("the model was not loaded from a file")]
    NoFolder,
    /// An absolute path, or one with `..`.
    #[error("the path leads outside the model's folder")]
    Outside,
    /// A symbolic link that ends outside the model's folder.
    #[error("a symbolic link leads outside the model's folder, to {}", .0.display())]
    LinkOutside(PathBuf),
    /// A folder, pipe or device.
    #[error("not a regular file")]
    NotAFile,
    /// The file could not be opened or mapped.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// `offset` or `length` is not a non-negative number.
    #[error("`{key}` is `{value}`, not a number of bytes")]
    NotANumber {
        /// `offset` or `length`.
        key: &'static str,
        /// The text given.
        value: String,
    },
    /// `length` contradicts extents and element type.
    #[error("`length` is {length}, but the tensor takes {expected} bytes")]
    Length {
        /// The length given.
        length: usize,
        /// Bytes of the tensor.
        expected: usize,
    },
    /// The file is shorter than the tensor's place in it.
    #[error("bytes {offset}..{end} are needed, but the file has {size}")]
    PastEnd {
        /// First byte of the tensor.
        offset: usize,
        /// End of the tensor.
        end: u128,
        /// Size of the file.
        size: usize,
    },
}
