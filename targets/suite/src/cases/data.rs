//! What cases are made of: element types, numbers of lanes, values.

use tilewright_dtype::DType;

use crate::Case;
use crate::build::KernelBuilder;
use crate::eval::{from_float, from_int};

/// Numbers of lanes: fewer than, as many as and more than fill a register, and odd ones.
pub const LANES: [u32; 7] = [1, 2, 3, 4, 8, 16, 17];

/// The element types that code generators take.
pub const DTYPES: [DType; 11] = [
    DType::Bool,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F32,
    DType::F64,
];

/// Bits of values where operations change their ways, then some of no distinction.
pub(crate) fn samples(dtype: DType) -> Vec<u64> {
    let mut bits: Vec<u64> = if dtype == DType::Bool {
        vec![0, 1]
    } else if dtype.is_float() {
        let tiny = if dtype == DType::F32 { 1e-45 } else { 5e-324 };
        let top = if dtype == DType::F32 { f64::from(f32::MAX) } else { f64::MAX };
        #[rustfmt::skip]
        let values = [
            0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 127.5, -129.0, 255.9, 256.0, 32768.0, -32769.5, 65536.0,
            8388607.5, 16777217.0, 2147483648.0, -2147483648.0, -2147483904.0, 4294967296.0, 9.223372036854776e18,
            -9.3e18, 1.8446744073709552e19, 1e30, -1e30, tiny, -tiny, top, -top, f64::INFINITY, f64::NEG_INFINITY, f64::NAN,
        ];
        values.iter().map(|value| from_float(dtype, *value)).collect()
    } else {
        let (low, high) = match dtype.is_signed() {
            true => (-(1i128 << (dtype.bits() - 1)), (1i128 << (dtype.bits() - 1)) - 1),
            false => (0, (1i128 << dtype.bits()) - 1),
        };
        let values =
            [0, 1, 2, 3, 7, 8, 13, dtype.bits() as i128, 100, -1, -2, -7, low, low + 1, high, high - 1];
        values.iter().map(|value| from_int(dtype, *value)).collect()
    };
    let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ dtype as u64;
    for _ in 0..13 {
        // Xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016).
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
        bits.push(match dtype.is_float() {
            true => from_float(dtype, (random as i64 >> 20) as f64 / 1e9),
            false => from_int(dtype, i128::from(random)),
        });
    }
    bits
}

/// Elements in memory.
pub(crate) fn pack(dtype: DType, bits: impl IntoIterator<Item = u64>) -> Vec<u8> {
    bits.into_iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(dtype.bytes())).collect()
}

/// A case of one task without extents.
pub(crate) fn serial(builder: KernelBuilder, buffers: Vec<Vec<u8>>) -> Case {
    Case { kernel: builder.finish(), buffers, sizes: Vec::new(), tasks: 1, regions: Vec::new() }
}
