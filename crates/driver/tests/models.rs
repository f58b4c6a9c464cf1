//! The ten benchmark models: what every code generator makes of them agrees with ONNX Runtime, has the same bits
//! on any number of threads, and is the same artifact when compiled again. So does what the rules for GPUs make of them, threads as loops.

mod benchmark;
mod common;
mod onnx_runtime;

use std::path::Path;
use std::process::ExitCode;

use benchmark::{Case, SUBJECTS, prepare};
use common::{failed, model_path};
use onnx_runtime::{agree, artifact_for, codegens, run, session};
use tilewright_driver::runtime::{Model, Trust};
use tilewright_driver::{Options, Target};

fn main() -> ExitCode {
    common::check_all(
        &SUBJECTS,
        |subject| subject.name,
        |subject| model_path(subject.name).err().or_else(onnx_runtime::lacking),
        |subject| {
            let model = model_path(subject.name)?;
            let cases = prepare(subject, &model)?;
            codegens().try_for_each(|codegen| {
                let target = Target::host(codegen);
                check(&model, &cases, target).map_err(failed(codegen.name()))
            })?;
            // As a GPU's threads would compute it, one after the other.
            let gpu = "sm_80"
                .parse()
                .map_err(|error: tilewright_driver::machine::TargetError| error.to_string())?;
            let target = Target { gpu: Some(gpu), ..Target::host(Options::best_codegen()) };
            check(&model, &cases, target).map_err(failed("threads as loops"))
        },
    )
}

/// Compiles and runs a model for a target.
fn check(model: &Path, cases: &[Case], target: Target) -> Result<(), String> {
    let model =
        Model::from_bytes(artifact_for(model, target)?, Trust::Origin).map_err(|error| error.to_string())?;
    for case in cases {
        let of_threads =
            |threads| run(&mut session(&model, threads), &case.inputs).map_err(|error| error.to_string());
        let checked = of_threads(1).and_then(|single| agree(&single, &of_threads(2)?, &case.expected));
        checked.map_err(|reason| format!("{:?}: {reason}", case.inputs[0].dims))?;
    }
    Ok(())
}
