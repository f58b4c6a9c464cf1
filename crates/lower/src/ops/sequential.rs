//! Steps in order: blocks that share one serial loop, for recurrences in which each step needs the last one.
//!
//! ```text
//! for t in 0..steps {          one loop around all blocks
//!     gates[t, ..] += state[t - 1, ..] * weights
//!     state[t, ..] = f(gates[t, ..])
//! }
//! ```
//! What never meets, like the directions of a layer, may have a loop around that of the steps.
//!
//! Every block binds `t` by an iteration variable of reduction kind, which no schedule runs out of order. Blocks
//! have no `init`: what they accumulate into is computed before the loop.

use tilewright_te::{Block, Expr, Iter, IterKind, Loop, Stmt, Store, Var, VarKind};

use super::builder::Builder;

/// The body of a loop over steps under construction.
pub(super) struct Steps<'b, 'a, 'c> {
    builder: &'b mut Builder<'a, 'c>,
    counter: Var,
    extent: Expr,
    /// Counters of the loops around, outermost first, whose iterations have nothing in common.
    apart: Vec<Var>,
    body: Vec<Stmt>,
}

impl<'a, 'c> Builder<'a, 'c> {
    /// A serial loop of `extent` steps around the blocks that `define` adds.
    pub(super) fn in_order(
        &mut self,
        name: &str,
        extent: &Expr,
        define: impl FnOnce(&mut Steps<'_, 'a, 'c>),
    ) {
        self.in_order_apart(name, extent, &[], define);
    }

    /// As [`Builder::in_order`], once for each of `apart`, the extents of the first variables of every block: what the blocks write
    /// they index by these, and read again only there.
    pub(super) fn in_order_apart(
        &mut self,
        name: &str,
        extent: &Expr,
        apart: &[Expr],
        define: impl FnOnce(&mut Steps<'_, 'a, 'c>),
    ) {
        let counter = self.func.add_var(name, VarKind::Loop);
        let around =
            apart.iter().map(|_| self.func.add_var(&format!("{name}_apart"), VarKind::Loop)).collect();
        let mut steps =
            Steps { builder: self, counter, extent: extent.clone(), apart: around, body: Vec::new() };
        define(&mut steps);
        let Steps { body, apart: around, .. } = steps;
        let mut whole = Stmt::Loop(Box::new(Loop::serial(counter, extent.clone(), body)));
        for (var, extent) in around.into_iter().zip(apart).rev() {
            whole = Stmt::Loop(Box::new(Loop::serial(var, extent.clone(), vec![whole])));
        }
        self.func.body.push(whole);
    }
}

/// The loops and iteration variables of a block that is still without stores; it is compiled once, not for each closure that gives
/// stores.
struct Nest {
    name: String,
    /// The variable that counts steps.
    step: Var,
    loops: Vec<(Var, Expr)>,
    iters: Vec<Iter>,
    /// The variables but for that of steps.
    indices: Vec<Expr>,
}

impl Steps<'_, '_, '_> {
    /// A block over `spatial` and then, in order, `ordered` iterations; `stores` gets the step and both.
    pub(super) fn update(
        &mut self,
        name: &str,
        spatial: &[Expr],
        ordered: &[Expr],
        stores: impl FnOnce(&Expr, &[Expr], &[Expr]) -> Vec<Store>,
    ) {
        let nest = self.nest(name, spatial, ordered);
        let (i, r) = nest.indices.split_at(spatial.len());
        let body = stores(&Expr::var(nest.step), i, r);
        self.close(nest, body);
    }

    /// Variables for a block over `spatial`, the steps, and `ordered`.
    fn nest(&mut self, name: &str, spatial: &[Expr], ordered: &[Expr]) -> Nest {
        let taken = |steps: &Self, name: &str| {
            let inside =
                steps.body.iter().any(|stmt| innermost(stmt).is_some_and(|block| block.name == name));
            inside || steps.builder.func.block(name).is_some()
        };
        let mut unique = self.builder.func.unique_block_name(name);
        let mut suffix = 1;
        while taken(self, &unique) {
            unique = format!("{name}_{suffix}");
            suffix += 1;
        }
        let func = &mut *self.builder.func;
        let mut loops = Vec::new();
        let mut iters = Vec::new();
        let step = func.add_var(&format!("{unique}_vt"), VarKind::Iter);
        let kinds = spatial.iter().map(|extent| (extent, IterKind::Spatial));
        for (n, (extent, kind)) in
            kinds.chain(ordered.iter().map(|extent| (extent, IterKind::Reduce))).enumerate()
        {
            let hint = match kind {
                IterKind::Spatial => format!("i{n}"),
                IterKind::Reduce => format!("r{n}"),
            };
            let var = func.add_var(&format!("{unique}_v{hint}"), VarKind::Iter);
            let loop_var = match self.apart.get(n) {
                Some(&around) => around,
                None => {
                    let own = func.add_var(&format!("{unique}_{hint}"), VarKind::Loop);
                    loops.push((own, extent.clone()));
                    own
                }
            };
            iters.push(Iter { var, extent: extent.clone(), kind, value: Expr::var(loop_var) });
        }
        let indices: Vec<Expr> = iters.iter().map(|iter| Expr::var(iter.var)).collect();
        let time = Iter {
            var: step,
            extent: self.extent.clone(),
            kind: IterKind::Reduce,
            value: Expr::var(self.counter),
        };
        iters.insert(spatial.len(), time);
        Nest { name: unique, step, loops, iters, indices }
    }

    /// Adds the block of a nest with its stores.
    fn close(&mut self, nest: Nest, body: Vec<Store>) {
        let Nest { name, loops, iters, .. } = nest;
        let block = Block { name, iters, predicate: None, init: Vec::new(), body };
        self.body.push(block.in_loops(loops));
    }
}

/// The block inside a nest of loops around one statement each.
fn innermost(stmt: &Stmt) -> Option<&Block> {
    match stmt {
        Stmt::Block(block) => Some(block),
        Stmt::Loop(outer) => outer.body.first().and_then(innermost),
    }
}
