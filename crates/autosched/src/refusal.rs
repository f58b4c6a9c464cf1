//! Why rules do not take blocks.

/// Why a rule does not take a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule} of `{block}`: {reason}")]
pub struct Refusal {
    /// The rule.
    pub rule: &'static str,
    /// The block.
    pub block: String,
    /// Why not.
    pub reason: String,
}

impl Refusal {
    /// A refusal of `rule` to take `block`.
    pub fn new(rule: &'static str, block: &str, reason: impl Into<String>) -> Refusal {
        Refusal { rule, block: block.to_string(), reason: reason.into() }
    }
}
