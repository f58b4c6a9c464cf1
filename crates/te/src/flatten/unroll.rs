//! Unrolling: loops that are marked so become copies of their bodies, one an iteration.
//!
//! Vectorized loops are checked here, since their number of lanes has to be known from here on; one of a single lane is
//! its body. Nothing is decided: which loops are unrolled the schedule says.

use super::error::FlattenError;
use super::known::Known;
use super::nest::{Loop, LoopKind, Nest, Stmt};
use crate::expr::{Expr, Var};

/// Repeats the bodies of unrolled loops.
///
/// # Errors
/// Where an unrolled or vectorized loop has no constant extent, or a vectorized loop is inside another.
pub fn unroll(nest: &mut Nest<'_>) -> Result<(), FlattenError> {
    let body = std::mem::take(&mut nest.body);
    let mut pass = Unroll { nest, around: Vec::new(), in_vector: false };
    let body = pass.list(body)?;
    nest.body = body;
    Ok(())
}

struct Unroll<'n, 'a> {
    nest: &'n Nest<'a>,
    /// Variables of the serial loops around, with their bounds.
    around: Vec<(Var, Expr, Expr)>,
    in_vector: bool,
}

impl<'a> Unroll<'_, 'a> {
    fn list(&mut self, stmts: Vec<Stmt<'a>>) -> Result<Vec<Stmt<'a>>, FlattenError> {
        let mut all = Vec::with_capacity(stmts.len());
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => self.for_loop(l, &mut all)?,
                Stmt::If(mut branch) => {
                    for body in [&mut branch.then, &mut branch.otherwise] {
                        body.stmts = self.list(std::mem::take(&mut body.stmts))?;
                    }
                    all.push(Stmt::If(branch));
                }
                Stmt::Masked(mut masked) => {
                    masked.stmts = self.list(masked.stmts)?;
                    all.push(Stmt::Masked(masked));
                }
                Stmt::Copies(stmts) => all.push(Stmt::Copies(self.list(stmts)?)),
                Stmt::Block(_) | Stmt::Stores(_) | Stmt::Prefetch(_) => all.push(stmt),
                Stmt::Barrier | Stmt::CommitCopies | Stmt::WaitCopies(_) => all.push(stmt),
            }
        }
        Ok(all)
    }

    fn for_loop(&mut self, mut l: Loop<'a>, all: &mut Vec<Stmt<'a>>) -> Result<(), FlattenError> {
        match l.kind {
            LoopKind::Serial | LoopKind::Thread(_) => {
                self.around.push((l.var, l.begin.clone(), l.extent()));
                l.body.stmts = self.list(l.body.stmts)?;
                self.around.pop();
                all.push(Stmt::Loop(l));
            }
            LoopKind::Unrolled => {
                let n = self.constant_extent(&l, "unrolled")?;
                for i in 0..n {
                    let mut copy = l.body.stmts.clone();
                    substitute(&mut copy, l.var, &Expr::int(i));
                    all.extend(self.list(copy)?);
                }
            }
            LoopKind::Vectorized => {
                let n = self.constant_extent(&l, "vectorized")?;
                if self.in_vector {
                    let name = &self.nest.func.vars[l.var].name;
                    let reason = format!("vectorized loop `{name}` is inside another vectorized loop");
                    return Err(FlattenError::of(self.nest.func, "", reason));
                }
                if n == 1 {
                    substitute(&mut l.body.stmts, l.var, &Expr::int(0));
                    all.extend(self.list(l.body.stmts)?);
                } else if n > 1 {
                    self.in_vector = true;
                    l.body.stmts = self.list(l.body.stmts)?;
                    self.in_vector = false;
                    l.end = Expr::int(n);
                    all.push(Stmt::Loop(l));
                }
            }
        }
        Ok(())
    }

    /// The number of iterations of a loop that must have a constant one.
    fn constant_extent(&self, l: &Loop<'a>, kind: &str) -> Result<i64, FlattenError> {
        let extent = l.extent();
        if let Some(n) = extent.as_int() {
            return Ok(n);
        }
        let mut known = Known::in_task(self.nest);
        for (var, begin, extent) in &self.around {
            known.simplifier.bind_range(*var, begin.clone(), extent.clone());
        }
        known.simplify(&extent).as_int().ok_or_else(|| {
            let name = &self.nest.func.vars[l.var].name;
            FlattenError::of(self.nest.func, "", format!("{kind} loop `{name}` has no constant extent"))
        })
    }
}

/// Replaces a loop variable in statements.
pub(super) fn substitute(stmts: &mut [Stmt<'_>], var: Var, value: &Expr) {
    let replace = |e: &mut Expr| match e.as_var() {
        Some(own) if own == var => *e = value.clone(),
        Some(_) => {}
        None => *e = e.substitute_var(var, value),
    };
    for stmt in stmts {
        match stmt {
            Stmt::Loop(l) => {
                replace(&mut l.begin);
                replace(&mut l.end);
                l.body.fact.iter_mut().for_each(replace);
                substitute(&mut l.body.stmts, var, value);
            }
            Stmt::If(branch) => {
                replace(&mut branch.condition);
                for body in [&mut branch.then, &mut branch.otherwise] {
                    body.fact.iter_mut().for_each(replace);
                    substitute(&mut body.stmts, var, value);
                }
            }
            Stmt::Masked(masked) => {
                replace(&mut masked.mask);
                substitute(&mut masked.stmts, var, value);
            }
            Stmt::Block(block) => block.values.iter_mut().chain(&mut block.predicate).for_each(replace),
            Stmt::Stores(stores) => {
                for store in &mut stores.stores {
                    store.indices.iter_mut().chain([&mut store.value]).for_each(replace);
                }
            }
            Stmt::Prefetch(hint) => hint.for_each_expr_mut(replace),
            Stmt::Copies(stmts) => substitute(stmts, var, value),
            Stmt::Barrier | Stmt::CommitCopies | Stmt::WaitCopies(_) => {}
        }
    }
}
