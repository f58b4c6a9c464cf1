//! `rfactor`: a reduction into partial results and their combination.

use serde::{Deserialize, Serialize};

use crate::expr::{BinaryOp, Expr, ExprKind, Var};
use crate::func::{Block, Func, Iter, IterKind, Loop, Scope, Stmt, Store, VarKind};
use crate::schedule::{Apply, ScheduleError, bindings, tree};

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

/// The operation by which the reduction's steps combine.
fn combiner(store: &Store) -> Option<BinaryOp> {
    match store.value.kind() {
        ExprKind::Binary(op, ..) => Some(*op),
        ExprKind::Fma(..) => Some(BinaryOp::Add),
        _ => None,
    }
}

/// Why a reduction cannot be made of partial results, whatever its loops, if so.
pub fn indivisible(block: &Block) -> Option<&'static str> {
    divisible(block).err()
}

/// The store, the start and the operation of a reduction that can be made of partial results.
fn divisible(block: &Block) -> Result<(&Store, &Store, BinaryOp), &'static str> {
    let ([store], [start]) = (&block.body[..], &block.init[..]) else {
        return Err("it has not exactly one store and one start");
    };
    let Some(op) = combiner(store).filter(|_| bindings::is_commutative(block)) else {
        return Err("its steps do not combine by a commutative operation");
    };
    if !is_identity(op, &start.value) {
        return Err("its start is not the operation's neutral element");
    }
    Ok((store, start, op))
}

impl Apply for Rfactor {
    const NAME: &'static str = "rfactor";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| ScheduleError::new(Self::NAME, &self.block, reason);
        let path = tree::find_block(func, Self::NAME, &self.block)?;
        let loop_path = tree::find_loop(func, Self::NAME, &self.loop_name)?;
        let Some(block) = tree::block_at(func, &path).cloned() else { return Ok(Vec::new()) };
        let Some(target) = tree::loop_at(func, &loop_path).map(|l| Loop { body: Vec::new(), ..l.clone() })
        else {
            return Ok(Vec::new());
        };
        if !path.starts_with(&loop_path) {
            return Err(fail(format!("loop `{}` is not around the block", self.loop_name)));
        }
        let loops: Vec<Loop> = tree::loops_above(func, &path)
            .into_iter()
            .map(|l| Loop { body: Vec::new(), ..l.clone() })
            .collect();
        let is_reduce = |i: &&Iter| i.kind == IterKind::Reduce;
        let reduces = |l: &Loop| block.iters.iter().filter(is_reduce).any(|i| i.value.uses(l.var));
        let is_spatial =
            |l: &Loop| block.iters.iter().any(|i| i.kind == IterKind::Spatial && i.value.uses(l.var));
        if !reduces(&target) || is_spatial(&target) {
            return Err(fail(format!("`{}` is not a loop of the reduction alone", self.loop_name)));
        }
        if !loops.iter().any(|l| l.var != target.var && reduces(l)) {
            return Err(fail(format!("`{}` is its only reduction loop; split it first", self.loop_name)));
        }
        let (store, start, op) = divisible(&block).map_err(|reason| fail(reason.into()))?;
        if let Some(l) =
            loops.iter().find(|l| reduces(l) && l.extent.as_int().is_none() && l.extent.uses(target.var))
        {
            return Err(fail(format!("the extent of `{}` depends on the loop", func.vars[l.var].name)));
        }
        if func.blocks().iter().any(|b| {
            let is_local = tree::reads(b, store.buffer) && b.name != self.block;
            is_local && tree::find_block(func, Self::NAME, &b.name).is_ok_and(|p| p[0] <= path[0])
        }) {
            return Err(fail("a consumer is in the same nest".into()));
        }

        // Partial results: the loop becomes a data-parallel variable, the other loops of the reduction
        // reduction variables of their own.
        let mut iters: Vec<Iter> =
            block.iters.iter().filter(|i| i.kind == IterKind::Spatial).cloned().collect();
        let lane = func.add_var(&format!("{}_rf_v", self.block), VarKind::Iter);
        iters.push(Iter {
            var: lane,
            extent: target.extent.clone(),
            kind: IterKind::Spatial,
            value: Expr::var(target.var),
        });
        let mut loop_values: Vec<(Var, Expr)> = vec![(target.var, Expr::var(lane))];
        for l in loops.iter().filter(|l| l.var != target.var && reduces(l)) {
            if is_spatial(l) {
                let name = &func.vars[l.var].name;
                return Err(fail(format!("`{name}` drives data-parallel and reduction variables at once")));
            }
            let var = func.add_var(&format!("{}_rf_r", self.block), VarKind::Iter);
            iters.push(Iter {
                var,
                extent: l.extent.clone(),
                kind: IterKind::Reduce,
                value: Expr::var(l.var),
            });
            loop_values.push((l.var, Expr::var(var)));
        }
        let lookup = |list: &[(Var, Expr)], v: Var| list.iter().find(|x| x.0 == v).map(|x| x.1.clone());
        let old_values: Vec<(Var, Expr)> = block
            .iters
            .iter()
            .filter(is_reduce)
            .map(|i| (i.var, i.value.substitute(&|v| lookup(&loop_values, v))))
            .collect();
        let data = func.buffers[store.buffer].clone();
        let shape = data.shape.iter().cloned().chain([target.extent.clone()]).collect();
        let partial = func.add_buffer(&format!("{}_rf", data.name), data.dtype, shape, Scope::Global);
        let with_lane =
            |indices: &[Expr]| indices.iter().cloned().chain([Expr::var(lane)]).collect::<Vec<_>>();
        let into_partial = |e: &Expr| {
            e.rewrite(&mut |x| match x.kind() {
                ExprKind::Load(b, indices) if *b == store.buffer => {
                    Some(Expr::load(x.dtype(), partial, with_lane(indices)))
                }
                ExprKind::Var(v) => lookup(&old_values, *v),
                _ => None,
            })
        };
        let convert = |s: &Store| Store {
            buffer: partial,
            indices: with_lane(&s.indices),
            value: into_partial(&s.value),
        };
        let mut step = convert(store);
        let mut predicate = block.predicate.clone();
        let starts_guarded = {
            let simplifier = tree::simplifier_at(func, &path);
            let at_start = |c: &Expr| {
                c.substitute(&|v| {
                    loops.iter().any(|l| l.var == v && v != target.var && reduces(l)).then(|| Expr::int(0))
                })
            };
            let conditions = predicate.iter().flat_map(tree::conjuncts);
            conditions.filter(|c| loops.iter().any(|l| reduces(l) && c.uses(l.var))).any(|c| {
                let spatial_free = !loops.iter().any(|l| is_spatial(l) && c.uses(l.var));
                !(spatial_free && simplifier.prove(&at_start(&c)))
            })
        };
        if starts_guarded {
            // A partial result may have no steps at all, yet must start: guard the steps instead.
            let of_reduction = |c: &Expr| loops.iter().any(|l| reduces(l) && c.uses(l.var));
            let conditions: Vec<Expr> = predicate.iter().flat_map(tree::conjuncts).collect();
            if conditions
                .iter()
                .any(|c| of_reduction(c) && loops.iter().any(|l| is_spatial(l) && c.uses(l.var)))
            {
                return Err(fail("its predicate mixes data-parallel and reduction loops".into()));
            }
            let (steps, rest): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(of_reduction);
            let guard = tree::conjunction(steps).map(|c| c.substitute(&|v| lookup(&loop_values, v)));
            if let Some(guard) = guard {
                let accumulator = Expr::load(data.dtype, partial, step.indices.clone());
                step.value = Expr::select(guard, step.value, accumulator);
            }
            predicate = tree::conjunction(rest);
        }
        let name = func.unique_block_name(&format!("{}_rf", self.block));
        let rf = Block { name: name.clone(), iters, predicate, init: vec![convert(start)], body: vec![step] };

        // The combination, over fresh variables.
        let (mut nest, mut combined, mut fresh) = (Vec::new(), Vec::new(), Vec::new());
        let spatial = block.iters.iter().filter(|i| i.kind == IterKind::Spatial);
        for (n, iter) in spatial.enumerate() {
            let loop_var = func.add_var(&format!("{}_i{n}", self.block), VarKind::Loop);
            let var = func.add_var(&format!("{}_vi{n}", self.block), VarKind::Iter);
            nest.push((loop_var, iter.extent.clone()));
            fresh.push((iter.var, Expr::var(var)));
            combined.push(Iter {
                var,
                extent: iter.extent.clone(),
                kind: IterKind::Spatial,
                value: Expr::var(loop_var),
            });
        }
        let loop_var = func.add_var(&format!("{}_r", self.block), VarKind::Loop);
        let var = func.add_var(&format!("{}_vr", self.block), VarKind::Iter);
        nest.push((loop_var, target.extent.clone()));
        combined.push(Iter {
            var,
            extent: target.extent.clone(),
            kind: IterKind::Reduce,
            value: Expr::var(loop_var),
        });
        let renew = |e: &Expr| e.substitute(&|v| lookup(&fresh, v));
        let indices: Vec<Expr> = store.indices.iter().map(renew).collect();
        let accumulator = Expr::load(data.dtype, store.buffer, indices.clone());
        let partial_indices = indices.iter().cloned().chain([Expr::var(var)]).collect();
        let value = Expr::binary(op, accumulator, Expr::load(data.dtype, partial, partial_indices));
        let start = Store { buffer: store.buffer, indices: indices.clone(), value: renew(&start.value) };
        let combine = Block {
            name: self.block.clone(),
            iters: combined,
            predicate: None,
            init: vec![start],
            body: vec![Store { buffer: store.buffer, indices, value }],
        };
        if let Some(place) = tree::block_at_mut(func, &path) {
            *place = rf;
        }
        func.body.insert(path[0] + 1, tree::nest(nest, Stmt::Block(Box::new(combine))));
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
