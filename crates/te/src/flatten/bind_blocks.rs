//! Blocks become stores over loop variables, and everything is simplified by what is known where it stands.
//!
//! The variables of a block are replaced by their values; what starts a reduction becomes stores behind a branch, or of
//! their own, or none, as is known of its first step. Branches that are decided and loops of one iteration or none go.
//! From here on all expressions are in normal form, and nothing later proves anything again.

use super::error::FlattenError;
use super::known::Known;
use super::nest::{Block, Body, If, Loop, LoopKind, Masked, Nest, Stmt, Stores};
use crate::expr::{Expr, Rewritten, Var};
use crate::func::{Func, IterKind, Store};

/// Replaces blocks by their stores, in normal form. Predicates must be gone.
///
/// # Errors
/// Where a reduction starts in some lanes of a vector only.
pub fn bind_blocks(nest: &mut Nest<'_>) -> Result<(), FlattenError> {
    let mut pass = BindBlocks { func: nest.func, known: Known::in_task(nest), lane: None };
    let body = std::mem::take(&mut nest.body);
    nest.body = pass.list(body)?;
    Ok(())
}

struct BindBlocks<'a> {
    func: &'a Func,
    known: Known,
    /// The vectorized loop around.
    lane: Option<Var>,
}

impl<'a> BindBlocks<'a> {
    fn list(&mut self, stmts: Vec<Stmt<'a>>) -> Result<Vec<Stmt<'a>>, FlattenError> {
        let mut all = Vec::with_capacity(stmts.len());
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => self.for_loop(l, &mut all)?,
                Stmt::If(branch) => self.branch(branch, &mut all)?,
                Stmt::Masked(masked) => {
                    let mask = self.known.simplify(&masked.mask);
                    all.push(Stmt::Masked(Masked { mask, stmts: self.list(masked.stmts)? }));
                }
                Stmt::Block(block) => self.block(&block, &mut all)?,
                Stmt::Stores(_) | Stmt::Barrier => all.push(stmt),
                Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => all.push(stmt),
                Stmt::Prefetch(mut hint) => {
                    hint.for_each_expr_mut(|e| *e = self.known.simplify(e));
                    all.push(Stmt::Prefetch(hint));
                }
            }
        }
        Ok(all)
    }

    fn for_loop(&mut self, l: Loop<'a>, all: &mut Vec<Stmt<'a>>) -> Result<(), FlattenError> {
        // Without the fact of the body, which says nothing of the bounds where there is no iteration.
        let n = self.known.simplify(&l.extent()).as_int();
        let (begin, end) = (self.known.simplify(&l.begin), self.known.simplify(&l.end));
        let before = self.known.enter_loop(&l);
        if n == Some(0) || self.known.simplify(&l.extent()).as_int() == Some(0) {
            self.known.leave(before);
            return Ok(());
        }
        let lane = if l.kind == LoopKind::Vectorized { Some(l.var) } else { self.lane };
        let outer = std::mem::replace(&mut self.lane, lane);
        let stmts = self.list(l.body.stmts);
        self.lane = outer;
        self.known.leave(before);
        let is_thread = matches!(l.kind, LoopKind::Thread(_));
        match n {
            // The simplifier has put the one value in place of the variable.
            Some(1) if begin.as_int().is_some() && !is_thread => all.extend(stmts?),
            _ => {
                let body = Body { fact: l.body.fact, stmts: stmts? };
                all.push(Stmt::Loop(Loop { var: l.var, begin, end, kind: l.kind, stages: l.stages, body }));
            }
        }
        Ok(())
    }

    fn branch(&mut self, branch: If<'a>, all: &mut Vec<Stmt<'a>>) -> Result<(), FlattenError> {
        let condition = self.known.simplify(&branch.condition);
        let mut inside = |body: Body<'a>| {
            let before = self.known.enter(body.fact.as_ref());
            let stmts = self.list(body.stmts);
            self.known.leave(before);
            Ok(Body { fact: body.fact, stmts: stmts? })
        };
        match condition.as_int() {
            Some(0) => all.extend(inside(branch.otherwise)?.stmts),
            Some(_) => all.extend(inside(branch.then)?.stmts),
            None => {
                let (then, otherwise) = (inside(branch.then)?, inside(branch.otherwise)?);
                all.push(Stmt::If(If { condition, then, otherwise }));
            }
        }
        Ok(())
    }

    fn block(&mut self, block: &Block<'a>, all: &mut Vec<Stmt<'a>>) -> Result<(), FlattenError> {
        let values: Vec<Expr> = block.values.iter().map(|value| self.known.simplify(value)).collect();
        let iters = &block.source.iters;
        if !block.source.init.is_empty() {
            let reduce = iters.iter().zip(&values).filter(|(iter, _)| iter.kind == IterKind::Reduce);
            let first =
                reduce.fold(Expr::bool(true), |all, (_, value)| all.and(value.clone().equals(Expr::int(0))));
            let first = self.known.simplify(&first);
            match first.as_int() {
                Some(0) => {}
                Some(_) => all.push(self.stores(block, &block.source.init, &values)),
                None if self.lane.is_some_and(|lane| first.uses(lane)) => {
                    let reason = "a reduction variable depends on a vector lane";
                    return Err(FlattenError::of(self.func, &block.source.name, reason));
                }
                None => {
                    let then = Body::new(vec![self.stores(block, &block.source.init, &values)]);
                    all.push(Stmt::If(If { condition: first, then, otherwise: Body::default() }));
                }
            }
        }
        all.push(self.stores(block, &block.source.body, &values));
        Ok(())
    }

    fn stores(&self, block: &Block<'a>, stores: &[Store], values: &[Expr]) -> Stmt<'a> {
        let value_of = |var: Var| {
            let of = block.source.iters.iter().zip(values).find(|(iter, _)| iter.var == var);
            of.map(|(_, value)| value.clone())
        };
        let mut done = Rewritten::default();
        let mut bind = |e: &Expr| {
            self.known.simplify(&e.rewrite_with(&mut done, &mut |e| e.as_var().and_then(value_of)))
        };
        let stores = stores.iter().map(|store| Store {
            buffer: store.buffer,
            indices: store.indices.iter().map(&mut bind).collect(),
            value: bind(&store.value),
        });
        Stmt::Stores(Stores { block: &block.source.name, stores: stores.collect() })
    }
}
