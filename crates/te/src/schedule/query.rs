//! What rules ask of a schedule: loops, producers, consumers, the nature of blocks.

use crate::expr::{Buffer, Expr};
use crate::func::{Block, IterKind, LoopKind};
use crate::schedule::{Schedule, ScheduleError, bindings, tree};

/// A loop around a block.
#[derive(Clone, Debug)]
pub struct LoopInfo {
    /// Its name, for primitives.
    pub name: String,
    /// Number of iterations.
    pub extent: Expr,
    /// How it runs.
    pub kind: LoopKind,
    /// What it iterates for the block asked about: `Reduce` if it drives any reduction variable, `None` if it
    /// drives no variable at all.
    pub iter_kind: Option<IterKind>,
}

/// What a block is.
#[derive(Clone, Debug)]
pub struct BlockInfo {
    /// Its name.
    pub name: String,
    /// Names of the buffers read.
    pub reads: Vec<String>,
    /// Names of the buffers written.
    pub writes: Vec<String>,
    /// Kinds and extents of the iteration variables, in order.
    pub iters: Vec<(IterKind, Expr)>,
    /// Whether it has a reduction variable.
    pub is_reduction: bool,
    /// Whether it is a reduction whose steps may run in any order.
    pub is_commutative: bool,
    /// Whether it is data-parallel, has one store, and stores at its plain iteration variables.
    pub is_injective: bool,
}

impl Schedule {
    /// The loops around a block, outermost first.
    pub fn loops(&self, block: &str) -> Result<Vec<LoopInfo>, ScheduleError> {
        let path = tree::find_block(&self.func, "loops", block)?;
        let Some(block) = tree::block_at(&self.func, &path) else { return Ok(Vec::new()) };
        let info = |l: &crate::func::Loop| {
            let drives = |kind| block.iters.iter().any(|i| i.kind == kind && i.value.uses(l.var));
            let iter_kind = if drives(IterKind::Reduce) {
                Some(IterKind::Reduce)
            } else {
                drives(IterKind::Spatial).then_some(IterKind::Spatial)
            };
            LoopInfo {
                name: self.func.vars[l.var].name.clone(),
                extent: l.extent.clone(),
                kind: l.kind,
                iter_kind,
            }
        };
        Ok(tree::loops_above(&self.func, &path).into_iter().map(info).collect())
    }

    /// The names of the loops around a block, outermost first.
    pub fn loop_names(&self, block: &str) -> Result<Vec<String>, ScheduleError> {
        Ok(self.loops(block)?.into_iter().map(|l| l.name).collect())
    }

    /// The names of all blocks in execution order.
    pub fn blocks(&self) -> Vec<String> {
        self.func.blocks().into_iter().map(|b| b.name.clone()).collect()
    }

    /// What a block is.
    pub fn block_info(&self, block: &str) -> Result<BlockInfo, ScheduleError> {
        let block = self.find(block)?;
        let names =
            |buffers: Vec<Buffer>| buffers.iter().map(|b| self.func.buffers[*b].name.clone()).collect();
        let stores_plainly = block.body.iter().all(|s| s.indices.iter().all(|i| i.as_var().is_some()));
        Ok(BlockInfo {
            name: block.name.clone(),
            reads: names(tree::read_buffers(block)),
            writes: names(tree::written(block)),
            iters: block.iters.iter().map(|i| (i.kind, i.extent.clone())).collect(),
            is_reduction: block.is_reduction(),
            is_commutative: block.is_reduction() && bindings::is_commutative(block),
            is_injective: !block.is_reduction() && block.body.len() == 1 && stores_plainly,
        })
    }

    /// The blocks that write what the block reads, in execution order, without itself.
    pub fn producers(&self, block: &str) -> Result<Vec<String>, ScheduleError> {
        let reads = tree::read_buffers(self.find(block)?);
        let is_producer = |b: &&Block| b.name != block && reads.iter().any(|r| tree::writes(b, *r));
        Ok(self.func.blocks().into_iter().filter(is_producer).map(|b| b.name.clone()).collect())
    }

    /// The blocks that read what the block writes, in execution order, without itself.
    pub fn consumers(&self, block: &str) -> Result<Vec<String>, ScheduleError> {
        let writes = tree::written(self.find(block)?);
        let is_consumer = |b: &&Block| b.name != block && writes.iter().any(|w| tree::reads(b, *w));
        Ok(self.func.blocks().into_iter().filter(is_consumer).map(|b| b.name.clone()).collect())
    }

    fn find(&self, block: &str) -> Result<&Block, ScheduleError> {
        self.func
            .block(block)
            .ok_or_else(|| ScheduleError::new("block", block, "there is no block of that name"))
    }
}
