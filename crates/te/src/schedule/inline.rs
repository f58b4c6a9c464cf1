//! `compute_inline`: a producer's expression in place of loads of its result.

use serde::{Deserialize, Serialize};

use crate::expr::{Expr, ExprKind, Var};
use crate::func::{Block, Func, Store};
use crate::schedule::{Apply, ScheduleError, tree};

/// Replaces every load of what a data-parallel block computes by the computation; the block disappears.
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
        tree::remove(func, &path);
        let inline = |e: &Expr| {
            e.rewrite(&mut |x| match x.kind() {
                ExprKind::Load(b, indices) if *b == buffer => Some(store.value.substitute(&|v| {
                    places.iter().position(|p| *p == Some(v)).map(|dim| indices[dim].clone())
                })),
                _ => None,
            })
        };
        tree::for_each_block_mut(&mut func.body, &mut |b| b.map_exprs(inline));
        Ok(Vec::new())
    }
}
