//! Convolutions, and the window attributes they share with pooling.

use tilewright_graph::op::{
    BinaryOp, CausalConvAttrs, Col2ImAttrs, ConvAttrs, ConvTransposeAttrs, DeformConvAttrs, Op, PadAttrs,
    PadMode,
};
use tilewright_graph::{DType, Dim, ValueId};

use super::cx::{Cx, size};
use super::error::{Reason, Result};
use super::linear::requantize;

/// How `auto_pad` says padding is found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AutoPad {
    Given,
    Valid,
    /// The result has `ceil(extent / stride)` elements; an odd one of padding goes to the end.
    SameUpper,
    /// As `SameUpper`, but an odd one goes to the start.
    SameLower,
}

/// The most spatial axes of an image.
const MAX_SPATIAL: usize = 64;

/// The attributes of a window over spatial axes.
pub(super) struct Window {
    pub(super) kernel: Vec<usize>,
    pub(super) strides: Vec<usize>,
    pub(super) dilations: Vec<usize>,
    /// Begins, then ends.
    pub(super) pads: Vec<i64>,
    pub(super) auto_pad: AutoPad,
}

impl Window {
    /// Reads `strides`, `pads`, `auto_pad` and, where `dilated`, `dilations`.
    pub(super) fn read(cx: &Cx<'_>, kernel: Vec<usize>, dilated: bool) -> Result<Window> {
        let spatial = kernel.len();
        let list = |name: &str| -> Result<Vec<usize>> {
            let values = cx.sizes_attr(name)?.filter(|values| !values.is_empty()).unwrap_or(vec![1; spatial]);
            match values.len() == spatial && values.iter().all(|&value| value > 0) {
                true => Ok(values),
                false => Err(Reason::malformed(format!("`{name}` is {values:?} for {spatial} spatial axes"))),
            }
        };
        let strides = list("strides")?;
        let dilations = if dilated { list("dilations")? } else { vec![1; spatial] };
        let modes = [
            ("NOTSET", AutoPad::Given),
            ("VALID", AutoPad::Valid),
            ("SAME_UPPER", AutoPad::SameUpper),
            ("SAME_LOWER", AutoPad::SameLower),
        ];
        let auto_pad = match cx.attrs.opt_text("auto_pad")? {
            None | Some("") => AutoPad::Given,
            Some(_) => cx.keyword("auto_pad", "NOTSET", &modes)?,
        };
        let pads = cx.pads_attr("pads")?.filter(|pads| !pads.is_empty()).map(<[i64]>::to_vec);
        let pads = match auto_pad {
            AutoPad::Given => pads.unwrap_or(vec![0; 2 * spatial]),
            // Then `pads` is to be ignored.
            AutoPad::Valid | AutoPad::SameUpper | AutoPad::SameLower => vec![0; 2 * spatial],
        };
        if pads.len() != 2 * spatial {
            return Err(Reason::malformed(format!(
                "`pads` has {} entries for {spatial} spatial axes",
                pads.len()
            )));
        }
        if kernel.contains(&0) {
            return Err(Reason::malformed("the kernel is empty"));
        }
        kernel.iter().try_for_each(|&extent| size("kernel_shape", extent as i64).map(drop))?;
        Ok(Window { kernel, strides, dilations, pads, auto_pad })
    }

    /// Turns `auto_pad` into `pads`. Where an extent is open and its padding depends on it, the operand is
    /// padded explicitly instead, with `value` if there is one.
    pub(super) fn resolve(&mut self, cx: &mut Cx<'_>, x: ValueId, value: Option<f64>) -> Result<ValueId> {
        let lower = match self.auto_pad {
            AutoPad::Given | AutoPad::Valid => return Ok(x),
            AutoPad::SameUpper => false,
            AutoPad::SameLower => true,
        };
        let dims = cx.ranked(x)?;
        let spatial = self.kernel.len();
        if dims.len() != spatial + 2 {
            return Err(Reason::ty(format!("the operand must have rank {}", spatial + 2)));
        }
        let (mut before, mut after) = (vec![Dim::ZERO; 2], vec![Dim::ZERO; 2]);
        for axis in 0..spatial {
            let (extent, stride) = (&dims[2 + axis], Dim::from(self.strides[axis]));
            let reach = (self.kernel[axis] - 1) * self.dilations[axis] + 1;
            let covered = (extent.ceil_div(&stride) - Dim::ONE) * stride + Dim::from(reach);
            let total = (covered - extent.clone()).maximum(&Dim::ZERO);
            let half = total.floor_div(&Dim::from(2usize));
            let rest = total - half.clone();
            let (start, end) = if lower { (rest, half) } else { (half, rest) };
            before.push(start);
            after.push(end);
        }
        let fixed = |dims: &[Dim]| dims.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
        if let (Some(begins), Some(ends)) = (fixed(&before[2..]), fixed(&after[2..])) {
            self.pads = [begins, ends].concat();
            return Ok(x);
        }
        let value = value.map(|value| cx.scalar_like(x, value)).transpose()?;
        let attrs = PadAttrs { mode: PadMode::Constant, before, after };
        cx.emit_opt(Op::Pad(attrs), vec![Some(x), value])
    }
}

/// The kernel's extents: those of the weight, which `kernel_shape` must repeat if it is there.
fn kernel_of_weight(cx: &Cx<'_>, weight: ValueId) -> Result<Vec<usize>> {
    let given = cx.sizes_attr("kernel_shape")?;
    let dims = cx.ranked(weight)?;
    if dims.len() < 2 {
        return Err(Reason::ty("the weight must have rank 3 or more"));
    }
    let known: Option<Vec<usize>> =
        dims[2..].iter().map(|dim| usize::try_from(dim.as_const()?).ok()).collect();
    match (known, given) {
        (Some(known), Some(given)) if known != given => {
            Err(Reason::malformed(format!("`kernel_shape` is {given:?}, but the weight has {known:?}")))
        }
        (Some(known), _) => Ok(known),
        (None, Some(given)) => Ok(given),
        (None, None) => Err(Reason::unsupported("the weight's extents are not known")),
    }
}

fn group_attr(cx: &Cx<'_>, name: &str) -> Result<usize> {
    match cx.size_attr(name, 1)? {
        0 => Err(Reason::malformed(format!("`{name}` is 0"))),
        group => Ok(group),
    }
}

fn conv_attrs(cx: &mut Cx<'_>, x: ValueId, w: ValueId) -> Result<(ValueId, ConvAttrs)> {
    let mut window = Window::read(cx, kernel_of_weight(cx, w)?, true)?;
    let group = group_attr(cx, "group")?;
    let x = window.resolve(cx, x, None)?;
    let Window { strides, pads, dilations, .. } = window;
    Ok((x, ConvAttrs { strides, pads, dilations, group }))
}

pub(super) fn conv(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, w, bias) = (cx.input(0)?, cx.input(1)?, cx.opt(2));
    let (x, attrs) = conv_attrs(cx, x, w)?;
    Ok(vec![cx.emit_opt(Op::Conv(attrs), vec![Some(x), Some(w), bias])?])
}

/// Where the zero point of the operand is not 0, padding must be that zero point; then the operand is padded
/// explicitly.
fn pad_with_zero_point(
    cx: &mut Cx<'_>,
    x: ValueId,
    zero: Option<ValueId>,
    attrs: &mut ConvAttrs,
) -> Result<ValueId> {
    let Some(zero) = zero.filter(|&zero| cx.known_scalar(zero) != Some(0.0)) else { return Ok(x) };
    if attrs.pads.iter().all(|&pad| pad == 0) {
        return Ok(x);
    }
    let spatial = attrs.strides.len();
    let pads = std::mem::replace(&mut attrs.pads, vec![0; 2 * spatial]);
    let side = |pads: &[i64]| [0, 0].iter().chain(pads).map(|&pad| Dim::from(pad)).collect::<Vec<_>>();
    let (before, after) = (side(&pads[..spatial]), side(&pads[spatial..]));
    let zero = cx.reshape(zero, Vec::new())?;
    cx.emit(Op::Pad(PadAttrs { mode: PadMode::Constant, before, after }), &[x, zero])
}

pub(super) fn conv_integer(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, w, x_zero, w_zero) = (cx.input(0)?, cx.input(1)?, cx.opt(2), cx.opt(3));
    let (x, mut attrs) = conv_attrs(cx, x, w)?;
    let x = pad_with_zero_point(cx, x, x_zero, &mut attrs)?;
    Ok(vec![cx.emit_opt(Op::ConvInteger(attrs), vec![Some(x), Some(w), x_zero, w_zero])?])
}

/// The convolution in integers, bias added, scaled by `x_scale * w_scale / y_scale`, rounded and saturated.
pub(super) fn qlinear_conv(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, x_scale, x_zero) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (w, w_scale, w_zero) = (cx.input(3)?, cx.input(4)?, cx.input(5)?);
    let (y_scale, y_zero) = (cx.input(6)?, cx.input(7)?);
    let rank = cx.rank(x)?;
    let (x, mut attrs) = conv_attrs(cx, x, w)?;
    let x = pad_with_zero_point(cx, x, Some(x_zero), &mut attrs)?;
    let mut sum = cx.emit(Op::ConvInteger(attrs), &[x, w, x_zero, w_zero])?;
    if let Some(bias) = cx.opt(8) {
        let bias = cx.along_axis(bias, 1, rank)?;
        sum = cx.binary(BinaryOp::Add, sum, bias)?;
    }
    let w_scale = match cx.ranked(w_scale)?.as_slice() {
        [len] if !len.is(1) => cx.along_axis(w_scale, 1, rank)?,
        _ => w_scale,
    };
    let scale = cx.binary(BinaryOp::Mul, x_scale, w_scale)?;
    Ok(vec![requantize(cx, sum, scale, y_scale, y_zero)?])
}

pub(super) fn conv_transpose(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, w, bias) = (cx.input(0)?, cx.input(1)?, cx.opt(2));
    let mut window = Window::read(cx, kernel_of_weight(cx, w)?, true)?;
    let group = group_attr(cx, "group")?;
    let spatial = window.kernel.len();
    let mut output_padding = cx.pads_attr("output_padding")?.unwrap_or_default().to_vec();
    output_padding.resize(spatial, 0);
    let output_shape = cx.attrs.ints("output_shape")?.filter(|shape| !shape.is_empty());
    if output_shape.is_some_and(|shape| shape.len() < spatial) {
        return Err(Reason::malformed(format!("`output_shape` has fewer than {spatial} entries")));
    }
    // Some exporters give all axes, not only the spatial ones.
    let output_shape = output_shape.map(|shape| shape[shape.len().saturating_sub(spatial)..].to_vec());
    let same = matches!(window.auto_pad, AutoPad::SameUpper | AutoPad::SameLower);
    if output_shape.is_some() || same {
        let dims = cx.ranked(x)?;
        for axis in 0..spatial {
            let extent = dims.get(2 + axis).and_then(Dim::as_const);
            let stride = window.strides[axis] as i64;
            let reach = ((window.kernel[axis] - 1) * window.dilations[axis] + 1) as i64;
            // Without a given shape the result has `extent * stride` elements, whatever the extent.
            let total = match (&output_shape, extent) {
                (Some(shape), Some(extent)) => (output_padding[axis] + reach)
                    .saturating_add(stride.saturating_mul(extent - 1))
                    .saturating_sub(shape[axis]),
                (Some(_), None) => {
                    return Err(Reason::unsupported("`output_shape` with an open extent"));
                }
                (None, _) => reach + output_padding[axis] - stride,
            };
            if total < 0 {
                output_padding[axis] = output_padding[axis].saturating_sub(total);
            }
            let total = total.max(0);
            let small = total / 2;
            let upper = window.auto_pad == AutoPad::SameUpper;
            let (start, end) = if upper { (small, total - small) } else { (total - small, small) };
            window.pads[axis] = start;
            window.pads[spatial + axis] = end;
        }
    }
    let Window { strides, pads, dilations, .. } = window;
    let attrs = ConvTransposeAttrs { strides, pads, dilations, group, output_padding };
    Ok(vec![cx.emit_opt(Op::ConvTranspose(attrs), vec![Some(x), Some(w), bias])?])
}

pub(super) fn deform_conv(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let window = Window::read(cx, kernel_of_weight(cx, cx.input(1)?)?, true)?;
    let (group, offset_group) = (group_attr(cx, "group")?, group_attr(cx, "offset_group")?);
    let Window { strides, pads, dilations, .. } = window;
    let inputs = cx.inputs.clone();
    let attrs = DeformConvAttrs { strides, pads, dilations, group, offset_group };
    Ok(vec![cx.emit_opt(Op::DeformConv(attrs), inputs)?])
}

pub(super) fn causal_conv(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let silu = cx.keyword("activation", "none", &[("none", false), ("silu", true), ("swish", true)])?;
    let (inputs, n_outputs) = (cx.inputs.clone(), cx.n_outputs().max(1));
    cx.emit_n(Op::CausalConv(CausalConvAttrs { silu }), inputs, n_outputs)
}

pub(super) fn col2im(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, image, block) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let known = |cx: &Cx<'_>, value: ValueId| cx.graph.shape_value(value).map(<[Dim]>::to_vec);
    let block_sizes = match cx.known_ints(block) {
        Some(sizes) => sizes.iter().map(|&extent| size("block_shape", extent)).collect::<Result<Vec<_>>>()?,
        None => Vec::new(),
    };
    let spatial = match cx.ranked(block)?.as_slice() {
        [len] => len.as_const().and_then(|len| usize::try_from(len).ok()).filter(|len| *len <= MAX_SPATIAL),
        _ => None,
    };
    let spatial = spatial.ok_or_else(|| Reason::unsupported("the number of spatial axes is not known"))?;
    let list = |name: &str| cx.sizes_attr(name).map(|values| values.unwrap_or(vec![1; spatial]));
    let (strides, dilations) = (list("strides")?, list("dilations")?);
    let pads = cx.pads_attr("pads")?.map_or(vec![0; 2 * spatial], <[i64]>::to_vec);
    let image_dims = known(cx, image).unwrap_or_default();
    let image = image_dims.is_empty().then_some(image);
    let block = block_sizes.is_empty().then_some(block);
    let attrs = Col2ImAttrs { image: image_dims, block: block_sizes, strides, pads, dilations };
    Ok(vec![cx.emit_opt(Op::Col2Im(attrs), vec![Some(x), image, block])?])
}

/// The smallest value of a type, which never wins a maximum.
pub(super) fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::I8 => f64::from(i8::MIN),
        DType::U8 => 0.0,
        _ => f64::NEG_INFINITY,
    }
}
