//! The passes, one a file, and the standard pipeline.

pub mod batch_norm;
pub mod canonicalize;
pub mod common_subexpressions;
pub mod constant_folding;
pub mod dead_code;
pub mod decompose;
pub mod fuse;
pub mod layouts;
pub mod padding_bands;
pub mod raise;
pub mod regions;
pub mod resolve;
pub mod scale_weights;
pub mod sink;

use std::sync::Arc;

pub use constant_folding::{ConstantFolding, Evaluate};

use crate::pass::{FnPass, Pass, PassManager};

/// The pipeline every compilation runs before fusion: shapes resolved, constants folded, fragments raised,
/// normalisations folded.
pub fn simplify<'a>(evaluate: Arc<dyn Evaluate>) -> PassManager<'a> {
    let cleanup = || -> Vec<Box<dyn Pass>> {
        vec![
            Box::new(FnPass::new("regions", regions::regions)),
            Box::new(FnPass::new("resolve", resolve::resolve)),
            Box::new(FnPass::new("canonicalize", canonicalize::canonicalize)),
            Box::new(ConstantFolding::new(Arc::clone(&evaluate))),
            Box::new(FnPass::new("common_subexpressions", common_subexpressions::common_subexpressions)),
            Box::new(FnPass::new("dead_code", dead_code::dead_code)),
        ]
    };
    PassManager::new("simplify")
        .until_stable(cleanup(), 8)
        .then(FnPass::new("raise", raise::raise))
        .then(FnPass::new("raise_attention", raise::raise_attention))
        .then(FnPass::new("batch_norm", batch_norm::batch_norm))
        .then(FnPass::new("sink", sink::sink))
        .then(FnPass::new("scale_weights", scale_weights::scale_weights))
        .then(FnPass::new("padding_bands", padding_bands::padding_bands))
        .until_stable(cleanup(), 8)
}
