//! Kernels to machine code, or to C, by the code generator of the target.

use tilewright_image::Image;
use tilewright_machine::{CodegenError, CodegenKind, Listing, ObjectCode, Target};
use tilewright_te::kernel::Kernel;

use crate::error::CompileError;

/// Compiles one kernel into an object of its own, whose bytes depend on the kernel and the target alone. Of C it is the text of a function
/// that only its program calls.
///
/// # Errors
/// What the code generator says.
pub fn compile_kernel(kernel: &Kernel, target: &Target) -> Result<ObjectCode, CodegenError> {
    match target.codegen.kind {
        CodegenKind::Llvm => tilewright_llvm::compile_kernel(kernel, target),
        CodegenKind::Cranelift => tilewright_cranelift::compile_kernel(kernel, target),
        CodegenKind::C => {
            let text = tilewright_c::print_kernel(kernel, tilewright_c::Linkage::Internal)?;
            Ok(ObjectCode { object: text.into_bytes(), symbols: vec![tilewright_c::symbol(&kernel.name)] })
        }
    }
}

/// Whether there is code for a kernel, without making it.
///
/// # Errors
/// As [`compile_kernel`], but for what fails below the code generator.
pub fn check_kernel(kernel: &Kernel, target: &Target) -> Result<(), CodegenError> {
    match target.codegen.kind {
        CodegenKind::Llvm => tilewright_llvm::check_kernel(kernel, target),
        CodegenKind::Cranelift => tilewright_cranelift::check_kernel(kernel, target),
        CodegenKind::C => tilewright_c::check_kernel(kernel),
    }
}

/// Refuses targets whose code is no machine code, before anything is done for them in vain.
///
/// # Errors
/// [`CompileError::NoMachineCode`].
pub fn demand_machine_code(target: &Target) -> Result<(), CompileError> {
    match target.codegen.kind.makes_machine_code() {
        true => Ok(()),
        false => Err(CompileError::NoMachineCode { target: target.to_string() }),
    }
}

/// Compiles and links kernels; entry `i` of the image is kernel `i`.
///
/// # Errors
/// As [`compile_kernel`] and [`demand_machine_code`], and what the linker says.
pub fn generate(kernels: &[Kernel], target: &Target) -> Result<Image, CompileError> {
    demand_machine_code(target)?;
    let objects: Vec<Vec<u8>> = kernels
        .iter()
        .map(|kernel| Ok(compile_kernel(kernel, target)?.object))
        .collect::<Result<_, CodegenError>>()?;
    let entries: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    tilewright_image::link(&objects, &entries).map_err(|e| CompileError::internal("link", e))
}

/// A listing of kernels: the code generator's IR or assembly.
///
/// # Errors
/// As [`compile_kernel`] and [`demand_machine_code`].
pub fn listing(kernels: &[Kernel], target: &Target, listing: Listing) -> Result<String, CompileError> {
    Ok(match target.codegen.kind {
        CodegenKind::Llvm => tilewright_llvm::emit(kernels, target, listing)?,
        CodegenKind::Cranelift => tilewright_cranelift::emit(kernels, target, listing)?,
        CodegenKind::C => return Err(CompileError::NoMachineCode { target: target.to_string() }),
    })
}
