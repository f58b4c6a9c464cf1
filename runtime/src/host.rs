//! Host operators: the short list of operators that are Rust code instead of kernels.

use alloc::string::String;
use alloc::vec::Vec;

use tilewright_dtype::DType;

use crate::exec::HostCall;
use crate::told::told;
use crate::value::Value;

/// A registry of host operators, given to the loader.
pub trait HostOps: Send + Sync {
    /// Whether the registry has the operator. A model that needs one it has not is refused at load.
    fn supports(&self, op: u16) -> bool;

    /// Runs an operator: reads the operands, then gives all results at once ([`HostCall::give`]), or sets all
    /// computed sizes and takes and fills each buffer.
    ///
    /// # Errors
    /// A message for the user when the values of the inputs are not acceptable.
    fn call(&self, op: u16, call: &mut HostCall<'_>) -> Result<(), HostError>;
}

/// The registry with no operators.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHostOps;

impl HostOps for NoHostOps {
    fn supports(&self, _op: u16) -> bool {
        false
    }

    fn call(&self, op: u16, _call: &mut HostCall<'_>) -> Result<(), HostError> {
        Err(HostError::Message(told(|| alloc::format!("no host operator {op}"))))
    }
}

/// A host operator that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostError {
    /// The inputs are not acceptable; for the user.
    Message(String),
    /// The executor could not serve the operator.
    Run(crate::RunError),
}

impl From<String> for HostError {
    fn from(message: String) -> HostError {
        HostError::Message(message)
    }
}

impl From<&str> for HostError {
    fn from(message: &str) -> HostError {
        HostError::Message(message.into())
    }
}

impl From<crate::RunError> for HostError {
    fn from(error: crate::RunError) -> HostError {
        HostError::Run(error)
    }
}

/// What random numbers of one call follow from, beside the operator's attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// The session's seed.
    pub seed: u64,
    /// How often the session has drawn from the stream before.
    pub count: u64,
}

/// An operand of a host operator.
#[derive(Clone, Debug)]
pub enum HostArg<'a> {
    /// An optional one that is not there.
    Absent,
    /// A tensor in a buffer.
    Tensor(HostTensor<'a>),
    /// A host value.
    Value(Value),
}

/// An operand of a host operator that is a tensor.
#[derive(Clone, Debug)]
pub struct HostTensor<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub dims: Vec<usize>,
    /// Elements in row-major order, without padding.
    pub bytes: &'a [u8],
}

/// A result of a host operator.
#[derive(Debug)]
pub struct HostTensorMut<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub dims: Vec<usize>,
    /// Elements in row-major order, without padding; contents unspecified until written.
    pub bytes: &'a mut [u8],
}
