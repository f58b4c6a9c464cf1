//! `reverse_compute_inline`: an elementwise consumer becomes part of its producer.

use serde::{Deserialize, Serialize};

use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::{Block, Func};
use crate::schedule::bindings::check_kinds;
use crate::schedule::inline::{plain_indices, single_store};
use crate::schedule::{Apply, ScheduleError, tree};
use crate::simplify::Simplifier;

/// Makes an elementwise block part of the data-parallel block whose result only it reads: the producer then
/// stores the consumer's value, and the consumer disappears.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReverseComputeInline {
    /// The consumer.
    pub block: String,
}

impl Apply for ReverseComputeInline {
    const NAME: &'static str = "reverse_compute_inline";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| ScheduleError::new(Self::NAME, &self.block, reason);
        let path = tree::find_block(func, Self::NAME, &self.block)?;
        let Some(block) = tree::block_at(func, &path).cloned() else { return Ok(Vec::new()) };
        let store = single_store(&block).map_err(fail)?.clone();
        let candidates: Vec<Buffer> = tree::read_buffers(&block)
            .into_iter()
            .filter(|b| !func.params.contains(b) && !super::prefetch::is_prefetched(&func.body, *b))
            .collect();
        let mut reasons = vec!["it reads no temporary".to_string()];
        for buffer in candidates {
            match self.producer(func, &block, buffer) {
                Err(reason) => reasons.push(reason),
                Ok((producer_path, iters)) => {
                    let Some(producer) = tree::block_at(func, &producer_path) else { continue };
                    let (producer_name, produced) =
                        (producer.name.clone(), single_store(producer).map_err(fail)?.clone());
                    self.check_others(func, &block, buffer, [&path, &producer_path])?;
                    let value_of = |v: Var| {
                        iters.iter().position(|i| *i == Some(v)).map(|d| produced.indices[d].clone())
                    };
                    let merge = |e: &Expr| {
                        e.rewrite(&mut |x| match x.kind() {
                            ExprKind::Load(b, _) if *b == buffer => Some(produced.value.clone()),
                            ExprKind::Var(v) => value_of(*v),
                            _ => None,
                        })
                    };
                    let mut merged = store.clone();
                    merged.indices.iter_mut().for_each(|i| *i = merge(i));
                    merged.value = merge(&merged.value);
                    if let Some(producer) = tree::block_at_mut(func, &producer_path) {
                        producer.body = vec![merged];
                    }
                    tree::remove(func, &path);
                    // What it wrote for each task may be less than what it writes for all of them.
                    let producer_path = tree::find_block(func, Self::NAME, &producer_name)?;
                    check_kinds(func, &producer_path[..producer_path.len() - 1]).map_err(fail)?;
                    return Ok(Vec::new());
                }
            }
        }
        Err(fail(reasons.pop().unwrap_or_default()))
    }
}

impl ReverseComputeInline {
    /// Whether all else that the consumer reads is there where the producer is.
    ///
    /// An iteration of a loop around both may have the producer make elements that the consumer takes in another iteration: what a
    /// third block computes in such a loop need not be there yet.
    fn check_others(
        &self,
        func: &Func,
        block: &Block,
        buffer: Buffer,
        [path, producer]: [&tree::Path; 2],
    ) -> Result<(), ScheduleError> {
        let blocks = tree::blocks_with_paths(func);
        for other in tree::read_buffers(block).into_iter().filter(|other| *other != buffer) {
            for (writer, _) in blocks.iter().filter(|(_, b)| tree::writes(b, other)) {
                let when = match writer {
                    writer if writer > producer => "after the producer",
                    writer if path[0] == producer[0] && writer[0] == path[0] => "in a loop around both",
                    _ => continue,
                };
                let reason =
                    format!("it also reads `{}`, which is computed {when}", func.buffers[other].name);
                return Err(ScheduleError::new(Self::NAME, &self.block, reason));
            }
        }
        Ok(())
    }

    /// The path of the block that computes `buffer`, and which variable of `block` each dimension is.
    fn producer(
        &self,
        func: &Func,
        block: &Block,
        buffer: Buffer,
    ) -> Result<(tree::Path, Vec<Option<Var>>), String> {
        let name = &func.buffers[buffer].name;
        let blocks = tree::blocks_with_paths(func);
        let writers: Vec<_> = blocks.iter().filter(|(_, b)| tree::writes(b, buffer)).collect();
        let &[(path, producer)] = &writers[..] else {
            return Err(format!("{} blocks write `{name}`", writers.len()));
        };
        single_store(producer)?;
        if let Some((_, other)) = blocks.iter().find(|(_, b)| b.name != block.name && tree::reads(b, buffer))
        {
            return Err(format!("`{}` also reads `{name}`", other.name));
        }
        let mut loads: Vec<Vec<Expr>> = Vec::new();
        block.for_each_expr(|e| {
            e.walk(&mut |x| {
                if let ExprKind::Load(b, indices) = x.kind()
                    && *b == buffer
                    && !loads.contains(indices)
                {
                    loads.push(indices.clone());
                }
            });
        });
        let [indices] = &loads[..] else {
            return Err(format!("it reads `{name}` at {} places", loads.len()));
        };
        let places = plain_indices(block, indices)?;
        let simplifier = Simplifier::for_sizes(func);
        for iter in &block.iters {
            let Some(dim) = places.iter().position(|p| *p == Some(iter.var)) else {
                return Err(format!("its variable `{}` is no index of `{name}`", func.vars[iter.var].name));
            };
            if !simplifier.prove_equal(&iter.extent, &func.buffers[buffer].shape[dim]) {
                return Err(format!("it reads only a part of `{name}`"));
            }
        }
        for (dim, place) in places.iter().enumerate() {
            if place.is_none() && func.buffers[buffer].shape[dim].as_int() != Some(1) {
                return Err(format!("it reads only a part of `{name}`"));
            }
        }
        Ok((path.clone(), places))
    }
}
