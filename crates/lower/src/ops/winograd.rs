//! Winograd convolution: tiles of outputs from fewer products, at the cost of sums.
//!
//! `F(m x m, 3 x 3)` computes `m x m` outputs of a 3 x 3 convolution of stride 1 from `t x t` inputs, `t = m + 2`, with `t * t`
//! products a pair of channels where the definition takes `9 * m * m`: Lavin and Gray, "Fast Algorithms for Convolutional
//! Neural Networks", 2016. The transforms follow from points (Toom-Cook, Winograd 1980): with the polynomials
//! `M(x) = prod (x - p_l)` and `M_j(x) = M(x) / (x - p_j)`,
//!
//! - inputs: row `j` of `B^T` has the coefficients of `M_j`, the last row those of `M`;
//! - weights: row `j` of `G` has the powers of `p_j` over `M_j(p_j)`, the last row takes the highest power alone;
//! - outputs: column `j` of `A^T` has the powers of `p_j`, the last column is that of the highest power.
//!
//! Points come in pairs `p, -p`, whose rows differ in the signs of odd powers: each half is computed once. Which points they
//! are decides how large the transforms' elements are against those of the result, and so the rounding errors.

use std::slice;

use tilewright_dtype::DType;
use tilewright_graph::dim::Dim;
use tilewright_graph::op::ConvAttrs;
use tilewright_graph::types::TensorType;
use tilewright_te::Expr;

use super::builder::{Builder, Operand, all, biased, digits_of, group_of, grouped, in_range, number_of};
use super::{NoKernel, Results};

/// Pairs of points beside 0 and infinity, by the outputs of a tile along an axis.
///
/// Of the pairs whose powers are exact in few bits, those of the larger tile are among the most accurate: errors are about a
/// third of those of 1 and 2, which pass the numerics contract's bound from 256 channels on.
const fn pairs(m: usize) -> &'static [f64] {
    match m {
        2 => &[1.0],
        _ => &[0.75, 1.5],
    }
}

/// The transforms of `F(m x m, 3 x 3)` along one axis.
struct Transforms {
    /// Outputs of a tile along an axis.
    m: usize,
    /// Finite points: 0, then pairs.
    points: Vec<f64>,
}

impl Transforms {
    fn new(m: usize) -> Transforms {
        let pairs = pairs(m).iter().flat_map(|&p| [p, -p]);
        Transforms { m, points: std::iter::once(0.0).chain(pairs).collect() }
    }

    /// Inputs of a tile along an axis: as many as products.
    fn t(&self) -> usize {
        self.m + 2
    }

    /// Coefficients, from the lowest power, of `M_j`, or of `M` after the last point.
    fn polynomial(&self, j: usize) -> Vec<f64> {
        let mut coefficients = vec![1.0];
        for (l, point) in self.points.iter().enumerate() {
            if l == j {
                continue;
            }
            let mut next = vec![0.0; coefficients.len() + 1];
            for (power, c) in coefficients.iter().enumerate() {
                next[power + 1] += c;
                next[power] -= point * c;
            }
            coefficients = next;
        }
        coefficients
    }

    /// Row `j` of `G` on three weights.
    fn weights(&self, j: usize) -> [f64; 3] {
        let Some(point) = self.points.get(j) else { return [0.0, 0.0, 1.0] };
        let others = self.points.iter().enumerate().filter(|(l, _)| *l != j);
        let scale: f64 = others.map(|(_, p)| point - p).product();
        [1.0 / scale, point / scale, point * point / scale]
    }

    /// `B^T d`.
    fn input(&self, d: &[Expr]) -> Vec<Expr> {
        let last = self.points.len();
        let mut rows = vec![sum(&self.polynomial(0), d, |_| true)];
        for j in (1..last).step_by(2) {
            // With the point as a factor of the odd half, which is then the same for both as well.
            let (point, row) = (self.points[j], self.polynomial(j));
            let halved: Vec<f64> = row.iter().map(|c| c / point).collect();
            let (even, odd) = (sum(&row, d, |power| power % 2 == 0), sum(&halved, d, |power| power % 2 == 1));
            rows.push(combination(&[(1.0, even.clone()), (point, odd.clone())]));
            rows.push(combination(&[(1.0, even), (-point, odd)]));
        }
        rows.push(sum(&self.polynomial(last), d, |_| true));
        rows
    }

    /// `G g` on weights in any precision.
    fn weight(&self, g: &[Expr]) -> Vec<Expr> {
        (0..self.t()).map(|j| sum(&self.weights(j), g, |_| true)).collect()
    }

    /// `A^T x`.
    fn output(&self, x: &[Expr]) -> Vec<Expr> {
        let halves: Vec<(f64, Expr, Expr)> = (1..self.points.len())
            .step_by(2)
            .map(|j| (self.points[j], x[j].clone() + x[j + 1].clone(), x[j].clone() - x[j + 1].clone()))
            .collect();
        let row = |power: usize| {
            let half = |(point, even, odd): &(f64, Expr, Expr)| {
                (point.powi(power as i32), if power.is_multiple_of(2) { even.clone() } else { odd.clone() })
            };
            let mut terms: Vec<(f64, Expr)> = halves.iter().map(half).collect();
            terms.extend((power == 0).then(|| (1.0, x[0].clone())));
            terms.extend((power + 1 == self.m).then(|| (1.0, x[self.t() - 1].clone())));
            combination(&terms)
        };
        (0..self.m).map(row).collect()
    }
}

/// The sum of `coefficients[n] * x[n]` over the `n` that are `taken`.
fn sum(coefficients: &[f64], x: &[Expr], taken: impl Fn(usize) -> bool) -> Expr {
    let pairs = coefficients.iter().zip(x).enumerate().filter(|(n, _)| taken(*n));
    let terms: Vec<(f64, Expr)> = pairs.map(|(_, (c, x))| (*c, x.clone())).collect();
    combination(&terms)
}

/// A linear combination in few operations: a term with coefficient 1, if there is one, starts the sum.
fn combination(terms: &[(f64, Expr)]) -> Expr {
    let mut terms: Vec<&(f64, Expr)> = terms.iter().filter(|(c, _)| *c != 0.0).collect();
    terms.sort_by_key(|(c, _)| *c != 1.0);
    let Some(((c, x), rest)) = terms.split_first() else { return Expr::zero(DType::F32) };
    let constant = |c: f64| Expr::float_of(x.dtype(), c);
    let first = if *c == 1.0 { x.clone() } else { x.clone() * constant(*c) };
    rest.iter().fold(first, |sum, (c, x)| match *c {
        1.0 => sum + x.clone(),
        -1.0 => sum - x.clone(),
        // In double precision fusing would gain nothing, and not every machine has the instruction.
        c if x.dtype() == DType::F64 => sum + x.clone() * constant(c),
        c => Expr::fma(x.clone(), constant(c), sum),
    })
}

/// `f` along both axes of a square of values in rows: `f x f^T`, in rows.
fn both_axes(values: &[Expr], side: usize, f: impl Fn(&[Expr]) -> Vec<Expr>) -> Vec<Expr> {
    let columns: Vec<Vec<Expr>> = (0..side)
        .map(|column| {
            let values: Vec<Expr> = (0..side).map(|row| values[row * side + column].clone()).collect();
            f(&values)
        })
        .collect();
    let n_rows = columns[0].len();
    let row = |row: usize| -> Vec<Expr> { columns.iter().map(|column| column[row].clone()).collect() };
    (0..n_rows).flat_map(|n| f(&row(n))).collect()
}

/// Channels of a group from which on it is worth asking for what tiles of several groups would cost: a product of fewer takes less
/// than to transform its operands.
const MIN_CHANNELS: i64 = 8;

/// Whether a convolution can be computed so: images or volumes of known channels, 3 x 3 weights and stride 1 along the last two
/// axes, dilated at most by half of a known result, one group, or groups of several channels
/// in images of known extents: of open ones it takes too long to show where tiles of groups lie.
pub(super) fn applies(attrs: &ConvAttrs, x: &TensorType, w: &TensorType) -> bool {
    let extents = |ty: &TensorType| Some(ty.shape.dims()?.iter().map(Dim::as_const).collect::<Vec<_>>());
    let one = |list: &[usize]| list.iter().rev().take(2).all(|&n| n == 1);
    let fits = |x: &Vec<Option<i64>>| x.len() >= 4 && x[1].is_some() && x.iter().all(|&n| n != Some(0));
    let known = extents(x).is_some_and(|x| fits(&x));
    // Phases of a single element would leave most of their tiles unused.
    let n_axes = attrs.dilations.len();
    let has_phases = extents(x).is_some_and(|x| {
        (n_axes.saturating_sub(2)..n_axes).all(|axis| {
            let dilation = attrs.dilations[axis] as i64;
            let pads: i64 = [axis, axis + n_axes].iter().filter_map(|&n| attrs.pads.get(n)).sum();
            let extent = x.get(2 + axis).copied().flatten();
            dilation == 1 || extent.is_some_and(|n| n + pads - 2 * dilation >= 2 * dilation)
        })
    });
    let three = extents(w)
        .is_some_and(|w| w.len() >= 4 && w.iter().all(Option::is_some) && w.ends_with(&[Some(3), Some(3)]));
    let is_fixed = extents(x).is_some_and(|x| x.iter().all(Option::is_some));
    let has_channels = extents(w).is_some_and(|w| {
        let n_groups = attrs.group.max(1) as i64;
        let enough = |(n, by): (&Option<i64>, i64)| n.is_some_and(|n| n / by >= MIN_CHANNELS);
        n_groups == 1 || is_fixed && w.iter().take(2).zip([n_groups, 1]).all(enough)
    });
    x.dtype == DType::F32 && known && three && has_channels && one(&attrs.strides) && has_phases
}

/// Convolution with 3 x 3 weights along the last two axes by tiles of `m x m` outputs.
///
/// Blocks: `winograd_weights` (at compile time), `winograd_input`, `winograd_product` and
/// `winograd_output`. Tiles are numbered over images, rows and columns of tiles; those that overhang the
/// image compute outputs that nothing reads. Weights that are dilated by `d` meet every `d`-th row and column: each such phase of
/// the image is computed as an image of its own, and tiles are numbered within. Slices of a volume are transformed each by itself,
/// and their products summed along the other axes of the weights as by definition; tiles are then numbered within a slice.
/// Where an extent is open tiles are not numbered, but have their row and column. Those of an image both of whose extents are open are
/// numbered all the same, for tiles of the product cross the ends of its rows; but their inputs are transformed row by row, so that no
/// number is divided, and it is known which part of the image a row of tiles reads.
pub(super) fn conv(b: &mut Builder, attrs: &ConvAttrs, m: usize) -> Results {
    let (x, w, bias) = (b.input(0)?, b.input(1)?, b.optional(2));
    let shape = b.result_shape(0)?;
    let tiled = Tiled::new(attrs, x, w, shape, m);
    let weights = tiled.weights(b)?;
    let padded = tiled.padded(b);
    let inputs = tiled.inputs(b, &padded);
    let products = tiled.products(b, &inputs, &weights);
    let outputs = tiled.outputs(b, &products);
    let conv = tiled.untiled(b, &outputs);
    Ok(vec![biased(b, conv, bias, DType::F32)])
}

/// A convolution by tiles.
struct Tiled<'a> {
    attrs: &'a ConvAttrs,
    transforms: Transforms,
    x: Operand,
    w: Operand,
    /// Extents of the result.
    shape: Vec<Expr>,
    /// Outputs of a tile along an axis.
    size: Expr,
    /// Axes of images and volumes; of these the ones around the last two are taken as by definition.
    n_axes: usize,
    n_around: usize,
    /// Phases along the last two axes.
    phases: [i64; 2],
    /// Tiles of a phase along the last two axes.
    tiles: [Expr; 2],
    /// What a tile's number within an image or slice counts, outermost first.
    counted: Vec<Expr>,
    /// Whether tiles have a row and a column rather than a number.
    is_open: bool,
    /// Whether tiles have a number in an image of open extents.
    is_numbered: bool,
}

impl<'a> Tiled<'a> {
    fn new(attrs: &'a ConvAttrs, x: Operand, w: Operand, shape: Vec<Expr>, m: usize) -> Tiled<'a> {
        let n_axes = x.rank() - 2;
        let n_around = n_axes - 2;
        let phases = [n_around, n_around + 1].map(|axis| dilation(attrs, axis));
        let tiles =
            [0, 1].map(|n: usize| shape[2 + n_around + n].clone().ceil_div(phases[n]).ceil_div(m as i64));
        let is_dilated = phases.iter().any(|&n| n > 1);
        let of_phases = phases.iter().filter(|_| is_dilated).map(|&n| Expr::int(n));
        let counted = of_phases.chain(tiles.iter().cloned()).collect();
        let (transforms, size) = (Transforms::new(m), Expr::int(m as i64));
        let is_known = |extent: &Expr| extent.as_int().is_some();
        let is_numbered = n_around == 0 && !tiles.iter().any(is_known);
        let is_open = !is_numbered && !x.shape.iter().chain(&tiles).all(is_known);
        Tiled {
            attrs,
            transforms,
            x,
            w,
            shape,
            size,
            n_axes,
            n_around,
            phases,
            tiles,
            counted,
            is_open,
            is_numbered,
        }
    }

    /// Inputs of a tile along an axis.
    fn side(&self) -> Expr {
        Expr::int(self.transforms.t() as i64)
    }

    /// The place of element `n` of a tile of inputs.
    fn at(&self, n: usize) -> [Expr; 2] {
        let t = self.transforms.t();
        [Expr::int((n / t) as i64), Expr::int((n % t) as i64)]
    }

    fn is_dilated(&self) -> bool {
        self.phases.iter().any(|&n| n > 1)
    }

    fn before(&self, axis: usize) -> i64 {
        self.attrs.pads.get(axis).copied().unwrap_or(0)
    }

    fn stride(&self, axis: usize) -> i64 {
        self.attrs.strides.get(axis).map_or(1, |&stride| stride as i64)
    }

    /// Channels of all groups.
    fn channels(&self) -> &Expr {
        &self.x.shape[1]
    }

    /// Channels of a group.
    fn group_channels(&self) -> &Expr {
        &self.w.shape[1]
    }

    fn out_channels(&self) -> &Expr {
        &self.w.shape[0]
    }

    /// Extents of the weights along the axes around the last two.
    fn around_weights(&self) -> &[Expr] {
        &self.w.shape[2..2 + self.n_around]
    }

    /// Slices that the axes around the last two have when padded.
    fn slices(&self) -> Vec<Expr> {
        let extent = |axis: usize| {
            let last = (self.shape[2 + axis].clone() - 1) * self.stride(axis);
            last + (self.w.shape[2 + axis].clone() - 1) * dilation(self.attrs, axis) + 1
        };
        (0..self.n_around).map(extent).collect()
    }

    /// The extents by which tiles are numbered: all of images in a row, those of a volume by slices; or by rows and columns.
    fn numbers(&self, slices: &[Expr]) -> Vec<Expr> {
        let n_tiles = self.counted.iter().cloned().reduce(|n, extent| n * extent).unwrap_or(Expr::int(1));
        let images = &self.x.shape[..1];
        match self.n_around {
            _ if self.is_open => [images, slices, &self.counted].concat(),
            0 => vec![images[0].clone() * n_tiles],
            _ => [images, slices, slice::from_ref(&n_tiles)].concat(),
        }
    }

    /// The extents by which tiles of outputs are numbered.
    fn output_numbers(&self) -> Vec<Expr> {
        self.numbers(&self.shape[2..2 + self.n_around])
    }

    /// The transformed weights, in double precision: it is done once. Along the channels, as they lie.
    fn weights(&self, b: &mut Builder) -> Result<Operand, NoKernel> {
        let (side, out_channels) = (self.side(), self.out_channels().clone());
        let shape = [
            &[side.clone(), side, out_channels][..],
            self.around_weights(),
            slice::from_ref(self.group_channels()),
        ]
        .concat();
        b.prepare(1, "winograd_weights", DType::F32, &shape, 2, |w, u, i| {
            let load = |n: i64| {
                let (out_channel, inside) = (i[0].clone(), i[1..].iter().cloned());
                let mut at: Vec<Expr> = [out_channel].into_iter().chain(inside).collect();
                // The channel is the second axis of the weights.
                at[1..].rotate_right(1);
                at.extend([Expr::int(n / 3), Expr::int(n % 3)]);
                w.at(at).cast(DType::F64)
            };
            let values: Vec<Expr> = (0..9).map(load).collect();
            let transformed = both_axes(&values, 3, |g| self.transforms.weight(g));
            let store =
                |(n, value): (usize, Expr)| u.store([&self.at(n)[..], i].concat(), value.cast(DType::F32));
            transformed.into_iter().enumerate().map(store).collect()
        })
    }

    /// The operand, padded so that every tile finds all its inputs.
    fn padded(&self, b: &mut Builder) -> Operand {
        let (x, n_around, is_dilated) = (&self.x, self.n_around, self.is_dilated());
        let of_phases = self.phases.iter().filter(|_| is_dilated).map(|&n| Expr::int(n));
        let of_tiles = self.tiles.iter().map(|n| n.clone() * self.size.clone() + 2);
        let shape: Vec<Expr> =
            x.shape[..2].iter().cloned().chain(self.slices()).chain(of_phases).chain(of_tiles).collect();
        b.compute("pad", DType::F32, &shape, |i| {
            let mut from = i[..2].to_vec();
            from.extend((0..n_around).map(|axis| i[2 + axis].clone() - self.before(axis)));
            let [.., row, column] = i else { return Expr::zero(DType::F32) };
            for (n, at) in [row, column].into_iter().enumerate() {
                let at = match is_dilated {
                    true => at.clone() * self.phases[n] + i[2 + n_around + n].clone(),
                    false => at.clone(),
                };
                from.push(at - self.before(n_around + n));
            }
            let inside = all((0..self.n_axes).map(|axis| in_range(&from[2 + axis], &x.shape[2 + axis])));
            Expr::select(inside, x.at(from), Expr::zero(DType::F32))
        })
    }

    /// The transformed inputs of all tiles.
    fn inputs(&self, b: &mut Builder, padded: &Operand) -> Operand {
        let (side, size, t) = (self.side(), &self.size, self.transforms.t());
        let numbers = self.numbers(&self.slices());
        let shape = [&[side.clone(), side][..], &numbers, slice::from_ref(self.channels())].concat();
        let v = b.temporary("winograd_input", DType::F32, &shape);
        let domain = match self.is_numbered {
            true => [&self.x.shape[..1], &self.counted, slice::from_ref(self.channels())].concat(),
            false => shape[2..].to_vec(),
        };
        b.update(&v, &domain, &[], |i, _| {
            let (channel, of_tile) = (&i[i.len() - 1], &i[..i.len() - 1]);
            let (mut around, number) = match self.is_numbered {
                true => (of_tile.to_vec(), vec![number_of(i[0].clone(), &of_tile[1..], &self.counted)]),
                false => (self.digits(of_tile), of_tile.to_vec()),
            };
            let tile = around.split_off(around.len() - 2);
            let load = |n: usize| {
                let [down, right] = self.at(n);
                let (row, column) =
                    (tile[0].clone() * size.clone() + down, tile[1].clone() * size.clone() + right);
                padded.at([&around[..1], slice::from_ref(channel), &around[1..], &[row, column]].concat())
            };
            let values: Vec<Expr> = (0..t * t).map(load).collect();
            let transformed = both_axes(&values, t, |d| self.transforms.input(d));
            let store = |(n, value): (usize, Expr)| {
                v.store([&self.at(n)[..], &number, slice::from_ref(channel)].concat(), value)
            };
            transformed.into_iter().enumerate().map(store).collect()
        });
        v
    }

    /// The variables that count a tile of inputs, its row and column last.
    fn digits(&self, i: &[Expr]) -> Vec<Expr> {
        match i.split_last() {
            // Images are counted too; slices have a variable of their own.
            Some((number, around)) if !self.is_open => {
                [around, &digits_of(number, &self.counted[self.n_around.min(1)..])].concat()
            }
            _ => i.to_vec(),
        }
    }

    /// The products of transformed inputs and weights, summed over channels and the axes around the last two.
    fn products(&self, b: &mut Builder, inputs: &Operand, weights: &Operand) -> Operand {
        let side = self.side();
        let numbers = self.output_numbers();
        let n_numbers = numbers.len();
        let shape = [&[side.clone(), side][..], &numbers, slice::from_ref(self.out_channels())].concat();
        let zero = Expr::zero(DType::F32);
        let depth = [slice::from_ref(self.group_channels()), self.around_weights()].concat();
        b.reduce("winograd_product", DType::F32, &shape, depth, zero, |i, r, acc| {
            let mut of_input = i[..2 + n_numbers].to_vec();
            for axis in 0..self.n_around {
                let slice = &mut of_input[3 + axis];
                let by_weight = r[1 + axis].clone() * dilation(self.attrs, axis);
                *slice = slice.clone() * self.stride(axis) + by_weight;
            }
            let group = group_of(&i[2 + n_numbers], self.out_channels(), self.attrs.group);
            of_input.push(grouped(&group, self.group_channels(), &r[0], self.attrs.group));
            let of_weight = [&i[..2], &i[2 + n_numbers..], &r[1..], &r[..1]].concat();
            Expr::fma(inputs.at(of_input), weights.at(of_weight), acc)
        })
    }

    /// The outputs of all tiles.
    fn outputs(&self, b: &mut Builder, products: &Operand) -> Operand {
        let (size, m, t) = (&self.size, self.transforms.m, self.transforms.t());
        let numbers = self.output_numbers();
        let shape =
            [&[size.clone(), size.clone()][..], &numbers, slice::from_ref(self.out_channels())].concat();
        let y = b.temporary("winograd_output", DType::F32, &shape);
        b.update(&y, &shape[2..], &[], |i, _| {
            let values: Vec<Expr> = (0..t * t).map(|n| products.at([&self.at(n)[..], i].concat())).collect();
            let transformed = both_axes(&values, t, |x| self.transforms.output(x));
            let place = |n: usize| [Expr::int((n / m) as i64), Expr::int((n % m) as i64)];
            let store = |(n, value): (usize, Expr)| y.store([&place(n)[..], i].concat(), value);
            transformed.into_iter().enumerate().map(store).collect()
        });
        y
    }

    /// The result, each element out of its tile.
    fn untiled(&self, b: &mut Builder, outputs: &Operand) -> Operand {
        let counted = &self.counted;
        b.compute("conv", DType::F32, &self.shape, |i| {
            let [image, channel] = [&i[0], &i[1]];
            let (around, last) = i[2..].split_at(self.n_around);
            let among_tiles = |axis: usize| last[axis].clone().floor_div(Expr::int(self.phases[axis]));
            let within = |axis: usize| among_tiles(axis).floor_mod(self.size.clone());
            let place = [within(0), within(1)];
            let phase = |axis: usize| last[axis].clone().floor_mod(Expr::int(self.phases[axis]));
            let of_phases = (0..2).filter(|_| self.is_dilated()).map(phase);
            let tile = |axis: usize| among_tiles(axis).floor_div(self.size.clone());
            let digits: Vec<Expr> = of_phases.chain((0..2).map(tile)).collect();
            let number = match self.n_around {
                _ if self.is_open => [&i[..1], around, &digits].concat(),
                0 => vec![number_of(image.clone(), &digits, counted)],
                _ => [&i[..1], around, &[number_of(digits[0].clone(), &digits[1..], &counted[1..])]].concat(),
            };
            outputs.at([&place[..], &number, slice::from_ref(channel)].concat())
        })
    }
}

fn dilation(attrs: &ConvAttrs, axis: usize) -> i64 {
    attrs.dilations.get(axis).map_or(1, |&dilation| dilation as i64)
}

#[cfg(test)]
mod tests {
    use tilewright_te::{BinaryOp, ExprKind};

    use super::*;

    /// The value of an expression of constants.
    fn value(e: &Expr) -> f64 {
        match e.kind() {
            ExprKind::Binary(BinaryOp::Add, a, b) => value(a) + value(b),
            ExprKind::Binary(BinaryOp::Sub, a, b) => value(a) - value(b),
            ExprKind::Binary(BinaryOp::Mul, a, b) => value(a) * value(b),
            ExprKind::Fma(a, b, c) => value(a).mul_add(value(b), value(c)),
            _ => e.as_float().unwrap_or_else(|| panic!("{e:?} is no constant")),
        }
    }

    #[test]
    fn transforms_compute_the_convolution() {
        for m in [2, 4] {
            let transforms = Transforms::new(m);
            let real = |v: &[f64]| v.iter().map(|&v| Expr::float_of(DType::F64, v)).collect::<Vec<_>>();
            let (g, d) = ([3.0, -1.0, 5.0], [2.0, 7.0, -3.0, 1.0, 4.0, -6.0]);
            let (u, v) = (transforms.weight(&real(&g)), transforms.input(&real(&d[..m + 2])));
            let products: Vec<Expr> = u.into_iter().zip(v).map(|(u, v)| u * v).collect();
            for (i, y) in transforms.output(&products).iter().enumerate() {
                let expected: f64 = (0..3).map(|k| g[k] * d[i + k]).sum();
                assert!((value(y) - expected).abs() < 1e-12, "m {m}, output {i}: {} {expected}", value(y));
            }
        }
    }
}
