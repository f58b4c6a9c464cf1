//! The operator table: a closed enum with one row an operator.
//!
//! A row gives the operator's attributes, how many operands it has and of which element types, how many results, its fusion
//! class, what computing it again costs, its role in the choice of layouts and, where it is not pure, its effect. Everything that
//! is generic over operators (text form, hashing, arity checks, fusion, layouts) reads the table; what is specific (type
//! inference, the meaning in `lower`) matches the enum exhaustively.
//!
//! Semantics common to all: tensors are dense and logical (no layouts); binary and ternary elementwise operators
//! broadcast as numpy does; integer arithmetic wraps; floating-point follows IEEE 754 in the element type;
//! indices from data count from the end when negative. An absent optional operand is `None` in the node's
//! inputs, trailing ones may be left out. Operators named `..Dynamic` take at run time, as operands, what their
//! plain form has as attributes; `passes::resolve` turns one into the other as soon as values are known.

pub(crate) mod attr;
mod attrs;
mod dtypes;
mod kinds;

use std::ops::RangeInclusive;

pub use attr::{Attr, AttrVisitor, Real};
pub use attrs::*;
pub use dtypes::DTypeSet;
use dtypes::*;
pub use kinds::*;
use tilewright_dtype::DType;

use crate::dim::Dim;
use crate::identity::Identity;
use crate::ids::RegionId;
use crate::tensor::Tensor;
use crate::text::{ParseError, Reader, Writer};
use crate::types::Type;

/// How an operator takes part in fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FusionClass {
    /// Result element `i` depends on element `i` of each operand, up to broadcasting.
    Elementwise,
    /// The operand's elements in the same order under other extents: no code is needed unless it is fused.
    View,
    /// Each result element is a copy of one operand element at an index computed from the result's, and none is copied twice.
    Movement,
    /// Each result element is a copy of one operand element at an index computed from the result's.
    Injective,
    /// Several tensors become parts of one, or one is taken apart: often no copy is needed, so nothing is fused behind it.
    Parts,
    /// Reduces axes of its operand.
    Reduction,
    /// Reduces windows of its operand, which may overlap.
    Window,
    /// Heavy, but its result is written element by element, so an elementwise epilogue can be fused.
    ComplexOut,
    /// A composite whose passes may read their operand through a prologue, and whose last pass writes element by element.
    Normalisation,
    /// A composite of several passes over its operand, scheduled whole.
    Composite,
    /// Never fused: control flow, data-dependent shapes, host operators.
    Opaque,
}

impl FusionClass {
    /// Whether elements are only moved, each result element from one operand element.
    pub fn moves_elements(self) -> bool {
        match self {
            FusionClass::View | FusionClass::Movement | FusionClass::Injective | FusionClass::Parts => true,
            FusionClass::Elementwise
            | FusionClass::Reduction
            | FusionClass::Window
            | FusionClass::ComplexOut
            | FusionClass::Normalisation
            | FusionClass::Composite
            | FusionClass::Opaque => false,
        }
    }
}

/// What an operator wants and makes of layouts that hold channels (dimension 1) in blocks. Every other operator reads any
/// layout by index arithmetic, whatever its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayoutRole {
    /// Accumulates vectors of channels, and so writes its result in blocks of channels.
    Blocks,
    /// Computes each channel of its result from the same channel of its operands.
    Keeps,
    /// As `Keeps`; where it is alone in its group, its result is its operand's memory.
    KeepsView,
    /// Moves whole blocks of channels where it joins its operands along them.
    Joins,
    /// Reduces axes; keeps channels unless they are among them.
    Reduces,
    /// Moves every element anyway, so it may as well write the layout that its readers want.
    Moves,
    /// Writes its result row-major; where it is alone in its group, that is its operand's memory.
    View,
    /// Writes its result row-major.
    Any,
    /// Addresses its operands' memory without index arithmetic, so they are row-major: control flow, host operators.
    Dense,
}

/// What running an operator does besides producing results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing: equal operands give equal results.
    Pure,
    /// Draws random numbers: two equal nodes are not interchangeable, an unused one may go.
    Random,
    /// Unknown: never removed, merged or reordered with others of its kind.
    Unknown,
}

macro_rules! bind {
    ($name:ident, $ty:ty) => {
        $name
    };
}

macro_rules! effect {
    () => {
        Effect::Pure
    };
    ($effect:ident) => {
        Effect::$effect
    };
}

macro_rules! cheap {
    (Cheap $($rest:tt)*) => {
        true
    };
    (Costly $($rest:tt)*) => {
        false
    };
    (ByKind, $attributes:ident as $attrs:ty) => {
        $attributes.is_cheap()
    };
}

macro_rules! operators {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident $(($attrs:ty))? : $inputs:expr, [$($dtypes:expr),*] => $outputs:expr, $class:ident, $again:ident, $role:ident $($effect:ident)?;
    )*) => {
        /// An operator with its attributes. See the module for the conventions all of them share.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Op { $( $(#[doc = $doc])* $name $(($attrs))?, )* }

        impl Op {
            /// The names of all operators, in the order of the table.
            pub const NAMES: &[&str] = &[ $( stringify!($name), )* ];

            /// The operator's name, as in the text form.
            pub fn name(&self) -> &'static str {
                match self { $( Op::$name { .. } => stringify!($name), )* }
            }

            /// How many operands a node may have, absent ones in the middle included.
            pub fn input_arity(&self) -> RangeInclusive<usize> {
                match self { $( Op::$name { .. } => $inputs, )* }
            }

            /// The element types of each operand, the last of them also of those behind it.
            fn row_dtypes(&self) -> &'static [DTypeSet] {
                match self { $( Op::$name { .. } => const { &[$($dtypes),*] }, )* }
            }

            /// How many results a node may have.
            pub fn output_arity(&self) -> RangeInclusive<usize> {
                match self { $( Op::$name { .. } => $outputs, )* }
            }

            /// How the operator takes part in fusion.
            pub fn fusion_class(&self) -> FusionClass {
                match self { $( Op::$name { .. } => FusionClass::$class, )* }
            }

            /// Whether it costs little enough to be computed again for every pass over its result.
            #[expect(unused_variables, reason = "the attributes matter for families of operators alone")]
            pub fn is_cheap(&self) -> bool {
                match self { $( Op::$name $((bind!(attributes, $attrs)))? => cheap!($again $(, attributes as $attrs)?), )* }
            }

            /// What it wants and makes of layouts.
            pub fn layout_role(&self) -> LayoutRole {
                match self { $( Op::$name { .. } => LayoutRole::$role, )* }
            }

            /// What running it does besides producing results.
            pub fn effect(&self) -> Effect {
                match self { $( Op::$name { .. } => effect!($($effect)?), )* }
            }

            /// Prints name and attributes: `Conv[strides=[2, 2], group=1]`.
            pub fn write(&self, writer: &mut Writer<'_>) {
                writer.put(self.name());
                match self { $( Op::$name $((bind!(attributes, $attrs)))? => {
                    $( writer.put("["); <$attrs as Attr>::write(attributes, writer); writer.put("]"); )?
                } )* }
            }

            /// Reads what [`Op::write`] prints.
            pub fn read(reader: &mut Reader<'_>) -> Result<Op, ParseError> {
                let name = reader.word()?;
                match name {
                    $( stringify!($name) => Ok(Op::$name $(({
                        reader.expect("[")?;
                        let attributes = <$attrs as Attr>::read(reader)?;
                        reader.expect("]")?;
                        attributes
                    }))?), )*
                    _ => Err(reader.error(format!("unknown operator `{name}`"))),
                }
            }

            /// Writes name and attributes for the digest of a graph.
            pub(crate) fn identify(&self, identity: &mut Identity<'_>) {
                identity.writer.text(self.name());
                match self { $( Op::$name $((bind!(attributes, $attrs)))? => {
                    $( <$attrs as Attr>::identify(attributes, identity); )?
                } )* }
            }

            /// Shows the visitor every symbolic extent and region among the attributes.
            pub fn visit(&mut self, visitor: &mut dyn AttrVisitor) {
                match self { $( Op::$name $((bind!(attributes, $attrs)))? => {
                    $( <$attrs as Attr>::visit(attributes, visitor); )?
                } )* }
            }
        }
    };
}

/// Upper end of an arity without limit.
const MANY: usize = usize::MAX;

operators! {
    // Elementwise.
    /// The operand itself.
    Identity: 1..=1, [ANY] => 1..=1, Elementwise, Cheap, KeepsView;
    /// A function of one element.
    Unary(UnaryOp): 1..=1, [ANY] => 1..=1, Elementwise, ByKind, Keeps;
    /// An activation with parameters.
    Activation(ActivationAttrs): 1..=1, [NUMBER] => 1..=1, Elementwise, Costly, Keeps;
    /// `(x, min?, max?)`: `min(max(x, min), max)` with scalar bounds.
    Clip: 1..=3, [NUMBER] => 1..=1, Elementwise, Cheap, Keeps;
    /// A function of two elements.
    Binary(BinaryOp): 2..=2, [ANY] => 1..=1, Elementwise, ByKind, Keeps;
    /// `(condition, x, y)`: x where the condition holds, else y.
    Where: 3..=3, [BOOL, ANY] => 1..=1, Elementwise, Cheap, Any;
    /// Conversion of values. Floats to integers truncate; anything to bool tests for non-zero.
    Cast(CastAttrs): 1..=1, [ANY] => 1..=1, Elementwise, Cheap, Any;
    /// Reinterpretation of bits as another element type of the same width.
    BitCast(DType): 1..=1, [ANY] => 1..=1, Elementwise, Cheap, Any;
    /// `(x, scale, zero_point?)`: `saturate(round(x / scale) + zero_point)`, ties to even.
    QuantizeLinear(QuantizeAttrs): 2..=3, [REAL, SCALE, QUANTISED] => 1..=1, Elementwise, Costly, Any;
    /// `(x, scale, zero_point?)`: `(x - zero_point) * scale`.
    DequantizeLinear(DequantizeAttrs): 2..=3, [QUANTISED, SCALE, QUANTISED] => 1..=1, Elementwise, Cheap, Any;

    // Products.
    /// numpy's matmul, each operand optionally with its last two axes exchanged.
    MatMul(MatMulAttrs): 2..=2, [WIDE] => 1..=1, ComplexOut, Costly, Any;
    /// `(A, B, C?)`: `alpha op(A) op(B) + beta C` on matrices, C broadcast.
    Gemm(GemmAttrs): 2..=3, [WIDE] => 1..=1, ComplexOut, Costly, Any;
    /// `(A, B, a_zero?, b_zero?)`: matmul of 8-bit integers less their zero points, in 32 bits. A vector zero
    /// point is a row of A or a column of B each.
    MatMulInteger: 2..=4, [BYTE] => 1..=1, ComplexOut, Costly, Any;
    /// `(x, w, bias?)`: convolution; x is `[batch, channels, spatial..]`, w `[out, channels / group, kernel..]`.
    Conv(ConvAttrs): 2..=3, [FLOAT] => 1..=1, ComplexOut, Costly, Blocks;
    /// `(x, w, x_zero?, w_zero?)`: convolution of 8-bit integers less their zero points, in 32 bits.
    ConvInteger(ConvAttrs): 2..=4, [BYTE] => 1..=1, ComplexOut, Costly, Any;
    /// `(x, w, bias?)`: transposed convolution; w is `[channels, out / group, kernel..]`.
    ConvTranspose(ConvTransposeAttrs): 2..=3, [FLOAT] => 1..=1, ComplexOut, Costly, Blocks;
    /// `(x, w, offset, bias?, mask?)`: deformable convolution.
    DeformConv(DeformConvAttrs): 3..=5, [FLOAT] => 1..=1, ComplexOut, Costly, Any;
    /// `(x, w, bias?, past?) -> (y, present)`: depthwise 1-d convolution over past and present, causal.
    CausalConv(CausalConvAttrs): 2..=4, [FLOAT] => 1..=2, Composite, Costly, Any;
    /// Sum of products by subscripts.
    Einsum(EinsumAttrs): 1..=MANY, [NUMBER] => 1..=1, ComplexOut, Costly, Any;
    /// Determinants of the last two axes.
    Det: 1..=1, [FLOAT] => 1..=1, Composite, Costly, Any;

    // Windows.
    /// Pooling over spatial windows.
    Pool(PoolAttrs): 1..=1, [ANY] => 1..=1, Window, Costly, Keeps;
    /// `x -> (y, indices)`: max pooling with the flat index of each maximum in x.
    MaxPoolIndices(MaxPoolIndicesAttrs): 1..=1, [FLOAT_OR_BYTE] => 2..=2, Composite, Costly, Any;
    /// `(x, indices)`: writes x at flat indices of a zero tensor whose extents are the attribute.
    MaxUnpool(MaxUnpoolAttrs): 2..=2, [FLOAT, INDEX] => 1..=1, Composite, Costly, Any;
    /// `(x, indices, shape)`: `MaxUnpool` into a result of the extents given; indices are flat in the tensor
    /// the window attributes imply.
    MaxUnpoolDynamic(MaxUnpoolDynamicAttrs): 3..=3, [FLOAT, INDEX] => 1..=1, Opaque, Costly, Any;
    /// `(x, rois)`: max pooling of regions; rois are `[batch index, x1, y1, x2, y2]` each.
    MaxRoiPool(MaxRoiPoolAttrs): 2..=2, [FLOAT] => 1..=1, Composite, Costly, Any;
    /// `(x, rois, batch_indices)`: pooling of bilinear samples of regions.
    RoiAlign(RoiAlignAttrs): 3..=3, [FLOAT, FLOAT, INDEX] => 1..=1, Composite, Costly, Any;
    /// `(x, image?, block?)`: sums columns back into an image.
    Col2Im(Col2ImAttrs): 1..=3, [NUMBER_OR_BOOL, INDEX] => 1..=1, Composite, Costly, Any;

    // Reductions.
    /// Reduction over fixed axes.
    Reduce(ReduceAttrs): 1..=1, [ANY] => 1..=1, Reduction, Costly, Reduces;
    /// `(x, axes)`: reduction over axes known at run time.
    ReduceDynamic(ReduceDynamicAttrs): 2..=2, [ANY, INDEX] => 1..=1, Opaque, Costly, Any;
    /// Index of the largest or smallest element, `i64`.
    ArgReduce(ArgReduceAttrs): 1..=1, [NUMBER] => 1..=1, Reduction, Costly, Any;
    /// `(x, axis?)`: running sums or products.
    Cumulative(CumulativeAttrs): 1..=2, [WIDE, INDEX] => 1..=1, Composite, Costly, Any;

    // Normalisation and attention.
    /// `exp(x) / sum exp(x)` along an axis, without overflow, or its logarithm.
    Softmax(SoftmaxAttrs): 1..=1, [FLOAT] => 1..=1, Normalisation, Costly, Any;
    /// `(x, scale?, bias?) -> (y, mean?, inverse deviation?)`.
    LayerNorm(LayerNormAttrs): 1..=3, [FLOAT] => 1..=3, Normalisation, Costly, Any;
    /// `(x, scale?)`: `x / sqrt(mean(x^2) + epsilon) * scale`.
    RmsNorm(LayerNormAttrs): 1..=2, [FLOAT] => 1..=1, Normalisation, Costly, Any;
    /// `(x, scale, bias)`: statistics over the spatial axes of each channel of each instance.
    InstanceNorm(NormAttrs): 3..=3, [FLOAT] => 1..=1, Normalisation, Costly, Keeps;
    /// `(x, scale, bias)`: statistics over groups of channels; scale and bias a channel.
    GroupNorm(GroupNormAttrs): 3..=3, [FLOAT] => 1..=1, Normalisation, Costly, Keeps;
    /// `(x, scale, bias, mean, variance)`: normalisation of channels (axis 1) by given statistics.
    BatchNorm(NormAttrs): 5..=5, [FLOAT] => 1..=1, Elementwise, Costly, Keeps;
    /// `x / norm(x)` along an axis; 0 where the norm is.
    LpNorm(LpNormAttrs): 1..=1, [FLOAT] => 1..=1, Normalisation, Costly, Any;
    /// Local response normalisation across channels.
    Lrn(LrnAttrs): 1..=1, [FLOAT] => 1..=1, Composite, Costly, Any;
    /// `(Q, K, V, mask?, past_key?, past_value?, nonpad_lengths?) -> (Y, present_key?, present_value?, qk?)`.
    Attention(AttentionAttrs): 3..=7, [FLOAT, FLOAT, FLOAT, NUMBER_OR_BOOL, FLOAT, FLOAT, INDEX] => 1..=4, Composite, Costly, Any;
    /// `(query, key, value, past_state?, decay?, beta?) -> (output, present_state)`.
    LinearAttention(LinearAttentionAttrs): 3..=6, [FLOAT] => 1..=2, Composite, Costly, Any;
    /// `(x, cos, sin, positions?)`: rotation of pairs of elements by position.
    RotaryEmbedding(RotaryAttrs): 3..=4, [FLOAT, FLOAT, FLOAT, INDEX] => 1..=1, Composite, Costly, Any;

    // Recurrent layers, with ONNX's operands and gate orders.
    /// `(x, w, r, bias?, lengths?, h0?, c0?, peepholes?) -> (y?, h?, c?)`.
    Lstm(RecurrentAttrs): 3..=8, [FLOAT, FLOAT, FLOAT, FLOAT, I32, FLOAT] => 3..=3, Composite, Costly, Any;
    /// `(x, w, r, bias?, lengths?, h0?) -> (y, h)`.
    Gru(RecurrentAttrs): 3..=6, [FLOAT, FLOAT, FLOAT, FLOAT, I32, FLOAT] => 2..=2, Composite, Costly, Any;
    /// `(x, w, r, bias?, lengths?, h0?) -> (y, h)`.
    Rnn(RecurrentAttrs): 3..=6, [FLOAT, FLOAT, FLOAT, FLOAT, I32, FLOAT] => 2..=2, Composite, Costly, Any;

    // Movement.
    /// The same elements in row-major order under other extents.
    Reshape(DimsAttrs): 1..=1, [ANY] => 1..=1, View, Cheap, View;
    /// `(x, shape)`: reshape to extents known at run time; -1 infers one.
    ReshapeDynamic(ReshapeDynamicAttrs): 2..=2, [ANY, INDEX] => 1..=1, Opaque, Costly, Any;
    /// Permutation of axes.
    Transpose(TransposeAttrs): 1..=1, [ANY] => 1..=1, Movement, Cheap, Moves;
    /// Broadcast to the given extents (which are the result's, the operand's already merged in).
    Expand(DimsAttrs): 1..=1, [ANY] => 1..=1, Injective, Costly, Any;
    /// `(x, shape)`: broadcast of x and a tensor of that shape.
    ExpandDynamic: 2..=2, [ANY, INDEX] => 1..=1, Opaque, Costly, Any;
    /// Every `step`-th element of a range.
    Slice(SliceAttrs): 1..=1, [ANY] => 1..=1, Movement, Cheap, Any;
    /// `(x, starts, ends, axes?, steps?)`: ONNX slice with bounds known at run time.
    SliceDynamic: 3..=5, [ANY, INDEX] => 1..=1, Opaque, Costly, Any;
    /// Operands one after another along an axis.
    Concat(AxisAttrs): 1..=MANY, [ANY] => 1..=1, Parts, Costly, Joins;
    /// Consecutive parts along an axis.
    Split(SplitAttrs): 1..=1, [ANY] => 1..=MANY, Parts, Costly, Any;
    /// `(x, sizes)`: split into parts of sizes known at run time.
    SplitDynamic(AxisAttrs): 2..=2, [ANY, INDEX] => 1..=MANY, Opaque, Costly, Any;
    /// `(x, value?)`: padding by fixed or symbolic amounts.
    Pad(PadAttrs): 1..=2, [ANY] => 1..=1, Injective, Costly, Keeps;
    /// `(x, pads, value?, axes?)`: padding by amounts known at run time.
    PadDynamic(PadDynamicAttrs): 2..=4, [ANY, INDEX, ANY, INDEX] => 1..=1, Opaque, Costly, Any;
    /// `(x, indices)`: numpy's take along an axis.
    Gather(AxisAttrs): 2..=2, [ANY, INDEX] => 1..=1, Injective, Costly, Any;
    /// `(x, indices)`: element by element along an axis.
    GatherElements(AxisAttrs): 2..=2, [ANY, INDEX] => 1..=1, Injective, Costly, Any;
    /// `(x, indices)`: slices addressed by index tuples.
    GatherNd(GatherNdAttrs): 2..=2, [ANY, INDEX] => 1..=1, Injective, Costly, Any;
    /// `(x, indices, updates)`: element by element along an axis.
    ScatterElements(ScatterElementsAttrs): 3..=3, [ANY, INDEX, ANY] => 1..=1, Composite, Costly, Any;
    /// `(x, indices, updates)`: slices addressed by index tuples.
    ScatterNd(ScatterNdAttrs): 3..=3, [ANY, INDEX, ANY] => 1..=1, Composite, Costly, Any;
    /// `(past, update, write_indices?)`: writes a piece of a sequence at a position of each batch entry.
    TensorScatter(TensorScatterAttrs): 2..=3, [ANY, ANY, INDEX] => 1..=1, Composite, Costly, Any;
    /// Copies side by side.
    Tile(TileAttrs): 1..=1, [ANY] => 1..=1, Injective, Costly, Any;
    /// `(x, repeats)`: tile by counts known at run time.
    TileDynamic: 2..=2, [ANY, INDEX] => 1..=1, Opaque, Costly, Any;
    /// Resampling to fixed or symbolic extents.
    Resize(ResizeAttrs): 1..=1, [NUMBER_OR_BOOL] => 1..=1, ComplexOut, Costly, Keeps;
    /// `(x, roi?, scales?, sizes?)`: resampling to extents known at run time.
    ResizeDynamic(ResizeAttrs): 1..=4, [NUMBER_OR_BOOL, FLOAT, FLOAT, INDEX] => 1..=1, Opaque, Costly, Any;
    /// `(x, grid)`: sampling at given places.
    GridSample(GridSampleAttrs): 2..=2, [NUMBER_OR_BOOL, FLOAT] => 1..=1, ComplexOut, Costly, Any;
    /// `(theta, size)`: places for `GridSample` from affine maps.
    AffineGrid(AffineGridAttrs): 2..=2, [FLOAT, INDEX] => 1..=1, Composite, Costly, Any;
    /// `(x, shape)`: crops or pads around the centre.
    CenterCropPad(CenterCropPadAttrs): 2..=2, [ANY, INDEX] => 1..=1, Opaque, Costly, Any;
    /// `(x, k?)`: upper or lower triangles of the last two axes, else 0.
    Trilu(TriluAttrs): 1..=2, [ANY, INDEX] => 1..=1, Injective, Costly, Any;
    /// `(x, lengths)`: reverses the beginning of each sequence.
    ReverseSequence(ReverseSequenceAttrs): 2..=2, [ANY, INDEX] => 1..=1, Injective, Costly, Any;
    /// `(x, condition)`: elements or slices where a boolean vector holds.
    Compress(OptionalAxisAttrs): 2..=2, [ANY, BOOL] => 1..=1, Opaque, Costly, Dense;

    // Generators.
    /// A constant.
    Constant(Tensor): 0..=0, [] => 1..=1, Injective, Costly, Any;
    /// A small integer tensor of extents.
    FromDims(FromDimsAttrs): 0..=0, [] => 1..=1, Injective, Costly, Any;
    /// Extents of the operand, `i64`.
    Shape(ShapeAttrs): 1..=1, [ANY] => 1..=1, Opaque, Costly, Any;
    /// Number of elements of the operand, `i64` scalar.
    Size: 1..=1, [ANY] => 1..=1, Opaque, Costly, Any;
    /// `value`: a tensor full of a scalar.
    Full(DimsAttrs): 1..=1, [ANY] => 1..=1, Injective, Costly, Any;
    /// `(shape, value)`: a tensor full of a scalar, of extents known at run time.
    FullDynamic: 2..=2, [INDEX, ANY] => 1..=1, Opaque, Costly, Any;
    /// `(start, step)`: `start + i * step`.
    Iota(IotaAttrs): 2..=2, [NUMBER] => 1..=1, Injective, Costly, Any;
    /// `(start, limit, step)`: `Iota` up to and without the limit.
    RangeDynamic: 3..=3, [NUMBER] => 1..=1, Opaque, Costly, Any;
    /// Ones on a diagonal, else 0.
    Eye(EyeAttrs): 0..=0, [] => 1..=1, Injective, Costly, Any;
    /// `(indices, values, depth?)`: `values[1]` at each index of the new axis, else `values[0]`.
    OneHot(OneHotAttrs): 2..=3, [NUMBER, ANY, NUMBER] => 1..=1, Injective, Costly, Any;
    /// Random numbers.
    Random(RandomAttrs): 0..=0, [] => 1..=1, Opaque, Costly, Dense Random;
    /// Samples of categories from unnormalised log probabilities.
    Multinomial(MultinomialAttrs): 1..=1, [FLOAT] => 1..=1, Opaque, Costly, Dense Random;
    /// `(bins, dft_length, sample_rate, lower, upper)`: weights from a spectrum to mel bins.
    MelWeightMatrix(DType): 5..=5, [INDEX, INDEX, INDEX, FLOAT] => 1..=1, Opaque, Costly, Any;

    // Selection by data.
    /// `(x, k?) -> (values, indices)`.
    TopK(TopKAttrs): 1..=2, [NUMBER, INDEX] => 2..=2, Opaque, Costly, Any;
    /// Indices of non-zero elements, `[rank, count]`.
    NonZero: 1..=1, [ANY] => 1..=1, Opaque, Costly, Dense;
    /// `x -> (values, first indices, inverse indices, counts)`.
    Unique(UniqueAttrs): 1..=1, [ANY] => 4..=4, Opaque, Costly, Dense;
    /// `(boxes, scores, most?, iou?, score?)`: indices `[batch, class, box]` of selected boxes.
    NonMaxSuppression(NonMaxSuppressionAttrs): 2..=5, [F32, F32, INDEX, F32] => 1..=1, Opaque, Costly, Dense;

    // Signals.
    /// `(x, length?, axis?)`: discrete Fourier transform; the last axis holds real and imaginary parts.
    Dft(DftAttrs): 1..=3, [FLOAT, INDEX] => 1..=1, Composite, Costly, Any;
    /// `(signal, frame_step?, window?, frame_length?)`: short-time Fourier transform.
    Stft(StftAttrs): 1..=4, [FLOAT, INDEX, FLOAT, INDEX] => 1..=1, Composite, Costly, Any;

    // Control flow. Regions see nothing from outside: captured values are operands and parameters.
    /// `(condition, captures..)`: both regions have the captures as parameters.
    If(IfAttrs): 1..=MANY, [BOOL, ANY] => 1..=MANY, Opaque, Costly, Dense;
    /// `(trips?, condition?, carried.., captures..)`: the body has parameters `(iteration, condition, carried..,
    /// captures..)` and results `(condition, carried.., scanned..)`; results are final carried, then stacked scanned values.
    Loop(LoopAttrs): 2..=MANY, [INDEX, BOOL, ANY] => 0..=MANY, Opaque, Costly, Dense;
    /// `(states.., scanned.., captures..)`: the body has those parameters, scanned ones without their axis, and
    /// results `(states.., scanned..)`.
    Scan(ScanAttrs): 1..=MANY, [ANY] => 1..=MANY, Opaque, Costly, Dense;

    // Sequences and optionals.
    /// A sequence of the operands.
    SequenceConstruct: 1..=MANY, [ANY] => 1..=1, Opaque, Costly, Dense;
    /// A sequence without elements, of the given element type.
    SequenceEmpty(Type): 0..=0, [] => 1..=1, Opaque, Costly, Dense;
    /// `(sequence, position)`.
    SequenceAt: 2..=2, [ANY, INDEX] => 1..=1, Opaque, Costly, Dense;
    /// `(sequence, element, position?)`.
    SequenceInsert: 2..=3, [ANY, ANY, INDEX] => 1..=1, Opaque, Costly, Dense;
    /// `(sequence, position?)`.
    SequenceErase: 1..=2, [ANY, INDEX] => 1..=1, Opaque, Costly, Dense;
    /// Number of elements, `i64` scalar.
    SequenceLength: 1..=1, [ANY] => 1..=1, Opaque, Costly, Dense;
    /// `(x, sizes?)`: parts along an axis, each of extent 1 by default.
    SplitToSequence(SplitToSequenceAttrs): 1..=2, [ANY, INDEX] => 1..=1, Opaque, Costly, Dense;
    /// The elements of a sequence joined along an axis.
    ConcatFromSequence(ConcatFromSequenceAttrs): 1..=1, [ANY] => 1..=1, Opaque, Costly, Dense;
    /// An optional that holds the operand, or nothing of the given type.
    Optional(Option<Type>): 0..=1, [ANY] => 1..=1, Opaque, Costly, Dense;
    /// What an optional holds.
    OptionalGet: 1..=1, [ANY] => 1..=1, Opaque, Costly, Dense;
    /// Whether an optional (absent: no) holds something, boolean scalar.
    OptionalHas: 0..=1, [ANY] => 1..=1, Opaque, Costly, Dense;

    // Strings.
    /// Concatenation, with broadcasting.
    StringConcat: 2..=2, [STRING] => 1..=1, Opaque, Costly, Dense;
    /// `x -> (parts, counts)`: parts are padded with empty strings along a new last axis.
    StringSplit(StringSplitAttrs): 1..=1, [STRING] => 2..=2, Opaque, Costly, Dense;
    /// Stop words removed, case folded.
    StringNormalizer(StringNormalizerAttrs): 1..=1, [STRING] => 1..=1, Opaque, Costly, Dense;
    /// Whether a pattern matches whole strings.
    RegexFullMatch(RegexAttrs): 1..=1, [STRING] => 1..=1, Opaque, Costly, Dense;
    /// Weighted n-gram counts.
    TfIdf(TfIdfAttrs): 1..=1, [STRING_OR_INDEX] => 1..=1, Opaque, Costly, Dense;

    /// An operator that someone else defines.
    Extern(ExternAttrs): 0..=MANY, [ANY] => 0..=MANY, Opaque, Costly, Dense Unknown;
}

impl Op {
    /// The element types that operand `position` may have, where it is a tensor.
    pub fn operand_dtypes(&self, position: usize) -> DTypeSet {
        let row = self.row_dtypes();
        let set = row.get(position).or(row.last()).copied().unwrap_or(ANY);
        // Families differ by their kind.
        set & match (self, position) {
            (Op::Unary(kind), _) => kind.dtypes(),
            (Op::Binary(kind), _) => kind.dtypes(),
            (Op::Activation(ActivationAttrs { kind, .. }), _) => kind.dtypes(),
            (Op::Pool(PoolAttrs { kind, .. }), _) => kind.dtypes(),
            (
                Op::Reduce(ReduceAttrs { kind, .. }) | Op::ReduceDynamic(ReduceDynamicAttrs { kind, .. }),
                0,
            ) => kind.dtypes(),
            (Op::ScatterElements(ScatterElementsAttrs { reduction, .. }), 0 | 2) => reduction.dtypes(),
            (Op::ScatterNd(ScatterNdAttrs { reduction, .. }), 0 | 2) => reduction.dtypes(),
            _ => ANY,
        }
    }

    /// The regions the operator holds.
    pub fn regions(&self) -> Vec<RegionId> {
        match self {
            Op::If(attrs) => vec![attrs.then_region, attrs.else_region],
            Op::Loop(attrs) => vec![attrs.body],
            Op::Scan(attrs) => vec![attrs.body],
            _ => Vec::new(),
        }
    }

    /// Replaces every symbolic extent among the attributes.
    pub fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Dim) {
        struct Map<'a>(&'a mut dyn FnMut(&Dim) -> Dim);
        impl AttrVisitor for Map<'_> {
            fn dim(&mut self, dim: &mut Dim) {
                *dim = (self.0)(dim);
            }
        }
        self.visit(&mut Map(map));
    }

    /// `Reshape` to the given extents.
    pub fn reshape(dims: Vec<Dim>) -> Op {
        Op::Reshape(DimsAttrs { dims })
    }

    /// `Transpose` by a permutation.
    pub fn transpose(perm: Vec<usize>) -> Op {
        Op::Transpose(TransposeAttrs { perm })
    }

    /// `Cast` to an element type, saturating.
    pub fn cast(to: DType) -> Op {
        Op::Cast(CastAttrs { to, saturate: true, round: None })
    }

    /// `MatMul` without transposition.
    pub fn matmul() -> Op {
        Op::MatMul(MatMulAttrs { transpose_a: false, transpose_b: false })
    }

    /// `Reduce` over axes.
    pub fn reduce(kind: ReduceKind, axes: Vec<usize>, keep_dims: bool) -> Op {
        Op::Reduce(ReduceAttrs { kind, axes, keep_dims })
    }
}
