//! Threads of a nest: how many there are, and which of them run a statement.

use rustc_hash::{FxHashMap, FxHashSet};

use super::error::FlattenError;
use super::nest::{self, Loop, LoopKind, Nest, Stmt, Stores};
use super::options::FlattenOptions;
use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::{Func, Scope, ThreadLevel};
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

    /// The loop of a level.
    pub(super) fn of(self, level: ThreadLevel) -> Option<(Var, u32)> {
        match level {
            ThreadLevel::Warp => self.warp,
            ThreadLevel::Lane => self.lane,
        }
    }

    /// The threads, by warp and lane, that run a statement: the first of a level that no loop is around for, or all of it
    /// where the statement is for everyone.
    pub(super) fn threads(self, all: Threads, everyone: [bool; 2]) -> Vec<(u32, u32)> {
        let many = |bound: Option<(Var, u32)>, all: u32, everyone: bool| match bound {
            Some((_, extent)) => extent,
            None if everyone => all,
            None => 1,
        };
        let lanes = many(self.lane, all.lanes, everyone[1]);
        (0..many(self.warp, all.warps, everyone[0]))
            .flat_map(|warp| (0..lanes).map(move |lane| (warp, lane)))
            .collect()
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

/// Register buffers that are dealt out to threads.
#[derive(Debug, Default)]
pub(super) struct Dealt {
    /// By level.
    to: [FxHashSet<Buffer>; 2],
}

impl Dealt {
    /// The buffers that loops of threads index, or that some thread writes and another place reads.
    pub(super) fn of(nest: &Nest<'_>) -> Dealt {
        let uses = uses_of(nest);
        let of_level = |level: ThreadLevel| {
            let is_dealt = |(buffer, uses): &(&Buffer, &Vec<Use>)| {
                let writes = uses.iter().any(|of| of.writes && of.around.of(level).is_some());
                let is_indexed = || uses.iter().any(|of| of.is_by[index_of(level)]);
                let is_register = nest.func.buffers[**buffer].scope == Scope::Register;
                is_register && (writes && leaves(uses, level) || is_indexed())
            };
            uses.iter().filter(is_dealt).map(|(&buffer, _)| buffer).collect()
        };
        Dealt { to: LEVELS.map(of_level) }
    }

    /// Whether threads of some level hold different elements of a buffer.
    pub(super) fn contains(&self, buffer: Buffer) -> bool {
        self.to.iter().any(|dealt| dealt.contains(&buffer))
    }

    /// Whether elements are dealt out to lanes alone: every warp has all of them, and does what writes them outside of loops over warps.
    pub(super) fn is_of_every_warp(&self, buffer: Buffer) -> bool {
        let [to_warps, to_lanes] = &self.to;
        to_lanes.contains(&buffer) && !to_warps.contains(&buffer)
    }

    /// By level, whether all threads do what is done outside of its loops: it writes registers that each of them has for itself.
    pub(super) fn is_for_everyone(&self, func: &Func, stores: &Stores<'_>) -> [bool; 2] {
        let all = |is_own: &dyn Fn(Buffer) -> bool| {
            let mut buffers = stores.stores.iter().map(|store| store.buffer);
            buffers.all(|buffer| func.buffers[buffer].scope == Scope::Register && is_own(buffer))
        };
        let is_own = |buffer| !self.contains(buffer);
        [all(&|buffer| is_own(buffer) || self.is_of_every_warp(buffer)), all(&is_own)]
    }
}

/// An array on the stack that several loops of threads use, or what is outside of them: every thread would have another one.
pub(super) fn torn_array(nest: &Nest<'_>, threads: Threads) -> Option<Buffer> {
    let several = |level: &ThreadLevel| match level {
        ThreadLevel::Warp => threads.warps > 1,
        ThreadLevel::Lane => threads.lanes > 1,
    };
    let is_torn = |(buffer, uses): &(Buffer, Vec<Use>)| {
        let is_stack = nest.func.buffers[*buffer].scope == Scope::Stack;
        is_stack && LEVELS.into_iter().filter(several).any(|level| leaves(uses, level))
    };
    let torn = uses_of(nest).into_iter().filter(is_torn).map(|(buffer, _)| buffer);
    torn.min()
}

const LEVELS: [ThreadLevel; 2] = [ThreadLevel::Warp, ThreadLevel::Lane];

fn index_of(level: ThreadLevel) -> usize {
    match level {
        ThreadLevel::Warp => 0,
        ThreadLevel::Lane => 1,
    }
}

/// Whether not all accesses are in the same loop of a level, or all in none.
fn leaves(uses: &[Use], level: ThreadLevel) -> bool {
    let first = uses.first().and_then(|first| first.around.of(level));
    uses.iter().any(|of| of.around.of(level) != first)
}

/// The accesses of buffers that are local to a thread.
fn uses_of(nest: &Nest<'_>) -> FxHashMap<Buffer, Vec<Use>> {
    let mut uses = Uses { nest, vars: Default::default(), of: FxHashMap::default() };
    uses.stmts(&nest.body, Around::default());
    uses.of
}

/// An access of a buffer that is local to a thread.
struct Use {
    writes: bool,
    around: Around,
    /// By level, whether a loop of threads indexes it.
    is_by: [bool; 2],
}

struct Uses<'u, 'n> {
    nest: &'u Nest<'n>,
    /// Variables of loops of threads, by level.
    vars: [FxHashSet<Var>; 2],
    of: FxHashMap<Buffer, Vec<Use>>,
}

impl Uses<'_, '_> {
    fn stmts(&mut self, stmts: &[Stmt<'_>], around: Around) {
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => {
                    if let LoopKind::Thread(level) = l.kind {
                        self.vars[index_of(level)].insert(l.var);
                    }
                    self.stmts(&l.body.stmts, around.enter(l));
                }
                Stmt::If(_) | Stmt::Masked(_) | Stmt::Copies(_) => {
                    stmt.lists().for_each(|list| self.stmts(list, around));
                }
                Stmt::Stores(stores) => self.stores(stores, around),
                Stmt::Block(_) | Stmt::Prefetch(_) | Stmt::Barrier => {}
                Stmt::CommitCopies | Stmt::WaitCopies(_) => {}
            }
        }
    }

    fn stores(&mut self, stores: &Stores<'_>, around: Around) {
        for store in &stores.stores {
            self.access(store.buffer, &store.indices, true, around);
            for e in store.indices.iter().chain([&store.value]) {
                e.walk(&mut |x| {
                    if let ExprKind::Load(buffer, indices) = x.kind() {
                        self.access(*buffer, indices, false, around);
                    }
                });
            }
        }
    }

    fn access(&mut self, buffer: Buffer, indices: &[Expr], writes: bool, around: Around) {
        let is_local = match self.nest.func.buffers[buffer].scope {
            Scope::Stack | Scope::Register => true,
            Scope::Global | Scope::Shared => false,
        };
        if is_local {
            let is_by = self.vars.each_ref().map(|vars| {
                let is_thread = |e: &Expr| e.as_var().is_some_and(|var| vars.contains(&var));
                indices.iter().any(|index| index.any(&mut |e| is_thread(e)))
            });
            self.of.entry(buffer).or_default().push(Use { writes, around, is_by });
        }
    }
}
