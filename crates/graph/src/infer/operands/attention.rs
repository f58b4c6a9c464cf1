//! Operands of attention: masks, past keys and values, gates, angles.

use super::super::context::{Context, InferError};
use super::super::nn::check_attention_ranks;
use crate::dim::Dim;
use crate::op::{AttentionAttrs, LinearAttentionAttrs, RotaryAttrs};

type Result<T> = std::result::Result<T, InferError>;

pub(super) fn attention(cx: &mut Context<'_>, attrs: &AttentionAttrs) -> Result<()> {
    let (Some(q), Some(k), Some(v)) = (cx.dims(0)?, cx.dims(1)?, cx.dims(2)?) else { return Ok(()) };
    check_attention_ranks(cx, [q, k, v])?;
    cx.unify(&q[0], &v[0], "batch extents of queries and values")?;
    let is_packed = |dims: &[Dim]| dims.len() == 3;
    let (q_heads, queries) = if is_packed(q) {
        check_heads(cx, &q[2], attrs.q_num_heads)?;
        (Dim::from(attrs.q_num_heads), &q[1])
    } else {
        (q[1].clone(), &q[2])
    };
    let (kv_heads, keys, sizes) = if is_packed(k) {
        check_heads(cx, &k[2], attrs.kv_num_heads)?;
        check_heads(cx, &v[2], attrs.kv_num_heads)?;
        let heads = Dim::from(attrs.kv_num_heads);
        let sizes = [k[2].floor_div(&heads), v[2].floor_div(&heads)];
        (heads, &k[1], sizes)
    } else {
        cx.unify(&k[1], &v[1], "heads of keys and values")?;
        (k[1].clone(), &k[2], [k[3].clone(), v[3].clone()])
    };
    let mut total = keys.clone();
    if let Some([_, _, past, _]) = cx.optional_dims(4)? {
        total = &total + past;
    }
    for (position, size) in [(4, &sizes[0]), (5, &sizes[1])] {
        if let Some(dims) = cx.optional_dims(position)? {
            cx.check_rank(position, dims, 4)?;
            let expected = [k[0].clone(), kv_heads.clone(), &total - keys, size.clone()];
            cx.check_extents(position, &expected, "extents of past keys or values")?;
        } else if cx.input(9 - position).is_some() {
            return Err(cx.fail("past keys and past values come together"));
        }
    }
    if let Some(mask) = cx.optional_dims(3)? {
        let scores = [q[0].clone(), q_heads, queries.clone()];
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

pub(super) fn linear_attention(cx: &mut Context<'_>, attrs: &LinearAttentionAttrs) -> Result<()> {
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

pub(super) fn rotary(cx: &mut Context<'_>, attrs: &RotaryAttrs) -> Result<()> {
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
