//! `compute_inline`: a producer's expression in place of loads of its result.

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::{Block, Func, Store};
use crate::schedule::bindings::check_kinds;
use crate::schedule::{Apply, ScheduleError, tree};

/// Nodes of an expression, as a tree, from which on equal sub-expressions are looked for and shared: every use of a value would
/// else bring a copy of all that it is computed from.
const SHARED_FROM: u32 = 1 << 10;

/// Nodes that an expression may have as a tree: its text would be longer than anyone reads, and what takes shared nodes for
/// several would not end.
const MAX_NODES: u32 = 1 << 16;

/// Nodes that a value may have as a tree which is read at several places. Each of its readers would be as large, and what reads
/// several of these as large as all: without this, one of each such group would be refused further on.
const MAX_REPEATED: u32 = MAX_NODES >> 3;

/// Replaces every load of what a data-parallel block computes by the computation; the block disappears. Where an expression
/// would get more than 65,536 nodes it fails, and where more than 8,192 would be at several places.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComputeInline {
    /// The producer.
    pub block: String,
}

/// The only store of a data-parallel block without a start, or why there is none.
pub(crate) fn single_store(block: &Block) -> Result<&Store, String> {
    if block.is_reduction() || !block.init.is_empty() {
        return Err(format!("`{}` is a reduction", block.name));
    }
    match &block.body[..] {
        [store] => Ok(store),
        stores => Err(format!("`{}` has {} stores", block.name, stores.len())),
    }
}

/// For each index, the iteration variable it is; constant indices give `None`.
pub(crate) fn plain_indices(block: &Block, indices: &[Expr]) -> Result<Vec<Option<Var>>, String> {
    let mut seen = Vec::new();
    for index in indices {
        match (index.as_var(), index.as_int()) {
            (Some(var), _) if seen.contains(&Some(var)) => {
                return Err(format!("`{}` uses an iteration variable for two indices", block.name));
            }
            (Some(var), _) => seen.push(Some(var)),
            (None, Some(_)) => seen.push(None),
            (None, None) => {
                return Err(format!("an index of `{}` is not a plain iteration variable", block.name));
            }
        }
    }
    Ok(seen)
}

/// How many different expressions read a buffer.
fn n_reads(func: &Func, buffer: Buffer) -> usize {
    let mut n = 0;
    for block in func.blocks() {
        block.for_each_expr(|e| {
            e.walk(&mut |x| n += usize::from(matches!(x.kind(), ExprKind::Load(b, _) if *b == buffer)));
        });
    }
    n
}

/// Whether all loops may still run as they do: what a block was the last to use in a loop is used elsewhere now.
fn check_all_kinds(func: &Func) -> Result<(), String> {
    let blocks = tree::blocks_with_paths(func);
    blocks.iter().try_for_each(|(path, _)| check_kinds(func, &path[..path.len() - 1]))
}

impl Apply for ComputeInline {
    const NAME: &'static str = "compute_inline";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| ScheduleError::new(Self::NAME, &self.block, reason);
        let path = tree::find_block(func, Self::NAME, &self.block)?;
        let Some(block) = tree::block_at(func, &path).cloned() else { return Ok(Vec::new()) };
        let store = single_store(&block).map_err(fail)?.clone();
        let buffer = store.buffer;
        if func.params.contains(&buffer) {
            return Err(fail("its result is a parameter of the function".into()));
        }
        if tree::reads(&block, buffer) {
            return Err(fail("it reads what it writes".into()));
        }
        if super::prefetch::is_prefetched(&func.body, buffer) {
            return Err(fail("its result is prefetched".into()));
        }
        let places = plain_indices(&block, &store.indices).map_err(fail)?;
        let unbound = |e: &Expr| e.as_var().filter(|v| block.iters.iter().any(|i| i.var == *v));
        let mut free = None;
        store.value.walk(&mut |e| free = free.or(unbound(e).filter(|v| !places.contains(&Some(*v)))));
        if let Some(var) = free {
            return Err(fail(format!(
                "its value depends on `{}`, which is not an index",
                func.vars[var].name
            )));
        }
        for (dim, place) in places.iter().enumerate() {
            if place.is_none() && func.buffers[buffer].shape[dim].as_int() != Some(1) {
                return Err(fail(format!("it writes only a part of dimension {dim}")));
            }
        }
        if let Some(other) = func.blocks().iter().find(|b| b.name != self.block && tree::writes(b, buffer)) {
            return Err(fail(format!("`{}` writes the same buffer", other.name)));
        }
        if store.value.n_nodes() > MAX_REPEATED && n_reads(func, buffer) > 1 {
            return Err(fail(format!("more than {MAX_REPEATED} nodes would be at several places")));
        }
        tree::remove(func, &path);
        let inline = |e: &Expr| {
            e.rewrite(&mut |x| match x.kind() {
                ExprKind::Load(b, indices) if *b == buffer => Some(store.value.substitute(&|v| {
                    places.iter().position(|p| *p == Some(v)).map(|dim| indices[dim].clone())
                })),
                _ => None,
            })
        };
        let mut known = FxHashSet::default();
        let mut largest = 0;
        let mut inline_shared = |e: &Expr| {
            let inlined = inline(e);
            largest = largest.max(inlined.n_nodes());
            if inlined.n_nodes() < SHARED_FROM || inlined.same(e) {
                inlined
            } else {
                inlined.share(&mut known)
            }
        };
        tree::for_each_block_mut(&mut func.body, &mut |b| b.map_exprs(&mut inline_shared));
        if largest > MAX_NODES {
            return Err(fail(format!("an expression would have more than {MAX_NODES} nodes")));
        }
        for read in tree::read_buffers(&block) {
            if let Some(tasks) = tree::escaped(func, read) {
                let name = &func.buffers[read].name;
                return Err(fail(format!("it reads `{name}`, which each task of `{tasks}` has for itself")));
            }
        }
        check_all_kinds(func).map_err(fail)?;
        Ok(Vec::new())
    }
}
