//! What rules know besides the schedule: target, constants, layouts.

use std::collections::BTreeMap;
use std::fmt::Display;

use tilewright_machine::Target;
use tilewright_te::schedule::{Padding, Piece, Schedule, ScheduleError};
use tilewright_te::{Block, Buffer, Computation, Expr, ExprKind, Func, IterKind, Layout, Var};

use crate::decisions::{AutoscheduleError, Candidate, Decider, Decision, Decisions};
use crate::pattern::{AccessInfo, Stride, iters_of, loads, stride};
use crate::tile::{epilogue_of, stored_layout, stores_at_its_variables};

/// What rules know and decide besides the schedule.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// The machine and code generator.
    pub target: &'a Target,
    /// Which inputs are constants whose layout may be chosen.
    pub constant_inputs: &'a [bool],
    /// Chosen layouts of constant inputs.
    pub packing: Vec<Option<Schedule>>,
    layouts: BTreeMap<String, LayoutChoice>,
    decider: Decider<'a>,
}

#[derive(Clone, Debug)]
struct LayoutChoice {
    pieces: Vec<Piece>,
    padding: Padding,
    /// Whether the schedule's accesses are in this layout already.
    applied: bool,
}

impl<'a> Context<'a> {
    /// The context of one of the functions of a computation.
    pub fn new(
        func: &Func,
        computation: &'a Computation,
        target: &'a Target,
        decisions: &'a Decisions,
    ) -> Context<'a> {
        let named = func.params.iter().zip(&computation.layouts).filter_map(|(&p, layout)| {
            let choice =
                LayoutChoice { pieces: layout.clone()?, padding: Padding::Undefined, applied: false };
            Some((func.buffers[p].name.clone(), choice))
        });
        Context {
            target,
            constant_inputs: &computation.constant_inputs,
            packing: vec![None; func.n_inputs],
            layouts: named.collect(),
            decider: Decider::new(decisions),
        }
    }

    /// Which input a buffer is, if it is one that is a constant in every call.
    pub fn constant_input(&self, func: &Func, buffer: Buffer) -> Option<usize> {
        let input = func.params[..func.n_inputs].iter().position(|&p| p == buffer)?;
        (self.constant_inputs.get(input) == Some(&true)).then_some(input)
    }

    /// Decides what is done at the choice point `what` of a block: as given, else the first candidate.
    ///
    /// # Errors
    /// Where there is no candidate.
    pub fn decide<T: Clone + Display>(
        &mut self,
        block: &str,
        what: &'static str,
        candidates: &[Candidate<T>],
    ) -> Result<T, ScheduleError> {
        let value = self.decider.decide(block, what, candidates);
        value.ok_or_else(|| ScheduleError::new(what, block, "nothing fits"))
    }

    /// This context after the decisions that another one has taken.
    pub(crate) fn with_decisions_of(self, other: Context<'a>) -> Context<'a> {
        Context { decider: other.decider, ..self }
    }

    /// The decisions taken.
    ///
    /// # Errors
    /// Where one of those given could not be followed.
    pub(crate) fn finish(self) -> Result<Vec<Decision>, AutoscheduleError> {
        self.decider.finish()
    }

    /// The layout of a buffer, `None` if row-major.
    pub fn layout(&self, buffer: &str) -> Layout {
        self.layouts.get(buffer).map(|c| c.pieces.clone())
    }

    /// Chooses the layout of a temporary; it is applied when all blocks are scheduled.
    pub fn set_layout(&mut self, buffer: &str, pieces: Vec<Piece>, padding: Padding) {
        self.layouts.insert(buffer.to_string(), LayoutChoice { pieces, padding, applied: false });
    }

    /// Makes one dimension of dimensions `dim` and `dim + 1` of a buffer and of all that is indexed by the same variables, if that is
    /// possible and they follow one another in the layouts too. Tells whether it was done.
    pub(crate) fn collapse_dims(&mut self, schedule: &mut Schedule, buffer: Buffer, dim: usize) -> bool {
        let func = schedule.func();
        let name = func.buffers[buffer].name.clone();
        let Some(changed) = func.collapsible_dims(buffer, dim) else { return false };
        let Some(layouts) = self.changed_layouts(&changed, collapsed) else { return false };
        let done = schedule.collapse_dims(&name, dim).is_ok();
        if done {
            self.replace_layouts(layouts);
        }
        done
    }

    /// Makes two dimensions of dimension `dim` of a buffer and of all that is indexed by the same variables, if that is possible and
    /// no block of a layout crosses the end of `inner` elements. Tells whether it was done.
    pub(crate) fn expand_dim(
        &mut self,
        schedule: &mut Schedule,
        buffer: Buffer,
        dim: usize,
        inner: i64,
    ) -> bool {
        let func = schedule.func();
        let name = func.buffers[buffer].name.clone();
        let Some(changed) = func.expandable_dims(buffer, dim, inner) else { return false };
        let pieces = |pieces: &[Piece], dim: usize| expanded(pieces, dim, inner);
        let Some(layouts) = self.changed_layouts(&changed, pieces) else { return false };
        let done = schedule.expand_dim(&name, dim, inner).is_ok();
        if done {
            self.replace_layouts(layouts);
        }
        done
    }

    /// The layouts of buffers one dimension of which changes, by name; nothing where one of them does not allow it.
    fn changed_layouts(
        &self,
        buffers: &[(String, usize)],
        change: impl Fn(&[Piece], usize) -> Option<Vec<Piece>>,
    ) -> Option<Vec<(String, Vec<Piece>)>> {
        let choices = buffers.iter().filter_map(|(name, dim)| Some((name, *dim, self.layouts.get(name)?)));
        let changed = |(name, dim, choice): (&String, usize, &LayoutChoice)| {
            let pieces = change(&choice.pieces, dim).filter(|_| !choice.applied)?;
            Some((name.clone(), pieces))
        };
        choices.map(changed).collect()
    }

    fn replace_layouts(&mut self, layouts: Vec<(String, Vec<Piece>)>) {
        for (name, pieces) in layouts {
            if let Some(choice) = self.layouts.get_mut(&name) {
                choice.pieces = pieces;
            }
        }
    }

    /// Gives data-parallel temporaries (padded inputs) the layout of the blocked tensor that they are a copy of
    /// with other extents; where they are of none, that of the results that are computed from them.
    /// Sums that are summed further get the layout of those results, too.
    pub fn spread_layouts(&mut self, schedule: &Schedule) {
        let func = schedule.func();
        for block in func.blocks().into_iter().rev().filter(|b| b.is_reduction()) {
            let [store] = &block.body[..] else { continue };
            let name = &func.buffers[store.buffer].name;
            if func.params.contains(&store.buffer) || self.layouts.contains_key(name) {
                continue;
            }
            if let Some(pieces) = self.layout_of_reader(schedule, block) {
                self.set_layout(name, pieces, Padding::Undefined);
            }
        }
        for block in func.blocks() {
            let [store] = &block.body[..] else { continue };
            let data = &func.buffers[store.buffer];
            if block.is_reduction()
                || func.params.contains(&store.buffer)
                || self.layouts.contains_key(&data.name)
            {
                continue;
            }
            let source = loads(block).into_iter().find_map(|a| {
                let layout = self.layout(&func.buffers[a.buffer].name)?;
                let same_rank = a.indices.len() == data.shape.len();
                let fits = blocked_dims(&layout)
                    .all(|dim| func.buffers[a.buffer].shape.get(dim) == data.shape.get(dim));
                (same_rank && fits).then_some(layout)
            });
            if let Some(pieces) = source.or_else(|| self.layout_of_reader(schedule, block)) {
                self.set_layout(&data.name, pieces, Padding::Undefined);
            }
        }
    }

    /// The layout of the results of the one reduction that reads what `block` writes, if those use the same
    /// place of the blocked dimensions as they have themselves (a depthwise convolution's channels).
    fn layout_of_reader(&self, schedule: &Schedule, block: &Block) -> Option<Vec<Piece>> {
        let func = schedule.func();
        let buffer = block.body.first()?.buffer;
        let consumers = schedule.consumers(&block.name).ok()?;
        let [only] = &consumers[..] else { return None };
        let reader = func.block(only).filter(|b| b.is_reduction() && stores_at_its_variables(b))?;
        let layout =
            stored_layout(schedule, self, &epilogue_of(schedule, only), reader.body.first()?.buffer)?;
        let spatial = iters_of(reader, IterKind::Spatial);
        let reads: Vec<AccessInfo> = loads(reader).into_iter().filter(|a| a.buffer == buffer).collect();
        let same_place = |dim: usize| {
            let var = spatial.get(dim).map(|&n| reader.iters[n].var);
            var.is_some() && reads.iter().all(|a| a.indices.get(dim).and_then(|e| e.as_var()) == var)
        };
        let same_rank = func.buffers[buffer].shape.len() == spatial.len();
        (same_rank && blocked_dims(&layout).all(same_place)).then_some(layout)
    }

    /// The block factor of the dimension that `var` indexes plainly in a blocked operand.
    pub fn largest_block(&self, func: &Func, block: &Block, var: Var) -> Option<i64> {
        loads(block)
            .iter()
            .filter_map(|a| {
                let layout = self.layout(&func.buffers[a.buffer].name)?;
                let dim = a.indices.iter().position(|e| e.as_var() == Some(var))?;
                layout.iter().rev().find(|p| p.dim == dim)?.factor
            })
            .max()
    }

    /// How far an access moves in memory, in its layout, when a variable of a block grows by one within a
    /// block of the layout.
    pub fn stride(
        &self,
        func: &Func,
        simplifier: &tilewright_te::simplify::Simplifier,
        access: &AccessInfo,
        var: Var,
    ) -> Stride {
        let Some(pieces) = self.layout(&func.buffers[access.buffer].name) else {
            return stride(func, simplifier, access, var);
        };
        if !access.indices.iter().any(|e| e.uses(var)) {
            return Stride::Zero;
        }
        let innermost = pieces.last().map(|p| p.dim);
        let uses: Vec<usize> =
            access.indices.iter().enumerate().filter(|(_, e)| e.uses(var)).map(|(d, _)| d).collect();
        // At whole blocks from the variable an index is at the same place of a block.
        let block = pieces.last().and_then(|p| p.factor).unwrap_or(1);
        let moves_with = |index: &Expr| {
            let offset = simplifier.simplify(&(index.clone() - Expr::var(var))).as_int();
            offset.is_some_and(|offset| offset % block == 0)
        };
        match uses[..] {
            [dim] if Some(dim) == innermost && moves_with(&access.indices[dim]) => Stride::Constant(1),
            _ => Stride::Unknown,
        }
    }

    /// Lays a constant input out anew now and remembers how.
    pub fn pack_input(
        &mut self,
        schedule: &mut Schedule,
        input: usize,
        buffer: &str,
        pieces: Vec<Piece>,
    ) -> Result<(), ScheduleError> {
        self.choose_packing(schedule, input, pieces.clone())?;
        self.set_layout(buffer, pieces, Padding::Zero);
        self.apply_layout(schedule, buffer)
    }

    /// Remembers how a constant input is to be laid out.
    pub fn choose_packing(
        &mut self,
        schedule: &Schedule,
        input: usize,
        pieces: Vec<Piece>,
    ) -> Result<(), ScheduleError> {
        let func = schedule.func();
        let data = func.buffers[func.params[input]].clone();
        let mut pack = Func::new("pack");
        let source = pack.add_input("source", data.dtype, data.shape.clone());
        let packed = pack.compute("packed", data.dtype, data.shape, |f, i| f.load(source, i.to_vec()));
        pack.promote_to_output(packed);
        let mut packing = Schedule::new(pack);
        packing.transform_layout("packed", &pieces, Padding::Zero)?;
        self.packing[input] = Some(packing);
        Ok(())
    }

    /// Rewrites the accesses of a buffer to its chosen layout now.
    pub fn apply_layout(&mut self, schedule: &mut Schedule, buffer: &str) -> Result<(), ScheduleError> {
        if let Some(choice) = self.layouts.get_mut(buffer)
            && !choice.applied
        {
            schedule.transform_layout(buffer, &choice.pieces, choice.padding)?;
            choice.applied = true;
        }
        Ok(())
    }

    /// Rewrites all accesses to the chosen layouts.
    pub fn apply_layouts(&mut self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        let buffers: Vec<String> = self.layouts.keys().cloned().collect();
        for buffer in buffers {
            let exists = schedule.func().buffers.values().any(|b| b.name == buffer);
            let used = schedule.func().blocks().iter().any(|b| touches(schedule.func(), b, &buffer))
                || schedule.func().params.iter().any(|&p| schedule.func().buffers[p].name == buffer);
            if exists && used {
                self.apply_layout(schedule, &buffer)?;
            }
        }
        Ok(())
    }

    /// Splits a block's loops into the pieces of its result's layout and brings them into memory order; gives
    /// the loops, outermost first. The block's loops must be as computed.
    pub fn order_loops(&self, schedule: &mut Schedule, block: &str) -> Result<Vec<String>, ScheduleError> {
        let func = schedule.func();
        let loops = schedule.loop_names(block)?;
        let Some(data) = func.block(block) else { return Ok(loops) };
        let Some(pieces) = data.body.first().and_then(|s| self.layout(&func.buffers[s.buffer].name)) else {
            return Ok(loops);
        };
        let spatial = data.iters.iter().filter(|i| i.kind == IterKind::Spatial).count();
        let rank = pieces.iter().map(|p| p.dim + 1).max().unwrap_or(0);
        if rank != spatial || loops.len() != data.iters.len() {
            return Ok(loops);
        }
        let mut parts: Vec<Vec<String>> = Vec::new();
        for (dim, name) in loops.iter().enumerate().take(rank) {
            let factors: Vec<i64> = pieces.iter().filter(|p| p.dim == dim).filter_map(|p| p.factor).collect();
            if factors.is_empty() {
                parts.push(vec![name.clone()]);
            } else {
                let list: Vec<Option<i64>> =
                    std::iter::once(None).chain(factors.into_iter().map(Some)).collect();
                parts.push(schedule.split(name, &list)?);
            }
        }
        let mut next = vec![0; rank];
        let mut order = Vec::new();
        for piece in &pieces {
            order.push(parts[piece.dim][next[piece.dim]].clone());
            next[piece.dim] += 1;
        }
        order.extend(loops.into_iter().skip(rank));
        schedule.reorder(&order.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(order)
    }
}

/// A layout after dimensions `dim` and `dim + 1` have become one; nothing where they do not follow one another.
fn collapsed(pieces: &[Piece], dim: usize) -> Option<Vec<Piece>> {
    let pair = [Piece { dim, factor: None }, Piece { dim: dim + 1, factor: None }];
    let at = pieces.windows(2).position(|w| w == pair)?;
    let is_single = |dim: usize| pieces.iter().filter(|p| p.dim == dim).count() == 1;
    if !is_single(dim) || !is_single(dim + 1) {
        return None;
    }
    let mut pieces = pieces.to_vec();
    pieces.remove(at + 1);
    for piece in pieces.iter_mut().filter(|p| p.dim > dim) {
        piece.dim -= 1;
    }
    Some(pieces)
}

/// A layout after dimension `dim` has become two; nothing where a block holds elements of several of the outer.
fn expanded(pieces: &[Piece], dim: usize, inner: i64) -> Option<Vec<Piece>> {
    let factors: i64 = pieces.iter().filter(|p| p.dim == dim).filter_map(|p| p.factor).product();
    if inner % factors != 0 {
        return None;
    }
    let expand = |piece: &Piece| match piece {
        Piece { dim: d, factor: None } if *d == dim => {
            vec![Piece { dim, factor: None }, Piece { dim: dim + 1, factor: None }]
        }
        Piece { dim: d, factor } if *d >= dim => vec![Piece { dim: d + 1, factor: *factor }],
        piece => vec![*piece],
    };
    Some(pieces.iter().flat_map(expand).collect())
}

/// The dimensions that a layout cuts into blocks.
fn blocked_dims(layout: &[Piece]) -> impl Iterator<Item = usize> {
    layout.iter().filter(|p| p.factor.is_some()).map(|p| p.dim)
}

fn touches(func: &Func, block: &Block, buffer: &str) -> bool {
    let is = |b: tilewright_te::Buffer| func.buffers[b].name == buffer;
    let mut found = block.init.iter().chain(&block.body).any(|s| is(s.buffer));
    block.for_each_expr(|e| {
        found = found || e.any(&mut |x| matches!(x.kind(), ExprKind::Load(b, _) if is(*b)))
    });
    found
}
