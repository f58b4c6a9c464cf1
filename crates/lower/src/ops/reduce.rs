//! Reductions over axes: sums, norms, extremes and their positions, running sums.

use tilewright_dtype::DType;
use tilewright_graph::op::{
    ArgReduceAttrs, CumulativeAttrs, CumulativeKind, Extreme, ReduceAttrs, ReduceDynamicAttrs, ReduceKind,
};
use tilewright_te::{BinaryOp, CompareOp, Expr, UnaryOp};

use super::Results;
use super::builder::{Builder, Operand, accumulator, product, with_index};
use super::elementwise::{apply, extreme};

/// Which axes are reduced, and how results and reduction indices make operand indices.
pub(super) struct Axes {
    reduced: Vec<usize>,
    keep_dims: bool,
    rank: usize,
}

impl Axes {
    /// Reduction of the axes `reduced` of an operand of rank `rank`.
    pub(super) fn new(rank: usize, reduced: &[usize], keep_dims: bool) -> Axes {
        Axes { reduced: reduced.to_vec(), keep_dims, rank }
    }

    /// Extents of the result.
    pub(super) fn result(&self, shape: &[Expr]) -> Vec<Expr> {
        let axes = shape.iter().enumerate();
        let kept = axes.filter_map(|(axis, extent)| match (self.reduced.contains(&axis), self.keep_dims) {
            (false, _) => Some(extent.clone()),
            (true, true) => Some(Expr::int(1)),
            (true, false) => None,
        });
        kept.collect()
    }

    /// Extents of the reduction.
    pub(super) fn extents(&self, shape: &[Expr]) -> Vec<Expr> {
        self.reduced.iter().map(|&axis| shape[axis].clone()).collect()
    }

    /// Operand indices from result indices `i` and reduction indices `r`.
    pub(super) fn operand(&self, i: &[Expr], r: &[Expr]) -> Vec<Expr> {
        let mut next = 0;
        let indices =
            (0..self.rank).map(|axis| match self.reduced.iter().position(|&reduced| reduced == axis) {
                Some(position) => {
                    next += usize::from(self.keep_dims);
                    r[position].clone()
                }
                None => {
                    next += 1;
                    i[next - 1].clone()
                }
            });
        indices.collect()
    }

    /// Result indices from operand indices.
    pub(super) fn project(&self, i: &[Expr]) -> Vec<Expr> {
        let axes = i.iter().enumerate();
        let kept = axes.filter_map(|(axis, index)| match (self.reduced.contains(&axis), self.keep_dims) {
            (false, _) => Some(index.clone()),
            (true, true) => Some(Expr::int(0)),
            (true, false) => None,
        });
        kept.collect()
    }
}

/// The type in which a reduction runs: roots, logarithms and means of integers in double precision.
fn reduction_dtype(kind: ReduceKind, dtype: DType) -> DType {
    match kind {
        ReduceKind::Max | ReduceKind::Min => dtype,
        ReduceKind::L2 | ReduceKind::LogSum | ReduceKind::LogSumExp if !dtype.is_float() => DType::F64,
        ReduceKind::Sum | ReduceKind::Mean | ReduceKind::Prod | ReduceKind::SumSquare | ReduceKind::L1 => {
            accumulator(dtype)
        }
        ReduceKind::L2 | ReduceKind::LogSum | ReduceKind::LogSumExp => accumulator(dtype),
    }
}

/// Reduces `x` over `axes`; the result is in the type the reduction runs in, before it is finished.
fn accumulate(b: &mut Builder, kind: ReduceKind, x: &Operand, axes: &Axes) -> Operand {
    let dtype = reduction_dtype(kind, x.dtype);
    let shape = axes.result(&x.shape);
    let extents = axes.extents(&x.shape);
    let element = |i: &[Expr], r: &[Expr]| x.at(axes.operand(i, r)).cast(dtype);
    let zero = Expr::zero(dtype);
    match kind {
        ReduceKind::Sum | ReduceKind::Mean | ReduceKind::LogSum => {
            b.reduce("sum", dtype, &shape, extents, zero, |i, r, acc| acc + element(i, r))
        }
        ReduceKind::Max => b.reduce("max", dtype, &shape, extents, Expr::lowest(dtype), |i, r, acc| {
            extreme(BinaryOp::Max, acc, element(i, r))
        }),
        ReduceKind::Min => b.reduce("min", dtype, &shape, extents, Expr::highest(dtype), |i, r, acc| {
            extreme(BinaryOp::Min, acc, element(i, r))
        }),
        ReduceKind::Prod => {
            b.reduce("prod", dtype, &shape, extents, Expr::int_of(dtype, 1), |i, r, acc| acc * element(i, r))
        }
        ReduceKind::SumSquare | ReduceKind::L2 => {
            b.reduce("sum", dtype, &shape, extents, zero, |i, r, acc| {
                Expr::fma(element(i, r), element(i, r), acc)
            })
        }
        ReduceKind::L1 => b.reduce("sum", dtype, &shape, extents, zero, |i, r, acc| {
            let x = element(i, r);
            acc + if x.dtype().is_float() || x.dtype().is_signed() { apply(UnaryOp::Abs, x) } else { x }
        }),
        ReduceKind::LogSumExp => {
            let lowest = Expr::lowest(dtype);
            let max =
                b.reduce("max", dtype, &shape, extents.clone(), lowest, |i, r, acc| acc.max(element(i, r)));
            // An infinite maximum is not subtracted: inf - inf would be NaN.
            let shift = b.compute("shift", dtype, &shape, |i| {
                let max = max.at(i.to_vec());
                let infinite = apply(UnaryOp::Abs, max.clone()).equals(Expr::highest(dtype));
                Expr::select(infinite, Expr::zero(dtype), max)
            });
            let sum = b.reduce("sum", dtype, &shape, extents, zero, |i, r, acc| {
                acc + apply(UnaryOp::Exp, element(i, r) - shift.at(i.to_vec()))
            });
            b.compute("log_sum_exp", dtype, &shape, |i| {
                apply(UnaryOp::Log, sum.at(i.to_vec())) + shift.at(i.to_vec())
            })
        }
    }
}

/// The reduction of `x` with the result's type `to`.
fn reduced(b: &mut Builder, kind: ReduceKind, x: &Operand, axes: &Axes, to: DType) -> Operand {
    let sum = accumulate(b, kind, x, axes);
    let shape = sum.shape.clone();
    match kind {
        ReduceKind::Mean => {
            let count = product(&axes.extents(&x.shape)).cast(sum.dtype);
            b.compute("mean", to, &shape, |i| (sum.at(i.to_vec()) / count).cast(to))
        }
        ReduceKind::L2 => {
            b.compute("norm", to, &shape, |i| apply(UnaryOp::Sqrt, sum.at(i.to_vec())).cast(to))
        }
        ReduceKind::LogSum => {
            b.compute("log", to, &shape, |i| apply(UnaryOp::Log, sum.at(i.to_vec())).cast(to))
        }
        ReduceKind::Sum
        | ReduceKind::Max
        | ReduceKind::Min
        | ReduceKind::Prod
        | ReduceKind::SumSquare
        | ReduceKind::L1
        | ReduceKind::LogSumExp => b.cast("cast", sum, to),
    }
}

/// Reduction over fixed axes.
pub(super) fn reduce(b: &mut Builder, attrs: &ReduceAttrs) -> Results {
    let x = b.input(0)?;
    let axes = Axes::new(x.rank(), &attrs.axes, attrs.keep_dims);
    Ok(vec![reduced(b, attrs.kind, &x, &axes, x.dtype)])
}

/// Reduction over axes known at run time; how many there are is known before, so that the result's rank is.
pub(super) fn reduce_dynamic(b: &mut Builder, attrs: &ReduceDynamicAttrs) -> Results {
    let (x, axes_operand) = (b.input(0)?, b.input(1)?);
    let n_axes = axes_operand.shape.iter().try_fold(1, |count, extent| Some(count * extent.as_int()?));
    let Some(n_axes) = n_axes else {
        return Err(b.no_kernel("the number of reduced axes is only known at run time"));
    };
    if n_axes == 0 {
        let reduced_axes: Vec<usize> = if attrs.empty_is_noop { Vec::new() } else { (0..x.rank()).collect() };
        let axes = Axes::new(x.rank(), &reduced_axes, attrs.keep_dims);
        return Ok(vec![reduced(b, attrs.kind, &x, &axes, x.dtype)]);
    }
    // Whether each axis is reduced is data.
    let shape = b.result_shape(0)?;
    let rank = x.rank() as i64;
    let is_reduced = |axis: usize| {
        (0..n_axes).fold(Expr::bool(false), |any, n| {
            let given = axes_operand.at(vec![Expr::int(n); axes_operand.rank()]).cast(DType::I64);
            let hit =
                given.clone().equals(Expr::int(axis as i64)).or(given.equals(Expr::int(axis as i64 - rank)));
            any.or(hit)
        })
    };
    let by_data =
        ReductionByData { x: &x, shape: &shape, keep_dims: attrs.keep_dims, is_reduced: &is_reduced };
    Ok(vec![by_data.define(b, attrs.kind)])
}

/// A reduction whose axes are data. Which axes a step runs over is not known, but how many steps a result element takes is: the
/// operand's elements over the result's. A step's number is taken apart into indices of the reduced axes.
struct ReductionByData<'a> {
    x: &'a Operand,
    shape: &'a [Expr],
    keep_dims: bool,
    is_reduced: &'a dyn Fn(usize) -> Expr,
}

impl ReductionByData<'_> {
    /// Operand elements that are reduced to one result element. Where there is no result element, nothing reads it.
    fn steps(&self) -> Expr {
        product(&self.x.shape).floor_div(product(self.shape).max(Expr::int(1)))
    }

    /// Operand indices of step `step` of result element `i`: the last reduced axis counts fastest.
    fn operand(&self, i: &[Expr], step: &Expr) -> Vec<Expr> {
        let mut rest = step.clone();
        let mut indices = Vec::with_capacity(self.x.rank());
        for (axis, extent) in self.x.shape.iter().enumerate().rev() {
            let is_reduced = (self.is_reduced)(axis);
            let steps = Expr::select(is_reduced.clone(), extent.clone(), Expr::int(1));
            let inner = rest.clone().floor_mod(steps.clone());
            rest = rest.floor_div(steps);
            indices.push(Expr::select(is_reduced, inner, self.kept_index(i, axis)));
        }
        indices.reverse();
        indices
    }

    /// The result index of operand axis `axis`, if it is kept: without reduced axes, its place among the results is
    /// the number of kept axes before it.
    fn kept_index(&self, i: &[Expr], axis: usize) -> Expr {
        if self.keep_dims {
            return i[axis].clone();
        }
        let place = (0..axis).fold(Expr::int(0), |place, before| {
            place + Expr::select((self.is_reduced)(before), Expr::int(0), Expr::int(1))
        });
        let choices = i.iter().enumerate().take(axis + 1);
        choices.fold(Expr::int(0), |rest, (n, index)| {
            Expr::select(place.clone().equals(Expr::int(n as i64)), index.clone(), rest)
        })
    }

    fn define(&self, b: &mut Builder, kind: ReduceKind) -> Operand {
        let x = self.x;
        let dtype = reduction_dtype(kind, x.dtype);
        let fold = |b: &mut Builder, name: &str, init: Expr, step: &dyn Fn(Expr, Expr, &[Expr]) -> Expr| {
            b.reduce(name, dtype, self.shape, vec![self.steps()], init, |i, r, acc| {
                step(acc, x.at(self.operand(i, &r[0])).cast(dtype), i)
            })
        };
        let zero = Expr::zero(dtype);
        let to = x.dtype;
        let finish = |b: &mut Builder, sum: Operand, value: &dyn Fn(Expr) -> Expr| {
            b.compute("reduced", to, self.shape, |i| value(sum.at(i.to_vec())).cast(to))
        };
        match kind {
            ReduceKind::Sum => {
                let sum = fold(b, "sum", zero, &|acc, x, _| acc + x);
                b.cast("cast", sum, to)
            }
            ReduceKind::Mean => {
                let sum = fold(b, "sum", zero, &|acc, x, _| acc + x);
                let count = (0..x.rank()).fold(Expr::int(1), |count, axis| {
                    count * Expr::select((self.is_reduced)(axis), x.shape[axis].clone(), Expr::int(1))
                });
                finish(b, sum, &|sum| sum / count.clone().cast(dtype))
            }
            ReduceKind::Max => {
                fold(b, "max", Expr::lowest(dtype), &|acc, x, _| extreme(BinaryOp::Max, acc, x))
            }
            ReduceKind::Min => {
                fold(b, "min", Expr::highest(dtype), &|acc, x, _| extreme(BinaryOp::Min, acc, x))
            }
            ReduceKind::Prod => {
                let value = fold(b, "prod", Expr::int_of(dtype, 1), &|acc, x, _| acc * x);
                b.cast("cast", value, to)
            }
            ReduceKind::SumSquare => {
                let sum = fold(b, "sum", zero, &|acc, x, _| Expr::fma(x.clone(), x, acc));
                b.cast("cast", sum, to)
            }
            ReduceKind::L2 => {
                let sum = fold(b, "sum", zero, &|acc, x, _| Expr::fma(x.clone(), x, acc));
                finish(b, sum, &|sum| apply(UnaryOp::Sqrt, sum))
            }
            ReduceKind::L1 => {
                let size = |x: Expr| {
                    let signed = x.dtype().is_float() || x.dtype().is_signed();
                    if signed { apply(UnaryOp::Abs, x) } else { x }
                };
                let sum = fold(b, "sum", zero, &|acc, x, _| acc + size(x));
                b.cast("cast", sum, to)
            }
            ReduceKind::LogSum => {
                let sum = fold(b, "sum", zero, &|acc, x, _| acc + x);
                finish(b, sum, &|sum| apply(UnaryOp::Log, sum))
            }
            ReduceKind::LogSumExp => {
                let max = fold(b, "max", Expr::lowest(dtype), &|acc, x, _| acc.max(x));
                let shift = b.compute("shift", dtype, self.shape, |i| {
                    let max = max.at(i.to_vec());
                    let infinite = apply(UnaryOp::Abs, max.clone()).equals(Expr::highest(dtype));
                    Expr::select(infinite, Expr::zero(dtype), max)
                });
                let sum =
                    fold(b, "sum", zero, &|acc, x, i| acc + apply(UnaryOp::Exp, x - shift.at(i.to_vec())));
                b.compute("log_sum_exp", to, self.shape, |i| {
                    (apply(UnaryOp::Log, sum.at(i.to_vec())) + shift.at(i.to_vec())).cast(to)
                })
            }
        }
    }
}

/// Index of the largest or smallest element; NaN counts as the extreme, as in numpy.
pub(super) fn arg_reduce(b: &mut Builder, attrs: &ArgReduceAttrs) -> Results {
    let x = b.input(0)?;
    let axes = Axes::new(x.rank(), &[attrs.axis], attrs.keep_dims);
    let (shape, extents) = (axes.result(&x.shape), axes.extents(&x.shape));
    let (compare, init) = match (attrs.extreme, attrs.select_last) {
        (Extreme::Max, false) => (CompareOp::Gt, Expr::lowest(x.dtype)),
        (Extreme::Max, true) => (CompareOp::Ge, Expr::lowest(x.dtype)),
        (Extreme::Min, false) => (CompareOp::Lt, Expr::highest(x.dtype)),
        (Extreme::Min, true) => (CompareOp::Le, Expr::highest(x.dtype)),
    };
    let init = [("index", Expr::int(0)), ("best", init)];
    let mut results = b.reduce_many(&init, &shape, extents, |i, r, acc| {
        let value = x.at(axes.operand(i, r));
        let mut better = Expr::compare(compare, value.clone(), acc[1].clone());
        if x.dtype.is_float() {
            let is_nan = |e: &Expr| apply(UnaryOp::IsNan, e.clone());
            let still_number = apply(UnaryOp::Not, is_nan(&acc[1]));
            let first_nan = if attrs.select_last { is_nan(&value) } else { is_nan(&value).and(still_number) };
            better = better.or(first_nan);
        }
        vec![
            Expr::select(better.clone(), r[0].clone(), acc[0].clone()),
            Expr::select(better, value, acc[1].clone()),
        ]
    });
    results.truncate(1);
    Ok(results)
}

/// Running sums or products along `axis`, in the accumulator type.
fn running(b: &mut Builder, attrs: &CumulativeAttrs, x: &Operand, axis: usize) -> Operand {
    let dtype = accumulator(x.dtype);
    let (name, neutral) = match attrs.kind {
        CumulativeKind::Sum => ("cumsum", Expr::zero(dtype)),
        CumulativeKind::Prod => ("cumprod", Expr::int_of(dtype, 1)),
    };
    let result = b.temporary(name, dtype, &x.shape);
    let mut spatial = x.shape.clone();
    let extent = spatial.remove(axis);
    b.update(&result, &spatial, std::slice::from_ref(&extent), |i, r| {
        let step = &r[0];
        let place = |step: Expr| if attrs.reverse { extent.clone() - 1 - step } else { step };
        let at = |operand: &Operand, step: Expr| operand.at(with_index(i, axis, place(step), false));
        let first = step.clone().equals(Expr::int(0));
        let so_far = Expr::select(first.clone(), neutral.clone(), at(&result, step.clone() - 1));
        let element = if attrs.exclusive {
            Expr::select(first, neutral.clone(), at(x, step.clone() - 1).cast(dtype))
        } else {
            at(x, step.clone()).cast(dtype)
        };
        let value = match attrs.kind {
            CumulativeKind::Sum => so_far + element,
            CumulativeKind::Prod => so_far * element,
        };
        vec![result.store(with_index(i, axis, place(step.clone()), false), value)]
    });
    result
}

/// Running sums or products; an axis that is data selects among the results for every axis.
pub(super) fn cumulative(b: &mut Builder, attrs: &CumulativeAttrs) -> Results {
    let x = b.input(0)?;
    if let Some(axis) = attrs.axis {
        let result = running(b, attrs, &x, axis);
        return Ok(vec![b.cast("cast", result, x.dtype)]);
    }
    let axis = b.input(1)?;
    let candidates: Vec<Operand> = (0..x.rank()).map(|axis| running(b, attrs, &x, axis)).collect();
    let rank = x.rank() as i64;
    Ok(vec![b.compute("cumulative", x.dtype, &x.shape, |i| {
        let given = axis.scalar().cast(DType::I64);
        let mut values =
            candidates.iter().enumerate().rev().map(|(n, candidate)| (n, candidate.at(i.to_vec())));
        let last = values.next().map_or_else(|| x.at(i.to_vec()), |(_, value)| value);
        let chosen = values.fold(last, |rest, (n, value)| {
            let n = n as i64;
            let hit = given.clone().equals(Expr::int(n)).or(given.clone().equals(Expr::int(n - rank)));
            Expr::select(hit, value, rest)
        });
        chosen.cast(x.dtype)
    })])
}
