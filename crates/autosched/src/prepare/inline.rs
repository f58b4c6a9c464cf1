//! Inlining: definitions that only move or combine elements become part of their consumers.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use tilewright_machine::Target;
use tilewright_te::schedule::Schedule;
use tilewright_te::{Block, Buffer, Expr, ExprKind, Func, Iter, IterKind};

use crate::model::machine::{numbers, ports};
use crate::pattern::{AccessInfo, Stride, constant_product, domain_simplifier, is_cheap, loads, stride};
use crate::turns::takes_turns;

/// Reads of each element of a copy of elements that lie apart from which on it pays: they take the products' ports longer than an access
/// takes that is near to no other.
fn least_reads(target: &Target) -> i64 {
    let lanes = f64::from(target.lanes(4));
    (numbers(target).core.scattered_cycles * lanes * ports(target)) as i64
}

/// Inlines every data-parallel temporary whose consumers would not repeat much work for it.
///
/// A temporary with one consumer is inlined where the consumer reads each element once, or where computing
/// it is cheap; one with several consumers only where it is cheap. What a reduction reads repeatedly (the
/// padded input of a convolution) keeps its own memory unless it is a mere copy. The first block in order that qualifies goes first;
/// only those are asked again that what was inlined concerns.
pub(super) fn inline_producers(schedule: &mut Schedule, target: &Target) {
    let mut flow = Flow::of(schedule.func());
    let mut open: BTreeSet<usize> = (0..flow.blocks.len()).collect();
    while let Some(at) = open.pop_first() {
        if flow.is_settled[at] || !flow.should_inline(schedule.func(), at, target) {
            continue;
        }
        flow.is_settled[at] = true;
        // A primitive that does not apply changes nothing: what its form does not allow keeps its memory.
        if schedule.compute_inline(&flow.blocks[at].name).is_ok() {
            let consumers = flow.consumers(at);
            flow.update(schedule.func(), at, &consumers);
            open.extend(consumers.iter().flat_map(|&consumer| flow.producers(consumer)));
            open.extend(consumers);
        }
    }
}

/// Which block reads what another one writes. Blocks go by their places in the function as it was.
struct Flow {
    blocks: Vec<Block>,
    /// Those that are inlined, or that cannot be.
    is_settled: Vec<bool>,
    writers: FxHashMap<Buffer, BTreeSet<usize>>,
    readers: FxHashMap<Buffer, BTreeSet<usize>>,
}

impl Flow {
    fn of(func: &Func) -> Flow {
        let blocks: Vec<Block> = func.blocks().into_iter().cloned().collect();
        let is_settled = vec![false; blocks.len()];
        let mut flow =
            Flow { blocks, is_settled, writers: FxHashMap::default(), readers: FxHashMap::default() };
        for (at, block) in flow.blocks.iter().enumerate() {
            for store in block.init.iter().chain(&block.body) {
                flow.writers.entry(store.buffer).or_default().insert(at);
            }
            for buffer in reads(block) {
                flow.readers.entry(buffer).or_default().insert(at);
            }
        }
        flow
    }

    /// The other blocks that read what a block writes, in order.
    fn consumers(&self, at: usize) -> BTreeSet<usize> {
        let buffers: BTreeSet<Buffer> = self.blocks[at].body.iter().map(|store| store.buffer).collect();
        let readers = buffers.iter().filter_map(|buffer| self.readers.get(buffer)).flatten();
        readers.copied().filter(|&reader| reader != at).collect()
    }

    /// The blocks that write what a block reads.
    fn producers(&self, at: usize) -> BTreeSet<usize> {
        reads(&self.blocks[at])
            .iter()
            .filter_map(|buffer| self.writers.get(buffer))
            .flatten()
            .copied()
            .collect()
    }

    /// Notes that the block at `inlined` is part of its consumers now.
    fn update(&mut self, func: &Func, inlined: usize, consumers: &BTreeSet<usize>) {
        for buffers in [&mut self.writers, &mut self.readers] {
            buffers.values_mut().for_each(|blocks| _ = blocks.remove(&inlined));
        }
        let changed = consumers.iter().map(|&at| (self.blocks[at].name.clone(), at));
        let changed: FxHashMap<String, usize> = changed.collect();
        for block in func.blocks() {
            let Some(&at) = changed.get(&block.name) else { continue };
            for buffer in reads(&self.blocks[at]) {
                self.readers.entry(buffer).or_default().remove(&at);
            }
            for buffer in reads(block) {
                self.readers.entry(buffer).or_default().insert(at);
            }
            self.blocks[at] = block.clone();
        }
    }

    fn should_inline(&self, func: &Func, at: usize, target: &Target) -> bool {
        let block = &self.blocks[at];
        let [store] = &block.body[..] else { return false };
        if block.is_reduction() || func.params.contains(&store.buffer) || !block.init.is_empty() {
            return false;
        }
        let consumers = self.consumers(at);
        if consumers.is_empty() || self.writers.get(&store.buffer).is_none_or(|writers| writers.len() != 1) {
            return false;
        }
        let mut consumers = consumers.iter().map(|&consumer| &self.blocks[consumer]);
        if is_trivial(&store.value) {
            return !consumers.all(|consumer| {
                gathers_for_many(func, consumer, block, target) || walks_across_again(func, consumer, block)
            });
        }
        let is_alone = consumers.len() == 1;
        (is_alone || is_cheap(&store.value) && n_loads(&store.value) <= 1)
            && !consumers.any(|consumer| reads_repeatedly(consumer, block))
    }
}

/// The buffers that a block reads.
fn reads(block: &Block) -> BTreeSet<Buffer> {
    let mut buffers = BTreeSet::new();
    block.for_each_expr(|e| {
        e.walk(&mut |x| {
            if let ExprKind::Load(buffer, _) = x.kind() {
                buffers.insert(*buffer);
            }
        });
    });
    buffers
}

/// A constant, an index, or one element of another buffer: never dearer than reading the temporary.
fn is_trivial(value: &Expr) -> bool {
    match value.kind() {
        ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Var(_) | ExprKind::Load(..) => true,
        ExprKind::Cast(a) | ExprKind::Bitcast(a) => is_trivial(a),
        ExprKind::Unary(..)
        | ExprKind::Binary(..)
        | ExprKind::Compare(..)
        | ExprKind::Select(..)
        | ExprKind::Fma(..) => false,
    }
}

/// Whether `producer` is a copy of elements that lie apart, of which `consumer`, a sum of products, reads each so often that having
/// them side by side pays for the copy: their lines hold nothing else, and loops over them may become one.
fn gathers_for_many(func: &Func, consumer: &Block, producer: &Block, target: &Target) -> bool {
    let [store] = &producer.body[..] else { return false };
    let ExprKind::Load(_, indices) = store.value.kind() else { return false };
    let simplifier = domain_simplifier(func, producer);
    let skips = |index: &Expr, iter: &Iter| {
        let next = index.substitute_var(iter.var, &(Expr::var(iter.var) + 1));
        simplifier.simplify(&(next - index.clone())).as_int().is_some_and(|step| step.abs() > 1)
    };
    let several = |iter: &&Iter| iter.extent.as_int() != Some(1);
    let lie_apart =
        indices.iter().any(|index| producer.iters.iter().filter(several).any(|iter| skips(index, iter)));
    let reads = loads(consumer);
    let mut reads = reads.iter().filter(|access| access.buffer == store.buffer);
    let (Some(read), None) = (reads.next(), reads.next()) else { return false };
    let sharing = consumer.iters.iter().filter(|i| !read.indices.iter().any(|e| e.uses(i.var)));
    let n_reads = constant_product(sharing.map(|i| &i.extent));
    lie_apart && consumer.is_reduction() && n_reads.is_some_and(|n| n >= least_reads(target))
}

/// Whether `producer` is a copy along which `consumer` walks, of what lies in another order, and `consumer` reads its elements several times:
/// each time it would gather them for its vectors.
fn walks_across_again(func: &Func, consumer: &Block, producer: &Block) -> bool {
    let [store] = &producer.body[..] else { return false };
    let ExprKind::Load(source, indices) = store.value.kind() else { return false };
    let several = |iter: &&Iter| iter.extent.as_int() != Some(1);
    let walks = |block: &Block, access: &AccessInfo| {
        let last = block.iters.iter().rfind(|iter| iter.kind == IterKind::Spatial && several(iter));
        last.map(|last| stride(func, &domain_simplifier(func, block), access, last.var))
    };
    let read_by_copy = AccessInfo { buffer: *source, indices: indices.clone() };
    let lies_across = walks(producer, &read_by_copy)
        .is_some_and(|stride| !matches!(stride, Stride::Zero | Stride::Constant(1)));
    let reads = loads(consumer);
    let mut reads = reads.iter().filter(|access| access.buffer == store.buffer);
    let (Some(read), None) = (reads.next(), reads.next()) else { return false };
    let is_again = |iter: &Iter| !read.indices.iter().any(|index| index.uses(iter.var));
    lies_across
        && (!consumer.is_reduction() || takes_turns(func, consumer))
        && consumer.iters.iter().filter(several).any(is_again)
        && walks(consumer, read) == Some(Stride::Constant(1))
}

fn n_loads(value: &Expr) -> usize {
    let mut n = 0;
    value.walk(&mut |e| n += matches!(e.kind(), ExprKind::Load(..)) as usize);
    n
}

/// Whether a consumer reads elements of what `producer` writes more than once: it iterates over a variable
/// on which the read element does not depend one to one.
fn reads_repeatedly(consumer: &Block, producer: &Block) -> bool {
    let Some(buffer) = producer.body.first().map(|s| s.buffer) else { return true };
    let reads: Vec<_> = loads(consumer).into_iter().filter(|a| a.buffer == buffer).collect();
    if reads.len() > 1 && reads.windows(2).any(|w| w[0].indices != w[1].indices) {
        return true;
    }
    let Some(read) = reads.first() else { return false };
    // Every variable of more than one value must appear, and a window (two variables in one index) overlaps.
    let missing = consumer
        .iters
        .iter()
        .any(|i| i.extent.as_int() != Some(1) && !read.indices.iter().any(|e| e.uses(i.var)));
    let window = read.indices.iter().any(|e| {
        let spatial = consumer.iters.iter().any(|i| i.kind == IterKind::Spatial && e.uses(i.var));
        let reduce = consumer
            .iters
            .iter()
            .any(|i| i.kind == IterKind::Reduce && i.extent.as_int() != Some(1) && e.uses(i.var));
        spatial && reduce
    });
    missing || window
}
