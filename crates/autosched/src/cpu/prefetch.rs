//! Prefetches: a tile's steps ask for what they, or tiles of the next panel, will read of the operand that rows share.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{self, Schedule, ScheduleError};

use crate::context::Context;
use crate::cpu::tiled::AroundTile;
use crate::decisions::Chooser;
use crate::model::machine::{l2_room, numbers, ports};
use crate::model::prefetch::{ASSUMED_TILES, EXCESS, RARE, prefetches};
use crate::model::tile::Tile;
use crate::refusal::Refusal;
use crate::strategy::Level;

/// What a tile's steps ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Prefetches {
    /// Elements of a cache line.
    pub line: i64,
    /// The loop over steps, counted from the outermost, in whose iterations tiles ask for parts of the next panel, evenly.
    pub next_panel_in: Option<usize>,
    /// The loop over steps in which each step asks for what another one reads, and how many steps later that is.
    pub ahead: Option<(usize, i64)>,
    /// Whether only the first of the tiles that share a panel looks ahead.
    pub first_ahead: bool,
}

/// `prefetch the next panel in step loop 0`, `prefetch 30 steps ahead in step loop 1`.
impl fmt::Display for Prefetches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("prefetch")?;
        if let Some(at) = self.next_panel_in {
            write!(f, " the next panel in step loop {at}")?;
        }
        if let Some((at, steps)) = self.ahead {
            write!(f, " {steps} steps ahead in step loop {at}")?;
            if self.first_ahead {
                f.write_str(" of the first tile")?;
            }
        }
        Ok(())
    }
}

/// A panel that is read in the loops around a tile.
#[derive(Clone, Debug)]
pub(crate) struct PanelReads {
    /// Where it comes from as a rule.
    pub(crate) home: Level,
    /// Bytes of an element.
    pub(crate) element: i64,
    /// Steps of a tile, if they are known.
    pub(crate) depth: Option<i64>,
    /// Iterations of the loop over panels, where known.
    pub(crate) n_panels: Option<i64>,
    /// How many tiles share a panel, where known.
    pub(crate) n_tiles: Option<i64>,
    /// Extents of the loops over steps, outermost first, where known.
    pub(crate) steps: Vec<Option<i64>>,
}

impl Prefetches {
    /// Decides whether there are any, and plans them.
    pub(crate) fn plan(
        context: &Context<'_>,
        block: &str,
        reads: &PanelReads,
        tile: &Tile,
        chooser: &mut Chooser<'_>,
    ) -> Result<Option<Prefetches>, Refusal> {
        let step = reads.steps.iter().rposition(|extent| *extent != Some(1));
        let (true, Some(step)) = (context.target.codegen.prefetch, step) else { return Ok(None) };
        if !chooser.decide(block, "prefetch", &prefetches(reads.home == Level::Beyond))? {
            return Ok(None);
        }
        let line = (context.target.machine.caches.line as i64 / reads.element.max(1)).max(1);
        let next_panel_in = next_panel_in(context, reads, tile, line);
        // Of tiles in unknown number there may be one.
        let first_ahead = reads.n_tiles.is_none();
        let is_alone = next_panel_in.is_none() || first_ahead;
        let products = numbers(context.target).core.prefetch_ahead_cycles * ports(context.target);
        let ahead = is_alone.then(|| (step, products as i64 / (tile.rows * tile.vectors) + 1));
        Ok(Some(Prefetches { line, next_panel_in, ahead, first_ahead }))
    }

    /// Adds the hints to the loops around a tile.
    pub(crate) fn apply(
        &self,
        schedule: &mut Schedule,
        block: &str,
        panel: &str,
        around: &AroundTile,
    ) -> Result<(), ScheduleError> {
        let step = |n: usize| {
            let lost = || ScheduleError::new("prefetch", block, "a loop over steps is lost");
            around.steps.get(n).ok_or_else(lost)
        };
        let hints = |loop_name: &String, of: &String, distance: i64, along: Vec<String>| schedule::Prefetch {
            loop_name: loop_name.clone(),
            block: block.to_string(),
            buffer: panel.to_string(),
            around: of.clone(),
            distance,
            assumed: ASSUMED_TILES,
            along,
            first_of: Vec::new(),
            line: self.line,
        };
        if let Some(at) = self.next_panel_in {
            let lines = around.steps.iter().chain([&around.vectors]).cloned().collect();
            schedule.prefetch(hints(step(at)?, &around.panels, 1, lines))?;
        }
        if let Some((at, steps)) = self.ahead {
            let step = step(at)?;
            let rows = around.loops.iter().skip_while(|name| **name != around.panels).skip(1);
            let first_of = if self.first_ahead { rows.cloned().collect() } else { Vec::new() };
            let ahead = hints(step, step, steps, vec![around.vectors.clone()]);
            schedule.prefetch(schedule::Prefetch { first_of, ..ahead })?;
        }
        Ok(())
    }
}

/// The loop in whose iterations the tiles of a panel ask for parts of the next one, evenly; nothing where each step had better
/// ask for what a later one reads, because the tiles are so many that most would ask for nothing new: a hint in several steps is
/// cheaper than those even so. The first of the tiles alone would have to wait for all of the stream. Two panels must stay in L2.
fn next_panel_in(context: &Context<'_>, reads: &PanelReads, tile: &Tile, line: i64) -> Option<usize> {
    let tiles = reads.n_tiles.unwrap_or(ASSUMED_TILES);
    let bytes = reads.depth.map(|depth| 4 * depth * tile.vectors * tile.lanes);
    let room = l2_room(context.target) as i64;
    let fits = bytes.is_some_and(|bytes| 2 * bytes <= room);
    if !fits || tiles < 2 || reads.n_panels == Some(1) {
        return None;
    }
    // The innermost loop, or the one around it, whose iterations have more to give.
    let at = |n_inner: usize| {
        let n = reads.steps.len().checked_sub(n_inner + 1)?;
        let steps = reads.steps[n + 1..].iter().try_fold(1, |n, extent| Some(n * (*extent)?))?;
        let lines = (steps * tile.vectors * tile.lanes + line - 1) / line;
        let share = (lines + tiles - 1) / tiles;
        let cycles = (steps * tile.rows * tile.vectors) as f64 / ports(context.target);
        let is_rare = share as f64 / numbers(context.target).core.loads_per_cycle <= RARE * cycles;
        (is_rare || (share * tiles) as f64 <= EXCESS * lines as f64).then_some(n)
    };
    at(0).or_else(|| at(1))
}
