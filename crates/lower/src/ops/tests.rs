//! Definitions against small values worked out by hand, through the interpreter.

use tilewright_dtype::DType;
use tilewright_graph::Dim;
use tilewright_graph::op::*;
use tilewright_graph::symbol::{SymbolKind, SymbolTable};
use tilewright_graph::tensor::{Bytes, Element, Tensor};
use tilewright_graph::types::TensorType;
use tilewright_te::Func;
use tilewright_te::interp::{Mode, Program};

use super::{Context, NoKernel, define};
use crate::dims::DimMap;

mod softmax;
mod transforms;

fn tensor<T: Element>(dims: &[usize], elements: &[T]) -> Tensor {
    Tensor::from_elements(dims, elements).unwrap()
}

/// The function of one operator on operands of constant extents.
fn function(op: &Op, inputs: &[Option<&Tensor>], results: &[TensorType]) -> Result<Func, NoKernel> {
    let (mut func, mut dims) = (Func::new("test"), DimMap::new());
    let symbols = SymbolTable::default();
    let operands: Vec<_> = inputs
        .iter()
        .enumerate()
        .map(|(n, input)| {
            input.map(|tensor| {
                let shape = tensor.dims().iter().map(|&extent| (extent as i64).into()).collect();
                func.add_input(&format!("in{n}"), tensor.dtype(), shape)
            })
        })
        .collect();
    let mut ctx = Context::new(&symbols, &mut dims);
    let results: Vec<&TensorType> = results.iter().collect();
    for buffer in define(&mut func, &mut ctx, op, &operands, &results)? {
        func.promote_to_output(buffer);
    }
    Ok(func)
}

/// Results have the element types and extents of `expected`, and its values up to 1e-5.
fn check(op: Op, inputs: &[&Tensor], expected: &[Tensor]) {
    let types: Vec<TensorType> = expected.iter().map(Tensor::tensor_type).collect();
    let operands: Vec<Option<&Tensor>> = inputs.iter().map(|tensor| Some(*tensor)).collect();
    let func = function(&op, &operands, &types).unwrap();
    let bytes: Vec<&[u8]> = inputs.iter().map(|tensor| tensor.bytes().unwrap().as_slice()).collect();
    let results = Program::compile(&func).unwrap().run(&[], &bytes, Mode::Exact).unwrap();
    for (result, expected) in results.into_iter().zip(expected) {
        let dims = result.shape.iter().map(|&extent| extent as usize).collect();
        let result = Tensor::from_bytes(result.dtype, dims, Bytes::new(result.bytes)).unwrap();
        assert_eq!((result.dtype(), result.dims()), (expected.dtype(), expected.dims()), "{}", op.name());
        let (got, want) = (result.to_f64s().unwrap(), expected.to_f64s().unwrap());
        let close = |(a, b): (&f64, &f64)| (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= 1e-5;
        assert!(got.iter().zip(&want).all(close), "{}: {got:?}, expected {want:?}", op.name());
    }
}

/// The operator is refused with a message that contains `reason`.
fn refuses(op: Op, inputs: &[&Tensor], results: &[TensorType], reason: &str) {
    let operands: Vec<Option<&Tensor>> = inputs.iter().map(|tensor| Some(*tensor)).collect();
    let message = function(&op, &operands, results).unwrap_err().to_string();
    assert!(message.starts_with(op.name()) && message.contains(reason), "{message}");
}

#[test]
fn elementwise() {
    let x = tensor(&[4], &[-2.0f32, -0.0, 3.0, f32::NAN]);
    check(Op::Unary(UnaryOp::Relu), &[&x], &[tensor(&[4], &[0.0f32, 0.0, 3.0, f32::NAN])]);
    check(Op::Unary(UnaryOp::Sign), &[&x], &[tensor(&[4], &[-1.0f32, 0.0, 1.0, f32::NAN])]);
    check(Op::Unary(UnaryOp::IsNan), &[&x], &[tensor(&[4], &[false, false, false, true])]);
    let (low, high) = (Tensor::scalar(-1.0f32), Tensor::scalar(1.0f32));
    check(Op::Clip, &[&x, &low, &high], &[tensor(&[4], &[-1.0f32, 0.0, 1.0, f32::NAN])]);
    check(Op::cast(DType::I64), &[&x], &[tensor(&[4], &[-2i64, 0, 3, 0])]);
}

#[test]
fn broadcasting_and_integer_semantics() {
    let (a, b) = (tensor(&[2, 1], &[7i32, -7]), tensor(&[3], &[2i32, -2, 3]));
    check(Op::Binary(BinaryOp::Div), &[&a, &b], &[tensor(&[2, 3], &[3i32, -3, 2, -3, 3, -2])]);
    check(Op::Binary(BinaryOp::Mod), &[&a, &b], &[tensor(&[2, 3], &[1i32, -1, 1, 1, -1, 2])]);
    check(Op::Binary(BinaryOp::Fmod), &[&a, &b], &[tensor(&[2, 3], &[1i32, 1, 1, -1, -1, -1])]);
    let (x, y) = (tensor(&[2], &[f32::NAN, 1.0]), tensor(&[2], &[0.0f32, f32::NAN]));
    check(Op::Binary(BinaryOp::Max), &[&x, &y], &[tensor(&[2], &[f32::NAN, f32::NAN])]);
}

#[test]
fn products() {
    let (a, b) = (tensor(&[2, 2], &[1.0f32, 2.0, 3.0, 4.0]), tensor(&[2, 2], &[5.0f32, 6.0, 7.0, 8.0]));
    check(Op::matmul(), &[&a, &b], &[tensor(&[2, 2], &[19.0f32, 22.0, 43.0, 50.0])]);
    let transposed = MatMulAttrs { transpose_a: false, transpose_b: true };
    check(Op::MatMul(transposed), &[&a, &b], &[tensor(&[2, 2], &[17.0f32, 23.0, 39.0, 53.0])]);
    let v = tensor(&[2], &[1.0f32, -1.0]);
    check(Op::matmul(), &[&v, &a], &[tensor(&[2], &[-2.0f32, -2.0])]);
    let gemm = GemmAttrs { alpha: Real(0.5), beta: Real(2.0), transpose_a: true, transpose_b: false };
    check(Op::Gemm(gemm), &[&a, &b, &v], &[tensor(&[2, 2], &[15.0f32, 13.0, 21.0, 20.0])]);
    let trace = Op::Einsum(EinsumAttrs { equation: "ii->".to_owned() });
    check(trace, &[&a], &[Tensor::scalar(5.0f32)]);
    check(Op::Det, &[&tensor(&[2, 2], &[0.0f32, 2.0, 3.0, 4.0])], &[Tensor::scalar(-6.0f32)]);
}

#[test]
fn convolutions() {
    let x = tensor(&[1, 1, 3], &[1.0f32, 2.0, 3.0]);
    let w = tensor(&[1, 1, 2], &[1.0f32, 10.0]);
    let bias = tensor(&[1], &[100.0f32]);
    let attrs = ConvAttrs { strides: vec![1], pads: vec![1, 0], dilations: vec![1], group: 1 };
    check(Op::Conv(attrs), &[&x, &w, &bias], &[tensor(&[1, 1, 3], &[110.0f32, 121.0, 132.0])]);
    // Two groups: the second output channel reads the second input channel.
    let x = tensor(&[1, 2, 2], &[1.0f32, 2.0, 3.0, 4.0]);
    let w = tensor(&[2, 1, 1], &[10.0f32, 100.0]);
    let attrs = ConvAttrs { strides: vec![1], pads: vec![0, 0], dilations: vec![1], group: 2 };
    check(Op::Conv(attrs), &[&x, &w], &[tensor(&[1, 2, 2], &[10.0f32, 20.0, 300.0, 400.0])]);
    // Every input element writes the kernel at twice its position.
    let x = tensor(&[1, 1, 2], &[1.0f32, 2.0]);
    let w = tensor(&[1, 1, 3], &[1.0f32, 10.0, 100.0]);
    let (strides, dilations) = (vec![2], vec![1]);
    let attrs =
        ConvTransposeAttrs { strides, pads: vec![0, 0], dilations, group: 1, output_padding: vec![0] };
    let y = tensor(&[1, 1, 5], &[1.0f32, 10.0, 102.0, 20.0, 200.0]);
    check(Op::ConvTranspose(attrs), &[&x, &w], &[y]);
}

#[test]
fn pools() {
    let x = tensor(&[1, 1, 4], &[1.0f32, -5.0, 3.0, 4.0]);
    let attrs = |kind, count_include_pad| PoolAttrs {
        kind,
        kernel: vec![3],
        strides: vec![2],
        pads: vec![1, 1],
        dilations: vec![1],
        ceil_mode: false,
        count_include_pad,
        p: 2,
    };
    check(Op::Pool(attrs(PoolKind::Max, false)), &[&x], &[tensor(&[1, 1, 2], &[1.0f32, 4.0])]);
    let mean = |second: bool| tensor(&[1, 1, 2], &[if second { -4.0f32 / 3.0 } else { -2.0 }, 2.0 / 3.0]);
    check(Op::Pool(attrs(PoolKind::Average, false)), &[&x], &[mean(false)]);
    check(Op::Pool(attrs(PoolKind::Average, true)), &[&x], &[mean(true)]);
}

#[test]
fn reductions() {
    let x = tensor(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, -6.0]);
    check(Op::reduce(ReduceKind::Mean, vec![1], false), &[&x], &[tensor(&[2], &[2.0f32, 1.0])]);
    check(Op::reduce(ReduceKind::L1, vec![0], true), &[&x], &[tensor(&[1, 3], &[5.0f32, 7.0, 9.0])]);
    let empty = tensor::<f32>(&[0, 2], &[]);
    check(Op::reduce(ReduceKind::Sum, vec![0], false), &[&empty], &[tensor(&[2], &[0.0f32, 0.0])]);
    let dynamic = ReduceDynamicAttrs { kind: ReduceKind::Sum, keep_dims: false, empty_is_noop: false };
    let axes = tensor(&[1], &[-2i64]);
    check(Op::ReduceDynamic(dynamic), &[&x, &axes], &[tensor(&[3], &[5.0f32, 7.0, -3.0])]);
    let ties = tensor(&[4], &[3.0f32, 1.0, 3.0, 1.0]);
    let arg = |extreme, select_last| {
        Op::ArgReduce(ArgReduceAttrs { extreme, axis: 0, keep_dims: false, select_last })
    };
    check(arg(Extreme::Max, false), &[&ties], &[Tensor::scalar(0i64)]);
    check(arg(Extreme::Min, true), &[&ties], &[Tensor::scalar(3i64)]);
    let running =
        CumulativeAttrs { kind: CumulativeKind::Sum, axis: Some(0), exclusive: true, reverse: true };
    check(Op::Cumulative(running), &[&ties], &[tensor(&[4], &[5.0f32, 4.0, 1.0, 0.0])]);
}

/// The mean of [2, 3, 2] over axes that are data, and how many steps it takes.
#[test]
fn reductions_over_axes_that_are_data_take_each_element_once() {
    let elements: Vec<f32> = (0..12).map(|n| n as f32).collect();
    let x = tensor(&[2, 3, 2], &elements);
    let mean = |keep_dims| {
        Op::ReduceDynamic(ReduceDynamicAttrs { kind: ReduceKind::Mean, keep_dims, empty_is_noop: false })
    };
    let (middle, outer) = (tensor(&[1], &[1i64]), tensor(&[2], &[-1i64, 0]));
    check(mean(true), &[&x, &middle], &[tensor(&[2, 1, 2], &[2.0f32, 3.0, 8.0, 9.0])]);
    check(mean(false), &[&x, &outer], &[tensor(&[3], &[3.5f32, 5.5, 7.5])]);
    let empty = tensor::<f32>(&[0, 2], &[]);
    check(mean(true), &[&empty, &middle], &[tensor::<f32>(&[0, 1], &[])]);

    let results = [TensorType::fixed(DType::F32, &[3])];
    let func = function(&mean(false), &[Some(&x), Some(&outer)], &results).unwrap();
    let steps = |block: &tilewright_te::Block| -> i64 {
        block.iters.iter().map(|iter| iter.extent.as_int().unwrap()).product()
    };
    let sums = func.blocks().into_iter().filter(|block| block.is_reduction());
    assert_eq!(sums.map(steps).collect::<Vec<_>>(), [12]);
}

/// An axis that is sorted by merging, not by counting: the same order.
#[test]
fn long_axes_are_ranked_stably() {
    let n = 1500;
    let mut random = 1u64;
    let mut column = || -> Vec<f32> {
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if random >> 58 == 0 { f32::NAN } else { (random >> 54) as f32 }
        };
        (0..n).map(|_| next()).collect()
    };
    let columns = [column(), column()];
    let pairs: Vec<f32> = (0..n).flat_map(|row| [columns[0][row], columns[1][row]]).collect();
    let (x, k) = (tensor(&[n, 2], &pairs), n - 1);
    for largest in [true, false] {
        let orders = columns.each_ref().map(|column| {
            let mut order: Vec<usize> = (0..n).collect();
            let order_of = |a: &usize, b: &usize| column[*a].total_cmp(&column[*b]);
            order.sort_by(|a, b| if largest { order_of(b, a) } else { order_of(a, b) });
            order
        });
        let each = |rank: usize| [0, 1].map(|at| (orders[at][rank], columns[at][orders[at][rank]]));
        let best: Vec<(usize, f32)> = (0..k).flat_map(each).collect();
        let values: Vec<f32> = best.iter().map(|(_, value)| *value).collect();
        let places: Vec<i64> = best.iter().map(|(place, _)| *place as i64).collect();
        let top = TopKAttrs { axis: 0, largest, sorted: true, k: Some(Dim::from(k)) };
        check(Op::TopK(top), &[&x], &[tensor(&[k, 2], &values), tensor(&[k, 2], &places)]);
    }
}

#[test]
fn normalisations() {
    let x = tensor(&[1, 2], &[0.0f32, 3f32.ln()]);
    check(Op::Softmax(SoftmaxAttrs { axis: 1, log: false }), &[&x], &[tensor(&[1, 2], &[0.25f32, 0.75])]);
    let logs = tensor(&[1, 2], &[0.25f32.ln(), 0.75f32.ln()]);
    check(Op::Softmax(SoftmaxAttrs { axis: 1, log: true }), &[&x], &[logs]);
    let x = tensor(&[1, 2], &[1.0f32, 3.0]);
    let (scale, bias) = (tensor(&[2], &[2.0f32, 2.0]), tensor(&[2], &[0.5f32, 0.5]));
    let attrs = LayerNormAttrs { axis: 1, epsilon: Real(0.0), stash: None };
    let expected = [tensor(&[1, 2], &[-1.5f32, 2.5]), tensor(&[1, 1], &[2.0f32]), tensor(&[1, 1], &[1.0f32])];
    check(Op::LayerNorm(attrs), &[&x, &scale, &bias], &expected);
}

#[test]
fn movement() {
    let x = tensor(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
    check(Op::transpose(vec![1, 0]), &[&x], &[tensor(&[3, 2], &[1i32, 4, 2, 5, 3, 6])]);
    let dims = vec![Dim::new(3), Dim::new(2)];
    check(Op::reshape(dims), &[&x], &[tensor(&[3, 2], &[1i32, 2, 3, 4, 5, 6])]);
    let (starts, sizes) = (vec![Dim::new(2)], vec![Dim::new(2)]);
    let slice = SliceAttrs { axes: vec![1], starts, steps: vec![-2], sizes };
    check(Op::Slice(slice), &[&x], &[tensor(&[2, 2], &[3i32, 1, 6, 4])]);
    let bounds =
        [tensor(&[1], &[-1i64]), tensor(&[1], &[-9i64]), tensor(&[1], &[1i64]), tensor(&[1], &[-2i64])];
    let operands = [&x, &bounds[0], &bounds[1], &bounds[2], &bounds[3]];
    check(Op::SliceDynamic, &operands, &[tensor(&[2, 2], &[3i32, 1, 6, 4])]);
    check(
        Op::Concat(AxisAttrs { axis: 1 }),
        &[&x, &x],
        &[tensor(&[2, 6], &[1i32, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6])],
    );
    let split = SplitAttrs { axis: 1, sizes: vec![Dim::new(1), Dim::new(2)] };
    check(Op::Split(split), &[&x], &[tensor(&[2, 1], &[1i32, 4]), tensor(&[2, 2], &[2i32, 3, 5, 6])]);
    let v = tensor(&[3], &[1i32, 2, 3]);
    let pad = |mode| Op::Pad(PadAttrs { mode, before: vec![Dim::new(2)], after: vec![Dim::new(1)] });
    check(pad(PadMode::Reflect), &[&v], &[tensor(&[6], &[3i32, 2, 1, 2, 3, 2])]);
    check(pad(PadMode::Wrap), &[&v], &[tensor(&[6], &[2i32, 3, 1, 2, 3, 1])]);
    check(pad(PadMode::Constant), &[&v], &[tensor(&[6], &[0i32, 0, 1, 2, 3, 0])]);
}

#[test]
fn gathers_and_scatters() {
    let x = tensor(&[3], &[10i32, 20, 30]);
    let indices = tensor(&[4], &[-1i64, 0, 99, -99]);
    check(Op::Gather(AxisAttrs { axis: 0 }), &[&x, &indices], &[tensor(&[4], &[30i32, 10, 30, 10])]);
    let (twice, updates) = (tensor(&[2], &[1i64, 1]), tensor(&[2], &[1i32, 2]));
    let scatter = |reduction| Op::ScatterElements(ScatterElementsAttrs { axis: 0, reduction });
    let operands = [&x, &twice, &updates];
    check(scatter(ScatterReduction::None), &operands, &[tensor(&[3], &[10i32, 2, 30])]);
    check(scatter(ScatterReduction::Add), &operands, &[tensor(&[3], &[10i32, 23, 30])]);
    let top = TopKAttrs { axis: 0, largest: true, sorted: true, k: Some(Dim::new(2)) };
    let ties = tensor(&[3], &[5i32, 7, 7]);
    check(Op::TopK(top), &[&ties], &[tensor(&[2], &[7i32, 7]), tensor(&[2], &[1i64, 2])]);
}

#[test]
fn a_recurrence_carries_its_state() {
    // h = x + h / 2, forwards and backwards.
    let x = tensor(&[3, 1, 1], &[1.0f32, 2.0, 4.0]);
    let (w, r) = (tensor(&[2, 1, 1], &[1.0f32, 1.0]), tensor(&[2, 1, 1], &[0.5f32, 0.5]));
    let attrs = RecurrentAttrs {
        direction: Direction::Bidirectional,
        hidden_size: 1,
        activations: vec![RecurrentActivation::Affine; 2],
        activation_alpha: vec![Real(1.0); 2],
        activation_beta: vec![Real(0.0); 2],
        clip: None,
        batch_first: false,
        input_forget: false,
        linear_before_reset: false,
    };
    let states = tensor(&[3, 2, 1, 1], &[1.0f32, 3.0, 2.5, 4.0, 5.25, 4.0]);
    check(Op::Rnn(attrs), &[&x, &w, &r], &[states, tensor(&[2, 1, 1], &[5.25f32, 3.0])]);
}

/// There are no states then, and the last one is the first.
#[test]
fn a_recurrence_of_no_steps_ends_where_it_starts() {
    let attrs = |activations: usize| RecurrentAttrs {
        direction: Direction::Forward,
        hidden_size: 1,
        activations: vec![RecurrentActivation::Tanh; activations],
        activation_alpha: vec![Real(0.0); activations],
        activation_beta: vec![Real(0.0); activations],
        clip: None,
        batch_first: false,
        input_forget: false,
        linear_before_reset: true,
    };
    let x = tensor::<f32>(&[0, 1, 1], &[]);
    let lengths = tensor(&[1], &[0i32]);
    let (hidden, cell) = (tensor(&[1, 1, 1], &[7.0f32]), tensor(&[1, 1, 1], &[9.0f32]));
    let states = tensor::<f32>(&[0, 1, 1, 1], &[]);
    let weights = |gates: usize| {
        let of = |dims: &[usize]| tensor(dims, &vec![1.0f32; dims.iter().product()]);
        [of(&[1, gates, 1]), of(&[1, gates, 1]), of(&[1, 2 * gates])]
    };
    let [w, r, bias] = weights(1);
    let rnn = [&x, &w, &r, &bias, &lengths, &hidden];
    check(Op::Rnn(attrs(1)), &rnn, &[states.clone(), hidden.clone()]);
    let [w, r, bias] = weights(3);
    let gru = [&x, &w, &r, &bias, &lengths, &hidden];
    check(Op::Gru(attrs(2)), &gru, &[states.clone(), hidden.clone()]);
    let [w, r, bias] = weights(4);
    let lstm = [&x, &w, &r, &bias, &lengths, &hidden, &cell];
    check(Op::Lstm(attrs(3)), &lstm, &[states, hidden.clone(), cell.clone()]);
}

#[test]
fn attention_masks_whole_rows_to_zero() {
    let q = tensor(&[1, 1, 2, 1], &[0.0f32, 0.0]);
    let v = tensor(&[1, 1, 2, 1], &[1.0f32, 3.0]);
    let mask = tensor(&[2, 2], &[true, true, false, false]);
    let attrs = AttentionAttrs::of_heads(None);
    check(Op::Attention(attrs), &[&q, &q, &v, &mask], &[tensor(&[1, 1, 2, 1], &[2.0f32, 0.0])]);
}

#[test]
fn quantisation_rounds_to_even_and_saturates() {
    let x = tensor(&[4], &[0.5f32, 1.5, 1000.0, -1000.0]);
    let (scale, zero) = (Tensor::scalar(1.0f32), Tensor::scalar(10u8));
    let attrs = QuantizeAttrs { axis: 0, block_size: 0, to: DType::U8, saturate: true, precision: None };
    check(Op::QuantizeLinear(attrs), &[&x, &scale, &zero], &[tensor(&[4], &[10u8, 12, 255, 0])]);
    let attrs = DequantizeAttrs { axis: 0, block_size: 0, to: DType::F32 };
    let q = tensor(&[2], &[0u8, 12]);
    check(Op::DequantizeLinear(attrs), &[&q, &scale, &zero], &[tensor(&[2], &[-10.0f32, 2.0])]);
}

#[test]
fn symbols_become_sizes() {
    let mut symbols = SymbolTable::default();
    let n = symbols.intern("n", SymbolKind::Input);
    let (mut func, mut dims) = (Func::new("f"), DimMap::new());
    let extent = dims.expr(&mut func, &symbols, &Dim::symbol(n));
    let x = func.add_input("x", DType::F32, vec![extent]);
    let ty = TensorType::new(DType::F32, vec![Dim::new(2), Dim::symbol(n)]);
    let mut ctx = Context::new(&symbols, &mut dims);
    let op = Op::Expand(DimsAttrs { dims: vec![Dim::new(2), Dim::symbol(n)] });
    let results = define(&mut func, &mut ctx, &op, &[Some(x)], &[&ty]).unwrap();
    func.promote_to_output(results[0]);
    let x = tensor(&[3], &[1.0f32, 2.0, 3.0]);
    let bytes = [x.bytes().unwrap().as_slice()];
    let results = Program::compile(&func).unwrap().run(&[3], &bytes, Mode::Exact).unwrap();
    assert_eq!(results[0].shape, [2, 3]);
}

#[test]
fn operators_without_a_definition_say_why() {
    let x = tensor(&[2], &[1.0f32, 2.0]);
    let strings = Tensor::from_strings(vec![1], vec![b"a".to_vec()]).unwrap();
    refuses(Op::NonZero, &[&x], &[TensorType::fixed(DType::I64, &[1, 2])], "runs on the host");
    refuses(Op::Identity, &[&strings], &[strings.tensor_type()], "it is not implemented on strings");
    let ints = tensor(&[1], &[1i32]);
    refuses(Op::Unary(UnaryOp::Exp), &[&ints], &[ints.tensor_type()], "exp of i32 elements");
}
