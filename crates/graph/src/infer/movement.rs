//! Type rules of operators that move elements.

use tilewright_dtype::DType;

use super::context::{Context, InferError, ranked, unranked};
use crate::dim::Dim;
use crate::guard::Comparison;
use crate::op::{AspectPolicy, GatherNdAttrs, Op, ResizeAttrs, SliceAttrs};
use crate::symbol::SymbolTable;
use crate::types::Type;

type Result<T> = std::result::Result<T, InferError>;

pub(super) fn types(cx: &mut Context<'_>) -> Result<Vec<Type>> {
    let dtype = cx.dtype(0)?;
    match cx.op {
        Op::Reshape(attrs) => {
            if let Some(dims) = cx.dims(0)? {
                let (from, to) = (Dim::product(dims), Dim::product(&attrs.dims));
                cx.unify(&from, &to, "numbers of elements")?;
            }
            Ok(vec![ranked(dtype, attrs.dims.clone())])
        }
        Op::ReshapeDynamic(attrs) => reshape_dynamic(cx, dtype, attrs.allow_zero),
        Op::ScatterElements(_) | Op::ScatterNd(_) | Op::TensorScatter(_) => {
            let updates = if matches!(cx.op, Op::TensorScatter(_)) { 1 } else { 2 };
            cx.check_same_dtype(0, updates)?;
            Ok(vec![cx.ty(0)?.clone()])
        }
        Op::Trilu(_) | Op::ReverseSequence(_) => {
            if let Some(dims) = cx.dims(0)? {
                cx.check_least_rank(0, dims, 2)?;
            }
            Ok(vec![cx.ty(0)?.clone()])
        }
        Op::GatherElements(_) => {
            Ok(vec![cx.dims(1)?.map_or(unranked(dtype), |dims| ranked(dtype, dims.to_vec()))])
        }
        Op::Concat(attrs) => concat(cx, dtype, attrs.axis),
        Op::Resize(attrs) => Ok(vec![ranked(dtype, attrs.dims.clone())]),
        Op::AffineGrid(_) => affine_grid(cx, dtype),
        _ => from_extents(cx, dtype),
    }
}

/// The types of results that follow from the extents of operand 0.
fn from_extents(cx: &mut Context<'_>, dtype: DType) -> Result<Vec<Type>> {
    let n_results = cx.n_outputs;
    let Some(x) = cx.dims(0)? else { return Ok(vec![unranked(dtype); n_results.max(1)]) };
    match cx.op {
        Op::Split(attrs) => {
            cx.check_axis(attrs.axis, x.len())?;
            let sum = attrs.sizes.iter().fold(Dim::ZERO, |sum, size| &sum + size);
            cx.unify(&sum, &x[attrs.axis], "sum of parts and extent")?;
            return Ok(split(dtype, x, attrs.axis, &attrs.sizes));
        }
        Op::SplitDynamic(attrs) => {
            cx.check_axis(attrs.axis, x.len())?;
            let sizes = known_or_fresh(cx, "part", n_results);
            return Ok(split(dtype, x, attrs.axis, &sizes));
        }
        _ => {}
    }
    let Some(dims) = extents(cx, x)? else { return Ok(vec![unranked(dtype)]) };
    if dims.iter().any(|dim: &Dim| dim.as_const().is_some_and(|extent| extent < 0)) {
        return Err(cx.fail(format!("the result would be {}", cx.show(&dims))));
    }
    Ok(vec![ranked(dtype, dims)])
}

/// The extents of the only result, from those of operand 0; `None` if not even their number is known.
fn extents(cx: &mut Context<'_>, x: &[Dim]) -> Result<Option<Vec<Dim>>> {
    let dims = match cx.op {
        Op::Transpose(attrs) => transpose(cx, &attrs.perm, x)?,
        Op::Expand(attrs) => expand(cx, &attrs.dims, x)?,
        Op::ExpandDynamic => match (cx.elements(1), cx.vector_len(1)?) {
            (Some(shape), _) => cx.broadcast(x, shape)?,
            (None, Some(len)) => expand_partial(cx, x, len)?,
            (None, None) => return Ok(None),
        },
        Op::Slice(attrs) => slice(cx, attrs, x)?,
        Op::SliceDynamic => slice_dynamic(cx, x)?,
        Op::Pad(attrs) => {
            cx.check_len("before", attrs.before.len(), x.len())?;
            cx.check_len("after", attrs.after.len(), x.len())?;
            x.iter()
                .zip(attrs.before.iter().zip(&attrs.after))
                .map(|(dim, (lo, hi))| &(dim + lo) + hi)
                .collect()
        }
        Op::PadDynamic(_) => pad_dynamic(cx, x)?,
        Op::Gather(attrs) => {
            let Some(indices) = cx.dims(1)? else { return Ok(None) };
            cx.check_axis(attrs.axis, x.len())?;
            [&x[..attrs.axis], indices, &x[attrs.axis + 1..]].concat()
        }
        Op::GatherNd(attrs) => return gather_nd(cx, attrs, x),
        Op::Tile(attrs) => tile(cx, &attrs.repeats, x)?,
        Op::TileDynamic => match cx.elements(1) {
            Some(repeats) => tile(cx, repeats, x)?,
            None => cx.fresh_dims("tiled", x.len()),
        },
        Op::ResizeDynamic(attrs) => {
            let dims = resize_dynamic(cx, attrs, x)?;
            for (from, to) in x.iter().zip(&dims) {
                super::operands::nothing_from_nothing(cx, from, to)?;
            }
            dims
        }
        Op::GridSample(_) => {
            let Some(grid) = cx.dims(1)? else { return Ok(None) };
            cx.check_least_rank(0, x, 3)?;
            cx.check_rank(1, grid, x.len())?;
            [&x[..2], &grid[1..grid.len() - 1]].concat()
        }
        Op::CenterCropPad(attrs) => center_crop_pad(cx, &attrs.axes, x)?,
        _ => return Err(cx.fail("has no type rule here")),
    };
    Ok(Some(dims))
}

/// The elements of operand 1 where they are known, otherwise new symbols.
fn known_or_fresh(cx: &mut Context<'_>, stem: &str, len: usize) -> Vec<Dim> {
    match cx.elements(1) {
        Some(known) => known.to_vec(),
        None => cx.fresh_dims(stem, len),
    }
}

fn transpose(cx: &Context<'_>, perm: &[usize], x: &[Dim]) -> Result<Vec<Dim>> {
    let mut seen = vec![false; x.len()];
    for &axis in perm {
        seen.iter_mut().skip(axis).take(1).for_each(|seen| *seen = true);
    }
    if perm.len() != x.len() || seen.contains(&false) {
        return Err(cx.fail(format!("{perm:?} is not a permutation of {} axes", x.len())));
    }
    Ok(perm.iter().map(|&axis| x[axis].clone()).collect())
}

fn expand(cx: &mut Context<'_>, to: &[Dim], x: &[Dim]) -> Result<Vec<Dim>> {
    if cx.broadcast(x, to)?.len() != to.len() {
        return Err(cx.fail(format!("{} does not broadcast to {}", cx.show(x), cx.show(to))));
    }
    Ok(to.to_vec())
}

fn gather_nd(cx: &mut Context<'_>, attrs: &GatherNdAttrs, x: &[Dim]) -> Result<Option<Vec<Dim>>> {
    let Some(indices) = cx.dims(1)? else { return Ok(None) };
    cx.check_least_rank(1, indices, attrs.batch_dims + 1)?;
    let tuple = indices.last().and_then(Dim::as_const).and_then(|len| usize::try_from(len).ok());
    let Some(tuple) = tuple else { return Ok(None) };
    cx.check_least_rank(0, x, attrs.batch_dims + tuple)?;
    Ok(Some([&indices[..indices.len() - 1], &x[attrs.batch_dims + tuple..]].concat()))
}

fn tile(cx: &Context<'_>, repeats: &[Dim], x: &[Dim]) -> Result<Vec<Dim>> {
    cx.check_len("repeats", repeats.len(), x.len())?;
    Ok(x.iter().zip(repeats).map(|(dim, count)| dim * count).collect())
}

fn center_crop_pad(cx: &mut Context<'_>, axes: &[usize], x: &[Dim]) -> Result<Vec<Dim>> {
    let sizes = known_or_fresh(cx, "cropped", axes.len());
    cx.check_len("shape", sizes.len(), axes.len())?;
    let mut dims = x.to_vec();
    for (&axis, size) in axes.iter().zip(sizes) {
        cx.check_axis(axis, x.len())?;
        dims[axis] = size;
    }
    Ok(dims)
}

/// The extents of an expansion to a shape of which not all elements are known.
fn expand_partial(cx: &mut Context<'_>, x: &[Dim], len: usize) -> Result<Vec<Dim>> {
    let shape = cx.partial_elements(1).unwrap_or_else(|| vec![None; len]);
    let rank = len.max(x.len());
    let mut dims = Vec::with_capacity(rank);
    // What is not known is checked where an extent that it gives is computed: there has to be one.
    let (mut unchecked, mut is_computed) = (None, false);
    for axis in 0..rank {
        let of_x = (axis + x.len()).checked_sub(rank).map(|at| &x[at]);
        let given = match (axis + len).checked_sub(rank) {
            Some(at) => shape[at].clone(),
            None => Some(Dim::ONE),
        };
        dims.push(match (of_x, given) {
            (None, Some(given)) => given,
            (Some(of_x), Some(given)) => match cx.broadcast(std::slice::from_ref(of_x), &[given])?.pop() {
                Some(dim) => dim,
                None => cx.fresh("expanded"),
            },
            // What is not known is 1 or the same.
            (Some(of_x), None) if of_x.as_const().is_some_and(|extent| extent != 1) => {
                unchecked = Some(axis);
                of_x.clone()
            }
            (Some(_) | None, None) => {
                is_computed = true;
                cx.fresh("expanded")
            }
        });
    }
    if let Some(axis) = unchecked.filter(|_| !is_computed) {
        dims[axis] = cx.fresh("expanded");
    }
    Ok(dims)
}

/// The extents of a reshape to a shape of which not all elements are known.
fn reshape_partial(cx: &mut Context<'_>, dtype: DType, allow_zero: bool) -> Result<Vec<Type>> {
    let Some(len) = cx.vector_len(1)? else { return Ok(vec![unranked(dtype)]) };
    let shape = cx.partial_elements(1).unwrap_or_else(|| vec![None; len]);
    let x = cx.dims(0)?;
    let mut dims = Vec::with_capacity(len);
    for (axis, given) in shape.into_iter().enumerate() {
        let kept = x.and_then(|x| x.get(axis)).filter(|_| !allow_zero);
        dims.push(match given {
            Some(dim) if dim.as_const().is_some_and(|extent| extent > 0) => dim,
            Some(dim) if dim.is(0) && kept.is_some() => kept.cloned().unwrap_or(dim),
            Some(_) | None => cx.fresh("reshaped"),
        });
    }
    Ok(vec![ranked(dtype, dims)])
}

fn reshape_dynamic(cx: &mut Context<'_>, dtype: DType, allow_zero: bool) -> Result<Vec<Type>> {
    let Some(shape) = cx.elements(1) else { return reshape_partial(cx, dtype, allow_zero) };
    let x = cx.dims(0)?;
    let mut dims = Vec::with_capacity(shape.len());
    let mut inferred = None;
    for (axis, dim) in shape.iter().enumerate() {
        match dim.as_const() {
            Some(-1) if inferred.replace(axis).is_some() => return Err(cx.fail("more than one extent is -1")),
            Some(-1) => dims.push(Dim::ONE),
            Some(0) if !allow_zero => match x.map(|x| x.get(axis)) {
                Some(Some(dim)) => dims.push(dim.clone()),
                Some(None) => {
                    return Err(cx.fail(format!("extent {axis} is 0, but the operand has no such axis")));
                }
                None => dims.push(cx.fresh("reshaped")),
            },
            Some(extent) if extent < 0 => return Err(cx.fail(format!("bad extent {extent}"))),
            _ => dims.push(dim.clone()),
        }
    }
    match (x, inferred) {
        (Some(x), Some(axis)) => {
            let (total, known) = (Dim::product(x), Dim::product(&dims));
            let exact = total.div_exact(&known);
            let dim = exact.clone().unwrap_or_else(|| total.floor_div(&known));
            if exact.is_none() {
                let covered = &dim * &known;
                cx.unify(&covered, &total, "numbers of elements")?;
            }
            dims[axis] = dim;
        }
        (Some(x), None) => {
            let (from, to) = (Dim::product(x), Dim::product(&dims));
            cx.unify(&from, &to, "numbers of elements")?;
        }
        (None, Some(axis)) => dims[axis] = cx.fresh("reshaped"),
        (None, None) => {}
    }
    Ok(vec![ranked(dtype, dims)])
}

fn concat(cx: &mut Context<'_>, dtype: DType, axis: usize) -> Result<Vec<Type>> {
    let Some(first) = cx.dims(0)? else { return Ok(vec![unranked(dtype)]) };
    cx.check_axis(axis, first.len())?;
    let mut merged = first.to_vec();
    for position in 1..cx.inputs.len() {
        cx.check_same_dtype(0, position)?;
        let Some(dims) = cx.dims(position)? else { return Ok(vec![unranked(dtype)]) };
        cx.check_rank(position, dims, merged.len())?;
        for (at, dim) in dims.iter().enumerate() {
            merged[at] = if at == axis { &merged[at] + dim } else { cx.unify(&merged[at], dim, "extents")? };
        }
    }
    if !merged[axis].is_short_sum() {
        merged[axis] = cx.fresh("joined");
    }
    Ok(vec![ranked(dtype, merged)])
}

fn split(dtype: DType, dims: &[Dim], axis: usize, sizes: &[Dim]) -> Vec<Type> {
    let part = |size: &Dim| {
        let mut dims = dims.to_vec();
        dims[axis] = size.clone();
        ranked(dtype, dims)
    };
    sizes.iter().map(part).collect()
}

fn slice(cx: &Context<'_>, attrs: &SliceAttrs, x: &[Dim]) -> Result<Vec<Dim>> {
    for (what, len) in
        [("starts", attrs.starts.len()), ("steps", attrs.steps.len()), ("sizes", attrs.sizes.len())]
    {
        cx.check_len(what, len, attrs.axes.len())?;
    }
    let mut dims = x.to_vec();
    for (&axis, size) in attrs.axes.iter().zip(&attrs.sizes) {
        cx.check_axis(axis, x.len())?;
        dims[axis] = size.clone();
    }
    Ok(dims)
}

/// What a slice with data bounds means for one axis.
pub(crate) struct SliceBounds {
    /// First element.
    pub(crate) start: Dim,
    /// Number of elements.
    pub(crate) size: Dim,
    /// `start` is only valid if it is not negative, which is not known.
    pub(crate) guard: bool,
}

/// Normalises ONNX slice bounds of an axis of extent `dim` by the clamping rules of the operator, and by what values
/// `symbols` take. `None` where that depends on values not known, or takes more than [`Dim::is_short`] allows to say.
pub(crate) fn slice_bounds(
    dim: &Dim,
    start: &Dim,
    end: &Dim,
    step: i64,
    symbols: &SymbolTable,
) -> Option<SliceBounds> {
    let (zero, minus_one) = (Dim::ZERO, Dim::new(-1));
    let mut guard = false;
    // A bound counted from the start, not yet clamped.
    let mut absolute = |bound: &Dim| match bound.as_const() {
        Some(value) if value >= i64::from(i32::MAX) => Some(dim.clone()),
        Some(value) if value <= i64::from(i32::MIN) => Some(minus_one.clone()),
        Some(value) if value < 0 => Some(dim + bound),
        _ if bound.is_non_negative() => Some(bound.clone()),
        _ if (&-bound - 1).is_non_negative() => Some(dim + bound),
        // Differences of extents (`total - seq`) are offsets from the start; that they are is checked.
        _ => {
            guard = true;
            Some(bound.clone())
        }
    };
    let (start, end) = (absolute(start)?, absolute(end)?);
    let short = |bounds: SliceBounds| (bounds.start.is_short() && bounds.size.is_short()).then_some(bounds);
    if step > 0 {
        // A start past the end makes an empty result, so it need not be clamped to the extent.
        let low = |bound: &Dim| if guard { bound.clone() } else { bound.maximum(&zero) };
        let (start, end) = (low(&start), low(&end).minimum_within(dim, symbols));
        let size = (&end - &start).ceil_div(&Dim::new(step)).maximum(&zero);
        return short(SliceBounds { start, size, guard });
    }
    let last = dim - 1;
    let start = if start == *dim { last.clone() } else { start.maximum(&zero).minimum(&last) };
    let end = if end == minus_one { end } else { end.maximum(&minus_one).minimum(&last) };
    let size = (&start - &end).ceil_div(&Dim::new(step.checked_neg()?)).maximum(&zero);
    short(SliceBounds { start, size, guard })
}

fn slice_dynamic(cx: &mut Context<'_>, x: &[Dim]) -> Result<Vec<Dim>> {
    let rank = x.len();
    let listed = match (cx.input(3), cx.integers(3)) {
        (None, _) => cx.vector_len(1)?.map(|len| (0..len as i64).collect()),
        (Some(_), axes) => axes,
    };
    let Some(listed) = listed else { return Ok(cx.fresh_dims("sliced", rank)) };
    let axes = listed.iter().map(|&axis| cx.normalize_axis(axis, rank)).collect::<Result<Vec<usize>>>()?;
    let steps = match (cx.input(4), cx.integers(4)) {
        (None, _) => Some(vec![1; axes.len()]),
        (Some(_), steps) => steps,
    };
    let mut dims = x.to_vec();
    for (index, &axis) in axes.iter().enumerate() {
        let bound = |position: usize| cx.elements(position).and_then(|elements| elements.get(index));
        let step = steps.as_ref().and_then(|steps| steps.get(index)).copied();
        if step == Some(0) {
            return Err(cx.fail("a step is 0"));
        }
        let bounds = match (bound(1), bound(2), step) {
            (Some(start), Some(end), Some(step)) => slice_bounds(&x[axis], start, end, step, cx.symbols),
            _ => None,
        };
        dims[axis] = match bounds {
            Some(bounds) => {
                if bounds.guard {
                    cx.guard(&Dim::ZERO, Comparison::AtMost, &bounds.start, "the start must not be negative");
                }
                bounds.size
            }
            None => cx.fresh("sliced"),
        };
    }
    Ok(dims)
}

fn pad_dynamic(cx: &mut Context<'_>, x: &[Dim]) -> Result<Vec<Dim>> {
    let axes = match (cx.input(3), cx.integers(3)) {
        (None, _) => Some((0..x.len()).collect::<Vec<usize>>()),
        (Some(_), Some(axes)) => {
            Some(axes.iter().map(|&axis| cx.normalize_axis(axis, x.len())).collect::<Result<Vec<usize>>>()?)
        }
        (Some(_), None) => None,
    };
    let (Some(axes), Some(pads)) = (axes, cx.elements(1)) else {
        return Ok(cx.fresh_dims("padded", x.len()));
    };
    cx.check_len("pads", pads.len(), 2 * axes.len())?;
    let mut dims = x.to_vec();
    for (index, &axis) in axes.iter().enumerate() {
        dims[axis] = &(&dims[axis] + &pads[index]) + &pads[index + axes.len()];
    }
    Ok(dims)
}

fn affine_grid(cx: &mut Context<'_>, dtype: DType) -> Result<Vec<Type>> {
    let size = match (cx.elements(1), cx.vector_len(1)?) {
        (Some(size), _) => size.to_vec(),
        (None, Some(len)) => cx.fresh_dims("grid", len),
        (None, None) => return Ok(vec![unranked(dtype)]),
    };
    if size.len() != 4 && size.len() != 5 {
        return Err(cx.fail("the size must have 4 or 5 entries"));
    }
    let mut dims = vec![size[0].clone()];
    dims.extend_from_slice(&size[2..]);
    dims.push(Dim::from(size.len() - 2));
    Ok(vec![ranked(dtype, dims)])
}

fn resize_dynamic(cx: &mut Context<'_>, attrs: &ResizeAttrs, x: &[Dim]) -> Result<Vec<Dim>> {
    for &axis in &attrs.axes {
        cx.check_axis(axis, x.len())?;
    }
    let mut dims = x.to_vec();
    let sizes = if cx.input(3).is_some() { cx.elements(3).map(<[Dim]>::to_vec) } else { None };
    let scales = if cx.input(2).is_some() { cx.reals(2).filter(|scales| !scales.is_empty()) } else { None };
    let roi = cx.reals(1);
    match (sizes, scales) {
        (Some(sizes), _) => {
            cx.check_len("sizes", sizes.len(), attrs.axes.len())?;
            let sizes = match attrs.policy {
                AspectPolicy::Stretch => Some(sizes),
                AspectPolicy::NotLarger | AspectPolicy::NotSmaller => keep_aspect(attrs, x, &sizes),
            };
            for (index, &axis) in attrs.axes.iter().enumerate() {
                dims[axis] = match &sizes {
                    Some(sizes) => sizes[index].clone(),
                    None => cx.fresh("resized"),
                };
            }
        }
        (None, Some(scales)) => {
            cx.check_len("scales", scales.len(), attrs.axes.len())?;
            let crop = attrs.coordinates == crate::op::CoordinateMode::TfCropAndResize;
            for (index, &axis) in attrs.axes.iter().enumerate() {
                let extent = match (&roi, crop) {
                    (Some(roi), true) if roi.len() == 2 * scales.len() => {
                        roi[index + scales.len()] - roi[index]
                    }
                    _ => 1.0,
                };
                dims[axis] = match scaled(&x[axis], scales[index] * extent) {
                    Some(dim) => dim,
                    None => cx.fresh("resized"),
                };
            }
        }
        (None, None) => {
            for &axis in &attrs.axes {
                dims[axis] = cx.fresh("resized");
            }
        }
    }
    Ok(dims)
}

/// `floor(dim * scale)`, symbolically where the scale is a small ratio.
fn scaled(dim: &Dim, scale: f64) -> Option<Dim> {
    if !(scale.is_finite() && scale > 0.0) {
        return None;
    }
    if let Some(extent) = dim.as_const() {
        // ONNX's scales are binary32 and so is the reference's product.
        return Some(Dim::new((extent as f32 * scale as f32).floor() as i64));
    }
    let denominator = (1..=64).find(|&q| (scale * f64::from(q)).fract() == 0.0)?;
    let numerator = (scale * f64::from(denominator)) as i64;
    Some((dim * &Dim::new(numerator)).floor_div(&Dim::new(i64::from(denominator))))
}

fn keep_aspect(attrs: &ResizeAttrs, x: &[Dim], sizes: &[Dim]) -> Option<Vec<Dim>> {
    let mut scale: Option<f64> = None;
    for (&axis, size) in attrs.axes.iter().zip(sizes) {
        let ratio = size.as_const()? as f64 / x[axis].as_const()? as f64;
        scale = Some(match (scale, attrs.policy) {
            (None, _) => ratio,
            (Some(scale), AspectPolicy::NotSmaller) => scale.max(ratio),
            (Some(scale), AspectPolicy::NotLarger | AspectPolicy::Stretch) => scale.min(ratio),
        });
    }
    let scale = scale?;
    let extent = |&axis: &usize| Some(Dim::new((x[axis].as_const()? as f64 * scale + 0.5).floor() as i64));
    attrs.axes.iter().map(extent).collect()
}
