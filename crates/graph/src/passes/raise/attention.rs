//! Attention: `softmax(scale * q k^T + mask) v` on tensors of heads.
//!
//! Exporters put the scale on the queries, the keys, the scores, or half of it on each of the first two. The composite has an algorithm
//! that keeps no scores; two products and a softmax are as good where all scores stay in a cache.

use super::matcher::{Matcher, Product};
use crate::dim::Dim;
use crate::graph::Graph;
use crate::ids::{NodeId, ValueId};
use crate::op::{AttentionAttrs, BinaryOp, Op, Real, SoftmaxAttrs};
use crate::pass::PassError;
use crate::patch::{Patch, Rule, Source, View, rewrite};

/// Scores of a head from which on attention is raised: in `F32` they take 256 KiB, so they leave the caches of a core.
const MANY_SCORES: i64 = 1 << 16;

/// Raises every attention that is recognised and has many scores.
pub fn raise_attention(graph: &mut Graph) -> Result<bool, PassError> {
    rewrite(graph, &[Rule { name: "raise_attention", apply: attention }], 4)
}

/// Whether scores are many, known not to be few.
fn are_many(dims: &[Dim]) -> bool {
    let scores = dims.iter().rev().take(2).try_fold(1i64, |n, dim| n.checked_mul(dim.as_const()?));
    scores.is_some_and(|n| n >= MANY_SCORES)
}

fn attention(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let matcher = Matcher::new(view);
    let node = view.graph.node(id);
    let plain = |op: &Op| matches!(op, Op::MatMul(attrs) if !attrs.transpose_a && !attrs.transpose_b);
    if !plain(&node.op) {
        return None;
    }
    let (weights, v) = (node.input(0)?, node.input(1)?);
    let (softmax_id, softmax) = matcher.node(weights)?;
    if softmax.op != Op::Softmax(SoftmaxAttrs { axis: 3, log: false }) || !view.is_used_once(weights) {
        return None;
    }
    let mut scores = softmax.input(0)?;
    let score_dims = view.graph.dims(scores)?;
    if !are_many(score_dims) {
        return None;
    }
    let mut absorbed = vec![softmax_id];
    let mut mask = None;
    // A mask is what the scores are added to; the scores are the side that is a product of matrices.
    if let Some((sum, [a, b])) = matcher.binary(scores, BinaryOp::Add) {
        let of = |value: ValueId| matmul_below(&matcher, value).map(|_| value);
        (scores, mask) = match (of(a), of(b)) {
            (Some(a), _) => (a, Some(b)),
            (None, Some(b)) => (b, Some(a)),
            (None, None) => return None,
        };
        absorbed.push(sum);
    }
    let (product_node, outer) = matmul_below(&matcher, scores)?;
    let product = view.graph.node(product_node);
    let Op::MatMul(flags) = &product.op else { return None };
    if flags.transpose_a || view.graph.dims(outer.factors[0])? != score_dims {
        return None;
    }
    let mut scale = outer.constant;
    let mut scaled = |value: ValueId| {
        let inner = matcher.product(value);
        match inner.factors.as_slice() {
            &[only] if view.is_used_once(value) => {
                scale *= inner.constant;
                only
            }
            _ => value,
        }
    };
    let (q, k) = (scaled(product.input(0)?), scaled(product.input(1)?));
    let rank_4 = |value: ValueId| view.graph.dims(value).is_some_and(|dims| dims.len() == 4);
    let dims = [view.graph.dims(q)?, view.graph.dims(k)?, view.graph.dims(v)?];
    let same_heads = dims.iter().all(|dims| dims.get(..2) == score_dims.get(..2));
    if !rank_4(q) || !rank_4(k) || !rank_4(v) || !same_heads {
        return None;
    }
    // A mask of its own for each query is as large as the scores, and read across.
    let is_of_keys = |dims: &[Dim]| {
        broadcasts_to(dims, score_dims) && dims.iter().rev().nth(1).is_none_or(|queries| queries.is(1))
    };
    if !mask.is_none_or(|mask| view.graph.dims(mask).is_some_and(is_of_keys)) {
        return None;
    }
    absorbed.extend(outer.nodes);
    absorbed.push(product_node);
    let mut patch = Patch::new();
    let k = match flags.transpose_b {
        true => Source::Old(k),
        false => patch.add(Op::transpose(vec![0, 1, 3, 2]), [Source::Old(k)]),
    };
    let attrs = AttentionAttrs {
        q_num_heads: 0,
        kv_num_heads: 0,
        scale: Some(Real(scale as f32)),
        causal: false,
        softcap: Real(0.0),
        left_window: None,
        right_window: None,
        qk_output: 0,
        softmax_precision: None,
    };
    let inputs =
        [Some(Source::Old(q)), Some(k), Some(Source::Old(v))].into_iter().chain(mask.map(|m| Some(m.into())));
    let value = patch.add_sparse(Op::Attention(attrs), inputs.collect(), None);
    Some(patch.replace(value).absorb(absorbed))
}

/// A product of matrices times constants: its node, and the flattened product.
fn matmul_below(matcher: &Matcher<'_>, value: ValueId) -> Option<(NodeId, Product)> {
    let product = matcher.product(value);
    let &[factor] = product.factors.as_slice() else { return None };
    let (id, node) = matcher.node(factor)?;
    matches!(node.op, Op::MatMul(_)).then_some((id, product))
}

fn broadcasts_to(dims: &[Dim], target: &[Dim]) -> bool {
    dims.len() <= target.len() && dims.iter().rev().zip(target.iter().rev()).all(|(a, b)| a == b || a.is(1))
}
