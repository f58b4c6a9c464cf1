//! Kernels as LLVM IR text.
//!
//! A kernel becomes one function: a prologue that loads buffer pointers and extents, and a loop over tasks
//! around the body. `function` translates control flow, `memory` loads and stores, `arithmetic` and
//! `convert` the operations of values.
//!
//! Representation: a value of one lane is an LLVM scalar, of several an LLVM vector of exactly those lanes;
//! truth values are `i1` in registers and `i8` in memory. Buffers get alias scopes of their own, and loads
//! from buffers that the kernel only reads are invariant.

mod arithmetic;
mod convert;
mod function;
mod memory;
mod text;

use std::fmt::Write;

use tilewright_machine::{CodegenError, Target};
use tilewright_te::kernel::Kernel;

use text::{Metadata, PlaceInfo, invalid, lane, same_bits, splat, suffix, unsupported, vector};

/// The kernels as one LLVM module, before any optimisation.
pub fn translate(kernels: &[Kernel], target: &Target) -> Result<String, CodegenError> {
    let mut out = format!("target triple = \"{}\"\n\n", target.machine.arch.triple());
    let mut metadata = Metadata::new();
    for kernel in kernels {
        function::translate(kernel, target, &mut metadata, &mut out)?;
    }
    let _ = write!(
        out,
        "attributes #0 = {{ nounwind norecurse \"no-builtins\" \"frame-pointer\"=\"none\" \
         \"prefer-vector-width\"=\"{}\" \"target-features\"=\"{}\" }}\n\n{}",
        target.vector_bits(),
        features(target),
        metadata.text
    );
    Ok(out)
}

/// LLVM's feature string.
pub(crate) fn features(target: &Target) -> String {
    let names: Vec<String> = target.machine.features.iter().map(|f| format!("+{}", f.name())).collect();
    names.join(",")
}
