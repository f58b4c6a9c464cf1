//! `cargo xtask gpu-pack`, `gpu-check`, `gpu-bench`, `gpu-operations` and `gpu-memory`: what is to be known of models on GPUs, on this
//! machine or on one that has a GPU but no compiler.
//!
//! The work is that of the scripts in `tools/gpu`, which lie in a pack too. Here is what they need of a checkout: programs with
//! and without LLVM, and the folder that they work in.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cargo::{Cargo, Packages};
use crate::project::Verdict;
use crate::{build, project};

/// Arguments of `gpu-pack`.
#[derive(clap::Args)]
pub(crate) struct PackArgs {
    /// The archive [default: gpu-pack.tar.gz in cargo's target folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What the functions in it are compiled for, a generation of NVIDIA's GPUs or `opencl`; may be given again
    #[arg(long, value_name = "sm_NN|opencl", default_value = "sm_90")]
    arch: Vec<String>,
}

/// Arguments of the verbs that run a script.
#[derive(clap::Args)]
pub(crate) struct ScriptArgs {
    /// Arguments of the script, as `--part 1` or `--device opencl`; `-- --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Makes a pack.
pub(crate) fn pack(args: &PackArgs) -> Verdict {
    let cargo = Cargo::detect();
    if cargo.llvm.is_none() {
        bail!("the functions of a pack are made by LLVM 22; `cargo xtask setup` installs it");
    }
    let folder = project::target_dir().join("gpu-pack");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let with_llvm = project::target_dir().join("tilewright-llvm");
    copy(&build::tilewright(&cargo)?, &with_llvm)?;
    let program = folder.join("tilewright");
    copy(&build::tilewright(&Cargo { llvm: None })?, &program)?;
    let libraries = project::output_of(project::command("ldd").arg(&program)).unwrap_or_default();
    if libraries.contains("LLVM") {
        bail!("{} wants LLVM:\n{libraries}", program.display());
    }
    let output = match &args.output {
        Some(path) => std::path::absolute(path)?,
        None => project::target_dir().join("gpu-pack.tar.gz"),
    };
    kernels(&cargo, &folder, &args.arch)?;
    let mut make = script("pack.py");
    make.arg("archive").arg(&folder).args(folder_arguments(&args.arch));
    project::run(make.arg("--llvm").arg(&with_llvm).arg("--output").arg(&output))?;
    Ok(true)
}

/// The script that runs kernels too.
const CHECK: &str = "check.py";

/// Of so many cases of operations one is run on OpenCL devices, whose compilers take long.
const OPENCL_STEP: &str = "10";

/// Checks kernels and models on a device.
pub(crate) fn check(args: &ScriptArgs) -> Verdict {
    run(CHECK, args)
}

/// Times models on a device.
pub(crate) fn bench(args: &ScriptArgs) -> Verdict {
    run("bench.py", args)
}

/// Times single operations on a device.
pub(crate) fn operations(args: &ScriptArgs) -> Verdict {
    run("operations.py", args)
}

/// Weighs models on a device.
pub(crate) fn memory(args: &ScriptArgs) -> Verdict {
    run("memory.py", args)
}

/// Runs a script on the program of this tree.
fn run(name: &str, args: &ScriptArgs) -> Verdict {
    let folder = project::target_dir().join("gpu");
    let cargo = Cargo::detect();
    let program = build::tilewright(&cargo)?;
    let mut archs = vec!["opencl".to_string()];
    if cargo.llvm.is_some() {
        archs.extend(["sm_80".to_string(), "sm_90".to_string()]);
    }
    project::run(script("pack.py").arg("folder").arg(&folder).args(folder_arguments(&archs)))?;
    if name == CHECK {
        kernels(&cargo, &folder, &archs)?;
    }
    let mut command = script(name);
    command.arg("--pack").arg(&folder).arg("--program").arg(&program).args(&args.arguments);
    Ok(command.status().with_context(|| project::describe(&command))?.success())
}

/// Writes the suite of kernels for architectures into a folder.
fn kernels(cargo: &Cargo, folder: &Path, archs: &[String]) -> anyhow::Result<()> {
    let kernels = folder.join("kernels");
    if kernels.exists() {
        std::fs::remove_dir_all(&kernels).with_context(|| kernels.display().to_string())?;
    }
    std::fs::create_dir_all(&kernels).with_context(|| kernels.display().to_string())?;
    for arch in archs {
        let step = if arch == "opencl" { OPENCL_STEP } else { "1" };
        let mut write = cargo.command("run", Packages::These(&["tilewright-kernel-suite"]));
        let out = kernels.join(format!("{}.twk", target(arch).replace(':', ".")));
        project::run(write.args(["--release", "--", &target(arch)]).arg(out).arg(step))?;
    }
    Ok(())
}

/// Where the models are, and the targets of architectures.
fn folder_arguments(archs: &[String]) -> Vec<String> {
    let models = project::target_dir().join("models");
    let mut arguments = vec!["--models".to_string(), models.display().to_string()];
    for arch in archs {
        arguments.extend(["--target".to_string(), target(arch)]);
    }
    arguments
}

/// What an architecture is called where models are compiled.
fn target(arch: &str) -> String {
    if arch.starts_with("sm_") { format!("cuda:{arch}") } else { arch.to_string() }
}

fn script(name: &str) -> std::process::Command {
    let mut command = project::command(project::venv_python());
    command.arg(project::path("tools/gpu").join(name));
    command
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_targets() {
        assert_eq!(["sm_90", "opencl"].map(target), ["cuda:sm_90", "opencl"]);
    }
}
