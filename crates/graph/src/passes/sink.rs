//! Moves transposes and reshapes down past elementwise operators, towards others they cancel with or products
//! that absorb them, and out of the way between a heavy operator and its epilogue.

use crate::dim::Dim;
use crate::graph::{Graph, Node};
use crate::ids::{NodeId, ValueId};
use crate::op::*;
use crate::pass::PassError;
use crate::patch::{Patch, Rule, Source, View, rewrite};

/// Moves what can be moved. `canonicalize` then cancels.
pub fn sink(graph: &mut Graph) -> Result<bool, PassError> {
    rewrite(graph, RULES, 64)
}

const RULES: &[Rule] = &[
    Rule { name: "sink_below_unary", apply: below_unary },
    Rule { name: "sink_transpose_below_binary", apply: transpose_below_binary },
    Rule { name: "sink_reshape_below_binary", apply: reshape_below_binary },
    Rule { name: "sink_transpose_below_split", apply: transpose_below_split },
    Rule { name: "sink_merge_below_transpose", apply: merge_below_transpose },
];

/// A transpose or reshape that only the asking node uses.
fn mover<'a>(view: &View<'a>, value: ValueId) -> Option<(NodeId, &'a Node)> {
    let (id, node) = view.producer(value)?;
    (matches!(node.op, Op::Transpose(_) | Op::Reshape(_)) && view.is_used_once(value)).then_some((id, node))
}

/// `f(move(x))` -> `move(f(x))` for elementwise f of one operand.
fn below_unary(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let scalar_bound = |position: usize| node.input(position).is_none_or(|bound| view.splat(bound).is_some());
    match &node.op {
        Op::Unary(_) | Op::Activation(_) | Op::Cast(_) => {}
        Op::Clip if scalar_bound(1) && scalar_bound(2) => {}
        _ => return None,
    }
    let (mover_id, mover) = mover(view, node.input(0)?)?;
    let mut inputs: Vec<Option<Source>> = node.inputs.iter().map(|value| value.map(Source::Old)).collect();
    inputs[0] = Some(Source::Old(mover.input(0)?));
    let mut patch = Patch::new();
    let value = patch.add_sparse(node.op.clone(), inputs, None);
    let moved = patch.add(mover.op.clone(), [value]);
    Some(patch.replace(moved).absorb([mover_id]))
}

/// `op(transpose(x), y)` -> `transpose(op(x, y'))` where y is a transpose by the same permutation or a constant.
fn transpose_below_binary(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Binary(_) = node.op else { return None };
    let operands = [node.input(0)?, node.input(1)?];
    (0..2).find_map(|position| {
        let (mover_id, transpose) = mover(view, operands[position])?;
        let Op::Transpose(attrs) = &transpose.op else { return None };
        let rank = attrs.perm.len();
        if view.graph.dims(node.output()?)?.len() != rank {
            return None;
        }
        let other = operands[1 - position];
        let mut patch = Patch::new();
        let mut absorbed = vec![mover_id];
        let moved_other = match mover(view, other) {
            Some((other_id, second)) if second.op == transpose.op => {
                absorbed.push(other_id);
                Source::Old(second.input(0)?)
            }
            _ if view.splat(other).is_some() && view.graph.dims(other)?.iter().all(|dim| dim.is(1)) => {
                Source::Old(other)
            }
            _ => {
                view.graph.constant(other)?;
                let dims = view.graph.dims(other)?;
                let mut full = vec![Dim::ONE; rank.checked_sub(dims.len())?];
                full.extend_from_slice(dims);
                let mut inverse = vec![0; rank];
                attrs.perm.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
                let reshaped = patch.add(Op::reshape(full), [Source::Old(other)]);
                patch.add(Op::transpose(inverse), [reshaped])
            }
        };
        let inner = Source::Old(transpose.input(0)?);
        let inputs = if position == 0 { [inner, moved_other] } else { [moved_other, inner] };
        let value = patch.add(node.op.clone(), inputs);
        let moved = patch.add(transpose.op.clone(), [value]);
        Some(patch.replace(moved).absorb(absorbed))
    })
}

/// `op(reshape(x), y)` -> `reshape(op(x, reshape(y)))` where that lowers the rank, so that x's producer and the
/// operator see the same extents and can be fused. A reshape costs nothing between kernels.
fn reshape_below_binary(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Binary(_) = node.op else { return None };
    let result = view.graph.dims(node.output()?)?;
    let operands = [node.input(0)?, node.input(1)?];
    (0..2).find_map(|position| {
        let (mover_id, reshape) = mover(view, operands[position])?;
        let Op::Reshape(_) = &reshape.op else { return None };
        let x = reshape.input(0)?;
        let (_, producer) = view.producer(x)?;
        let dims = view.graph.dims(x)?;
        let other = operands[1 - position];
        let fusable =
            matches!(producer.op.fusion_class(), FusionClass::ComplexOut | FusionClass::Elementwise);
        if !fusable || dims.len() >= result.len() || view.graph.dims(operands[position])? != result {
            return None;
        }
        let mut patch = Patch::new();
        let moved_other = if view.graph.dims(other)? == result {
            patch.add(Op::reshape(dims.to_vec()), [Source::Old(other)])
        } else {
            // A row along an innermost axis that the reshape keeps broadcasts the same way.
            let shape = view.graph.dims(other)?;
            let long = shape.iter().rev().take_while(|dim| !dim.is(1)).count();
            let is_row = long <= 1 && shape[..shape.len() - long].iter().all(|dim| dim.is(1));
            if !is_row || (long == 1 && dims.last() != shape.last()) {
                return None;
            }
            patch.add(Op::reshape(shape[shape.len() - long..].to_vec()), [Source::Old(other)])
        };
        let inner = Source::Old(x);
        let inputs = if position == 0 { [inner, moved_other] } else { [moved_other, inner] };
        let value = patch.add(node.op.clone(), inputs);
        let moved = patch.add(Op::reshape(result.to_vec()), [value]);
        Some(patch.replace(moved).absorb([mover_id]))
    })
}

/// `conv(split(transpose(x)))` -> `conv(transpose(split(x)))`, where `split` is a reshape that makes several axes of one: what
/// moves the tokens of a sequence to where channels come first can then write what the convolution wants to read.
fn transpose_below_split(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Conv(_) = &node.op else { return None };
    let (split_id, split) = mover(view, node.input(0)?)?;
    let Op::Reshape(attrs) = &split.op else { return None };
    let (transpose_id, transpose) = mover(view, split.input(0)?)?;
    let Op::Transpose(moved) = &transpose.op else { return None };
    let (axis, parts) = split_axis(view.graph.dims(split.input(0)?)?, &attrs.dims)?;
    let from = moved.perm[axis];
    let x = transpose.input(0)?;
    let mut dims = view.graph.dims(x)?.to_vec();
    dims.splice(from..=from, attrs.dims[axis..axis + parts].iter().cloned());
    let mut patch = Patch::new();
    let apart = patch.add(Op::reshape(dims), [Source::Old(x)]);
    let image = patch.add(Op::transpose(with_axes(&moved.perm, from, parts)), [apart]);
    let others = node.inputs[1..].iter().map(|value| value.map(Source::Old));
    let value = patch.add_sparse(node.op.clone(), [Some(image)].into_iter().chain(others).collect(), None);
    Some(patch.replace(value).absorb([split_id, transpose_id]))
}

/// `transpose(merge(x))` -> `merge(transpose(x))`, where `merge` is a reshape that makes one axis of several, behind what may
/// write another order than row-major: a reshape would ask for that.
fn merge_below_transpose(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Transpose(moved) = &node.op else { return None };
    let (mover_id, merge) = mover(view, node.input(0)?)?;
    let Op::Reshape(attrs) = &merge.op else { return None };
    let x = merge.input(0)?;
    let (_, producer) = view.producer(x)?;
    let is_image = matches!(producer.op.fusion_class(), FusionClass::ComplexOut | FusionClass::Elementwise);
    let dims = view.graph.dims(x)?;
    let (axis, parts) = split_axis(&attrs.dims, dims).filter(|_| is_image)?;
    let mut patch = Patch::new();
    let value = patch.add(Op::transpose(with_axes(&moved.perm, axis, parts)), [Source::Old(x)]);
    let result = view.graph.dims(node.output()?)?.to_vec();
    let merged = patch.add(Op::reshape(result), [value]);
    Some(patch.replace(merged).absorb([mover_id]))
}

/// The axis of `whole` that several of `split` take the place of, all others being the same, and how many.
fn split_axis(whole: &[Dim], split: &[Dim]) -> Option<(usize, usize)> {
    let parts = (split.len() + 1).checked_sub(whole.len()).filter(|&parts| parts > 1)?;
    let axis = whole.iter().zip(split).take_while(|(a, b)| a == b).count();
    (axis < whole.len() && whole[axis + 1..] == split[axis + parts..]).then_some((axis, parts))
}

/// The permutation that moves `parts` axes together in place of axis `from`.
fn with_axes(perm: &[usize], from: usize, parts: usize) -> Vec<usize> {
    let moved = |&axis: &usize| match axis.cmp(&from) {
        std::cmp::Ordering::Less => axis..axis + 1,
        std::cmp::Ordering::Equal => from..from + parts,
        std::cmp::Ordering::Greater => axis + parts - 1..axis + parts,
    };
    perm.iter().flat_map(moved).collect()
}
