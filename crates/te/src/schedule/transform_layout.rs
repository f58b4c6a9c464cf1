//! `transform_layout`: the order of a buffer's elements.

use serde::{Deserialize, Serialize};

use crate::expr::{Expr, ExprKind};
use crate::func::{Func, IterKind, LoopKind};
use crate::schedule::inline::{plain_indices, single_store};
use crate::schedule::{Apply, ScheduleError, tree};
use crate::simplify::Simplifier;

/// One dimension of the new storage: a digit of an old index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Piece {
    /// The old dimension.
    pub dim: usize,
    /// Number of values; `None` for the outermost digit, which takes what is left, rounded up.
    pub factor: Option<i64>,
}

/// What elements hold that have no counterpart in the old shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Padding {
    /// Nothing: they are never read.
    Undefined,
    /// Zero, written by the block that computes the buffer, or by the caller for an input.
    Zero,
}

/// Stores a buffer in the order of `pieces`, outermost first, and rewrites all accesses.
///
/// Each old dimension has one open piece and, after it, any number of pieces with factors: NCHW in blocks of
/// 16 channels is `[(0, None), (1, None), (2, None), (3, None), (1, 16)]`. The layout of an input or output
/// becomes part of the function's contract with its caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransformLayout {
    /// The buffer.
    pub buffer: String,
    /// The dimensions of the new storage.
    pub pieces: Vec<Piece>,
    /// What padding holds.
    pub padding: Padding,
}

/// A function whose `buffer` is stored in the order of `pieces`: what [`TransformLayout`] makes of it.
///
/// # Errors
/// As [`TransformLayout`].
pub fn relaid(func: &Func, buffer: &str, pieces: &[Piece], padding: Padding) -> Result<Func, ScheduleError> {
    let mut relaid = func.clone();
    TransformLayout { buffer: buffer.into(), pieces: pieces.to_vec(), padding }.apply(&mut relaid)?;
    Ok(relaid)
}

impl Apply for TransformLayout {
    const NAME: &'static str = "transform_layout";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| ScheduleError::new(Self::NAME, &self.buffer, reason);
        let buffer = tree::find_buffer(func, Self::NAME, &self.buffer)?;
        if super::prefetch::is_prefetched(&func.body, buffer) {
            return Err(fail("the buffer is prefetched as it lies".into()));
        }
        let old_shape = func.buffers[buffer].shape.clone();
        self.check_pieces(old_shape.len()).map_err(fail)?;
        let sizes = Simplifier::for_sizes(func);
        let blocked: Vec<i64> = (0..old_shape.len()).map(|dim| self.unit(dim, 0)).collect();
        let shape: Vec<Expr> = self
            .pieces
            .iter()
            .map(|piece| match piece.factor {
                Some(factor) => Expr::int(factor),
                None => sizes.simplify(&old_shape[piece.dim].clone().ceil_div(blocked[piece.dim])),
            })
            .collect();

        let padded: Vec<Option<Expr>> = old_shape
            .iter()
            .zip(&blocked)
            .map(|(extent, unit)| {
                let whole = sizes.simplify(&(extent.clone().ceil_div(*unit) * *unit));
                (!sizes.prove_equal(&whole, extent)).then_some(whole)
            })
            .collect();
        if self.padding == Padding::Zero && padded.iter().any(Option::is_some) && !func.is_input(buffer) {
            self.fill(func, buffer, &padded).map_err(fail)?;
        }

        let mut body = std::mem::take(&mut func.body);
        tree::for_each_block_mut(&mut body, &mut |block| {
            if !tree::reads(block, buffer) && !tree::writes(block, buffer) {
                return;
            }
            let mut simplifier = Simplifier::for_sizes(func);
            for iter in &block.iters {
                simplifier.bind_range(iter.var, 0, iter.extent.clone());
            }
            let digits = |indices: &[Expr]| -> Vec<Expr> {
                let digit = |(n, piece): (usize, &Piece)| {
                    let quotient =
                        indices[piece.dim].clone().floor_div(Expr::int(self.unit(piece.dim, n + 1)));
                    let value = match piece.factor {
                        Some(factor) => quotient.floor_mod(Expr::int(factor)),
                        None => quotient,
                    };
                    simplifier.simplify(&value)
                };
                self.pieces.iter().enumerate().map(digit).collect()
            };
            for store in block.init.iter_mut().chain(&mut block.body) {
                if store.buffer == buffer {
                    store.indices = digits(&store.indices);
                }
            }
            block.rewrite_exprs(&mut |x| match x.kind() {
                ExprKind::Load(b, indices) if *b == buffer => {
                    Some(Expr::load(x.dtype(), buffer, digits(indices)))
                }
                _ => None,
            });
        });
        func.body = body;
        func.buffers[buffer].shape = shape;
        Ok(Vec::new())
    }
}

impl TransformLayout {
    /// The product of the factors of a dimension's pieces from the given position on.
    fn unit(&self, dim: usize, from: usize) -> i64 {
        self.pieces[from..].iter().filter(|p| p.dim == dim).filter_map(|p| p.factor).product()
    }

    fn check_pieces(&self, rank: usize) -> Result<(), String> {
        for dim in 0..rank {
            let mut pieces = self.pieces.iter().filter(|p| p.dim == dim);
            match pieces.next() {
                None => return Err(format!("dimension {dim} has no piece")),
                Some(first) if first.factor.is_some() => {
                    return Err(format!("the first piece of dimension {dim} must be open"));
                }
                Some(_) => {}
            }
            let mut product: i64 = 1;
            for piece in pieces {
                let Some(factor) = piece.factor else {
                    return Err(format!("dimension {dim} has two open pieces"));
                };
                if factor < 1 {
                    return Err(format!("factor {factor} is not positive"));
                }
                product = product.checked_mul(factor).ok_or("the product of the factors overflows")?;
            }
        }
        match self.pieces.iter().find(|p| p.dim >= rank) {
            Some(piece) => Err(format!("there is no dimension {}", piece.dim)),
            None => Ok(()),
        }
    }

    /// Extends the writing block to the padded extents, writing zero outside of the old ones.
    fn fill(
        &self,
        func: &mut Func,
        buffer: crate::expr::Buffer,
        padded: &[Option<Expr>],
    ) -> Result<(), String> {
        let writers: Vec<tree::Path> = tree::blocks_with_paths(func)
            .into_iter()
            .filter(|(_, b)| tree::writes(b, buffer))
            .map(|(p, _)| p)
            .collect();
        let [path] = &writers[..] else { return Err(format!("{} blocks write it", writers.len())) };
        let Some(mut block) = tree::block_at(func, path).cloned() else { return Ok(()) };
        let store = single_store(&block)?.clone();
        let places = plain_indices(&block, &store.indices)?;
        let mut valid = Vec::new();
        for (place, extent) in places.iter().zip(padded) {
            let (Some(var), Some(extent)) = (place, extent) else { continue };
            let Some(at) = block.iters.iter().position(|i| i.var == *var) else { continue };
            let old = block.iters[at].extent.clone();
            extend(func, path, &block.iters[at], extent)?;
            valid.push(Expr::var(*var).lt(old));
            block.iters[at].extent = extent.clone();
        }
        let zero = Expr::zero(store.value.dtype());
        if let (Some(condition), Some(target)) = (tree::conjunction(valid), block.body.first_mut()) {
            target.value = Expr::select(condition, store.value, zero);
        }
        if let Some(place) = tree::block_at_mut(func, path) {
            *place = block;
        }
        Ok(())
    }
}

/// Extends the loop that alone drives an iteration variable of the block at `path`.
pub(crate) fn extend(
    func: &mut Func,
    path: &[usize],
    iter: &crate::func::Iter,
    extent: &Expr,
) -> Result<(), String> {
    let name = func.vars[iter.var].name.clone();
    let sizes = Simplifier::for_sizes(func);
    for depth in 1..path.len() {
        let Some(l) = tree::loop_at(func, &path[..depth]) else { continue };
        if iter.value.as_var() != Some(l.var) {
            continue;
        }
        if !sizes.prove_equal(&l.extent, &iter.extent) || l.kind != LoopKind::Serial {
            break;
        }
        let mut blocks = 0;
        tree::for_each_block(&l.body, &mut |_| blocks += 1);
        if blocks != 1 {
            return Err(format!("the loop of `{name}` holds other blocks"));
        }
        let kind = if iter.kind == IterKind::Reduce { "reduction" } else { "data-parallel" };
        let Some(l) = tree::loop_at_mut(func, &path[..depth]) else {
            return Err(format!("the {kind} variable `{name}` has no loop"));
        };
        l.extent = extent.clone();
        return Ok(());
    }
    Err(format!("`{name}` is not a plain serial loop over its domain; pad before splitting"))
}
