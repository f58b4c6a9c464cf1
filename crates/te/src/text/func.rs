//! Printing of functions.
//!
//! ```text
//! func matmul(n: size 1..=64, A: f32[n, 8], B: f32[8, 4]) -> (C: f32[n, 4]) {
//!   for i in 0..n parallel {
//!     for k in 0..8 {
//!       block C(vi: spatial n = i, vk: reduce 8 = k) {
//!         init C[vi] = f32(0.0)
//!         C[vi] = (C[vi] + A[vi, vk])
//!       }
//!     }
//!   }
//! }
//! ```
//!
//! Temporaries follow the opening brace as `buffer T: f32[n] global`; a block's predicate is `where (..)`
//! after its variables. A loop's prefetches stand behind its kind, as `prefetch A[element]` with one row-major
//! position, and `where (..)` behind it; the stages of a pipelined one, as `pipeline 4`, behind them. Names that are no
//! identifiers are quoted as in Rust. Variables that nothing binds and
//! buffers that are no parameters and nowhere accessed are left out.

use std::fmt::{self, Display, Formatter, Write};

use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::{Block, Func, IterKind, LoopKind, Prefetch, Scope, Stmt, Store, ThreadLevel, VarKind};
use crate::text::print::{Names, write_expr};

/// Names from a function.
pub struct FuncNames<'a>(pub &'a Func);

impl Names for FuncNames<'_> {
    fn var(&self, f: &mut dyn Write, var: Var) -> fmt::Result {
        write_name(f, self.0.vars.get(var).map_or("?", |v| &v.name))
    }

    fn buffer(&self, f: &mut dyn Write, buffer: Buffer) -> fmt::Result {
        write_name(f, self.0.buffers.get(buffer).map_or("?", |b| &b.name))
    }
}

/// Whether a name can stand unquoted.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !matches!(name, "true" | "false" | "init" | "for" | "block" | "buffer")
}

fn write_name(f: &mut dyn Write, name: &str) -> fmt::Result {
    if is_identifier(name) { f.write_str(name) } else { write!(f, "{name:?}") }
}

/// An expression with the names of a function.
pub(crate) struct Named<'a>(pub(crate) &'a Func, pub(crate) &'a Expr);

impl Display for Named<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_expr(f, self.1, &FuncNames(self.0))
    }
}

/// A name, quoted if needed.
pub(crate) struct Name<'a>(pub(crate) &'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_name(f, self.0)
    }
}

/// Expressions with commas between.
pub(crate) struct List<'a>(pub(crate) &'a Func, pub(crate) &'a [Expr]);

impl Display for List<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (n, e) in self.1.iter().enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            write!(f, "{comma}{}", Named(self.0, e))?;
        }
        Ok(())
    }
}

impl Display for Func {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "func {}(", Name(&self.name))?;
        let mut comma = "";
        for &size in &self.sizes {
            write!(f, "{comma}{}: size ", Name(&self.vars[size].name))?;
            match self.vars[size].kind {
                VarKind::Size { min, max: i64::MAX, .. } => write!(f, "{min}..")?,
                VarKind::Size { min, max, .. } => write!(f, "{min}..={max}")?,
                VarKind::Loop | VarKind::Iter => f.write_str("?")?,
            }
            if let Some(typical) = self.typical(size) {
                write!(f, " about {typical}")?;
            }
            comma = ", ";
        }
        for &input in &self.params[..self.n_inputs] {
            write!(f, "{comma}{}", Declared(self, input))?;
            comma = ", ";
        }
        f.write_str(") -> (")?;
        comma = "";
        for &output in &self.params[self.n_inputs..] {
            write!(f, "{comma}{}", Declared(self, output))?;
            comma = ", ";
        }
        f.write_str(") {\n")?;
        let used = used_buffers(self);
        for (buffer, data) in &self.buffers {
            if !self.params.contains(&buffer) && used.contains(&buffer) {
                write!(f, "  buffer {} {}", Declared(self, buffer), scope_name(data.scope))?;
                if let Some(align) = data.row_align {
                    write!(f, " rows {align}")?;
                }
                f.write_str("\n")?;
            }
        }
        write_stmts(f, self, &self.body, 1)?;
        f.write_str("}\n")
    }
}

/// A buffer with its type: `A: f32[n, 8]`.
struct Declared<'a>(&'a Func, Buffer);

impl Display for Declared<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let data = &self.0.buffers[self.1];
        write!(f, "{}: {}[{}]", Name(&data.name), data.dtype, List(self.0, &data.shape))
    }
}

fn used_buffers(func: &Func) -> Vec<Buffer> {
    let mut used = Vec::new();
    for block in func.blocks() {
        block.init.iter().chain(&block.body).for_each(|s| used.push(s.buffer));
        block.for_each_node(|x| {
            if let ExprKind::Load(b, _) = x.kind() {
                used.push(*b);
            }
        });
    }
    used
}

/// The scope in text.
pub(crate) fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Global => "global",
        Scope::Shared => "shared",
        Scope::Stack => "stack",
        Scope::Register => "register",
    }
}

/// The loop kind in text, with a space before, nothing for a serial loop.
fn kind_suffix(kind: LoopKind) -> &'static str {
    match kind {
        LoopKind::Serial => "",
        LoopKind::Parallel => " parallel",
        LoopKind::Vectorized => " vectorized",
        LoopKind::Unrolled => " unrolled",
        LoopKind::Thread(ThreadLevel::Warp) => " warp",
        LoopKind::Thread(ThreadLevel::Lane) => " lane",
    }
}

/// Every loop kind but serial, by its word in text.
pub(crate) const LOOP_KINDS: [(&str, LoopKind); 5] = [
    ("parallel", LoopKind::Parallel),
    ("vectorized", LoopKind::Vectorized),
    ("unrolled", LoopKind::Unrolled),
    ("warp", LoopKind::Thread(ThreadLevel::Warp)),
    ("lane", LoopKind::Thread(ThreadLevel::Lane)),
];

fn write_stmts(f: &mut Formatter<'_>, func: &Func, stmts: &[Stmt], depth: usize) -> fmt::Result {
    let indent = "  ".repeat(depth);
    for stmt in stmts {
        match stmt {
            Stmt::Loop(l) => {
                let (name, extent) = (Name(&func.vars[l.var].name), Named(func, &l.extent));
                write!(f, "{indent}for {name} in 0..{extent}{}", kind_suffix(l.kind))?;
                for Prefetch { buffer, element, condition } in &l.prefetches {
                    let buffer = Name(&func.buffers[*buffer].name);
                    write!(f, " prefetch {buffer}[{}]", Named(func, element))?;
                    if let Some(condition) = condition {
                        write!(f, " where {}", Named(func, condition))?;
                    }
                }
                if l.stages > 1 {
                    write!(f, " pipeline {}", l.stages)?;
                }
                f.write_str(" {\n")?;
                write_stmts(f, func, &l.body, depth + 1)?;
                writeln!(f, "{indent}}}")?;
            }
            Stmt::Block(block) => write_block(f, func, block, &indent)?,
        }
    }
    Ok(())
}

fn write_block(f: &mut Formatter<'_>, func: &Func, block: &Block, indent: &str) -> fmt::Result {
    write!(f, "{indent}block {}(", Name(&block.name))?;
    for (n, iter) in block.iters.iter().enumerate() {
        let comma = if n > 0 { ", " } else { "" };
        let kind = match iter.kind {
            IterKind::Spatial => "spatial",
            IterKind::Reduce => "reduce",
        };
        let (name, extent) = (Name(&func.vars[iter.var].name), Named(func, &iter.extent));
        write!(f, "{comma}{name}: {kind} {extent} = {}", Named(func, &iter.value))?;
    }
    f.write_str(")")?;
    if let Some(predicate) = &block.predicate {
        write!(f, " where {}", Named(func, predicate))?;
    }
    f.write_str(" {\n")?;
    let mut write_store = |prefix: &str, store: &Store| {
        let (name, value) = (Name(&func.buffers[store.buffer].name), Named(func, &store.value));
        writeln!(f, "{indent}  {prefix}{name}[{}] = {value}", List(func, &store.indices))
    };
    block.init.iter().try_for_each(|s| write_store("init ", s))?;
    block.body.iter().try_for_each(|s| write_store("", s))?;
    writeln!(f, "{indent}}}")
}
