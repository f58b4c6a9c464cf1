//! `unroll`, `vectorize`, `parallel`, `bind`: how a loop runs.

use serde::{Deserialize, Serialize};

use crate::func::{Func, LoopKind, ThreadLevel};
use crate::schedule::{Apply, ScheduleError, bindings, tree};

/// Repeats the body of a loop of constant extent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unroll {
    /// The loop.
    pub loop_name: String,
}

/// Makes iterations the lanes of vectors. The extent is constant and no block accumulates over the loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vectorize {
    /// The loop.
    pub loop_name: String,
}

/// Makes iterations tasks that threads take. The loop is outermost and its iterations are independent; or it is alone
/// inside such a loop, and threads share its iterations, each keeping its part in all iterations of the outer; or it is alone inside
/// an outermost serial loop, whose iterations are rounds then: one begins when all tasks of the one before have ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parallel {
    /// The loop.
    pub loop_name: String,
}

/// Makes iterations threads of a task. The extent is constant, the iterations are independent, and no other loop around
/// or inside is of the same level; the loop is inside the loops of tasks and outside of vectorized ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bind {
    /// The loop.
    pub loop_name: String,
    /// Which threads.
    pub level: ThreadLevel,
}

/// Most iterations that loops other than parallel ones may have.
const MAX_CONSTANT_EXTENT: i64 = 1024;

/// Finds a serial loop and sets its kind; loops other than parallel ones need a small constant extent.
fn set_kind(
    func: &mut Func,
    primitive: &'static str,
    name: &str,
    kind: LoopKind,
) -> Result<(), ScheduleError> {
    let fail = |reason: String| Err(ScheduleError::new(primitive, name, reason));
    let path = tree::find_loop(func, primitive, name)?;
    let Some(l) = tree::loop_at(func, &path) else { return Ok(()) };
    if l.kind != LoopKind::Serial {
        return fail(format!("the loop is already {:?}", l.kind));
    }
    if l.stages > 1 {
        return fail("the loop is pipelined".into());
    }
    if !l.prefetches.is_empty() && matches!(kind, LoopKind::Vectorized | LoopKind::Thread(_)) {
        return fail("the loop prefetches".into());
    }
    match kind {
        LoopKind::Parallel => {
            if !tree::may_be_parallel(func, &path) {
                return fail("only an outermost loop can be parallel, or the one alone inside it".into());
            }
        }
        LoopKind::Vectorized | LoopKind::Unrolled | LoopKind::Thread(_) => match l.extent.as_int() {
            None => return fail(format!("the extent {:?} is not constant", l.extent)),
            Some(extent) if extent > MAX_CONSTANT_EXTENT => {
                return fail(format!("the extent {extent} exceeds {MAX_CONSTANT_EXTENT}"));
            }
            Some(_) => {}
        },
        LoopKind::Serial => {}
    }
    if kind == LoopKind::Vectorized {
        let mut nested = None;
        tree::for_each_loop(&l.body, &mut |inner| {
            if inner.kind == LoopKind::Vectorized {
                nested = Some(func.vars[inner.var].name.clone());
            }
        });
        let around = tree::loops_above(func, &path).into_iter().find(|l| l.kind == LoopKind::Vectorized);
        if let Some(other) = nested.or(around.map(|l| func.vars[l.var].name.clone())) {
            return fail(format!("`{other}` of the same nest is vectorized"));
        }
    }
    if matches!(kind, LoopKind::Vectorized | LoopKind::Parallel | LoopKind::Thread(_))
        && let Some(conflict) = bindings::conflict(func, &path, kind)
    {
        return fail(conflict.to_string());
    }
    if let Some(l) = tree::loop_at_mut(func, &path) {
        l.kind = kind;
    }
    Ok(())
}

impl Apply for Unroll {
    const NAME: &'static str = "unroll";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        set_kind(func, Self::NAME, &self.loop_name, LoopKind::Unrolled).map(|()| Vec::new())
    }
}

impl Apply for Vectorize {
    const NAME: &'static str = "vectorize";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        set_kind(func, Self::NAME, &self.loop_name, LoopKind::Vectorized).map(|()| Vec::new())
    }
}

impl Apply for Parallel {
    const NAME: &'static str = "parallel";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        set_kind(func, Self::NAME, &self.loop_name, LoopKind::Parallel).map(|()| Vec::new())
    }
}

impl Apply for Bind {
    const NAME: &'static str = "bind";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        set_kind(func, Self::NAME, &self.loop_name, LoopKind::Thread(self.level)).map(|()| Vec::new())
    }
}
