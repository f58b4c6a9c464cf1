//! Sampling images at places that are data: grid sampling, affine grids, pooling of regions.

use tilewright_dtype::DType;
use tilewright_graph::op::{
    AffineGridAttrs, GridPadding, GridSampleAttrs, InterpolationMode, MaxRoiPoolAttrs, RoiAlignAttrs,
    RoiCoordinates, RoiMode,
};
use tilewright_te::{Expr, UnaryOp};

use super::Results;
use super::builder::{Builder, accumulator, all, clamp, in_range, wrap_index};
use super::elementwise::apply;

/// The padded element's index in an axis of extent `extent`, and whether it is inside.
fn padded_index(
    padding: GridPadding,
    align_corners: bool,
    index: Expr,
    extent: &Expr,
) -> (Expr, Option<Expr>) {
    let last = extent.clone() - 1;
    match padding {
        GridPadding::Zeros => (index.clone(), Some(in_range(&index, extent))),
        GridPadding::Border => (clamp(index, Expr::int(0), last), None),
        GridPadding::Reflection => {
            // Mirrored at the centres of the edge elements, or at their outer borders.
            let (period, shift) =
                if align_corners { (Expr::int(1).max(last.clone() * 2), 0) } else { (extent.clone() * 2, 1) };
            let phase = index.floor_mod(period.clone());
            (clamp(phase.clone().min(period - phase - shift), Expr::int(0), last), None)
        }
    }
}

/// The place `x` brought inside the borders, as padding wants it.
fn padded_place(padding: GridPadding, align_corners: bool, x: Expr, extent: &Expr) -> Expr {
    let dtype = x.dtype();
    let constant = |value: f64| Expr::float_of(dtype, value);
    let size = extent.clone().cast(dtype);
    match padding {
        GridPadding::Zeros => x,
        GridPadding::Border => constant(0.0).max((size - constant(1.0)).min(x)),
        GridPadding::Reflection => {
            let (low, range) = if align_corners { (0.0, size - constant(1.0)) } else { (-0.5, size) };
            let period = constant(f64::from(f32::MIN_POSITIVE)).max(range * constant(2.0));
            let distance = x - constant(low);
            let turns = apply(UnaryOp::Floor, distance.clone() / period.clone());
            let phase = distance - turns * period.clone();
            phase.clone().min(period - phase) + constant(low)
        }
    }
}

/// Weight of tap `tap` for a place `fraction` after the element that is tap 0 (linear) or 1 (cubic).
fn tap_weight(mode: InterpolationMode, tap: &Expr, fraction: Expr) -> Expr {
    let dtype = fraction.dtype();
    let constant = |value: f64| Expr::float_of(dtype, value);
    if mode != InterpolationMode::Cubic {
        let first = tap.clone().equals(Expr::int(0));
        return Expr::select(first, constant(1.0) - fraction.clone(), fraction);
    }
    let a = -0.75;
    let distance = apply(UnaryOp::Abs, tap.clone().cast(dtype) - constant(1.0) - fraction);
    let polynomial = |c3: f64, c2: f64, c1: f64, c0: f64| {
        let inner = (constant(c3) * distance.clone() + constant(c2)) * distance.clone() + constant(c1);
        inner * distance.clone() + constant(c0)
    };
    let near = polynomial(a + 2.0, -(a + 3.0), 0.0, 1.0);
    let far = polynomial(a, -5.0 * a, 8.0 * a, -4.0 * a);
    Expr::select(distance.clone().le(constant(1.0)), near, far)
}

/// Sampling of `[batch, channels, spatial..]` at places `[batch, output.., spatial axis from the last on]`.
pub(super) fn grid_sample(b: &mut Builder, attrs: &GridSampleAttrs) -> Results {
    let (x, grid) = (b.input(0)?, b.input(1)?);
    let n = x.rank() - 2;
    let shape = b.result_shape(0)?;
    let dtype = accumulator(grid.dtype);
    let constant = |value: f64| Expr::float_of(dtype, value);
    let place = b.compute("place", dtype, &grid.shape, |i| {
        // Component `c` of a place is about spatial axis `n - 1 - c`.
        let component = i[n + 1].clone();
        let extents = x.shape[2..].iter().rev().enumerate();
        let at = |extent: &Expr| {
            let size = extent.clone().cast(dtype);
            let unit = grid.at(i.to_vec()).cast(dtype) + constant(1.0);
            let place = if attrs.align_corners {
                unit / constant(2.0) * (size - constant(1.0))
            } else {
                (unit * size - constant(1.0)) / constant(2.0)
            };
            if attrs.mode == InterpolationMode::Nearest {
                apply(UnaryOp::Round, place)
            } else {
                padded_place(attrs.padding, attrs.align_corners, place, extent)
            }
        };
        let choices = extents.map(|(c, extent)| (c as i64, at(extent)));
        choices
            .reduce(|(_, rest), (c, value)| {
                (c, Expr::select(component.clone().equals(Expr::int(c)), value, rest))
            })
            .map_or_else(|| constant(0.0), |(_, value)| value)
    });
    let component = |i: &[Expr], axis: usize| {
        let at = [&i[..1], &i[2..], &[Expr::int((n - 1 - axis) as i64)]].concat();
        place.at(at)
    };
    // The element at the given spatial indices, which may be in the padding.
    let pixel = |i: &[Expr], indices: Vec<Expr>| {
        let mut at = i[..2].to_vec();
        let mut inside = Vec::new();
        for (axis, index) in indices.into_iter().enumerate() {
            let (index, is_inside) =
                padded_index(attrs.padding, attrs.align_corners, index, &x.shape[2 + axis]);
            at.push(index);
            inside.extend(is_inside);
        }
        Expr::select(all(inside), x.at(at), Expr::zero(x.dtype))
    };
    if attrs.mode == InterpolationMode::Nearest {
        return Ok(vec![b.compute("grid_sample", x.dtype, &shape, |i| {
            pixel(i, (0..n).map(|axis| component(i, axis).cast(DType::I64)).collect())
        })]);
    }
    let (n_taps, before) = if attrs.mode == InterpolationMode::Cubic { (4, 1) } else { (2, 0) };
    let wide = if x.dtype.is_float() { accumulator(x.dtype) } else { DType::F32 };
    let sum =
        b.reduce("grid_sample", wide, &shape, vec![Expr::int(n_taps); n], Expr::zero(wide), |i, r, acc| {
            let mut weight = Expr::int_of(wide, 1);
            let mut indices = Vec::new();
            for (axis, tap) in r.iter().enumerate() {
                let place = component(i, axis);
                let base = apply(UnaryOp::Floor, place.clone());
                let factor = tap_weight(attrs.mode, tap, place - base.clone()).cast(wide);
                weight = if axis == 0 { factor } else { weight * factor };
                indices.push(base.cast(DType::I64) + tap.clone() - before);
            }
            Expr::fma(weight, pixel(i, indices).cast(wide), acc)
        });
    Ok(vec![b.cast("cast", sum, x.dtype)])
}

/// Places for `GridSample` from affine maps `[batch, n, n + 1]` of unit coordinates.
pub(super) fn affine_grid(b: &mut Builder, attrs: &AffineGridAttrs) -> Results {
    let theta = b.input(0)?;
    let shape = b.result_shape(0)?;
    let n = shape.len() - 2;
    let dtype = accumulator(theta.dtype);
    let constant = |value: f64| Expr::float_of(dtype, value);
    // The unit coordinate of index `index` on an axis of extent `extent`.
    let unit = |index: &Expr, extent: &Expr| {
        let (index, size) = (index.clone().cast(dtype), extent.clone().cast(dtype));
        if attrs.align_corners {
            let steps = constant(1.0).max(size - constant(1.0));
            index * constant(2.0) / steps - constant(1.0)
        } else {
            (index * constant(2.0) + constant(1.0)) / size - constant(1.0)
        }
    };
    Ok(vec![b.compute("affine_grid", theta.dtype, &shape, |i| {
        let row = |column: usize| {
            theta.at(vec![i[0].clone(), i[n + 1].clone(), Expr::int(column as i64)]).cast(dtype)
        };
        // Column `c` of the map multiplies the coordinate of spatial axis `n - 1 - c`.
        let terms = (0..n).map(|column| {
            let axis = n - column;
            row(column) * unit(&i[axis], &shape[axis])
        });
        terms.fold(row(n), |sum, term| sum + term).cast(theta.dtype)
    })])
}

/// Pooling of bilinear samples of regions; `rois` are `[x1, y1, x2, y2]` each.
pub(super) fn roi_align(b: &mut Builder, attrs: &RoiAlignAttrs) -> Results {
    let (x, rois, batches) = (b.input(0)?, b.input(1)?, b.input(2)?);
    if attrs.sampling_ratio == 0 {
        return Err(b.no_kernel("the number of samples a bin (sampling_ratio = 0) depends on the regions"));
    }
    let shape = b.result_shape(0)?;
    let dtype = accumulator(x.dtype);
    let constant = |value: f64| Expr::float_of(dtype, value);
    let half_pixel = attrs.coordinates == RoiCoordinates::HalfPixel;
    let offset = if half_pixel { 0.5 } else { 0.0 };
    let scale = constant(attrs.spatial_scale.to_f64());
    let samples = attrs.sampling_ratio as i64;
    // The sampled coordinate on an axis (0 is y) of bin `bin`, sample `sample`, of region `roi`.
    let coordinate = |axis: usize, roi: &Expr, bin: &Expr, sample: &Expr| {
        let bins = [attrs.output_height, attrs.output_width][axis];
        let corner = |n: usize| {
            let column = Expr::int((1 - axis + 2 * n) as i64);
            rois.at(vec![roi.clone(), column]).cast(dtype) * scale.clone() - constant(offset)
        };
        let start = corner(0);
        let extent = corner(1) - start.clone();
        let extent = if half_pixel { extent } else { constant(1.0).max(extent) };
        let size = extent / constant(bins as f64);
        let within = (sample.clone().cast(dtype) + constant(0.5)) * size.clone() / constant(samples as f64);
        start + bin.clone().cast(dtype) * size + within
    };
    // The lower element, the upper one, the upper one's weight, and whether the coordinate is near the axis.
    let neighbours = |place: Expr, extent: &Expr| {
        let size = extent.clone().cast(dtype);
        let near = place.clone().ge(constant(-1.0)).and(place.clone().le(size.clone()));
        let place = constant(0.0).max((size - constant(1.0)).min(place));
        let low = apply(UnaryOp::Floor, place.clone());
        let index = low.clone().cast(DType::I64);
        let index = clamp(index, Expr::int(0), extent.clone() - 1);
        let next = (index.clone() + 1).min(extent.clone() - 1);
        (index, next, place - low, near)
    };
    let is_max = attrs.mode == RoiMode::Max;
    let init = if is_max { Expr::lowest(dtype) } else { constant(0.0) };
    let extents = vec![Expr::int(samples), Expr::int(samples)];
    let pooled = b.reduce("roi_align", dtype, &shape, extents, init, |i, r, acc| {
        let batch = wrap_index(batches.at(vec![i[0].clone()]), &x.shape[0]);
        let (y0, y1, dy, near_y) = neighbours(coordinate(0, &i[0], &i[2], &r[0]), &x.shape[2]);
        let (x0, x1, dx, near_x) = neighbours(coordinate(1, &i[0], &i[3], &r[1]), &x.shape[3]);
        let (up, left) = (constant(1.0) - dy.clone(), constant(1.0) - dx.clone());
        let near = near_y.and(near_x);
        let corner = |row: &Expr, column: &Expr, weight: Expr| {
            let value = x.at(vec![batch.clone(), i[1].clone(), row.clone(), column.clone()]).cast(dtype);
            Expr::select(near.clone(), weight * value, constant(0.0))
        };
        let corners = [
            corner(&y0, &x0, up.clone() * left.clone()),
            corner(&y0, &x1, up * dx.clone()),
            corner(&y1, &x0, dy.clone() * left),
            corner(&y1, &x1, dy * dx),
        ];
        corners.into_iter().fold(acc, |acc, value| if is_max { acc.max(value) } else { acc + value })
    });
    if is_max {
        return Ok(vec![b.cast("cast", pooled, x.dtype)]);
    }
    let count = constant((samples * samples) as f64);
    Ok(vec![b.compute("average", x.dtype, &shape, |i| (pooled.at(i.to_vec()) / count).cast(x.dtype))])
}

/// Max pooling of regions; `rois` are `[batch index, x1, y1, x2, y2]` each, corners included.
pub(super) fn max_roi_pool(b: &mut Builder, attrs: &MaxRoiPoolAttrs) -> Results {
    let (x, rois) = (b.input(0)?, b.input(1)?);
    let shape = b.result_shape(0)?;
    let dtype = accumulator(x.dtype);
    let constant = |value: f64| Expr::float_of(dtype, value);
    let column = |roi: &Expr, n: usize| rois.at(vec![roi.clone(), Expr::int(n as i64)]).cast(dtype);
    let corner =
        |roi: &Expr, n: usize| apply(UnaryOp::Round, column(roi, n) * constant(attrs.spatial_scale.to_f64()));
    // Whether element `index` of a spatial axis (0 is y) belongs to bin `bin` of region `roi`.
    let belongs = |axis: usize, roi: &Expr, bin: &Expr, index: &Expr| {
        let (start, end) = (corner(roi, 2 - axis), corner(roi, 4 - axis));
        let size =
            constant(1.0).max(end - start.clone() + constant(1.0)) / constant(attrs.pooled[axis] as f64);
        let bin = bin.clone().cast(dtype);
        let low = apply(UnaryOp::Floor, bin.clone() * size.clone()) + start.clone();
        let high = apply(UnaryOp::Ceil, (bin + constant(1.0)) * size) + start;
        let index = index.clone().cast(dtype);
        index.clone().ge(low).and(index.lt(high))
    };
    let lowest = Expr::lowest(x.dtype);
    let max = b.reduce("max", x.dtype, &shape, x.shape[2..].to_vec(), lowest.clone(), |i, r, acc| {
        let batch = wrap_index(column(&i[0], 0), &x.shape[0]);
        let inside = belongs(0, &i[0], &i[2], &r[0]).and(belongs(1, &i[0], &i[3], &r[1]));
        let value = x.at(vec![batch, i[1].clone(), r[0].clone(), r[1].clone()]);
        Expr::select(inside, acc.clone().max(value), acc)
    });
    Ok(vec![b.compute("max_roi_pool", x.dtype, &shape, |i| {
        let value = max.at(i.to_vec());
        Expr::select(value.clone().equals(lowest), Expr::zero(x.dtype), value)
    })])
}
