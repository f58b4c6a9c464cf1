//! Type rules of elementwise operators.

use tilewright_dtype::DType;

use super::context::{Context, InferError, ranked, unranked};
use crate::dim::Dim;
use crate::op::{BinaryOp, Op};
use crate::types::Type;

pub(super) fn types(cx: &mut Context<'_>) -> Result<Vec<Type>, InferError> {
    match cx.op {
        Op::Identity => return Ok(vec![cx.ty(0)?.clone()]),
        Op::Unary(op) => {
            let dtype = cx.dtype(0)?;
            return same_shape(cx, op.result(dtype));
        }
        Op::Activation(_) | Op::Clip => {
            let dtype = cx.dtype(0)?;
            for bound in 1..cx.inputs.len() {
                if cx.input(bound).is_some() {
                    cx.check_same_dtype(0, bound)?;
                }
            }
            return same_shape(cx, dtype);
        }
        Op::Cast(attrs) => return same_shape(cx, attrs.to),
        Op::BitCast(to) => {
            let from = cx.dtype(0)?;
            if from.bits() != to.bits() {
                return Err(cx.fail(format!("{from} and {to} have different widths")));
            }
            return same_shape(cx, *to);
        }
        Op::QuantizeLinear(attrs) => return same_shape(cx, attrs.to),
        Op::DequantizeLinear(attrs) => return same_shape(cx, attrs.to),
        Op::BatchNorm(_) => return batch_norm(cx),
        _ => {}
    }
    let (dtype, operands) = match cx.op {
        Op::Binary(op) => (binary_dtype(cx, *op)?, 0..2),
        Op::StringConcat => (cx.check_same_dtype(0, 1)?, 0..2),
        _ => (cx.check_same_dtype(1, 2)?, 0..3),
    };
    let mut merged: Vec<Dim> = Vec::new();
    for operand in operands {
        let Some(dims) = cx.dims(operand)? else { return Ok(vec![unranked(dtype)]) };
        merged = cx.broadcast(&merged, dims)?;
    }
    Ok(vec![ranked(dtype, merged)])
}

fn same_shape(cx: &Context<'_>, dtype: DType) -> Result<Vec<Type>, InferError> {
    let mut ty = cx.tensor(0)?.clone();
    ty.dtype = dtype;
    Ok(vec![Type::Tensor(ty)])
}

fn binary_dtype(cx: &Context<'_>, op: BinaryOp) -> Result<DType, InferError> {
    if op == BinaryOp::Pow {
        cx.dtype(1)?;
        return cx.dtype(0);
    }
    let dtype = cx.check_same_dtype(0, 1)?;
    Ok(if op.is_comparison() { DType::Bool } else { dtype })
}

fn batch_norm(cx: &mut Context<'_>) -> Result<Vec<Type>, InferError> {
    let ty = cx.tensor(0)?;
    if let Some(dims) = ty.shape.dims() {
        cx.check_least_rank(0, dims, 2)?;
        for position in 1..5 {
            if let Some(parameter) = cx.dims(position)? {
                cx.check_rank(position, parameter, 1)?;
                cx.unify(&dims[1], &parameter[0], "channels")?;
            }
        }
    }
    Ok(vec![Type::Tensor(ty.clone())])
}
