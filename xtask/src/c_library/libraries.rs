//! The C libraries: how they are built, and what is put below a prefix.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::{archive, headers};
use crate::cargo::{self, Cargo};
use crate::{cross, llvm, project};

/// Where libraries go unless it is said.
pub(super) fn default_prefix() -> PathBuf {
    project::target_dir().join("c-library/prefix")
}

/// A library for C programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Library {
    /// Runs models.
    Runtime,
    /// Compiles them, and runs them.
    Compiler,
}

impl Library {
    pub(super) fn package(self) -> &'static str {
        match self {
            Library::Runtime => "tilewright-capi",
            Library::Compiler => "tilewright-capi-compiler",
        }
    }

    /// The name behind `-l`, which is that of its pkg-config file too.
    pub(super) fn name(self) -> &'static str {
        match self {
            Library::Runtime => "tilewright",
            Library::Compiler => "tilewright_compiler",
        }
    }

    /// The profile that it is built with: the compiler's defects are told, and not the end of the program.
    pub(super) fn profile(self) -> &'static str {
        match self {
            Library::Runtime => cross::SMALL,
            Library::Compiler => "release",
        }
    }

    /// Headers that declare its functions.
    pub(super) fn headers(self) -> &'static [&'static str] {
        match self {
            Library::Runtime => &["tilewright.h"],
            Library::Compiler => &["tilewright.h", "tilewright_compiler.h"],
        }
    }
}

/// For which machine a library is, and how small.
#[derive(Clone)]
pub(super) struct Flavour {
    pub(super) target: Option<String>,
    pub(super) small: bool,
    pub(super) host_operators: bool,
}

impl Default for Flavour {
    fn default() -> Flavour {
        Flavour { target: None, small: false, host_operators: true }
    }
}

/// A library as cargo leaves it.
pub(super) struct Built {
    pub(super) shared: PathBuf,
    pub(super) archive: PathBuf,
}

/// The version of the interface, which is that of the shared library: `TW_ABI_VERSION`.
pub(super) fn abi_version() -> anyhow::Result<String> {
    let header = fs::read_to_string(header_folder().join("tilewright.h"))?;
    let line = header.lines().find_map(|line| line.strip_prefix("#define TW_ABI_VERSION "));
    Ok(line.context("tilewright.h states no TW_ABI_VERSION")?.trim().to_string())
}

pub(super) fn header_folder() -> PathBuf {
    project::path("crates/capi/include/tilewright")
}

/// Builds one library, shared and static.
fn build(library: Library, flavour: &Flavour) -> anyhow::Result<Built> {
    let built = build_kinds(library, flavour, "cdylib,staticlib")?;
    let built = Built { shared: built.with_extension("so"), archive: built.with_extension("a") };
    for path in [&built.shared, &built.archive] {
        ensure!(path.exists(), "the build left no {}", path.display());
    }
    Ok(built)
}

/// Builds the smallest static library that runs models, for a system that needs no other one: at `to`.
pub(super) fn build_archive(target: &str, to: &Path) -> anyhow::Result<()> {
    let flavour = Flavour { target: Some(target.to_string()), small: true, host_operators: false };
    let built = build_kinds(Library::Runtime, &flavour, "staticlib")?.with_extension("a");
    let functions = headers::functions(&header_folder(), Library::Runtime.headers())?;
    archive::with_functions_alone(&built, &functions, Some(target), to)
}

/// Builds one library as Rust's kinds of crates; gives where they are, without an ending.
fn build_kinds(library: Library, flavour: &Flavour, kinds: &str) -> anyhow::Result<PathBuf> {
    let mut folder = project::target_dir();
    let cargo = Cargo::detect();
    let mut build = match (&flavour.target, flavour.small) {
        (None, false) => {
            let mut build = cargo::plain("rustc");
            if library == Library::Compiler {
                build.args(["--features", "as-command-line"]);
                if let Some(llvm) = &cargo.llvm {
                    build.env(llvm::PREFIX_VARIABLE, &llvm.prefix).args(["--features", "llvm"]);
                }
            }
            build
        }
        (target, small) => {
            folder = folder.join("cross");
            cross::rustc(target.as_deref(), small, library.profile())?
        }
    };
    build.args(["--package", library.package(), "--lib", "--profile", library.profile()]);
    build.args((!flavour.host_operators).then_some("--no-default-features"));
    build.args(["--crate-type", kinds]).env("CARGO_TARGET_DIR", &folder);
    if let Some(target) = flavour.target.clone().or_else(|| flavour.small.then(cross::host).flatten()) {
        build.args(["--target", &target]);
        folder = folder.join(target);
    }
    // Threads of the pool that a process shares may be about when a program closes the library: it stays.
    let soname = format!("-Clink-arg=-Wl,-soname,lib{}.so.{}", library.name(), abi_version()?);
    build.args(["--", &soname, "-Clink-arg=-Wl,-z,nodelete"]);
    project::run(&mut build)?;
    Ok(folder.join(library.profile()).join(format!("lib{}", library.package().replace('-', "_"))))
}

/// The shared library that runs models, as small as it is built, for this machine or another.
pub(crate) fn small(target: Option<&str>, host_operators: bool) -> anyhow::Result<PathBuf> {
    let flavour = Flavour { target: target.map(String::from), small: true, host_operators };
    Ok(build(Library::Runtime, &flavour)?.shared)
}

/// Builds a library and puts it below `prefix` with all that goes with it.
pub(super) fn install(library: Library, flavour: &Flavour, prefix: &Path) -> anyhow::Result<()> {
    let built = build(library, flavour)?;
    let (headers, libraries) = (prefix.join("include/tilewright"), prefix.join("lib"));
    let (recipes, packages) = (libraries.join("pkgconfig"), libraries.join("cmake/Tilewright"));
    for folder in [&headers, &recipes, &packages] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    for header in ["tilewright.h", "tilewright.hpp", "tilewright_compiler.h"] {
        fs::copy(header_folder().join(header), headers.join(header)).with_context(|| header.to_string())?;
    }
    let name = library.name();
    let versioned = format!("lib{name}.so.{}", abi_version()?);
    replace(&built.shared, &libraries.join(&versioned))?;
    let plain = libraries.join(format!("lib{name}.so"));
    if plain.is_symlink() {
        fs::remove_file(&plain)?;
    }
    symlink(&versioned, &plain)?;
    let functions = headers::functions(&header_folder(), library.headers())?;
    let archive = libraries.join(format!("lib{name}.a"));
    archive::with_functions_alone(&built.archive, &functions, flavour.target.as_deref(), &archive)?;
    for (recipe, to) in [
        ("library.pc.in", recipes.join(format!("{name}.pc"))),
        ("TilewrightConfig.cmake.in", packages.join("TilewrightConfig.cmake")),
        ("TilewrightConfigVersion.cmake.in", packages.join("TilewrightConfigVersion.cmake")),
    ] {
        let text = fs::read_to_string(project::path("xtask/data/c-library").join(recipe))?;
        let text = text.replace("@NAME@", name).replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        fs::write(to, text.replace("@ABI@", &abi_version()?))?;
    }
    Ok(())
}

/// What programs that link the compiler's static library link besides: LLVM, where it has that.
pub(super) fn compiler_libraries() -> anyhow::Result<Vec<String>> {
    let mut words = vec!["-lstdc++".to_string()];
    if let Some(llvm) = Cargo::detect().llvm {
        let mut ask = project::command(llvm.prefix.join("bin/llvm-config"));
        let told = project::output_of(ask.args(["--ldflags", "--libs", "--link-shared"]));
        words.extend(told.context("llvm-config names no libraries")?.split_whitespace().map(String::from));
    }
    Ok(words)
}

/// Copies a file over another one, which programs may have mapped.
pub(super) fn replace(from: &Path, to: &Path) -> anyhow::Result<()> {
    if to.exists() {
        fs::remove_file(to)?;
    }
    fs::copy(from, to).with_context(|| to.display().to_string())?;
    Ok(())
}
