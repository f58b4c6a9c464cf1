//! Pooling over windows, unpooling, and sums of columns back into images.

use tilewright_dtype::DType;
use tilewright_graph::op::{Col2ImAttrs, MaxPoolIndicesAttrs, MaxUnpoolDynamicAttrs, PoolAttrs, PoolKind};
use tilewright_te::{BinaryOp, Expr, UnaryOp};

use super::Results;
use super::builder::{Builder, Operand, accumulator, all, delinear, in_range, linear, product};
use super::elementwise::apply;
use super::window::Windows;

fn extents(kernel: &[usize]) -> Vec<Expr> {
    kernel.iter().map(|&extent| Expr::int(extent as i64)).collect()
}

/// Pooling over spatial windows.
pub(super) fn pool(b: &mut Builder, attrs: &PoolAttrs) -> Results {
    let x = b.input(0)?;
    let shape = b.result_shape(0)?;
    let windows = Windows::new(extents(&attrs.kernel), &attrs.strides, &attrs.dilations, &attrs.pads);
    let fill = match attrs.kind {
        PoolKind::Max => Expr::lowest(x.dtype),
        PoolKind::Average | PoolKind::Lp => Expr::zero(x.dtype),
    };
    let (padded, inner) = windows.pad(b, &x, &shape[2..], attrs.ceil_mode, fill.clone());
    let element = |i: &[Expr], r: &[Expr]| {
        let mut at = i[..2].to_vec();
        at.extend((0..inner.rank()).map(|axis| inner.position(axis, &i[2 + axis], &r[axis])));
        padded.at(at)
    };
    let dtype = accumulator(x.dtype);
    let kernel = inner.kernel.clone();
    match attrs.kind {
        PoolKind::Max => {
            Ok(vec![b.reduce("max_pool", x.dtype, &shape, kernel, fill, |i, r, acc| acc.max(element(i, r)))])
        }
        PoolKind::Average => {
            let sum = b.reduce("sum", dtype, &shape, kernel, Expr::zero(dtype), |i, r, acc| {
                acc + element(i, r).cast(dtype)
            });
            let count = |i: &[Expr]| window_count(&windows, attrs.count_include_pad, &x, &i[2..]);
            Ok(vec![b.compute("average_pool", x.dtype, &shape, |i| {
                (sum.at(i.to_vec()) / count(i).cast(dtype)).cast(x.dtype)
            })])
        }
        PoolKind::Lp => {
            let p = attrs.p as f64;
            let sum = b.reduce("sum", dtype, &shape, kernel, Expr::zero(dtype), |i, r, acc| {
                let size = apply(UnaryOp::Abs, element(i, r).cast(dtype));
                match attrs.p {
                    1 => acc + size,
                    2 => Expr::fma(size.clone(), size, acc),
                    _ => acc + Expr::binary(BinaryOp::Pow, size, Expr::float_of(dtype, p)),
                }
            });
            Ok(vec![b.compute("lp_pool", x.dtype, &shape, |i| {
                let sum = sum.at(i.to_vec());
                let norm = match attrs.p {
                    1 => sum,
                    2 => apply(UnaryOp::Sqrt, sum),
                    _ => Expr::binary(BinaryOp::Pow, sum, Expr::float_of(dtype, 1.0 / p)),
                };
                norm.cast(x.dtype)
            })])
        }
    }
}

/// Number of elements an average is over: those of the input, or of the padded input, in the window.
fn window_count(windows: &Windows, include_pad: bool, x: &Operand, o: &[Expr]) -> Expr {
    let padded = windows.before.iter().chain(&windows.after).any(|&pad| pad != 0);
    (0..windows.rank()).fold(Expr::int(1), |count, axis| {
        let extent = &x.shape[2 + axis];
        let (low, high) = if include_pad && padded {
            (Expr::int(-windows.before[axis]), extent.clone() + windows.after[axis])
        } else {
            (Expr::int(0), extent.clone())
        };
        count * windows.count_within(axis, &o[axis], &low, &high)
    })
}

/// Max pooling with the flat index of each maximum in the input.
pub(super) fn max_pool_indices(b: &mut Builder, attrs: &MaxPoolIndicesAttrs) -> Results {
    let x = b.input(0)?;
    let shape = b.result_shape(0)?;
    let windows = Windows::new(extents(&attrs.kernel), &attrs.strides, &attrs.dilations, &attrs.pads);
    let init = [("indices", Expr::int(-1)), ("max_pool", Expr::lowest(x.dtype))];
    let mut results = b.reduce_many(&init, &shape, windows.kernel.clone(), |i, r, acc| {
        let spatial: Vec<Expr> =
            (0..windows.rank()).map(|axis| windows.position(axis, &i[2 + axis], &r[axis])).collect();
        let inside = all(spatial.iter().zip(&x.shape[2..]).map(|(index, extent)| in_range(index, extent)));
        let value = x.at([&i[..2], &spatial].concat());
        let value = Expr::select(inside.clone(), value, Expr::lowest(x.dtype));
        let better = acc[0].clone().lt(Expr::int(0)).or(value.clone().gt(acc[1].clone()));
        let taken = inside.and(better);
        let plane = linear(&i[..2], &x.shape[..2]) * product(&x.shape[2..]);
        let within = if attrs.column_major {
            let reversed = |list: &[Expr]| list.iter().rev().cloned().collect::<Vec<_>>();
            linear(&reversed(&spatial), &reversed(&x.shape[2..]))
        } else {
            linear(&spatial, &x.shape[2..])
        };
        vec![
            Expr::select(taken.clone(), plane + within, acc[0].clone()),
            Expr::select(taken, value, acc[1].clone()),
        ]
    });
    results.reverse();
    Ok(results)
}

/// Scatters `x` to flat indices of a zero tensor of extents `shape`; `position` turns an index into one of it.
fn unpool(b: &mut Builder, shape: &[Expr], position: impl FnOnce(Expr) -> Expr) -> Results {
    let (x, indices) = (b.input(0)?, b.input(1)?);
    let result = b.compute("max_unpool", x.dtype, shape, |_| Expr::zero(x.dtype));
    let last = product(shape) - 1;
    b.update(&result, &[], &x.shape, |_, r| {
        let index = position(indices.at(r.to_vec()).cast(DType::I64));
        let inside = Expr::int(0).max(last.min(index));
        vec![result.store(delinear(inside, shape), x.at(r.to_vec()))]
    });
    Ok(vec![result])
}

/// Writes values at flat indices of a zero tensor.
pub(super) fn max_unpool(b: &mut Builder) -> Results {
    let shape = b.result_shape(0)?;
    unpool(b, &shape, |index| index)
}

/// `MaxUnpool` with indices flat in the tensor that the window attributes imply, into a larger one.
pub(super) fn max_unpool_dynamic(b: &mut Builder, attrs: &MaxUnpoolDynamicAttrs) -> Results {
    let x = b.input(0)?;
    let shape = b.result_shape(0)?;
    let mut implied = x.shape[..2].to_vec();
    for axis in 0..attrs.kernel.len() {
        let stride = attrs.strides.get(axis).map_or(1, |&stride| stride as i64);
        let pads = attrs.pads.get(axis).copied().unwrap_or(0)
            + attrs.pads.get(attrs.kernel.len() + axis).copied().unwrap_or(0);
        implied.push((x.shape[2 + axis].clone() - 1) * stride + (attrs.kernel[axis] as i64 - pads));
    }
    unpool(b, &shape, |index| linear(&delinear(index, &implied), &shape))
}

/// Sums the columns of sliding blocks back into an image: each element gathers from the blocks that cover it.
pub(super) fn col2im(b: &mut Builder, attrs: &Col2ImAttrs) -> Results {
    let x = b.input(0)?;
    let shape = b.result_shape(0)?;
    let n = shape.len() - 2;
    let image = &shape[2..];
    let windows = Windows::new(image.to_vec(), &attrs.strides, &attrs.dilations, &attrs.pads);
    // The block's extents, and bounds of them: a block fits into the padded image.
    let (block, bounds): (Vec<Expr>, Vec<Expr>) = match b.optional(2) {
        _ if !attrs.block.is_empty() => (extents(&attrs.block), extents(&attrs.block)),
        Some(block) => {
            let padded = |axis: usize| image[axis].clone() + (windows.before[axis] + windows.after[axis]);
            let loaded = (0..n).map(|axis| block.index_at(Expr::int(axis as i64)));
            (loaded.collect(), (0..n).map(padded).collect())
        }
        None => return Err(b.no_kernel("block extents are missing")),
    };
    let stride = |axis: usize| attrs.strides.get(axis).map_or(1, |&stride| stride as i64);
    let dilation = |axis: usize| attrs.dilations.get(axis).map_or(1, |&dilation| dilation as i64);
    let blocks: Vec<Expr> = (0..n)
        .map(|axis| {
            let padded = image[axis].clone() + (windows.before[axis] + windows.after[axis]);
            let reach = (block[axis].clone() - 1) * dilation(axis) + 1;
            (padded - reach).floor_div(Expr::int(stride(axis))) + 1
        })
        .collect();
    let dtype = accumulator(x.dtype);
    let sum = b.reduce("col2im", dtype, &shape, bounds, Expr::zero(dtype), |i, r, acc| {
        let mut inside: Vec<Expr> =
            r.iter().zip(&block).map(|(r, extent)| r.clone().lt(extent.clone())).collect();
        let mut place = Vec::new();
        for axis in 0..n {
            let offset = i[2 + axis].clone() + windows.before[axis] - r[axis].clone() * dilation(axis);
            let index = offset.clone().floor_div(Expr::int(stride(axis)));
            inside.push(in_range(&index, &blocks[axis]));
            inside.push(offset.floor_mod(Expr::int(stride(axis))).equals(Expr::int(0)));
            place.push(index);
        }
        let row = i[1].clone() * product(&block) + linear(r, &block);
        let value = x.at(vec![i[0].clone(), row, linear(&place, &blocks)]).cast(dtype);
        acc + Expr::select(all(inside), value, Expr::zero(dtype))
    });
    Ok(vec![b.cast("cast", sum, x.dtype)])
}
