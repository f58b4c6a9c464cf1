//! Which of several algorithms computes a function fastest, by an analytic model.
//!
//! The model counts the cycles of each block on one core: products by their register tile, other operations by the
//! ports they share, and bytes by how far away they lie. It is meant for choosing among variants of one function,
//! which share what it is rough about.

use rustc_hash::FxHashSet;
use tilewright_te::schedule::Schedule;
use tilewright_te::{Block, Expr, ExprKind, Func};

use crate::Context;
use crate::contraction;
use crate::pattern::constant_product;
use crate::transform::{self, is_transform};

/// Bytes a cycle that one core gets from beyond its second-level cache.
const FAR: f64 = 6.0;

/// How much of the shorter of two things that go on at the same time is not hidden by the longer.
const OVERLAP: f64 = 0.3;

/// Cycles of an access of a transform to memory: each is to another line, and far from the one before.
const SCATTERED: f64 = 8.0;

/// Cycles of a function whose producers are inlined and whose layouts are chosen, on one core. Nothing where extents
/// are open, or where the rules have no good schedule for it.
pub(crate) fn cycles(schedule: &Schedule, context: &Context<'_>) -> Option<f64> {
    let func = schedule.func();
    let temporaries: Vec<f64> = func
        .workspaces()
        .filter(|&buffer| func.blocks().iter().any(|b| b.body.iter().any(|s| s.buffer == buffer)))
        .map(|buffer| bytes(func, buffer))
        .collect::<Option<_>>()?;
    // Of what does not stay in the second level everything is written and read.
    let beyond = temporaries.iter().sum::<f64>() - 2.0 * context.target.machine.caches.l2 as f64;
    let blocks: Option<Vec<f64>> =
        func.blocks().into_iter().map(|block| block_cycles(schedule, context, block)).collect();
    Some(blocks?.iter().sum::<f64>() + 2.0 * beyond.max(0.0) / FAR)
}

fn block_cycles(schedule: &Schedule, context: &Context<'_>, block: &Block) -> Option<f64> {
    let iterations = constant_product(block.iters.iter().map(|i| &i.extent))? as f64;
    let lanes = f64::from(context.target.lanes(4).max(1));
    let ports = f64::from(context.target.machine.fma.per_cycle.max(1));
    if block.is_reduction() {
        let (cost, panel) = contraction::cost(schedule, context, block)?;
        let weights = panel.map_or(Some(0.0), |panel| bytes(schedule.func(), panel))?;
        let (products, stream) = (iterations / lanes * cost, weights / FAR);
        return Some(products.max(stream) + OVERLAP * products.min(stream));
    }
    if is_transform(block) && !transform::is_in_vectors(schedule, context, block) {
        return None;
    }
    let mut seen = FxHashSet::default();
    let (mut operations, mut n_loads) = (0.0, 0.0);
    for store in &block.body {
        count(&store.value, &mut seen, &mut operations, &mut n_loads);
    }
    let stores = block.body.len() as f64;
    let scattered = if is_transform(block) { SCATTERED * n_loads.max(stores) } else { 0.0 };
    Some(iterations / lanes * (scattered + (operations / ports).max(n_loads / 2.0).max(stores)))
}

fn bytes(func: &Func, buffer: tilewright_te::Buffer) -> Option<f64> {
    let data = &func.buffers[buffer];
    Some(constant_product(&data.shape)? as f64 * data.dtype.bytes() as f64)
}

/// Counts operations on floats and loads, those in common once.
fn count(e: &Expr, seen: &mut FxHashSet<Expr>, operations: &mut f64, n_loads: &mut f64) {
    if !seen.insert(e.clone()) {
        return;
    }
    match e.kind() {
        ExprKind::Load(..) => *n_loads += 1.0,
        _ => {
            let computes = e.dtype().is_float() && !matches!(e.kind(), ExprKind::Float(_) | ExprKind::Var(_));
            *operations += if computes { 1.0 } else { 0.0 };
            e.for_each_operand(|operand| count(operand, seen, operations, n_loads));
        }
    }
}
