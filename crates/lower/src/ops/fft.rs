//! Fast Fourier transforms: one pass over the data for each small factor of a constant length.
//!
//! A pass of radix `p` is a block. It sees a row of `done * p * rest` elements as `[done, p, rest]`, transforms each
//! of its columns of `p`, and leaves `[p, done, rest]`: after the last pass the row is in order, without a
//! permutation of its own (Stockham). Between columns and passes come the twiddle factors, roots of unity of which
//! there is one table a transform. The work is `O(n (p1 + p2 + ..))`.
//!
//! Factors, their order and every sum are those of FFTPACK and of its descendant pocketfft, which NumPy runs: what
//! is exactly zero in a spectrum comes out as a residue of rounding, and the residue is the same (but where pocketfft
//! takes two passes of complex rows together, in one of radix 8). Complex rows are decimated in frequency: factors in
//! the order of [`radices`], each column multiplied by its twiddles after it is transformed. Transforms of real rows
//! are the transpose, decimated in time: the factors backwards, twiddles before the columns. Those to real rows are
//! their transpose in turn, and so are decimated in frequency.
//!
//! Products are rounded before they are added. That, too, is what the residues are made of, so nothing here is a
//! fused multiply-add, unlike in other sums of products.

use tilewright_dtype::DType;
use tilewright_te::interp::evaluate_expr;
use tilewright_te::{Expr, Store, UnaryOp};

use super::NoKernel;
use super::builder::{Builder, Operand};
use super::elementwise::apply;

/// The greatest radix. A pass costs `p` operations an element and its code grows with the square of `p`.
const MAX_RADIX: i64 = 13;

/// The radices of a transform of `n` points, first pass of a complex row first; `None` where `n` is not positive or
/// has a prime factor beyond [`MAX_RADIX`].
pub(super) fn radices(n: i64) -> Option<Vec<i64>> {
    if n < 1 {
        return None;
    }
    let mut radices = Vec::new();
    let mut rest = n;
    while rest % 4 == 0 {
        radices.push(4);
        rest /= 4;
    }
    if rest % 2 == 0 {
        radices.push(2);
        rest /= 2;
        // The pass of radix 2 trades places with the first one.
        let last = radices.len() - 1;
        radices.swap(0, last);
    }
    for radix in (3..=MAX_RADIX).step_by(2) {
        while rest % radix == 0 {
            radices.push(radix);
            rest /= radix;
        }
    }
    (rest == 1).then_some(radices)
}

/// A part of a complex number; `None` is 0 whatever the data.
type Part = Option<Expr>;

fn add(a: &Part, b: &Part) -> Part {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.clone() + b.clone()),
        (Some(one), None) | (None, Some(one)) => Some(one.clone()),
        (None, None) => None,
    }
}

fn sub(a: &Part, b: &Part) -> Part {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.clone() - b.clone()),
        (Some(a), None) => Some(a.clone()),
        (None, b) => negated(b),
    }
}

fn negated(a: &Part) -> Part {
    a.clone().map(|a| -a)
}

fn scaled(a: &Part, by: &Expr) -> Part {
    a.clone().map(|a| a * by.clone())
}

/// A complex number, by its parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Complex {
    pub(super) re: Part,
    pub(super) im: Part,
}

impl Complex {
    fn add(&self, other: &Complex) -> Complex {
        Complex { re: add(&self.re, &other.re), im: add(&self.im, &other.im) }
    }

    fn sub(&self, other: &Complex) -> Complex {
        Complex { re: sub(&self.re, &other.re), im: sub(&self.im, &other.im) }
    }

    /// The product with a real number.
    pub(super) fn scaled(&self, by: &Expr) -> Complex {
        Complex { re: scaled(&self.re, by), im: scaled(&self.im, by) }
    }

    /// The product with `i`.
    fn turned(&self) -> Complex {
        Complex { re: negated(&self.im), im: self.re.clone() }
    }

    /// The product with a root of unity, or with its conjugate.
    fn rotated(&self, (cos, sin): &(Expr, Expr), conjugate: bool) -> Complex {
        let (re_cos, re_sin) = (scaled(&self.re, cos), scaled(&self.re, sin));
        let (im_cos, im_sin) = (scaled(&self.im, cos), scaled(&self.im, sin));
        if conjugate {
            Complex { re: add(&re_cos, &im_sin), im: sub(&im_cos, &re_sin) }
        } else {
            Complex { re: sub(&re_cos, &im_sin), im: add(&re_sin, &im_cos) }
        }
    }
}

/// Cosine and sine of `2 pi turns / n` in double precision, for `0 <= turns < n`.
///
/// The angle is reduced to an eighth of a turn in integers, so that roots have the symmetries of the circle exactly,
/// and none that lies on an axis is off it.
fn root(turns: &Expr, n: i64) -> (Expr, Expr) {
    let double = |value: f64| Expr::float_of(DType::F64, value);
    // In units of an eighth of a turn by `n`: the lower half mirrors the upper one, the second quarter is the first
    // one turned, and the second eighth mirrors the first one.
    let eighths = turns.clone() * 8;
    let lower = eighths.clone().gt(Expr::int(4 * n));
    let half = Expr::select(lower.clone(), Expr::int(8 * n) - eighths.clone(), eighths);
    let second = half.clone().gt(Expr::int(2 * n));
    let quarter = Expr::select(second.clone(), half.clone() - 2 * n, half);
    let mirrored = quarter.clone().gt(Expr::int(n));
    let eighth = Expr::select(mirrored.clone(), Expr::int(2 * n) - quarter.clone(), quarter);
    let angle = eighth.cast(DType::F64) * double(std::f64::consts::FRAC_PI_4) / double(n as f64);
    let (cos, sin) = (apply(UnaryOp::Cos, angle.clone()), apply(UnaryOp::Sin, angle));
    let (cos, sin) =
        (Expr::select(mirrored.clone(), sin.clone(), cos.clone()), Expr::select(mirrored, cos, sin));
    let (cos, sin) =
        (Expr::select(second.clone(), -sin.clone(), cos.clone()), Expr::select(second, cos, sin));
    (cos, Expr::select(lower, -sin.clone(), sin))
}

/// The roots of unity of one order, in memory.
struct Roots {
    cos: Operand,
    sin: Operand,
}

impl Roots {
    fn define(b: &mut Builder, n: i64, dtype: DType) -> Roots {
        let shape = [Expr::int(n)];
        let (cos, sin) = (b.temporary("cos", dtype, &shape), b.temporary("sin", dtype, &shape));
        b.update(&cos, &shape, &[], |i, _| {
            let (x, y) = root(&i[0], n);
            vec![cos.store(i.to_vec(), x.cast(dtype)), sin.store(i.to_vec(), y.cast(dtype))]
        });
        Roots { cos, sin }
    }

    fn at(&self, turns: Expr) -> (Expr, Expr) {
        (self.cos.at(vec![turns.clone()]), self.sin.at(vec![turns]))
    }
}

/// The roots of unity of a radix, as numbers.
struct Constants(Vec<(Expr, Expr)>);

impl Constants {
    fn of(b: &Builder, radix: i64, dtype: DType) -> Result<Constants, NoKernel> {
        let number = |value: Expr| {
            let value = evaluate_expr(&value, &|_| None, &|_, _| None);
            value
                .map(|value| Expr::float_of(dtype, value.as_float()))
                .map_err(|error| b.no_kernel(error.to_string()))
        };
        let constant = |turns| {
            let (cos, sin) = root(&Expr::int(turns), radix);
            Ok((number(cos)?, number(sin)?))
        };
        (0..radix).map(constant).collect::<Result<_, _>>().map(Constants)
    }

    fn at(&self, turns: usize) -> &(Expr, Expr) {
        &self.0[turns % self.0.len()]
    }
}

/// Where the halves of a split row are told apart; see the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decimation {
    /// Twiddles before the columns: for real rows.
    Time,
    /// Twiddles after the columns: for complex rows, and for rows whose transform is real.
    Frequency,
}

/// Element `step` of a row, at the indices of the other axes.
pub(super) type Source<'a> = dyn Fn(&[Expr], &Expr) -> Complex + 'a;

/// A row after some of the passes.
enum State<'a> {
    Source(&'a Source<'a>),
    /// Real and imaginary parts, with `[done, rest]` in place of the axis.
    Stored {
        axis: usize,
        re: Operand,
        im: Operand,
    },
}

impl State<'_> {
    fn at(&self, others: &[Expr], done: &Expr, rest: &Expr) -> Complex {
        match self {
            State::Source(source) => source(others, rest),
            State::Stored { axis, re, im } => {
                let place = split_place(others, *axis, done, rest);
                Complex { re: Some(re.at(place.clone())), im: Some(im.at(place)) }
            }
        }
    }
}

/// The indices of the other axes with `done` and `rest` where the axis was.
fn split_place(others: &[Expr], axis: usize, done: &Expr, rest: &Expr) -> Vec<Expr> {
    let mut place = others.to_vec();
    place.splice(axis..axis, [done.clone(), rest.clone()]);
    place
}

/// Transforms of many rows.
pub(super) struct Fft<'a> {
    /// Extents of all axes but the transformed one.
    pub(super) others: &'a [Expr],
    /// Where among them the transformed axis belongs.
    pub(super) axis: usize,
    /// As [`radices`] gives them; their product is the length.
    pub(super) radices: &'a [i64],
    /// Which pass multiplies by twiddles when.
    pub(super) decimation: Decimation,
    /// Whether the signs of angles are those of the inverse transform. The result is not scaled.
    pub(super) inverse: bool,
    /// The type of the arithmetic.
    pub(super) dtype: DType,
}

/// Transformed rows.
pub(super) struct Spectrum<'a>(State<'a>);

impl Spectrum<'_> {
    /// Element `bin` of the transformed row at the indices of the other axes.
    pub(super) fn at(&self, others: &[Expr], bin: &Expr) -> Complex {
        self.0.at(others, bin, &Expr::int(0))
    }
}

impl Fft<'_> {
    /// Appends the passes over the rows of `source`.
    ///
    /// # Errors
    /// No kernel where a constant has no value, which is a defect.
    pub(super) fn define<'a>(
        &self,
        b: &mut Builder,
        source: &'a Source<'a>,
    ) -> Result<Spectrum<'a>, NoKernel> {
        let n: i64 = self.radices.iter().product();
        let mut state = State::Source(source);
        let roots = (self.radices.len() > 1).then(|| Roots::define(b, n, self.dtype));
        let order: Vec<i64> = match self.decimation {
            Decimation::Time => self.radices.iter().rev().copied().collect(),
            Decimation::Frequency => self.radices.to_vec(),
        };
        let mut done = 1;
        for radix in order {
            let constants = Constants::of(b, radix, self.dtype)?;
            let pass =
                Pass { fft: self, radix, done, rest: n / (done * radix), constants, roots: roots.as_ref() };
            state = pass.define(b, &state);
            done *= radix;
        }
        Ok(Spectrum(state))
    }
}

/// One pass: from `[done, radix * rest]` to `[radix * done, rest]`.
struct Pass<'a> {
    fft: &'a Fft<'a>,
    radix: i64,
    done: i64,
    rest: i64,
    constants: Constants,
    /// `None` where this is the only pass.
    roots: Option<&'a Roots>,
}

impl Pass<'_> {
    fn define<'s>(&self, b: &mut Builder, state: &State) -> State<'s> {
        let Fft { others, axis, dtype, .. } = *self.fft;
        let shape = split_place(others, axis, &Expr::int(self.radix * self.done), &Expr::int(self.rest));
        let (re, im) = (b.temporary("fft_re", dtype, &shape), b.temporary("fft_im", dtype, &shape));
        // Variables for what has more than one value, so that the innermost one walks memory.
        let walked: Vec<i64> = [self.done, self.rest].into_iter().filter(|&extent| extent > 1).collect();
        let mut domain = others.to_vec();
        domain.splice(axis..axis, walked.iter().map(|&extent| Expr::int(extent)));
        b.update(&re, &domain, &[], |i, _| {
            let mut others = i.to_vec();
            let mut walked = others.drain(axis..axis + walked.len());
            let mut next = |extent: i64| match extent {
                1 => Expr::int(0),
                _ => walked.next().unwrap_or_else(|| Expr::int(0)),
            };
            let (done, rest) = (next(self.done), next(self.rest));
            drop(walked);
            let column = self.column(state, &others, &done, &rest);
            let stores = column.into_iter().zip(0..).flat_map(|(value, bin)| -> [Store; 2] {
                let place = split_place(&others, axis, &(done.clone() + bin * self.done), &rest);
                let part = |part: Part| part.unwrap_or_else(|| Expr::zero(dtype));
                [re.store(place.clone(), part(value.re)), im.store(place, part(value.im))]
            });
            stores.collect()
        });
        State::Stored { axis, re, im }
    }

    /// The transformed column, twiddles included.
    fn column(&self, state: &State, others: &[Expr], done: &Expr, rest: &Expr) -> Vec<Complex> {
        let element = |j: i64| state.at(others, done, &(rest.clone() + j * self.rest));
        // Roots of order `radix * rest`, or of `radix * done`, within the table of order n.
        let twiddled = |value: Complex, n: i64, index: &Expr, step: i64| match self.roots {
            Some(roots) if n > 0 && index.as_int() != Some(0) => {
                value.rotated(&roots.at(index.clone() * (n * step)), !self.fft.inverse)
            }
            Some(_) | None => value,
        };
        match self.fft.decimation {
            Decimation::Time => {
                let column = (0..self.radix).map(|j| twiddled(element(j), j, done, self.rest));
                self.butterfly(&column.collect::<Vec<_>>())
            }
            Decimation::Frequency => {
                let column = self.butterfly(&(0..self.radix).map(element).collect::<Vec<_>>());
                column.into_iter().zip(0..).map(|(value, q)| twiddled(value, q, rest, self.done)).collect()
            }
        }
    }

    /// The transform of a column.
    fn butterfly(&self, x: &[Complex]) -> Vec<Complex> {
        match x {
            [a, b] => vec![a.add(b), a.sub(b)],
            [a, b, c, d] => {
                let (even, odd) = ((a.add(c), a.sub(c)), (b.add(d), b.sub(d)));
                let turned = odd.1.turned();
                let (plus, minus) = (even.1.add(&turned), even.1.sub(&turned));
                let (first, third) = if self.fft.inverse { (plus, minus) } else { (minus, plus) };
                vec![even.0.add(&odd.0), first, even.0.sub(&odd.0), third]
            }
            x => self.odd_butterfly(x),
        }
    }

    /// The transform of a column of odd length: elements that lie opposite each other share their products.
    fn odd_butterfly(&self, x: &[Complex]) -> Vec<Complex> {
        let (p, half) = (x.len(), x.len() / 2);
        let sums: Vec<Complex> = (1..=half).map(|j| x[j].add(&x[p - j])).collect();
        let differences: Vec<Complex> = (1..=half).map(|j| x[j].sub(&x[p - j])).collect();
        let mut out = vec![Complex::default(); p];
        out[0] = sums.iter().fold(x[0].clone(), |total, sum| total.add(sum));
        for q in 1..=half {
            let (mut even, mut odd) = (x[0].clone(), Complex::default());
            for (j, (sum, difference)) in (1..).zip(sums.iter().zip(&differences)) {
                let (cos, sin) = self.constants.at(j * q);
                even = even.add(&sum.scaled(cos));
                odd = odd.add(&difference.scaled(sin));
            }
            let turned = odd.turned();
            let (plus, minus) = (even.add(&turned), even.sub(&turned));
            (out[q], out[p - q]) = if self.fft.inverse { (plus, minus) } else { (minus, plus) };
        }
        out
    }
}
