//! The order of the loops around a register tile: what stays in which cache while the others come by.
//!
//! A tile's steps read a *panel* (what its rows share) and its *rows* (what its lanes share). Loops go over panels and
//! over tiles of rows. With the panels outermost a panel stays while all rows come by; with the rows outermost the tile's rows stay
//! while all panels come by. In between, a block of so many tiles stays in the second level of cache, and each of its
//! panels in the first for as long: the loops around the "inner kernel" of Goto and van de Geijn ("Anatomy of
//! High-Performance Matrix Multiplication", 2008); [`depth`](super::depth) adds the one over blocks of steps.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_machine::{Numbers, Target};
use tilewright_te::simplify::linear::gcd;

use crate::decisions::{Candidate, sort_by_cost};
use crate::model::machine::{beyond_l2, copy_cycles, l1_room, l1_way, l2_room, numbers};
use crate::model::tasks::{Groups, groups_of_tiles};
use crate::model::tile::{Tile, Traffic, step_cycles};

/// What stays in a cache while the innermost of the loops around a tile run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Order {
    /// The vectors that a tile's steps share, while all rows come by.
    PanelStays,
    /// What a tile's rows read, while all panels come by.
    RowsStay,
    /// What the rows of so many tiles read, while all panels come by, each of which stays for as many tiles. The number is at most
    /// that of the tiles along the rows' loop, or a multiple of it.
    BlockStays(i64),
}

/// `panel-stays`, `rows-stay` or `block-stays-N`.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::PanelStays => f.write_str("panel-stays"),
            Order::RowsStay => f.write_str("rows-stay"),
            Order::BlockStays(tiles) => write!(f, "block-stays-{tiles}"),
        }
    }
}

/// Blocks of different sizes that are offered: enough to search among, few enough to plan fast.
const MAX_BLOCKS: usize = 4;

/// Costs below this are equal: of equals the first stays first.
pub(super) const PRECISION: f64 = 1e-6;

/// What the loops around a contraction's tiles go over, all of constant extent but perhaps the innermost over rows.
#[derive(Clone, Debug)]
pub(crate) struct Extents {
    /// Iterations of loops over batches, which share nothing.
    pub batches: i64,
    /// Iterations of the loops over rows with several, outermost first; the last counts single rows.
    pub rows: Vec<i64>,
    /// Whether the last number of rows is an assumption.
    pub open: bool,
    /// Vectors along the lanes' variable.
    pub vectors: i64,
    /// Steps of a tile.
    pub depth: i64,
    /// Blocks that its steps are cut into, in the outermost of the loops around panels.
    pub parts: i64,
    /// Whether rows read elements of their own.
    pub rows_apart: bool,
    /// Elements that the rows of a tile read and that lie one after the other.
    pub run: i64,
    /// Whether what the next tile's rows read follows each run.
    pub continues: bool,
    /// Bytes from one row to the next, where each is read from a place of its own that far away.
    pub row_distance: Option<i64>,
    /// Bytes of all panels of a batch.
    pub panels_bytes: i64,
    /// Bytes of what all rows of a batch read.
    pub rows_bytes: i64,
    /// Whether threads share the rows, in tiles or blocks of them, or else the panels.
    pub shares_rows: bool,
}

impl Extents {
    /// Tiles along the loops over rows, outermost first.
    fn tiles(&self, tile: &Tile) -> Vec<i64> {
        let mut tiles = self.rows.clone();
        if let Some(own) = tiles.last_mut() {
            *own = (*own + tile.rows - 1) / tile.rows;
        }
        tiles
    }

    /// Panels of a batch.
    fn panels(&self, tile: &Tile) -> i64 {
        (self.vectors + tile.vectors - 1) / tile.vectors
    }

    /// Whether most of the time a tile finds its panel in the second level, because all panels stay there while they come by again and
    /// again.
    pub(crate) fn panels_come_again(&self, order: Order, tile: &Tile, target: &Target) -> bool {
        /// Rounds over all panels, each thread's share of which is enough to make little of the first: a sixteenth, with four threads a quarter,
        /// of lines that a hint would save a part of.
        const ROUNDS: i64 = 16;
        let stays = match order {
            // A single panel is asked for by each tile, too.
            Order::PanelStays if self.vectors > tile.vectors => return false,
            Order::PanelStays | Order::RowsStay => 1,
            Order::BlockStays(tiles) => tiles,
        };
        let tiles: i64 = self.tiles(tile).iter().product();
        tiles / stays >= ROUNDS && self.panels_bytes as f64 <= l2_room(target)
    }
}

impl Order {
    /// The orders for a tile that is no contraction's, or one of open extents, over `rows` by `vectors` outputs (`None` where not known) and `steps`, the best first.
    ///
    /// Cost is how many elements come anew to a tile: what is read by its rows, or what its lanes share.
    pub(crate) fn of_tiles(
        tile: &Tile,
        rows: Option<i64>,
        vectors: Option<i64>,
        steps: Option<i64>,
    ) -> Vec<Candidate<Order>> {
        let candidate = |value: Order, anew: i64, stays: i64| {
            let footprint = steps.unwrap_or(1) * stays;
            let features = vec![
                ("order.rows-stay", f64::from(u8::from(value == Order::RowsStay))),
                ("order.stays", (1.0 + footprint as f64).log2()),
                ("order.anew", anew as f64 / (tile.rows * tile.vectors * tile.lanes) as f64),
            ];
            Candidate { value, cost: anew as f64, features }
        };
        let panel = tile.vectors * tile.lanes;
        let mut orders = vec![candidate(Order::PanelStays, tile.rows, panel)];
        // With one tile along either there is nothing to order.
        let several = |n: Option<i64>, tile: i64| n.is_none_or(|n| n > tile);
        if several(rows, tile.rows) && several(vectors, tile.vectors) {
            orders.push(candidate(Order::RowsStay, panel, tile.rows));
        }
        orders
    }

    /// The orders for a contraction's tile whose steps load `traffic`, the best first.
    ///
    /// Cost is cycles of a tile over the useful part of its rows: of its steps and of the lines that come from each level, given what
    /// stays where. What is shared by threads comes out uneven where the blocks are few.
    pub(crate) fn of_contraction(
        target: &Target,
        tile: &Tile,
        traffic: &Traffic,
        extents: &Extents,
    ) -> Vec<Candidate<Order>> {
        let model = Model::new(target, tile, traffic, extents);
        let Some((&own, outer)) = extents.rows.split_last() else {
            return vec![model.candidate(Order::PanelStays)];
        };
        let tiles = (own + tile.rows - 1) / tile.rows;
        let around = outer.last().copied().unwrap_or(1);
        let mut orders = vec![model.candidate(Order::PanelStays)];
        if model.panels > 1 && tiles * outer.iter().product::<i64>() > 1 {
            // A larger block would not stay.
            let most = (target.machine.caches.l2 as f64 / model.rows.max(1.0)) as i64;
            let inside = (2..tiles.min(most + 1)).map(Order::BlockStays);
            let whole = (1..around.min(most / tiles.max(1) + 1))
                .filter(|n| around % n == 0 && n * tiles > 1)
                .map(|n| Order::BlockStays(n * tiles));
            let mut blocks: Vec<_> = inside.chain(whole).map(|order| model.candidate(order)).collect();
            sort_by_cost(&mut blocks, PRECISION);
            blocks.truncate(if extents.rows_apart { MAX_BLOCKS } else { 0 });
            // Rows that stay for all panels have no use of blocks of steps.
            orders.extend((extents.parts == 1).then(|| model.candidate(Order::RowsStay)));
            orders.extend(blocks);
        }
        sort_by_cost(&mut orders, PRECISION);
        orders
    }

    /// Cycles of a tile over the useful part of its rows on one core, which has nobody to share with.
    pub(crate) fn cycles(self, target: &Target, tile: &Tile, traffic: &Traffic, extents: &Extents) -> f64 {
        let model = Model::new(target, tile, traffic, extents);
        model.tile_cycles(self) / model.whole(self)
    }

    /// The groups of panels and rows that threads share where the steps are cut.
    pub(crate) fn groups(self, tile: &Tile, extents: &Extents) -> Groups {
        let tiles = extents.tiles(tile);
        let (own, outer) = tiles.split_last().map_or((1, &[][..]), |(own, outer)| (*own, outer));
        let all = outer.iter().product::<i64>() * own;
        // What is outside of the loop over blocks of steps, and the outermost loop over rows inside.
        let (others, rows) = match self {
            Order::PanelStays => (1, tiles.iter().copied().find(|n| *n > 1).unwrap_or(1)),
            Order::RowsStay => (all, 1),
            Order::BlockStays(stay) if stay <= own => {
                (outer.iter().product::<i64>() * ((own + stay - 1) / stay), stay)
            }
            Order::BlockStays(stay) => (all / stay, stay / own),
        };
        groups_of_tiles(extents.batches * others, extents.panels(tile), rows)
    }
}

/// Cycles of a tile by the order of the loops around it.
struct Model<'a> {
    extents: &'a Extents,
    target: &'a Target,
    /// Tiles along the loops over rows, outermost first.
    tiles: Vec<i64>,
    panels: i64,
    /// Cycles of a block of its steps, what they load being in L1.
    steps: f64,
    /// Bytes of a panel of a block of steps.
    panel: f64,
    /// Bytes that a tile's rows read in a block of steps.
    rows: f64,
    /// Bytes of a tile's results.
    results: f64,
    tile: Tile,
}

/// What a tile reads for a block of its steps.
#[derive(Clone, Copy)]
struct Read {
    bytes: f64,
    /// Bytes that lie one after the other.
    run: f64,
    /// Bytes that would have to stay where it comes from.
    stay: f64,
    /// Bytes that hints bring to the second level meanwhile.
    asked_for: f64,
    /// In which part of the tiles.
    share: f64,
}

impl Model<'_> {
    fn new<'a>(target: &'a Target, tile: &Tile, traffic: &Traffic, extents: &'a Extents) -> Model<'a> {
        let tiles = extents.tiles(tile);
        let parts = extents.parts as f64;
        let depth = extents.depth as f64 / parts;
        let panels = extents.panels(tile);
        // Windows that overlap read about twice what there is.
        let rows = match extents.rows_apart {
            true => 4.0 * depth * tile.rows as f64,
            false => 2.0 * extents.rows_bytes as f64 / parts / tiles.iter().product::<i64>() as f64,
        };
        Model {
            extents,
            target,
            tiles,
            panels,
            steps: depth
                * (step_cycles(target, traffic, *tile, Some(depth as i64))
                    + conflicts(target, tile, extents)),
            panel: extents.panels_bytes as f64 / parts / panels as f64,
            rows,
            results: (4 * tile.rows * tile.vectors * tile.lanes) as f64,
            tile: *tile,
        }
    }

    /// Cycles that reading takes beside the steps.
    fn cycles(&self, read: &Read) -> f64 {
        if read.stay <= l1_room(self.target) {
            return 0.0;
        }
        let level = if self.is_far(read) { beyond_l2(self.target) } else { &numbers(self.target).l2 };
        let start = if self.extents.continues { level.resume_cycles } else { level.start_cycles };
        read.bytes / self.line() * level.stream_cycles + read.bytes / read.run * start
    }

    /// Whether what is read does not stay in the second level.
    fn is_far(&self, read: &Read) -> bool {
        // The part that may be filled was found where the third level is near, with hints.
        let asked_for = if beyond_l2(self.target).behind_network { read.asked_for } else { 0.0 };
        read.stay + asked_for > l2_room(self.target)
    }

    /// Bytes of a line.
    fn line(&self) -> f64 {
        self.target.machine.caches.line as f64
    }

    fn candidate(&self, order: Order) -> Candidate<Order> {
        let stays = self.stays(order);
        let parts = self.extents.parts as f64;
        let cost = self.tile_cycles(order) / (self.whole(order) * self.evenness(order));
        let block = if matches!(order, Order::BlockStays(_)) { (stays as f64).log2() } else { 0.0 };
        let features = vec![
            ("order.rows-stay", f64::from(u8::from(order == Order::RowsStay))),
            ("order.block", block),
            ("order.cost", (cost / (parts * self.steps)).log2()),
        ];
        Candidate { value: order, cost, features }
    }

    /// Cycles of a tile's steps and of the lines that come from each level.
    fn tile_cycles(&self, order: Order) -> f64 {
        let (stays, panels) = (self.stays(order) as f64, self.panels_of_task(order) as f64);
        let reads = self.reads(stays, panels);
        let cycles: f64 = reads.iter().map(|read| read.share * self.cycles(read)).sum();
        let cycles = cycles + self.partial_sums(stays * panels);
        let far: f64 =
            reads.iter().filter(|read| self.is_far(read)).map(|read| read.share * read.bytes).sum();
        let at_best = far / self.line() * beyond_l2(self.target).line_cycles;
        self.extents.parts as f64 * at_best.max(self.steps + cycles)
    }

    /// The groups of panels and rows that threads share, where the steps are cut.
    fn groups(&self, order: Order) -> Option<Groups> {
        (self.extents.parts > 1).then(|| order.groups(&self.tile, self.extents))
    }

    /// Tiles for which a panel stays.
    fn stays(&self, order: Order) -> i64 {
        let groups = self.groups(order).and_then(|groups| groups.rows).unwrap_or(1);
        match order {
            Order::PanelStays => self.tiles.iter().product::<i64>() / groups,
            Order::RowsStay => 1,
            Order::BlockStays(tiles) => tiles / groups,
        }
    }

    /// Panels that come by for the rows that stay.
    fn panels_of_task(&self, order: Order) -> i64 {
        self.panels / self.groups(order).and_then(|groups| groups.panels).unwrap_or(1)
    }

    /// Tiles along the rows' loop, which come in whole blocks.
    fn padded(&self, order: Order) -> i64 {
        let own = self.tiles.last().copied().unwrap_or(1);
        match order {
            Order::BlockStays(tiles) if tiles <= own => (own + tiles - 1) / tiles * tiles,
            _ => own,
        }
    }

    /// The part of the tiles that there are results for.
    fn whole(&self, order: Order) -> f64 {
        let own = self.tiles.last().copied().unwrap_or(1);
        own as f64 / self.padded(order) as f64
    }

    /// The part of the time that threads are busy which share the blocks. Cutting the steps may take tasks away, but is no means to have
    /// other ones.
    fn evenness(&self, order: Order) -> f64 {
        let n_tiles: i64 = self.tiles.iter().product();
        let own = self.tiles.last().copied().unwrap_or(1);
        let stays = self.stays(order);
        let shared = match order {
            _ if !self.extents.shares_rows => self.panels,
            Order::PanelStays => n_tiles,
            _ => n_tiles / own * self.padded(order) / stays.min(own).max(1) / (stays / own).max(1),
        };
        let of_groups = self.groups(order).map_or(1.0, |groups| evenness(groups.tasks));
        evenness(shared * self.extents.batches).min(of_groups)
    }

    /// What a tile reads where a panel stays for `n` tiles, and so many panels come by.
    fn reads(&self, n: f64, panels: f64) -> [Read; 4] {
        let parts = self.extents.parts as f64;
        let run = (4 * self.extents.run) as f64;
        let all_rows = self.extents.rows_bytes as f64;
        let block = (n * self.rows).min(all_rows / parts);
        let panel = Read { bytes: self.panel, run: f64::INFINITY, stay: 0.0, asked_for: 0.0, share: 0.0 };
        let rows = Read { bytes: self.rows, run, stay: 0.0, asked_for: 0.0, share: 0.0 };
        [
            // A panel comes from where all are, then from where one stays beside the rows that read it.
            Read { stay: self.extents.panels_bytes as f64, share: 1.0 / n, ..panel },
            Read { stay: self.panel + self.rows, share: (n - 1.0) / n, ..panel },
            // The rows of a block come from where all are, then from where the block stays beside a panel.
            Read { stay: all_rows + self.panel, share: 1.0 / panels, ..rows },
            Read { stay: block + self.panel, asked_for: self.panel, share: (panels - 1.0) / panels, ..rows },
        ]
    }

    /// Cycles of a block of steps in which a tile's partial sums are loaded and stored, where so many tiles take turns: with each block,
    /// and once more at either end.
    fn partial_sums(&self, tiles: f64) -> f64 {
        if self.extents.parts == 1 {
            return 0.0;
        }
        let parts = self.extents.parts as f64;
        let all = tiles * self.results;
        let level = match all {
            _ if all > l2_room(self.target) => Some(beyond_l2(self.target)),
            _ if all > l1_room(self.target) => Some(&numbers(self.target).l2),
            _ => None,
        };
        // The next steps wait for the loads, and the stores for the last.
        let vectors = (self.tile.rows * self.tile.vectors) as f64;
        (parts + 1.0) / parts * vectors * copy_cycles(self.target, level)
    }
}

/// Cycles of a step in which rows come anew from L2, because more of their lines fall into a set of L1 than it has ways.
fn conflicts(target: &Target, tile: &Tile, extents: &Extents) -> f64 {
    let Some(distance) = extents.row_distance.filter(|&n| n >= target.machine.caches.line as i64) else {
        return 0.0;
    };
    let Numbers { l1, l2, .. } = numbers(target);
    let sets = l1_way(target) / gcd(distance, l1_way(target));
    let lines = tile.rows as f64 / sets as f64;
    let missing = (1.0 - f64::from(l1.ways) / lines).max(0.0);
    missing * tile.rows as f64 * l2.line_cycles
}

/// The part of the time that threads are busy that share so many pieces, over some numbers of threads.
fn evenness(pieces: i64) -> f64 {
    let busy = |threads: i64| {
        let each = (pieces + threads - 1) / threads;
        pieces as f64 / (each * threads) as f64
    };
    [1, 2, 4].map(busy).iter().sum::<f64>() / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::depth;

    #[test]
    fn deep_products_are_cut_where_the_third_level_is_behind_a_network() {
        let tile = Tile { rows: 13, vectors: 2, lanes: 16 };
        let extents = Extents {
            batches: 1,
            parts: 1,
            rows: vec![128],
            open: false,
            vectors: 48,
            depth: 3072,
            run: 3072,
            continues: false,
            rows_apart: true,
            row_distance: None,
            panels_bytes: 4 * 3072 * 768,
            rows_bytes: 4 * 3072 * 128,
            shares_rows: false,
        };
        let best = |timing: &str| {
            // The same caches, whatever lies behind them.
            let target = format!("x86-64-v4;timing={timing};l1d=49152;l2=1310720;l3=67108864@llvm");
            let target: Target = target.parse().expect("a target");
            let traffic = Traffic { per_row: 1, per_vector: 1, ..Traffic::default() };
            let best = |extents: &Extents| Order::of_contraction(&target, &tile, &traffic, extents)[0].cost;
            (best(&extents), depth::depths(&extents, 192, best)[0].value)
        };
        let (near, behind) = (best("zen3"), best("sapphire-rapids"));
        assert!(behind.0 > 1.1 * near.0, "{behind:?}, {near:?}");
        assert!(behind.1 > 1, "{behind:?}");
        assert_eq!(near.1, 1, "{near:?}");
    }

    /// Rows a way of L1 apart fall into the same set: more of them than it has ways come anew with every step.
    #[test]
    fn rows_in_one_set_come_from_l2() {
        let target: Target = "x86-64-v4@llvm".parse().expect("a target");
        let cycles = |rows: i64, row_distance: i64| {
            let extents = Extents {
                batches: 1,
                parts: 1,
                rows: vec![52],
                open: false,
                vectors: 1,
                depth: 1024,
                run: 1024,
                continues: false,
                rows_apart: true,
                row_distance: Some(row_distance),
                panels_bytes: 4 * 1024 * 16,
                rows_bytes: 4 * 1024 * 52,
                shares_rows: false,
            };
            let traffic = Traffic { per_row: 1, per_vector: 1, ..Traffic::default() };
            Order::PanelStays.cycles(&target, &Tile { rows, vectors: 1, lanes: 16 }, &traffic, &extents)
        };
        let way = l1_way(&target);
        assert_eq!(cycles(4, way), cycles(4, way + 64));
        assert!(cycles(26, way) > 1.5 * cycles(26, way + 64));
        assert!(cycles(26, way) > cycles(26, way / 2));
    }
}
