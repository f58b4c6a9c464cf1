//! Writes the kernel suite for a device into a file: kernels of every operation and of every rule, with inputs and what the evaluator
//! makes of them. `tilewright kernels` runs it where there is no compiler.
//!
//!     tilewright-kernel-suite opencl:sm_80 OUT.twk [STEP]
//!
//! `STEP` takes every so manieth case of the operations; all that rules make is in the file in any case.

use std::error::Error;
use std::path::Path;

use tilewright_driver::device_code::module;
use tilewright_driver::kernel_file::{self, Contents, KernelEntry, OutputDef};
use tilewright_driver::machine::{CodegenKind, DeviceKind, Gpu};
use tilewright_driver::runtime::kernel_run::{KernelProgram, ProgramBuffer, ProgramCall, Role};
use tilewright_driver::{DType, Target};
use tilewright_target_suite::by_rules::{by_rules, functions};
use tilewright_target_suite::{Case, cases, eval, scheduled};
use tilewright_te::flatten::{FlatKernel, FlattenOptions, flatten};
use tilewright_te::interp::evaluate_index;
use tilewright_te::kernel::Kernel;
use tilewright_te::{Buffer, Expr, Func};

/// Cases of operations that are one module.
const CHUNK: usize = 50;

/// What open extents are: no tile divides it.
const OPEN: i64 = 37;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, out, rest @ ..] = &arguments[..] else {
        return Err("tilewright-kernel-suite TARGET OUT.twk [STEP]".into());
    };
    let step: usize = rest.first().map_or(Ok(1), |step| step.parse())?;
    let target = Target::parse(target, CodegenKind::Cranelift)?;
    let (Some(device), Some(gpu)) = (target.device, target.gpu) else {
        return Err("a target with a device, as opencl or cuda:sm_90".into());
    };
    let mut entries = Vec::new();
    for (rule, func, _) in functions() {
        let (func, _) = by_rules(&func, &format!("{device}:{gpu}"), false);
        let (name, kernels) = (format!("{rule}: {}", func.name), kernels(&func)?);
        entries.push(of_func(&name, &func, &kernels, device, &gpu)?);
    }
    let all: Vec<Case> = cases::all(true).into_iter().step_by(step.max(1)).chain(by_primitives()).collect();
    for cases in all.chunks(CHUNK) {
        entries.push(of_cases(cases, device, &gpu)?);
    }
    kernel_file::write(Path::new(out), &entries)?;
    let bytes = std::fs::metadata(out)?.len();
    println!("{out}: {} cases in {} modules, {bytes} bytes", all.len() + functions().len(), entries.len());
    Ok(())
}

/// Products by tiles and sums by shuffles, which primitives alone schedule.
fn by_primitives() -> Vec<Case> {
    let case = |kernels: Vec<Kernel>, name: &'static str, elements: &[usize], tasks: i64| {
        let buffers = elements.iter().map(|&n| noise(n)).collect();
        kernels.into_iter().map(move |mut kernel| {
            kernel.name = name.to_string();
            Case { kernel, buffers: Vec::clone(&buffers), sizes: Vec::new(), tasks, regions: Vec::new() }
        })
    };
    let product = scheduled::product;
    case(product(256, 128, 24), "product_256x24x128", &[256 * 24, 24 * 128, 256 * 128], 2)
        .chain(case(product(128, 256, 21), "product_128x21x256", &[128 * 21, 21 * 256, 128 * 256], 2))
        .chain(case(scheduled::row_sums(8, 96), "sums_8x96", &[768, 8], 2))
        .collect()
}

/// Numbers between -1 and 1.
fn noise(n: usize) -> Vec<u8> {
    (0..n).flat_map(|i| ((i * 37 % 101) as f32 / 50.0 - 1.0).to_le_bytes()).collect()
}

fn kernels(func: &Func) -> Result<Vec<FlatKernel>, Box<dyn Error>> {
    let options = FlattenOptions { lanes: Some(Gpu::LANES), ..FlattenOptions::PLAIN };
    Ok(flatten(func, &options)?)
}

/// Cases as one module.
fn of_cases(cases: &[Case], device: DeviceKind, gpu: &Gpu) -> Result<KernelEntry, Box<dyn Error>> {
    let kernels: Vec<Kernel> = cases.iter().map(|case| case.kernel.clone()).collect();
    let (def, code) = module(&kernels, device, gpu)?;
    let name = format!("{} to {}", cases[0].kernel.name, cases[cases.len() - 1].kernel.name);
    let mut program = KernelProgram { name, device: def, code, ..KernelProgram::default() };
    let (mut contents, mut outputs) = (Vec::new(), Vec::new());
    for (n, case) in cases.iter().enumerate() {
        let mut expected = case.buffers.clone();
        eval::run(&case.kernel, &mut expected, &case.sizes, 0..case.tasks)?;
        let first = program.buffers.len() as u32;
        for (n, (buffer, expected)) in case.kernel.buffers.iter().zip(expected).enumerate() {
            // What is only read must not change either.
            program.buffers.push(ProgramBuffer { bytes: expected.len() as u64, role: Role::Output });
            contents.push(Contents::Bytes(case.buffers[n].clone()));
            let what = format!("{}, {}", case.kernel.name, buffer.name);
            outputs.push(output(what, buffer.dtype, expected));
        }
        let buffers = (first..program.buffers.len() as u32).collect();
        let (sizes, tasks) = (case.sizes.clone(), case.tasks);
        program.calls.push(ProgramCall { kernel: n as u32, buffers, sizes, tasks });
    }
    Ok(KernelEntry { program, contents, outputs })
}

fn output(what: String, dtype: DType, expected: Vec<u8>) -> OutputDef {
    OutputDef { what, dtype: dtype.to_string(), expected: Some(expected), padding: Vec::new() }
}

/// A scheduled function.
fn of_func(
    name: &str,
    func: &Func,
    kernels: &[FlatKernel],
    device: DeviceKind,
    gpu: &Gpu,
) -> Result<KernelEntry, Box<dyn Error>> {
    let flat: Vec<Kernel> = kernels.iter().map(|flat| flat.kernel.clone()).collect();
    let (def, code) = module(&flat, device, gpu)?;
    let mut program = KernelProgram { name: name.to_string(), device: def, code, ..KernelProgram::default() };
    let index = |extent: &Expr| evaluate_index(extent, &|_| Some(OPEN));
    let places: Vec<Buffer> = func.params.iter().copied().chain(func.workspaces()).collect();
    let (mut memory, mut contents) = (Vec::new(), Vec::new());
    for (n, &buffer) in places.iter().enumerate() {
        let data = &func.buffers[buffer];
        let elements: i64 = data.shape.iter().map(index).product::<Result<i64, _>>()?;
        let given = if n < func.n_inputs { noise(elements as usize) } else { Vec::new() };
        let role = match n {
            n if n < func.n_inputs => Role::Given,
            n if n < func.params.len() => Role::Output,
            _ => Role::Workspace,
        };
        let bytes = elements as usize * data.dtype.bytes();
        program.buffers.push(ProgramBuffer { bytes: bytes as u64, role });
        let mut all = given.clone();
        all.resize(bytes, 0);
        memory.push(all);
        contents.push(Contents::Bytes(given));
    }
    for (n, FlatKernel { kernel, buffers }) in kernels.iter().enumerate() {
        let place = |buffer: &Buffer| places.iter().position(|known| known == buffer);
        let at: Vec<usize> =
            buffers.iter().map(place).collect::<Option<_>>().ok_or("a buffer without a place")?;
        let sizes = vec![OPEN; kernel.sizes.len()];
        let tasks = index(&kernel.grid.rounds)? * index(&kernel.grid.per_round)?;
        let mut places: Vec<Vec<u8>> = at.iter().map(|&at| std::mem::take(&mut memory[at])).collect();
        eval::run(kernel, &mut places, &sizes, 0..tasks)?;
        for (&at, bytes) in at.iter().zip(places) {
            memory[at] = bytes;
        }
        let buffers = at.iter().map(|&at| at as u32).collect();
        program.calls.push(ProgramCall { kernel: n as u32, buffers, sizes, tasks });
    }
    let outputs = func.params[func.n_inputs..].iter().zip(&memory[func.n_inputs..]).map(|(&param, bytes)| {
        let data = &func.buffers[param];
        output(format!("{name}, {}", data.name), data.dtype, bytes.clone())
    });
    let outputs = outputs.collect();
    Ok(KernelEntry { program, contents, outputs })
}
