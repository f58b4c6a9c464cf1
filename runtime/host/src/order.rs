//! An order of elements of any type: numbers by their value, NaN after all others.

use alloc::vec::Vec;

use tilewright_dtype::DType;

use crate::Result;
use crate::args::{Data, Tensor};

/// A number for each element, such that elements compare as their numbers do. 0 is the number of zero (and of
/// negative zero), and of nothing else that is a number.
pub(crate) fn keys(tensor: &Tensor<'_>) -> Result<Vec<i128>> {
    let bytes = match tensor.data {
        Data::Bytes(bytes) => bytes,
        Data::Strings(strings) => {
            let mut sorted: Vec<&str> = strings.iter().map(|s| s.as_str()).collect();
            sorted.sort_unstable();
            sorted.dedup();
            let rank = |s: &str| sorted.partition_point(|other| *other < s) as i128;
            return Ok(strings.iter().map(|s| rank(s)).collect());
        }
    };
    let size = tensor.dtype.bytes();
    Ok(bytes.chunks_exact(size).map(|element| key(tensor.dtype, element)).collect())
}

fn key(dtype: DType, element: &[u8]) -> i128 {
    let mut wide = [0u8; 16];
    wide[..element.len()].copy_from_slice(element);
    let bits = i128::from_le_bytes(wide);
    let signed = |width: u32| (bits << (128 - width)) >> (128 - width);
    // Sign and magnitude, in a format whose magnitudes above `infinity` are NaN.
    let float = |width: u32, infinity: i128| {
        let sign = 1i128 << (width - 1);
        let magnitude = bits & (sign - 1);
        if magnitude > infinity {
            i128::MAX
        } else if bits & sign == 0 {
            magnitude
        } else {
            -magnitude
        }
    };
    match dtype {
        DType::Bool => i128::from(bits != 0),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::U4 | DType::U2 => bits,
        DType::I8 | DType::I4 | DType::I2 => signed(8),
        DType::I16 => signed(16),
        DType::I32 => signed(32),
        DType::I64 => signed(64),
        DType::F16 => float(16, 0x7c00),
        DType::BF16 => float(16, 0x7f80),
        DType::F32 => float(32, 0x7f80_0000),
        DType::F64 => float(64, 0x7ff0_0000_0000_0000),
        DType::F8E4M3FN => float(8, 0x7e),
        DType::F8E5M2 => float(8, 0x7c),
        // What would be negative zero is NaN.
        DType::F8E4M3FNUZ | DType::F8E5M2FNUZ if bits == 0x80 => i128::MAX,
        DType::F8E4M3FNUZ | DType::F8E5M2FNUZ => float(8, 0x7f),
        // Powers of two, none of them zero.
        DType::F8E8M0 if bits == 0xff => i128::MAX,
        DType::F8E8M0 => bits + 1,
        DType::F4E2M1 => float(4, 0x7),
        DType::String => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dtype: DType, ascending: &[&[u8]]) {
        let keys: Vec<i128> = ascending.iter().map(|element| key(dtype, element)).collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{dtype}: {keys:?}");
    }

    #[test]
    fn numbers_compare_by_value_and_nan_comes_last() {
        let floats = [f32::NEG_INFINITY, -1.5, -1e-40, 0.0, 1e-40, 2.0, f32::INFINITY, f32::NAN];
        let bytes: Vec<[u8; 4]> = floats.iter().map(|x| x.to_le_bytes()).collect();
        check(DType::F32, &bytes.iter().map(|b| &b[..]).collect::<Vec<_>>());
        assert_eq!(key(DType::F32, &(-0f32).to_le_bytes()), 0);
        assert_eq!(key(DType::F32, &(-f32::NAN).to_le_bytes()), key(DType::F32, &f32::NAN.to_le_bytes()));
        check(DType::I8, &[&[0x80], &[0xff], &[0], &[1], &[0x7f]]);
        check(DType::U8, &[&[0], &[0x7f], &[0x80], &[0xff]]);
        // -448, -1, 0, 1, 448, NaN.
        check(DType::F8E4M3FN, &[&[0xfe], &[0xb8], &[0], &[0x38], &[0x7e], &[0x7f]]);
        check(DType::F8E5M2FNUZ, &[&[0xff], &[0], &[0x01], &[0x7f], &[0x80]]);
        check(DType::F4E2M1, &[&[0xf], &[0x9], &[0], &[0x1], &[0x7]]);
        assert_ne!(key(DType::F8E8M0, &[0]), 0);
    }
}
