//! What goes wrong between functions and kernels.

use crate::func::Func;
use crate::verify::Illegal;

/// Why a function cannot be turned into kernels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlattenError {
    /// The schedule broke a rule of the flattened stage.
    #[error("function `{func}`, block `{block}`: {reason}")]
    Refused {
        /// The function.
        func: String,
        /// The block being lowered, empty outside blocks.
        block: String,
        /// What is wrong.
        reason: String,
    },
    /// A pass made what the next one must not be given: a defect of that pass.
    #[error(transparent)]
    Illegal(Illegal),
}

impl FlattenError {
    pub(super) fn of(func: &Func, block: &str, reason: impl Into<String>) -> FlattenError {
        FlattenError::Refused { func: func.name.clone(), block: block.to_string(), reason: reason.into() }
    }
}
