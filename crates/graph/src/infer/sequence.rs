//! Type rules of sequences, optionals, strings and foreign operators.

use tilewright_dtype::DType;

use super::context::{Context, InferError, ranked, unranked};
use super::merge_types;
use crate::dim::Dim;
use crate::op::{ConcatFromSequenceAttrs, Op, SplitToSequenceAttrs, StringNormalizerAttrs};
use crate::types::{Shape, TensorType, Type};

type Result<T> = std::result::Result<T, InferError>;

pub(super) fn types(cx: &mut Context<'_>) -> Result<Vec<Type>> {
    let ty = match cx.op {
        Op::SequenceConstruct => {
            let mut element = cx.ty(0)?.clone();
            for position in 1..cx.inputs.len() {
                element = merge(cx, &element, cx.ty(position)?)?;
            }
            Type::Sequence(Box::new(element))
        }
        Op::SequenceEmpty(element) => Type::Sequence(Box::new(element.clone())),
        Op::SequenceAt => {
            let element = element(cx)?;
            renewed(cx, element)
        }
        Op::SequenceInsert => {
            let current = element(cx)?;
            let inserted = cx.ty(1)?;
            Type::Sequence(Box::new(merge(cx, &current, inserted)?))
        }
        Op::SequenceErase => Type::Sequence(Box::new(element(cx)?)),
        Op::SequenceLength => {
            element(cx)?;
            ranked(DType::I64, vec![])
        }
        Op::SplitToSequence(attrs) => split_to_sequence(cx, attrs)?,
        Op::ConcatFromSequence(attrs) => concat_from_sequence(cx, attrs)?,
        Op::Optional(None) => Type::Optional(Box::new(cx.ty(0)?.clone())),
        Op::Optional(Some(ty)) => Type::Optional(Box::new(ty.clone())),
        Op::OptionalGet => match cx.ty(0)? {
            Type::Optional(inner) => {
                let inner = (**inner).clone();
                renewed(cx, inner)
            }
            ty @ (Type::Tensor(_) | Type::Sequence(_)) => ty.clone(),
        },
        Op::OptionalHas => ranked(DType::Bool, vec![]),
        Op::StringSplit(_) => return string_split(cx),
        Op::StringNormalizer(attrs) => string_normalizer(cx, attrs)?,
        Op::RegexFullMatch(_) => {
            let shape = cx.tensor(0)?.shape.clone();
            Type::Tensor(TensorType { dtype: DType::Bool, shape })
        }
        Op::TfIdf(attrs) => {
            let Some(dims) = cx.dims(0)? else { return Ok(vec![unranked(DType::F32)]) };
            let columns = attrs.indexes.iter().max().map_or(0, |most| most + 1);
            let mut dims = dims[..dims.len().saturating_sub(1)].to_vec();
            dims.push(columns.into());
            ranked(DType::F32, dims)
        }
        _ => return Err(cx.fail("a foreign operator has no type rule; its result types must be given")),
    };
    Ok(vec![ty])
}

fn split_to_sequence(cx: &mut Context<'_>, attrs: &SplitToSequenceAttrs) -> Result<Type> {
    let TensorType { dtype, shape } = cx.tensor(0)?.clone();
    let shape = match shape {
        Shape::Ranked(mut dims) => {
            cx.check_axis(attrs.axis, dims.len())?;
            match (cx.input(1).is_some(), attrs.keep_dims) {
                (false, false) => {
                    dims.remove(attrs.axis);
                }
                (false, true) => dims[attrs.axis] = Dim::ONE,
                (true, _) => dims[attrs.axis] = cx.fresh("part"),
            }
            Shape::Ranked(dims)
        }
        Shape::Unranked => Shape::Unranked,
    };
    Ok(Type::Sequence(Box::new(Type::Tensor(TensorType { dtype, shape }))))
}

fn concat_from_sequence(cx: &mut Context<'_>, attrs: &ConcatFromSequenceAttrs) -> Result<Type> {
    let Type::Tensor(tensor) = element(cx)? else {
        return Err(cx.fail("the elements must be tensors"));
    };
    let Shape::Ranked(mut dims) = tensor.shape else { return Ok(unranked(tensor.dtype)) };
    let joined = cx.fresh("joined");
    if attrs.new_axis {
        cx.check_axis(attrs.axis, dims.len() + 1)?;
        dims.insert(attrs.axis, joined);
    } else {
        cx.check_axis(attrs.axis, dims.len())?;
        dims[attrs.axis] = joined;
    }
    Ok(ranked(tensor.dtype, dims))
}

/// The parts of each string, and how many they are.
fn string_split(cx: &mut Context<'_>) -> Result<Vec<Type>> {
    let Some(dims) = cx.dims(0)? else {
        return Ok(vec![unranked(DType::String), unranked(DType::I64)]);
    };
    let mut parts = dims.to_vec();
    parts.push(cx.fresh("parts"));
    Ok(vec![ranked(DType::String, parts), ranked(DType::I64, dims.to_vec())])
}

/// Stop words are left out of the last axis.
fn string_normalizer(cx: &mut Context<'_>, attrs: &StringNormalizerAttrs) -> Result<Type> {
    let Some(dims) = cx.dims(0)? else { return Ok(unranked(DType::String)) };
    let mut dims = dims.to_vec();
    if let Some(last) = dims.last_mut().filter(|_| !attrs.stopwords.is_empty()) {
        *last = cx.fresh("kept");
    }
    Ok(ranked(DType::String, dims))
}

fn element(cx: &Context<'_>) -> Result<Type> {
    match cx.ty(0)? {
        Type::Sequence(element) => Ok((**element).clone()),
        Type::Tensor(_) | Type::Optional(_) => Err(cx.fail("operand 0 is not a sequence")),
    }
}

/// The type of a tensor taken out of a sequence or optional: extents that only running shows are its own, since
/// those of other elements may differ.
fn renewed(cx: &mut Context<'_>, ty: Type) -> Type {
    let Type::Tensor(TensorType { dtype, shape: Shape::Ranked(dims) }) = ty else { return ty };
    let renew = |dim: Dim| if cx.is_computed(&dim) { cx.fresh("element") } else { dim };
    ranked(dtype, dims.into_iter().map(renew).collect())
}

fn merge(cx: &mut Context<'_>, a: &Type, b: &Type) -> Result<Type> {
    merge_types(a, b, cx.symbols).ok_or_else(|| cx.fail("element types of the sequence differ"))
}
