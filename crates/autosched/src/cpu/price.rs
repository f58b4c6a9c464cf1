//! The price of a function: cycles on one core, by which its algorithm is chosen.
//!
//! The model counts the cycles of each block: products by their register tile, other operations by the
//! ports they share, and bytes by how far away they lie. It is meant for choosing among variants of one function,
//! which share what it is rough about.

use rustc_hash::FxHashSet;
use tilewright_machine::{Level, Numbers, Target};
use tilewright_te::{Block, Buffer, Expr, ExprKind, Func};

use crate::context::Context;
use crate::cpu::sums;
use crate::cpu::{Strategy, contraction, recurrence, window};
use crate::model::machine::{
    beyond_l2, copy_cycles, l1_room, l2_room, memory_cycles, numbers, overlapped, ports,
};
use crate::model::sums::{Way, ways};
use crate::pattern::{AccessInfo, Stride, bytes_of, domain_simplifier, iterations, loads, stride};
use crate::transforms::{is_in_vectors, is_row_major, is_transform};
use crate::turns::{Nest, kept_bytes, local_buffers, takes_turns, uses};

/// What is taken for an open extent where an algorithm is chosen: images are seldom much shorter, and with longer ones the algorithms compare
/// alike.
pub(crate) const OPEN: i64 = 64;

/// Cycles of a prepared function on one core, by extents that stand for those that are open in `known`. Nothing where the rules have no good
/// strategy for it.
pub(crate) fn price(context: &Context<'_>, known: &Func) -> Option<f64> {
    let context = &Context { func: known, ..*context };
    let func = context.func;
    let writer = |buffer: Buffer| {
        let writes = |b: &&Block| b.body.iter().any(|store| store.buffer == buffer);
        func.blocks().into_iter().find(writes)
    };
    // What is summed in blocks stays in the cache, but the sums are stored with nothing to hide it.
    let mut bare = 0.0;
    let mut temporaries = 0.0;
    let handed = Handed::of(context)?;
    for buffer in func.workspaces().filter(|&buffer| !handed.local.contains(&func.buffers[buffer].name)) {
        let Some(block) = writer(buffer) else { continue };
        let in_blocks = || ways(context.target, sums::products(block))[0].value == Way::InBlocks;
        match sums::of(context, block).filter(|_| in_blocks()) {
            Some(sums) => bare += bytes(func, func.block(&sums.reader)?.body[0].buffer)?,
            None => temporaries += bytes(func, buffer)?,
        }
    }
    // Of what does not stay in L2 everything is written and read.
    let beyond = temporaries - 2.0 * context.target.machine.caches.l2 as f64;
    let blocks: Option<Vec<f64>> =
        func.blocks().into_iter().map(|block| block_cycles(context, block)).collect();
    let streamed =
        spilled_cycles(context.target, temporaries, beyond) + memory_cycles(context.target, 2.0 * bare);
    Some(blocks?.iter().sum::<f64>() + streamed + handed.cycles)
}

/// The temporaries that blocks of a loop hand to one another and nobody else.
struct Handed {
    /// Those that tasks have on their stack.
    local: FxHashSet<String>,
    /// Cycles in which each block brings the others, for which there is no room in L1, from L2 or there.
    cycles: f64,
}

impl Handed {
    fn of(context: &Context<'_>) -> Option<Handed> {
        let Context { func, target, .. } = *context;
        let mut handed = Handed { local: FxHashSet::default(), cycles: 0.0 };
        for block in func.blocks() {
            let nest = Nest::of(func, block);
            if nest.shared.is_empty() {
                continue;
            }
            let local = local_buffers(context, block, &nest, l1_room(target) as i64);
            let all = local_buffers(context, block, &nest, i64::MAX);
            // Of what turns use again and again L1 keeps less, the more there is of it.
            let missing = (kept_bytes(func, &nest) as f64 / l1_room(target) - 1.0).clamp(0.0, 1.0);
            for buffer in block.body.iter().map(|store| store.buffer) {
                let name = &func.buffers[buffer].name;
                let far = match (all.contains(name), local.contains(name)) {
                    (true, true) => missing,
                    (true, false) => 1.0,
                    (false, _) => continue,
                };
                let users = func.blocks().into_iter().filter(|other| uses(other, buffer)).count();
                let bytes = iterations(block)? as f64 * func.buffers[buffer].dtype.bytes() as f64;
                let lines = bytes / target.machine.caches.line as f64;
                handed.cycles += lines * users as f64 * far * numbers(target).l2.line_cycles;
            }
            handed.local.extend(local);
        }
        Some(handed)
    }
}

/// Cycles in which the part of temporaries that is `beyond` L2 is written and read: in L3, if all of them stay there, else in memory.
fn spilled_cycles(target: &Target, temporaries: f64, beyond: f64) -> f64 {
    let lines = 2.0 * beyond.max(0.0) / target.machine.caches.line as f64;
    let Numbers { l3, memory, .. } = numbers(target);
    let stays = |l3: &&Level| temporaries <= l3.usable * target.machine.caches.l3 as f64;
    lines * l3.as_ref().filter(stays).unwrap_or(memory).line_cycles
}

/// Cycles of a strategy by the model; nothing where it has no price for what the strategy decides on.
pub(crate) fn cost(context: &Context<'_>, strategy: &Strategy) -> Option<f64> {
    match strategy {
        Strategy::Contraction(strategy) => contraction::cost(context, strategy),
        Strategy::Window(strategy) => window::cost(context, strategy),
        Strategy::Elementwise(strategy) => {
            let block = context.func.block(&strategy.block)?;
            Some(block_cycles(context, block)? + handed_on(context, block)?)
        }
        Strategy::Rows(_)
        | Strategy::Recurrence(_)
        | Strategy::Reduction(_)
        | Strategy::Transform(_)
        | Strategy::Plain { .. } => None,
    }
}

/// Cycles in which a temporary that a block writes goes to where all tasks read it, and comes back from there.
fn handed_on(context: &Context<'_>, block: &Block) -> Option<f64> {
    let Context { func, target, .. } = *context;
    let buffer = block.body.first()?.buffer;
    if !func.workspaces().any(|workspace| workspace == buffer) {
        return Some(0.0);
    }
    let bytes = bytes(func, buffer)?;
    let level = if bytes > l2_room(target) { beyond_l2(target) } else { &numbers(target).l2 };
    Some(2.0 * bytes / target.machine.caches.line as f64 * level.line_cycles)
}

fn block_cycles(context: &Context<'_>, block: &Block) -> Option<f64> {
    let Context { func, layouts, target, .. } = *context;
    let iterations = iterations(block)? as f64;
    let lanes = f64::from(target.lanes(4).max(1));
    if let Some(cycles) = recurrence::step_cycles(context, block) {
        return Some(iterations / lanes * cycles);
    }
    if block.is_reduction() && !takes_turns(func, block) {
        let contraction::Price { step, constant_panel, copied } = contraction::price(context, block)?;
        let bytes = |buffer: Option<Buffer>| buffer.map_or(Some(0.0), |buffer| bytes(func, buffer));
        let streamed = memory_cycles(target, bytes(constant_panel)?);
        return Some(
            overlapped(target, iterations / lanes * step, streamed) + copied_cycles(target, bytes(copied)?),
        );
    }
    if is_transform(block) && !is_in_vectors(func, layouts, target, block) {
        return None;
    }
    let mut seen = FxHashSet::default();
    let mut count = Count::default();
    for store in &block.body {
        count.add(&store.value, &mut seen);
    }
    let Count { operations, loads } = count;
    let stores = block.body.len() as f64;
    // Vectors of one line come one after the other: the first of them alone waits for it.
    let line = target.machine.caches.line as f64;
    let of_line =
        numbers(target).core.scattered_cycles * (f64::from(target.vector_bits() / 8) / line).min(1.0);
    let is_scattered = is_transform(block) && !is_row_major(func, layouts, block);
    let far_apart = if is_scattered { loads.max(stores) } else { 0.0 };
    let scattered = of_line * (far_apart + lanes * strided_loads(context, block));
    let core = &numbers(target).core;
    let moved = (loads / core.loads_per_cycle).max(stores / core.stores_per_cycle);
    let busiest = (operations / ports(target)).max(moved);
    Some(iterations / lanes * (scattered + busiest))
}

/// Cycles of a copy of so many bytes, which go to where all tasks read them.
fn copied_cycles(target: &Target, bytes: f64) -> f64 {
    let level = if bytes > l2_room(target) { beyond_l2(target) } else { &numbers(target).l2 };
    bytes / f64::from(target.vector_bits() / 8) * copy_cycles(target, Some(level))
}

/// How many of its loads a data-parallel block makes element by element, because they do not lie along the vectors that it writes: a
/// row-major image that is brought into channel blocks, or channel blocks that are brought into a row-major image. What it reads
/// several times, as transforms do, it loads once.
fn strided_loads(context: &Context<'_>, block: &Block) -> f64 {
    let Context { func, layouts, .. } = *context;
    let Some(store) = block.body.first() else { return 0.0 };
    let blocked = |buffer: Buffer| {
        layouts.of(func, buffer).and_then(|pieces| pieces.last()).filter(|piece| piece.factor.is_some())
    };
    // What vectors of a buffer lie along.
    let lane = |buffer: Buffer, indices: &[Expr]| match blocked(buffer) {
        Some(piece) => indices.get(piece.dim)?.as_var(),
        None => indices.last()?.as_var(),
    };
    let Some(var) = lane(store.buffer, &store.indices) else { return 0.0 };
    let simplifier = domain_simplifier(func, block);
    let writes_blocks = blocked(store.buffer).is_some();
    let is_strided = |access: &&AccessInfo| match (writes_blocks, blocked(access.buffer).is_some()) {
        (true, false) => {
            !matches!(stride(func, &simplifier, access, var), Stride::Zero | Stride::Constant(1))
        }
        (false, true) => access.uses(var) && lane(access.buffer, &access.indices) != Some(var),
        (true, true) | (false, false) => false,
    };
    let different: FxHashSet<AccessInfo> = loads(block).into_iter().collect();
    different.iter().filter(is_strided).count() as f64
}

fn bytes(func: &Func, buffer: Buffer) -> Option<f64> {
    bytes_of(func, buffer).map(|bytes| bytes as f64)
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
