//! The passes, one a file, and the standard pipeline.

pub mod batch_norm;
pub mod canonicalize;
pub mod common_factors;
pub mod common_subexpressions;
pub mod constant_folding;
pub mod dead_code;
pub mod decompose;
pub mod fuse;
pub mod layouts;
pub mod least_extents;
pub mod loop_invariants;
pub mod padding_bands;
pub mod raise;
pub mod regions;
pub mod resolve;
pub mod scale_weights;
pub mod sink;

use std::sync::Arc;

pub use constant_folding::{ConstantFolding, Evaluate};

use crate::pass::{FnPass, Pass, PassManager};

/// Rounds that passes which run until the graph is stable may take.
const ROUNDS: usize = 8;

/// The pipeline every compilation runs before fusion: shapes resolved, constants folded, fragments raised,
/// normalisations folded.
pub fn simplify<'a>(evaluate: Arc<dyn Evaluate>) -> PassManager<'a> {
    let pipeline = PassManager::new("simplify");
    let pipeline = cleaned(pipeline, Arc::clone(&evaluate))
        .then(FnPass::new("least_extents", least_extents::least_extents))
        .then(FnPass::new("raise", raise::raise))
        .then(FnPass::new("raise_attention", raise::raise_attention))
        .then(FnPass::new("common_factors", common_factors::common_factors))
        .then(FnPass::new("loop_invariants", loop_invariants::loop_invariants))
        .then(FnPass::new("batch_norm", batch_norm::batch_norm))
        .then(FnPass::new("sink", sink::sink))
        .then(FnPass::new("scale_weights", scale_weights::scale_weights))
        .then(FnPass::new("padding_bands", padding_bands::padding_bands));
    cleaned(pipeline, evaluate)
}

/// The pipeline and, behind it, the passes that clean up after others, until the graph is stable.
#[must_use]
pub fn cleaned(pipeline: PassManager<'_>, evaluate: Arc<dyn Evaluate>) -> PassManager<'_> {
    let passes: Vec<Box<dyn Pass>> = vec![
        Box::new(FnPass::new("regions", regions::regions)),
        Box::new(FnPass::new("resolve", resolve::resolve)),
        Box::new(FnPass::new("canonicalize", canonicalize::canonicalize)),
        Box::new(ConstantFolding::new(evaluate)),
        Box::new(FnPass::new("common_subexpressions", common_subexpressions::common_subexpressions)),
        Box::new(FnPass::new("dead_code", dead_code::dead_code)),
    ];
    pipeline.until_stable(passes, ROUNDS)
}
