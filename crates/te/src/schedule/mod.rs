//! Schedules: how a function's loops are rearranged without changing what it computes.
//!
//! A [`Schedule`] owns a function and edits it by primitives, one file each. A primitive is a serialisable
//! value ([`Primitive`]) and a total function: it checks everything first, fails with a [`ScheduleError`] that
//! names the loop or block and the reason, and only then edits; a failed primitive leaves the function as it
//! was. Loops and blocks are named by text (a loop by its variable's name), never by arena ids, and names of
//! what a primitive makes are a function of the names it was given. So the trace of applied primitives replays
//! on a freshly built function and can be stored.
//!
//! Law: no primitive changes results, up to the reassociation that a commutative reduction allows.
//! Predicates say only that iteration variables are inside their domains; primitives that bind iteration
//! variables anew rely on this and make predicates anew.

mod adopt;
mod apply;
pub(crate) mod bindings;
mod cache;
mod cache_inplace;
mod collapse_dims;
pub mod compact;
mod compute_at;
mod compute_with;
mod decompose_reduction;
mod error;
mod expand_dim;
mod fuse;
mod inline;
mod kinds;
mod pad_einsum;
mod pipeline;
mod prefetch;
mod query;
pub(crate) mod region;
mod reindex;
mod reorder;
mod reverse_compute_at;
mod reverse_compute_inline;
mod rfactor;
mod serial;
mod set_scope;
mod split;
mod split_iter;
mod starts;
mod storage_align;
mod tile;
mod transform_layout;
pub(crate) mod tree;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::func::{Func, Scope, ThreadLevel};
use crate::verify::{self, Illegal, Stage};

pub(crate) use apply::Apply;
pub use cache::{CacheRead, CacheWrite};
pub use cache_inplace::CacheInplace;
pub use collapse_dims::CollapseDims;
pub use compute_at::ComputeAt;
pub use compute_with::ComputeWith;
pub use decompose_reduction::DecomposeReduction;
pub use error::ScheduleError;
pub use expand_dim::ExpandDim;
pub use fuse::Fuse;
pub use inline::ComputeInline;
pub use kinds::{Bind, Parallel, Unroll, Vectorize};
pub use pad_einsum::PadEinsum;
pub use pipeline::Pipeline;
pub(crate) use pipeline::is_stages;
pub use prefetch::Prefetch;
pub use query::{BlockInfo, LoopInfo};
pub use region::{Digit, footprint};
pub use reindex::Reindex;
pub use reorder::Reorder;
pub use reverse_compute_at::ReverseComputeAt;
pub use reverse_compute_inline::ReverseComputeInline;
pub use rfactor::{Rfactor, indivisible};
pub use serial::threads_as_loops;
pub use set_scope::SetScope;
pub use split::Split;
pub use split_iter::SplitIter;
pub use starts::start_apart;
pub use storage_align::StorageAlign;
pub use tile::Tile;
pub use transform_layout::{Padding, Piece, TransformLayout, relaid};

macro_rules! primitives {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A schedule primitive as a value.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum Primitive {
            $($(#[$doc])* $name($name),)*
        }

        /// Which primitive it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum PrimitiveKind {
            $($(#[$doc])* $name,)*
        }

        impl PrimitiveKind {
            /// Every kind.
            pub const ALL: &[PrimitiveKind] = &[$(PrimitiveKind::$name,)*];
        }

        $(impl From<$name> for Primitive {
            fn from(primitive: $name) -> Primitive {
                Primitive::$name(primitive)
            }
        })*

        impl Primitive {
            /// Which primitive it is.
            pub fn kind(&self) -> PrimitiveKind {
                match self {
                    $(Primitive::$name(_) => PrimitiveKind::$name,)*
                }
            }

            /// The primitive's name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Primitive::$name(_) => <$name as Apply>::NAME,)*
                }
            }

            fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
                match self {
                    $(Primitive::$name(primitive) => primitive.apply(func),)*
                }
            }
        }
    };
}

primitives! {
    /// Loop into nested loops.
    Split,
    /// Nested loops into one.
    Fuse,
    /// Order of nested loops.
    Reorder,
    /// Splits and a reorder.
    Tile,
    /// Loop body repeated.
    Unroll,
    /// Iterations as lanes.
    Vectorize,
    /// Iterations as tasks.
    Parallel,
    /// Iterations as threads.
    Bind,
    /// Producer into its consumers' expressions.
    ComputeInline,
    /// Consumer into its producer's store.
    ReverseComputeInline,
    /// Producer under a loop of its consumers.
    ComputeAt,
    /// Consumer under a loop of its producers.
    ReverseComputeAt,
    /// Two loops after one another into one.
    ComputeWith,
    /// A copy of what a block reads.
    CacheRead,
    /// A copy of what a block reads, by the block's variables.
    Reindex,
    /// A copy of what a block writes.
    CacheWrite,
    /// A copy of what a block accumulates in.
    CacheInplace,
    /// Where a buffer lives.
    SetScope,
    /// How far apart the rows of a task's array lie.
    StorageAlign,
    /// A reduction's start as a block of its own.
    DecomposeReduction,
    /// The order of a buffer's elements.
    TransformLayout,
    /// Two dimensions of buffers into one.
    CollapseDims,
    /// A dimension of buffers into two.
    ExpandDim,
    /// A block's variable into two.
    SplitIter,
    /// A block's domain to multiples of factors.
    PadEinsum,
    /// A reduction into partial results.
    Rfactor,
    /// Hints for the next iteration of an outer loop.
    Prefetch,
    /// Copies of later iterations while earlier ones are computed.
    Pipeline,
}

/// Why a schedule has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FinishError {
    /// Local buffers cannot be made as small as what is live.
    #[error(transparent)]
    Refused(#[from] ScheduleError),
    /// A primitive broke a rule: its defect.
    #[error(transparent)]
    Illegal(#[from] Illegal),
}

/// A function and what was done to it.
#[derive(Clone, Debug)]
pub struct Schedule {
    func: Func,
    trace: Vec<Primitive>,
    /// What the schedule began with: if the end is illegal, the primitive that made it so is looked for from there.
    original: Arc<Func>,
}

impl Schedule {
    /// A schedule that has done nothing yet.
    pub fn new(func: Func) -> Schedule {
        let original = Arc::new(func.clone());
        Schedule { func, trace: Vec::new(), original }
    }

    /// Applies the primitives of a trace to a fresh function, in order.
    pub fn replay(func: Func, trace: &[Primitive]) -> Result<Schedule, ScheduleError> {
        let mut schedule = Schedule::new(func);
        for primitive in trace {
            schedule.apply(primitive.clone())?;
        }
        Ok(schedule)
    }

    /// The function as it is now.
    pub fn func(&self) -> &Func {
        &self.func
    }

    /// The primitives applied so far.
    pub fn trace(&self) -> &[Primitive] {
        &self.trace
    }

    /// Ends scheduling: buffers that are not global shrink to what is live at a time, with indices relative to
    /// it ([`compact`]). The result is verified.
    pub fn finish(self) -> Result<Func, FinishError> {
        self.finish_for(Stage::Scheduled)
    }

    /// As [`Schedule::finish`], for what demands more of the function than that it is scheduled.
    pub fn finish_for(mut self, stage: Stage) -> Result<Func, FinishError> {
        compact::compact(&mut self.func)?;
        check_finished(&self.original, &self.trace, &self.func, stage)?;
        Ok(self.func)
    }

    /// Applies a primitive and adds it to the trace. Returns the names of loops or blocks it made.
    pub fn apply(&mut self, primitive: impl Into<Primitive>) -> Result<Vec<String>, ScheduleError> {
        let primitive = primitive.into();
        let mut func = self.func.clone();
        let made = primitive.apply(&mut func)?;
        if let Some((name, reason)) = tree::misplaced_loop(&func) {
            return Err(ScheduleError::new(primitive.name(), name, reason));
        }
        self.func = func;
        self.trace.push(primitive);
        Ok(made)
    }

    /// Splits a loop into nested loops, outermost first, whose extents are `factors`; at most one is `None`
    /// and takes what is left, rounded up. Where the product exceeds the extent, blocks get a predicate.
    pub fn split(&mut self, name: &str, factors: &[Option<i64>]) -> Result<Vec<String>, ScheduleError> {
        self.apply(Split { loop_name: name.into(), factors: factors.to_vec() })
    }

    /// Makes one loop of directly nested ones, given outermost first; returns its name.
    pub fn fuse(&mut self, names: &[&str]) -> Result<String, ScheduleError> {
        Ok(self.apply(Fuse { loops: owned(names) })?.remove(0))
    }

    /// Puts loops of one nest into the given order; loops between them that are not named keep their places.
    pub fn reorder(&mut self, names: &[&str]) -> Result<(), ScheduleError> {
        self.apply(Reorder { loops: owned(names) }).map(drop)
    }

    /// Splits each loop by its factor and moves the inner loops inside all outer ones. Returns the outer
    /// loops, then the inner ones.
    pub fn tile(&mut self, names: &[&str], factors: &[i64]) -> Result<Vec<String>, ScheduleError> {
        self.apply(Tile { loops: owned(names), factors: factors.to_vec() })
    }

    /// Unrolls a loop of constant extent.
    pub fn unroll(&mut self, name: &str) -> Result<(), ScheduleError> {
        self.apply(Unroll { loop_name: name.into() }).map(drop)
    }

    /// Makes iterations of a data-parallel loop of constant extent the lanes of vectors.
    pub fn vectorize(&mut self, name: &str) -> Result<(), ScheduleError> {
        self.apply(Vectorize { loop_name: name.into() }).map(drop)
    }

    /// Makes iterations of an outermost data-parallel loop tasks, or of the one alone inside such a loop.
    pub fn parallel(&mut self, name: &str) -> Result<(), ScheduleError> {
        self.apply(Parallel { loop_name: name.into() }).map(drop)
    }

    /// Makes iterations of a data-parallel loop of constant extent threads of a task.
    pub fn bind(&mut self, name: &str, level: ThreadLevel) -> Result<(), ScheduleError> {
        self.apply(Bind { loop_name: name.into(), level }).map(drop)
    }

    /// Replaces loads of what a data-parallel block computes by the computation; the block disappears.
    pub fn compute_inline(&mut self, block: &str) -> Result<(), ScheduleError> {
        self.apply(ComputeInline { block: block.into() }).map(drop)
    }

    /// Makes the elementwise `block` part of the data-parallel block whose result it reads.
    pub fn reverse_compute_inline(&mut self, block: &str) -> Result<(), ScheduleError> {
        self.apply(ReverseComputeInline { block: block.into() }).map(drop)
    }

    /// Computes, in each iteration of the loop, what the consumers inside need of `block`'s result. Returns
    /// the new loops, one for each iteration variable of the block, in their order.
    pub fn compute_at(&mut self, block: &str, loop_name: &str) -> Result<Vec<String>, ScheduleError> {
        self.apply(ComputeAt { block: block.into(), loop_name: loop_name.into() })
    }

    /// Runs `block`, in each iteration of the loop, on what its producers inside have just computed. Returns
    /// the new loops, one for each iteration variable of the block, in their order.
    pub fn reverse_compute_at(&mut self, block: &str, loop_name: &str) -> Result<Vec<String>, ScheduleError> {
        self.apply(ReverseComputeAt { block: block.into(), loop_name: loop_name.into() })
    }

    /// Makes `block` read `buffer` through a copy in the given scope; returns the name of the copying block.
    pub fn cache_read(&mut self, block: &str, buffer: &str, scope: Scope) -> Result<String, ScheduleError> {
        Ok(self.apply(CacheRead { block: block.into(), buffer: buffer.into(), scope })?.remove(0))
    }

    /// Makes `block` read `buffer` through a copy in the given scope that has its variables `iters` for dimensions; returns the name of
    /// the copying block. See [`Reindex`].
    pub fn reindex(
        &mut self,
        block: &str,
        buffer: &str,
        iters: &[usize],
        scope: Scope,
    ) -> Result<String, ScheduleError> {
        let (block, buffer, iters) = (block.into(), buffer.into(), iters.to_vec());
        Ok(self.apply(Reindex { block, buffer, iters, scope })?.remove(0))
    }

    /// Makes `block` write a new buffer in the given scope that a new block copies to the one it wrote;
    /// returns the name of the copying block.
    pub fn cache_write(&mut self, block: &str, scope: Scope) -> Result<String, ScheduleError> {
        Ok(self.apply(CacheWrite { block: block.into(), scope })?.remove(0))
    }

    /// See [`CacheInplace`]; gives the names of the block that fills the copy and of the one that writes it back.
    pub fn cache_inplace(
        &mut self,
        block: &str,
        loop_name: &str,
        scope: Scope,
    ) -> Result<[String; 2], ScheduleError> {
        let made = self.apply(CacheInplace { block: block.into(), loop_name: loop_name.into(), scope })?;
        <[String; 2]>::try_from(made)
            .map_err(|_| ScheduleError::new("cache_inplace", block, "it made other than two blocks"))
    }

    /// Moves a temporary to a scope.
    pub fn set_scope(&mut self, buffer: &str, scope: Scope) -> Result<(), ScheduleError> {
        self.apply(SetScope { buffer: buffer.into(), scope }).map(drop)
    }

    /// Puts the rows of a task's array `offset` elements more than a multiple of `factor` apart.
    pub fn storage_align(&mut self, buffer: &str, factor: i64, offset: i64) -> Result<(), ScheduleError> {
        self.apply(StorageAlign { buffer: buffer.into(), factor, offset }).map(drop)
    }

    /// Joins a loop to the one in front of it, with which it has as many iterations; see [`ComputeWith`].
    pub fn compute_with(&mut self, loop_name: &str, with: &str) -> Result<(), ScheduleError> {
        self.apply(ComputeWith { loop_name: loop_name.into(), with: with.into() }).map(drop)
    }

    /// Makes the start of a reduction a block of its own in front of the loop; returns the new block's name.
    pub fn decompose_reduction(&mut self, block: &str, loop_name: &str) -> Result<String, ScheduleError> {
        let primitive = DecomposeReduction { block: block.into(), loop_name: loop_name.into() };
        Ok(self.apply(primitive)?.remove(0))
    }

    /// Stores a buffer in the order of `pieces`; see [`TransformLayout`].
    pub fn transform_layout(
        &mut self,
        buffer: &str,
        pieces: &[Piece],
        padding: Padding,
    ) -> Result<(), ScheduleError> {
        self.apply(TransformLayout { buffer: buffer.into(), pieces: pieces.to_vec(), padding }).map(drop)
    }

    /// Makes one dimension of two of a buffer and of all that is indexed by the same variables; see [`CollapseDims`].
    pub fn collapse_dims(&mut self, buffer: &str, dim: usize) -> Result<(), ScheduleError> {
        self.collapse_dims_within(buffer, dim, &[])
    }

    /// The same, but that it ends at some blocks.
    pub fn collapse_dims_within(
        &mut self,
        buffer: &str,
        dim: usize,
        ends: &[String],
    ) -> Result<(), ScheduleError> {
        self.apply(CollapseDims { buffer: buffer.into(), dim, ends: ends.to_vec() }).map(drop)
    }

    /// Makes two dimensions of one of a buffer, and of all that is indexed by the same variables; see [`ExpandDim`].
    pub fn expand_dim(&mut self, buffer: &str, dim: usize, inner: i64) -> Result<(), ScheduleError> {
        self.apply(ExpandDim { buffer: buffer.into(), dim, inner }).map(drop)
    }

    /// Makes two variables of one of a block, given by its position, the inner of extent `inner`; returns their loops, outermost
    /// first.
    pub fn split_iter(&mut self, block: &str, iter: usize, inner: i64) -> Result<Vec<String>, ScheduleError> {
        self.apply(SplitIter { block: block.into(), iter, inner })
    }

    /// Extends the block's iteration domain to multiples of `factors`, one for each iteration variable; see
    /// [`PadEinsum`].
    pub fn pad_einsum(&mut self, block: &str, factors: &[i64]) -> Result<(), ScheduleError> {
        self.apply(PadEinsum { block: block.into(), factors: factors.to_vec() }).map(drop)
    }

    /// Spreads over the iterations of a loop hints for what a block accesses of a buffer some iterations of a loop around it
    /// ahead.
    pub fn prefetch(&mut self, prefetch: Prefetch) -> Result<(), ScheduleError> {
        self.apply(prefetch).map(drop)
    }

    /// Has the copies to shared memory at the beginning of a loop's body run ahead; see [`Pipeline`].
    pub fn pipeline(&mut self, loop_name: &str, stages: u32) -> Result<(), ScheduleError> {
        self.apply(Pipeline { loop_name: loop_name.into(), stages }).map(drop)
    }

    /// Splits a reduction over a loop into partial results and their combination; returns the block that
    /// computes partial results.
    pub fn rfactor(&mut self, block: &str, loop_name: &str) -> Result<String, ScheduleError> {
        Ok(self.apply(Rfactor { block: block.into(), loop_name: loop_name.into() })?.remove(0))
    }
}

/// Demands what the stage demands of what a trace made of a function.
///
/// # Errors
/// Every violation, and the first primitive that left one behind.
fn check_finished(
    original: &Func,
    trace: &[Primitive],
    finished: &Func,
    stage: Stage,
) -> Result<(), Illegal> {
    let violations = verify::verify(finished, stage);
    match violations.is_empty() {
        true => Ok(()),
        false => {
            Err(Illegal { func: finished.name.clone(), after: first_illegal(original, trace), violations })
        }
    }
}

/// The first primitive of a trace that leaves an illegal function behind, else the end of the schedule.
fn first_illegal(original: &Func, trace: &[Primitive]) -> String {
    let is_illegal = |func: &Func| !verify::verify(func, Stage::Scheduled).is_empty();
    let mut schedule = Schedule::new(original.clone());
    if is_illegal(&schedule.func) {
        return "its definition".to_string();
    }
    for (n, primitive) in trace.iter().enumerate() {
        if schedule.apply(primitive.clone()).is_err() || is_illegal(&schedule.func) {
            return format!("primitive {n}, {primitive:?}");
        }
    }
    "the end of its schedule".to_string()
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| n.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expr, Stmt};
    use tilewright_dtype::DType;

    #[test]
    fn what_a_trace_did_not_make_is_found_at_its_end() {
        let mut copy = Func::new("copy");
        let shape: Vec<Expr> = vec![6.into(), 8.into()];
        let x = copy.add_input("x", DType::F32, shape.clone());
        let copied = copy.compute("copied", DType::F32, shape, |f, i| f.load(x, i.to_vec()));
        copy.promote_to_output(copied);
        let mut schedule = Schedule::new(copy.clone());
        let piece = |dim| Piece { dim, factor: None };
        schedule.transform_layout("copied", &[piece(1), piece(0)], Padding::Zero).unwrap();
        let trace = schedule.trace().to_vec();
        let mut finished = schedule.finish_for(Stage::Flattenable).unwrap();
        assert_eq!(check_finished(&copy, &trace, &finished, Stage::Flattenable), Ok(()));
        let Some(Stmt::Loop(outer)) = finished.body.first_mut() else { panic!("no loop") };
        let Some(Stmt::Loop(inner)) = outer.body.first_mut() else { panic!("no loop") };
        let Some(Stmt::Block(block)) = inner.body.first_mut() else { panic!("no block") };
        block.body[0].buffer = x;
        let illegal = check_finished(&copy, &trace, &finished, Stage::Flattenable).unwrap_err();
        assert_eq!((illegal.after.as_str(), illegal.violations.len()), ("the end of its schedule", 1));
    }
}
