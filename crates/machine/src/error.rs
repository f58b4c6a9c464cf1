//! What is wrong with the name of a target.

use crate::feature::Arch;
use crate::names::{self, GPU_NAMES};
use crate::timing::TimingError;

/// A text that names no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No machine of that name.
    #[error("unknown target `{name}`{}; known are {}", meant(name), known_machines())]
    UnknownMachine {
        /// The name given.
        name: String,
    },
    /// No such feature of the architecture.
    #[error("{arch} has no feature `{name}`")]
    UnknownFeature {
        /// The name given.
        name: String,
        /// The architecture of the target.
        arch: Arch,
    },
    /// No generation of GPUs of that name.
    #[error("unknown GPU `{name}`; known are {}", GPU_NAMES.join(", "))]
    UnknownGpu {
        /// The name given.
        name: String,
    },
    /// Not `KEY=VALUE` with a known key and a value in range.
    #[error("`{property}` is not a property of a target")]
    BadProperty {
        /// The text given.
        property: String,
    },
    /// No timing of that name, or a file that is none.
    #[error(transparent)]
    BadTiming(#[from] TimingError),
    /// No code generator of that name.
    #[error("unknown code generator `{name}`; known are llvm, cranelift, c")]
    UnknownCodegen {
        /// The name given.
        name: String,
    },
}

fn known_machines() -> String {
    names::names().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
}

/// The names that are near to one that is unknown, as a question.
fn meant(name: &str) -> String {
    match &names::nearest(name)[..] {
        [] => String::new(),
        [one] => format!(": did you mean {one}?"),
        [others @ .., last] => format!(": did you mean {} or {last}?", others.join(", ")),
    }
}
