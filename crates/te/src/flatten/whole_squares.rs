//! Whole squares: a copy without guards of rows of vectors that read squares, for where all of a square lies inside.
//!
//! Vectors of rows that are taken at once read a square of elements if what lies along the rows is consecutive in memory, and what lies along
//! the lanes is not. Guards would part them, and with them the gathers that [`transpose_gathers`](super::transpose_gathers) looks for. So it
//! is asked once for all of a square whether it lies inside. Known as loop partitioning, as in Halide and TVM.

use super::known::Known;
use super::nest::{self, Block, Body, If, Loop, LoopKind, Nest, Stmt};
use super::whole_tiles::{Ends, at_ends, is_linear};
use crate::expr::{Expr, ExprKind, Var};
use crate::func::{Func, IterKind, Scope};
use crate::schedule::tree;

/// Repeats the rows of squares whose blocks are guarded: once for where no guard is needed.
pub fn whole_squares(nest: &mut Nest<'_>) {
    if nest::has_guards(&nest.body) && !nest::has_threads(&nest.body) {
        let mut pass = WholeSquares { func: nest.func, known: Known::in_task(nest) };
        pass.list(&mut nest.body);
    }
}

struct WholeSquares<'f> {
    func: &'f Func,
    known: Known,
}

impl WholeSquares<'_> {
    fn list(&mut self, stmts: &mut [Stmt<'_>]) {
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => match self.whole(l) {
                    Some((condition, whole)) => {
                        let then = Body::under(condition.clone(), vec![whole]);
                        let otherwise = Body::new(vec![Stmt::Loop(l.clone())]);
                        *stmt = Stmt::If(If { condition, then, otherwise });
                    }
                    None => {
                        let before = self.known.enter_loop(l);
                        self.list(&mut l.body.stmts);
                        self.known.leave(before);
                    }
                },
                Stmt::If(branch) => {
                    for body in [&mut branch.then, &mut branch.otherwise] {
                        let before = self.known.enter(body.fact.as_ref());
                        self.list(&mut body.stmts);
                        self.known.leave(before);
                    }
                }
                Stmt::Block(_) | Stmt::Masked(_) | Stmt::Stores(_) | Stmt::Prefetch(_) => {}
                Stmt::Barrier | Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => {}
            }
        }
    }

    /// The condition under which a square lies inside as a whole, and its rows without guards, if a loop is over those of a square that may not.
    fn whole<'a>(&mut self, rows: &Loop<'a>) -> Option<(Expr, Stmt<'a>)> {
        let (LoopKind::Unrolled, Some(n_rows)) = (rows.kind, rows.end.as_int()) else { return None };
        let (guard, lanes) = match &rows.body.stmts[..] {
            [Stmt::Loop(lanes)] => (None, lanes),
            [Stmt::If(If { condition, then, otherwise })] if otherwise.stmts.is_empty() => {
                match &then.stmts[..] {
                    [Stmt::Loop(lanes)] => (Some(condition), lanes),
                    _ => return None,
                }
            }
            _ => return None,
        };
        let (LoopKind::Vectorized, Some(n_lanes)) = (lanes.kind, lanes.end.as_int()) else { return None };
        let [Stmt::Block(block)] = &lanes.body.stmts[..] else { return None };
        self.known.bind(rows);
        self.known.bind(lanes);
        if block.source.iters.iter().any(|iter| iter.kind == IterKind::Reduce)
            || !self.reads_square(block, rows.var, lanes.var)
        {
            return None;
        }
        let ends = [Ends { var: rows.var, last: n_rows - 1 }, Ends { var: lanes.var, last: n_lanes - 1 }];
        let ends: Vec<&Ends> = ends.iter().collect();
        let mut conditions: Vec<Expr> = Vec::new();
        for conjunct in guard.into_iter().chain(&block.predicate).flat_map(tree::conjuncts) {
            if !ends.iter().all(|end| !conjunct.uses(end.var) || is_linear(&self.known, &conjunct, end.var)) {
                return None;
            }
            for condition in at_ends(&self.known, conjunct, &ends) {
                if condition.as_int() != Some(1) && !conditions.contains(&condition) {
                    conditions.push(condition);
                }
            }
        }
        let condition = tree::conjunction(conditions)?;
        let mut lanes = lanes.clone();
        lanes.body.stmts = vec![Stmt::Block(Block { predicate: None, ..block.clone() })];
        let mut rows = rows.clone();
        rows.body.stmts = vec![Stmt::Loop(lanes)];
        Some((condition, Stmt::Loop(rows)))
    }

    /// Whether a block reads memory whose elements are consecutive along the rows, and not along the lanes.
    fn reads_square(&self, block: &Block<'_>, row: Var, lane: Var) -> bool {
        let mut found = false;
        block.source.for_each_expr(|e| {
            e.walk(&mut |e| {
                if let ExprKind::Load(buffer, indices) = e.kind()
                    && self.func.buffers[*buffer].scope != Scope::Register
                {
                    let shape = &self.func.buffers[*buffer].shape;
                    let flat = indices.iter().zip(shape).fold(Expr::int(0), |flat, (index, extent)| {
                        flat * extent.clone() + index.substitute(&|var| block.value_of(var))
                    });
                    let at = |var: Var, n: i64| flat.substitute_var(var, &Expr::int(n));
                    let step = |var: Var| self.known.simplify(&(at(var, 1) - at(var, 0))).as_int();
                    found |= step(row) == Some(1) && !matches!(step(lane), Some(0 | 1));
                }
            });
        });
        found
    }
}
