//! Elements in memory as integers and doubles, and the way back.

use alloc::vec::Vec;

use half::{bf16, f16};

use crate::float_format::FloatFormat;
use crate::{DType, Kind};

/// The elements of an integer or boolean type; `None` for other types, or where a value exceeds `i64`.
pub fn to_i64s(dtype: DType, bytes: &[u8]) -> Option<Vec<i64>> {
    Some(match dtype {
        DType::Bool | DType::U8 | DType::U4 | DType::U2 => bytes.iter().copied().map(i64::from).collect(),
        DType::I8 | DType::I4 | DType::I2 => each(bytes, |b| i64::from(i8::from_le_bytes(b))),
        DType::I16 => each(bytes, |b| i64::from(i16::from_le_bytes(b))),
        DType::U16 => each(bytes, |b| i64::from(u16::from_le_bytes(b))),
        DType::I32 => each(bytes, |b| i64::from(i32::from_le_bytes(b))),
        DType::U32 => each(bytes, |b| i64::from(u32::from_le_bytes(b))),
        DType::I64 => each(bytes, i64::from_le_bytes),
        DType::U64 => {
            return chunks(bytes).map(|b| i64::try_from(u64::from_le_bytes(b)).ok()).collect();
        }
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::F8E4M3FN | DType::F8E4M3FNUZ => {
            return None;
        }
        DType::F8E5M2 | DType::F8E5M2FNUZ | DType::F8E8M0 | DType::F4E2M1 | DType::String => return None,
    })
}

/// The elements as doubles; `None` for strings. 64-bit integers round.
pub fn to_f64s(dtype: DType, bytes: &[u8]) -> Option<Vec<f64>> {
    match dtype {
        DType::F16 => Some(each(bytes, |b| f16::from_le_bytes(b).to_f64())),
        DType::BF16 => Some(each(bytes, |b| bf16::from_le_bytes(b).to_f64())),
        DType::F32 => Some(each(bytes, |b| f64::from(f32::from_le_bytes(b)))),
        DType::F64 => Some(each(bytes, f64::from_le_bytes)),
        DType::U64 => Some(each(bytes, |b| u64::from_le_bytes(b) as f64)),
        DType::String => None,
        dtype if dtype.kind() == Kind::Float => {
            let format = FloatFormat::of(dtype)?;
            Some(bytes.iter().map(|&code| format.decode(u16::from(code))).collect())
        }
        _ => Some(to_i64s(dtype, bytes)?.into_iter().map(|value| value as f64).collect()),
    }
}

/// Appends the element that `value` rounds to. Nothing, and `false`, for strings.
pub fn append(dtype: DType, value: f64, bytes: &mut Vec<u8>) -> bool {
    match dtype {
        DType::Bool => bytes.push(u8::from(value != 0.0)),
        DType::I8 | DType::I4 | DType::I2 => bytes.extend((value as i8).to_le_bytes()),
        DType::I16 => bytes.extend((value as i16).to_le_bytes()),
        DType::I32 => bytes.extend((value as i32).to_le_bytes()),
        DType::I64 => bytes.extend((value as i64).to_le_bytes()),
        DType::U8 | DType::U4 | DType::U2 => bytes.push(value as u8),
        DType::U16 => bytes.extend((value as u16).to_le_bytes()),
        DType::U32 => bytes.extend((value as u32).to_le_bytes()),
        DType::U64 => bytes.extend((value as u64).to_le_bytes()),
        DType::F16 => bytes.extend(f16::from_f64(value).to_le_bytes()),
        DType::BF16 => bytes.extend(bf16::from_f64(value).to_le_bytes()),
        DType::F32 => bytes.extend((value as f32).to_le_bytes()),
        DType::F64 => bytes.extend(value.to_le_bytes()),
        DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1 => {
            let Some(format) = FloatFormat::of(dtype) else { return false };
            bytes.push(format.encode(value) as u8);
        }
        DType::String => return false,
    }
    true
}

fn chunks<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.chunks_exact(N).filter_map(|chunk| chunk.try_into().ok())
}

fn each<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    chunks(bytes).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_in_and_out() {
        for dtype in DType::ALL {
            let mut bytes = Vec::new();
            if append(dtype, 1.0, &mut bytes) {
                assert_eq!((bytes.len(), to_f64s(dtype, &bytes)), (dtype.bytes(), Some(Vec::from([1.0]))));
            } else {
                assert!(bytes.is_empty() && to_f64s(dtype, &bytes).is_none());
            }
            assert_eq!(to_i64s(dtype, &bytes).is_some(), dtype.is_integer() || dtype == DType::Bool);
        }
        let large = u64::MAX.to_le_bytes();
        assert_eq!((to_i64s(DType::U64, &large), to_i64s(DType::I8, &[0xff])), (None, Some(Vec::from([-1]))));
        assert_eq!(to_f64s(DType::U64, &large), Some(Vec::from([18446744073709551616.0])));
        // The negative zero of formats that have one.
        let zeros = [DType::F8E4M3FN, DType::F8E5M2].map(|dtype| to_f64s(dtype, &[0x80]));
        assert_eq!(zeros, [Some(Vec::from([0.0])), Some(Vec::from([0.0]))]);
    }
}
