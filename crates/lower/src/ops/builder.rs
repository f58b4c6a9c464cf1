//! What definitions of operators are written with: operands, result shapes, and the `compute`/`reduce` forms.

use tilewright_dtype::{DType, Kind};
use tilewright_graph::dim::Dim;
use tilewright_graph::types::TensorType;
use tilewright_te::define::Reduced;
use tilewright_te::{Buffer, Expr, Func, IterKind, Scope, Store};

pub(super) use super::operand::{Operand, broadcast_index};
use super::{Algorithm, Context, NoKernel, Prepared};

/// Adds the blocks of one operator to a function.
pub(super) struct Builder<'a, 'c> {
    pub(super) func: &'a mut Func,
    ctx: &'a mut Context<'c>,
    name: &'static str,
    inputs: Vec<Option<Operand>>,
    results: &'a [&'a TensorType],
}

impl<'a, 'c> Builder<'a, 'c> {
    /// A builder for the operator `name` with the operands and result types given.
    pub(super) fn new(
        func: &'a mut Func,
        ctx: &'a mut Context<'c>,
        name: &'static str,
        inputs: &[Option<Buffer>],
        results: &'a [&'a TensorType],
    ) -> Builder<'a, 'c> {
        let inputs = inputs.iter().map(|input| input.map(|buffer| Operand::of(func, buffer))).collect();
        Builder { func, ctx, name, inputs, results }
    }

    /// The error that the operator has no kernel.
    pub(super) fn no_kernel(&self, reason: impl Into<String>) -> NoKernel {
        NoKernel { op: self.name, reason: reason.into() }
    }

    /// Operand `n`, which must be there.
    pub(super) fn input(&self, n: usize) -> Result<Operand, NoKernel> {
        self.optional(n).ok_or_else(|| self.no_kernel(format!("operand {n} is missing")))
    }

    /// Operand `n`, if there.
    pub(super) fn optional(&self, n: usize) -> Option<Operand> {
        self.inputs.get(n).cloned().flatten()
    }

    /// Every operand that is there.
    pub(super) fn inputs(&self) -> Vec<Operand> {
        self.inputs.iter().flatten().cloned().collect()
    }

    /// Number of results.
    pub(super) fn n_results(&self) -> usize {
        self.results.len()
    }

    /// Element type of result `n`.
    pub(super) fn result_dtype(&self, n: usize) -> DType {
        self.results[n].dtype
    }

    /// Extents of result `n`.
    pub(super) fn result_shape(&mut self, n: usize) -> Result<Vec<Expr>, NoKernel> {
        match self.results[n].shape.dims() {
            Some(dims) => Ok(dims.iter().map(|dim| self.dim(dim)).collect()),
            None => Err(self.no_kernel("the rank of its result is not known")),
        }
    }

    /// An extent of the graph.
    pub(super) fn dim(&mut self, dim: &Dim) -> Expr {
        self.ctx.dims.expr(self.func, self.ctx.symbols, dim)
    }

    /// An extent over extents of operands and results, which is not negative, as a size that kernels get.
    pub(super) fn named(&mut self, name: &str, extent: &Expr) -> Expr {
        self.ctx.dims.named(self.func, name, extent)
    }

    /// A temporary with `name[i] = value(i)`.
    pub(super) fn compute(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[Expr],
        value: impl FnOnce(&[Expr]) -> Expr,
    ) -> Operand {
        let buffer = self.func.compute(name, dtype, shape.to_vec(), |_, indices| value(indices));
        Operand { buffer, dtype, shape: shape.to_vec() }
    }

    /// A temporary with `name[i] = init`, then `name[i] = step(i, r, name[i])` for every `r` in order; `init`
    /// alone where an extent is known to be 0.
    pub(super) fn reduce(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[Expr],
        extents: Vec<Expr>,
        init: Expr,
        step: impl FnOnce(&[Expr], &[Expr], Expr) -> Expr,
    ) -> Operand {
        if extents.iter().any(|extent| extent.as_int() == Some(0)) {
            return self.compute(name, dtype, shape, |_| init);
        }
        let buffer =
            self.func.reduce(name, dtype, shape.to_vec(), extents, init, |_, i, r, acc| step(i, r, acc));
        Operand { buffer, dtype, shape: shape.to_vec() }
    }

    /// Several accumulators of one shape, `(name, init)` each, updated together; a value may use the old
    /// accumulators of itself and of later ones only.
    pub(super) fn reduce_many(
        &mut self,
        results: &[(&str, Expr)],
        shape: &[Expr],
        extents: Vec<Expr>,
        step: impl FnOnce(&[Expr], &[Expr], &[Expr]) -> Vec<Expr>,
    ) -> Vec<Operand> {
        if extents.iter().any(|extent| extent.as_int() == Some(0)) {
            return results
                .iter()
                .map(|(name, init)| self.compute(name, init.dtype(), shape, |_| init.clone()))
                .collect();
        }
        let operands: Vec<Operand> =
            results.iter().map(|(name, init)| self.temporary(name, init.dtype(), shape)).collect();
        let reduced = operands.iter().zip(results);
        let reduced =
            reduced.map(|(o, (_, init))| Reduced { buffer: o.buffer, init: init.clone() }).collect();
        self.func.reduce_many(reduced, extents, |_, i, r, acc| step(i, r, acc));
        operands
    }

    /// A temporary that nothing writes yet.
    pub(super) fn temporary(&mut self, name: &str, dtype: DType, shape: &[Expr]) -> Operand {
        let buffer = self.func.add_buffer(name, dtype, shape.to_vec(), Scope::Global);
        Operand { buffer, dtype, shape: shape.to_vec() }
    }

    /// The algorithm asked for.
    pub(super) fn algorithm(&self) -> Algorithm {
        self.ctx.algorithm
    }

    /// A tensor to be made of operand `n` at compile time, and passed in its place. `stores` gets both tensors and
    /// indices of the new one, but for its first `n_constant` axes, which it fills at constant indices.
    ///
    /// # Errors
    /// Where the operand is no input of the function.
    pub(super) fn prepare(
        &mut self,
        n: usize,
        name: &str,
        dtype: DType,
        shape: &[Expr],
        n_constant: usize,
        stores: impl FnOnce(&Operand, &Operand, &[Expr]) -> Vec<Store>,
    ) -> Result<Operand, NoKernel> {
        let operand = self.input(n)?;
        if !self.func.is_input(operand.buffer) {
            return Err(self.no_kernel("there is nothing to prepare"));
        }
        let mut func = Func::new("prepare");
        let source = func.add_input("source", operand.dtype, operand.shape.clone());
        let source = Operand::of(&func, source);
        let made = func.add_output(name, dtype, shape.to_vec());
        let made = Operand::of(&func, made);
        let domain = shape[n_constant..].iter().map(|extent| (extent.clone(), IterKind::Spatial)).collect();
        func.define(made.buffer, domain, |_, i| (Vec::new(), stores(&source, &made, i)));
        let prepared = self.temporary(name, dtype, shape);
        self.ctx.prepared.push(Prepared { input: operand.buffer, prepared: prepared.buffer, func });
        Ok(prepared)
    }

    /// A block named after `target` with the stores given over `spatial` and then, in order, `ordered` iterations.
    pub(super) fn update(
        &mut self,
        target: &Operand,
        spatial: &[Expr],
        ordered: &[Expr],
        stores: impl FnOnce(&[Expr], &[Expr]) -> Vec<Store>,
    ) {
        let domain = spatial.iter().map(|extent| (extent.clone(), IterKind::Spatial));
        let domain = domain.chain(ordered.iter().map(|extent| (extent.clone(), IterKind::Reduce))).collect();
        self.func.define(target.buffer, domain, |_, iters| {
            let (i, r) = iters.split_at(spatial.len());
            (Vec::new(), stores(i, r))
        });
    }

    /// The operand converted to `dtype`; itself where it has that type.
    pub(super) fn cast(&mut self, name: &str, operand: Operand, dtype: DType) -> Operand {
        if operand.dtype == dtype {
            return operand;
        }
        let shape = operand.shape.clone();
        self.compute(name, dtype, &shape, |i| operand.at(i.to_vec()).cast(dtype))
    }
}

/// Adds a bias a channel, and rounds to `dtype`.
pub(super) fn biased(b: &mut Builder, sum: Operand, bias: Option<Operand>, dtype: DType) -> Operand {
    let shape = sum.shape.clone();
    match bias {
        None => b.cast("cast", sum, dtype),
        Some(bias) => b.compute("bias", dtype, &shape, |i| {
            (sum.at(i.to_vec()) + bias.at(vec![i[1].clone()]).cast(sum.dtype)).cast(dtype)
        }),
    }
}

/// What a number counts, outermost first, of which all but the first have these extents.
pub(super) fn digits_of(number: &Expr, extents: &[Expr]) -> Vec<Expr> {
    let mut rest = number.clone();
    let mut digits = Vec::with_capacity(extents.len() + 1);
    for extent in extents.iter().rev() {
        digits.push(rest.clone().floor_mod(extent.clone()));
        rest = rest.floor_div(extent.clone());
    }
    digits.push(rest);
    digits.reverse();
    digits
}

/// The number that counts a first digit and others of these extents.
pub(super) fn number_of(first: Expr, digits: &[Expr], extents: &[Expr]) -> Expr {
    digits.iter().zip(extents).fold(first, |number, (digit, extent)| number * extent.clone() + digit.clone())
}

/// The type in which values of `dtype` are accumulated: narrow floats in `F32`.
pub(super) fn accumulator(dtype: DType) -> DType {
    match dtype.kind() {
        Kind::Float if dtype != DType::F64 => DType::F32,
        Kind::Float | Kind::Bool | Kind::Int | Kind::UInt | Kind::String => dtype,
    }
}

/// Most terms of a `BF16` sum that is rounded after each addition.
const MAX_ROUNDED_TERMS: i64 = 16;

/// The type in which a softmax sums `terms` exponentials.
///
/// ONNX's reference rounds every partial sum of `BF16` values, which the suite's tolerance (below one unit in the
/// last place) makes visible. Over a few terms that is harmless and done here too; over many it would lose whole
/// terms.
pub(super) fn sum_accumulator(dtype: DType, terms: &Expr) -> DType {
    let few = terms.as_int().is_some_and(|terms| terms <= MAX_ROUNDED_TERMS);
    if dtype == DType::BF16 && few { dtype } else { accumulator(dtype) }
}

/// A constant of any numeric type from a real number; integers truncate.
pub(super) fn real(dtype: DType, value: f64) -> Expr {
    if dtype.is_float() { Expr::float_of(dtype, value) } else { Expr::int_of(dtype, value as i64) }
}

/// The product of extents.
pub(super) fn product(extents: &[Expr]) -> Expr {
    extents.iter().cloned().fold(Expr::int(1), |product, extent| product * extent)
}

/// Whether all conditions hold.
pub(super) fn all(conditions: impl IntoIterator<Item = Expr>) -> Expr {
    conditions.into_iter().fold(Expr::bool(true), Expr::and)
}

/// Whether `0 <= index < extent`.
pub(super) fn in_range(index: &Expr, extent: &Expr) -> Expr {
    index.clone().ge(Expr::int(0)).and(index.clone().lt(extent.clone()))
}

/// `low <= index <= high` enforced; `low` where the range is empty.
pub(super) fn clamp(index: Expr, low: Expr, high: Expr) -> Expr {
    low.max(high.min(index))
}

/// An index from data: negative ones count from the end, and the result is inside the axis whatever the data.
pub(super) fn wrap_index(index: Expr, extent: &Expr) -> Expr {
    let index = index.cast(DType::I64);
    let wrapped = Expr::select(index.clone().lt(Expr::int(0)), index.clone() + extent.clone(), index);
    clamp(wrapped, Expr::int(0), extent.clone() - 1)
}

/// The row-major position of `indices` in a tensor of extents `shape`.
pub(super) fn linear(indices: &[Expr], shape: &[Expr]) -> Expr {
    let pairs = indices.iter().zip(shape);
    pairs.fold(Expr::int(0), |position, (index, extent)| position * extent.clone() + index.clone())
}

/// The indices of row-major position `position` in a tensor of extents `shape`.
pub(super) fn delinear(position: Expr, shape: &[Expr]) -> Vec<Expr> {
    let mut indices = Vec::with_capacity(shape.len());
    let mut rest = position;
    for (axis, extent) in shape.iter().enumerate().rev() {
        if extent.as_int() == Some(1) {
            indices.push(Expr::int(0));
        } else if shape[..axis].iter().all(|outer| outer.as_int() == Some(1)) {
            indices.push(rest.clone());
        } else {
            indices.push(rest.clone().floor_mod(extent.clone()));
            rest = rest.floor_div(extent.clone());
        }
    }
    indices.reverse();
    indices
}

/// `indices` with `index` in place of (`replace`) or before the one at `axis`.
pub(super) fn with_index(indices: &[Expr], axis: usize, index: Expr, replace: bool) -> Vec<Expr> {
    let mut all = indices.to_vec();
    if replace {
        all[axis] = index;
    } else {
        all.insert(axis, index);
    }
    all
}

/// `group * size + within` where there is more than one group.
pub(super) fn grouped(group: &Expr, size: &Expr, within: &Expr, n_groups: usize) -> Expr {
    if n_groups == 1 { within.clone() } else { group.clone() * size.clone() + within.clone() }
}

/// The group of output channel `channel`.
pub(super) fn group_of(channel: &Expr, channels: &Expr, n_groups: usize) -> Expr {
    match n_groups {
        1 => Expr::int(0),
        n if channels.as_int() == Some(n as i64) => channel.clone(),
        n => channel.clone().floor_div(channels.clone().floor_div(Expr::int(n as i64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(values: &[i64]) -> Vec<Expr> {
        values.iter().map(|&value| Expr::int(value)).collect()
    }

    #[test]
    fn delinear_inverts_linear() {
        let shape = ints(&[1, 3, 1, 4]);
        for position in 0..12 {
            let indices = delinear(Expr::int(position), &shape);
            assert_eq!(linear(&indices, &shape).as_int(), Some(position), "{indices:?}");
        }
    }

    #[test]
    fn indices_from_data_stay_inside() {
        let at = |index| wrap_index(Expr::int(index), &Expr::int(5)).as_int();
        assert_eq!([at(-1), at(4), at(-9), at(7)], [Some(4), Some(4), Some(0), Some(4)]);
    }
}
