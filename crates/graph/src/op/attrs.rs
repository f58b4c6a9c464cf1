//! Attribute structs of the operators. Axes are normalised: non-negative and below the rank.

use tilewright_dtype::DType;

use super::attr::{Attr, AttrVisitor, Real, attributes};
use super::kinds::*;
use crate::dim::Dim;
use crate::ids::RegionId;
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
        /// Query heads, for operands of rank 3; 0 for rank 4.
        q_num_heads: usize,
        /// Key and value heads, for operands of rank 3; 0 for rank 4.
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

    /// Attributes of operators defined by the extents of their result.
    DimsAttrs {
        /// Extents of the result.
        dims: Vec<Dim>,
    }

    /// Attributes of `ReshapeDynamic`.
    ReshapeDynamicAttrs {
        /// Whether a 0 means an extent of 0 instead of the operand's.
        allow_zero: bool,
    }

    /// Attributes of `Transpose`.
    TransposeAttrs {
        /// Axis of the operand that each axis of the result takes.
        perm: Vec<usize>,
    }

    /// Attributes of `Slice`: result element `i` of a listed axis is operand element `start + i * step`.
    SliceAttrs {
        /// Sliced axes.
        axes: Vec<usize>,
        /// First element, non-negative, one a listed axis.
        starts: Vec<Dim>,
        /// Distance of elements, never 0, one a listed axis.
        steps: Vec<i64>,
        /// Extent of the result, one a listed axis.
        sizes: Vec<Dim>,
    }

    /// Attributes of operators along one axis.
    AxisAttrs {
        /// The axis.
        axis: usize,
    }

    /// Attributes of operators along an axis or over the flattened operand.
    OptionalAxisAttrs {
        /// The axis; the operand is flattened if absent.
        axis: Option<usize>,
    }

    /// Attributes of `Split`.
    SplitAttrs {
        /// The axis.
        axis: usize,
        /// Extent of each result.
        sizes: Vec<Dim>,
    }

    /// Attributes of `Pad`.
    PadAttrs {
        /// What padding holds.
        mode: PadMode,
        /// Elements before, one an axis; negative crops.
        before: Vec<Dim>,
        /// Elements after, one an axis; negative crops.
        after: Vec<Dim>,
    }

    /// Attributes of `PadDynamic`.
    PadDynamicAttrs {
        /// What padding holds.
        mode: PadMode,
    }

    /// Attributes of `GatherNd`.
    GatherNdAttrs {
        /// Leading axes that operand and indices share.
        batch_dims: usize,
    }

    /// Attributes of `ScatterElements`.
    ScatterElementsAttrs {
        /// The axis.
        axis: usize,
        /// How elements combine.
        reduction: ScatterReduction,
    }

    /// Attributes of `ScatterNd`.
    ScatterNdAttrs {
        /// How elements combine.
        reduction: ScatterReduction,
    }

    /// Attributes of `TensorScatter`.
    TensorScatterAttrs {
        /// The sequence axis.
        axis: usize,
        /// How positions past the end are treated.
        mode: CacheMode,
    }

    /// Attributes of `Tile`.
    TileAttrs {
        /// Copies along each axis.
        repeats: Vec<Dim>,
    }

    /// How `Resize` and `ResizeDynamic` sample. Lists that name axes cover `axes`.
    ResizeAttrs {
        /// Interpolation.
        mode: InterpolationMode,
        /// Coordinate mapping.
        coordinates: CoordinateMode,
        /// Which element `nearest` takes.
        nearest: NearestMode,
        /// Coefficient of cubic convolution.
        cubic_coeff_a: Real,
        /// Value outside the region of interest.
        extrapolation_value: Real,
        /// Whether weights outside the tensor are 0 and the others renormalised.
        exclude_outside: bool,
        /// Whether the filter is widened when shrinking.
        antialias: bool,
        /// What becomes of given sizes.
        policy: AspectPolicy,
        /// Axes the lists and operands are about; every other axis keeps its extent.
        axes: Vec<usize>,
        /// Extents of the result, all axes; empty in `ResizeDynamic`.
        dims: Vec<Dim>,
        /// Scale of each axis in `axes`, where scales were given; else it follows from the extents.
        scales: Vec<Real>,
        /// Region of interest: starts, then ends, of each axis in `axes`.
        roi: Vec<Real>,
    }

    /// Attributes of `GridSample`.
    GridSampleAttrs {
        /// Interpolation.
        mode: InterpolationMode,
        /// What is outside.
        padding: GridPadding,
        /// Whether -1 and 1 are the centres of the corner elements.
        align_corners: bool,
    }

    /// Attributes of `AffineGrid`.
    AffineGridAttrs {
        /// Whether -1 and 1 are the centres of the corner elements.
        align_corners: bool,
    }

    /// Attributes of `Iota`.
    IotaAttrs {
        /// Number of elements.
        len: Dim,
    }

    /// Attributes of `Eye`.
    EyeAttrs {
        /// Rows, then columns.
        dims: Vec<Dim>,
        /// Diagonal: positive above the main one.
        diagonal: i64,
        /// Element type of the result.
        dtype: DType,
    }

    /// Attributes of `OneHot`.
    OneHotAttrs {
        /// Axis of the result that is new.
        axis: usize,
        /// Its extent; operand 2 if absent.
        depth: Option<Dim>,
    }

    /// Attributes of `Trilu`.
    TriluAttrs {
        /// Whether the upper triangle is kept.
        upper: bool,
        /// Diagonal; operand 1, or 0 if there is none, if absent.
        diagonal: Option<i64>,
    }

    /// Attributes of `ReverseSequence`.
    ReverseSequenceAttrs {
        /// Axis of sequences.
        batch_axis: usize,
        /// Axis of steps.
        time_axis: usize,
    }

    /// Attributes of `TopK`.
    TopKAttrs {
        /// The axis.
        axis: usize,
        /// Whether the largest are wanted.
        largest: bool,
        /// Whether results come in order.
        sorted: bool,
        /// Number of results; operand 1 if absent.
        k: Option<Dim>,
    }

    /// Attributes of `Unique`.
    UniqueAttrs {
        /// The axis; the operand is flattened if absent.
        axis: Option<usize>,
        /// Whether results are sorted, instead of in order of first occurrence.
        sorted: bool,
    }

    /// Attributes of `NonMaxSuppression`.
    NonMaxSuppressionAttrs {
        /// Whether boxes are centre and size, instead of two corners.
        center_point_box: bool,
    }

    /// Attributes of `Einsum`.
    EinsumAttrs {
        /// Subscripts with explicit output, spaces removed; `...` may occur.
        equation: String,
    }

    /// Attributes of `Dft`.
    DftAttrs {
        /// Transformed axis; operand 2 if absent.
        axis: Option<usize>,
        /// Whether the inverse is computed.
        inverse: bool,
        /// Whether only the non-redundant half is produced (or, with `inverse`, given).
        onesided: bool,
        /// Length of the transform; operand 1, or the operand's extent, if absent.
        length: Option<Dim>,
    }

    /// Attributes of `Stft`.
    StftAttrs {
        /// Whether only the non-redundant half is produced.
        onesided: bool,
        /// Samples between frames; operand 1 if absent.
        frame_step: Option<i64>,
        /// Samples in a frame; operand 3 or the window's extent if absent.
        frame_length: Option<i64>,
    }

    /// Attributes of `Col2Im`.
    Col2ImAttrs {
        /// Spatial extents of the result; operand 1 if empty.
        image: Vec<Dim>,
        /// Extents of a block; operand 2 if empty.
        block: Vec<usize>,
        /// Step of the block.
        strides: Vec<usize>,
        /// Padding: begins, then ends.
        pads: Vec<i64>,
        /// Distance of block elements.
        dilations: Vec<usize>,
    }

    /// Attributes of `CenterCropPad`.
    CenterCropPadAttrs {
        /// Axes the shape operand is about.
        axes: Vec<usize>,
    }

    /// Attributes of `Shape`.
    ShapeAttrs {
        /// First axis.
        start: usize,
        /// One past the last axis.
        end: usize,
    }

    /// Attributes of `FromDims`.
    FromDimsAttrs {
        /// The elements.
        values: Vec<Dim>,
        /// Whether the result is a scalar (of the only element) instead of a vector.
        scalar: bool,
        /// Element type of the result.
        dtype: DType,
    }

    /// Attributes of `Random`.
    RandomAttrs {
        /// Distribution.
        distribution: Distribution,
        /// First parameter.
        a: Real,
        /// Second parameter.
        b: Real,
        /// Seed; if absent, the session's and the stream decide.
        seed: Option<Real>,
        /// Which node of the model this is, for the numbers of a session to go on from.
        stream: i64,
        /// Element type of the result.
        dtype: DType,
        /// Extents of the result.
        dims: Vec<Dim>,
    }

    /// Attributes of `Multinomial`.
    MultinomialAttrs {
        /// Samples a row.
        sample_size: usize,
        /// Seed; if absent, the session's and the stream decide.
        seed: Option<Real>,
        /// As in `RandomAttrs`.
        stream: i64,
        /// Element type of the result.
        dtype: DType,
    }

    /// Attributes of `If`.
    IfAttrs {
        /// Run where the condition holds.
        then_region: RegionId,
        /// Run where it does not.
        else_region: RegionId,
    }

    /// Attributes of `Loop`.
    LoopAttrs {
        /// The body.
        body: RegionId,
        /// Number of loop-carried values.
        carried: usize,
    }

    /// Attributes of `Scan`.
    ScanAttrs {
        /// The body.
        body: RegionId,
        /// Number of state values.
        states: usize,
        /// Scanned axis of each scanned input.
        input_axes: Vec<usize>,
        /// Whether each scanned input runs backwards.
        input_reversed: Vec<bool>,
        /// Stacked axis of each scan output.
        output_axes: Vec<usize>,
        /// Whether each scan output is stacked backwards.
        output_reversed: Vec<bool>,
    }

    /// Attributes of `SplitToSequence`.
    SplitToSequenceAttrs {
        /// The axis.
        axis: usize,
        /// Whether the axis stays when pieces have extent 1 by default.
        keep_dims: bool,
    }

    /// Attributes of `ConcatFromSequence`.
    ConcatFromSequenceAttrs {
        /// The axis.
        axis: usize,
        /// Whether the axis is new.
        new_axis: bool,
    }

    /// Attributes of `StringSplit`.
    StringSplitAttrs {
        /// Separator; runs of white space if empty.
        delimiter: String,
        /// Most splits; unlimited if absent.
        max_split: Option<usize>,
    }

    /// Attributes of `StringNormalizer`.
    StringNormalizerAttrs {
        /// Case folding.
        case: CaseAction,
        /// Whether stop words are compared with case.
        case_sensitive: bool,
        /// Removed strings.
        stopwords: Vec<String>,
    }

    /// Attributes of `RegexFullMatch`.
    RegexAttrs {
        /// The pattern, in RE2 syntax.
        pattern: String,
    }

    /// Attributes of `TfIdf`.
    TfIdfAttrs {
        /// Weighting.
        mode: TfIdfMode,
        /// Shortest n-gram.
        min_length: usize,
        /// Longest n-gram.
        max_length: usize,
        /// Most items skipped between two of an n-gram.
        max_skip: usize,
        /// First position of each length in the pool.
        counts: Vec<usize>,
        /// Column of the result of each n-gram.
        indexes: Vec<usize>,
        /// The n-grams, if of integers.
        pool_integers: Vec<i64>,
        /// The n-grams, if of strings.
        pool_strings: Vec<String>,
        /// Weight of each n-gram; all 1 if empty.
        weights: Vec<Real>,
    }

    /// Attributes of `Extern`.
    ExternAttrs {
        /// Operator set the operator is from.
        domain: String,
        /// Name within the operator set.
        name: String,
        /// Version of the operator set.
        version: usize,
        /// The attributes in their encoded form, in hexadecimal, for the implementation to decode.
        payload: String,
        /// Number of results.
        results: usize,
    }
}
