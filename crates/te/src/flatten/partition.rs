//! Loops over elements of which some are padding: one loop for where there is none, and what is before and behind it.
//!
//! What pads selects between an element and a constant. Asked for each element, that costs several times what moving it
//! does. Where the selection changes is known before the loop: in between, all elements are there, or a condition that
//! does not change in the loop is asked once. Known as loop partitioning and loop unswitching; as in Halide it is done
//! where only elements are moved or combined.

use super::known::{Known, negated};
use super::nest::{self, Block, Body, If, Loop, LoopKind, Nest, Stmt};
use super::whole_tiles::{Ends, at_ends, is_linear};
use crate::expr::{BinaryOp, Expr, ExprKind, Var};
use crate::func::{Func, Scope};
use crate::schedule::tree;

/// Copies of a block in one iteration up to which a loop is partitioned: code that is there several times should be short.
const MAX_COPIES: i64 = 8;

/// Conditions that parts of a loop are made for, and branches around it for those that do not change in it. What selects among more (a
/// concatenation of many operands) is asked element by element.
const MAX_CONDITIONS: usize = 16;

/// Parts innermost loops whose blocks move or combine elements where what their values select is decided.
pub fn partition(nest: &mut Nest<'_>) {
    let mut selects = false;
    nest::for_each_block(&nest.body, &mut |block| selects = selects || !selections(block).is_empty());
    if selects {
        let open = nest.counters().map(|counter| counter.var).collect();
        let mut pass = Partition { func: nest.func, known: Known::in_task(nest), open };
        let body = std::mem::take(&mut nest.body);
        nest.body = pass.list(body);
    }
}

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

struct Partition<'a> {
    func: &'a Func,
    known: Known,
    /// Tasks and loops around.
    open: Vec<Var>,
}

impl<'a> Partition<'a> {
    fn list(&mut self, stmts: Vec<Stmt<'a>>) -> Vec<Stmt<'a>> {
        let mut all = Vec::with_capacity(stmts.len());
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => self.for_loop(l, &mut all),
                Stmt::If(mut branch) => {
                    for body in [&mut branch.then, &mut branch.otherwise] {
                        let before = self.known.enter(body.fact.as_ref());
                        body.stmts = self.list(std::mem::take(&mut body.stmts));
                        self.known.leave(before);
                    }
                    all.push(Stmt::If(branch));
                }
                Stmt::Block(_) | Stmt::Masked(_) | Stmt::Stores(_) | Stmt::Prefetch(_) => all.push(stmt),
                Stmt::Barrier | Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => all.push(stmt),
            }
        }
        all
    }

    fn for_loop(&mut self, mut l: Loop<'a>, all: &mut Vec<Stmt<'a>>) {
        if l.kind == LoopKind::Vectorized {
            return all.push(Stmt::Loop(l));
        }
        let extent = self.known.simplify(&l.extent());
        let several = l.kind == LoopKind::Serial && extent.as_int().is_none_or(|n| n > 1);
        if several && let Some(parts) = self.parts_of(&l, &extent) {
            let mut branches = MAX_CONDITIONS;
            return self.unswitched(&l, &extent, &parts, &mut branches, all);
        }
        let before = self.known.enter_loop(&l);
        self.open.push(l.var);
        l.body.stmts = self.list(std::mem::take(&mut l.body.stmts));
        self.open.pop();
        self.known.leave(before);
        all.push(Stmt::Loop(l));
    }

    /// Asks for conditions that do not change before the loop, in so many branches at most. Where one fails, others may still decide: what
    /// is concatenated is selected among several operands.
    fn unswitched(
        &mut self,
        l: &Loop<'a>,
        extent: &Expr,
        parts: &Parts,
        branches: &mut usize,
        all: &mut Vec<Stmt<'a>>,
    ) {
        let (Some(condition), 1..) = (parts.fixed.first(), *branches) else {
            return self.in_parts(l, extent, parts, all);
        };
        *branches -= 1;
        let mut branch = |fact: Expr| {
            let mut inside = Vec::new();
            let before = self.known.enter(Some(&fact));
            match self.parts_of(l, extent) {
                Some(parts) => self.unswitched(l, extent, &parts, branches, &mut inside),
                None => inside.push(Stmt::Loop(Loop { end: extent.clone(), ..l.clone() })),
            }
            self.known.leave(before);
            Body::under(fact, inside)
        };
        let [then, otherwise] = [condition.clone(), negated(condition)].map(&mut branch);
        all.push(Stmt::If(If { condition: condition.clone(), then, otherwise }));
    }

    /// The iterations before those for which all conditions hold, those, and what is left.
    fn in_parts(&mut self, l: &Loop<'a>, extent: &Expr, parts: &Parts, all: &mut Vec<Stmt<'a>>) {
        let bounds = |conditions: &[(Expr, Expr)], op: BinaryOp, from: Expr| {
            conditions.iter().fold(from, |all, (_, at)| Expr::binary(op, all, at.clone()))
        };
        let begin = bounds(&parts.from, BinaryOp::Max, Expr::int(0));
        let begin = self.known.simplify(&Expr::binary(BinaryOp::Min, begin, extent.clone()));
        let end = bounds(&parts.until, BinaryOp::Min, extent.clone());
        let end = self.known.simplify(&Expr::binary(BinaryOp::Max, end, begin.clone()));
        // Of several conditions it is not known which one fails.
        let fails = |conditions: &[(Expr, Expr)]| match conditions {
            [(condition, _)] => Some(negated(condition)),
            _ => None,
        };
        let inside = tree::conjunction(parts.from.iter().chain(&parts.until).map(|(c, _)| c.clone()));
        let mut part = |begin: Expr, end: Expr, fact: Option<Expr>| {
            if begin != end {
                let body = Body { fact, stmts: l.body.stmts.clone() };
                all.push(Stmt::Loop(Loop { begin, end, body, ..*l }));
            }
        };
        part(Expr::int(0), begin.clone(), fails(&parts.from));
        part(begin, end.clone(), inside);
        part(end, extent.clone(), fails(&parts.until));
    }

    /// What decides the selections in the body of a loop, if they can be decided: it must be an innermost one, whose
    /// blocks only move or combine elements.
    fn parts_of(&mut self, l: &Loop<'a>, extent: &Expr) -> Option<Parts> {
        if matches!(l.body.stmts.first(), Some(Stmt::Prefetch(_))) {
            return None;
        }
        let mut conditions = Vec::new();
        nest::for_each_block(&l.body.stmts, &mut |block| conditions.extend(selections(block)));
        conditions.retain(|condition| self.known.simplify(condition).as_int().is_none());
        let mut inner = Vec::new();
        let copies = self.copies(&l.body.stmts, &mut inner)?;
        if conditions.is_empty() || conditions.len() > MAX_CONDITIONS || copies > MAX_COPIES {
            return None;
        }
        self.known.simplifier.bind_range(l.var, 0, extent.clone());
        let mut parts = Parts::default();
        for condition in conditions.iter().flat_map(tree::conjuncts) {
            let condition = self.known.simplify(&condition);
            let mut used = inner.iter().filter(|end| condition.uses(end.var));
            if used.all(|end| is_linear(&self.known, &condition, end.var)) {
                for condition in at_ends(&self.known, condition, &inner.iter().collect::<Vec<_>>()) {
                    self.add_part(l.var, condition, &mut parts);
                }
            }
        }
        let Parts { fixed, from, until } = &parts;
        (!fixed.is_empty() || !from.is_empty() || !until.is_empty()).then_some(parts)
    }

    /// How often the blocks of statements are there in the code, and the loops inside, which are bound; nothing where
    /// there is more than moving and combining elements.
    fn copies(&mut self, stmts: &[Stmt<'a>], inner: &mut Vec<Ends>) -> Option<i64> {
        let mut sum = 0i64;
        for stmt in stmts {
            sum += match stmt {
                Stmt::Block(Block { source, .. }) => {
                    let keeps = |b| self.func.buffers[b].scope == Scope::Register;
                    let moves =
                        !source.is_reduction() && !source.body.iter().any(|store| keeps(store.buffer));
                    moves.then_some(1)?
                }
                Stmt::Loop(l) => {
                    let extent = self.known.simplify(&l.extent()).as_int()?;
                    self.known.bind(l);
                    inner.push(Ends { var: l.var, last: extent - 1 });
                    let copies = self.copies(&l.body.stmts, inner)?;
                    match l.kind {
                        LoopKind::Unrolled => copies.checked_mul(extent)?,
                        LoopKind::Vectorized => copies,
                        LoopKind::Serial => (extent == 1).then_some(copies)?,
                        LoopKind::Thread(_) => return None,
                    }
                }
                Stmt::If(branch) => {
                    self.copies(&branch.then.stmts, inner)? + self.copies(&branch.otherwise.stmts, inner)?
                }
                Stmt::Prefetch(_) => 0,
                Stmt::Masked(_) | Stmt::Stores(_) | Stmt::Barrier => return None,
                Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => return None,
            };
        }
        Some(sum)
    }

    /// Finds out from or until which iteration a condition holds, if that is all it depends on.
    fn add_part(&self, var: Var, condition: Expr, parts: &mut Parts) {
        let Some((times, rest)) = self.known.difference(&condition).and_then(|d| d.affine_in(var)) else {
            return;
        };
        let rest = rest.to_expr();
        let is_unknown = |e: &Expr| match e.kind() {
            ExprKind::Var(var) => !self.open.contains(var) && !self.func.sizes.contains(var),
            ExprKind::Load(..) => true,
            _ => false,
        };
        if rest.any(&mut |e| is_unknown(e)) {
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
        let at = self.known.simplify(&at);
        if !list.iter().any(|(_, other)| *other == at) {
            list.push((condition, at));
        }
    }
}

/// The conditions by which a block selects, over variables of loops.
fn selections(block: &Block<'_>) -> Vec<Expr> {
    let mut found = Vec::new();
    let mut visit = |e: &Expr| {
        if let ExprKind::Select(condition, ..) = e.kind() {
            found.push(condition.substitute(&|var| block.value_of(var)));
        }
    };
    block.source.body.iter().for_each(|store| store.value.walk(&mut visit));
    found
}
