//! Attributes of operators that move, make and select elements, of control flow, sequences and strings.

use tilewright_dtype::DType;

use super::super::attr::{Attr, AttrVisitor, Real, attributes};
use super::super::kinds::*;
use crate::dim::Dim;
use crate::ids::RegionId;
use crate::text::{ParseError, Reader, Writer};

attributes! {
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
