//! Whole tiles: a copy of a tile's body for where all of it lies inside.
//!
//! Rows past the end of a padded tile load what the last row does (`pad_einsum`): each row's place is then the lesser of
//! two, and needs an address register of its own. Where the whole tile lies inside, rows have a fixed stride, so that
//! one address serves all. Which of the two it is is asked once a tile, outside of the loop over its steps. Known as
//! loop partitioning, as in Halide and TVM. The other copy is done for as few rows as are there ([`fewer_rows`](super::fewer_rows)). Loops that
//! move elements are left to [`partition`](super::partition).

use tilewright_dtype::DType;

use super::fewer_rows::Readers;
use super::known::{Known, negated};
use super::nest::{self, Block, Body, If, Loop, LoopKind, Nest, Stmt};
use crate::expr::{BinaryOp, Expr, ExprKind, Var};
use crate::func::IterKind;
use crate::schedule::tree;

/// Repeats the statements of each tile whose loads are clamped: once for where none is, once for where some may be.
pub fn whole_tiles(nest: &mut Nest<'_>) {
    if has_clamped_steps(&nest.body) {
        // Threads of a task go the same way.
        let readers = (!nest::has_threads(&nest.body)).then(|| Readers::of(nest));
        let mut pass = WholeTiles { known: Known::in_task(nest), readers };
        nest.body = pass.list(std::mem::take(&mut nest.body));
    }
}

/// A loop of a constant number of iterations, the last of which is `last`, that are repeated.
pub(super) struct Ends {
    pub(super) var: Var,
    pub(super) last: i64,
}

struct WholeTiles<'f> {
    known: Known,
    readers: Option<Readers<'f>>,
}

impl WholeTiles<'_> {
    fn list<'a>(&mut self, stmts: Vec<Stmt<'a>>) -> Vec<Stmt<'a>> {
        let (mut all, stmts) = nest::split_hints(stmts);
        // Where a branch is all there is, the tile is inside of it.
        let is_branch = matches!(&stmts[..], [Stmt::If(_)]);
        match if is_branch { None } else { self.whole_tile(&stmts) } {
            None => all.extend(stmts.into_iter().map(|stmt| self.stmt(stmt))),
            Some(condition) => {
                let before = self.known.enter(Some(&condition));
                let whole = stmts.iter().map(|stmt| self.stmt(stmt.clone())).collect();
                self.known.leave(before);
                let then = Body::under(condition.clone(), whole);
                let is_comparison = matches!(condition.kind(), ExprKind::Compare(..));
                let fact = is_comparison.then(|| negated(&condition));
                let stmts = match &self.readers {
                    Some(readers) => {
                        let before = self.known.enter(fact.as_ref());
                        let stmts = readers.in_fewer_rows(&mut self.known, stmts);
                        self.known.leave(before);
                        stmts
                    }
                    None => stmts,
                };
                let otherwise = Body { fact, stmts };
                all.push(Stmt::If(If { condition, then, otherwise }));
            }
        }
        all
    }

    fn stmt<'a>(&mut self, mut stmt: Stmt<'a>) -> Stmt<'a> {
        match &mut stmt {
            // Its lanes are no tile of their own.
            Stmt::Loop(l) if l.kind == LoopKind::Vectorized => {}
            Stmt::Loop(l) => {
                let before = self.known.enter_loop(l);
                l.body.stmts = self.list(std::mem::take(&mut l.body.stmts));
                self.known.leave(before);
            }
            Stmt::If(branch) => {
                for body in [&mut branch.then, &mut branch.otherwise] {
                    let before = self.known.enter(body.fact.as_ref());
                    body.stmts = self.list(std::mem::take(&mut body.stmts));
                    self.known.leave(before);
                }
            }
            Stmt::Block(_) | Stmt::Masked(_) | Stmt::Stores(_) | Stmt::Prefetch(_) | Stmt::Barrier => {}
            Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => {}
        }
        stmt
    }

    /// The condition under which no load in the steps of a tile is clamped, if these statements are a tile: loops over
    /// steps, with rows or vectors unrolled inside whose loads are clamped by what is known before the first step. Of steps that a
    /// clamped index counts, as those over a window, the number must be known.
    fn whole_tile(&mut self, stmts: &[Stmt<'_>]) -> Option<Expr> {
        if !has_clamped_steps(stmts) {
            return None;
        }
        let (mut ends, mut steps) = (Vec::new(), Vec::new());
        nest::for_each_loop(stmts, &mut |l| {
            let extent = self.known.simplify(&l.extent());
            self.known.bind(l);
            match (l.kind, extent.as_int()) {
                (LoopKind::Unrolled | LoopKind::Vectorized, Some(n)) => {
                    ends.push(Ends { var: l.var, last: n - 1 });
                }
                (_, Some(1)) => ends.push(Ends { var: l.var, last: 0 }),
                (_, extent) => steps.push((l.var, extent)),
            }
        });
        let mut whole: Vec<Expr> = Vec::new();
        for clamp in clamps_of(stmts) {
            let clamp = self.known.simplify(&clamp);
            let ExprKind::Binary(op, a, b) = clamp.kind() else { continue };
            let varies = |e: &Expr| ends.iter().any(|end| e.uses(end.var));
            // The side that differs within the tile must keep to the other.
            let (place, bound) = if varies(a) { (a, b) } else { (b, a) };
            let counted = steps.iter().filter(|(var, _)| clamp.uses(*var));
            let counted: Option<Vec<Ends>> =
                counted.map(|&(var, extent)| Some(Ends { var, last: extent? - 1 })).collect();
            let Some(counted) = counted.filter(|_| varies(place) && !varies(bound)) else { continue };
            let inside = match op {
                BinaryOp::Min => place.clone().le(bound.clone()),
                BinaryOp::Max => bound.clone().le(place.clone()),
                // It is known to be one of the two.
                _ => continue,
            };
            if !counted.iter().all(|end| is_linear(&self.known, &inside, end.var)) {
                continue;
            }
            let all: Vec<&Ends> = ends.iter().chain(&counted).collect();
            for condition in at_ends(&self.known, inside, &all) {
                if !self.follows(&condition, &whole) {
                    whole.push(condition);
                }
            }
        }
        tree::conjunction(whole).filter(|condition| condition.as_int().is_none())
    }

    /// Whether a condition holds wherever others do.
    fn follows(&mut self, condition: &Expr, others: &[Expr]) -> bool {
        let before = self.known.enter(None);
        others.iter().for_each(|other| self.known.simplifier.assume(other));
        let follows = self.known.simplifier.prove(condition);
        self.known.leave(before);
        follows
    }
}

/// Whether a comparison is of two sides whose difference is linear in a variable.
pub(super) fn is_linear(known: &Known, condition: &Expr, var: Var) -> bool {
    known.difference(condition).is_some_and(|difference| difference.affine_in(var).is_some())
}

/// A condition at the last and at the first iterations of loops: being linear in their variables, it holds in between too.
pub(super) fn at_ends(known: &Known, condition: Expr, ends: &[&Ends]) -> Vec<Expr> {
    let used = ends.iter().filter(|end| condition.uses(end.var));
    let mut all = vec![condition.clone()];
    for end in used {
        let at = |n: i64| all.iter().map(move |c| c.substitute_var(end.var, &Expr::int(n)));
        all = at(end.last).chain(at(0).filter(|_| end.last > 0)).collect();
    }
    all.iter().map(|condition| known.simplify(condition)).collect()
}

/// Whether some steps in the statements, a loop over them or all that there are unrolled, have clamped loads.
fn has_clamped_steps(stmts: &[Stmt<'_>]) -> bool {
    let mut loops = Vec::new();
    let mut found = false;
    nest::for_each_loop(stmts, &mut |l: &Loop<'_>| {
        loops.push(l.var);
        let is_steps = l.kind == LoopKind::Serial && l.end.as_int() != Some(1);
        found = found || is_steps && !clamps_of(&l.body.stmts).is_empty();
    });
    // A branch inside of a loop over steps would be asked in each.
    nest::for_each_block(stmts, &mut |block: &Block<'_>| {
        let is_outside = |e: &Expr| e.as_var().is_some_and(|var| !loops.contains(&var));
        let iters = block.source.iters.iter().zip(&block.values);
        let mut steps = iters.filter(|(iter, _)| iter.kind == IterKind::Reduce).peekable();
        let is_reduction = steps.peek().is_some();
        let has_all = is_reduction && steps.all(|(_, value)| !value.any(&mut |e| is_outside(e)));
        found = found || has_all && !clamps_of(&[Stmt::Block(block.clone())]).is_empty();
    });
    found
}

/// Indices that are the lesser or the greater of two in all blocks of some statements, over variables of loops.
fn clamps_of(stmts: &[Stmt<'_>]) -> Vec<Expr> {
    let mut clamps = Vec::new();
    nest::for_each_block(stmts, &mut |block: &Block<'_>| {
        let mut visit = |e: &Expr| {
            let is_clamp = matches!(e.kind(), ExprKind::Binary(BinaryOp::Min | BinaryOp::Max, ..));
            if is_clamp && e.dtype() == DType::I64 && !e.any(&mut |x| matches!(x.kind(), ExprKind::Load(..)))
            {
                clamps.push(e.substitute(&|var| block.value_of(var)));
            }
        };
        block.source.for_each_expr(|e| e.walk(&mut visit));
    });
    clamps
}
