//! The cost of summing products: bytes that move beyond L2.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_machine::Target;

use crate::decisions::Candidate;
use crate::model::machine::{MAX_STACK, l2_room};
use crate::model::order::Order;
use crate::model::tile::Tile;

/// Part of what may be filled of L2 that products may fill which wait to be summed. The rest is for what they are made of, a block of
/// rows and a panel, of about the same size each by the choice of the block, and for the results.
const WAITING: f64 = 5.0 / 12.0;

/// When products are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// A batch of products of matrices that are summed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Products {
    /// Number of products.
    pub(crate) n: f64,
    /// Rows of each.
    pub(crate) rows: f64,
    /// Columns of each.
    pub(crate) columns: f64,
    /// Steps of each.
    pub(crate) depth: f64,
}

/// The ways to sum products, the one that moves fewer bytes beyond L2 first; with open extents that is not known.
pub(crate) fn ways(target: &Target, products: Option<Products>) -> Vec<Candidate<Way>> {
    let candidate = |value: Way, bytes: f64| {
        let features = vec![("sums.bytes", bytes.max(1.0).log2())];
        Candidate { value, cost: bytes, features }
    };
    let Some(Products { n, rows, columns, depth }) = products else {
        return vec![candidate(Way::Afterwards, 0.0)];
    };
    let stays = |bytes: f64| bytes <= l2_room(target);
    let [left, right] = [rows, columns].map(|extent| 4.0 * n * extent * depth);
    let elements = block_elements(target, n as i64) as f64;
    let block_rows = if rows <= 1.5 * elements.sqrt() { rows } else { elements.sqrt() };
    // Of a block of rows that stays all columns come by, else of columns all rows.
    let in_blocks = match stays(4.0 * n * block_rows * depth) {
        true => left + right * (rows / block_rows),
        false => left * (columns * block_rows / elements).max(1.0) + right * (rows / block_rows),
    };
    // Written, which reads lines first, and read.
    let results = 3.0 * 4.0 * n * rows * columns;
    let n_panels = (columns / f64::from(2 * target.lanes(4))).max(1.0);
    let again = if stays(4.0 * rows * depth) { 1.0 } else { n_panels };
    let mut ways =
        vec![candidate(Way::InBlocks, in_blocks), candidate(Way::Afterwards, results + left * again + right)];
    ways.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    ways
}

/// The orders of the loops around a tile of `n_products` products of `n_rows` rows: all rows in a block, or part of them.
///
/// A block of products of r rows and c columns stays in the cache until it is summed. What it is made of comes by for each block:
/// of the left factor for each c columns, of the right one for each r rows, which for a given size is least where both are equal.
pub(crate) fn orders(target: &Target, tile: &Tile, n_products: i64, n_rows: i64) -> Vec<Candidate<Order>> {
    let elements = block_elements(target, n_products);
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

/// How many of so many panels a block of products has in an order of the loops around a tile.
pub(crate) fn panels_of_block(
    target: &Target,
    tile: &Tile,
    order: Order,
    (n_products, n_rows, n_panels): (i64, i64, i64),
) -> i64 {
    let tiles = match order {
        Order::BlockStays(tiles) => tiles,
        Order::PanelStays | Order::RowsStay => (n_rows + tile.rows - 1) / tile.rows,
    };
    // An extent may be 0.
    let of_panel = (tiles * tile.rows * tile.vectors * tile.lanes).max(1);
    let most = block_elements(target, n_products) / of_panel;
    (1..=most.clamp(1, n_panels.max(1))).rev().find(|n| n_panels % n == 0).unwrap_or(1)
}

/// Products of each of so many that a block has at most: it lies in the cache of a core, and on the stack of a thread.
fn block_elements(target: &Target, n_products: i64) -> i64 {
    let cached = (WAITING * l2_room(target)) as i64;
    cached.min(MAX_STACK) / (4 * n_products.max(1))
}
