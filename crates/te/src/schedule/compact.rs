//! Shrinking of local buffers to what is live at a time.
//!
//! Scheduling keeps every buffer in its logical shape, so that regions can be inferred. At the end, a buffer
//! that is not global needs only the box of elements accessed in one iteration of the loops around all of
//! its accesses. Accesses become relative to that box through iteration variables added to the blocks.

use crate::expr::{Buffer, CompareOp, Expr, ExprKind, Var};
use crate::func::{Block, Func, Iter, IterKind, LoopKind, Scope, VarKind};
use crate::schedule::adopt::adopt;
use crate::schedule::region::{Accesses, Span, accessed, bind, region_of};
use crate::schedule::{ScheduleError, tree};
use crate::simplify::Simplifier;

/// Shrinks every buffer that is not global.
pub fn compact(func: &mut Func) -> Result<(), ScheduleError> {
    adopt(func);
    let local: Vec<Buffer> =
        func.buffers.iter().filter(|(_, b)| b.scope != Scope::Global).map(|(id, _)| id).collect();
    for buffer in local {
        if let Some(home) = home_of(func, buffer)? {
            shrink(func, buffer, &home);
        }
        set_rows_apart(func, buffer);
    }
    tree::normalize_with(func, Simplifier::for_sizes(func));
    Ok(())
}

/// Makes rows as long as the distance that they shall have.
fn set_rows_apart(func: &mut Func, buffer: Buffer) {
    let data = &mut func.buffers[buffer];
    if let Some(align) = data.row_align.take()
        && let Some(row) = data.shape.last_mut()
        && let Some(elements) = row.as_int()
    {
        *row = Expr::int(align.distance(elements));
    }
}

/// The path of the innermost loop in one iteration of which everything about the buffer happens, outside of vectorized
/// ones; the empty path where it is the whole function. `None` for a buffer without accesses.
fn home_of(func: &Func, buffer: Buffer) -> Result<Option<tree::Path>, ScheduleError> {
    let mut home: Option<tree::Path> = None;
    for (path, block) in tree::blocks_with_paths(func) {
        if !tree::writes(block, buffer) && !tree::reads(block, buffer) {
            continue;
        }
        let mut around = path[..path.len() - 1].to_vec();
        // The value lives through all steps of a reduction that starts by itself; where another block starts it, that one is
        // among those whose home is sought.
        if !block.init.is_empty() && tree::writes(block, buffer) {
            let accumulates = |depth: &usize| {
                tree::loop_at(func, &path[..*depth]).is_some_and(|l| {
                    block.iters.iter().any(|i| i.kind == IterKind::Reduce && i.value.uses(l.var))
                })
            };
            if let Some(outermost) = (1..path.len()).find(accumulates) {
                around.truncate(outermost - 1);
            }
        }
        home = Some(match home {
            None => around,
            Some(known) => known.into_iter().zip(around).take_while(|(a, b)| a == b).map(|x| x.0).collect(),
        });
    }
    let home = home.map(|mut home| {
        let depth = skipped_writes(func, buffer, &home);
        home.truncate(depth);
        // Lanes have no elements of their own but those that a buffer has for each, nor have threads of what they share.
        let is_together = |depth: &usize| {
            tree::loop_at(func, &home[..*depth]).is_some_and(|l| match l.kind {
                LoopKind::Vectorized => true,
                LoopKind::Thread(_) => func.buffers[buffer].scope == Scope::Shared,
                LoopKind::Serial | LoopKind::Parallel | LoopKind::Unrolled => false,
            })
        };
        if let Some(together) = (1..=home.len()).find(is_together) {
            home.truncate(together - 1);
        }
        home
    });
    let parallel = func.body.iter().any(|s| tree::tasks(s).is_some());
    if parallel && home.as_ref().is_some_and(|h| h.is_empty()) && func.body.len() > 1 {
        let name = &func.buffers[buffer].name;
        return Err(ScheduleError::new("compact", name, "a local buffer is used by several tasks"));
    }
    Ok(home)
}

/// How deep a home may be at most so that each of its iterations writes what it reads: outside of a loop in some of
/// whose iterations a block does not write while another reads all the same.
fn skipped_writes(func: &Func, buffer: Buffer, home: &[usize]) -> usize {
    let blocks = tree::blocks_with_paths(func);
    let conditions = |b: &Block| b.predicate.as_ref().map(tree::conjuncts).unwrap_or_default();
    let mut depth = home.len();
    for (path, writer) in blocks.iter().filter(|(_, b)| tree::writes(b, buffer)) {
        for condition in conditions(writer) {
            let reads_anyway = |(_, b): &(tree::Path, &Block)| {
                tree::reads(b, buffer) && !tree::writes(b, buffer) && !conditions(b).contains(&condition)
            };
            let is_shared =
                |v| (1..=home.len()).any(|n| tree::loop_at(func, &home[..n]).is_some_and(|l| l.var == v));
            let is_own = |v| is_loop(func, v) && !is_shared(v);
            if holds_somewhere(func, path, &condition, &is_own) || !blocks.iter().any(reads_anyway) {
                continue;
            }
            let uses = |n: &usize| tree::loop_at(func, &home[..*n]).is_some_and(|l| condition.uses(l.var));
            depth = (1..=depth).find(uses).map_or(depth, |n| n - 1);
        }
    }
    depth
}

/// Whether in every iteration of the other loops around a block some iteration of its `own` fulfils a condition, which uses some.
fn holds_somewhere(func: &Func, path: &[usize], condition: &Expr, own: &impl Fn(Var) -> bool) -> bool {
    if !condition.any(&mut |e| e.as_var().is_some_and(own)) {
        return false;
    }
    let mut simplifier = tree::simplifier_at(func, path);
    tree::loops_above(func, path).iter().for_each(|l| simplifier.assume_positive(&l.extent));
    let excess = match condition.kind() {
        ExprKind::Compare(CompareOp::Lt, a, b) => b.clone() - a.clone() - 1,
        ExprKind::Compare(CompareOp::Le, a, b) => b.clone() - a.clone(),
        ExprKind::Compare(CompareOp::Gt, a, b) => a.clone() - b.clone() - 1,
        ExprKind::Compare(CompareOp::Ge, a, b) => a.clone() - b.clone(),
        // What is no range of the own variable alone is of windows, whose readers have the same condition.
        _ => return true,
    };
    match simplifier.extreme(&excess, true, own) {
        Some(most) => simplifier.prove_le(&Expr::int(0), &most),
        None => true,
    }
}

fn is_loop(func: &Func, var: Var) -> bool {
    func.vars[var].kind == VarKind::Loop
}

fn shrink(func: &mut Func, buffer: Buffer, home: &[usize]) {
    let Some(stmts) = tree::list(func, home).cloned() else { return };
    let simplifier = tree::simplifier_within(func, &[home, &[0]].concat(), &stmts);
    let Some(region) = region_of(func, &simplifier, &stmts, buffer, Accesses::All) else { return };
    let unchanged = |(span, whole): (&Span, &Expr)| span.min.as_int() == Some(0) && span.extent == *whole;
    if region.iter().zip(&func.buffers[buffer].shape).all(unchanged) {
        return;
    }
    let paths: Vec<tree::Path> = tree::blocks_with_paths(func).into_iter().map(|(p, _)| p).collect();
    for path in paths {
        let Some(mut block) = tree::block_at(func, &path).cloned() else { continue };
        let mut replaced: Vec<(Vec<Expr>, Vec<Expr>)> = Vec::new();
        for indices in accessed(&block, buffer, Accesses::All) {
            let relative = indices.iter().zip(&region).enumerate().map(|(dim, (index, span))| {
                let value = simplifier.simplify(&(bind(&block, index) - span.min.clone()));
                if value.as_int().is_some() {
                    return value;
                }
                if span.min.as_int() == Some(0) {
                    return index.clone();
                }
                let known = block.iters.iter().find(|i| i.value == value && i.extent == span.extent);
                if let Some(iter) = known {
                    return Expr::var(iter.var);
                }
                let hint = format!("{}_{dim}", func.buffers[buffer].name);
                let var = func.add_var(&hint, VarKind::Iter);
                let extent = span.extent.clone();
                block.iters.push(Iter { var, extent, kind: IterKind::Spatial, value });
                Expr::var(var)
            });
            let relative = relative.collect();
            replaced.push((indices, relative));
        }
        if replaced.is_empty() {
            continue;
        }
        let find =
            |indices: &[Expr]| replaced.iter().find(|(old, _)| old == indices).map(|(_, new)| new.clone());
        for store in block.init.iter_mut().chain(&mut block.body) {
            if store.buffer == buffer
                && let Some(new) = find(&store.indices)
            {
                store.indices = new;
            }
        }
        block.rewrite_exprs(&mut |x| match x.kind() {
            ExprKind::Load(b, indices) if *b == buffer => {
                find(indices).map(|new| Expr::load(x.dtype(), buffer, new))
            }
            _ => None,
        });
        if let Some(place) = tree::block_at_mut(func, &path) {
            *place = block;
        }
    }
    func.buffers[buffer].shape = region.into_iter().map(|s| s.extent).collect();
}
