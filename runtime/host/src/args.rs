//! Operands as operators see them.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tilewright_dtype::DType;
use tilewright_runtime::{self as runtime, HostArg, Scalar, TensorError, Value};

use crate::Result;

/// The operands of a call.
#[derive(Clone, Copy)]
pub(crate) struct Args<'a>(pub(crate) &'a [HostArg<'a>]);

/// The elements of a tensor.
#[derive(Clone, Copy)]
pub(crate) enum Data<'a> {
    Bytes(&'a [u8]),
    Strings(&'a [String]),
}

/// A tensor, wherever it is.
#[derive(Clone, Copy)]
pub(crate) struct Tensor<'a> {
    pub(crate) dtype: DType,
    pub(crate) dims: &'a [usize],
    pub(crate) data: Data<'a>,
}

impl<'a> Args<'a> {
    /// How many there are, absent ones included.
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    /// Operand `index`, a tensor.
    pub(crate) fn tensor(self, index: usize) -> Result<Tensor<'a>> {
        self.optional(index)?.ok_or_else(|| format!("operand {index} is missing"))
    }

    /// Operand `index`, a tensor if it is there.
    pub(crate) fn optional(self, index: usize) -> Result<Option<Tensor<'a>>> {
        match self.0.get(index) {
            None | Some(HostArg::Absent) => Ok(None),
            Some(HostArg::Tensor(tensor)) => {
                Ok(Some(Tensor { dtype: tensor.dtype, dims: &tensor.dims, data: Data::Bytes(tensor.bytes) }))
            }
            Some(HostArg::Value(value)) => tensor_of(value).map(Some),
        }
    }

    /// Operand `index` as a value; a tensor in a buffer is copied.
    pub(crate) fn value(self, index: usize) -> Result<Value> {
        match self.0.get(index) {
            None | Some(HostArg::Absent) => Err(format!("operand {index} is missing")),
            Some(HostArg::Value(value)) => Ok(value.clone()),
            Some(HostArg::Tensor(tensor)) => {
                numbers(tensor.dtype, &tensor.dims, tensor.bytes).map(Value::from)
            }
        }
    }

    /// The elements of operand `index`, a sequence.
    pub(crate) fn sequence(self, index: usize) -> Result<&'a [Value]> {
        match self.0.get(index) {
            Some(HostArg::Value(Value::Sequence(items))) => Ok(items),
            Some(
                HostArg::Value(Value::Tensor(_) | Value::Optional(_)) | HostArg::Tensor(_) | HostArg::Absent,
            )
            | None => Err(format!("operand {index} is no sequence")),
        }
    }

    /// The value of operand `index`, one integer, if it is there.
    pub(crate) fn integer(self, index: usize) -> Result<Option<i64>> {
        let Some(tensor) = self.optional(index)? else { return Ok(None) };
        match tensor.integers()?[..] {
            [only] => Ok(Some(only)),
            _ => Err(format!("operand {index} has not one element")),
        }
    }

    /// The value of operand `index`, one F32, if it is there.
    pub(crate) fn float(self, index: usize) -> Result<Option<f32>> {
        let Some(tensor) = self.optional(index)? else { return Ok(None) };
        match tensor.floats()?[..] {
            [only] => Ok(Some(only)),
            _ => Err(format!("operand {index} has not one element")),
        }
    }
}

/// A value that is a tensor.
pub(crate) fn tensor_of(value: &Value) -> Result<Tensor<'_>> {
    match value {
        Value::Tensor(tensor) => {
            let data = match tensor.dtype() {
                DType::String => Data::Strings(tensor.strings()),
                _ => Data::Bytes(tensor.bytes()),
            };
            Ok(Tensor { dtype: tensor.dtype(), dims: tensor.dims(), data })
        }
        Value::Sequence(_) | Value::Optional(_) => Err("a tensor is expected".to_string()),
    }
}

impl<'a> Tensor<'a> {
    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        match self.data {
            Data::Bytes(bytes) => bytes.len() / self.dtype.bytes().max(1),
            Data::Strings(strings) => strings.len(),
        }
    }

    /// The elements of a numeric tensor.
    pub(crate) fn bytes(&self) -> Result<&'a [u8]> {
        match self.data {
            Data::Bytes(bytes) => Ok(bytes),
            Data::Strings(_) => Err("numbers are expected, not strings".to_string()),
        }
    }

    /// The elements of a tensor of strings.
    pub(crate) fn strings(&self) -> Result<&'a [String]> {
        match self.data {
            Data::Strings(strings) => Ok(strings),
            Data::Bytes(_) => Err(format!("strings are expected, not {}", self.dtype)),
        }
    }

    /// The elements of an I64 or I32 tensor.
    pub(crate) fn integers(&self) -> Result<Vec<i64>> {
        let bytes = self.bytes()?;
        match self.dtype {
            DType::I64 => Ok(chunks(bytes).map(i64::from_le_bytes).collect()),
            DType::I32 => Ok(chunks(bytes).map(|chunk| i64::from(i32::from_le_bytes(chunk))).collect()),
            other => Err(format!("i64 or i32 is expected, not {other}")),
        }
    }

    /// The elements of an F32 tensor.
    pub(crate) fn floats(&self) -> Result<Vec<f32>> {
        match self.dtype {
            DType::F32 => Ok(chunks(self.bytes()?).map(f32::from_le_bytes).collect()),
            other => Err(format!("f32 is expected, not {other}")),
        }
    }

    /// The elements of a Boolean tensor.
    pub(crate) fn truths(&self) -> Result<Vec<bool>> {
        match self.dtype {
            DType::Bool => Ok(self.bytes()?.iter().map(|&byte| byte != 0).collect()),
            other => Err(format!("bool is expected, not {other}")),
        }
    }

    /// The slices along an axis at the given indices, which must be in range, in that order.
    pub(crate) fn take(&self, axis: usize, indices: &[usize]) -> Result<runtime::Tensor> {
        let mut dims = self.dims.to_vec();
        let extent = core::mem::replace(&mut dims[axis], indices.len());
        if dims.contains(&0) {
            // Other extents may be any number then.
            return match self.data {
                Data::Bytes(_) => numbers(self.dtype, &dims, []),
                Data::Strings(_) => texts(&dims, Vec::new()),
            };
        }
        let inner: usize = self.dims[axis + 1..].iter().product();
        let outer: usize = self.dims[..axis].iter().product();
        let runs = (0..outer).flat_map(|o| indices.iter().map(move |i| (o * extent + i) * inner));
        match self.data {
            Data::Bytes(bytes) => {
                let size = self.dtype.bytes();
                let mut taken = runtime::Tensor::zeros(self.dtype, &dims).map_err(reason)?;
                for (run, at) in taken.bytes_mut().chunks_exact_mut(inner * size).zip(runs) {
                    run.copy_from_slice(&bytes[at * size..(at + inner) * size]);
                }
                Ok(taken)
            }
            Data::Strings(strings) => {
                let taken = runs.flat_map(|at| strings[at..at + inner].iter().cloned()).collect();
                texts(&dims, taken)
            }
        }
    }

    /// The tensor with other extents of as many elements.
    pub(crate) fn with_dims(&self, dims: &[usize]) -> Result<runtime::Tensor> {
        match self.data {
            Data::Bytes(bytes) => numbers(self.dtype, dims, bytes),
            Data::Strings(strings) => texts(dims, strings.to_vec()),
        }
    }
}

/// An empty list with room for so many elements.
pub(crate) fn with_room<T>(count: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).map_err(|_| format!("no memory for {count} elements"))?;
    Ok(list)
}

fn chunks<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.chunks_exact(N).filter_map(|chunk| chunk.try_into().ok())
}

/// A tensor of numbers.
pub(crate) fn numbers(dtype: DType, dims: &[usize], bytes: impl AsRef<[u8]>) -> Result<runtime::Tensor> {
    runtime::Tensor::from_bytes(dtype, dims, bytes).map_err(reason)
}

/// A tensor of strings.
pub(crate) fn texts(dims: &[usize], strings: Vec<String>) -> Result<runtime::Tensor> {
    runtime::Tensor::from_strings(dims, strings).map_err(reason)
}

/// A tensor of I64.
pub(crate) fn integers(dims: &[usize], values: impl IntoIterator<Item = i64>) -> Result<Value> {
    elements(dims, values.into_iter().collect::<Vec<i64>>())
}

/// A tensor of truth values.
pub(crate) fn truths(dims: &[usize], values: impl IntoIterator<Item = bool>) -> Result<Value> {
    elements(dims, values.into_iter().collect::<Vec<bool>>())
}

/// A tensor of the elements given.
pub(crate) fn elements<T: Scalar>(dims: &[usize], elements: impl AsRef<[T]>) -> Result<Value> {
    runtime::Tensor::new(dims, elements).map(Value::from).map_err(reason)
}

fn reason(error: TensorError) -> String {
    error.to_string()
}

/// An axis from attributes, checked.
pub(crate) fn axis(axis: u32, rank: usize) -> Result<usize> {
    let axis = axis as usize;
    if axis < rank { Ok(axis) } else { Err(format!("axis {axis} is out of range for {rank} axes")) }
}
