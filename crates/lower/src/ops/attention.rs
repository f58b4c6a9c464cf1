//! Attention: scaled products of queries and keys, masks, softmax, product with values; rotary positions; linear
//! attention with its recurrent state.
//!
//! Source: ONNX `Attention` (opset 25, of which the earlier ones are special cases), `RotaryEmbedding` and
//! `LinearAttention`.

use tilewright_dtype::DType;
use tilewright_graph::op::{AttentionAttrs, LinearAttentionAttrs, LinearAttentionRule, RotaryAttrs};
use tilewright_te::{Expr, UnaryOp};

use super::builder::{Builder, Operand, accumulator, sum_accumulator, wrap_index};
use super::elementwise::apply;
use super::heads::{Heads, Mask, capped};
use super::norm::{exp_of_centred, share};
use super::{Algorithm, Results, attention_blocks};

/// Keys or values with the past ones before them, `[batch, heads, positions, elements]`.
fn with_past(b: &mut Builder, name: &str, new: Heads, past: Option<Operand>, keep: bool) -> Heads {
    if past.is_none() && !keep {
        return new;
    }
    let before = past.as_ref().map_or(Expr::int(0), |past| past.shape[2].clone());
    let length = before.clone() + new.length.clone();
    let shape = [new.x.shape[0].clone(), new.n_heads.clone(), length.clone(), new.size.clone()];
    let joined = b.compute(name, new.x.dtype, &shape, |i| {
        let current = new.at(&i[0], &i[1], &(i[2].clone() - before.clone()), &i[3]);
        match &past {
            Some(past) => Expr::select(i[2].clone().lt(before), past.at(i.to_vec()), current),
            None => current,
        }
    });
    Heads { n_heads: new.n_heads, size: new.size, length, x: joined }
}

/// Softmax over the last axis in which a row that is masked altogether becomes 0.
fn guarded_softmax(b: &mut Builder, scores: &Operand, to: DType, guard: bool) -> Operand {
    let dtype = scores.dtype;
    let rows = &scores.shape[..3];
    let keys = scores.shape[3].clone();
    let along = |i: &[Expr], r: &[Expr]| [i, r].concat();
    let lowest = Expr::lowest(dtype);
    let max = b.reduce("max", dtype, rows, vec![keys.clone()], lowest.clone(), |i, r, acc| {
        acc.max(scores.at(along(i, r)))
    });
    let exp = b.compute("exp", dtype, &scores.shape, |i| {
        let max = max.at(i[..3].to_vec());
        let value = exp_of_centred(scores.at(i.to_vec()) - max.clone());
        if guard { Expr::select(max.equals(lowest), Expr::zero(dtype), value) } else { value }
    });
    let wide = sum_accumulator(dtype, &keys);
    let sum = b.reduce("sum", wide, rows, vec![keys], Expr::zero(wide), |i, r, acc| {
        acc + exp.at(along(i, r)).cast(wide)
    });
    b.compute("softmax", to, &scores.shape, |i| {
        let sum = sum.at(i[..3].to_vec()).cast(dtype);
        let value = share(exp.at(i.to_vec()), sum.clone());
        let zero = Expr::zero(dtype);
        let value = if guard { Expr::select(sum.equals(zero.clone()), zero, value) } else { value };
        value.cast(to)
    })
}

/// Scaled dot product attention.
pub(super) fn attention(b: &mut Builder, attrs: &AttentionAttrs) -> Results {
    let q = b.input(0)?;
    let x_dtype = q.dtype;
    let q = Heads::new(b, q, attrs.q_num_heads)?;
    let (k, v) = (b.input(1)?, b.input(2)?);
    let (k, v) = (Heads::new(b, k, attrs.kv_num_heads)?, Heads::new(b, v, attrs.kv_num_heads)?);
    let past = b.optional(4);
    let past_length = past.as_ref().map_or(Expr::int(0), |past| past.shape[2].clone());
    let keep = b.n_results() > 1;
    let k = with_past(b, "present_key", k, past, keep);
    let past_value = b.optional(5);
    let v = with_past(b, "present_value", v, past_value, keep);

    let dtype = accumulator(x_dtype);
    let shape = vec![q.x.shape[0].clone(), q.n_heads.clone(), q.length.clone(), k.length.clone()];
    let mask =
        Mask { attrs, mask: b.optional(3), past: past_length, nonpad: b.optional(6), shape: shape.clone() };
    // Several query heads share one of keys and values.
    let shared = match (q.n_heads.as_int(), k.n_heads.as_int()) {
        (Some(queries), Some(keys)) if keys > 0 && queries % keys == 0 => queries / keys,
        _ if q.n_heads == k.n_heads => 1,
        _ => return Err(b.no_kernel("the number of query heads is no multiple of that of key heads")),
    };
    let kv_head = |head: &Expr| head.clone().floor_div(Expr::int(shared));

    let scale = match (attrs.scale, q.size.as_int()) {
        (Some(scale), _) => Expr::float_of(dtype, scale.to_f64()),
        (None, Some(size)) => Expr::float_of(dtype, 1.0 / (size as f64).sqrt()),
        (None, None) => Expr::int_of(dtype, 1) / apply(UnaryOp::Sqrt, q.size.clone().cast(dtype)),
    };
    if let Algorithm::Blocks { queries, keys } = b.algorithm() {
        let form = attention_blocks::Form { mask: &mask, scale, softcap: attrs.softcap.to_f64(), shared };
        return Ok(vec![attention_blocks::attention(b, [&q, &k, &v], &form, [queries, keys])?]);
    }
    // Narrow floats are scaled before the product, by the root each, and rounded wherever ONNX has a tensor.
    let narrow = x_dtype != dtype;
    let root = apply(UnaryOp::Sqrt, scale.clone()).cast(x_dtype);
    let factor = |x: Expr| if narrow { (x * root.clone()).cast(dtype) } else { x.cast(dtype) };
    let product = b.reduce("matmul", dtype, &shape, vec![q.size.clone()], Expr::zero(dtype), |i, r, acc| {
        let query = factor(q.at(&i[0], &i[1], &i[2], &r[0]));
        Expr::fma(query, factor(k.at(&i[0], &kv_head(&i[1]), &i[3], &r[0])), acc)
    });
    let scaled = |i: &[Expr]| {
        let product = product.at(i.to_vec());
        if narrow { product.cast(x_dtype) } else { product * scale.clone() }
    };
    let softcap = attrs.softcap.to_f64();
    let score = |i: &[Expr]| capped(scaled(i), softcap);
    let soft = attrs.softmax_precision.unwrap_or(x_dtype);
    let soft = if dtype == DType::F64 { DType::F64 } else { soft };
    let scores = b.compute("scores", soft, &shape, |i| mask.apply(score(i), i).cast(soft));
    let weights = guarded_softmax(b, &scores, x_dtype, mask.may_hide_all());

    let of_heads = [&shape[..3], std::slice::from_ref(&v.size)].concat();
    let extents = vec![k.length.clone()];
    let sum = b.reduce("matmul", dtype, &of_heads, extents, Expr::zero(dtype), |i, r, acc| {
        let weight = weights.at([&i[..3], r].concat());
        Expr::fma(weight.cast(dtype), v.at(&i[0], &kv_head(&i[1]), &r[0], &i[3]).cast(dtype), acc)
    });
    let y_shape = b.result_shape(0)?;
    let mut results = vec![match y_shape.len() {
        3 => b.compute("packed", x_dtype, &y_shape, |i| {
            let (head, element) = v.unpacked(&i[2]);
            sum.at(vec![i[0].clone(), head, i[1].clone(), element]).cast(x_dtype)
        }),
        _ => b.cast("cast", sum, x_dtype),
    }];
    if b.n_results() > 1 {
        results.extend([k.x, v.x]);
    }
    if b.n_results() > 3 {
        let qk = match attrs.qk_output {
            0 => b.compute("qk", x_dtype, &shape, scaled),
            1 => b.compute("qk", x_dtype, &shape, score),
            2 => b.compute("qk", x_dtype, &shape, |i| mask.apply(score(i), i)),
            _ => weights,
        };
        results.push(qk);
    }
    results.truncate(b.n_results());
    Ok(results)
}

/// Rotation of pairs of elements by position.
pub(super) fn rotary_embedding(b: &mut Builder, attrs: &RotaryAttrs) -> Results {
    let (x, cos, sin, positions) = (b.input(0)?, b.input(1)?, b.input(2)?, b.optional(3));
    let heads = Heads::new(b, x.clone(), attrs.num_heads)?;
    let rotated = if attrs.dim == 0 { heads.size.clone() } else { Expr::int(attrs.dim as i64) };
    let half = rotated.clone().floor_div(Expr::int(2));
    let dtype = accumulator(x.dtype);
    Ok(vec![b.compute("rotary", x.dtype, &x.shape, |i| {
        let (head, position, element) = if x.rank() == 4 {
            (i[1].clone(), &i[2], i[3].clone())
        } else {
            let size = heads.size.clone();
            (i[2].clone().floor_div(size.clone()), &i[1], i[2].clone().floor_mod(size))
        };
        let at = |element: &Expr| heads.at(&i[0], &head, position, element).cast(dtype);
        // Which pair the element belongs to, whether it is the second of it, and the other one.
        let (pair, second, other) = if attrs.interleaved {
            let second = element.clone().floor_mod(Expr::int(2)).equals(Expr::int(1));
            let other = Expr::select(second.clone(), element.clone() - 1, element.clone() + 1);
            (element.clone().floor_div(Expr::int(2)), second, other)
        } else {
            let second = element.clone().ge(half.clone());
            let other =
                Expr::select(second.clone(), element.clone() - half.clone(), element.clone() + half.clone());
            let pair = Expr::select(second.clone(), element.clone() - half.clone(), element.clone());
            (pair, second, other)
        };
        let angle = |cache: &Operand| match &positions {
            Some(positions) => {
                let row = positions.at(vec![i[0].clone(), position.clone()]);
                let row = wrap_index(row, &cache.shape[0]);
                cache.at(vec![row, pair.clone()]).cast(dtype)
            }
            None => cache.at(vec![i[0].clone(), position.clone(), pair.clone()]).cast(dtype),
        };
        let (own, other) = (at(&element), at(&other));
        let across = angle(&sin) * other;
        let along = angle(&cos) * own.clone();
        let turned = Expr::select(second, across.clone() + along.clone(), along - across);
        let value =
            if rotated == heads.size { turned } else { Expr::select(element.lt(rotated), turned, own) };
        value.cast(x.dtype)
    })])
}

/// Attention whose memory is a matrix a head, updated step by step; computed in `F32`.
pub(super) fn linear_attention(b: &mut Builder, attrs: &LinearAttentionAttrs) -> Results {
    let (q, k, v) = (b.input(0)?, b.input(1)?, b.input(2)?);
    let x_dtype = q.dtype;
    let (past, decay, beta) = (b.optional(3), b.optional(4), b.optional(5));
    let state_dtype = past.as_ref().map_or(x_dtype, |past| past.dtype);
    let q = Heads::new(b, q, attrs.q_num_heads)?;
    let (k, v) = (Heads::new(b, k, attrs.kv_num_heads)?, Heads::new(b, v, attrs.kv_num_heads)?);
    let dtype = DType::F32;
    let (batch, steps) = (q.x.shape[0].clone(), q.length.clone());
    let shared = Expr::int((attrs.q_num_heads / attrs.kv_num_heads.max(1)).max(1) as i64);
    let (gated, corrected) = match attrs.rule {
        LinearAttentionRule::Linear => (false, false),
        LinearAttentionRule::Gated => (true, false),
        LinearAttentionRule::Delta => (false, true),
        LinearAttentionRule::GatedDelta => (true, true),
    };

    let state_shape = [batch.clone(), k.n_heads.clone(), k.size.clone(), v.size.clone()];
    let state = b.compute("state", dtype, &state_shape, |i| match &past {
        Some(past) => past.at(i.to_vec()).cast(dtype),
        None => Expr::zero(dtype),
    });
    // What each step writes: its value, less what the state already answers to its key.
    let delta_shape = [steps.clone(), batch.clone(), k.n_heads.clone(), v.size.clone()];
    let delta = b.compute("delta", dtype, &delta_shape, |i| v.at(&i[1], &i[2], &i[0], &i[3]).cast(dtype));
    let answer_shape = [steps.clone(), batch.clone(), q.n_heads.clone(), v.size.clone()];
    let answer = b.compute("answer", dtype, &answer_shape, |_| Expr::zero(dtype));

    let factor = |operand: &Operand, t: &Expr, batch: &Expr, head: &Expr, element: Option<&Expr>| {
        let width = operand.shape[2].clone();
        let index = match element {
            _ if width.as_int() == Some(1) => Expr::int(0),
            Some(element) if width != k.n_heads => head.clone() * k.size.clone() + element.clone(),
            _ => head.clone(),
        };
        operand.at(vec![batch.clone(), t.clone(), index]).cast(dtype)
    };
    b.in_order("time", &steps, |steps| {
        if let Some(decay) = decay.as_ref().filter(|_| gated) {
            steps.update("decay", &state_shape, &[], |t, i, _| {
                let kept = apply(UnaryOp::Exp, factor(decay, t, &i[0], &i[1], Some(&i[2])));
                vec![state.store(i.to_vec(), state.at(i.to_vec()) * kept)]
            });
        }
        if corrected {
            steps.update("retrieve", &delta_shape[1..], std::slice::from_ref(&k.size), |t, i, r| {
                let at = [std::slice::from_ref(t), i].concat();
                let known = state.at(vec![i[0].clone(), i[1].clone(), r[0].clone(), i[2].clone()]);
                let key = k.at(&i[0], &i[1], t, &r[0]).cast(dtype);
                vec![delta.store(at.clone(), Expr::fma(-known, key, delta.at(at)))]
            });
        }
        steps.update("write", &state_shape, &[], |t, i, _| {
            let key = k.at(&i[0], &i[1], t, &i[2]).cast(dtype);
            let new = delta.at(vec![t.clone(), i[0].clone(), i[1].clone(), i[3].clone()]);
            let new = match &beta {
                Some(beta) if corrected => new * factor(beta, t, &i[0], &i[1], None),
                Some(_) | None => new,
            };
            vec![state.store(i.to_vec(), Expr::fma(key, new, state.at(i.to_vec())))]
        });
        steps.update("read", &answer_shape[1..], std::slice::from_ref(&k.size), |t, i, r| {
            let at = [std::slice::from_ref(t), i].concat();
            let head = i[1].clone().floor_div(shared.clone());
            let query = q.at(&i[0], &i[1], t, &r[0]).cast(dtype);
            let known = state.at(vec![i[0].clone(), head, r[0].clone(), i[2].clone()]);
            vec![answer.store(at.clone(), Expr::fma(query, known, answer.at(at)))]
        });
    });

    let scale = match (attrs.scale.map(|scale| scale.to_f64()).filter(|&scale| scale != 0.0), k.size.as_int())
    {
        (Some(scale), _) => Expr::float_of(dtype, scale),
        (None, Some(size)) => Expr::float_of(dtype, 1.0 / (size as f64).sqrt()),
        (None, None) => Expr::int_of(dtype, 1) / apply(UnaryOp::Sqrt, k.size.clone().cast(dtype)),
    };
    let shape = b.result_shape(0)?;
    let mut results = vec![b.compute("linear_attention", x_dtype, &shape, |i| {
        let (head, element) =
            (i[2].clone().floor_div(v.size.clone()), i[2].clone().floor_mod(v.size.clone()));
        (answer.at(vec![i[1].clone(), i[0].clone(), head, element]) * scale).cast(x_dtype)
    })];
    if b.n_results() > 1 {
        results.push(b.cast("present_state", state, state_dtype));
    }
    Ok(results)
}
