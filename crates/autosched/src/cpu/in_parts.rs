//! The loops around tiles whose steps are cut into blocks.
//!
//! All tiles of a block of rows go over a block of steps before the next; partial sums are stored after it and loaded before
//! ([`depth`](crate::model::depth) prices that). The epilogue gets a nest of its own.

use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{IterKind, Scope};

use crate::cpu::tiled::{AroundTile, SplitLoops, TiledBlock};
use crate::layouts::Relayout;
use crate::pattern::iters_of;

/// How the steps of a block are cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// Blocks of steps.
    pub(crate) of_steps: i64,
    /// Groups of panels, where panels are shared out in groups.
    pub(crate) of_panels: Option<i64>,
    /// Groups of rows, where those for which a panel stays are shared out in groups.
    pub(crate) of_rows: Option<i64>,
}

/// The loops around a tile whose steps are cut into blocks.
pub(crate) struct InParts {
    /// The loops inside of that over blocks of steps, and the names in them.
    pub(crate) around: AroundTile,
    /// The loops outside of it, outermost first: tasks.
    pub(crate) tasks: Vec<String>,
    /// The layout of the partial sums.
    pub(crate) sums: Relayout,
}

/// Names of the loops over steps in blocks.
struct StepLoops {
    /// Over blocks of steps.
    parts: String,
    /// Those that stay loops, outermost first.
    steps: Vec<String>,
    /// Those that are unrolled.
    unrolled: Vec<String>,
}

impl TiledBlock {
    /// As [`TiledBlock::apply`], with the steps in blocks. What stores the results is left as it is computed.
    pub(crate) fn apply_in_parts(
        &self,
        schedule: &mut Schedule,
        parts: Parts,
    ) -> Result<InParts, ScheduleError> {
        let fail = |reason: &str| Err(ScheduleError::new("depth", &self.block, reason));
        let Some(data) = schedule.func().block(&self.block) else { return fail("no such block") };
        let rank = data.iters.len();
        let spatial = iters_of(data, IterKind::Spatial);
        let Some(&first) = iters_of(data, IterKind::Reduce).first() else {
            return fail("no reduction variable");
        };
        let Some(lane_dim) = spatial.iter().position(|&n| n == self.lane) else {
            return fail("its lanes are no data-parallel variable");
        };
        let n_rows = self.row.and_then(|row| data.iters[row].extent.as_int());

        let store = match &self.epilogue {
            Some(epilogue) => epilogue.clone(),
            None => schedule.cache_write(&self.block, Scope::Global)?,
        };
        let sums = schedule.block_info(&self.block)?.writes.remove(0);
        schedule.pad_einsum(&self.block, &self.factors(rank, n_rows))?;

        // Loops, outermost first: batches, rows that stay, blocks of steps, panels, the other rows, the tile.
        let own = schedule.loop_names(&self.block)?;
        let around: Vec<String> = spatial.iter().map(|&n| own[n].clone()).collect();
        let SplitLoops { batches: mut tasks, mut rows, n_outside, lane, tile_rows } =
            self.split_loops(schedule, &around, &spatial, n_rows)?;
        let mut inside = rows.split_off(n_outside);
        tasks.extend(rows);
        let mut panels = lane[0].clone();
        if let Some(groups) = parts.of_panels {
            let parts = schedule.split(&panels, &[Some(groups), None])?;
            tasks.push(parts[0].clone());
            panels.clone_from(&parts[1]);
        }
        let several = |name: &String| schedule.extent(name) != Some(1);
        if let (Some(groups), Some(at)) = (parts.of_rows, inside.iter().position(several)) {
            let parts = schedule.split(&inside[at], &[Some(groups), None])?;
            tasks.push(parts[0].clone());
            inside[at].clone_from(&parts[1]);
        }
        let steps = self.split_steps(schedule, &own, first, parts.of_steps)?;
        let StepLoops { parts, steps, unrolled } = steps;
        let order = tasks.iter().chain([&parts, &panels]).chain(&inside).chain(&steps).chain(&unrolled);
        let order: Vec<&str> = order.chain(&tile_rows).chain(&lane[1..]).map(String::as_str).collect();
        schedule.reorder(&order)?;
        for name in unrolled.iter().chain(&tile_rows).chain([&lane[1]]) {
            schedule.unroll(name)?;
        }
        schedule.vectorize(&lane[2])?;
        schedule.decompose_reduction(&self.block, &parts)?;

        let innermost = inside.last().unwrap_or(&panels).clone();
        let kept = self.keep_in_registers(schedule, &innermost, spatial.len(), lane_dim)?;
        let around = AroundTile {
            loops: [panels.clone()].into_iter().chain(inside).collect(),
            panels,
            steps,
            vectors: lane[1].clone(),
            store,
            registers: self.in_vectors(&kept, spatial.len(), lane_dim),
        };
        Ok(InParts { around, tasks, sums: self.in_vectors(&sums, spatial.len(), lane_dim) })
    }

    /// Splits the loops over steps, of which `own[first]` is cut into parts.
    fn split_steps(
        &self,
        schedule: &mut Schedule,
        own: &[String],
        first: usize,
        parts: i64,
    ) -> Result<StepLoops, ScheduleError> {
        let block = self.blocked_steps.map(|blocked| Some(blocked.factor));
        let factors: Vec<_> = [Some(parts), None].into_iter().chain(block).collect();
        let made = schedule.split(&own[first], &factors)?;
        let step_name = |n: usize| if n == first { made[1].clone() } else { own[n].clone() };
        let stays = |n: &&usize| !self.unrolled.contains(*n);
        let mut steps: Vec<String> = self.steps.iter().filter(stays).map(|&n| step_name(n)).collect();
        let mut unrolled: Vec<String> = self.unrolled.iter().map(|&n| step_name(n)).collect();
        if let (Some(blocked), Some(inner)) = (self.blocked_steps, made.get(2)) {
            match blocked.unroll {
                true => unrolled.insert(0, inner.clone()),
                false => steps.push(inner.clone()),
            }
        }
        Ok(StepLoops { parts: made[0].clone(), steps, unrolled })
    }

    /// Keeps the tile's sums in registers for a block of steps; gives the buffer.
    fn keep_in_registers(
        &self,
        schedule: &mut Schedule,
        innermost: &str,
        rank: usize,
        lane_dim: usize,
    ) -> Result<String, ScheduleError> {
        let copies = schedule.cache_inplace(&self.block, innermost, Scope::Register)?;
        let kept = schedule.block_info(&self.block)?.writes.remove(0);
        for copy in &copies {
            let loops = schedule.loop_names(copy)?;
            let own = &loops[loops.len() - rank..];
            let lane = schedule.split(&own[lane_dim], &[None, Some(self.tile.lanes)])?;
            let around: Vec<&String> = (0..own.len()).filter(|&d| d != lane_dim).map(|d| &own[d]).collect();
            let order: Vec<&str> = around.iter().copied().chain(&lane).map(String::as_str).collect();
            schedule.reorder(&order)?;
            for name in around.into_iter().chain([&lane[0]]) {
                schedule.unroll(name)?;
            }
            schedule.vectorize(&lane[1])?;
        }
        Ok(kept)
    }
}
