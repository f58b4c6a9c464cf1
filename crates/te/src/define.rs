//! Building functions from definitions: `output[i] = expression of i`, with or without a reduction.
//!
//! Each definition becomes one block under a nest of serial loops, one loop an iteration variable,
//! data-parallel ones outside: the *computed* stage from which schedules start.

use tilewright_dtype::DType;

use crate::expr::{Buffer, Expr, Var};
use crate::func::{Block, Func, Iter, IterKind, Loop, Scope, Stmt, Store, VarKind};

/// One result of a reduction with several results (such as a maximum and its position).
pub struct Reduced {
    /// The buffer that accumulates.
    pub buffer: Buffer,
    /// Its value before the first step.
    pub init: Expr,
}

impl Func {
    /// Adds a temporary `name` of the given shape with `name[i] = value(i)` for every index `i`.
    pub fn compute(
        &mut self,
        name: &str,
        dtype: DType,
        shape: Vec<Expr>,
        value: impl FnOnce(&mut Func, &[Expr]) -> Expr,
    ) -> Buffer {
        let buffer = self.add_buffer(name, dtype, shape, Scope::Global);
        self.compute_into(buffer, value);
        buffer
    }

    /// Adds the block `buffer[i] = value(i)` for every index `i` of an existing buffer.
    pub fn compute_into(&mut self, buffer: Buffer, value: impl FnOnce(&mut Func, &[Expr]) -> Expr) {
        let extents = self.buffers[buffer].shape.clone();
        let domain: Vec<_> = extents.into_iter().map(|e| (e, IterKind::Spatial)).collect();
        self.define(buffer, domain, |func, iters| {
            let value = value(func, iters);
            (Vec::new(), vec![Store { buffer, indices: iters.to_vec(), value }])
        });
    }

    /// Adds a temporary with `name[i] = init`, then `name[i] = step(i, r, name[i])` for every `r` in order.
    ///
    /// `extents` are the reduction's; `step` gets the data-parallel indices, the reduction indices, and the
    /// accumulator so far.
    pub fn reduce(
        &mut self,
        name: &str,
        dtype: DType,
        shape: Vec<Expr>,
        extents: Vec<Expr>,
        init: Expr,
        step: impl FnOnce(&mut Func, &[Expr], &[Expr], Expr) -> Expr,
    ) -> Buffer {
        let buffer = self.add_buffer(name, dtype, shape, Scope::Global);
        self.reduce_many(vec![Reduced { buffer, init }], extents, |func, i, r, acc| {
            vec![step(func, i, r, acc[0].clone())]
        });
        buffer
    }

    /// Adds one reduction block with several results of equal shape, all updated in each step from the
    /// accumulators as they were before it.
    ///
    /// A store is performed before the next value is evaluated, so `step` returns values in such an order
    /// that a later one does not need an earlier accumulator's old value, or expresses it by the new one.
    pub fn reduce_many(
        &mut self,
        results: Vec<Reduced>,
        extents: Vec<Expr>,
        step: impl FnOnce(&mut Func, &[Expr], &[Expr], &[Expr]) -> Vec<Expr>,
    ) {
        let first = results[0].buffer;
        let rank = self.buffers[first].shape.len();
        let spatial = self.buffers[first].shape.clone().into_iter().map(|e| (e, IterKind::Spatial));
        // A sum over no axis has one term: the block counts it, so that it is a reduction.
        let n_reduced = extents.len();
        let extents = if extents.is_empty() { vec![Expr::int(1)] } else { extents };
        let domain: Vec<_> = spatial.chain(extents.into_iter().map(|e| (e, IterKind::Reduce))).collect();
        self.define(first, domain, |func, iters| {
            let (i, r) = (&iters[..rank], &iters[rank..rank + n_reduced]);
            let accumulators: Vec<Expr> = results.iter().map(|x| func.load(x.buffer, i.to_vec())).collect();
            let values = step(func, i, r, &accumulators);
            assert_eq!(values.len(), results.len(), "a value for each result");
            let store = |buffer, value| Store { buffer, indices: i.to_vec(), value };
            let body = results.iter().zip(values).map(|(x, value)| store(x.buffer, value)).collect();
            let init = results.iter().map(|x| store(x.buffer, x.init.clone())).collect();
            (init, body)
        });
    }

    /// Adds a block over `domain` named after `named`, with the stores that `stores` gives for its
    /// iteration variables; the general form behind the other definitions (scatters use it directly).
    pub fn define(
        &mut self,
        named: Buffer,
        domain: Vec<(Expr, IterKind)>,
        stores: impl FnOnce(&mut Func, &[Expr]) -> (Vec<Store>, Vec<Store>),
    ) {
        let name = self.unique_block_name(&self.buffers[named].name.clone());
        let mut loops: Vec<(Var, Expr)> = Vec::new();
        let mut iters: Vec<Iter> = Vec::new();
        for (n, (extent, kind)) in domain.into_iter().enumerate() {
            let hint = match kind {
                IterKind::Spatial => format!("i{n}"),
                IterKind::Reduce => format!("r{n}"),
            };
            let loop_var = self.add_var(&format!("{name}_{hint}"), VarKind::Loop);
            let var = self.add_var(&format!("{name}_v{hint}"), VarKind::Iter);
            loops.push((loop_var, extent.clone()));
            iters.push(Iter { var, extent, kind, value: Expr::var(loop_var) });
        }
        // A reduction over one step says nothing by its variable.
        let index = |i: &Iter| match (i.kind, i.extent.as_int()) {
            (IterKind::Reduce, Some(1)) => Expr::int(0),
            (IterKind::Reduce | IterKind::Spatial, _) => Expr::var(i.var),
        };
        let indices: Vec<Expr> = iters.iter().map(index).collect();
        let (init, body) = stores(self, &indices);
        let mut stmt = Stmt::Block(Box::new(Block { name, iters, predicate: None, init, body }));
        for (var, extent) in loops.into_iter().rev() {
            stmt = Stmt::Loop(Box::new(Loop::serial(var, extent, vec![stmt])));
        }
        self.body.push(stmt);
    }
}
