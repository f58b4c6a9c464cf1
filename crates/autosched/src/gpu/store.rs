//! Where the results of a reduction go from registers.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::Block;

use crate::context::Context;

/// The block that stores the results of a reduction, which are in registers before.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Store {
    /// Its name.
    pub block: String,
    /// Whether it is a copy that the strategy makes.
    pub is_copy: bool,
}

impl Store {
    /// The block, if it is one of the function's, which is taken along.
    pub(super) fn taken(&self) -> Option<String> {
        (!self.is_copy).then(|| self.block.clone())
    }

    /// The block, if it is one that the strategy makes.
    pub(super) fn copy(&self) -> Option<String> {
        self.is_copy.then(|| self.block.clone())
    }
}

/// The block that stores the results of a block in the end, as it is before the strategy makes a copy.
pub(super) fn last_of<'a>(context: &Context<'a>, block: &'a Block, store: Option<&Store>) -> &'a Block {
    match store {
        Some(store) if !store.is_copy => context.epilogue_of(block).unwrap_or(block),
        Some(_) | None => block,
    }
}

/// `stored by relu, `, nothing for a copy.
impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.taken().map_or(Ok(()), |block| write!(f, "stored by {block}, "))
    }
}

/// Whether a loop around the block is around another one too.
pub(super) fn shares_loops(context: &Context<'_>, block: &Block) -> bool {
    let own = context.func.loops_around(&block.name);
    let others = context.func.blocks().into_iter().filter(|other| other.name != block.name);
    let around: Vec<_> =
        others.flat_map(|other| context.func.loops_around(&other.name)).map(|l| l.var).collect();
    own.iter().any(|l| around.contains(&l.var))
}

/// The block that is to store a reduction's results: its epilogue, if no strategy has that, or a copy.
pub(super) fn store_of(context: &Context<'_>, block: &Block) -> Option<Store> {
    if block.body.len() != 1 || !context.func.is_sole_writer(block) {
        return None;
    }
    let free = |epilogue: &&Block| context.is_as_computed(epilogue) && !shares_loops(context, epilogue);
    match context.epilogue_of(block).filter(free) {
        Some(epilogue) => Some(Store { block: epilogue.name.clone(), is_copy: false }),
        None if context.func.is_whole(block.body[0].buffer) => {
            Some(Store { block: context.new_block(&format!("{}_write", block.name)), is_copy: true })
        }
        None => None,
    }
}
