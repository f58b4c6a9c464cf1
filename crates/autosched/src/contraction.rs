//! Matrix products and convolutions: register tiles of outputs, held across the whole reduction.
//!
//! A contraction is a sum of products of two operands. One data-parallel variable gives the *lanes*: the
//! results' elements lie consecutive along it, and so do those of one operand (the *panel*, packed where it
//! is not), while the other operand (the *broadcast* one) does not depend on it. Another gives the *rows* of
//! the register tile: the panel does not depend on it. A tile of rows times vectors is accumulated in
//! registers over all steps of the reduction and leaves through the epilogue.
//!
//! The loops around and inside the tile are [`TiledBlock`]'s.

use std::fmt;

use tilewright_te::schedule::{Piece, Schedule, ScheduleError};
use tilewright_te::simplify::Simplifier;
use tilewright_te::{Block, Buffer, Expr, ExprKind, Func, IterKind};

use crate::depth::{self, InParts};
use crate::order::{Extents, Order, is_behind_network};
use crate::panel::{self, Panel};
use crate::pattern::{AccessInfo, Stride, constant_product, domain_simplifier, iters_of, stride};
use crate::sums::{self, Sums, Way};
use crate::tasks::{self, bytes_of, shares_rows};
use crate::tile::{
    BlockedSteps, Tile, TiledBlock, Traffic, epilogue_of, lanes_for, last_of_several, stored_layout,
    stores_at_its_variables,
};
use crate::{Candidate, Context};

/// Steps of the innermost loop up to which it is unrolled where the code generator gains by that.
const UNROLLED_STEPS: i64 = 8;

/// Rows that an open number of them is taken for: those of a batch or sequence of medium size.
const ASSUMED_ROWS: i64 = 128;

/// The parts a contraction's variables and operands play.
struct Roles {
    /// Position of the lanes' variable.
    lane: usize,
    /// Position of the rows' variable, if there is one.
    row: Option<usize>,
    /// The operand with consecutive elements along the lanes.
    panel: AccessInfo,
    /// The other operand.
    broadcast: AccessInfo,
    /// Whether the panel has to be laid out anew.
    pack: bool,
}

impl Roles {
    /// Positions of the data-parallel variables that the panel does not depend on: their results share it.
    fn sharing(&self, block: &Block) -> Vec<usize> {
        let shares = |n: &usize| !self.panel.indices.iter().any(|e| e.uses(block.iters[*n].var));
        iters_of(block, IterKind::Spatial).into_iter().filter(shares).collect()
    }
}

/// Schedules a sum of products with its epilogue.
pub fn schedule(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
) -> Result<Vec<String>, ScheduleError> {
    let Some(data) = schedule.func().block(block) else {
        return Err(ScheduleError::new("contraction", block, "no such block"));
    };
    let Some(sums) = sums::of(schedule, data) else { return schedule_with(schedule, context, block, None) };
    match context.decide(block, "sums", &Sums::ways(context, data))? {
        Way::InBlocks => schedule_with(schedule, context, block, Some(&sums)),
        Way::Afterwards => {
            let mut taken = schedule_with(schedule, context, block, None)?;
            sums.afterwards(schedule, i64::from(context.target.lanes(4)))?;
            taken.push(sums.reader);
            Ok(taken)
        }
    }
}

/// Schedules a sum of products with its epilogue, or with what sums its results in blocks.
fn schedule_with(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
    sums: Option<&Sums>,
) -> Result<Vec<String>, ScheduleError> {
    let fail = |reason: &str| Err(ScheduleError::new("contraction", block, reason));
    let func = schedule.func();
    let Some(data) = func.block(block) else { return fail("no such block") };
    let Some((a, b)) = operands(data) else { return fail("not a sum of products") };
    if schedule.loop_names(block)?.len() != data.iters.len() {
        return fail("the block is scheduled already");
    }
    if !stores_at_its_variables(data) {
        return fail("its results are not stored at its variables");
    }
    let epilogue = epilogue_of(schedule, block);
    let layout = stored_layout(schedule, context, &epilogue, data.body[0].buffer);
    let Some(roles) = roles(func, context, data, [a, b], &layout) else {
        return fail("no variable whose results and one operand lie consecutive");
    };
    if roles.row.is_none() && is_window(data, &roles.panel) {
        return fail("no rows share the panel, and its windows overlap");
    }
    let Some(lanes) = lanes_for(context, &data.iters[roles.lane].extent, &layout, roles.lane) else {
        return fail("no vector of that extent");
    };

    let vectors = data.iters[roles.lane].extent.as_int().map(|n| (n + lanes - 1) / lanes);
    let n_rows = roles.row.map_or(Some(1), |n| data.iters[n].extent.as_int());
    let traffic = traffic(data, &roles);
    let tiles = Tile::candidates(context.target, lanes, n_rows, vectors, traffic);
    // Where the third level is near, cuts save so little that small errors of the model would decide between tiles.
    let may_be_cut = sums.is_none() && is_behind_network(&context.target.machine.caches);
    let mut tiles = with_orders(func, context, &roles, data, tiles, may_be_cut);
    if sums.is_some() {
        // What sums in blocks knows of no tiles that reach past the end.
        let columns = data.iters[roles.lane].extent.as_int();
        let whole = |tile: &Tile| columns.is_some_and(|n| n % (tile.vectors * tile.lanes) == 0);
        tiles.retain(|tile| whole(&tile.value));
    }
    let tile = context.decide(block, "tile", &tiles)?;
    let steps = context.decide(block, "steps", &step_orders(data))?;
    let depth = constant_product(steps.0.iter().map(|&n| &data.iters[n].extent));
    let (blocked_steps, unrolled) = walk(func, context, data, &steps.0);
    let rows = rows_around(data, &roles, &tile);
    let mut panel = func.buffers[roles.panel.buffer].name.clone();
    let moved = moved(func, &roles, data);
    let machine = &context.target.machine;
    let ports = f64::from(machine.fma.per_cycle.max(1));
    let is_constant = context.constant_input(func, roles.broadcast.buffer).is_some();
    let extents = extents(func, context, &roles, data, &rows, &tile);
    let n_panels = extents.as_ref().map_or(0, |extents| extents.vectors / tile.vectors);
    let row_pieces = row_pieces(data, &roles, &steps, &tile, blocked_steps, is_constant);
    let packs_rows = match is_constant || row_pieces.is_none() {
        true => row_pieces.is_some(),
        false => {
            let jumps = panel::jumps_in_one_set(func, context, data, &roles.broadcast, roles.row);
            context.decide(block, "pack-rows", &packings(jumps, n_panels))?
        }
    };
    let known = extents.clone();
    let mut parts = 1;
    let n_products = extents.as_ref().map_or(1, |extents| extents.batches);
    let all_rows = extents.as_ref().map_or(1, |extents| extents.rows.iter().product());
    let orders = match extents {
        Some(_) if sums.is_some() => Sums::orders(context, &tile, n_products, all_rows),
        Some(mut extents) => {
            if packs_rows {
                extents.run = extents.depth * tile.rows;
            }
            let orders = |extents: &Extents| Order::of_contraction(&tile, extents, &machine.caches, ports);
            let best = |extents: &Extents| best_cost(&orders(extents));
            let chunks = chunks_of(data, blocked_steps, &extents);
            parts = context.decide(block, "depth", &depth::candidates(&extents, chunks, best))?;
            extents.parts = parts;
            orders(&extents)
        }
        None => Order::candidates(&tile, n_rows, vectors, depth),
    };
    let order = context.decide(block, "order", &orders)?;
    let block_panels = Sums::panels_of_block(context, &tile, order, (n_products, all_rows, n_panels));
    let comes_again = known.is_some_and(|extents| extents.panels_come_again(order, &tile, &machine.caches));
    let is_weight = context.constant_input(func, roles.panel.buffer).is_some();
    let width = tile.vectors * tile.lanes;
    // Where tiles reach past the end, loads would be clamped lane by lane; a copy is padded to whole tiles.
    let cut_off = data.iters[roles.lane].extent.as_int().is_none_or(|n| n % width != 0);
    let pack = roles.pack || (cut_off && plain_variables(data, &roles.panel).is_some());
    if pack {
        let factor = blocked_steps.map(|blocked| blocked.factor);
        let Some(pieces) = packed_layout(data, &roles.panel, roles.lane, &steps, width, factor) else {
            return fail("the panel's indices are not plain");
        };
        let pieces = match sums {
            Some(sums) => sums.together(pieces, block_panels),
            None => pieces,
        };
        panel = panel::pack(schedule, context, block, &roles.panel, pieces)?;
    }
    if let Some(pieces) = row_pieces.filter(|_| packs_rows) {
        panel::pack(schedule, context, block, &roles.broadcast, pieces)?;
    }
    let (lane, row) = (roles.lane, roles.row);
    let steps = steps.0;
    let tiled = TiledBlock { block, epilogue, lane, row, tile, order, rows, steps, blocked_steps, unrolled };
    if parts > 1 {
        let InParts { around, tasks } = tiled.apply_in_parts(schedule, context, parts)?;
        let panel = Panel { name: &panel, is_far: is_weight, depth: depth.map(|depth| depth / parts) };
        panel::prefetch(schedule, context, block, &panel, &around, &tile)?;
        tasks::parallelize_prefix(schedule, &tasks)?;
        return Ok(vec![block.to_string(), around.store]);
    }
    let mut around = tiled.apply(schedule, context)?;
    if let Some(sums) = sums {
        let store = around.store.clone();
        let products = schedule.block_info(&store)?.writes.remove(0);
        let shares_rows = moved.is_some_and(|(weights, image)| shares_rows(weights, image));
        around = sums.apply(schedule, around, &products, &tile, block_panels, shares_rows)?;
        let panel = Panel { name: &panel, is_far: is_weight, depth };
        panel::prefetch(schedule, context, block, &panel, &around, &tile)?;
        return Ok(vec![block.to_string(), store, sums.reader.clone()]);
    }
    let panel = Panel { name: &panel, is_far: is_weight && !comes_again, depth };
    panel::prefetch(schedule, context, block, &panel, &around, &tile)?;

    let shares_rows = moved.is_some_and(|(weights, image)| shares_rows(weights, image));
    let is_single = |name: &String| tasks::extent_of(schedule, name) == Some(1);
    let panels = around.loops.iter().position(|name| *name == around.panels);
    if let (Order::BlockStays(_), Some(panels)) = (order, panels) {
        // Threads share blocks, each of which reads all panels, or the panels of each block.
        let (blocks, inside) = around.loops.split_at(panels);
        match shares_rows && !blocks.iter().all(is_single) {
            true => tasks::parallelize_prefix(schedule, blocks)?,
            false => tasks::nest(schedule, blocks, &inside[..1])?,
        }
        return Ok(vec![block.to_string(), around.store]);
    }
    let rounds = panels.map(|n| n + 1).filter(|&n| {
        shares_rows
            && around.loops[..n - 1].iter().all(is_single)
            && around.loops[n..].iter().any(|name| !is_single(name))
    });
    let serial = serial_loops(schedule, context, &around.loops, rounds.unwrap_or(0));
    let n_serial = context.decide(block, "serial", &serial)?;
    let n_tasks = around.loops.len().saturating_sub(n_serial).max(1);
    match rounds {
        Some(n) => tasks::nest(schedule, &around.loops[..n], &around.loops[n..n_tasks])?,
        None => tasks::parallelize_prefix(schedule, &around.loops[..n_tasks])?,
    }
    Ok(vec![block.to_string(), around.store])
}

/// Tiles with what the best order of the loops around each adds to its cost, where that can be told, with the steps cut into blocks if
/// they `may_be_cut`; the best first.
fn with_orders(
    func: &Func,
    context: &Context<'_>,
    roles: &Roles,
    block: &Block,
    mut tiles: Vec<Candidate<Tile>>,
    may_be_cut: bool,
) -> Vec<Candidate<Tile>> {
    let machine = &context.target.machine;
    let ports = f64::from(machine.fma.per_cycle.max(1));
    let (blocked_steps, _) = walk(func, context, block, &iters_of(block, IterKind::Reduce));
    let added = |tile: &Candidate<Tile>| {
        let tile = &tile.value;
        let extents = extents(func, context, roles, block, &rows_around(block, roles, tile), tile)?;
        let products = (tile.rows * tile.vectors * extents.depth) as f64 / ports;
        let best =
            |extents: &Extents| best_cost(&Order::of_contraction(tile, extents, &machine.caches, ports));
        let chunks = if may_be_cut { chunks_of(block, blocked_steps, &extents) } else { 1 };
        Some(depth::candidates(&extents, chunks, best).first()?.cost / products)
    };
    // Costs with and without that are not for comparison.
    let Some(added) = tiles.iter().map(added).collect::<Option<Vec<f64>>>() else { return tiles };
    tiles.iter_mut().zip(added).for_each(|(tile, added)| tile.cost *= added);
    tiles.sort_by(|a, b| (a.cost / 1e-9).round().total_cmp(&(b.cost / 1e-9).round()));
    tiles
}

/// Cycles of a vector of results and step of a contraction by its best tile, and its constant panel's buffer.
pub(crate) fn cost(
    schedule: &Schedule,
    context: &Context<'_>,
    block: &Block,
) -> Option<(f64, Option<Buffer>)> {
    let func = schedule.func();
    let (a, b) = operands(block)?;
    let layout = stored_layout(schedule, context, &epilogue_of(schedule, &block.name), block.body[0].buffer);
    let roles = roles(func, context, block, [a, b], &layout)?;
    let extent = &block.iters[roles.lane].extent;
    let lanes = lanes_for(context, extent, &layout, roles.lane)?;
    let rows = roles.row.map_or(Some(1), |n| block.iters[n].extent.as_int());
    let vectors = extent.as_int().map(|n| (n + lanes - 1) / lanes);
    let tiles = Tile::candidates(context.target, lanes, rows, vectors, traffic(block, &roles));
    let full = f64::from(context.target.lanes(4)) / lanes as f64;
    let is_weight = context.constant_input(func, roles.panel.buffer).is_some();
    Some((tiles.first()?.cost * full, is_weight.then_some(roles.panel.buffer)))
}

/// Variables, besides that of the tile's rows, that are rows and no batches: the panel does not depend on them. Of those before the
/// lanes' the last, as long as the rows inside of them are so few that to read these again for each panel is less than to read the
/// panels again.
fn rows_around(block: &Block, roles: &Roles, tile: &Tile) -> Vec<usize> {
    let mut inside = Some(1i64);
    let mut found = Vec::new();
    for n in roles.sharing(block).into_iter().rev() {
        if Some(n) != roles.row {
            if n < roles.lane && inside.is_none_or(|rows| rows >= tile.vectors * tile.lanes) {
                break;
            }
            found.push(n);
        }
        inside = inside.zip(block.iters[n].extent.as_int()).and_then(|(rows, n)| rows.checked_mul(n));
    }
    found.reverse();
    found
}

/// Bytes of the panel's operand, and of the other and the result together, if they are known.
fn moved(func: &Func, roles: &Roles, block: &Block) -> Option<(i64, i64)> {
    let image = bytes_of(func, roles.broadcast.buffer)? + bytes_of(func, block.body[0].buffer)?;
    Some((bytes_of(func, roles.panel.buffer)?, image))
}

/// What the loops around tiles go over, if all of it is known. Of the rows it may be open how many they are: then they are taken for
/// [`ASSUMED_ROWS`].
fn extents(
    func: &Func,
    context: &Context<'_>,
    roles: &Roles,
    block: &Block,
    rows: &[usize],
    tile: &Tile,
) -> Option<Extents> {
    let row = roles.row?;
    let lanes = tile.lanes;
    let extent = |n: usize| block.iters[n].extent.as_int();
    let panels_bytes = bytes_of(func, roles.panel.buffer)?;
    let spatial = iters_of(block, IterKind::Spatial);
    let others = spatial.into_iter().filter(|&n| n != roles.lane && n != row);
    let (rows, batches): (Vec<usize>, Vec<usize>) = others.partition(|n| rows.contains(n));
    let around: Vec<i64> = rows.into_iter().map(extent).filter(|&n| n != Some(1)).collect::<Option<_>>()?;
    let is_shared = batches.iter().all(|n| roles.sharing(block).contains(n));
    let batches = constant_product(batches.iter().map(|&n| &block.iters[n].extent))?;
    let reduce = iters_of(block, IterKind::Reduce);
    let depth = constant_product(reduce.iter().map(|&n| &block.iters[n].extent))?;
    let first = block.iters[*reduce.first()?].var;
    let rows_apart = !is_window(block, &roles.broadcast);
    let open = extent(row).is_none();
    let bytes = match open {
        true if around.is_empty() && rows_apart => 4 * depth * ASSUMED_ROWS,
        true => return None,
        false => bytes_of(func, roles.broadcast.buffer)? / batches.max(1),
    };
    let in_blocks = context.largest_block(func, block, first);
    Some(Extents {
        batches,
        parts: 1,
        rows: around.into_iter().chain([extent(row).unwrap_or(ASSUMED_ROWS)]).collect(),
        open,
        vectors: (extent(roles.lane)? + lanes - 1) / lanes,
        depth,
        run: in_blocks.map_or(depth, |factor| tile.rows * factor),
        continues: in_blocks.is_some() && rows_apart,
        rows_apart,
        panels_bytes: panels_bytes / if is_shared { 1 } else { batches.max(1) },
        rows_bytes: bytes,
        shares_rows: moved(func, roles, block).is_some_and(|(weights, image)| shares_rows(weights, image)),
    })
}

/// The layout in which what the tile's rows read lies together, step by step: nothing where they read by windows. Of a constant
/// the rows of a step lie together; another operand, which is copied for each run, keeps its steps together in blocks.
fn row_pieces(
    block: &Block,
    roles: &Roles,
    steps: &Steps,
    tile: &Tile,
    blocked_steps: Option<BlockedSteps>,
    is_constant: bool,
) -> Option<Vec<Piece>> {
    let factor = blocked_steps.filter(|_| !is_constant).map(|blocked| blocked.factor);
    let mut pieces = packed_layout(block, &roles.broadcast, roles.row?, steps, tile.rows, factor)?;
    if factor.is_some() {
        let last = pieces.len() - 1;
        pieces.swap(last - 1, last);
    }
    Some(pieces)
}

/// Whether what the tile's rows read is copied so that it lies together: where all of it falls into a few sets of the
/// caches otherwise, and so many panels use it that the copy is little beside them.
fn packings(jumps_in_one_set: bool, n_panels: i64) -> Vec<Candidate<bool>> {
    /// Panels from which on a copy may pay.
    const LEAST_PANELS: i64 = 12;
    let candidate = |value: bool| {
        let features = vec![("rows.packed", f64::from(u8::from(value)))];
        Candidate { value, cost: 1.0, features }
    };
    let enough = n_panels >= LEAST_PANELS;
    match (enough, jumps_in_one_set) {
        (true, true) => vec![candidate(true), candidate(false)],
        (true, false) => vec![candidate(false), candidate(true)],
        (false, _) => vec![candidate(false)],
    }
}

/// The least of the costs.
fn best_cost(orders: &[Candidate<Order>]) -> f64 {
    orders.first().map_or(f64::INFINITY, |order| order.cost)
}

/// How many iterations of the first variable of the reduction, or blocks of them, blocks of steps can be made of.
fn chunks_of(block: &Block, blocked_steps: Option<BlockedSteps>, extents: &Extents) -> i64 {
    // Partial sums of all rows would have to lie somewhere.
    if extents.open {
        return 1;
    }
    let first = iters_of(block, IterKind::Reduce).first().and_then(|&n| block.iters[n].extent.as_int());
    first.unwrap_or(1) / blocked_steps.map_or(1, |blocked| blocked.factor)
}

/// What a step of a tile loads.
fn traffic(block: &Block, roles: &Roles) -> Traffic {
    let sharing = constant_product(roles.sharing(block).into_iter().map(|n| &block.iters[n].extent));
    let steps = constant_product(iters_of(block, IterKind::Reduce).iter().map(|&n| &block.iters[n].extent));
    Traffic { per_row: 1, per_vector: 1, per_accumulator: 0, steps, sharing, windows: None }
}

/// Reduction variables of a block by their positions, outermost first.
#[derive(Clone, Debug)]
struct Steps(Vec<usize>);

/// `0-2-1`: the reduction variables by their numbers among themselves.
impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.0.iter().min().copied().unwrap_or(0);
        let numbers: Vec<String> = self.0.iter().map(|n| (n - first).to_string()).collect();
        f.write_str(&numbers.join("-"))
    }
}

/// Orders of a tile's steps: as computed, or the first variable (the channels of a convolution) inside the
/// others (its window).
fn step_orders(block: &Block) -> Vec<Candidate<Steps>> {
    let natural = iters_of(block, IterKind::Reduce);
    let candidate = |steps: Vec<usize>, inside: bool| {
        let features = vec![("steps.first-inside", f64::from(u8::from(inside)))];
        Candidate { value: Steps(steps), cost: 1.0, features }
    };
    let mut rotated = natural.clone();
    if !rotated.is_empty() {
        rotated.rotate_left(1);
    }
    let several = |&&n: &&usize| block.iters[n].extent.as_int() != Some(1);
    let differs = natural.iter().filter(several).count() > 1;
    let mut orders = vec![candidate(natural, false)];
    orders.extend(differs.then(|| candidate(rotated, true)));
    orders
}

/// How many of the loops around a tile may be one task's: the innermost, along which the tiles share what stays in
/// cache; none or more where enough tasks for every core are left.
///
/// The first `rounds` of them, and one more with several iterations if they are not 0, never are.
fn serial_loops(
    schedule: &Schedule,
    context: &Context<'_>,
    loops: &[String],
    rounds: usize,
) -> Vec<Candidate<usize>> {
    let extents: Vec<Option<i64>> = loops.iter().map(|name| tasks::extent_of(schedule, name)).collect();
    let n_tasks = |n_serial: usize| {
        extents.iter().rev().skip(n_serial).try_fold(1i64, |n, extent| n.checked_mul((*extent)?))
    };
    let candidate = |n_serial: usize| {
        let tasks = n_tasks(n_serial).unwrap_or(1) as f64;
        Candidate { value: n_serial, cost: 1.0, features: vec![("serial.tasks", tasks.max(1.0).log2())] }
    };
    // A single task (a product with one row) would leave all cores but one idle.
    let is_shared = |n_serial: usize| {
        rounds == 0 || extents[rounds..loops.len() - n_serial].iter().any(|extent| *extent != Some(1))
    };
    let default = usize::from(loops.len() > 1 && n_tasks(1) != Some(1) && is_shared(1));
    let enough = 2 * i64::from(context.target.machine.n_cores);
    let is_loop = |n: usize| extents.get(extents.len() - n).is_some_and(|extent| *extent != Some(1));
    let others = (0..loops.len() - rounds).filter(|&n| n != default && is_shared(n));
    // Leaving a loop of one iteration out, or taking it in, changes nothing.
    let others = others.filter(|&n| match n < default {
        true => is_loop(default),
        false => is_loop(n) && n_tasks(n).is_some_and(|tasks| tasks >= enough),
    });
    std::iter::once(default).chain(others).map(candidate).collect()
}

/// How the first variable of the reduction is walked in blocks, and the positions of variables that are unrolled; `steps` are
/// the variables, outermost first.
fn walk(
    func: &Func,
    context: &Context<'_>,
    data: &Block,
    steps: &[usize],
) -> (Option<BlockedSteps>, Vec<usize>) {
    let extent = |n: usize| data.iters[n].extent.as_int();
    let divides = |n: usize, factor: i64| extent(n).is_some_and(|n| n >= factor && n % factor == 0);
    let unrolls = !context.target.codegen.carries_in_place;
    let Some(&first) = iters_of(data, IterKind::Reduce).first() else { return (None, Vec::new()) };
    // The broadcast operand's blocked dimension, walked in blocks so that its elements are consecutive.
    let block = context.largest_block(func, data, data.iters[first].var);
    if let Some(factor) = block.filter(|&factor| factor > 1 && divides(first, factor)) {
        return (Some(BlockedSteps { factor, unroll: unrolls && factor <= UNROLLED_STEPS }), Vec::new());
    }
    match steps {
        // Vectors of steps, in whose loop tiles can ask for parts of the next panel.
        [only] if !unrolls => {
            let factor = i64::from(context.target.lanes(4));
            (divides(*only, factor).then_some(BlockedSteps { factor, unroll: false }), Vec::new())
        }
        _ if !unrolls => (None, Vec::new()),
        // A single variable has its elements in order in any blocks.
        [only] => {
            let factor =
                [UNROLLED_STEPS, UNROLLED_STEPS / 2].into_iter().find(|&factor| divides(*only, factor));
            (factor.map(|factor| BlockedSteps { factor, unroll: true }), Vec::new())
        }
        [.., last] if extent(*last).is_some_and(|n| (1..=UNROLLED_STEPS).contains(&n)) => (None, vec![*last]),
        _ => (None, Vec::new()),
    }
}

/// The two loads whose products the block sums.
pub(crate) fn operands(block: &Block) -> Option<(AccessInfo, AccessInfo)> {
    let [store] = &block.body[..] else { return None };
    let load = |e: &Expr| match e.kind() {
        ExprKind::Load(buffer, indices) => Some(AccessInfo { buffer: *buffer, indices: indices.clone() }),
        _ => None,
    };
    let ExprKind::Fma(a, b, c) = store.value.kind() else { return None };
    let is_accumulator = load(c).is_some_and(|x| x.buffer == store.buffer && x.indices == store.indices);
    if !is_accumulator {
        return None;
    }
    Some((load(a)?, load(b)?))
}

fn roles(
    func: &Func,
    context: &Context<'_>,
    block: &Block,
    operands: [AccessInfo; 2],
    layout: &Option<Vec<Piece>>,
) -> Option<Roles> {
    let simplifier = domain_simplifier(func, block);
    let spatial = iters_of(block, IterKind::Spatial);
    let depends = |a: &AccessInfo, n: usize| a.indices.iter().any(|e| e.uses(block.iters[n].var));
    let along_memory = match layout.as_ref().and_then(|p| p.last()).filter(|p| p.factor.is_some()) {
        Some(piece) => *spatial.get(piece.dim)?,
        None => last_of_several(block, &spatial)?,
    };
    // Where the operand along memory is no panel (the image of a convolution with a stride), a constant one
    // makes good for storing each result by itself.
    let others = spatial.iter().rev().copied().filter(|&n| n != along_memory);
    for lane in std::iter::once(along_memory).chain(others) {
        if block.iters[lane].extent.as_int() == Some(1) {
            continue;
        }
        for (panel, broadcast) in [(&operands[1], &operands[0]), (&operands[0], &operands[1])] {
            if !depends(panel, lane) || depends(broadcast, lane) {
                continue;
            }
            let consecutive = context.layout(&func.buffers[panel.buffer].name).is_none()
                && stride_of(func, &simplifier, panel, block, lane) == Stride::Constant(1);
            let constant = context.constant_input(func, panel.buffer).is_some();
            let row = best_row(block, &spatial, lane, panel, broadcast, &depends);
            let pack = constant || !consecutive;
            let is_plain = || plain_variables(block, panel).is_some();
            if (pack && !is_plain()) || (lane != along_memory && !constant) {
                continue;
            }
            return Some(Roles { lane, row, panel: panel.clone(), broadcast: broadcast.clone(), pack });
        }
    }
    None
}

/// The variable that the broadcast operand depends on and the panel does not: the last such one with more
/// than one value.
fn best_row(
    block: &Block,
    spatial: &[usize],
    lane: usize,
    panel: &AccessInfo,
    broadcast: &AccessInfo,
    depends: &impl Fn(&AccessInfo, usize) -> bool,
) -> Option<usize> {
    spatial
        .iter()
        .copied()
        .filter(|&n| n != lane && depends(broadcast, n) && !depends(panel, n))
        .rfind(|&n| block.iters[n].extent.as_int() != Some(1))
}

fn stride_of(
    func: &Func,
    simplifier: &Simplifier,
    access: &AccessInfo,
    block: &Block,
    iter: usize,
) -> Stride {
    stride(func, simplifier, access, block.iters[iter].var)
}

/// Whether an operand is read by windows: a data-parallel and a reduction variable in one index.
fn is_window(block: &Block, access: &AccessInfo) -> bool {
    let uses = |e: &Expr, kind: IterKind| block.iters.iter().any(|i| i.kind == kind && e.uses(i.var));
    access.indices.iter().any(|e| uses(e, IterKind::Spatial) && uses(e, IterKind::Reduce))
}

/// For each index of an operand the position of the one variable that it is, or `None` if it is a constant; nothing
/// if another index is among them.
fn plain_variables(block: &Block, access: &AccessInfo) -> Option<Vec<Option<usize>>> {
    let variable = |e: &Expr| match e.as_int() {
        Some(_) => Some(None),
        None => block.iters.iter().position(|i| e.as_var() == Some(i.var)).map(Some),
    };
    access.indices.iter().map(variable).collect()
}

/// The layout of an operand in the order in which tiles read it: what is around the reduction outermost, then the reduction
/// in the order of its loops, then a tile's `width` of the variable `along`. `None` where a dimension is indexed by neither one variable
/// nor a constant.
fn packed_layout(
    block: &Block,
    operand: &AccessInfo,
    along: usize,
    steps: &Steps,
    width: i64,
    blocked_steps: Option<i64>,
) -> Option<Vec<Piece>> {
    let vars = plain_variables(block, operand)?;
    let dim_of = |n: usize| vars.iter().position(|&v| v == Some(n));
    let along = dim_of(along)?;
    let reduce = iters_of(block, IterKind::Reduce);
    let is_step = |d: usize| vars[d].is_some_and(|n| reduce.contains(&n));
    let open = |dim| Piece { dim, factor: None };
    let mut pieces: Vec<Piece> = (0..vars.len()).filter(|&d| d != along && !is_step(d)).map(open).collect();
    pieces.push(open(along));
    pieces.extend(steps.0.iter().filter_map(|&n| dim_of(n)).map(open));
    if let (Some(factor), Some(dim)) = (blocked_steps, reduce.first().and_then(|&n| dim_of(n))) {
        pieces.push(Piece { dim, factor: Some(factor) });
    }
    pieces.push(Piece { dim: along, factor: Some(width) });
    Some(pieces)
}
