//! How programs and libraries are built for other machines, and what is missing where they cannot be.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::{cargo, project};

/// A program that is built for other machines.
pub(crate) struct Program {
    /// Its name, and that of its package.
    name: &'static str,
    features: &'static [&'static str],
}

/// What runs models.
pub(crate) const RUN: Program = Program { name: "tilewright-run", features: &["program"] };

/// What runs the suite of code generators.
pub(crate) const SUITE_RUNNER: Program = Program { name: "tilewright-suite-runner", features: &[] };

/// A program for a target.
pub(crate) fn build(target: &str, program: &Program) -> anyhow::Result<PathBuf> {
    let folder = project::target_dir().join("cross");
    let mut build = command(target)?;
    let Program { name, features } = program;
    build.args(["--package", name, "--bin", name, "--features", &features.join(",")]);
    build.args(["--profile", "device", "--target", target]).env("CARGO_TARGET_DIR", &folder);
    project::run(&mut build)?;
    let program = folder.join(target).join("device").join(name);
    ensure!(program.exists(), "the build left no {}", program.display());
    Ok(program)
}

/// Whether Rust's library is here as source, for machines that rustup has no library of.
pub(crate) fn has_library_source() -> bool {
    Path::new(DEBIAN_RUSTC).exists() && Path::new(LIBRARY_SOURCE).exists()
}

/// Why [`build`] would fail for a target; nothing where all that it needs is here.
pub(crate) fn missing(target: &str) -> Option<String> {
    if !has_prebuilt_library(target) && !has_library_source() {
        let ways = format!("run `rustup target add {target}`, or `cargo xtask setup --boards` on Debian");
        return Some(format!("no library of Rust for {target}: {ways}"));
    }
    (!has_c_compiler()).then(|| format!("nothing links for {target}: run `cargo xtask setup --boards`"))
}

/// What runs programs for other machines here: for 64-bit ARM, 32-bit ARM and RISC-V.
pub(crate) const EMULATORS: [&str; 3] = ["qemu-aarch64-static", "qemu-arm-static", "qemu-riscv64-static"];

/// Debian's compiler, and the library's source of its version.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const LIBRARY_SOURCE: &str = "/usr/lib/rustlib/src/rust/library";

/// Whether zig is here, which has compilers of C and linkers for all machines.
pub(crate) fn has_c_compiler() -> bool {
    venv().join("cargo-zigbuild").exists()
}

/// The words of a compiler of C for another machine, as zig names it.
pub(crate) fn c_compiler(target: &str) -> Vec<OsString> {
    let zig = venv().join("python-zig");
    [zig.as_os_str(), "cc".as_ref(), "-target".as_ref(), target.as_ref()].map(OsString::from).to_vec()
}

fn venv() -> PathBuf {
    project::target_dir().join("venv/bin")
}

/// Whether the toolchain has the library of a target: `rustup target add` fetches it where rustup may.
fn has_prebuilt_library(target: &str) -> bool {
    let mut rustc = project::command("rustc");
    let folder = project::output_of(rustc.args(["--print", "target-libdir", "--target", target]));
    folder.is_some_and(|folder| Path::new(&folder).exists())
}

/// `cargo build` for a target, by zig, which has the C libraries and linkers of all of them.
fn command(target: &str) -> anyhow::Result<Command> {
    if let Some(missing) = missing(target) {
        bail!("{missing}");
    }
    let mut build = cargo::plain("zigbuild");
    build.env("PATH", path_with(&venv())?);
    // Rust's library for size, with the texts of defects but without what reads debugging tables for them: a third less than the one that
    // rustup has.
    if has_library_source() {
        build_library_along(&mut build, "");
        build.args(FOR_SIZE).env("CARGO_ENCODED_RUSTFLAGS", small_flags(target)?);
    }
    Ok(build)
}

/// Flags by which a program is small, in Cargo's own form: names of folders may have spaces in them.
fn small_flags(target: &str) -> anyhow::Result<String> {
    // On 32-bit ARM a model's run does not end where functions share pieces, and the C library has an unwinder of another kind.
    let is_arm32 = target.starts_with("arm");
    let mut flags: Vec<String> = [OWN_START, NO_UNWINDING, SMALLER_CODE]
        .into_iter()
        .chain((!is_arm32).then_some(SHARED_CODE))
        .chain(target.starts_with("aarch64").then_some(SMALLER_CODE_OF_ARM))
        .flat_map(str::split_whitespace)
        .map(String::from)
        .collect();
    // Paths in the texts of defects are those of crates, without the folder that they were fetched to.
    for folder in registries()? {
        flags.push(format!("--remap-path-prefix={}/=", folder.display()));
    }
    let link = |word: String| ["-C".to_string(), format!("link-arg={word}")];
    let data = |name: &str| project::path("xtask/data/cross").join(name).display().to_string();
    if !is_arm32 {
        flags.extend(link(data("device.c")));
        flags.extend(link(format!("-Wl,-T,{}", data("device.ld"))));
    }
    flags.extend(["-Os", "-Wl,--no-eh-frame-hdr"].map(String::from).into_iter().flat_map(link));
    Ok(flags.join("\u{1f}"))
}

/// The folders that Cargo has sources of crates in.
fn registries() -> anyhow::Result<Vec<PathBuf>> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let sources = home.context("neither CARGO_HOME nor HOME is set")?.join("registry/src");
    let Ok(folders) = std::fs::read_dir(sources) else { return Ok(Vec::new()) };
    Ok(folders.map(|folder| Ok(folder?.path())).collect::<std::io::Result<_>>()?)
}

/// `cargo rustc` for a target, or for this machine, that makes libraries; `small`: with Rust's library built along, for size, where a
/// defect ends the program without a text.
pub(crate) fn rustc(target: Option<&str>, small: bool) -> anyhow::Result<Command> {
    let mut build = match target {
        None => cargo::plain("rustc"),
        Some(target) => {
            if let Some(missing) = missing(target) {
                bail!("{missing}");
            }
            let mut build = project::command(venv().join("cargo-zigbuild"));
            build.arg("rustc").env("PATH", path_with(&venv())?);
            build
        }
    };
    // What starts programs comes with the C library: of musl, zig has it.
    let own_start = if target.is_some_and(|target| target.ends_with("musl")) { OWN_START } else { "" };
    if small {
        ensure!(
            has_library_source(),
            "no source of Rust's library: run `cargo xtask setup --boards` on Debian"
        );
        build_library_along(&mut build, &format!("{own_start} {NO_UNWINDING} {NO_TEXTS}"));
        build.args(FOR_SIZE);
    } else if target.is_some_and(|target| !has_prebuilt_library(target)) {
        build_library_along(&mut build, own_start);
    }
    Ok(build)
}

/// `cargo rustc` of what needs Rust's `core` and `alloc` alone. They are built along, for size, where their source is here, and a defect then
/// ends the program without a text.
pub(crate) fn core_alone(target: &str) -> anyhow::Result<Command> {
    if has_library_source() {
        return bare("rustc", target);
    }
    ensure!(
        has_prebuilt_library(target),
        "no library of Rust for {target}: run `rustup target add {target}`, or `cargo xtask setup --boards` on Debian"
    );
    let mut build = cargo::plain("rustc");
    build.args(["--target", target]).env("CARGO_TARGET_DIR", project::target_dir().join("cross"));
    Ok(build)
}

/// A verb of cargo's for a machine without a system, with Rust's library for size, where a defect ends the program without a text.
pub(crate) fn bare(verb: &str, target: &str) -> anyhow::Result<Command> {
    ensure!(has_library_source(), "no source of Rust's library: run `cargo xtask setup --boards` on Debian");
    let mut build = cargo::plain(verb);
    build.args(["--target", target]).env("CARGO_TARGET_DIR", project::target_dir().join("cross"));
    build.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1");
    build.env("RUSTFLAGS", format!("{NO_UNWINDING} {NO_TEXTS} -C linker={BARE_LINKER}"));
    build.args(["-Z", "build-std=core,alloc,compiler_builtins"]);
    // Where there is a system, its C library has `memcpy` and the like, and they are faster.
    let own_mem = if target.contains("-none-") { "compiler-builtins-mem," } else { "" };
    build.arg("-Z").arg(format!("build-std-features={own_mem}optimize_for_size"));
    Ok(build)
}

/// What links programs for machines without a system: Debian's compiler comes without a linker.
pub(crate) const BARE_LINKER: &str = "ld.lld-22";

/// Flags by which zig's files are linked that start programs, and not Rust's.
const OWN_START: &str = "-C link-self-contained=no";

/// No tables for unwinding, which a program that ends at a defect does not read.
const NO_UNWINDING: &str = "-C force-unwind-tables=no";

/// Callees of some more instructions are put in their place. Defects are told with file and line. SHA-256 is a loop and not 64 rounds.
const SMALLER_CODE: &str =
    "-C llvm-args=-inline-threshold=15 -Z location-detail=file,line --cfg sha2_backend_soft=\"compact\"";

/// What many functions have in common is a function, looked for five times over.
const SHARED_CODE: &str = "-C llvm-args=-enable-machine-outliner -C llvm-args=-machine-outliner-reruns=4";

/// All that a program has lies within a mebibyte, and functions save registers by helpers that they share.
const SMALLER_CODE_OF_ARM: &str = "-C code-model=tiny -C llvm-args=-homogeneous-prolog-epilog";

/// No texts of defects.
const NO_TEXTS: &str = "-Z unstable-options -C panic=immediate-abort";

/// Rust's library in its small variant, and without the reader of debugging tables.
const FOR_SIZE: [&str; 2] = ["-Z", "build-std-features=optimize_for_size"];

/// The compiler that builds Rust's library along, and its version: sizes depend on it.
pub(crate) fn library_compiler() -> anyhow::Result<String> {
    let version = project::output_of(project::command(DEBIAN_RUSTC).arg("--version"));
    let version = version.with_context(|| format!("{DEBIAN_RUSTC} tells no version"))?;
    Ok(version.split(' ').take(2).collect::<Vec<_>>().join(" "))
}

/// The target that programs for this machine are of.
pub(crate) fn host() -> Option<String> {
    let version = project::output_of(project::command("rustc").arg("-vV"))?;
    version.lines().find_map(|line| line.strip_prefix("host: ")).map(String::from)
}

/// Has Rust's library built along, by the compiler that it belongs to. zig has what starts programs.
fn build_library_along(build: &mut Command, flags: &str) {
    build.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags);
    build.args(["-Z", "build-std=std,panic_abort"]);
}

/// The folders where programs are looked for, after one more.
fn path_with(folder: &Path) -> anyhow::Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_path_buf()).chain(env::split_paths(&path));
    env::join_paths(folders).context("a folder whose name cannot stand in PATH")
}
