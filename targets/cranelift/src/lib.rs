//! Code generator on Cranelift: kernels to relocatable objects, no system dependency.
//!
//! Cranelift has vectors of 128 bits and no wider, no masked accesses, no gathers. A kernel value of many
//! lanes is therefore a list of Cranelift values (`lanes`): as many full vectors as fit, then scalars. An
//! operation works on the vectors where Cranelift has the instruction and lane by lane where it has not.
//!
//! Objects call nothing: what Cranelift would turn into a library call is expanded, or refused.

mod arithmetic;
mod convert;
mod error;
mod function;
mod isa;
mod lanes;
mod memory;
mod parts;
mod run;

use std::fmt::Write;

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::FunctionBuilderContext;
use cranelift_module::{Linkage, Module};
use cranelift_object::{ObjectBuilder, ObjectModule};
use tilewright_machine::{CodegenError, Listing, ObjectCode, RunFunction, Target};
use tilewright_te::kernel::Kernel;

use error::internal;

/// Compiles kernels into one object.
pub fn compile(kernels: &[Kernel], target: &Target) -> Result<ObjectCode, CodegenError> {
    let builder = ObjectBuilder::new(isa::isa(target)?, "kernels", cranelift_module::default_libcall_names());
    let mut module = ObjectModule::new(builder.map_err(internal)?);
    for kernel in kernels {
        let mut context = translate(kernel, target, module.isa())?;
        let id = module
            .declare_function(&kernel.name, Linkage::Export, &context.func.signature)
            .map_err(internal)?;
        module.define_function(id, &mut context).map_err(|error| internal(format!("{error:?}")))?;
        refuse_calls(kernel, &context)?;
    }
    let object = module.finish().emit().map_err(internal)?;
    Ok(ObjectCode { object, symbols: kernels.iter().map(|kernel| kernel.name.clone()).collect() })
}

/// Compiles the function that runs a model.
///
/// # Errors
/// What Cranelift says.
pub fn compile_run(function: &RunFunction, target: &Target) -> Result<ObjectCode, CodegenError> {
    let builder =
        ObjectBuilder::new(isa::isa_of_run(target)?, "run", cranelift_module::default_libcall_names());
    let mut module = ObjectModule::new(builder.map_err(internal)?);
    run::define(function, &mut module)?;
    let object = module.finish().emit().map_err(internal)?;
    Ok(ObjectCode { object, symbols: vec![function.symbol.clone()] })
}

/// Compiles one kernel into an object of its own; calls are independent of each other.
pub fn compile_kernel(kernel: &Kernel, target: &Target) -> Result<ObjectCode, CodegenError> {
    compile(std::slice::from_ref(kernel), target)
}

/// Whether there is code for a kernel, without making it.
///
/// # Errors
/// As [`compile_kernel`], but for what Cranelift itself says.
pub fn check_kernel(kernel: &Kernel, target: &Target) -> Result<(), CodegenError> {
    translate(kernel, target, &*isa::isa(target)?).map(drop)
}

/// The code of kernels as text: CLIF after the optimisations, or assembly.
pub fn emit(kernels: &[Kernel], target: &Target, listing: Listing) -> Result<String, CodegenError> {
    let isa = isa::isa(target)?;
    let mut text = String::new();
    for kernel in kernels {
        let mut context = translate(kernel, target, &*isa)?;
        context.set_disasm(listing == Listing::Assembly);
        context
            .compile(&*isa, &mut ControlPlane::default())
            .map_err(|error| internal(format!("{:?}", error.inner)))?;
        let code = match listing {
            Listing::Ir => context.func.display().to_string(),
            Listing::Assembly => {
                context.compiled_code().and_then(|code| code.vcode.clone()).unwrap_or_default()
            }
        };
        let _ = writeln!(text, "; kernel {}\n{code}", kernel.name);
    }
    Ok(text)
}

/// Whether the code generator is part of this build: always.
pub const fn is_available() -> bool {
    true
}

/// The kernel as CLIF, before any optimisation.
fn translate(kernel: &Kernel, target: &Target, isa: &dyn TargetIsa) -> Result<Context, CodegenError> {
    let mut context = Context::new();
    let mut builder_context = FunctionBuilderContext::new();
    function::translate(kernel, target, isa, &mut context.func, &mut builder_context)?;
    Ok(context)
}

/// Kernels call nothing; a relocation in compiled code is a library call that slipped in.
fn refuse_calls(kernel: &Kernel, context: &Context) -> Result<(), CodegenError> {
    let relocations = context.compiled_code().map(|code| code.buffer.relocs()).unwrap_or_default();
    match relocations.first() {
        None => Ok(()),
        Some(relocation) => Err(internal(format!("kernel `{}` calls {:?}", kernel.name, relocation.target))),
    }
}
