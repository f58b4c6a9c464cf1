//! Convolutions: plain, of integers, transposed, deformable, causal with state.

use tilewright_dtype::DType;
use tilewright_graph::op::{CausalConvAttrs, ConvAttrs, ConvTransposeAttrs, DeformConvAttrs};
use tilewright_te::simplify::Simplifier;
use tilewright_te::{Expr, UnaryOp};

use super::builder::{Builder, accumulator, all, biased, group_of, grouped, in_range, with_index};
use super::elementwise::apply;
use super::window::Windows;
use super::{Algorithm, Results, winograd};

/// Convolution of `[batch, channels, spatial..]` with `[out, channels / group, kernel..]`.
pub(super) fn conv(b: &mut Builder, attrs: &ConvAttrs) -> Results {
    let (x, w, bias) = (b.input(0)?, b.input(1)?, b.optional(2));
    if let Algorithm::Winograd { tile } = b.algorithm() {
        return winograd::conv(b, attrs, tile);
    }
    let shape = b.result_shape(0)?;
    let windows = Windows::new(w.shape[2..].to_vec(), &attrs.strides, &attrs.dilations, &attrs.pads);
    let (padded, windows) = windows.pad(b, &x, &shape[2..], false, Expr::zero(x.dtype));
    let subsampled = windows.subsample(b, &padded, &shape[2..]);
    let (padded, windows) = subsampled.unwrap_or((padded, windows));
    let dtype = accumulator(x.dtype);
    let sum = b.reduce("conv", dtype, &shape, w.shape[1..].to_vec(), Expr::zero(dtype), |i, r, acc| {
        let group = group_of(&i[1], &w.shape[0], attrs.group);
        let mut at = vec![i[0].clone(), grouped(&group, &w.shape[1], &r[0], attrs.group)];
        at.extend((0..windows.rank()).map(|axis| windows.position(axis, &i[2 + axis], &r[1 + axis])));
        let weight = w.at([&i[1..2], r].concat());
        Expr::fma(padded.at(at).cast(dtype), weight.cast(dtype), acc)
    });
    Ok(vec![biased(b, sum, bias, x.dtype)])
}

/// Convolution of 8-bit integers less their zero points, in 32 bits; padding holds the zero point.
pub(super) fn conv_integer(b: &mut Builder, attrs: &ConvAttrs) -> Results {
    let (x, w, x_zero, w_zero) = (b.input(0)?, b.input(1)?, b.optional(2), b.optional(3));
    let shape = b.result_shape(0)?;
    let centred = b.compute("centred", DType::I32, &x.shape, |i| {
        let value = x.at(i.to_vec()).cast(DType::I32);
        x_zero.as_ref().map_or(value.clone(), |zero| value - zero.scalar().cast(DType::I32))
    });
    let windows = Windows::new(w.shape[2..].to_vec(), &attrs.strides, &attrs.dilations, &attrs.pads);
    let (padded, windows) = windows.pad(b, &centred, &shape[2..], false, Expr::zero(DType::I32));
    let zero = Expr::zero(DType::I32);
    let sum = b.reduce("conv", DType::I32, &shape, w.shape[1..].to_vec(), zero, |i, r, acc| {
        let group = group_of(&i[1], &w.shape[0], attrs.group);
        let mut at = vec![i[0].clone(), grouped(&group, &w.shape[1], &r[0], attrs.group)];
        at.extend((0..windows.rank()).map(|axis| windows.position(axis, &i[2 + axis], &r[1 + axis])));
        let weight = w.at([&i[1..2], r].concat()).cast(DType::I32);
        let weight = match &w_zero {
            Some(zero) if zero.rank() == 1 && zero.shape[0].as_int() != Some(1) => {
                weight - zero.at(vec![i[1].clone()]).cast(DType::I32)
            }
            Some(zero) => weight - zero.scalar().cast(DType::I32),
            None => weight,
        };
        acc + padded.at(at) * weight
    });
    Ok(vec![sum])
}

/// Transposed convolution with weights `[channels, out / group, kernel..]`: the input is spread by the strides
/// and padded (`pad`), then convolved with the mirrored kernel.
pub(super) fn conv_transpose(b: &mut Builder, attrs: &ConvTransposeAttrs) -> Results {
    if b.algorithm() == Algorithm::Phases {
        return conv_transpose_phases(b, attrs);
    }
    let (x, w, bias) = (b.input(0)?, b.input(1)?, b.optional(2));
    let shape = b.result_shape(0)?;
    let n = x.rank() - 2;
    let kernel = &w.shape[2..];
    let stride = |axis: usize| attrs.strides.get(axis).map_or(1, |&stride| stride as i64);
    let dilation = |axis: usize| attrs.dilations.get(axis).map_or(1, |&dilation| dilation as i64);
    let reach = |axis: usize| (kernel[axis].clone() - 1) * dilation(axis);

    let mut spread_shape = x.shape[..2].to_vec();
    spread_shape.extend((0..n).map(|axis| shape[2 + axis].clone() + reach(axis)));
    let spread = b.compute("pad", x.dtype, &spread_shape, |i| {
        let mut indices = i[..2].to_vec();
        let mut inside = Vec::new();
        for axis in 0..n {
            let before = attrs.pads.get(axis).copied().unwrap_or(0);
            let position = i[2 + axis].clone() - reach(axis) + before;
            let index = position.clone().floor_div(Expr::int(stride(axis)));
            inside.push(in_range(&index, &x.shape[2 + axis]));
            if stride(axis) != 1 {
                inside.push(position.floor_mod(Expr::int(stride(axis))).equals(Expr::int(0)));
            }
            indices.push(index);
        }
        Expr::select(all(inside), x.at(indices), Expr::zero(x.dtype))
    });

    let per_group = w.shape[0].clone().floor_div(Expr::int(attrs.group as i64));
    let dtype = accumulator(x.dtype);
    let extents = std::iter::once(per_group.clone()).chain(kernel.iter().cloned()).collect();
    let sum = b.reduce("conv", dtype, &shape, extents, Expr::zero(dtype), |i, r, acc| {
        let group = group_of(&i[1], &shape[1], attrs.group);
        let channel = grouped(&group, &per_group, &r[0], attrs.group);
        let output = grouped(&group, &w.shape[1], &Expr::int(0), attrs.group);
        let within = if attrs.group == 1 { i[1].clone() } else { i[1].clone() - output };
        let mut at = vec![i[0].clone(), channel.clone()];
        at.extend((0..n).map(|axis| i[2 + axis].clone() + r[1 + axis].clone() * dilation(axis)));
        let mut weight = vec![channel, within];
        weight.extend((0..n).map(|axis| kernel[axis].clone() - 1 - r[1 + axis].clone()));
        Expr::fma(spread.at(at).cast(dtype), w.at(weight).cast(dtype), acc)
    });
    Ok(vec![biased(b, sum, bias, x.dtype)])
}

/// Whether a transposed convolution may be computed by phases, as far as its attributes tell.
pub(super) fn has_phases(attrs: &ConvTransposeAttrs) -> bool {
    attrs.group == 1
        && attrs.strides.iter().any(|&stride| stride > 1)
        && attrs.dilations.iter().all(|&dilation| dilation == 1)
        && attrs.pads.iter().all(|&pad| pad >= 0)
}

/// Transposed convolution by the remainders (phases) of output positions by the strides: each weight meets an input in one of them
/// alone. Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016.
///
/// Blocks: `phase_weights` (at compile time), `pad` where windows leave the input, `conv`. An output position `o` of a stride `s` reads
/// inputs `(o + before) / s - t` by weights `(o + before) % s + s * t`, `t` in `0..T`, `T = ceil(kernel / s)`.
///
/// # Errors
/// Where an extent of the weights is not constant, or a stride does not divide that of the result.
fn conv_transpose_phases(b: &mut Builder, attrs: &ConvTransposeAttrs) -> Results {
    let (x, w, bias) = (b.input(0)?, b.input(1)?, b.optional(2));
    let shape = b.result_shape(0)?;
    let n = x.rank() - 2;
    let Some(kernel) = w.shape[2..].iter().map(Expr::as_int).collect::<Option<Vec<i64>>>() else {
        return Err(b.no_kernel("an extent of the weights is not known"));
    };
    let strides: Vec<i64> = (0..n).map(|axis| attrs.strides.get(axis).map_or(1, |&s| s as i64)).collect();
    let before: Vec<i64> = (0..n).map(|axis| attrs.pads.get(axis).copied().unwrap_or(0)).collect();
    // By how many windows' strides the result is larger than the input times the stride, or smaller.
    let simplifier = Simplifier::for_sizes(b.func);
    let more = |axis: usize| {
        let (result, input, stride) = (&shape[2 + axis], &x.shape[2 + axis], strides[axis]);
        let more = simplifier.simplify(&(result.clone() - input.clone() * stride)).as_int()?;
        (more % stride == 0 && result.as_int() != Some(0)).then_some(more / stride)
    };
    let Some(more) = (0..n).map(more).collect::<Option<Vec<i64>>>() else {
        return Err(b.no_kernel("a stride does not divide its result"));
    };
    let taps: Vec<i64> = (0..n).map(|axis| (kernel[axis] + strides[axis] - 1) / strides[axis]).collect();

    let (channels, out_channels) = (w.shape[0].clone(), w.shape[1].clone());
    let ints = |extents: &[i64]| extents.iter().map(|&n| Expr::int(n)).collect::<Vec<_>>();
    let phased = [vec![channels.clone(), out_channels], ints(&strides), ints(&taps)].concat();
    let weights = b.prepare(1, "phase_weights", w.dtype, &phased, 0, |w, made, i| {
        let mut at = i[..2].to_vec();
        let mut inside = Vec::new();
        for axis in 0..n {
            let (phase, tap) = (i[2 + axis].clone(), i[2 + n + axis].clone());
            // Taps count inputs upwards, and so weights downwards.
            let tap = Expr::int(taps[axis] - 1) - tap;
            let position = (phase + before[axis]).floor_mod(Expr::int(strides[axis])) + tap * strides[axis];
            inside.push(position.clone().lt(Expr::int(kernel[axis])));
            at.push(position);
        }
        vec![made.store(i.to_vec(), Expr::select(all(inside), w.at(at), Expr::zero(w.dtype)))]
    })?;

    // Inputs from the first that the first output reads to the last that the last does.
    let first: Vec<i64> = (0..n).map(|axis| before[axis] / strides[axis] - (taps[axis] - 1)).collect();
    let added = |axis: usize| more[axis] + (before[axis] - 1).div_euclid(strides[axis]) - first[axis] + 1;
    let read = match (0..n).all(|axis| first[axis] == 0 && added(axis) == 0) {
        true => x.clone(),
        false => {
            let extents = (0..n).map(|axis| x.shape[2 + axis].clone() + added(axis));
            let extents: Vec<Expr> = x.shape[..2].iter().cloned().chain(extents).collect();
            b.compute("pad", x.dtype, &extents, |i| {
                let mut at = i[..2].to_vec();
                at.extend((0..n).map(|axis| i[2 + axis].clone() + first[axis]));
                let inside: Vec<_> = (0..n).map(|axis| in_range(&at[2 + axis], &x.shape[2 + axis])).collect();
                Expr::select(all(inside), x.at(at.clone()), Expr::zero(x.dtype))
            })
        }
    };
    let dtype = accumulator(x.dtype);
    let depth = std::iter::once(channels).chain(ints(&taps)).collect();
    let sum = b.reduce("conv", dtype, &shape, depth, Expr::zero(dtype), |i, r, acc| {
        let stride = |axis: usize| Expr::int(strides[axis]);
        let start = |axis: usize| (i[2 + axis].clone() + before[axis]).floor_div(stride(axis));
        let mut at = vec![i[0].clone(), r[0].clone()];
        at.extend((0..n).map(|axis| start(axis) - before[axis] / strides[axis] + r[1 + axis].clone()));
        let mut weight = vec![r[0].clone(), i[1].clone()];
        weight.extend((0..n).map(|axis| i[2 + axis].clone().floor_mod(stride(axis))));
        weight.extend(r[1..].iter().cloned());
        Expr::fma(read.at(at).cast(dtype), weights.at(weight).cast(dtype), acc)
    });
    Ok(vec![biased(b, sum, bias, x.dtype)])
}

/// Deformable convolution of images: window elements are bilinear samples at learnt offsets (`sample`).
pub(super) fn deform_conv(b: &mut Builder, attrs: &DeformConvAttrs) -> Results {
    let (x, w, offset, bias, mask) = (b.input(0)?, b.input(1)?, b.input(2)?, b.optional(3), b.optional(4));
    let shape = b.result_shape(0)?;
    if x.rank() != 4 {
        return Err(b.no_kernel(format!("{} spatial axes; images have 2", x.rank().saturating_sub(2))));
    }
    let kernel = &w.shape[2..];
    let dtype = accumulator(x.dtype);
    let windows = Windows::new(kernel.to_vec(), &attrs.strides, &attrs.dilations, &attrs.pads);
    let per_offset_group = x.shape[1].clone().floor_div(Expr::int(attrs.offset_group as i64));

    // The sampled positions of each offset group and window element, on both axes.
    let n_elements = kernel[0].clone() * kernel[1].clone();
    let place = |axis: usize, i: &[Expr]| {
        let element = i[2].clone() * kernel[1].clone() + i[3].clone();
        let channel = (i[1].clone() * n_elements.clone() + element) * 2 + axis as i64;
        let base = windows.position(axis, &i[4 + axis], &i[2 + axis]).cast(dtype);
        base + offset.at(vec![i[0].clone(), channel, i[4].clone(), i[5].clone()]).cast(dtype)
    };
    let groups = Expr::int(attrs.offset_group as i64);
    let place_shape = [&[x.shape[0].clone(), groups], kernel, &shape[2..]].concat();
    let y = b.compute("sample_y", dtype, &place_shape, |i| place(0, i));
    let x_place = b.compute("sample_x", dtype, &place_shape, |i| place(1, i));

    let sample_shape = [&x.shape[..2], kernel, &shape[2..]].concat();
    let sample = b.compute("sample", dtype, &sample_shape, |i| {
        let group = i[1].clone().floor_div(per_offset_group.clone());
        let at = with_index(i, 1, group.clone(), true);
        let (y, px) = (y.at(at.clone()), x_place.at(at));
        let (y0, x0) = (apply(UnaryOp::Floor, y.clone()), apply(UnaryOp::Floor, px.clone()));
        let (dy, dx) = (y - y0.clone(), px - x0.clone());
        let one = Expr::int_of(dtype, 1);
        let corner = |down: i64, right: i64, weight: Expr| {
            let row = y0.clone().cast(DType::I64) + down;
            let column = x0.clone().cast(DType::I64) + right;
            let inside = in_range(&row, &x.shape[2]).and(in_range(&column, &x.shape[3]));
            let value = x.at(vec![i[0].clone(), i[1].clone(), row, column]).cast(dtype);
            Expr::select(inside, value * weight, Expr::zero(dtype))
        };
        let (up, left) = (one.clone() - dy.clone(), one - dx.clone());
        let value = corner(0, 0, up.clone() * left.clone())
            + corner(0, 1, up * dx.clone())
            + corner(1, 0, dy.clone() * left)
            + corner(1, 1, dy * dx);
        match &mask {
            Some(mask) => {
                let element = i[2].clone() * kernel[1].clone() + i[3].clone();
                let channel = group * n_elements.clone() + element;
                value * mask.at(vec![i[0].clone(), channel, i[4].clone(), i[5].clone()]).cast(dtype)
            }
            None => value,
        }
    });

    let sum = b.reduce("conv", dtype, &shape, w.shape[1..].to_vec(), Expr::zero(dtype), |i, r, acc| {
        let group = group_of(&i[1], &w.shape[0], attrs.group);
        let channel = grouped(&group, &w.shape[1], &r[0], attrs.group);
        let at = vec![i[0].clone(), channel, r[1].clone(), r[2].clone(), i[2].clone(), i[3].clone()];
        Expr::fma(sample.at(at), w.at([&i[1..2], r].concat()).cast(dtype), acc)
    });
    Ok(vec![biased(b, sum, bias, x.dtype)])
}

/// Depthwise convolution along time over the past state followed by the new steps; the second result is the
/// state after them: the last `kernel - 1` steps.
pub(super) fn causal_conv(b: &mut Builder, attrs: &CausalConvAttrs) -> Results {
    let (x, w, bias, past) = (b.input(0)?, b.input(1)?, b.optional(2), b.optional(3));
    let shape = b.result_shape(0)?;
    let kernel = w.shape[w.rank() - 1].clone();
    let history = kernel.clone() - 1;
    let all_steps = vec![x.shape[0].clone(), x.shape[1].clone(), history.clone() + x.shape[2].clone()];
    let steps = b.compute("pad", x.dtype, &all_steps, |i| {
        let new = i[2].clone() - history.clone();
        let old = match &past {
            Some(past) => past.at(i.to_vec()),
            None => Expr::zero(x.dtype),
        };
        let is_new = new.clone().ge(Expr::int(0));
        Expr::select(is_new, x.at(with_index(i, 2, new, true)), old)
    });
    let dtype = accumulator(x.dtype);
    let sum = b.reduce("conv", dtype, &shape, vec![kernel], Expr::zero(dtype), |i, r, acc| {
        let at = with_index(i, 2, i[2].clone() + r[0].clone(), true);
        let weight =
            w.at([vec![i[1].clone()], vec![Expr::int(0); w.rank() - 2], vec![r[0].clone()]].concat());
        Expr::fma(steps.at(at).cast(dtype), weight.cast(dtype), acc)
    });
    let y = if attrs.silu {
        let biased = biased(b, sum, bias, dtype);
        b.compute("silu", x.dtype, &shape, |i| {
            let value = biased.at(i.to_vec());
            (value.clone() * apply(UnaryOp::Sigmoid, value)).cast(x.dtype)
        })
    } else {
        biased(b, sum, bias, x.dtype)
    };
    let mut results = vec![y];
    if b.n_results() > 1 {
        let present = b.result_shape(1)?;
        results.push(b.compute("present", x.dtype, &present, |i| {
            steps.at(with_index(i, 2, i[2].clone() + x.shape[2].clone(), true))
        }));
    }
    Ok(results)
}
