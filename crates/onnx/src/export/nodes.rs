//! The ONNX form of every operator.

use tilewright_graph::op::Op;

use super::build::{flag, size, sizes, tensor_attribute, text};
use super::elementwise::dtype_attr;
use super::movement::{pad_mode, reduction};
use super::{Exporter, Item, Result};

impl Exporter<'_> {
    /// Adds the ONNX nodes of a graph node.
    #[expect(clippy::too_many_lines, reason = "a table of one line an operator")]
    pub(super) fn node(&mut self, item: &Item<'_>) -> Result<()> {
        match item.op {
            Op::Identity => self.plain(item, "Identity", vec![]),
            Op::Unary(op) => self.unary(item, *op),
            Op::Activation(attrs) => self.activation(item, attrs),
            Op::Clip => self.plain(item, "Clip", vec![]),
            Op::Binary(op) => self.binary(item, *op),
            Op::Where => self.plain(item, "Where", vec![]),
            Op::Cast(attrs) => self.cast(item, attrs),
            Op::BitCast(to) => self.bit_cast(item, *to),
            Op::QuantizeLinear(attrs) => self.quantize(item, attrs),
            Op::DequantizeLinear(attrs) => self.dequantize(item, attrs),
            Op::MatMul(attrs) => self.matmul(item, attrs),
            Op::Gemm(attrs) => self.gemm(item, attrs),
            Op::MatMulInteger => self.plain(item, "MatMulInteger", vec![]),
            Op::Conv(attrs) => self.conv(item, "Conv", attrs),
            Op::ConvInteger(attrs) => self.conv(item, "ConvInteger", attrs),
            Op::ConvTranspose(attrs) => self.conv_transpose(item, attrs),
            Op::DeformConv(attrs) => self.deform_conv(item, attrs),
            Op::CausalConv(attrs) => self.causal_conv(item, attrs),
            Op::Einsum(attrs) => self.plain(item, "Einsum", vec![text("equation", &attrs.equation)]),
            Op::Det => self.plain(item, "Det", vec![]),
            Op::Pool(attrs) => self.pool(item, attrs),
            Op::MaxPoolIndices(attrs) => self.max_pool_indices(item, attrs),
            Op::MaxUnpool(attrs) => self.max_unpool(item, attrs),
            Op::MaxUnpoolDynamic(attrs) => self.max_unpool_dynamic(item, attrs),
            Op::MaxRoiPool(attrs) => self.max_roi_pool(item, attrs),
            Op::RoiAlign(attrs) => self.roi_align(item, attrs),
            Op::Col2Im(attrs) => self.col2im(item, attrs),
            Op::Reduce(attrs) => self.reduce(item, attrs),
            Op::ReduceDynamic(attrs) => self.reduce_dynamic(item, attrs),
            Op::ArgReduce(attrs) => self.arg_reduce(item, attrs),
            Op::Cumulative(attrs) => self.cumulative(item, attrs),
            Op::Softmax(attrs) => self.softmax(item, attrs),
            Op::LayerNorm(attrs) => self.layer_norm(item, "LayerNormalization", attrs),
            Op::RmsNorm(attrs) => self.layer_norm(item, "RMSNormalization", attrs),
            Op::InstanceNorm(attrs) => self.norm(item, "InstanceNormalization", attrs),
            Op::GroupNorm(attrs) => self.group_norm(item, attrs),
            Op::BatchNorm(attrs) => self.norm(item, "BatchNormalization", attrs),
            Op::LpNorm(attrs) => self.lp_norm(item, attrs),
            Op::Lrn(attrs) => self.lrn(item, attrs),
            Op::Attention(attrs) => self.attention(item, attrs),
            Op::LinearAttention(attrs) => self.linear_attention(item, attrs),
            Op::RotaryEmbedding(attrs) => self.rotary_embedding(item, attrs),
            Op::Lstm(attrs) => self.recurrent(item, "LSTM", attrs),
            Op::Gru(attrs) => self.recurrent(item, "GRU", attrs),
            Op::Rnn(attrs) => self.recurrent(item, "RNN", attrs),
            Op::Reshape(attrs) => self.reshape(item, &attrs.dims),
            Op::ReshapeDynamic(attrs) => {
                self.plain(item, "Reshape", vec![flag("allowzero", attrs.allow_zero)])
            }
            Op::Transpose(attrs) => self.plain(item, "Transpose", vec![sizes("perm", &attrs.perm)]),
            Op::Expand(attrs) => self.expand(item, &attrs.dims),
            Op::ExpandDynamic => self.plain(item, "Expand", vec![]),
            Op::Slice(attrs) => self.slice(item, attrs),
            Op::SliceDynamic => self.plain(item, "Slice", vec![]),
            Op::Concat(attrs) => self.plain(item, "Concat", vec![size("axis", attrs.axis)]),
            Op::Split(attrs) => self.split(item, attrs),
            Op::SplitDynamic(attrs) => self.plain(item, "Split", vec![size("axis", attrs.axis)]),
            Op::Pad(attrs) => self.pad(item, attrs),
            Op::PadDynamic(attrs) => self.plain(item, "Pad", vec![text("mode", pad_mode(attrs.mode))]),
            Op::Gather(attrs) => self.plain(item, "Gather", vec![size("axis", attrs.axis)]),
            Op::GatherElements(attrs) => self.plain(item, "GatherElements", vec![size("axis", attrs.axis)]),
            Op::GatherNd(attrs) => self.plain(item, "GatherND", vec![size("batch_dims", attrs.batch_dims)]),
            Op::ScatterElements(attrs) => self.scatter_elements(item, attrs),
            Op::ScatterNd(attrs) => {
                self.plain(item, "ScatterND", vec![text("reduction", reduction(attrs.reduction))])
            }
            Op::TensorScatter(attrs) => self.tensor_scatter(item, attrs),
            Op::Tile(attrs) => self.tile(item, attrs),
            Op::TileDynamic => self.plain(item, "Tile", vec![]),
            Op::Resize(attrs) => self.resize(item, attrs, false),
            Op::ResizeDynamic(attrs) => self.resize(item, attrs, true),
            Op::GridSample(attrs) => self.grid_sample(item, attrs),
            Op::AffineGrid(attrs) => {
                self.plain(item, "AffineGrid", vec![flag("align_corners", attrs.align_corners)])
            }
            Op::CenterCropPad(attrs) => self.plain(item, "CenterCropPad", vec![sizes("axes", &attrs.axes)]),
            Op::Trilu(attrs) => self.trilu(item, attrs),
            Op::ReverseSequence(attrs) => self.reverse_sequence(item, attrs),
            Op::Compress(attrs) => self.compress(item, attrs),
            Op::Constant(tensor) => self.plain(item, "Constant", vec![tensor_attribute("value", tensor)]),
            Op::FromDims(attrs) => self.constant_of_dims(item, attrs),
            Op::Shape(attrs) => self.shape_of(item, attrs),
            Op::Size => self.plain(item, "Size", vec![]),
            Op::Full(attrs) => self.expand(item, &attrs.dims),
            Op::FullDynamic => self.full_dynamic(item),
            Op::Iota(attrs) => self.iota(item, attrs),
            Op::RangeDynamic => self.plain(item, "Range", vec![]),
            Op::Eye(attrs) => self.eye(item, attrs),
            Op::OneHot(attrs) => self.one_hot(item, attrs),
            Op::Random(attrs) => self.random(item, attrs),
            Op::Multinomial(attrs) => self.multinomial(item, attrs),
            Op::MelWeightMatrix(dtype) => {
                self.plain(item, "MelWeightMatrix", vec![dtype_attr("output_datatype", *dtype)])
            }
            Op::TopK(attrs) => self.top_k(item, attrs),
            Op::NonZero => self.plain(item, "NonZero", vec![]),
            Op::Unique(attrs) => self.unique(item, attrs),
            Op::NonMaxSuppression(attrs) => self.non_max_suppression(item, attrs),
            Op::Dft(attrs) => self.dft(item, attrs),
            Op::Stft(attrs) => self.stft(item, attrs),
            Op::If(attrs) => self.if_node(item, attrs),
            Op::Loop(attrs) => self.loop_node(item, attrs),
            Op::Scan(attrs) => self.scan(item, attrs),
            Op::SequenceConstruct => self.plain(item, "SequenceConstruct", vec![]),
            Op::SequenceEmpty(element) => self.sequence_empty(item, element),
            Op::SequenceAt => self.plain(item, "SequenceAt", vec![]),
            Op::SequenceInsert => self.plain(item, "SequenceInsert", vec![]),
            Op::SequenceErase => self.plain(item, "SequenceErase", vec![]),
            Op::SequenceLength => self.plain(item, "SequenceLength", vec![]),
            Op::SplitToSequence(attrs) => self.split_to_sequence(item, attrs),
            Op::ConcatFromSequence(attrs) => self.concat_from_sequence(item, attrs),
            Op::Optional(ty) => self.optional(item, ty.as_ref()),
            Op::OptionalGet => self.plain(item, "OptionalGetElement", vec![]),
            Op::OptionalHas => self.plain(item, "OptionalHasElement", vec![]),
            Op::StringConcat => self.plain(item, "StringConcat", vec![]),
            Op::StringSplit(attrs) => self.string_split(item, attrs),
            Op::StringNormalizer(attrs) => self.string_normalizer(item, attrs),
            Op::RegexFullMatch(attrs) => {
                self.plain(item, "RegexFullMatch", vec![text("pattern", &attrs.pattern)])
            }
            Op::TfIdf(attrs) => self.tf_idf(item, attrs),
            Op::Extern(attrs) => Err(format!("`{}` is an operator of the user's", attrs.name)),
        }
    }
}
