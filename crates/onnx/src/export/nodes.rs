//! The ONNX form of every operator.

use tilewright_graph::Type;
use tilewright_graph::op::{CacheMode, CaseAction, Extreme, Op, RoiCoordinates, RoiMode};

use super::build::{flag, ints, real, size, sizes, text, texts, type_attribute, type_proto};
use super::elementwise::dtype_attr;
use super::movement::{pad_mode, reduction};
use super::nn::reduce_name;
use super::{Exporter, Item, Result};

impl Exporter<'_> {
    /// Adds the ONNX nodes of a graph node.
    pub(super) fn node(&mut self, item: &Item<'_>) -> Result<()> {
        match item.op {
            Op::Identity => self.plain(item, "Identity", vec![]),
            Op::Unary(op) => self.unary(item, *op),
            Op::Activation(attrs) => self.activation(item, attrs),
            Op::Clip => self.plain(item, "Clip", vec![]),
            Op::Binary(op) => self.binary(item, *op),
            Op::Where => self.plain(item, "Where", vec![]),
            Op::Cast(attrs) => self.cast(item, attrs),
            Op::BitCast(to) => {
                self.need(26);
                self.plain(item, "BitCast", vec![dtype_attr("to", *to)])
            }
            Op::QuantizeLinear(attrs) => self.quantize(item, attrs),
            Op::DequantizeLinear(attrs) => self.dequantize(item, attrs),
            Op::MatMul(attrs) => self.matmul(item, attrs),
            Op::Gemm(attrs) => {
                let attributes = vec![
                    real("alpha", attrs.alpha),
                    real("beta", attrs.beta),
                    flag("transA", attrs.transpose_a),
                    flag("transB", attrs.transpose_b),
                ];
                self.plain(item, "Gemm", attributes)
            }
            Op::MatMulInteger => self.plain(item, "MatMulInteger", vec![]),
            Op::Conv(attrs) => self.conv(item, "Conv", attrs),
            Op::ConvInteger(attrs) => self.conv(item, "ConvInteger", attrs),
            Op::ConvTranspose(attrs) => self.conv_transpose(item, attrs),
            Op::DeformConv(attrs) => {
                let attributes = vec![
                    sizes("strides", &attrs.strides),
                    ints("pads", &attrs.pads),
                    sizes("dilations", &attrs.dilations),
                    size("group", attrs.group),
                    size("offset_group", attrs.offset_group),
                ];
                self.plain(item, "DeformConv", attributes)
            }
            Op::CausalConv(attrs) => {
                self.need(27);
                let activation = if attrs.silu { "silu" } else { "none" };
                self.plain(item, "CausalConvWithState", vec![text("activation", activation)])
            }
            Op::Einsum(attrs) => self.plain(item, "Einsum", vec![text("equation", &attrs.equation)]),
            Op::Det => self.plain(item, "Det", vec![]),
            Op::Pool(attrs) => self.pool(item, attrs),
            Op::MaxPoolIndices(attrs) => {
                let attributes = vec![
                    sizes("kernel_shape", &attrs.kernel),
                    sizes("strides", &attrs.strides),
                    ints("pads", &attrs.pads),
                    sizes("dilations", &attrs.dilations),
                    flag("ceil_mode", attrs.ceil_mode),
                    flag("storage_order", attrs.column_major),
                ];
                self.plain(item, "MaxPool", attributes)
            }
            Op::MaxUnpool(attrs) => self.max_unpool(item, attrs),
            Op::MaxUnpoolDynamic(attrs) => {
                let attributes = vec![
                    sizes("kernel_shape", &attrs.kernel),
                    sizes("strides", &attrs.strides),
                    ints("pads", &attrs.pads),
                ];
                self.plain(item, "MaxUnpool", attributes)
            }
            Op::MaxRoiPool(attrs) => {
                let attributes =
                    vec![sizes("pooled_shape", &attrs.pooled), real("spatial_scale", attrs.spatial_scale)];
                self.plain(item, "MaxRoiPool", attributes)
            }
            Op::RoiAlign(attrs) => {
                let mode = match attrs.mode {
                    RoiMode::Average => "avg",
                    RoiMode::Max => "max",
                };
                let coordinates = match attrs.coordinates {
                    RoiCoordinates::HalfPixel => "half_pixel",
                    RoiCoordinates::OutputHalfPixel => "output_half_pixel",
                };
                let attributes = vec![
                    text("mode", mode),
                    text("coordinate_transformation_mode", coordinates),
                    size("output_height", attrs.output_height),
                    size("output_width", attrs.output_width),
                    size("sampling_ratio", attrs.sampling_ratio),
                    real("spatial_scale", attrs.spatial_scale),
                ];
                self.plain(item, "RoiAlign", attributes)
            }
            Op::Col2Im(attrs) => self.col2im(item, attrs),
            Op::Reduce(attrs) => self.reduce(item, attrs),
            Op::ReduceDynamic(attrs) => {
                let attributes = vec![
                    flag("keepdims", attrs.keep_dims),
                    flag("noop_with_empty_axes", attrs.empty_is_noop),
                ];
                self.plain(item, reduce_name(attrs.kind), attributes)
            }
            Op::ArgReduce(attrs) => {
                let op_type = match attrs.extreme {
                    Extreme::Max => "ArgMax",
                    Extreme::Min => "ArgMin",
                };
                let attributes = vec![
                    size("axis", attrs.axis),
                    flag("keepdims", attrs.keep_dims),
                    flag("select_last_index", attrs.select_last),
                ];
                self.plain(item, op_type, attributes)
            }
            Op::Cumulative(attrs) => self.cumulative(item, attrs),
            Op::Softmax(attrs) => {
                let op_type = if attrs.log { "LogSoftmax" } else { "Softmax" };
                self.plain(item, op_type, vec![size("axis", attrs.axis)])
            }
            Op::LayerNorm(attrs) => self.layer_norm(item, "LayerNormalization", attrs),
            Op::RmsNorm(attrs) => self.layer_norm(item, "RMSNormalization", attrs),
            Op::InstanceNorm(attrs) => {
                self.plain(item, "InstanceNormalization", vec![real("epsilon", attrs.epsilon)])
            }
            Op::GroupNorm(attrs) => {
                let mut attributes = vec![size("num_groups", attrs.groups), real("epsilon", attrs.epsilon)];
                attributes.extend(attrs.stash.map(|stash| dtype_attr("stash_type", stash)));
                self.plain(item, "GroupNormalization", attributes)
            }
            Op::BatchNorm(attrs) => {
                self.plain(item, "BatchNormalization", vec![real("epsilon", attrs.epsilon)])
            }
            Op::LpNorm(attrs) => {
                self.plain(item, "LpNormalization", vec![size("axis", attrs.axis), size("p", attrs.p)])
            }
            Op::Lrn(attrs) => {
                let attributes = vec![
                    size("size", attrs.size),
                    real("alpha", attrs.alpha),
                    real("beta", attrs.beta),
                    real("bias", attrs.bias),
                ];
                self.plain(item, "LRN", attributes)
            }
            Op::Attention(attrs) => self.attention(item, attrs),
            Op::LinearAttention(attrs) => self.linear_attention(item, attrs),
            Op::RotaryEmbedding(attrs) => {
                self.need(23);
                let attributes = vec![
                    size("num_heads", attrs.num_heads),
                    size("rotary_embedding_dim", attrs.dim),
                    flag("interleaved", attrs.interleaved),
                ];
                self.plain(item, "RotaryEmbedding", attributes)
            }
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
            Op::Split(attrs) => {
                let parts = self.shape(&attrs.sizes)?;
                self.finish(item, "Split", &[item.input(0), &parts], vec![size("axis", attrs.axis)]);
                Ok(())
            }
            Op::SplitDynamic(attrs) => self.plain(item, "Split", vec![size("axis", attrs.axis)]),
            Op::Pad(attrs) => self.pad(item, attrs),
            Op::PadDynamic(attrs) => self.plain(item, "Pad", vec![text("mode", pad_mode(attrs.mode))]),
            Op::Gather(attrs) => self.plain(item, "Gather", vec![size("axis", attrs.axis)]),
            Op::GatherElements(attrs) => self.plain(item, "GatherElements", vec![size("axis", attrs.axis)]),
            Op::GatherNd(attrs) => self.plain(item, "GatherND", vec![size("batch_dims", attrs.batch_dims)]),
            Op::ScatterElements(attrs) => {
                let attributes =
                    vec![size("axis", attrs.axis), text("reduction", reduction(attrs.reduction))];
                self.plain(item, "ScatterElements", attributes)
            }
            Op::ScatterNd(attrs) => {
                self.plain(item, "ScatterND", vec![text("reduction", reduction(attrs.reduction))])
            }
            Op::TensorScatter(attrs) => {
                self.need(24);
                let mode = match attrs.mode {
                    CacheMode::Linear => "linear",
                    CacheMode::Circular => "circular",
                };
                self.plain(item, "TensorScatter", vec![size("axis", attrs.axis), text("mode", mode)])
            }
            Op::Tile(attrs) => {
                let repeats = self.shape(&attrs.repeats)?;
                self.finish(item, "Tile", &[item.input(0), &repeats], vec![]);
                Ok(())
            }
            Op::TileDynamic => self.plain(item, "Tile", vec![]),
            Op::Resize(attrs) => self.resize(item, attrs, false),
            Op::ResizeDynamic(attrs) => self.resize(item, attrs, true),
            Op::GridSample(attrs) => self.grid_sample(item, attrs),
            Op::AffineGrid(attrs) => {
                self.plain(item, "AffineGrid", vec![flag("align_corners", attrs.align_corners)])
            }
            Op::CenterCropPad(attrs) => self.plain(item, "CenterCropPad", vec![sizes("axes", &attrs.axes)]),
            Op::Trilu(attrs) => self.trilu(item, attrs),
            Op::ReverseSequence(attrs) => {
                let attributes =
                    vec![size("batch_axis", attrs.batch_axis), size("time_axis", attrs.time_axis)];
                self.plain(item, "ReverseSequence", attributes)
            }
            Op::Compress(attrs) => {
                self.plain(item, "Compress", attrs.axis.map(|axis| size("axis", axis)).into_iter().collect())
            }
            Op::Constant(tensor) => {
                self.plain(item, "Constant", vec![super::build::tensor_attribute("value", tensor)])
            }
            Op::FromDims(attrs) => {
                let mut value = self.shape(&attrs.values)?;
                if attrs.scalar {
                    value = self.as_scalar(&value);
                }
                self.finish(item, "Cast", &[&value], vec![dtype_attr("to", attrs.dtype)]);
                Ok(())
            }
            Op::Shape(attrs) => {
                self.plain(item, "Shape", vec![size("start", attrs.start), size("end", attrs.end)])
            }
            Op::Size => self.plain(item, "Size", vec![]),
            Op::Full(attrs) => self.expand(item, &attrs.dims),
            Op::FullDynamic => {
                self.finish(item, "Expand", &[item.input(1), item.input(0)], vec![]);
                Ok(())
            }
            Op::Iota(attrs) => self.iota(item, attrs),
            Op::RangeDynamic => self.plain(item, "Range", vec![]),
            Op::Eye(attrs) => self.eye(item, attrs),
            Op::OneHot(attrs) => self.one_hot(item, attrs),
            Op::Random(attrs) => self.random(item, attrs),
            Op::Multinomial(attrs) => {
                let mut attributes =
                    vec![size("sample_size", attrs.sample_size), dtype_attr("dtype", attrs.dtype)];
                attributes.extend(attrs.seed.map(|seed| real("seed", seed)));
                self.plain(item, "Multinomial", attributes)
            }
            Op::MelWeightMatrix(dtype) => {
                self.plain(item, "MelWeightMatrix", vec![dtype_attr("output_datatype", *dtype)])
            }
            Op::TopK(attrs) => self.top_k(item, attrs),
            Op::NonZero => self.plain(item, "NonZero", vec![]),
            Op::Unique(attrs) => {
                let mut attributes = vec![flag("sorted", attrs.sorted)];
                attributes.extend(attrs.axis.map(|axis| size("axis", axis)));
                self.plain(item, "Unique", attributes)
            }
            Op::NonMaxSuppression(attrs) => {
                self.plain(item, "NonMaxSuppression", vec![flag("center_point_box", attrs.center_point_box)])
            }
            Op::Dft(attrs) => self.dft(item, attrs),
            Op::Stft(attrs) => self.stft(item, attrs),
            Op::If(attrs) => self.if_node(item, attrs),
            Op::Loop(attrs) => self.loop_node(item, attrs),
            Op::Scan(attrs) => self.scan(item, attrs),
            Op::SequenceConstruct => self.plain(item, "SequenceConstruct", vec![]),
            Op::SequenceEmpty(element) => match element {
                Type::Tensor(tensor) => {
                    self.plain(item, "SequenceEmpty", vec![dtype_attr("dtype", tensor.dtype)])
                }
                Type::Sequence(_) | Type::Optional(_) => Err("the elements are not tensors".to_owned()),
            },
            Op::SequenceAt => self.plain(item, "SequenceAt", vec![]),
            Op::SequenceInsert => self.plain(item, "SequenceInsert", vec![]),
            Op::SequenceErase => self.plain(item, "SequenceErase", vec![]),
            Op::SequenceLength => self.plain(item, "SequenceLength", vec![]),
            Op::SplitToSequence(attrs) => {
                let attributes = vec![size("axis", attrs.axis), flag("keepdims", attrs.keep_dims)];
                self.plain(item, "SplitToSequence", attributes)
            }
            Op::ConcatFromSequence(attrs) => {
                let attributes = vec![size("axis", attrs.axis), flag("new_axis", attrs.new_axis)];
                self.plain(item, "ConcatFromSequence", attributes)
            }
            Op::Optional(ty) => {
                let ty = ty.as_ref().map(|ty| type_attribute("type", type_proto(ty, &self.graph.symbols)));
                self.plain(item, "Optional", ty.into_iter().collect())
            }
            Op::OptionalGet => self.plain(item, "OptionalGetElement", vec![]),
            Op::OptionalHas => self.plain(item, "OptionalHasElement", vec![]),
            Op::StringConcat => self.plain(item, "StringConcat", vec![]),
            Op::StringSplit(attrs) => {
                let mut attributes = Vec::new();
                if !attrs.delimiter.is_empty() {
                    attributes.push(text("delimiter", &attrs.delimiter));
                }
                attributes.extend(attrs.max_split.map(|most| size("maxsplit", most)));
                self.plain(item, "StringSplit", attributes)
            }
            Op::StringNormalizer(attrs) => {
                let case = match attrs.case {
                    CaseAction::None => "NONE",
                    CaseAction::Lower => "LOWER",
                    CaseAction::Upper => "UPPER",
                };
                let mut attributes =
                    vec![text("case_change_action", case), flag("is_case_sensitive", attrs.case_sensitive)];
                if !attrs.stopwords.is_empty() {
                    attributes.push(texts("stopwords", &attrs.stopwords));
                }
                self.plain(item, "StringNormalizer", attributes)
            }
            Op::RegexFullMatch(attrs) => {
                self.plain(item, "RegexFullMatch", vec![text("pattern", &attrs.pattern)])
            }
            Op::TfIdf(attrs) => self.tf_idf(item, attrs),
            Op::Extern(attrs) => Err(format!("`{}` is an operator of the user's", attrs.name)),
        }
    }
}
