//! `rfactor`: a reduction into partial results and their combination.

use serde::{Deserialize, Serialize};

use crate::expr::{BinaryOp, Buffer, Expr, ExprKind, UnaryOp, Var};
use crate::func::{Block, Func, Iter, IterKind, Loop, Scope, Stmt, Store, VarKind};
use crate::schedule::{Apply, ScheduleError, bindings, region, tree};

/// Splits a commutative reduction over one of its loops.
///
/// A new block `BLOCK_rf`, in the place of the old, computes a partial result for each iteration of the
/// loop, which is data-parallel for it, into a temporary with that one more (innermost) dimension. The block
/// itself then combines partial results, in order, in a new nest after it with loops named `BLOCK_i0` and so
/// on (as far as free) and the partial results' loop last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rfactor {
    /// The reduction.
    pub block: String,
    /// The loop of the reduction that gets independent iterations.
    pub loop_name: String,
}

/// How the steps of a reduction combine.
#[derive(Clone, Copy, PartialEq)]
struct Combiner {
    op: BinaryOp,
    /// Whether a result that is no number stays so, as that of an extremum does.
    keeps_nan: bool,
}

impl Combiner {
    /// The one that makes the value of a step.
    fn of(value: &Expr) -> Option<Combiner> {
        let plain = |op| Combiner { op, keeps_nan: false };
        match value.kind() {
            ExprKind::Binary(op, ..) => Some(plain(*op)),
            ExprKind::Fma(..) => Some(plain(BinaryOp::Add)),
            ExprKind::Select(condition, _, step)
                if matches!(condition.kind(), ExprKind::Unary(UnaryOp::IsNan, _)) =>
            {
                Some(Combiner { keeps_nan: true, ..Combiner::of(step)? })
            }
            // A step that some iterations leave out.
            ExprKind::Select(_, step, _) => Combiner::of(step),
            _ => None,
        }
    }

    /// What an accumulator becomes by a value.
    fn apply(self, accumulator: Expr, value: Expr) -> Expr {
        let combined = Expr::binary(self.op, accumulator.clone(), value);
        match self.keeps_nan {
            true => Expr::select(Expr::unary(UnaryOp::IsNan, accumulator.clone()), accumulator, combined),
            false => combined,
        }
    }
}

/// Why a reduction cannot be made of partial results, whatever its loops, if so.
pub fn indivisible(block: &Block) -> Option<&'static str> {
    divisible(block).err()
}

/// The store, the start and the operation of a reduction that can be made of partial results.
fn divisible(block: &Block) -> Result<(&Store, &Store, Combiner), &'static str> {
    let ([store], [start]) = (&block.body[..], &block.init[..]) else {
        return Err("it has not exactly one store and one start");
    };
    let Some(combiner) = Combiner::of(&store.value).filter(|_| bindings::is_commutative(block)) else {
        return Err("its steps do not combine by a commutative operation");
    };
    if !is_identity(combiner.op, &start.value) {
        return Err("its start is not the operation's neutral element");
    }
    Ok((store, start, combiner))
}

/// A reduction with the loops around it, without their bodies.
struct Reduction {
    path: tree::Path,
    block: Block,
    loops: Vec<Loop>,
    /// The loop that gets independent iterations.
    target: Loop,
}

impl Reduction {
    /// Finds block and loop; `None` if there is nothing at their places.
    fn find(rfactor: &Rfactor, func: &Func) -> Result<Option<Reduction>, ScheduleError> {
        let path = tree::find_block(func, Rfactor::NAME, &rfactor.block)?;
        let loop_path = tree::find_loop(func, Rfactor::NAME, &rfactor.loop_name)?;
        let without_body = |l: &Loop| Loop { body: Vec::new(), ..l.clone() };
        let Some(block) = tree::block_at(func, &path).cloned() else { return Ok(None) };
        let Some(target) = tree::loop_at(func, &loop_path).map(without_body) else { return Ok(None) };
        if !path.starts_with(&loop_path) {
            let reason = format!("loop `{}` is not around the block", rfactor.loop_name);
            return Err(ScheduleError::new(Rfactor::NAME, &rfactor.block, reason));
        }
        let loops = tree::loops_above(func, &path).into_iter().map(without_body).collect();
        Ok(Some(Reduction { path, block, loops, target }))
    }

    fn iters(&self, kind: IterKind) -> impl Iterator<Item = &Iter> {
        self.block.iters.iter().filter(move |i| i.kind == kind)
    }

    fn is_spatial(&self, l: &Loop) -> bool {
        self.iters(IterKind::Spatial).any(|i| i.value.uses(l.var))
    }

    fn reduces(&self, l: &Loop) -> bool {
        self.iters(IterKind::Reduce).any(|i| i.value.uses(l.var))
    }

    /// The loops of the reduction that each partial result has for itself.
    fn own_loops(&self) -> impl Iterator<Item = &Loop> {
        self.loops.iter().filter(|l| l.var != self.target.var && self.reduces(l))
    }

    /// Whether a condition is one of the reduction's steps.
    fn is_of_steps(&self, condition: &Expr) -> bool {
        self.loops.iter().any(|l| self.reduces(l) && condition.uses(l.var))
    }

    /// Whether a condition is one of the reduction's results.
    fn is_of_results(&self, condition: &Expr) -> bool {
        self.loops.iter().any(|l| self.is_spatial(l) && condition.uses(l.var))
    }

    /// Whether a partial result may have no step where its first one would be.
    fn may_start_with_no_step(&self, func: &Func) -> bool {
        let simplifier = tree::simplifier_at(func, &self.path);
        let at_start =
            |c: &Expr| c.substitute(&|v| self.own_loops().any(|l| l.var == v).then(|| Expr::int(0)));
        let conditions = self.block.predicate.iter().flat_map(tree::conjuncts);
        conditions
            .filter(|c| self.is_of_steps(c))
            .any(|c| self.is_of_results(&c) || !simplifier.prove(&at_start(&c)))
    }
}

/// The partial results: where they are stored, and what the old variables become.
struct Partial {
    buffer: Buffer,
    /// The data-parallel variable that the target loop becomes.
    lane: Var,
    iters: Vec<Iter>,
    loop_values: Vec<(Var, Expr)>,
    iter_values: Vec<(Var, Expr)>,
}

fn lookup(list: &[(Var, Expr)], v: Var) -> Option<Expr> {
    list.iter().find(|x| x.0 == v).map(|x| x.1.clone())
}

impl Partial {
    /// Makes the buffer, and new variables: the target loop becomes a data-parallel one, the other loops of the
    /// reduction become reduction variables of their own.
    fn declare(func: &mut Func, reduction: &Reduction, buffer: Buffer) -> Partial {
        let name = &reduction.block.name;
        let target = &reduction.target;
        let mut iters: Vec<Iter> = reduction.iters(IterKind::Spatial).cloned().collect();
        let lane = func.add_var(&format!("{name}_rf_v"), VarKind::Iter);
        let over =
            |l: &Loop, var, kind| Iter { var, extent: l.extent.clone(), kind, value: Expr::var(l.var) };
        iters.push(over(target, lane, IterKind::Spatial));
        let mut loop_values: Vec<(Var, Expr)> = vec![(target.var, Expr::var(lane))];
        for l in reduction.own_loops() {
            let var = func.add_var(&format!("{name}_rf_r"), VarKind::Iter);
            iters.push(over(l, var, IterKind::Reduce));
            loop_values.push((l.var, Expr::var(var)));
        }
        let in_lane = |i: &Iter| (i.var, i.value.substitute(&|v| lookup(&loop_values, v)));
        let iter_values = reduction.iters(IterKind::Reduce).map(in_lane).collect();
        let data = func.buffers[buffer].clone();
        let shape = data.shape.iter().cloned().chain([target.extent.clone()]).collect();
        let buffer = func.add_buffer(&format!("{}_rf", data.name), data.dtype, shape, Scope::Global);
        Partial { buffer, lane, iters, loop_values, iter_values }
    }

    /// A store of the reduction, into the partial results.
    fn convert(&self, store: &Store) -> Store {
        let with_lane =
            |indices: &[Expr]| indices.iter().cloned().chain([Expr::var(self.lane)]).collect::<Vec<_>>();
        let value = store.value.rewrite(&mut |x| match x.kind() {
            ExprKind::Load(b, indices) if *b == store.buffer => {
                Some(Expr::load(x.dtype(), self.buffer, with_lane(indices)))
            }
            ExprKind::Var(v) => lookup(&self.iter_values, *v),
            _ => None,
        });
        Store { buffer: self.buffer, indices: with_lane(&store.indices), value }
    }

    /// The block that computes partial results, in the place of the reduction.
    fn block(
        self,
        func: &Func,
        reduction: &Reduction,
        store: &Store,
        start: &Store,
    ) -> Result<Block, &'static str> {
        let mut step = self.convert(store);
        let mut predicate = reduction.block.predicate.clone();
        if reduction.may_start_with_no_step(func) {
            // A partial result may have no steps at all, yet must start: guard the steps instead.
            let conditions: Vec<Expr> = predicate.iter().flat_map(tree::conjuncts).collect();
            if conditions.iter().any(|c| reduction.is_of_steps(c) && reduction.is_of_results(c)) {
                return Err("its predicate mixes data-parallel and reduction loops");
            }
            let (steps, rest): (Vec<Expr>, Vec<Expr>) =
                conditions.into_iter().partition(|c| reduction.is_of_steps(c));
            let guard = tree::conjunction(steps).map(|c| c.substitute(&|v| lookup(&self.loop_values, v)));
            if let Some(guard) = guard {
                let accumulator =
                    Expr::load(func.buffers[store.buffer].dtype, self.buffer, step.indices.clone());
                step.value = Expr::select(guard, step.value, accumulator);
            }
            predicate = tree::conjunction(rest);
        }
        let name = func.unique_block_name(&format!("{}_rf", reduction.block.name));
        let init = vec![self.convert(start)];
        Ok(Block { name, iters: self.iters, predicate, init, body: vec![step] })
    }
}

/// The nest that combines the partial results in order, over variables of its own.
fn combination(
    func: &mut Func,
    reduction: &Reduction,
    partial: Buffer,
    (store, start, combiner): (&Store, &Store, Combiner),
) -> Stmt {
    let name = &reduction.block.name;
    let (mut nest, mut iters, mut fresh) = (Vec::new(), Vec::new(), Vec::new());
    let mut over = |loop_var, var, extent: &Expr, kind| {
        nest.push((loop_var, extent.clone()));
        iters.push(Iter { var, extent: extent.clone(), kind, value: Expr::var(loop_var) });
    };
    for (n, iter) in reduction.iters(IterKind::Spatial).enumerate() {
        let loop_var = func.add_var(&format!("{name}_i{n}"), VarKind::Loop);
        let var = func.add_var(&format!("{name}_vi{n}"), VarKind::Iter);
        over(loop_var, var, &iter.extent, IterKind::Spatial);
        fresh.push((iter.var, Expr::var(var)));
    }
    let loop_var = func.add_var(&format!("{name}_r"), VarKind::Loop);
    let var = func.add_var(&format!("{name}_vr"), VarKind::Iter);
    over(loop_var, var, &reduction.target.extent, IterKind::Reduce);
    let renew = |e: &Expr| e.substitute(&|v| lookup(&fresh, v));
    let dtype = func.buffers[store.buffer].dtype;
    let indices: Vec<Expr> = store.indices.iter().map(renew).collect();
    let accumulator = Expr::load(dtype, store.buffer, indices.clone());
    let partial_indices = indices.iter().cloned().chain([Expr::var(var)]).collect();
    let value = combiner.apply(accumulator, Expr::load(dtype, partial, partial_indices));
    let start = Store { buffer: store.buffer, indices: indices.clone(), value: renew(&start.value) };
    let block = Block {
        name: name.clone(),
        iters,
        predicate: None,
        init: vec![start],
        body: vec![Store { buffer: store.buffer, indices, value }],
    };
    tree::nest(nest, Stmt::Block(Box::new(block)))
}

impl Rfactor {
    /// That the loop can be taken out of the reduction: gives its store, its start and its operation.
    fn check<'r>(
        &self,
        func: &Func,
        reduction: &'r Reduction,
    ) -> Result<(&'r Store, &'r Store, Combiner), String> {
        let target = &reduction.target;
        if !reduction.reduces(target) || reduction.is_spatial(target) {
            return Err(format!("`{}` is not a loop of the reduction alone", self.loop_name));
        }
        if reduction.own_loops().next().is_none() {
            return Err(format!("`{}` is its only reduction loop; split it first", self.loop_name));
        }
        let (store, start, combiner) = divisible(&reduction.block)?;
        let depends =
            |l: &&Loop| reduction.reduces(l) && l.extent.as_int().is_none() && l.extent.uses(target.var);
        if let Some(l) = reduction.loops.iter().find(depends) {
            return Err(format!("the extent of `{}` depends on the loop", func.vars[l.var].name));
        }
        if func.blocks().iter().any(|b| {
            let is_local = tree::reads(b, store.buffer) && b.name != self.block;
            is_local && tree::find_block(func, Self::NAME, &b.name).is_ok_and(|p| p[0] <= reduction.path[0])
        }) {
            return Err("a consumer is in the same nest".into());
        }
        if let Some(l) = reduction.own_loops().find(|l| reduction.is_spatial(l)) {
            let name = &func.vars[l.var].name;
            return Err(format!("`{name}` drives data-parallel and reduction variables at once"));
        }
        Ok((store, start, combiner))
    }
}

impl Apply for Rfactor {
    const NAME: &'static str = "rfactor";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| ScheduleError::new(Self::NAME, &self.block, reason);
        let Some(reduction) = Reduction::find(self, func)? else { return Ok(Vec::new()) };
        let (store, start, combiner) = self.check(func, &reduction).map_err(fail)?;
        if !region::covers(func, &reduction.block, store.buffer) {
            return Err(fail("it computes only a part of its result, of which all would be combined".into()));
        }
        let partial = Partial::declare(func, &reduction, store.buffer);
        let buffer = partial.buffer;
        let block = partial.block(func, &reduction, store, start).map_err(|reason| fail(reason.into()))?;
        let name = block.name.clone();
        let combination = combination(func, &reduction, buffer, (store, start, combiner));
        if let Some(place) = tree::block_at_mut(func, &reduction.path) {
            *place = block;
        }
        func.body.insert(reduction.path[0] + 1, combination);
        tree::normalize(func);
        Ok(vec![name])
    }
}

/// Whether starting each partial result with the value leaves the total as it is.
fn is_identity(op: BinaryOp, start: &Expr) -> bool {
    let dtype = start.dtype();
    match op {
        BinaryOp::Add => *start == Expr::zero(dtype) || start.as_float() == Some(-0.0),
        BinaryOp::Mul => *start == Expr::int_of(dtype, 1),
        BinaryOp::Or | BinaryOp::Xor => *start == Expr::zero(dtype),
        // Idempotent operations may start from the same value any number of times.
        BinaryOp::Min | BinaryOp::Max | BinaryOp::And => true,
        BinaryOp::Sub
        | BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::FloorDiv
        | BinaryOp::FloorMod
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::Pow
        | BinaryOp::Atan2
        | BinaryOp::Fmod => false,
    }
}
