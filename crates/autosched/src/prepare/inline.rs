//! Inlining: definitions that only move or combine elements become part of their consumers.

use tilewright_machine::Target;
use tilewright_te::schedule::Schedule;
use tilewright_te::{Block, Expr, ExprKind, Func, Iter, IterKind};

use crate::model::machine::{numbers, ports};
use crate::pattern::{constant_product, domain_simplifier, is_cheap, loads};

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
/// padded input of a convolution) keeps its own memory unless it is a mere copy.
pub(super) fn inline_producers(schedule: &mut Schedule, target: &Target) {
    let mut refused: Vec<String> = Vec::new();
    loop {
        let func = schedule.func();
        let candidate =
            schedule.blocks().into_iter().find(|b| !refused.contains(b) && should_inline(func, b, target));
        let Some(block) = candidate else { return };
        // A primitive that does not apply changes nothing: what its form does not allow keeps its memory.
        if schedule.compute_inline(&block).is_err() {
            refused.push(block);
        }
    }
}

fn should_inline(func: &Func, name: &str, target: &Target) -> bool {
    let Some(block) = func.block(name) else { return false };
    let [store] = &block.body[..] else { return false };
    if block.is_reduction() || func.params.contains(&store.buffer) || !block.init.is_empty() {
        return false;
    }
    let consumers = func.consumers(block);
    if consumers.is_empty() {
        return false;
    }
    let writers =
        func.blocks().into_iter().filter(|b| b.body.iter().any(|s| s.buffer == store.buffer)).count();
    if writers != 1 {
        return false;
    }
    if is_trivial(&store.value) {
        return !consumers.iter().all(|c| gathers_for_many(func, c, block, target));
    }
    let repeated = consumers.iter().any(|c| reads_repeatedly(c, block));
    let cheap = is_cheap(&store.value);
    match (consumers.len(), repeated) {
        (1, false) => true,
        (_, false) => cheap && n_loads(&store.value) <= 1,
        (_, true) => false,
    }
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
