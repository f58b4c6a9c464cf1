//! `cache_inplace`: a copy of what a block reads and writes, for as long as a loop's iteration.

use serde::{Deserialize, Serialize};

use crate::expr::{Buffer, Expr};
use crate::func::{Block, Func, Iter, IterKind, Loop, Scope, Stmt, Store, VarKind};
use crate::schedule::bindings::check_kinds;
use crate::schedule::region::{Accesses, Span, guarded, region_of};
use crate::schedule::{Apply, ScheduleError, cache, tree};
use crate::simplify::Simplifier;

/// Lets a reduction without a start of its own accumulate, in each iteration of a loop, in a copy `BUFFER_SCOPE` of what it
/// touches of its result: a new block `BLOCK_load` fills it before, `BLOCK_store` writes it back after. So the partial sums of a
/// reduction whose steps are cut into blocks can be in registers within each block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheInplace {
    /// The block.
    pub block: String,
    /// The loop in each iteration of which the copy is made; nothing but the block is inside.
    pub loop_name: String,
    /// Where the copy lives.
    pub scope: Scope,
}

impl Apply for CacheInplace {
    const NAME: &'static str = "cache_inplace";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| ScheduleError::new(Self::NAME, &self.block, reason);
        let block_path = tree::find_block(func, Self::NAME, &self.block)?;
        let loop_path = tree::find_loop(func, Self::NAME, &self.loop_name)?;
        let Some(block) = tree::block_at(func, &block_path) else { return Ok(Vec::new()) };
        if !block_path.starts_with(&loop_path) {
            return Err(fail(format!("loop `{}` is not around the block", self.loop_name)));
        }
        if !block.init.is_empty() {
            return Err(fail("it has a start of its own; decompose the reduction".into()));
        }
        let buffers = tree::written(block);
        let &[buffer] = &buffers[..] else {
            return Err(fail(format!("the block writes {} buffers", buffers.len())));
        };
        if !tree::reads(block, buffer) {
            return Err(fail("it does not read what it writes".into()));
        }
        let Some(target) = tree::loop_at(func, &loop_path) else { return Ok(Vec::new()) };
        let mut inside = 0;
        tree::for_each_block(&target.body, &mut |_| inside += 1);
        if inside > 1 {
            return Err(fail(format!("another block is inside `{}`", self.loop_name)));
        }
        let simplifier = tree::simplifier_within(func, &[&loop_path[..], &[0]].concat(), &target.body);
        let mut conditions = block.predicate.iter().flat_map(tree::conjuncts);
        if !conditions.all(|condition| keeps_inside(func, &simplifier, block, buffer, &condition)) {
            return Err(fail("it runs under a condition".into()));
        }
        let Some(region) = region_of(func, &simplifier, &target.body, buffer, Accesses::All) else {
            return Ok(Vec::new());
        };
        // Each element of the result is written by one iteration of the data-parallel loops.
        let spatial =
            |l: &&&Loop| block.iters.iter().any(|i| i.kind == IterKind::Spatial && i.value.uses(l.var));
        let loops = tree::loops_above(func, &block_path);
        let touched = loops[loop_path.len()..].iter().filter(spatial);
        let touched = touched.fold(Expr::int(1), |n, l| n * l.extent.clone());
        let volume = region.iter().fold(Expr::int(1), |n, span| n * span.extent.clone());
        if simplifier.simplify(&touched) != simplifier.simplify(&volume) {
            return Err(fail(format!("what it touches in `{}` is no box", self.loop_name)));
        }
        // Loops inside may have no iterations where a copy is made.
        let running = tree::simplifier_running(func, &[&loop_path[..], &[0]].concat());
        let mut known = Known { simplifier, running };

        let copy = cache::duplicate(func, buffer, self.scope);
        if let Some(block) = tree::block_at_mut(func, &block_path) {
            cache::rename(block, buffer, copy);
        }
        let names = ["load", "store"].map(|what| func.unique_block_name(&format!("{}_{what}", self.block)));
        let load = region_copy(func, &mut known, &region, (buffer, copy), &names[0]);
        let store = region_copy(func, &mut known, &region, (copy, buffer), &names[1]);
        if let Some(l) = tree::loop_at_mut(func, &loop_path) {
            l.body.insert(0, load);
            l.body.push(store);
        }
        tree::normalize(func);
        check_kinds(func, &loop_path).map_err(fail)?;
        Ok(names.to_vec())
    }
}

/// Whether a condition leaves out nothing but elements outside of the buffer, which a copy leaves out too.
fn keeps_inside(
    func: &Func,
    simplifier: &Simplifier,
    block: &Block,
    buffer: Buffer,
    condition: &Expr,
) -> bool {
    let condition = simplifier.simplify(condition);
    let stores = block.body.iter().filter(|store| store.buffer == buffer);
    let mut indices = stores.flat_map(|store| store.indices.iter().zip(&func.buffers[buffer].shape));
    indices.any(|(index, extent)| {
        let iter = block.iters.iter().find(|iter| index.as_var() == Some(iter.var));
        iter.is_some_and(|iter| simplifier.simplify(&iter.value.clone().lt(extent.clone())) == condition)
    })
}

/// What is known where a copy stands.
struct Known {
    simplifier: Simplifier,
    /// Knows besides that the loops around have iterations.
    running: Simplifier,
}

/// A nest that copies a region of one buffer to the same place of another of its shape.
fn region_copy(
    func: &mut Func,
    known: &mut Known,
    region: &[Span],
    (from, to): (Buffer, Buffer),
    name: &str,
) -> Stmt {
    let domain = func.buffers[from].shape.clone();
    let (mut loops, mut iters, mut conditions) = (Vec::new(), Vec::new(), Vec::new());
    for (n, (span, extent)) in region.iter().zip(domain).enumerate() {
        let loop_var = tree::loop_var(func, &format!("{name}_ax{n}"));
        let var = func.add_var(&format!("{name}_v{n}"), VarKind::Iter);
        let (value, guards) = guarded(&known.simplifier, &span.min, &span.extent, &extent, loop_var);
        known.running.bind_range(loop_var, 0, span.extent.clone());
        conditions.extend(guards.into_iter().filter(|condition| !known.running.prove(condition)));
        loops.push((loop_var, span.extent.clone()));
        iters.push(Iter { var, extent, kind: IterKind::Spatial, value });
    }
    let indices: Vec<Expr> = iters.iter().map(|i| Expr::var(i.var)).collect();
    let value = func.load(from, indices.clone());
    let body = vec![Store { buffer: to, indices, value }];
    let predicate = tree::conjunction(conditions);
    let block = Block { name: name.to_string(), iters, predicate, init: Vec::new(), body };
    tree::nest(loops, Stmt::Block(Box::new(block)))
}
