//! Kernels that are built by hand because something about their code is asserted or measured.

use tilewright_dtype::DType;
use tilewright_te::kernel::{Access, Kernel, KernelOp, Type, Value};

use crate::build::KernelBuilder;

/// A blocked 3x3 or 1x1 convolution, as a schedule would make it, with `l` lanes and `v` vectors.
///
/// Layouts: input `[C/16][H + r - 1][W + r - 1][16]` with the padding in place, weights
/// `[K/vl][C/16][r][r][16c][v][l]`, output `[K/l][H][W][l]`. A task computes one row of `vl` output channels,
/// `tile` columns at a time; accumulators stay in registers over the reduction.
#[derive(Clone, Copy, Debug)]
pub struct Convolution {
    /// Input channels, a multiple of 16.
    pub c: i64,
    /// Output channels, a multiple of `lanes * vectors`.
    pub k: i64,
    /// Height of the output.
    pub h: i64,
    /// Width of the output, a multiple of `tile`.
    pub w: i64,
    /// Height and width of the filter.
    pub r: i64,
    /// Output columns held in registers at a time.
    pub tile: i64,
    /// Vectors of output channels held in registers at a time.
    pub vectors: i64,
    /// Lanes of a vector.
    pub lanes: u32,
}

impl Convolution {
    /// Elements of the input, the weights and the output.
    pub fn elements(&self) -> [usize; 3] {
        let Convolution { c, k, h, w, r, .. } = *self;
        [c * (h + r - 1) * (w + r - 1), c * k * r * r, k * h * w].map(|n| n as usize)
    }

    /// Number of tasks: a row of output for a block of channels each.
    pub fn tasks(&self) -> i64 {
        self.k / (self.vectors * i64::from(self.lanes)) * self.h
    }

    /// Multiplications and additions.
    pub fn flops(&self) -> f64 {
        2.0 * (self.c * self.k * self.h * self.w * self.r * self.r) as f64
    }

    /// The kernel; its buffers are input, weights, output.
    pub fn kernel(&self) -> Kernel {
        let Convolution { c, h, w, r, tile, vectors, lanes, .. } = *self;
        let (width, block_k) = (i64::from(lanes), vectors * i64::from(lanes));
        let (input_row, input_plane) = ((w + r - 1) * 16, (h + r - 1) * (w + r - 1) * 16);
        let mut b = KernelBuilder::new("convolution");
        let input = b.buffer("input", DType::F32, Access::Read);
        let weights = b.buffer("weights", DType::F32, Access::Read);
        let output = b.buffer("output", DType::F32, Access::Write);
        let vector = Type::vector(DType::F32, lanes);
        let scalar = Type::scalar(DType::F32);
        let (zero, task) = (b.index(0), b.task());
        let rows = b.index(h);
        let block = b.binary(tilewright_te::BinaryOp::FloorDiv, task, rows);
        let row = b.binary(tilewright_te::BinaryOp::FloorMod, task, rows);
        let block_weights = b.scaled(block, c * r * r * block_k);
        let block_output = b.scaled(block, h * w * block_k);
        let row_output = b.scaled(row, w * width);
        let out = b.add(block_output, row_output);
        let row_input = b.scaled(row, input_row);
        let columns = b.index(w / tile);
        b.loop_(zero, columns, &[], |b, column, _| {
            let (from, to) = (b.scaled(column, tile * 16), b.scaled(column, tile * width));
            let at_input = b.add(row_input, from);
            let start = b.let_(vector, KernelOp::Float(0));
            let channels = b.index(c / 16);
            let rs = b.index(r);
            let sixteen = b.index(16);
            let starts = vec![start; (vectors * tile) as usize];
            let sums = b.loop_(zero, channels, &starts, |b, channel, sums| {
                let plane = b.scaled(channel, input_plane);
                let from = b.add(at_input, plane);
                let plane_weights = b.scaled(channel, r * r * 16 * block_k);
                let weight = b.add(block_weights, plane_weights);
                b.loop_(zero, rs, sums, |b, y, sums| {
                    let shift = b.scaled(y, input_row);
                    let from = b.add(from, shift);
                    let shift = b.scaled(y, r * 16 * block_k);
                    let weight = b.add(weight, shift);
                    b.loop_(zero, rs, sums, |b, x, sums| {
                        let shift = b.scaled(x, 16);
                        let from = b.add(from, shift);
                        let shift = b.scaled(x, 16 * block_k);
                        let weight = b.add(weight, shift);
                        b.loop_(zero, sixteen, sums, |b, lane, sums| {
                            let from = b.add(from, lane);
                            let shift = b.scaled(lane, block_k);
                            let weight = b.add(weight, shift);
                            let of: Vec<Value> =
                                (0..vectors).map(|v| b.load(vector, weights, weight, v * width)).collect();
                            let mut next: Vec<Value> = Vec::new();
                            for column in 0..tile {
                                let x = b.load(scalar, input, from, column * 16);
                                let x = b.splat(x, lanes);
                                for (v, of) in of.iter().enumerate() {
                                    let sum = sums[(vectors * column) as usize + v];
                                    next.push(b.let_(vector, KernelOp::Fma(x, *of, sum)));
                                }
                            }
                            next
                        })
                    })
                })
            });
            let to = b.add(out, to);
            for (i, sum) in sums.into_iter().enumerate() {
                let (column, v) = (i as i64 / vectors, i as i64 % vectors);
                b.store(output, to, (column + v * h * w) * width, sum);
            }
            Vec::new()
        });
        b.finish()
    }
}

/// Nothing but independent multiply-adds in registers: the processor's ceiling. Its buffer is 3 vectors.
pub fn ceiling(lanes: u32, accumulators: usize, iterations: i64) -> Kernel {
    let mut b = KernelBuilder::new("ceiling");
    let data = b.buffer("data", DType::F32, Access::ReadWrite);
    let vector = Type::vector(DType::F32, lanes);
    let (zero, end) = (b.index(0), b.index(iterations));
    let x = b.load(vector, data, zero, 0);
    let y = b.load(vector, data, zero, i64::from(lanes));
    let starts = vec![x; accumulators];
    let sums = b.loop_(zero, end, &starts, |b, _, sums| {
        sums.iter().map(|sum| b.let_(vector, KernelOp::Fma(*sum, x, y))).collect()
    });
    let total = sums.into_iter().reduce(|a, sum| b.add(a, sum)).expect("there are accumulators");
    b.store(data, zero, 2 * i64::from(lanes), total);
    b.finish()
}
