//! Printing of kernels.
//!
//! ```text
//! kernel scale(x: read f32 align 64, y: write f32 align 64, n: size) tasks n task %0 {
//!   local t: f32[16]
//!   %1: f32x8 = x[%0 + 4] where %9
//!   %2: f32x8 = mul %1, %1
//!   y[%0] = %2
//!   for %3 in %4..%5 [%6 = %2 then %7 gives %8] {
//!     ..
//!   }
//!   if %9 [%2 or %8 gives %10] {
//!     ..
//!   } else {
//!     ..
//!   }
//! }
//! ```
//!
//! Sizes follow the buffers. Where a task has several threads it is `tasks n threads WARPS x LANES task %0`; arrays that they share
//! are `shared t: f32[16]`, after the local ones. `copy_async t[%1] = x[%2], 4 where %3` copies 4 elements. Where tasks run in rounds it is `tasks ROUNDS rounds of TASKS`, or `rounds in order of`. A value has its type where an
//! operation defines it; counters and tasks are `i64`, carried and joined values have the type of what they start from. NaN is
//! written with its bits as an `f64`: `nan(9221120237041090560)`. Names that are no identifiers are quoted as in Rust.

use std::fmt::{self, Display, Formatter};

use super::func::Name;
use super::print::{Names, write_expr};
use crate::expr::{Buffer, Var};
use crate::kernel::{
    Access, Inst, Kernel, KernelBuffer, KernelLocal, KernelOp, KernelSize, MemRef, Threads, Value,
};

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}(", Name(&self.name))?;
        let mut separator = "";
        for KernelBuffer { name, dtype, access, align } in &self.buffers {
            write!(f, "{separator}{}: {} {dtype} align {align}", Name(name), access_name(*access))?;
            separator = ", ";
        }
        for KernelSize { var: _, name } in &self.sizes {
            write!(f, "{separator}{}: size", Name(name))?;
            separator = ", ";
        }
        write!(f, ") tasks ")?;
        if self.grid.in_order || self.grid.rounds.as_int() != Some(1) {
            write_expr(f, &self.grid.rounds, &SizeNames(self))?;
            write!(f, " rounds {}of ", if self.grid.in_order { "in order " } else { "" })?;
        }
        write_expr(f, &self.grid.per_round, &SizeNames(self))?;
        if self.threads != Threads::ONE {
            write!(f, " threads {} x {}", self.threads.warps, self.threads.lanes)?;
        }
        writeln!(f, " task {} {{", self.task)?;
        for KernelLocal { name, dtype, len } in &self.locals {
            writeln!(f, "  local {}: {dtype}[{len}]", Name(name))?;
        }
        for KernelLocal { name, dtype, len } in &self.shared {
            writeln!(f, "  shared {}: {dtype}[{len}]", Name(name))?;
        }
        write_insts(f, self, &self.body, 1)?;
        writeln!(f, "}}")
    }
}

/// What a kernel does to a buffer, in text.
pub(super) const fn access_name(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::ReadWrite => "read_write",
    }
}

struct SizeNames<'a>(&'a Kernel);

impl Names for SizeNames<'_> {
    fn var(&self, f: &mut dyn fmt::Write, var: Var) -> fmt::Result {
        match self.0.sizes.iter().find(|s| s.var == var) {
            Some(size) => write!(f, "{}", Name(&size.name)),
            None => write!(f, "{var}"),
        }
    }

    fn buffer(&self, f: &mut dyn fmt::Write, buffer: Buffer) -> fmt::Result {
        write!(f, "{buffer}")
    }
}

fn write_insts(f: &mut Formatter<'_>, kernel: &Kernel, insts: &[Inst], depth: usize) -> fmt::Result {
    for inst in insts {
        write!(f, "{:1$}", "", depth * 2)?;
        match inst {
            Inst::Let { result, op } => {
                write!(f, "{result}: {} = ", kernel.values[*result])?;
                write_op(f, kernel, op)?;
                writeln!(f)?;
            }
            Inst::Store { place, index, offset, value, mask } => {
                write!(f, "{} = {value}", At(kernel, *place, *index, *offset))?;
                write_mask(f, *mask)?;
                writeln!(f)?;
            }
            Inst::Scatter { place, indices, offset, value, mask } => {
                write!(f, "{} = scatter {value}", At(kernel, *place, *indices, *offset))?;
                write_mask(f, *mask)?;
                writeln!(f)?;
            }
            Inst::Prefetch { place, index, offset } => {
                writeln!(f, "prefetch {}", At(kernel, *place, *index, *offset))?;
            }
            Inst::Barrier => writeln!(f, "barrier")?,
            Inst::CopyAsync { to, to_index, to_offset, from, index, offset, elements, mask } => {
                let (to, from) = (At(kernel, *to, *to_index, *to_offset), At(kernel, *from, *index, *offset));
                write!(f, "copy_async {to} = {from}, {elements}")?;
                write_mask(f, *mask)?;
                writeln!(f)?;
            }
            Inst::CommitCopies => writeln!(f, "commit_copies")?,
            Inst::WaitCopies { pending } => writeln!(f, "wait_copies {pending}")?,
            Inst::Loop { var, begin, end, carried, body } => {
                write!(f, "for {var} in {begin}..{end}")?;
                for c in carried {
                    write!(f, " [{} = {} then {} gives {}]", c.param, c.init, c.next, c.result)?;
                }
                writeln!(f, " {{")?;
                write_insts(f, kernel, body, depth + 1)?;
                writeln!(f, "{:1$}}}", "", depth * 2)?;
            }
            Inst::If { condition, then_body, else_body, joins } => {
                write!(f, "if {condition}")?;
                for j in joins {
                    write!(f, " [{} or {} gives {}]", j.then_value, j.else_value, j.result)?;
                }
                writeln!(f, " {{")?;
                write_insts(f, kernel, then_body, depth + 1)?;
                if !else_body.is_empty() {
                    writeln!(f, "{:1$}}} else {{", "", depth * 2)?;
                    write_insts(f, kernel, else_body, depth + 1)?;
                }
                writeln!(f, "{:1$}}}", "", depth * 2)?;
            }
        }
    }
    Ok(())
}

struct At<'a>(&'a Kernel, MemRef, Value, i64);

impl Display for At<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let At(kernel, place, index, offset) = self;
        let name = match place {
            MemRef::Param(i) => &kernel.buffers[*i as usize].name,
            MemRef::Local(i) => &kernel.locals[*i as usize].name,
            MemRef::Shared(i) => &kernel.shared[*i as usize].name,
        };
        match offset {
            0 => write!(f, "{}[{index}]", Name(name)),
            _ => write!(f, "{}[{index} + {offset}]", Name(name)),
        }
    }
}

fn write_mask(f: &mut Formatter<'_>, mask: Option<Value>) -> fmt::Result {
    match mask {
        Some(mask) => write!(f, " where {mask}"),
        None => Ok(()),
    }
}

fn write_op(f: &mut Formatter<'_>, kernel: &Kernel, op: &KernelOp) -> fmt::Result {
    match op {
        KernelOp::Int(value) => write!(f, "{value}"),
        KernelOp::Float(bits) => match f64::from_bits(*bits) {
            value if value.is_nan() => write!(f, "nan({bits})"),
            value => write!(f, "{value:?}"),
        },
        KernelOp::Size(i) => write!(f, "size {}", Name(&kernel.sizes[*i as usize].name)),
        KernelOp::Warp => f.write_str("warp"),
        KernelOp::Lane => f.write_str("lane"),
        KernelOp::Shuffle { value, from } => write!(f, "shuffle {value}, {from}"),
        KernelOp::Iota => f.write_str("iota"),
        KernelOp::Splat(a) => write!(f, "splat {a}"),
        KernelOp::Extract(a, lane) => write!(f, "extract {a}, {lane}"),
        KernelOp::Slice(a, lane) => write!(f, "slice {a}, {lane}"),
        KernelOp::Concat(parts) => {
            f.write_str("concat")?;
            parts.iter().try_for_each(|p| write!(f, " {p}"))
        }
        KernelOp::Unary(op, a) => write!(f, "{} {a}", op.name()),
        KernelOp::Binary(op, a, b) => write!(f, "{} {a}, {b}", op.name()),
        KernelOp::Compare(op, a, b) => write!(f, "{a} {} {b}", op.symbol()),
        KernelOp::Select(a, b, c) => write!(f, "select {a}, {b}, {c}"),
        KernelOp::Cast(a) => write!(f, "cast {a}"),
        KernelOp::Bitcast(a) => write!(f, "bitcast {a}"),
        KernelOp::Fma(a, b, c) => write!(f, "fma {a}, {b}, {c}"),
        KernelOp::Load { place, index, offset, mask } => {
            write!(f, "{}", At(kernel, *place, *index, *offset))?;
            write_mask(f, *mask)
        }
        KernelOp::Gather { place, indices, offset, mask } => {
            write!(f, "gather {}", At(kernel, *place, *indices, *offset))?;
            write_mask(f, *mask)
        }
    }
}
