//! Padding of windows: a copy of what tasks read, with zeros around, piece by piece in the cache.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_machine::Target;
use tilewright_te::schedule::{Digit, Schedule, ScheduleError, footprint};
use tilewright_te::simplify::Simplifier;
use tilewright_te::{Block, Buffer, Expr, IterKind, Scope};

use crate::context::Context;
use crate::cpu::tiled::{AroundLoop, TiledBlock, extents};
use crate::decisions::Chooser;
use crate::model::machine::MAX_STACK;
use crate::model::order::Order;
use crate::model::piece::{piece_cycles, pieces, stays_in_l1};
use crate::pattern::{AccessInfo, pieces_of, stores_at_its_variables};
use crate::refusal::Refusal;
use crate::strategy::Level;

/// An input that is padded in the tasks that read it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PaddedInput {
    /// The block that pads.
    pub block: String,
    /// The buffer it writes.
    pub buffer: String,
    /// Iterations, of the innermost of the loops around, for which it is padded at a time.
    pub iterations: i64,
    /// Whether the loop over tiles of rows is inside of that.
    pub rows_inside: bool,
    /// How many of these tiles at a time, where their number is open.
    pub tiles: Option<i64>,
    /// The dimension along which vectors lie, and their lanes.
    pub lane: (usize, i64),
    /// Where a piece stays.
    pub home: Level,
}

/// `pad for 4 iterations around rows in L1`, `pad for 2 iterations around 4 tiles of rows in L1`.
impl fmt::Display for PaddedInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {} iterations", self.block, self.iterations)?;
        match self.tiles {
            Some(tiles) => write!(f, " around {tiles} tiles of rows")?,
            None if self.rows_inside => f.write_str(" around rows")?,
            None => {}
        }
        write!(f, " in {}", self.home)
    }
}

/// What a piece of padded input is for.
#[derive(Clone, Copy)]
struct Piece {
    /// The loop around the reader's tiles whose iterations share pieces.
    innermost: usize,
    /// How many of its iterations do.
    iterations: i64,
    /// How many tiles of rows, inside of that, where not all do.
    tiles: Option<i64>,
}

/// Iterations of an open extent for which input is padded at a time: few, so that images of few rows come out even. Twice as many of large
/// windows, whose pieces have most rows in common.
const OPEN_ITERATIONS: i64 = 2;

/// Most tiles of an open number of rows for which input is padded at a time.
const OPEN_TILES: i64 = 4;

/// A block that pads what a window reads.
pub(crate) struct PaddingBlock<'a> {
    block: &'a Block,
    buffer: Buffer,
    /// The dimension along which the lanes run.
    lane: usize,
}

impl<'a> PaddingBlock<'a> {
    /// The block that computes an operand for this reduction alone, as yet without a strategy.
    pub(crate) fn of(
        context: &Context<'a>,
        reader: &Block,
        reads: &[AccessInfo],
        lane: usize,
    ) -> Option<PaddingBlock<'a>> {
        let func = context.func;
        let is_for_reader = |block: &Block| {
            let consumers = func.consumers(block);
            consumers.len() == 1 && consumers[0].name == reader.name
        };
        func.blocks().into_iter().find_map(|block| {
            let [store] = &block.body[..] else { return None };
            let is_read = reads.iter().any(|a| a.buffer == store.buffer);
            let is_free = !block.is_reduction()
                && !func.params.contains(&store.buffer)
                && stores_at_its_variables(block)
                && is_for_reader(block)
                && context.is_as_computed(block);
            let fits = is_read && is_free && lane < block.iters.len();
            fits.then_some(PaddingBlock { block, buffer: store.buffer, lane })
        })
    }

    /// Decides for how many iterations at a time the input is padded, of the innermost of the loops around the reader's tiles that is not
    /// over tiles of rows: as many as fit, in an even number of pieces where threads share these (`is_shared`) and it can be. Nothing
    /// where not even one fits.
    pub(crate) fn decide(
        &self,
        context: &Context<'_>,
        reader: &Block,
        tiled: &TiledBlock,
        is_shared: bool,
        chooser: &mut Chooser<'_>,
    ) -> Result<Option<PaddedInput>, Refusal> {
        let rows_inside = tiled.row.is_some() && tiled.order == Order::PanelStays;
        let around = tiled.loops_around(reader);
        let n_around = around.in_order().0.len() - usize::from(rows_inside);
        let Some(innermost) = n_around.checked_sub(1) else { return Ok(None) };
        let extents = extents(&around.in_order().0);
        let bytes = |iterations: i64, tiles: Option<i64>| {
            let piece = Piece { innermost, iterations, tiles };
            self.bytes(context, reader, tiled, piece).filter(|&bytes| bytes <= MAX_STACK)
        };
        let (iterations, tiles) = match extents[innermost..] {
            [Some(extent)] | [Some(extent), Some(_)] => {
                let n_pieces = if is_shared && extent % 2 == 0 { 2 } else { 1 };
                let divides = |n: &i64| extent % n == 0 && (extent / n) % n_pieces == 0;
                let sizes = (1..=extent).filter(divides).map(|n| Some((n, bytes(n, None)?)));
                let sizes: Vec<(i64, i64)> = sizes.map_while(|size| size).collect();
                if sizes.is_empty() {
                    return Ok(None);
                }
                (chooser.decide(&reader.name, "piece", &pieces(context.target, &sizes))?, None)
            }
            ref open => match open_piece(context.target, open, &bytes) {
                Some(piece) if self.is_part(context, &around.in_order().0[innermost..], piece) => piece,
                _ => return Ok(None),
            },
        };
        let size = bytes(iterations, tiles).unwrap_or(0);
        Ok(Some(PaddedInput {
            block: self.block.name.clone(),
            buffer: context.func.buffers[self.buffer].name.clone(),
            iterations,
            rows_inside,
            tiles,
            lane: (self.lane, tiled.tile.lanes),
            home: if stays_in_l1(context.target, size) { Level::L1 } else { Level::L2 },
        }))
    }

    /// Whether open loops may have more iterations than are padded at a time: of one piece the size would not be a constant.
    fn is_part(
        &self,
        context: &Context<'_>,
        loops: &[&AroundLoop],
        (iterations, tiles): (i64, Option<i64>),
    ) -> bool {
        let simplifier = Simplifier::for_sizes(context.func);
        let is_more = |(l, n): (&&AroundLoop, i64)| {
            l.extent.as_int().is_some() || simplifier.upper_bound(&l.extent).is_none_or(|most| most > n)
        };
        loops.iter().zip([iterations, tiles.unwrap_or(0)]).all(is_more)
    }

    /// Bytes that the reader's tiles of a piece read, to which the buffer shrinks.
    fn bytes(&self, context: &Context<'_>, reader: &Block, tiled: &TiledBlock, piece: Piece) -> Option<i64> {
        let around = tiled.loops_around(reader);
        let mut digits: Vec<Vec<Digit>> = vec![Vec::new(); reader.iters.len()];
        for (n, l) in around.in_order().0.into_iter().enumerate() {
            let digit = |extent: Expr, inside: bool| Digit { extent, inside };
            let own = &mut digits[l.iter];
            let cut = if n == piece.innermost { Some(piece.iterations) } else { piece.tiles };
            match cut.filter(|_| n >= piece.innermost) {
                Some(inside) => {
                    let pieces = match l.extent.as_int() {
                        Some(n) => Expr::int(pieces_of(n, inside)),
                        None => l.extent.clone().ceil_div(inside),
                    };
                    own.extend([digit(pieces, false), digit(Expr::int(inside), true)]);
                }
                None => own.push(digit(l.extent.clone(), n > piece.innermost)),
            }
        }
        for (n, iter) in reader.iters.iter().enumerate() {
            let extent = match iter.kind {
                IterKind::Reduce => iter.extent.clone(),
                IterKind::Spatial if n == tiled.lane => Expr::int(tiled.tile.vectors * tiled.tile.lanes),
                IterKind::Spatial if Some(n) == tiled.row => Expr::int(tiled.tile.rows),
                IterKind::Spatial => continue,
            };
            digits[n].push(Digit { extent, inside: true });
        }
        let element = context.func.buffers[self.buffer].dtype.bytes() as i64;
        let extents = footprint(context.func, reader, self.buffer, &digits)?;
        extents.iter().try_fold(element, |n, extent| n.checked_mul(extent.as_int()?))
    }
}

/// Iterations and tiles of rows for which input is padded at a time, of loops some of which are open: as many tiles as keep a piece, of so
/// many `bytes`, in L1, if one does.
fn open_piece(
    target: &Target,
    extents: &[Option<i64>],
    bytes: &dyn Fn(i64, Option<i64>) -> Option<i64>,
) -> Option<(i64, Option<i64>)> {
    let has_open_tiles = matches!(extents, [_, None]);
    let at_most = |n: i64| extents.first().copied().flatten().map_or(n, |extent| extent.min(n));
    let [few, more] = [OPEN_ITERATIONS, 2 * OPEN_ITERATIONS].map(at_most);
    let size = |iterations| bytes(iterations, has_open_tiles.then_some(1));
    let is_shared = size(few).zip(size(more)).is_some_and(|(few, more)| 2 * more < 3 * few);
    let iterations = if is_shared { more } else { few };
    let counts = (0..=OPEN_TILES.ilog2()).rev().map(|n| has_open_tiles.then_some(1 << n));
    let sizes: Vec<_> = counts.filter_map(|tiles| Some((tiles, bytes(iterations, tiles)?))).collect();
    let in_l1 = sizes.iter().find(|(_, bytes)| stays_in_l1(target, *bytes));
    in_l1.or(sizes.last()).map(|(tiles, _)| (iterations, *tiles))
}

impl PaddedInput {
    /// Cycles of the copies by the model; nothing where extents are open.
    pub(crate) fn cost(&self, context: &Context<'_>, reader: &Block, tiled: &TiledBlock) -> Option<f64> {
        let block = context.func.block(&self.block)?;
        let padding = PaddingBlock { block, buffer: block.body.first()?.buffer, lane: self.lane.0 };
        let around = tiled.loops_around(reader);
        let loops = around.in_order().0;
        let innermost = (loops.len() - usize::from(self.rows_inside)).checked_sub(1)?;
        let piece = Piece { innermost, iterations: self.iterations, tiles: self.tiles };
        let bytes = padding.bytes(context, reader, tiled, piece)?;
        let pieces = loops[..=innermost].iter().map(|l| l.extent.as_int()).product::<Option<i64>>()?;
        Some(piece_cycles(context.target, bytes, self.home == Level::L1) * (pieces / self.iterations) as f64)
    }

    /// Pads piece by piece inside of the loops, outermost first; the loop over pieces takes the place of the innermost.
    pub(crate) fn apply(
        &self,
        schedule: &mut Schedule,
        outer: &mut Vec<String>,
    ) -> Result<(), ScheduleError> {
        let tiles = if self.rows_inside { outer.pop() } else { None };
        let Some(innermost) = outer.pop() else {
            return Err(ScheduleError::new("padding", &self.block, "there is no loop around it"));
        };
        let of_loop = schedule.split(&innermost, &[None, Some(self.iterations)])?;
        let mut pieces = of_loop[0].clone();
        if let (Some(tiles), Some(n)) = (tiles, self.tiles) {
            let of_tiles = schedule.split(&tiles, &[None, Some(n)])?;
            let order = [&of_loop[0], &of_tiles[0], &of_loop[1], &of_tiles[1]];
            schedule.reorder(&order.map(String::as_str))?;
            outer.push(std::mem::replace(&mut pieces, of_tiles[0].clone()));
        }
        let loops = schedule.compute_at(&self.block, &pieces)?;
        schedule.set_scope(&self.buffer, Scope::Stack)?;
        let (lane, lanes) = self.lane;
        let vectors = schedule.split(&loops[lane], &[None, Some(lanes)])?;
        let others = loops.iter().enumerate().filter(|(n, _)| *n != lane).map(|(_, name)| name);
        let order: Vec<&str> =
            [&vectors[0]].into_iter().chain(others).chain([&vectors[1]]).map(String::as_str).collect();
        schedule.reorder(&order)?;
        schedule.vectorize(&vectors[1])?;
        outer.push(pieces);
        Ok(())
    }
}
