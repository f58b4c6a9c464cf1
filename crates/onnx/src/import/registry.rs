//! The table of ONNX operators: which function converts each, from which opset to which, with how many inputs.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use tilewright_graph::ValueId;
use tilewright_graph::op::{
    ActivationKind, BinaryOp, CumulativeKind, Distribution, Extreme, ReduceKind, UnaryOp,
};

use super::cx::Cx;
use super::error::{FaultKind, Reason, Result};
use super::importer::{Converted, Importer, Scope, Site};
use super::{
    attention, control, conv, elementwise, flex_attention, generate, index, linear, loss, names, norm, pool,
    quantize,
};
use super::{recurrent, reduce, resize, scan, sequence, sequence_map, shape, signal, training};
use crate::proto::{MAX_OPSET, NodeProto};

/// Converts a node, all operands being values of the graph, and gives its results.
type NodeConvert = fn(&mut Cx<'_>) -> Result<Vec<ValueId>>;

/// Converts a node with subgraphs; `None` if faults inside are recorded already.
type ControlConvert = fn(&mut Importer<'_>, &mut Scope, Site<'_>) -> Converted;

#[derive(Clone, Copy)]
pub(super) enum Convert {
    Node(NodeConvert),
    /// `Constant`, which needs no node until it is used.
    Constant,
    Control(ControlConvert),
}

/// What is known about an operator.
pub(super) struct Row {
    name: &'static str,
    /// First opset that has it.
    since: i64,
    /// Last opset that has it.
    until: i64,
    least_inputs: usize,
    most_inputs: usize,
    pub(super) convert: Convert,
}

impl Row {
    pub(super) fn check_inputs(&self, node: &NodeProto) -> Result<()> {
        let n_inputs = node.input.len();
        let (least, most) = (self.least_inputs, self.most_inputs);
        if (least..=most).contains(&n_inputs) {
            return Ok(());
        }
        let takes = match most {
            usize::MAX => format!("at least {least}"),
            most if most == least => least.to_string(),
            most => format!("{least} to {most}"),
        };
        Err(Reason::arity(format!("has {n_inputs} inputs, but takes {takes}")))
    }

    const fn until(mut self, until: i64) -> Row {
        self.until = until;
        self
    }
}

/// Upper end of the number of inputs of variadic operators.
const MANY: usize = usize::MAX;

const fn row(name: &'static str, since: i64, inputs: (usize, usize), convert: NodeConvert) -> Row {
    let convert = Convert::Node(convert);
    Row { name, since, until: MAX_OPSET, least_inputs: inputs.0, most_inputs: inputs.1, convert }
}

const fn control(name: &'static str, since: i64, inputs: (usize, usize), convert: ControlConvert) -> Row {
    let convert = Convert::Control(convert);
    Row { name, since, until: MAX_OPSET, least_inputs: inputs.0, most_inputs: inputs.1, convert }
}

/// The row of a node's operator at an opset.
pub(super) fn find(node: &NodeProto, opset: i64) -> Result<&'static Row> {
    /// Rows by domain and name; the default domain is empty.
    type Rows = FxHashMap<(&'static str, &'static str), Vec<&'static Row>>;
    static BY_NAME: OnceLock<Rows> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| {
        let mut map = Rows::default();
        for (domain, table) in TABLES {
            table.iter().for_each(|row| map.entry((domain, row.name)).or_default().push(row));
        }
        map
    });
    let domain = names::domain(node);
    let Some(rows) = by_name.get(&(domain, node.op_type())) else {
        let message = match domain {
            "" => "unknown operator".to_owned(),
            domain => format!("unknown operator of domain `{domain}`"),
        };
        let reason = Reason::new(FaultKind::UnknownOperator, message);
        return Err(reason.advise("export without it, or give it a body as a model-local function"));
    };
    if opset == 0 {
        let message = "the model imports no version of the operator's domain";
        return Err(Reason::new(FaultKind::UnknownOpset, message));
    }
    if let Some(row) = rows.iter().find(|row| (row.since..=row.until).contains(&opset)) {
        return Ok(row);
    }
    let message = match rows.iter().map(|row| row.since).min() {
        Some(since) if opset < since => format!("the operator came with opset {since}"),
        _ => format!("the operator is not in opset {opset}"),
    };
    Err(Reason::new(FaultKind::UnknownOpset, message).advise("convert the model with onnx.version_converter"))
}

macro_rules! unary {
    ($name:literal, $since:literal, $op:ident) => {
        row($name, $since, (1, 1), |cx| elementwise::unary(cx, UnaryOp::$op))
    };
}

macro_rules! binary {
    ($name:literal, $since:literal, $op:ident) => {
        row($name, $since, (2, 2), |cx| elementwise::binary(cx, BinaryOp::$op))
    };
}

macro_rules! activation {
    ($name:literal, $since:literal, $kind:ident, $alpha:literal, $beta:literal) => {
        row($name, $since, (1, 1), |cx| elementwise::activation(cx, ActivationKind::$kind, $alpha, $beta))
    };
}

macro_rules! reduction {
    ($name:literal, $kind:ident) => {
        row($name, 1, (1, 2), |cx| reduce::reduce(cx, ReduceKind::$kind))
    };
}

/// The operators of each domain; opsets are those of the domain.
static TABLES: [(&str, &[Row]); 3] =
    [("", TABLE), ("ai.onnx.preview", PREVIEW), ("ai.onnx.preview.training", TRAINING)];

static PREVIEW: &[Row] = &[control("FlexAttention", 1, (3, 3), flex_attention::flex_attention)];

static TRAINING: &[Row] = &[
    row("Adagrad", 1, (3, MANY), training::adagrad),
    row("Adam", 1, (3, MANY), training::adam),
    row("Momentum", 1, (3, MANY), training::momentum),
];

#[rustfmt::skip]
static TABLE: &[Row] = &[
    unary!("Abs", 1, Abs), unary!("Neg", 1, Neg), unary!("Exp", 1, Exp), unary!("Log", 1, Log), unary!("Sqrt", 1, Sqrt),
    unary!("Reciprocal", 1, Reciprocal), unary!("Floor", 1, Floor), unary!("Ceil", 1, Ceil), unary!("Round", 11, Round),
    unary!("Sign", 9, Sign), unary!("Not", 1, Not), unary!("BitwiseNot", 18, BitwiseNot),
    unary!("Sin", 7, Sin), unary!("Cos", 7, Cos), unary!("Tan", 7, Tan), unary!("Asin", 7, Asin), unary!("Acos", 7, Acos),
    unary!("Atan", 7, Atan), unary!("Sinh", 9, Sinh), unary!("Cosh", 9, Cosh), unary!("Tanh", 1, Tanh),
    unary!("Asinh", 9, Asinh), unary!("Acosh", 9, Acosh), unary!("Atanh", 9, Atanh), unary!("Erf", 9, Erf),
    unary!("Sigmoid", 1, Sigmoid), unary!("Relu", 1, Relu), unary!("Softplus", 1, Softplus), unary!("Softsign", 1, Softsign),
    unary!("HardSwish", 14, HardSwish), unary!("Mish", 18, Mish), unary!("IsNaN", 9, IsNan),
    row("IsInf", 10, (1, 1), elementwise::is_inf),
    row("Gelu", 20, (1, 1), elementwise::gelu),
    row("SwiGLU", 28, (2, 2), elementwise::swiglu),
    activation!("LeakyRelu", 1, LeakyRelu, 0.01, 0.0),
    activation!("Elu", 1, Elu, 1.0, 0.0),
    activation!("Celu", 12, Celu, 1.0, 0.0),
    activation!("HardSigmoid", 1, HardSigmoid, 0.2, 0.5),
    activation!("ThresholdedRelu", 10, ThresholdedRelu, 1.0, 0.0),
    activation!("Swish", 24, Swish, 1.0, 0.0),
    row("Selu", 1, (1, 1), elementwise::selu),
    row("Shrink", 9, (1, 1), elementwise::shrink),
    row("PRelu", 1, (2, 2), elementwise::prelu),
    row("Clip", 1, (1, 3), elementwise::clip),
    binary!("Add", 1, Add), binary!("Sub", 1, Sub), binary!("Mul", 1, Mul), binary!("Div", 1, Div), binary!("Pow", 1, Pow),
    binary!("And", 1, And), binary!("Or", 1, Or), binary!("Xor", 1, Xor), binary!("Equal", 1, Equal), binary!("Less", 1, Less),
    binary!("Greater", 1, Greater), binary!("LessOrEqual", 12, LessEqual), binary!("GreaterOrEqual", 12, GreaterEqual),
    binary!("BitwiseAnd", 18, BitwiseAnd), binary!("BitwiseOr", 18, BitwiseOr), binary!("BitwiseXor", 18, BitwiseXor),
    row("Mod", 10, (2, 2), elementwise::modulo),
    row("BitShift", 11, (2, 2), elementwise::bit_shift),
    row("Max", 1, (1, MANY), |cx| elementwise::variadic(cx, BinaryOp::Max)),
    row("Min", 1, (1, MANY), |cx| elementwise::variadic(cx, BinaryOp::Min)),
    row("Sum", 1, (1, MANY), |cx| elementwise::variadic(cx, BinaryOp::Add)),
    row("Mean", 1, (1, MANY), elementwise::mean),
    row("Where", 9, (3, 3), elementwise::select),
    row("Cast", 1, (1, 1), elementwise::cast),
    row("CastLike", 15, (2, 2), elementwise::cast_like),
    row("BitCast", 26, (1, 1), elementwise::bit_cast),
    row("Dropout", 1, (1, 3), elementwise::dropout),
    row("Identity", 1, (1, 1), |cx| Ok(vec![cx.input(0)?])),

    row("MatMul", 1, (2, 2), linear::matmul),
    row("Gemm", 1, (2, 3), linear::gemm),
    row("Einsum", 12, (1, MANY), linear::einsum),
    row("Det", 11, (1, 1), linear::det),
    row("MatMulInteger", 10, (2, 4), linear::matmul_integer),
    row("QLinearMatMul", 10, (8, 8), linear::qlinear_matmul),

    row("Conv", 1, (2, 3), conv::conv),
    row("ConvTranspose", 1, (2, 3), conv::conv_transpose),
    row("ConvInteger", 10, (2, 4), conv::conv_integer),
    row("QLinearConv", 10, (8, 9), conv::qlinear_conv),
    row("DeformConv", 19, (3, 5), conv::deform_conv),
    row("CausalConvWithState", 27, (2, 4), conv::causal_conv),
    row("Col2Im", 18, (3, 3), conv::col2im),

    row("MaxPool", 1, (1, 1), pool::max_pool),
    row("AveragePool", 1, (1, 1), pool::average_pool),
    row("LpPool", 1, (1, 1), pool::lp_pool),
    row("GlobalAveragePool", 1, (1, 1), |cx| pool::global(cx, ReduceKind::Mean)),
    row("GlobalMaxPool", 1, (1, 1), |cx| pool::global(cx, ReduceKind::Max)),
    row("GlobalLpPool", 1, (1, 1), pool::global_lp),
    row("MaxUnpool", 9, (2, 3), pool::max_unpool),
    row("MaxRoiPool", 1, (2, 2), pool::max_roi_pool),
    row("RoiAlign", 10, (3, 3), pool::roi_align),

    reduction!("ReduceSum", Sum), reduction!("ReduceMean", Mean), reduction!("ReduceMax", Max), reduction!("ReduceMin", Min),
    reduction!("ReduceProd", Prod), reduction!("ReduceSumSquare", SumSquare), reduction!("ReduceL1", L1),
    reduction!("ReduceL2", L2), reduction!("ReduceLogSum", LogSum), reduction!("ReduceLogSumExp", LogSumExp),
    row("ArgMax", 1, (1, 1), |cx| reduce::arg_reduce(cx, Extreme::Max)),
    row("ArgMin", 1, (1, 1), |cx| reduce::arg_reduce(cx, Extreme::Min)),
    row("CumSum", 11, (2, 2), |cx| reduce::cumulative(cx, CumulativeKind::Sum)),
    row("CumProd", 26, (2, 2), |cx| reduce::cumulative(cx, CumulativeKind::Prod)),
    row("TopK", 1, (1, 2), reduce::top_k),

    row("Softmax", 1, (1, 1), |cx| norm::softmax(cx, false)),
    row("LogSoftmax", 1, (1, 1), |cx| norm::softmax(cx, true)),
    row("Hardmax", 1, (1, 1), norm::hardmax),
    row("BatchNormalization", 1, (5, 5), norm::batch_norm),
    row("InstanceNormalization", 1, (3, 3), norm::instance_norm),
    row("LayerNormalization", 17, (2, 3), norm::layer_norm),
    row("RMSNormalization", 23, (2, 2), norm::rms_norm),
    row("GroupNormalization", 18, (3, 3), norm::group_norm),
    row("LpNormalization", 1, (1, 1), norm::lp_norm),
    row("LRN", 1, (1, 1), norm::lrn),
    row("MeanVarianceNormalization", 9, (1, 1), norm::mean_variance),

    row("Attention", 23, (3, 7), attention::attention),
    row("LinearAttention", 27, (1, 6), attention::linear_attention),
    row("RotaryEmbedding", 23, (3, 4), attention::rotary_embedding),
    row("LSTM", 1, (3, 8), recurrent::lstm),
    row("GRU", 1, (3, 6), recurrent::gru),
    row("RNN", 1, (3, 6), recurrent::rnn),

    row("Reshape", 1, (1, 2), shape::reshape),
    row("Flatten", 1, (1, 1), shape::flatten),
    row("Squeeze", 1, (1, 2), shape::squeeze),
    row("Unsqueeze", 1, (1, 2), shape::unsqueeze),
    row("Transpose", 1, (1, 1), shape::transpose),
    row("Expand", 8, (2, 2), shape::expand),
    row("Concat", 1, (1, MANY), shape::concat),
    row("Split", 1, (1, 2), shape::split),
    row("Slice", 1, (1, 5), shape::slice),
    row("Pad", 1, (1, 4), shape::pad),
    row("Tile", 1, (2, 3), shape::tile),
    row("Shape", 1, (1, 1), shape::shape),
    row("Size", 1, (1, 1), shape::size),
    row("DepthToSpace", 1, (1, 1), shape::depth_to_space),
    row("SpaceToDepth", 1, (1, 1), shape::space_to_depth),
    row("Trilu", 14, (1, 2), shape::trilu),
    row("CenterCropPad", 18, (2, 2), shape::center_crop_pad),
    row("ReverseSequence", 10, (2, 2), shape::reverse_sequence),

    row("Gather", 1, (2, 2), index::gather),
    row("GatherElements", 11, (2, 2), index::gather_elements),
    row("GatherND", 11, (2, 2), index::gather_nd),
    row("Scatter", 9, (3, 3), index::scatter_elements),
    row("ScatterElements", 11, (3, 3), index::scatter_elements),
    row("ScatterND", 11, (3, 3), index::scatter_nd),
    row("TensorScatter", 24, (2, 3), index::tensor_scatter),
    row("OneHot", 9, (3, 3), index::one_hot),
    row("Compress", 9, (2, 2), index::compress),
    row("NonZero", 9, (1, 1), index::non_zero),
    row("Unique", 11, (1, 1), index::unique),
    row("NonMaxSuppression", 10, (2, 5), index::non_max_suppression),

    Row { name: "Constant", since: 1, until: MAX_OPSET, least_inputs: 0, most_inputs: 0, convert: Convert::Constant },
    row("ConstantOfShape", 9, (1, 1), generate::constant_of_shape),
    row("Range", 11, (3, 3), generate::range),
    row("EyeLike", 9, (1, 1), generate::eye_like),
    row("RandomUniform", 1, (0, 0), |cx| generate::random(cx, Distribution::Uniform)),
    row("RandomNormal", 1, (0, 0), |cx| generate::random(cx, Distribution::Normal)),
    row("RandomUniformLike", 1, (1, 1), |cx| generate::random(cx, Distribution::Uniform)),
    row("RandomNormalLike", 1, (1, 1), |cx| generate::random(cx, Distribution::Normal)),
    row("Bernoulli", 15, (1, 1), generate::bernoulli),
    row("Multinomial", 7, (1, 1), generate::multinomial),

    row("Resize", 10, (1, 4), resize::resize),
    row("Upsample", 1, (1, 2), resize::upsample).until(9),
    row("GridSample", 16, (2, 2), resize::grid_sample),
    row("AffineGrid", 20, (2, 2), resize::affine_grid),

    row("QuantizeLinear", 10, (2, 3), quantize::quantize_linear),
    row("DequantizeLinear", 10, (2, 3), quantize::dequantize_linear),
    row("DynamicQuantizeLinear", 11, (1, 1), quantize::dynamic_quantize_linear),

    row("NegativeLogLikelihoodLoss", 12, (2, 3), loss::negative_log_likelihood),
    row("SoftmaxCrossEntropyLoss", 12, (2, 3), loss::softmax_cross_entropy),

    row("DFT", 17, (1, 3), signal::dft),
    row("STFT", 17, (2, 4), signal::stft),
    row("HannWindow", 17, (1, 1), |cx| signal::window(cx, &signal::HANN)),
    row("HammingWindow", 17, (1, 1), |cx| signal::window(cx, &signal::HAMMING)),
    row("BlackmanWindow", 17, (1, 1), |cx| signal::window(cx, &signal::BLACKMAN)),
    row("MelWeightMatrix", 17, (5, 5), signal::mel_weight_matrix),

    control("If", 1, (1, 1), control::if_node),
    control("Loop", 1, (2, MANY), control::loop_node),
    control("Scan", 8, (2, MANY), scan::batched_scan).until(8),
    control("Scan", 9, (1, MANY), scan::scan_node),
    control("SequenceMap", 17, (1, MANY), sequence_map::sequence_map),

    row("SequenceConstruct", 11, (1, MANY), sequence::construct),
    row("SequenceEmpty", 11, (0, 0), sequence::empty),
    row("SequenceAt", 11, (2, 2), sequence::at),
    row("SequenceInsert", 11, (2, 3), sequence::insert),
    row("SequenceErase", 11, (1, 2), sequence::erase),
    row("SequenceLength", 11, (1, 1), sequence::length),
    row("SplitToSequence", 11, (1, 2), sequence::split),
    row("ConcatFromSequence", 11, (1, 1), sequence::concat),
    row("Optional", 15, (0, 1), sequence::optional),
    row("OptionalGetElement", 15, (1, 1), sequence::optional_get),
    row("OptionalHasElement", 15, (0, 1), sequence::optional_has),
    row("StringConcat", 20, (2, 2), sequence::string_concat),
    row("StringSplit", 20, (1, 1), sequence::string_split),
    row("StringNormalizer", 10, (1, 1), sequence::string_normalizer),
    row("RegexFullMatch", 20, (1, 1), sequence::regex_full_match),
    row("TfIdfVectorizer", 9, (1, 1), sequence::tf_idf),
];
