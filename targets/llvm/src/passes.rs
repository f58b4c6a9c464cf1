//! LLVM proper: reads IR, optimises it, selects instructions.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Once;

use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target as LlvmTarget, TargetMachine, TargetTriple,
};
use tilewright_machine::{Arch, CodegenError, CodegenKind, Gpu, Listing, Target};

use crate::ir;

/// The optimisations, in order. Neither vectorisers, unrollers nor idiom recognition: loops and vectors
/// arrive as the schedule wants them, and idioms would call `memcpy`.
const PIPELINE: &str = "function(\
    sroa,\
    early-cse<memssa>,\
    instcombine<no-verify-fixpoint;max-iterations=1>,\
    simplifycfg,\
    loop-mssa(licm),\
    gvn,\
    instcombine<no-verify-fixpoint;max-iterations=1>,\
    simplifycfg,\
    dce)";

pub(crate) fn object(text: &str, target: &Target) -> Result<Vec<u8>, CodegenError> {
    on_machine(target, |machine| {
        let context = Context::create();
        let module = optimise(&context, text, machine)?;
        let buffer = machine.write_to_memory_buffer(&module, FileType::Object).map_err(internal)?;
        Ok(buffer.as_slice().to_vec())
    })
}

pub(crate) fn ptx(text: &str, gpu: &Gpu) -> Result<String, CodegenError> {
    let context = Context::create();
    let machine = gpu_machine(gpu)?;
    let module = optimise(&context, text, &machine)?;
    assembly(&machine, &module)
}

/// Of the library that is loaded, which need not be the one of the build.
pub(crate) fn version() -> String {
    let (major, minor, patch) = inkwell::support::get_llvm_version();
    format!("{major}.{minor}.{patch}")
}

pub(crate) fn listing(text: &str, target: &Target, listing: Listing) -> Result<String, CodegenError> {
    on_machine(target, |machine| {
        let context = Context::create();
        let module = optimise(&context, text, machine)?;
        match listing {
            Listing::Ir => Ok(module.print_to_string().to_string()),
            Listing::Assembly => assembly(machine, &module),
        }
    })
}

fn assembly(machine: &TargetMachine, module: &Module<'_>) -> Result<String, CodegenError> {
    let buffer = machine.write_to_memory_buffer(module, FileType::Assembly).map_err(internal)?;
    // inkwell counts the terminating zero as part of the buffer.
    let bytes = buffer.as_slice();
    let text = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    String::from_utf8(text.to_vec()).map_err(internal)
}

#[allow(unsafe_code, reason = "frees what inkwell 0.11 forgets")]
fn parse<'c>(context: &'c Context, text: &str) -> Result<Module<'c>, CodegenError> {
    let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), "kernels");
    let raw = buffer.as_mut_ptr();
    let module = context.create_module_from_ir(buffer);
    // SAFETY: inkwell calls LLVMParseIRInContext2, which leaves the buffer to its caller, and forgets it. Nothing of a module that was
    // parsed lies in it.
    drop(unsafe { MemoryBuffer::new(raw) });
    module.map_err(internal)
}

fn optimise<'c>(
    context: &'c Context,
    text: &str,
    machine: &TargetMachine,
) -> Result<Module<'c>, CodegenError> {
    let module = parse(context, text)?;
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    let options = PassBuilderOptions::create();
    options.set_verify_each(cfg!(debug_assertions));
    module.run_passes(PIPELINE, machine, options).map_err(internal)?;
    Ok(module)
}

fn gpu_machine(gpu: &Gpu) -> Result<TargetMachine, CodegenError> {
    static INITIALISE: Once = Once::new();
    INITIALISE.call_once(|| LlvmTarget::initialize_nvptx(&InitializationConfig::default()));
    let triple = TargetTriple::create(ir::GPU_TRIPLE);
    LlvmTarget::from_triple(&triple)
        .map_err(internal)?
        .create_target_machine(
            &triple,
            &gpu.to_string(),
            ir::gpu_features(gpu),
            OptimizationLevel::Aggressive,
            RelocMode::Default,
            CodeModel::Default,
        )
        .ok_or_else(|| internal(format!("no target machine for {gpu}")))
}

/// Runs `work` on the thread's machine for a target. Making one, and what it knows of a processor with these features, takes longer
/// than some kernels.
fn on_machine<T>(
    target: &Target,
    work: impl FnOnce(&TargetMachine) -> Result<T, CodegenError>,
) -> Result<T, CodegenError> {
    thread_local! {
        static MACHINES: RefCell<HashMap<[String; 3], TargetMachine>> = RefCell::default();
    }
    let names = [ir::triple(target), scheduling_model(target), &ir::features(target)];
    MACHINES.with_borrow_mut(|machines| match machines.entry(names.map(str::to_owned)) {
        Entry::Occupied(known) => work(known.get()),
        Entry::Vacant(free) => work(free.insert(machine(target)?)),
    })
}

fn machine(target: &Target) -> Result<TargetMachine, CodegenError> {
    static INITIALISE: Once = Once::new();
    INITIALISE.call_once(|| {
        LlvmTarget::initialize_x86(&InitializationConfig::default());
        LlvmTarget::initialize_aarch64(&InitializationConfig::default());
        LlvmTarget::initialize_arm(&InitializationConfig::default());
        LlvmTarget::initialize_riscv(&InitializationConfig::default());
    });
    let triple = TargetTriple::create(ir::triple(target));
    LlvmTarget::from_triple(&triple)
        .map_err(internal)?
        .create_target_machine(
            &triple,
            scheduling_model(target),
            &ir::features(target),
            OptimizationLevel::Aggressive,
            RelocMode::PIC,
            CodeModel::Small,
        )
        .ok_or_else(|| internal(format!("no target machine for {triple}")))
}

/// The processor whose latencies instruction scheduling assumes where functions name no core: the most capable level that the target has in
/// full. Older models of x86-64 make schedules that need more registers than a full register tile leaves.
fn scheduling_model(target: &Target) -> &'static str {
    match target.machine.arch {
        Arch::X86_64 => target.machine.level(),
        Arch::Aarch64 | Arch::Armv7 | Arch::ThumbM => "generic",
        Arch::Riscv64 => "sifive-u74",
    }
}

fn internal(message: impl ToString) -> CodegenError {
    CodegenError::Internal { codegen: CodegenKind::Llvm, message: message.to_string() }
}
