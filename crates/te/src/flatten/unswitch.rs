//! Loop unswitching: a condition that all blocks of a list of statements have in common is one branch around them.
//!
//! A condition moves out of the loops that do not change it, up to the list where the variables that it speaks of are
//! all bound. Conditions on data stay, and so do those of single blocks. What hints stand under goes there too, around two copies of
//! the statements: no step asks whether to give a hint.

use super::nest::{self, Body, If, LoopKind, Nest, Stmt};
use crate::expr::{Expr, ExprKind, Var};
use crate::func::Prefetch;
use crate::schedule::tree;

/// Moves conditions that the predicates of several blocks have in common to branches around them.
pub fn unswitch(nest: &mut Nest<'_>) {
    let mut asks = false;
    nest::for_each(&nest.body, &mut |stmt| match stmt {
        Stmt::Block(block) => asks |= block.predicate.is_some(),
        Stmt::Prefetch(hint) => asks |= hint.condition.is_some(),
        _ => {}
    });
    if asks {
        let body = with_and_without_hints(std::mem::take(&mut nest.body));
        nest.body = list(body, &[], None);
    }
}

/// Two copies of the statements around hints that are given under a condition: one that gives them, and one that does not.
fn with_and_without_hints<'a>(mut stmts: Vec<Stmt<'a>>) -> Vec<Stmt<'a>> {
    match hint_condition(&stmts) {
        Some(condition) => {
            let mut then = stmts.clone();
            change_hints(&mut then, &condition, &|hint| hint.condition = None);
            remove_hints(&mut stmts, &condition);
            let [then, otherwise] = [then, stmts].map(|stmts| Body::new(with_and_without_hints(stmts)));
            vec![Stmt::If(If { condition, then, otherwise })]
        }
        None => {
            for stmt in &mut stmts {
                let (first, second) = lists_of(stmt);
                for list in first.into_iter().chain(second) {
                    *list = with_and_without_hints(std::mem::take(list));
                }
            }
            stmts
        }
    }
}

/// The condition of a hint that no loop in the statements changes.
fn hint_condition(stmts: &[Stmt<'_>]) -> Option<Expr> {
    let (mut varies, mut found): (Vec<Var>, Vec<&Expr>) = (Vec::new(), Vec::new());
    nest::for_each_loop(stmts, &mut |l| varies.push(l.var));
    nest::for_each(stmts, &mut |stmt| {
        if let Stmt::Prefetch(hint) = stmt {
            found.extend(&hint.condition);
        }
    });
    found.into_iter().find(|condition| !varies.iter().any(|&var| condition.uses(var))).cloned()
}

/// Changes the hints that are given under a condition.
fn change_hints(stmts: &mut [Stmt<'_>], condition: &Expr, change: &dyn Fn(&mut Prefetch)) {
    for stmt in stmts {
        match stmt {
            Stmt::Prefetch(hint) if hint.condition.as_ref() == Some(condition) => change(hint),
            stmt => {
                let (first, second) = lists_of(stmt);
                first.into_iter().chain(second).for_each(|list| change_hints(list, condition, change));
            }
        }
    }
}

/// Leaves out the hints that are given under a condition.
fn remove_hints(stmts: &mut Vec<Stmt<'_>>, condition: &Expr) {
    stmts.retain(|stmt| match stmt {
        Stmt::Prefetch(hint) => hint.condition.as_ref() != Some(condition),
        _ => true,
    });
    for stmt in stmts {
        let (first, second) = lists_of(stmt);
        first.into_iter().chain(second).for_each(|list| remove_hints(list, condition));
    }
}

/// The lists of statements directly inside of one of a nest as it was split.
fn lists_of<'s, 'a>(
    stmt: &'s mut Stmt<'a>,
) -> (Option<&'s mut Vec<Stmt<'a>>>, Option<&'s mut Vec<Stmt<'a>>>) {
    match stmt {
        Stmt::Loop(l) => (Some(&mut l.body.stmts), None),
        Stmt::If(branch) => (Some(&mut branch.then.stmts), Some(&mut branch.otherwise.stmts)),
        _ => (None, None),
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
        Stmt::If(branch) => {
            for body in [&mut branch.then, &mut branch.otherwise] {
                body.stmts = list(std::mem::take(&mut body.stmts), known, lane);
            }
        }
        Stmt::Masked(_) | Stmt::Stores(_) | Stmt::Prefetch(_) | Stmt::Barrier => {}
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
