//! Copies to shared memory run ahead of what reads them (software pipelining).
//!
//! A loop of `n` iterations and `s` stages, whose body is copies, a barrier and the rest, becomes
//!
//! ```text
//! for each i below s - 1:  if i < n, the copies of i; commit
//! for i in 0..n:  wait until s - 2 groups are pending; barrier
//!                 if i + s - 1 < n, the copies of i + s - 1; commit
//!                 the rest of i
//! ```
//!
//! The shared buffers get `s` versions, of which iteration `i` has the one of number `i` modulo `s`. The wait makes sure of the copies of `i` by
//! the thread itself, the barrier of those by others; after it no thread still works on iteration `i - 1`, whose version the copies
//! of `i + s - 1` fill. So a barrier an iteration is enough. (Lam, "Software Pipelining", PLDI 1988; stages over `cp.async`: CUDA C++ Programming
//! Guide, "Asynchronous Data Copies".)
//!
//! It comes after `barriers`, which sees the loop as it was scheduled. A loop whose body is something else by then stays as it is.

use rustc_hash::{FxHashMap, FxHashSet};

use super::error::FlattenError;
use super::nest::{self, Body, If, Loop, LoopKind, Nest, Stmt};
use super::options::FlattenOptions;
use super::threads::threads_of;
use super::unroll::substitute;
use crate::expr::{BinaryOp, Buffer, Expr, ExprKind};
use crate::func::{Func, Scope};
use crate::kernel::Threads;

/// Runs copies ahead in loops that are to be pipelined, where threads share a task. Barriers must be there.
///
/// # Errors
/// Where the target has no threads for the loops.
pub fn pipeline(nest: &mut Nest<'_>, options: &FlattenOptions) -> Result<(), FlattenError> {
    let mut wanted = false;
    nest::for_each_loop(&nest.body, &mut |l| wanted |= l.stages > 1);
    if !wanted {
        return Ok(());
    }
    let versions = match threads_of(nest, options)? {
        Threads::ONE => FxHashMap::default(),
        _ => versions(nest),
    };
    let body = std::mem::take(&mut nest.body);
    let mut pass = Pipeline { nest, versions: &versions, filled: FxHashSet::default(), loops: 0 };
    let body = pass.list(body);
    nest.body = body;
    nest.versions = versions;
    Ok(())
}

/// The buffers that pipelined loops fill, with their stages: those that nothing else uses.
fn versions(nest: &Nest<'_>) -> FxHashMap<Buffer, u32> {
    let mut uses: FxHashMap<Buffer, usize> = FxHashMap::default();
    nest::for_each(&nest.body, &mut |stmt| count(stmt, &mut uses));
    let mut inside: FxHashMap<Buffer, usize> = FxHashMap::default();
    let mut stages: FxHashMap<Buffer, u32> = FxHashMap::default();
    let mut refused: FxHashSet<Buffer> = FxHashSet::default();
    let mut groups: Vec<Vec<Buffer>> = Vec::new();
    nest::for_each_loop(&nest.body, &mut |l| {
        let Some(parts) = Parts::of(nest, l) else { return };
        let mut own = FxHashMap::default();
        nest::for_each(&l.body.stmts, &mut |stmt| count(stmt, &mut own));
        for &buffer in &parts.filled {
            *inside.entry(buffer).or_default() += own.get(&buffer).copied().unwrap_or_default();
            if *stages.entry(buffer).or_insert(l.stages) != l.stages {
                refused.insert(buffer);
            }
        }
        groups.push(parts.filled);
    });
    refused.extend(stages.keys().copied().filter(|buffer| uses.get(buffer) != inside.get(buffer)));
    // A loop with a buffer that cannot have versions stays as it is, and so do others with its buffers.
    loop {
        let before = refused.len();
        for group in &groups {
            if group.iter().any(|buffer| refused.contains(buffer)) {
                refused.extend(group);
            }
        }
        if refused.len() == before {
            break;
        }
    }
    stages.retain(|buffer, _| !refused.contains(buffer));
    stages
}

/// Counts a statement's own accesses to each buffer.
fn count(stmt: &Stmt<'_>, uses: &mut FxHashMap<Buffer, usize>) {
    let mut expr = |e: &Expr| {
        e.walk(&mut |x| {
            if let ExprKind::Load(buffer, _) = x.kind() {
                *uses.entry(*buffer).or_default() += 1;
            }
        });
    };
    match stmt {
        Stmt::Loop(l) => [&l.begin, &l.end].into_iter().for_each(expr),
        Stmt::If(branch) => expr(&branch.condition),
        Stmt::Masked(masked) => expr(&masked.mask),
        Stmt::Stores(stores) => {
            for store in &stores.stores {
                store.indices.iter().chain([&store.value]).for_each(&mut expr);
            }
            for store in &stores.stores {
                *uses.entry(store.buffer).or_default() += 1;
            }
        }
        Stmt::Prefetch(hint) => expr(&hint.element),
        Stmt::Block(_) | Stmt::Barrier => {}
        Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => {}
    }
}

/// The body of a loop that can be pipelined.
struct Parts {
    /// Whether a barrier comes first.
    has_head: bool,
    /// How many statements copy; a barrier follows them.
    copies: usize,
    /// What they fill.
    filled: Vec<Buffer>,
}

impl Parts {
    fn of(nest: &Nest<'_>, l: &Loop<'_>) -> Option<Parts> {
        if l.stages < 2 || l.kind != LoopKind::Serial {
            return None;
        }
        let has_head = matches!(l.body.stmts.first(), Some(Stmt::Barrier));
        let stmts = &l.body.stmts[usize::from(has_head)..];
        let mut filled = Vec::new();
        let copies = stmts.iter().take_while(|stmt| fills(nest, stmt, &mut filled)).count();
        let [Stmt::Barrier, rest @ ..] = &stmts[copies..] else { return None };
        let mut is_refilled = false;
        nest::for_each(rest, &mut |stmt| {
            if let Stmt::Stores(stores) = stmt {
                is_refilled |= stores.stores.iter().any(|store| filled.contains(&store.buffer));
            }
        });
        (copies > 0 && !is_refilled).then_some(Parts { has_head, copies, filled })
    }
}

/// Whether a statement does nothing but fill shared buffers from memory that this kernel does not write; notes which.
fn fills(nest: &Nest<'_>, stmt: &Stmt<'_>, filled: &mut Vec<Buffer>) -> bool {
    let mut own = Vec::new();
    let mut all = true;
    let is_input =
        |buffer: Buffer| nest.func.buffers[buffer].scope == Scope::Global && !nest.written.contains(&buffer);
    nest::for_each(std::slice::from_ref(stmt), &mut |inner| match inner {
        Stmt::Stores(stores) => {
            for store in &stores.stores {
                all &= nest.func.buffers[store.buffer].scope == Scope::Shared;
                own.push(store.buffer);
                for e in store.indices.iter().chain([&store.value]) {
                    all &= !e.any(&mut |x| matches!(x.kind(), ExprKind::Load(b, _) if !is_input(*b)));
                }
            }
        }
        Stmt::Loop(_) | Stmt::If(_) | Stmt::Masked(_) => {}
        Stmt::Block(_) | Stmt::Prefetch(_) | Stmt::Barrier => all = false,
        Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => all = false,
    });
    let is_copy = all && !own.is_empty();
    if is_copy {
        own.retain(|buffer| !filled.contains(buffer));
        own.dedup();
        filled.extend(own);
    }
    is_copy
}

struct Pipeline<'p, 'a> {
    nest: &'p Nest<'a>,
    versions: &'p FxHashMap<Buffer, u32>,
    /// What loops so far have filled.
    filled: FxHashSet<Buffer>,
    /// Serial loops that are open.
    loops: usize,
}

impl<'a> Pipeline<'_, 'a> {
    fn list(&mut self, stmts: Vec<Stmt<'a>>) -> Vec<Stmt<'a>> {
        let mut all = Vec::with_capacity(stmts.len());
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => self.for_loop(l, &mut all),
                Stmt::If(If { condition, then, otherwise }) => {
                    let then = Body { stmts: self.list(then.stmts), ..then };
                    let otherwise = Body { stmts: self.list(otherwise.stmts), ..otherwise };
                    all.push(Stmt::If(If { condition, then, otherwise }));
                }
                Stmt::Block(_) | Stmt::Masked(_) | Stmt::Stores(_) | Stmt::Prefetch(_) => all.push(stmt),
                Stmt::Barrier | Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => all.push(stmt),
            }
        }
        all
    }

    fn for_loop(&mut self, mut l: Loop<'a>, all: &mut Vec<Stmt<'a>>) {
        let parts = Parts::of(self.nest, &l);
        let is_ours = |parts: &Parts| parts.filled.iter().all(|buffer| self.versions.contains_key(buffer));
        match parts.filter(is_ours) {
            Some(parts) => self.run_ahead(l, &parts, all),
            None => {
                let is_serial = usize::from(l.kind == LoopKind::Serial);
                self.loops += is_serial;
                l.body.stmts = self.list(std::mem::take(&mut l.body.stmts));
                self.loops -= is_serial;
                l.stages = 1;
                all.push(Stmt::Loop(l));
            }
        }
    }

    fn run_ahead(&mut self, mut l: Loop<'a>, parts: &Parts, all: &mut Vec<Stmt<'a>>) {
        let ahead = i64::from(l.stages) - 1;
        let mut stmts = std::mem::take(&mut l.body.stmts);
        let mut rest = stmts.split_off(usize::from(parts.has_head) + parts.copies + 1);
        stmts.pop();
        let copies = stmts.split_off(usize::from(parts.has_head));
        // Threads may still read what these buffers had before.
        let is_again = parts.filled.iter().any(|buffer| !self.filled.insert(*buffer));
        if parts.has_head && (is_again || self.loops > 0) {
            all.push(Stmt::Barrier);
        }

        let extent = (l.end.as_int()).zip(l.begin.as_int()).map(|(end, begin)| end - begin);
        let copy = |at: Expr, version: Expr, is_done: bool, all: &mut Vec<Stmt<'a>>| {
            let mut copies = copies.clone();
            substitute(&mut copies, l.var, &at);
            self.set_version(&mut copies, &version);
            let copies = Stmt::Copies(copies);
            match is_done {
                true => all.push(copies),
                false => {
                    let (condition, then) = (at.lt(l.end.clone()), Body::new(vec![copies]));
                    all.push(Stmt::If(If { condition, then, otherwise: Body::default() }));
                }
            }
            all.push(Stmt::CommitCopies);
        };
        for n in 0..ahead {
            match extent {
                Some(extent) if n >= extent => all.push(Stmt::CommitCopies),
                known => copy(plus(&l.begin, n), Expr::int(n), known.is_some(), all),
            }
        }
        let count = match l.begin.as_int() {
            Some(0) => Expr::var(l.var),
            _ => Expr::var(l.var) - l.begin.clone(),
        };
        let stages = i64::from(l.stages);
        let version = |n: i64| match l.stages.is_power_of_two() {
            true => Expr::binary(BinaryOp::And, plus(&count, n), Expr::int(stages - 1)),
            false => Expr::binary(BinaryOp::Rem, plus(&count, n), Expr::int(stages)),
        };
        let mut body = vec![Stmt::WaitCopies(l.stages - 2), Stmt::Barrier];
        copy(plus(&Expr::var(l.var), ahead), version(ahead), false, &mut body);
        self.set_version(&mut rest, &version(0));
        body.append(&mut rest);
        l.body.stmts = body;
        l.stages = 1;
        all.push(Stmt::Loop(l));
    }

    /// Has statements access one version of the buffers that have several.
    fn set_version(&self, stmts: &mut [Stmt<'a>], version: &Expr) {
        let func = self.nest.func;
        let moved = |buffer: Buffer, indices: &[Expr]| -> Option<Vec<Expr>> {
            self.versions.contains_key(&buffer).then(|| of_version(func, buffer, indices, version))
        };
        let rewrite = |e: &mut Expr| {
            *e = e.rewrite(&mut |x| match x.kind() {
                ExprKind::Load(buffer, indices) => {
                    moved(*buffer, indices).map(|indices| Expr::load(x.dtype(), *buffer, indices))
                }
                _ => None,
            });
        };
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => self.set_version(&mut l.body.stmts, version),
                Stmt::If(branch) => {
                    self.set_version(&mut branch.then.stmts, version);
                    self.set_version(&mut branch.otherwise.stmts, version);
                }
                Stmt::Masked(masked) => self.set_version(&mut masked.stmts, version),
                Stmt::Copies(stmts) => self.set_version(stmts, version),
                Stmt::Stores(stores) => {
                    for store in &mut stores.stores {
                        store.indices.iter_mut().chain([&mut store.value]).for_each(rewrite);
                        if let Some(indices) = moved(store.buffer, &store.indices) {
                            store.indices = indices;
                        }
                    }
                }
                Stmt::Block(_) | Stmt::Prefetch(_) | Stmt::Barrier => {}
                Stmt::CommitCopies | Stmt::WaitCopies(_) => {}
            }
        }
    }
}

/// The indices of an access to a version of a buffer: versions lie one after the other, as if the first dimension went on.
fn of_version(func: &Func, buffer: Buffer, indices: &[Expr], version: &Expr) -> Vec<Expr> {
    let shape = &func.buffers[buffer].shape;
    // An index alone is the position.
    let is_joined = indices.len() < shape.len();
    let distance = match is_joined {
        true => shape.iter().fold(Expr::int(1), |product, extent| product * extent.clone()),
        false => shape.first().cloned().unwrap_or(Expr::int(1)),
    };
    let mut moved = indices.to_vec();
    if let Some(first) = moved.first_mut() {
        *first = first.clone() + version.clone() * distance;
    }
    moved
}

fn plus(e: &Expr, n: i64) -> Expr {
    match (e.as_int(), n) {
        (_, 0) => e.clone(),
        (Some(known), _) => Expr::int(known + n),
        (None, _) => e.clone() + n,
    }
}
