//! Loop unswitching: a condition that all blocks of a list of statements have in common is one branch around them.
//!
//! A condition moves out of the loops that do not change it, up to the list where the variables that it speaks of are
//! all bound. Conditions on data stay, and so do those of single blocks.

use super::nest::{self, Body, If, LoopKind, Nest, Stmt};
use crate::expr::{Expr, ExprKind, Var};
use crate::schedule::tree;

/// Moves conditions that the predicates of several blocks have in common to branches around them.
pub fn unswitch(nest: &mut Nest<'_>) {
    let mut has_predicates = false;
    nest::for_each_block(&nest.body, &mut |block| has_predicates |= block.predicate.is_some());
    if has_predicates {
        let body = std::mem::take(&mut nest.body);
        nest.body = list(body, &[], None);
    }
}

/// A list of statements where the conditions of branches around are `known`.
fn list<'a>(stmts: Vec<Stmt<'a>>, known: &[Expr], lane: Option<Var>) -> Vec<Stmt<'a>> {
    let (mut all, stmts) = nest::split_hints(stmts);
    let found = match &stmts[..] {
        [Stmt::Block(_)] => Vec::new(),
        stmts => common_conditions(stmts, known, lane),
    };
    let known = &[known, &found].concat();
    let stmts: Vec<Stmt<'a>> = stmts.into_iter().map(|inner| stmt(inner, known, lane)).collect();
    match tree::conjunction(found) {
        None => all.extend(stmts),
        Some(condition) => {
            all.push(Stmt::If(If { condition, then: Body::new(stmts), otherwise: Body::default() }));
        }
    }
    all
}

fn stmt<'a>(mut stmt: Stmt<'a>, known: &[Expr], lane: Option<Var>) -> Stmt<'a> {
    match &mut stmt {
        Stmt::Loop(l) if l.kind == LoopKind::Vectorized => {
            // The lanes are told apart block by block.
            let stmts = std::mem::take(&mut l.body.stmts);
            l.body.stmts = stmts.into_iter().map(|inner| self::stmt(inner, known, Some(l.var))).collect();
        }
        Stmt::Loop(l) => l.body.stmts = list(std::mem::take(&mut l.body.stmts), known, lane),
        Stmt::Block(block) => {
            let conditions = block.predicate.iter().flat_map(tree::conjuncts);
            block.predicate = tree::conjunction(conditions.filter(|c| !known.contains(c)));
        }
        Stmt::If(_) | Stmt::Masked(_) | Stmt::Stores(_) | Stmt::Prefetch(_) | Stmt::Barrier => {}
        Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => {}
    }
    stmt
}

/// Conditions that the predicates of all blocks in some statements have in common, over loops that are open already.
fn common_conditions(stmts: &[Stmt<'_>], known: &[Expr], lane: Option<Var>) -> Vec<Expr> {
    let mut common: Option<Vec<Expr>> = None;
    nest::for_each_block(stmts, &mut |block| {
        let conditions: Vec<Expr> = block.predicate.iter().flat_map(tree::conjuncts).collect();
        match &mut common {
            None => common = Some(conditions),
            Some(common) => common.retain(|c| conditions.contains(c)),
        }
    });
    let mut varies: Vec<Var> = lane.into_iter().collect();
    nest::for_each_loop(stmts, &mut |l| varies.push(l.var));
    let is_decided = |c: &Expr| {
        let depends = |e: &Expr| match e.kind() {
            ExprKind::Var(var) => varies.contains(var),
            ExprKind::Load(..) => true,
            _ => false,
        };
        !c.any(&mut |e| depends(e)) && !known.contains(c)
    };
    common.unwrap_or_default().into_iter().filter(is_decided).collect()
}
