//! Layouts of temporaries, which follow from those of parameters and from what transforms write.

use tilewright_machine::Target;
use tilewright_te::schedule::{Padding, Piece};
use tilewright_te::{Block, Buffer, Func, IterKind};

use crate::layouts::{Layouts, Relayout};
use crate::pattern::{
    AccessInfo, constant_product, epilogue_of, is_window, iters_of, loads, stores_at_its_variables,
};
use crate::transforms::{is_row_major, is_transform, n_constant, widest_vector};

/// Vectors of results that share what they read are worth it where more than one lane in so many is used: vectors along rows lose less.
const LEAST_SHARE: i64 = 2;

/// Gives data-parallel temporaries (padded inputs) the layout of the blocked tensor that they are a copy of
/// with other extents; where they are of none, that of the results that are computed from them; and none where vectors along rows are
/// better for these.
/// Sums that are summed further get the layout of those results, too.
pub(super) fn spread(func: &Func, target: &Target, layouts: &mut Layouts) {
    for block in func.blocks().into_iter().rev().filter(|b| b.is_reduction()) {
        let [store] = &block.body[..] else { continue };
        if func.params.contains(&store.buffer) || layouts.of(func, store.buffer).is_some() {
            continue;
        }
        if let Some(pieces) = layout_of_reader(func, layouts, block) {
            choose(func, layouts, store.buffer, pieces);
        }
    }
    for block in func.blocks() {
        let [store] = &block.body[..] else { continue };
        let data = &func.buffers[store.buffer];
        if block.is_reduction()
            || func.params.contains(&store.buffer)
            || layouts.of(func, store.buffer).is_some()
            || is_read_along_rows(func, target, layouts, block)
        {
            continue;
        }
        let source = loads(block).into_iter().find_map(|a| {
            let layout = layouts.of(func, a.buffer)?;
            let same_rank = a.indices.len() == data.shape.len();
            let fits =
                blocked_dims(layout).all(|dim| func.buffers[a.buffer].shape.get(dim) == data.shape.get(dim));
            (same_rank && fits).then(|| layout.to_vec())
        });
        if let Some(pieces) = source.or_else(|| layout_of_reader(func, layouts, block)) {
            choose(func, layouts, store.buffer, pieces);
        }
    }
}

/// Whether what a block writes is for windows of a reduction with row-major results, of which so few share an element (channels of a
/// convolution to an image) that vectors of them are mostly empty: vectors along rows of results, which read along rows, are full.
fn is_read_along_rows(func: &Func, target: &Target, layouts: &Layouts, block: &Block) -> bool {
    let buffer = block.body[0].buffer;
    let &[reader] = &func.consumers(block)[..] else { return false };
    let writer = epilogue_of(func, reader).unwrap_or(reader);
    let spatial = iters_of(reader, IterKind::Spatial);
    let reads: Vec<AccessInfo> = loads(reader).into_iter().filter(|a| a.buffer == buffer).collect();
    let ([read], Some(&row)) = (&reads[..], spatial.last()) else { return false };
    let sharing = spatial.iter().filter(|&&n| !read.uses(reader.iters[n].var));
    let sharing = constant_product(sharing.map(|&n| &reader.iters[n].extent));
    let lanes = i64::from(target.lanes(4));
    let sums_channels = iters_of(reader, IterKind::Reduce)
        .iter()
        .any(|&n| read.indices.iter().any(|index| index.as_var() == Some(reader.iters[n].var)));
    let is_long = reader.iters[row].extent.as_int().is_none_or(|n| n >= lanes);
    reader.is_reduction()
        && stores_at_its_variables(reader)
        && layouts.of(func, writer.body[0].buffer).is_none()
        && is_window(reader, read)
        && sums_channels
        && is_long
        && read.indices.last().is_some_and(|index| index.uses(reader.iters[row].var))
        && sharing.is_some_and(|n| n.saturating_mul(LEAST_SHARE) <= lanes)
}

/// The layout of the results of the one reduction that reads what `block` writes, if those use the same
/// place of the blocked dimensions as they have themselves (a depthwise convolution's channels).
fn layout_of_reader(func: &Func, layouts: &Layouts, block: &Block) -> Option<Vec<Piece>> {
    let buffer = block.body.first()?.buffer;
    let &[reader] = &func.consumers(block)[..] else { return None };
    if !reader.is_reduction() || !stores_at_its_variables(reader) {
        return None;
    }
    let writer = epilogue_of(func, reader).unwrap_or(reader);
    let layout = layouts.of(func, writer.body.first()?.buffer)?;
    let spatial = iters_of(reader, IterKind::Spatial);
    let reads: Vec<AccessInfo> = loads(reader).into_iter().filter(|a| a.buffer == buffer).collect();
    let same_place = |dim: usize| {
        let var = spatial.get(dim).map(|&n| reader.iters[n].var);
        var.is_some() && reads.iter().all(|a| a.indices.get(dim).and_then(|e| e.as_var()) == var)
    };
    let same_rank = func.buffers[buffer].shape.len() == spatial.len();
    (same_rank && blocked_dims(layout).all(same_place)).then(|| layout.to_vec())
}

/// The dimensions that a layout cuts into blocks.
fn blocked_dims(layout: &[Piece]) -> impl Iterator<Item = usize> {
    layout.iter().filter(|p| p.factor.is_some()).map(|p| p.dim)
}

/// Chooses the layout of a temporary.
fn choose(func: &Func, layouts: &mut Layouts, buffer: Buffer, pieces: Vec<Piece>) {
    let buffer = func.buffers[buffer].name.clone();
    layouts.choose(Relayout { buffer, pieces, padding: Padding::Undefined });
}

/// Puts the results of a transform's iteration next to each other, a row of the last dimension each. With the dimensions of
/// constant indices outermost they would be streams as far apart as the results are large, often in one set of the cache. Rows of an even
/// number of lines are a line longer than they need: those of an iteration, an odd number of lines from each other, are in different sets of L1.
fn side_by_side(func: &Func, target: &Target, layouts: &mut Layouts, buffer: Buffer, n_constant: usize) {
    let shape = &func.buffers[buffer].shape;
    let last = shape.len() - 1;
    let extent = shape[last].as_int();
    let Some((extent, lanes)) = extent.and_then(|n| Some((n, widest_vector(target, n)?))) else { return };
    if n_constant > last || layouts.of(func, buffer).is_some() || func.params.contains(&buffer) {
        return;
    }
    let mut pieces: Vec<Piece> = (n_constant..last)
        .chain(0..n_constant)
        .chain([last])
        .map(|dim| Piece { dim, factor: None })
        .collect();
    let line = target.machine.caches.line as i64 / func.buffers[buffer].dtype.bytes() as i64;
    let is_even = line > 0 && line % lanes == 0 && extent % (2 * line) == 0;
    pieces.extend(is_even.then_some(Piece { dim: last, factor: Some((extent + line) / lanes) }));
    pieces.push(Piece { dim: last, factor: Some(lanes) });
    choose(func, layouts, buffer, pieces);
}

/// Gives what transforms write, and what they read of reductions, a layout in vectors of the last dimension, which
/// is outermost but for the dimensions of constant indices; unless it lies in such vectors as it is.
pub(super) fn of_transforms(func: &Func, target: &Target, layouts: &mut Layouts) {
    for block in func.blocks().into_iter().filter(|b| is_transform(b)) {
        let n_constant = n_constant(block);
        if is_row_major(func, layouts, block) {
            side_by_side(func, target, layouts, block.body[0].buffer, n_constant);
            continue;
        }
        let reduced = loads(block).into_iter().map(|a| a.buffer).filter(|&buffer| {
            let writes = |b: &&&Block| b.body.iter().any(|store| store.buffer == buffer);
            func.blocks().iter().find(writes).is_some_and(|b| b.is_reduction())
        });
        for buffer in std::iter::once(block.body[0].buffer).chain(reduced) {
            if layouts.of(func, buffer).is_some() || func.params.contains(&buffer) {
                continue;
            }
            let shape = &func.buffers[buffer].shape;
            let last = shape.len() - 1;
            let lanes = shape[last].as_int().and_then(|extent| widest_vector(target, extent));
            let Some(lanes) = lanes else { continue };
            let open = |dim| Piece { dim, factor: None };
            let mut pieces: Vec<Piece> = (0..n_constant.min(last)).map(open).collect();
            pieces.push(open(last));
            pieces.extend((n_constant.min(last)..last).map(open));
            pieces.push(Piece { dim: last, factor: Some(lanes) });
            choose(func, layouts, buffer, pieces);
        }
    }
}
