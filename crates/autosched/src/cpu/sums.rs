//! Sums of products: contractions whose results one block sums across a batch.
//!
//! A product by Strassen's algorithm is of this kind: seven products of quarters, and a block that makes each element of the
//! result of some of them. Either all products of a block of rows and columns are computed one after the other and stay in the
//! cache until they are summed there, or each product is computed as a whole, and the sums afterwards: what moves fewer bytes.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Piece, Schedule, ScheduleError};
use tilewright_te::{BinaryOp, Block, Expr, ExprKind, Scope};

use crate::context::Context;
use crate::cpu::tasks::{Grain, Tasks};
use crate::cpu::tiled::AroundTile;
use crate::model::sums::Products;
use crate::model::tasks::PARALLEL_GRAIN;
use crate::pattern::{loads, pieces_of, stores_at_its_variables};

/// How a block sums the products of a contraction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sums {
    /// The block.
    pub reader: String,
    /// For each dimension of the products what of a variable of the reader's indexes it; nothing for the batch.
    pub parts: Vec<Option<Part>>,
}

/// What of a variable, given by its position, is an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Part {
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

/// What is done to a block that sums products.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// The block.
    pub sums: Sums,
    /// Lanes of its vectors.
    pub lanes: i64,
    /// When it runs.
    pub when: When,
}

/// When products are summed, with what belongs to that.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum When {
    /// When those of a block of rows and columns are computed.
    InBlocks {
        /// Panels of a block.
        panels: i64,
        /// Whether threads share rows rather than panels.
        shares_rows: bool,
    },
    /// When all are computed.
    Afterwards {
        /// The tasks.
        tasks: Tasks,
    },
}

/// `sums out in blocks of 4 panels in vectors of 16, threads share rows`, `sums out afterwards in vectors of 16, tasks loops 2`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sums {} ", self.sums.reader)?;
        match &self.when {
            When::InBlocks { panels, shares_rows } => {
                let shared = if *shares_rows { "rows" } else { "panels" };
                write!(f, "in blocks of {panels} panels in vectors of {}, threads share {shared}", self.lanes)
            }
            When::Afterwards { tasks } => {
                write!(f, "afterwards in vectors of {}, tasks {tasks}", self.lanes)
            }
        }
    }
}

/// How the one reader of a contraction's results sums them, if it does: it reads all of one dimension at constant indices, the
/// others at the same place.
pub(crate) fn of(context: &Context<'_>, block: &Block) -> Option<Sums> {
    let func = context.func;
    let &[reader] = &func.consumers(block)[..] else { return None };
    let buffer = block.body.first()?.buffer;
    let fits = !reader.is_reduction()
        && reader.body.len() == 1
        && !func.params.contains(&buffer)
        && stores_at_its_variables(reader)
        && context.is_as_computed(reader);
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
    is_walked.then(|| Sums { reader: reader.name.clone(), parts })
}

/// The products that a contraction computes for a block that sums them, where extents are known.
pub(crate) fn products(block: &Block) -> Option<Products> {
    let extents: Option<Vec<f64>> = block.iters.iter().map(|i| i.extent.as_int().map(|n| n as f64)).collect();
    let [n, others @ .., columns, depth] = &extents?[..] else { return None };
    Some(Products { n: *n, rows: others.iter().product(), columns: *columns, depth: *depth })
}

impl Sums {
    /// Sums the products of a block of rows and `panels` as soon as they are computed.
    pub(crate) fn in_blocks(self, panels: i64, lanes: i64, shares_rows: bool) -> Strategy {
        Strategy { sums: self, lanes, when: When::InBlocks { panels, shares_rows } }
    }

    /// Sums products, when all are computed, in tasks of their own.
    pub(crate) fn afterwards(self, context: &Context<'_>) -> Strategy {
        let reader = context.func.block(&self.reader);
        let extent = |iter: usize| reader.and_then(|block| block.iters.get(iter)?.extent.as_int());
        let n_iters = reader.map_or(0, |block| block.iters.len());
        let full = i64::from(context.target.lanes(4));
        let mut lanes = 1;
        let mut outer = Vec::new();
        for iter in 0..n_iters {
            let walked = match self.part(iter) {
                Some(Part::Remainder(_, by)) => Some(by),
                Some(Part::Quotient(_, by)) => extent(iter).map(|n| pieces_of(n, by)),
                Some(Part::Whole(_)) | None => extent(iter),
            };
            if self.lanes_iter() == Some(iter) {
                let divides = |lanes: &i64| walked.is_some_and(|n| n % lanes == 0);
                lanes = [full, full / 2, full / 4].into_iter().filter(|&n| n > 0).find(divides).unwrap_or(1);
                outer.push(walked.map(|n| pieces_of(n, lanes)));
            } else {
                outer.push(walked);
            }
        }
        let grain = Grain { elements: Some(4 * full), task: PARALLEL_GRAIN };
        let tasks = Tasks::plan(&outer, None, grain);
        Strategy { sums: self, lanes, when: When::Afterwards { tasks } }
    }

    /// What of a variable of the reader's indexes the products.
    fn part(&self, iter: usize) -> Option<Part> {
        self.parts.iter().flatten().find(|part| part.iter() == iter).copied()
    }

    /// The variable of the reader's along which the products' lanes lie.
    fn lanes_iter(&self) -> Option<usize> {
        self.parts.last().copied().flatten().map(Part::iter)
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
}

impl Strategy {
    /// Sums the products that are computed in the loops `around` tiles and lie in `products`; gives the loops around the tiles of what
    /// is summed at a time.
    pub(crate) fn apply(
        &self,
        schedule: &mut Schedule,
        around: AroundTile,
        products: &str,
    ) -> Result<AroundTile, ScheduleError> {
        match &self.when {
            When::InBlocks { panels, shares_rows } => {
                self.apply_in_blocks(schedule, around, products, *panels, *shares_rows)
            }
            When::Afterwards { .. } => Ok(around),
        }
    }

    /// Sums products, when all are computed, in tasks of their own, if that is when they are summed.
    pub(crate) fn apply_afterwards(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        match &self.when {
            When::InBlocks { .. } => Ok(()),
            When::Afterwards { tasks } => {
                let outer = self.place(schedule, None)?;
                tasks.apply(schedule, &outer)
            }
        }
    }

    /// Lets the products of a block of rows and panels follow one another, and sums them there, in tasks.
    fn apply_in_blocks(
        &self,
        schedule: &mut Schedule,
        around: AroundTile,
        products: &str,
        n_panels: i64,
        shares_rows: bool,
    ) -> Result<AroundTile, ScheduleError> {
        let fail = |reason: &str| Err(ScheduleError::new("sums", &self.sums.reader, reason));
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
        self.place(schedule, Some(block))?;
        schedule.set_scope(products, Scope::Stack)?;
        let tasks: Vec<String> = tasks.into_iter().cloned().collect();
        Tasks::of_all(tasks.len()).apply(schedule, &tasks)?;
        // One loop goes over panels as they lie.
        let panels = schedule.fuse(&[product, panels])?;
        Ok(AroundTile { loops: vec![panels.clone(), tiles.clone()], panels, ..around })
    }

    /// Arranges the loops of the block that sums, in the loop `block` if there is one: all results that are made of the same products
    /// are computed at once, vectors of them along the last dimension of the products. Gives the loops around that.
    fn place(&self, schedule: &mut Schedule, block: Option<&str>) -> Result<Vec<String>, ScheduleError> {
        let Sums { reader, .. } = &self.sums;
        let n_iters = schedule.block_info(reader)?.iters.len();
        for iter in (0..n_iters).rev() {
            if let Some(Part::Remainder(_, inner)) = self.sums.part(iter) {
                schedule.split_iter(reader, iter, inner)?;
            }
        }
        let made = match block {
            Some(block) => schedule.reverse_compute_at(reader, block)?,
            None => schedule.loop_names(reader)?,
        };
        let mut made = made.into_iter();
        let (mut outer, mut inner, mut vector) = (Vec::new(), Vec::new(), None);
        for iter in 0..n_iters {
            let mut own: Vec<String> = match self.sums.part(iter) {
                Some(Part::Remainder(..)) => made.by_ref().take(2).collect(),
                Some(Part::Quotient(_, inner)) => {
                    let split = |name: String| schedule.split(&name, &[None, Some(inner)]);
                    let mut parts = made.next().map_or(Ok(Vec::new()), split)?;
                    parts.reverse();
                    parts
                }
                Some(Part::Whole(_)) | None => made.by_ref().take(1).collect(),
            };
            let walked = own.pop();
            inner.extend(own);
            match walked {
                Some(name) if self.sums.lanes_iter() == Some(iter) => {
                    let parts = schedule.split(&name, &[None, Some(self.lanes)])?;
                    outer.push(parts[0].clone());
                    vector = Some(parts[1].clone());
                }
                walked => outer.extend(walked),
            }
        }
        let Some(vector) = vector else {
            return Err(ScheduleError::new("sums", reader, "it has no variable of the products' lanes"));
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
