//! Values as the user gives and gets them: tensors, sequences, optionals.

use tilewright::graph::Tensor;
use tilewright::runtime::{self, TensorError};

use crate::failure::{Exit, Failure};

/// Named inputs or outputs.
pub(crate) type Named = Vec<(String, Value)>;

/// A value of any type that a model may have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// A tensor, of strings too.
    Tensor(Tensor),
    /// A list.
    Sequence(Vec<Value>),
    /// Something or nothing.
    Optional(Option<Box<Value>>),
}

impl Value {
    /// The tensor, if it is one.
    pub(crate) fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            Value::Sequence(_) | Value::Optional(_) => None,
        }
    }

    /// What it is, in a few words: `f32[2, 3]`, `a sequence of 4`.
    pub(crate) fn form(&self) -> String {
        match self {
            Value::Tensor(tensor) => format!("{}{:?}", tensor.dtype(), tensor.dims()),
            Value::Sequence(items) => format!("a sequence of {}", items.len()),
            Value::Optional(None) => "an empty optional".to_string(),
            Value::Optional(Some(value)) => format!("an optional with {}", value.form()),
        }
    }

    /// The value as the runtime takes it.
    ///
    /// # Errors
    /// Strings that are not UTF-8.
    pub(crate) fn to_runtime(&self) -> Result<runtime::Value, Failure> {
        match self {
            Value::Tensor(tensor) => to_runtime(tensor).map(runtime::Value::from),
            Value::Sequence(items) => {
                let items = items.iter().map(Value::to_runtime).collect::<Result<_, _>>()?;
                Ok(runtime::Value::sequence(items))
            }
            Value::Optional(value) => {
                let value = value.as_ref().map(|value| value.to_runtime()).transpose()?;
                Ok(runtime::Value::optional(value))
            }
        }
    }

    /// A value that the runtime gave.
    ///
    /// # Errors
    /// None that a sound runtime makes.
    pub(crate) fn of_runtime(value: &runtime::Value) -> Result<Value, Failure> {
        match value {
            runtime::Value::Tensor(tensor) => of_runtime(tensor).map(Value::Tensor),
            runtime::Value::Sequence(items) => {
                items.iter().map(Value::of_runtime).collect::<Result<_, _>>().map(Value::Sequence)
            }
            runtime::Value::Optional(value) => {
                let value = value.as_ref().map(|value| Value::of_runtime(value).map(Box::new));
                Ok(Value::Optional(value.transpose()?))
            }
        }
    }
}

fn to_runtime(tensor: &Tensor) -> Result<runtime::Tensor, Failure> {
    let value = match tensor.strings() {
        Some(strings) => {
            let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone());
            let strings = strings.iter().map(text).collect::<Result<_, _>>().map_err(Failure::data)?;
            runtime::Tensor::from_strings(tensor.dims(), strings)
        }
        None => {
            let bytes = tensor.bytes().map(|bytes| bytes.as_slice()).unwrap_or_default();
            runtime::Tensor::from_bytes(tensor.dtype(), tensor.dims(), bytes)
        }
    };
    value.map_err(|error| match error {
        TensorError::Memory(error) => Failure::new(Exit::Limit, error),
        error => Failure::data(error),
    })
}

fn of_runtime(tensor: &runtime::Tensor) -> Result<Tensor, Failure> {
    let dims = tensor.dims().to_vec();
    if tensor.dtype() == tilewright::DType::String {
        let strings = tensor.strings().iter().map(|text| text.clone().into_bytes()).collect();
        return Tensor::from_strings(dims, strings).map_err(Failure::data);
    }
    Tensor::from_bytes(tensor.dtype(), dims, tensor.bytes().to_vec().into()).map_err(Failure::data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_way_to_the_runtime_and_back() {
        let strings = Tensor::from_strings(vec![2], vec![b"a".to_vec(), "é".into()]).unwrap();
        let items = vec![Value::Tensor(strings), Value::Tensor(Tensor::scalar(1.5f32))];
        for value in [Value::Sequence(items), Value::Optional(None)] {
            assert_eq!(Value::of_runtime(&value.to_runtime().unwrap()).unwrap(), value);
        }
        let bad = Tensor::from_strings(vec![1], vec![vec![0xff]]).unwrap();
        assert_eq!(Value::Tensor(bad).to_runtime().unwrap_err().code, 5);
    }
}
