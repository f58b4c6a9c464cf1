//! The price of a function on a GPU, by which its algorithm is chosen.
//!
//! It is what its blocks hand to one another through global memory: algorithms that are offered differ in that more than in anything else.

use tilewright_te::simplify::Simplifier;
use tilewright_te::{Block, Buffer, Expr, Func, VarKind};

use crate::context::Context;
use crate::gpu::turns::shared_buffers;
use crate::transforms::is_transform;

/// What is taken for an open extent.
const OPEN: i64 = 512;

/// Bytes that are written to temporaries in global memory; nothing where there is no good rule for a block.
pub(crate) fn price(context: &Context<'_>) -> Option<f64> {
    let func = context.func;
    if func.blocks().into_iter().any(is_transform) {
        return None;
    }
    let shared: Vec<String> =
        func.blocks().into_iter().flat_map(|block: &Block| shared_buffers(context, block)).collect();
    let is_global = |buffer: &Buffer| !shared.contains(&func.buffers[*buffer].name);
    let bytes: f64 = func.workspaces().filter(is_global).map(|buffer| bytes(func, buffer)).sum();
    Some(1.0 + bytes)
}

/// Bytes of a buffer, with [`OPEN`] for open extents.
fn bytes(func: &Func, buffer: Buffer) -> f64 {
    let data = &func.buffers[buffer];
    let closed = |extent: &Expr| {
        let sizes = func.sizes.iter().map(|&size| match func.vars[size].kind {
            VarKind::Size { min, max } => (size, OPEN.clamp(min, max.max(min))),
            VarKind::Loop | VarKind::Iter => (size, OPEN),
        });
        let extent = sizes.fold(extent.clone(), |e, (size, value)| e.substitute_var(size, &Expr::int(value)));
        Simplifier::for_sizes(func).simplify(&extent).as_int().unwrap_or(OPEN)
    };
    data.shape.iter().map(|extent| closed(extent) as f64).product::<f64>() * data.dtype.bytes() as f64
}
