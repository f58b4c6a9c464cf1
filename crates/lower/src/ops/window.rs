//! Windows over spatial axes: where they start, what padding they need.
//!
//! A window at output position `o` and offset `k` looks at input position `o * stride + k * dilation - before`.
//! Where padding is needed a `pad` block holds the padded input, so that the loops over windows test nothing.

use tilewright_te::Expr;

use super::builder::{Builder, Operand, all, in_range};

/// The geometry of windows along the spatial axes, one entry an axis.
pub(super) struct Windows {
    pub(super) kernel: Vec<Expr>,
    pub(super) strides: Vec<usize>,
    pub(super) dilations: Vec<usize>,
    /// Padding before each axis; negative crops.
    pub(super) before: Vec<i64>,
    /// Padding after each axis; negative crops.
    pub(super) after: Vec<i64>,
}

impl Windows {
    /// From ONNX lists, in which `pads` has the begins, then the ends.
    pub(super) fn new(kernel: Vec<Expr>, strides: &[usize], dilations: &[usize], pads: &[i64]) -> Windows {
        let n = kernel.len();
        let part = |from: usize| (0..n).map(|axis| pads.get(from + axis).copied().unwrap_or(0)).collect();
        Windows {
            kernel,
            strides: strides.to_vec(),
            dilations: dilations.to_vec(),
            before: part(0),
            after: part(n),
        }
    }

    /// Number of spatial axes.
    pub(super) fn rank(&self) -> usize {
        self.kernel.len()
    }

    fn stride(&self, axis: usize) -> i64 {
        self.strides.get(axis).map_or(1, |&stride| stride as i64)
    }

    fn dilation(&self, axis: usize) -> i64 {
        self.dilations.get(axis).map_or(1, |&dilation| dilation as i64)
    }

    /// Position in the unpadded input of window element `k` at output position `o`.
    pub(super) fn position(&self, axis: usize, o: &Expr, k: &Expr) -> Expr {
        self.start(axis, o) + k.clone() * self.dilation(axis)
    }

    /// Position in the unpadded input of the window at output position `o`.
    pub(super) fn start(&self, axis: usize, o: &Expr) -> Expr {
        o.clone() * self.stride(axis) - self.before[axis]
    }

    /// Number of offsets of the window at `o` whose positions lie in `low <= position < high`.
    pub(super) fn count_within(&self, axis: usize, o: &Expr, low: &Expr, high: &Expr) -> Expr {
        let dilation = Expr::int(self.dilation(axis));
        let below = |bound: &Expr| {
            let distance = bound.clone() - self.start(axis, o);
            let offsets = (distance + (self.dilation(axis) - 1)).floor_div(dilation.clone());
            Expr::int(0).max(self.kernel[axis].clone().min(offsets))
        };
        below(high) - below(low)
    }

    /// Extent of padded input that windows at `output` positions look at.
    fn needed(&self, axis: usize, output: &Expr) -> Expr {
        (output.clone() - 1) * self.stride(axis) + (self.kernel[axis].clone() - 1) * self.dilation(axis) + 1
    }

    /// Windows of one element that leave out some: those that they look at as a block of their own, `subsample`, and the windows
    /// over it, which lie side by side. Loops over these may become one, and every line of the copy is used in full. `None`
    /// where nothing is left out.
    pub(super) fn subsample(
        &self,
        b: &mut Builder,
        x: &Operand,
        output: &[Expr],
    ) -> Option<(Operand, Windows)> {
        let n = self.rank();
        let is_single = self.kernel.iter().all(|extent| extent.as_int() == Some(1));
        if !is_single || self.strides.iter().all(|&stride| stride == 1) {
            return None;
        }
        let lead = x.rank() - n;
        let shape = [&x.shape[..lead], output].concat();
        let elements = b.compute("subsample", x.dtype, &shape, |i| {
            let mut indices = i.to_vec();
            for axis in 0..n {
                indices[lead + axis] = self.start(axis, &i[lead + axis]);
            }
            x.at(indices)
        });
        Some((elements, Windows::new(self.kernel.clone(), &[], &[], &[])))
    }

    /// The input to read without bounds tests, and the windows over it: `x` itself where nothing is padded, else
    /// a `pad` block of it. `x` has its spatial axes last; `output` are the output's spatial extents.
    pub(super) fn pad(
        &self,
        b: &mut Builder,
        x: &Operand,
        output: &[Expr],
        ceil_mode: bool,
        fill: Expr,
    ) -> (Operand, Windows) {
        let n = self.rank();
        let lead = x.rank() - n;
        let shift: Vec<i64> = self.before.iter().map(|&pad| pad.max(0)).collect();
        let inner = Windows {
            kernel: self.kernel.clone(),
            strides: self.strides.clone(),
            dilations: self.dilations.clone(),
            before: self.before.iter().map(|&pad| pad.min(0)).collect(),
            after: self.after.iter().map(|&pad| pad.min(0)).collect(),
        };
        // With constant extents a partial last window is known not to occur where it does not.
        let overruns = |axis: usize| {
            let extent = x.shape[lead + axis].clone() + self.before[axis];
            match (self.needed(axis, &output[axis]).as_int(), extent.as_int()) {
                (Some(needed), Some(extent)) => needed > extent,
                _ => ceil_mode || self.after[axis] > 0,
            }
        };
        if shift.iter().all(|&pad| pad == 0) && !(0..n).any(overruns) {
            return (x.clone(), inner);
        }
        let mut shape = x.shape[..lead].to_vec();
        for axis in 0..n {
            let extent = x.shape[lead + axis].clone() + shift[axis];
            shape.push(if overruns(axis) {
                self.needed(axis, &output[axis]) - inner.before[axis]
            } else {
                extent
            });
        }
        let padded = b.compute("pad", fill.dtype(), &shape, |i| {
            let mut indices = i.to_vec();
            let mut inside = Vec::new();
            for axis in 0..n {
                let extent = &x.shape[lead + axis];
                indices[lead + axis] = i[lead + axis].clone() - shift[axis];
                if shift[axis] != 0 || shape[lead + axis] != *extent {
                    inside.push(in_range(&indices[lead + axis], extent));
                }
            }
            Expr::select(all(inside), x.at(indices).cast(fill.dtype()), fill.clone())
        });
        (padded, inner)
    }
}
