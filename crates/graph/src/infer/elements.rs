//! Follows the elements of small integer tensors as symbolic extents.
//!
//! Exported graphs compute shapes with tensors: `Shape`, `Gather`, `Concat`, arithmetic, comparisons. Where every
//! element of the operands is a known expression, so are the elements of the result. Booleans are 0 and 1.

use std::sync::Arc;

use tilewright_dtype::{DType, Kind};

use super::context::Context;
use super::movement::slice_bounds;
use crate::dim::Dim;
use crate::op::{BinaryOp, Op, ReduceAttrs, ReduceKind, UnaryOp};
use crate::types::Type;

/// Tensors with more elements are data, not shapes.
const MAX_ELEMENTS: usize = 256;

/// A small integer tensor of extents.
struct Elements {
    dims: Vec<usize>,
    values: Vec<Dim>,
}

impl Elements {
    /// Those of an operand, if they are known. A graph that is parsed may declare another shape than its elements have; the
    /// verifier says so.
    fn of(cx: &Context<'_>, position: usize) -> Option<Elements> {
        let dims = cx.tensor(position).ok()?.shape.as_fixed()?;
        let values = cx.elements(position)?.to_vec();
        (dims.iter().product::<usize>() == values.len()).then_some(Elements { dims, values })
    }

    /// The element that a result element at `index` of shape `dims` sees under broadcasting.
    fn broadcast(&self, index: &[usize]) -> &Dim {
        let offset = index.len() - self.dims.len();
        let clipped =
            index[offset..].iter().zip(&self.dims).map(|(&at, &extent)| if extent == 1 { 0 } else { at });
        &self.values[ravel(clipped, &self.dims)]
    }
}

fn ravel(index: impl Iterator<Item = usize>, dims: &[usize]) -> usize {
    index.zip(dims).fold(0, |flat, (at, &extent)| flat * extent + at)
}

fn unravel(mut flat: usize, dims: &[usize]) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for (at, &extent) in index.iter_mut().zip(dims).rev() {
        *at = flat % extent;
        flat /= extent;
    }
    index
}

/// The elements of each result, where they are known.
pub(super) fn follow(cx: &Context<'_>, types: &[Type]) -> Vec<Option<Arc<[Dim]>>> {
    let fixed = |ty: &Type| {
        let tensor = ty.as_tensor()?;
        let integral = matches!(tensor.dtype.kind(), Kind::Bool | Kind::Int | Kind::UInt);
        let dims = tensor.shape.as_fixed()?;
        let count = dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))?;
        (integral && count <= MAX_ELEMENTS).then_some(dims)
    };
    if let Op::Split(attrs) = cx.op {
        let parts: Option<Vec<Vec<usize>>> = types.iter().map(fixed).collect();
        let (Some(parts), Some(x)) = (parts, Elements::of(cx, 0)) else { return vec![None; types.len()] };
        let mut start = 0;
        let mut part = |dims: &Vec<usize>| {
            let offset = start;
            start += dims[attrs.axis];
            gather_from(dims, |index| {
                let mut index = index.to_vec();
                index[attrs.axis] += offset;
                x.values.get(ravel(index.into_iter(), &x.dims)).cloned()
            })
        };
        return parts.iter().map(&mut part).collect();
    }
    let [ty] = types else { return vec![None; types.len()] };
    vec![fixed(ty).and_then(|dims| one(cx, &dims))]
}

fn gather_from(dims: &[usize], mut element: impl FnMut(&[usize]) -> Option<Dim>) -> Option<Arc<[Dim]>> {
    (0..dims.iter().product()).map(|flat| element(&unravel(flat, dims))).collect()
}

fn one(cx: &Context<'_>, dims: &[usize]) -> Option<Arc<[Dim]>> {
    match cx.op {
        Op::Constant(tensor) => Some(tensor.to_i64s()?.into_iter().map(Dim::new).collect()),
        Op::FromDims(attrs) => Some(attrs.values.clone().into()),
        Op::Shape(attrs) => Some(cx.dims(0).ok()??.get(attrs.start..attrs.end)?.into()),
        Op::Size => Some(Arc::from([Dim::product(cx.dims(0).ok()??)])),
        Op::Identity | Op::Reshape(_) | Op::ReshapeDynamic(_) => Some(Elements::of(cx, 0)?.values.into()),
        Op::Cast(attrs) => cast(cx, attrs.to),
        Op::Unary(op) => {
            let x = Elements::of(cx, 0)?;
            x.values.iter().map(|value| unary(*op, value)).collect()
        }
        Op::Binary(op) => {
            let (a, b) = (Elements::of(cx, 0)?, Elements::of(cx, 1)?);
            gather_from(dims, |index| binary(*op, a.broadcast(index), b.broadcast(index)))
        }
        Op::Where => {
            let (c, x, y) = (Elements::of(cx, 0)?, Elements::of(cx, 1)?, Elements::of(cx, 2)?);
            gather_from(dims, |index| match c.broadcast(index).as_const()? {
                0 => Some(y.broadcast(index).clone()),
                _ => Some(x.broadcast(index).clone()),
            })
        }
        Op::Transpose(attrs) => {
            let x = Elements::of(cx, 0)?;
            gather_from(dims, |index| {
                let mut source = vec![0; index.len()];
                attrs.perm.iter().zip(index).for_each(|(&axis, &at)| source[axis] = at);
                Some(x.values[ravel(source.into_iter(), &x.dims)].clone())
            })
        }
        Op::Expand(_) | Op::ExpandDynamic => {
            let x = Elements::of(cx, 0)?;
            gather_from(dims, |index| Some(x.broadcast(index).clone()))
        }
        Op::Full(_) => Some(vec![cx.elements(0)?.first()?.clone(); dims.iter().product()].into()),
        Op::FullDynamic => Some(vec![cx.elements(1)?.first()?.clone(); dims.iter().product()].into()),
        Op::Iota(_) => sequence(cx.elements(0)?.first()?, cx.elements(1)?.first()?, dims[0]),
        Op::RangeDynamic => sequence(cx.elements(0)?.first()?, cx.elements(2)?.first()?, dims[0]),
        Op::Gather(attrs) => gather(cx, dims, attrs.axis),
        Op::Slice(attrs) => {
            let starts: Option<Vec<i64>> = attrs.starts.iter().map(Dim::as_const).collect();
            slice(cx, dims, &attrs.axes, &starts?, &attrs.steps)
        }
        Op::SliceDynamic => slice_dynamic(cx, dims),
        Op::Concat(attrs) => concat(cx, dims, attrs.axis),
        Op::Reduce(attrs) => reduce_all(cx, attrs),
        _ => None,
    }
}

fn cast(cx: &Context<'_>, to: DType) -> Option<Arc<[Dim]>> {
    let x = Elements::of(cx, 0)?;
    match (cx.dtype(0).ok()?, to) {
        (_, DType::I64) | (DType::Bool, _) => Some(x.values.into()),
        (_, DType::Bool) => x.values.iter().map(truth).collect(),
        // Extents fit 32 bits unless they are constants that do not.
        (_, DType::I32) => {
            let fits = |dim: &Dim| dim.as_const().is_none_or(|value| i32::try_from(value).is_ok());
            x.values.iter().all(fits).then(|| x.values.into())
        }
        _ => None,
    }
}

fn gather(cx: &Context<'_>, dims: &[usize], axis: usize) -> Option<Arc<[Dim]>> {
    let (x, indices) = (Elements::of(cx, 0)?, Elements::of(cx, 1)?);
    let extent = *x.dims.get(axis)? as i64;
    let tail = axis + indices.dims.len();
    gather_from(dims, |index| {
        let at = indices.values[ravel(index[axis..tail].iter().copied(), &indices.dims)].as_const()?;
        let at = usize::try_from(if at < 0 { at + extent } else { at }).ok()?;
        let source = index[..axis].iter().copied().chain([at]).chain(index[tail..].iter().copied());
        x.values.get(ravel(source, &x.dims)).cloned()
    })
}

fn slice_dynamic(cx: &Context<'_>, dims: &[usize]) -> Option<Arc<[Dim]>> {
    let x = Elements::of(cx, 0)?;
    let rank = x.dims.len() as i64;
    let (starts, ends) = (cx.integers(1)?, cx.integers(2)?);
    let listed = if cx.input(3).is_some() { cx.integers(3)? } else { (0..starts.len() as i64).collect() };
    let steps = if cx.input(4).is_some() { cx.integers(4)? } else { vec![1; starts.len()] };
    let mut axes = Vec::new();
    let mut firsts = Vec::new();
    for (index, axis) in listed.into_iter().enumerate() {
        let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
        let bound = |list: &[i64]| list.get(index).map(|&value| Dim::new(value));
        let extent = Dim::from(*x.dims.get(axis)?);
        let bounds = slice_bounds(&extent, &bound(&starts)?, &bound(&ends)?, *steps.get(index)?, cx.symbols)?;
        axes.push(axis);
        firsts.push(bounds.start.as_const()?);
    }
    slice(cx, dims, &axes, &firsts, &steps)
}

fn concat(cx: &Context<'_>, dims: &[usize], axis: usize) -> Option<Arc<[Dim]>> {
    let parts: Option<Vec<Elements>> = (0..cx.inputs.len()).map(|at| Elements::of(cx, at)).collect();
    let parts = parts?;
    gather_from(dims, |index| {
        let mut index = index.to_vec();
        for part in &parts {
            if index[axis] < part.dims[axis] {
                return Some(part.values[ravel(index.into_iter(), &part.dims)].clone());
            }
            index[axis] -= part.dims[axis];
        }
        None
    })
}

/// A reduction over all axes, of one element or more.
fn reduce_all(cx: &Context<'_>, attrs: &ReduceAttrs) -> Option<Arc<[Dim]>> {
    let x = Elements::of(cx, 0)?;
    if attrs.axes.len() != x.dims.len() {
        return None;
    }
    let combine: fn(&Dim, &Dim) -> Dim = match attrs.kind {
        ReduceKind::Prod => |a, b| a * b,
        ReduceKind::Sum => |a, b| a + b,
        ReduceKind::Max => Dim::maximum,
        ReduceKind::Min => Dim::minimum,
        ReduceKind::Mean | ReduceKind::SumSquare | ReduceKind::L1 | ReduceKind::L2 => return None,
        ReduceKind::LogSum | ReduceKind::LogSumExp => return None,
    };
    let (first, rest) = x.values.split_first()?;
    Some(Arc::from([rest.iter().fold(first.clone(), |folded, value| combine(&folded, value))]))
}

fn sequence(start: &Dim, step: &Dim, len: usize) -> Option<Arc<[Dim]>> {
    Some((0..len).map(|at| start + &(step * &Dim::from(at))).collect())
}

fn slice(
    cx: &Context<'_>,
    dims: &[usize],
    axes: &[usize],
    starts: &[i64],
    steps: &[i64],
) -> Option<Arc<[Dim]>> {
    let x = Elements::of(cx, 0)?;
    gather_from(dims, |index| {
        let mut index = index.to_vec();
        for ((&axis, &start), &step) in axes.iter().zip(starts).zip(steps) {
            index[axis] = usize::try_from(start.checked_add(step.checked_mul(index[axis] as i64)?)?).ok()?;
        }
        x.values.get(ravel(index.into_iter(), &x.dims)).cloned()
    })
}

/// 1 if a value is known not to be 0, 0 if it is 0.
fn truth(value: &Dim) -> Option<Dim> {
    match value.as_const() {
        Some(value) => Some(Dim::new(i64::from(value != 0))),
        None => (value - 1).is_non_negative().then_some(Dim::ONE),
    }
}

fn unary(op: UnaryOp, x: &Dim) -> Option<Dim> {
    match op {
        UnaryOp::Neg => Some(-x),
        UnaryOp::Abs | UnaryOp::Relu if x.is_non_negative() => Some(x.clone()),
        UnaryOp::Not => Some(Dim::new(i64::from(x.as_const()? == 0))),
        _ => None,
    }
}

fn binary(op: BinaryOp, a: &Dim, b: &Dim) -> Option<Dim> {
    use BinaryOp::*;
    let flag = |value: bool| Some(Dim::new(i64::from(value)));
    let constants = a.as_const().zip(b.as_const());
    match op {
        Add => Some(a + b),
        Sub => Some(a - b),
        Mul => Some(a * b),
        // Truncation and flooring agree where both sides are non-negative.
        Div => match constants {
            Some((a, b)) => a.checked_div(b).map(Dim::new),
            None => (a.is_non_negative() && b.is_non_negative() && !b.is(0)).then(|| a.floor_div(b)),
        },
        Mod => (b.is_non_negative() && !b.is(0)).then(|| a.modulo(b)),
        Fmod => (a.is_non_negative() && b.is_non_negative() && !b.is(0)).then(|| a.modulo(b)),
        Min => Some(a.minimum(b)),
        Max => Some(a.maximum(b)),
        Equal => {
            if a == b {
                return flag(true);
            }
            let apart = (&(a - b) - 1).is_non_negative() || (&(b - a) - 1).is_non_negative();
            // An extent never equals a negative constant such as the -1 of a shape.
            if apart || (a - b).as_const().is_some() { flag(false) } else { None }
        }
        Less => decide(&(&(b - a) - 1), &(a - b)),
        LessEqual => decide(&(b - a), &(&(a - b) - 1)),
        Greater => decide(&(&(a - b) - 1), &(b - a)),
        GreaterEqual => decide(&(a - b), &(&(b - a) - 1)),
        And => constants.and_then(|(a, b)| flag(a != 0 && b != 0)),
        Or => constants.and_then(|(a, b)| flag(a != 0 || b != 0)),
        Xor => constants.and_then(|(a, b)| flag((a != 0) != (b != 0))),
        Pow | BitwiseAnd | BitwiseOr | BitwiseXor | ShiftLeft | ShiftRight => None,
    }
}

/// 1 if `holds` cannot be negative, 0 if `fails` cannot be.
fn decide(holds: &Dim, fails: &Dim) -> Option<Dim> {
    match (holds.is_non_negative(), fails.is_non_negative()) {
        (true, _) => Some(Dim::ONE),
        (false, true) => Some(Dim::ZERO),
        (false, false) => None,
    }
}
