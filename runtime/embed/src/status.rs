//! What the functions of a library return.

use tilewright_runtime::{LoadError, RunError};

/// What became of a call. The header that the compiler writes has these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// It succeeded.
    Done = 0,
    /// An address is null.
    Null = 1,
    /// An address is not a multiple of what it has to be.
    Misaligned = 2,
    /// The memory has too few bytes.
    Memory = 3,
    /// The inputs' extents are not such as the model takes.
    Extents = 4,
    /// An output has room for fewer bytes than it has.
    Room = 5,
    /// A condition does not hold under which the model was compiled.
    Condition = 6,
    /// The memory holds no model that was opened.
    Closed = 7,
    /// Another call is at work with this memory, or too many are at work at all.
    Busy = 8,
    /// A defect of the library.
    Defect = 9,
}

impl From<RunError> for Status {
    fn from(error: RunError) -> Status {
        match error {
            RunError::Inputs(_) => Status::Extents,
            RunError::Guard { .. } => Status::Condition,
            RunError::Memory(_) | RunError::Limit { .. } => Status::Memory,
            // Sizes that overflow.
            RunError::Plan { .. } => Status::Extents,
            RunError::Host { .. } | RunError::Cancelled | RunError::Device(_) => Status::Defect,
        }
    }
}

impl From<LoadError> for Status {
    fn from(_: LoadError) -> Status {
        Status::Defect
    }
}
