//! Copies of results that transforms want in vectors.
//!
//! What takes a transform's results apart does so on registers, a vector of channels each ([`transform`](crate::cpu::transform)). Into a
//! row-major result it could only store them one by one. So it stores vectors into a temporary, and a block of its own moves these:
//! a convolution by Winograd's algorithm whose result leaves the model, or is read by what addresses memory, costs a copy more.

use tilewright_machine::Target;
use tilewright_te::schedule::{Padding, Piece, Schedule};
use tilewright_te::{Block, Func, Scope};

use crate::layouts::{Layouts, Relayout};
use crate::pattern::loads;
use crate::transforms::{epilogue, is_transform, widest_vector};

/// Gives what takes the results of transforms apart a temporary in vectors, where its own result is row-major.
pub(super) fn copy_out_of_vectors(schedule: &mut Schedule, layouts: &mut Layouts, target: &Target) {
    // The lanes of a GPU are threads, each of which stores its own result wherever that lies.
    if target.gpu.is_some() {
        return;
    }
    let func = schedule.func();
    let wanted = func.blocks().into_iter().filter_map(|block| copy_of(func, layouts, target, block));
    for (block, pieces) in wanted.collect::<Vec<_>>() {
        // The copy's buffer is named by the primitive: it is what the block writes afterwards.
        if schedule.cache_write(&block, Scope::Global).is_err() {
            continue;
        }
        let func = schedule.func();
        if let Some(store) = func.block(&block).and_then(|block| block.body.first()) {
            let buffer = func.buffers[store.buffer].name.clone();
            layouts.choose(Relayout { buffer, pieces, padding: Padding::Undefined });
        }
    }
}

/// The block that takes a transform's results apart into a row-major result, and the layout in vectors of its channels.
fn copy_of(func: &Func, layouts: &Layouts, target: &Target, block: &Block) -> Option<(String, Vec<Piece>)> {
    let made = block.body.first().filter(|_| is_transform(block))?.buffer;
    let reader = epilogue(func, block)?;
    let result = reader.body.first()?.buffer;
    if !func.params.contains(&result) || layouts.of(func, result).is_some() {
        return None;
    }
    let read = loads(reader).into_iter().find(|access| access.buffer == made)?;
    let channel = read.indices.last()?.as_var()?;
    let dim = reader.iters.iter().position(|iter| iter.var == channel)?;
    let shape = &func.buffers[result].shape;
    let lanes = widest_vector(target, shape.get(dim)?.as_int()?)?;
    let open = (0..shape.len()).map(|dim| Piece { dim, factor: None });
    let pieces = open.chain([Piece { dim, factor: Some(lanes) }]).collect();
    (dim + 1 < shape.len()).then(|| (reader.name.clone(), pieces))
}
