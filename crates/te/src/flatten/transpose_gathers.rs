//! Gathers of consecutive columns become loads of rows, which are transposed in registers.
//!
//! As many gathers as each has lanes, at the same indices and at consecutive offsets, read a square of elements, column by column. They become
//! loads of its rows, whose lanes are consecutive elements; a column is the lane of the same number of every row. Code generators for vectors
//! transpose the square with a number of shuffles that grows as its elements times the logarithm of its side. Left alone where tasks have threads.

use rustc_hash::FxHashMap;
use tilewright_dtype::DType;

use crate::flatten::FlattenOptions;
use crate::kernel::{Inst, Kernel, KernelOp, MemRef, Type, Value};

/// Lanes of the widest vectors that read squares: all rows of one are in registers at once.
pub const MAX_SQUARE: u32 = 16;

/// Makes loads of rows of the kernel's gathers of columns, on a target whose tasks are single threads.
pub fn transpose_gathers(kernel: &mut Kernel, options: &FlattenOptions) {
    if options.lanes.is_some() {
        return;
    }
    let body = std::mem::take(&mut kernel.body);
    let mut pass = Transpose { kernel, lanes_of: FxHashMap::default() };
    let body = pass.list(body);
    kernel.body = body;
}

/// Where columns are: the memory, the indices of the lanes, the type of a column.
type Rows = (MemRef, Value, Type);

/// Columns by offset: the position of the gather in its list, and what it defines.
type Columns = std::collections::BTreeMap<i64, (usize, Value)>;

struct Transpose<'a> {
    kernel: &'a mut Kernel,
    /// The operations that define vectors of indices.
    lanes_of: FxHashMap<Value, KernelOp>,
}

impl Transpose<'_> {
    fn list(&mut self, mut insts: Vec<Inst>) -> Vec<Inst> {
        let mut open: FxHashMap<Rows, Columns> = FxHashMap::default();
        let mut squares = Vec::new();
        for (at, inst) in insts.iter_mut().enumerate() {
            match inst {
                Inst::Let { result, op } => self.note(at, *result, op, &mut open, &mut squares),
                // What is gathered behind it may be what it has written.
                Inst::Store { place, .. } | Inst::Scatter { place, .. } => {
                    let place = *place;
                    open.extract_if(|rows, _| rows.0 == place).for_each(|(rows, columns)| {
                        squares.extend(Square::all(rows, &columns));
                    });
                }
                Inst::Prefetch { .. } => {}
                Inst::Loop { body, .. } => {
                    close(&mut open, &mut squares);
                    *body = self.list(std::mem::take(body));
                }
                Inst::If { then_body, else_body, .. } => {
                    close(&mut open, &mut squares);
                    for body in [then_body, else_body] {
                        *body = self.list(std::mem::take(body));
                    }
                }
                Inst::Barrier | Inst::CopyAsync { .. } | Inst::CommitCopies | Inst::WaitCopies { .. } => {
                    close(&mut open, &mut squares);
                }
            }
        }
        close(&mut open, &mut squares);
        if squares.is_empty() { insts } else { self.rewrite(insts, &squares) }
    }

    /// Notes a gather, or an operation that indices may be computed by.
    fn note(
        &mut self,
        at: usize,
        result: Value,
        op: &KernelOp,
        open: &mut FxHashMap<Rows, Columns>,
        squares: &mut Vec<Square>,
    ) {
        let ty = self.kernel.values[result];
        match *op {
            KernelOp::Gather { place, indices, offset, mask: None } => {
                if !ty.lanes.is_power_of_two()
                    || !(2..=MAX_SQUARE).contains(&ty.lanes)
                    || ty.dtype == DType::Bool
                {
                    return;
                }
                let rows = (place, indices, ty);
                let columns = open.entry(rows).or_default();
                if columns.contains_key(&offset) {
                    // The same column once more: something may have been written since.
                    squares.extend(Square::all(rows, columns));
                    columns.clear();
                }
                columns.insert(offset, (at, result));
            }
            _ if ty.dtype == DType::I64 && ty.lanes > 1 => {
                self.lanes_of.insert(result, op.clone());
            }
            _ => {}
        }
    }

    fn rewrite(&mut self, insts: Vec<Inst>, squares: &[Square]) -> Vec<Inst> {
        let first_of: FxHashMap<usize, &Square> =
            squares.iter().map(|square| (square.first(), square)).collect();
        let mut column_of: FxHashMap<Value, (usize, u32)> = FxHashMap::default();
        for square in squares {
            column_of.extend(
                (0..).zip(&square.columns).map(|(lane, &(_, result))| (result, (square.first(), lane))),
            );
        }
        let mut rows_of: FxHashMap<usize, Vec<Value>> = FxHashMap::default();
        let mut out = Vec::with_capacity(insts.len());
        for (at, inst) in insts.into_iter().enumerate() {
            if let Some(square) = first_of.get(&at) {
                let rows = self.rows(square, &mut out);
                rows_of.insert(at, rows);
            }
            match inst {
                Inst::Let { result, .. } if column_of.contains_key(&result) => {
                    let (first, lane) = column_of[&result];
                    self.column(result, &rows_of[&first], lane, &mut out);
                }
                other => out.push(other),
            }
        }
        out
    }

    /// Loads the rows of a square.
    fn rows(&mut self, square: &Square, out: &mut Vec<Inst>) -> Vec<Value> {
        let (place, indices, ty) = square.rows;
        let load = |lane: u32| {
            let index = self.lane(indices, lane, out);
            self.define(ty, KernelOp::Load { place, index, offset: square.offset, mask: None }, out)
        };
        (0..ty.lanes).map(load).collect()
    }

    /// Takes a column from rows.
    fn column(&mut self, result: Value, rows: &[Value], lane: u32, out: &mut Vec<Inst>) {
        let scalar = Type::scalar(self.kernel.values[result].dtype);
        let elements =
            rows.iter().map(|&row| self.define(scalar, KernelOp::Extract(row, lane), out)).collect();
        out.push(Inst::Let { result, op: KernelOp::Concat(elements) });
    }

    /// One lane of a vector of indices, computed as a scalar where the whole vector is computed lane by lane.
    fn lane(&mut self, vector: Value, lane: u32, out: &mut Vec<Inst>) -> Value {
        let ty = Type::scalar(DType::I64);
        let op = match self.lanes_of.get(&vector).cloned() {
            Some(KernelOp::Splat(scalar)) => return scalar,
            Some(KernelOp::Iota) => KernelOp::Int(i64::from(lane)),
            Some(KernelOp::Int(value)) => KernelOp::Int(value),
            Some(KernelOp::Binary(op, a, b)) => {
                KernelOp::Binary(op, self.lane(a, lane, out), self.lane(b, lane, out))
            }
            _ => KernelOp::Extract(vector, lane),
        };
        self.define(ty, op, out)
    }

    fn define(&mut self, ty: Type, op: KernelOp, out: &mut Vec<Inst>) -> Value {
        let result = self.kernel.values.push(ty);
        out.push(Inst::Let { result, op });
        result
    }
}

/// Makes squares of all columns that are open.
fn close(open: &mut FxHashMap<Rows, Columns>, squares: &mut Vec<Square>) {
    for (rows, columns) in open.drain() {
        squares.extend(Square::all(rows, &columns));
    }
}

/// Gathers of as many consecutive columns as a column has lanes.
struct Square {
    rows: Rows,
    /// The offset of the first column.
    offset: i64,
    /// The columns in order.
    columns: Vec<(usize, Value)>,
}

impl Square {
    /// The squares that columns make.
    fn all(rows: Rows, columns: &Columns) -> Vec<Square> {
        let side = rows.2.lanes as usize;
        let columns: Vec<(i64, (usize, Value))> =
            columns.iter().map(|(&offset, &column)| (offset, column)).collect();
        let runs = columns.chunk_by(|a, b| a.0.checked_add(1) == Some(b.0));
        let squares = runs.flat_map(|run| run.chunks_exact(side)).map(|run| Square {
            rows,
            offset: run[0].0,
            columns: run.iter().map(|&(_, column)| column).collect(),
        });
        squares.collect()
    }

    /// The position of the first of the gathers.
    fn first(&self) -> usize {
        self.columns.iter().map(|&(at, _)| at).min().unwrap_or_default()
    }
}
