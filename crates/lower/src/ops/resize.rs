//! Resampling: separable interpolation, one pass an axis.
//!
//! Source: ONNX `Resize` (opset 19) and its reference implementation. Where an axis is resampled, `place` holds
//! for each output index the position in the input in double precision, `weights` the normalised coefficients of
//! the taps around it, and `resize` sums the taps; indices outside are clamped to the edge. `nearest` gathers.

use tilewright_dtype::DType;
use tilewright_graph::op::{AspectPolicy, CoordinateMode, InterpolationMode, NearestMode, ResizeAttrs};
use tilewright_te::{Expr, UnaryOp};

use super::Results;
use super::builder::{Builder, Operand, accumulator, clamp, in_range, real, with_index};
use super::elementwise::apply;

fn double(value: f64) -> Expr {
    Expr::float_of(DType::F64, value)
}

fn to_double(index: &Expr) -> Expr {
    index.clone().cast(DType::F64)
}

/// One resampled axis.
struct Axis {
    axis: usize,
    input: Expr,
    output: Expr,
    scale: Expr,
    /// The scale, where it is a constant.
    known_scale: Option<f64>,
    /// Start and end of the region of interest, as fractions of the axis.
    roi: Option<(Expr, Expr)>,
}

impl Axis {
    /// The extent of the result before it was rounded down.
    fn exact_output(&self) -> Expr {
        self.scale.clone() * to_double(&self.input)
    }

    /// The position in the input of output index `o`.
    fn place(&self, mode: CoordinateMode, o: &Expr) -> Expr {
        let (x, one) = (to_double(o), double(1.0));
        let last = to_double(&(self.input.clone() - 1));
        let half_pixel = (x.clone() + double(0.5)) / self.scale.clone() - double(0.5);
        let single = || self.exact_output().equals(double(1.0));
        match mode {
            CoordinateMode::HalfPixel => half_pixel,
            CoordinateMode::HalfPixelSymmetric => {
                let adjustment = to_double(&self.output) / self.exact_output();
                let centre = to_double(&self.input) / double(2.0);
                centre * (one - adjustment) + half_pixel
            }
            CoordinateMode::PytorchHalfPixel => Expr::select(single(), double(-0.5), half_pixel),
            CoordinateMode::AlignCorners => {
                Expr::select(single(), double(0.0), x * last / (self.exact_output() - one))
            }
            CoordinateMode::Asymmetric => x / self.scale.clone(),
            CoordinateMode::TfCropAndResize => {
                let (start, end) = self.roi.clone().unwrap_or((double(0.0), one.clone()));
                let span = (end - start.clone()) * last.clone();
                let spread = x * span.clone() / (self.exact_output() - one);
                let within = Expr::select(single(), span / double(2.0), spread);
                within + start * last
            }
        }
    }

    /// Half the number of taps, for a filter that reaches `reach` elements to each side when not widened.
    fn half_taps(&self, reach: i64, antialias: bool) -> Expr {
        if !antialias {
            return Expr::int(reach);
        }
        // A filter widened by 1 / scale; the extents bound that factor from above.
        let factor = match self.known_scale {
            Some(scale) => Expr::int((1.0 / scale.min(1.0)).ceil() as i64),
            None => Expr::int(1)
                .max((self.input.clone() + self.output.clone() - 1).floor_div(self.output.clone())),
        };
        factor * reach + 1
    }
}

/// Coefficient of the tap at distance `distance` (in filter units) for the linear or cubic filter.
fn filter(mode: InterpolationMode, distance: Expr, a: f64) -> Expr {
    let d = apply(UnaryOp::Abs, distance);
    let (zero, one) = (double(0.0), double(1.0));
    match mode {
        InterpolationMode::Linear | InterpolationMode::Nearest => zero.max(one - d),
        InterpolationMode::Cubic => {
            let polynomial = |c3: f64, c2: f64, c1: f64, c0: f64| {
                let inner = (double(c3) * d.clone() + double(c2)) * d.clone() + double(c1);
                inner * d.clone() + double(c0)
            };
            let near = polynomial(a + 2.0, -(a + 3.0), 0.0, 1.0);
            let far = polynomial(a, -5.0 * a, 8.0 * a, -4.0 * a);
            Expr::select(d.clone().le(one), near, Expr::select(d.lt(double(2.0)), far, zero))
        }
    }
}

fn nearest_index(mode: NearestMode, place: Expr) -> Expr {
    let rounded = match mode {
        NearestMode::RoundPreferFloor => apply(UnaryOp::Ceil, place - double(0.5)),
        NearestMode::RoundPreferCeil => apply(UnaryOp::Floor, place + double(0.5)),
        NearestMode::Floor => apply(UnaryOp::Floor, place),
        NearestMode::Ceil => apply(UnaryOp::Ceil, place),
    };
    rounded.cast(DType::I64)
}

/// Operands of `ResizeDynamic`; all absent for `Resize`.
struct Given {
    roi: Option<Operand>,
    scales: Option<Operand>,
    sizes: Option<Operand>,
}

/// The axes that change.
fn axes(attrs: &ResizeAttrs, x: &Operand, shape: &[Expr], given: &Given) -> Vec<Axis> {
    let all: Vec<usize> = if attrs.axes.is_empty() { (0..x.rank()).collect() } else { attrs.axes.clone() };
    let some = |operand: &Option<Operand>| {
        operand.clone().filter(|o| o.shape.first().and_then(Expr::as_int) != Some(0))
    };
    let (roi, scales, sizes) = (some(&given.roi), some(&given.scales), some(&given.sizes));
    let element = |operand: &Operand, n: usize| operand.at(vec![Expr::int(n as i64)]).cast(DType::F64);
    let ratio = |n: usize, size: Expr| size / to_double(&x.shape[all[n]]);
    let policy_scale = || {
        let sizes = sizes.as_ref()?;
        let ratios = (0..all.len()).map(|n| ratio(n, element(sizes, n)));
        match attrs.policy {
            AspectPolicy::Stretch => None,
            AspectPolicy::NotLarger => ratios.reduce(Expr::min),
            AspectPolicy::NotSmaller => ratios.reduce(Expr::max),
        }
    };
    let uniform = policy_scale();
    let axis = |(n, &axis): (usize, &usize)| {
        let known = attrs.scales.get(n).map(|scale| scale.to_f64());
        let extents = (x.shape[axis].as_int(), shape[axis].as_int());
        let known_scale = match (known, extents, &scales, &uniform) {
            (Some(scale), _, _, _) => Some(scale),
            (None, (Some(input), Some(output)), None, None) => Some(output as f64 / input as f64),
            _ => None,
        };
        let scale = match (known_scale, &scales, &uniform) {
            (Some(scale), _, _) => double(scale),
            (None, Some(scales), _) => element(scales, n),
            (None, None, Some(uniform)) => uniform.clone(),
            (None, None, None) => ratio(n, to_double(&shape[axis])),
        };
        let roi = match (&roi, attrs.roi.len() == 2 * all.len()) {
            (_, true) => Some((double(attrs.roi[n].to_f64()), double(attrs.roi[all.len() + n].to_f64()))),
            (Some(roi), false) => Some((element(roi, n), element(roi, all.len() + n))),
            (None, false) => None,
        };
        Axis { axis, input: x.shape[axis].clone(), output: shape[axis].clone(), scale, known_scale, roi }
    };
    let crops = attrs.coordinates == CoordinateMode::TfCropAndResize;
    all.iter()
        .enumerate()
        .map(axis)
        .filter(|axis| crops || axis.known_scale != Some(1.0) || axis.input != axis.output)
        .collect()
}

/// Where an output element lies outside of the region of interest on any axis, it is the extrapolation value.
fn extrapolated(
    b: &mut Builder,
    attrs: &ResizeAttrs,
    y: Operand,
    axes: &[Axis],
    places: &[Operand],
) -> Operand {
    if attrs.coordinates != CoordinateMode::TfCropAndResize {
        return y;
    }
    let shape = y.shape.clone();
    b.compute("extrapolate", y.dtype, &shape, |i| {
        let outside = axes.iter().zip(places).fold(Expr::bool(false), |any, (axis, place)| {
            let place = place.at(vec![i[axis.axis].clone()]);
            let last = to_double(&(axis.input.clone() - 1));
            any.or(place.clone().lt(double(0.0))).or(place.gt(last))
        });
        let value = real(y.dtype, attrs.extrapolation_value.to_f64());
        Expr::select(outside, value, y.at(i.to_vec()))
    })
}

fn resample(b: &mut Builder, attrs: &ResizeAttrs, given: &Given) -> Results {
    let x = b.input(0)?;
    let shape = b.result_shape(0)?;
    let axes = axes(attrs, &x, &shape, given);
    let places: Vec<Operand> = axes
        .iter()
        .map(|axis| {
            let extent = [shape[axis.axis].clone()];
            b.compute("place", DType::F64, &extent, |i| axis.place(attrs.coordinates, &i[0]))
        })
        .collect();
    if attrs.mode == InterpolationMode::Nearest {
        let y = b.compute("resize", x.dtype, &shape, |i| {
            let mut at = i.to_vec();
            for (axis, place) in axes.iter().zip(&places) {
                let index = nearest_index(attrs.nearest, place.at(vec![i[axis.axis].clone()]));
                at[axis.axis] = clamp(index, Expr::int(0), axis.input.clone() - 1);
            }
            x.at(at)
        });
        return Ok(vec![extrapolated(b, attrs, y, &axes, &places)]);
    }
    let dtype = if x.dtype.is_float() { accumulator(x.dtype) } else { DType::F32 };
    let mut value = x.clone();
    // The last axis first: the others then walk along rows that are in place.
    for (axis, place) in axes.iter().zip(&places).rev() {
        value = pass(b, attrs, value, axis, place, dtype);
    }
    if axes.is_empty() {
        value = b.compute("resize", x.dtype, &shape, |i| x.at(i.to_vec()));
    }
    let y = extrapolated(b, attrs, value, &axes, &places);
    Ok(vec![b.cast("cast", y, x.dtype)])
}

/// Resamples one axis of `x`.
fn pass(
    b: &mut Builder,
    attrs: &ResizeAttrs,
    x: Operand,
    axis: &Axis,
    place: &Operand,
    dtype: DType,
) -> Operand {
    let reach = if attrs.mode == InterpolationMode::Cubic { 2 } else { 1 };
    let half = axis.half_taps(reach, attrs.antialias);
    let taps = half.clone() * 2;
    // The element left of the place, by at most 1 and more than 0; then the first tap.
    let first = |o: &Expr| {
        let left = apply(UnaryOp::Ceil, place.at(vec![o.clone()])).cast(DType::I64) - 1;
        left - (half.clone() - 1)
    };
    let raw_shape = [axis.output.clone(), taps.clone()];
    let narrowing = if attrs.antialias { double(1.0).min(axis.scale.clone()) } else { double(1.0) };
    let raw = b.compute("raw_weights", DType::F64, &raw_shape, |i| {
        let index = first(&i[0]) + i[1].clone();
        let distance = (to_double(&index) - place.at(vec![i[0].clone()])) * narrowing;
        let weight = filter(attrs.mode, distance, attrs.cubic_coeff_a.to_f64());
        if attrs.exclude_outside {
            let inside = in_range(&index, &axis.input);
            Expr::select(inside, weight, double(0.0))
        } else {
            weight
        }
    });
    let sum =
        b.reduce("weight_sum", DType::F64, &raw_shape[..1], vec![taps.clone()], double(0.0), |i, r, acc| {
            acc + raw.at([i, r].concat())
        });
    let weights = b.compute("weights", dtype, &raw_shape, |i| {
        let (weight, sum) = (raw.at(i.to_vec()), sum.at(vec![i[0].clone()]));
        Expr::select(sum.clone().equals(double(0.0)), double(0.0), weight / sum).cast(dtype)
    });
    let indices = b.compute("tap", DType::I64, &raw_shape, |i| {
        clamp(first(&i[0]) + i[1].clone(), Expr::int(0), axis.input.clone() - 1)
    });
    let shape = with_index(&x.shape, axis.axis, axis.output.clone(), true);
    b.reduce("resize", dtype, &shape, vec![taps], Expr::zero(dtype), |i, r, acc| {
        let tap = vec![i[axis.axis].clone(), r[0].clone()];
        // As stated, for what checks bounds: an element that is loaded may be any number.
        let index = clamp(indices.at(tap.clone()), Expr::int(0), axis.input.clone() - 1);
        let value = x.at(with_index(i, axis.axis, index, true)).cast(dtype);
        Expr::fma(value, weights.at(tap), acc)
    })
}

/// Resampling to fixed or symbolic extents.
pub(super) fn resize(b: &mut Builder, attrs: &ResizeAttrs) -> Results {
    resample(b, attrs, &Given { roi: None, scales: None, sizes: None })
}

/// Resampling with region, scales or sizes known at run time: `(x, roi?, scales?, sizes?)`.
pub(super) fn resize_dynamic(b: &mut Builder, attrs: &ResizeAttrs) -> Results {
    let given = Given { roi: b.optional(1), scales: b.optional(2), sizes: b.optional(3) };
    resample(b, attrs, &given)
}
