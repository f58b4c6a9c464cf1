//! Panels: the operand of a contraction that the rows of a tile share, laid out in the order in which it is read, and
//! asked for before it is needed.

use tilewright_te::schedule::{Padding, Piece, Prefetch, Schedule, ScheduleError};
use tilewright_te::{Block, Func, IterKind, Scope};

use crate::order::SECOND_LEVEL_PART;
use crate::pattern::AccessInfo;
use crate::tasks::extent_of;
use crate::tile::{AroundTile, Tile};
use crate::{Candidate, Context};

/// Cycles ahead of which a panel is asked for: memory's answer takes a few hundred, and longer while it is busy.
const FAR_CYCLES: i64 = 1600;

/// Over how many tiles hints are spread where their number is open: those of a batch or sequence of a hundred or two.
const ASSUMED_TILES: i64 = 16;

/// Lays the panel out so that a step's vectors are consecutive: now if it is a constant, else by a copy. Gives the name
/// of the buffer to read.
pub(crate) fn pack(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
    panel: &AccessInfo,
    pieces: Vec<Piece>,
) -> Result<String, ScheduleError> {
    let func = schedule.func();
    let name = func.buffers[panel.buffer].name.clone();
    let constant = context.constant_input(func, panel.buffer);
    if let Some(input) = constant.filter(|_| context.layout(&name).is_none()) {
        context.pack_input(schedule, input, &name, pieces)?;
        return Ok(name);
    }
    let copy = schedule.cache_read(block, &name, Scope::Global)?;
    let buffer = schedule.block_info(&copy)?.writes.remove(0);
    context.set_layout(&buffer, pieces, Padding::Zero);
    context.apply_layout(schedule, &buffer)?;
    crate::elementwise::schedule(schedule, context, &copy)?;
    Ok(buffer)
}

/// Whether the steps or rows (`row` is the position of their variable) of an operand that is indexed by plain variables lie so
/// far from each other that they all fall into the same few sets of the caches.
pub(crate) fn jumps_in_one_set(
    func: &Func,
    context: &Context<'_>,
    block: &Block,
    operand: &AccessInfo,
    row: Option<usize>,
) -> bool {
    /// Bytes of a way of the first level of cache, where it is indexed by the part of an address that needs no translation.
    const WAY: i64 = 4096;
    /// As many lines as there are ways may be in a set; half of them are left to what else is read.
    const FEW: i64 = 4;
    let buffer = &func.buffers[operand.buffer];
    let open = |dim| Piece { dim, factor: None };
    let pieces = context.layout(&buffer.name).unwrap_or_else(|| (0..buffer.shape.len()).map(open).collect());
    let extent = |piece: &Piece| {
        let inside = pieces.iter().filter(|p| p.dim == piece.dim).filter_map(|p| p.factor).product::<i64>();
        piece.factor.or_else(|| buffer.shape[piece.dim].as_int().map(|n| (n + inside - 1) / inside))
    };
    let is_walked = |n: usize| Some(n) == row || block.iters[n].kind == IterKind::Reduce;
    let walked: Vec<_> =
        (0..block.iters.len()).filter(|&n| is_walked(n)).map(|n| block.iters[n].var).collect();
    let varies = |piece: &Piece| {
        operand.indices.get(piece.dim).is_some_and(|index| walked.iter().any(|&var| index.uses(var)))
    };
    let mut distance = buffer.dtype.bytes() as i64;
    for piece in pieces.iter().rev() {
        let n = extent(piece);
        // An open extent is one of many.
        if varies(piece) && n.is_none_or(|n| n > FEW) && distance % WAY == 0 {
            return true;
        }
        let Some(n) = n else { return false };
        distance *= n;
    }
    false
}

/// A panel that is read.
pub(crate) struct Panel<'a> {
    /// The buffer.
    pub name: &'a str,
    /// Whether it comes from beyond the second level as a rule: weights that a run uses once.
    pub is_far: bool,
    /// Steps of a tile, if they are known.
    pub depth: Option<i64>,
}

/// Lets a tile's steps ask for what they will read of the panel later, or what tiles of the next panel will, or both.
pub(crate) fn prefetch(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
    panel: &Panel<'_>,
    around: &AroundTile,
    tile: &Tile,
) -> Result<(), ScheduleError> {
    let step = around.steps.iter().rfind(|name| extent_of(schedule, name) != Some(1));
    let (true, Some(step)) = (context.target.codegen.prefetch, step) else { return Ok(()) };
    if !context.decide(block, "prefetch", &candidates(panel.is_far))? {
        return Ok(());
    }
    let line = line_elements(context, schedule, panel);
    let hints = |loop_name: &String, around: &String, distance: i64, along: Vec<String>| Prefetch {
        loop_name: loop_name.clone(),
        block: block.to_string(),
        buffer: panel.name.to_string(),
        around: around.clone(),
        distance,
        assumed: ASSUMED_TILES,
        along,
        line,
    };
    let next = next_panel_at(schedule, context, around, panel.depth, tile, line);
    if let Some(at) = &next {
        let lines = around.steps.iter().chain([&around.vectors]).cloned().collect();
        schedule.prefetch(hints(at, &around.panels, 1, lines))?;
    }
    // Of tiles in unknown number there may be one.
    if next.is_none() || n_tiles(schedule, around).is_none() {
        let ports = i64::from(context.target.machine.fma.per_cycle.max(1));
        let steps = FAR_CYCLES * ports / (tile.rows * tile.vectors) + 1;
        schedule.prefetch(hints(step, step, steps, vec![around.vectors.clone()]))?;
    }
    Ok(())
}

/// Elements of a panel in a cache line.
fn line_elements(context: &Context<'_>, schedule: &Schedule, panel: &Panel<'_>) -> i64 {
    let buffer = schedule.func().buffers.values().find(|b| b.name == panel.name);
    let bytes = buffer.map_or(4, |b| b.dtype.bytes().max(1));
    (context.target.machine.caches.line as i64 / bytes as i64).max(1)
}

/// How many tiles share a panel, if that is known.
fn n_tiles(schedule: &Schedule, around: &AroundTile) -> Option<i64> {
    let sharing = around.loops.iter().skip_while(|name| **name != around.panels).skip(1);
    sharing.map(|name| extent_of(schedule, name)).try_fold(1i64, |n, extent| n.checked_mul(extent?))
}

/// The loop in whose iterations the tiles of a panel ask for parts of the next one, evenly; nothing where each step had better
/// ask for what a later one reads, because the tiles are so many that most would ask for nothing new: a hint in several steps is
/// cheaper than those even so. The first of the tiles alone would have to wait for all of the stream. Two panels must stay in the
/// second level.
fn next_panel_at(
    schedule: &Schedule,
    context: &Context<'_>,
    around: &AroundTile,
    depth: Option<i64>,
    tile: &Tile,
    line: i64,
) -> Option<String> {
    /// How much more may be asked for than there is.
    const EXCESS: f64 = 1.5;
    /// Unless hints, two of which take a cycle of the ports for loads, take no more than this part of the cycles.
    const RARE: f64 = 0.03;
    let ports = f64::from(context.target.machine.fma.per_cycle.max(1));
    let extent = |name: &String| extent_of(schedule, name);
    let tiles = n_tiles(schedule, around).unwrap_or(ASSUMED_TILES);
    let bytes = depth.map(|depth| 4 * depth * tile.vectors * tile.lanes);
    let room = (SECOND_LEVEL_PART * context.target.machine.caches.l2 as f64) as i64;
    let fits = bytes.is_some_and(|bytes| 2 * bytes <= room);
    if !fits || tiles < 2 || extent(&around.panels) == Some(1) {
        return None;
    }
    // The innermost loop, or the one around it, whose iterations have more to give.
    let at = |n_inner: usize| {
        let n = around.steps.len().checked_sub(n_inner + 1)?;
        let steps = around.steps[n + 1..].iter().map(extent).try_fold(1, |n, extent| Some(n * extent?))?;
        let lines = (steps * tile.vectors * tile.lanes + line - 1) / line;
        let share = (lines + tiles - 1) / tiles;
        let cycles = (steps * tile.rows * tile.vectors) as f64 / ports;
        let is_rare = share as f64 / 2.0 <= RARE * cycles;
        (is_rare || (share * tiles) as f64 <= EXCESS * lines as f64).then(|| around.steps[n].clone())
    };
    at(0).or_else(|| at(1))
}

/// Whether a tile's steps ask for what later steps read of the panel. Weights come from the third level or from memory, and hardware
/// follows a stream only inside of a page, and not before it has begun. Hints for what is near cost more than they save.
fn candidates(is_far: bool) -> Vec<Candidate<bool>> {
    let candidate = |value: bool| {
        let features = vec![("prefetch.panel", f64::from(u8::from(value)))];
        Candidate { value, cost: 1.0, features }
    };
    vec![candidate(is_far), candidate(!is_far)]
}
