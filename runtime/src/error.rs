//! What can go wrong when a model runs.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use tilewright_dtype::DType;

use crate::device::DeviceError;
use crate::memory::OutOfMemory;
use crate::plan::{BufferId, Cmp, HostId, SizeId};
use crate::tensor::TensorError;

/// One problem with the tensors a caller gave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// What is given does not fit: all that a runtime without the feature `messages` says of it.
    #[error("the inputs do not fit the model")]
    Unfit,
    /// An input of the model was not given.
    #[error("input {name:?} is missing")]
    Missing {
        /// Its name.
        name: String,
    },
    /// More tensors than the model has inputs (or outputs).
    #[error("{given} {what} given, the model has {expected}")]
    TooMany {
        /// `inputs` or `outputs`.
        what: &'static str,
        /// Tensors given.
        given: usize,
        /// Tensors of the model.
        expected: usize,
    },
    /// A name that the model does not have.
    #[error("the model has no input {name:?} (it has {known})")]
    Unknown {
        /// The name given.
        name: String,
        /// The model's names, for the message.
        known: String,
    },
    /// The same input twice.
    #[error("input {name:?} is given twice")]
    Duplicate {
        /// Its name.
        name: String,
    },
    /// Another element type.
    #[error("{name:?}: expected element type {expected}, got {got}")]
    DType {
        /// Name of the input or output.
        name: String,
        /// By the model.
        expected: DType,
        /// As given.
        got: DType,
    },
    /// Another number of axes.
    #[error("{name:?}: expected {expected} axes, got {got}")]
    Rank {
        /// Name of the input or output.
        name: String,
        /// By the model.
        expected: usize,
        /// As given.
        got: usize,
    },
    /// Another extent.
    #[error("{name:?}: axis {axis} must be {}, got {got}", Named(symbol, expected))]
    Dim {
        /// Name of the input or output.
        name: String,
        /// Axis.
        axis: usize,
        /// The symbolic name of the extent, if it has one.
        symbol: Option<String>,
        /// By the model and the other inputs; `None` where it cannot be computed.
        expected: Option<i64>,
        /// As given.
        got: usize,
    },
    /// A value of another type.
    #[error("{name:?}: expected {expected}, got a value of another type")]
    Value {
        /// Name of the input.
        name: String,
        /// The type by the model.
        expected: String,
    },
    /// What is given cannot be made a tensor.
    #[error("{name:?}: {error}")]
    Tensor {
        /// Name of the input.
        name: String,
        /// Why.
        error: TensorError,
    },
    /// An extent outside what the model was compiled for.
    #[error("{}{name} is {got}, but the model was compiled for {}{}", OfInput(input), Range(*min, *max, *step), Wider(name, *min, *max, *got))]
    Bounds {
        /// Name of the size: of the open dimension.
        name: String,
        /// The first input, and the axis of it, that have this extent; nothing where it is no extent by itself.
        input: Option<(String, u32)>,
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: Option<i64>,
        /// Distance of values.
        step: i64,
        /// As given.
        got: i64,
    },
    /// The number of bytes does not follow from type and extents.
    #[error("{name:?}: type and extents need {expected} bytes, got {got}")]
    Bytes {
        /// Name of the input or output.
        name: String,
        /// By type and extents.
        expected: u64,
        /// As given.
        got: usize,
    },
    /// A tensor on a device, for a model that has none.
    #[cfg(feature = "devices")]
    #[error("{name:?} is on a device, and the model runs on the processor")]
    NoDevice {
        /// Name of the input or output.
        name: String,
    },
    /// A tensor on a device whose elements are not aligned.
    #[error("{name:?}: address {address:#x} is not a multiple of {align}, as elements of {dtype} need")]
    #[cfg(feature = "devices")]
    Address {
        /// Name of the input or output.
        name: String,
        /// Where it is.
        address: u64,
        /// Its element type.
        dtype: DType,
        /// Bytes of an element.
        align: usize,
    },
    /// An output on a device that shares memory with another tensor of the run.
    #[cfg(feature = "devices")]
    #[error("output {name:?} shares memory on the device with {other:?}")]
    Shared {
        /// Name of the output.
        name: String,
        /// Name of the other one.
        other: String,
    },
}

struct Named<'a>(&'a Option<String>, &'a Option<i64>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Some(name), Some(value)) => write!(f, "{name} = {value}"),
            (Some(name), None) => write!(f, "{name}, which these inputs leave undefined"),
            (None, Some(value)) => write!(f, "{value}"),
            (None, None) => f.write_str("a size that these inputs leave undefined"),
        }
    }
}

struct Range(i64, Option<i64>, i64);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(max) => write!(f, "{} to {max}", self.0)?,
            None => write!(f, "at least {}", self.0)?,
        }
        if self.2 > 1 { write!(f, " in steps of {}", self.2) } else { Ok(()) }
    }
}

struct OfInput<'a>(&'a Option<(String, u32)>);

impl fmt::Display for OfInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((input, axis)) => write!(f, "{input:?}: axis {axis}, "),
            None => f.write_str("size "),
        }
    }
}

/// What to do about an extent outside of the bounds.
struct Wider<'a>(&'a str, i64, Option<i64>, i64);

impl fmt::Display for Wider<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wider(name, min, max, got) = *self;
        match max {
            Some(max) if got < min || got > max => {
                let (min, max) = (min.min(got), max.max(got));
                write!(f, ": compile it with wider bounds, as --dim {name}={min}..{max}")
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// All problems with the tensors given to one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputErrors(pub Vec<InputError>);

impl fmt::Display for InputErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// A run that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The tensors given do not fit the model.
    #[error("{0}")]
    Inputs(InputErrors),
    /// An assumption under which the model was compiled does not hold for these inputs.
    #[error("{message} (needs {lhs} {} {rhs}{}{nodes})", cmp.symbol(), if nodes.is_empty() { "" } else { "; " })]
    Guard {
        /// What is assumed.
        message: String,
        /// Left side.
        lhs: i64,
        /// Comparison.
        cmp: Cmp,
        /// Right side.
        rhs: i64,
        /// Nodes of the model; empty for what is checked before the first one.
        nodes: String,
    },
    /// A host operator failed.
    #[error("{nodes}: {message}")]
    Host {
        /// Why.
        message: String,
        /// Nodes of the model.
        nodes: String,
    },
    /// The run was asked to stop, and did before its next instruction.
    #[error("the run was cancelled")]
    Cancelled,
    /// The memory limit of the session would be passed.
    #[error("the run needs at least {bytes} bytes, the limit is {limit}")]
    Limit {
        /// Bytes needed as far as the run came: later instructions may need more.
        bytes: u64,
        /// [`SessionOptions::memory_limit`](crate::SessionOptions::memory_limit).
        limit: u64,
    },
    /// The machine has no such memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The device has no such memory, or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An instruction that cannot be executed with the sizes at hand: a mistake in the plan, or sizes that overflow.
    #[error("{nodes}: {fault}")]
    Plan {
        /// What.
        fault: ExecFault,
        /// Nodes of the model; empty outside instructions.
        nodes: String,
    },
}

/// Why an instruction cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecFault {
    /// A size that was not computed, or whose arithmetic fails.
    #[error("size {0} is undefined")]
    Undefined(SizeId),
    /// A negative number of bytes, elements or tasks.
    #[error("size {0} is negative")]
    Negative(SizeId),
    /// A buffer that is larger than the memory it lies in.
    #[error("buffer {0} exceeds its memory")]
    Exceeds(BufferId),
    /// A buffer whose extents need more bytes than it has.
    #[error("the extents of buffer {0} exceed its bytes")]
    Shape(BufferId),
    /// A buffer that is less aligned than its kernel assumes.
    #[error("buffer {0} is not aligned as its kernel assumes")]
    Misaligned(BufferId),
    /// A copy between buffers of different sizes.
    #[error("copy of {0} to {1}, which differs in size")]
    CopySize(BufferId, BufferId),
    /// An element outside a buffer.
    #[error("element {1} is outside buffer {0}")]
    Element(BufferId, u32),
    /// A host value that was not made yet.
    #[error("value {0} does not exist")]
    NoValue(HostId),
    /// An extent asked of a host value that is no tensor with this axis.
    #[error("value {0} has no extent {1}")]
    NoExtent(HostId, u32),
    /// A host operator whose result overlaps one of its other buffers.
    #[error("buffer {0} overlaps another buffer of the operator")]
    Overlap(BufferId),
}
