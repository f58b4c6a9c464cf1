//! Resampling of images and volumes.

use tilewright_graph::ValueId;
use tilewright_graph::op::{
    AffineGridAttrs, AspectPolicy, CoordinateMode, GridPadding, GridSampleAttrs, InterpolationMode,
    NearestMode, Op, Real, ResizeAttrs,
};
use tilewright_graph::tensor::Tensor;

use super::attrs::missing;
use super::cx::Cx;
use super::error::{Reason, Result};

const MODES: [(&str, InterpolationMode); 5] = [
    ("nearest", InterpolationMode::Nearest),
    ("linear", InterpolationMode::Linear),
    ("cubic", InterpolationMode::Cubic),
    // Names of older opsets.
    ("bilinear", InterpolationMode::Linear),
    ("bicubic", InterpolationMode::Cubic),
];

/// The semantics before opset 11: `x / scale`, and with `nearest` the element below.
fn old_attrs(cx: &Cx<'_>, rank: usize) -> Result<ResizeAttrs> {
    Ok(ResizeAttrs {
        mode: cx.keyword("mode", "nearest", &MODES)?,
        coordinates: CoordinateMode::Asymmetric,
        nearest: NearestMode::Floor,
        cubic_coeff_a: Real(-0.75),
        extrapolation_value: Real(0.0),
        exclude_outside: false,
        antialias: false,
        policy: AspectPolicy::Stretch,
        axes: (0..rank).collect(),
        dims: Vec::new(),
        scales: Vec::new(),
        roi: Vec::new(),
    })
}

pub(super) fn resize(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let rank = cx.rank(x)?;
    if cx.opset < 11 {
        let scales = cx.input(1)?;
        let attrs = old_attrs(cx, rank)?;
        return Ok(vec![cx.emit_opt(Op::ResizeDynamic(attrs), vec![Some(x), None, Some(scales)])?]);
    }
    let coordinates = [
        ("half_pixel", CoordinateMode::HalfPixel),
        ("half_pixel_symmetric", CoordinateMode::HalfPixelSymmetric),
        ("pytorch_half_pixel", CoordinateMode::PytorchHalfPixel),
        ("align_corners", CoordinateMode::AlignCorners),
        ("asymmetric", CoordinateMode::Asymmetric),
        ("tf_crop_and_resize", CoordinateMode::TfCropAndResize),
    ];
    let nearest = [
        ("round_prefer_floor", NearestMode::RoundPreferFloor),
        ("round_prefer_ceil", NearestMode::RoundPreferCeil),
        ("floor", NearestMode::Floor),
        ("ceil", NearestMode::Ceil),
    ];
    let policies = [
        ("stretch", AspectPolicy::Stretch),
        ("not_larger", AspectPolicy::NotLarger),
        ("not_smaller", AspectPolicy::NotSmaller),
    ];
    let is_new = cx.opset >= 18;
    let axes = match if is_new { cx.attrs.ints("axes")? } else { None } {
        Some(axes) if !axes.is_empty() => {
            axes.iter().map(|&axis| cx.axis(axis, rank)).collect::<Result<Vec<_>>>()?
        }
        _ => (0..rank).collect(),
    };
    let attrs = ResizeAttrs {
        mode: cx.keyword("mode", "nearest", &MODES)?,
        coordinates: cx.keyword("coordinate_transformation_mode", "half_pixel", &coordinates)?,
        nearest: cx.keyword("nearest_mode", "round_prefer_floor", &nearest)?,
        cubic_coeff_a: Real(cx.attrs.float("cubic_coeff_a", -0.75)?),
        extrapolation_value: Real(cx.attrs.float("extrapolation_value", 0.0)?),
        exclude_outside: cx.attrs.flag("exclude_outside", false)?,
        antialias: is_new && cx.attrs.flag("antialias", false)?,
        policy: if is_new {
            cx.keyword("keep_aspect_ratio_policy", "stretch", &policies)?
        } else {
            AspectPolicy::Stretch
        },
        axes,
        dims: Vec::new(),
        scales: Vec::new(),
        roi: Vec::new(),
    };
    // Only one coordinate mode looks at the region of interest.
    let roi = cx.opt_non_empty(1).filter(|_| attrs.coordinates == CoordinateMode::TfCropAndResize);
    let (scales, sizes) = (cx.opt_non_empty(2), cx.opt_non_empty(3));
    if scales.is_some() == sizes.is_some() {
        return Err(Reason::arity("exactly one of `scales` and `sizes` must be given"));
    }
    Ok(vec![cx.emit_opt(Op::ResizeDynamic(attrs), vec![Some(x), roi, scales, sizes])?])
}

/// Scales are two attributes in opset 1, one in opset 7, an operand in opset 9.
pub(super) fn upsample(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let attrs = old_attrs(cx, cx.rank(x)?)?;
    let scales = match cx.opset {
        ..7 => {
            let required = |name| cx.attrs.opt_float(name)?.ok_or_else(|| missing(name));
            let (height, width) = (required("height_scale")?, required("width_scale")?);
            cx.constant(Tensor::vector(&[1.0, 1.0, height, width]))?
        }
        7..9 => {
            let scales = cx.attrs.floats("scales")?.ok_or_else(|| missing("scales"))?;
            cx.constant(Tensor::vector(scales))?
        }
        _ => cx.input(1)?,
    };
    Ok(vec![cx.emit_opt(Op::ResizeDynamic(attrs), vec![Some(x), None, Some(scales)])?])
}

pub(super) fn grid_sample(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, grid) = (cx.input(0)?, cx.input(1)?);
    let paddings = [
        ("zeros", GridPadding::Zeros),
        ("border", GridPadding::Border),
        ("reflection", GridPadding::Reflection),
    ];
    let default = if cx.opset < 20 { "bilinear" } else { "linear" };
    let attrs = GridSampleAttrs {
        mode: cx.keyword("mode", default, &MODES)?,
        padding: cx.keyword("padding_mode", "zeros", &paddings)?,
        align_corners: cx.attrs.flag("align_corners", false)?,
    };
    Ok(vec![cx.emit(Op::GridSample(attrs), &[x, grid])?])
}

pub(super) fn affine_grid(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (theta, size) = (cx.input(0)?, cx.input(1)?);
    let attrs = AffineGridAttrs { align_corners: cx.attrs.flag("align_corners", false)? };
    Ok(vec![cx.emit(Op::AffineGrid(attrs), &[theta, size])?])
}
