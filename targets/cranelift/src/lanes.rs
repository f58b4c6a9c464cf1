//! How kernel values of any number of lanes are held in Cranelift values.

use cranelift_codegen::ir::{self, Endianness, MemFlagsData, types};
use tilewright_dtype::DType;

/// Bytes of a vector register.
const VECTOR_BYTES: u32 = 16;

/// A kernel value: full 128-bit vectors first, then one scalar for each lane that is left. On a machine without vectors all are scalars.
///
/// Truth values are *masks*: their vectors hold all ones or all zeros in lanes of some integer type (that of
/// the comparison they come from), their scalars 0 or 1 in an `I8`.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    /// Type of one lane of the vectors.
    pub(crate) lane: ir::Type,
    /// Number of lanes.
    pub(crate) n: u32,
    /// Whether this is a mask.
    pub(crate) mask: bool,
    /// The vectors, then the scalars.
    pub(crate) parts: Vec<ir::Value>,
}

/// Lanes of a vector register.
pub(crate) fn per_vector(lane: ir::Type) -> u32 {
    VECTOR_BYTES / lane.bytes()
}

/// The vector register type of a lane.
pub(crate) fn vector_of(lane: ir::Type) -> ir::Type {
    lane.by(per_vector(lane)).expect("lanes of at most eight bytes fill a register")
}

/// The integer type of the same width.
pub(crate) fn int_of(lane: ir::Type) -> ir::Type {
    lane.as_int()
}

/// The lane type of an element type, or nothing for types that must have been expanded before.
pub(crate) fn lane_of(dtype: DType) -> Option<ir::Type> {
    Some(match dtype {
        DType::Bool | DType::I8 | DType::U8 => types::I8,
        DType::I16 | DType::U16 => types::I16,
        DType::I32 | DType::U32 => types::I32,
        DType::I64 | DType::U64 => types::I64,
        DType::F32 => types::F32,
        DType::F64 => types::F64,
        DType::F16
        | DType::BF16
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1
        | DType::I4
        | DType::U4
        | DType::I2
        | DType::U2
        | DType::String => return None,
    })
}

impl Lanes {
    /// Number of vectors in front.
    pub(crate) fn n_vectors(&self) -> usize {
        // Each vector is one part for all of its lanes.
        (self.n as usize - self.parts.len()) / (per_vector(self.lane) as usize - 1)
    }

    /// The only part of a value of one lane.
    pub(crate) fn scalar(&self) -> ir::Value {
        self.parts[0]
    }

    /// The same parts as lanes of another type of the same width.
    pub(crate) fn retyped(self, lane: ir::Type) -> Lanes {
        Lanes { lane, ..self }
    }
}

/// Bitcasts between vectors state a byte order; kernels are for little-endian machines.
pub(crate) fn bitcast_flags() -> MemFlagsData {
    MemFlagsData::new().with_endianness(Endianness::Little)
}
