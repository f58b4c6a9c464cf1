//! A library with a runtime inside: the artifact in the runtime's object, which `cargo xtask cross` makes once for a machine.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tilewright_image::{Embedding, Machine, embed};
use tilewright_machine::Arch;
use tilewright_runtime::Bytes;
use tilewright_runtime::artifact::linked::{ARTIFACT_SYMBOL, FACTS_SYMBOL, FUNCTIONS, LinkedFacts};

use crate::error::{CompileError, LibraryError};

/// Names the folder of the runtimes' objects.
const FOLDER_VARIABLE: &str = "TILEWRIGHT_RUNTIMES";

/// What is put into the runtime's object.
#[derive(Debug)]
pub(super) struct Inside {
    pub(super) artifact: Bytes,
    /// Of the artifact.
    pub(super) code_bytes: u64,
    pub(super) facts: LinkedFacts,
    pub(super) arch: Arch,
    /// The runtime's object, if the user names it.
    pub(super) runtime: Option<PathBuf>,
}

impl Inside {
    /// A shared library.
    pub(super) fn shared(&self, name: &str, soname: &str) -> Result<Vec<u8>, CompileError> {
        link_shared(&self.object(name)?, self.arch, soname)
    }

    /// The runtime's object with the artifact in it, and functions of the library's name.
    pub(super) fn object(&self, name: &str) -> Result<Vec<u8>, LibraryError> {
        let path = self.runtime.clone().unwrap_or_else(|| default_runtime(self.arch));
        let looked_for = path.display().to_string();
        let runtime = fs::read(&path).map_err(|why| LibraryError::NoRuntime {
            looked_for: looked_for.clone(),
            target: rust_target(self.arch),
            why,
        })?;
        let functions = FUNCTIONS.map(|(symbol, function)| (symbol, format!("{name}_{function}")));
        let facts = self.facts.to_bytes();
        let embedding = Embedding {
            machine: machine(self.arch),
            code: (ARTIFACT_SYMBOL, &self.artifact),
            constants: (FACTS_SYMBOL, &facts),
            functions: &functions,
        };
        embed(&runtime, &embedding).map_err(|why| LibraryError::BadRuntime { file: looked_for, why })
    }
}

/// Where the runtime for a machine is unless it is said: in a folder that a variable names, or in `runtimes` beside the folder of the program.
fn default_runtime(arch: Arch) -> PathBuf {
    let beside = || Some(env::current_exe().ok()?.parent()?.parent()?.join("runtimes"));
    let folder = env::var_os(FOLDER_VARIABLE).map(PathBuf::from).or_else(beside).unwrap_or_default();
    let (machine, _) = arch.triple().split_once('-').unwrap_or((arch.triple(), ""));
    folder.join(format!("{machine}.o"))
}

/// The machine as objects number it.
const fn machine(arch: Arch) -> Machine {
    match arch {
        Arch::X86_64 => Machine::X86_64,
        Arch::Aarch64 => Machine::AARCH64,
        Arch::Armv7 | Arch::ThumbM => Machine::ARM,
        Arch::Riscv64 => Machine::RISCV,
    }
}

/// What `cargo xtask cross` is to be asked for.
const fn rust_target(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "x86_64-unknown-linux-gnu",
        Arch::Aarch64 => "aarch64-unknown-linux-musl",
        Arch::Armv7 => "armv7-unknown-linux-musleabihf",
        Arch::ThumbM => "thumbv7em-none-eabihf",
        Arch::Riscv64 => "riscv64gc-unknown-linux-musl",
    }
}

/// Linkers in the order in which they are looked for. Those of LLVM know all machines, a compiler of C its own.
const LINKERS: &[&str] = &["ld.lld-22", "ld.lld", "cc"];

/// A shared library of an object, which is found by `soname`.
fn link_shared(object: &[u8], arch: Arch, soname: &str) -> Result<Vec<u8>, CompileError> {
    let folder = tempfile::tempdir().map_err(|source| output_error(&env::temp_dir(), source))?;
    let [from, to] = ["library.o", "library.so"].map(|name| folder.path().join(name));
    fs::write(&from, object).map_err(|source| output_error(&from, source))?;
    let is_here = arch.triple().starts_with(env::consts::ARCH);
    for linker in LINKERS.iter().filter(|&&linker| linker != "cc" || is_here) {
        let mut link = Command::new(linker);
        // `-z text`: the library is shared by processes, so nothing is written into its code.
        match *linker {
            "cc" => link.args(["-shared", "-nostdlib", "-Wl,--gc-sections", "-Wl,-z,text", "-Wl,-soname"]),
            _ => link.args(["-shared", "--gc-sections", "-z", "text", "-soname"]),
        };
        let soname = if *linker == "cc" { format!("-Wl,{soname}") } else { soname.to_owned() };
        let told = match link.arg(soname).arg("-o").arg(&to).arg(&from).output() {
            Ok(told) => told,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(bad_linker(linker, error.to_string()).into()),
        };
        if !told.status.success() {
            return Err(bad_linker(linker, String::from_utf8_lossy(&told.stderr).trim().to_owned()).into());
        }
        return fs::read(&to).map_err(|source| output_error(&to, source));
    }
    Err(LibraryError::NoLinker(LINKERS.join(", ")).into())
}

fn bad_linker(linker: &str, said: String) -> LibraryError {
    LibraryError::Linker { linker: linker.to_owned(), said }
}

fn output_error(path: &Path, source: std::io::Error) -> CompileError {
    CompileError::Output { path: path.display().to_string(), source }
}
