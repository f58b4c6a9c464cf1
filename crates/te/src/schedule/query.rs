//! What rules ask of a schedule: loops, producers, consumers, the nature of blocks.

use crate::expr::{Buffer, Expr};
use crate::func::{Block, Func, IterKind, Loop, LoopKind, ThreadLevel};
use crate::schedule::{
    Apply, Bind, ComputeWith, Fuse, Parallel, Reorder, Schedule, ScheduleError, Split, Vectorize, bindings,
    region, tree,
};

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
    /// Whether threads may share loops, given in groups of directly nested ones, outermost first: each group is fused to one loop
    /// of tasks, and the second is alone in the first.
    pub fn may_share(&self, groups: &[&[String]]) -> bool {
        let mut func = self.func.clone();
        let mut share = |loops: &[String]| {
            let task = match loops {
                [one] => one.clone(),
                many => Fuse { loops: many.to_vec() }.apply(&mut func).ok()?.remove(0),
            };
            let path = tree::find_loop(&func, "may_share", &task).ok()?;
            // Inside a serial loop tasks would be rounds in order.
            if tree::loops_above(&func, &path).iter().any(|l| l.kind != LoopKind::Parallel) {
                return None;
            }
            Parallel { loop_name: task }.apply(&mut func).ok()
        };
        groups.iter().all(|loops| share(loops).is_some())
    }

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

    /// The most iterations that a loop may have, where that is known.
    pub fn most_iterations(&self, loop_name: &str) -> Option<i64> {
        let path = tree::find_loop(&self.func, "most_iterations", loop_name).ok()?;
        tree::simplifier_at(&self.func, &path).upper_bound(&tree::loop_at(&self.func, &path)?.extent)
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
            is_commutative: block.is_commutative(),
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
        Ok(self.func.consumers(self.find(block)?).into_iter().map(|b| b.name.clone()).collect())
    }

    /// The constant extent of the loop of that name.
    pub fn extent(&self, loop_name: &str) -> Option<i64> {
        let path = tree::find_loop(&self.func, "extent", loop_name).ok()?;
        tree::loop_at(&self.func, &path)?.extent.as_int()
    }

    fn find(&self, block: &str) -> Result<&Block, ScheduleError> {
        self.func
            .block(block)
            .ok_or_else(|| ScheduleError::new("block", block, "there is no block of that name"))
    }
}

impl Func {
    /// The loops around a block, outermost first; none where there is no such block.
    pub fn loops_around(&self, block: &str) -> Vec<&Loop> {
        let path = tree::find_block(self, "loops", block);
        path.map_or_else(|_| Vec::new(), |path| tree::loops_above(self, &path))
    }

    /// Whether the innermost loop is provably one of lanes that write apart when the last `joined` loops around a block, which are as
    /// computed, become one that is split by `factors`.
    pub fn may_vectorize(&self, block: &str, joined: usize, factors: &[Option<i64>]) -> bool {
        let Ok(path) = tree::find_block(self, "may_vectorize", block) else { return false };
        // The block's own nest tells.
        let mut func = Func { body: vec![self.body[path[0]].clone()], ..self.without_body() };
        let mut vectorize = || {
            let loops = func.loops_around(block);
            let names = loops[loops.len().checked_sub(joined)?..].iter();
            let loops = names.map(|l| func.vars[l.var].name.clone()).collect();
            let loop_name = Fuse { loops }.apply(&mut func).ok()?.pop()?;
            let loop_name = Split { loop_name, factors: factors.to_vec() }.apply(&mut func).ok()?.pop()?;
            Vectorize { loop_name }.apply(&mut func).ok()
        };
        vectorize().is_some()
    }

    /// Whether threads may provably share the results of a block whose loops are as computed: of the outermost `rank` loops the last
    /// `joined` become one that is split by `factors` into tasks, warps, lanes and maybe elements of a vector, and the others are
    /// tasks too.
    pub fn may_be_threads(&self, block: &str, rank: usize, joined: usize, factors: &[Option<i64>]) -> bool {
        let Ok(path) = tree::find_block(self, "may_be_threads", block) else { return false };
        let mut func = Func { body: vec![self.body[path[0]].clone()], ..self.without_body() };
        let mut share = || {
            let loops = func.loops_around(block);
            let names = loops.get(..rank)?.iter().map(|l| func.vars[l.var].name.clone());
            let mut names: Vec<String> = names.collect();
            let row = names.split_off(rank.checked_sub(joined)?);
            let loop_name = Fuse { loops: row }.apply(&mut func).ok()?.pop()?;
            let parts = Split { loop_name, factors: factors.to_vec() }.apply(&mut func).ok()?;
            let levels = [ThreadLevel::Warp, ThreadLevel::Lane];
            for (level, part) in levels.into_iter().zip(parts.iter().skip(1)) {
                Bind { loop_name: part.clone(), level }.apply(&mut func).ok()?;
            }
            if let Some(part) = parts.get(3) {
                Vectorize { loop_name: part.clone() }.apply(&mut func).ok()?;
            }
            names.push(parts[0].clone());
            let loop_name = Fuse { loops: names }.apply(&mut func).ok()?.pop()?;
            Parallel { loop_name }.apply(&mut func).ok()
        };
        share().is_some()
    }

    /// Whether blocks that share an outermost serial loop can have tasks in each of its iterations: whether each one's last data-parallel
    /// loop, cut into `parts`, can go around its others and become one with those of the rest, without that a task needs what another
    /// one of the same iteration computes.
    pub fn may_share_units(&self, blocks: &[&str], parts: i64) -> bool {
        let mut func = self.clone();
        let mut with: Option<String> = None;
        let mut join = |name: &str| -> Option<()> {
            let block = func.block(name)?;
            let own = func.loops_around(name).into_iter().skip(1);
            let is_spatial =
                |l: &Loop| block.iters.iter().any(|i| i.kind == IterKind::Spatial && i.value.uses(l.var));
            let own: Vec<(bool, String)> =
                own.map(|l| (is_spatial(l), func.vars[l.var].name.clone())).collect();
            let at = own.iter().rposition(|(is_spatial, _)| *is_spatial)?;
            let (_, loop_name) = own[at].clone();
            let pieces = Split { loop_name, factors: vec![Some(parts), None] }.apply(&mut func).ok()?;
            let group = pieces.first()?.clone();
            let others = own.into_iter().enumerate().filter(|(n, _)| *n != at).map(|(_, (_, name))| name);
            let loops = std::iter::once(group.clone()).chain(others).collect();
            Reorder { loops }.apply(&mut func).ok()?;
            match &with {
                Some(with) => {
                    let joined = ComputeWith { loop_name: group, with: with.clone() };
                    joined.apply(&mut func).ok().map(drop)
                }
                None => {
                    with = Some(group);
                    Some(())
                }
            }
        };
        let joined = blocks.iter().all(|block| join(block).is_some());
        let shared = with.filter(|_| joined).map(|loop_name| Parallel { loop_name }.apply(&mut func));
        shared.is_some_and(|result| result.is_ok())
    }

    fn without_body(&self) -> Func {
        Func {
            name: self.name.clone(),
            vars: self.vars.clone(),
            buffers: self.buffers.clone(),
            params: self.params.clone(),
            n_inputs: self.n_inputs,
            sizes: self.sizes.clone(),
            body: Vec::new(),
        }
    }

    /// Whether every element of a buffer is there to be copied: it is an input, or some block writes all of it.
    pub fn is_whole(&self, buffer: Buffer) -> bool {
        let writes_all = |block: &&Block| tree::writes(block, buffer) && region::covers(self, block, buffer);
        self.is_input(buffer) || self.blocks().iter().any(writes_all)
    }

    /// Whether no block but this one writes what it writes.
    pub fn is_sole_writer(&self, block: &Block) -> bool {
        let written = tree::written(block);
        let others = self.blocks().into_iter().filter(|other| other.name != block.name);
        !others.into_iter().any(|other| written.iter().any(|buffer| tree::writes(other, *buffer)))
    }

    /// The blocks that read what `block` writes, in execution order, without itself.
    pub fn consumers(&self, block: &Block) -> Vec<&Block> {
        let writes = tree::written(block);
        let consumes = |b: &&Block| b.name != block.name && writes.iter().any(|w| tree::reads(b, *w));
        self.blocks().into_iter().filter(consumes).collect()
    }
}

impl Block {
    /// Whether it is a reduction whose steps may run in any order, up to rounding.
    pub fn is_commutative(&self) -> bool {
        self.is_reduction() && bindings::is_commutative(self)
    }
}
