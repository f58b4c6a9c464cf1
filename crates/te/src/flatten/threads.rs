//! Threads of a nest: how many there are, and which of them run a statement.

use rustc_hash::{FxHashMap, FxHashSet};

use super::error::FlattenError;
use super::nest::{self, Loop, LoopKind, Nest, Stmt, Stores};
use super::options::FlattenOptions;
use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::{Scope, ThreadLevel};
use crate::kernel::Threads;

/// The threads of a nest's kernel: as many warps as its loops ask for, of as many lanes as the target has.
///
/// # Errors
/// Where the target has no threads, or a loop has more iterations than there are threads, or not a constant number.
pub(super) fn threads_of(nest: &Nest<'_>, options: &FlattenOptions) -> Result<Threads, FlattenError> {
    let mut threads = Threads::ONE;
    let mut refused = None;
    nest::for_each_loop(&nest.body, &mut |l| {
        let LoopKind::Thread(level) = l.kind else { return };
        let name = &nest.func.vars[l.var].name;
        let Some(lanes) = options.lanes else {
            refused.get_or_insert(format!("loop `{name}` is bound to threads this target has not"));
            return;
        };
        threads.lanes = lanes;
        let extent = l.end.as_int().and_then(|n| u32::try_from(n).ok());
        match (level, extent) {
            (_, None) => drop(refused.get_or_insert(format!("loop `{name}` has no constant extent"))),
            (ThreadLevel::Warp, Some(n)) => threads.warps = threads.warps.max(n),
            (ThreadLevel::Lane, Some(n)) if n > lanes => {
                refused.get_or_insert(format!("loop `{name}` has more iterations than {lanes} lanes"));
            }
            (ThreadLevel::Lane, Some(_)) => {}
        }
    });
    match refused {
        Some(reason) => Err(FlattenError::of(nest.func, "", reason)),
        None => Ok(threads),
    }
}

/// The loops of threads around a statement, each with its extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Around {
    pub(super) warp: Option<(Var, u32)>,
    pub(super) lane: Option<(Var, u32)>,
}

impl Around {
    /// What is around the body of a loop.
    pub(super) fn enter(mut self, l: &Loop<'_>) -> Around {
        let bound = Some((l.var, l.end.as_int().and_then(|n| u32::try_from(n).ok()).unwrap_or(0)));
        match l.kind {
            LoopKind::Thread(ThreadLevel::Warp) => self.warp = bound,
            LoopKind::Thread(ThreadLevel::Lane) => self.lane = bound,
            LoopKind::Serial | LoopKind::Vectorized | LoopKind::Unrolled => {}
        }
        self
    }

    /// The threads, by warp and lane, that run a statement: the first of a level that no loop is around for, or all of it
    /// where the statement is for everyone.
    pub(super) fn threads(self, all: Threads, everyone: bool) -> Vec<(u32, u32)> {
        let many = |bound: Option<(Var, u32)>, all: u32| match bound {
            Some((_, extent)) => extent,
            None if everyone => all,
            None => 1,
        };
        let lanes = many(self.lane, all.lanes);
        (0..many(self.warp, all.warps)).flat_map(|warp| (0..lanes).map(move |lane| (warp, lane))).collect()
    }

    /// What a variable of these loops is in a thread.
    pub(super) fn value(self, var: Var, (warp, lane): (u32, u32)) -> Option<i64> {
        let is = |bound: Option<(Var, u32)>| bound.is_some_and(|(own, _)| own == var);
        if is(self.warp) {
            Some(i64::from(warp))
        } else if is(self.lane) {
            Some(i64::from(lane))
        } else {
            None
        }
    }
}

/// Register buffers that are dealt out: loops of threads index them.
pub(super) fn dealt(nest: &Nest<'_>) -> FxHashSet<Buffer> {
    let mut vars: FxHashMap<Var, ThreadLevel> = FxHashMap::default();
    nest::for_each_loop(&nest.body, &mut |l| {
        if let LoopKind::Thread(level) = l.kind {
            vars.insert(l.var, level);
        }
    });
    let by_thread = |index: &Expr| index.any(&mut |e| e.as_var().is_some_and(|var| vars.contains_key(&var)));
    let mut found = FxHashSet::default();
    if vars.is_empty() {
        return found;
    }
    for_each_access(&nest.body, &mut |buffer, indices| {
        if nest.func.buffers[buffer].scope == Scope::Register && indices.iter().any(by_thread) {
            found.insert(buffer);
        }
    });
    found
}

/// Whether all threads do what is done outside of their loops: it writes registers that every thread has for itself.
pub(super) fn is_for_everyone(nest: &Nest<'_>, dealt: &FxHashSet<Buffer>, stores: &Stores<'_>) -> bool {
    let is_own =
        |buffer: Buffer| nest.func.buffers[buffer].scope == Scope::Register && !dealt.contains(&buffer);
    stores.stores.iter().all(|store| is_own(store.buffer))
}

fn for_each_access(stmts: &[Stmt<'_>], visit: &mut impl FnMut(Buffer, &[Expr])) {
    nest::for_each(stmts, &mut |stmt| {
        let Stmt::Stores(stores) = stmt else { return };
        for store in &stores.stores {
            visit(store.buffer, &store.indices);
            for e in store.indices.iter().chain([&store.value]) {
                e.walk(&mut |x| {
                    if let ExprKind::Load(buffer, indices) = x.kind() {
                        visit(*buffer, indices);
                    }
                });
            }
        }
    });
}
