//! The rules of nests, checked.

use rustc_hash::FxHashSet;
use tilewright_dtype::DType;

use super::{Body, Form, LoopKind, Nest, Stmt};
use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::Store;

impl Nest<'_> {
    /// Checks the demands of a form: that variables are in scope, that types and ranks are right, and what the form says.
    ///
    /// # Errors
    /// All violations.
    pub fn verify(&self, form: Form) -> Result<(), Vec<String>> {
        let mut check = Check { nest: self, form, bound: FxHashSet::default(), lane: None, faults: vec![] };
        check.bound.extend(&self.func.sizes);
        for counter in self.counters() {
            check.expr(&counter.extent, DType::I64);
            check.bound.insert(counter.var);
        }
        check.stmts(&self.body);
        if check.faults.is_empty() { Ok(()) } else { Err(check.faults) }
    }
}

struct Check<'n> {
    nest: &'n Nest<'n>,
    form: Form,
    /// Variables in scope.
    bound: FxHashSet<Var>,
    lane: Option<Var>,
    faults: Vec<String>,
}

impl Check<'_> {
    fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(text.into());
    }

    fn stmts(&mut self, stmts: &[Stmt<'_>]) {
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => {
                    self.expr(&l.begin, DType::I64);
                    self.expr(&l.end, DType::I64);
                    let name = &self.nest.func.vars[l.var].name;
                    if l.kind != LoopKind::Serial && l.begin.as_int() != Some(0) {
                        self.fault(format!("loop {name} is not serial and does not begin at 0"));
                    }
                    if self.form >= Form::Unrolled {
                        self.unrolled(l.kind, &l.end, name);
                    }
                    let outer = self.lane;
                    if l.kind == LoopKind::Vectorized {
                        self.lane = Some(l.var);
                    }
                    let is_new = self.bound.insert(l.var);
                    if !is_new {
                        self.fault(format!("loop {name} is inside a loop over the same variable"));
                    }
                    self.body(&l.body);
                    self.bound.remove(&l.var);
                    self.lane = outer;
                }
                Stmt::If(branch) => {
                    self.expr(&branch.condition, DType::Bool);
                    if self.lane.is_some_and(|lane| branch.condition.uses(lane)) {
                        self.fault("a branch tells lanes apart");
                    }
                    self.body(&branch.then);
                    self.body(&branch.otherwise);
                }
                Stmt::Masked(masked) => {
                    self.expr(&masked.mask, DType::Bool);
                    if self.lane.is_none() {
                        self.fault("a mask outside of vectorized loops");
                    }
                    self.stmts(&masked.stmts);
                }
                Stmt::Block(block) => {
                    let name = &block.source.name;
                    if block.predicate.is_some() && self.form >= Form::Masked {
                        self.fault(format!("block {name} has a predicate"));
                    }
                    if self.form >= Form::Bound {
                        self.fault(format!("block {name} is not bound"));
                    }
                    block.values.iter().for_each(|value| self.expr(value, DType::I64));
                    block.predicate.iter().for_each(|predicate| self.expr(predicate, DType::Bool));
                }
                Stmt::Stores(stores) => stores.stores.iter().for_each(|store| self.store(store)),
                Stmt::Prefetch(hint) => self.expr(&hint.element, DType::I64),
                Stmt::Copies(stmts) => self.stmts(stmts),
                Stmt::Barrier | Stmt::CommitCopies | Stmt::WaitCopies(_) => {}
            }
        }
    }

    fn unrolled(&mut self, kind: LoopKind, end: &Expr, name: &str) {
        match kind {
            LoopKind::Serial | LoopKind::Thread(_) => {}
            LoopKind::Unrolled => self.fault(format!("loop {name} is not unrolled")),
            LoopKind::Vectorized => {
                if end.as_int().is_none_or(|lanes| lanes < 2) {
                    self.fault(format!("vectorized loop {name} has not several lanes"));
                }
                if self.lane.is_some() {
                    self.fault(format!("vectorized loop {name} is inside another"));
                }
            }
        }
    }

    fn body(&mut self, body: &Body<'_>) {
        body.fact.iter().for_each(|fact| self.expr(fact, DType::Bool));
        self.stmts(&body.stmts);
    }

    fn store(&mut self, store: &Store) {
        let data = &self.nest.func.buffers[store.buffer];
        self.expr(&store.value, data.dtype);
        store.indices.iter().for_each(|index| self.expr(index, DType::I64));
        self.rank(store.buffer, store.indices.len());
        if !self.nest.written.contains(&store.buffer) {
            self.fault(format!("{} is not among the buffers written", data.name));
        }
    }

    /// One index a dimension, or the row-major position.
    fn rank(&mut self, buffer: Buffer, n_indices: usize) {
        let data = &self.nest.func.buffers[buffer];
        if n_indices != data.shape.len() && n_indices != 1 {
            self.fault(format!("{n_indices} indices for {} of rank {}", data.name, data.shape.len()));
        }
    }

    fn expr(&mut self, expr: &Expr, dtype: DType) {
        if expr.dtype() != dtype {
            self.fault(format!("{expr:?} is {}, not {dtype}", expr.dtype()));
        }
        let (mut unbound, mut loads) = (Vec::new(), Vec::new());
        expr.walk(&mut |e| match e.kind() {
            ExprKind::Var(var) if !self.bound.contains(var) => unbound.push(*var),
            ExprKind::Load(buffer, indices) => loads.push((*buffer, indices.len())),
            _ => {}
        });
        for var in unbound {
            self.fault(format!("{} is not in scope", self.nest.func.vars[var].name));
        }
        for (buffer, n_indices) in loads {
            self.rank(buffer, n_indices);
            if !self.nest.read.contains(&buffer) {
                self.fault(format!("{} is not among the buffers read", self.nest.func.buffers[buffer].name));
            }
        }
    }
}
