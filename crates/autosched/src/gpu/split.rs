//! Products whose steps are cut into parts, because their tiles are too few to keep all multiprocessors busy.
//!
//! Partial products go to memory, and a second kernel sums them up, always in the same order, with what is computed of the results. A part is
//! a product as any other, one of a batch: the rule for products plans it on the function that has the parts.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_machine::Gpu;
use tilewright_te::schedule::{Padding, Piece, Schedule, ScheduleError, indivisible};
use tilewright_te::{Block, IterKind};

use super::product::{Roles, number_of};
use super::store::shares_loops;
use super::tile::{Extents, Tile, steps_at_a_time};
use super::{elements, product};
use crate::context::Context;
use crate::decisions::{Candidate, Chooser, Decisions};
use crate::layouts::Relayout;
use crate::loops::loops_of;
use crate::pattern::iters_of;
use crate::refusal::Refusal;

/// Into how many parts steps may be cut.
const PARTS: [i64; 7] = [2, 3, 4, 6, 8, 12, 16];

/// Rounds of fetching that a part has at least: as many as the deepest pipeline has stages, or it would never be full.
const LEAST_ROUNDS: i64 = 4;

/// Tiles for each multiprocessor from which on there are enough: while one waits, the others work.
const ENOUGH: i64 = 4;

/// What is done to a product in parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// The block.
    pub block: String,
    /// Position of the variable over steps that is cut.
    pub step: usize,
    /// Parts of its values.
    pub parts: i64,
    /// What is done to the products of the parts.
    pub partial: product::Strategy,
    /// What is done to the sums of them.
    pub sum: elements::Strategy,
}

/// `4 parts by 4: ` and the strategies of the parts and of the sum.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Strategy { step, parts, partial, sum, .. } = self;
        write!(f, "{parts} parts by {step}: {partial}; sums {sum}")
    }
}

/// What is done to a product, whole or in parts.
pub(crate) enum Plan {
    /// Its steps stay together.
    Whole(product::Strategy),
    /// They are cut.
    InParts(Strategy),
}

/// Plans a product, in parts where that is faster.
pub(crate) fn plan(context: &Context<'_>, block: &Block, chooser: &mut Chooser<'_>) -> Result<Plan, Refusal> {
    let offered = offers(context, block);
    let cut = match &offered[..] {
        [] => None,
        _ => Some(chooser.decide(&block.name, "parts", &offered)?).filter(|cut| cut.parts > 1),
    };
    Ok(match cut {
        Some(cut) => Plan::InParts(cut.plan(context, block, chooser)?),
        None => Plan::Whole(product::plan(context, block, chooser)?),
    })
}

/// A way to cut a block's steps.
#[derive(Clone, Copy)]
struct Cut {
    step: usize,
    parts: i64,
}

/// `4`.
impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.fmt(f)
    }
}

/// Into how many parts the steps of a product may be cut, the cheapest first; nothing where there is nothing to choose.
fn offers(context: &Context<'_>, block: &Block) -> Vec<Candidate<Cut>> {
    let Some(gpu) = context.target.gpu else { return Vec::new() };
    let divides = block.is_commutative() && indivisible(block).is_none();
    if !divides || !context.is_as_computed(block) || shares_loops(context, block) {
        return Vec::new();
    }
    let Ok(roles) = Roles::of(block) else { return Vec::new() };
    let (extents, steps) = (roles.extents(block), number_of(block, &roles.steps));
    let tiles = Tile::candidates(&gpu, extents).first().map(|tile| tile.value.tiles(extents));
    let is_idle = tiles.is_some_and(|tiles| tiles < ENOUGH * i64::from(gpu.multiprocessors));
    let (Some(steps), Some(step)) = (steps.filter(|_| is_idle), step_to_cut(block, &roles)) else {
        return Vec::new();
    };
    let extent = block.iters[step].extent.as_int().unwrap_or(1);
    let fits = |parts: &&i64| {
        let at_a_time = steps_at_a_time(Some(steps));
        // A part fetches as the whole would.
        let is_even = |n: i64| n % at_a_time == 0;
        extent % **parts == 0
            && steps_at_a_time(Some(steps / **parts)) == at_a_time
            && is_even(extent / **parts) == is_even(extent)
            && steps / **parts >= LEAST_ROUNDS * at_a_time
    };
    let cut = |&parts: &i64| {
        let cost = cycles(&gpu, extents, steps, parts);
        Candidate { value: Cut { step, parts }, cost, features: vec![("parts.cycles", cost.log2())] }
    };
    let mut cuts: Vec<_> = PARTS.iter().filter(fits).map(cut).collect();
    if !cuts.is_empty() {
        cuts.insert(0, cut(&1));
    }
    cuts.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    // One number of parts is planned as any other is.
    let decisions = Decisions::default();
    let applies = |best: &Candidate<Cut>| {
        best.value.parts == 1 || best.value.plan(context, block, &mut Chooser::new(&decisions)).is_ok()
    };
    if cuts.first().is_some_and(applies) { cuts } else { Vec::new() }
}

/// The variable whose values become parts: the one with most of them among those that move no window, so that all of a part's windows lie in
/// the same places.
fn step_to_cut(block: &Block, roles: &Roles) -> Option<usize> {
    let spatial = iters_of(block, IterKind::Spatial);
    let var = |n: usize| block.iters[n].var;
    let in_window = |n: usize| {
        let indices = roles.factors.iter().flat_map(|access| &access.indices);
        indices.filter(|index| index.uses(var(n))).any(|index| spatial.iter().any(|&s| index.uses(var(s))))
    };
    let channels = roles.steps.iter().copied().filter(|&n| !in_window(n));
    channels.max_by_key(|&n| (block.iters[n].extent.as_int(), std::cmp::Reverse(n)))
}

/// Cycles of a product in parts: its tiles', and what its sum moves and costs to launch.
fn cycles(gpu: &Gpu, extents: Extents, steps: i64, parts: i64) -> f64 {
    let of_parts = Extents { batch: extents.batch.map(|batch| batch * parts), ..extents };
    let tile = Tile::candidates(gpu, of_parts).into_iter().next();
    let a_step = tile.map_or(f64::INFINITY, |tile| tile.value.cycles_by_rounds(gpu, of_parts));
    let products = a_step * (steps / parts) as f64;
    let results = extents.assumed().into_iter().product::<i64>();
    // Each partial result is written and read.
    let bytes = 2 * parts * results * size_of::<f32>() as i64;
    let sum = gpu.cycles_of_bytes(bytes as f64) + gpu.cycles_of_launch();
    products + if parts > 1 { sum } else { 0.0 }
}

impl Cut {
    /// Plans the products of the parts, and the sums, on the function that has them.
    fn plan(
        self,
        context: &Context<'_>,
        block: &Block,
        chooser: &mut Chooser<'_>,
    ) -> Result<Strategy, Refusal> {
        let refuse = |reason: String| Refusal::new("product", &block.name, &reason);
        let mut schedule = Schedule::new(context.func.clone());
        let made = self.apply(&mut schedule, &block.name).map_err(|error| refuse(error.to_string()))?;
        if context.taken.contains(&made) {
            return Err(refuse(format!("there will be another block `{made}`")));
        }
        let func = schedule.func();
        let lost = || refuse("a block is lost".into());
        let products = func.block(&made).ok_or_else(lost)?;
        let partial = product::plan(&Context { func, ..*context }, products, chooser)?;
        let mut taken: BTreeSet<String> = context.taken.clone();
        taken.extend(partial.blocks().into_iter().chain(partial.copies()));
        let context = Context { func, taken: &taken, ..*context };
        let sum = elements::plan(&context, func.block(&block.name).ok_or_else(lost)?, chooser)?;
        Ok(Strategy { block: block.name.clone(), step: self.step, parts: self.parts, partial, sum })
    }

    /// Makes a block that computes the parts, and one that sums them up in the place of the old; gives the first.
    fn apply(self, schedule: &mut Schedule, block: &str) -> Result<String, ScheduleError> {
        let loops = schedule.loop_names(block)?;
        let lost = || ScheduleError::new("split", block, "a loop is lost");
        let parts = schedule.split(loops.get(self.step).ok_or_else(lost)?, &[Some(self.parts), None])?;
        schedule.rfactor(block, &parts[0])
    }
}

impl Strategy {
    /// The blocks that it schedules.
    pub(crate) fn blocks(&self) -> Vec<String> {
        self.sum.blocks().into_iter().chain(self.partial.blocks()).collect()
    }

    /// The blocks that it makes of what they read and write.
    pub(crate) fn copies(&self) -> Vec<String> {
        self.sum.copies().into_iter().chain(self.partial.copies()).collect()
    }

    /// Schedules the blocks. Partial results of a part lie together, as the tiles store them.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<Vec<Relayout>, ScheduleError> {
        let made = Cut { step: self.step, parts: self.parts }.apply(schedule, &self.block)?;
        let info = schedule.block_info(&made)?;
        let rank = info.iters.iter().filter(|(kind, _)| *kind == IterKind::Spatial).count();
        let pieces = std::iter::once(rank - 1).chain(0..rank - 1).map(|dim| Piece { dim, factor: None });
        let relayout = |buffer| Relayout { buffer, pieces: pieces.collect(), padding: Padding::Undefined };
        let partial = info.writes.into_iter().next().map(relayout);
        let mut relayouts = self.partial.apply(schedule)?;
        relayouts.extend(partial);
        self.sum.apply(schedule)?;
        for name in loops_of(schedule, &self.block, IterKind::Reduce)? {
            schedule.unroll(&name)?;
        }
        Ok(relayouts)
    }
}
