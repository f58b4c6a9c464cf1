//! Values of a run that are no plain tensors in buffers. Cloning shares them.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tilewright_dtype::DType;

use crate::plan::{Nesting, ValueType};
use crate::tensor::byte_len;

/// A value of a type that [`ValueType`] describes.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A tensor: of strings, of a rank known only now, or as part of another value.
    Tensor(Arc<TensorValue>),
    /// A list.
    Sequence(Arc<Vec<Value>>),
    /// Something or nothing.
    Optional(Option<Arc<Value>>),
}

/// A tensor that owns its elements.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorValue {
    dtype: DType,
    dims: Vec<usize>,
    elements: Elements,
}

#[derive(Clone, Debug, PartialEq)]
enum Elements {
    Bytes(Vec<u8>),
    Strings(Vec<String>),
}

impl TensorValue {
    /// A tensor of numbers: dense little-endian elements in row-major order. `None` unless there are as many bytes
    /// as type and extents need, or if the type is [`DType::String`].
    pub fn from_bytes(dtype: DType, dims: Vec<usize>, bytes: Vec<u8>) -> Option<TensorValue> {
        let fits = dtype != DType::String && byte_len(dtype, &dims) == Some(bytes.len());
        fits.then_some(TensorValue { dtype, dims, elements: Elements::Bytes(bytes) })
    }

    /// A tensor of strings in row-major order. `None` unless there are as many as the extents need.
    pub fn from_strings(dims: Vec<usize>, strings: Vec<String>) -> Option<TensorValue> {
        // A string counts as a byte.
        let fits = byte_len(DType::U8, &dims) == Some(strings.len());
        fits.then_some(TensorValue { dtype: DType::String, dims, elements: Elements::Strings(strings) })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The elements; none for strings.
    pub fn bytes(&self) -> &[u8] {
        match &self.elements {
            Elements::Bytes(bytes) => bytes,
            Elements::Strings(_) => &[],
        }
    }

    /// The elements of a tensor of strings; none for numbers.
    pub fn strings(&self) -> &[String] {
        match &self.elements {
            Elements::Bytes(_) => &[],
            Elements::Strings(strings) => strings,
        }
    }
}

impl Value {
    /// A sequence.
    pub fn sequence(items: Vec<Value>) -> Value {
        Value::Sequence(Arc::new(items))
    }

    /// An optional.
    pub fn optional(value: Option<Value>) -> Value {
        Value::Optional(value.map(Arc::new))
    }

    /// Whether the value is of a type; walks all of it.
    pub fn is(&self, ty: &ValueType) -> bool {
        self.is_nested(&ty.nesting, ty)
    }

    fn is_nested(&self, nesting: &[Nesting], ty: &ValueType) -> bool {
        match (self, nesting) {
            (Value::Tensor(tensor), []) => {
                let same = |(want, &got): (&Option<u64>, &usize)| want.is_none_or(|want| want == got as u64);
                tensor.dtype == ty.dtype
                    && ty.dims.as_ref().is_none_or(|dims| {
                        dims.len() == tensor.dims.len() && dims.iter().zip(&tensor.dims).all(same)
                    })
            }
            (Value::Sequence(items), [Nesting::Sequence, rest @ ..]) => {
                items.iter().all(|item| item.is_nested(rest, ty))
            }
            (Value::Optional(value), [Nesting::Optional, rest @ ..]) => {
                value.as_ref().is_none_or(|value| value.is_nested(rest, ty))
            }
            (Value::Tensor(_) | Value::Sequence(_) | Value::Optional(_), _) => false,
        }
    }
}

impl From<TensorValue> for Value {
    fn from(tensor: TensorValue) -> Value {
        Value::Tensor(Arc::new(tensor))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn ty(nesting: &[Nesting], dims: Option<Vec<Option<u64>>>) -> ValueType {
        ValueType { nesting: nesting.to_vec(), dtype: DType::U8, dims }
    }

    fn bytes(dims: &[usize]) -> Value {
        TensorValue::from_bytes(DType::U8, dims.to_vec(), vec![7; dims.iter().product()]).unwrap().into()
    }

    #[test]
    fn tensors_have_as_many_elements_as_their_extents_say() {
        assert!(TensorValue::from_bytes(DType::F32, vec![2], vec![0; 8]).is_some());
        assert!(TensorValue::from_bytes(DType::F32, vec![2], vec![0; 7]).is_none());
        assert!(TensorValue::from_bytes(DType::String, vec![0], vec![]).is_none());
        assert!(TensorValue::from_strings(vec![], vec!["a".into()]).is_some());
        assert!(TensorValue::from_strings(vec![usize::MAX, 2], vec![]).is_none());
    }

    #[test]
    fn types_are_checked_to_the_tensors_inside() {
        use Nesting::{Optional, Sequence};
        let check = |value: &Value, ty: &ValueType, expect: bool| assert_eq!(value.is(ty), expect, "{ty}");
        check(&bytes(&[2, 3]), &ty(&[], Some(vec![Some(2), None])), true);
        check(&bytes(&[2, 3]), &ty(&[], Some(vec![Some(3), None])), false);
        check(&bytes(&[2, 3]), &ty(&[], Some(vec![None])), false);
        check(&bytes(&[2, 3]), &ty(&[Sequence], None), false);
        let mixed = Value::sequence(vec![bytes(&[]), bytes(&[4])]);
        check(&mixed, &ty(&[Sequence], None), true);
        check(&mixed, &ty(&[Sequence], Some(vec![])), false);
        let some = Value::optional(Some(mixed));
        check(&some, &ty(&[Optional, Sequence], None), true);
        check(&some, &ty(&[Optional], None), false);
        check(&Value::optional(None), &ty(&[Optional], None), true);
    }
}
