//! One nest for each kernel of a function. Statements stay as the schedule has them.
//!
//! Every top-level parallel loop becomes a kernel whose tasks are its iterations, or those of the parallel loop alone
//! inside it, round by round. So does a serial one with only a parallel loop inside: its rounds are in order. What lies between
//! such loops becomes a kernel of one task. Hints for buffers that a kernel
//! does not access in global memory are dropped.

use rustc_hash::{FxHashMap, FxHashSet};

use super::error::FlattenError;
use super::nest::{Block, Body, Counter, Loop, LoopKind, Nest, Stmt, Tasks};
use crate::expr::{Buffer, Expr, ExprKind};
use crate::func::{self, Func, Scope};
use crate::schedule::tree;
use crate::simplify::Simplifier;

/// The nests of a function, in the order in which they must run.
///
/// # Errors
/// Where a loop inside a task is parallel.
pub fn split_kernels(func: &Func) -> Result<Vec<Nest<'_>>, FlattenError> {
    let mut phases: Vec<(Tasks, Vec<&func::Stmt>)> = Vec::new();
    let simplifier = Simplifier::for_sizes(func);
    let counter = |l: &func::Loop| Counter { var: l.var, extent: simplifier.simplify(&l.extent) };
    for stmt in &func.body {
        match tree::tasks(stmt) {
            Some(l) => {
                let (tasks, body) = match &l.body[..] {
                    [func::Stmt::Loop(shared)] if shared.kind == func::LoopKind::Parallel => {
                        let in_order = l.kind == func::LoopKind::Serial;
                        let (rounds, tasks) = (counter(l), counter(shared));
                        (Tasks::Rounds { rounds, shared: tasks, in_order }, &shared.body)
                    }
                    _ => (Tasks::Shared(counter(l)), &l.body),
                };
                phases.push((tasks, body.iter().collect()));
            }
            None => match phases.last_mut() {
                Some((Tasks::Single, stmts)) => stmts.push(stmt),
                _ => phases.push((Tasks::Single, vec![stmt])),
            },
        }
    }
    let single = phases.len() == 1;
    let kernels = phases.into_iter().enumerate().map(|(n, (tasks, stmts))| {
        let name = if single { func.name.clone() } else { format!("{}_{n}", func.name) };
        kernel(func, name, tasks, &stmts)
    });
    kernels.collect()
}

fn kernel<'a>(
    func: &'a Func,
    name: String,
    tasks: Tasks,
    stmts: &[&'a func::Stmt],
) -> Result<Nest<'a>, FlattenError> {
    let Used { read, written } = Used::by(stmts);
    let converter = Converter { func, read: &read, written: &written };
    let body = stmts.iter().map(|stmt| converter.stmt(stmt)).collect::<Result<_, _>>()?;
    Ok(Nest { func, name, read, written, tasks, versions: FxHashMap::default(), body })
}

struct Converter<'u, 'a> {
    func: &'a Func,
    read: &'u FxHashSet<Buffer>,
    written: &'u FxHashSet<Buffer>,
}

impl<'a> Converter<'_, 'a> {
    fn stmt(&self, stmt: &'a func::Stmt) -> Result<Stmt<'a>, FlattenError> {
        match stmt {
            func::Stmt::Loop(l) => self.for_loop(l),
            func::Stmt::Block(block) => Ok(Stmt::Block(Block {
                source: block,
                values: block.iters.iter().map(|iter| iter.value.clone()).collect(),
                predicate: block.predicate.clone(),
            })),
        }
    }

    fn for_loop(&self, l: &'a func::Loop) -> Result<Stmt<'a>, FlattenError> {
        let name = &self.func.vars[l.var].name;
        let kind = match l.kind {
            func::LoopKind::Serial => LoopKind::Serial,
            func::LoopKind::Vectorized => LoopKind::Vectorized,
            func::LoopKind::Unrolled => LoopKind::Unrolled,
            func::LoopKind::Parallel => {
                return Err(FlattenError::of(
                    self.func,
                    "",
                    format!("parallel loop `{name}` is not outermost"),
                ));
            }
            func::LoopKind::Thread(level) => LoopKind::Thread(level),
        };
        let mut stmts = Vec::with_capacity(l.prefetches.len() + l.body.len());
        if kind != LoopKind::Vectorized {
            let hints = l.prefetches.iter().filter(|hint| self.is_param(hint.buffer));
            stmts.extend(hints.cloned().map(Stmt::Prefetch));
        }
        for inner in &l.body {
            stmts.push(self.stmt(inner)?);
        }
        let body = Body::new(stmts);
        Ok(Stmt::Loop(Loop {
            var: l.var,
            begin: Expr::int(0),
            end: l.extent.clone(),
            kind,
            stages: l.stages,
            body,
        }))
    }

    fn is_param(&self, buffer: Buffer) -> bool {
        let is_used = self.read.contains(&buffer) || self.written.contains(&buffer);
        is_used && self.func.buffers[buffer].scope == Scope::Global
    }
}

/// Which buffers statements read and write.
#[derive(Default)]
struct Used {
    read: FxHashSet<Buffer>,
    written: FxHashSet<Buffer>,
}

impl Used {
    fn by(stmts: &[&func::Stmt]) -> Used {
        let mut used = Used::default();
        stmts.iter().for_each(|stmt| used.visit(stmt));
        used
    }

    fn visit(&mut self, stmt: &func::Stmt) {
        match stmt {
            func::Stmt::Loop(l) => {
                self.visit_expr(&l.extent);
                l.body.iter().for_each(|stmt| self.visit(stmt));
            }
            func::Stmt::Block(block) => {
                block.for_each_expr(|e| self.visit_expr(e));
                block.iters.iter().for_each(|iter| self.visit_expr(&iter.value));
                block.predicate.iter().for_each(|predicate| self.visit_expr(predicate));
                self.written.extend(block.init.iter().chain(&block.body).map(|store| store.buffer));
            }
        }
    }

    fn visit_expr(&mut self, expr: &Expr) {
        expr.walk(&mut |e| {
            if let ExprKind::Load(buffer, _) = e.kind() {
                self.read.insert(*buffer);
            }
        });
    }
}
