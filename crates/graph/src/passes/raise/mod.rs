//! Recovers composite operators from the fragments exporters write.
//!
//! Each rule matches at the last node of a fragment. Inner values must have no other user, so that the fragment
//! really disappears. Constants are compared with the tolerance of binary32 rounding.

mod activations;
mod attention;
mod matcher;
mod norms;

pub use attention::raise_attention;

use crate::graph::Graph;
use crate::pass::PassError;
use crate::patch::{Rule, rewrite};

/// Raises every fragment that is recognised.
pub fn raise(graph: &mut Graph) -> Result<bool, PassError> {
    rewrite(graph, RULES, 8)
}

const RULES: &[Rule] = &[
    Rule { name: "raise_gelu", apply: activations::gelu },
    Rule { name: "raise_gelu_tanh", apply: activations::gelu_tanh },
    Rule { name: "raise_hard_swish", apply: activations::hard_swish },
    Rule { name: "raise_swish", apply: activations::swish },
    Rule { name: "raise_mish", apply: activations::mish },
    Rule { name: "raise_softmax", apply: norms::softmax },
    Rule { name: "raise_layer_norm", apply: norms::layer_norm },
    Rule { name: "raise_rms_norm", apply: norms::rms_norm },
    Rule { name: "raise_group_norm", apply: norms::group_norm },
    Rule { name: "raise_norm_scale", apply: norms::scale },
    Rule { name: "raise_norm_bias", apply: norms::bias },
];
