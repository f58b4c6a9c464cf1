//! Operands of a contraction laid out in the order in which its tiles read them: constants at compile time, others by a copy.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Padding, Piece, Schedule, ScheduleError};
use tilewright_te::{Block, Buffer, IterKind, Scope};

use crate::context::Context;
use crate::cpu::elementwise::{self, Elements};
use crate::cpu::squares::{along_blocks, lanes_of};
use crate::decisions::Chooser;
use crate::layouts::Relayout;
use crate::model::machine::{l1_way, ways_for_operand};
use crate::pattern::{AccessInfo, round_up};
use crate::refusal::Refusal;
use crate::rule::Packing;
use crate::strategy::{Domain, Extent};

/// An operand laid out anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Repacking {
    /// A constant, at compile time.
    Constant(Packing),
    /// By a copy in each run.
    Copied {
        /// The operand and the layout of the copy.
        relayout: Relayout,
        /// How it is copied.
        copy: Box<elementwise::Strategy>,
    },
}

impl fmt::Display for Repacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Repacking::Constant(packing) => write!(f, "constant {packing}"),
            Repacking::Copied { relayout, copy } => write!(f, "copy {relayout} ({copy})"),
        }
    }
}

impl Repacking {
    /// Lays an operand out in the order of `pieces`: now if it is a constant, else by a copy.
    pub(super) fn plan(
        context: &Context<'_>,
        operand: Buffer,
        pieces: Vec<Piece>,
        chooser: &mut Chooser<'_>,
    ) -> Result<Repacking, Refusal> {
        let data = &context.func.buffers[operand];
        let relayout = Relayout { buffer: data.name.clone(), pieces, padding: Padding::Zero };
        let constant = context.constant_input(operand).filter(|_| context.layout(operand).is_none());
        if let Some(input) = constant {
            return Ok(Repacking::Constant(Packing { input, relayout, at_once: true }));
        }
        if !context.func.is_whole(operand) {
            let reason = "it has elements that no block writes, so it cannot be copied";
            return Err(Refusal::new("contraction", &data.name, reason));
        }
        // The copy writes whole blocks.
        let unit = |dim: usize| {
            let pieces = relayout.pieces.iter().filter(|piece| piece.dim == dim);
            pieces.filter_map(|piece| piece.factor).product::<i64>()
        };
        let extents = data.shape.iter().enumerate();
        let extents: Vec<Option<i64>> =
            extents.map(|(dim, extent)| extent.as_int().map(|n| round_up(n, unit(dim)))).collect();
        let spatial = extents.iter().map(|extent| extent.map_or(Extent::Open, Extent::Known)).collect();
        let elements = Elements {
            block: context.new_block(&format!("{}_read", data.name)),
            domain: Domain { element: data.dtype, spatial, reduce: Vec::new() },
            extents,
            joined: 1,
            is_consecutive: true,
            bytes: data.dtype.bytes(),
            across: match context.layout(operand) {
                Some(pieces) => along_blocks(pieces, lanes_of(context.target, data.dtype.bytes())),
                None => data.shape.len().checked_sub(1),
            },
        };
        let copy = elements.plan_blocked(context.target, Some(&relayout.pieces), chooser)?;
        Ok(Repacking::Copied { relayout, copy: Box::new(copy) })
    }

    /// The constant that is laid out, if it is one.
    pub(super) fn packing(&self) -> Option<&Packing> {
        match self {
            Repacking::Constant(packing) => Some(packing),
            Repacking::Copied { .. } => None,
        }
    }

    /// The block that copies, if one does.
    pub(super) fn copy(&self) -> Option<&str> {
        match self {
            Repacking::Constant(_) => None,
            Repacking::Copied { copy, .. } => Some(&copy.block),
        }
    }

    /// Lays the operand out; gives the name of the buffer to read.
    pub(super) fn apply(&self, schedule: &mut Schedule, block: &str) -> Result<String, ScheduleError> {
        match self {
            Repacking::Constant(Packing { relayout: Relayout { buffer, pieces, padding }, .. }) => {
                schedule.transform_layout(buffer, pieces, *padding)?;
                Ok(buffer.clone())
            }
            Repacking::Copied { relayout: Relayout { buffer, pieces, padding }, copy } => {
                let made = schedule.cache_read(block, buffer, Scope::Global)?;
                let buffer = schedule.block_info(&made)?.writes.remove(0);
                schedule.transform_layout(&buffer, pieces, *padding)?;
                copy.apply_to(schedule, &made)?;
                Ok(buffer)
            }
        }
    }
}

/// Whether the steps or rows (`row` is the position of their variable) of an operand that is indexed by plain variables lie so
/// far from each other that they all fall into the same few sets of the caches.
pub(super) fn jumps_in_one_set(
    context: &Context<'_>,
    block: &Block,
    operand: &AccessInfo,
    row: Option<usize>,
) -> bool {
    let buffer = &context.func.buffers[operand.buffer];
    let row_major: Vec<Piece> = (0..buffer.shape.len()).map(|dim| Piece { dim, factor: None }).collect();
    let pieces = context.layout(operand.buffer).unwrap_or(&row_major);
    let extent = |piece: &Piece| {
        let inside = pieces.iter().filter(|p| p.dim == piece.dim).filter_map(|p| p.factor).product::<i64>();
        piece.factor.or_else(|| buffer.shape[piece.dim].as_int().map(|n| (n + inside - 1) / inside))
    };
    let is_walked = |n: usize| Some(n) == row || block.iters[n].kind == IterKind::Reduce;
    let walked: Vec<_> =
        (0..block.iters.len()).filter(|&n| is_walked(n)).map(|n| block.iters[n].var).collect();
    let varies = |piece: &Piece| {
        operand.indices.get(piece.dim).is_some_and(|index| walked.iter().any(|&var| index.uses(var)))
    };
    let (few, way) = (ways_for_operand(context.target), l1_way(context.target));
    let mut distance = buffer.dtype.bytes() as i64;
    for piece in pieces.iter().rev() {
        let n = extent(piece);
        // An open extent is one of many.
        if varies(piece) && n.is_none_or(|n| n > few) && distance % way == 0 {
            return true;
        }
        let Some(n) = n else { return false };
        distance *= n;
    }
    false
}
