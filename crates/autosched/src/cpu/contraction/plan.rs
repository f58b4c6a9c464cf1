//! The plan of a contraction: one decision after the other.

use tilewright_te::schedule::Piece;
use tilewright_te::{Block, Buffer, IterKind};

use super::packing::{Repacking, jumps_in_one_set};
use super::roles::{Roles, Steps, packed_layout, step_orders, walk};
use super::strategy::{CutSteps, Operand, Strategy};
use crate::context::Context;
use crate::cpu::elementwise::{self, Elements};
use crate::cpu::prefetch::{PanelReads, Prefetches};
use crate::cpu::sums::Sums;
use crate::cpu::tasks::{Grain, Tasks};
use crate::cpu::tiled::{AroundLoop, BlockedSteps, LoopsAround, TiledBlock, extents};
use crate::decisions::{Candidate, Chooser, sort_by_cost};
use crate::model::depth::depths;
use crate::model::machine::beyond_l2;
use crate::model::order::{Extents, Order};
use crate::model::prefetch::row_copies;
use crate::model::sums as sums_model;
use crate::model::tasks::{ENOUGH_TASKS, Groups, serial_loops};
use crate::model::tile::{Outputs, Tile, tiles, waste};
use crate::pattern::{
    constant_product, extents_of, is_window, iterations, iters_of, operands, pieces_of, plain_variables,
    stores_at_its_variables,
};
use crate::refusal::Refusal;
use crate::strategy::{Domain, Extent, Level};

/// Costs of tiles below this are equal: of equals the first stays first.
const PRECISION: f64 = 1e-9;

/// Vectors of products that a task of tiles of open rows has at least.
const OPEN_TASK: i64 = 2048;

/// A contraction that is being planned.
pub(super) struct Product<'a> {
    context: &'a Context<'a>,
    block: &'a Block,
    roles: Roles,
    /// Lanes of a vector.
    pub(super) lanes: i64,
}

/// What was decided of the loops inside of a tile.
struct Inside {
    tile: Tile,
    steps: Steps,
    blocked_steps: Option<BlockedSteps>,
    unrolled: Vec<usize>,
}

/// What was decided of the loops around a tile.
struct Around {
    order: Order,
    /// Blocks of steps.
    parts: i64,
    /// Whether what the tile's rows read is laid out anew, and how.
    row_pieces: Option<Vec<Piece>>,
    /// What is known of the loops' extents.
    extents: Option<Extents>,
    /// Panels of a block of products that are summed.
    block_panels: i64,
}

/// Plans a sum of products with its epilogue, or with what sums its results in blocks.
pub(super) fn plan(
    context: &Context<'_>,
    block: &Block,
    sums: Option<Sums>,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    if !context.is_as_computed(block) && operands(block).is_some() {
        return Err(Refusal::new("contraction", &block.name, "the block is scheduled already"));
    }
    let product = Product::of(context, block)?;
    let inside = product.decide_inside(sums.is_some(), chooser)?;
    let around = product.decide_around(&inside, sums.is_some(), chooser)?;
    let [panel, broadcast] = product.lay_out(&inside, &around, sums.as_ref(), chooser)?;
    let tiled = product.tiled(inside, around.order);
    let loops = tiled.loops_around(block);
    let shares_rows = product.roles.shares_rows(context, block);
    let mut strategy = Strategy {
        domain: Domain::of(context.func, block),
        store: tiled.epilogue.clone().unwrap_or_else(|| context.new_block(&format!("{}_write", block.name))),
        tiled,
        panel,
        broadcast,
        cut: None,
        sums: None,
        prefetches: None,
        tasks: Tasks::default(),
    };
    if around.parts > 1 {
        product.cut_steps(&mut strategy, &around, &loops, chooser)?;
    } else if let Some(sums) = sums {
        let (panels, lanes) = (around.block_panels, strategy.tiled.tile.lanes);
        strategy.sums = Some(sums.in_blocks(panels, lanes, shares_rows));
        product.prefetch_in_blocks(&mut strategy, &around, &loops, chooser)?;
    } else {
        product.share_tiles(&mut strategy, &around, &loops, shares_rows, chooser)?;
    }
    Ok(strategy)
}

impl<'a> Product<'a> {
    /// What of a block is a contraction.
    pub(super) fn of(context: &'a Context<'a>, block: &'a Block) -> Result<Product<'a>, Refusal> {
        let refuse = |reason: &str| Err(Refusal::new("contraction", &block.name, reason));
        let Some((a, b)) = operands(block) else { return refuse("not a sum of products") };
        if !stores_at_its_variables(block) {
            return refuse("its results are not stored at its variables");
        }
        if !context.func.is_sole_writer(block) {
            return refuse("another block writes what it writes");
        }
        let layout = context.stored_layout(block);
        let Some(roles) = Roles::of(context, block, [a, b], layout) else {
            return refuse("no variable whose results and one operand lie consecutive");
        };
        if roles.row.is_none() && is_window(block, &roles.panel) {
            return refuse("no rows share the panel, and its windows overlap");
        }
        let Some(lanes) = context.lanes_for(&block.iters[roles.lane].extent, layout, roles.lane) else {
            return refuse("no vector of that extent");
        };
        Ok(Product { context, block, roles, lanes })
    }

    fn extent(&self, iter: usize) -> Option<i64> {
        self.block.iters[iter].extent.as_int()
    }

    fn reduce(&self) -> Vec<usize> {
        iters_of(self.block, IterKind::Reduce)
    }

    /// The outputs that tiles are compared for.
    pub(super) fn outputs(&self) -> Outputs {
        Outputs {
            lanes: self.lanes,
            rows: self.roles.row.map_or(Some(1), |n| self.extent(n)),
            vectors: self.extent(self.roles.lane).map(|n| pieces_of(n, self.lanes)),
            depth: constant_product(self.reduce().iter().map(|&n| &self.block.iters[n].extent)),
            traffic: self.roles.traffic(self.context, self.block),
        }
    }

    /// The panel's buffer, where it is a constant.
    pub(super) fn constant_panel(&self) -> Option<Buffer> {
        let panel = self.roles.panel.buffer;
        self.context.constant_input(panel).map(|_| panel)
    }

    /// The buffer that a tile's rows read, where the rules copy it for each run.
    pub(super) fn copied_rows(&self, tile: &Tile) -> Option<Buffer> {
        let buffer = self.roles.broadcast.buffer;
        let extents = self.roles.extents(self.context, self.block, tile)?;
        let varies = self.context.constant_input(buffer).is_none();
        (varies && extents.rows_apart && self.prefers_copy(tile, &extents)).then_some(buffer)
    }

    /// Whether the rules copy what rows read, if it varies.
    fn prefers_copy(&self, tile: &Tile, extents: &Extents) -> bool {
        self.row_copies(extents.vectors / tile.vectors).first().is_some_and(|copies| copies.value)
    }

    /// Decides on the tile and on how its steps are walked.
    fn decide_inside(&self, is_summed: bool, chooser: &mut Chooser<'_>) -> Result<Inside, Refusal> {
        let mut tiles = self.tiles_with_orders(is_summed);
        if is_summed {
            // What sums in blocks knows of no tiles that reach past the end.
            let columns = self.extent(self.roles.lane);
            let whole = |tile: &Tile| columns.is_some_and(|n| n % (tile.vectors * tile.lanes) == 0);
            tiles.retain(|tile| whole(&tile.value));
        }
        let tile = chooser.decide(&self.block.name, "tile", &tiles)?;
        let steps = chooser.decide(&self.block.name, "steps", &step_orders(self.block))?;
        let (blocked_steps, unrolled) = walk(self.context, self.block, &steps.0, Some(&tile));
        Ok(Inside { tile, steps, blocked_steps, unrolled })
    }

    /// Tiles by their cost in the best order of the loops around each, where that can be told, the best first.
    pub(super) fn tiles_with_orders(&self, is_summed: bool) -> Vec<Candidate<Tile>> {
        let (target, outputs) = (self.context.target, self.outputs());
        // Where L3 is near, cuts save so little that small errors of the model would decide between tiles.
        let may_be_cut = !is_summed && beyond_l2(target).behind_network;
        let mut tiles = tiles(target, &outputs);
        let cost = |tile: &Candidate<Tile>| {
            let tile = &tile.value;
            let mut extents = self.roles.extents(self.context, self.block, tile)?;
            // Rows that are copied lie together.
            if self.prefers_copy(tile, &extents) {
                extents.row_distance = None;
            }
            let best = |extents: &Extents| best_cost(&self.orders(tile, extents));
            let (blocked_steps, _) = walk(self.context, self.block, &self.reduce(), Some(tile));
            let chunks = if may_be_cut { self.chunks(blocked_steps, &extents) } else { 1 };
            let cycles = depths(&extents, chunks, best).first()?.cost;
            Some(self.cycles_an_output(tile, &extents, cycles))
        };
        // Costs with and without that are not for comparison.
        let Some(costs) = tiles.iter().map(cost).collect::<Option<Vec<f64>>>() else { return tiles };
        tiles.iter_mut().zip(costs).for_each(|(tile, cost)| tile.cost = cost);
        sort_by_cost(&mut tiles, PRECISION);
        tiles
    }

    /// Cycles of a vector of results and step that there are, given those of a tile.
    fn cycles_an_output(&self, tile: &Tile, extents: &Extents, cycles: f64) -> f64 {
        cycles * waste(&self.outputs(), *tile) / (tile.rows * tile.vectors * extents.depth) as f64
    }

    /// Cycles of a strategy on one core by the model.
    pub(super) fn cost(&self, strategy: &Strategy) -> Option<f64> {
        let TiledBlock { tile, order, .. } = &strategy.tiled;
        let mut extents = self.roles.extents(self.context, self.block, tile)?;
        if strategy.broadcast.repacking.is_some() {
            extents = packed(extents, tile);
        }
        extents.parts = strategy.cut.as_ref().map_or(1, |cut| cut.parts);
        let cycles = order.cycles(self.context.target, tile, &self.outputs().traffic, &extents);
        let vectors = iterations(self.block)? as f64 / self.lanes as f64;
        Some(vectors * self.cycles_an_output(tile, &extents, cycles))
    }

    /// Orders of the loops around a tile, the best first.
    fn orders(&self, tile: &Tile, extents: &Extents) -> Vec<Candidate<Order>> {
        let target = self.context.target;
        Order::of_contraction(target, tile, &self.roles.traffic(self.context, self.block), extents)
    }

    /// How many iterations of the first variable of the reduction, or blocks of them, blocks of steps can be made of.
    fn chunks(&self, blocked_steps: Option<BlockedSteps>, extents: &Extents) -> i64 {
        // Partial sums of all rows would have to lie somewhere.
        if extents.open {
            return 1;
        }
        let first = self.reduce().first().and_then(|&n| self.extent(n));
        first.unwrap_or(1) / blocked_steps.map_or(1, |blocked| blocked.factor)
    }

    /// Decides on what stays in which cache: whether what rows read is copied, into how many blocks the steps are cut, and the order of
    /// the loops around the tile.
    fn decide_around(
        &self,
        inside: &Inside,
        is_summed: bool,
        chooser: &mut Chooser<'_>,
    ) -> Result<Around, Refusal> {
        let (name, target, tile) = (&self.block.name, self.context.target, &inside.tile);
        let extents = self.roles.extents(self.context, self.block, tile);
        let n_panels = extents.as_ref().map_or(0, |extents| extents.vectors / tile.vectors);
        let row_pieces = self.decide_rows(inside, n_panels, chooser)?;
        let n_products = extents.as_ref().map_or(1, |extents| extents.batches);
        let all_rows = extents.as_ref().map_or(1, |extents| extents.rows.iter().product());
        let mut parts = 1;
        let orders = match &extents {
            Some(_) if is_summed => sums_model::orders(target, tile, n_products, all_rows),
            Some(extents) => {
                let mut extents = extents.clone();
                if row_pieces.is_some() {
                    extents = packed(extents, tile);
                }
                let chunks = self.chunks(inside.blocked_steps, &extents);
                let best = |extents: &Extents| best_cost(&self.orders(tile, extents));
                parts = chooser.decide(name, "depth", &depths(&extents, chunks, best))?;
                self.orders(tile, &Extents { parts, ..extents })
            }
            None => {
                let Outputs { rows, vectors, .. } = self.outputs();
                let steps = inside.steps.0.iter().map(|&n| &self.block.iters[n].extent);
                Order::of_tiles(tile, rows, vectors, constant_product(steps))
            }
        };
        let order = chooser.decide(name, "order", &orders)?;
        let block_panels = sums_model::panels_of_block(target, tile, order, (n_products, all_rows, n_panels));
        Ok(Around { order, parts, row_pieces, extents, block_panels })
    }

    /// Decides whether what the tile's rows read is laid out so that it lies together, step by step; gives the layout.
    fn decide_rows(
        &self,
        inside: &Inside,
        n_panels: i64,
        chooser: &mut Chooser<'_>,
    ) -> Result<Option<Vec<Piece>>, Refusal> {
        let broadcast = &self.roles.broadcast;
        let is_constant = self.context.constant_input(broadcast.buffer).is_some();
        let pieces = self.row_pieces(inside, is_constant);
        if is_constant || pieces.is_none() {
            return Ok(pieces);
        }
        let packs = chooser.decide(&self.block.name, "pack-rows", &self.row_copies(n_panels))?;
        Ok(pieces.filter(|_| packs))
    }

    /// Whether what rows read is copied for so many panels, the best first.
    fn row_copies(&self, n_panels: i64) -> Vec<Candidate<bool>> {
        let Roles { broadcast, row, .. } = &self.roles;
        // Of what several blocks write no copy can be made.
        let n_panels = if self.context.func.is_whole(broadcast.buffer) { n_panels } else { 0 };
        row_copies(jumps_in_one_set(self.context, self.block, broadcast, *row), n_panels)
    }

    /// The layout in which what the tile's rows read lies together, step by step: nothing where they read by windows. Of a constant
    /// the rows of a step lie together; another operand, which is copied for each run, keeps its steps together in blocks.
    fn row_pieces(&self, inside: &Inside, is_constant: bool) -> Option<Vec<Piece>> {
        let Inside { tile, steps, blocked_steps, .. } = inside;
        let factor = blocked_steps.filter(|_| !is_constant).map(|blocked| blocked.factor);
        let operand = &self.roles.broadcast;
        let mut pieces = packed_layout(self.block, operand, self.roles.row?, steps, tile.rows, factor)?;
        if factor.is_some() {
            let last = pieces.len() - 1;
            pieces.swap(last - 1, last);
        }
        Some(pieces)
    }

    /// Lays the operands out as the tiles read them: the panel and the broadcast one.
    fn lay_out(
        &self,
        inside: &Inside,
        around: &Around,
        sums: Option<&Sums>,
        chooser: &mut Chooser<'_>,
    ) -> Result<[Operand; 2], Refusal> {
        let Roles { panel, broadcast, lane, .. } = &self.roles;
        let Inside { tile, steps, blocked_steps, .. } = inside;
        let width = tile.vectors * tile.lanes;
        // Where tiles reach past the end, loads would be clamped lane by lane; a copy is padded to whole tiles.
        let cut_off = self.extent(*lane).is_none_or(|n| n % width != 0);
        let packs = self.roles.pack || (cut_off && plain_variables(self.block, panel).is_some());
        let mut repacking = None;
        if packs {
            let factor = blocked_steps.map(|blocked| blocked.factor);
            let Some(pieces) = packed_layout(self.block, panel, *lane, steps, width, factor) else {
                return Err(self.refusal("the panel's indices are not plain"));
            };
            let pieces = match sums {
                Some(sums) => sums.together(pieces, around.block_panels),
                None => pieces,
            };
            repacking = Some(Repacking::plan(self.context, panel.buffer, pieces, chooser)?);
        }
        let panel = self.operand(panel.buffer, self.home_of_panel(inside, around, sums), repacking);
        let rows = around.row_pieces.clone();
        let rows = rows.map(|pieces| Repacking::plan(self.context, broadcast.buffer, pieces, chooser));
        let repacking = rows.transpose()?;
        if repacking.is_some() && panel.repacking.is_some() && panel.buffer == self.name_of(broadcast.buffer)
        {
            return Err(self.refusal("both operands are one buffer, which would have to lie in two ways"));
        }
        Ok([panel, self.operand(broadcast.buffer, Level::L2, repacking)])
    }

    fn refusal(&self, reason: &str) -> Refusal {
        Refusal::new("contraction", &self.block.name, reason)
    }

    fn name_of(&self, buffer: Buffer) -> String {
        self.context.func.buffers[buffer].name.clone()
    }

    fn operand(&self, buffer: Buffer, home: Level, repacking: Option<Repacking>) -> Operand {
        Operand { buffer: self.name_of(buffer), home, repacking }
    }

    /// Where the panel comes from as a rule: a run uses weights once, unless all of them stay in L2 while they come by again and again.
    fn home_of_panel(&self, inside: &Inside, around: &Around, sums: Option<&Sums>) -> Level {
        let target = self.context.target;
        let again = |extents: &Extents| extents.panels_come_again(around.order, &inside.tile, target);
        let stays = sums.is_none() && around.parts == 1 && around.extents.as_ref().is_some_and(again);
        if self.constant_panel().is_some() && !stays { Level::Beyond } else { Level::L2 }
    }

    fn tiled(&self, inside: Inside, order: Order) -> TiledBlock {
        let Inside { tile, steps, blocked_steps, unrolled } = inside;
        TiledBlock {
            block: self.block.name.clone(),
            epilogue: self.context.epilogue_of(self.block).map(|epilogue| epilogue.name.clone()),
            lane: self.roles.lane,
            row: self.roles.row,
            tile,
            order,
            rows: self.roles.rows_around(self.block, &tile),
            steps: steps.0,
            blocked_steps,
            unrolled,
        }
    }

    /// What is read of the panel in loops over `n_panels` panels, each for tiles in `inside` loops.
    fn panel_reads(
        &self,
        strategy: &Strategy,
        parts: i64,
        n_panels: Option<i64>,
        inside: &[&AroundLoop],
    ) -> PanelReads {
        let tiles = extents(inside);
        let depth = constant_product(self.reduce().iter().map(|&n| &self.block.iters[n].extent));
        PanelReads {
            home: strategy.panel.home,
            element: self.context.func.buffers[self.roles.panel.buffer].dtype.bytes() as i64,
            depth: depth.map(|depth| depth / parts),
            n_panels,
            n_tiles: tiles.iter().try_fold(1i64, |n, extent| n.checked_mul((*extent)?)),
            steps: strategy.tiled.step_extents(self.block, parts),
        }
    }

    /// Cuts the steps into blocks: tasks are what is around these, and the results are stored in a nest of their own.
    fn cut_steps(
        &self,
        strategy: &mut Strategy,
        around: &Around,
        loops: &LoopsAround,
        chooser: &mut Chooser<'_>,
    ) -> Result<(), Refusal> {
        let tile = strategy.tiled.tile;
        let Some(extents) = &around.extents else {
            return Err(self.refusal("steps of open rows cannot be cut"));
        };
        let Groups { panels: panel_groups, rows: row_groups, .. } = around.order.groups(&tile, extents);
        let store = self.plan_store(&strategy.store, chooser)?;
        strategy.cut = Some(CutSteps { parts: around.parts, panel_groups, row_groups, store });
        let each = |n: Option<i64>, groups: Option<i64>| n.map(|n| pieces_of(n, groups.unwrap_or(1)));
        let n_panels = each(loops.panels.extent.as_int(), panel_groups);
        let inside: Vec<&AroundLoop> = loops.rows[loops.n_outside..].iter().collect();
        let reads = self.panel_reads(strategy, around.parts, n_panels, &inside);
        let reads = PanelReads { n_tiles: each(reads.n_tiles, row_groups), ..reads };
        strategy.prefetches = Prefetches::plan(self.context, &self.block.name, &reads, &tile, chooser)?;
        let n_groups = usize::from(panel_groups.is_some()) + usize::from(row_groups.is_some());
        strategy.tasks = Tasks::of_all(loops.batches.len() + loops.n_outside + n_groups);
        Ok(())
    }

    /// Plans the block that stores the results of steps in blocks, which lie in vectors: the epilogue, or a copy.
    fn plan_store(&self, store: &str, chooser: &mut Chooser<'_>) -> Result<elementwise::Strategy, Refusal> {
        if let Some(epilogue) = self.context.epilogue_of(self.block) {
            return elementwise::plan_loops(self.context, epilogue, true, chooser);
        }
        let buffer = self.block.body[0].buffer;
        let extents = extents_of(self.block, IterKind::Spatial);
        let spatial = extents.iter().map(|extent| extent.map_or(Extent::Open, Extent::Known)).collect();
        let element = self.context.func.buffers[buffer].dtype;
        let copy = Elements {
            block: store.to_string(),
            domain: Domain { element, spatial, reduce: Vec::new() },
            extents,
            joined: 1,
            is_consecutive: true,
            bytes: element.bytes(),
            across: None,
        };
        elementwise::plan_copy(self.context.target, copy, self.context.layout(buffer), chooser)
    }

    /// Prefetches where blocks of products are summed: one loop goes over the panels of all products of a block.
    fn prefetch_in_blocks(
        &self,
        strategy: &mut Strategy,
        around: &Around,
        loops: &LoopsAround,
        chooser: &mut Chooser<'_>,
    ) -> Result<(), Refusal> {
        let (order, _) = loops.in_order();
        let n_products = order.first().and_then(|l| l.extent.as_int());
        let n_panels = n_products.map(|n| n * around.block_panels);
        let tiles = order.last().copied();
        let reads = self.panel_reads(strategy, 1, n_panels, tiles.as_slice());
        let tile = &strategy.tiled.tile;
        strategy.prefetches = Prefetches::plan(self.context, &self.block.name, &reads, tile, chooser)?;
        Ok(())
    }

    /// Whether threads share open rows: those of images, whose channels lie in blocks, and of any product with few panels.
    fn shares_open_rows(&self, loops: &LoopsAround) -> bool {
        let known = |l: &AroundLoop| l.extent.as_int();
        let is_image = self.context.stored_layout(self.block).is_some()
            && loops.batches.iter().all(|l| known(l).is_none_or(|n| n == 1));
        let around = loops.batches.iter().chain([&loops.panels]);
        is_image || around.filter_map(known).product::<i64>() < ENOUGH_TASKS
    }

    /// Prefetches and tasks of tiles over all steps.
    fn share_tiles(
        &self,
        strategy: &mut Strategy,
        around: &Around,
        loops: &LoopsAround,
        shares_rows: bool,
        chooser: &mut Chooser<'_>,
    ) -> Result<(), Refusal> {
        let (order, panels) = loops.in_order();
        let n_panels = loops.panels.extent.as_int();
        let reads = self.panel_reads(strategy, 1, n_panels, &order[panels + 1..]);
        let tile = &strategy.tiled.tile;
        strategy.prefetches = Prefetches::plan(self.context, &self.block.name, &reads, tile, chooser)?;
        let extents = extents(&order);
        let is_single = |extent: &Option<i64>| *extent == Some(1);
        if let Order::BlockStays(_) = around.order {
            // Threads share blocks, each of which reads all panels, or the panels of each block.
            let by_rows = shares_rows && !extents[..panels].iter().all(is_single);
            strategy.tasks = match by_rows {
                true => Tasks::of_all(panels),
                false => Tasks { rounds: panels, ..Tasks::of_all(panels + 1) },
            };
            return Ok(());
        }
        let has_rounds = shares_rows
            && extents[..panels].iter().all(is_single)
            && !extents[panels + 1..].iter().all(is_single);
        let rounds = if has_rounds { panels + 1 } else { 0 };
        let serial = serial_loops(self.context.target, &extents, rounds);
        let n_serial = chooser.decide(&self.block.name, "serial", &serial)?;
        strategy.tasks = Tasks { rounds, ..Tasks::of_all(extents.len().saturating_sub(n_serial).max(1)) };
        if rounds == 0 && self.shares_open_rows(loops) {
            let depth = constant_product(self.reduce().iter().map(|&n| &self.block.iters[n].extent));
            let grain =
                Grain { elements: depth.map(|depth| depth * tile.rows * tile.vectors), task: OPEN_TASK };
            strategy.tasks = Tasks::of_open_rows(&extents, panels, grain).unwrap_or(strategy.tasks);
        }
        Ok(())
    }
}

/// The least of the costs.
fn best_cost(orders: &[Candidate<Order>]) -> f64 {
    orders.first().map_or(f64::INFINITY, |order| order.cost)
}

/// The same where what a tile's rows read lies together.
fn packed(extents: Extents, tile: &Tile) -> Extents {
    Extents { run: extents.depth * tile.rows, row_distance: None, ..extents }
}
