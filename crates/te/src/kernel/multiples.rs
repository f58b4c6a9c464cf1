//! Powers of two that indices are multiples of: what is known of the alignment of accesses.

use cranelift_entity::SecondaryMap;

use super::{Inst, Kernel, KernelOp, Value};
use crate::expr::BinaryOp;

/// Of zero, which is a multiple of all of them.
const MOST: u32 = 62;

impl Kernel {
    /// For each integer value, the exponent of a power of two that it is a multiple of in every lane.
    pub fn multiples(&self) -> SecondaryMap<Value, u32> {
        let mut known = SecondaryMap::new();
        list(&self.body, &mut known);
        known
    }
}

fn list(insts: &[Inst], known: &mut SecondaryMap<Value, u32>) {
    for inst in insts {
        match inst {
            Inst::Let { result, op } => known[*result] = exponent(op, known),
            // Counters go by one, and what a loop carries is not followed.
            Inst::Loop { body, .. } => list(body, known),
            Inst::If { then_body, else_body, joins, .. } => {
                list(then_body, known);
                list(else_body, known);
                for join in joins {
                    known[join.result] = known[join.then_value].min(known[join.else_value]);
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

fn exponent(op: &KernelOp, known: &SecondaryMap<Value, u32>) -> u32 {
    let least = |a: Value, b: Value| known[a].min(known[b]);
    match *op {
        KernelOp::Int(0) => MOST,
        KernelOp::Int(value) => value.trailing_zeros().min(MOST),
        KernelOp::Splat(a)
        | KernelOp::Extract(a, _)
        | KernelOp::Slice(a, _)
        | KernelOp::Cast(a)
        | KernelOp::Bitcast(a) => known[a],
        KernelOp::Shuffle { value, .. } => known[value],
        KernelOp::Binary(op, a, b) => match op {
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max => least(a, b),
            BinaryOp::Mul => (known[a] + known[b]).min(MOST),
            // The remainder of a multiple by a multiple is one.
            BinaryOp::FloorMod | BinaryOp::Rem => least(a, b),
            BinaryOp::And => known[a].max(known[b]),
            _ => 0,
        },
        KernelOp::Select(_, a, b) => least(a, b),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_follow_arithmetic() {
        let kernel: Kernel = "kernel k(x: write i64 align 8) tasks 1 threads 1 x 32 task %0 {
  %1: i64 = 0
  %2: i64 = 24
  %3: i64 = lane
  %4: i64 = mul %3, %2
  %5: i64 = add %4, %2
  %6: i64 = sub %5, %3
  %7: i64 = 64
  %8: i64 = floormod %4, %7
  %9: i64 = floordiv %4, %7
  %10: i64 = mul %4, %5
  %11: i64 = add %1, %7
  for %12 in %1..%7 {
    %13: i64 = mul %12, %7
    x[%13] = %12
  }
}
"
        .parse()
        .expect("a kernel");
        let known = kernel.multiples();
        let exponents: Vec<u32> = (0..14).map(|n| known[Value::from_u32(n)]).collect();
        assert_eq!(exponents, [0, MOST, 3, 0, 3, 3, 0, 6, 3, 0, 6, 6, 0, 6]);
    }
}
