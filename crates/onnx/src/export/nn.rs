//! Products, windows, reductions, normalisations, attention and recurrent layers.

use tilewright_graph::op::{
    ArgReduceAttrs, AttentionAttrs, CausalConvAttrs, Col2ImAttrs, ConvAttrs, ConvTransposeAttrs,
    CumulativeAttrs, CumulativeKind, DeformConvAttrs, DftAttrs, Direction, Extreme, GemmAttrs,
    GroupNormAttrs, LayerNormAttrs, LinearAttentionAttrs, LinearAttentionRule, LpNormAttrs, LrnAttrs,
    MatMulAttrs, MaxPoolIndicesAttrs, MaxRoiPoolAttrs, MaxUnpoolAttrs, MaxUnpoolDynamicAttrs, NormAttrs,
    PoolAttrs, PoolKind, RecurrentActivation, RecurrentAttrs, ReduceAttrs, ReduceDynamicAttrs, ReduceKind,
    RoiAlignAttrs, RoiCoordinates, RoiMode, RotaryAttrs, SoftmaxAttrs, StftAttrs,
};
use tilewright_graph::tensor::Tensor;
use tilewright_graph::{DType, Dim};

use super::build::{flag, int, ints, real, reals, size, sizes, text, texts};
use super::elementwise::dtype_attr;
use super::{Exporter, Item, Result};
use crate::proto::AttributeProto;

fn strided(strides: &[usize], pads: &[i64], dilations: &[usize]) -> Vec<AttributeProto> {
    vec![sizes("strides", strides), ints("pads", pads), sizes("dilations", dilations)]
}

pub(super) fn reduce_name(kind: ReduceKind) -> &'static str {
    match kind {
        ReduceKind::Sum => "ReduceSum",
        ReduceKind::Mean => "ReduceMean",
        ReduceKind::Max => "ReduceMax",
        ReduceKind::Min => "ReduceMin",
        ReduceKind::Prod => "ReduceProd",
        ReduceKind::SumSquare => "ReduceSumSquare",
        ReduceKind::L1 => "ReduceL1",
        ReduceKind::L2 => "ReduceL2",
        ReduceKind::LogSum => "ReduceLogSum",
        ReduceKind::LogSumExp => "ReduceLogSumExp",
    }
}

impl Exporter<'_> {
    pub(super) fn matmul(&mut self, item: &Item<'_>, attrs: &MatMulAttrs) -> Result<()> {
        let mut operands = [item.input(0).to_owned(), item.input(1).to_owned()];
        for (position, transposed) in [attrs.transpose_a, attrs.transpose_b].into_iter().enumerate() {
            if transposed {
                let rank = self.operand_dims(item, position)?.len();
                operands[position] = self.transposed(&operands[position], rank)?;
            }
        }
        self.finish(item, "MatMul", &[&operands[0], &operands[1]], Vec::new());
        Ok(())
    }

    pub(super) fn conv(&mut self, item: &Item<'_>, op_type: &str, attrs: &ConvAttrs) -> Result<()> {
        let mut attributes = strided(&attrs.strides, &attrs.pads, &attrs.dilations);
        attributes.push(size("group", attrs.group));
        self.plain(item, op_type, attributes)
    }

    pub(super) fn conv_transpose(&mut self, item: &Item<'_>, attrs: &ConvTransposeAttrs) -> Result<()> {
        let mut attributes = strided(&attrs.strides, &attrs.pads, &attrs.dilations);
        attributes.extend([size("group", attrs.group), ints("output_padding", &attrs.output_padding)]);
        self.plain(item, "ConvTranspose", attributes)
    }

    pub(super) fn pool(&mut self, item: &Item<'_>, attrs: &PoolAttrs) -> Result<()> {
        if attrs.ceil_mode {
            // Only since then is it specified that no window starts in the padding behind the end.
            self.need(22);
        }
        let mut attributes = strided(&attrs.strides, &attrs.pads, &attrs.dilations);
        attributes.extend([sizes("kernel_shape", &attrs.kernel), flag("ceil_mode", attrs.ceil_mode)]);
        let op_type = match attrs.kind {
            PoolKind::Max => "MaxPool",
            PoolKind::Average => {
                attributes.push(flag("count_include_pad", attrs.count_include_pad));
                "AveragePool"
            }
            PoolKind::Lp => {
                attributes.push(size("p", attrs.p));
                "LpPool"
            }
        };
        self.plain(item, op_type, attributes)
    }

    /// A scatter into a flat tensor of zeros.
    pub(super) fn max_unpool(&mut self, item: &Item<'_>, attrs: &MaxUnpoolAttrs) -> Result<()> {
        let zero = self.scalar(self.operand_dtype(item, 0)?, 0.0)?;
        let len = self.extent(&Dim::product(&attrs.dims))?;
        let zeros = self.emit("Expand", &[&zero, &len], Vec::new());
        let flat = self.ints(&[-1]);
        let x = self.emit("Reshape", &[item.input(0), &flat], Vec::new());
        let indices = self.emit("Reshape", &[item.input(1), &flat], Vec::new());
        let scattered = self.emit("ScatterElements", &[&zeros, &indices, &x], vec![int("axis", 0)]);
        let shape = self.shape(&attrs.dims)?;
        self.finish(item, "Reshape", &[&scattered, &shape], vec![flag("allowzero", true)]);
        Ok(())
    }

    pub(super) fn col2im(&mut self, item: &Item<'_>, attrs: &Col2ImAttrs) -> Result<()> {
        let image = if attrs.image.is_empty() { item.input(1).to_owned() } else { self.shape(&attrs.image)? };
        let block: Vec<i64> = attrs.block.iter().map(|&extent| extent as i64).collect();
        let block = if block.is_empty() { item.input(2).to_owned() } else { self.ints(&block) };
        let attributes = strided(&attrs.strides, &attrs.pads, &attrs.dilations);
        self.finish(item, "Col2Im", &[item.input(0), &image, &block], attributes);
        Ok(())
    }

    /// Over no axes at all, what is left of a reduction is elementwise.
    pub(super) fn reduce(&mut self, item: &Item<'_>, attrs: &ReduceAttrs) -> Result<()> {
        if attrs.axes.is_empty() {
            let x = item.input(0);
            match attrs.kind {
                ReduceKind::SumSquare => self.finish(item, "Mul", &[x, x], Vec::new()),
                ReduceKind::L1 | ReduceKind::L2 => self.finish(item, "Abs", &[x], Vec::new()),
                ReduceKind::LogSum => self.finish(item, "Log", &[x], Vec::new()),
                ReduceKind::Sum
                | ReduceKind::Mean
                | ReduceKind::Max
                | ReduceKind::Min
                | ReduceKind::Prod
                | ReduceKind::LogSumExp => self.finish(item, "Identity", &[x], Vec::new()),
            }
            return Ok(());
        }
        let axes: Vec<i64> = attrs.axes.iter().map(|&axis| axis as i64).collect();
        let axes = self.ints(&axes);
        let attributes = vec![flag("keepdims", attrs.keep_dims)];
        self.finish(item, reduce_name(attrs.kind), &[item.input(0), &axes], attributes);
        Ok(())
    }

    pub(super) fn cumulative(&mut self, item: &Item<'_>, attrs: &CumulativeAttrs) -> Result<()> {
        let axis = match attrs.axis {
            Some(axis) => self.initializer("axis", &Tensor::scalar(axis as i64)),
            None => item.input(1).to_owned(),
        };
        let op_type = match attrs.kind {
            CumulativeKind::Sum => "CumSum",
            CumulativeKind::Prod => {
                self.need(26);
                "CumProd"
            }
        };
        let attributes = vec![flag("exclusive", attrs.exclusive), flag("reverse", attrs.reverse)];
        self.finish(item, op_type, &[item.input(0), &axis], attributes);
        Ok(())
    }

    /// ONNX wants a scale; ones stand in for an absent one.
    pub(super) fn layer_norm(
        &mut self,
        item: &Item<'_>,
        op_type: &str,
        attrs: &LayerNormAttrs,
    ) -> Result<()> {
        if op_type == "RMSNormalization" {
            self.need(23);
        }
        let scale = if item.input(1).is_empty() {
            let one = self.scalar(self.operand_dtype(item, 0)?, 1.0)?;
            let normalised = &self.operand_dims(item, 0)?[attrs.axis..];
            let shape = self.shape(normalised)?;
            self.emit("Expand", &[&one, &shape], Vec::new())
        } else {
            item.input(1).to_owned()
        };
        let mut attributes = vec![size("axis", attrs.axis), real("epsilon", attrs.epsilon)];
        if let Some(stash) = attrs.stash {
            attributes.push(dtype_attr("stash_type", stash));
        }
        self.finish(item, op_type, &[item.input(0), &scale, item.input(2)], attributes);
        Ok(())
    }

    pub(super) fn attention(&mut self, item: &Item<'_>, attrs: &AttentionAttrs) -> Result<()> {
        match (self.operand_dims(item, 0)?, self.operand_dims(item, 1)?.len()) {
            ([_, _, _], 4) => self.attention_of_packed_queries(item, attrs),
            ([_, heads, _, _], 4) => self.attention_of_one_rank(item, attrs, Some(heads)),
            ([_, _, _], 3) => self.attention_of_one_rank(item, attrs, None),
            _ => Err("attention of heads has packed keys and values".into()),
        }
    }

    /// Attention whose queries alone have packed heads, as has its result: ONNX's operator has all operands alike.
    fn attention_of_packed_queries(&mut self, item: &Item<'_>, attrs: &AttentionAttrs) -> Result<()> {
        let (swap, as_is) = ([ints("perm", &[0, 2, 1, 3])], flag("allowzero", true));
        let [batch, positions, packed] = self.operand_dims(item, 0)? else {
            return Err("packed queries have three axes".into());
        };
        let heads = Dim::from(attrs.q_num_heads);
        let apart = [batch.clone(), positions.clone(), heads.clone(), packed.floor_div(&heads)];
        let apart = self.shape(&apart)?;
        let queries = self.emit("Reshape", &[item.input(0), &apart], vec![as_is.clone()]);
        let queries = self.emit("Transpose", &[&queries], swap.to_vec());
        let inputs = [queries].into_iter().chain(item.inputs.iter().skip(1).cloned()).collect();
        let Some((result, others)) = item.outputs.split_first() else { return Ok(()) };
        let of_heads = self.fresh("t");
        let outputs = [of_heads.clone()].into_iter().chain(others.iter().cloned()).collect();
        let attrs = AttentionAttrs { q_num_heads: 0, kv_num_heads: 0, ..attrs.clone() };
        self.attention_of_one_rank(&Item { inputs, outputs, ..*item }, &attrs, Some(&heads))?;
        let swapped = self.emit("Transpose", &[&of_heads], swap.to_vec());
        let value = self.graph.node(item.id).output();
        let dims =
            value.and_then(|value| self.graph.dims(value)).ok_or("the rank of a result is not known")?;
        let shape = self.shape(dims)?;
        let last = Item { inputs: Vec::new(), outputs: vec![result.clone()], ..*item };
        self.finish(&last, "Reshape", &[&swapped, &shape], vec![as_is]);
        Ok(())
    }

    /// Attention whose operands are all of heads, of which queries have so many, or all packed.
    fn attention_of_one_rank(
        &mut self,
        item: &Item<'_>,
        attrs: &AttentionAttrs,
        q_heads: Option<&Dim>,
    ) -> Result<()> {
        if attrs.unseen_is_nan {
            return self.attention_by_softmax(item, attrs, q_heads);
        }
        let windowed = attrs.left_window.is_some() || attrs.right_window.is_some();
        let lengths = !item.input(6).is_empty();
        self.need(if windowed { 25 } else { 23 + i64::from(lengths) });
        let mut attributes = vec![
            flag("is_causal", attrs.causal),
            real("softcap", attrs.softcap),
            size("qk_matmul_output_mode", attrs.qk_output),
        ];
        if attrs.q_num_heads != 0 {
            attributes.push(size("q_num_heads", attrs.q_num_heads));
            attributes.push(size("kv_num_heads", attrs.kv_num_heads));
        }
        attributes.extend(attrs.scale.map(|scale| real("scale", scale)));
        attributes.extend(attrs.softmax_precision.map(|dtype| dtype_attr("softmax_precision", dtype)));
        attributes.extend(attrs.left_window.map(|window| size("left_window_size", window)));
        attributes.extend(attrs.right_window.map(|window| size("right_window_size", window)));
        self.plain(item, "Attention", attributes)
    }

    /// Attention of heads with a mask that is added, as two products and a softmax: ONNX's operator gives 0 where these give NaN.
    fn attention_by_softmax(
        &mut self,
        item: &Item<'_>,
        attrs: &AttentionAttrs,
        q_heads: Option<&Dim>,
    ) -> Result<()> {
        let k = self.operand_dims(item, 1)?;
        let plain = AttentionAttrs { unseen_is_nan: true, ..AttentionAttrs::of_heads(attrs.scale) };
        let is_added =
            item.input(3).is_empty() || self.operand_dtype(item, 3)? == self.operand_dtype(item, 0)?;
        let is_of_heads = q_heads.is_some() && k.get(1) == q_heads;
        if *attrs != plain || !is_of_heads || !is_added || !item.input(4).is_empty() {
            return Err(
                "attention that gives NaN to a query that sees no key has more than heads and a mask to add"
                    .into(),
            );
        }
        let scale = match (attrs.scale, k.last().and_then(Dim::as_const)) {
            (Some(scale), _) => scale.to_f64(),
            (None, Some(size)) => 1.0 / (size as f64).sqrt(),
            (None, None) => return Err("attention of heads of open size has no scale".into()),
        };
        let keys = self.transposed(item.input(1), 4)?;
        let scores = self.emit("MatMul", &[item.input(0), &keys], vec![]);
        let scale = self.scalar(self.operand_dtype(item, 0)?, scale)?;
        let mut scores = self.emit("Mul", &[&scores, &scale], vec![]);
        if !item.input(3).is_empty() {
            scores = self.emit("Add", &[&scores, item.input(3)], vec![]);
        }
        let weights = self.emit("Softmax", &[&scores], vec![int("axis", -1)]);
        self.finish(item, "MatMul", &[&weights, item.input(2)], vec![]);
        Ok(())
    }

    pub(super) fn linear_attention(&mut self, item: &Item<'_>, attrs: &LinearAttentionAttrs) -> Result<()> {
        self.need(27);
        let rule = match attrs.rule {
            LinearAttentionRule::Linear => "linear",
            LinearAttentionRule::Gated => "gated",
            LinearAttentionRule::Delta => "delta",
            LinearAttentionRule::GatedDelta => "gated_delta",
        };
        let mut attributes = vec![
            size("q_num_heads", attrs.q_num_heads),
            size("kv_num_heads", attrs.kv_num_heads),
            text("update_rule", rule),
        ];
        attributes.extend(attrs.scale.map(|scale| real("scale", scale)));
        self.plain(item, "LinearAttention", attributes)
    }

    pub(super) fn recurrent(&mut self, item: &Item<'_>, op_type: &str, attrs: &RecurrentAttrs) -> Result<()> {
        use RecurrentActivation::*;
        let name = |kind: &RecurrentActivation| match kind {
            Relu => ("Relu", false, false),
            Tanh => ("Tanh", false, false),
            Sigmoid => ("Sigmoid", false, false),
            Affine => ("Affine", true, true),
            LeakyRelu => ("LeakyRelu", true, false),
            ThresholdedRelu => ("ThresholdedRelu", true, false),
            ScaledTanh => ("ScaledTanh", true, true),
            HardSigmoid => ("HardSigmoid", true, true),
            Elu => ("Elu", true, false),
            Softsign => ("Softsign", false, false),
            Softplus => ("Softplus", false, false),
        };
        let direction = match attrs.direction {
            Direction::Forward => "forward",
            Direction::Reverse => "reverse",
            Direction::Bidirectional => "bidirectional",
        };
        let names: Vec<String> = attrs.activations.iter().map(|kind| name(kind).0.to_owned()).collect();
        let mut attributes = vec![
            text("direction", direction),
            size("hidden_size", attrs.hidden_size),
            texts("activations", &names),
            flag("layout", attrs.batch_first),
        ];
        // Only activations that take a parameter have one in the list.
        let taken = attrs.activations.iter().zip(&attrs.activation_alpha).filter(|(kind, _)| name(kind).1);
        let alphas: Vec<_> = taken.map(|(_, &value)| value).collect();
        let taken = attrs.activations.iter().zip(&attrs.activation_beta).filter(|(kind, _)| name(kind).2);
        let betas: Vec<_> = taken.map(|(_, &value)| value).collect();
        if !alphas.is_empty() {
            attributes.push(reals("activation_alpha", &alphas));
        }
        if !betas.is_empty() {
            attributes.push(reals("activation_beta", &betas));
        }
        attributes.extend(attrs.clip.map(|clip| real("clip", clip)));
        if attrs.input_forget {
            attributes.push(flag("input_forget", true));
        }
        if attrs.linear_before_reset {
            attributes.push(flag("linear_before_reset", true));
        }
        self.plain(item, op_type, attributes)
    }

    pub(super) fn dft(&mut self, item: &Item<'_>, attrs: &DftAttrs) -> Result<()> {
        let length = match &attrs.length {
            Some(length) => {
                let vector = self.extent(length)?;
                self.as_scalar(&vector)
            }
            None => item.input(1).to_owned(),
        };
        let axis = match attrs.axis {
            Some(axis) => self.initializer("axis", &Tensor::scalar(axis as i64)),
            None => item.input(2).to_owned(),
        };
        let attributes = vec![flag("inverse", attrs.inverse), flag("onesided", attrs.onesided)];
        self.finish(item, "DFT", &[item.input(0), &length, &axis], attributes);
        Ok(())
    }

    pub(super) fn stft(&mut self, item: &Item<'_>, attrs: &StftAttrs) -> Result<()> {
        let mut scalar = |value: Option<i64>, operand: &str| match value {
            Some(value) => self.initializer("length", &Tensor::scalar(value)),
            None => operand.to_owned(),
        };
        let step = scalar(attrs.frame_step, item.input(1));
        let length = scalar(attrs.frame_length, item.input(3));
        let inputs = [item.input(0), &step, item.input(2), &length];
        self.finish(item, "STFT", &inputs, vec![flag("onesided", attrs.onesided)]);
        Ok(())
    }

    /// A scalar zero of the element type of an operand's, or of integers.
    pub(super) fn zero(&mut self, dtype: DType) -> Result<String> {
        self.scalar(dtype, 0.0)
    }

    pub(super) fn gemm(&mut self, item: &Item<'_>, attrs: &GemmAttrs) -> Result<()> {
        let attributes = vec![
            real("alpha", attrs.alpha),
            real("beta", attrs.beta),
            flag("transA", attrs.transpose_a),
            flag("transB", attrs.transpose_b),
        ];
        self.plain(item, "Gemm", attributes)
    }

    pub(super) fn deform_conv(&mut self, item: &Item<'_>, attrs: &DeformConvAttrs) -> Result<()> {
        let mut attributes = strided(&attrs.strides, &attrs.pads, &attrs.dilations);
        attributes.extend([size("group", attrs.group), size("offset_group", attrs.offset_group)]);
        self.plain(item, "DeformConv", attributes)
    }

    pub(super) fn causal_conv(&mut self, item: &Item<'_>, attrs: &CausalConvAttrs) -> Result<()> {
        self.need(27);
        let activation = if attrs.silu { "silu" } else { "none" };
        self.plain(item, "CausalConvWithState", vec![text("activation", activation)])
    }

    pub(super) fn max_pool_indices(&mut self, item: &Item<'_>, attrs: &MaxPoolIndicesAttrs) -> Result<()> {
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

    pub(super) fn max_unpool_dynamic(
        &mut self,
        item: &Item<'_>,
        attrs: &MaxUnpoolDynamicAttrs,
    ) -> Result<()> {
        let attributes = vec![
            sizes("kernel_shape", &attrs.kernel),
            sizes("strides", &attrs.strides),
            ints("pads", &attrs.pads),
        ];
        self.plain(item, "MaxUnpool", attributes)
    }

    pub(super) fn max_roi_pool(&mut self, item: &Item<'_>, attrs: &MaxRoiPoolAttrs) -> Result<()> {
        let attributes =
            vec![sizes("pooled_shape", &attrs.pooled), real("spatial_scale", attrs.spatial_scale)];
        self.plain(item, "MaxRoiPool", attributes)
    }

    pub(super) fn roi_align(&mut self, item: &Item<'_>, attrs: &RoiAlignAttrs) -> Result<()> {
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

    pub(super) fn reduce_dynamic(&mut self, item: &Item<'_>, attrs: &ReduceDynamicAttrs) -> Result<()> {
        let attributes =
            vec![flag("keepdims", attrs.keep_dims), flag("noop_with_empty_axes", attrs.empty_is_noop)];
        self.plain(item, reduce_name(attrs.kind), attributes)
    }

    pub(super) fn arg_reduce(&mut self, item: &Item<'_>, attrs: &ArgReduceAttrs) -> Result<()> {
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

    pub(super) fn softmax(&mut self, item: &Item<'_>, attrs: &SoftmaxAttrs) -> Result<()> {
        let op_type = if attrs.log { "LogSoftmax" } else { "Softmax" };
        self.plain(item, op_type, vec![size("axis", attrs.axis)])
    }

    pub(super) fn group_norm(&mut self, item: &Item<'_>, attrs: &GroupNormAttrs) -> Result<()> {
        let mut attributes = vec![size("num_groups", attrs.groups), real("epsilon", attrs.epsilon)];
        attributes.extend(attrs.stash.map(|stash| dtype_attr("stash_type", stash)));
        self.plain(item, "GroupNormalization", attributes)
    }

    pub(super) fn lp_norm(&mut self, item: &Item<'_>, attrs: &LpNormAttrs) -> Result<()> {
        self.plain(item, "LpNormalization", vec![size("axis", attrs.axis), size("p", attrs.p)])
    }

    pub(super) fn lrn(&mut self, item: &Item<'_>, attrs: &LrnAttrs) -> Result<()> {
        let attributes = vec![
            size("size", attrs.size),
            real("alpha", attrs.alpha),
            real("beta", attrs.beta),
            real("bias", attrs.bias),
        ];
        self.plain(item, "LRN", attributes)
    }

    pub(super) fn rotary_embedding(&mut self, item: &Item<'_>, attrs: &RotaryAttrs) -> Result<()> {
        self.need(23);
        let attributes = vec![
            size("num_heads", attrs.num_heads),
            size("rotary_embedding_dim", attrs.dim),
            flag("interleaved", attrs.interleaved),
        ];
        self.plain(item, "RotaryEmbedding", attributes)
    }

    pub(super) fn norm(&mut self, item: &Item<'_>, op_type: &str, attrs: &NormAttrs) -> Result<()> {
        self.plain(item, op_type, vec![real("epsilon", attrs.epsilon)])
    }
}
