//! Matrix products and convolutions: register tiles of outputs, held across the whole reduction.
//!
//! A contraction is a sum of products of two operands. One data-parallel variable gives the *lanes*: the
//! results' elements lie consecutive along it, and so do those of one operand (the *panel*, packed where it
//! is not), while the other operand (the *broadcast* one) does not depend on it. Another gives the *rows* of
//! the register tile: the panel does not depend on it. A tile of rows times vectors is accumulated in
//! registers over all steps of the reduction and leaves through the epilogue.
//!
//! The plan is a sequence of decisions, each a function of [`plan::Product`]; the loops around and inside the tile are
//! [`TiledBlock`]'s.

mod packing;
mod plan;
mod roles;
mod strategy;

use tilewright_te::{Block, Buffer};

use crate::context::Context;
use crate::cpu::sums;
use crate::decisions::Chooser;
use crate::model::sums::{Way, ways};
use crate::refusal::Refusal;

pub use packing::Repacking;
pub use strategy::{CutSteps, Operand, Strategy};

/// Plans a sum of products with its epilogue, and with what sums its results, if a block does.
pub(crate) fn plan(
    context: &Context<'_>,
    block: &Block,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    let Some(sums) = sums::of(context, block) else { return plan::plan(context, block, None, chooser) };
    let ways = ways(context.target, sums::products(block));
    match chooser.decide(&block.name, "sums", &ways)? {
        Way::InBlocks => plan::plan(context, block, Some(sums), chooser),
        Way::Afterwards => {
            let strategy = plan::plan(context, block, None, chooser)?;
            Ok(Strategy { sums: Some(sums.afterwards(context)), ..strategy })
        }
    }
}

/// What a contraction takes by its best tile in the best order of the loops around it.
pub(crate) struct Price {
    /// Cycles of a vector of results and step.
    pub(crate) step: f64,
    /// The panel's buffer, where it is a constant.
    pub(crate) constant_panel: Option<Buffer>,
    /// The buffer that is copied first, so that what a tile's rows read lies together.
    pub(crate) copied: Option<Buffer>,
}

/// The price of a contraction.
pub(crate) fn price(context: &Context<'_>, block: &Block) -> Option<Price> {
    let product = plan::Product::of(context, block).ok()?;
    let best = product.tiles_with_orders(false).into_iter().next()?;
    let full = f64::from(context.target.lanes(4)) / product.lanes as f64;
    let (constant_panel, copied) = (product.constant_panel(), product.copied_rows(&best.value));
    Some(Price { step: best.cost * full, constant_panel, copied })
}

/// Cycles of a strategy of a contraction by the model.
pub(crate) fn cost(context: &Context<'_>, strategy: &Strategy) -> Option<f64> {
    let block = context.func.block(&strategy.tiled.block)?;
    plan::Product::of(context, block).ok()?.cost(strategy)
}
