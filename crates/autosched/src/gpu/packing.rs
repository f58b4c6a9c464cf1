//! How a constant factor is stored: in the order in which a rule reads it.

use tilewright_te::schedule::{Padding, Piece};
use tilewright_te::{Block, Expr};

use crate::context::Context;
use crate::layouts::Relayout;
use crate::pattern::{AccessInfo, domain_simplifier, loads};
use crate::rule::Packing;

/// Stores a constant in the order of some of a block's variables, which are all by which the block reads it. Nothing where it is no
/// constant, others read it too, it is stored so anyway, or an index is more than the digits of a number.
pub(super) fn packing(
    context: &Context<'_>,
    block: &Block,
    access: &AccessInfo,
    by: &[usize],
) -> Option<Packing> {
    let input = context.constant_input(access.buffer)?;
    let reads = |other: &&&Block| loads(other).iter().any(|a| a.buffer == access.buffer);
    if context.func.blocks().iter().filter(reads).count() != 1 || context.layout(access.buffer).is_some() {
        return None;
    }
    let of_dims: Option<Vec<Vec<usize>>> =
        access.indices.iter().map(|index| digits(context, block, index)).collect();
    let of_dims = of_dims?;
    // Dimensions of one element, which no variable indexes, are anywhere.
    let unused = (0..of_dims.len()).filter(|&dim| of_dims[dim].is_empty());
    let mut pieces: Vec<(usize, usize)> = unused.map(|dim| (dim, 0)).collect();
    for n in by {
        let digit = |dim: usize| Some((dim, of_dims[dim].iter().position(|other| other == n)?));
        pieces.push((0..of_dims.len()).find_map(digit)?);
    }
    let follows =
        |(dim, digit): (usize, usize), (before, other): (usize, usize)| dim == before && digit == other + 1;
    let n_digits: usize = of_dims.iter().map(|digits| digits.len().max(1)).sum();
    let is_outer = |dim: usize, digit: usize| {
        pieces.iter().position(|p| *p == (dim, digit)) < pieces.iter().position(|p| *p == (dim, digit + 1))
    };
    let in_order = |dim: usize| (0..of_dims[dim].len().saturating_sub(1)).all(|digit| is_outer(dim, digit));
    if pieces.len() != n_digits || !(0..of_dims.len()).all(in_order) {
        return None;
    }
    let mut kept: Vec<Piece> = Vec::new();
    for (at, &(dim, digit)) in pieces.iter().enumerate() {
        let extent = of_dims[dim].get(digit).and_then(|&n| block.iters[n].extent.as_int());
        match at.checked_sub(1).filter(|&before| follows((dim, digit), pieces[before])) {
            // Digits that stay together stay a number.
            Some(_) => {
                let factor = &mut kept.last_mut()?.factor;
                *factor = factor.zip(extent).map(|(outer, inner)| outer * inner);
            }
            None => kept.push(Piece { dim, factor: extent.filter(|_| digit > 0) }),
        }
    }
    let is_row_major = kept.len() == of_dims.len() && kept.windows(2).all(|w| w[0].dim < w[1].dim);
    let buffer = context.func.buffers[access.buffer].name.clone();
    let relayout = Relayout { buffer, pieces: kept, padding: Padding::Zero };
    (!is_row_major).then_some(Packing { input, relayout, at_once: false })
}

/// The variables, by their positions, that are the digits of an index, the most significant first; nothing where it is something else.
fn digits(context: &Context<'_>, block: &Block, index: &Expr) -> Option<Vec<usize>> {
    if index.as_int().is_some() {
        return Some(Vec::new());
    }
    let simplifier = domain_simplifier(context.func, block);
    let used = (0..block.iters.len()).filter(|&n| index.uses(block.iters[n].var));
    let weight = |n: usize| {
        let var = block.iters[n].var;
        let next = index.substitute_var(var, &(Expr::var(var) + 1));
        simplifier.simplify(&(next - index.clone())).as_int().map(|weight| (n, weight))
    };
    let mut weights: Vec<(usize, i64)> = used.map(weight).collect::<Option<_>>()?;
    weights.sort_by_key(|&(_, weight)| std::cmp::Reverse(weight));
    let mut least = 1;
    for &(n, weight) in weights.iter().rev() {
        if weight != least {
            return None;
        }
        // The last of them, the most significant digit, may be open.
        least = block.iters[n].extent.as_int().map_or(0, |extent| weight * extent);
    }
    let term = |&(n, weight): &(usize, i64)| Expr::var(block.iters[n].var) * weight;
    let number = weights.iter().map(term).fold(Expr::int(0), |sum, term| sum + term);
    (simplifier.simplify(&(index.clone() - number)).as_int() == Some(0))
        .then(|| weights.into_iter().map(|(n, _)| n).collect())
}
