//! Building functions from definitions: `output[i] = expression of i`, with or without a reduction.
//!
//! Each definition becomes one block under a nest of serial loops, one loop an iteration variable,
//! data-parallel ones outside: the *computed* stage from which schedules start.

use tilewright_dtype::DType;

use crate::expr::{Buffer, Expr, Var};
use crate::func::{Block, Func, Iter, IterKind, Scope, Store, VarKind};

/// One result of a reduction with several results (such as a maximum and its position).
pub struct Reduced {
    /// The buffer that accumulates.
    pub buffer: Buffer,
    /// Its value before the first step.
    pub init: Expr,
}

/// The loops and iteration variables of a block that is still without stores. What is done before and after the stores are known
/// is in functions of its own, which are compiled once, not for each closure that gives stores.
struct Nest {
    name: String,
    loops: Vec<(Var, Expr)>,
    iters: Vec<Iter>,
    /// What stores index by, one for each iteration variable.
    indices: Vec<Expr>,
}

impl Nest {
    /// How many iteration variables are data-parallel.
    fn rank(&self) -> usize {
        self.iters.iter().filter(|iter| iter.kind == IterKind::Spatial).count()
    }
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
        let nest = self.nest(buffer, self.spatial(buffer));
        let value = value(self, &nest.indices);
        self.close_computed(nest, buffer, value);
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
        let (nest, accumulators) = self.reduction(&results, &extents);
        let (i, r) = nest.indices.split_at(nest.rank());
        let values = step(self, i, &r[..extents.len()], &accumulators);
        self.close_reduction(nest, results, values);
    }

    /// Adds a block over `domain` named after `named`, with the stores that `stores` gives for its
    /// iteration variables; the general form behind the other definitions (scatters use it directly).
    pub fn define(
        &mut self,
        named: Buffer,
        domain: Vec<(Expr, IterKind)>,
        stores: impl FnOnce(&mut Func, &[Expr]) -> (Vec<Store>, Vec<Store>),
    ) {
        let nest = self.nest(named, domain);
        let (init, body) = stores(self, &nest.indices);
        self.close(nest, init, body);
    }

    /// The domain of a block that stores each element of a buffer once.
    fn spatial(&self, buffer: Buffer) -> Vec<(Expr, IterKind)> {
        self.buffers[buffer].shape.iter().map(|extent| (extent.clone(), IterKind::Spatial)).collect()
    }

    /// Adds the block of a nest that stores a value in each element of a buffer.
    fn close_computed(&mut self, nest: Nest, buffer: Buffer, value: Expr) {
        let store = Store { buffer, indices: nest.indices.clone(), value };
        self.close(nest, Vec::new(), vec![store]);
    }

    /// The nest of a reduction with these results and extents, and its accumulators.
    fn reduction(&mut self, results: &[Reduced], extents: &[Expr]) -> (Nest, Vec<Expr>) {
        let first = results[0].buffer;
        let mut domain = self.spatial(first);
        // A sum over no axis has one term: the block counts it, so that it is a reduction.
        let one = [Expr::int(1)];
        let extents = if extents.is_empty() { &one } else { extents };
        domain.extend(extents.iter().map(|extent| (extent.clone(), IterKind::Reduce)));
        let nest = self.nest(first, domain);
        let i = &nest.indices[..nest.rank()];
        let accumulators = results.iter().map(|x| self.load(x.buffer, i.to_vec())).collect();
        (nest, accumulators)
    }

    /// Adds the block of a reduction whose step gives `values`.
    fn close_reduction(&mut self, nest: Nest, results: Vec<Reduced>, values: Vec<Expr>) {
        assert_eq!(values.len(), results.len(), "a value for each result");
        let i = &nest.indices[..nest.rank()];
        let store = |buffer, value| Store { buffer, indices: i.to_vec(), value };
        let body = results.iter().zip(values).map(|(x, value)| store(x.buffer, value)).collect();
        let init = results.iter().map(|x| store(x.buffer, x.init.clone())).collect();
        self.close(nest, init, body);
    }

    /// Variables for a block over `domain` that is named after `named`.
    fn nest(&mut self, named: Buffer, domain: Vec<(Expr, IterKind)>) -> Nest {
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
        Nest { name, loops, iters, indices }
    }

    /// Adds the block of a nest with its stores.
    fn close(&mut self, nest: Nest, init: Vec<Store>, body: Vec<Store>) {
        let Nest { name, loops, iters, .. } = nest;
        self.body.push(Block { name, iters, predicate: None, init, body }.in_loops(loops));
    }
}
