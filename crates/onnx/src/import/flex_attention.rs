//! `FlexAttention` of `ai.onnx.preview`, by the body that ONNX gives the function.

use tilewright_graph::op::{BinaryOp, DimsAttrs, FromDimsAttrs, MatMulAttrs, Op, SoftmaxAttrs, UnaryOp};
use tilewright_graph::{DType, Dim, ValueId};

use super::attrs::Attrs;
use super::control::inline;
use super::cx::{Cx, dtype_from_int};
use super::error::{Reason, Result};
use super::importer::{Converted, Importer, Scope, Site};
use crate::proto::GraphProto;

/// `prob_mod(softmax(score_mod(Q K^T scale))) V`. Softmax and what modifies it are in `softmax_precision`; both
/// operands of the first product are scaled by the root of the factor, in their own type.
pub(super) fn flex_attention(importer: &mut Importer<'_>, scope: &mut Scope, site: Site<'_>) -> Converted {
    let Site { node, label, inputs } = site;
    let attrs = Attrs::new(node);
    let [score_mod, prob_mod] = [attrs.opt_graph("score_mod")?, attrs.opt_graph("prob_mod")?];
    let scale = attrs.opt_float("scale")?;
    let precision = attrs.opt_int("softmax_precision")?.map(dtype_from_int).transpose()?;
    attrs.check_all_known()?;
    let mut cx = importer.cx(scope, Site { node, label, inputs }, 1);
    let [q, k, v] = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    let dtype = cx.dtype(q)?;
    let precision = precision.unwrap_or(if dtype == DType::F64 { DType::F64 } else { DType::F32 });
    let (k, v) = (for_each_query_head(&mut cx, k, q)?, for_each_query_head(&mut cx, v, q)?);
    let scale = root_of_scale(&mut cx, scale, q, dtype)?;
    let (q, k) = (cx.binary(BinaryOp::Mul, q, scale)?, cx.binary(BinaryOp::Mul, k, scale)?);
    let scores = cx.emit(Op::MatMul(MatMulAttrs { transpose_a: false, transpose_b: true }), &[q, k])?;
    let scores = cx.cast(scores, precision)?;
    let Some(scores) = modified(importer, scope, score_mod, scores, label)? else { return Ok(None) };
    let mut cx = importer.cx(scope, Site { node, label, inputs: Vec::new() }, 1);
    let probabilities = cx.emit(Op::Softmax(SoftmaxAttrs { axis: 3, log: false }), &[scores])?;
    let Some(probabilities) = modified(importer, scope, prob_mod, probabilities, label)? else {
        return Ok(None);
    };
    let mut cx = importer.cx(scope, Site { node, label, inputs: Vec::new() }, 1);
    let v = cx.cast(v, precision)?;
    let y = cx.emit(Op::matmul(), &[probabilities, v])?;
    Ok(Some(vec![cx.cast(y, dtype)?]))
}

/// Keys or values with each head repeated for its group of heads of the queries.
fn for_each_query_head(cx: &mut Cx<'_>, x: ValueId, q: ValueId) -> Result<ValueId> {
    let (dims, q_dims) = (cx.ranked(x)?, cx.ranked(q)?);
    let ([batch, heads, length, size], [_, q_heads, _, _]) = (dims.as_slice(), q_dims.as_slice()) else {
        return Err(Reason::ty("the operands must have rank 4"));
    };
    if heads == q_heads {
        return Ok(x);
    }
    let uneven = || Reason::ty("the number of query heads must be a multiple of that of keys and values");
    let repeats = q_heads.div_exact(heads).ok_or_else(uneven)?;
    let apart = vec![batch.clone(), heads.clone(), Dim::ONE, length.clone(), size.clone()];
    let mut repeated = apart.clone();
    repeated[2] = repeats;
    let x = cx.reshape(x, apart)?;
    let x = cx.emit(Op::Expand(DimsAttrs { dims: repeated }), &[x])?;
    cx.reshape(x, vec![batch.clone(), q_heads.clone(), length.clone(), size.clone()])
}

/// The square root of the factor of scores, by default 1 / sqrt(head size), rounded from F32.
fn root_of_scale(cx: &mut Cx<'_>, scale: Option<f32>, q: ValueId, dtype: DType) -> Result<ValueId> {
    let scale = match scale {
        Some(scale) => cx.scalar(DType::F32, f64::from(scale))?,
        None => {
            let size = cx.ranked(q)?.last().cloned().ok_or_else(|| Reason::ty("the operands are scalars"))?;
            let attrs = FromDimsAttrs { values: vec![size], scalar: true, dtype: DType::I64 };
            let size = cx.emit(Op::FromDims(attrs), &[])?;
            let size = cx.cast(size, DType::F32)?;
            let root = cx.unary(UnaryOp::Sqrt, size)?;
            cx.unary(UnaryOp::Reciprocal, root)?
        }
    };
    let root = cx.unary(UnaryOp::Sqrt, scale)?;
    cx.cast(root, dtype)
}

/// What a subgraph makes of a tensor; `None` after faults, which are recorded.
fn modified(
    importer: &mut Importer<'_>,
    scope: &Scope,
    graph: Option<&GraphProto>,
    x: ValueId,
    label: &str,
) -> Result<Option<ValueId>> {
    let Some(graph) = graph else { return Ok(Some(x)) };
    let Some(results) = inline(importer, scope, graph, &[x], label)? else { return Ok(None) };
    match results.as_slice() {
        &[result] => Ok(Some(result)),
        results => Err(Reason::arity(format!("the subgraph has {} outputs, not 1", results.len()))),
    }
}
