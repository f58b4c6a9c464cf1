//! Type rules of normalisations, attention, recurrent layers and Fourier transforms.

use tilewright_dtype::DType;

use super::context::{Context, InferError, ranked, unranked};
use crate::dim::Dim;
use crate::op::{
    AttentionAttrs, DftAttrs, Direction, LayerNormAttrs, LinearAttentionAttrs, Op, RecurrentAttrs,
};
use crate::types::Type;

type Result<T> = std::result::Result<T, InferError>;

pub(super) fn types(cx: &mut Context<'_>) -> Result<Vec<Type>> {
    match cx.op {
        Op::Softmax(attrs) => same_with_axis(cx, attrs.axis),
        Op::LpNorm(attrs) => same_with_axis(cx, attrs.axis),
        Op::LayerNorm(attrs) | Op::RmsNorm(attrs) => layer_norm(cx, attrs),
        Op::InstanceNorm(_) | Op::GroupNorm(_) => {
            if let Some(dims) = cx.dims(0)? {
                cx.check_least_rank(0, dims, 2)?;
                for position in 1..3 {
                    if let Some(parameter) = cx.dims(position)? {
                        cx.check_rank(position, parameter, 1)?;
                        cx.unify(&dims[1], &parameter[0], "channels")?;
                    }
                }
            }
            Ok(vec![cx.ty(0)?.clone()])
        }
        Op::Lrn(_) => {
            if let Some(dims) = cx.dims(0)? {
                cx.check_least_rank(0, dims, 2)?;
            }
            Ok(vec![cx.ty(0)?.clone()])
        }
        Op::RotaryEmbedding(_) => Ok(vec![Type::Tensor(cx.tensor(0)?.clone())]),
        Op::Attention(attrs) => attention(cx, attrs),
        Op::LinearAttention(attrs) => linear_attention(cx, attrs),
        Op::Lstm(attrs) => recurrent(cx, attrs, 4),
        Op::Gru(attrs) => recurrent(cx, attrs, 3),
        Op::Rnn(attrs) => recurrent(cx, attrs, 1),
        Op::Dft(attrs) => dft(cx, attrs),
        _ => stft(cx),
    }
}

fn same_with_axis(cx: &Context<'_>, axis: usize) -> Result<Vec<Type>> {
    if let Some(dims) = cx.dims(0)? {
        cx.check_axis(axis, dims.len())?;
    }
    Ok(vec![cx.ty(0)?.clone()])
}

fn layer_norm(cx: &mut Context<'_>, attrs: &LayerNormAttrs) -> Result<Vec<Type>> {
    let ty = cx.tensor(0)?.clone();
    let stash = attrs.stash.unwrap_or(ty.dtype);
    let Some(dims) = ty.shape.dims() else {
        return Ok(vec![unranked(ty.dtype), unranked(stash), unranked(stash)]);
    };
    cx.check_axis(attrs.axis, dims.len())?;
    for position in 1..cx.inputs.len() {
        if let Some(parameter) = cx.optional_dims(position)? {
            let merged = cx.broadcast(dims, parameter)?;
            if merged.len() != dims.len() {
                return Err(cx.fail(format!("operand {position} does not broadcast to {}", cx.show(dims))));
            }
        }
    }
    let mut statistics = dims.to_vec();
    statistics[attrs.axis..].fill(Dim::ONE);
    let statistics = ranked(stash, statistics);
    let result = Type::Tensor(ty);
    Ok(vec![result, statistics.clone(), statistics])
}

fn attention(cx: &mut Context<'_>, attrs: &AttentionAttrs) -> Result<Vec<Type>> {
    let (dtype, v_dtype) = (cx.dtype(0)?, cx.dtype(2)?);
    let (Some(q), Some(k), Some(v)) = (cx.dims(0)?, cx.dims(1)?, cx.dims(2)?) else {
        return Ok(vec![unranked(dtype), unranked(cx.dtype(1)?), unranked(v_dtype), unranked(dtype)]);
    };
    check_attention_ranks(cx, [q, k, v])?;
    let is_packed = |dims: &[Dim]| dims.len() == 3;
    if is_packed(q) && attrs.q_num_heads == 0 || is_packed(k) && attrs.kv_num_heads == 0 {
        return Err(cx.fail("operands of rank 3 need the numbers of heads"));
    }
    let (heads, kv_heads) = (Dim::from(attrs.q_num_heads), Dim::from(attrs.kv_num_heads));
    // (heads, sequence, head size) of each operand
    let unpack = |dims: &[Dim], heads: &Dim| {
        if is_packed(dims) {
            (heads.clone(), dims[1].clone(), dims[2].floor_div(heads))
        } else {
            (dims[1].clone(), dims[2].clone(), dims[3].clone())
        }
    };
    let (q_heads, q_len, q_size) = unpack(q, &heads);
    let (kv_heads, k_len, k_size) = unpack(k, &kv_heads);
    let (_, v_len, v_size) = unpack(v, &kv_heads);
    let batch = cx.unify(&q[0], &k[0], "batch extents of queries and keys")?;
    cx.unify(&q_size, &k_size, "head sizes of queries and keys")?;
    cx.unify(&k_len, &v_len, "lengths of keys and values")?;
    let past = cx.optional_dims(4)?.filter(|dims| dims.len() == 4).map(|dims| dims[2].clone());
    let total = match past {
        Some(past) => &past + &k_len,
        None => k_len,
    };
    let result = if is_packed(q) {
        vec![batch.clone(), q_len.clone(), &q_heads * &v_size]
    } else {
        vec![batch.clone(), q_heads.clone(), q_len.clone(), v_size.clone()]
    };
    let present = |size: &Dim| vec![batch.clone(), kv_heads.clone(), total.clone(), size.clone()];
    Ok(vec![
        ranked(dtype, result),
        ranked(cx.dtype(1)?, present(&k_size)),
        ranked(v_dtype, present(&v_size)),
        ranked(dtype, vec![batch.clone(), q_heads, q_len, total.clone()]),
    ])
}

/// That queries, and keys with values, are tensors of heads or have them packed.
pub(super) fn check_attention_ranks(cx: &Context<'_>, [q, k, v]: [&[Dim]; 3]) -> Result<()> {
    let rank = |dims: &[Dim]| if dims.len() == 3 { 3 } else { 4 };
    cx.check_rank(0, q, rank(q))?;
    cx.check_rank(1, k, rank(k))?;
    cx.check_rank(2, v, rank(k))
}

fn linear_attention(cx: &mut Context<'_>, attrs: &LinearAttentionAttrs) -> Result<Vec<Type>> {
    let dtype = cx.dtype(0)?;
    let (Some(q), Some(k), Some(v)) = (cx.dims(0)?, cx.dims(1)?, cx.dims(2)?) else {
        return Ok(vec![unranked(dtype), unranked(dtype)]);
    };
    for (position, dims) in [q, k, v].into_iter().enumerate() {
        cx.check_rank(position, dims, 3)?;
    }
    if attrs.q_num_heads == 0 || attrs.kv_num_heads == 0 {
        return Err(cx.fail("the numbers of heads must be positive"));
    }
    let kv_heads = Dim::from(attrs.kv_num_heads);
    let (k_size, v_size) = (k[2].floor_div(&kv_heads), v[2].floor_div(&kv_heads));
    let result = vec![q[0].clone(), q[1].clone(), &v_size * &Dim::from(attrs.q_num_heads)];
    let state_dtype = if cx.input(3).is_some() { cx.dtype(3)? } else { dtype };
    Ok(vec![ranked(dtype, result), ranked(state_dtype, vec![q[0].clone(), kv_heads, k_size, v_size])])
}

fn recurrent(cx: &mut Context<'_>, attrs: &RecurrentAttrs, n_gates: usize) -> Result<Vec<Type>> {
    let dtype = cx.dtype(0)?;
    let is_lstm = matches!(cx.op, Op::Lstm(_));
    let n_results = if is_lstm { 3 } else { 2 };
    let Some(x) = cx.dims(0)? else { return Ok(vec![unranked(dtype); n_results]) };
    cx.check_rank(0, x, 3)?;
    let directions = Dim::new(match attrs.direction {
        Direction::Forward | Direction::Reverse => 1,
        Direction::Bidirectional => 2,
    });
    let hidden = Dim::from(attrs.hidden_size);
    let gates = &hidden * &Dim::from(n_gates);
    let (time, batch) = if attrs.batch_first { (&x[1], &x[0]) } else { (&x[0], &x[1]) };
    let state = match attrs.batch_first {
        false => [directions.clone(), batch.clone(), hidden.clone()],
        true => [batch.clone(), directions.clone(), hidden.clone()],
    };
    let weights = [directions.clone(), gates.clone(), x[2].clone()];
    let recurrence = [directions.clone(), gates.clone(), hidden.clone()];
    let biases = [directions.clone(), &gates * &Dim::new(2)];
    let peepholes = [directions.clone(), &hidden * &Dim::new(3)];
    let expected: [(usize, &[Dim], &str); 7] = [
        (1, &weights, "extents of the weights"),
        (2, &recurrence, "extents of the recurrence weights"),
        (3, &biases, "extents of the biases"),
        (4, std::slice::from_ref(batch), "batch extents of the input and the sequence lengths"),
        (5, &state, "extents of the initial state and the state"),
        (6, &state, "extents of the initial cell state and the state"),
        (7, &peepholes, "extents of the peephole weights"),
    ];
    for (position, expected, what) in expected {
        let Some(dims) = cx.optional_dims(position)? else { continue };
        cx.check_rank(position, dims, expected.len())?;
        for (dim, expected) in dims.iter().zip(expected) {
            cx.unify(dim, expected, what)?;
        }
    }
    let sequence = match attrs.batch_first {
        false => vec![time.clone(), directions, batch.clone(), hidden],
        true => vec![batch.clone(), time.clone(), directions, hidden],
    };
    let mut types = vec![ranked(dtype, sequence)];
    types.resize(n_results, ranked(dtype, state.to_vec()));
    Ok(types)
}

fn dft(cx: &mut Context<'_>, attrs: &DftAttrs) -> Result<Vec<Type>> {
    let dtype = cx.dtype(0)?;
    let Some(dims) = cx.dims(0)? else { return Ok(vec![unranked(dtype)]) };
    cx.check_least_rank(0, dims, 2)?;
    let mut result = dims.to_vec();
    let last = result.len() - 1;
    result[last] = Dim::new(if attrs.inverse && attrs.onesided { 1 } else { 2 });
    let axis = match (attrs.axis, cx.integers(2).as_deref()) {
        (Some(axis), _) => Some(axis),
        (None, Some(&[axis])) => Some(cx.normalize_axis(axis, dims.len())?),
        (None, _) => None,
    };
    let Some(axis) = axis else {
        let spectrum = cx.fresh_dims("dft", last);
        result[..last].clone_from_slice(&spectrum);
        return Ok(vec![ranked(dtype, result)]);
    };
    cx.check_axis(axis, last)?;
    let length = match (&attrs.length, cx.elements(1), cx.input(1)) {
        (Some(length), _, _) => Some(length.clone()),
        (None, Some([length]), _) => Some(length.clone()),
        (None, _, Some(_)) => None,
        (None, _, None) if attrs.inverse && attrs.onesided => Some(&(&dims[axis] - 1) * &Dim::new(2)),
        (None, _, None) => Some(dims[axis].clone()),
    };
    result[axis] = match length {
        Some(length) => bins(length, attrs.onesided && !attrs.inverse),
        None => cx.fresh("dft"),
    };
    Ok(vec![ranked(dtype, result)])
}

/// Elements of a spectrum, or of its half without redundancy, of `length` samples.
fn bins(length: Dim, halved: bool) -> Dim {
    if halved { &length.floor_div(&Dim::new(2)) + 1 } else { length }
}

fn stft(cx: &mut Context<'_>) -> Result<Vec<Type>> {
    let Op::Stft(attrs) = cx.op else { return Err(cx.fail("has no type rule here")) };
    let dtype: DType = cx.dtype(0)?;
    let Some(signal) = cx.dims(0)? else { return Ok(vec![unranked(dtype)]) };
    cx.check_least_rank(0, signal, 2)?;
    let step = attrs.frame_step.or_else(|| cx.integers(1).filter(|step| step.len() == 1).map(|step| step[0]));
    let window = cx.optional_dims(2)?.and_then(|dims| dims.first().cloned());
    let length = match (attrs.frame_length, cx.elements(3)) {
        (Some(length), _) => Some(Dim::new(length)),
        (None, Some([length])) => Some(length.clone()),
        (None, _) if cx.input(3).is_none() => window,
        (None, _) => None,
    };
    let frames = match (step, &length) {
        (Some(..=0), _) => return Err(cx.fail("the step between frames must be positive")),
        (Some(step), Some(length)) => &(&signal[1] - length).floor_div(&Dim::new(step)) + 1,
        (Some(_), None) | (None, _) => cx.fresh("frames"),
    };
    let bins = match length {
        Some(length) => bins(length, attrs.onesided),
        None => cx.fresh("bins"),
    };
    Ok(vec![ranked(dtype, vec![signal[0].clone(), frames, bins, Dim::new(2)])])
}
