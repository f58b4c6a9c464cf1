//! Predicates of blocks become branches; where they tell the lanes of a vector apart, masks.
//!
//! Where the first and the last lane decide for all, the full vector runs unmasked behind a branch. The rest runs
//! masked, or lane by lane where what the block accesses cannot be masked. Bodies of blocks stay as they are.

use tilewright_dtype::DType;

use super::known::Known;
use super::nest::{self, Block, Body, If, Loop, LoopKind, Masked, Nest, Stmt};
use super::options::FlattenOptions;
use super::poly::Atoms;
use crate::expr::{BinaryOp, Buffer, CompareOp, Expr, ExprKind, Var};
use crate::func::{self, Func, Scope};

/// Turns the predicates of blocks into branches and masks. Unrolled loops must be gone.
pub fn mask_vectors(nest: &mut Nest<'_>, options: &FlattenOptions) {
    if nest::has_guards(&nest.body) {
        let mut pass = MaskVectors {
            func: nest.func,
            masked_access: options.masked_access,
            known: Known::in_task(nest),
            lane: None,
        };
        let body = std::mem::take(&mut nest.body);
        nest.body = pass.list(body);
    }
}

struct MaskVectors<'a> {
    func: &'a Func,
    masked_access: Option<u32>,
    known: Known,
    /// The vectorized loop around, with its lanes.
    lane: Option<(Var, i64)>,
}

impl<'a> MaskVectors<'a> {
    fn list(&mut self, stmts: Vec<Stmt<'a>>) -> Vec<Stmt<'a>> {
        let mut all = Vec::with_capacity(stmts.len());
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => all.push(Stmt::Loop(self.for_loop(l))),
                Stmt::If(If { condition, mut then, mut otherwise }) => {
                    let decided = self.known.simplify(&condition).as_int();
                    for body in [&mut then, &mut otherwise] {
                        let before = self.known.enter(body.fact.as_ref());
                        body.stmts = self.list(std::mem::take(&mut body.stmts));
                        self.known.leave(before);
                    }
                    match decided {
                        Some(0) => all.extend(otherwise.stmts),
                        Some(_) => all.extend(then.stmts),
                        None => all.push(Stmt::If(If { condition, then, otherwise })),
                    }
                }
                Stmt::Block(block) => self.block(block, &mut all),
                Stmt::Masked(_) | Stmt::Stores(_) | Stmt::Prefetch(_) | Stmt::Barrier => all.push(stmt),
                Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => all.push(stmt),
            }
        }
        all
    }

    fn for_loop(&mut self, mut l: Loop<'a>) -> Loop<'a> {
        let before = self.known.enter_loop(&l);
        let lane = match (l.kind, l.end.as_int()) {
            (LoopKind::Vectorized, Some(lanes)) => Some((l.var, lanes)),
            _ => self.lane,
        };
        let outer = std::mem::replace(&mut self.lane, lane);
        l.body.stmts = self.list(l.body.stmts);
        self.lane = outer;
        self.known.leave(before);
        l
    }

    fn block(&mut self, mut block: Block<'a>, all: &mut Vec<Stmt<'a>>) {
        let Some(predicate) = block.predicate.take() else { return all.push(Stmt::Block(block)) };
        let predicate = self.known.simplify(&predicate);
        match self.lane {
            Some(lane) if predicate.uses(lane.0) => self.partial_vector(block, predicate, lane, all),
            _ => guard(predicate, vec![Stmt::Block(block)], Vec::new(), all),
        }
    }

    /// A block of which only some lanes may run.
    fn partial_vector(&self, block: Block<'a>, predicate: Expr, lane: (Var, i64), all: &mut Vec<Stmt<'a>>) {
        if !is_convex(&predicate, lane.0) {
            return all.extend(self.some_lanes(block, predicate, lane));
        }
        let first = predicate.substitute_var(lane.0, &Expr::int(0));
        let last = predicate.substitute_var(lane.0, &Expr::int(lane.1 - 1));
        let all_lanes = first.and(last);
        let whole = Stmt::Block(block.clone());
        match all_lanes.as_int() {
            Some(1) => all.push(whole),
            _ => guard(all_lanes, vec![whole], self.some_lanes(block, predicate, lane), all),
        }
    }

    fn some_lanes(&self, block: Block<'a>, predicate: Expr, (var, lanes): (Var, i64)) -> Vec<Stmt<'a>> {
        if masks(self.func, block.source, self.masked_access) {
            return vec![Stmt::Masked(Masked { mask: predicate, stmts: vec![Stmt::Block(block)] })];
        }
        let mut all = Vec::new();
        for i in (0..lanes).map(Expr::int) {
            let here = self.known.simplify(&predicate.substitute_var(var, &i));
            let values = block.values.iter().map(|value| value.substitute_var(var, &i)).collect();
            let block = Block { source: block.source, values, predicate: None };
            guard(here, vec![Stmt::Block(block)], Vec::new(), &mut all);
        }
        all
    }
}

/// Some statements where a condition holds, else others.
fn guard<'a>(condition: Expr, then: Vec<Stmt<'a>>, otherwise: Vec<Stmt<'a>>, all: &mut Vec<Stmt<'a>>) {
    match condition.as_int() {
        Some(0) => all.extend(otherwise),
        Some(_) => all.extend(then),
        None => {
            let (then, otherwise) = (Body::new(then), Body::new(otherwise));
            all.push(Stmt::If(If { condition, then, otherwise }));
        }
    }
}

/// Whether the predicate, a conjunction of comparisons linear in the lane, holds for all lanes if it holds for the first
/// and the last.
fn is_convex(predicate: &Expr, lane: Var) -> bool {
    match predicate.kind() {
        ExprKind::Binary(BinaryOp::And, a, b) => is_convex(a, lane) && is_convex(b, lane),
        ExprKind::Compare(CompareOp::Ne, ..) => false,
        ExprKind::Compare(_, a, b) if a.dtype() == DType::I64 => {
            let mut atoms = Atoms::default();
            let difference = atoms.poly(&(a.clone() - b.clone()));
            difference.terms.keys().all(|product| {
                let mut using = product.iter().filter(|&&atom| atoms.uses(atom, lane));
                match (using.next(), using.next()) {
                    (None, _) => true,
                    (Some(&atom), None) => atoms.expr(atom).as_var() == Some(lane),
                    (Some(_), Some(_)) => false,
                }
            })
        }
        _ => !predicate.uses(lane),
    }
}

/// Whether a vector of a block of which some lanes are left out stays a vector, given [`FlattenOptions::masked_access`]: all that
/// the block loads and stores can be masked. What is computed lane by lane instead cannot be carried in vector registers.
pub fn masks(func: &Func, block: &func::Block, masked_access: Option<u32>) -> bool {
    let mut all =
        block.init.iter().chain(&block.body).all(|store| is_maskable(func, store.buffer, masked_access));
    block.for_each_expr(|e| {
        e.walk(&mut |x| {
            if let ExprKind::Load(buffer, _) = x.kind() {
                all &= is_maskable(func, *buffer, masked_access);
            }
        });
    });
    all
}

/// Whether loads and stores of a buffer's elements can be masked.
pub(super) fn is_maskable(func: &Func, buffer: Buffer, masked_access: Option<u32>) -> bool {
    let data = &func.buffers[buffer];
    data.scope == Scope::Register || masked_access.is_some_and(|least| data.dtype.bytes() as u32 >= least)
}
