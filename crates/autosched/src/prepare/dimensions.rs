//! The dimensions that contractions are scheduled in.
//!
//! Operands may be indexed by quotients and remainders of variables: groups of channels, phases of a transposed convolution. An
//! operand that depends on the quotient of a variable depends on the variable, and so can neither be broadcast along it nor shared
//! by rows. With two variables in its place, of quotients and of remainders, each operand depends on what it is indexed by. And two
//! variables that all operands use alike are better one.

use tilewright_te::schedule::Schedule;
use tilewright_te::simplify::Simplifier;
use tilewright_te::{BinaryOp, Block, Buffer, Expr, ExprKind, Func, Iter, IterKind};

use crate::layouts::Layouts;
use crate::pattern::{AccessInfo, domain_simplifier, iters_of, loads, operands, stores_at_its_variables};

/// Makes two variables of each of a contraction's whose quotients or remainders index an operand, and two dimensions of each
/// dimension of an operand that is indexed by such a quotient and a variable of the reduction.
pub(super) fn expand_quotients(schedule: &mut Schedule, layouts: &mut Layouts) {
    for name in schedule.blocks() {
        while let Some((buffer, dim, inner)) =
            schedule.func().block(&name).and_then(|block| divided(schedule.func(), block))
        {
            if !layouts.expand_dim(schedule, buffer, dim, inner) {
                break;
            }
        }
    }
}

/// A dimension of a contraction's result or of an operand that should be two, and the inner extent.
fn divided(func: &Func, block: &Block) -> Option<(Buffer, usize, i64)> {
    let (a, b) = operands(block).filter(|_| stores_at_its_variables(block))?;
    let simplifier = Simplifier::for_sizes(func);
    let result = |(dim, inner): (usize, i64)| (block.body[0].buffer, dim, inner);
    [&a, &b].into_iter().find_map(|operand| {
        let indices = operand.indices.iter();
        let of_result = indices.clone().find_map(|index| divisor(&simplifier, block, index)).map(result);
        of_result.or_else(|| {
            let inner = indices.enumerate().find_map(|(dim, index)| Some((dim, group(func, block, index)?)));
            inner.map(|(dim, inner)| (operand.buffer, dim, inner))
        })
    })
}

/// The position among the data-parallel variables of one that an index divides, and the divisor.
fn divisor(simplifier: &Simplifier, block: &Block, index: &Expr) -> Option<(usize, i64)> {
    let spatial = iters_of(block, IterKind::Spatial);
    let mut found = None;
    index.walk(&mut |e| {
        let ExprKind::Binary(BinaryOp::FloorDiv | BinaryOp::FloorMod, dividend, divisor) = e.kind() else {
            return;
        };
        let Some(divisor) = divisor.as_int().filter(|&n| n > 1) else { return };
        let divides = |n: &usize| {
            let iter = &block.iters[*n];
            let is_one = iter.extent.as_int() == Some(divisor);
            dividend.uses(iter.var) && !is_one && simplifier.exact_quotient(&iter.extent, divisor).is_some()
        };
        found = found.or_else(|| spatial.iter().position(divides).map(|dim| (dim, divisor)));
    });
    found
}

/// The extent of a variable of the reduction that an index adds to a multiple of that extent, a group's channels.
fn group(func: &Func, block: &Block, index: &Expr) -> Option<i64> {
    if index.as_var().is_some() {
        return None;
    }
    let simplifier = domain_simplifier(func, block);
    iters_of(block, IterKind::Reduce).into_iter().find_map(|n| {
        let iter = &block.iters[n];
        let extent = iter.extent.as_int().filter(|&n| n > 1 && index.uses(iter.var))?;
        let remainder = simplifier.simplify(&index.clone().floor_mod(Expr::int(extent)));
        let quotient = simplifier.simplify(&index.clone().floor_div(Expr::int(extent)));
        let is_group = remainder.as_var() == Some(iter.var) && !quotient.uses(iter.var);
        (is_group && quotient.as_int().is_none()).then_some(extent)
    })
}

/// Makes one variable of any two data-parallel ones after one another that one operand of a contraction depends on and the
/// other does not: the rows and columns of an image that is read element by element, the batches and rows of a product with
/// weights. Tiles then cross the ends of rows. And of any two by which together something reads sums: what counts rows of products.
pub(super) fn collapse_rows(schedule: &mut Schedule, layouts: &mut Layouts) {
    for name in schedule.blocks() {
        while let Some((buffer, dim)) = schedule.func().block(&name).and_then(|b| counted(schedule.func(), b))
        {
            if !layouts.collapse_dims(schedule, buffer, dim) {
                break;
            }
        }
        // From the last dimension on, so that what is left is at the same place.
        let rank = schedule.func().block(&name).map_or(0, |block| iters_of(block, IterKind::Spatial).len());
        for dim in (0..rank.saturating_sub(1)).rev() {
            let Some(block) = schedule.func().block(&name) else { break };
            let Some((a, b)) = operands(block).filter(|_| stores_at_its_variables(block)) else { break };
            let vars = [block.iters[dim].var, block.iters[dim + 1].var];
            let uses = |a: &AccessInfo| vars.map(|v| a.indices.iter().any(|e| e.uses(v)));
            if matches!((uses(&a), uses(&b)), ([true, true], [false, false]) | ([false, false], [true, true]))
            {
                let buffer = block.body[0].buffer;
                layouts.collapse_dims(schedule, buffer, dim);
            }
        }
    }
}

/// The buffer that a data-parallel block writes and the first of two of its dimensions whose variables are together in one index of
/// sums that the block reads.
fn counted(func: &Func, block: &Block) -> Option<(Buffer, usize)> {
    let [store] = &block.body[..] else { return None };
    if block.is_reduction() || !stores_at_its_variables(block) {
        return None;
    }
    let sums: Vec<Buffer> = func
        .blocks()
        .into_iter()
        .filter(|b| b.is_reduction())
        .flat_map(|b| b.body.iter().map(|s| s.buffer))
        .collect();
    let reads = loads(block).into_iter().filter(|a| sums.contains(&a.buffer));
    let indices: Vec<Expr> = reads.flat_map(|a| a.indices).collect();
    let together = |pair: &[Iter]| indices.iter().any(|e| pair.iter().all(|i| e.uses(i.var)));
    block.iters.windows(2).rposition(together).map(|dim| (store.buffer, dim))
}
