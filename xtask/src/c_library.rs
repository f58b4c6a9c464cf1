//! `cargo xtask c-library`: builds the C libraries and puts them, with headers and what pkg-config and CMake find them by, below a folder.

mod archive;
mod check;
mod headers;
mod size;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::cargo::{self, Cargo};
use crate::project::Verdict;
use crate::{cross, project};

pub(crate) use check::{Counts, check};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to put them: `include`, `lib` and what is in these; target/c-library/prefix if not said
    #[arg(long)]
    prefix: Option<PathBuf>,
    /// Another machine and system in Rust's words, as aarch64-unknown-linux-gnu
    #[arg(long)]
    target: Option<String>,
    /// The compiler's library as well, which is far larger
    #[arg(long)]
    compiler: bool,
    /// Build Rust's library along, without the texts of its defects, and leave host operators out: the smallest library
    #[arg(long, conflicts_with = "compiler")]
    small: bool,
    /// Check the libraries for this machine instead, as `cargo xtask test` does
    #[arg(long)]
    check: bool,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    if args.check {
        let counts = check(&crate::build::tilewright(&Cargo::detect())?)?;
        println!("{counts}");
        return Ok(counts.failed == 0);
    }
    let prefix = match &args.prefix {
        Some(prefix) => std::path::absolute(prefix)?,
        None => default_prefix(),
    };
    let flavour = Flavour { target: args.target.clone(), small: args.small };
    install(Library::Runtime, &flavour, &prefix)?;
    if args.compiler {
        install(Library::Compiler, &flavour, &prefix)?;
    }
    println!("{}", prefix.display());
    Ok(true)
}

/// Where libraries go unless it is said.
fn default_prefix() -> PathBuf {
    project::target_dir().join("c-library/prefix")
}

/// A library for C programs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Library {
    /// Runs models.
    Runtime,
    /// Compiles them, and runs them.
    Compiler,
}

impl Library {
    fn package(self) -> &'static str {
        match self {
            Library::Runtime => "tilewright-capi",
            Library::Compiler => "tilewright-capi-compiler",
        }
    }

    /// The name behind `-l`, which is that of its pkg-config file too.
    fn name(self) -> &'static str {
        match self {
            Library::Runtime => "tilewright",
            Library::Compiler => "tilewright_compiler",
        }
    }

    /// The profile that it is built with: the compiler's defects are told, and not the end of the program.
    fn profile(self) -> &'static str {
        match self {
            Library::Runtime => "c-library",
            Library::Compiler => "release",
        }
    }

    /// Headers that declare its functions.
    fn headers(self) -> &'static [&'static str] {
        match self {
            Library::Runtime => &["tilewright.h"],
            Library::Compiler => &["tilewright.h", "tilewright_compiler.h"],
        }
    }
}

/// For which machine a library is, and how small.
#[derive(Clone, Default)]
struct Flavour {
    target: Option<String>,
    small: bool,
}

/// A library as cargo leaves it.
struct Built {
    shared: PathBuf,
    archive: PathBuf,
}

/// The version of the interface, which is that of the shared library: `TW_ABI_VERSION`.
fn abi_version() -> anyhow::Result<String> {
    let header = fs::read_to_string(header_folder().join("tilewright.h"))?;
    let line = header.lines().find_map(|line| line.strip_prefix("#define TW_ABI_VERSION "));
    Ok(line.context("tilewright.h states no TW_ABI_VERSION")?.trim().to_string())
}

fn header_folder() -> PathBuf {
    project::path("crates/capi/include/tilewright")
}

/// Builds one library, shared and static.
fn build(library: Library, flavour: &Flavour) -> anyhow::Result<Built> {
    let mut folder = project::target_dir();
    let cargo = Cargo::detect();
    let mut build = match (&flavour.target, flavour.small) {
        (None, false) => {
            let mut build = cargo::plain("rustc");
            if let (Library::Compiler, Some(llvm)) = (library, &cargo.llvm) {
                build.env(crate::llvm::PREFIX_VARIABLE, &llvm.prefix).args(["--features", "llvm"]);
            }
            build
        }
        (target, small) => {
            folder = folder.join(if small { "c-library/small" } else { "cross" });
            cross::rustc(target.as_deref(), small)?
        }
    };
    build.args(["--package", library.package(), "--lib", "--profile", library.profile()]);
    build.args(flavour.small.then_some("--no-default-features"));
    build.args(["--crate-type", "cdylib,staticlib"]).env("CARGO_TARGET_DIR", &folder);
    if let Some(target) = flavour.target.clone().or_else(|| flavour.small.then(cross::host).flatten()) {
        build.args(["--target", &target]);
        folder = folder.join(target);
    }
    // Threads of the pool that a process shares may be about when a program closes the library: it stays.
    let soname = format!("-Clink-arg=-Wl,-soname,lib{}.so.{}", library.name(), abi_version()?);
    build.args(["--", &soname, "-Clink-arg=-Wl,-z,nodelete"]);
    project::run(&mut build)?;
    let stem = format!("lib{}", library.package().replace('-', "_"));
    let file = |ending: &str| folder.join(library.profile()).join(format!("{stem}.{ending}"));
    let built = Built { shared: file("so"), archive: file("a") };
    for path in [&built.shared, &built.archive] {
        ensure!(path.exists(), "the build left no {}", path.display());
    }
    Ok(built)
}

/// Builds a library and puts it below `prefix` with all that goes with it.
fn install(library: Library, flavour: &Flavour, prefix: &Path) -> anyhow::Result<()> {
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
    let functions = headers::functions(library.headers())?;
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
fn compiler_libraries() -> anyhow::Result<Vec<String>> {
    let mut words = vec!["-lstdc++".to_string()];
    if let Some(llvm) = Cargo::detect().llvm {
        let mut ask = project::command(llvm.prefix.join("bin/llvm-config"));
        let told = project::output_of(ask.args(["--ldflags", "--libs", "--link-shared"]));
        words.extend(told.context("llvm-config names no libraries")?.split_whitespace().map(String::from));
    }
    Ok(words)
}

/// Copies a file over another one, which programs may have mapped.
fn replace(from: &Path, to: &Path) -> anyhow::Result<()> {
    if to.exists() {
        fs::remove_file(to)?;
    }
    fs::copy(from, to).with_context(|| to.display().to_string())?;
    Ok(())
}
