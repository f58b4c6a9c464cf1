//! Normalisations: softmax, layer normalisation and its root-mean-square variant, group normalisation.

use tilewright_dtype::DType;

use super::matcher::Matcher;
use crate::ids::{NodeId, ValueId};
use crate::op::{BinaryOp, GroupNormAttrs, LayerNormAttrs, Op, Real, ReduceKind, SoftmaxAttrs, UnaryOp};
use crate::patch::{Patch, Source, View};
use crate::tensor::Tensor;

/// `exp(x - max x) / sum exp(x - max x)` along one axis.
pub(super) fn softmax(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let matcher = Matcher::new(view);
    let (_, [numerator, sum]) = matcher.binary(view.graph.node(id).output()?, BinaryOp::Div)?;
    let (sum_id, summed, axes) = matcher.reduction(sum, ReduceKind::Sum)?;
    let &[axis] = axes else { return None };
    let (exp, difference) = matcher.unary(numerator, UnaryOp::Exp)?;
    let (sub, [x, max]) = matcher.binary(difference, BinaryOp::Sub)?;
    let (max_id, maximised, max_axes) = matcher.reduction(max, ReduceKind::Max)?;
    let matches = summed == numerator && maximised == x && max_axes == axes;
    let op = Op::Softmax(SoftmaxAttrs { axis, log: false });
    matches.then(|| Patch::single(op, [x]).absorb([sum_id, exp, sub, max_id]))
}

/// What `centred / sqrt(mean(centred^2) + epsilon)` divides, by whichever of the two ways it is written.
struct Normalised {
    centred: ValueId,
    axes: Vec<usize>,
    epsilon: f64,
    nodes: Vec<NodeId>,
}

fn normalised(view: &View<'_>, id: NodeId) -> Option<Normalised> {
    let matcher = Matcher::new(view);
    let output = view.graph.node(id).output()?;
    let (candidates, reciprocal) = match matcher.binary(output, BinaryOp::Div) {
        Some((_, [a, b])) => (vec![(a, b)], None),
        None => {
            let (_, [a, b]) = matcher.binary(output, BinaryOp::Mul)?;
            let find = |(x, r): (ValueId, ValueId)| {
                let (node, root) = matcher.unary(r, UnaryOp::Reciprocal)?;
                Some(((x, root), node))
            };
            let (pair, node) = [(a, b), (b, a)].into_iter().find_map(find)?;
            (vec![pair], Some(node))
        }
    };
    candidates.into_iter().find_map(|(centred, deviation)| {
        let (root, shifted) = matcher.unary(deviation, UnaryOp::Sqrt)?;
        let (sum, variance, epsilon) = matcher.plus_constant(shifted)?;
        let (mean, square, axes) = matcher.reduction(variance, ReduceKind::Mean)?;
        let mut nodes = vec![root, sum, mean];
        match (matcher.binary(square, BinaryOp::Mul), matcher.binary(square, BinaryOp::Pow)) {
            (Some((node, [a, b])), _) if a == centred && b == centred => nodes.push(node),
            (_, Some((node, [a, b]))) if a == centred && view.splat(b) == Some(2.0) => nodes.push(node),
            _ => return None,
        }
        nodes.extend(reciprocal);
        let rank = view.graph.dims(centred)?.len();
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        // Statistics must be over all axes from some axis on.
        let is_suffix = !sorted.is_empty() && sorted.iter().copied().eq(rank - sorted.len()..rank);
        is_suffix.then_some(Normalised { centred, axes: sorted, epsilon, nodes })
    })
}

fn attrs(axes: &[usize], epsilon: f64) -> Option<LayerNormAttrs> {
    Some(LayerNormAttrs { axis: *axes.first()?, epsilon: Real(epsilon as f32), stash: None })
}

/// `(x - mean x) / sqrt(mean((x - mean x)^2) + epsilon)`.
pub(super) fn layer_norm(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let matcher = Matcher::new(view);
    let found = normalised(view, id)?;
    let (sub, [x, mean]) = matcher.binary(found.centred, BinaryOp::Sub)?;
    let (mean_id, averaged, axes) = matcher.reduction(mean, ReduceKind::Mean)?;
    let mut axes = axes.to_vec();
    axes.sort_unstable();
    if averaged != x || axes != found.axes {
        return None;
    }
    let op = Op::LayerNorm(attrs(&axes, found.epsilon)?);
    Some(Patch::single(op, [x]).absorb(found.nodes.into_iter().chain([sub, mean_id])))
}

/// `x / sqrt(mean(x^2) + epsilon)`, where x is not itself centred.
pub(super) fn rms_norm(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let matcher = Matcher::new(view);
    let found = normalised(view, id)?;
    let centring = matcher.binary(found.centred, BinaryOp::Sub);
    if centring.is_some_and(|(_, [_, mean])| matcher.reduction(mean, ReduceKind::Mean).is_some()) {
        return None;
    }
    let op = Op::RmsNorm(attrs(&found.axes, found.epsilon)?);
    Some(Patch::single(op, [found.centred]).absorb(found.nodes))
}

/// Whether `parameter` broadcasts to the normalised axes of `x` without growing it.
fn is_parameter(view: &View<'_>, x: ValueId, parameter: ValueId, attrs: &LayerNormAttrs) -> bool {
    let (Some(ty), Some(parameter)) = (view.graph.tensor_type(x), view.graph.tensor_type(parameter)) else {
        return false;
    };
    let (Some(dims), Some(shape)) = (ty.shape.dims(), parameter.shape.dims()) else { return false };
    ty.dtype == parameter.dtype && shape.len() == dims.len() - attrs.axis && *shape == dims[attrs.axis..]
}

/// `norm(x) * w` -> `norm(x, w)`.
pub(super) fn scale(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let matcher = Matcher::new(view);
    let (_, [a, b]) = matcher.binary(view.graph.node(id).output()?, BinaryOp::Mul)?;
    [(a, b), (b, a)].into_iter().find_map(|(value, scale)| {
        let (norm_id, norm) = matcher.node(value)?;
        let (Op::LayerNorm(attrs) | Op::RmsNorm(attrs)) = &norm.op else { return None };
        let x = norm.input(0)?;
        let bare = norm.inputs.len() == 1 && norm.outputs.len() == 1 && view.is_used_once(value);
        let fits = bare && is_parameter(view, x, scale, attrs);
        fits.then(|| Patch::single(norm.op.clone(), [x, scale]).absorb([norm_id]))
    })
}

/// `layer_norm(x, w?) + b` -> `layer_norm(x, w?, b)`.
pub(super) fn bias(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let matcher = Matcher::new(view);
    let (_, [a, b]) = matcher.binary(view.graph.node(id).output()?, BinaryOp::Add)?;
    [(a, b), (b, a)].into_iter().find_map(|(value, bias)| {
        let (norm_id, norm) = matcher.node(value)?;
        let Op::LayerNorm(attrs) = &norm.op else { return None };
        let x = norm.input(0)?;
        let unbiased = norm.input(2).is_none() && norm.outputs.len() == 1 && view.is_used_once(value);
        if !unbiased || !is_parameter(view, x, bias, attrs) {
            return None;
        }
        let mut patch = Patch::new();
        let inputs = [Some(x), norm.input(1), Some(bias)].map(|value| value.map(Source::Old)).to_vec();
        let value = patch.add_sparse(norm.op.clone(), inputs, None);
        Some(patch.replace(value).absorb([norm_id]))
    })
}

/// `reshape(instance_norm(reshape(x, [n, groups, -1]), 1, 0), dims x)` -> `group_norm(x, 1, 0)`: how exporters to opsets before 18
/// write it. Group normalisation leaves channels where they are, so that they may lie in blocks.
pub(super) fn group_norm(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let matcher = Matcher::new(view);
    let last = view.graph.node(id);
    let (Op::Reshape(_), normal) = (&last.op, last.input(0)?) else { return None };
    let (norm_id, norm) = matcher.node(normal)?;
    let Op::InstanceNorm(attrs) = &norm.op else { return None };
    let grouped = norm.input(0)?;
    let (reshape_id, reshape) = matcher.node(grouped)?;
    let (Op::Reshape(_), x) = (&reshape.op, reshape.input(0)?) else { return None };
    let (dims, of_groups) = (view.graph.dims(x)?, view.graph.dims(grouped)?);
    let (groups, channels) = (of_groups.get(1)?.as_const()?, dims.get(1)?.as_const()?);
    let is_plain = view.splat(norm.input(1)?) == Some(1.0) && view.splat(norm.input(2)?) == Some(0.0);
    let fits = dims.len() > 2
        && view.graph.dims(last.output()?)? == dims
        && of_groups[0] == dims[0]
        && groups > 0
        && channels % groups == 0
        && view.graph.tensor_type(x)?.dtype == DType::F32
        && view.is_used_once(normal);
    if !fits || !is_plain {
        return None;
    }
    let groups = usize::try_from(groups).ok()?;
    let channels = usize::try_from(channels).ok()?;
    let mut patch = Patch::new();
    let mut parameter = |value: f32| {
        let tensor = Tensor::from_elements(&[channels], &vec![value; channels]).ok()?;
        Some(patch.add(Op::Constant(tensor), []))
    };
    let (scale, bias) = (parameter(1.0)?, parameter(0.0)?);
    let op = Op::GroupNorm(GroupNormAttrs { groups, epsilon: attrs.epsilon, stash: None });
    let value = patch.add(op, [Source::Old(x), scale, bias]);
    Some(patch.replace(value).absorb([norm_id, reshape_id]))
}
