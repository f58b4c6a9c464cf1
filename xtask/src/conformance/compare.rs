//! When an output is the expected one.
//!
//! Floats follow the suite (numpy's `allclose` with equal NaNs, and two units in the last place for
//! bfloat16); integers, truth values and strings must be equal, which is stricter than the suite.

use crate::tensor::{BFLOAT16, Elements, Tensor, Value};

/// How far a float may lie from the expected one: `absolute + relative * |expected|`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    /// Times the expected magnitude.
    pub(crate) relative: f64,
    /// Whatever the magnitude.
    pub(crate) absolute: f64,
}

impl Tolerance {
    fn for_type(self, data_type: i32) -> Tolerance {
        const TWO_BFLOAT16_ULPS: f64 = 1.0 / 64.0;
        let relative =
            if data_type == BFLOAT16 { self.relative.max(TWO_BFLOAT16_ULPS) } else { self.relative };
        Tolerance { relative, ..self }
    }

    fn allows(self, expected: f64, got: f64) -> bool {
        // Equality covers infinities, whose difference is NaN.
        expected == got
            || (expected.is_nan() && got.is_nan())
            || (expected - got).abs() <= self.absolute + self.relative * expected.abs()
                && expected.is_finite()
    }
}

/// Checks kind, element type, extents and elements; the error says what differs first and how much does.
pub(crate) fn compare(expected: &Value, got: &Value, tolerance: Tolerance) -> Result<(), String> {
    match (expected, got) {
        (Value::Tensor(expected), Value::Tensor(got)) => tensors(expected, got, tolerance),
        (Value::Sequence(expected), Value::Sequence(got)) => {
            if expected.len() != got.len() {
                return Err(format!("a sequence of {}, expected {}", got.len(), expected.len()));
            }
            let mut pairs = expected.iter().zip(got).enumerate();
            pairs.try_for_each(|(i, (expected, got))| {
                compare(expected, got, tolerance).map_err(|fault| format!("item {i}: {fault}"))
            })
        }
        (Value::Optional(None), Value::Optional(None)) => Ok(()),
        (Value::Optional(Some(expected)), Value::Optional(Some(got))) => compare(expected, got, tolerance),
        (Value::Optional(expected), Value::Optional(_)) => {
            let (is, should) = if expected.is_some() { ("empty", "a value") } else { ("a value", "empty") };
            Err(format!("an optional is {is}, expected {should}"))
        }
        (expected, got) => Err(format!("a {}, expected a {}", kind(got), kind(expected))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Tensor(_) => "tensor",
        Value::Sequence(_) => "sequence",
        Value::Optional(_) => "optional",
    }
}

fn tensors(expected: &Tensor, got: &Tensor, tolerance: Tolerance) -> Result<(), String> {
    if expected.data_type != got.data_type {
        return Err(format!("element type {}, expected {}", got.data_type, expected.data_type));
    }
    if expected.dims != got.dims {
        return Err(format!("extents {:?}, expected {:?}", got.dims, expected.dims));
    }
    let tolerance = tolerance.for_type(expected.data_type);
    match (&expected.elements, &got.elements) {
        (Elements::Float(a), Elements::Float(b)) => {
            elements(&expected.dims, a, b, |a, b| tolerance.allows(*a, *b))
        }
        (Elements::Int(a), Elements::Int(b)) => elements(&expected.dims, a, b, PartialEq::eq),
        (Elements::Text(a), Elements::Text(b)) => elements(&expected.dims, a, b, PartialEq::eq),
        _ => Err("elements of different kinds under one element type".into()),
    }
}

fn elements<T: std::fmt::Debug>(
    dims: &[i64],
    expected: &[T],
    got: &[T],
    equal: impl Fn(&T, &T) -> bool,
) -> Result<(), String> {
    let differ = || (0..expected.len()).filter(|&i| !equal(&expected[i], &got[i]));
    let Some(first) = differ().next() else { return Ok(()) };
    Err(format!(
        "element {:?} is {:?}, expected {:?} ({} of {} differ)",
        index(dims, first),
        got[first],
        expected[first],
        differ().count(),
        expected.len()
    ))
}

/// The logical index of an element by its position.
fn index(dims: &[i64], mut position: usize) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for (slot, &dim) in index.iter_mut().zip(dims).rev() {
        *slot = position % dim as usize;
        position /= dim as usize;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { relative: 1e-3, absolute: 1e-7 };

    fn floats(data_type: i32, values: &[f64]) -> Value {
        let dims = vec![values.len() as i64];
        Value::Tensor(Tensor { data_type, dims, elements: Elements::Float(values.to_vec()) })
    }

    fn ints(dims: &[i64], values: &[i128]) -> Value {
        Value::Tensor(Tensor { data_type: 7, dims: dims.to_vec(), elements: Elements::Int(values.to_vec()) })
    }

    fn check(expected: Value, got: Value, expect: &str) {
        let fault = compare(&expected, &got, TOLERANCE).err().unwrap_or_default();
        assert_eq!(fault, expect);
    }

    #[test]
    fn floats_agree_within_the_tolerance_of_the_expected_value() {
        check(floats(1, &[1000.0]), floats(1, &[1001.0]), "");
        check(
            floats(1, &[1000.0]),
            floats(1, &[1001.1]),
            "element [0] is 1001.1, expected 1000.0 (1 of 1 differ)",
        );
        check(floats(1, &[0.0]), floats(1, &[1e-7]), "");
        check(floats(1, &[0.0]), floats(1, &[2e-7]), "element [0] is 2e-7, expected 0.0 (1 of 1 differ)");
    }

    #[test]
    fn specials_equal_only_themselves() {
        let infinity = f64::INFINITY;
        check(floats(1, &[f64::NAN, infinity]), floats(1, &[f64::NAN, infinity]), "");
        check(floats(1, &[infinity]), floats(1, &[1.0]), "element [0] is 1.0, expected inf (1 of 1 differ)");
        check(
            floats(1, &[infinity]),
            floats(1, &[-infinity]),
            "element [0] is -inf, expected inf (1 of 1 differ)",
        );
        check(floats(1, &[1.0]), floats(1, &[infinity]), "element [0] is inf, expected 1.0 (1 of 1 differ)");
        check(floats(1, &[1.0]), floats(1, &[f64::NAN]), "element [0] is NaN, expected 1.0 (1 of 1 differ)");
    }

    #[test]
    fn bfloat16_may_differ_by_two_units_in_the_last_place() {
        check(floats(BFLOAT16, &[1.0]), floats(BFLOAT16, &[1.015625]), "");
        check(
            floats(1, &[1.0]),
            floats(1, &[1.015625]),
            "element [0] is 1.015625, expected 1.0 (1 of 1 differ)",
        );
    }

    #[test]
    fn integers_must_be_equal_even_within_the_suites_tolerance() {
        let fault = "element [1, 0] is 2001, expected 2000 (1 of 4 differ)";
        check(ints(&[2, 2], &[1, 2, 2000, 4]), ints(&[2, 2], &[1, 2, 2001, 4]), fault);
    }

    #[test]
    fn types_extents_and_kinds_must_match() {
        check(floats(1, &[1.0]), floats(11, &[1.0]), "element type 11, expected 1");
        check(ints(&[2], &[1, 2]), ints(&[1, 2], &[1, 2]), "extents [1, 2], expected [2]");
        check(Value::Sequence(vec![]), ints(&[0], &[]), "a tensor, expected a sequence");
        check(Value::Optional(None), Value::Optional(None), "");
        let some = Value::Optional(Some(Box::new(ints(&[], &[1]))));
        check(some, Value::Optional(None), "an optional is empty, expected a value");
        let sequence = |value| Value::Sequence(vec![ints(&[], &[value])]);
        check(sequence(1), sequence(2), "item 0: element [] is 2, expected 1 (1 of 1 differ)");
        check(sequence(1), Value::Sequence(vec![]), "a sequence of 0, expected 1");
    }
}
