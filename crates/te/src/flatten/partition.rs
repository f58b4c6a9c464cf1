//! Loops over elements of which some are padding: one loop for where there is none, and what is before and behind it.
//!
//! What pads selects between an element and a constant. Asked for each element, that costs several times what moving it does. Where the
//! selection changes is known before the loop: in between, all elements are there, or a condition that does not change in the loop is
//! asked once. Known as loop partitioning and loop unswitching; as in Halide it is done where only elements are moved or combined.

use tilewright_dtype::DType;

use super::FlattenError;
use super::emit::{Binding, Emitter};
use super::whole::Ends;
use crate::expr::{BinaryOp, CompareOp, Expr, ExprKind, Var};
use crate::func::{Block, Loop, LoopKind, Scope, Stmt};
use crate::schedule::tree;
use crate::simplify::Linear;

/// Copies of a block in one iteration up to which a loop is partitioned: code that is there several times should be short.
const MAX_COPIES: i64 = 8;

/// Conditions that parts of a loop are made for. Each that does not change in the loop doubles its code, and all that are left are asked
/// in each copy; what selects among more (a concatenation of many operands) is asked element by element.
const MAX_CONDITIONS: usize = 16;

/// How the conditions in a loop's body depend on its iterations.
#[derive(Default)]
struct Parts {
    /// Conditions that do not change in the loop.
    fixed: Vec<Expr>,
    /// Conditions that hold from an iteration on.
    from: Vec<(Expr, Expr)>,
    /// Conditions that hold before an iteration.
    until: Vec<(Expr, Expr)>,
}

impl Emitter<'_> {
    /// Emits a loop of several iterations, in parts where that decides what its body selects.
    pub(super) fn serial_loop(&mut self, l: &Loop, extent: &Expr) -> Result<(), FlattenError> {
        let Some(parts) = self.parts_of(l, extent) else {
            return self.counted_loop(l, &Expr::int(0), extent);
        };
        self.unswitched(l, extent, &parts, &parts.fixed)
    }

    /// Asks for conditions that do not change before the loop.
    fn unswitched(
        &mut self,
        l: &Loop,
        extent: &Expr,
        parts: &Parts,
        fixed: &[Expr],
    ) -> Result<(), FlattenError> {
        let Some((condition, rest)) = fixed.split_first() else { return self.in_parts(l, extent, parts) };
        let value = self.expr(condition)?;
        self.branch(
            value,
            |e| e.assuming(condition, |e| e.unswitched(l, extent, parts, rest)),
            |e| e.assuming(&negated(condition), |e| e.counted_loop(l, &Expr::int(0), extent)),
        )
    }

    /// Emits the iterations before those for which all conditions hold, those, and what is left.
    fn in_parts(&mut self, l: &Loop, extent: &Expr, parts: &Parts) -> Result<(), FlattenError> {
        let bounds = |conditions: &[(Expr, Expr)], op: BinaryOp, from: Expr| {
            conditions.iter().fold(from, |all, (_, at)| Expr::binary(op, all, at.clone()))
        };
        let begin = bounds(&parts.from, BinaryOp::Max, Expr::int(0));
        let begin = self.resolve(&Expr::binary(BinaryOp::Min, begin, extent.clone()));
        let end = bounds(&parts.until, BinaryOp::Min, extent.clone());
        let end = self.resolve(&Expr::binary(BinaryOp::Max, end, begin.clone()));
        // Of several conditions it is not known which one fails.
        let fails = |conditions: &[(Expr, Expr)]| match conditions {
            [(condition, _)] => negated(condition),
            _ => Expr::bool(true),
        };
        let all = tree::conjunction(parts.from.iter().chain(&parts.until).map(|(c, _)| c.clone()));
        self.part(l, &Expr::int(0), &begin, &fails(&parts.from))?;
        self.part(l, &begin, &end, &all.unwrap_or(Expr::bool(true)))?;
        self.part(l, &end, extent, &fails(&parts.until))
    }

    /// Emits some iterations of a loop, for which a condition holds.
    fn part(&mut self, l: &Loop, first: &Expr, end: &Expr, condition: &Expr) -> Result<(), FlattenError> {
        // What is known of the variable has to agree with the condition: anything follows from what cannot be.
        self.simplifier.bind_range(l.var, first.clone(), end.clone() - first.clone());
        self.assuming(condition, |e| e.counted_loop(l, first, end))
    }

    /// Emits what a condition holds for.
    pub(super) fn assuming(
        &mut self,
        condition: &Expr,
        body: impl FnOnce(&mut Self) -> Result<(), FlattenError>,
    ) -> Result<(), FlattenError> {
        let known = self.simplifier.n_facts();
        self.simplifier.assume(condition);
        let result = body(self);
        self.simplifier.forget_facts(known);
        result
    }

    /// What decides the selections in the body of a loop, if they can be decided: it must be an innermost one, whose blocks only move
    /// or combine elements.
    fn parts_of(&mut self, l: &Loop, extent: &Expr) -> Option<Parts> {
        if self.lane.is_some() || !l.prefetches.is_empty() {
            return None;
        }
        let mut conditions = Vec::new();
        let mut copies = 0;
        let mut inner = Vec::new();
        for stmt in &l.body {
            copies += self.copies(stmt, &mut inner)?;
            tree::for_each_block(std::slice::from_ref(stmt), &mut |block| {
                conditions.extend(selections(block));
            });
        }
        if conditions.is_empty() || conditions.len() > MAX_CONDITIONS || copies > MAX_COPIES {
            return None;
        }
        self.simplifier.bind_range(l.var, 0, extent.clone());
        self.bindings.remove(&l.var);
        let mut parts = Parts::default();
        for condition in conditions.iter().flat_map(tree::conjuncts) {
            let condition = self.resolve(&condition);
            let is_linear = |e: &Self, end: &Ends| {
                let difference = e.difference(&condition);
                difference.is_some_and(|difference| difference.affine_in(end.var).is_some())
            };
            if inner.iter().filter(|end| condition.uses(end.var)).all(|end| is_linear(self, end)) {
                for condition in self.at_ends(condition, &inner) {
                    self.add_part(l.var, condition, &mut parts);
                }
            }
        }
        let Parts { fixed, from, until } = &parts;
        (!fixed.is_empty() || !from.is_empty() || !until.is_empty()).then_some(parts)
    }

    /// How often the blocks of a statement are there in the code, and the loops inside, which are bound; nothing where it is more than
    /// moving and combining elements.
    fn copies(&mut self, stmt: &Stmt, inner: &mut Vec<Ends>) -> Option<i64> {
        match stmt {
            Stmt::Block(block) => {
                let keeps = |b| self.func.buffers[b].scope == Scope::Register;
                let moves = !block.is_reduction() && !block.body.iter().any(|store| keeps(store.buffer));
                moves.then_some(1)
            }
            Stmt::Loop(l) => {
                let extent = self.resolve(&l.extent).as_int()?;
                self.simplifier.bind_range(l.var, 0, extent);
                self.bindings.remove(&l.var);
                inner.push(Ends { var: l.var, last: extent - 1 });
                let copies: i64 = l.body.iter().map(|stmt| self.copies(stmt, inner)).sum::<Option<i64>>()?;
                match l.kind {
                    LoopKind::Unrolled => copies.checked_mul(extent),
                    LoopKind::Vectorized => Some(copies),
                    _ => (extent == 1).then_some(copies),
                }
            }
        }
    }

    /// The form that is at least 0 where a comparison of indices holds.
    fn difference(&self, condition: &Expr) -> Option<Linear> {
        let ExprKind::Compare(op, a, b) = condition.kind() else { return None };
        if a.dtype() != DType::I64 {
            return None;
        }
        let difference = match op {
            CompareOp::Lt => b.clone() - a.clone() - 1,
            CompareOp::Le => b.clone() - a.clone(),
            CompareOp::Gt => a.clone() - b.clone() - 1,
            CompareOp::Ge => a.clone() - b.clone(),
            CompareOp::Eq | CompareOp::Ne => return None,
        };
        Some(self.simplifier.linear(&difference))
    }

    /// Finds out from or until which iteration a condition holds, if that is all it depends on.
    fn add_part(&self, var: Var, condition: Expr, parts: &mut Parts) {
        let Some((times, rest)) = self.difference(&condition).and_then(|d| d.affine_in(var)) else { return };
        let rest = rest.to_expr();
        let is_open = |e: &Expr| match e.kind() {
            ExprKind::Var(var) => !matches!(self.bindings.get(var), Some(Binding::Scalar(_))),
            ExprKind::Load(..) => true,
            _ => false,
        };
        if rest.any(&mut |e| is_open(e)) {
            return;
        }
        let quotient = rest.floor_div(Expr::int(times.abs().max(1)));
        let (list, at) = match times {
            0 => {
                if !parts.fixed.contains(&condition) {
                    parts.fixed.push(condition);
                }
                return;
            }
            1.. => (&mut parts.from, Expr::int(0) - quotient),
            _ => (&mut parts.until, quotient + 1),
        };
        let at = self.resolve(&at);
        if !list.iter().any(|(_, other)| *other == at) {
            list.push((condition, at));
        }
    }
}

/// The conditions by which a block selects, over variables of loops.
fn selections(block: &Block) -> Vec<Expr> {
    let mut found = Vec::new();
    let value = |var| block.iters.iter().find(|iter| iter.var == var).map(|iter| iter.value.clone());
    let mut visit = |e: &Expr| {
        if let ExprKind::Select(condition, ..) = e.kind() {
            found.push(condition.substitute(&value));
        }
    };
    block.body.iter().for_each(|store| store.value.walk(&mut visit));
    found
}

/// The opposite of a comparison.
fn negated(condition: &Expr) -> Expr {
    let ExprKind::Compare(op, a, b) = condition.kind() else { return Expr::bool(true) };
    let op = match op {
        CompareOp::Lt => CompareOp::Ge,
        CompareOp::Le => CompareOp::Gt,
        CompareOp::Gt => CompareOp::Le,
        CompareOp::Ge => CompareOp::Lt,
        CompareOp::Eq => CompareOp::Ne,
        CompareOp::Ne => CompareOp::Eq,
    };
    Expr::compare(op, a.clone(), b.clone())
}
