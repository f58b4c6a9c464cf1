//! Code generator on LLVM 22: kernels to relocatable objects, and to PTX.
//!
//! Three steps, one file or folder each: [`ir`] translates kernels to LLVM IR as text, `passes` reads the
//! text, which also verifies it, and runs our own short list of optimisations, and hands the result to LLVM's
//! instruction selection. The text is the interface on purpose: it is the same for any number of lanes, a
//! mistake in it is an error with a place and not undefined behaviour inside LLVM, and all of it but the
//! last step is there without LLVM.
//!
//! What this crate promises:
//! - Nothing contracts or reassociates: no fast-math flag is ever set.
//! - Objects call nothing: operations without an instruction are expanded, or refused.
//! - LLVM neither vectorises, unrolls nor recognises idioms: loops and vectors are the schedule's.

mod error;
pub mod ir;
#[cfg(feature = "llvm")]
mod passes;
pub mod ptx;

use tilewright_machine::{CodegenError, Listing, ObjectCode, RunFunction, Target};
use tilewright_te::kernel::Kernel;

use error::UNAVAILABLE;
use ir::Isa;

/// Compiles kernels into one object.
pub fn compile(kernels: &[Kernel], target: &Target) -> Result<ObjectCode, CodegenError> {
    let text = ir::translate(kernels, Isa::Processor(target))?;
    let object = passes::object(&text, target)?;
    Ok(ObjectCode { object, symbols: kernels.iter().map(|kernel| kernel.name.clone()).collect() })
}

/// Compiles one kernel into an object of its own; calls are independent of each other.
pub fn compile_kernel(kernel: &Kernel, target: &Target) -> Result<ObjectCode, CodegenError> {
    compile(std::slice::from_ref(kernel), target)
}

/// Compiles the function that runs a model.
///
/// # Errors
/// What LLVM says.
pub fn compile_run(function: &RunFunction, target: &Target) -> Result<ObjectCode, CodegenError> {
    let object = passes::object(&ir::translate_run(function, target), target)?;
    Ok(ObjectCode { object, symbols: vec![function.symbol.clone()] })
}

/// Whether there is code for a kernel, without making it.
///
/// # Errors
/// As [`compile_kernel`], but for what LLVM itself says.
pub fn check_kernel(kernel: &Kernel, target: &Target) -> Result<(), CodegenError> {
    check(kernel, Isa::Processor(target))
}

fn check(kernel: &Kernel, isa: Isa<'_>) -> Result<(), CodegenError> {
    ir::translate(std::slice::from_ref(kernel), isa)?;
    if is_available() { Ok(()) } else { Err(UNAVAILABLE) }
}

/// The code of kernels as text: LLVM IR after the optimisations, or assembly.
pub fn emit(kernels: &[Kernel], target: &Target, listing: Listing) -> Result<String, CodegenError> {
    let text = ir::translate(kernels, Isa::Processor(target))?;
    passes::listing(&text, target, listing)
}

/// Whether LLVM is part of this build.
pub const fn is_available() -> bool {
    cfg!(feature = "llvm")
}

/// The version of LLVM that makes the code, empty where there is none.
pub fn version() -> String {
    passes::version()
}

/// Stands in for LLVM where it is not linked.
#[cfg(not(feature = "llvm"))]
mod passes {
    use tilewright_machine::{CodegenError, Gpu, Listing, Target};

    use crate::error::UNAVAILABLE;

    pub(crate) fn object(_text: &str, _target: &Target) -> Result<Vec<u8>, CodegenError> {
        Err(UNAVAILABLE)
    }

    pub(crate) fn version() -> String {
        String::new()
    }

    pub(crate) fn ptx(_text: &str, _gpu: &Gpu) -> Result<String, CodegenError> {
        Err(UNAVAILABLE)
    }

    pub(crate) fn listing(_text: &str, _target: &Target, _listing: Listing) -> Result<String, CodegenError> {
        Err(UNAVAILABLE)
    }
}
