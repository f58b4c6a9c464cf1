//! What goes wrong between functions and kernels.

use crate::func::Func;

/// Why a function cannot be turned into kernels: the schedule broke a rule of the flattened stage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("function `{func}`, block `{block}`: {reason}")]
pub struct FlattenError {
    /// The function.
    pub func: String,
    /// The block being lowered, empty outside blocks.
    pub block: String,
    /// What is wrong.
    pub reason: String,
}

impl FlattenError {
    pub(super) fn of(func: &Func, block: &str, reason: impl Into<String>) -> FlattenError {
        FlattenError { func: func.name.clone(), block: block.to_string(), reason: reason.into() }
    }
}
