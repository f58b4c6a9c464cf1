//! Why tensors cannot be read from files or written to them.

use std::io;
use std::path::{Path, PathBuf};

use prost::DecodeError;
use tilewright_proto::TensorError as TensorMessageError;
use tilewright_runtime::TensorError;

use super::npy::NpyError;

/// Why tensors could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// What the system says of reading.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// What the system says of writing.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// No archive, or a damaged one.
    #[error("{}: not an .npz file: {reason}", path.display())]
    NotNpz {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An array of an archive that cannot be read.
    #[error("{}: array {array:?}: {error}", path.display())]
    Array {
        /// The archive.
        path: PathBuf,
        /// The array.
        array: String,
        /// What is wrong with it.
        error: NpyError,
    },
    /// Two arrays of an archive have one name.
    #[error("{}: array {array:?} occurs twice", path.display())]
    Twice {
        /// The archive.
        path: PathBuf,
        /// The name.
        array: String,
    },
    /// One array in a file of its own that cannot be read.
    #[error("{}: {error}", path.display())]
    Npy {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: NpyError,
    },
    /// One array, which has no name, where there are several tensors or none.
    #[error("{}: one array without a name, for {n} tensors: give an .npz", path.display())]
    NoName {
        /// The file.
        path: PathBuf,
        /// How many there are.
        n: usize,
    },
    /// A message that cannot be read.
    #[error("{}: {error}", path.display())]
    Pb {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: PbError,
    },
    /// A value that arrays cannot hold, such as a sequence.
    #[error("output {output:?} is {form}, which {} cannot carry: give a folder", format.name())]
    NoArray {
        /// The output.
        output: String,
        /// What it is.
        form: String,
        /// The format.
        format: Format,
    },
    /// Strings, which arrays do not hold.
    #[error("output {output:?} holds strings, which {} cannot carry: give a folder", format.name())]
    Strings {
        /// The output.
        output: String,
        /// The format.
        format: Format,
    },
}

/// Why a message is no value of a model.
#[derive(Debug, thiserror::Error)]
pub enum PbError {
    /// The bytes are not the message that the model's type asks for.
    #[error("not a {expected}: {error}")]
    Message {
        /// The message expected.
        expected: &'static str,
        /// What is wrong with the bytes.
        error: DecodeError,
    },
    /// A tensor of the message that is none.
    #[error(transparent)]
    Tensor(#[from] Box<TensorMessageError>),
    /// A string that is not UTF-8.
    #[error("element {0} is not UTF-8")]
    Utf8(usize),
    /// A sequence of other items than the model's type says.
    #[error("the items of the sequence are not of the model's type")]
    Items,
    /// An optional that holds something else than the model's type says.
    #[error("what the optional holds is not of the model's type")]
    Held,
    /// A tensor that cannot be made: there is no memory for it.
    #[error(transparent)]
    Made(#[from] TensorError),
}

/// Formats of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One array.
    Npy,
    /// Named arrays.
    Npz,
    /// A folder of ONNX's messages, one a file.
    Pb,
}

impl Format {
    /// The format that a path asks for where it is written: by its ending, unless it is a folder.
    pub fn of_path(path: &Path) -> Format {
        let ending = path.extension().filter(|_| !path.is_dir());
        match ending.and_then(|ending| ending.to_str()) {
            Some("npy") => Format::Npy,
            Some("npz") => Format::Npz,
            Some(_) | None => Format::Pb,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Format::Npy => ".npy",
            Format::Npz => ".npz",
            Format::Pb => ".pb",
        }
    }
}
