//! Models whose values are no plain tensors: compiled, loaded and run.

use tilewright_driver::graph::text;
use tilewright_driver::onnx::{OnnxModel, export};
use tilewright_driver::reference::Reference;
use tilewright_driver::runtime::{Model, Tensor, TensorView, Value};
use tilewright_driver::{CodegenKind, Compiled, DType, Options, TensorData, Trust, compile_model, loader};

/// Compiles a graph in text form, by way of ONNX.
fn compile(graph: &str) -> Compiled {
    let graph = text::parse(graph).expect("a graph");
    let model = OnnxModel::from_proto(export(&graph).expect("an ONNX model")).expect("a model");
    compile_model(&model, &Options::host(CodegenKind::Cranelift), &mut ()).expect("an artifact")
}

fn load(compiled: &Compiled) -> Model {
    loader(Trust::Origin).from_bytes(compiled.artifact.to_bytes().expect("bytes")).expect("a model")
}

fn floats(dims: &[usize], values: &[f32]) -> Value {
    Tensor::new(dims, values).expect("as many elements").into()
}

fn strings(values: &[&str]) -> Value {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    Tensor::from_strings(&[values.len()], values).expect("strings that fit").into()
}

#[test]
fn a_loop_exchanges_the_sequences_it_carries() {
    let compiled = compile(
        "graph swap {
          region0(%n trips: i64[], %x x: f32[2], %y y: f32[3]) {
            %a: seq(f32[*]) = SequenceConstruct(%x)
            %b: seq(f32[*]) = SequenceConstruct(%y, %y)
            %p: seq(f32[*]), %q: seq(f32[*]) = Loop[body=region1, carried=2](%n, _, %a, %b)
            return %p as p, %q as q
          }
          region1(%i: i64[], %c: bool[], %d: seq(f32[*]), %e: seq(f32[*])) {
            return %c, %e, %d
          }
        }",
    );
    let mut session = load(&compiled).session();
    let (x, y) = ([1.0f32, 2.0], [3.0f32, 4.0, 5.0]);
    let a = Value::sequence(vec![floats(&[2], &x)]);
    let b = Value::sequence(vec![floats(&[3], &y); 2]);
    for trips in 0..4i64 {
        let inputs = [
            TensorView::of(&[], std::slice::from_ref(&trips)),
            TensorView::of(&[2], &x),
            TensorView::of(&[3], &y),
        ];
        let outputs = session.run(&inputs).expect("a run");
        let values: Vec<Value> = outputs.values().map(|(_, value)| value.clone()).collect();
        let expect = if trips % 2 == 0 { [a.clone(), b.clone()] } else { [b.clone(), a.clone()] };
        assert_eq!(values, expect, "{trips} trips");
    }
}

#[test]
fn branches_of_different_ranks_give_a_value_of_open_rank() {
    let compiled = compile(
        "graph ranks {
          region0(%c cond: bool[], %x x: f32[2]) {
            %y: f32[*] = If[then_region=region1, else_region=region2](%c, %x)
            return %y as y
          }
          region1(%a: f32[2]) {
            %d: f32[2] = Unary[neg](%a)
            return %d
          }
          region2(%b: f32[2]) {
            %e: f32[2, 1] = Reshape[dims=[2, 1]](%b)
            return %e
          }
        }",
    );
    let mut session = load(&compiled).session();
    for (condition, expect) in [(1u8, floats(&[2], &[-1.0, -2.0])), (0, floats(&[2, 1], &[1.0, 2.0]))] {
        let condition = [condition];
        let inputs = [TensorView::new(DType::Bool, &[], &condition), TensorView::of(&[2], &[1.0f32, 2.0])];
        let outputs = session.run(&inputs).expect("a run");
        let values: Vec<Value> = outputs.values().map(|(_, value)| value.clone()).collect();
        assert_eq!(values, [expect]);
    }
}

#[test]
fn extents_of_strings_are_extents_like_others() {
    let compiled = compile(
        "graph words {
          sym n input 1..4:1
          region0(%s s: string[n], %x x: i64[n]) {
            %p: string[*], %k: i64[n] = StringSplit[delimiter=\"\", max_split=none](%s)
            %y: i64[n] = Binary[add](%k, %x)
            return %y as y
          }
        }",
    );
    let mut session = load(&compiled).session();
    let words = strings(&["a b", "", "c d e"]);
    let tens = [10i64, 20, 30];
    let outputs =
        session.run_values(&[TensorView::of(&[3], &tens)], std::slice::from_ref(&words)).expect("a run");
    assert_eq!(outputs.get(0).and_then(|y| y.to_vec::<i64>()), Some(vec![12, 20, 33]));
    let error =
        session.run_values(&[TensorView::of(&[2], &tens[..2])], &[words]).map(|_| ()).expect_err("a fault");
    assert!(error.to_string().starts_with("extents of the same name must be equal (needs 3 == 2"), "{error}");
}

/// Of a range whose elements nobody reads, the plan computes the length alone.
#[test]
fn the_length_alone_of_a_range() {
    let compiled = compile(
        "graph length {
          sym m computed 0..*:1
          region0(%n n: i64[], %x x: i64[]) {
            %zero: i64[] = Constant[i64[]{0}]()
            %one: i64[] = Constant[i64[]{1}]()
            %e: i64[] = Binary[mul](%n, %x)
            %r: i64[m] = RangeDynamic(%zero, %e, %one)
            %l: i64[1] = Shape[start=0, end=1](%r)
            return %l as l
          }
        }",
    );
    let mut session = load(&compiled).session();
    for (n, x) in [(3i64, 5i64), (0, 4), (1, 1)] {
        let inputs = [&n, &x].map(|number| TensorView::of(&[], std::slice::from_ref(number)));
        let outputs = session.run(&inputs).expect("a run");
        assert_eq!(outputs.get(0).and_then(|length| length.to_vec::<i64>()), Some(vec![n * x]));
    }
}

/// Activations of convolutions are blocked by channels, which an operator on the host must not see.
#[test]
fn operators_on_the_host_see_row_major_tensors() {
    let compiled = compile(
        "graph found {
          sym found computed 0..*:1
          region0(%x x: f32[1, 8, 4, 4], %w w: f32[16, 8, 3, 3]) {
            %y: f32[1, 16, 2, 2] = Conv[strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1], group=1](%x, %w)
            %z: f32[1, 16, 2, 2] = Unary[relu](%y)
            %i: i64[4, found] = NonZero(%z)
            return %i as i
          }
        }",
    );
    let data = |count: usize, seed: usize| -> Vec<f32> {
        (0..count).map(|i| ((i * 37 + seed) % 19) as f32 - 9.0).collect()
    };
    let (x, w) = (data(8 * 16, 3), data(16 * 8 * 9, 5));
    let tensor = |shape: &[i64], values: &[f32]| TensorData {
        dtype: DType::F32,
        shape: shape.to_vec(),
        bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
    };
    let reference = Reference::new(&compiled.graph).expect("a reference");
    let inputs = [tensor(&[1, 8, 4, 4], &x), tensor(&[16, 8, 3, 3], &w)];
    let expect = reference.run(&inputs, &mut |_, _| {}).expect("a run").remove(0);
    let mut session = load(&compiled).session();
    let views = [TensorView::of(&[1, 8, 4, 4], &x), TensorView::of(&[16, 8, 3, 3], &w)];
    let outputs = session.run(&views).expect("a run");
    let found = outputs.get(0).expect("an output");
    assert!(found.dims[1] > 4 && found.dims[1] < 64, "{:?}", found.dims);
    assert_eq!(found.bytes, expect.bytes);
}
