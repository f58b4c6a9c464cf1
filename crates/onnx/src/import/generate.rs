//! Constants, ranges and random numbers.

use bytes::Bytes;
use tilewright_graph::op::{
    BinaryOp, Distribution, EyeAttrs, IotaAttrs, MultinomialAttrs, Op, RandomAttrs, Real, UnaryOp,
};
use tilewright_graph::tensor::Tensor;
use tilewright_graph::{DType, Dim, ValueId};

use super::attrs::{Attrs, missing};
use super::cx::{Cx, dtype_from_int};
use super::error::{Reason, Result};
use crate::model::OnnxModel;

/// The value of a `Constant` node, which comes in one of several attributes.
pub(super) fn constant(attrs: &Attrs<'_>, model: &OnnxModel) -> Result<Tensor> {
    let strings = |dims: Vec<usize>, strings: &[Bytes]| {
        let strings = strings.iter().map(|string| string.to_vec()).collect();
        Tensor::from_strings(dims, strings).map_err(|error| Reason::malformed(error.to_string()))
    };
    let mut values = Vec::new();
    values.extend(attrs.tensor("value", model)?);
    values.extend(attrs.sparse_tensor("sparse_value", model)?);
    values.extend(attrs.opt_float("value_float")?.map(Tensor::scalar));
    values.extend(attrs.floats("value_floats")?.map(Tensor::vector));
    values.extend(attrs.opt_int("value_int")?.map(Tensor::scalar));
    values.extend(attrs.ints("value_ints")?.map(Tensor::vector));
    if let Some(string) = attrs.raw_string("value_string")? {
        values.push(strings(Vec::new(), std::slice::from_ref(string))?);
    }
    if let Some(list) = attrs.raw_strings("value_strings")? {
        values.push(strings(vec![list.len()], list)?);
    }
    match (values.pop(), values.len()) {
        (Some(value), 0) => Ok(value),
        (Some(_), _) => Err(Reason::malformed("several attributes give a value")),
        (None, _) => Err(Reason::malformed("no attribute gives a value")),
    }
}

pub(super) fn constant_of_shape(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let shape = cx.input(0)?;
    let value = match cx.attrs.tensor("value", cx.model)? {
        Some(value) => {
            value.reshaped(Vec::new()).ok_or_else(|| Reason::malformed("`value` has several elements"))?
        }
        None => Tensor::scalar(0.0f32),
    };
    let value = cx.constant(value)?;
    Ok(vec![cx.emit(Op::FullDynamic, &[shape, value])?])
}

pub(super) fn range(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    if cx.opset >= 27 {
        // The type of intermediate sums, which only matters to types narrower than it.
        cx.attrs.accept("stash_type");
    }
    let mut operands = Vec::new();
    for position in 0..3 {
        let operand = cx.input(position)?;
        operands.push(cx.reshape(operand, Vec::new())?);
    }
    if cx.dtype(operands[0])?.is_float() {
        return float_range(cx, &operands);
    }
    Ok(vec![cx.emit(Op::RangeDynamic, &operands)?])
}

/// `start + i * delta` for `ceil((limit - start) / delta)` elements: the difference in the operands' type, as ONNX
/// Runtime has it, or F32 if they are narrower; the quotient in F64.
fn float_range(cx: &mut Cx<'_>, operands: &[ValueId]) -> Result<Vec<ValueId>> {
    let dtype = cx.dtype(operands[0])?;
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let known = operands.iter().map(|&operand| cx.known_scalar(operand)).collect::<Option<Vec<_>>>();
    let operands = operands.iter().map(|&operand| cx.cast(operand, wide)).collect::<Result<Vec<_>>>()?;
    let &[start, limit, delta] = operands.as_slice() else { return Err(Reason::arity("takes 3 operands")) };
    let indices = match known.as_deref() {
        Some(&[start, limit, delta]) => {
            let distance =
                if dtype == DType::F64 { limit - start } else { f64::from(limit as f32 - start as f32) };
            let count = (distance / delta).ceil();
            if !count.is_finite() {
                return Err(Reason::malformed(format!("the number of elements would be {count}")));
            }
            let (zero, one) = (cx.scalar(DType::I64, 0.0)?, cx.scalar(DType::I64, 1.0)?);
            let len = Dim::new(count.max(0.0) as i64);
            cx.emit(Op::Iota(IotaAttrs { len }), &[zero, one])?
        }
        _ => {
            let distance = cx.binary(BinaryOp::Sub, limit, start)?;
            let (distance, divisor) = (cx.cast(distance, DType::F64)?, cx.cast(delta, DType::F64)?);
            let count = cx.binary(BinaryOp::Div, distance, divisor)?;
            let count = cx.unary(UnaryOp::Ceil, count)?;
            let count = cx.binary_scalar(BinaryOp::Max, count, 0.0)?;
            let (zero, one) = (cx.scalar(DType::I64, 0.0)?, cx.scalar(DType::I64, 1.0)?);
            // A delta of 0 is a step of 0, which ends the run with an error.
            let stands = cx.binary_scalar(BinaryOp::Equal, divisor, 0.0)?;
            let count = cx.cast(count, DType::I64)?;
            let step = cx.select(stands, zero, one)?;
            cx.emit(Op::RangeDynamic, &[zero, count, step])?
        }
    };
    let indices = cx.cast(indices, wide)?;
    let offsets = cx.binary(BinaryOp::Mul, indices, delta)?;
    let values = cx.binary(BinaryOp::Add, start, offsets)?;
    Ok(vec![cx.cast(values, dtype)?])
}

pub(super) fn eye_like(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let dtype = cx.dtype_attr("dtype")?.map_or_else(|| cx.dtype(x), Ok)?;
    let attrs = EyeAttrs { dims: cx.ranked(x)?, diagonal: cx.attrs.int("k", 0)?, dtype };
    Ok(vec![cx.emit(Op::Eye(attrs), &[])?])
}

/// `RandomUniform` and `RandomNormal`; those `Like` an operand take its extents and type.
pub(super) fn random(cx: &mut Cx<'_>, distribution: Distribution) -> Result<Vec<ValueId>> {
    let like = cx.opt(0);
    let (dims, default) = match like {
        Some(like) => (cx.ranked(like)?, cx.dtype(like)?),
        None => {
            let shape = cx.attrs.ints("shape")?.ok_or_else(|| missing("shape"))?;
            (shape.iter().map(|&extent| Dim::from(extent)).collect(), DType::F32)
        }
    };
    let (a, b) = match distribution {
        Distribution::Uniform => (cx.attrs.float("low", 0.0)?, cx.attrs.float("high", 1.0)?),
        Distribution::Normal => (cx.attrs.float("mean", 0.0)?, cx.attrs.float("scale", 1.0)?),
    };
    let dtype = cx.dtype_attr("dtype")?.unwrap_or(default);
    let seed = cx.attrs.opt_float("seed")?.map(Real);
    let stream = stream(cx);
    let attrs = RandomAttrs { distribution, a: Real(a), b: Real(b), seed, stream, dtype, dims };
    Ok(vec![cx.emit(Op::Random(attrs), &[])?])
}

/// 1 with the probability that the operand holds.
pub(super) fn bernoulli(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let dtype = cx.dtype(x)?;
    let to = cx.dtype_attr("dtype")?.unwrap_or(dtype);
    let seed = cx.attrs.opt_float("seed")?.map(Real);
    // Numbers of few digits would be below many a probability too often.
    let dtype = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let (x, dims) = (cx.cast(x, dtype)?, cx.ranked(x)?);
    let noise = unit_noise(cx, seed, dtype, dims)?;
    let hit = cx.binary(BinaryOp::Less, noise, x)?;
    Ok(vec![cx.cast(hit, to)?])
}

/// Numbers of the uniform distribution on [0, 1).
pub(super) fn unit_noise(
    cx: &mut Cx<'_>,
    seed: Option<Real>,
    dtype: DType,
    dims: Vec<Dim>,
) -> Result<ValueId> {
    let (distribution, stream) = (Distribution::Uniform, stream(cx));
    let attrs = RandomAttrs { distribution, a: Real(0.0), b: Real(1.0), seed, stream, dtype, dims };
    cx.emit(Op::Random(attrs), &[])
}

/// The stream of a node: the FNV-1a hash of its name, so that it is the same whatever else is in the model.
fn stream(cx: &Cx<'_>) -> i64 {
    let bytes = cx.provenance.names().flat_map(str::bytes);
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    bytes.fold(0xcbf2_9ce4_8422_2325, fold).cast_signed()
}

pub(super) fn multinomial(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let attrs = MultinomialAttrs {
        sample_size: cx.size_attr("sample_size", 1)?,
        seed: cx.attrs.opt_float("seed")?.map(Real),
        stream: stream(cx),
        dtype: dtype_from_int(cx.attrs.int("dtype", 6)?)?,
    };
    Ok(vec![cx.emit(Op::Multinomial(attrs), &[x])?])
}
