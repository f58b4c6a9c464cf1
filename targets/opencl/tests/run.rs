//! Kernels on an OpenCL device, which must give the interpreter's bits.
//!
//! Needs an OpenCL device (`cargo xtask setup` installs PoCL, which makes one of the processor); without it the tests count as
//! ignored. A tenth of the suite runs; with `TILEWRIGHT_ALL_CASES` in the environment all of it.
#![allow(unsafe_code, reason = "kernels run on a device")]

#[path = "../../../tools/conditional_tests.rs"]
mod conditional;
mod device;

use std::path::Path;
use std::process::ExitCode;

use conditional::Conditional;
use device::Device;
use tilewright_opencl::{PrintError, print};
use tilewright_target_suite::{Case, cases, compare, eval, scheduled};
use tilewright_te::kernel::{Access, Kernel};

fn main() -> ExitCode {
    let lacking = Device::find().err();
    type Test = fn() -> Result<(), String>;
    let tests: [(&str, Test); 4] = [
        ("the_suite_gives_the_interpreters_bits", the_suite_gives_the_interpreters_bits),
        ("threads_give_the_interpreters_bits", threads_give_the_interpreters_bits),
        ("scheduled_functions_give_the_interpreters_bits", scheduled_functions_give_the_interpreters_bits),
        ("what_opencl_cannot_say_is_refused", what_opencl_cannot_say_is_refused),
    ];
    conditional::run(tests.map(|(name, test)| Conditional::new(name, lacking.clone(), test)))
}

/// Runs cases, a program for many of them; gives what is wrong.
fn check(cases: &[Case]) -> Result<Vec<String>, String> {
    let device = Device::find()?;
    let mut failures = Vec::new();
    for cases in cases.chunks(50) {
        let kernels: Vec<Kernel> = cases.iter().map(|case| case.kernel.clone()).collect();
        let program = device.build(&print(&kernels).map_err(|error| error.to_string())?, cases)?;
        for (kernel, case) in cases.iter().enumerate() {
            let found = device::run(&*program, kernel, case)?;
            let found: Vec<&[u8]> = found.iter().map(Vec::as_slice).collect();
            failures.extend(compare(case, &found).err());
        }
    }
    Ok(failures)
}

fn the_suite_gives_the_interpreters_bits() -> Result<(), String> {
    let step = if std::env::var_os("TILEWRIGHT_ALL_CASES").is_some() { 1 } else { 10 };
    let cases: Vec<Case> = cases::all(true).into_iter().step_by(step).collect();
    let failures = check(&cases)?;
    match failures.is_empty() {
        true => Ok(()),
        false => Err(format!("{} of {} cases fail:\n{}", failures.len(), cases.len(), failures.join("\n"))),
    }
}

/// The file tests of the suite whose kernels have threads, on numbers of our own; those with faults are the evaluator's.
fn threads_give_the_interpreters_bits() -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../suite/filetests");
    let mut run = Vec::new();
    for file in std::fs::read_dir(folder).map_err(|error| error.to_string())?.flatten() {
        let text = std::fs::read_to_string(file.path()).map_err(|error| error.to_string())?;
        let Some(kernel) = text.split("\n----").next().and_then(|text| text.parse::<Kernel>().ok()) else {
            continue;
        };
        if kernel.threads.count() == 1 || kernel.verify().is_err() || !kernel.sizes.is_empty() {
            continue;
        }
        let bytes = |n: usize, size: usize| (0..512 * size).map(|i| (i / size * 7 + n) as u8 % 64).collect();
        let buffers: Vec<Vec<u8>> =
            kernel.buffers.iter().enumerate().map(|(n, buffer)| bytes(n, buffer.dtype.bytes())).collect();
        // One that races, or that reads what is not there yet, has no meaning.
        if eval::run(&kernel, &mut buffers.clone(), &[], 0..2).is_err() {
            continue;
        }
        run.push(kernel.name.clone());
        let failures = check(&[Case { kernel, buffers, sizes: Vec::new(), tasks: 2, regions: Vec::new() }])?;
        if let Some(failure) = failures.first() {
            return Err(format!("{}: {failure}", file.path().display()));
        }
    }
    match ["together", "rotate", "early"].iter().all(|name| run.iter().any(|other| other == name)) {
        true => Ok(()),
        false => Err(format!("only {run:?} were run")),
    }
}

/// A product by tiles in registers and shared memory, and sums by shuffles.
fn scheduled_functions_give_the_interpreters_bits() -> Result<(), String> {
    let noise = |n: usize| -> Vec<u8> {
        (0..n).flat_map(|i| ((i * 37 % 101) as f32 / 50.0 - 1.0).to_le_bytes()).collect()
    };
    let case = |kernels: Vec<Kernel>, elements: &[usize], tasks: i64| -> Result<Case, String> {
        let [kernel] = <[Kernel; 1]>::try_from(kernels).map_err(|_| "not one kernel".to_owned())?;
        let buffers = elements.iter().map(|n| noise(*n)).collect();
        Ok(Case { kernel, buffers, sizes: Vec::new(), tasks, regions: Vec::new() })
    };
    let cases = [
        case(scheduled::product(256, 128, 24), &[256 * 24, 24 * 128, 256 * 128], 2)?,
        case(scheduled::product(128, 256, 21), &[128 * 21, 21 * 256, 128 * 256], 2)?,
        case(scheduled::row_sums(8, 96), &[768, 8], 2)?,
    ];
    cases.iter().try_for_each(|case| check(std::slice::from_ref(case))?.pop().map_or(Ok(()), Err))
}

const ONE_WARP_ALONE: &str = "kernel alone(x: write i64 align 8) tasks 1 threads 2 x 32 task %0 {
  %1: i64 = warp
  %2: i64 = lane
  %3: i64 = 1
  %4: bool = %1 < %3
  if %4 {
    %5: i64 = shuffle %2, %3
    x[%2] = %5
  } else {
  }
}
";

fn what_opencl_cannot_say_is_refused() -> Result<(), String> {
    let kernel: Kernel = ONE_WARP_ALONE.parse().map_err(|error| format!("{error}"))?;
    kernel.verify().map_err(|faults| faults.join("; "))?;
    let error = print(std::slice::from_ref(&kernel)).expect_err("no code");
    let expect = "OpenCL C cannot have kernel `alone`: a shuffle that not all warps of a task come to";
    if error.to_string() != expect {
        return Err(error.to_string());
    }
    let twice = print(&[cases::all(true)[0].kernel.clone(), cases::all(true)[0].kernel.clone()]);
    if !twice.is_err_and(|error| error.to_string().ends_with("another kernel of the program has its name")) {
        return Err("two kernels of one name were printed".to_owned());
    }
    let mut written = kernel;
    written.buffers[0].access = Access::Read;
    match print(&[written]) {
        Err(PrintError::Invalid { .. }) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}
