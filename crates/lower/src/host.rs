//! Which nodes run on the host, by which operator, and which values no buffer can hold.

use tilewright_dtype::DType;
use tilewright_graph::op::{
    BinaryOp, CaseAction, Distribution, RandomAttrs, Real, StringNormalizerAttrs, TfIdfAttrs, TfIdfMode,
};
use tilewright_graph::{Graph, Node, NodeId, Op, Tensor, Type, ValueId};
use tilewright_host::{
    Case, CompressAttrs, ConcatAttrs, HostOp, MultinomialAttrs, NgramAttrs, NgramMode, NmsAttrs,
    NormalizeAttrs, Pool, SplitAttrs, StringSplitAttrs, StringsAttrs, UniqueAttrs,
};

/// Whether a value is a host value: no tensor, a tensor of strings, or one whose rank is not known.
pub fn is_host_value(graph: &Graph, value: ValueId) -> bool {
    match graph.ty(value) {
        Type::Tensor(tensor) => tensor.dtype == DType::String || tensor.shape.rank().is_none(),
        Type::Sequence(_) | Type::Optional(_) => true,
    }
}

/// The host operator that runs a node, if one does.
///
/// # Errors
/// Attributes that the operator cannot work with: the reason.
pub fn host_op(graph: &Graph, node: NodeId) -> Result<Option<HostOp>, String> {
    let node = graph.node(node);
    let Some(op) = operator(graph, node) else { return Ok(None) };
    op.check().map(|()| Some(op))
}

/// Whether a node runs on the host, and so wants its operands dense in row-major order.
pub fn runs_on_host(graph: &Graph, node: NodeId) -> bool {
    operator(graph, graph.node(node)).is_some()
}

fn operator(graph: &Graph, node: &Node) -> Option<HostOp> {
    let axis = |axis: usize| axis as u32;
    Some(match &node.op {
        Op::NonZero => HostOp::NonZero,
        Op::Compress(attrs) => HostOp::Compress(CompressAttrs { axis: attrs.axis.map(axis) }),
        Op::Unique(attrs) => HostOp::Unique(UniqueAttrs { axis: attrs.axis.map(axis), sorted: attrs.sorted }),
        Op::NonMaxSuppression(attrs) => {
            HostOp::NonMaxSuppression(NmsAttrs { center_point_box: attrs.center_point_box })
        }
        Op::TfIdf(attrs) => HostOp::Ngrams(ngrams(attrs)),
        Op::SequenceConstruct => HostOp::SequenceConstruct,
        Op::SequenceEmpty(_) => HostOp::SequenceEmpty,
        Op::SequenceAt => HostOp::SequenceAt,
        Op::SequenceInsert => HostOp::SequenceInsert,
        Op::SequenceErase => HostOp::SequenceErase,
        Op::SequenceLength => HostOp::SequenceLength,
        Op::SplitToSequence(attrs) => {
            HostOp::SplitToSequence(SplitAttrs { axis: axis(attrs.axis), keep_dims: attrs.keep_dims })
        }
        Op::ConcatFromSequence(attrs) => {
            HostOp::ConcatFromSequence(ConcatAttrs { axis: axis(attrs.axis), new_axis: attrs.new_axis })
        }
        Op::Optional(None) => HostOp::OptionalSome,
        Op::Optional(Some(_)) => HostOp::OptionalNone,
        Op::OptionalGet => HostOp::OptionalGet,
        Op::OptionalHas => HostOp::OptionalHas,
        Op::Random(attrs) => HostOp::Random(random(attrs)),
        Op::Multinomial(attrs) => HostOp::Multinomial(MultinomialAttrs {
            seed: seed(attrs.seed),
            stream: attrs.stream.cast_unsigned(),
            dtype: attrs.dtype,
        }),
        Op::StringConcat => HostOp::StringConcat,
        Op::StringSplit(attrs) => HostOp::StringSplit(StringSplitAttrs {
            delimiter: attrs.delimiter.clone(),
            max_split: attrs.max_split.map(|most| most as u64),
        }),
        Op::StringNormalizer(attrs) => HostOp::StringNormalize(normalize(attrs)),
        Op::RegexFullMatch(attrs) => HostOp::RegexFullMatch(attrs.pattern.clone()),
        // A tensor whose rank is found to be what the model declares, or forgotten.
        Op::Identity if moves(graph, node) => HostOp::Copy,
        Op::Binary(BinaryOp::Equal) if of_strings(graph, node) => HostOp::StringEqual,
        _ => return None,
    })
}

/// Whether a node takes a value from a buffer to a host value, or back.
fn moves(graph: &Graph, node: &Node) -> bool {
    let (input, output) = (node.input(0), node.output());
    input.zip(output).is_some_and(|(a, b)| is_host_value(graph, a) != is_host_value(graph, b))
}

fn of_strings(graph: &Graph, node: &Node) -> bool {
    let is_string = |&value: &ValueId| graph.tensor_type(value).is_some_and(|ty| ty.dtype == DType::String);
    node.inputs.iter().flatten().any(is_string)
}

fn random(attrs: &RandomAttrs) -> tilewright_host::RandomAttrs {
    tilewright_host::RandomAttrs {
        distribution: match attrs.distribution {
            Distribution::Uniform => tilewright_host::Distribution::Uniform,
            Distribution::Normal => tilewright_host::Distribution::Normal,
        },
        a: attrs.a.0,
        b: attrs.b.0,
        seed: seed(attrs.seed),
        stream: attrs.stream.cast_unsigned(),
        dtype: attrs.dtype,
    }
}

fn seed(seed: Option<Real>) -> Option<u32> {
    seed.map(|seed| seed.0.to_bits())
}

fn ngrams(attrs: &TfIdfAttrs) -> NgramAttrs {
    let wide = |list: &[usize]| list.iter().map(|&n| n as u64).collect();
    NgramAttrs {
        mode: match attrs.mode {
            TfIdfMode::Tf => NgramMode::Tf,
            TfIdfMode::Idf => NgramMode::Idf,
            TfIdfMode::TfIdf => NgramMode::TfIdf,
        },
        min_length: attrs.min_length.try_into().unwrap_or(u32::MAX),
        max_length: attrs.max_length.try_into().unwrap_or(u32::MAX),
        max_skip: attrs.max_skip.try_into().unwrap_or(u32::MAX),
        starts: wide(&attrs.counts),
        columns: wide(&attrs.indexes),
        pool: if attrs.pool_strings.is_empty() {
            Pool::Integers(attrs.pool_integers.clone())
        } else {
            Pool::Strings(attrs.pool_strings.clone())
        },
        weights: attrs.weights.iter().map(|weight| weight.0).collect(),
    }
}

fn normalize(attrs: &StringNormalizerAttrs) -> NormalizeAttrs {
    NormalizeAttrs {
        case: match attrs.case {
            CaseAction::None => Case::Keep,
            CaseAction::Lower => Case::Lower,
            CaseAction::Upper => Case::Upper,
        },
        case_sensitive: attrs.case_sensitive,
        stopwords: attrs.stopwords.clone(),
    }
}

/// The operator that gives a constant of strings; `None` for other constants, and for strings that are no UTF-8.
pub fn constant(tensor: &Tensor) -> Option<HostOp> {
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).ok();
    let strings = tensor.strings()?.iter().map(text).collect::<Option<_>>()?;
    let dims = tensor.dims().iter().map(|&dim| dim as u64).collect();
    Some(HostOp::Strings(StringsAttrs { dims, strings }))
}
