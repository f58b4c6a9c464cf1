//! Whether a value is what it should be.

use tilewright_runtime::{Tensor, Value};

use crate::values::{form, tensor_form, to_f64s, to_i64s};

/// How far elements may be apart: `|ours - reference| <= relative |reference| + absolute max|reference|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Relative to each element.
    pub relative: f64,
    /// Relative to the largest magnitude of the tensor.
    pub absolute: f64,
}

/// The largest distance of two tensors of the same type and shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// Largest difference of elements.
    pub worst: f64,
    /// Largest magnitude of the reference.
    pub scale: f64,
}

/// Holds `ours` against `reference`, to the tensors inside; the distance is the largest of all these.
///
/// # Errors
/// What is different.
pub fn compare(reference: &Value, ours: &Value, tolerance: Tolerance) -> Result<Distance, String> {
    match (reference, ours) {
        (Value::Tensor(reference), Value::Tensor(ours)) => compare_tensors(reference, ours, tolerance),
        (Value::Sequence(reference), Value::Sequence(ours)) if reference.len() == ours.len() => {
            let mut most = Distance { worst: 0.0, scale: 0.0 };
            for (i, (reference, ours)) in reference.iter().zip(ours.iter()).enumerate() {
                let Distance { worst, scale } =
                    compare(reference, ours, tolerance).map_err(|fault| format!("item {i}: {fault}"))?;
                most = Distance { worst: most.worst.max(worst), scale: most.scale.max(scale) };
            }
            Ok(most)
        }
        (Value::Optional(Some(reference)), Value::Optional(Some(ours))) => {
            compare(reference, ours, tolerance)
        }
        (Value::Optional(None), Value::Optional(None)) => Ok(Distance { worst: 0.0, scale: 0.0 }),
        (reference, ours) => Err(format!("{}, expected {}", form(ours), form(reference))),
    }
}

/// Holds `ours` against `reference`: integers, truth values and strings must be the same, floats within the
/// tolerance, with NaNs and infinities in the same places. Zeros are equal, whatever their signs.
///
/// # Errors
/// What is different.
fn compare_tensors(reference: &Tensor, ours: &Tensor, tolerance: Tolerance) -> Result<Distance, String> {
    if reference.dtype() != ours.dtype() || reference.dims() != ours.dims() {
        return Err(format!("{}, expected {}", tensor_form(ours), tensor_form(reference)));
    }
    let values = to_f64s(reference).unwrap_or_default();
    let finite = values.iter().filter(|value| value.is_finite());
    let scale = finite.fold(0.0, |scale: f64, value| scale.max(value.abs()));
    let Some(got) = to_f64s(ours).filter(|_| reference.dtype().is_float()) else {
        let same = reference == ours;
        return if same { Ok(Distance { worst: 0.0, scale }) } else { Err(exact_fault(reference, ours)) };
    };
    let mut worst = 0.0f64;
    let mut first = None;
    let mut n_bad = 0;
    for (i, (&expected, &got)) in values.iter().zip(&got).enumerate() {
        let same = expected == got || (expected.is_nan() && got.is_nan());
        let difference = if same { 0.0 } else { (expected - got).abs() };
        let bound = tolerance.relative * expected.abs() + tolerance.absolute * scale;
        // Also false where an infinity or NaN stands against something else.
        let fits = same || (expected.is_finite() && difference <= bound);
        if difference.is_finite() {
            worst = worst.max(difference);
        }
        if !fits {
            n_bad += 1;
            first.get_or_insert((i, expected, got));
        }
    }
    match first {
        None => Ok(Distance { worst, scale }),
        Some((i, expected, got)) => Err(format!(
            "{n_bad} of {} elements differ, worst by {worst:.3e} (largest magnitude {scale:.3e}); the first is {} with \
             {got}, expected {expected}",
            values.len(),
            index_text(i, reference.dims()),
        )),
    }
}

fn exact_fault(reference: &Tensor, ours: &Tensor) -> String {
    let (Some(expected), Some(got)) = (to_i64s(reference), to_i64s(ours)) else {
        return "the elements differ".to_string();
    };
    let mut bad = expected.iter().zip(&got).enumerate().filter(|(_, (a, b))| a != b);
    match bad.next() {
        None => "the elements differ".to_string(),
        Some((i, (wanted, got))) => format!(
            "{} of {} elements differ; the first is {} with {got}, expected {wanted}",
            bad.count() + 1,
            expected.len(),
            index_text(i, reference.dims()),
        ),
    }
}

/// The index of the i-th element in row-major order.
fn index_text(mut i: usize, dims: &[usize]) -> String {
    let mut index = vec![0; dims.len()];
    for (at, &dim) in index.iter_mut().zip(dims).rev() {
        *at = i % dim;
        i /= dim;
    }
    format!("{index:?}")
}

#[cfg(test)]
mod tests {
    use tilewright_dtype::DType;
    use tilewright_runtime::Element;

    use super::*;

    fn vector<T: Element>(elements: &[T]) -> Tensor {
        Tensor::new(&[elements.len()], elements).unwrap()
    }

    fn scalar(element: f32) -> Tensor {
        Tensor::new(&[], [element]).unwrap()
    }

    fn check(expected: &[f32], got: &[f32], fault: Option<&str>) {
        let tolerance = Tolerance { relative: 1e-3, absolute: 1e-4 };
        let result = compare_tensors(&vector(expected), &vector(got), tolerance);
        assert_eq!(result.err().as_deref(), fault);
    }

    #[test]
    fn floats_may_differ_within_the_tolerance() {
        const NAN: f32 = f32::NAN;
        const INF: f32 = f32::INFINITY;
        check(&[1.0, 100.0], &[1.009, 100.0], None);
        check(&[NAN, INF, -INF], &[NAN, INF, -INF], None);
        let fault = "1 of 2 elements differ, worst by 5.000e-1 (largest magnitude 1.000e0); the first is [1] with 1.5, expected 1";
        check(&[0.0, 1.0], &[0.0, 1.5], Some(fault));
        let fault = "1 of 1 elements differ, worst by 0.000e0 (largest magnitude 1.000e0); the first is [0] with NaN, expected 1";
        check(&[1.0], &[NAN], Some(fault));
        let fault = "1 of 1 elements differ, worst by 0.000e0 (largest magnitude 0.000e0); the first is [0] with 1, expected inf";
        check(&[INF], &[1.0], Some(fault));
        check(&[], &[], None);
        check(&[0.0, -0.0], &[-0.0, 0.0], None);
    }

    #[test]
    fn narrow_floats_compare_as_the_numbers_that_they_are() {
        let exact = Tolerance { relative: 0.0, absolute: 0.0 };
        for (dtype, ours, agrees) in [
            (DType::F16, [0x00, 0x80], true),
            (DType::BF16, [0x00, 0x80], true),
            (DType::F8E4M3FN, [0x80, 0x00], true),
            (DType::F8E5M2, [0x80, 0x80], true),
            // NaN.
            (DType::F8E4M3FNUZ, [0x80, 0x00], false),
            (DType::F8E5M2, [0x01, 0x00], false),
        ] {
            let tensor = |bytes: [u8; 2]| Tensor::from_bytes(dtype, &[2 / dtype.bytes()], bytes).unwrap();
            let result = compare_tensors(&tensor([0, 0]), &tensor(ours), exact);
            assert_eq!(result.is_ok(), agrees, "{dtype} {ours:?}: {result:?}");
        }
    }

    #[test]
    fn integers_must_be_the_same() {
        let tolerance = Tolerance { relative: 1.0, absolute: 1.0 };
        let matrix = |elements: &[i64]| Tensor::new(&[2, 2], elements).unwrap();
        let same = compare_tensors(&matrix(&[1, 2, 3, -4]), &matrix(&[1, 2, 3, -4]), tolerance);
        assert_eq!(same, Ok(Distance { worst: 0.0, scale: 4.0 }));
        let fault = compare_tensors(&matrix(&[1, 2, 3, 4]), &matrix(&[1, 2, 5, 6]), tolerance).unwrap_err();
        assert_eq!(fault, "2 of 4 elements differ; the first is [1, 0] with 5, expected 3");
    }

    #[test]
    fn sequences_and_optionals_compare_by_what_they_hold() {
        let tolerance = Tolerance { relative: 0.0, absolute: 1.0 };
        let list = |values: &[f32]| Value::sequence(values.iter().map(|&x| scalar(x).into()).collect());
        let check = |a: &Value, b: &Value| compare(a, b, tolerance).map(|distance| distance.worst);
        assert_eq!(check(&list(&[1.0, 2.0]), &list(&[1.5, 2.0])), Ok(0.5));
        assert_eq!(
            check(&list(&[1.0]), &list(&[])).unwrap_err(),
            "a sequence of 0, expected a sequence of 1"
        );
        assert!(check(&list(&[1.0, 0.0]), &list(&[1.0, 0.5])).unwrap_err().starts_with("item 1: 1 of 1"));
        let some = Value::optional(Some(list(&[1.0])));
        assert_eq!(check(&some, &some), Ok(0.0));
        assert!(check(&some, &Value::optional(None)).is_err());
    }

    #[test]
    fn type_and_shape_count() {
        let tolerance = Tolerance { relative: 1.0, absolute: 1.0 };
        let fault = compare_tensors(&vector(&[1f32]), &scalar(1.0), tolerance).unwrap_err();
        assert_eq!(fault, "f32[], expected f32[1]");
    }
}
