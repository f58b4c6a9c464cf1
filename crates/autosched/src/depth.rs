//! Depth: how many blocks the steps of a contraction are cut into, and the loops around its tiles then.
//!
//! The panels of a deep product, and what its rows read, do not stay in the caches for which the order of the loops means them.
//! Of a block of steps they do: partial sums are stored after it and loaded before the next. This is the outermost loop around
//! the kernel of Goto and van de Geijn ("Anatomy of High-Performance Matrix Multiplication", 2008). Each sum is the same as without.

use tilewright_te::schedule::{Padding, Piece, Schedule, ScheduleError};
use tilewright_te::{IterKind, Scope};

use crate::order::Extents;
use crate::pattern::iters_of;
use crate::tasks::extent_of;
use crate::tile::{AroundTile, SplitLoops, TiledBlock};
use crate::{Candidate, Context, elementwise};

/// Steps that a block has at least.
const LEAST_STEPS: i64 = 128;

/// Blocks that are offered at most.
const MOST_PARTS: i64 = 32;

/// Numbers of blocks that are offered.
const MAX_CANDIDATES: usize = 3;

/// The part of the cycles that cutting has to save.
const LEAST_GAIN: f64 = 0.08;

/// Tasks that threads share evenly whatever their number.
const ENOUGH_TASKS: i64 = 16;

/// Numbers of blocks of steps, the best first; `chunks` is what can be shared out among them.
///
/// Cost is that of the best order of the loops around the tile.
pub(crate) fn candidates(
    extents: &Extents,
    chunks: i64,
    order: impl Fn(&Extents) -> f64,
) -> Vec<Candidate<i64>> {
    let cost = |parts: i64| order(&Extents { parts, ..extents.clone() });
    let candidate = |parts: i64, cost: f64| {
        let features = vec![("depth.parts", (parts as f64).log2())];
        Candidate { value: parts, cost, features }
    };
    let whole = cost(1);
    let fits = |n: &i64| chunks % n == 0 && extents.depth / n >= LEAST_STEPS;
    let mut parts: Vec<_> =
        (2..=MOST_PARTS.min(chunks)).filter(fits).map(|n| candidate(n, cost(n))).collect();
    parts.retain(|part| part.cost < whole * (1.0 - LEAST_GAIN));
    parts.sort_by(|a, b| (a.cost * 1e6).round().total_cmp(&(b.cost * 1e6).round()));
    parts.truncate(MAX_CANDIDATES);
    parts.push(candidate(1, whole));
    parts
}

/// The loops around a tile whose steps are cut into blocks.
pub(crate) struct InParts {
    /// The loops inside of that over blocks of steps, and the names in them.
    pub around: AroundTile,
    /// The loops outside of it, outermost first: tasks.
    pub tasks: Vec<String>,
}

impl TiledBlock<'_> {
    /// As [`TiledBlock::apply`], with the steps in `parts` blocks. The epilogue gets a nest of its own, which is scheduled too.
    pub(crate) fn apply_in_parts(
        self,
        schedule: &mut Schedule,
        context: &mut Context<'_>,
        parts: i64,
    ) -> Result<InParts, ScheduleError> {
        let fail = |reason: &str| Err(ScheduleError::new("depth", self.block, reason));
        let Some(data) = schedule.func().block(self.block) else { return fail("no such block") };
        let rank = data.iters.len();
        let spatial = iters_of(data, IterKind::Spatial);
        let Some(&first) = iters_of(data, IterKind::Reduce).first() else {
            return fail("no reduction variable");
        };
        let Some(lane_dim) = spatial.iter().position(|&n| n == self.lane) else {
            return fail("its lanes are no data-parallel variable");
        };
        let lanes = self.tile.lanes;
        let n_rows = self.row.and_then(|row| data.iters[row].extent.as_int());

        let store = match &self.epilogue {
            Some(epilogue) => epilogue.clone(),
            None => schedule.cache_write(self.block, Scope::Global)?,
        };
        let sums = schedule.block_info(self.block)?.writes.remove(0);
        schedule.pad_einsum(self.block, &self.factors(rank, n_rows))?;

        // Loops, outermost first: batches, rows that stay, blocks of steps, panels, the other rows, the tile.
        let own = schedule.loop_names(self.block)?;
        let around: Vec<String> = spatial.iter().map(|&n| own[n].clone()).collect();
        let SplitLoops { batches: mut tasks, mut rows, n_outside, lane: lane_parts, tile_rows } =
            self.split_loops(schedule, &around, &spatial, n_rows)?;
        let inside = rows.split_off(n_outside);
        tasks.extend(rows);
        let mut panels = lane_parts[0].clone();
        if let Some(groups) = panel_groups(schedule, &tasks, &panels) {
            let parts = schedule.split(&panels, &[Some(groups), None])?;
            tasks.push(parts[0].clone());
            panels.clone_from(&parts[1]);
        }
        let step_parts = {
            let block = self.blocked_steps.map(|blocked| Some(blocked.factor));
            let parts: Vec<_> = [Some(parts), None].into_iter().chain(block).collect();
            schedule.split(&own[first], &parts)?
        };
        let step_name = |n: usize| if n == first { step_parts[1].clone() } else { own[n].clone() };
        let stays = |n: &&usize| !self.unrolled.contains(*n);
        let mut steps: Vec<String> = self.steps.iter().filter(stays).map(|&n| step_name(n)).collect();
        let mut unrolled: Vec<String> = self.unrolled.iter().map(|&n| step_name(n)).collect();
        if let (Some(blocked), Some(inner)) = (self.blocked_steps, step_parts.get(2)) {
            match blocked.unroll {
                true => unrolled.insert(0, inner.clone()),
                false => steps.push(inner.clone()),
            }
        }
        let order =
            tasks.iter().chain([&step_parts[0], &panels]).chain(&inside).chain(&steps).chain(&unrolled);
        let order: Vec<&str> = order.chain(&tile_rows).chain(&lane_parts[1..]).map(String::as_str).collect();
        schedule.reorder(&order)?;
        for name in unrolled.iter().chain(&tile_rows).chain([&lane_parts[1]]) {
            schedule.unroll(name)?;
        }
        schedule.vectorize(&lane_parts[2])?;
        schedule.decompose_reduction(self.block, &step_parts[0])?;

        // The tile's sums in registers for a block of steps.
        let innermost = inside.last().unwrap_or(&panels).clone();
        let copies = schedule.cache_inplace(self.block, &innermost, Scope::Register)?;
        let kept = schedule.block_info(self.block)?.writes.remove(0);
        for copy in &copies {
            let loops = schedule.loop_names(copy)?;
            let own = &loops[loops.len() - spatial.len()..];
            let lane = schedule.split(&own[lane_dim], &[None, Some(lanes)])?;
            let around: Vec<&String> = (0..own.len()).filter(|&d| d != lane_dim).map(|d| &own[d]).collect();
            let order: Vec<&str> = around.iter().copied().chain(&lane).map(String::as_str).collect();
            schedule.reorder(&order)?;
            for name in around.into_iter().chain([&lane[0]]) {
                schedule.unroll(name)?;
            }
            schedule.vectorize(&lane[1])?;
        }
        let mut pieces: Vec<Piece> = (0..spatial.len()).map(|dim| Piece { dim, factor: None }).collect();
        pieces.push(Piece { dim: lane_dim, factor: Some(lanes) });
        context.set_layout(&kept, pieces.clone(), Padding::Undefined);
        context.set_layout(&sums, pieces, Padding::Undefined);
        elementwise::schedule(schedule, context, &store)?;
        let around = AroundTile {
            loops: [panels.clone()].into_iter().chain(inside).collect(),
            panels,
            steps,
            vectors: lane_parts[1].clone(),
            store,
        };
        Ok(InParts { around, tasks })
    }
}

/// Into how many groups the panels are best shared out, so that there are enough tasks.
fn panel_groups(schedule: &Schedule, tasks: &[String], panels: &str) -> Option<i64> {
    let extent = |name: &str| extent_of(schedule, name);
    let others = tasks.iter().try_fold(1i64, |n, name| n.checked_mul(extent(name)?))?;
    let n_panels = extent(panels)?;
    let is_even = |n: i64| n % 4 == 0 || n >= ENOUGH_TASKS;
    if is_even(others) {
        return None;
    }
    let divisors = || (2..=n_panels.min(ENOUGH_TASKS)).filter(|groups| n_panels % groups == 0);
    divisors().find(|groups| is_even(others * groups)).or_else(|| divisors().next_back())
}
