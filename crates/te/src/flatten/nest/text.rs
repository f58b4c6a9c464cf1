//! Printing of nests: as functions are printed, with branches, masks and facts.
//!
//! ```text
//! nest padded tasks i in 0..4 {
//!   for j in 0..3 {
//!     if (i < 3) {
//!       assume (i < 3)
//!       block out(v0 = i, v1 = j) where (j < 2) {
//!         out[v0, v1] = x[v0, v1]
//!       }
//!     }
//!   }
//! }
//! ```

use std::fmt::{self, Display, Formatter};

use super::{Block, Body, Counter, LoopKind, Nest, Stmt, Tasks};
use crate::expr::Expr;
use crate::func::{Func, Store, ThreadLevel};
use crate::text::func::{List, Name, Named};

impl Display for Nest<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "nest {}", Name(&self.name))?;
        let counter = |f: &mut Formatter<'_>, Counter { var, extent }: &Counter| {
            write!(f, " {} in 0..{}", Name(&self.func.vars[*var].name), Named(self.func, extent))
        };
        match &self.tasks {
            Tasks::Single => {}
            Tasks::Shared(shared) => {
                f.write_str(" tasks")?;
                counter(f, shared)?;
            }
            Tasks::Rounds { rounds, shared, in_order } => {
                f.write_str(if *in_order { " rounds in order" } else { " rounds" })?;
                counter(f, rounds)?;
                f.write_str(" tasks")?;
                counter(f, shared)?;
            }
        }
        f.write_str(" {\n")?;
        write_stmts(f, self.func, &self.body, 1)?;
        f.write_str("}\n")
    }
}

fn write_stmts(f: &mut Formatter<'_>, func: &Func, stmts: &[Stmt<'_>], depth: usize) -> fmt::Result {
    let indent = "  ".repeat(depth);
    let named = |e| Named(func, e);
    for stmt in stmts {
        match stmt {
            Stmt::Loop(l) => {
                let kind = match l.kind {
                    LoopKind::Serial => "",
                    LoopKind::Vectorized => " vectorized",
                    LoopKind::Unrolled => " unrolled",
                    LoopKind::Thread(ThreadLevel::Warp) => " warp",
                    LoopKind::Thread(ThreadLevel::Lane) => " lane",
                };
                let name = Name(&func.vars[l.var].name);
                write!(f, "{indent}for {name} in {}..{}{kind}", named(&l.begin), named(&l.end))?;
                if l.stages > 1 {
                    write!(f, " pipeline {}", l.stages)?;
                }
                f.write_str(" {\n")?;
                write_body(f, func, &l.body, depth + 1)?;
            }
            Stmt::If(branch) => {
                writeln!(f, "{indent}if {} {{", named(&branch.condition))?;
                write_body(f, func, &branch.then, depth + 1)?;
                if !branch.otherwise.stmts.is_empty() {
                    writeln!(f, "{indent}}} else {{")?;
                    write_body(f, func, &branch.otherwise, depth + 1)?;
                }
            }
            Stmt::Masked(masked) => {
                writeln!(f, "{indent}where {} {{", named(&masked.mask))?;
                write_stmts(f, func, &masked.stmts, depth + 1)?;
            }
            Stmt::Block(block) => write_block(f, func, block, depth)?,
            Stmt::Stores(stores) => {
                writeln!(f, "{indent}block {} {{", Name(stores.block))?;
                write_stores(f, func, "", &stores.stores, depth + 1)?;
            }
            Stmt::Prefetch(hint) => {
                let name = Name(&func.buffers[hint.buffer].name);
                write!(f, "{indent}prefetch {name}[{}]", named(&hint.element))?;
                if let Some(condition) = &hint.condition {
                    write!(f, " where {}", named(condition))?;
                }
                writeln!(f)?;
                continue;
            }
            Stmt::Barrier => {
                writeln!(f, "{indent}barrier")?;
                continue;
            }
            Stmt::Copies(stmts) => {
                writeln!(f, "{indent}copy {{")?;
                write_stmts(f, func, stmts, depth + 1)?;
            }
            Stmt::CommitCopies => {
                writeln!(f, "{indent}commit")?;
                continue;
            }
            Stmt::WaitCopies(pending) => {
                writeln!(f, "{indent}wait {pending}")?;
                continue;
            }
        }
        writeln!(f, "{indent}}}")?;
    }
    Ok(())
}

fn write_body(f: &mut Formatter<'_>, func: &Func, body: &Body<'_>, depth: usize) -> fmt::Result {
    if let Some(fact) = &body.fact {
        writeln!(f, "{:1$}assume {2}", "", 2 * depth, Named(func, fact))?;
    }
    write_stmts(f, func, &body.stmts, depth)
}

fn write_block(f: &mut Formatter<'_>, func: &Func, block: &Block<'_>, depth: usize) -> fmt::Result {
    write!(f, "{:1$}block {2}(", "", 2 * depth, Name(&block.source.name))?;
    for (n, (iter, value)) in block.source.iters.iter().zip(&block.values).enumerate() {
        let comma = if n > 0 { ", " } else { "" };
        write!(f, "{comma}{} = {}", Name(&func.vars[iter.var].name), Named(func, value))?;
    }
    f.write_str(")")?;
    if let Some(predicate) = &block.predicate {
        write!(f, " where {}", Named(func, predicate))?;
    }
    f.write_str(" {\n")?;
    write_stores(f, func, "init ", &block.source.init, depth + 1)?;
    write_stores(f, func, "", &block.source.body, depth + 1)
}

fn write_stores(
    f: &mut Formatter<'_>,
    func: &Func,
    prefix: &str,
    stores: &[Store],
    depth: usize,
) -> fmt::Result {
    stores.iter().try_for_each(|store| {
        let (name, value): (_, &Expr) = (Name(&func.buffers[store.buffer].name), &store.value);
        let indices = List(func, &store.indices);
        writeln!(f, "{:1$}{prefix}{name}[{indices}] = {2}", "", 2 * depth, Named(func, value))
    })
}
