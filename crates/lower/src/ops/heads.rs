//! Heads of attention, and which keys their queries see.

use tilewright_dtype::DType;
use tilewright_graph::op::AttentionAttrs;
use tilewright_te::{Expr, UnaryOp};

use super::NoKernel;
use super::builder::{Builder, Operand, all, broadcast_index};
use super::elementwise::apply;

/// A tensor of heads: `[batch, heads, positions, elements]`, or packed as `[batch, positions, heads * elements]`.
pub(super) struct Heads {
    pub(super) x: Operand,
    pub(super) n_heads: Expr,
    /// Elements of a head.
    pub(super) size: Expr,
    /// Number of positions.
    pub(super) length: Expr,
}

impl Heads {
    pub(super) fn new(b: &Builder, x: Operand, n_heads: usize) -> Result<Heads, NoKernel> {
        match x.rank() {
            4 => Ok(Heads {
                n_heads: x.shape[1].clone(),
                size: x.shape[3].clone(),
                length: x.shape[2].clone(),
                x,
            }),
            3 if n_heads > 0 => {
                let n_heads = Expr::int(n_heads as i64);
                let size = x.shape[2].clone().floor_div(n_heads.clone());
                Ok(Heads { n_heads, size, length: x.shape[1].clone(), x })
            }
            rank => Err(b.no_kernel(format!("heads in a tensor of rank {rank}"))),
        }
    }

    pub(super) fn at(&self, batch: &Expr, head: &Expr, position: &Expr, element: &Expr) -> Expr {
        if self.x.rank() == 4 {
            return self.x.at(vec![batch.clone(), head.clone(), position.clone(), element.clone()]);
        }
        let packed = head.clone() * self.size.clone() + element.clone();
        self.x.at(vec![batch.clone(), position.clone(), packed])
    }

    /// The head of a packed element, and which of its elements that is.
    pub(super) fn unpacked(&self, packed: &Expr) -> (Expr, Expr) {
        (packed.clone().floor_div(self.size.clone()), packed.clone().floor_mod(self.size.clone()))
    }
}

/// What decides which keys a query sees.
pub(super) struct Mask<'a> {
    pub(super) attrs: &'a AttentionAttrs,
    pub(super) mask: Option<Operand>,
    /// Keys before the first query: of the past, or per batch entry by `nonpad`.
    pub(super) past: Expr,
    /// Valid keys of each batch entry.
    pub(super) nonpad: Option<Operand>,
    /// Extents of the scores: batch, heads, queries, keys.
    pub(super) shape: Vec<Expr>,
}

impl Mask<'_> {
    /// Whether nothing is ever masked.
    pub(super) fn is_trivial(&self) -> bool {
        self.mask.is_none() && self.nonpad.is_none() && !self.attrs.causal && !self.has_window()
    }

    /// Whether it adds numbers to scores, besides hiding some.
    pub(super) fn is_added(&self) -> bool {
        self.mask.as_ref().is_some_and(|mask| mask.dtype != DType::Bool)
    }

    /// Whether a query may see no key and must get 0 then.
    pub(super) fn may_hide_all(&self) -> bool {
        !self.is_trivial() && !self.attrs.unseen_is_nan
    }

    fn has_window(&self) -> bool {
        self.attrs.left_window.is_some() || self.attrs.right_window.is_some()
    }

    /// The score at `i` with the mask applied: minus infinity where the key is not seen.
    pub(super) fn apply(&self, score: Expr, i: &[Expr]) -> Expr {
        self.apply_element(score, i, self.mask.as_ref().map(|mask| self.mask_element(mask, i)))
    }

    /// As [`Mask::apply`], given the mask's element for the score and whether there is one.
    pub(super) fn apply_element(
        &self,
        score: Expr,
        i: &[Expr],
        element: Option<(Expr, Option<Expr>)>,
    ) -> Expr {
        let dtype = score.dtype();
        let mut score = score;
        let mut seen = Vec::new();
        if self.attrs.causal || self.has_window() {
            let offset = match &self.nonpad {
                Some(nonpad) => nonpad.index_at(i[0].clone()) - self.shape[2].clone(),
                None => self.past.clone(),
            };
            let position = i[2].clone() + offset;
            if self.attrs.causal {
                seen.push(i[3].clone().le(position.clone()));
            }
            if let Some(left) = self.attrs.left_window {
                seen.push(i[3].clone().ge(position.clone() - left as i64));
            }
            if let Some(right) = self.attrs.right_window {
                seen.push(i[3].clone().le(position + right as i64));
            }
        }
        if let Some(nonpad) = &self.nonpad {
            seen.push(i[3].clone().lt(nonpad.index_at(i[0].clone())));
        }
        if let Some((value, inside)) = element {
            seen.extend(inside);
            if value.dtype() == DType::Bool {
                seen.push(value);
            } else {
                score = score + value.cast(dtype);
            }
        }
        Expr::select(all(seen), score, Expr::lowest(dtype))
    }

    /// The mask's element for the score at `i`, and whether there is one: a mask may end before the keys do.
    fn mask_element(&self, mask: &Operand, i: &[Expr]) -> (Expr, Option<Expr>) {
        let at = [self.indices(mask, &i[..3]), vec![i[3].clone()]].concat();
        (mask.at(at), self.is_inside(mask, &i[3]))
    }

    /// The first indices of the mask's element for a score with these first indices.
    pub(super) fn indices(&self, mask: &Operand, i: &[Expr]) -> Vec<Expr> {
        let skipped = self.shape.len() - mask.rank();
        let of_axis =
            |(axis, at): (usize, &Expr)| broadcast_index(at, &mask.shape[axis], &self.shape[skipped + axis]);
        i.iter().skip(skipped).enumerate().map(of_axis).collect()
    }

    /// Whether the mask has an element for a key, if it may have none.
    pub(super) fn is_inside(&self, mask: &Operand, key: &Expr) -> Option<Expr> {
        let n_keys = mask.shape.last().filter(|n| **n != self.shape[3])?;
        Some(key.clone().lt(n_keys.clone()))
    }
}

/// `softcap tanh(score / softcap)`; the score itself without a cap.
pub(super) fn capped(score: Expr, softcap: f64) -> Expr {
    if softcap == 0.0 {
        return score;
    }
    let cap = Expr::float_of(score.dtype(), softcap);
    apply(UnaryOp::Tanh, score / cap.clone()) * cap
}
