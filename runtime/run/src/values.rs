//! Named values, and tensors as numbers.

use tilewright_dtype::numbers;
use tilewright_runtime::{Input, Tensor, Value};

/// Inputs or outputs with their names, in the model's order where they come from it.
pub type Named = Vec<(String, Value)>;

/// The values as inputs of a run, which share them.
pub fn inputs(named: &[(String, Value)]) -> Vec<(&str, Input<'_>)> {
    named.iter().map(|(name, value)| (name.as_str(), value.into())).collect()
}

/// What a value is, in a few words: `f32[2, 3]`, `a sequence of 4`.
pub fn form(value: &Value) -> String {
    match value {
        Value::Tensor(tensor) => tensor_form(tensor),
        Value::Sequence(items) => format!("a sequence of {}", items.len()),
        Value::Optional(None) => "an empty optional".to_string(),
        Value::Optional(Some(value)) => format!("an optional with {}", form(value)),
    }
}

/// Element type and extents: `f32[2, 3]`.
pub fn tensor_form(tensor: &Tensor) -> String {
    format!("{}{:?}", tensor.dtype(), tensor.dims())
}

/// The elements as doubles; `None` for strings. 64-bit integers round.
pub fn to_f64s(tensor: &Tensor) -> Option<Vec<f64>> {
    numbers::to_f64s(tensor.dtype(), tensor.bytes())
}

/// The elements of an integer or boolean tensor; `None` for others, or where a value exceeds `i64`.
pub fn to_i64s(tensor: &Tensor) -> Option<Vec<i64>> {
    numbers::to_i64s(tensor.dtype(), tensor.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_in_a_few_words() {
        let tensor = Value::from(Tensor::new(&[2, 3], [0f32; 6]).unwrap());
        let some = Value::optional(Some(Value::sequence(vec![tensor.clone(); 4])));
        assert_eq!(
            (form(&tensor).as_str(), form(&some).as_str()),
            ("f32[2, 3]", "an optional with a sequence of 4")
        );
        assert_eq!(form(&Value::optional(None)), "an empty optional");
        assert_eq!(tensor.as_tensor().and_then(to_f64s), Some(vec![0.0; 6]));
        assert_eq!((some.as_tensor(), tensor.as_tensor().and_then(to_i64s)), (None, None));
    }
}
