//! Arrays of `ndarray`: as inputs, with a copy and without one, and from tensors.

mod common;

use std::fmt::Debug;
use std::sync::Arc;

use common::{Builder, demo_plan, demo_weights};
use ndarray::{Array2, ArrayD, Axis, ShapeBuilder, arr0, arr2, s};
use tilewright_dtype::DType;
use tilewright_runtime::plan::{HostId, ValueSpec, ValueType};
use tilewright_runtime::{
    ArrayElement, Element, Input, Model, NoHostOps, Scalar, Tensor, TensorError, Value,
};

/// Numbers as arrays of each rank hold them.
fn counting() -> Array2<f32> {
    Array2::from_shape_fn((2, 3), |(row, column)| (3 * row + column) as f32)
}

/// The bytes that an input lends, where it lends any.
fn lent(input: &Input<'_>) -> Option<*const u8> {
    match input {
        Input::View(view) => Some(view.bytes.as_ptr()),
        _ => None,
    }
}

fn demo_model() -> Model {
    demo_plan().model_with(&demo_weights(), Arc::new(NoHostOps))
}

/// What an input holds.
fn tensor(input: Input<'_>) -> Tensor {
    match input {
        Input::View(view) => Tensor::from_bytes(view.dtype, view.dims, view.bytes).unwrap(),
        Input::Owned(Ok(Value::Tensor(tensor))) => (*tensor).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn arrays_in_standard_layout_are_read_where_they_are() {
    let array = counting();
    assert_eq!(lent(&Input::from(&array)), Some(array.as_ptr().cast()));
    assert_eq!(tensor(Input::from(&array)), Tensor::new(&[2, 3], [0f32, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap());
    let row = array.slice(s![1.., ..]);
    assert_eq!(lent(&Input::from(&row)), Some(row.as_ptr().cast()), "rows that follow one another");
    assert_eq!(tensor(Input::from(&row)).dims(), [1, 3]);
    let dynamic = array.clone().into_dyn();
    assert_eq!(lent(&Input::from(&dynamic)), Some(dynamic.as_ptr().cast()));
    assert_eq!(tensor(Input::from(&arr0(7i64))), Tensor::new(&[], [7i64]).unwrap());
    assert_eq!(tensor(Input::from(&Array2::<u8>::zeros((0, 4)))).dims(), [0, 4]);
}

#[test]
fn arrays_of_another_layout_are_copied_in_row_major_order() {
    let array = counting();
    let check = |input: Input<'_>, dims: &[usize], expect: &[f32]| {
        assert!(lent(&input).is_none(), "{input:?}");
        assert_eq!(tensor(input), Tensor::new(dims, expect).unwrap());
    };
    check((&array.t()).into(), &[3, 2], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    check((&array.slice(s![.., 1..])).into(), &[2, 2], &[1.0, 2.0, 4.0, 5.0]);
    check((&array.slice(s![..;-1, ..])).into(), &[2, 3], &[3.0, 4.0, 5.0, 0.0, 1.0, 2.0]);
    check((&array.index_axis(Axis(1), 2)).into(), &[2], &[2.0, 5.0]);
    check(
        (&array.index_axis(Axis(0), 0).broadcast((2, 3)).unwrap()).into(),
        &[2, 3],
        &[0.0, 1.0, 2.0, 0.0, 1.0, 2.0],
    );
    let columns = Array2::from_shape_vec((2, 2).f(), vec![0f32, 1.0, 2.0, 3.0]).unwrap();
    check((&columns).into(), &[2, 2], &[0.0, 2.0, 1.0, 3.0]);
}

/// There and back, and seen in place.
fn every<T: Scalar + Debug + PartialEq>(values: [T; 6]) {
    let array = ArrayD::from_shape_vec(vec![2, 3], values.to_vec()).unwrap();
    let made = Tensor::try_from(&array.t()).unwrap();
    assert_eq!((made.dtype(), made.dims()), (<T as Scalar>::DTYPE, &[3, 2][..]));
    assert_eq!(ArrayD::<T>::try_from(made), Ok(array.t().to_owned()));
    assert_eq!(ArrayD::<T>::try_from(tensor(Input::from(&array))), Ok(array));
}

fn in_place<T: Element + Debug + PartialEq>(values: [T; 6]) {
    every(values);
    let tensor = Tensor::new(&[2, 3], values).unwrap();
    let view = tensor.array::<T>().unwrap();
    assert_eq!((view.shape(), view.as_ptr().cast()), (&[2, 3][..], tensor.bytes().as_ptr()));
    assert_eq!(view.iter().copied().collect::<Vec<_>>(), values);
}

#[test]
fn every_element_type_that_both_have_goes_in_and_out() {
    in_place([1i8, -2, 3, 4, 5, i8::MIN]);
    in_place([1i16, -2, 3, 4, 5, i16::MIN]);
    in_place([1i32, -2, 3, 4, 5, i32::MIN]);
    in_place([1i64, -2, 3, 4, 5, i64::MIN]);
    in_place([1u8, 2, 3, 4, 5, u8::MAX]);
    in_place([1u16, 2, 3, 4, 5, u16::MAX]);
    in_place([1u32, 2, 3, 4, 5, u32::MAX]);
    in_place([1u64, 2, 3, 4, 5, u64::MAX]);
    in_place([1f32, -2.0, 3.0, 4.0, 5.0, f32::MAX]);
    in_place([1f64, -2.0, 3.0, 4.0, 5.0, f64::MAX]);
    every([true, false, true, true, false, false]);

    let words = arr2(&[["a", "b"], ["c", "d"]]).mapv(String::from);
    let made = tensor(Input::from(&words.t()));
    assert_eq!((made.dims(), made.strings()), (&[2, 2][..], &["a", "c", "b", "d"].map(String::from)[..]));
    let place = made.strings()[0].as_ptr();
    let moved = ArrayD::<String>::try_from(made).unwrap();
    assert_eq!((moved.view(), moved[[0, 0]].as_ptr()), (words.t().into_dyn(), place), "moved, not copied");
}

#[test]
fn another_element_type_is_no_array() {
    let numbers = Tensor::new(&[2], [1f32, 2.0]).unwrap();
    assert!(numbers.array::<i32>().is_none());
    let error = ArrayD::<bool>::try_from(numbers).unwrap_err();
    assert_eq!(error, TensorError::DType { expected: DType::Bool, got: DType::F32 });
    assert_eq!(error.to_string(), "expected element type bool, got f32");
    let words = Tensor::from_strings(&[], vec!["a".into()]).unwrap();
    assert_eq!(
        ArrayD::<u8>::try_from(words).unwrap_err().to_string(),
        "expected element type u8, got string"
    );
    assert_eq!(String::DTYPE, DType::String);
}

/// An array may stand for more elements than there is memory for a copy of.
#[test]
fn what_cannot_be_copied_is_a_problem_of_the_input() {
    let model = demo_model();
    let (one, bytes) = (arr0(1u8), isize::MAX as usize);
    let vast = one.broadcast(bytes).unwrap();
    let memory = format!("out of memory: {bytes} bytes asked for");
    assert_eq!(Tensor::try_from(&vast).unwrap_err().to_string(), memory);
    let word = arr0(String::new());
    let error = Tensor::try_from(&word.broadcast(bytes).unwrap()).unwrap_err();
    assert!(matches!(error, TensorError::Memory(_)), "{error}");
    let error = model.session().run_named([("x", &vast)]).map(drop).unwrap_err();
    assert_eq!(error.to_string(), format!("\"x\": {memory}"));
}

#[test]
fn a_session_takes_arrays_and_gives_some() {
    let mut session = demo_model().session();
    let doubled_twice = |x: &Array2<f32>| x.mapv(|x| 4.0 * x).into_dyn();
    let array = counting();
    let mut check = |input: Input<'_>, expect: ArrayD<f32>| {
        let outputs = session.run_named([("x", input)]).unwrap();
        let y = outputs.get(0).unwrap();
        let y = Tensor::from_bytes(y.dtype, y.dims, y.bytes).unwrap();
        assert_eq!(y.array::<f32>(), Some(expect.view()));
    };
    check((&array).into(), doubled_twice(&array));
    let turned = Array2::from_shape_fn((3, 3), |(row, column)| (row + 10 * column) as f32);
    check((&turned.t()).into(), doubled_twice(&turned.t().to_owned()));
    check(Tensor::try_from(&array).unwrap().into(), doubled_twice(&array));
}

/// An input that is no plain tensor takes the strings of an array.
#[test]
fn arrays_of_strings_are_values() {
    let mut b = Builder::default();
    b.plan.values.push(ValueType { nesting: vec![], dtype: DType::String, dims: Some(vec![Some(2)]) });
    let value = ValueSpec { name: "words".into(), value: HostId(0), position: 0 };
    b.plan.value_inputs.push(value.clone());
    b.plan.value_outputs.push(ValueSpec { name: "same".into(), ..value });
    let mut session = b.model().session();
    let words = ndarray::arr1(&["a", "b"]).mapv(String::from);
    let outputs = session.run_named([("words", &words)]).unwrap();
    let (_, same) = outputs.values().next().unwrap();
    assert_eq!(same.as_tensor().map(Tensor::strings), words.as_slice());
    let error = session.run_named([("words", &arr0(1f32))]).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "\"words\": expected string[2], got a value of another type");
}
