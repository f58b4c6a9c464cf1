//! From a scheduled function to kernels, by named passes over loop nests: the last step before code generation.
//!
//! [`flatten`] is the pipeline; each pass is a file of its name. All of them leave alone what a schedule has decided: no
//! loop is reordered, split or vectorized here. Loads and stores stay where the schedule has them, under their guards.

mod bind_blocks;
mod error;
mod hoist;
mod join_indices;
mod known;
mod mask_vectors;
pub mod nest;
mod options;
mod partition;
mod poly;
mod split_kernels;
mod translate;
mod unroll;
mod unswitch;
mod whole_tiles;

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

pub use self::bind_blocks::bind_blocks;
pub use self::error::FlattenError;
pub use self::hoist::hoist;
pub use self::join_indices::join_indices;
pub use self::mask_vectors::{mask_vectors, masks};
use self::nest::{Form, Nest};
pub use self::options::FlattenOptions;
pub use self::partition::partition;
pub use self::split_kernels::split_kernels;
pub use self::translate::{FlatKernel, translate};
pub use self::unroll::unroll;
pub use self::unswitch::unswitch;
pub use self::whole_tiles::whole_tiles;
use crate::func::Func;
use crate::kernel::Kernel;
use crate::schedule::start_apart;
use crate::verify::{Stage, verify};

/// The passes, in their order.
pub const PASSES: [&str; 11] = [
    "start_apart",
    "split_kernels",
    "unswitch",
    "whole_tiles",
    "partition",
    "unroll",
    "mask_vectors",
    "bind_blocks",
    "join_indices",
    "translate",
    "hoist",
];

/// What a pass has made: a thing with a text form, and with rules that can be checked ([`Made::verify`]).
#[derive(Clone, Copy, Debug)]
pub enum Made<'a> {
    /// A function.
    Func(&'a Func),
    /// A loop nest, and what passes so far have made sure of.
    Nest(&'a Nest<'a>, Form),
    /// A kernel.
    Kernel(&'a Kernel),
}

impl Made<'_> {
    /// Checks what this must fulfil before the next pass.
    ///
    /// # Errors
    /// All violations.
    pub fn verify(&self) -> Result<(), Vec<String>> {
        match self {
            Made::Func(func) => {
                let violations = verify(func, Stage::Flattenable);
                let texts: Vec<String> = violations.iter().map(ToString::to_string).collect();
                if texts.is_empty() { Ok(()) } else { Err(texts) }
            }
            Made::Nest(nest, form) => nest.verify(*form),
            Made::Kernel(kernel) => kernel.verify(),
        }
    }
}

impl Display for Made<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Made::Func(func) => func.fmt(f),
            Made::Nest(nest, _) => nest.fmt(f),
            Made::Kernel(kernel) => kernel.fmt(f),
        }
    }
}

/// The kernels of a function, in the order in which they must run.
///
/// The function must be in *scheduled* form with intrinsics expanded (`crate::math`).
///
/// # Errors
/// Where a vectorized or unrolled loop has no constant extent, a register is indexed by a variable or read
/// before it is written, or a parallel loop is not outermost.
pub fn flatten(func: &Func, options: &FlattenOptions) -> Result<Vec<FlatKernel>, FlattenError> {
    flatten_watched(func, options, &mut |_, _| {})
}

/// [`flatten`], with what each of [`PASSES`] makes shown to `watch`; all but the first run once for each kernel.
///
/// # Errors
/// As [`flatten`].
pub fn flatten_watched(
    func: &Func,
    options: &FlattenOptions,
    watch: &mut dyn FnMut(&'static str, Made<'_>),
) -> Result<Vec<FlatKernel>, FlattenError> {
    // Before kernels are told apart: the start of a reduction may lie in another one than its steps.
    let func: Cow<'_, Func> = start_apart(func).map_err(|e| FlattenError::of(func, "", e.to_string()))?;
    watch("start_apart", Made::Func(&func));

    let mut kernels = Vec::new();
    for mut nest in split_kernels(&func)? {
        watch("split_kernels", Made::Nest(&nest, Form::Split));
        // These look for tiles and innermost loops as they were scheduled, so loops are unrolled afterwards. Branches
        // come from the outside in: what a tile or a part of a loop is decided by is not asked inside again.
        unswitch(&mut nest);
        watch("unswitch", Made::Nest(&nest, Form::Split));
        whole_tiles(&mut nest);
        watch("whole_tiles", Made::Nest(&nest, Form::Split));
        partition(&mut nest);
        watch("partition", Made::Nest(&nest, Form::Split));

        unroll(&mut nest)?;
        watch("unroll", Made::Nest(&nest, Form::Unrolled));
        // A predicate is simpler for an iteration than for all of an unrolled loop.
        mask_vectors(&mut nest, options);
        watch("mask_vectors", Made::Nest(&nest, Form::Masked));
        // The only step that simplifies what blocks compute: after everything that repeats them.
        bind_blocks(&mut nest)?;
        watch("bind_blocks", Made::Nest(&nest, Form::Bound));
        join_indices(&mut nest);
        watch("join_indices", Made::Nest(&nest, Form::Bound));

        let mut flat = translate(&nest, options)?;
        watch("translate", Made::Kernel(&flat.kernel));
        hoist(&mut flat.kernel);
        watch("hoist", Made::Kernel(&flat.kernel));
        kernels.push(flat);
    }
    Ok(kernels)
}
