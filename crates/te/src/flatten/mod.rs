//! From a scheduled function to kernels, by named passes over loop nests: the last step before code generation.
//!
//! [`flatten`] is the pipeline; each pass is a file of its name. All of them leave alone what a schedule has decided: no
//! loop is reordered, split or vectorized here. Loads and stores stay where the schedule has them, under their guards.

mod barriers;
mod bind_blocks;
mod deal;
mod error;
mod fewer_rows;
mod hoist;
mod join_elements;
mod join_indices;
mod known;
mod mask_vectors;
mod narrow;
pub mod nest;
mod options;
mod partial_tiles;
mod partition;
mod pipeline;
mod poly;
mod split_kernels;
mod threads;
mod translate;
mod transpose_gathers;
mod trim;
mod unroll;
mod unswitch;
mod whole_squares;
mod whole_tiles;

use std::borrow::Cow;
use std::fmt::{self, Display};

pub use self::barriers::barriers;
pub use self::bind_blocks::bind_blocks;
pub use self::error::FlattenError;
pub use self::hoist::hoist;
pub use self::join_elements::join_elements;
pub use self::join_indices::join_indices;
pub use self::mask_vectors::{mask_vectors, masks};
pub use self::narrow::narrow;
use self::nest::{Form, Nest};
pub use self::options::FlattenOptions;
pub use self::partial_tiles::{MAX_PARTIAL_ROWS, partial_tiles};
pub use self::partition::partition;
pub use self::pipeline::pipeline;
pub use self::split_kernels::split_kernels;
pub use self::translate::{FlatKernel, translate};
pub use self::transpose_gathers::{MAX_SQUARE, transpose_gathers};
pub use self::trim::trim;
pub use self::unroll::unroll;
pub use self::unswitch::unswitch;
pub use self::whole_squares::whole_squares;
pub use self::whole_tiles::whole_tiles;
use crate::func::Func;
use crate::kernel::Kernel;
use crate::schedule::start_apart;
use crate::verify::{Illegal, Stage, Violation, verify};

/// The passes, in their order.
pub const PASSES: [&str; 19] = [
    "start_apart",
    "split_kernels",
    "unswitch",
    "trim",
    "partial_tiles",
    "whole_tiles",
    "partition",
    "whole_squares",
    "unroll",
    "mask_vectors",
    "bind_blocks",
    "join_indices",
    "barriers",
    "pipeline",
    "translate",
    "narrow",
    "hoist",
    "transpose_gathers",
    "join_elements",
];

/// What a pass has made: a thing with a text form, and with rules that can be checked ([`Made::verify`]).
#[derive(Debug)]
pub enum Made<'a, 'f> {
    /// A function.
    Func(&'a Func),
    /// A loop nest, and what passes so far have made sure of.
    Nest(&'a mut Nest<'f>, Form),
    /// A kernel.
    Kernel(&'a mut Kernel),
}

impl Made<'_, '_> {
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

    /// [`Made::verify`], as an error that names the function, the pass that made this, and the kernel.
    ///
    /// # Errors
    /// All violations.
    pub fn check(&self, func: &Func, pass: &str) -> Result<(), FlattenError> {
        let place = match self {
            Made::Func(_) => "function".to_string(),
            Made::Nest(nest, _) => format!("kernel {}", nest.name),
            Made::Kernel(kernel) => format!("kernel {}", kernel.name),
        };
        let violation = |reason| Violation { place: place.clone(), reason, is_unproven: false };
        self.verify().map_err(|reasons| {
            FlattenError::Illegal(Illegal {
                func: func.name.clone(),
                after: format!("pass `{pass}`"),
                violations: reasons.into_iter().map(violation).collect(),
            })
        })
    }
}

impl Display for Made<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Made::Func(func) => func.fmt(f),
            Made::Nest(nest, _) => nest.fmt(f),
            Made::Kernel(kernel) => kernel.fmt(f),
        }
    }
}

/// The kernels of a function, in the order in which they must run. What each of [`PASSES`] makes is verified.
///
/// The function must be in *scheduled* form with intrinsics expanded (`crate::math`).
///
/// # Errors
/// Where a vectorized or unrolled loop has no constant extent, a register is indexed by a variable or read
/// before it is written, a parallel loop is not outermost, or threads cannot do what they are to do together;
/// and [`FlattenError::Illegal`] for the first pass that makes something illegal.
pub fn flatten(func: &Func, options: &FlattenOptions) -> Result<Vec<FlatKernel>, FlattenError> {
    flatten_watched(func, options, &mut |pass, made| made.check(func, pass))
}

/// [`flatten`], with what each of [`PASSES`] makes shown to `watch` in place of being verified, which may edit it; all but the first run once for each kernel.
///
/// # Errors
/// As [`flatten`], and what `watch` says.
pub fn flatten_watched(
    func: &Func,
    options: &FlattenOptions,
    watch: &mut dyn FnMut(&'static str, Made<'_, '_>) -> Result<(), FlattenError>,
) -> Result<Vec<FlatKernel>, FlattenError> {
    // Before kernels are told apart: the start of a reduction may lie in another one than its steps.
    let func: Cow<'_, Func> = start_apart(func).map_err(|e| FlattenError::of(func, "", e.to_string()))?;
    watch("start_apart", Made::Func(&func))?;

    let mut kernels = Vec::new();
    for mut nest in split_kernels(&func)? {
        watch("split_kernels", Made::Nest(&mut nest, Form::Split))?;
        // These look for tiles and innermost loops as they were scheduled, so loops are unrolled afterwards. Branches
        // come from the outside in: what a tile or a part of a loop is decided by is not asked inside again.
        unswitch(&mut nest);
        watch("unswitch", Made::Nest(&mut nest, Form::Split))?;
        trim(&mut nest);
        watch("trim", Made::Nest(&mut nest, Form::Split))?;
        partial_tiles(&mut nest);
        watch("partial_tiles", Made::Nest(&mut nest, Form::Split))?;
        whole_tiles(&mut nest);
        watch("whole_tiles", Made::Nest(&mut nest, Form::Split))?;
        partition(&mut nest);
        watch("partition", Made::Nest(&mut nest, Form::Split))?;
        whole_squares(&mut nest);
        watch("whole_squares", Made::Nest(&mut nest, Form::Split))?;

        unroll(&mut nest)?;
        watch("unroll", Made::Nest(&mut nest, Form::Unrolled))?;
        // A predicate is simpler for an iteration than for all of an unrolled loop.
        mask_vectors(&mut nest, options);
        watch("mask_vectors", Made::Nest(&mut nest, Form::Masked))?;
        // The only step that simplifies what blocks compute: after everything that repeats them.
        bind_blocks(&mut nest)?;
        watch("bind_blocks", Made::Nest(&mut nest, Form::Bound))?;
        join_indices(&mut nest);
        watch("join_indices", Made::Nest(&mut nest, Form::Bound))?;
        // All accesses are there, each with its index: where threads meet does not change any more.
        barriers(&mut nest, options)?;
        watch("barriers", Made::Nest(&mut nest, Form::Bound))?;
        pipeline(&mut nest, options)?;
        watch("pipeline", Made::Nest(&mut nest, Form::Bound))?;

        let mut flat = translate(&nest, options)?;
        watch("translate", Made::Kernel(&mut flat.kernel))?;
        narrow(&mut flat.kernel, options);
        watch("narrow", Made::Kernel(&mut flat.kernel))?;
        hoist(&mut flat.kernel);
        watch("hoist", Made::Kernel(&mut flat.kernel))?;
        // Equal indices are one value by now.
        transpose_gathers(&mut flat.kernel, options);
        watch("transpose_gathers", Made::Kernel(&mut flat.kernel))?;
        join_elements(&mut flat.kernel, options);
        watch("join_elements", Made::Kernel(&mut flat.kernel))?;
        kernels.push(flat);
    }
    Ok(kernels)
}
