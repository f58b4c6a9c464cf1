//! Loop nests: what the passes between functions and kernels rewrite.
//!
//! A [`Nest`] is the program of one kernel: loops, branches and blocks of a scheduled [`Func`], whose variables and
//! buffers it names. Unlike a function it has branches, masks, and loops that begin anywhere, so that the choices of
//! lowering are statements that can be printed and checked.
//!
//! Meaning: run the body in order for each task.
//! - A serial loop runs its variable from `begin` to `end` (exclusive), and not at all unless `end` is above `begin`.
//! - A vectorized loop runs its body once. Its variable has all values from 0 to `end`, one a lane: statements that use
//!   it are done for all lanes, one statement after the other; those that do not are done once.
//! - Iterations of a loop of threads are run by threads of the task, as in a function. Every statement is for all threads; a
//!   block outside of such loops is done by the first thread, or by all of them where it writes registers that are not
//!   dealt out (`threads`).
//! - An unrolled loop is a serial one that must go before kernels are made.
//! - A fact of a body holds wherever the body runs, and is there for the simplifier: no branch tests it. The bounds of a
//!   loop may rely on the fact of its body, since nothing runs where they are not in order.
//! - What is masked is done for lanes whose mask is true, and reads and writes nothing in the others.
//! - A block is as in a function. Stores are a block whose variables are replaced: indices and values over loop
//!   variables, done in order.

mod text;
mod verify;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::expr::{Buffer, Expr, Var};
use crate::func::{self, Func, Prefetch, Store, ThreadLevel};

/// The program of one kernel.
#[derive(Clone, Debug)]
pub struct Nest<'a> {
    /// Names, types and scopes of variables and buffers.
    pub func: &'a Func,
    /// The kernel's name.
    pub name: String,
    /// Buffers that its blocks load from.
    pub read: FxHashSet<Buffer>,
    /// Buffers that its blocks store to.
    pub written: FxHashSet<Buffer>,
    /// What makes tasks.
    pub tasks: Tasks,
    /// Shared buffers of which there are several versions, one after the other, and how many.
    pub versions: FxHashMap<Buffer, u32>,
    /// The statements of a task.
    pub body: Vec<Stmt<'a>>,
}

/// How far a nest has come; each form demands what those before demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Taken from the function.
    Split,
    /// No loop is unrolled, and vectorized loops have several lanes and are in no other.
    Unrolled,
    /// No block has a predicate.
    Masked,
    /// There are stores in place of blocks.
    Bound,
}

/// The loops whose iterations are tasks.
#[derive(Clone, Debug)]
pub enum Tasks {
    /// None: there is one task.
    Single,
    /// One loop.
    Shared(Counter),
    /// Tasks are numbered round by round.
    Rounds {
        /// The loop of rounds.
        rounds: Counter,
        /// The loop of the tasks of a round.
        shared: Counter,
        /// Whether a round begins only when the one before has ended.
        in_order: bool,
    },
}

/// A variable from 0 to an extent.
#[derive(Clone, Debug)]
pub struct Counter {
    /// The variable.
    pub var: Var,
    /// How many values it has, over sizes.
    pub extent: Expr,
}

/// A statement.
#[derive(Clone, Debug)]
pub enum Stmt<'a> {
    /// A loop.
    Loop(Loop<'a>),
    /// A branch.
    If(If<'a>),
    /// Statements for some lanes.
    Masked(Masked<'a>),
    /// A block of the function.
    Block(Block<'a>),
    /// What is left of a block.
    Stores(Stores<'a>),
    /// A hint.
    Prefetch(Prefetch),
    /// All threads of the task arrive here before any goes on.
    Barrier,
    /// Copies to shared memory that the thread need not wait for, if it is left to its kernel: they are there when it has waited
    /// for their group.
    Copies(Vec<Stmt<'a>>),
    /// Makes a group of this thread's copies that are in none.
    CommitCopies,
    /// Waits for all groups of this thread's copies but so many of the youngest.
    WaitCopies(u32),
}

/// A counted loop.
#[derive(Clone, Debug)]
pub struct Loop<'a> {
    /// The counter.
    pub var: Var,
    /// Its first value.
    pub begin: Expr,
    /// The loop ends before this value.
    pub end: Expr,
    /// How it runs; only serial loops begin elsewhere than at 0.
    pub kind: LoopKind,
    /// How many iterations the copies at the beginning of its body are to be ahead, and one; `pipeline` leaves 1.
    pub stages: u32,
    /// What an iteration does.
    pub body: Body<'a>,
}

/// How a loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    /// One iteration after the other.
    Serial,
    /// Iterations are lanes.
    Vectorized,
    /// The body is to be repeated.
    Unrolled,
    /// Iterations are threads.
    Thread(ThreadLevel),
}

/// `if condition { then } else { otherwise }`.
#[derive(Clone, Debug)]
pub struct If<'a> {
    /// The same for all lanes.
    pub condition: Expr,
    /// Done where it holds.
    pub then: Body<'a>,
    /// Done where it does not.
    pub otherwise: Body<'a>,
}

/// Statements with what is known where they run.
#[derive(Clone, Debug, Default)]
pub struct Body<'a> {
    /// Holds here.
    pub fact: Option<Expr>,
    /// The statements.
    pub stmts: Vec<Stmt<'a>>,
}

/// Statements done for the lanes of the vectorized loop around for which `mask` holds.
#[derive(Clone, Debug)]
pub struct Masked<'a> {
    /// The condition of a lane.
    pub mask: Expr,
    /// The statements.
    pub stmts: Vec<Stmt<'a>>,
}

/// A block of the function.
#[derive(Clone, Debug)]
pub struct Block<'a> {
    /// Its name, variables and stores.
    pub source: &'a func::Block,
    /// The value of each of its variables, over loop variables.
    pub values: Vec<Expr>,
    /// It does nothing where this is false.
    pub predicate: Option<Expr>,
}

/// Stores of a block over loop variables.
#[derive(Clone, Debug)]
pub struct Stores<'a> {
    /// The block's name.
    pub block: &'a str,
    /// In the order in which they are done.
    pub stores: Vec<Store>,
}

impl Nest<'_> {
    /// The counters of tasks, outermost first.
    pub fn counters(&self) -> impl Iterator<Item = &Counter> {
        let (first, second) = match &self.tasks {
            Tasks::Single => (None, None),
            Tasks::Shared(counter) => (Some(counter), None),
            Tasks::Rounds { rounds, shared, .. } => (Some(rounds), Some(shared)),
        };
        first.into_iter().chain(second)
    }
}

impl Loop<'_> {
    /// Number of iterations, where that is positive.
    pub fn extent(&self) -> Expr {
        self.end.clone() - self.begin.clone()
    }
}

impl<'a> Body<'a> {
    /// Statements of which nothing more is known.
    pub fn new(stmts: Vec<Stmt<'a>>) -> Body<'a> {
        Body { fact: None, stmts }
    }

    /// Statements where a condition holds.
    pub fn under(fact: Expr, stmts: Vec<Stmt<'a>>) -> Body<'a> {
        Body { fact: Some(fact), stmts }
    }
}

impl Block<'_> {
    /// The value of one of its variables.
    pub fn value_of(&self, var: Var) -> Option<Expr> {
        self.source.iters.iter().zip(&self.values).find(|(iter, _)| iter.var == var).map(|(_, v)| v.clone())
    }
}

impl<'a> Stmt<'a> {
    /// The lists of statements directly inside.
    pub(super) fn lists(&self) -> impl Iterator<Item = &[Stmt<'a>]> {
        let (first, second): (Option<&[Stmt<'a>]>, Option<&[Stmt<'a>]>) = match self {
            Stmt::Loop(l) => (Some(&l.body.stmts), None),
            Stmt::If(branch) => (Some(&branch.then.stmts), Some(&branch.otherwise.stmts)),
            Stmt::Masked(Masked { stmts, .. }) | Stmt::Copies(stmts) => (Some(stmts), None),
            Stmt::Block(_) | Stmt::Stores(_) | Stmt::Prefetch(_) => (None, None),
            Stmt::Barrier | Stmt::CommitCopies | Stmt::WaitCopies(_) => (None, None),
        };
        first.into_iter().chain(second)
    }
}

/// Calls `visit` on every statement, outer before inner.
pub(super) fn for_each<'s, 'a>(stmts: &'s [Stmt<'a>], visit: &mut impl FnMut(&'s Stmt<'a>)) {
    for stmt in stmts {
        visit(stmt);
        for list in stmt.lists() {
            for_each(list, visit);
        }
    }
}

/// Calls `visit` on every loop, outer before inner.
pub(super) fn for_each_loop<'s, 'a>(stmts: &'s [Stmt<'a>], visit: &mut impl FnMut(&'s Loop<'a>)) {
    for_each(stmts, &mut |stmt| {
        if let Stmt::Loop(l) = stmt {
            visit(l);
        }
    });
}

/// Calls `visit` on every block.
pub(super) fn for_each_block<'s, 'a>(stmts: &'s [Stmt<'a>], visit: &mut impl FnMut(&'s Block<'a>)) {
    for_each(stmts, &mut |stmt| {
        if let Stmt::Block(block) = stmt {
            visit(block);
        }
    });
}

/// Whether something is done under a condition: a branch, or a block with a predicate.
pub(super) fn has_guards(stmts: &[Stmt<'_>]) -> bool {
    let mut found = false;
    for_each(stmts, &mut |stmt| match stmt {
        Stmt::Block(block) => found |= block.predicate.is_some(),
        stmt => found |= matches!(stmt, Stmt::If(_)),
    });
    found
}

/// Whether threads of a task share what is done.
pub(super) fn has_threads(stmts: &[Stmt<'_>]) -> bool {
    let mut found = false;
    for_each_loop(stmts, &mut |l| found |= matches!(l.kind, LoopKind::Thread(_)));
    found
}

/// Takes the hints from the beginning of a list: they stand before all else that an iteration does.
pub(super) fn split_hints<'a>(mut stmts: Vec<Stmt<'a>>) -> (Vec<Stmt<'a>>, Vec<Stmt<'a>>) {
    let n = stmts.iter().take_while(|stmt| matches!(stmt, Stmt::Prefetch(_))).count();
    let rest = stmts.split_off(n);
    (stmts, rest)
}
