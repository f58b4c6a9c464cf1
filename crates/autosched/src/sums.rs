//! Sums of products: contractions whose results one block sums across a batch.
//!
//! A product by Strassen's algorithm is of this kind: seven products of quarters, and a block that makes each element of the
//! result of some of them. Either all products of a block of rows and columns are computed one after the other and stay in the
//! cache until they are summed there, or each product is computed as a whole, and the sums afterwards: what moves fewer bytes.

use std::fmt;

use tilewright_te::schedule::{Piece, Schedule, ScheduleError};
use tilewright_te::{BinaryOp, Block, Expr, ExprKind, Scope};

use crate::order::Order;
use crate::pattern::loads;
use crate::tasks::{MAX_STACK, PARALLEL_GRAIN, extent_of, parallelize, parallelize_prefix};
use crate::tile::{AroundTile, Tile, stores_at_its_variables};
use crate::{Candidate, Context};

/// Part of the second level of cache that products which wait to be summed may fill.
const CACHE_PART: f64 = 0.25;

/// Part of the second level of cache that what is read again may fill.
const REREAD_PART: f64 = 0.6;

/// When products are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A block of rows and columns of them at a time.
    InBlocks,
    /// All, after all are computed.
    Afterwards,
}

/// `in-blocks` or `afterwards`.
impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::InBlocks => "in-blocks",
            Way::Afterwards => "afterwards",
        })
    }
}

/// How a block sums the products of a contraction.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    /// The block.
    pub reader: String,
    /// For each dimension of the products what of a variable of the reader's indexes it; nothing for the batch.
    parts: Vec<Option<Part>>,
}

/// What of a variable, given by its position, is an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The variable.
    Whole(usize),
    /// Its remainder by a number that divides the extent: several parts of that length follow one another.
    Remainder(usize, i64),
    /// Its quotient by a number: as many elements in a row share an index.
    Quotient(usize, i64),
}

impl Part {
    fn iter(self) -> usize {
        let (Part::Whole(iter) | Part::Remainder(iter, _) | Part::Quotient(iter, _)) = self;
        iter
    }
}

/// How the one reader of a contraction's results sums them, if it does: it reads all of one dimension at constant indices, the
/// others at the same place.
pub(crate) fn of(schedule: &Schedule, block: &Block) -> Option<Sums> {
    let func = schedule.func();
    let consumers = schedule.consumers(&block.name).ok()?;
    let [only] = &consumers[..] else { return None };
    let reader = func.block(only)?;
    let buffer = block.body.first()?.buffer;
    let fits = !reader.is_reduction()
        && reader.body.len() == 1
        && !func.params.contains(&buffer)
        && stores_at_its_variables(reader)
        && schedule.loop_names(only).ok()?.len() == reader.iters.len();
    let reads: Vec<_> = loads(reader).into_iter().filter(|a| a.buffer == buffer).collect();
    let first = reads.first().filter(|_| fits)?;
    let is_constant = |dim: &usize| reads.iter().all(|a| a.indices[*dim].as_int().is_some());
    let shape = &func.buffers[buffer].shape;
    let mut constant =
        (0..first.indices.len()).filter(|dim| is_constant(dim) && shape[*dim].as_int() != Some(1));
    // The first, so that its loop is the outermost.
    let (Some(0), None) = (constant.next(), constant.next()) else { return None };
    if reads.iter().all(|a| a.indices[0] == first.indices[0]) {
        return None;
    }
    let part = |dim: usize| {
        let index = &first.indices[dim];
        if reads.iter().any(|a| a.indices[dim] != *index) {
            return None;
        }
        let iter = |e: &Expr| reader.iters.iter().position(|i| e.as_var() == Some(i.var));
        match index.kind() {
            ExprKind::Var(_) => iter(index).map(Part::Whole),
            ExprKind::Binary(BinaryOp::FloorMod, x, by) => {
                let (iter, by) = (iter(x)?, by.as_int()?);
                (reader.iters[iter].extent.as_int()? % by == 0).then_some(Part::Remainder(iter, by))
            }
            ExprKind::Binary(BinaryOp::FloorDiv, x, by) => Some(Part::Quotient(iter(x)?, by.as_int()?)),
            _ => None,
        }
    };
    let others = (0..first.indices.len()).filter(|dim| !is_constant(dim));
    let found: Option<Vec<(usize, Part)>> = others.map(|dim| Some((dim, part(dim)?))).collect();
    let mut parts = vec![None; first.indices.len()];
    for (dim, part) in found? {
        parts[dim] = Some(part);
    }
    let is_walked = parts.last().copied().flatten().is_some();
    is_walked.then(|| Sums { reader: only.clone(), parts })
}

impl Sums {
    /// The ways to sum the products that a block computes, the one that moves fewer bytes beyond the second level of cache first.
    pub(crate) fn ways(context: &Context<'_>, block: &Block) -> Vec<Candidate<Way>> {
        let candidate = |value: Way, bytes: f64| {
            let features = vec![("sums.bytes", bytes.max(1.0).log2())];
            Candidate { value, cost: bytes, features }
        };
        let extents: Option<Vec<f64>> =
            block.iters.iter().map(|i| i.extent.as_int().map(|n| n as f64)).collect();
        let Some([n_products, others @ .., columns, depth]) = extents.as_deref() else {
            return vec![candidate(Way::Afterwards, 0.0)];
        };
        let rows: f64 = others.iter().product();
        let l2 = context.target.machine.caches.l2 as f64;
        let stays = |bytes: f64| bytes <= REREAD_PART * l2;
        let [left, right] = [rows, *columns].map(|n| 4.0 * n_products * n * depth);
        let elements = block_elements(context, *n_products as i64) as f64;
        let block_rows = if rows <= 1.5 * elements.sqrt() { rows } else { elements.sqrt() };
        // Of a block of rows that stays all columns come by, else of columns all rows.
        let in_blocks = match stays(4.0 * n_products * block_rows * depth) {
            true => left + right * (rows / block_rows),
            false => left * (columns * block_rows / elements).max(1.0) + right * (rows / block_rows),
        };
        // Written, which reads lines first, and read.
        let products = 3.0 * 4.0 * n_products * rows * columns;
        let n_panels = (columns / f64::from(2 * context.target.lanes(4))).max(1.0);
        let again = if stays(4.0 * rows * depth) { 1.0 } else { n_panels };
        let mut ways = vec![
            candidate(Way::InBlocks, in_blocks),
            candidate(Way::Afterwards, products + left * again + right),
        ];
        ways.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        ways
    }

    /// The orders of the loops around a tile of `n_products` products of `n_rows` rows: all rows in a block, or part of them.
    ///
    /// A block of products of r rows and c columns stays in the cache until it is summed. What it is made of comes by for each block:
    /// of the left factor for each c columns, of the right one for each r rows, which for a given size is least where both are equal.
    pub(crate) fn orders(
        context: &Context<'_>,
        tile: &Tile,
        n_products: i64,
        n_rows: i64,
    ) -> Vec<Candidate<Order>> {
        let elements = block_elements(context, n_products);
        let side = (elements as f64).sqrt();
        let tiles = (n_rows + tile.rows - 1) / tile.rows;
        // Tiles of one panel that a block has room for.
        let room = (elements / (tile.rows * tile.vectors * tile.lanes)).max(1);
        let most = ((side / tile.rows as f64).round() as i64).clamp(1, room);
        let candidate = |order: Order| Candidate { value: order, cost: 1.0, features: Vec::new() };
        if 2 * tiles <= 3 * most && tiles <= room {
            return vec![candidate(Order::PanelStays)];
        }
        // Blocks as even as can be.
        let even = |most: i64| {
            let blocks = (tiles + most - 1) / most;
            candidate(Order::BlockStays((tiles + blocks - 1) / blocks))
        };
        vec![even(most), even((most / 2).max(1)), even((most * 2).min(room))]
    }

    /// How many of so many panels a block has in an order of the loops around a tile.
    pub(crate) fn panels_of_block(
        context: &Context<'_>,
        tile: &Tile,
        order: Order,
        (n_products, n_rows, n_panels): (i64, i64, i64),
    ) -> i64 {
        let tiles = match order {
            Order::BlockStays(tiles) => tiles,
            Order::PanelStays | Order::RowsStay => (n_rows + tile.rows - 1) / tile.rows,
        };
        let block = (tiles * tile.rows * tile.vectors * tile.lanes).max(1);
        let most = block_elements(context, n_products) / block;
        (1..=most.clamp(1, n_panels.max(1))).rev().find(|n| n_panels % n == 0).unwrap_or(1)
    }

    /// The pieces of a packed panel with those that a block reads together, `n` of each product.
    pub(crate) fn together(&self, mut pieces: Vec<Piece>, n: i64) -> Vec<Piece> {
        let along = pieces.last().map(|last| last.dim);
        if let Some(at) = pieces.iter().position(|piece| Some(piece.dim) == along) {
            let dim = pieces[at].dim;
            pieces[..=at].rotate_right(1);
            pieces.insert(at + 1, Piece { dim, factor: Some(n) });
        }
        pieces
    }

    /// Lets the products of a block of rows and panels follow one another, and sums them there, in tasks. `around` are the loops
    /// around the tiles of products, which lie in `products`; a block has `n_panels`. Gives the loops around the tiles of a block.
    pub(crate) fn apply(
        &self,
        schedule: &mut Schedule,
        around: AroundTile,
        products: &str,
        tile: &Tile,
        n_panels: i64,
        shares_rows: bool,
    ) -> Result<AroundTile, ScheduleError> {
        let fail = |reason: &str| Err(ScheduleError::new("sums", &self.reader, reason));
        // As made: the product's loop, then those over blocks of rows and panels, and the innermost over tiles.
        let [product, others @ .., tiles] = &around.loops[..] else {
            return fail("there are no loops around tiles");
        };
        let panels = schedule.split(&around.panels, &[None, Some(n_panels)])?;
        let [groups, panels] = &panels[..] else { return fail("the loop over panels is lost") };
        let rows = others.iter().filter(|name| **name != around.panels);
        let tasks: Vec<&String> = match shares_rows {
            true => rows.chain([groups]).collect(),
            false => [groups].into_iter().chain(rows).collect(),
        };
        let Some(block) = tasks.last() else { return fail("there is no loop over panels") };
        let order = tasks.iter().copied().chain([product, panels, tiles]);
        schedule.reorder(&order.map(String::as_str).collect::<Vec<_>>())?;
        self.place(schedule, Some(block), tile.lanes)?;
        schedule.set_scope(products, Scope::Stack)?;
        parallelize_prefix(schedule, &tasks.into_iter().cloned().collect::<Vec<_>>())?;
        // One loop goes over panels as they lie.
        let panels = schedule.fuse(&[product, panels])?;
        Ok(AroundTile { loops: vec![panels.clone(), tiles.clone()], panels, ..around })
    }

    /// Sums products, which are computed, in tasks of their own.
    pub(crate) fn afterwards(&self, schedule: &mut Schedule, lanes: i64) -> Result<(), ScheduleError> {
        let outer = self.place(schedule, None, lanes)?;
        parallelize(schedule, &outer, &Expr::int(4 * lanes), PARALLEL_GRAIN)
    }

    /// Arranges the loops of the block that sums, in the loop `block` if there is one: all results that are made of the same products
    /// are computed at once, vectors of them along the last dimension of the products. Gives the loops around that.
    fn place(
        &self,
        schedule: &mut Schedule,
        block: Option<&str>,
        lanes: i64,
    ) -> Result<Vec<String>, ScheduleError> {
        let n_iters = schedule.block_info(&self.reader)?.iters.len();
        let part = |iter: usize| self.parts.iter().flatten().find(|part| part.iter() == iter).copied();
        for iter in (0..n_iters).rev() {
            if let Some(Part::Remainder(_, inner)) = part(iter) {
                schedule.split_iter(&self.reader, iter, inner)?;
            }
        }
        let made = match block {
            Some(block) => schedule.reverse_compute_at(&self.reader, block)?,
            None => schedule.loop_names(&self.reader)?,
        };
        let mut made = made.into_iter();
        let (mut outer, mut inner, mut vector) = (Vec::new(), Vec::new(), None);
        let of_lanes = self.parts.last().copied().flatten().map(Part::iter);
        for iter in 0..n_iters {
            let mut own: Vec<String> = match part(iter) {
                Some(Part::Remainder(..)) => made.by_ref().take(2).collect(),
                Some(Part::Quotient(_, inner)) => {
                    let mut parts = made
                        .next()
                        .map_or(Ok(Vec::new()), |name| schedule.split(&name, &[None, Some(inner)]))?;
                    parts.reverse();
                    parts
                }
                Some(Part::Whole(_)) | None => made.by_ref().take(1).collect(),
            };
            let walked = own.pop();
            inner.extend(own);
            match walked {
                Some(name) if of_lanes == Some(iter) => {
                    let extent = extent_of(schedule, &name);
                    let divides = |lanes: &i64| extent.is_some_and(|extent| extent % lanes == 0);
                    let whole = [lanes, lanes / 2, lanes / 4].into_iter().filter(|&n| n > 0).find(divides);
                    let parts = schedule.split(&name, &[None, Some(whole.unwrap_or(1))])?;
                    outer.push(parts[0].clone());
                    vector = Some(parts[1].clone());
                }
                walked => outer.extend(walked),
            }
        }
        let Some(vector) = vector else {
            return Err(ScheduleError::new(
                "sums",
                &self.reader,
                "it has no variable of the products' lanes",
            ));
        };
        let order = outer.iter().chain(&inner).chain([&vector]);
        schedule.reorder(&order.map(String::as_str).collect::<Vec<_>>())?;
        for name in &inner {
            schedule.unroll(name)?;
        }
        schedule.vectorize(&vector)?;
        Ok(outer)
    }
}

/// Products of each of so many that a block has at most: it lies in the cache of a core, and on the stack of a thread.
fn block_elements(context: &Context<'_>, n_products: i64) -> i64 {
    let cached = (CACHE_PART * context.target.machine.caches.l2 as f64) as i64;
    cached.min(MAX_STACK) / (4 * n_products)
}
