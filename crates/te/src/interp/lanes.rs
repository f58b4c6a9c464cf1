//! Which loop's iterations run as lanes.
//!
//! Running iterations of a loop in lock step is right where they do not communicate: for every buffer that
//! the loop writes, either each iteration touches elements of its own (some index is `step * lane + rest`
//! with the same outer part everywhere and an inner part narrower than the step), or the buffer is written
//! by a single store that no inner loop repeats and read by nothing, so that lane order is program order.
//!
//! An innermost reduction loop may run as lanes too, where every store of its block is a *fold*: the values
//! to accumulate are computed in lanes, and accumulated in order.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_dtype::DType;

use crate::expr::{BinaryOp, Buffer, Expr, ExprKind, Var};
use crate::func::{Block, IterKind, Loop, Stmt, Store};

use super::code::{LANES, Step};

/// Assumed extent of a loop whose extent is not a constant.
const TYPICAL_EXTENT: f64 = 48.0;

/// What one instruction costs next to one lane of it.
const DISPATCH: f64 = 24.0;

/// Replaces a block's iteration variables by their bindings.
pub(super) fn substitute_iters(block: &Block, expr: &Expr) -> Expr {
    let bound = |v: Var| block.iters.iter().find(|i| i.var == v).map(|i| i.value.clone());
    let mut memo = FxHashMap::default();
    substitute(expr, &bound, &mut memo)
}

fn substitute(e: &Expr, bound: &impl Fn(Var) -> Option<Expr>, memo: &mut FxHashMap<Expr, Expr>) -> Expr {
    if let Some(done) = memo.get(e) {
        return done.clone();
    }
    let result = match e.as_var() {
        Some(v) => bound(v).unwrap_or_else(|| e.clone()),
        None => e.map_operands(|operand| substitute(operand, bound, memo)),
    };
    memo.insert(e.clone(), result.clone());
    result
}

/// `e` as `step * var + rest`, if it is affine in `var`.
pub(super) fn affine_in(e: &Expr, var: Var) -> Option<(i64, Expr)> {
    if !e.uses(var) {
        return Some((0, e.clone()));
    }
    match e.kind() {
        ExprKind::Var(_) => Some((1, Expr::int(0))),
        ExprKind::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => {
            let ((s, x), (t, y)) = (affine_in(a, var)?, affine_in(b, var)?);
            let step = if *op == BinaryOp::Add { s.checked_add(t)? } else { s.checked_sub(t)? };
            Some((step, Expr::binary(*op, x, y)))
        }
        ExprKind::Binary(BinaryOp::Mul, a, b) => {
            let (factor, other) = match (a.as_int(), b.as_int()) {
                (Some(k), _) => (k, b),
                (_, Some(k)) => (k, a),
                _ => return None,
            };
            let (step, rest) = affine_in(other, var)?;
            Some((step.checked_mul(factor)?, rest * factor))
        }
        _ => None,
    }
}

/// A sum of integer multiples of variables and opaque terms, plus a constant.
#[derive(Clone, Default)]
struct Affine {
    terms: BTreeMap<usize, i64>,
    constant: i64,
}

/// Interns the terms of affine forms.
#[derive(Default)]
struct Terms(Vec<Expr>);

impl Terms {
    fn affine(&mut self, e: &Expr, scale: i64, into: &mut Affine) {
        match e.kind() {
            ExprKind::Int(value) => into.constant = into.constant.wrapping_add(value.wrapping_mul(scale)),
            ExprKind::Binary(BinaryOp::Add, a, b) => {
                self.affine(a, scale, into);
                self.affine(b, scale, into);
            }
            ExprKind::Binary(BinaryOp::Sub, a, b) => {
                self.affine(a, scale, into);
                self.affine(b, scale.wrapping_neg(), into);
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) if b.as_int().is_some() => {
                self.affine(a, scale.wrapping_mul(b.as_int().unwrap_or(1)), into);
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) if a.as_int().is_some() => {
                self.affine(b, scale.wrapping_mul(a.as_int().unwrap_or(1)), into);
            }
            _ => {
                let id = self.0.iter().position(|t| t == e).unwrap_or_else(|| {
                    self.0.push(e.clone());
                    self.0.len() - 1
                });
                *into.terms.entry(id).or_insert(0) += scale;
            }
        }
    }
}

/// The index part shared by all accesses that give lanes elements of their own.
#[derive(PartialEq)]
struct LaneKey {
    step: i64,
    outer: Vec<(usize, i64)>,
}

/// Accesses to one written buffer inside a loop.
#[derive(Default)]
struct Accesses {
    stores: usize,
    loads: usize,
    /// For each access its indices in terms of loop variables.
    indices: Vec<Vec<Expr>>,
}

/// Whether the iterations of `l` may run in lock step.
fn independent(l: &Loop) -> bool {
    let mut accesses: FxHashMap<Buffer, Accesses> = FxHashMap::default();
    let mut loads: Vec<(Buffer, Vec<Expr>)> = Vec::new();
    let mut inner: FxHashMap<Var, Option<i64>> = FxHashMap::default();
    if !collect(&l.body, l.var, &mut inner, &mut accesses, &mut loads) {
        return false;
    }
    for (buffer, indices) in loads {
        if let Some(a) = accesses.get_mut(&buffer) {
            a.loads += 1;
            a.indices.push(indices);
        }
    }
    accesses.values().all(|a| {
        let in_order = a.stores == 1 && a.loads == 0 && inner.is_empty();
        in_order || (0..a.indices[0].len()).any(|dim| separate(a, dim, l.var, &inner))
    })
}

/// Gathers what the statements access; false where the loop's variable decides control flow.
fn collect(
    stmts: &[Stmt],
    lane: Var,
    inner: &mut FxHashMap<Var, Option<i64>>,
    accesses: &mut FxHashMap<Buffer, Accesses>,
    loads: &mut Vec<(Buffer, Vec<Expr>)>,
) -> bool {
    for stmt in stmts {
        match stmt {
            Stmt::Loop(l) => {
                inner.insert(l.var, l.extent.as_int());
                if l.extent.uses(lane) || !collect(&l.body, lane, inner, accesses, loads) {
                    return false;
                }
            }
            Stmt::Block(block) => {
                let reduces_over = |i: &crate::func::Iter| i.kind == IterKind::Reduce && i.value.uses(lane);
                if !block.init.is_empty() && block.iters.iter().any(reduces_over) {
                    return false;
                }
                let mut seen = FxHashSet::default();
                for store in block.init.iter().chain(&block.body) {
                    let indices: Vec<Expr> =
                        store.indices.iter().map(|i| substitute_iters(block, i)).collect();
                    let entry = accesses.entry(store.buffer).or_default();
                    entry.stores += 1;
                    entry.indices.push(indices);
                    let value = substitute_iters(block, &store.value);
                    for e in store.indices.iter().map(|i| substitute_iters(block, i)).chain([value]) {
                        collect_loads(&e, &mut seen, loads);
                    }
                }
                if let Some(predicate) = &block.predicate {
                    collect_loads(predicate, &mut seen, loads);
                }
            }
        }
    }
    true
}

fn collect_loads(e: &Expr, seen: &mut FxHashSet<Expr>, loads: &mut Vec<(Buffer, Vec<Expr>)>) {
    if !seen.insert(e.clone()) {
        return;
    }
    if let ExprKind::Load(buffer, indices) = e.kind() {
        loads.push((*buffer, indices.clone()));
    }
    e.for_each_operand(|operand| collect_loads(operand, seen, loads));
}

/// Whether the indices along `dim` give each lane elements of its own.
fn separate(a: &Accesses, dim: usize, lane: Var, inner: &FxHashMap<Var, Option<i64>>) -> bool {
    let mut terms = Terms::default();
    let mut key: Option<LaneKey> = None;
    let (mut lowest, mut highest) = (i64::MAX, i64::MIN);
    for indices in &a.indices {
        let mut form = Affine::default();
        terms.affine(&indices[dim], 1, &mut form);
        let mut this = LaneKey { step: 0, outer: Vec::new() };
        let (mut low, mut high) = (form.constant, form.constant);
        for (&id, &factor) in &form.terms {
            let term = &terms.0[id];
            if term.as_var() == Some(lane) {
                this.step = factor;
            } else if term.uses(lane) {
                return false;
            } else if inner.keys().any(|v| term.uses(*v)) {
                let extent = term.as_var().and_then(|v| inner.get(&v).copied().flatten());
                let Some(span) = extent.and_then(|e| factor.checked_mul((e - 1).max(0))) else {
                    return false;
                };
                low += span.min(0);
                high += span.max(0);
            } else if factor != 0 {
                this.outer.push((id, factor));
            }
        }
        if this.step == 0 || key.as_ref().is_some_and(|k| *k != this) {
            return false;
        }
        lowest = lowest.min(low);
        highest = highest.max(high);
        key = Some(this);
    }
    key.is_some_and(|k| highest - lowest < k.step.abs())
}

/// The value that a store accumulates into its element, as operands of a step.
pub(super) struct FoldParts {
    pub(super) step: Step,
    pub(super) values: [Expr; 2],
}

/// A store of `element step value`, with nothing else of the element in it.
pub(super) fn fold_parts(store: &Store) -> Option<FoldParts> {
    let foldable = matches!(store.value.dtype(), DType::F32 | DType::F64 | DType::I32 | DType::I64);
    let is_element = |e: &Expr| match e.kind() {
        ExprKind::Load(buffer, indices) => *buffer == store.buffer && *indices == store.indices,
        _ => false,
    };
    let parts = match store.value.kind() {
        ExprKind::Binary(op, a, b) => {
            use BinaryOp::*;
            match op {
                Add | Mul | Min | Max | And | Or | Xor | Sub => {}
                Div | Rem | FloorDiv | FloorMod | Shl | Shr | Pow | Atan2 | Fmod => return None,
            }
            if is_element(a) {
                FoldParts { step: Step::Binary(*op, true), values: [b.clone(), b.clone()] }
            } else if is_element(b) {
                FoldParts { step: Step::Binary(*op, false), values: [a.clone(), a.clone()] }
            } else {
                return None;
            }
        }
        ExprKind::Fma(a, b, c) if is_element(c) => {
            FoldParts { step: Step::Fma, values: [a.clone(), b.clone()] }
        }
        _ => return None,
    };
    foldable.then_some(parts)
}

/// Whether the loop's iterations can be folded: its body is one block without predicate whose stores are
/// folds into elements that the loop does not move, and whose first step is that of the first lane.
fn foldable(l: &Loop) -> bool {
    let [Stmt::Block(block)] = l.body.as_slice() else { return false };
    let written: FxHashSet<Buffer> = block.body.iter().map(|s| s.buffer).collect();
    let fixed = |store: &Store| store.indices.iter().all(|i| !substitute_iters(block, i).uses(l.var));
    let independent = |store: &Store| {
        fold_parts(store).is_some_and(|parts| {
            let (mut seen, mut loads) = (FxHashSet::default(), Vec::new());
            parts.values.iter().for_each(|value| collect_loads(value, &mut seen, &mut loads));
            loads.iter().all(|(buffer, _)| !written.contains(buffer))
        })
    };
    // Steps forward from a first lane that is not negative: only that one can be the reduction's first.
    let forward =
        block.iters.iter().all(|iter| affine_in(&iter.value, l.var).is_some_and(|(step, _)| step >= 0));
    block.predicate.is_none()
        && forward
        && written.len() == block.body.len()
        && block.init.iter().all(fixed)
        && block.body.iter().all(|store| fixed(store) && independent(store))
}

/// Loops to run as lanes.
#[derive(Default)]
pub(super) struct Chosen {
    /// For every path from the root to a block at most one.
    pub(super) lanes: FxHashSet<Var>,
    /// Those of them whose block folds.
    pub(super) folds: FxHashSet<Var>,
}

/// The loops under `stmt` to run as lanes.
pub(super) fn choose_lanes(stmt: &Stmt) -> Chosen {
    let mut chosen = Chosen::default();
    plan(stmt, &mut chosen);
    chosen
}

/// Adds the best choice below `stmt` to `chosen` and returns its cost.
fn plan(stmt: &Stmt, chosen: &mut Chosen) -> f64 {
    let Stmt::Loop(l) = stmt else { return DISPATCH };
    let extent = l.extent.as_int().map_or(TYPICAL_EXTENT, |e| e as f64);
    let mut below = Chosen::default();
    let serial = 2.0 + extent * l.body.iter().map(|s| plan(s, &mut below)).sum::<f64>();
    let active = extent.clamp(1.0, LANES as f64);
    let chunks = (extent / LANES as f64).ceil().max(1.0);
    let as_lanes = chunks * l.body.iter().map(|s| lane_cost(s, l.var, active)).sum::<f64>();
    if extent > 1.0 && as_lanes < serial && independent(l) {
        chosen.lanes.insert(l.var);
        return as_lanes;
    }
    let as_fold = chunks * (DISPATCH + 4.0 * active);
    if extent > 1.0 && as_fold < serial && foldable(l) {
        chosen.lanes.insert(l.var);
        chosen.folds.insert(l.var);
        return as_fold;
    }
    chosen.lanes.extend(below.lanes);
    chosen.folds.extend(below.folds);
    serial
}

/// Cost of a statement for all active lanes of `lane`.
fn lane_cost(stmt: &Stmt, lane: Var, active: f64) -> f64 {
    match stmt {
        Stmt::Loop(l) => {
            let extent = l.extent.as_int().map_or(TYPICAL_EXTENT, |e| e as f64);
            2.0 + extent * l.body.iter().map(|s| lane_cost(s, lane, active)).sum::<f64>()
        }
        Stmt::Block(block) => {
            // Strided accesses cost about three times the contiguous ones.
            let strided = block.body.iter().any(|store| {
                let last = store.indices.len().wrapping_sub(1);
                store.indices.iter().enumerate().any(|(n, index)| {
                    let index = substitute_iters(block, index);
                    match affine_in(&index, lane) {
                        Some((step, _)) => step != 0 && (n != last || step != 1),
                        None => true,
                    }
                })
            });
            DISPATCH + active * if strided { 3.0 } else { 1.0 }
        }
    }
}
