//! Code on a device, through a driver.
//!
//! Most tests need no device: they run in processes of their own, which find a driver of ours (`fake_cuda/fake.c`) in place of
//! the machine's. These need a C compiler; those on a real device need one, and a driver. Without, they count as ignored.
#![allow(unsafe_code, reason = "memory and kernels of a device")]

mod cases;
#[path = "../../../tools/conditional_tests.rs"]
mod conditional;
mod fake_cuda;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use conditional::Conditional;
use cudarc::driver::sys;
use fake_cuda::Fake;
use tilewright_runtime_cuda::{Cuda, CudaError};

fn main() -> ExitCode {
    if let Some(name) = std::env::var_os(fake_cuda::CASE) {
        return cases::run(&name.to_string_lossy());
    }
    let fake = Fake::build(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_cuda"));
    let lacking = fake.as_ref().err().cloned();
    let fake = Arc::new(fake.ok());
    let mut tests = Vec::new();
    for case in fake_cuda::CASES {
        let fake = fake.clone();
        tests.push(Conditional::new(case.name, lacking.clone(), move || case.run(fake.as_ref().as_ref())));
    }
    let lacking = Cuda::devices().err().map(|error| error.to_string());
    for case in cases::real::CASES {
        tests.push(Conditional::new(case.name, lacking.clone(), move || case.run(None)));
    }
    // SAFETY: libcuda may be loaded at any time.
    let is_there = unsafe { sys::is_culib_present() };
    let lacking = is_there.then(|| "this machine has a CUDA driver".to_owned());
    tests.push(Conditional::new("a_machine_without_a_driver_says_so", lacking, no_driver));
    conditional::run(tests)
}

/// Twice, since what a library does at first and later may differ.
fn no_driver() -> Result<(), String> {
    for _ in 0..2 {
        match Cuda::devices() {
            Err(CudaError::NoDriver) => {}
            other => return Err(format!("{other:?}")),
        }
    }
    Ok(())
}
