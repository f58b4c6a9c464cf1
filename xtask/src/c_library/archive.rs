//! Static libraries whose functions are those of the headers alone.
//!
//! What cargo makes has all that a library is of with names that any linker sees: two such libraries in one program would be at odds. Here it
//! becomes one object, of what the functions need, in which all other names are the object's own.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::project;

/// Makes a static library that defines `functions` for others and nothing else.
pub(super) fn with_functions_alone(
    from: &Path,
    functions: &BTreeSet<String>,
    target: Option<&str>,
    to: &Path,
) -> anyhow::Result<()> {
    let folder = to.with_extension("parts");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let (joined, list) = (folder.join("tilewright.o"), folder.join("functions.txt"));
    fs::write(&list, functions.iter().map(|name| format!("{name}\n")).collect::<String>())?;
    // LLVM's tools know all machines; those of the system are what a machine without LLVM has, for itself.
    let [linker, objcopy, archiver] = match target.is_some() {
        true => ["ld.lld-22", "llvm-objcopy-22", "llvm-ar-22"],
        false => ["ld", "objcopy", "ar"],
    };
    let mut join = project::command(linker);
    // Nothing is thrown away here (`--gc-sections`): GNU ld 2.40 then made a library of the small flavour in which a test failed. The
    // program's own link does it.
    join.args(["-r", "-o"]).arg(&joined);
    join.args(functions.iter().map(|name| format!("--undefined={name}"))).arg(from);
    project::run(&mut join)?;
    let mut hide = project::command(objcopy);
    hide.arg(format!("--keep-global-symbols={}", list.display())).arg("--strip-debug");
    // Bitcode of Rust's library is of no use to others, and linkers of older LLVMs stumble over it.
    hide.args(["--remove-section=.llvmbc", "--remove-section=.llvmcmd"]).arg(&joined);
    project::run(&mut hide)?;
    if to.exists() {
        fs::remove_file(to)?;
    }
    let mut pack = project::command(archiver);
    project::run(pack.arg("rcs").arg(to).arg(&joined))?;
    Ok(fs::remove_dir_all(&folder)?)
}
