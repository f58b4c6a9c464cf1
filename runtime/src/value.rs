//! Values of a run that are no plain tensors in buffers. Cloning shares them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::plan::{Nesting, ValueType};
use crate::tensor::Tensor;

/// A value of a type that [`ValueType`] describes.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A tensor: of strings, of a rank known only now, or as part of another value.
    Tensor(Arc<Tensor>),
    /// A list.
    Sequence(Arc<Vec<Value>>),
    /// Something or nothing.
    Optional(Option<Arc<Value>>),
}

/// Values of a run; as few as most models have are no allocation of their own.
pub type Values = SmallVec<[Value; 2]>;

impl Value {
    /// A sequence.
    pub fn sequence(items: Vec<Value>) -> Value {
        Value::Sequence(Arc::new(items))
    }

    /// An optional.
    pub fn optional(value: Option<Value>) -> Value {
        Value::Optional(value.map(Arc::new))
    }

    /// The tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            Value::Sequence(_) | Value::Optional(_) => None,
        }
    }

    /// Whether the value is of a type; walks all of it.
    pub fn is(&self, ty: &ValueType) -> bool {
        self.is_nested(&ty.nesting, ty)
    }

    fn is_nested(&self, nesting: &[Nesting], ty: &ValueType) -> bool {
        match (self, nesting) {
            (Value::Tensor(tensor), []) => {
                let same = |(want, &got): (&Option<u64>, &usize)| want.is_none_or(|want| want == got as u64);
                tensor.dtype() == ty.dtype
                    && ty.dims.as_ref().is_none_or(|dims| {
                        dims.len() == tensor.dims().len() && dims.iter().zip(tensor.dims()).all(same)
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

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value::Tensor(Arc::new(tensor))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use tilewright_dtype::DType;

    use super::*;

    fn ty(nesting: &[Nesting], dims: Option<Vec<Option<u64>>>) -> ValueType {
        ValueType { nesting: nesting.to_vec(), dtype: DType::U8, dims }
    }

    fn bytes(dims: &[usize]) -> Value {
        Tensor::new(dims, vec![7u8; dims.iter().product()]).unwrap().into()
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
