//! Which of several algorithms computes a function fastest, by an analytic model.
//!
//! The model counts the cycles of each block on one core: products by their register tile, other operations by the
//! ports they share, and bytes by how far away they lie. It is meant for choosing among variants of one function,
//! which share what it is rough about.

use rustc_hash::FxHashSet;
use tilewright_te::schedule::Schedule;
use tilewright_te::{Block, Buffer, Expr, ExprKind, Func};

use crate::Context;
use crate::contraction;
use crate::pattern::constant_product;
use crate::sums::{self, Sums, Way};
use crate::transform::{self, is_transform};

/// Bytes a cycle that one core gets from beyond its second-level cache.
pub(crate) const FAR: f64 = 6.0;

/// How much of the shorter of two things that go on at the same time is not hidden by the longer.
const OVERLAP: f64 = 0.3;

/// Cycles of an access of a transform to memory: each is to another line, and far from the one before.
const SCATTERED: f64 = 8.0;

/// Cycles of a function whose producers are inlined and whose layouts are chosen, on one core. Nothing where extents
/// are open, or where the rules have no good schedule for it.
pub(crate) fn cycles(schedule: &Schedule, context: &Context<'_>) -> Option<f64> {
    let func = schedule.func();
    let writer = |buffer: Buffer| {
        let writes = |b: &&Block| b.body.iter().any(|store| store.buffer == buffer);
        func.blocks().into_iter().find(writes)
    };
    // What is summed in blocks stays in the cache, but the sums are stored with nothing to hide it.
    let mut bare = 0.0;
    let mut temporaries = 0.0;
    for buffer in func.workspaces() {
        let Some(block) = writer(buffer) else { continue };
        match sums::of(schedule, block).filter(|_| Sums::ways(context, block)[0].value == Way::InBlocks) {
            Some(sums) => bare += bytes(func, func.block(&sums.reader)?.body[0].buffer)?,
            None => temporaries += bytes(func, buffer)?,
        }
    }
    // Of what does not stay in the second level everything is written and read.
    let beyond = temporaries - 2.0 * context.target.machine.caches.l2 as f64;
    let blocks: Option<Vec<f64>> =
        func.blocks().into_iter().map(|block| block_cycles(schedule, context, block)).collect();
    Some(blocks?.iter().sum::<f64>() + 2.0 * (beyond.max(0.0) + bare) / FAR)
}

/// Bytes of a function's constants; those of open extents count for nothing.
pub(crate) fn constant_bytes(func: &Func, constant_inputs: &[bool]) -> f64 {
    let constants = func.params.iter().zip(constant_inputs).filter(|(_, is_constant)| **is_constant);
    constants.filter_map(|(&buffer, _)| bytes(func, buffer)).sum()
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
    let mut count = Count::default();
    for store in &block.body {
        count.add(&store.value, &mut seen);
    }
    let Count { operations, loads } = count;
    let stores = block.body.len() as f64;
    let scattered = match is_transform(block) && !transform::is_row_major(schedule, context, block) {
        true => SCATTERED * loads.max(stores),
        false => 0.0,
    };
    Some(iterations / lanes * (scattered + (operations / ports).max(loads / 2.0).max(stores)))
}

fn bytes(func: &Func, buffer: Buffer) -> Option<f64> {
    let data = &func.buffers[buffer];
    Some(constant_product(&data.shape)? as f64 * data.dtype.bytes() as f64)
}

/// Operations on floats and loads.
#[derive(Clone, Copy, Default)]
struct Count {
    operations: f64,
    loads: f64,
}

impl Count {
    /// Adds those of an expression, but for what was `seen`. Of alternatives the longer counts; what they have in common counts for the
    /// first.
    fn add(&mut self, e: &Expr, seen: &mut FxHashSet<Expr>) {
        if !seen.insert(e.clone()) {
            return;
        }
        match e.kind() {
            ExprKind::Load(..) => self.loads += 1.0,
            ExprKind::Select(condition, a, b) => {
                self.add(condition, seen);
                let [a, b] = [a, b].map(|arm| {
                    let mut count = *self;
                    count.add(arm, seen);
                    count
                });
                *self = if a.operations + a.loads < b.operations + b.loads { b } else { a };
            }
            _ => {
                let computes =
                    e.dtype().is_float() && !matches!(e.kind(), ExprKind::Float(_) | ExprKind::Var(_));
                self.operations += if computes { 1.0 } else { 0.0 };
                e.for_each_operand(|operand| self.add(operand, seen));
            }
        }
    }
}
