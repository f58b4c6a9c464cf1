//! Partial tiles: a copy of a tile's body for each number of rows that the tile may have.
//!
//! Where rows of an open number are dealt out to tiles, a guard says which rows of the last tile there are. It would be asked in each
//! step, and sums in registers would pass through a branch. So the number of rows is asked once a tile, outside of the loop over its
//! steps, from the whole tile down to one row; each copy computes its rows without asking. Where rows that there are not may be
//! computed, as in products, [`whole_tiles`](super::whole_tiles) does with two copies.

use super::known::{Known, negated};
use super::nest::{self, Body, If, Loop, LoopKind, Nest, Stmt};
use crate::expr::{Expr, ExprKind, Var};
use crate::schedule::tree;

/// Rows of a tile up to which there is a copy for each number of them: a schedule makes no larger tiles of guarded rows that keep sums
/// in registers.
pub const MAX_PARTIAL_ROWS: i64 = 4;

/// Repeats the statements of each tile whose rows are guarded.
pub fn partial_tiles(nest: &mut Nest<'_>) {
    if nest::has_guards(&nest.body) {
        let known = Known::in_task(nest);
        let body = std::mem::take(&mut nest.body);
        nest.body = list(&known, body);
    }
}

fn list<'a>(known: &Known, stmts: Vec<Stmt<'a>>) -> Vec<Stmt<'a>> {
    let (mut all, stmts) = nest::split_hints(stmts);
    match guards_of(known, &stmts) {
        Some(guards) => all.extend(in_copies(&guards, None, &stmts)),
        None => all.extend(stmts.into_iter().map(|inner| stmt(known, inner))),
    }
    all
}

fn stmt<'a>(known: &Known, mut stmt: Stmt<'a>) -> Stmt<'a> {
    match &mut stmt {
        Stmt::Loop(l) if l.kind == LoopKind::Serial => {
            l.body.stmts = list(known, std::mem::take(&mut l.body.stmts));
        }
        Stmt::If(branch) => {
            for body in [&mut branch.then, &mut branch.otherwise] {
                body.stmts = list(known, std::mem::take(&mut body.stmts));
            }
        }
        // A tile is not inside of a part of one; threads decide together.
        Stmt::Loop(_) | Stmt::Block(_) | Stmt::Masked(_) | Stmt::Stores(_) | Stmt::Prefetch(_) => {}
        Stmt::Barrier | Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => {}
    }
    stmt
}

/// The statements under each of the conditions, the last of which is for the most rows; `beyond` does not hold.
fn in_copies<'a>(guards: &[Expr], beyond: Option<&Expr>, stmts: &[Stmt<'a>]) -> Vec<Stmt<'a>> {
    let Some((condition, fewer)) = guards.split_last() else { return stmts.to_vec() };
    let fact = |own: Expr| tree::conjunction(beyond.map(negated).into_iter().chain([own]));
    let then = Body { fact: fact(condition.clone()), stmts: stmts.to_vec() };
    let otherwise = Body { fact: Some(negated(condition)), stmts: in_copies(fewer, Some(condition), stmts) };
    vec![Stmt::If(If { condition: condition.clone(), then, otherwise })]
}

/// For each row but the first the condition that a tile has it, if some statements are a tile: a loop over steps, around one of
/// unrolled rows that are guarded by a condition that holds for the first ones.
fn guards_of(known: &Known, stmts: &[Stmt<'_>]) -> Option<Vec<Expr>> {
    stmts.iter().find_map(|stmt| match stmt {
        Stmt::Loop(steps) if steps.kind == LoopKind::Serial && steps.end.as_int() != Some(1) => {
            guards_in(known, stmts, &steps.body.stmts)
        }
        _ => None,
    })
}

fn guards_in(known: &Known, tile: &[Stmt<'_>], steps: &[Stmt<'_>]) -> Option<Vec<Expr>> {
    let mut inside: Vec<Var> = Vec::new();
    nest::for_each_loop(tile, &mut |l| inside.push(l.var));
    let mut rows: Vec<&Loop<'_>> = Vec::new();
    nest::for_each_loop(steps, &mut |l| rows.push(l));
    rows.into_iter().filter(|l| l.kind == LoopKind::Unrolled).find_map(|row| {
        let n_rows = row.end.as_int().filter(|n| (2..=MAX_PARTIAL_ROWS).contains(n))?;
        let mut found = None;
        nest::for_each(&row.body.stmts, &mut |stmt| {
            let asked = match stmt {
                Stmt::Block(block) => block.predicate.as_ref(),
                Stmt::If(branch) => Some(&branch.condition),
                _ => None,
            };
            let mut conditions = asked.into_iter().flat_map(tree::conjuncts);
            found = found.take().or_else(|| conditions.find(|c| is_guard(known, c, row.var, &inside)));
        });
        let guard: Expr = found?;
        Some((1..n_rows).map(|n| guard.substitute_var(row.var, &Expr::int(n))).collect())
    })
}

/// Whether a condition holds for the first rows of a tile, and asks for nothing else that the tile's loops change.
fn is_guard(known: &Known, condition: &Expr, row: Var, inside: &[Var]) -> bool {
    let changes = |e: &Expr| match e.kind() {
        ExprKind::Var(var) => *var != row && inside.contains(var),
        ExprKind::Load(..) => true,
        _ => false,
    };
    let times = known.difference(condition).and_then(|difference| difference.affine_in(row));
    times.is_some_and(|(times, _)| times < 0) && !condition.any(&mut |e| changes(e))
}
