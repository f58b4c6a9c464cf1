//! Printing of kernels.

use std::fmt::{self, Display, Formatter};

use super::print::{Names, write_expr};
use crate::expr::{Buffer, Var};
use crate::kernel::{Inst, Kernel, Op, Place, Value};

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}(", self.name)?;
        for (i, buffer) in self.buffers.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{}: {:?} {}", buffer.name, buffer.access, buffer.dtype)?;
        }
        write!(f, ") tasks ")?;
        if self.grid.rounds.as_int() != Some(1) {
            write_expr(f, &self.grid.rounds, &SizeNames(self))?;
            write!(f, " rounds of ")?;
        }
        write_expr(f, &self.grid.per_round, &SizeNames(self))?;
        writeln!(f, " task {} {{", self.task)?;
        for local in &self.locals {
            writeln!(f, "  local {}: {}[{}]", local.name, local.dtype, local.len)?;
        }
        write_insts(f, self, &self.body, 1)?;
        writeln!(f, "}}")
    }
}

struct SizeNames<'a>(&'a Kernel);

impl Names for SizeNames<'_> {
    fn var(&self, f: &mut dyn fmt::Write, var: Var) -> fmt::Result {
        match self.0.sizes.iter().find(|s| s.var == var) {
            Some(size) => f.write_str(&size.name),
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

struct At<'a>(&'a Kernel, Place, Value, i64);

impl Display for At<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let At(kernel, place, index, offset) = self;
        let name = match place {
            Place::Param(i) => &kernel.buffers[*i as usize].name,
            Place::Local(i) => &kernel.locals[*i as usize].name,
        };
        match offset {
            0 => write!(f, "{name}[{index}]"),
            _ => write!(f, "{name}[{index} + {offset}]"),
        }
    }
}

fn write_mask(f: &mut Formatter<'_>, mask: Option<Value>) -> fmt::Result {
    match mask {
        Some(mask) => write!(f, " where {mask}"),
        None => Ok(()),
    }
}

fn write_op(f: &mut Formatter<'_>, kernel: &Kernel, op: &Op) -> fmt::Result {
    match op {
        Op::Int(value) => write!(f, "{value}"),
        Op::Float(bits) => write!(f, "{:?}", f64::from_bits(*bits)),
        Op::Size(i) => write!(f, "size {}", kernel.sizes[*i as usize].name),
        Op::Iota => f.write_str("iota"),
        Op::Splat(a) => write!(f, "splat {a}"),
        Op::Extract(a, lane) => write!(f, "extract {a}, {lane}"),
        Op::Slice(a, lane) => write!(f, "slice {a}, {lane}"),
        Op::Concat(parts) => {
            f.write_str("concat")?;
            parts.iter().try_for_each(|p| write!(f, " {p}"))
        }
        Op::Unary(op, a) => write!(f, "{} {a}", op.name()),
        Op::Binary(op, a, b) => write!(f, "{} {a}, {b}", op.name()),
        Op::Compare(op, a, b) => write!(f, "{a} {} {b}", op.symbol()),
        Op::Select(a, b, c) => write!(f, "select {a}, {b}, {c}"),
        Op::Cast(a) => write!(f, "cast {a}"),
        Op::Bitcast(a) => write!(f, "bitcast {a}"),
        Op::Fma(a, b, c) => write!(f, "fma {a}, {b}, {c}"),
        Op::Load { place, index, offset, mask } => {
            write!(f, "{}", At(kernel, *place, *index, *offset))?;
            write_mask(f, *mask)
        }
        Op::Gather { place, indices, offset, mask } => {
            write!(f, "gather {}", At(kernel, *place, *indices, *offset))?;
            write_mask(f, *mask)
        }
    }
}
