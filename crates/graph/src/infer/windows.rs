//! Type rules of convolutions, pooling and other operators with spatial windows.

use tilewright_dtype::DType;

use super::context::{Context, InferError, ranked, unranked};
use crate::dim::Dim;
use crate::op::{Col2ImAttrs, ConvAttrs, ConvTransposeAttrs, DeformConvAttrs, Op};
use crate::types::Type;

type Result<T> = std::result::Result<T, InferError>;

pub(super) fn types(cx: &mut Context<'_>) -> Result<Vec<Type>> {
    let dtype = cx.dtype(0)?;
    match cx.op {
        Op::Conv(attrs) => {
            cx.check_same_dtype(0, 1)?;
            conv(cx, attrs, dtype, Some(2))
        }
        Op::ConvInteger(attrs) => conv(cx, attrs, DType::I32, None),
        Op::DeformConv(attrs) => {
            let (strides, pads, dilations) =
                (attrs.strides.clone(), attrs.pads.clone(), attrs.dilations.clone());
            conv(cx, &ConvAttrs { strides, pads, dilations, group: attrs.group }, dtype, Some(3))
        }
        Op::ConvTranspose(attrs) => conv_transpose(cx, attrs, dtype),
        Op::CausalConv(_) => {
            let (Some(x), Some(w)) = (cx.dims(0)?, cx.dims(1)?) else {
                return Ok(vec![unranked(dtype), unranked(dtype)]);
            };
            cx.check_rank(0, x, 3)?;
            cx.check_rank(1, w, 3)?;
            let state = vec![x[0].clone(), x[1].clone(), &w[2] - 1];
            Ok(vec![ranked(dtype, x.to_vec()), ranked(dtype, state)])
        }
        Op::Pool(attrs) => {
            let window = Window::of(&attrs.kernel, &attrs.strides, &attrs.pads, &attrs.dilations);
            pool(cx, &window, attrs.ceil_mode, dtype)
        }
        Op::MaxPoolIndices(attrs) => {
            let window = Window::of(&attrs.kernel, &attrs.strides, &attrs.pads, &attrs.dilations);
            let mut types = pool(cx, &window, attrs.ceil_mode, dtype)?;
            if let Some(Type::Tensor(values)) = types.first().cloned() {
                types.push(Type::Tensor(crate::types::TensorType { dtype: DType::I64, ..values }));
            }
            Ok(types)
        }
        Op::MaxUnpool(attrs) => Ok(vec![ranked(dtype, attrs.dims.clone())]),
        Op::MaxUnpoolDynamic(_) => {
            let Some(x) = cx.dims(0)? else { return Ok(vec![unranked(dtype)]) };
            let dims = match cx.elements(2) {
                Some(shape) => shape.to_vec(),
                None => cx.fresh_dims("unpooled", x.len()),
            };
            // Values that are there need a place to go.
            let some = Dim::product(x).minimum(&Dim::ONE);
            dims.iter()
                .try_for_each(|dim| cx.check_at_most(&some, dim, "places for values that are there"))?;
            Ok(vec![ranked(dtype, dims)])
        }
        Op::MaxRoiPool(attrs) => {
            regions(cx, dtype, attrs.pooled.iter().map(|&extent| extent.into()).collect())
        }
        Op::RoiAlign(attrs) => {
            regions(cx, dtype, vec![attrs.output_height.into(), attrs.output_width.into()])
        }
        _ => col2im(cx, dtype),
    }
}

/// The greatest number about a window: products of two of them do not overflow.
const MAX_WINDOW: u64 = 1 << 31;

/// A sliding window with one entry a spatial axis.
struct Window {
    kernel: Vec<Dim>,
    strides: Vec<usize>,
    pads: Vec<i64>,
    dilations: Vec<usize>,
}

impl Window {
    fn of(kernel: &[usize], strides: &[usize], pads: &[i64], dilations: &[usize]) -> Window {
        Window {
            kernel: kernel.iter().map(|&extent| extent.into()).collect(),
            strides: strides.to_vec(),
            pads: pads.to_vec(),
            dilations: dilations.to_vec(),
        }
    }

    fn check(&self, cx: &Context<'_>, spatial: usize) -> Result<()> {
        cx.check_len("kernel", self.kernel.len(), spatial)?;
        cx.check_len("strides", self.strides.len(), spatial)?;
        cx.check_len("dilations", self.dilations.len(), spatial)?;
        cx.check_len("pads", self.pads.len(), 2 * spatial)?;
        if self.strides.contains(&0) || self.dilations.contains(&0) {
            return Err(cx.fail("strides and dilations must be positive"));
        }
        let kernel = self.kernel.iter().filter_map(Dim::as_const);
        let others =
            self.strides.iter().chain(&self.dilations).map(|&n| i64::try_from(n).unwrap_or(i64::MAX));
        if kernel.chain(others).chain(self.pads.iter().copied()).any(|n| n.unsigned_abs() > MAX_WINDOW) {
            return Err(cx.fail(format!("kernel, strides, dilations and pads must be below {MAX_WINDOW}")));
        }
        Ok(())
    }

    /// Elements from the first to the last one the window touches.
    fn span(&self, axis: usize) -> Dim {
        &(&(&self.kernel[axis] - 1) * &Dim::from(self.dilations[axis])) + 1
    }

    /// Number of positions of the window on an axis of the given extent.
    fn positions(&self, axis: usize, extent: &Dim, ceil_mode: bool) -> Dim {
        let spatial = self.kernel.len();
        let (before, after) = (self.pads[axis], self.pads[axis + spatial]);
        let stride = Dim::from(self.strides[axis]);
        let room = &(extent + &Dim::new(before.saturating_add(after))) - &self.span(axis);
        if !ceil_mode {
            return &room.floor_div(&stride) + 1;
        }
        // The last window has to start inside the tensor or the padding before it.
        let starts_inside = &(&(extent + before) - 1).floor_div(&stride) + 1;
        (&room.ceil_div(&stride) + 1).minimum(&starts_inside)
    }
}

fn check_positive(cx: &Context<'_>, dims: &[Dim]) -> Result<()> {
    match dims.iter().any(|dim| dim.as_const().is_some_and(|extent| extent < 0)) {
        true => Err(cx.fail(format!("the window does not fit: the result would be {}", cx.show(dims)))),
        false => Ok(()),
    }
}

fn conv(
    cx: &mut Context<'_>,
    attrs: &ConvAttrs,
    dtype: DType,
    bias_position: Option<usize>,
) -> Result<Vec<Type>> {
    let (Some(x), Some(w)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(vec![unranked(dtype)]) };
    cx.check_least_rank(0, x, 3)?;
    cx.check_rank(1, w, x.len())?;
    let spatial = x.len() - 2;
    let window = Window {
        kernel: w[2..].to_vec(),
        strides: attrs.strides.clone(),
        pads: attrs.pads.clone(),
        dilations: attrs.dilations.clone(),
    };
    window.check(cx, spatial)?;
    check_groups(cx, attrs.group, &w[0])?;
    cx.unify(&x[1], &(&w[1] * &Dim::from(attrs.group)), "input channels")?;
    if let Some(bias_position) = bias_position
        && let Some(bias) = cx.optional_dims(bias_position)?
    {
        cx.check_rank(bias_position, bias, 1)?;
        cx.unify(&w[0], &bias[0], "output channels")?;
    }
    let mut dims = vec![x[0].clone(), w[0].clone()];
    dims.extend((0..spatial).map(|axis| window.positions(axis, &x[axis + 2], false)));
    check_positive(cx, &dims)?;
    Ok(vec![ranked(dtype, dims)])
}

/// How many positions a block has on each axis of the image.
pub(super) fn col2im_positions(cx: &Context<'_>, attrs: &Col2ImAttrs) -> Result<Vec<Dim>> {
    let window = Window::of(&attrs.block, &attrs.strides, &attrs.pads, &attrs.dilations);
    window.check(cx, attrs.image.len())?;
    let dims: Vec<Dim> =
        attrs.image.iter().enumerate().map(|(axis, extent)| window.positions(axis, extent, false)).collect();
    check_positive(cx, &dims)?;
    Ok(dims)
}

/// The spatial extents of a deformable convolution's result.
pub(super) fn conv_positions(
    cx: &Context<'_>,
    attrs: &DeformConvAttrs,
    x: &[Dim],
    w: &[Dim],
) -> Result<Vec<Dim>> {
    let window = Window {
        kernel: w[2..].to_vec(),
        strides: attrs.strides.clone(),
        pads: attrs.pads.clone(),
        dilations: attrs.dilations.clone(),
    };
    window.check(cx, x.len() - 2)?;
    Ok((0..x.len() - 2).map(|axis| window.positions(axis, &x[axis + 2], false)).collect())
}

fn check_groups(cx: &Context<'_>, group: usize, channels: &Dim) -> Result<()> {
    let divides = channels.as_const().is_none_or(|n| group > 0 && n % (group as i64) == 0);
    if group > 0 && divides {
        Ok(())
    } else {
        Err(cx.fail(format!("{group} groups do not divide the channels")))
    }
}

fn conv_transpose(cx: &mut Context<'_>, attrs: &ConvTransposeAttrs, dtype: DType) -> Result<Vec<Type>> {
    let (Some(x), Some(w)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(vec![unranked(dtype)]) };
    cx.check_least_rank(0, x, 3)?;
    cx.check_rank(1, w, x.len())?;
    let spatial = x.len() - 2;
    let window = Window {
        kernel: w[2..].to_vec(),
        strides: attrs.strides.clone(),
        pads: attrs.pads.clone(),
        dilations: attrs.dilations.clone(),
    };
    window.check(cx, spatial)?;
    cx.check_len("output_padding", attrs.output_padding.len(), spatial)?;
    check_groups(cx, attrs.group, &x[1])?;
    cx.unify(&x[1], &w[0], "input channels")?;
    let mut dims = vec![x[0].clone(), &w[1] * &Dim::from(attrs.group)];
    for axis in 0..spatial {
        let full = &(&(&x[axis + 2] - 1) * &Dim::from(attrs.strides[axis])) + &window.span(axis);
        let crop = attrs.pads[axis].saturating_add(attrs.pads[axis + spatial]);
        dims.push(&full + attrs.output_padding[axis].saturating_sub(crop));
    }
    check_positive(cx, &dims)?;
    Ok(vec![ranked(dtype, dims)])
}

fn pool(cx: &Context<'_>, window: &Window, ceil_mode: bool, dtype: DType) -> Result<Vec<Type>> {
    let Some(x) = cx.dims(0)? else { return Ok(vec![unranked(dtype)]) };
    cx.check_least_rank(0, x, 3)?;
    window.check(cx, x.len() - 2)?;
    let mut dims = x[..2].to_vec();
    dims.extend((0..x.len() - 2).map(|axis| window.positions(axis, &x[axis + 2], ceil_mode)));
    check_positive(cx, &dims)?;
    Ok(vec![ranked(dtype, dims)])
}

fn regions(cx: &Context<'_>, dtype: DType, pooled: Vec<Dim>) -> Result<Vec<Type>> {
    let (Some(x), Some(rois)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(vec![unranked(dtype)]) };
    cx.check_rank(0, x, 4)?;
    cx.check_rank(1, rois, 2)?;
    let mut dims = vec![rois[0].clone(), x[1].clone()];
    dims.extend(pooled);
    cx.check_len("pooled", dims.len(), 4)?;
    Ok(vec![ranked(dtype, dims)])
}

fn col2im(cx: &mut Context<'_>, dtype: DType) -> Result<Vec<Type>> {
    let Op::Col2Im(attrs) = cx.op else { return Err(cx.fail("has no type rule here")) };
    let Some(x) = cx.dims(0)? else { return Ok(vec![unranked(dtype)]) };
    cx.check_rank(0, x, 3)?;
    let image = match (attrs.image.as_slice(), cx.input(1)) {
        ([], Some(_)) => match (cx.elements(1), cx.vector_len(1)?) {
            (Some(image), _) => image.to_vec(),
            (None, Some(len)) => cx.fresh_dims("image", len),
            (None, None) => return Ok(vec![unranked(dtype)]),
        },
        (image, _) => image.to_vec(),
    };
    let block: Option<Dim> = match (attrs.block.as_slice(), cx.input(2)) {
        ([], Some(_)) => cx.elements(2).map(Dim::product),
        (block, _) => Some(block.iter().fold(Dim::ONE, |product, &extent| &product * &Dim::from(extent))),
    };
    let channels = match block {
        Some(block) => x[1].floor_div(&block),
        None => cx.fresh("channels"),
    };
    let mut dims = vec![x[0].clone(), channels];
    dims.extend(image);
    Ok(vec![ranked(dtype, dims)])
}
