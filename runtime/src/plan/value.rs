//! Values that are no plain tensors in buffers: sequences, optionals, strings, tensors of open rank.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};
use tilewright_dtype::DType;

use super::ids::{BufferId, HostId};

/// Deepest nesting of a type: values are walked by recursion.
pub const MAX_NESTING: usize = 32;

/// What a value is before it is a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Nesting {
    /// A list.
    Sequence,
    /// Something or nothing.
    Optional,
}

/// The type of a host value. Flat, so that no damaged plan makes its reader recurse.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ValueType {
    /// What is around the tensor, outermost first; at most [`MAX_NESTING`] of them.
    pub nesting: Vec<Nesting>,
    /// Element type of the tensor in the middle.
    pub dtype: DType,
    /// Its extents, `None` for one that is open; `None` where even their number is.
    pub dims: Option<Vec<Option<u64>>>,
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for nesting in &self.nesting {
            f.write_str(match nesting {
                Nesting::Sequence => "seq(",
                Nesting::Optional => "opt(",
            })?;
        }
        write!(f, "{}[", self.dtype)?;
        match &self.dims {
            None => f.write_str("*")?,
            Some(dims) => {
                for (axis, dim) in dims.iter().enumerate() {
                    f.write_str(if axis == 0 { "" } else { ", " })?;
                    match dim {
                        Some(dim) => write!(f, "{dim}")?,
                        None => f.write_str("?")?,
                    }
                }
            }
        }
        f.write_str("]")?;
        self.nesting.iter().try_for_each(|_| f.write_str(")"))
    }
}

/// An input or output of the model that is a host value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ValueSpec {
    /// Name in the model.
    #[cfg_attr(not(feature = "names"), serde(deserialize_with = "super::unnamed::text"))]
    pub name: String,
    /// Its place among all inputs (or outputs) of the model, those that are tensors included.
    pub position: u32,
    /// The value that holds it.
    pub value: HostId,
}

/// An operand or result of a host operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operand {
    /// An optional operand that is not there; a result that nobody wants.
    Absent,
    /// A tensor.
    Buffer(BufferId),
    /// Anything else.
    Value(HostId),
}

impl Operand {
    /// The buffer, if it is one.
    pub fn buffer(self) -> Option<BufferId> {
        match self {
            Operand::Buffer(buffer) => Some(buffer),
            Operand::Absent | Operand::Value(_) => None,
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Absent => f.write_str("_"),
            Operand::Buffer(buffer) => write!(f, "{buffer}"),
            Operand::Value(value) => write!(f, "{value}"),
        }
    }
}
