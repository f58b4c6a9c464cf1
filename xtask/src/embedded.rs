//! The runtime that a model's library has inside: `runtime/embed` as one object, for each machine.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, ensure};

use crate::joined::{For, join};
use crate::{cross, project};

/// The functions of the object; the compiler gives them other names.
const FUNCTIONS: [&str; 3] = ["tilewright_embed_open", "tilewright_embed_sizes", "tilewright_embed_run"];

/// What no linker needs of it: bitcode, and tables for unwinding, which refer to a function that nobody has. `objcopy` takes wildcards.
const LEFT_OUT: &[&str] = &[
    ".llvmbc",
    ".llvmcmd",
    ".eh_frame",
    ".rela.eh_frame",
    ".gcc_except_table*",
    ".rela.gcc_except_table*",
    ".ARM.exidx*",
    ".rel.ARM.exidx*",
    ".ARM.extab*",
    ".rel.ARM.extab*",
    ".data.DW.ref*",
    ".rela.data.DW.ref*",
    ".group",
];

/// Builds the object for a target, where `tilewright compile --emit static` finds it.
pub(crate) fn build(target: &str) -> anyhow::Result<PathBuf> {
    let (name, _) = target.split_once('-').with_context(|| format!("{target} is no target of Rust's"))?;
    let object = project::target_dir().join("runtimes").join(format!("{name}.o"));
    let archive = project::target_dir().join("cross").join(target).join("device/libtilewright_embed.a");
    cross::once(&archive, || {
        let mut build = cross::core_alone(target)?;
        build.args(["--package", "tilewright-embed", "--lib", "--features", "alone"]);
        build.args(["--crate-type", "staticlib", "--profile", "device"]);
        project::run(&mut build)?;
        ensure!(archive.exists(), "the build left no {}", archive.display());
        let machine = if cross::host().as_deref() == Some(target) { For::Here } else { For::Others };
        fs::create_dir_all(object.parent().context("a folder of runtimes")?)?;
        // Whole or not at all: a compilation may read it meanwhile, and another check make it too.
        let part = object.with_extension(format!("{}.o", std::process::id()));
        join(&archive, &FUNCTIONS, machine, LEFT_OUT, &part)?;
        Ok(fs::rename(&part, &object)?)
    })?;
    Ok(object)
}
