//! Kernels as LLVM IR text.
//!
//! A kernel becomes one function: a prologue that finds buffers and extents, and around the body a loop over tasks, where
//! a processor runs it, or one task of each block, where a GPU does. `function` translates control flow, `memory` loads and
//! stores, `arithmetic` and `convert` the operations of values, `threads` what the threads of a block do together; `isa`
//! says what differs between machines.
//!
//! Representation: a value of one lane is an LLVM scalar, of several an LLVM vector of exactly those lanes;
//! truth values are `i1` in registers and `i8` in memory. Buffers get alias scopes of their own, and loads
//! from buffers that the kernel only reads are invariant.

mod arithmetic;
mod convert;
mod function;
mod isa;
mod memory;
mod run;
mod text;
mod threads;
mod transpose;
mod words;

use std::collections::HashSet;
use std::fmt::Write;

use tilewright_machine::CodegenError;
use tilewright_te::kernel::Kernel;

pub use isa::Isa;
#[cfg(feature = "llvm")]
pub(crate) use isa::{GPU_TRIPLE, features, gpu_features, triple};
pub use run::translate_run;
pub(crate) use threads::shared_bytes;

use text::{Metadata, PlaceInfo, invalid, lane, same_bits, splat, suffix, unsupported, vector};

/// The kernels as one LLVM module, before any optimisation.
pub fn translate(kernels: &[Kernel], isa: Isa<'_>) -> Result<String, CodegenError> {
    let mut out = format!("target triple = \"{}\"\n\n", isa.triple());
    let mut metadata = Metadata::new();
    let mut symbols = HashSet::new();
    for kernel in kernels {
        if !symbols.insert(isa.symbol(&kernel.name)) {
            return Err(invalid(kernel, "another kernel of the module has its name"));
        }
        function::translate(kernel, isa, &mut metadata, &mut out)?;
    }
    out.push_str(&metadata.functions);
    if let Some(flag) = isa.module_flag() {
        let node = metadata.node(flag);
        let _ = writeln!(out, "!llvm.module.flags = !{{!{node}}}");
    }
    let _ = write!(
        out,
        "attributes #0 = {{ nounwind norecurse \"no-builtins\" {} }}\n\n{}",
        isa.attributes(),
        metadata.text
    );
    Ok(out)
}
