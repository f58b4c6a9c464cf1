//! Code generator on Cranelift: kernels to relocatable objects, no system dependency.

use tilewright_machine::{CodegenError, CodegenKind, Listing, ObjectCode, Target};
use tilewright_te::kernel::Kernel;

/// Compiles kernels into one object.
pub fn compile(kernels: &[Kernel], target: &Target) -> Result<ObjectCode, CodegenError> {
    let _ = (kernels, target);
    Err(CodegenError::Unavailable { codegen: CodegenKind::Cranelift, how: "not written yet" })
}

/// Compiles one kernel into an object of its own; calls are independent of each other.
pub fn compile_kernel(kernel: &Kernel, target: &Target) -> Result<ObjectCode, CodegenError> {
    compile(std::slice::from_ref(kernel), target)
}

/// The code of kernels as text.
pub fn emit(kernels: &[Kernel], target: &Target, listing: Listing) -> Result<String, CodegenError> {
    let _ = (kernels, target, listing);
    Err(CodegenError::Unavailable { codegen: CodegenKind::Cranelift, how: "not written yet" })
}

/// Whether the code generator is part of this build: always.
pub const fn is_available() -> bool {
    true
}
