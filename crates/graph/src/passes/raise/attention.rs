//! Attention: `softmax(scale * q k^T + mask) v` on tensors of heads.
//!
//! Exporters put the scale on the queries, the keys, the scores, or half of it on each of the first two, and add masks to the scores. The
//! composite has an algorithm that keeps no scores, in `F32`; two products and a softmax are as good where all scores stay in a cache.

use tilewright_dtype::DType;

use super::matcher::{Matcher, Product};
use crate::dim::Dim;
use crate::graph::Graph;
use crate::ids::{NodeId, ValueId};
use crate::op::{AttentionAttrs, BinaryOp, Op, Real, SoftmaxAttrs};
use crate::pass::PassError;
use crate::patch::{Patch, Rule, Source, View, rewrite};
use crate::symbol::SymbolTable;

/// Scores of a head from which on attention is raised: 256 KiB, which with what makes them and is made of them fill a core's L2.
const MANY_SCORES: i64 = 1 << 16;

/// Raises every attention that is recognised and has many scores, and has it take queries and give results as they are around it.
pub fn raise_attention(graph: &mut Graph) -> Result<bool, PassError> {
    const RULES: &[Rule] = &[
        Rule { name: "raise_attention", apply: attention },
        Rule { name: "pack_attention_heads", apply: packed },
    ];
    rewrite(graph, RULES, 4)
}

/// Whether scores of a head, `[.., queries, keys]`, are many or may be. Of open lengths these are alone what positions have for each other: other
/// queries come one at a time more often than not, with keys kept from earlier runs, and in blocks they would be computed as several.
fn are_many(dims: &[Dim], symbols: &SymbolTable) -> bool {
    let [.., queries, keys] = dims else { return false };
    match (queries.as_const(), keys.as_const()) {
        (Some(queries), Some(keys)) => queries.saturating_mul(keys) >= MANY_SCORES,
        _ => {
            let most = |dim: &Dim| dim.bounds(symbols).1.unwrap_or(i64::MAX);
            queries == keys && most(queries).saturating_mul(most(keys)) >= MANY_SCORES
        }
    }
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
    let scores = softmax.input(0)?;
    let score_dims = view.graph.dims(scores)?;
    if !are_many(score_dims, &view.graph.symbols) || view.graph.tensor_type(scores)?.dtype != DType::F32 {
        return None;
    }
    let mut absorbed = vec![softmax_id];
    let (scores, mask) = match masked(&matcher, scores, score_dims) {
        Some((sum, [scores, mask])) => {
            absorbed.push(sum);
            (scores, Some(mask))
        }
        None => (scores, None),
    };
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
    absorbed.extend(outer.nodes);
    absorbed.push(product_node);
    let mut patch = Patch::new();
    let k = match flags.transpose_b {
        true => Source::Old(k),
        false => patch.add(Op::transpose(vec![0, 1, 3, 2]), [Source::Old(k)]),
    };
    let attrs = AttentionAttrs {
        unseen_is_nan: mask.is_some(),
        ..AttentionAttrs::of_heads(Some(Real(scale as f32)))
    };
    let operands = [Source::Old(q), k, Source::Old(v)].into_iter().chain(mask.map(Source::Old));
    let value = patch.add(Op::Attention(attrs), operands);
    Some(patch.replace(value).absorb(absorbed))
}

/// Attention between two transpositions, of `[batch, positions, heads, elements]` and back: it takes queries and gives results with packed
/// heads, as it reads and writes each of them once. Keys and values stay apart by heads: their rows, which are read again and
/// again, would share few sets of a cache.
fn packed(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let matcher = Matcher::new(view);
    let swaps = |op: &Op| *op == Op::transpose(vec![0, 2, 1, 3]);
    let node = view.graph.node(id);
    let result = node.input(0).filter(|_| swaps(&node.op))?;
    let (attention_id, attention) = matcher.node(result)?;
    let Op::Attention(attrs) = &attention.op else { return None };
    if attention.outputs.len() != 1 || !view.is_used_once(result) {
        return None;
    }
    let (_, before) = matcher.node(attention.input(0)?)?;
    let q = before.input(0).filter(|_| swaps(&before.op))?;
    let [batch, positions, heads, size] = view.graph.dims(q)? else { return None };
    let q_num_heads = usize::try_from(heads.as_const()?).ok().filter(|&heads| heads > 0)?;
    let mut patch = Patch::new();
    let extents = vec![batch.clone(), positions.clone(), heads * size];
    let q = patch.add(Op::reshape(extents), [Source::Old(q)]);
    let others = attention.inputs.iter().skip(1).map(|input| input.map(Source::Old));
    let attrs = AttentionAttrs { q_num_heads, ..attrs.clone() };
    let value = patch.add_sparse(Op::Attention(attrs), [Some(q)].into_iter().chain(others).collect(), None);
    let value = patch.add(Op::reshape(view.graph.dims(node.output()?)?.to_vec()), [value]);
    Some(patch.replace(value).absorb([attention_id]))
}

/// A sum of scores, which nobody else uses, and of a mask of no higher rank: its node, and the two. The mask is the operand that is no
/// product of matrices.
fn masked(matcher: &Matcher<'_>, sum: ValueId, score_dims: &[Dim]) -> Option<(NodeId, [ValueId; 2])> {
    let (id, [a, b]) = matcher.binary(sum, BinaryOp::Add)?;
    let dims = |value: ValueId| matcher.view.graph.dims(value);
    let is_product = |value: ValueId| {
        dims(value) == Some(score_dims)
            && matmul_below(matcher, value).is_some()
            && matcher.view.is_used_once(value)
    };
    let (scores, mask) = if is_product(a) { (a, b) } else { (b, a) };
    let is_mask = dims(mask).is_some_and(|dims| {
        let fits = |(own, all): (&Dim, &Dim)| own == all || own.as_const() == Some(1);
        (2..=score_dims.len()).contains(&dims.len())
            && dims.iter().rev().zip(score_dims.iter().rev()).all(fits)
            && dims.last() == score_dims.last()
    });
    (is_product(scores) && is_mask && matcher.view.is_used_once(sum)).then_some((id, [scores, mask]))
}

/// A product of matrices times constants: its node, and the flattened product.
fn matmul_below(matcher: &Matcher<'_>, value: ValueId) -> Option<(NodeId, Product)> {
    let product = matcher.product(value);
    let &[factor] = product.factors.as_slice() else { return None };
    let (id, node) = matcher.node(factor)?;
    matches!(node.op, Op::MatMul(_)).then_some((id, product))
}
