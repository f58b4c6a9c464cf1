//! Losses, decomposed.

use tilewright_graph::op::{AxisAttrs, BinaryOp, Op, ReduceKind, SoftmaxAttrs, UnaryOp};
use tilewright_graph::{DType, Dim, ValueId};

use super::cx::Cx;
use super::error::{Reason, Result};

#[derive(Clone, Copy)]
enum Reduction {
    None,
    Sum,
    Mean,
}

/// `-weight[target] * log_prob[target]` along axis 1, reduced; the mean is weighted, and targets equal to
/// `ignore_index` count nothing.
fn nll(cx: &mut Cx<'_>, log_prob: ValueId, target: ValueId, weight: Option<ValueId>) -> Result<ValueId> {
    let reductions = [("none", Reduction::None), ("sum", Reduction::Sum), ("mean", Reduction::Mean)];
    let reduction = cx.keyword("reduction", "mean", &reductions)?;
    let ignored = cx.attrs.opt_int("ignore_index")?;
    let dtype = cx.dtype(log_prob)?;
    let dims = cx.ranked(target)?;
    if dims.is_empty() {
        return Err(Reason::ty("the target must have rank 1 or more"));
    }
    let axes: Vec<usize> = (0..dims.len()).collect();
    let target = cx.cast(target, DType::I64)?;
    let skip = match ignored {
        Some(index) => {
            let index = cx.scalar(DType::I64, index as f64)?;
            Some(cx.binary(BinaryOp::Equal, target, index)?)
        }
        None => None,
    };
    let class = match skip {
        Some(skip) => {
            let first = cx.scalar(DType::I64, 0.0)?;
            cx.select(skip, first, target)?
        }
        None => target,
    };
    let mut column = dims.clone();
    column.insert(1, Dim::ONE);
    let index = cx.reshape(class, column)?;
    let picked = cx.emit(Op::GatherElements(AxisAttrs { axis: 1 }), &[log_prob, index])?;
    let picked = cx.reshape(picked, dims.clone())?;
    let mut loss = cx.unary(UnaryOp::Neg, picked)?;
    let mut weights = match weight {
        Some(weight) => Some(cx.emit(Op::Gather(AxisAttrs { axis: 0 }), &[weight, class])?),
        None if skip.is_some() => Some(cx.full(dtype, dims, 1.0)?),
        None => None,
    };
    if let (Some(skip), Some(weights)) = (skip, &mut weights) {
        let none = cx.scalar(dtype, 0.0)?;
        *weights = cx.select(skip, none, *weights)?;
    }
    if let Some(weights) = weights {
        loss = cx.binary(BinaryOp::Mul, loss, weights)?;
    }
    match (reduction, weights) {
        (Reduction::None, _) => Ok(loss),
        (Reduction::Sum, _) => cx.reduce(ReduceKind::Sum, loss, &axes, false),
        (Reduction::Mean, None) => cx.reduce(ReduceKind::Mean, loss, &axes, false),
        (Reduction::Mean, Some(weights)) => {
            let total = cx.reduce(ReduceKind::Sum, loss, &axes, false)?;
            let weight = cx.reduce(ReduceKind::Sum, weights, &axes, false)?;
            cx.binary(BinaryOp::Div, total, weight)
        }
    }
}

pub(super) fn negative_log_likelihood(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (log_prob, target, weight) = (cx.input(0)?, cx.input(1)?, cx.opt(2));
    Ok(vec![nll(cx, log_prob, target, weight)?])
}

pub(super) fn softmax_cross_entropy(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (scores, labels, weight) = (cx.input(0)?, cx.input(1)?, cx.opt(2));
    let log_prob = cx.emit(Op::Softmax(SoftmaxAttrs { axis: 1, log: true }), &[scores])?;
    Ok(vec![nll(cx, log_prob, labels, weight)?, log_prob])
}
