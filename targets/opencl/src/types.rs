//! Names, element types and constants in OpenCL C.

use tilewright_dtype::DType;
use tilewright_te::expr::wrap;

/// The type of a value, or nothing for types that must have been expanded before.
pub(crate) fn name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "bool",
        DType::I8 => "char",
        DType::U8 => "uchar",
        DType::I16 => "short",
        DType::U16 => "ushort",
        DType::I32 => "int",
        DType::U32 => "uint",
        DType::I64 => "long",
        DType::U64 => "ulong",
        DType::F32 => "float",
        DType::F64 => "double",
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

/// The type of an element in memory.
pub(crate) fn in_memory(dtype: DType) -> Option<&'static str> {
    if dtype == DType::Bool { Some("uchar") } else { name(dtype) }
}

/// The unsigned type in which arithmetic of integers wraps.
pub(crate) fn wrapping(dtype: DType) -> &'static str {
    if dtype.bits() == 64 { "ulong" } else { "uint" }
}

/// The unsigned type of the same width.
pub(crate) fn unsigned(dtype: DType) -> &'static str {
    match dtype.bits() {
        8 => "uchar",
        16 => "ushort",
        32 => "uint",
        _ => "ulong",
    }
}

/// An integer constant, truth values included.
pub(crate) fn int(dtype: DType, value: i64) -> String {
    let value = wrap(dtype, value);
    match dtype {
        DType::Bool => if value != 0 { "true" } else { "false" }.to_owned(),
        DType::I64 => format!("(long)0x{value:x}UL"),
        DType::U64 => format!("0x{value:x}UL"),
        _ => format!("({}){value}", name(dtype).unwrap_or("int")),
    }
}

/// A float constant, by its bits.
pub(crate) fn float(dtype: DType, value: f64) -> String {
    match dtype {
        DType::F64 => format!("as_double(0x{:x}UL)", value.to_bits()),
        _ => format!("as_float(0x{:x}u)", (value as f32).to_bits()),
    }
}

/// The name of a kernel in the program: without dots, and none that OpenCL C has for something of its own, such as `rotate`.
pub fn symbol(name: &str) -> String {
    format!("tw_{}", name.replace(['.', '$'], "_"))
}
