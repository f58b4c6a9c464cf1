//! Tensors in messages: typed fields, raw bytes, external files, packed sub-byte elements, sparse ones.

use bytes::Bytes;
use tilewright_dtype::DType;

use crate::error::{ExternalFault, TensorError, TensorFault};
use crate::tensor_proto::{DataLocation, DataType};
use crate::{SparseTensorProto, TensorProto};

/// The largest dense form of a sparse tensor, in bytes: a few bytes of input must not allocate without bound.
pub const MAX_DENSE_BYTES: usize = 1 << 30;

/// A tensor as a message holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub dims: Vec<usize>,
    /// The elements, row-major, as many as the extents say.
    pub elements: Elements,
}

/// Elements of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elements {
    /// Numbers, little-endian, [`DType::bytes`] each: narrow types take a byte, truth values are 0 or 1. Shared with the
    /// message where it holds them so.
    Bytes(Bytes),
    /// Strings: UTF-8 by ONNX's convention, which nothing checks.
    Strings(Vec<Bytes>),
}

/// Gives the bytes of an external file by the name that the tensor has for it.
pub type ExternalFiles<'f> = &'f dyn Fn(&str) -> Result<Bytes, ExternalFault>;

/// No external files: for messages that stand alone, as those of test data do.
pub fn no_files(_location: &str) -> Result<Bytes, ExternalFault> {
    Err(ExternalFault::NoFolder)
}

/// The element type with an ONNX type number.
pub fn dtype_from_onnx(code: i32) -> Result<DType, TensorFault> {
    let data_type = DataType::try_from(code).map_err(|_| TensorFault::UnknownType(code))?;
    Ok(match data_type {
        DataType::Undefined => return Err(TensorFault::UnknownType(code)),
        DataType::Float => DType::F32,
        DataType::Uint8 => DType::U8,
        DataType::Int8 => DType::I8,
        DataType::Uint16 => DType::U16,
        DataType::Int16 => DType::I16,
        DataType::Int32 => DType::I32,
        DataType::Int64 => DType::I64,
        DataType::String => DType::String,
        DataType::Bool => DType::Bool,
        DataType::Float16 => DType::F16,
        DataType::Double => DType::F64,
        DataType::Uint32 => DType::U32,
        DataType::Uint64 => DType::U64,
        DataType::Bfloat16 => DType::BF16,
        DataType::Float8e4m3fn => DType::F8E4M3FN,
        DataType::Float8e4m3fnuz => DType::F8E4M3FNUZ,
        DataType::Float8e5m2 => DType::F8E5M2,
        DataType::Float8e5m2fnuz => DType::F8E5M2FNUZ,
        DataType::Float8e8m0 => DType::F8E8M0,
        DataType::Float4e2m1 => DType::F4E2M1,
        DataType::Uint4 => DType::U4,
        DataType::Int4 => DType::I4,
        DataType::Uint2 => DType::U2,
        DataType::Int2 => DType::I2,
        DataType::Complex64 | DataType::Complex128 | DataType::Float6e2m3 | DataType::Float6e3m2 => {
            return Err(TensorFault::UnsupportedType(data_type.as_str_name()));
        }
    })
}

/// The ONNX type number of an element type.
pub fn dtype_to_onnx(dtype: DType) -> i32 {
    let data_type = match dtype {
        DType::Bool => DataType::Bool,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::Uint8,
        DType::U16 => DataType::Uint16,
        DType::U32 => DataType::Uint32,
        DType::U64 => DataType::Uint64,
        DType::F16 => DataType::Float16,
        DType::BF16 => DataType::Bfloat16,
        DType::F32 => DataType::Float,
        DType::F64 => DataType::Double,
        DType::F8E4M3FN => DataType::Float8e4m3fn,
        DType::F8E4M3FNUZ => DataType::Float8e4m3fnuz,
        DType::F8E5M2 => DataType::Float8e5m2,
        DType::F8E5M2FNUZ => DataType::Float8e5m2fnuz,
        DType::F8E8M0 => DataType::Float8e8m0,
        DType::F4E2M1 => DataType::Float4e2m1,
        DType::I4 => DataType::Int4,
        DType::U4 => DataType::Uint4,
        DType::I2 => DataType::Int2,
        DType::U2 => DataType::Uint2,
        DType::String => DataType::String,
    };
    data_type as i32
}

/// Decodes a tensor; [`no_files`] where no external data can belong to it.
///
/// # Errors
/// What is wrong with the message, with the name of the tensor.
pub fn decode(proto: &TensorProto, files: ExternalFiles<'_>) -> Result<Tensor, TensorError> {
    decode_elements(proto, files).map_err(|reason| TensorError { name: proto.name().to_owned(), reason })
}

fn decode_elements(proto: &TensorProto, files: ExternalFiles<'_>) -> Result<Tensor, TensorFault> {
    let dtype = dtype_from_onnx(proto.data_type())?;
    if proto.segment.is_some() {
        return Err(TensorFault::Segmented);
    }
    let dims = extents(&proto.dims)?;
    let count = checked_count(&dims, dtype).ok_or_else(|| TensorFault::Extents(proto.dims.clone()))?;
    let size_error =
        |unit, expected, got| TensorFault::Size { dtype, dims: dims.clone(), unit, expected, got };
    if dtype == DType::String {
        if proto.string_data.len() != count {
            return Err(size_error("elements", count, proto.string_data.len()));
        }
        return Ok(Tensor { dtype, dims, elements: Elements::Strings(proto.string_data.clone()) });
    }
    let stored = stored_bytes(dtype, count);
    let raw = if proto.data_location() == DataLocation::External {
        Some(external_bytes(proto, stored, files)?)
    } else {
        proto.raw_data.clone().filter(|raw| !raw.is_empty() || count == 0)
    };
    let bytes = match raw {
        Some(raw) if raw.len() == stored => unpack(dtype, count, raw),
        Some(raw) => return Err(size_error("bytes", stored, raw.len())),
        None => {
            let (unit, expected, got, bytes) = typed_fields(proto, dtype, count);
            if got != expected {
                return Err(size_error(unit, expected, got));
            }
            unpack(dtype, count, Bytes::from(bytes))
        }
    };
    Ok(Tensor { dtype, dims, elements: Elements::Bytes(bytes) })
}

fn extents(dims: &[i64]) -> Result<Vec<usize>, TensorFault> {
    let convert = |&dim: &i64| usize::try_from(dim).map_err(|_| TensorFault::Extents(dims.to_vec()));
    dims.iter().map(convert).collect()
}

/// Number of elements, if that many fit into memory.
fn checked_count(dims: &[usize], dtype: DType) -> Option<usize> {
    let count = dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))?;
    let bytes = count.checked_mul(dtype.bytes().max(1))?;
    isize::try_from(bytes).ok().map(|_| count)
}

/// Bytes of `count` elements as files store them.
fn stored_bytes(dtype: DType, count: usize) -> usize {
    match dtype.bits() {
        2 => count.div_ceil(4),
        4 => count.div_ceil(2),
        _ => count * dtype.bytes(),
    }
}

/// The typed field that holds elements of `dtype`: unit of the counts, count expected, count found, and the bytes
/// as `raw_data` would have them.
fn typed_fields(proto: &TensorProto, dtype: DType, count: usize) -> (&'static str, usize, usize, Vec<u8>) {
    fn collect<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        values.iter().flat_map(|&value| bytes(value)).collect()
    }
    let ints = &proto.int32_data;
    let stored = stored_bytes(dtype, count);
    use DType::*;
    match dtype {
        F32 => ("elements", count, proto.float_data.len(), collect(&proto.float_data, f32::to_le_bytes)),
        F64 => ("elements", count, proto.double_data.len(), collect(&proto.double_data, f64::to_le_bytes)),
        I64 => ("elements", count, proto.int64_data.len(), collect(&proto.int64_data, i64::to_le_bytes)),
        U64 => ("elements", count, proto.uint64_data.len(), collect(&proto.uint64_data, u64::to_le_bytes)),
        U32 => (
            "elements",
            count,
            proto.uint64_data.len(),
            collect(&proto.uint64_data, |v| (v as u32).to_le_bytes()),
        ),
        I32 => ("elements", count, ints.len(), collect(ints, i32::to_le_bytes)),
        I16 | U16 | F16 | BF16 => {
            ("elements", count, ints.len(), collect(ints, |v| (v as u16).to_le_bytes()))
        }
        Bool | I8 | U8 | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0 => {
            ("elements", count, ints.len(), collect(ints, |v| [v as u8]))
        }
        F4E2M1 | I4 | U4 | I2 | U2 => ("packed elements", stored, ints.len(), collect(ints, |v| [v as u8])),
        String => ("elements", count, proto.string_data.len(), Vec::new()),
    }
}

/// From stored form to one element a byte (sub-byte types) and 0 or 1 (booleans); all else is left shared.
fn unpack(dtype: DType, count: usize, raw: Bytes) -> Bytes {
    let sub_byte = |bits: usize, signed: bool| {
        let shift = 8 - bits as u32;
        let element = |i: usize| {
            let byte = raw[i * bits / 8] >> (i * bits % 8);
            // The element's top bit moves to the byte's, and comes back with its sign or with zeros.
            if signed { (((byte << shift) as i8) >> shift) as u8 } else { (byte << shift) >> shift }
        };
        Bytes::from((0..count).map(element).collect::<Vec<u8>>())
    };
    match dtype {
        DType::I4 => sub_byte(4, true),
        DType::U4 | DType::F4E2M1 => sub_byte(4, false),
        DType::I2 => sub_byte(2, true),
        DType::U2 => sub_byte(2, false),
        DType::Bool if raw.iter().any(|&byte| byte > 1) => {
            raw.iter().map(|&byte| u8::from(byte != 0)).collect()
        }
        _ => raw,
    }
}

/// From one element a byte to the packed form of files, for elements below 8 bits.
fn pack(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    let bits = dtype.bits();
    let mask = (1u8 << bits) - 1;
    let join =
        |group: &[u8]| group.iter().enumerate().fold(0, |byte, (i, &e)| byte | ((e & mask) << (i * bits)));
    bytes.chunks(8 / bits).map(join).collect()
}

fn external_bytes(
    proto: &TensorProto,
    expected: usize,
    files: ExternalFiles<'_>,
) -> Result<Bytes, TensorFault> {
    let entry =
        |key: &str| proto.external_data.iter().rev().find(|entry| entry.key() == key).map(|e| e.value());
    let location = entry("location").unwrap_or_default();
    let number = |key: &'static str| match entry(key) {
        None => Ok(None),
        Some(value) => match value.parse::<usize>() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(ExternalFault::NotANumber { key, value: value.to_owned() }),
        },
    };
    let read = || {
        let offset = number("offset")?.unwrap_or(0);
        if let Some(length) = number("length")?.filter(|&length| length != expected) {
            return Err(ExternalFault::Length { length, expected });
        }
        let file = files(location)?;
        let end = (offset as u64).saturating_add(expected as u64);
        if end > file.len() as u64 {
            return Err(ExternalFault::PastEnd { offset, end, size: file.len() });
        }
        Ok(file.slice(offset..offset + expected))
    };
    read().map_err(|reason| TensorFault::External { location: location.to_owned(), reason })
}

/// Decodes a sparse tensor to dense form.
///
/// # Errors
/// What is wrong with the message, with the name of the tensor of its values.
pub fn decode_sparse(proto: &SparseTensorProto, files: ExternalFiles<'_>) -> Result<Tensor, TensorError> {
    let empty = TensorProto::default();
    let values_proto = proto.values.as_ref().unwrap_or(&empty);
    let fail = |reason| TensorError { name: values_proto.name().to_owned(), reason };
    let values = decode(values_proto, files)?;
    let indices = decode(proto.indices.as_ref().unwrap_or(&empty), files)?;
    scatter_sparse(&proto.dims, &values, &indices).map_err(fail)
}

fn scatter_sparse(dims: &[i64], values: &Tensor, indices: &Tensor) -> Result<Tensor, TensorFault> {
    let dtype = values.dtype;
    let shape = extents(dims)?;
    let count = checked_count(&shape, dtype).ok_or_else(|| TensorFault::Extents(dims.to_vec()))?;
    let Elements::Bytes(data) = &values.elements else {
        return Err(TensorFault::Sparse("strings cannot be sparse"));
    };
    let size = dtype.bytes();
    if count * size > MAX_DENSE_BYTES {
        return Err(TensorFault::SparseTooLarge(count * size));
    }
    let n_values = data.len() / size;
    let linear = linear_indices(&shape, n_values, indices)?;
    let mut dense = vec![0u8; count * size];
    for (&at, element) in linear.iter().zip(data.chunks_exact(size)) {
        let at = usize::try_from(at).ok().filter(|&at| at < count);
        let at = at.ok_or(TensorFault::Sparse("an index exceeds the extents"))?;
        dense[at * size..][..size].copy_from_slice(element);
    }
    Ok(Tensor { dtype, dims: shape, elements: Elements::Bytes(Bytes::from(dense)) })
}

/// Where each of `n` values goes in row-major order; it may lie outside of the shape where the message says so.
fn linear_indices(shape: &[usize], n: usize, indices: &Tensor) -> Result<Vec<i64>, TensorFault> {
    let (DType::I64, Elements::Bytes(bytes)) = (indices.dtype, &indices.elements) else {
        return Err(TensorFault::Sparse("indices are not int64"));
    };
    let number = |chunk: &[u8]| chunk.iter().rev().fold(0, |number, &byte| number << 8 | i64::from(byte));
    let numbers: Vec<i64> = bytes.chunks_exact(size_of::<i64>()).map(number).collect();
    match indices.dims[..] {
        [count] if count == n => Ok(numbers),
        [count, rank] if count == n && rank == shape.len() => {
            let fold = |row: &[i64]| -> Option<i64> {
                row.iter().zip(shape).try_fold(0i64, |at, (&index, &extent)| {
                    let inside = index >= 0 && (index as u64) < extent as u64;
                    inside.then_some(at * extent as i64 + index)
                })
            };
            let rows = numbers.chunks(shape.len().max(1)).map(fold).collect::<Option<_>>();
            rows.ok_or(TensorFault::Sparse("an index exceeds the extents"))
        }
        _ => Err(TensorFault::Sparse("indices have neither shape [n] nor [n, rank]")),
    }
}

impl Tensor {
    /// The message of the tensor: `raw_data`, shared with the tensor unless elements are packed, or `string_data` for
    /// strings.
    pub fn to_proto(&self, name: &str) -> TensorProto {
        let (raw_data, string_data) = match &self.elements {
            Elements::Bytes(bytes) if self.dtype.bits() < 8 => {
                (Some(Bytes::from(pack(self.dtype, bytes))), Vec::new())
            }
            Elements::Bytes(bytes) => (Some(bytes.clone()), Vec::new()),
            Elements::Strings(strings) => (None, strings.clone()),
        };
        TensorProto {
            dims: self.dims.iter().map(|&dim| dim as i64).collect(),
            data_type: Some(dtype_to_onnx(self.dtype)),
            name: (!name.is_empty()).then(|| name.to_owned()),
            raw_data,
            string_data,
            ..TensorProto::default()
        }
    }
}
