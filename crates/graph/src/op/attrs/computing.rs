//! Attributes of operators that compute: elementwise ones, products, windows, reductions, norms, layers.

use tilewright_dtype::DType;

use super::super::attr::{Attr, AttrVisitor, Real, attributes};
use super::super::kinds::*;
use crate::dim::Dim;
use crate::text::{ParseError, Reader, Writer};

attributes! {
    /// Attributes of `Activation`.
    ActivationAttrs {
        /// Which function.
        kind: ActivationKind,
        /// First parameter.
        alpha: Real,
        /// Second parameter.
        beta: Real,
    }

    /// Attributes of `Cast`.
    CastAttrs {
        /// Element type of the result.
        to: DType,
        /// Whether values outside an 8-bit float's range become its largest value instead of infinity or NaN.
        saturate: bool,
        /// Rounding to `F8E8M0`; nearest if absent.
        round: Option<RoundMode>,
    }

    /// Attributes of `MatMul`.
    MatMulAttrs {
        /// Whether the last two axes of the left operand are exchanged.
        transpose_a: bool,
        /// Whether the last two axes of the right operand are exchanged.
        transpose_b: bool,
    }

    /// Attributes of `Gemm`: `alpha op(A) op(B) + beta C`.
    GemmAttrs {
        /// Factor of the product.
        alpha: Real,
        /// Factor of the addend.
        beta: Real,
        /// Whether A is transposed.
        transpose_a: bool,
        /// Whether B is transposed.
        transpose_b: bool,
    }

    /// Attributes of `Conv` and `ConvInteger`. Lists have one entry a spatial axis; `pads` has the begins, then the ends.
    /// The kernel's extents are those of the weight operand.
    ConvAttrs {
        /// Step of the window.
        strides: Vec<usize>,
        /// Padding before and after; negative crops.
        pads: Vec<i64>,
        /// Distance of kernel elements.
        dilations: Vec<usize>,
        /// Number of channel groups.
        group: usize,
    }

    /// Attributes of `ConvTranspose`.
    ConvTransposeAttrs {
        /// Step of the window.
        strides: Vec<usize>,
        /// Cropping of the full result: begins, then ends.
        pads: Vec<i64>,
        /// Distance of kernel elements.
        dilations: Vec<usize>,
        /// Number of channel groups.
        group: usize,
        /// Extra extent at the end of each axis.
        output_padding: Vec<i64>,
    }

    /// Attributes of `DeformConv`.
    DeformConvAttrs {
        /// Step of the window.
        strides: Vec<usize>,
        /// Padding: begins, then ends.
        pads: Vec<i64>,
        /// Distance of kernel elements.
        dilations: Vec<usize>,
        /// Number of channel groups.
        group: usize,
        /// Number of offset groups.
        offset_group: usize,
    }

    /// Attributes of `CausalConv`.
    CausalConvAttrs {
        /// Whether `x * sigmoid(x)` is applied to the result.
        silu: bool,
    }

    /// Attributes of `QuantizeLinear`.
    QuantizeAttrs {
        /// Axis of per-axis or blocked scales; unused for scalar ones.
        axis: usize,
        /// Elements a scale along `axis`; 0 if not blocked.
        block_size: usize,
        /// Element type of the result.
        to: DType,
        /// As for `Cast`.
        saturate: bool,
        /// Type of the division; the scale's if absent.
        precision: Option<DType>,
    }

    /// Attributes of `DequantizeLinear`.
    DequantizeAttrs {
        /// Axis of per-axis or blocked scales; unused for scalar ones.
        axis: usize,
        /// Elements a scale along `axis`; 0 if not blocked.
        block_size: usize,
        /// Element type of the result.
        to: DType,
    }

    /// Attributes of `Pool`. Lists have one entry a spatial axis; `pads` has the begins, then the ends.
    PoolAttrs {
        /// What is computed over the window.
        kind: PoolKind,
        /// Extents of the window.
        kernel: Vec<usize>,
        /// Step of the window.
        strides: Vec<usize>,
        /// Padding: begins, then ends.
        pads: Vec<i64>,
        /// Distance of window elements.
        dilations: Vec<usize>,
        /// Whether a last partial window counts.
        ceil_mode: bool,
        /// Whether padding counts as elements of an average.
        count_include_pad: bool,
        /// The norm's exponent, for `lp`.
        p: usize,
    }

    /// Attributes of `MaxPoolIndices`.
    MaxPoolIndicesAttrs {
        /// Extents of the window.
        kernel: Vec<usize>,
        /// Step of the window.
        strides: Vec<usize>,
        /// Padding: begins, then ends.
        pads: Vec<i64>,
        /// Distance of window elements.
        dilations: Vec<usize>,
        /// Whether a last partial window counts.
        ceil_mode: bool,
        /// Whether indices count the spatial axes column-major.
        column_major: bool,
    }

    /// Attributes of `MaxUnpool`.
    MaxUnpoolAttrs {
        /// Extents of the result, all axes.
        dims: Vec<Dim>,
    }

    /// Attributes of `MaxUnpoolDynamic`.
    MaxUnpoolDynamicAttrs {
        /// Extents of the window.
        kernel: Vec<usize>,
        /// Step of the window.
        strides: Vec<usize>,
        /// Padding: begins, then ends.
        pads: Vec<i64>,
    }

    /// Attributes of `MaxRoiPool`.
    MaxRoiPoolAttrs {
        /// Extents of the pooled region.
        pooled: Vec<usize>,
        /// Factor from region coordinates to input coordinates.
        spatial_scale: Real,
    }

    /// Attributes of `RoiAlign`.
    RoiAlignAttrs {
        /// What is computed from the samples.
        mode: RoiMode,
        /// How coordinates map to pixels.
        coordinates: RoiCoordinates,
        /// Height of the pooled region.
        output_height: usize,
        /// Width of the pooled region.
        output_width: usize,
        /// Samples an axis in each bin; 0 for as many as the bin has pixels.
        sampling_ratio: usize,
        /// Factor from region coordinates to input coordinates.
        spatial_scale: Real,
    }

    /// Attributes of `Reduce`.
    ReduceAttrs {
        /// What is computed.
        kind: ReduceKind,
        /// Reduced axes, ascending; none reduces nothing (but still squares for `sum_square` and so on).
        axes: Vec<usize>,
        /// Whether reduced axes stay, with extent 1.
        keep_dims: bool,
    }

    /// Attributes of `ReduceDynamic`.
    ReduceDynamicAttrs {
        /// What is computed.
        kind: ReduceKind,
        /// Whether reduced axes stay, with extent 1.
        keep_dims: bool,
        /// Whether an empty list of axes reduces nothing instead of everything.
        empty_is_noop: bool,
    }

    /// Attributes of `ArgReduce`.
    ArgReduceAttrs {
        /// Which extreme.
        extreme: Extreme,
        /// Reduced axis.
        axis: usize,
        /// Whether the reduced axis stays, with extent 1.
        keep_dims: bool,
        /// Whether the last of equal elements is taken.
        select_last: bool,
    }

    /// Attributes of `Cumulative`.
    CumulativeAttrs {
        /// What is accumulated.
        kind: CumulativeKind,
        /// The axis; operand 1 if absent.
        axis: Option<usize>,
        /// Whether an element itself is left out of its result.
        exclusive: bool,
        /// Whether accumulation starts at the end.
        reverse: bool,
    }

    /// Attributes of `Softmax`.
    SoftmaxAttrs {
        /// The normalised axis.
        axis: usize,
        /// Whether the result is the logarithm.
        log: bool,
    }

    /// Attributes of `LayerNorm` and `RmsNorm`: statistics over `axis` and all later axes.
    LayerNormAttrs {
        /// First normalised axis.
        axis: usize,
        /// Added to the variance (or mean square).
        epsilon: Real,
        /// Type of the statistics; the operand's if absent.
        stash: Option<DType>,
    }

    /// Attributes of `GroupNorm`.
    GroupNormAttrs {
        /// Number of channel groups.
        groups: usize,
        /// Added to the variance.
        epsilon: Real,
        /// Type of the statistics; the operand's if absent.
        stash: Option<DType>,
    }

    /// Attributes of `InstanceNorm` and `BatchNorm`.
    NormAttrs {
        /// Added to the variance.
        epsilon: Real,
    }

    /// Attributes of `LpNorm`.
    LpNormAttrs {
        /// Normalised axis.
        axis: usize,
        /// 1 or 2.
        p: usize,
    }

    /// Attributes of `Lrn`.
    LrnAttrs {
        /// Channels in a window.
        size: usize,
        /// Factor of the window's mean square.
        alpha: Real,
        /// Exponent.
        beta: Real,
        /// Addend.
        bias: Real,
    }

    /// Attributes of `Attention` (ONNX opset 23 and later).
    AttentionAttrs {
        /// Query heads, for queries of rank 3 (the result has their rank); 0 for rank 4.
        q_num_heads: usize,
        /// Key and value heads, for keys and values of rank 3; 0 for rank 4.
        kv_num_heads: usize,
        /// Factor of the product of queries and keys; 1/sqrt(head size) if absent.
        scale: Option<Real>,
        /// Whether later positions are masked.
        causal: bool,
        /// `c tanh(x / c)` on scores; 0 for none.
        softcap: Real,
        /// Keys further to the left are masked; none is unlimited.
        left_window: Option<usize>,
        /// Keys further to the right are masked; none is unlimited.
        right_window: Option<usize>,
        /// What the optional fourth result holds: 0 the product, 1 with mask, 2 with softcap, 3 after softmax.
        qk_output: usize,
        /// Type of the softmax; the operand's if absent.
        softmax_precision: Option<DType>,
        /// Whether a query that sees no key gets NaN, as by a softmax of minus infinities, and not 0, as ONNX's operator has it.
        unseen_is_nan: bool,
    }

    /// Attributes of `LinearAttention`.
    LinearAttentionAttrs {
        /// Query heads.
        q_num_heads: usize,
        /// Key and value heads.
        kv_num_heads: usize,
        /// Factor of the queries; 1/sqrt(head size) if absent.
        scale: Option<Real>,
        /// State update.
        rule: LinearAttentionRule,
    }

    /// Attributes of `RotaryEmbedding`.
    RotaryAttrs {
        /// Heads, for operands of rank 3; 0 for rank 4.
        num_heads: usize,
        /// Rotated elements of a head; 0 for all.
        dim: usize,
        /// Whether pairs are neighbours instead of halves.
        interleaved: bool,
    }

    /// Attributes of `Lstm`, `Gru` and `Rnn`.
    RecurrentAttrs {
        /// Order of time steps.
        direction: Direction,
        /// Elements of the hidden state.
        hidden_size: usize,
        /// Activations, for each direction in ONNX's order.
        activations: Vec<RecurrentActivation>,
        /// First parameters of the activations, one each.
        activation_alpha: Vec<Real>,
        /// Second parameters of the activations, one each.
        activation_beta: Vec<Real>,
        /// Bound of pre-activations; none if absent.
        clip: Option<Real>,
        /// Whether batch comes before time.
        batch_first: bool,
        /// LSTM: whether input and forget gates are coupled.
        input_forget: bool,
        /// GRU: whether the reset gate is applied after the recurrent product.
        linear_before_reset: bool,
    }
}

impl AttentionAttrs {
    /// Attention of tensors of heads, `[batch, head, position, element]`, with a factor of the scores and nothing else.
    pub fn of_heads(scale: Option<Real>) -> AttentionAttrs {
        AttentionAttrs {
            q_num_heads: 0,
            kv_num_heads: 0,
            scale,
            causal: false,
            softcap: Real(0.0),
            left_window: None,
            right_window: None,
            qk_output: 0,
            softmax_precision: None,
            unseen_is_nan: false,
        }
    }
}
