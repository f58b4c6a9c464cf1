//! What a transform is: a data-parallel block that makes several results at once from several elements.
//!
//! The input and output transforms of Winograd convolution are of this kind, and the sums of quarters that Strassen's algorithm
//! multiplies.

use tilewright_machine::Target;
use tilewright_te::{Block, Buffer, Expr, Func, IterKind};

use crate::layouts::Layouts;
use crate::pattern::{AccessInfo, Stride, domain_simplifier, loads, stores_at_its_variables, stride};

/// Whether a block is a transform: data-parallel, with several stores to one buffer at the same place after constant indices, the last of
/// its variables last.
pub(crate) fn is_transform(block: &Block) -> bool {
    let (Some(first), Some(last)) = (block.body.first(), block.iters.last()) else { return false };
    let n_constant = n_constant(block);
    let is_last = |index: &Expr| index.as_var() == Some(last.var);
    block.body.len() > 1
        && first.indices.last().is_some_and(is_last)
        && block.iters.iter().all(|i| i.kind == IterKind::Spatial)
        && block.body.iter().all(|store| {
            store.buffer == first.buffer
                && store.indices.len() == first.indices.len()
                && store.indices[n_constant..] == first.indices[n_constant..]
                && store.indices[..n_constant].iter().all(|e| e.as_int().is_some())
        })
}

/// How many indices of what a transform stores say which of its results it is: the constant ones in front.
pub(crate) fn n_constant(block: &Block) -> usize {
    let first = block.body.first().map_or(&[][..], |store| &store.indices);
    first.iter().take_while(|index| index.as_int().is_some()).count()
}

/// The one data-parallel block that reads a transform's results, if it stores each of its own at its variables.
pub(crate) fn epilogue<'a>(func: &'a Func, block: &Block) -> Option<&'a Block> {
    let &[reader] = &func.consumers(block)[..] else { return None };
    let is_plain = reader.body.len() == 1 && stores_at_its_variables(reader);
    (is_plain && !reader.is_reduction()).then_some(reader)
}

/// Whether the vectors of a transform that nothing takes apart at once are consecutive row-major elements of what it reads.
pub(crate) fn is_row_major(func: &Func, layouts: &Layouts, block: &Block) -> bool {
    let Some(last) = block.iters.last() else { return false };
    let simplifier = domain_simplifier(func, block);
    let consecutive = |access: &AccessInfo| {
        layouts.of(func, access.buffer).is_none()
            && stride(func, &simplifier, access, last.var) == Stride::Constant(1)
    };
    epilogue(func, block).is_none() && loads(block).iter().all(consecutive)
}

/// Whether what a transform writes lies in whole vectors, and what takes its results apart in the same.
pub(crate) fn is_in_vectors(func: &Func, layouts: &Layouts, target: &Target, block: &Block) -> bool {
    let written = |block: &Block| {
        let (_, lanes) = whole_vectors(func, layouts, target, block.body.first()?.buffer)?;
        Some(lanes)
    };
    let own = written(block);
    match epilogue(func, block) {
        Some(reader) => own.is_some() && own == written(reader),
        None => own.is_some(),
    }
}

/// The dimension of a buffer that lies in vectors, the last of a temporary that is row-major, and their length, where they divide
/// it: registers have no room for part of a vector.
pub(crate) fn whole_vectors(
    func: &Func,
    layouts: &Layouts,
    target: &Target,
    buffer: Buffer,
) -> Option<(usize, i64)> {
    let data = &func.buffers[buffer];
    let Some(pieces) = layouts.of(func, buffer) else {
        let dim = data.shape.len().checked_sub(1).filter(|_| !func.params.contains(&buffer))?;
        return Some((dim, widest_vector(target, data.shape[dim].as_int()?)?));
    };
    let last = pieces.last()?;
    let (dim, lanes) = (last.dim, last.factor?);
    (data.shape.get(dim)?.as_int()? % lanes == 0).then_some((dim, lanes))
}

/// The lanes of the widest vector that divides the extent.
pub(crate) fn widest_vector(target: &Target, extent: i64) -> Option<i64> {
    let lanes = i64::from(target.lanes(4));
    [lanes, lanes / 2, lanes / 4].into_iter().find(|&f| f >= 4 && extent % f == 0)
}
