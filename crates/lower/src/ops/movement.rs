//! Movement of elements: reshapes, transpositions, slices, concatenation, padding, tiling.
//!
//! Every definition is one block whose element is a copy of one operand element, so that it can be inlined.
//! What arrives as data (starts, pads, ...) is loaded inside the index expressions, and clamped where it could
//! point outside.

use tilewright_dtype::DType;
use tilewright_graph::dim::Dim;
use tilewright_graph::op::{
    AxisAttrs, CenterCropPadAttrs, PadAttrs, PadDynamicAttrs, PadMode, ReverseSequenceAttrs, SliceAttrs,
    TransposeAttrs, TriluAttrs,
};
use tilewright_te::Expr;

use super::Results;
use super::builder::{Builder, Operand, all, clamp, delinear, in_range, linear, product, with_index};

/// Indices into extents `from` of the element at row-major position of `indices` in extents `to`.
///
/// Equal extents at both ends, and runs of axes with equal products between, map separately: index arithmetic
/// stays as small as the reshape is.
pub(super) fn reshaped(indices: &[Expr], to: &[Expr], from: &[Expr]) -> Vec<Expr> {
    let prefix = to.iter().zip(from).take_while(|(a, b)| a == b).count();
    let suffix =
        to[prefix..].iter().rev().zip(from[prefix..].iter().rev()).take_while(|(a, b)| a == b).count();
    let mut result = indices[..prefix].to_vec();
    let (mut i, mut j) = (prefix, prefix);
    let (to_end, from_end) = (to.len() - suffix, from.len() - suffix);
    while i < to_end || j < from_end {
        let (i_next, j_next) = equal_run((i, to_end, to), (j, from_end, from));
        let position = linear(&indices[i..i_next], &to[i..i_next]);
        result.extend(delinear(position, &from[j..j_next]));
        (i, j) = (i_next, j_next);
    }
    result.extend_from_slice(&indices[to_end..]);
    result
}

/// The ends of the shortest runs of axes from `i` and `j` on with equal constant products, or both ends.
fn equal_run(
    (i, i_end, to): (usize, usize, &[Expr]),
    (j, j_end, from): (usize, usize, &[Expr]),
) -> (usize, usize) {
    for i_next in i + 1..i_end {
        for j_next in j + 1..j_end {
            let products = (product(&to[i..i_next]), product(&from[j..j_next]));
            if products.0 == products.1 && products.0.as_int() != Some(0) {
                return (i_next, j_next);
            }
        }
    }
    (i_end, j_end)
}

/// The same elements in row-major order under other extents.
pub(super) fn reshape(b: &mut Builder) -> Results {
    let x = b.input(0)?;
    let shape = b.result_shape(0)?;
    Ok(vec![b.compute("reshape", x.dtype, &shape, |i| x.at(reshaped(i, &shape, &x.shape)))])
}

/// Permutation of axes.
pub(super) fn transpose(b: &mut Builder, attrs: &TransposeAttrs) -> Results {
    let x = b.input(0)?;
    let shape: Vec<Expr> = attrs.perm.iter().map(|&axis| x.shape[axis].clone()).collect();
    Ok(vec![b.compute("transpose", x.dtype, &shape, |i| {
        let mut indices = i.to_vec();
        for (index, &axis) in i.iter().zip(&attrs.perm) {
            indices[axis] = index.clone();
        }
        x.at(indices)
    })])
}

/// Broadcast.
pub(super) fn expand(b: &mut Builder) -> Results {
    let x = b.input(0)?;
    let shape = b.result_shape(0)?;
    Ok(vec![b.compute("expand", x.dtype, &shape, |i| x.at_broadcast(i, &shape))])
}

/// Every `step`-th element of a range.
pub(super) fn slice(b: &mut Builder, attrs: &SliceAttrs) -> Results {
    let x = b.input(0)?;
    let shape = b.result_shape(0)?;
    let starts: Vec<Expr> = attrs.starts.iter().map(|start| b.dim(start)).collect();
    Ok(vec![b.compute("slice", x.dtype, &shape, |i| {
        let mut indices = i.to_vec();
        for (n, &axis) in attrs.axes.iter().enumerate() {
            indices[axis] = starts[n].clone() + i[axis].clone() * attrs.steps[n];
        }
        x.at(indices)
    })])
}

/// ONNX slice with bounds known at run time: `(x, starts, ends, axes?, steps?)`.
pub(super) fn slice_dynamic(b: &mut Builder) -> Results {
    let (x, starts, axes, steps) = (b.input(0)?, b.input(1)?, b.optional(3), b.optional(4));
    let shape = b.result_shape(0)?;
    let Some(n) = starts.shape[0].as_int() else {
        return Err(b.no_kernel("the number of sliced axes is only known at run time"));
    };
    let rank = x.rank() as i64;
    Ok(vec![b.compute("slice", x.dtype, &shape, |i| {
        let index = |axis: usize| {
            // The start and step of this axis, wherever the operands list it.
            let listed = (0..n).fold(i[axis].clone(), |rest, entry| {
                let extent = &x.shape[axis];
                let step = steps.as_ref().map_or(Expr::int(1), |steps| steps.index_at(Expr::int(entry)));
                let start = starts.index_at(Expr::int(entry));
                let start =
                    Expr::select(start.clone().lt(Expr::int(0)), start.clone() + extent.clone(), start);
                let backwards = step.clone().lt(Expr::int(0));
                let past = Expr::select(backwards, extent.clone() - 1, extent.clone());
                let sliced = clamp(start, Expr::int(0), past) + i[axis].clone() * step;
                match &axes {
                    None if entry == axis as i64 => sliced,
                    None => rest,
                    Some(axes) => {
                        let given = axes.index_at(Expr::int(entry));
                        let n = axis as i64;
                        let hit = given.clone().equals(Expr::int(n)).or(given.equals(Expr::int(n - rank)));
                        Expr::select(hit, sliced, rest)
                    }
                }
            });
            clamp(listed, Expr::int(0), x.shape[axis].clone() - 1)
        };
        x.at((0..x.rank()).map(index).collect())
    })])
}

/// Operands one after another along an axis.
///
/// Each element selects its operand, so that what reads the result can compute it. With more than [`MAX_SELECTED`] operands that would be
/// as many comparisons for each element: then each operand is copied to its place.
pub(super) fn concat(b: &mut Builder, attrs: &AxisAttrs) -> Results {
    let inputs = b.inputs();
    let shape = b.result_shape(0)?;
    let axis = attrs.axis;
    // Operands without elements would never be chosen, and cannot be read even where they are not.
    let parts: Vec<Operand> =
        inputs.iter().filter(|part| part.shape[axis].as_int() != Some(0)).cloned().collect();
    let dtype = b.result_dtype(0);
    if parts.len() > MAX_SELECTED {
        return Ok(vec![concat_by_parts(b, &parts, axis, dtype, &shape)]);
    }
    Ok(vec![b.compute("concat", dtype, &shape, |i| {
        let mut start = Expr::int(0);
        let mut choices = Vec::new();
        for part in &parts {
            let end = start.clone() + part.shape[axis].clone();
            let value = part.at(with_index(i, axis, i[axis].clone() - start, true));
            choices.push((i[axis].clone().lt(end.clone()), value));
            start = end;
        }
        let last = choices.pop().map_or_else(|| Expr::zero(dtype), |(_, value)| value);
        choices
            .into_iter()
            .rev()
            .fold(last, |rest, (before_end, value)| Expr::select(before_end, value, rest))
    })])
}

/// Operands of a concatenation among which each element selects.
const MAX_SELECTED: usize = 16;

fn concat_by_parts(b: &mut Builder, parts: &[Operand], axis: usize, dtype: DType, shape: &[Expr]) -> Operand {
    let result = b.temporary("concat", dtype, shape);
    let mut start = Expr::int(0);
    for part in parts {
        b.update(&result, &part.shape, &[], |i, _| {
            let place = with_index(i, axis, i[axis].clone() + start.clone(), true);
            vec![result.store(place, part.at(i.to_vec()))]
        });
        // A kernel a part: each would add up all that lie before it.
        start = b.named("start", &(start + part.shape[axis].clone()));
    }
    result
}

/// Consecutive parts along `axis`, one a result; their sizes are the results' extents.
pub(super) fn split(b: &mut Builder, axis: usize) -> Results {
    let x = b.input(0)?;
    let mut start = Expr::int(0);
    let mut results = Vec::with_capacity(b.n_results());
    for part in 0..b.n_results() {
        let shape = b.result_shape(part)?;
        let from = start.clone();
        results.push(
            b.compute("split", x.dtype, &shape, |i| x.at(with_index(i, axis, i[axis].clone() + from, true))),
        );
        start = start + shape[axis].clone();
    }
    Ok(results)
}

/// The operand index of padded index `index`, `before` elements of padding earlier, and whether it is inside.
fn unpadded(mode: PadMode, index: &Expr, before: &Expr, extent: &Expr) -> (Expr, Option<Expr>) {
    let inner = index.clone() - before.clone();
    let last = extent.clone() - 1;
    match mode {
        PadMode::Constant => (inner.clone(), Some(in_range(&inner, extent))),
        PadMode::Edge => (clamp(inner, Expr::int(0), last), None),
        PadMode::Wrap => (inner.floor_mod(extent.clone()), None),
        PadMode::Reflect => {
            // Periodic with twice the distance between the edges; an axis of one element repeats it.
            let period = Expr::int(1).max(last.clone() * 2);
            let phase = inner.floor_mod(period.clone());
            (phase.clone().min(period - phase).min(last), None)
        }
    }
}

fn padded(b: &mut Builder, mode: PadMode, value: Option<Operand>, before: &[Expr]) -> Results {
    let x = b.input(0)?;
    let shape = b.result_shape(0)?;
    Ok(vec![b.compute("pad", x.dtype, &shape, |i| {
        let mut inside = Vec::new();
        let mut indices = Vec::new();
        for axis in 0..x.rank() {
            if before[axis].as_int() == Some(0) && shape[axis] == x.shape[axis] {
                indices.push(i[axis].clone());
                continue;
            }
            let (index, is_inside) = unpadded(mode, &i[axis], &before[axis], &x.shape[axis]);
            indices.push(index);
            inside.extend(is_inside);
        }
        let fill = value.as_ref().map_or_else(|| Expr::zero(x.dtype), Operand::scalar);
        Expr::select(all(inside), x.at(indices), fill)
    })])
}

/// Padding by fixed or symbolic amounts.
pub(super) fn pad(b: &mut Builder, attrs: &PadAttrs) -> Results {
    let before: Vec<Expr> = attrs.before.iter().map(|dim: &Dim| b.dim(dim)).collect();
    let value = b.optional(1);
    padded(b, attrs.mode, value, &before)
}

/// Padding by amounts known at run time: `(x, pads, value?, axes?)`.
pub(super) fn pad_dynamic(b: &mut Builder, attrs: &PadDynamicAttrs) -> Results {
    let (x, pads, value, axes) = (b.input(0)?, b.input(1)?, b.optional(2), b.optional(3));
    let rank = x.rank() as i64;
    let before: Vec<Expr> = match &axes {
        None => (0..rank).map(|axis| pads.index_at(Expr::int(axis))).collect(),
        Some(axes) => {
            let Some(n) = axes.shape[0].as_int() else {
                return Err(b.no_kernel("the number of padded axes is only known at run time"));
            };
            let listed = |axis: i64| {
                (0..n).fold(Expr::int(0), |rest, entry| {
                    let given = axes.index_at(Expr::int(entry));
                    let hit = given.clone().equals(Expr::int(axis)).or(given.equals(Expr::int(axis - rank)));
                    Expr::select(hit, pads.index_at(Expr::int(entry)), rest)
                })
            };
            (0..rank).map(listed).collect()
        }
    };
    padded(b, attrs.mode, value, &before)
}

/// Copies side by side.
pub(super) fn tile(b: &mut Builder) -> Results {
    let x = b.input(0)?;
    let shape = b.result_shape(0)?;
    Ok(vec![b.compute("tile", x.dtype, &shape, |i| {
        let axes = i.iter().zip(x.shape.iter().zip(&shape));
        let index = |(index, (extent, result)): (&Expr, (&Expr, &Expr))| {
            if extent == result { index.clone() } else { index.clone().floor_mod(extent.clone()) }
        };
        x.at(axes.map(index).collect())
    })])
}

/// Crops or pads around the centre to the result's extents.
pub(super) fn center_crop_pad(b: &mut Builder, attrs: &CenterCropPadAttrs) -> Results {
    let x = b.input(0)?;
    let shape = b.result_shape(0)?;
    let two = Expr::int(2);
    let offset = |axis: usize| {
        // A crop starts at floor((extent - target) / 2); padding puts floor((target - extent) / 2) before.
        let (extent, target) = (&x.shape[axis], &shape[axis]);
        let cropped = Expr::int(0).max(extent.clone() - target.clone()).floor_div(two.clone());
        let padding = Expr::int(0).max(target.clone() - extent.clone()).floor_div(two.clone());
        cropped - padding
    };
    Ok(vec![b.compute("center_crop_pad", x.dtype, &shape, |i| {
        let mut indices = i.to_vec();
        let mut inside = Vec::new();
        for &axis in &attrs.axes {
            indices[axis] = i[axis].clone() + offset(axis);
            inside.push(in_range(&indices[axis], &x.shape[axis]));
        }
        Expr::select(all(inside), x.at(indices), Expr::zero(x.dtype))
    })])
}

/// Upper or lower triangles of the last two axes, else 0.
pub(super) fn trilu(b: &mut Builder, attrs: &TriluAttrs) -> Results {
    let (x, k) = (b.input(0)?, b.optional(1));
    let diagonal = match (attrs.diagonal, k) {
        (Some(diagonal), _) => Expr::int(diagonal),
        (None, Some(k)) => k.scalar().cast(DType::I64),
        (None, None) => Expr::int(0),
    };
    let rank = x.rank();
    Ok(vec![b.compute("trilu", x.dtype, &x.shape, |i| {
        let above = i[rank - 1].clone() - i[rank - 2].clone();
        let kept = if attrs.upper { above.ge(diagonal) } else { above.le(diagonal) };
        Expr::select(kept, x.at(i.to_vec()), Expr::zero(x.dtype))
    })])
}

/// Reverses the beginning of each sequence.
pub(super) fn reverse_sequence(b: &mut Builder, attrs: &ReverseSequenceAttrs) -> Results {
    let (x, lengths) = (b.input(0)?, b.input(1)?);
    let time = attrs.time_axis;
    Ok(vec![b.compute("reverse_sequence", x.dtype, &x.shape, |i| {
        let steps = x.shape[time].clone();
        let length = clamp(lengths.index_at(i[attrs.batch_axis].clone()), Expr::int(0), steps);
        let mirrored = length.clone() - 1 - i[time].clone();
        let index = Expr::select(i[time].clone().lt(length), mirrored, i[time].clone());
        x.at(with_index(i, time, index, true))
    })])
}
