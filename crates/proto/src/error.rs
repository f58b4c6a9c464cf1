//! Errors of the tensors in messages.

use std::path::PathBuf;

use tilewright_dtype::DType;

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
        end: u64,
        /// Size of the file.
        size: usize,
    },
}
