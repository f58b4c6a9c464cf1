//! What happens to a function before any rule sees it.
//!
//! What only moves or combines elements becomes part of its readers ([`inline`]), row-major results of transforms are copied out of
//! vectors ([`results`]), temporaries get the layouts that follow from those of parameters ([`layouts`]), long reductions get partial
//! results ([`partial`]), and variables are parted and joined until operands depend on few of them ([`dimensions`]). Rules plan from the
//! result, and strategies apply to it.

mod dimensions;
mod inline;
mod layouts;
mod partial;
mod results;

use tilewright_machine::Target;
use tilewright_te::schedule::{Primitive, Schedule};
use tilewright_te::{Computation, Func};

use crate::layouts::Layouts;

/// A function that is ready to be planned.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The function with what was done to it so far.
    pub(crate) schedule: Schedule,
    /// The layouts of its buffers.
    pub(crate) layouts: Layouts,
}

impl Prepared {
    /// Prepares one of the functions of a computation.
    pub fn new(func: &Func, computation: &Computation, target: &Target) -> Prepared {
        let mut schedule = Schedule::new(func.clone());
        let mut layouts = Layouts::of_params(func, computation);
        inline::inline_producers(&mut schedule, target);
        results::copy_out_of_vectors(&mut schedule, &mut layouts, target);
        layouts::spread(schedule.func(), target, &mut layouts);
        layouts::of_transforms(schedule.func(), target, &mut layouts);
        partial::split_long(&mut schedule, &mut layouts, target);
        dimensions::expand_quotients(&mut schedule, &mut layouts);
        dimensions::collapse_rows(&mut schedule, &mut layouts);
        Prepared { schedule, layouts }
    }

    /// The function.
    pub fn func(&self) -> &Func {
        self.schedule.func()
    }

    /// What was done to it.
    pub fn trace(&self) -> &[Primitive] {
        self.schedule.trace()
    }
}
