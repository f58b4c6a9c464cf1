//! Bounds of integers: what index arithmetic can come to (interval analysis; Moore, "Interval Analysis", 1966).

use cranelift_entity::SecondaryMap;
use tilewright_dtype::DType;

use super::{Inst, Kernel, KernelOp, Type, Value};
use crate::expr::BinaryOp;

/// What an integer is between, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The least that it can be.
    pub least: i64,
    /// The greatest.
    pub greatest: i64,
}

impl Range {
    /// All numbers of an integer type; nothing where they are not all numbers of `i64`, or it is none.
    pub fn of_type(dtype: DType) -> Option<Range> {
        if !dtype.is_integer() || dtype == DType::U64 {
            return None;
        }
        let bits = dtype.bits() as u32;
        Some(match dtype.is_signed() {
            true => Range { least: i64::MIN >> (64 - bits), greatest: i64::MAX >> (64 - bits) },
            false => Range { least: 0, greatest: (1 << bits) - 1 },
        })
    }

    /// Whether it is inside of the other.
    pub fn is_within(self, other: Range) -> bool {
        self.least >= other.least && self.greatest <= other.greatest
    }

    fn hull(self, other: Range) -> Range {
        Range { least: self.least.min(other.least), greatest: self.greatest.max(other.greatest) }
    }

    /// What an operation that is monotonic in each operand gives at the ends of both.
    fn at_ends(a: Range, b: Range, op: impl Fn(i64, i64) -> Option<i64>) -> Option<Range> {
        let mut found: Option<Range> = None;
        for x in [a.least, a.greatest] {
            for y in [b.least, b.greatest] {
                let value = op(x, y)?;
                let value = Range { least: value, greatest: value };
                found = Some(found.map_or(value, |range| range.hull(value)));
            }
        }
        found
    }
}

impl Kernel {
    /// Bounds of each scalar integer, where they are known and the operation that gives it does not wrap. Symbolic extents and what is
    /// loaded have those of their types at most.
    pub fn ranges(&self) -> SecondaryMap<Value, Option<Range>> {
        let mut analysis = Analysis { kernel: self, known: SecondaryMap::new() };
        let tasks = self.grid.rounds.as_int().zip(self.grid.per_round.as_int());
        let tasks = tasks.and_then(|(rounds, per_round)| rounds.checked_mul(per_round));
        analysis.known[self.task] = below(tasks);
        analysis.list(&self.body);
        analysis.known
    }
}

/// What counts from 0 to below the number.
fn below(end: Option<i64>) -> Option<Range> {
    end.filter(|&end| end > 0).map(|end| Range { least: 0, greatest: end - 1 })
}

struct Analysis<'a> {
    kernel: &'a Kernel,
    known: SecondaryMap<Value, Option<Range>>,
}

impl Analysis<'_> {
    fn list(&mut self, insts: &[Inst]) {
        for inst in insts {
            match inst {
                Inst::Let { result, op } => {
                    let ty = self.kernel.values[*result];
                    self.known[*result] = self.op(ty, op).filter(|range| {
                        Range::of_type(ty.dtype).is_some_and(|all| ty.lanes == 1 && range.is_within(all))
                    });
                }
                // What a loop carries is not followed.
                Inst::Loop { var, begin, end, body, .. } => {
                    let bounds = self.known[*begin].zip(self.known[*end]);
                    let counted = bounds.filter(|(begin, end)| begin.least < end.greatest);
                    self.known[*var] =
                        counted.map(|(begin, end)| Range { least: begin.least, greatest: end.greatest - 1 });
                    self.list(body);
                }
                Inst::If { then_body, else_body, joins, .. } => {
                    self.list(then_body);
                    self.list(else_body);
                    for join in joins {
                        let sides = self.known[join.then_value].zip(self.known[join.else_value]);
                        self.known[join.result] = sides.map(|(a, b)| a.hull(b));
                    }
                }
                Inst::Store { .. }
                | Inst::Scatter { .. }
                | Inst::Prefetch { .. }
                | Inst::Barrier
                | Inst::CopyAsync { .. }
                | Inst::CommitCopies
                | Inst::WaitCopies { .. } => {}
            }
        }
    }

    fn op(&self, ty: Type, op: &KernelOp) -> Option<Range> {
        let both = |a: Value, b: Value| self.known[a].zip(self.known[b]);
        match *op {
            KernelOp::Int(value) => Some(Range { least: value, greatest: value }),
            KernelOp::Warp => below(Some(i64::from(self.kernel.threads.warps))),
            KernelOp::Lane => below(Some(i64::from(self.kernel.threads.lanes))),
            KernelOp::Cast(a) | KernelOp::Bitcast(a) => self.known[a],
            KernelOp::Binary(op, a, b) => both(a, b).and_then(|(a, b)| binary(op, a, b)),
            KernelOp::Select(_, a, b) => both(a, b).map(|(a, b)| a.hull(b)),
            KernelOp::Load { .. } | KernelOp::Size(_) => Range::of_type(ty.dtype),
            KernelOp::Float(_)
            | KernelOp::Shuffle { .. }
            | KernelOp::Iota
            | KernelOp::Splat(_)
            | KernelOp::Extract(..)
            | KernelOp::Concat(_)
            | KernelOp::Slice(..)
            | KernelOp::Unary(..)
            | KernelOp::Compare(..)
            | KernelOp::Fma(..)
            | KernelOp::Gather { .. } => None,
        }
    }
}

fn binary(op: BinaryOp, a: Range, b: Range) -> Option<Range> {
    let (is_natural, is_divided) = (a.least >= 0, b.least > 0);
    match op {
        BinaryOp::Add => Range::at_ends(a, b, i64::checked_add),
        BinaryOp::Sub => Range::at_ends(a, b, i64::checked_sub),
        BinaryOp::Mul => Range::at_ends(a, b, i64::checked_mul),
        BinaryOp::Min => Range::at_ends(a, b, |x, y| Some(x.min(y))),
        BinaryOp::Max => Range::at_ends(a, b, |x, y| Some(x.max(y))),
        BinaryOp::FloorDiv if is_divided => Range::at_ends(a, b, |x, y| Some(x.div_euclid(y))),
        BinaryOp::Div if is_divided => Range::at_ends(a, b, |x, y| Some(x / y)),
        BinaryOp::FloorMod | BinaryOp::Rem if is_divided && is_natural => {
            Some(Range { least: 0, greatest: a.greatest.min(b.greatest - 1) })
        }
        BinaryOp::FloorMod if is_divided => Some(Range { least: 0, greatest: b.greatest - 1 }),
        BinaryOp::And if is_natural && b.least >= 0 => {
            Some(Range { least: 0, greatest: a.greatest.min(b.greatest) })
        }
        BinaryOp::Shr if b.least >= 0 && b.greatest < 64 => Range::at_ends(a, b, |x, y| Some(x >> y)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_follow_arithmetic() {
        let kernel: Kernel =
            "kernel k(x: write i64 align 8, y: read i8 align 8) tasks 6 threads 4 x 32 task %0 {
  %1: i64 = 0
  %2: i64 = 24
  %3: i64 = lane
  %4: i64 = mul %3, %2
  %5: i64 = sub %0, %2
  %6: i64 = floordiv %5, %2
  %7: i64 = floormod %5, %2
  %8: i64 = floormod %0, %2
  %9: i64 = 9223372036854775807
  %10: i64 = add %9, %0
  %11: i8 = y[%1]
  %12: i64 = cast %11
  %13: i64 = mul %12, %5
  for %14 in %1..%2 {
    x[%14] = %14
  }
}
"
            .parse()
            .expect("a kernel");
        let known = kernel.ranges();
        let bounds: Vec<Option<(i64, i64)>> =
            (0..15).map(|n| known[Value::from_u32(n)].map(|range| (range.least, range.greatest))).collect();
        let most = i64::MAX;
        assert_eq!(
            bounds,
            [
                Some((0, 5)),
                Some((0, 0)),
                Some((24, 24)),
                Some((0, 31)),
                Some((0, 744)),
                Some((-24, -19)),
                Some((-1, -1)),
                Some((0, 23)),
                Some((0, 5)),
                Some((most, most)),
                None,
                Some((-128, 127)),
                Some((-128, 127)),
                Some((-3048, 3072)),
                Some((0, 23)),
            ]
        );
    }
}
