//! Constants laid out for the lanes that read them.

use tilewright_te::schedule::{Padding, Piece};
use tilewright_te::{Block, Expr};

use crate::context::Context;
use crate::layouts::{Layouts, Relayout, walks_blocks};
use crate::pattern::{domain_simplifier, loads};
use crate::rule::Packing;

/// Lays constants anew that the lanes would walk with a stride (the weights of a depthwise convolution): the
/// lanes' dimension becomes the innermost.
pub(crate) fn pack_constants(
    context: &Context<'_>,
    layouts: &mut Layouts,
    block: &Block,
    lane: usize,
    lanes: i64,
) -> Vec<Packing> {
    let func = context.func;
    let simplifier = domain_simplifier(func, block);
    let mut packings = Vec::new();
    for access in loads(block) {
        let constant = context.constant_input(access.buffer);
        let var = block.iters[lane].var;
        let is_walked = |e: &Expr| e.uses(var) && walks_blocks(&simplifier, e, var, lanes);
        let along = access.indices.iter().position(is_walked);
        let (Some(input), Some(along)) = (constant, along) else { continue };
        if layouts.of(func, access.buffer).is_some() || along + 1 == access.indices.len() {
            continue;
        }
        let open = |dim| Piece { dim, factor: None };
        let mut pieces: Vec<Piece> = (0..access.indices.len()).map(open).collect();
        pieces.push(Piece { dim: along, factor: Some(lanes) });
        let buffer = func.buffers[access.buffer].name.clone();
        let relayout = Relayout { buffer, pieces, padding: Padding::Zero };
        layouts.choose(relayout.clone());
        packings.push(Packing { input, relayout, at_once: false });
    }
    packings
}
