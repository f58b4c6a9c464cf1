//! Squares: what vectors read where it lies apart along their lanes and consecutively along a loop around.
//!
//! A transpose is the plainest case. Several iterations of that loop are taken at once, directly around the vectors. The gathers of these make
//! squares of elements, which passes over kernels load by rows and transpose in registers (`transpose_gathers` in crates/te).

use tilewright_machine::Target;
use tilewright_te::flatten::MAX_SQUARE;
use tilewright_te::schedule::{Piece, Schedule, ScheduleError};
use tilewright_te::{Block, Expr, ExprKind, Var};

use crate::context::Context;
use crate::pattern::{AccessInfo, Stride, domain_simplifier, flat_index, loads};

/// Whether squares of vectors with so many lanes, of so many bytes each, are transposed in registers.
pub(super) fn is_square(lanes: i64, bytes: usize) -> bool {
    (2..=i64::from(MAX_SQUARE)).contains(&lanes) && bytes >= 4
}

/// Lanes of the vectors of a block that stores elements of so many bytes.
pub(super) fn lanes_of(target: &Target, bytes: usize) -> i64 {
    i64::from(target.lanes(bytes.clamp(1, 4)))
}

/// The loop along which lies what the block reads apart along the lanes, in groups of so many at least; none where it may not read all of
/// them: guards part squares.
pub(super) fn across(context: &Context<'_>, block: &Block, lane: usize, group: i64) -> Option<usize> {
    let last =
        block.iters.get(lane).filter(|_| !block.body.iter().any(|store| reads_by_choice(&store.value)))?;
    let (func, simplifier) = (context.func, domain_simplifier(context.func, block));
    let lies_along = |access: &AccessInfo, var: Var| {
        if let Some(pieces) = context.layout(access.buffer) {
            // A group lies in one block.
            return along_blocks(pieces, group).is_some()
                && context.stride(&simplifier, access, var) == Stride::Constant(1);
        }
        let flat = flat_index(func, access);
        let at = |n: i64| flat.substitute_var(var, &(Expr::var(var) * group + n));
        let first = at(0);
        [1, group - 1].into_iter().all(|n| simplifier.simplify(&(at(n) - first.clone())).as_int() == Some(n))
    };
    let is_apart = |access: &AccessInfo| {
        !matches!(context.stride(&simplifier, access, last.var), Stride::Zero | Stride::Constant(1))
    };
    let mut apart = loads(block).into_iter().filter(is_apart);
    apart.find_map(|access| {
        let is_across = |&dim: &usize| {
            let var = block.iters[dim].var;
            dim != lane && access.uses(var) && lies_along(&access, var)
        };
        (0..block.iters.len()).rev().find(is_across)
    })
}

/// The dimension along which a layout has its elements together, where groups of so many do not cross the end of a block.
pub(super) fn along_blocks(pieces: &[Piece], group: i64) -> Option<usize> {
    pieces.last().filter(|piece| piece.factor.is_none_or(|factor| factor % group == 0)).map(|piece| piece.dim)
}

/// Whether something is read on one side of a choice.
fn reads_by_choice(value: &Expr) -> bool {
    let is_load = |e: &Expr| matches!(e.kind(), ExprKind::Load(..));
    value.any(&mut |e| match e.kind() {
        ExprKind::Select(_, a, b) => [a, b].into_iter().any(|side| side.any(&mut |e| is_load(e))),
        _ => false,
    })
}

/// Takes several iterations of one of the loops at once, directly around the vectors inside of all of them.
pub(super) fn take_at_once(
    schedule: &mut Schedule,
    loops: &mut [String],
    (across, rows): (usize, i64),
    vectors: &str,
) -> Result<(), ScheduleError> {
    let groups = schedule.split(&loops[across], &[None, Some(rows)])?;
    loops[across].clone_from(&groups[0]);
    let order = loops.iter().chain([&groups[1]]).map(String::as_str).chain([vectors]);
    schedule.reorder(&order.collect::<Vec<_>>())?;
    schedule.unroll(&groups[1])
}
