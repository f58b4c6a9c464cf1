//! Blocks that take turns in a loop over steps: recurrences, and attention in blocks of keys.

use tilewright_te::{Block, Buffer, Expr, Func, IterKind, Loop, Var};

use crate::context::Context;
use crate::pattern::{AccessInfo, loads};

/// Which loops around a block it shares with others, and what its own ones count.
pub(crate) struct Nest<'a> {
    /// The loops that it shares, outermost first.
    pub(crate) shared: Vec<&'a Loop>,
    /// Its own loops over results.
    pub(crate) spatial: Vec<&'a Loop>,
    /// Whether it has loops over steps of its own.
    pub(crate) has_steps: bool,
}

impl<'a> Nest<'a> {
    /// The nest of a block.
    pub(crate) fn of(func: &'a Func, block: &Block) -> Nest<'a> {
        let others = func.blocks().into_iter().filter(|other| other.name != block.name);
        let around: Vec<Var> =
            others.flat_map(|other| func.loops_around(&other.name)).map(|l| l.var).collect();
        let loops = func.loops_around(&block.name).into_iter();
        let (shared, own): (Vec<&Loop>, Vec<&Loop>) = loops.partition(|l| around.contains(&l.var));
        let drives = |l: &Loop, kind| block.iters.iter().any(|i| i.kind == kind && i.value.uses(l.var));
        let (steps, others): (Vec<&Loop>, Vec<&Loop>) =
            own.into_iter().partition(|l| drives(l, IterKind::Reduce));
        let spatial = others.into_iter().filter(|l| drives(l, IterKind::Spatial)).collect();
        Nest { shared, spatial, has_steps: !steps.is_empty() }
    }

    /// How many of the loops that it shares, the outermost, have iterations with nothing in common.
    pub(crate) fn n_apart(&self, block: &Block) -> usize {
        let is_apart = |l: &&&Loop| {
            let drives = |kind| block.iters.iter().any(|i| i.kind == kind && i.value.uses(l.var));
            drives(IterKind::Spatial) && !drives(IterKind::Reduce)
        };
        self.shared.iter().take_while(is_apart).count()
    }

    /// Whether a block is in the outermost loop that the nest's own shares with others.
    fn encloses(&self, func: &Func, other: &Block) -> bool {
        let is_outermost = |l: &Loop| self.shared.first().is_some_and(|outermost| l.var == outermost.var);
        func.loops_around(&other.name).into_iter().any(is_outermost)
    }
}

/// Whether a block is in a loop that others are in, too.
pub(crate) fn takes_turns(func: &Func, block: &Block) -> bool {
    !Nest::of(func, block).shared.is_empty()
}

/// Whether a block does nothing but add to one element at a place of its own in each step, consecutive along the variable at `lane`: so
/// sums may be in registers.
pub(crate) fn accumulates(block: &Block, lane: usize) -> bool {
    let [store] = &block.body[..] else { return false };
    if store.indices.last().and_then(Expr::as_var) != Some(block.iters[lane].var) {
        return false;
    }
    let own = AccessInfo::of_store(store);
    let reads: Vec<AccessInfo> = loads(block).into_iter().filter(|a| a.buffer == store.buffer).collect();
    block.predicate.is_none() && !reads.is_empty() && reads.iter().all(|read| read.indices == own.indices)
}

/// The block right in front of one that sums, in the same loops, if all that it does is to set each sum to what it starts from.
pub(crate) fn starter<'a>(func: &'a Func, block: &Block) -> Option<&'a Block> {
    let blocks = func.blocks();
    let at = blocks.iter().position(|other| other.name == block.name)?;
    let before: &Block = blocks.get(at.checked_sub(1)?)?;
    let ([start], [sum]) = (&before.body[..], &block.body[..]) else { return None };
    let (own, others) = (Nest::of(func, block), Nest::of(func, before));
    let vars = |nest: &Nest<'_>| nest.shared.iter().map(|l| l.var).collect::<Vec<Var>>();
    let iters = |block: &Block| -> Vec<(Var, Expr)> {
        let spatial = block.iters.iter().filter(|iter| iter.kind == IterKind::Spatial);
        spatial.map(|iter| (iter.var, iter.extent.clone())).collect()
    };
    let (from, to) = (iters(before), iters(block));
    let extents =
        |iters: &[(Var, Expr)]| iters.iter().map(|(_, extent)| extent.clone()).collect::<Vec<Expr>>();
    let renamed = |index: &Expr| {
        let pairs = from.iter().zip(&to);
        pairs.fold(index.clone(), |index, ((old, _), (new, _))| index.substitute_var(*old, &Expr::var(*new)))
    };
    let sets_each = start.buffer == sum.buffer
        && before.predicate.is_none()
        && extents(&from) == extents(&to)
        && start.indices.iter().map(renamed).eq(sum.indices.iter().cloned());
    (sets_each && own.has_steps && !others.has_steps && vars(&own) == vars(&others)).then_some(before)
}

/// The block whose sums a block sets to what they start from, right in front of it.
pub(crate) fn started<'a>(func: &'a Func, block: &Block) -> Option<&'a Block> {
    let blocks = func.blocks();
    let at = blocks.iter().position(|other| other.name == block.name)?;
    let next: &Block = blocks.get(at + 1)?;
    starter(func, next).filter(|starter| starter.name == block.name).map(|_| next)
}

/// The buffers that a block is the first to write and only blocks in the same loop use, where all such buffers together take at most
/// `room` bytes in an iteration of the loops that have nothing in common; the first ones where they take more.
pub(crate) fn local_buffers(context: &Context<'_>, block: &Block, nest: &Nest<'_>, room: i64) -> Vec<String> {
    let func = context.func;
    let apart = &nest.shared[..nest.n_apart(block)];
    let is_inside = |other: &Block| nest.encloses(func, other);
    let (mut seen, mut left, mut own) = (Vec::new(), room, Vec::new());
    for other in func.blocks().into_iter().filter(|other| is_inside(other)) {
        for store in &other.body {
            let buffer = store.buffer;
            if seen.contains(&buffer) {
                continue;
            }
            seen.push(buffer);
            let users = func.blocks().into_iter().filter(|other| uses(other, buffer));
            let is_local = !func.params.contains(&buffer) && users.into_iter().all(is_inside);
            let bytes = part_of_iteration(func, other, &AccessInfo::of_store(store), apart);
            if let Some(bytes) = bytes.filter(|&bytes| is_local && bytes <= left) {
                left -= bytes;
                if other.name == block.name {
                    own.push(func.buffers[buffer].name.clone());
                }
            }
        }
    }
    own
}

/// Bytes of what the blocks of a nest use in each of their turns, and the next again: the parts of buffers that an iteration of the loops that
/// have nothing in common has for itself. What differs from step to step, and what open extents have, is not counted.
pub(crate) fn kept_bytes(func: &Func, nest: &Nest<'_>) -> i64 {
    let (mut seen, mut bytes) = (Vec::new(), 0i64);
    for block in func.blocks().into_iter().filter(|block| nest.encloses(func, block)) {
        let own = Nest::of(func, block);
        let (apart, steps) = own.shared.split_at(own.n_apart(block));
        for access in block.body.iter().map(AccessInfo::of_store).chain(loads(block)) {
            let uses_any = |loops: &[&Loop]| {
                let mut driven = block.iters.iter().filter(|i| loops.iter().any(|l| i.value.uses(l.var)));
                driven.any(|i| access.indices.iter().any(|index| index.uses(i.var)))
            };
            if !seen.contains(&access.buffer) && uses_any(apart) && !uses_any(steps) {
                seen.push(access.buffer);
                bytes = bytes.saturating_add(part_of_iteration(func, block, &access, apart).unwrap_or(0));
            }
        }
    }
    bytes
}

/// Whether a block reads or writes a buffer.
pub(crate) fn uses(block: &Block, buffer: Buffer) -> bool {
    block.body.iter().any(|store| store.buffer == buffer) || loads(block).iter().any(|a| a.buffer == buffer)
}

/// Bytes of the part of a buffer that an iteration of the loops `apart` writes, where known.
fn part_of_iteration(func: &Func, block: &Block, access: &AccessInfo, apart: &[&Loop]) -> Option<i64> {
    let is_apart = |index: &Expr| {
        let iter = block.iters.iter().find(|iter| index.as_var() == Some(iter.var));
        iter.is_some_and(|iter| apart.iter().any(|l| iter.value.as_var() == Some(l.var)))
    };
    let data = &func.buffers[access.buffer];
    let own = access.indices.iter().zip(&data.shape).filter(|(index, _)| !is_apart(index));
    own.map(|(_, extent)| extent.as_int()).try_fold(data.dtype.bytes() as i64, |n, e| n.checked_mul(e?))
}
