//! The price of a function on a GPU, by which its algorithm is chosen.
//!
//! It is what its blocks hand to one another through global memory: algorithms that are offered differ in that more than in anything else.

use tilewright_te::{Block, Buffer, Func};

use crate::context::Context;
use crate::gpu::turns::shared_buffers;
use crate::transforms::is_transform;

/// What is taken for an open extent.
pub(crate) const OPEN: i64 = 512;

/// Bytes that are written to temporaries in global memory, by extents that stand for those that are open in `known`; nothing where there is no
/// good rule for a block.
pub(crate) fn price(context: &Context<'_>, known: &Func) -> Option<f64> {
    let func = context.func;
    if func.blocks().into_iter().any(is_transform) {
        return None;
    }
    let shared: Vec<String> =
        func.blocks().into_iter().flat_map(|block: &Block| shared_buffers(context, block)).collect();
    let is_global = |buffer: &Buffer| !shared.contains(&func.buffers[*buffer].name);
    let bytes: f64 = func.workspaces().filter(is_global).map(|buffer| bytes(known, buffer)).sum();
    Some(1.0 + bytes)
}

/// Bytes of a buffer; an extent that is not known for all that takes [`OPEN`] too.
fn bytes(func: &Func, buffer: Buffer) -> f64 {
    let data = &func.buffers[buffer];
    let extents = data.shape.iter().map(|extent| extent.as_int().unwrap_or(OPEN) as f64);
    extents.product::<f64>() * data.dtype.bytes() as f64
}
