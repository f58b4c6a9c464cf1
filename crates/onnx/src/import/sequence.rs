//! Sequences, optionals and strings.

use tilewright_graph::op::{
    CaseAction, ConcatFromSequenceAttrs, Op, Real, RegexAttrs, SplitToSequenceAttrs, StringNormalizerAttrs,
    StringSplitAttrs, TfIdfAttrs, TfIdfMode,
};
use tilewright_graph::{DType, Shape, TensorType, Type, ValueId};

use super::attrs::missing;
use super::cx::{Cx, dtype_from_int, size};
use super::declared::element_type;
use super::error::{Reason, Result};

/// A node that takes the operands as they are and has no attributes.
fn plain(cx: &mut Cx<'_>, op: Op) -> Result<Vec<ValueId>> {
    let inputs = cx.inputs.clone();
    Ok(vec![cx.emit_opt(op, inputs)?])
}

pub(super) fn construct(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    plain(cx, Op::SequenceConstruct)
}

pub(super) fn empty(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let dtype = dtype_from_int(cx.attrs.int("dtype", 1)?)?;
    let element = Type::Tensor(TensorType { dtype, shape: Shape::Unranked });
    Ok(vec![cx.emit(Op::SequenceEmpty(element), &[])?])
}

pub(super) fn at(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    plain(cx, Op::SequenceAt)
}

pub(super) fn insert(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    plain(cx, Op::SequenceInsert)
}

pub(super) fn erase(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    plain(cx, Op::SequenceErase)
}

pub(super) fn length(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    plain(cx, Op::SequenceLength)
}

/// `keepdims` only has a say where no sizes are given.
pub(super) fn split(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let axis = cx.axis_attr(0, cx.input(0)?)?;
    let keep_dims = cx.attrs.flag("keepdims", true)? || cx.opt(1).is_some();
    plain(cx, Op::SplitToSequence(SplitToSequenceAttrs { axis, keep_dims }))
}

pub(super) fn concat(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let axis = cx.required_int("axis")?;
    let new_axis = cx.attrs.flag("new_axis", false)?;
    let axis = if axis >= 0 {
        size("axis", axis)?
    } else {
        let rank = match cx.graph.ty(cx.input(0)?) {
            Type::Sequence(element) => element.as_tensor().and_then(|tensor| tensor.shape.rank()),
            Type::Tensor(_) | Type::Optional(_) => None,
        };
        let rank = rank.ok_or_else(|| Reason::unsupported("`axis` is negative and the rank is not known"))?;
        cx.axis(axis, rank + usize::from(new_axis))?
    };
    plain(cx, Op::ConcatFromSequence(ConcatFromSequenceAttrs { axis, new_axis }))
}

pub(super) fn optional(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let ty = cx.attrs.type_proto("type")?.map(element_type).transpose()?;
    if ty.is_none() && cx.opt(0).is_none() {
        return Err(missing("type"));
    }
    let ty = ty.filter(|_| cx.opt(0).is_none());
    plain(cx, Op::Optional(ty))
}

/// From opset 18 on the operand may be a plain value too.
pub(super) fn optional_get(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    match cx.graph.ty(x) {
        Type::Optional(_) => plain(cx, Op::OptionalGet),
        Type::Tensor(_) | Type::Sequence(_) => Ok(vec![x]),
    }
}

pub(super) fn optional_has(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    match cx.opt(0).map(|x| cx.graph.ty(x)) {
        Some(Type::Optional(_)) => plain(cx, Op::OptionalHas),
        Some(Type::Tensor(_) | Type::Sequence(_)) => Ok(vec![cx.scalar(DType::Bool, 1.0)?]),
        None => Ok(vec![cx.scalar(DType::Bool, 0.0)?]),
    }
}

pub(super) fn string_concat(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    plain(cx, Op::StringConcat)
}

pub(super) fn string_split(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let attrs = StringSplitAttrs {
        delimiter: cx.attrs.text("delimiter", "")?.to_owned(),
        max_split: cx.attrs.opt_int("maxsplit")?.map(|most| size("maxsplit", most)).transpose()?,
    };
    let inputs = cx.inputs.clone();
    cx.emit_n(Op::StringSplit(attrs), inputs, 2)
}

pub(super) fn string_normalizer(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    // Case folding follows Unicode, whatever the locale.
    cx.attrs.accept("locale");
    let actions = [("NONE", CaseAction::None), ("LOWER", CaseAction::Lower), ("UPPER", CaseAction::Upper)];
    let attrs = StringNormalizerAttrs {
        case: cx.keyword("case_change_action", "NONE", &actions)?,
        case_sensitive: cx.attrs.flag("is_case_sensitive", false)?,
        stopwords: cx.attrs.texts("stopwords")?.unwrap_or_default(),
    };
    plain(cx, Op::StringNormalizer(attrs))
}

pub(super) fn regex_full_match(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let pattern = cx.attrs.opt_text("pattern")?.ok_or_else(|| missing("pattern"))?.to_owned();
    plain(cx, Op::RegexFullMatch(RegexAttrs { pattern }))
}

pub(super) fn tf_idf(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let required = |name: &str| cx.sizes_attr(name)?.ok_or_else(|| missing(name));
    let length = |name: &str| size(name, cx.required_int(name)?);
    let modes = [("TF", TfIdfMode::Tf), ("IDF", TfIdfMode::Idf), ("TFIDF", TfIdfMode::TfIdf)];
    let weights = cx.attrs.floats("weights")?.unwrap_or_default();
    let attrs = TfIdfAttrs {
        mode: cx.keyword("mode", "", &modes)?,
        min_length: length("min_gram_length")?,
        max_length: length("max_gram_length")?,
        max_skip: length("max_skip_count")?,
        counts: required("ngram_counts")?,
        indexes: required("ngram_indexes")?,
        pool_integers: cx.attrs.ints("pool_int64s")?.unwrap_or_default().to_vec(),
        pool_strings: cx.attrs.texts("pool_strings")?.unwrap_or_default(),
        weights: weights.iter().map(|&weight| Real(weight)).collect(),
    };
    plain(cx, Op::TfIdf(attrs))
}
