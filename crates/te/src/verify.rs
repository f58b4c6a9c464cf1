//! Legality of functions, stage by stage.
//!
//! [`verify`] reports every violation it finds, each with its place. Stages only add demands:
//! [`Stage::Computed`] is what definitions make, [`Stage::Scheduled`] what schedule primitives keep, and
//! [`Stage::Flattenable`] what the translation to kernels needs: constant shapes of local buffers, register
//! buffers indexed by constants once loops are unrolled, tasks that share nothing.

use std::fmt::{self, Write};

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_dtype::DType;

use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::{Block, Func, IterKind, Loop, LoopKind, Scope, Stmt, Store, VarKind};
use crate::schedule::bindings::{self, Conflict};
use crate::schedule::tree;
use crate::simplify::Simplifier;

/// How far a function has come; each stage demands what the ones before demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// As computed: serial loops, no predicates.
    Computed,
    /// During scheduling.
    Scheduled,
    /// Ready for flattening.
    Flattenable,
}

/// Something illegal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The block, loop, buffer or variable: `block C`, `loop i`.
    pub place: String,
    /// What is wrong with it.
    pub reason: String,
    /// Whether it may be right, but no proof was found: that tasks or lanes write different elements.
    pub is_unproven: bool,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// A function that violates its stage's demands: a defect of what made it so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("function `{func}` is illegal after {after}{}", listed(violations))]
pub struct Illegal {
    /// The function.
    pub func: String,
    /// What made it illegal: ``primitive 3, `split` ``, or a step of the compiler.
    pub after: String,
    /// Everything that is wrong.
    pub violations: Vec<Violation>,
}

fn listed(violations: &[Violation]) -> String {
    violations.iter().fold(String::new(), |mut text, violation| {
        let _ = write!(text, "\n  {violation}");
        text
    })
}

/// Demands what the stage demands of a function; `after` is what made it.
///
/// # Errors
/// Every violation.
pub fn check(func: &Func, stage: Stage, after: &str) -> Result<(), Illegal> {
    let violations = verify(func, stage);
    match violations.is_empty() {
        true => Ok(()),
        false => Err(Illegal { func: func.name.clone(), after: after.to_string(), violations }),
    }
}

/// All violations of the stage's demands, in order of occurrence; empty for a legal function.
pub fn verify(func: &Func, stage: Stage) -> Vec<Violation> {
    let mut verifier = Verifier {
        func,
        stage,
        out: Vec::new(),
        bound: func.sizes.iter().copied().collect(),
        seen: FxHashSet::default(),
        unrolled: Vec::new(),
    };
    verifier.signature();
    verifier.stmts(&func.body, &mut Vec::new());
    if verifier.out.is_empty() {
        // These look at regions, which only well-formed functions have.
        verifier.domains();
        verifier.local_buffers();
    }
    verifier.out
}

struct Verifier<'a> {
    func: &'a Func,
    stage: Stage,
    out: Vec<Violation>,
    /// Variables in scope.
    bound: FxHashSet<Var>,
    /// Variables and block names bound so far anywhere.
    seen: FxHashSet<String>,
    /// Unrolled and vectorized loops around, and those of threads.
    unrolled: Vec<Var>,
}

impl Verifier<'_> {
    fn report(&mut self, place: impl Into<String>, reason: impl Into<String>) {
        self.out.push(Violation { place: place.into(), reason: reason.into(), is_unproven: false });
    }

    fn var_name(&self, var: Var) -> String {
        self.func.vars.get(var).map_or_else(|| var.to_string(), |v| v.name.clone())
    }

    fn signature(&mut self) {
        let func = self.func;
        if func.n_inputs > func.params.len() {
            self.report("function", format!("{} inputs of {} parameters", func.n_inputs, func.params.len()));
        }
        let mut names = FxHashSet::default();
        for (buffer, data) in &func.buffers {
            let place = format!("buffer {}", data.name);
            if !names.insert(&data.name) {
                self.report(&place, "another buffer has the same name");
            }
            if func.params.contains(&buffer) && data.scope != Scope::Global {
                self.report(&place, "a parameter that is not in global memory");
            }
            for extent in &data.shape {
                if extent.dtype() != DType::I64 {
                    self.report(&place, format!("an extent has type {}", extent.dtype()));
                }
                self.variables(&place, extent);
            }
        }
        for (n, param) in func.params.iter().enumerate() {
            if func.buffers.get(*param).is_none() {
                self.report("function", format!("parameter {n} is no buffer"));
            } else if func.params[..n].contains(param) {
                self.report(format!("buffer {}", func.buffers[*param].name), "is a parameter twice");
            }
        }
        for &size in &func.sizes {
            match func.vars[size].kind {
                VarKind::Size { min, max, .. } if 0 <= min && min <= max => {}
                VarKind::Size { min, max, .. } => {
                    self.report(
                        format!("size {}", self.var_name(size)),
                        format!("has the range {min}..={max}"),
                    );
                }
                VarKind::Loop | VarKind::Iter => {
                    self.report(format!("size {}", self.var_name(size)), "is no size variable");
                }
            }
        }
    }

    /// Reports variables that are not in scope.
    fn variables(&mut self, place: &str, e: &Expr) {
        let mut unbound: Vec<Var> = Vec::new();
        e.walk(&mut |x| {
            if let Some(var) = x.as_var()
                && !self.bound.contains(&var)
                && !unbound.contains(&var)
            {
                unbound.push(var);
            }
        });
        for var in unbound {
            self.report(place, format!("`{}` is not in scope", self.var_name(var)));
        }
    }

    fn stmts(&mut self, stmts: &[Stmt], path: &mut tree::Path) {
        for (index, stmt) in stmts.iter().enumerate() {
            path.push(index);
            match stmt {
                Stmt::Loop(l) => self.loop_(l, path),
                Stmt::Block(b) => self.block(b, path),
            }
            path.pop();
        }
    }

    fn loop_(&mut self, l: &Loop, path: &mut tree::Path) {
        let name = self.var_name(l.var);
        let place = format!("loop {name}");
        self.variables(&place, &l.extent);
        if l.extent.dtype() != DType::I64 {
            self.report(&place, format!("the extent has type {}", l.extent.dtype()));
        }
        for prefetch in &l.prefetches {
            // The loop's own variable is bound inside only.
            let element = prefetch.element.substitute_var(l.var, &Expr::int(0));
            self.variables(&place, &element);
            if prefetch.element.dtype() != DType::I64 {
                self.report(&place, format!("a prefetched element has type {}", prefetch.element.dtype()));
            }
            if let Some(condition) = &prefetch.condition {
                self.variables(&place, &condition.substitute_var(l.var, &Expr::int(0)));
                if condition.dtype() != DType::Bool {
                    self.report(
                        &place,
                        format!("the condition of a prefetch has type {}", condition.dtype()),
                    );
                }
            }
        }
        if !l.prefetches.is_empty() && matches!(l.kind, LoopKind::Vectorized | LoopKind::Thread(_)) {
            self.report(&place, format!("prefetches, and is {:?}", l.kind));
        }
        if l.stages != 1 && (l.kind != LoopKind::Serial || !crate::schedule::is_stages(l.stages)) {
            self.report(&place, format!("a pipeline of {} stages, and {:?}", l.stages, l.kind));
        }
        if !self.seen.insert(name) {
            self.report(&place, "the variable is bound twice");
        }
        if l.body.is_empty() {
            self.report(&place, "the body is empty");
        }
        let is_constant = l.extent.as_int().is_some();
        match l.kind {
            LoopKind::Serial => {}
            _ if self.stage == Stage::Computed => self.report(&place, format!("is {:?}", l.kind)),
            LoopKind::Parallel if !tree::may_be_parallel(self.func, path) => {
                self.report(
                    &place,
                    "is parallel but neither outermost nor alone inside an outermost loop of tasks or rounds",
                );
            }
            LoopKind::Vectorized | LoopKind::Unrolled | LoopKind::Thread(_) if !is_constant => {
                self.report(&place, format!("is {:?} but its extent is not constant", l.kind));
            }
            LoopKind::Thread(_) => {
                let reason = tree::misplaced(self.func, path);
                reason.into_iter().for_each(|reason| self.report(&place, reason));
            }
            LoopKind::Parallel | LoopKind::Vectorized | LoopKind::Unrolled => {}
        }
        if matches!(l.kind, LoopKind::Parallel | LoopKind::Vectorized | LoopKind::Thread(_))
            && let Some(conflict) = bindings::conflict(self.func, path, l.kind)
        {
            let is_unproven = matches!(conflict, Conflict::Writes { .. } | Conflict::Carries { .. });
            let reason = format!("is {:?} but {conflict}", l.kind);
            self.out.push(Violation { place: place.clone(), reason, is_unproven });
        }
        let repeated = matches!(l.kind, LoopKind::Unrolled | LoopKind::Vectorized | LoopKind::Thread(_));
        if repeated {
            self.unrolled.push(l.var);
        }
        self.bound.insert(l.var);
        self.stmts(&l.body, path);
        self.bound.remove(&l.var);
        if repeated {
            self.unrolled.pop();
        }
    }

    fn block(&mut self, block: &Block, path: &tree::Path) {
        let place = format!("block {}", block.name);
        if !self.seen.insert(format!("block {}", block.name)) {
            self.report(&place, "another block has the same name");
        }
        if self.stage == Stage::Computed && block.predicate.is_some() {
            self.report(&place, "has a predicate");
        }
        if let Some(predicate) = &block.predicate {
            self.variables(&place, predicate);
            if predicate.dtype() != DType::Bool {
                self.report(&place, format!("the predicate has type {}", predicate.dtype()));
            }
        }
        for iter in &block.iters {
            self.variables(&place, &iter.value);
            self.variables(&place, &iter.extent);
            let name = self.var_name(iter.var);
            if iter.value.dtype() != DType::I64 || iter.extent.dtype() != DType::I64 {
                self.report(&place, format!("`{name}` is bound to another type than an index"));
            }
            if !self.seen.insert(name.clone()) {
                self.report(&place, format!("`{name}` is bound twice"));
            }
        }
        if block.body.is_empty() {
            self.report(&place, "stores nothing");
        }
        if !block.init.is_empty() && !block.is_reduction() {
            self.report(&place, "has a start but no reduction variable");
        }
        // Expressions of a block are over its own variables and sizes.
        let outer = std::mem::replace(&mut self.bound, self.func.sizes.iter().copied().collect());
        self.bound.extend(block.iters.iter().map(|i| i.var));
        for store in block.init.iter().chain(&block.body) {
            self.store(&place, store);
        }
        self.bound = outer;
        if self.stage == Stage::Flattenable {
            self.registers(&place, block, path);
        }
    }

    fn store(&mut self, place: &str, store: &Store) {
        let Some(data) = self.func.buffers.get(store.buffer) else {
            return self.report(place, format!("stores to {}, which is no buffer", store.buffer));
        };
        if self.func.is_input(store.buffer) {
            self.report(place, format!("stores to the input `{}`", data.name));
        }
        if store.value.dtype() != data.dtype {
            let found = store.value.dtype();
            self.report(place, format!("stores a {found} to `{}`, which holds {}", data.name, data.dtype));
        }
        self.access(place, store.buffer, &store.indices);
        for e in store.indices.iter().chain([&store.value]) {
            self.variables(place, e);
            let mut loads: Vec<(Buffer, Vec<Expr>, DType)> = Vec::new();
            e.walk(&mut |x| {
                if let ExprKind::Load(buffer, indices) = x.kind() {
                    loads.push((*buffer, indices.clone(), x.dtype()));
                }
            });
            for (buffer, indices, dtype) in loads {
                match self.func.buffers.get(buffer) {
                    None => self.report(place, format!("loads from {buffer}, which is no buffer")),
                    Some(data) => {
                        if data.dtype != dtype {
                            let name = &data.name;
                            self.report(
                                place,
                                format!("loads a {dtype} from `{name}`, which holds {}", data.dtype),
                            );
                        }
                        self.access(place, buffer, &indices);
                    }
                }
            }
        }
    }

    fn access(&mut self, place: &str, buffer: Buffer, indices: &[Expr]) {
        let data = &self.func.buffers[buffer];
        if indices.len() != data.shape.len() {
            let (given, rank) = (indices.len(), data.shape.len());
            return self.report(place, format!("{given} indices for `{}` of rank {rank}", data.name));
        }
        if let Some(index) = indices.iter().find(|i| i.dtype() != DType::I64) {
            self.report(place, format!("an index of `{}` has type {}", data.name, index.dtype()));
        }
    }

    /// Registers are indexed by constants once loops are unrolled.
    fn registers(&mut self, place: &str, block: &Block, path: &tree::Path) {
        let func = self.func;
        let accesses = tree::accesses(block).into_iter();
        let is_register = |buffer| func.buffers.get(buffer).is_some_and(|data| data.scope == Scope::Register);
        let registers: Vec<_> = accesses.filter(|(buffer, _)| is_register(*buffer)).collect();
        if registers.is_empty() {
            return;
        }
        let simplifier = tree::simplifier_at(func, path);
        let mut found: Vec<(Buffer, Var)> = Vec::new();
        for (buffer, index) in registers.iter().flat_map(|(b, indices)| indices.iter().map(move |i| (*b, i)))
        {
            let value = simplifier.simplify(&crate::schedule::region::bind(block, index));
            value.walk(&mut |x| {
                let is_loop = |v: &Var| func.vars[*v].kind == VarKind::Loop && !self.unrolled.contains(v);
                if let Some(var) = x.as_var().filter(is_loop)
                    && !found.contains(&(buffer, var))
                {
                    found.push((buffer, var));
                }
            });
        }
        for (buffer, var) in found {
            let (buffer, name) = (&func.buffers[buffer].name, self.var_name(var));
            self.report(place, format!("register `{buffer}` is indexed by the loop `{name}`"));
        }
    }

    /// Iteration variables stay in their domains wherever the predicate holds, as far as can be proven or
    /// refuted; and every data-parallel domain is covered by the loops' extents.
    fn domains(&mut self) {
        for (path, block) in tree::blocks_with_paths(self.func) {
            // Of an empty domain nothing is run.
            if block.iters.iter().any(|iter| iter.extent.as_int() == Some(0)) {
                continue;
            }
            let mut simplifier = tree::simplifier_at(self.func, &path);
            block.predicate.iter().for_each(|p| simplifier.assume(p));
            for iter in &block.iters {
                let inside = simplifier.simplify(&iter.value.clone().lt(iter.extent.clone()));
                let from = simplifier.simplify(&iter.value.clone().ge(Expr::int(0)));
                if inside.as_int() == Some(0) || from.as_int() == Some(0) {
                    let name = self.var_name(iter.var);
                    self.report(format!("block {}", block.name), format!("`{name}` is never in its domain"));
                }
                let most = simplifier.extreme(&iter.value, true, &|v| simplifier.is_loop(v));
                let is_short = |most: Expr| simplifier.prove_lt(&(most + 1), &iter.extent);
                if iter.kind == IterKind::Reduce && most.is_some_and(is_short) {
                    let name = self.var_name(iter.var);
                    self.report(format!("block {}", block.name), format!("`{name}` never ends its domain"));
                }
            }
        }
    }

    /// Local buffers have constant shapes, and live within one outermost statement when there are tasks.
    fn local_buffers(&mut self) {
        if self.stage < Stage::Flattenable {
            return;
        }
        let sizes = Simplifier::for_sizes(self.func);
        let mut homes: FxHashMap<Buffer, FxHashSet<usize>> = FxHashMap::default();
        for (path, block) in tree::blocks_with_paths(self.func) {
            for buffer in tree::written(block).into_iter().chain(tree::read_buffers(block)) {
                homes.entry(buffer).or_default().insert(path[0]);
            }
        }
        let has_tasks = self.func.body.iter().any(|s| tree::tasks(s).is_some());
        for (buffer, data) in &self.func.buffers {
            let is_local = match data.scope {
                Scope::Shared | Scope::Stack | Scope::Register => true,
                Scope::Global => false,
            };
            let Some(statements) = homes.get(&buffer).filter(|_| is_local) else { continue };
            let place = format!("buffer {}", data.name);
            if data.shape.iter().any(|e| sizes.simplify(e).as_int().is_none()) {
                self.report(&place, format!("is in {:?} memory but its shape is not constant", data.scope));
            }
            if has_tasks && statements.len() > 1 {
                self.report(&place, "is local but used by several outermost statements");
            }
        }
    }
}
