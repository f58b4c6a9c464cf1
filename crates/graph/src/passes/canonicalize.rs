//! Canonical forms and algebraic rules.
//!
//! Rules for rules: every rule strictly shrinks the graph or moves it towards a form no rule leads back from;
//! a rule changes no result except for the sign of a zero; constants go to the right of commutative operators,
//! so that later patterns need one order only.

use crate::dim::Dim;
use crate::graph::{Graph, Node};
use crate::ids::{NodeId, ValueId};
use crate::op::*;
use crate::pass::PassError;
use crate::patch::{Patch, Rule, Source, View, rewrite};
use crate::symbol::SymbolKind;

/// Applies the rules until none matches.
pub fn canonicalize(graph: &mut Graph) -> Result<bool, PassError> {
    rewrite(graph, RULES, 16)
}

const RULES: &[Rule] = &[
    Rule { name: "no_op", apply: no_op },
    Rule { name: "constant_to_the_right", apply: constant_to_the_right },
    Rule { name: "neutral_element", apply: neutral_element },
    Rule { name: "square", apply: square },
    Rule { name: "involution", apply: involution },
    Rule { name: "transpose_of_transpose", apply: transpose_of_transpose },
    Rule { name: "reshape_of_reshape", apply: reshape_of_reshape },
    Rule { name: "transpose_as_reshape", apply: transpose_as_reshape },
    Rule { name: "cast_of_cast", apply: cast_of_cast },
    Rule { name: "matmul_of_transpose", apply: matmul_of_transpose },
    Rule { name: "transpose_of_matmul", apply: transpose_of_matmul },
    Rule { name: "where_of_constant", apply: where_of_constant },
    Rule { name: "concat_of_concat", apply: concat_of_concat },
    Rule { name: "clip_as_relu", apply: clip_as_relu },
    Rule { name: "gather_as_slice", apply: gather_as_slice },
    Rule { name: "moved_full", apply: moved_full },
    Rule { name: "zero_initial_state", apply: zero_initial_state },
    Rule { name: "taps_in_padding", apply: taps_in_padding },
    Rule { name: "conv_transpose_as_matmul", apply: conv_transpose_as_matmul },
];

/// `a` if the node's only result has exactly the type of operand `a`.
fn same_type(view: &View<'_>, node: &Node, value: ValueId) -> Option<ValueId> {
    (view.graph.ty(node.output()?) == view.graph.ty(value)).then_some(value)
}

/// Operators that do nothing with the attributes they have: `x + 0` is another rule.
fn no_op(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let x = node.input(0)?;
    let does_nothing = match &node.op {
        Op::Identity => true,
        Op::Transpose(attrs) => attrs.perm.iter().enumerate().all(|(axis, &from)| axis == from),
        Op::Reshape(attrs) | Op::Expand(attrs) => view.graph.dims(x) == Some(&attrs.dims),
        Op::Cast(attrs) => view.graph.tensor_type(x)?.dtype == attrs.to,
        Op::Concat(_) => node.inputs.len() == 1,
        Op::Split(attrs) => attrs.sizes.len() == 1,
        Op::Pad(attrs) => attrs.before.iter().chain(&attrs.after).all(|amount| amount.is(0)),
        Op::Tile(attrs) => attrs.repeats.iter().all(|count| count.is(1)),
        Op::Clip => node.input(1).is_none() && node.input(2).is_none(),
        Op::Slice(attrs) => {
            let dims = view.graph.dims(x)?;
            let whole = |index: usize| {
                attrs.starts[index].is(0)
                    && attrs.steps[index] == 1
                    && attrs.sizes[index] == dims[attrs.axes[index]]
            };
            (0..attrs.axes.len()).all(whole)
        }
        Op::Reduce(attrs) => {
            use ReduceKind::*;
            attrs.axes.is_empty() && matches!(attrs.kind, Sum | Mean | Max | Min | Prod)
        }
        Op::Einsum(attrs) => {
            attrs.equation.split_once("->").is_some_and(|(from, to)| from == to && node.inputs.len() == 1)
        }
        _ => false,
    };
    if does_nothing && node.outputs.len() == 1 { Some(Patch::forward(x)) } else { None }
}

/// `c + x` -> `x + c`, and so on.
fn constant_to_the_right(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Binary(op) = node.op else { return None };
    let (a, b) = (node.input(0)?, node.input(1)?);
    let swap = op.is_commutative() && view.graph.constant(a).is_some() && view.graph.constant(b).is_none();
    swap.then(|| Patch::single(Op::Binary(op), [b, a]))
}

/// `x + 0`, `x - 0`, `x * 1`, `x / 1`, `x ^ 1` -> `x`.
fn neutral_element(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Binary(op) = node.op else { return None };
    let neutral = match op {
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Or | BinaryOp::BitwiseOr | BinaryOp::BitwiseXor => 0.0,
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::Pow | BinaryOp::And => 1.0,
        _ => return None,
    };
    let x = same_type(view, node, node.input(0)?)?;
    (view.splat(node.input(1)?)? == neutral).then(|| Patch::forward(x))
}

/// `x ^ 2` -> `x * x`, which is what a correctly rounded power would give.
fn square(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Binary(BinaryOp::Pow) = node.op else { return None };
    let x = same_type(view, node, node.input(0)?)?;
    (view.splat(node.input(1)?)? == 2.0).then(|| Patch::single(Op::Binary(BinaryOp::Mul), [x, x]))
}

/// `-(-x)`, `!!x`, `~~x` -> `x`; `relu(relu(x))`, `abs(abs(x))` -> the inner one.
fn involution(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Unary(outer) = node.op else { return None };
    let inner_value = node.input(0)?;
    let (inner_id, inner) = view.producer(inner_value)?;
    if inner.op != node.op {
        return None;
    }
    match outer {
        UnaryOp::Neg | UnaryOp::Not | UnaryOp::BitwiseNot => {
            Some(Patch::forward(inner.input(0)?).absorb([inner_id]))
        }
        UnaryOp::Relu | UnaryOp::Abs | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Sign => {
            Some(Patch::forward(inner_value))
        }
        _ => None,
    }
}

fn transpose_of_transpose(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Transpose(outer) = &node.op else { return None };
    let (inner_id, inner_node) = view.producer(node.input(0)?)?;
    let Op::Transpose(inner) = &inner_node.op else { return None };
    let perm = outer.perm.iter().map(|&axis| inner.perm[axis]).collect();
    Some(Patch::single(Op::transpose(perm), [inner_node.input(0)?]).absorb([inner_id]))
}

fn reshape_of_reshape(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Reshape(_) = &node.op else { return None };
    let (inner_id, inner) = view.producer(node.input(0)?)?;
    let Op::Reshape(_) = &inner.op else { return None };
    Some(Patch::single(node.op.clone(), [inner.input(0)?]).absorb([inner_id]))
}

/// A transpose that only moves axes of extent 1 is a reshape.
fn transpose_as_reshape(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Transpose(attrs) = &node.op else { return None };
    let x = node.input(0)?;
    let dims = view.graph.dims(x)?;
    let mut long = attrs.perm.iter().filter(|&&axis| !dims[axis].is(1));
    let mut last = None;
    if !long.all(|&axis| last.replace(axis).is_none_or(|before| before < axis)) {
        return None;
    }
    let result: Vec<Dim> = attrs.perm.iter().map(|&axis| dims[axis].clone()).collect();
    Some(Patch::single(Op::reshape(result), [x]))
}

/// A cast of a cast that lost nothing is one cast.
fn cast_of_cast(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Cast(outer) = &node.op else { return None };
    let (inner_id, inner_node) = view.producer(node.input(0)?)?;
    let Op::Cast(inner) = &inner_node.op else { return None };
    let x = inner_node.input(0)?;
    let from = view.graph.tensor_type(x)?.dtype;
    use tilewright_dtype::DType::*;
    let lossless = match (from, inner.to) {
        (Bool, to) => to != String,
        (F16 | BF16, F32 | F64) | (F32, F64) => true,
        (I8 | I16, I32 | I64) | (U8 | U16, I32 | I64 | U32 | U64) | (I32, I64) | (U32, I64 | U64) => true,
        (I8 | U8, I16 | F32 | F64) | (I16 | U16, F32 | F64) | (I32 | U32, F64) => true,
        _ => false,
    };
    lossless.then(|| Patch::single(Op::Cast(outer.clone()), [x]).absorb([inner_id]))
}

/// The operand of a transpose that exchanges the last two axes and nothing else.
fn swaps_last_two<'a>(view: &View<'a>, value: ValueId) -> Option<(NodeId, &'a Node)> {
    let (id, node) = view.producer(value)?;
    let Op::Transpose(attrs) = &node.op else { return None };
    is_matrix_transpose(&attrs.perm).then_some((id, node))
}

fn is_matrix_transpose(perm: &[usize]) -> bool {
    let rank = perm.len();
    rank >= 2
        && perm[..rank - 2].iter().enumerate().all(|(axis, &from)| axis == from)
        && perm[rank - 2] == rank - 1
}

/// `MatMul(Transpose(x), y)` -> `MatMul[transpose_a](x, y)`, for each operand, and for `Gemm`.
fn matmul_of_transpose(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let mut op = node.op.clone();
    let mut inputs = node.inputs.clone();
    let mut absorbed = Vec::new();
    let flags: [&mut bool; 2] = match &mut op {
        Op::MatMul(attrs) => [&mut attrs.transpose_a, &mut attrs.transpose_b],
        Op::Gemm(attrs) => [&mut attrs.transpose_a, &mut attrs.transpose_b],
        _ => return None,
    };
    for (position, flag) in flags.into_iter().enumerate() {
        if let Some((transpose, producer)) = swaps_last_two(view, inputs[position]?) {
            *flag = !*flag;
            inputs[position] = producer.input(0);
            absorbed.push(transpose);
        }
    }
    if absorbed.is_empty() {
        return None;
    }
    Some(Patch::single(op, inputs.into_iter().flatten()).absorb(absorbed))
}

/// `Transpose(MatMul(a, b))` -> `MatMul(b^T, a^T)`.
fn transpose_of_matmul(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Transpose(attrs) = &node.op else { return None };
    let product = node.input(0)?;
    let (matmul_id, matmul) = view.producer(product)?;
    let Op::MatMul(flags) = &matmul.op else { return None };
    let (a, b) = (matmul.input(0)?, matmul.input(1)?);
    let rank = |value| view.graph.dims(value).map_or(0, <[Dim]>::len);
    if !is_matrix_transpose(&attrs.perm) || !view.is_used_once(product) || rank(a) < 2 || rank(b) < 2 {
        return None;
    }
    let op = Op::MatMul(MatMulAttrs { transpose_a: !flags.transpose_b, transpose_b: !flags.transpose_a });
    Some(Patch::single(op, [b, a]).absorb([matmul_id]))
}

fn where_of_constant(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Where = node.op else { return None };
    let taken = if view.splat(node.input(0)?)? != 0.0 { node.input(1)? } else { node.input(2)? };
    if let Some(value) = same_type(view, node, taken) {
        return Some(Patch::forward(value));
    }
    // What is not taken may have been what widens the result.
    let dims = bound_dims(view, node.output()?)?;
    Some(Patch::single(Op::Expand(DimsAttrs { dims }), [taken]))
}

/// The extents of a value, where they follow from those of the inputs.
fn bound_dims(view: &View<'_>, value: ValueId) -> Option<Vec<Dim>> {
    let dims = view.graph.dims(value)?;
    let is_bound = |symbol| view.graph.symbols[symbol].kind == SymbolKind::Input;
    dims.iter().all(|dim| dim.symbols().into_iter().all(is_bound)).then(|| dims.to_vec())
}

/// What moves elements of a tensor that are all the same gives such a tensor.
fn moved_full(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    if !matches!(node.op, Op::Slice(_) | Op::Transpose(_) | Op::Reshape(_) | Op::Expand(_)) {
        return None;
    }
    let (full_id, full) = view.producer(node.input(0)?)?;
    let Op::Full(_) = full.op else { return None };
    let dims = bound_dims(view, node.output()?)?;
    Some(Patch::single(Op::Full(DimsAttrs { dims }), [full.input(0)?]).absorb([full_id]))
}

/// A recurrent layer begins with zeros where it is given no initial state.
fn zero_initial_state(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    if !matches!(node.op, Op::Rnn(_) | Op::Gru(_) | Op::Lstm(_)) {
        return None;
    }
    let is_zero = |value: ValueId| match view.producer(value) {
        Some((_, Node { op: Op::Full(_), inputs, .. })) => {
            inputs.first().copied().flatten().and_then(|value| view.splat(value)) == Some(0.0)
        }
        _ => view.splat(value) == Some(0.0),
    };
    let (mut inputs, mut is_changed) = (node.inputs.clone(), false);
    for state in inputs.iter_mut().skip(5).take(2) {
        is_changed |= state.take_if(|value| is_zero(*value)).is_some();
    }
    if !is_changed {
        return None;
    }
    let mut patch = Patch::new();
    let inputs = inputs.into_iter().map(|input| input.map(Source::Old)).collect();
    let value = patch.add_sparse(node.op.clone(), inputs, Some(node.outputs.len()));
    let Source::New(new, _) = value else { return None };
    let results = 0..node.outputs.len();
    Some(results.fold(patch, |patch, result| patch.replace(Source::New(new, result))))
}

/// A concat whose operand is a concat along the same axis, used nowhere else, takes its operands.
fn concat_of_concat(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Concat(attrs) = &node.op else { return None };
    let mut inputs = Vec::new();
    let mut absorbed = Vec::new();
    for &value in node.inputs.iter().flatten() {
        match view.producer(value) {
            Some((inner_id, inner)) if inner.op == node.op && view.is_used_once(value) => {
                inputs.extend(inner.inputs.iter().flatten().copied());
                absorbed.push(inner_id);
            }
            _ => inputs.push(value),
        }
    }
    if absorbed.is_empty() {
        return None;
    }
    Some(Patch::single(Op::Concat(attrs.clone()), inputs).absorb(absorbed))
}

/// `Clip(x, 0)` -> `relu(x)`.
fn clip_as_relu(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Clip = node.op else { return None };
    let is_relu = node.input(2).is_none() && view.splat(node.input(1)?)? == 0.0;
    is_relu.then(|| Some(Patch::single(Op::Unary(UnaryOp::Relu), [node.input(0)?])))?
}

/// A gather at one constant index is a slice, whose axis a reshape drops.
fn gather_as_slice(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Gather(AxisAttrs { axis }) = node.op else { return None };
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let dims = view.graph.dims(x)?;
    let tensor = view.graph.constant(indices)?;
    let &[index] = tensor.to_i64s()?.as_slice() else { return None };
    let start = if index < 0 { &dims[axis] + index } else { Dim::new(index) };
    let attrs = SliceAttrs { axes: vec![axis], starts: vec![start], steps: vec![1], sizes: vec![Dim::ONE] };
    let mut patch = Patch::new();
    let slice = patch.add(Op::Slice(attrs), [Source::Old(x)]);
    let value = patch.add(Op::reshape(view.graph.dims(node.output()?)?.to_vec()), [slice]);
    Some(patch.replace(value))
}

/// The weights of a convolution that meet nothing but padding, because the window is dilated so far, are cut off.
fn taps_in_padding(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Conv(attrs) = &node.op else { return None };
    let weight = node.input(1)?;
    let constant = view.graph.constant(weight)?;
    let extents =
        |value: ValueId| view.graph.dims(value)?.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
    let (input, kernel, output) = (extents(node.input(0)?)?, extents(weight)?, extents(node.output()?)?);
    let n = kernel.len().checked_sub(2)?;
    let mut pads = attrs.pads.clone();
    let mut slice = SliceAttrs { axes: vec![], starts: vec![], steps: vec![], sizes: vec![] };
    for axis in 0..n {
        let (&stride, &dilation) = (attrs.strides.get(axis)?, attrs.dilations.get(axis)?);
        let (stride, dilation) = (stride as i64, dilation as i64);
        let (before, after) = (*attrs.pads.get(axis)?, *attrs.pads.get(n + axis)?);
        let (x, k, y) = (*input.get(2 + axis)?, kernel[2 + axis], *output.get(2 + axis)?);
        let meets = |tap: &i64| {
            let start = tap * dilation - before;
            let first = ((-start).max(0) + stride - 1) / stride;
            first < y && first * stride + start < x
        };
        // Padding stays padding: it is not made a crop.
        let first = (0..k).find(meets)?.min(before.max(0) / dilation);
        let last = (0..k).rev().find(meets)?.max(k - 1 - after.max(0) / dilation);
        if last - first + 1 == k {
            continue;
        }
        pads[axis] = before - first * dilation;
        pads[n + axis] = after - (k - 1 - last) * dilation;
        slice.axes.push(2 + axis);
        slice.starts.push(Dim::new(first));
        slice.steps.push(1);
        slice.sizes.push(Dim::new(last - first + 1));
    }
    // A weight that is not finite makes something of zeros, too.
    if slice.axes.is_empty() || !constant.to_f64s()?.iter().all(|w| w.is_finite()) {
        return None;
    }
    let mut patch = Patch::new();
    let taps = patch.add(Op::Slice(slice), [Source::Old(weight)]);
    let operands = [Source::Old(node.input(0)?), taps].into_iter().chain(node.input(2).map(Source::Old));
    let value = patch.add(Op::Conv(ConvAttrs { pads, ..attrs.clone() }), operands);
    Some(patch.replace(value))
}

/// A transposed convolution of single positions, with which decoders begin, gives each the whole kernel: a product with the
/// weights of all its elements.
fn conv_transpose_as_matmul(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::ConvTranspose(attrs) = &node.op else { return None };
    let (x, weight) = (node.input(0)?, node.input(1)?);
    let (dims, kernel) = (view.graph.dims(x)?, view.graph.dims(weight)?);
    let (batch, channels) = (dims.first()?, dims.get(1)?);
    let is_whole = attrs.pads.iter().chain(&attrs.output_padding).all(|&n| n == 0)
        && attrs.dilations.iter().all(|&dilation| dilation == 1);
    if attrs.group != 1 || !is_whole || !dims[2..].iter().all(|extent| extent.is(1)) {
        return None;
    }
    let elements =
        kernel[1..].iter().map(Dim::as_const).try_fold(1i64, |n, extent| n.checked_mul(extent?))?;
    let result: Vec<Dim> = [batch.clone()].into_iter().chain(kernel[1..].iter().cloned()).collect();
    if view.graph.dims(node.output()?)? != result {
        return None;
    }
    let per_channel: Vec<Dim> =
        [kernel[1].clone()].into_iter().chain(kernel[2..].iter().map(|_| Dim::new(1))).collect();
    let mut patch = Patch::new();
    let rows = patch.add(Op::reshape(vec![batch.clone(), channels.clone()]), [Source::Old(x)]);
    let columns = patch.add(Op::reshape(vec![channels.clone(), Dim::new(elements)]), [Source::Old(weight)]);
    let flags = MatMulAttrs { transpose_a: false, transpose_b: false };
    let product = patch.add(Op::MatMul(flags), [rows, columns]);
    let mut value = patch.add(Op::reshape(result), [product]);
    if let Some(bias) = node.input(2) {
        let bias = patch.add(Op::reshape(per_channel), [Source::Old(bias)]);
        value = patch.add(Op::Binary(BinaryOp::Add), [value, bias]);
    }
    Some(patch.replace(value))
}
