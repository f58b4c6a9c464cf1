//! Static libraries whose functions are those of the headers alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::joined::{BITCODE, For, join};
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
    let joined = folder.join("tilewright.o");
    let functions: Vec<&String> = functions.iter().collect();
    let (machine, archiver) = match target.is_some() {
        true => (For::Others, "llvm-ar-22"),
        false => (For::Here, "ar"),
    };
    // Bitcode of Rust's library is of no use to others, and linkers of older LLVMs stumble over it.
    join(from, &functions, machine, BITCODE, &joined)?;
    if to.exists() {
        fs::remove_file(to)?;
    }
    let mut pack = project::command(archiver);
    project::run(pack.arg("rcs").arg(to).arg(&joined))?;
    Ok(fs::remove_dir_all(&folder)?)
}
