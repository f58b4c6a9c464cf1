//! Data-parallel blocks: vectors along memory, tasks over the rest.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_machine::Target;
use tilewright_te::schedule::{Piece, Schedule, ScheduleError};
use tilewright_te::{Block, Func, IterKind};

use crate::context::Context;
use crate::cpu::squares::{across, is_square, lanes_of, take_at_once};
use crate::cpu::tasks::{Grain, Tasks};
use crate::decisions::Chooser;
use crate::model::machine::n_cores;
use crate::model::tasks::{PARALLEL_GRAIN, grains, rounds_of};
use crate::pattern::{
    AccessInfo, Stride, constant_product, domain_simplifier, extents_of, is_identity, loads, pieces_of,
    stride,
};
use crate::refusal::Refusal;
use crate::strategy::{Domain, pieces_text};

/// The loops of a data-parallel block.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// The block.
    pub block: String,
    /// What it computes.
    pub domain: Domain,
    /// What is done to its loops.
    pub loops: Loops,
    /// The tasks, of the loops around what is innermost.
    pub tasks: Tasks,
}

/// What is done to the loops of a data-parallel block.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Loops {
    /// There are none: a single element.
    None,
    /// Some trailing ones become one, which is cut.
    Rows {
        /// How many.
        joined: usize,
        /// How their loop is cut.
        cut: Cut,
    },
    /// As rows in vectors, of several iterations of a loop around at once, along which lies what lanes read apart: the vectors read squares
    /// by rows, which are transposed in registers.
    Squares {
        /// How many trailing loops become one.
        joined: usize,
        /// The lanes of vectors along it.
        lanes: i64,
        /// Which loop goes in groups.
        across: usize,
        /// Iterations of a group.
        rows: i64,
    },
    /// They are brought into the order of memory, the innermost as vectors.
    Blocked {
        /// The layout of the result, where its dimensions are the loops.
        pieces: Option<Vec<Piece>>,
        /// The vectors of the innermost.
        vectors: Vectors,
        /// Which of the loops around goes in groups inside of them, and iterations of a group: see [`Loops::Squares`].
        at_once: Option<(usize, i64)>,
    },
}

/// How a row is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cut {
    /// Not at all: its elements are not consecutive, or there is one.
    Not,
    /// Into vectors of so many lanes.
    Vectors(i64),
    /// Into tasks of so many elements each.
    Tasks(i64),
    /// Into tasks of so many vectors, and vectors of so many lanes.
    TasksOfVectors(i64, i64),
}

/// How the innermost loop of a blocked result becomes vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Vectors {
    /// It does not.
    None,
    /// All of it is one vector.
    One,
    /// It is several vectors of so many lanes.
    Several(i64),
}

/// `out: f32[64, 56], rows of 2 in vectors of 8, tasks loops 1`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, ", self.block, self.domain)?;
        match &self.loops {
            Loops::None => f.write_str("one element")?,
            Loops::Rows { joined, cut } => {
                write!(f, "rows of {joined} ")?;
                match cut {
                    Cut::Not => f.write_str("as they are")?,
                    Cut::Vectors(lanes) => write!(f, "in vectors of {lanes}")?,
                    Cut::Tasks(elements) => write!(f, "in tasks of {elements}")?,
                    Cut::TasksOfVectors(n, lanes) => write!(f, "in tasks of {n} vectors of {lanes}")?,
                }
            }
            Loops::Squares { joined, lanes, across, rows } => {
                write!(f, "rows of {joined} in vectors of {lanes}, {rows} at once of loop {across}")?;
            }
            Loops::Blocked { pieces, vectors, at_once } => {
                let order = pieces.as_ref().map_or_else(|| "computed".to_string(), |p| pieces_text(p));
                write!(f, "as {order} ")?;
                match vectors {
                    Vectors::None => f.write_str("without vectors")?,
                    Vectors::One => f.write_str("in a vector")?,
                    Vectors::Several(lanes) => write!(f, "in vectors of {lanes}")?,
                }
                at_once.map_or(Ok(()), |(across, rows)| write!(f, ", {rows} at once of loop {across}"))?;
            }
        }
        write!(f, ", tasks {}", self.tasks)
    }
}

/// A data-parallel block, as far as its loops go by it.
#[derive(Clone, Debug)]
pub(crate) struct Elements {
    /// Its name.
    pub(crate) block: String,
    /// What it computes.
    pub(crate) domain: Domain,
    /// Extents of its loops, where known.
    pub(crate) extents: Vec<Option<i64>>,
    /// How many trailing loops are walked as one.
    pub(crate) joined: usize,
    /// Whether elements along the last one are stored consecutively.
    pub(crate) is_consecutive: bool,
    /// Bytes of the largest element that is stored.
    pub(crate) bytes: usize,
    /// The loop along which lies what it reads apart along the last one.
    pub(crate) across: Option<usize>,
}

impl Elements {
    /// Those of a block; `mixed` says that what it reads lies in another order than its loops.
    pub(crate) fn of(context: &Context<'_>, block: &Block, mixed: bool) -> Elements {
        let contiguous = || contiguous_dims(context.func, block);
        let bytes =
            block.body.iter().map(|s| context.func.buffers[s.buffer].dtype.bytes()).max().unwrap_or(4);
        let layout = block.body.first().and_then(|store| context.layout(store.buffer));
        let lane = layout
            .and_then(|pieces| pieces.last())
            .map_or(block.iters.len().saturating_sub(1), |piece| piece.dim);
        Elements {
            block: block.name.clone(),
            domain: Domain::of(context.func, block),
            extents: extents_of(block, IterKind::Spatial),
            joined: if mixed { 1 } else { task_dims(context.target, block, contiguous()) },
            is_consecutive: is_consecutive(context.func, block),
            bytes,
            across: across(context, block, lane, lanes_of(context.target, bytes)),
        }
    }

    /// Iterations of a loop around whose vectors read squares, where there are enough for one: if possible as many as elements of what is
    /// read are a line, so that no line is read twice.
    fn rows_of_squares(&self, target: &Target) -> Option<(usize, i64)> {
        let (across, lanes) = (self.across?, lanes_of(target, self.bytes));
        let (outer, row) = self.extents.split_at(self.extents.len() - self.joined.max(1));
        let is_long = |extent: Option<i64>| extent.is_none_or(|n| n >= lanes);
        let is_wide = is_square(lanes, self.bytes) && is_long(*outer.get(across)?) && is_long(product(row));
        if !self.is_consecutive || !is_wide {
            return None;
        }
        let line = target.machine.caches.line.cast_signed() / self.bytes as i64;
        let mut several = (1..=line / lanes).rev().map(|n| n * lanes);
        let fits = |rows: &i64| self.extents[across].is_none_or(|n| n % rows == 0);
        Some((across, several.find(fits).unwrap_or(lanes)))
    }

    /// Rows of which several are taken at once.
    fn plan_squares(
        self,
        target: &Target,
        (across, rows): (usize, i64),
        chooser: &mut Chooser<'_>,
    ) -> Result<Strategy, Refusal> {
        let (lanes, joined) = (lanes_of(target, self.bytes), self.joined.max(1));
        let Elements { block, domain, extents, .. } = self;
        let task = grain_of(&block, target, product(&extents), chooser)?;
        let (outer, inner) = extents.split_at(extents.len() - joined);
        let mut outer = outer.to_vec();
        outer[across] = outer[across].map(|n| pieces_of(n, rows));
        outer.push(product(inner).map(|n| pieces_of(n, lanes)));
        let grain = |task| Grain { elements: Some(rows * lanes), task };
        let tasks = task.map(|task| Tasks::plan(&outer, None, grain(task))).unwrap_or_default();
        Ok(Strategy { block, domain, loops: Loops::Squares { joined, lanes, across, rows }, tasks })
    }

    fn plan_rows(self, target: &Target, chooser: &mut Chooser<'_>) -> Result<Strategy, Refusal> {
        let joined = self.joined.max(1);
        if let Some(squares) = self.rows_of_squares(target) {
            return self.plan_squares(target, squares, chooser);
        }
        let Elements { block, domain, extents, is_consecutive, bytes, .. } = self;
        let lanes = lanes_of(target, bytes);
        let total = product(&extents);
        let (outer, inner) = extents.split_at(extents.len() - joined);
        let row = product(inner);
        let grain = grain_of(&block, target, total, chooser)?;
        let vectors = (is_consecutive && row.is_none_or(|n| n >= 2))
            .then(|| row.filter(|&n| n < lanes).unwrap_or(lanes));
        // Where there is nothing around the row to distribute, the row itself is cut into tasks.
        let cut = match (vectors, grain.filter(|_| outer.is_empty())) {
            (Some(lanes), Some(grain)) => {
                let vectors = row.filter(|n| n % lanes == 0).map(|n| n / lanes);
                Cut::TasksOfVectors(even_share(vectors, (grain / lanes).max(1)), lanes)
            }
            (Some(lanes), None) => Cut::Vectors(lanes),
            (None, Some(grain)) => Cut::Tasks(grain),
            (None, None) => Cut::Not,
        };
        let of_row = cut.task().map(|elements| row.map(|row| pieces_of(row, elements)));
        let outer: Vec<Option<i64>> = outer.iter().copied().chain(of_row).collect();
        let tasks =
            grain.map(|task| Tasks::plan(&outer, None, Grain { elements: row, task })).unwrap_or_default();
        Ok(Strategy { block, domain, loops: Loops::Rows { joined, cut }, tasks })
    }

    /// The strategy of a block whose result is in blocks: its loops in the order of memory, the innermost as vectors.
    pub(crate) fn plan_blocked(
        self,
        target: &Target,
        layout: Option<&[Piece]>,
        chooser: &mut Chooser<'_>,
    ) -> Result<Strategy, Refusal> {
        let Elements { block, domain, extents, bytes, across, .. } = self;
        let lane = layout.and_then(|pieces| pieces.last()).filter(|p| p.factor.is_some()).map(|p| p.dim);
        let rounds = lane.and_then(|lane| rounds_of(target, &extents, lane));
        let rank = layout.into_iter().flatten().map(|p| p.dim + 1).max().unwrap_or(0);
        let pieces = layout.filter(|_| rank == extents.len()).map(<[Piece]>::to_vec);
        let order = pieces.as_ref().map_or_else(|| extents.clone(), |pieces| in_order(&extents, pieces));
        let Some((&last, outer)) = order.split_last() else {
            return Ok(Strategy { block, domain, loops: Loops::None, tasks: Tasks::default() });
        };
        let lanes = i64::from(target.lanes(4));
        let vectors = match last {
            Some(n) if n <= lanes => Vectors::One,
            Some(n) if n % lanes == 0 => Vectors::Several(lanes),
            Some(_) | None => Vectors::None,
        };
        // Vectors that are no multiple of lanes are no squares.
        let is_whole = is_square(lanes, bytes) && last.is_some_and(|n| n % lanes == 0);
        let at_once = across.filter(|_| is_whole).and_then(|across| {
            // The last piece is that of the vectors.
            let innermost = pieces.as_ref()?.iter().rposition(|piece| piece.dim == across)?;
            let is_long = outer.get(innermost)?.is_none_or(|n| n >= lanes);
            is_long.then_some((innermost, lanes))
        });
        let mut outer = outer.to_vec();
        if let Some((at, rows)) = at_once {
            outer[at] = outer[at].map(|n| pieces_of(n, rows));
        }
        let grain = grain_of(&block, target, product(&order), chooser)?;
        let elements = last.map(|n| at_once.map_or(1, |(_, rows)| rows) * n).or(Some(1));
        let channels = pieces.as_ref().and_then(|pieces| pieces.iter().position(|p| Some(p.dim) == lane));
        let tasks = |task: i64| {
            let grain = Grain { elements, task };
            let open = channels.and_then(|channels| Tasks::of_open_rows(&outer, channels, grain));
            open.unwrap_or_else(|| Tasks::plan(&outer, rounds, grain))
        };
        let tasks = grain.map(tasks).unwrap_or_default();
        Ok(Strategy { block, domain, loops: Loops::Blocked { pieces, vectors, at_once }, tasks })
    }
}

impl Loops {
    /// How many trailing loops become one, and by what that is split into vectors, if it is.
    fn joined(&self) -> (usize, Option<Vec<Option<i64>>>) {
        match self {
            Loops::Rows { joined, cut } => (*joined, cut.factors()),
            Loops::Squares { joined, lanes, .. } => (*joined, Cut::Vectors(*lanes).factors()),
            Loops::None | Loops::Blocked { .. } => (1, None),
        }
    }
}

impl Cut {
    /// By what a row is split into vectors, if it is.
    fn factors(self) -> Option<Vec<Option<i64>>> {
        match self {
            Cut::Not | Cut::Tasks(_) => None,
            Cut::Vectors(lanes) => Some(vec![None, Some(lanes)]),
            Cut::TasksOfVectors(n, lanes) => Some(vec![None, Some(n), Some(lanes)]),
        }
    }

    /// Elements of a row that are one task, if it is cut into tasks.
    fn task(self) -> Option<i64> {
        match self {
            Cut::Not | Cut::Vectors(_) => None,
            Cut::Tasks(elements) => Some(elements),
            Cut::TasksOfVectors(n, lanes) => Some(n * lanes),
        }
    }
}

/// Plans a block without reduction: trailing dimensions that every access walks through alike become one loop, cut into vectors; the
/// loops around become tasks.
pub(crate) fn plan(
    context: &Context<'_>,
    block: &Block,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("elementwise", &block.name, reason));
    if block.iters.iter().any(|i| i.kind == IterKind::Reduce) {
        // A scatter or a recurrence: its order is its meaning.
        return refuse("the block has reduction variables");
    }
    if !context.is_as_computed(block) {
        return refuse("the block is scheduled already");
    }
    if block.iters.is_empty() {
        let (name, domain) = (block.name.clone(), Domain::of(context.func, block));
        return Ok(Strategy { block: name, domain, loops: Loops::None, tasks: Tasks::default() });
    }
    let strategy = plan_loops(context, block, false, chooser)?;
    let (joined, factors) = strategy.loops.joined();
    if joined > 1 && factors.is_some_and(|factors| !context.func.may_vectorize(&block.name, joined, &factors))
    {
        return refuse("its rows cannot be shown to be apart as one loop");
    }
    Ok(strategy)
}

fn is_blocked(context: &Context<'_>, block: &Block) -> bool {
    block.body.iter().any(|store| context.layout(store.buffer).is_some())
}

/// Plans the loops of a data-parallel block, which are as computed. `mixed` says that something that it reads gets a layout.
pub(crate) fn plan_loops(
    context: &Context<'_>,
    block: &Block,
    mixed: bool,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    let gets_layout = mixed;
    let blocked = is_blocked(context, block);
    let mixed = mixed || blocked || loads(block).iter().any(|a| context.layout(a.buffer).is_some());
    let mut elements = Elements::of(context, block, mixed);
    // What lies apart in it then is not known yet.
    elements.across = elements.across.filter(|_| !gets_layout);
    if blocked {
        let layout = block.body.first().and_then(|store| context.layout(store.buffer));
        return elements.plan_blocked(context.target, layout, chooser);
    }
    elements.plan_rows(context.target, chooser)
}

/// Plans the loops of a copy that a strategy makes, whose source or result gets a layout.
pub(crate) fn plan_copy(
    target: &Target,
    copy: Elements,
    layout: Option<&[Piece]>,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    match layout {
        Some(pieces) => copy.plan_blocked(target, Some(pieces), chooser),
        None => copy.plan_rows(target, chooser),
    }
}

impl Strategy {
    /// Schedules the block.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        self.apply_to(schedule, &self.block)
    }

    /// Schedules the block under the name that it got.
    pub(crate) fn apply_to(&self, schedule: &mut Schedule, block: &str) -> Result<(), ScheduleError> {
        let loops = schedule.loop_names(block)?;
        let outer = match &self.loops {
            Loops::None => return Ok(()),
            Loops::Rows { joined, cut } => apply_rows(schedule, loops, *joined, *cut)?,
            Loops::Squares { joined, lanes, across, rows } => {
                apply_squares(schedule, loops, (*joined, *lanes), (*across, *rows))?
            }
            Loops::Blocked { pieces, vectors, at_once } => {
                apply_blocked(schedule, loops, pieces.as_deref(), *vectors, *at_once)?
            }
        };
        self.tasks.apply(schedule, &outer)
    }
}

/// Makes one loop of the last ones, and gives it.
fn join_row(
    schedule: &mut Schedule,
    loops: &mut Vec<String>,
    joined: usize,
) -> Result<String, ScheduleError> {
    match &loops.split_off(loops.len().saturating_sub(joined))[..] {
        [one] => Ok(one.clone()),
        many => schedule.fuse(&many.iter().map(String::as_str).collect::<Vec<_>>()),
    }
}

/// Gives the loops around what is innermost.
fn apply_squares(
    schedule: &mut Schedule,
    mut loops: Vec<String>,
    (joined, lanes): (usize, i64),
    (across, rows): (usize, i64),
) -> Result<Vec<String>, ScheduleError> {
    let row = join_row(schedule, &mut loops, joined)?;
    let vectors = schedule.split(&row, &[None, Some(lanes)])?;
    loops.push(vectors[0].clone());
    take_at_once(schedule, &mut loops, (across, rows), &vectors[1])?;
    schedule.vectorize(&vectors[1])?;
    Ok(loops)
}

/// Gives the loops around what is innermost.
fn apply_rows(
    schedule: &mut Schedule,
    mut loops: Vec<String>,
    joined: usize,
    cut: Cut,
) -> Result<Vec<String>, ScheduleError> {
    let row = join_row(schedule, &mut loops, joined)?;
    match cut {
        Cut::Not => {}
        Cut::Vectors(lanes) => {
            let parts = schedule.split(&row, &[None, Some(lanes)])?;
            schedule.vectorize(&parts[1])?;
        }
        Cut::Tasks(elements) => loops.push(schedule.split(&row, &[None, Some(elements)])?.remove(0)),
        Cut::TasksOfVectors(n, lanes) => {
            let mut parts = schedule.split(&row, &[None, Some(n), Some(lanes)])?;
            schedule.vectorize(&parts[2])?;
            loops.push(parts.remove(0));
        }
    }
    Ok(loops)
}

/// Gives the loops around what is innermost.
fn apply_blocked(
    schedule: &mut Schedule,
    loops: Vec<String>,
    pieces: Option<&[Piece]>,
    vectors: Vectors,
    at_once: Option<(usize, i64)>,
) -> Result<Vec<String>, ScheduleError> {
    let mut order = match pieces {
        Some(pieces) => order_loops(schedule, &loops, pieces)?,
        None => loops,
    };
    let Some(last) = order.pop() else { return Ok(order) };
    let mut parts = match vectors {
        Vectors::None | Vectors::One => vec![last],
        Vectors::Several(lanes) => schedule.split(&last, &[None, Some(lanes)])?,
    };
    let Some(vector) = parts.pop() else { return Ok(order) };
    if let Some(at_once) = at_once {
        take_at_once(schedule, &mut order, at_once, &vector)?;
    }
    parts.iter().try_for_each(|several| schedule.unroll(several))?;
    if vectors != Vectors::None {
        schedule.vectorize(&vector)?;
    }
    Ok(order)
}

/// Splits loops, one a dimension, into the pieces of a layout and brings them into the order of memory; gives them, outermost first.
fn order_loops(
    schedule: &mut Schedule,
    loops: &[String],
    pieces: &[Piece],
) -> Result<Vec<String>, ScheduleError> {
    let mut parts: Vec<std::vec::IntoIter<String>> = Vec::new();
    for (dim, name) in loops.iter().enumerate() {
        let factors = pieces.iter().filter(|p| p.dim == dim).filter_map(|p| p.factor).map(Some);
        let factors: Vec<Option<i64>> = std::iter::once(None).chain(factors).collect();
        let names = if factors.len() == 1 { vec![name.clone()] } else { schedule.split(name, &factors)? };
        parts.push(names.into_iter());
    }
    let order: Vec<String> = pieces.iter().filter_map(|piece| parts.get_mut(piece.dim)?.next()).collect();
    schedule.reorder(&order.iter().map(String::as_str).collect::<Vec<_>>())?;
    Ok(order)
}

/// The extents of loops, one a dimension, after [`order_loops`].
fn in_order(extents: &[Option<i64>], pieces: &[Piece]) -> Vec<Option<i64>> {
    let block = |dim: usize| pieces.iter().filter(|p| p.dim == dim).filter_map(|p| p.factor).product();
    let extent = |piece: &Piece| {
        piece.factor.or_else(|| extents.get(piece.dim)?.map(|n| pieces_of(n, block(piece.dim))))
    };
    pieces.iter().map(extent).collect()
}

/// Elements of a task, where there are enough for several.
pub(crate) fn grain_of(
    block: &str,
    target: &Target,
    work: Option<i64>,
    chooser: &mut Chooser<'_>,
) -> Result<Option<i64>, Refusal> {
    match work.is_some_and(|n| n < PARALLEL_GRAIN) {
        true => Ok(None),
        false => chooser.decide(block, "grain", &grains(target, work)).map(Some),
    }
}

fn product(extents: &[Option<i64>]) -> Option<i64> {
    extents.iter().try_fold(1i64, |n, extent| n.checked_mul((*extent)?))
}

/// `wanted` iterations of a loop, or somewhat fewer that divide its extent: then no task is cut off.
fn even_share(extent: Option<i64>, wanted: i64) -> i64 {
    let divides = |n: &i64| extent.is_some_and(|extent| extent % n == 0);
    ((wanted + 3) / 4..=wanted).rev().find(divides).unwrap_or(wanted)
}

/// How many trailing dimensions of the block every access either walks in full and in order, or not at all.
fn contiguous_dims(func: &Func, block: &Block) -> usize {
    let rank = block.iters.len();
    let mut accesses: Vec<AccessInfo> = loads(block);
    accesses.extend(block.body.iter().map(AccessInfo::of_store));
    let fits = |n: usize| {
        let trailing = &block.iters[rank - n..];
        accesses.iter().all(|a| {
            if !trailing.iter().any(|i| a.uses(i.var)) {
                return true;
            }
            let shape = &func.buffers[a.buffer].shape;
            let in_order = |start: usize| {
                let mut own = a.indices[start..start + n].iter().zip(&shape[start..]).zip(trailing);
                own.all(|((e, extent), i)| is_identity(e, i) && *extent == i.extent)
            };
            let Some(start) = (0..=a.indices.len().saturating_sub(n))
                .rev()
                .find(|&start| start + n <= a.indices.len() && in_order(start))
            else {
                return false;
            };
            let mut others = a.indices[..start].iter().chain(&a.indices[start + n..]);
            others.all(|e| trailing.iter().all(|i| !e.uses(i.var)))
        })
    };
    (1..=rank).rev().find(|&n| fits(n)).unwrap_or(1)
}

/// How many of the trailing dimensions that could be walked as one are: no more than make a task, if those around are
/// enough tasks for every core. A task that is a whole number of rows needs no arithmetic to tell rows apart.
fn task_dims(target: &Target, block: &Block, contiguous: usize) -> usize {
    let rank = block.iters.len();
    let product = |iters: &[tilewright_te::Iter]| constant_product(iters.iter().map(|i| &i.extent));
    let enough = |n: &usize| {
        let (around, task) = block.iters.split_at(rank - n);
        product(task).is_some_and(|n| n >= PARALLEL_GRAIN)
            && product(around).is_some_and(|n| 2 * n >= n_cores(target))
    };
    (1..contiguous).find(enough).unwrap_or(contiguous)
}

/// Whether vectors along the last dimension store to consecutive elements.
fn is_consecutive(func: &Func, block: &Block) -> bool {
    let Some(last) = block.iters.last() else { return false };
    let simplifier = domain_simplifier(func, block);
    block
        .body
        .iter()
        .all(|s| stride(func, &simplifier, &AccessInfo::of_store(s), last.var) == Stride::Constant(1))
}
