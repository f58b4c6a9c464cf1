//! Operands whose extents decide no result: scalars, parameters, masks, indices, updates. Kernels read them at the indices that other
//! operands imply, so they must have what is read.
//!
//! Type rules that derive results from such an operand check it themselves.

use super::context::{Context, InferError};
use crate::dim::Dim;
use crate::op::{
    AttentionAttrs, Col2ImAttrs, DeformConvAttrs, GatherNdAttrs, LinearAttentionAttrs, Op, RotaryAttrs,
    StftAttrs,
};

type Result<T> = std::result::Result<T, InferError>;

/// Checks what the type rules leave open. Extents that are not known yet are compared when the model runs.
pub(super) fn check(cx: &mut Context<'_>) -> Result<()> {
    for position in scalars(cx.op) {
        cx.check_scalar(*position)?;
    }
    for position in lists(cx.op) {
        if cx.optional_dims(*position)?.is_some() {
            cx.vector_len(*position)?;
        }
    }
    if let Some((a, b)) = same_dtype(cx.op)
        && cx.input(b).is_some()
    {
        cx.check_same_dtype(a, b)?;
    }
    match cx.op {
        Op::QuantizeLinear(attrs) => quantised(cx, attrs.axis, attrs.block_size),
        Op::DequantizeLinear(attrs) => quantised(cx, attrs.axis, attrs.block_size),
        Op::MatMulInteger => zero_points(cx),
        Op::ConvInteger(_) => {
            let channels = cx.dims(1)?.and_then(|w| w.first().cloned());
            vector_or_scalar(cx, 3, channels.as_ref())
        }
        Op::ConvTranspose(attrs) => {
            let channels = cx.dims(1)?.and_then(|w| w.get(1)).map(|n| n * &Dim::from(attrs.group));
            cx.check_vector(2, channels.as_ref())
        }
        Op::DeformConv(attrs) => deform_conv(cx, attrs),
        Op::CausalConv(_) => causal_conv(cx),
        Op::Col2Im(attrs) => {
            let spatial = attrs.strides.len();
            cx.check_len("dilations", attrs.dilations.len(), spatial)?;
            cx.check_len("pads", attrs.pads.len(), 2 * spatial)?;
            for (position, given) in [(1, attrs.image.len()), (2, attrs.block.len())] {
                if given == 0 {
                    cx.check_vector(position, Some(&Dim::from(spatial)))?;
                } else {
                    cx.check_len("image or block", given, spatial)?;
                }
            }
            col2im(cx, attrs)
        }
        Op::MaxUnpool(attrs) => {
            if let Some(x) = cx.dims(0)? {
                cx.check_extents(1, x, "extents of values and indices")?;
                not_into_nothing(cx, 0, &attrs.dims)?;
            }
            Ok(())
        }
        Op::MaxUnpoolDynamic(attrs) => {
            let Some(x) = cx.dims(0)? else { return Ok(()) };
            cx.check_rank(0, x, attrs.kernel.len() + 2)?;
            cx.check_vector(2, Some(&Dim::from(x.len())))?;
            cx.check_extents(1, x, "extents of values and indices")
        }
        Op::MaxRoiPool(_) => match cx.dims(1)? {
            Some([_, columns]) => cx.unify(columns, &Dim::new(5), "entries of a region").map(drop),
            _ => Ok(()),
        },
        Op::RoiAlign(_) => {
            let Some([rois, columns]) = cx.dims(1)? else { return Ok(()) };
            cx.unify(columns, &Dim::new(4), "entries of a region")?;
            cx.check_vector(2, Some(rois))
        }
        Op::LayerNorm(attrs) | Op::RmsNorm(attrs) => {
            let Some(dims) = cx.dims(0)? else { return Ok(()) };
            cx.check_axis(attrs.axis, dims.len())?;
            (1..cx.inputs.len()).try_for_each(|position| cx.check_broadcasts_to(position, dims))
        }
        Op::Gemm(attrs) => {
            let (Some([a0, a1]), Some([b0, b1])) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
            let rows = if attrs.transpose_a { a1 } else { a0 };
            let columns = if attrs.transpose_b { b0 } else { b1 };
            cx.check_broadcasts_to(2, &[rows.clone(), columns.clone()])
        }
        Op::Attention(attrs) => attention(cx, attrs),
        Op::LinearAttention(attrs) => linear_attention(cx, attrs),
        Op::RotaryEmbedding(attrs) => rotary(cx, attrs),
        Op::GatherElements(attrs) => {
            let (Some(x), Some(indices)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
            cx.check_axis(attrs.axis, x.len())?;
            cx.check_rank(1, indices, x.len())?;
            for axis in (0..x.len()).filter(|&axis| axis != attrs.axis) {
                cx.check_at_most(&indices[axis], &x[axis], "extents of the indices")?;
            }
            not_from_nothing(cx, &x[attrs.axis], indices)
        }
        Op::Gather(attrs) => {
            let (Some(x), Some(indices)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
            cx.check_axis(attrs.axis, x.len())?;
            not_from_nothing(cx, &x[attrs.axis], indices)
        }
        Op::GatherNd(attrs) => gather_nd(cx, attrs),
        Op::ScatterElements(attrs) => {
            let (Some(x), Some(indices)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
            cx.check_axis(attrs.axis, x.len())?;
            cx.check_rank(1, indices, x.len())?;
            for axis in (0..x.len()).filter(|&axis| axis != attrs.axis) {
                cx.check_at_most(&indices[axis], &x[axis], "extents of the indices")?;
            }
            cx.check_extents(2, indices, "extents of indices and updates")?;
            not_into_nothing(cx, 2, x)
        }
        Op::ScatterNd(_) => scatter_nd(cx),
        Op::TensorScatter(attrs) => {
            let (Some(past), Some(update)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
            cx.check_axis(attrs.axis, past.len())?;
            cx.check_rank(1, update, past.len())?;
            for axis in (0..past.len()).filter(|&axis| axis != attrs.axis) {
                cx.unify(&past[axis], &update[axis], "extents of the cache and the update")?;
            }
            cx.check_at_most(&update[attrs.axis], &past[attrs.axis], "the update")?;
            cx.check_vector(2, past.first())
        }
        Op::ReverseSequence(attrs) => {
            let Some(x) = cx.dims(0)? else { return Ok(()) };
            cx.check_axis(attrs.batch_axis, x.len())?;
            cx.check_axis(attrs.time_axis, x.len())?;
            cx.check_vector(1, Some(&x[attrs.batch_axis]))
        }
        Op::GridSample(_) => {
            let (Some(x), Some(grid)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
            cx.check_least_rank(0, x, 3)?;
            cx.check_rank(1, grid, x.len())?;
            cx.unify(&x[0], &grid[0], "batch extents of the image and the grid")?;
            cx.unify(&grid[x.len() - 1], &Dim::from(x.len() - 2), "coordinates of a place").map(drop)
        }
        Op::AffineGrid(_) => affine_grid(cx),
        Op::ResizeDynamic(attrs) => {
            let axes = Dim::from(attrs.axes.len());
            // Empty ones count as absent.
            for position in 2..4 {
                if cx.optional_dims(position)?.is_some_and(|dims| !matches!(dims, [len] if len.is(0))) {
                    cx.check_vector(position, Some(&axes))?;
                }
            }
            cx.check_vector(1, None)
        }
        Op::Resize(attrs) => {
            let Some(x) = cx.dims(0)? else { return Ok(()) };
            cx.check_len("dims", attrs.dims.len(), x.len())?;
            x.iter().zip(&attrs.dims).try_for_each(|(from, to)| nothing_from_nothing(cx, from, to))
        }
        Op::ReduceDynamic(_) => {
            let (Some(x), Some([axes])) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
            cx.check_at_most(axes, &Dim::from(x.len()), "the number of axes")
        }
        Op::SliceDynamic => {
            let Some([starts]) = cx.dims(1)? else { return cx.check_vector(1, None) };
            (2..5).try_for_each(|position| cx.check_vector(position, Some(starts)))
        }
        Op::Compress(_) | Op::CenterCropPad(_) => cx.check_vector(1, None),
        Op::OneHot(_) => cx.check_vector(1, Some(&Dim::new(2))),
        Op::NonMaxSuppression(_) => {
            let (Some(boxes), Some(scores)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
            cx.check_rank(0, boxes, 3)?;
            cx.check_rank(1, scores, 3)?;
            cx.unify(&boxes[0], &scores[0], "batch extents of boxes and scores")?;
            cx.unify(&boxes[1], &scores[2], "numbers of boxes and scores")?;
            cx.unify(&boxes[2], &Dim::new(4), "entries of a box").map(drop)
        }
        Op::Dft(_) => {
            let Some(x) = cx.dims(0)? else { return Ok(()) };
            x.last().map_or(Ok(()), |parts| real_or_complex(cx, parts))
        }
        Op::Stft(attrs) => stft(cx, attrs),
        _ => Ok(()),
    }
}

/// The operands of an operator that have one element, where they are tensors.
fn scalars(op: &Op) -> &'static [usize] {
    match op {
        Op::Clip => &[1, 2],
        Op::ConvInteger(_) => &[2],
        Op::Cumulative(_) | Op::Trilu(_) | Op::TopK(_) | Op::SequenceAt | Op::SequenceErase => &[1],
        Op::Pad(_) => &[1],
        Op::PadDynamic(_) | Op::OneHot(_) | Op::SequenceInsert => &[2],
        Op::Full(_) | Op::If(_) => &[0],
        Op::FullDynamic => &[1],
        Op::Iota(_) | Op::Loop(_) => &[0, 1],
        Op::RangeDynamic => &[0, 1, 2],
        Op::MelWeightMatrix(_) => &[0, 1, 2, 3, 4],
        Op::NonMaxSuppression(_) => &[2, 3, 4],
        Op::Dft(_) => &[1, 2],
        Op::Stft(_) => &[1, 3],
        _ => &[],
    }
}

/// The operands of an operator that have an element an axis, or two.
fn lists(op: &Op) -> &'static [usize] {
    match op {
        Op::ReshapeDynamic(_)
        | Op::ExpandDynamic
        | Op::TileDynamic
        | Op::ReduceDynamic(_)
        | Op::CenterCropPad(_) => &[1],
        Op::SliceDynamic => &[1, 2, 3, 4],
        Op::PadDynamic(_) => &[1, 3],
        Op::FullDynamic => &[0],
        Op::MaxUnpoolDynamic(_) => &[2],
        Op::ResizeDynamic(_) => &[1, 2, 3],
        Op::Col2Im(_) => &[1, 2],
        Op::AffineGrid(_) => &[1],
        _ => &[],
    }
}

/// Two operands of an operator, of which the second may be absent, whose elements become those of one result.
fn same_dtype(op: &Op) -> Option<(usize, usize)> {
    match op {
        Op::Pad(_) | Op::ConvTranspose(_) => Some((0, 1)),
        Op::PadDynamic(_) => Some((0, 2)),
        Op::CausalConv(_) => Some((0, 3)),
        _ => None,
    }
}

/// A vector of the extent given, or one element.
fn vector_or_scalar(cx: &mut Context<'_>, position: usize, len: Option<&Dim>) -> Result<()> {
    match cx.optional_dims(position)? {
        None | Some([]) => Ok(()),
        Some([own]) if own.is(1) => Ok(()),
        Some(_) => cx.check_vector(position, len),
    }
}

/// Scales and zero points: one, one an index of the axis, or one a block along it.
fn quantised(cx: &mut Context<'_>, axis: usize, block_size: usize) -> Result<()> {
    let Some(x) = cx.dims(0)? else { return Ok(()) };
    for position in 1..3 {
        let Some(dims) = cx.optional_dims(position)? else { continue };
        if block_size == 0 || dims.len() != x.len() {
            let along = x.get(axis);
            if along.is_none() {
                cx.check_scalar(position)?;
            }
            vector_or_scalar(cx, position, along)?;
            continue;
        }
        cx.check_axis(axis, x.len())?;
        for (at, (own, dim)) in dims.iter().zip(x).enumerate() {
            let blocks = dim.ceil_div(&Dim::from(block_size));
            cx.unify(
                own,
                if at == axis { &blocks } else { dim },
                "extents of the parameters and the operand",
            )?;
        }
    }
    Ok(())
}

/// Zero points of a product of integers: one, one a row (of A) or column (of B), or such with an axis of 1.
fn zero_points(cx: &mut Context<'_>) -> Result<()> {
    for (position, axis_from_end) in [(2, 2), (3, 1)] {
        let (Some(x), Some(zero)) = (cx.dims(position - 2)?, cx.optional_dims(position)?) else { continue };
        match (zero, x.len().checked_sub(axis_from_end)) {
            ([] | [_], Some(axis)) => vector_or_scalar(cx, position, x.get(axis))?,
            _ => cx.check_scalar(position)?,
        }
    }
    Ok(())
}

/// Columns are the positions of the block in the padded image, rows its elements of all channels.
fn col2im(cx: &mut Context<'_>, attrs: &Col2ImAttrs) -> Result<()> {
    let (Some([_, rows, columns]), false, false) =
        (cx.dims(0)?, attrs.image.is_empty(), attrs.block.is_empty())
    else {
        return Ok(());
    };
    let positions = super::windows::col2im_positions(cx, attrs)?;
    cx.unify(columns, &Dim::product(&positions), "columns and positions of the block")?;
    let elements = Dim::product(&attrs.block.iter().map(|&extent| Dim::from(extent)).collect::<Vec<_>>());
    cx.unify(&(&rows.floor_div(&elements) * &elements), rows, "elements of blocks and rows").map(drop)
}

fn deform_conv(cx: &mut Context<'_>, attrs: &DeformConvAttrs) -> Result<()> {
    let (Some(x), Some(w), Some(offset)) = (cx.dims(0)?, cx.dims(1)?, cx.dims(2)?) else { return Ok(()) };
    cx.check_rank(1, w, x.len())?;
    cx.check_least_rank(0, x, 3)?;
    cx.check_rank(2, offset, x.len())?;
    let group = Dim::from(attrs.offset_group);
    let divides = attrs.offset_group > 0
        && x[1].as_const().is_none_or(|channels| channels % attrs.offset_group as i64 == 0);
    if !divides {
        return Err(cx.fail(format!("{} offset groups do not divide the channels", attrs.offset_group)));
    }
    let elements = &Dim::product(&w[2..]) * &group;
    cx.unify(&x[0], &offset[0], "batch extents of the operand and the offsets")?;
    cx.unify(&offset[1], &(&elements * &Dim::from(x.len() - 2)), "offsets of a window")?;
    if let Some(mask) = cx.optional_dims(4)? {
        cx.check_rank(4, mask, x.len())?;
        cx.unify(&x[0], &mask[0], "batch extents of the operand and the mask")?;
        cx.unify(&mask[1], &elements, "mask elements of a window")?;
    }
    // Offsets and masks are read at every position of the result.
    let positions = super::windows::conv_positions(cx, attrs, x, w)?;
    for (axis, extent) in positions.iter().enumerate() {
        for operand in [2, 4] {
            if let Some(dims) = cx.optional_dims(operand)? {
                cx.unify(&dims[2 + axis], extent, "extents of the offsets or the mask and the result")?;
            }
        }
    }
    Ok(())
}

fn causal_conv(cx: &mut Context<'_>) -> Result<()> {
    let (Some(x), Some(w)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
    cx.check_rank(0, x, 3)?;
    cx.check_rank(1, w, 3)?;
    cx.unify(&x[1], &w[0], "channels of the operand and the weight")?;
    cx.unify(&w[1], &Dim::ONE, "channels a group and one")?;
    cx.check_vector(2, Some(&x[1]))?;
    cx.check_extents(3, &[x[0].clone(), x[1].clone(), &w[2] - 1], "extents of the past state")
}

fn attention(cx: &mut Context<'_>, attrs: &AttentionAttrs) -> Result<()> {
    let (Some(q), Some(k), Some(v)) = (cx.dims(0)?, cx.dims(1)?, cx.dims(2)?) else { return Ok(()) };
    let packed = q.len() == 3;
    for (position, dims) in [q, k, v].into_iter().enumerate() {
        cx.check_rank(position, dims, if packed { 3 } else { 4 })?;
    }
    cx.unify(&q[0], &v[0], "batch extents of queries and values")?;
    let kv_heads = Dim::from(attrs.kv_num_heads);
    let (q_heads, kv_heads, sizes) = if packed {
        for (dims, heads) in [(q, attrs.q_num_heads), (k, attrs.kv_num_heads), (v, attrs.kv_num_heads)] {
            check_heads(cx, &dims[2], heads)?;
        }
        let sizes = [k[2].floor_div(&kv_heads), v[2].floor_div(&kv_heads)];
        (Dim::from(attrs.q_num_heads), kv_heads, sizes)
    } else {
        cx.unify(&k[1], &v[1], "heads of keys and values")?;
        (q[1].clone(), k[1].clone(), [k[3].clone(), v[3].clone()])
    };
    let positions = if packed { 1 } else { 2 };
    let mut total = k[positions].clone();
    if let Some([_, _, past, _]) = cx.optional_dims(4)? {
        total = &total + past;
    }
    for (position, size) in [(4, &sizes[0]), (5, &sizes[1])] {
        if let Some(dims) = cx.optional_dims(position)? {
            cx.check_rank(position, dims, 4)?;
            let expected = [k[0].clone(), kv_heads.clone(), &total - &k[positions], size.clone()];
            cx.check_extents(position, &expected, "extents of past keys or values")?;
        } else if cx.input(9 - position).is_some() {
            return Err(cx.fail("past keys and past values come together"));
        }
    }
    if let Some(mask) = cx.optional_dims(3)? {
        let scores = [q[0].clone(), q_heads, q[positions].clone()];
        let Some((last, others)) = mask.split_last() else { return Err(cx.fail("the mask is a scalar")) };
        // What lies behind the end of the mask is not seen.
        cx.check_at_most(last, &total, "the keys of the mask")?;
        if others.len() > scores.len() {
            return Err(cx.fail(format!("the mask has {} axes, more than the scores", mask.len())));
        }
        let scores = scores[scores.len() - others.len()..].to_vec();
        for (own, dim) in others.iter().zip(&scores) {
            if !own.is(1) {
                cx.unify(own, dim, "extents of the mask and the scores")?;
            }
        }
    }
    cx.check_vector(6, Some(&q[0]))
}

/// That heads divide an extent.
fn check_heads(cx: &mut Context<'_>, extent: &Dim, heads: usize) -> Result<()> {
    if heads == 0 {
        return Err(cx.fail("the numbers of heads must be positive"));
    }
    let heads = Dim::from(heads);
    cx.unify(&(&extent.floor_div(&heads) * &heads), extent, "elements of all heads and the extent").map(drop)
}

fn linear_attention(cx: &mut Context<'_>, attrs: &LinearAttentionAttrs) -> Result<()> {
    let (Some(q), Some(k), Some(v)) = (cx.dims(0)?, cx.dims(1)?, cx.dims(2)?) else { return Ok(()) };
    for (position, dims) in [q, k, v].into_iter().enumerate() {
        cx.check_rank(position, dims, 3)?;
    }
    for (dims, heads) in [(q, attrs.q_num_heads), (k, attrs.kv_num_heads), (v, attrs.kv_num_heads)] {
        check_heads(cx, &dims[2], heads)?;
    }
    if !attrs.q_num_heads.is_multiple_of(attrs.kv_num_heads) {
        return Err(cx.fail("the number of query heads is no multiple of that of key heads"));
    }
    for dims in [k, v] {
        cx.unify(&q[0], &dims[0], "batch extents of queries, keys and values")?;
        cx.unify(&q[1], &dims[1], "lengths of queries, keys and values")?;
    }
    let (q_heads, kv_heads) = (Dim::from(attrs.q_num_heads), Dim::from(attrs.kv_num_heads));
    let (k_size, v_size) = (k[2].floor_div(&kv_heads), v[2].floor_div(&kv_heads));
    cx.unify(&q[2].floor_div(&q_heads), &k_size, "head sizes of queries and keys")?;
    cx.check_extents(3, &[q[0].clone(), kv_heads.clone(), k_size, v_size], "extents of the past state")?;
    for (position, may_be_whole) in [(4, true), (5, false)] {
        let Some(dims) = cx.optional_dims(position)? else { continue };
        cx.check_rank(position, dims, 3)?;
        cx.unify(&q[0], &dims[0], "batch extents of queries and gates")?;
        cx.unify(&q[1], &dims[1], "lengths of queries and gates")?;
        let known = dims[2].is(1) || dims[2] == kv_heads || may_be_whole && dims[2] == k[2];
        if !known {
            cx.unify(&dims[2], &kv_heads, "gates and heads")?;
        }
    }
    Ok(())
}

fn rotary(cx: &mut Context<'_>, attrs: &RotaryAttrs) -> Result<()> {
    let Some(x) = cx.dims(0)? else { return Ok(()) };
    let (length, size) = match x {
        [_, _, length, size] => (length.clone(), size.clone()),
        [_, length, hidden] => {
            check_heads(cx, hidden, attrs.num_heads)?;
            (length.clone(), hidden.floor_div(&Dim::from(attrs.num_heads)))
        }
        _ => return Err(cx.fail(format!("operand 0 must have rank 3 or 4, not {}", cx.show(x)))),
    };
    let rotated = if attrs.dim == 0 { size.clone() } else { Dim::from(attrs.dim) };
    cx.check_at_most(&rotated, &size, "the rotated elements")?;
    let half = rotated.floor_div(&Dim::new(2));
    cx.unify(&(&half * &Dim::new(2)), &rotated, "pairs of rotated elements")?;
    for position in 1..3 {
        let Some(cache) = cx.dims(position)? else { continue };
        if cx.input(3).is_some() {
            cx.check_rank(position, cache, 2)?;
            cx.unify(&cache[1], &half, "angles of a position")?;
        } else {
            cx.check_extents(
                position,
                &[x[0].clone(), length.clone(), half.clone()],
                "extents of the angles",
            )?;
        }
    }
    cx.check_extents(3, &[x[0].clone(), length], "extents of the positions")
}

fn gather_nd(cx: &mut Context<'_>, attrs: &GatherNdAttrs) -> Result<()> {
    let (Some(x), Some(indices)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
    cx.check_least_rank(0, x, attrs.batch_dims)?;
    cx.check_least_rank(1, indices, attrs.batch_dims + 1)?;
    for (a, b) in x.iter().zip(indices).take(attrs.batch_dims) {
        cx.unify(a, b, "batch extents of the operand and the indices")?;
    }
    let Some(width) = tuple_width(cx, indices)? else { return Ok(()) };
    cx.check_least_rank(0, x, attrs.batch_dims + width)?;
    for extent in &x[attrs.batch_dims..attrs.batch_dims + width] {
        not_from_nothing(cx, extent, &indices[..indices.len() - 1])?;
    }
    Ok(())
}

fn scatter_nd(cx: &mut Context<'_>) -> Result<()> {
    let (Some(x), Some(indices)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
    cx.check_least_rank(1, indices, 1)?;
    let Some(width) = tuple_width(cx, indices)? else { return Ok(()) };
    if width > x.len() {
        return Err(cx.fail(format!("indices of {width} entries reach deeper than {}", cx.show(x))));
    }
    let updates = [&indices[..indices.len() - 1], &x[width..]].concat();
    cx.check_extents(2, &updates, "extents of the updates and what they replace")?;
    not_into_nothing(cx, 2, x)
}

/// The number of entries of an index tuple: the last extent of the indices.
fn tuple_width(cx: &Context<'_>, indices: &[Dim]) -> Result<Option<usize>> {
    match indices.last().and_then(Dim::as_const) {
        Some(width) => match usize::try_from(width) {
            Ok(width) => Ok(Some(width)),
            Err(_) => Err(cx.fail("the last extent of the indices is negative")),
        },
        None => Ok(None),
    }
}

fn affine_grid(cx: &mut Context<'_>) -> Result<()> {
    let Some(theta) = cx.dims(0)? else { return Ok(()) };
    cx.check_rank(0, theta, 3)?;
    let spatial = match (cx.elements(1), cx.vector_len(1)?) {
        (Some(size), _) => {
            if let Some(batch) = size.first().cloned() {
                cx.unify(&theta[0], &batch, "batch extents of the maps and the grid")?;
            }
            size.len()
        }
        (None, Some(len)) => len,
        (None, None) => return Ok(()),
    };
    let spatial = Dim::from(spatial.saturating_sub(2));
    cx.unify(&theta[1], &spatial, "rows of a map and spatial axes")?;
    cx.unify(&theta[2], &(&spatial + 1), "columns of a map and spatial axes").map(drop)
}

/// Parts of a number: its real one, or both.
fn real_or_complex(cx: &mut Context<'_>, parts: &Dim) -> Result<()> {
    cx.check_at_most(&Dim::ONE, parts, "the extent of real and imaginary parts")?;
    cx.check_at_most(parts, &Dim::new(2), "the extent of real and imaginary parts")
}

fn stft(cx: &mut Context<'_>, attrs: &StftAttrs) -> Result<()> {
    let Some(x) = cx.dims(0)? else { return Ok(()) };
    let samples = match x {
        [_, samples] => samples,
        [_, samples, parts] => {
            real_or_complex(cx, parts)?;
            samples
        }
        _ => return Err(cx.fail(format!("operand 0 must have rank 2 or 3, not {}", cx.show(x)))),
    };
    let length = match (attrs.frame_length, cx.elements(3)) {
        (Some(length), _) => Some(Dim::new(length)),
        (None, Some([length])) => Some(length.clone()),
        (None, _) => None,
    };
    cx.check_vector(2, length.as_ref())?;
    let window = cx.optional_dims(2)?.and_then(|dims| dims.first().cloned());
    match length.or(window) {
        Some(length) => {
            cx.check_at_most(&Dim::ONE, &length, "the length of a frame")?;
            cx.check_at_most(&length, samples, "the samples of a frame")
        }
        None => Ok(()),
    }
}

/// An extent that is there is made of elements.
pub(super) fn nothing_from_nothing(cx: &mut Context<'_>, from: &Dim, to: &Dim) -> Result<()> {
    if from == to || to.as_const().is_none_or(|to| to <= 0) {
        return Ok(());
    }
    cx.check_at_most(&Dim::ONE, from, "an element to be resized")
}

/// Indices that are there need an element to point to.
fn not_from_nothing(cx: &Context<'_>, extent: &Dim, indices: &[Dim]) -> Result<()> {
    if extent.is(0)
        && !indices.iter().any(|dim| dim.is(0))
        && indices.iter().all(|dim| dim.as_const().is_some())
    {
        return Err(cx.fail("indices point into an axis of extent 0"));
    }
    Ok(())
}

/// Elements that are there need a place to go.
fn not_into_nothing(cx: &mut Context<'_>, elements: usize, into: &[Dim]) -> Result<()> {
    let Some(elements) = cx.dims(elements)? else { return Ok(()) };
    let some = Dim::product(elements).minimum(&Dim::ONE);
    into.iter().try_for_each(|dim| cx.check_at_most(&some, dim, "places for elements that are there"))
}
