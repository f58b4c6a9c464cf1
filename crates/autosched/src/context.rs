//! What rules plan from: a prepared function, its layouts, and the target.

use std::collections::BTreeSet;

use tilewright_machine::Target;
use tilewright_te::schedule::Piece;
use tilewright_te::simplify::Simplifier;
use tilewright_te::{Block, Buffer, Expr, Func, Var};

use crate::layouts::Layouts;
use crate::pattern::{self, AccessInfo, Stride, pieces_of};

/// What rules plan from.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The machine and code generator.
    pub target: &'a Target,
    /// The function, prepared.
    pub func: &'a Func,
    /// The layouts of its buffers.
    pub layouts: &'a Layouts,
    /// Which inputs are constants whose layout may be chosen.
    pub constant_inputs: &'a [bool],
    /// Blocks for which there is a strategy already, with those that strategies make.
    pub taken: &'a BTreeSet<String>,
}

impl<'a> Context<'a> {
    /// Which input a buffer is, if it is one that is a constant in every call.
    pub fn constant_input(&self, buffer: Buffer) -> Option<usize> {
        let input = self.func.params[..self.func.n_inputs].iter().position(|&p| p == buffer)?;
        (self.constant_inputs.get(input) == Some(&true)).then_some(input)
    }

    /// The layout of a buffer, nothing if it is row-major.
    pub fn layout(&self, buffer: Buffer) -> Option<&'a [Piece]> {
        self.layouts.of(self.func, buffer)
    }

    /// Whether the loops of a block are as computed, one for each variable, and no strategy has them.
    pub fn is_as_computed(&self, block: &Block) -> bool {
        !self.taken.contains(&block.name) && self.func.loops_around(&block.name).len() == block.iters.len()
    }

    /// The name that a block gets which is made under the name `hint`.
    pub fn new_block(&self, hint: &str) -> String {
        let is_free = |name: &String| self.func.block(name).is_none() && !self.taken.contains(name);
        let numbered = (1..).map(|n| format!("{hint}_{n}"));
        std::iter::once(hint.to_string()).chain(numbered).find(is_free).unwrap_or_default()
    }

    /// The one data-parallel block that reads a block's results, each once, at its own index.
    pub fn epilogue_of(&self, block: &Block) -> Option<&'a Block> {
        pattern::epilogue_of(self.func, block)
    }

    /// The layout of what the epilogue (or, without one, the block itself) writes.
    pub fn stored_layout(&self, block: &Block) -> Option<&'a [Piece]> {
        let writer = self.epilogue_of(block).unwrap_or(block);
        self.layout(writer.body.first()?.buffer)
    }

    /// Vector lanes for a variable: a blocked dimension's block, or the target's vector where it is worth one. A vector may be of
    /// several blocks: what is loaded and stored is then as many runs.
    pub fn lanes_for(&self, extent: &Expr, layout: Option<&[Piece]>, iter: usize) -> Option<i64> {
        let full = i64::from(self.target.lanes(4));
        let innermost = layout.and_then(|pieces| pieces.last());
        let blocked = innermost.filter(|p| p.dim == iter).and_then(|p| p.factor);
        match (blocked, extent.as_int()) {
            (Some(factor), Some(n)) if factor < full && pieces_of(n, full) < pieces_of(n, factor) => {
                Some(full)
            }
            (Some(factor), _) => Some(factor.min(full)),
            (None, Some(n)) if n < full => {
                // A short row: one vector, the least that it fits. A second one would take as long again.
                let lanes = (n as u64).next_power_of_two() as i64;
                (lanes > 1).then_some(lanes)
            }
            (None, _) => Some(full),
        }
    }

    /// The block factor of the dimension that `var` indexes plainly in a blocked operand.
    pub fn largest_block(&self, block: &Block, var: Var) -> Option<i64> {
        self.layouts.largest_block(self.func, block, var)
    }

    /// Whether those blocks lie one behind the other, in all operands that have some.
    pub fn blocks_follow(&self, block: &Block, var: Var) -> bool {
        self.layouts.blocks_follow(self.func, block, var)
    }

    /// How far an access moves in memory, in its layout, when a variable of a block grows by one within a block of the layout.
    pub fn stride(&self, simplifier: &Simplifier, access: &AccessInfo, var: Var) -> Stride {
        self.layouts.stride(self.func, simplifier, access, var)
    }
}
