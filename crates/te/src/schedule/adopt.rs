//! Conditions that producers take over from their consumers when a schedule is finished.
//!
//! While schedules change, a predicate says no more than that variables are in their domains. Of a producer inside of a consumer's fused
//! loops that is often a condition of another form than the consumer's, so that the two look as if one ran without the other. At the end
//! the producer gets the consumer's condition in place of those that follow from it.

use std::collections::BTreeSet;

use crate::expr::{Buffer, Expr, Var};
use crate::func::{Block, Func, LoopKind, Scope};
use crate::schedule::region::depends_on_data;
use crate::schedule::tree;

/// Gives the producers of what threads have for themselves, or share, the conditions of their consumers. Functions without threads are left as
/// they are.
pub(crate) fn adopt(func: &mut Func) {
    let mut has_threads = false;
    tree::for_each_loop(&func.body, &mut |l| has_threads |= matches!(l.kind, LoopKind::Thread(_)));
    if !has_threads {
        return;
    }
    let paths: Vec<tree::Path> = tree::blocks_with_paths(func).into_iter().map(|(path, _)| path).collect();
    // Consumers come after producers, and their conditions first.
    for path in paths.iter().rev() {
        if let Some(predicate) = tree::block_at(func, path).and_then(|block| adopted(func, path, block))
            && let Some(block) = tree::block_at_mut(func, path)
        {
            block.predicate = tree::conjunction(predicate);
        }
    }
}

/// The conjuncts of a block's predicate with its consumers' conditions, and without those that hold wherever the loops around run; nothing
/// where it stays.
fn adopted(func: &Func, path: &[usize], block: &Block) -> Option<Vec<Expr>> {
    let written: BTreeSet<Buffer> = block.body.iter().map(|store| store.buffer).collect();
    let is_local = |buffer: &Buffer| func.buffers[*buffer].scope != Scope::Global;
    let own = block.predicate.as_ref().map(tree::conjuncts)?;
    if !written.iter().all(is_local) {
        return None;
    }
    let loops: Vec<Var> = tree::loops_above(func, path).into_iter().map(|l| l.var).collect();
    let is_elsewhere = |var: Var| !loops.contains(&var) && !func.sizes.contains(&var);
    let is_around = |c: &Expr| !c.any(&mut |e| e.as_var().is_some_and(is_elsewhere) || depends_on_data(e));
    let consumes =
        |b: &Block| written.iter().any(|buffer| tree::reads(b, *buffer) && !tree::writes(b, *buffer));
    let mut common: Option<Vec<Expr>> = None;
    let mut domains: Vec<Expr> = Vec::new();
    for consumer in func.blocks().into_iter().filter(|b| consumes(b)) {
        let said = consumer.predicate.as_ref().map(tree::conjuncts).unwrap_or_default();
        // What is in its domain only under a condition of its own says nothing here.
        if said.iter().all(is_around) {
            for iter in consumer.iters.iter().filter(|iter| is_around(&iter.value)) {
                domains.push(iter.value.clone().ge(Expr::int(0)));
                domains.push(iter.value.clone().lt(iter.extent.clone()));
            }
        }
        common = Some(match common.take() {
            None => said,
            Some(known) => known.into_iter().filter(|condition| said.contains(condition)).collect(),
        });
    }
    let common: Vec<Expr> = common?.into_iter().filter(is_around).collect();
    // Several consumers hold all they say only together.
    let consumers = func.blocks().into_iter().filter(|b| consumes(b));
    let is_all =
        |b: &Block| b.predicate.iter().flat_map(tree::conjuncts).all(|condition| common.contains(&condition));
    if !consumers.into_iter().all(is_all) {
        domains.clear();
    }
    let mut simplifier = tree::simplifier_running(func, path);
    // What is known by the first round may change the form in which extents are met.
    for _ in 0..2 {
        common.iter().chain(&domains).for_each(|condition| simplifier.assume(condition));
    }
    let (implied, left): (Vec<Expr>, Vec<Expr>) =
        own.into_iter().filter(|c| !common.contains(c)).partition(|c| simplifier.prove(c));
    (!implied.is_empty()).then(|| common.into_iter().chain(left).collect())
}
