//! `cache_read`, `cache_write`: copies of what a block reads or writes.

use serde::{Deserialize, Serialize};

use crate::expr::{Buffer, Expr, ExprKind};
use crate::func::{Block, Func, Iter, IterKind, Scope, Stmt, Store, VarKind};
use crate::schedule::{Apply, ScheduleError, region, tree};

/// Makes a block read a buffer through a copy `BUFFER_SCOPE`, filled by a new block `BUFFER_read` in front of
/// the block's nest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheRead {
    /// The reading block.
    pub block: String,
    /// The buffer read.
    pub buffer: String,
    /// Where the copy lives.
    pub scope: Scope,
}

/// Makes a block write a new buffer `BUFFER_SCOPE` that a new block `BLOCK_write` after its nest copies to
/// the buffer it wrote before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheWrite {
    /// The writing block.
    pub block: String,
    /// Where the new buffer lives.
    pub scope: Scope,
}

/// The suffix of a copy's name.
pub(crate) fn suffix(scope: Scope) -> &'static str {
    match scope {
        Scope::Global => "global",
        Scope::Shared => "shared",
        Scope::Stack => "stack",
        Scope::Register => "register",
    }
}

/// A new temporary of the buffer's type and shape.
pub(crate) fn duplicate(func: &mut Func, buffer: Buffer, scope: Scope) -> Buffer {
    let data = func.buffers[buffer].clone();
    func.add_buffer(&format!("{}_{}", data.name, suffix(scope)), data.dtype, data.shape, scope)
}

/// A nest over all of a buffer that stores in each element what `value` makes of the variables that index it.
pub(crate) fn copy_nest(
    func: &mut Func,
    to: Buffer,
    name: &str,
    value: impl FnOnce(&Func, Vec<Expr>) -> Expr,
) -> Stmt {
    let extents = func.buffers[to].shape.clone();
    let (mut loops, mut iters) = (Vec::new(), Vec::new());
    for (n, extent) in extents.into_iter().enumerate() {
        let loop_var = func.add_var(&format!("{name}_i{n}"), VarKind::Loop);
        let var = func.add_var(&format!("{name}_vi{n}"), VarKind::Iter);
        loops.push((loop_var, extent.clone()));
        iters.push(Iter { var, extent, kind: IterKind::Spatial, value: Expr::var(loop_var) });
    }
    let indices: Vec<Expr> = iters.iter().map(|i| Expr::var(i.var)).collect();
    let value = value(func, indices.clone());
    let body = vec![Store { buffer: to, indices, value }];
    let block = Block { name: name.to_string(), iters, predicate: None, init: Vec::new(), body };
    tree::nest(loops, Stmt::Block(Box::new(block)))
}

/// Replaces a buffer in all loads and stores of a block.
pub(crate) fn rename(block: &mut Block, from: Buffer, to: Buffer) {
    for store in block.init.iter_mut().chain(&mut block.body) {
        if store.buffer == from {
            store.buffer = to;
        }
    }
    block.rewrite_exprs(&mut |x| match x.kind() {
        ExprKind::Load(b, indices) if *b == from => Some(Expr::load(x.dtype(), to, indices.clone())),
        _ => None,
    });
}

/// Refuses a copy of a buffer for a block that does not read it, or writes it, or where it has not been written when the block's nest begins.
pub(crate) fn check_copied(func: &Func, path: &[usize], block: &Block, buffer: Buffer) -> Result<(), String> {
    let name = &func.buffers[buffer].name;
    if !tree::reads(block, buffer) {
        return Err(format!("the block does not read `{name}`"));
    }
    if tree::writes(block, buffer) {
        return Err(format!("the block also writes `{name}`"));
    }
    let late = |(p, b): &(tree::Path, &Block)| tree::writes(b, buffer) && p[0] >= path[0];
    if let Some((_, writer)) = tree::blocks_with_paths(func).iter().find(|x| late(x)) {
        return Err(format!("`{}` writes `{name}` in the same nest", writer.name));
    }
    let writers: Vec<_> = func.blocks().into_iter().filter(|b| tree::writes(b, buffer)).collect();
    if !writers.is_empty() && !writers.iter().any(|b| region::covers(func, b, buffer)) {
        return Err(format!("`{name}` has elements that are never written"));
    }
    Ok(())
}

impl Apply for CacheRead {
    const NAME: &'static str = "cache_read";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| Err(ScheduleError::new(Self::NAME, &self.block, reason));
        let path = tree::find_block(func, Self::NAME, &self.block)?;
        let buffer = tree::find_buffer(func, Self::NAME, &self.buffer)?;
        let Some(block) = tree::block_at(func, &path) else { return Ok(Vec::new()) };
        check_copied(func, &path, block, buffer).or_else(fail)?;
        let copy = duplicate(func, buffer, self.scope);
        let name = func.unique_block_name(&format!("{}_read", self.buffer));
        let nest = copy_nest(func, copy, &name, |func, i| func.load(buffer, i));
        if let Some(block) = tree::block_at_mut(func, &path) {
            rename(block, buffer, copy);
        }
        func.body.insert(path[0], nest);
        Ok(vec![name])
    }
}

impl Apply for CacheWrite {
    const NAME: &'static str = "cache_write";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| Err(ScheduleError::new(Self::NAME, &self.block, reason));
        let path = tree::find_block(func, Self::NAME, &self.block)?;
        let Some(block) = tree::block_at(func, &path) else { return Ok(Vec::new()) };
        let buffers = tree::written(block);
        let &[buffer] = &buffers[..] else {
            return fail(format!("the block writes {} buffers", buffers.len()));
        };
        for (other_path, other) in tree::blocks_with_paths(func) {
            if other_path == path {
                continue;
            }
            if tree::writes(other, buffer) {
                return fail(format!("`{}` writes the same buffer", other.name));
            }
            if tree::reads(other, buffer) && other_path[0] <= path[0] {
                return fail(format!("`{}` reads the result in the same nest", other.name));
            }
        }
        if !region::covers(func, block, buffer) {
            return fail("it does not write every element of its result".into());
        }
        let copy = duplicate(func, buffer, self.scope);
        let name = func.unique_block_name(&format!("{}_write", self.block));
        let nest = copy_nest(func, buffer, &name, |func, i| func.load(copy, i));
        if let Some(block) = tree::block_at_mut(func, &path) {
            rename(block, buffer, copy);
        }
        func.body.insert(path[0] + 1, nest);
        Ok(vec![name])
    }
}
