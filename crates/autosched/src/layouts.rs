//! How buffers are laid out: what parameters come in, and what was chosen for temporaries.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Padding, Piece, Schedule, ScheduleError};
use tilewright_te::simplify::Simplifier;
use tilewright_te::{Block, Buffer, Computation, Expr, ExprKind, Func, Var};

use crate::pattern::{AccessInfo, Stride, loads, stride};
use crate::strategy::pieces_text;

/// A layout that is chosen for a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Relayout {
    /// The buffer.
    pub buffer: String,
    /// The dimensions of its storage.
    pub pieces: Vec<Piece>,
    /// What elements hold that have no counterpart.
    pub padding: Padding,
}

/// `w as a b c 8b`: the dimensions of the storage, outermost first.
impl fmt::Display for Relayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {}", self.buffer, pieces_text(&self.pieces))
    }
}

/// The layouts of a function's buffers; those without one are row-major.
#[derive(Clone, Debug, Default)]
pub struct Layouts(BTreeMap<String, Choice>);

#[derive(Clone, Debug)]
struct Choice {
    pieces: Vec<Piece>,
    padding: Padding,
    /// Whether the function's accesses are in this layout already.
    applied: bool,
}

impl Layouts {
    /// The layouts that the parameters of one of the functions of a computation come in.
    pub(crate) fn of_params(func: &Func, computation: &Computation) -> Layouts {
        let named = func.params.iter().zip(&computation.layouts).filter_map(|(&p, layout)| {
            let choice = Choice { pieces: layout.clone()?, padding: Padding::Undefined, applied: false };
            Some((func.buffers[p].name.clone(), choice))
        });
        Layouts(named.collect())
    }

    /// The layout of a buffer, nothing if it is row-major.
    pub fn of(&self, func: &Func, buffer: Buffer) -> Option<&[Piece]> {
        self.0.get(&func.buffers[buffer].name).map(|choice| &choice.pieces[..])
    }

    /// Chooses the layout of a buffer; its accesses are in it when all blocks are scheduled.
    pub(crate) fn choose(&mut self, relayout: Relayout) {
        let Relayout { buffer, pieces, padding } = relayout;
        self.0.insert(buffer, Choice { pieces, padding, applied: false });
    }

    /// Notes that the accesses of a buffer are in its layout already.
    pub(crate) fn note_applied(&mut self, relayout: Relayout) {
        let Relayout { buffer, pieces, padding } = relayout;
        self.0.insert(buffer, Choice { pieces, padding, applied: true });
    }

    /// Rewrites all accesses to the chosen layouts.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        for (buffer, choice) in self.0.iter().filter(|(_, choice)| !choice.applied) {
            if is_used(schedule.func(), buffer) {
                schedule.transform_layout(buffer, &choice.pieces, choice.padding)?;
            }
        }
        Ok(())
    }

    /// Makes one dimension of dimensions `dim` and `dim + 1` of a buffer and of all that is indexed by the same variables, if that is
    /// possible and they follow one another in the layouts too. Tells whether it was done.
    pub(crate) fn collapse_dims(&mut self, schedule: &mut Schedule, buffer: Buffer, dim: usize) -> bool {
        let func = schedule.func();
        let name = func.buffers[buffer].name.clone();
        let Some(changed) = func.collapsible_dims(buffer, dim) else { return false };
        let Some(layouts) = self.changed_layouts(&changed, collapsed) else { return false };
        let done = schedule.collapse_dims(&name, dim).is_ok();
        if done {
            self.replace_layouts(layouts);
        }
        done
    }

    /// Makes two dimensions of dimension `dim` of a buffer and of all that is indexed by the same variables, if that is possible and
    /// no block of a layout crosses the end of `inner` elements. Tells whether it was done.
    pub(crate) fn expand_dim(
        &mut self,
        schedule: &mut Schedule,
        buffer: Buffer,
        dim: usize,
        inner: i64,
    ) -> bool {
        let func = schedule.func();
        let name = func.buffers[buffer].name.clone();
        let Some(changed) = func.expandable_dims(buffer, dim, inner) else { return false };
        let pieces = |pieces: &[Piece], dim: usize| expanded(pieces, dim, inner);
        let Some(layouts) = self.changed_layouts(&changed, pieces) else { return false };
        let done = schedule.expand_dim(&name, dim, inner).is_ok();
        if done {
            self.replace_layouts(layouts);
        }
        done
    }

    /// The layouts of buffers one dimension of which changes, by name; nothing where one of them does not allow it.
    fn changed_layouts(
        &self,
        buffers: &[(String, usize)],
        change: impl Fn(&[Piece], usize) -> Option<Vec<Piece>>,
    ) -> Option<Vec<(String, Vec<Piece>)>> {
        let choices = buffers.iter().filter_map(|(name, dim)| Some((name, *dim, self.0.get(name)?)));
        let changed = |(name, dim, choice): (&String, usize, &Choice)| {
            let pieces = change(&choice.pieces, dim).filter(|_| !choice.applied)?;
            Some((name.clone(), pieces))
        };
        choices.map(changed).collect()
    }

    fn replace_layouts(&mut self, layouts: Vec<(String, Vec<Piece>)>) {
        for (name, pieces) in layouts {
            if let Some(choice) = self.0.get_mut(&name) {
                choice.pieces = pieces;
            }
        }
    }

    /// The block factor of the dimension that `var` indexes plainly in a blocked operand.
    pub(crate) fn largest_block(&self, func: &Func, block: &Block, var: Var) -> Option<i64> {
        loads(block)
            .iter()
            .filter_map(|a| {
                let layout = self.of(func, a.buffer)?;
                let dim = a.indices.iter().position(|e| e.as_var() == Some(var))?;
                layout.iter().rev().find(|p| p.dim == dim)?.factor
            })
            .max()
    }

    /// Whether the blocks that [`Layouts::largest_block`] tells of lie one behind the other, in all operands that have some.
    pub(crate) fn blocks_follow(&self, func: &Func, block: &Block, var: Var) -> bool {
        loads(block).iter().all(|a| {
            let dim = a.indices.iter().position(|e| e.as_var() == Some(var));
            let pieces = self.of(func, a.buffer).zip(dim);
            pieces.is_none_or(|(layout, dim)| match layout {
                [.., outer, inner] if inner.dim == dim => outer.dim == dim,
                _ => layout.iter().all(|piece| piece.dim != dim || piece.factor.is_none()),
            })
        })
    }

    /// How far an access moves in memory, in its layout, when a variable of a block grows by one within a
    /// block of the layout.
    pub(crate) fn stride(
        &self,
        func: &Func,
        simplifier: &Simplifier,
        access: &AccessInfo,
        var: Var,
    ) -> Stride {
        let Some(pieces) = self.of(func, access.buffer) else {
            return stride(func, simplifier, access, var);
        };
        if !access.indices.iter().any(|e| e.uses(var)) {
            return Stride::Zero;
        }
        let innermost = pieces.last().map(|p| p.dim);
        let uses: Vec<usize> =
            access.indices.iter().enumerate().filter(|(_, e)| e.uses(var)).map(|(d, _)| d).collect();
        // At whole blocks from the variable an index is at the same place of a block.
        let block = pieces.last().and_then(|p| p.factor).unwrap_or(1);
        let moves_with = |index: &Expr| walks_blocks(simplifier, index, var, block);
        match uses[..] {
            [dim] if Some(dim) == innermost && moves_with(&access.indices[dim]) => Stride::Constant(1),
            _ => Stride::Unknown,
        }
    }
}

/// A layout after dimensions `dim` and `dim + 1` have become one; nothing where they do not follow one another.
fn collapsed(pieces: &[Piece], dim: usize) -> Option<Vec<Piece>> {
    let pair = [Piece { dim, factor: None }, Piece { dim: dim + 1, factor: None }];
    let at = pieces.windows(2).position(|w| w == pair)?;
    let is_single = |dim: usize| pieces.iter().filter(|p| p.dim == dim).count() == 1;
    if !is_single(dim) || !is_single(dim + 1) {
        return None;
    }
    let mut pieces = pieces.to_vec();
    pieces.remove(at + 1);
    for piece in pieces.iter_mut().filter(|p| p.dim > dim) {
        piece.dim -= 1;
    }
    Some(pieces)
}

/// A layout after dimension `dim` has become two; nothing where a block holds elements of several of the outer.
fn expanded(pieces: &[Piece], dim: usize, inner: i64) -> Option<Vec<Piece>> {
    let factors: i64 = pieces.iter().filter(|p| p.dim == dim).filter_map(|p| p.factor).product();
    if inner % factors != 0 {
        return None;
    }
    let expand = |piece: &Piece| match piece {
        Piece { dim: d, factor: None } if *d == dim => {
            vec![Piece { dim, factor: None }, Piece { dim: dim + 1, factor: None }]
        }
        Piece { dim: d, factor } if *d >= dim => vec![Piece { dim: d + 1, factor: *factor }],
        piece => vec![*piece],
    };
    Some(pieces.iter().flat_map(expand).collect())
}

/// Whether an index is a variable and a multiple of `block` that does not depend on it: a block of that many starts where one of the
/// variable does.
pub(crate) fn walks_blocks(simplifier: &Simplifier, index: &Expr, var: Var, block: i64) -> bool {
    let offset = simplifier.simplify(&(index.clone() - Expr::var(var)));
    !offset.uses(var) && simplifier.simplify(&offset.floor_mod(Expr::int(block))).as_int() == Some(0)
}

/// Whether a buffer is there, and a parameter or accessed.
fn is_used(func: &Func, buffer: &str) -> bool {
    let named = func.buffers.iter().find(|(_, data)| data.name == buffer);
    named.is_some_and(|(id, _)| {
        func.params.contains(&id) || func.blocks().iter().any(|block| touches(block, id))
    })
}

fn touches(block: &Block, buffer: Buffer) -> bool {
    let mut found = block.init.iter().chain(&block.body).any(|s| s.buffer == buffer);
    block.for_each_expr(|e| {
        found = found || e.any(&mut |x| matches!(x.kind(), ExprKind::Load(b, _) if *b == buffer));
    });
    found
}
