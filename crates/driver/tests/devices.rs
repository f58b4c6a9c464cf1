//! Models compiled for devices. On an OpenCL device (PoCL makes one of the processor) they agree with ONNX Runtime; for CUDA, whose
//! devices are not everywhere, plans are held to what they move and to the memory they take, and code to what ptxas says of it.

mod benchmark;
mod common;
mod onnx_runtime;
#[path = "../../../targets/cuda/tests/common/wheel.rs"]
mod wheel;

use std::path::Path;
use std::process::ExitCode;

use benchmark::{Case, SUBJECTS, Subject, prepare};
use common::{failed, model_path};
use onnx_runtime::{agree, artifact_for, run, session};
use tilewright_cuda::Limits;
use tilewright_driver::runtime::Model;
use tilewright_driver::runtime::artifact::DeviceDef;
use tilewright_driver::runtime::plan::{Plan, PlanOp, Space};
use tilewright_driver::{CodegenKind, Options, Target, Trust, compile, devices};

/// What is checked of a model.
enum Check {
    /// What it computes on an OpenCL device.
    Answers,
    /// Its plan for a CUDA device.
    Plan,
    /// What ptxas says of its code for CUDA devices.
    Code,
}

/// A model, and what is checked of it.
struct Test {
    name: &'static str,
    model: &'static str,
    check: Check,
}

const fn on_opencl(name: &'static str, model: &'static str) -> Test {
    Test { name, model, check: Check::Answers }
}

const fn plan(name: &'static str, model: &'static str) -> Test {
    Test { name, model, check: Check::Plan }
}

const fn code(name: &'static str, model: &'static str) -> Test {
    Test { name, model, check: Check::Code }
}

const TESTS: [Test; 25] = [
    on_opencl("squeezenet1_1 on OpenCL", "squeezenet1_1"),
    on_opencl("mobilenet_v2 on OpenCL", "mobilenet_v2"),
    on_opencl("resnet50 on OpenCL", "resnet50"),
    on_opencl("bert_base_dyn on OpenCL", "bert_base_dyn"),
    plan("squeezenet1_1 planned", "squeezenet1_1"),
    plan("mobilenet_v2 planned", "mobilenet_v2"),
    plan("efficientnet_b0 planned", "efficientnet_b0"),
    plan("densenet121 planned", "densenet121"),
    plan("resnet50 planned", "resnet50"),
    plan("inception_v3 planned", "inception_v3"),
    plan("convnext_tiny planned", "convnext_tiny"),
    plan("vit_b_16 planned", "vit_b_16"),
    plan("gpt2_s64 planned", "gpt2_s64"),
    plan("bert_base_dyn planned", "bert_base_dyn"),
    code("squeezenet1_1 in registers", "squeezenet1_1"),
    code("mobilenet_v2 in registers", "mobilenet_v2"),
    code("efficientnet_b0 in registers", "efficientnet_b0"),
    code("densenet121 in registers", "densenet121"),
    code("resnet50 in registers", "resnet50"),
    code("inception_v3 in registers", "inception_v3"),
    code("convnext_tiny in registers", "convnext_tiny"),
    code("vit_b_16 in registers", "vit_b_16"),
    code("gpt2_s64 in registers", "gpt2_s64"),
    code("bert_base_dyn in registers", "bert_base_dyn"),
    code("silero_vad in registers", "silero_vad"),
];

fn main() -> ExitCode {
    let no_device = devices::open("opencl").err().map(|error| error.to_string());
    let no_llvm =
        (Options::best_codegen() != CodegenKind::Llvm).then(|| "this build is without LLVM".to_string());
    let no_ptxas =
        wheel::ptxas().is_none().then(|| "no ptxas is found; `cargo xtask setup` installs one".to_string());
    common::check_all(
        &TESTS,
        |test| test.name,
        |test| {
            let lacking = match test.check {
                Check::Answers => no_device.clone().or_else(onnx_runtime::lacking),
                Check::Plan => no_llvm.clone(),
                Check::Code => no_llvm.clone().or_else(|| no_ptxas.clone()),
            };
            model_path(test.model).err().or(lacking)
        },
        |test| match test.check {
            Check::Answers => check_answers(subject(test.model)?),
            Check::Plan => check_plan(test.model),
            Check::Code => check_code(test.model),
        },
    )
}

fn subject(name: &str) -> Result<&'static Subject, String> {
    SUBJECTS.iter().find(|subject| subject.name == name).ok_or_else(|| format!("no inputs for {name}"))
}

fn target(text: &str) -> Result<Target, String> {
    Target::parse(text, Options::best_codegen()).map_err(|error| error.to_string())
}

fn check_answers(subject: &'static Subject) -> Result<(), String> {
    let model = model_path(subject.name)?;
    let bytes = artifact_for(&model, target("opencl")?)?;
    let device = devices::open("opencl").map_err(|error| error.to_string())?;
    let model =
        tilewright_driver::loader(Trust::Origin).device(device).from_bytes(bytes).map_err(failed("load"))?;
    prepare(subject, &model_path(subject.name)?)?.iter().try_for_each(|case| check_case(&model, case))
}

/// Two sessions in turns, each twice: what one leaves behind must not show in another's results.
fn check_case(model: &Model, case: &Case) -> Result<(), String> {
    let of = |error: tilewright_driver::runtime::RunError| error.to_string();
    let (mut one, mut other) = (session(model, 1), session(model, 2));
    let first = run(&mut one, &case.inputs).map_err(of)?;
    agree(&first, &run(&mut other, &case.inputs).map_err(of)?, &case.expected)?;
    agree(&first, &run(&mut one, &case.inputs).map_err(of)?, &case.expected)
}

/// Inputs go to the device once, outputs come from it once, and nothing else moves. The arena is little more than what is alive at
/// once. A second compilation gives the same bytes.
fn check_plan(name: &str) -> Result<(), String> {
    let path = model_path(name)?;
    let target = target("cuda:sm_80")?;
    artifact_for(&path, target.clone())?;
    let compiled = compile(Path::new(&path), &Options::for_target(target), &mut ());
    let compiled = compiled.map_err(|error| error.to_string())?;
    let plan = &compiled.artifact.levels[0].plan;
    let moved = |from: Space| {
        let is_move = |op: &PlanOp| match op {
            PlanOp::Copy { from: source, to } => {
                let space = |id: tilewright_driver::runtime::plan::BufferId| plan.buffers[id.index()].space;
                space(*source) == from && space(*to) == from.other()
            }
            _ => false,
        };
        plan.instrs.iter().filter(|instr| is_move(&instr.op)).count()
    };
    let (up, down) = (moved(Space::Host), moved(Space::Device));
    if (up, down) != (plan.inputs.len(), plan.outputs.len()) {
        return Err(format!("{up} buffers go to the device and {down} come from it"));
    }
    let on_host = plan.kernels.iter().filter(|kernel| kernel.space == Space::Host).count();
    if on_host > 0 {
        return Err(format!("the host runs {on_host} kernels"));
    }
    check_arena(plan, compiled.device_arena_lower_bound)
}

/// ptxas finds registers for all that threads keep: nothing lies in local memory.
fn check_code(name: &str) -> Result<(), String> {
    let path = model_path(name)?;
    let mut options = Options::for_target(target("cuda:sm_80")?);
    options.more_targets.push(target("cuda:sm_90")?);
    let artifact = compile(Path::new(&path), &options, &mut ()).map_err(|error| error.to_string())?.artifact;
    artifact.levels.iter().zip(&artifact.manifest.images).try_for_each(|(level, image)| {
        let device = image.device.as_ref().zip(level.device_code.as_deref());
        let (def, code) = device.ok_or("a level has no code for a device")?;
        check_registers(def, code).map_err(|error| format!("{}: {error}", def.arch))
    })
}

fn check_registers(def: &DeviceDef, code: &[u8]) -> Result<(), String> {
    let ptxas = wheel::ptxas().ok_or("no ptxas")?;
    let ptx = def.part("ptx", code).and_then(|ptx| std::str::from_utf8(ptx).ok()).ok_or("no PTX")?;
    let gpu = def.arch.parse().map_err(|error| format!("{error:?}"))?;
    let cubin = ptxas.with_limits(Limits::of(ptx.len())).assemble(ptx, &gpu, &|| false);
    let cubin = cubin.map_err(|error| error.to_string())?;
    match cubin.usage.iter().find(|usage| usage.stack + usage.spill_stores + usage.spill_loads > 0) {
        Some(usage) => Err(format!("{usage:?}")),
        None => Ok(()),
    }
}

fn check_arena(plan: &Plan, lower_bound: u64) -> Result<(), String> {
    let bytes = plan.device_arena.bytes;
    match bytes as f64 <= 1.15 * lower_bound as f64 {
        true => Ok(()),
        false => Err(format!("the arena takes {bytes} bytes, {lower_bound} are alive at once")),
    }
}
