//! Fourier transforms and mel filters.
//!
//! A transform whose length is constant and a product of small factors is a fast one (see [`fft`](super::fft)), in the
//! type of its operand or in `F32` where that is narrower. Any other is a direct sum in double precision.

use std::f64::consts::PI;

use tilewright_dtype::DType;
use tilewright_graph::op::{DftAttrs, StftAttrs};
use tilewright_te::{Expr, ExprKind, UnaryOp};

use super::builder::{Builder, Operand, accumulator, clamp, with_index};
use super::elementwise::apply;
use super::fft::{Complex, Decimation, Fft, radices};
use super::{NoKernel, Results};

fn double(value: f64) -> Expr {
    Expr::float_of(DType::F64, value)
}

/// Cosines and sines of multiples of `2 pi / n`: from tables where `n` is an extent, computed in place where it is
/// data.
struct Twiddles {
    n: Expr,
    tables: Option<(Operand, Operand)>,
}

impl Twiddles {
    fn new(b: &mut Builder, n: Expr) -> Twiddles {
        let is_data = n.any(&mut |e| matches!(e.kind(), ExprKind::Load(..)));
        let tables = (!is_data).then(|| {
            // A transform along an axis that is not the one meant may have length 0.
            let shape = [Expr::int(1).max(n.clone())];
            let table = |b: &mut Builder, name: &str, op: UnaryOp| {
                b.compute(name, DType::F64, &shape, |i| apply(op, angle(&i[0], &n)))
            };
            (table(b, "cos", UnaryOp::Cos), table(b, "sin", UnaryOp::Sin))
        });
        Twiddles { n, tables }
    }

    /// Cosine and sine of `2 pi turns / n`.
    fn at(&self, turns: Expr) -> (Expr, Expr) {
        let phase = turns.floor_mod(self.n.clone());
        match &self.tables {
            Some((cos, sin)) => (cos.at(vec![phase.clone()]), sin.at(vec![phase])),
            None => {
                let angle = angle(&phase, &self.n);
                (apply(UnaryOp::Cos, angle.clone()), apply(UnaryOp::Sin, angle))
            }
        }
    }
}

fn angle(phase: &Expr, n: &Expr) -> Expr {
    double(2.0 * PI) * phase.clone().cast(DType::F64) / n.clone().cast(DType::F64)
}

/// Real or imaginary part by `part`.
fn by_part(part: &Expr, real: Expr, imaginary: Expr) -> Expr {
    Expr::select(part.clone().equals(Expr::int(0)), real, imaginary)
}

/// A tensor of complex numbers from their parts; of their real parts alone where its last axis has one element.
fn from_parts(
    b: &mut Builder,
    name: &str,
    dtype: DType,
    shape: &[Expr],
    value: impl FnOnce(&[Expr]) -> Complex,
) -> Operand {
    let result = b.temporary(name, dtype, shape);
    let Some((parts, places)) = shape.split_last() else { return result };
    b.update(&result, places, &[], |i, _| {
        let Complex { re, im } = value(i);
        let part = |(n, part): (i64, Option<Expr>)| {
            let value = part.map_or_else(|| Expr::zero(dtype), |part| part.cast(dtype));
            result.store([i, &[Expr::int(n)]].concat(), value)
        };
        let parts = if parts.as_int() == Some(1) { vec![re] } else { vec![re, im] };
        (0..).zip(parts).map(part).collect()
    });
    result
}

/// The transform along one axis, with extents from the result's shape.
struct Transform<'a> {
    x: &'a Operand,
    axis: usize,
    shape: &'a [Expr],
    length: Expr,
    inverse: bool,
    onesided: bool,
    /// Whether the axis is one of several candidates, so that other extents may not fit and are clamped.
    speculative: bool,
}

impl Transform<'_> {
    /// Element `step` along the axis, part `part`, of the row of result index `i`.
    fn element(&self, i: &[Expr], step: &Expr, part: i64) -> Expr {
        let last = self.x.rank() - 1;
        let complex = self.x.shape[last].as_int() != Some(1);
        if part == 1 && !complex {
            return double(0.0);
        }
        let mut at = with_index(i, self.axis, step.clone(), true);
        at[last] = Expr::int(part);
        if self.speculative {
            for (index, extent) in at.iter_mut().zip(&self.x.shape) {
                *index = clamp(index.clone(), Expr::int(0), extent.clone() - 1);
            }
        }
        self.x.at(at).cast(DType::F64)
    }

    fn define(&self, b: &mut Builder) -> Result<Operand, NoKernel> {
        match self.length.as_int().and_then(radices) {
            Some(radices) => self.fast(b, &radices),
            None => Ok(self.direct(b)),
        }
    }

    /// Element `step` of the row at the indices of the other axes, with zeros beyond what is given.
    fn row(&self, others: &[Expr], step: &Expr, dtype: DType) -> Complex {
        let last = self.x.rank() - 1;
        let at = |step: &Expr, part: i64| {
            let mut place = others.to_vec();
            place.insert(self.axis, step.clone());
            place.push(Expr::int(part));
            let inside = step.clone().lt(self.x.shape[self.axis].clone());
            Expr::select(inside, self.x.at(place).cast(dtype), Expr::zero(dtype))
        };
        let complex = self.x.shape[last].as_int() != Some(1);
        if !(self.inverse && self.onesided) {
            return Complex { re: Some(at(step, 0)), im: complex.then(|| at(step, 1)) };
        }
        // Only the first half of a conjugate symmetric spectrum is given, whose ends are real.
        let mirrored = self.length.clone() - step.clone();
        let given = step.clone().min(mirrored.clone());
        let im = complex.then(|| {
            let im = at(&given, 1);
            let signed = Expr::select(step.clone().lt(mirrored.clone()), im.clone(), -im);
            let is_end = step.clone().equals(Expr::int(0)).or(step.clone().equals(mirrored));
            Expr::select(is_end, Expr::zero(dtype), signed)
        });
        Complex { re: Some(at(&given, 0)), im }
    }

    fn fast(&self, b: &mut Builder, radices: &[i64]) -> Result<Operand, NoKernel> {
        let (last, dtype) = (self.x.rank() - 1, accumulator(self.x.dtype));
        // Rows have the operand's extents: those of the result are others where the axis is not the one meant.
        let mut others = self.x.shape[..last].to_vec();
        others.remove(self.axis);
        let from_real = self.x.shape[last].as_int() == Some(1);
        let to_real = self.inverse && self.onesided;
        let decimation = if from_real && !to_real { Decimation::Time } else { Decimation::Frequency };
        let (axis, inverse) = (self.axis, self.inverse);
        let fft = Fft { others: &others, axis, radices, decimation, inverse, dtype };
        let rows = |others: &[Expr], step: &Expr| self.row(others, step, dtype);
        let spectrum = fft.define(b, &rows)?;
        let n: i64 = radices.iter().product();
        let scale = inverse.then(|| Expr::float_of(dtype, 1.0 / n as f64));
        Ok(from_parts(b, "dft", self.x.dtype, self.shape, |i| {
            let mut place = i.to_vec();
            let mut bin = place.remove(axis);
            if self.speculative {
                bin = clamp(bin, Expr::int(0), Expr::int(n - 1));
                for (index, extent) in place.iter_mut().zip(&others) {
                    *index = clamp(index.clone(), Expr::int(0), extent.clone() - 1);
                }
            }
            let value = spectrum.at(&place, &bin);
            match &scale {
                Some(scale) => value.scaled(scale),
                None => value,
            }
        }))
    }

    fn direct(&self, b: &mut Builder) -> Operand {
        let twiddles = Twiddles::new(b, self.length.clone());
        let steps = vec![self.x.shape[self.axis].clone()];
        let last = self.x.rank() - 1;
        let halves = self.inverse && self.onesided;
        let sum = b.reduce("dft", DType::F64, self.shape, steps, double(0.0), |i, r, acc| {
            let step = &r[0];
            let (cos, sin) = twiddles.at(i[self.axis].clone() * step.clone());
            let sin = if self.inverse { sin } else { -sin };
            let (re, im) = (self.element(i, step, 0), self.element(i, step, 1));
            let real = re.clone() * cos.clone() - im.clone() * sin.clone();
            let term = by_part(&i[last], real, Expr::fma(re, sin, im * cos));
            let (used, term) = if halves {
                // Only the first half of a conjugate symmetric spectrum is given.
                let ends =
                    step.clone().equals(Expr::int(0)).or((step.clone() * 2).equals(self.length.clone()));
                let weight = Expr::select(ends, double(1.0), double(2.0));
                ((step.clone() * 2).le(self.length.clone()), term * weight)
            } else {
                (step.clone().lt(self.length.clone()), term)
            };
            Expr::select(used, acc.clone() + term, acc)
        });
        b.compute("dft", self.x.dtype, self.shape, |i| {
            let value = sum.at(i.to_vec());
            let scaled = if self.inverse { value / self.length.clone().cast(DType::F64) } else { value };
            scaled.cast(self.x.dtype)
        })
    }
}

/// Discrete Fourier transform: `(x, length?, axis?)`.
pub(super) fn dft(b: &mut Builder, attrs: &DftAttrs) -> Results {
    let (x, length, axis) = (b.input(0)?, b.optional(1), b.optional(2));
    let shape = b.result_shape(0)?;
    let fixed_length = attrs.length.as_ref().map(|dim| b.dim(dim));
    let transform = |axis: usize, speculative: bool| {
        let given = x.shape[axis].clone();
        let length = match (&fixed_length, &length) {
            (Some(length), _) => length.clone(),
            (None, Some(length)) => length.scalar().cast(DType::I64),
            (None, None) if attrs.inverse && attrs.onesided => (given - 1) * 2,
            (None, None) => given,
        };
        let (inverse, onesided) = (attrs.inverse, attrs.onesided);
        Transform { x: &x, axis, shape: &shape, length, inverse, onesided, speculative }
    };
    if let Some(axis) = attrs.axis {
        return Ok(vec![transform(axis, false).define(b)?]);
    }
    let Some(axis) = axis else { return Err(b.no_kernel("its axis is missing")) };
    // The axis is data: a transform along every axis but the last, of which one is taken.
    let candidates = (0..x.rank() - 1).map(|axis| transform(axis, true).define(b));
    let candidates = candidates.collect::<Result<Vec<Operand>, NoKernel>>()?;
    let rank = x.rank() as i64;
    Ok(vec![b.compute("dft", x.dtype, &shape, |i| {
        let given = axis.scalar().cast(DType::I64);
        let values = candidates.iter().enumerate().map(|(n, candidate)| (n as i64, candidate.at(i.to_vec())));
        let chosen = values.reduce(|(_, rest), (n, value)| {
            let hit = given.clone().equals(Expr::int(n)).or(given.clone().equals(Expr::int(n - rank)));
            (n, Expr::select(hit, value, rest))
        });
        chosen.map_or_else(|| Expr::zero(x.dtype), |(_, value)| value)
    })])
}

/// Short-time Fourier transform: `(signal, frame_step?, window?, frame_length?)`; the signal is
/// `[batch, samples, 1 or 2]`, the result `[batch, frames, frequencies, 2]`.
pub(super) fn stft(b: &mut Builder, attrs: &StftAttrs) -> Results {
    let (x, step, window, length) = (b.input(0)?, b.optional(1), b.optional(2), b.optional(3));
    let shape = b.result_shape(0)?;
    let step = match (attrs.frame_step, step) {
        (Some(step), _) => Expr::int(step),
        (None, Some(step)) => step.scalar().cast(DType::I64),
        (None, None) => return Err(b.no_kernel("the step between frames is missing")),
    };
    // The transform's length, and an extent that it does not exceed.
    let (length, bound) = match (attrs.frame_length, &window, length) {
        (Some(length), _, _) => (Expr::int(length), Expr::int(length)),
        (None, Some(window), _) => (window.shape[0].clone(), window.shape[0].clone()),
        (None, None, Some(length)) => (length.scalar().cast(DType::I64), x.shape[1].clone()),
        (None, None, None) => (x.shape[1].clone(), x.shape[1].clone()),
    };
    let complex = x.rank() == 3 && x.shape[2].as_int() != Some(1);
    let sample = |batch: &Expr, sample: &Expr, part: i64, dtype: DType| {
        let place = [batch.clone(), sample.clone(), Expr::int(part)];
        x.at(place[..x.rank()].to_vec()).cast(dtype)
    };
    let weight = |step: &Expr, dtype: DType| window.as_ref().map(|w| w.at(vec![step.clone()]).cast(dtype));

    if let Some(radices) = length.as_int().and_then(radices) {
        let dtype = accumulator(x.dtype);
        let frames = |others: &[Expr], n: &Expr| {
            let place = others[1].clone() * step.clone() + n.clone();
            let part = |part: i64| {
                let value = sample(&others[0], &place, part, dtype);
                let weighted = match weight(n, dtype) {
                    Some(weight) => value * weight,
                    None => value,
                };
                Expr::select(place.clone().lt(x.shape[1].clone()), weighted, Expr::zero(dtype))
            };
            Complex { re: Some(part(0)), im: complex.then(|| part(1)) }
        };
        let (others, axis, inverse) = (&shape[..2], 2, false);
        let decimation = if complex { Decimation::Frequency } else { Decimation::Time };
        let fft = Fft { others, axis, radices: &radices, decimation, inverse, dtype };
        let spectrum = fft.define(b, &frames)?;
        return Ok(vec![from_parts(b, "stft", x.dtype, &shape, |i| spectrum.at(&i[..2], &i[2]))]);
    }

    let twiddles = Twiddles::new(b, length.clone());
    let sum = b.reduce("stft", DType::F64, &shape, vec![bound.clone()], double(0.0), |i, r, acc| {
        let place = i[1].clone() * step.clone() + r[0].clone();
        let re = sample(&i[0], &place, 0, DType::F64);
        let im = if complex { sample(&i[0], &place, 1, DType::F64) } else { double(0.0) };
        let weight = weight(&r[0], DType::F64).unwrap_or_else(|| double(1.0));
        let (cos, sin) = twiddles.at(i[2].clone() * r[0].clone());
        let real = re.clone() * cos.clone() + im.clone() * sin.clone();
        let term = by_part(&i[3], real, im * cos - re * sin);
        let mut used = place.lt(x.shape[1].clone());
        if length != bound {
            used = used.and(r[0].clone().lt(length));
        }
        Expr::select(used, Expr::fma(term, weight, acc.clone()), acc)
    });
    Ok(vec![b.cast("cast", sum, x.dtype)])
}

/// Weights from a spectrum to mel bins: `(bins, dft_length, sample_rate, lower, upper)`.
pub(super) fn mel_weight_matrix(b: &mut Builder, to: DType) -> Results {
    let operands = [b.input(0)?, b.input(1)?, b.input(2)?, b.input(3)?, b.input(4)?];
    let shape = b.result_shape(0)?;
    let value = |n: usize| operands[n].scalar().cast(DType::F64);
    let mel = |hertz: Expr| {
        let log = apply(UnaryOp::Log1p, hertz / double(700.0));
        double(2595.0) * log / double(10f64.ln())
    };
    // The spectrum's bin at edge `edge` of the filters.
    let edges = [shape[1].clone() + 2];
    let edge = b.compute("edge", DType::I64, &edges, |i| {
        let (low, high) = (mel(value(3)), mel(value(4)));
        let step = (high - low.clone()) / (value(0) + double(2.0));
        let place = i[0].clone().cast(DType::F64) * step + low;
        let hertz = double(700.0) * apply(UnaryOp::Expm1, place / double(2595.0) * double(10f64.ln()));
        apply(UnaryOp::Floor, (value(1) + double(1.0)) * hertz / value(2)).cast(DType::I64)
    });
    Ok(vec![b.compute("mel_weights", to, &shape, |i| {
        let [low, centre, high] = [0, 1, 2].map(|n| edge.at(vec![i[1].clone() + n]));
        let bin = &i[0];
        let slope =
            |numerator: Expr, denominator: Expr| numerator.cast(DType::F64) / denominator.cast(DType::F64);
        let rising = slope(bin.clone() - low.clone(), centre.clone() - low.clone());
        let falling = slope(high.clone() - bin.clone(), high.clone() - centre.clone());
        let on_rise = bin.clone().ge(low.clone()).and(bin.clone().le(centre.clone()));
        let on_fall = bin.clone().ge(centre.clone()).and(bin.clone().lt(high));
        let peak = bin.clone().equals(centre.clone());
        let left = Expr::select(
            low.equals(centre),
            Expr::select(peak, double(1.0), double(0.0)),
            Expr::select(on_rise, rising, double(0.0)),
        );
        Expr::select(on_fall, falling, left).cast(to)
    })])
}
