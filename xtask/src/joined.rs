//! An archive of objects as one object that defines a few functions for others.
//!
//! What cargo makes has all that a library is of with names that any linker sees: two such libraries in one program would be at odds. Here it
//! becomes one object, of what the functions need, in which all other names are the object's own.

use std::fs;
use std::path::Path;

use crate::project;

/// Who links the object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// This machine's tools, and programs in which exceptions may pass.
    Here,
    /// Another machine's.
    Others,
}

/// What is left out of an object, as `objcopy` takes names.
pub(crate) const BITCODE: &[&str] = &[".llvmbc", ".llvmcmd"];

/// Makes one object of an archive, that defines `functions` for others and nothing else, without some of its sections.
pub(crate) fn join(
    from: &Path,
    functions: &[impl AsRef<str>],
    machine: For,
    left_out: &[&str],
    to: &Path,
) -> anyhow::Result<()> {
    let list = to.with_extension("functions");
    fs::write(&list, functions.iter().map(|name| format!("{}\n", name.as_ref())).collect::<String>())?;
    // LLVM's tools know all machines; those of the system are what a machine without LLVM has, for itself.
    let [linker, objcopy] = match machine {
        For::Others => ["ld.lld-22", "llvm-objcopy-22"],
        For::Here => ["ld", "objcopy"],
    };
    let mut join = project::command(linker);
    // Nothing is thrown away here (`--gc-sections`): GNU ld 2.40 then made a library of the small flavour in which a test failed. The
    // program's own link does it.
    join.args(["-r", "-o"]).arg(to);
    join.args(functions.iter().map(|name| format!("--undefined={}", name.as_ref()))).arg(from);
    project::run(&mut join)?;
    let mut hide = project::command(objcopy);
    hide.arg("--wildcard").arg(format!("--keep-global-symbols={}", list.display())).arg("--strip-debug");
    hide.args(left_out.iter().map(|section| format!("--remove-section={section}"))).arg(to);
    project::run(&mut hide)?;
    Ok(fs::remove_file(list)?)
}
