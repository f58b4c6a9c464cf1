//! Softmax and normalisations: statistics as reduction blocks, then one elementwise block.
//!
//! Narrow floats are accumulated in `F32`. Variances are computed from centred values (two passes).

use tilewright_dtype::DType;
use tilewright_graph::op::{GroupNormAttrs, LayerNormAttrs, LpNormAttrs, LrnAttrs, NormAttrs, SoftmaxAttrs};
use tilewright_te::{BinaryOp, Expr, UnaryOp};

use super::Results;
use super::builder::{Builder, Operand, accumulator, in_range, product, sum_accumulator, with_index};
use super::elementwise::apply;
use super::reduce::Axes;

/// `exp(x - max) / sum` along `axis`; blocks `max`, `exp`, `sum`, then the result.
fn softmax_of(b: &mut Builder, x: &Operand, axis: usize) -> Operand {
    let dtype = x.dtype;
    let wide = sum_accumulator(dtype, &x.shape[axis]);
    let (axes, max) = row_max(b, x, axis);
    let exp =
        b.compute("exp", dtype, &x.shape, |i| exp_of_centred(x.at(i.to_vec()) - max.at(axes.project(i))));
    let extents = axes.extents(&x.shape);
    let sum = b.reduce("sum", wide, &axes.result(&x.shape), extents, Expr::zero(wide), |i, r, acc| {
        acc + exp.at(axes.operand(i, r)).cast(wide)
    });
    b.compute("softmax", dtype, &x.shape, |i| share(exp.at(i.to_vec()), sum.at(axes.project(i)).cast(dtype)))
}

/// The exponential of an element less the greatest of its row. But for `F64`, subnormal ones are 0: every operation on subnormal
/// values takes processors a hundred cycles and more, also in what uses the results.
pub(super) fn exp_of_centred(centred: Expr) -> Expr {
    let op = if centred.dtype() == DType::F64 { UnaryOp::Exp } else { UnaryOp::ExpFtz };
    apply(op, centred)
}

/// `exp / sum` with `sum` of at least 1. Subnormal quotients are 0 too, but for `F64` and the types whose least normal number is
/// far above that of `F32`, in which processors compute.
pub(super) fn share(exp: Expr, sum: Expr) -> Expr {
    let dtype = exp.dtype();
    if !matches!(dtype, DType::F32 | DType::BF16) {
        return exp / sum;
    }
    let least = sum.clone() * Expr::float_of(dtype, f64::from(f32::MIN_POSITIVE));
    Expr::select(exp.clone().lt(least), Expr::zero(dtype), exp) / sum
}

fn row_max(b: &mut Builder, x: &Operand, axis: usize) -> (Axes, Operand) {
    let axes = Axes::new(x.rank(), &[axis], false);
    let (shape, extents) = (axes.result(&x.shape), axes.extents(&x.shape));
    let max = b.reduce("max", x.dtype, &shape, extents, Expr::lowest(x.dtype), |i, r, acc| {
        acc.max(x.at(axes.operand(i, r)))
    });
    (axes, max)
}

/// `exp(x) / sum exp(x)` along an axis, without overflow, or its logarithm.
pub(super) fn softmax(b: &mut Builder, attrs: &SoftmaxAttrs) -> Results {
    let x = b.input(0)?;
    if !attrs.log {
        return Ok(vec![softmax_of(b, &x, attrs.axis)]);
    }
    let dtype = accumulator(x.dtype);
    let (axes, max) = row_max(b, &x, attrs.axis);
    let (shape, extents) = (axes.result(&x.shape), axes.extents(&x.shape));
    let sum = b.reduce("sum", dtype, &shape, extents, Expr::zero(dtype), |i, r, acc| {
        acc + exp_of_centred(x.at(axes.operand(i, r)).cast(dtype) - max.at(i.to_vec()).cast(dtype))
    });
    Ok(vec![b.compute("log_softmax", x.dtype, &x.shape, |i| {
        let row = axes.project(i);
        let centred = x.at(i.to_vec()).cast(dtype) - max.at(row.clone()).cast(dtype);
        (centred - apply(UnaryOp::Log, sum.at(row))).cast(x.dtype)
    })])
}

/// Mean and inverse standard deviation of `x` over `axes`; blocks `sum`, `mean`, `square_sum`, `inv_std`.
fn statistics(b: &mut Builder, x: &Operand, axes: &Axes, epsilon: f64, dtype: DType) -> (Operand, Operand) {
    let count = product(&axes.extents(&x.shape)).cast(dtype);
    let sum = sum_of(b, x, axes, dtype);
    let mean = b.compute("mean", dtype, &sum.shape, |i| sum.at(i.to_vec()) / count.clone());
    let squares = square_sum_of(b, x, axes, &mean);
    let inv_std = b.compute("inv_std", dtype, &squares.shape, |i| {
        inverse_deviation(squares.at(i.to_vec()) / count.clone(), epsilon)
    });
    (mean, inv_std)
}

/// The sums of `x` over `axes`.
fn sum_of(b: &mut Builder, x: &Operand, axes: &Axes, dtype: DType) -> Operand {
    let (shape, extents) = (axes.result(&x.shape), axes.extents(&x.shape));
    b.reduce("sum", dtype, &shape, extents, Expr::zero(dtype), |i, r, acc| {
        acc + x.at(axes.operand(i, r)).cast(dtype)
    })
}

/// The sums over `axes` of the squares of what `x` is more than `mean`.
fn square_sum_of(b: &mut Builder, x: &Operand, axes: &Axes, mean: &Operand) -> Operand {
    let (shape, extents) = (axes.result(&x.shape), axes.extents(&x.shape));
    let dtype = mean.dtype;
    b.reduce("square_sum", dtype, &shape, extents, Expr::zero(dtype), |i, r, acc| {
        let centred = x.at(axes.operand(i, r)).cast(dtype) - mean.at(i.to_vec());
        Expr::fma(centred.clone(), centred, acc)
    })
}

fn inverse_deviation(variance: Expr, epsilon: f64) -> Expr {
    let dtype = variance.dtype();
    Expr::int_of(dtype, 1) / apply(UnaryOp::Sqrt, variance + Expr::float_of(dtype, epsilon))
}

/// The type statistics are computed in.
fn stash(given: Option<DType>, x: DType) -> DType {
    accumulator(given.unwrap_or(x))
}

/// Layer normalisation over `axis` and later ones, with the optional statistics as results.
pub(super) fn layer_norm(b: &mut Builder, attrs: &LayerNormAttrs) -> Results {
    let (x, scale, bias) = (b.input(0)?, b.optional(1), b.optional(2));
    let dtype = stash(attrs.stash, x.dtype);
    let axes = Axes::new(x.rank(), &(attrs.axis..x.rank()).collect::<Vec<_>>(), true);
    let (mean, inv_std) = statistics(b, &x, &axes, attrs.epsilon.to_f64(), dtype);
    let y = b.compute("layer_norm", x.dtype, &x.shape, |i| {
        let row = axes.project(i);
        let normal = (x.at(i.to_vec()).cast(dtype) - mean.at(row.clone())) * inv_std.at(row);
        let operand = |operand: &Operand| operand.at_broadcast(i, &x.shape).cast(dtype);
        let value = match (&scale, &bias) {
            (Some(scale), Some(bias)) => Expr::fma(normal, operand(scale), operand(bias)),
            (Some(scale), None) => normal * operand(scale),
            (None, Some(bias)) => normal + operand(bias),
            (None, None) => normal,
        };
        value.cast(x.dtype)
    });
    let mut results = vec![y];
    for statistic in [mean, inv_std] {
        if results.len() < b.n_results() {
            let to = b.result_dtype(results.len());
            results.push(b.cast("statistic", statistic, to));
        }
    }
    Ok(results)
}

/// `x / sqrt(mean(x^2) + epsilon) * scale` over `axis` and later ones.
pub(super) fn rms_norm(b: &mut Builder, attrs: &LayerNormAttrs) -> Results {
    let (x, scale) = (b.input(0)?, b.optional(1));
    let dtype = stash(attrs.stash, x.dtype);
    let axes = Axes::new(x.rank(), &(attrs.axis..x.rank()).collect::<Vec<_>>(), true);
    let (shape, extents) = (axes.result(&x.shape), axes.extents(&x.shape));
    let count = product(&extents).cast(dtype);
    let squares = b.reduce("square_sum", dtype, &shape, extents, Expr::zero(dtype), |i, r, acc| {
        let element = x.at(axes.operand(i, r)).cast(dtype);
        Expr::fma(element.clone(), element, acc)
    });
    let inv_rms = b.compute("inv_rms", dtype, &shape, |i| {
        let mean = squares.at(i.to_vec()) / count;
        Expr::int_of(dtype, 1) / apply(UnaryOp::Sqrt, mean + Expr::float_of(dtype, attrs.epsilon.to_f64()))
    });
    Ok(vec![b.compute("rms_norm", x.dtype, &x.shape, |i| {
        let normal = x.at(i.to_vec()).cast(dtype) * inv_rms.at(axes.project(i));
        let value = match &scale {
            Some(scale) => normal * scale.at_broadcast(i, &x.shape).cast(dtype),
            None => normal,
        };
        value.cast(x.dtype)
    })])
}

/// Normalisation of each channel of each instance over the spatial axes.
pub(super) fn instance_norm(b: &mut Builder, attrs: &NormAttrs) -> Results {
    let (x, scale, bias) = (b.input(0)?, b.input(1)?, b.input(2)?);
    let dtype = accumulator(x.dtype);
    let axes = Axes::new(x.rank(), &(2..x.rank()).collect::<Vec<_>>(), false);
    let (mean, inv_std) = statistics(b, &x, &axes, attrs.epsilon.to_f64(), dtype);
    Ok(vec![b.compute("instance_norm", x.dtype, &x.shape, |i| {
        let (row, channel) = (axes.project(i), vec![i[1].clone()]);
        let normal = (x.at(i.to_vec()).cast(dtype) - mean.at(row.clone())) * inv_std.at(row);
        Expr::fma(normal, scale.at(channel.clone()).cast(dtype), bias.at(channel).cast(dtype)).cast(x.dtype)
    })])
}

/// Normalisation over groups of channels and the spatial axes. What is summed over these lies by channels, in whatever layout; sums of
/// channels are few.
pub(super) fn group_norm(b: &mut Builder, attrs: &GroupNormAttrs) -> Results {
    let (x, scale, bias) = (b.input(0)?, b.input(1)?, b.input(2)?);
    let dtype = stash(attrs.stash, x.dtype);
    let (channels, groups) = (x.shape[1].clone(), Expr::int(attrs.groups as i64));
    let size = channels.clone().floor_div(groups.clone());
    let axes = Axes::new(x.rank(), &(2..x.rank()).collect::<Vec<_>>(), false);
    let count = (size.clone() * product(&axes.extents(&x.shape))).cast(dtype);
    let (of_channels, of_groups) = ([x.shape[0].clone(), channels], [x.shape[0].clone(), groups]);
    // The sum over a group of what there is of each of its channels.
    let group_sum_of = |b: &mut Builder, values: &Operand| {
        b.reduce("group_sum", dtype, &of_groups, vec![size.clone()], Expr::zero(dtype), |i, r, acc| {
            acc + values.at(vec![i[0].clone(), i[1].clone() * size.clone() + r[0].clone()])
        })
    };
    let of_group = |i: &[Expr]| vec![i[0].clone(), i[1].clone().floor_div(size.clone())];
    let sums = if x.rank() > 2 { sum_of(b, &x, &axes, dtype) } else { b.cast("sum", x.clone(), dtype) };
    let group_sum = group_sum_of(b, &sums);
    let mean = b.compute("mean", dtype, &of_channels, |i| group_sum.at(of_group(i)) / count.clone());
    let squares = match x.rank() > 2 {
        true => square_sum_of(b, &x, &axes, &mean),
        false => b.compute("square", dtype, &of_channels, |i| {
            let centred = sums.at(i.to_vec()) - mean.at(i.to_vec());
            centred.clone() * centred
        }),
    };
    let group_squares = group_sum_of(b, &squares);
    let inv_std = b.compute("inv_std", dtype, &of_channels, |i| {
        inverse_deviation(group_squares.at(of_group(i)) / count.clone(), attrs.epsilon.to_f64())
    });
    Ok(vec![b.compute("group_norm", x.dtype, &x.shape, |i| {
        let (row, channel) = (axes.project(i), vec![i[1].clone()]);
        let normal = (x.at(i.to_vec()).cast(dtype) - mean.at(row.clone())) * inv_std.at(row);
        Expr::fma(normal, scale.at(channel.clone()).cast(dtype), bias.at(channel).cast(dtype)).cast(x.dtype)
    })])
}

/// Normalisation of channels (axis 1) by given statistics.
pub(super) fn batch_norm(b: &mut Builder, attrs: &NormAttrs) -> Results {
    let (x, scale, bias, mean, variance) = (b.input(0)?, b.input(1)?, b.input(2)?, b.input(3)?, b.input(4)?);
    let dtype = accumulator(x.dtype);
    let factor = b.compute("factor", dtype, &scale.shape, |i| {
        let variance = variance.at(i.to_vec()).cast(dtype);
        let deviation = apply(UnaryOp::Sqrt, variance + Expr::float_of(dtype, attrs.epsilon.to_f64()));
        scale.at(i.to_vec()).cast(dtype) / deviation
    });
    Ok(vec![b.compute("batch_norm", x.dtype, &x.shape, |i| {
        // Operands of rank 1 hold one channel.
        let channel = vec![i.get(1).cloned().unwrap_or(Expr::int(0))];
        let centred = x.at(i.to_vec()).cast(dtype) - mean.at(channel.clone()).cast(dtype);
        Expr::fma(centred, factor.at(channel.clone()), bias.at(channel).cast(dtype)).cast(x.dtype)
    })])
}

/// `x / norm(x)` along an axis; 0 where the norm is.
pub(super) fn lp_norm(b: &mut Builder, attrs: &LpNormAttrs) -> Results {
    let x = b.input(0)?;
    let dtype = accumulator(x.dtype);
    let axes = Axes::new(x.rank(), &[attrs.axis], false);
    let (shape, extents) = (axes.result(&x.shape), axes.extents(&x.shape));
    let sum = b.reduce("sum", dtype, &shape, extents, Expr::zero(dtype), |i, r, acc| {
        let element = x.at(axes.operand(i, r)).cast(dtype);
        if attrs.p == 1 {
            acc + apply(UnaryOp::Abs, element)
        } else {
            Expr::fma(element.clone(), element, acc)
        }
    });
    let norm = if attrs.p == 1 {
        sum
    } else {
        b.compute("norm", dtype, &shape, |i| apply(UnaryOp::Sqrt, sum.at(i.to_vec())))
    };
    Ok(vec![b.compute("lp_norm", x.dtype, &x.shape, |i| {
        let norm = norm.at(axes.project(i));
        let zero = Expr::zero(dtype);
        let value = x.at(i.to_vec()).cast(dtype) / norm.clone();
        Expr::select(norm.equals(zero.clone()), zero, value).cast(x.dtype)
    })])
}

/// `x / (bias + alpha / size * sum of squares over a window of channels) ^ beta`.
pub(super) fn lrn(b: &mut Builder, attrs: &LrnAttrs) -> Results {
    let x = b.input(0)?;
    let dtype = accumulator(x.dtype);
    let size = attrs.size as i64;
    // Channels before the middle one of an even window are one fewer than those after it.
    let before = (size - 1) / 2;
    let channels = &x.shape[1];
    let sum =
        b.reduce("square_sum", dtype, &x.shape, vec![Expr::int(size)], Expr::zero(dtype), |i, r, acc| {
            let channel = i[1].clone() + r[0].clone() - before;
            let inside = in_range(&channel, channels);
            let element = x.at(with_index(i, 1, channel, true)).cast(dtype);
            Expr::select(inside, Expr::fma(element.clone(), element, acc.clone()), acc)
        });
    let constant = |value: f64| Expr::float_of(dtype, value);
    Ok(vec![b.compute("lrn", x.dtype, &x.shape, |i| {
        let factor = constant(attrs.alpha.to_f64() / attrs.size as f64);
        let base = Expr::fma(sum.at(i.to_vec()), factor, constant(attrs.bias.to_f64()));
        let scale = Expr::binary(BinaryOp::Pow, base, constant(attrs.beta.to_f64()));
        (x.at(i.to_vec()).cast(dtype) / scale).cast(x.dtype)
    })])
}
