//! How programs and libraries are built for other machines, and what is missing where they cannot be.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::env;
use std::ffi::OsString;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail, ensure};

use crate::{cargo, project, sysroot};

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
    let Program { name, features } = program;
    let built = folder.join(target).join("device").join(name);
    once(&built, || {
        let mut build = command(target)?;
        build.args(["--package", name, "--bin", name, "--features", &features.join(",")]);
        build.args(["--profile", "device", "--target", target]).env("CARGO_TARGET_DIR", &folder);
        project::run(&mut build)
    })?;
    ensure!(built.exists(), "the build left no {}", built.display());
    Ok(built)
}

/// Makes a file, unless this process has made it before: Cargo waits for builds of anything else before it finds that there is nothing to do.
pub(crate) fn once(file: &Path, make: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    static MADE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if !made.contains(file) {
        make()?;
        made.insert(file.to_path_buf());
    }
    Ok(())
}

/// Why [`build`] would fail for a target; nothing where all that it needs is here.
pub(crate) fn missing(target: &str) -> Option<String> {
    if !has_prebuilt_library(target) && !sysroot::has_source() {
        let ways = format!("run `rustup target add {target}`, or `cargo xtask setup --boards` on Debian");
        return Some(format!("no library of Rust for {target}: {ways}"));
    }
    (!has_c_compiler()).then(|| format!("nothing links for {target}: run `cargo xtask setup --boards`"))
}

/// What runs programs for other machines here: for 64-bit ARM, 32-bit ARM and RISC-V.
pub(crate) const EMULATORS: [&str; 3] = ["qemu-aarch64-static", "qemu-arm-static", "qemu-riscv64-static"];

/// The Python environment of zig, and of what lets cargo use it. All clones of a user share it: zig compiles a C library for each machine, for
/// half a minute, and finds it again if it lies where it lay itself.
pub(crate) fn zig_environment() -> PathBuf {
    let pinned = include_str!("../../tools/requirements-boards.txt");
    let version = pinned.lines().find_map(|line| line.strip_prefix("ziglang==")).expect("zig is pinned");
    project::cache_dir().join(format!("zig-{version}"))
}

/// The folder of its programs.
fn zig_programs() -> PathBuf {
    zig_environment().join("bin")
}

/// Whether zig is here, which has compilers of C and linkers for all machines.
pub(crate) fn has_c_compiler() -> bool {
    zig_programs().join("cargo-zigbuild").exists()
}

/// The words of a compiler of C that makes small programs for another machine; `machine` are zig's words for it.
pub(crate) fn c_compiler(machine: &[&str]) -> Vec<OsString> {
    let zig = zig_programs().join("python-zig").into_os_string();
    let words = ["cc"].iter().chain(machine).chain(&["-Os"]);
    std::iter::once(zig).chain(words.map(OsString::from)).collect()
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
    build.env("PATH", path_with(&zig_programs())?);
    // Rust's library for size, with the texts of defects but without what reads debugging tables for them: a third less than the one that
    // rustup has.
    if sysroot::has_source() {
        let flags = small_flags(target);
        let library = with_std(target, SMALL, &flags, FOR_SIZE);
        sysroot::apply(&mut build, &library, linking_flags(target)?)?;
    }
    Ok(build)
}

/// Flags by which the code of a program and of Rust's library is small.
fn small_flags(target: &str) -> Vec<String> {
    // On 32-bit ARM a model's run does not end where functions share pieces.
    let is_arm32 = target.starts_with("arm");
    let flags = [OWN_START, NO_UNWINDING, SMALLER_CODE].into_iter();
    let flags = flags.chain((!is_arm32).then_some(SHARED_CODE));
    words(flags.chain(target.starts_with("aarch64").then_some(SMALLER_CODE_OF_ARM)))
}

/// Flags by which a program is linked, and what it says of files.
fn linking_flags(target: &str) -> anyhow::Result<Vec<String>> {
    let mut flags = Vec::new();
    // Paths in the texts of defects are those of crates, without the folder that they were fetched to.
    for folder in registries()? {
        flags.push(format!("--remap-path-prefix={}/=", folder.display()));
    }
    let link = |word: String| ["-C".to_string(), format!("link-arg={word}")];
    let data = |name: &str| project::path("xtask/data/cross").join(name).display().to_string();
    // On 32-bit ARM the C library has an unwinder of another kind.
    if !target.starts_with("arm") {
        flags.extend(link(data("device.c")));
        flags.extend(link(format!("-Wl,-T,{}", data("device.ld"))));
        // Cargo watches flags, and not files that are named there.
        let mut hash = DefaultHasher::new();
        for file in ["device.c", "device.ld"] {
            std::fs::read(data(file)).with_context(|| data(file))?.hash(&mut hash);
        }
        flags.extend(["--cfg".to_string(), format!("device_files=\"{:x}\"", hash.finish())]);
    }
    flags.extend(["-Os", "-Wl,--no-eh-frame-hdr"].map(String::from).into_iter().flat_map(link));
    Ok(flags)
}

fn words<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    texts.into_iter().flat_map(str::split_whitespace).map(String::from).collect()
}

/// The folders that Cargo has sources of crates in.
fn registries() -> anyhow::Result<Vec<PathBuf>> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let sources = home.context("neither CARGO_HOME nor HOME is set")?.join("registry/src");
    let Ok(folders) = std::fs::read_dir(sources) else { return Ok(Vec::new()) };
    Ok(folders.map(|folder| Ok(folder?.path())).collect::<std::io::Result<_>>()?)
}

/// `cargo rustc` for a target, or for this machine, that makes libraries, with a profile; `small`: with Rust's library built
/// for size, where a defect ends the program without a text.
pub(crate) fn rustc(target: Option<&str>, small: bool, profile: &'static str) -> anyhow::Result<Command> {
    let mut build = match target {
        None => cargo::plain("rustc"),
        Some(target) => {
            if let Some(missing) = missing(target) {
                bail!("{missing}");
            }
            let mut build = project::command(zig_programs().join("cargo-zigbuild"));
            build.arg("rustc").env("PATH", path_with(&zig_programs())?);
            build
        }
    };
    let is_prebuilt = target.is_none_or(has_prebuilt_library);
    if is_prebuilt && !small {
        return Ok(build);
    }
    // What starts programs comes with the C library: of musl, zig has it.
    let own_start = if target.is_some_and(|target| target.ends_with("musl")) { OWN_START } else { "" };
    let (flags, features) = if small {
        (words([own_start, NO_UNWINDING, NO_TEXTS]), FOR_SIZE)
    } else {
        (words([own_start]), AS_IT_COMES)
    };
    let here = host().context("rustc does not tell its host")?;
    let profile = if small { SMALL } else { profile };
    let library = with_std(target.unwrap_or(&here), profile, &flags, features);
    sysroot::apply(&mut build, &library, Vec::new())?;
    Ok(build)
}

/// Rust's library for a system.
fn with_std<'a>(
    target: &'a str,
    profile: &'static str,
    flags: &'a [String],
    features: &'static str,
) -> sysroot::Library<'a> {
    sysroot::Library { crates: "std,panic_abort", features, target, profile, flags }
}

/// `cargo rustc` of what needs Rust's `core` and `alloc` alone. They are built for size where their source is here, and a defect then ends
/// the program without a text.
pub(crate) fn core_alone(target: &str) -> anyhow::Result<Command> {
    if sysroot::has_source() {
        return bare("rustc", target);
    }
    ensure!(
        has_prebuilt_library(target),
        "no library of Rust for {target}: run `rustup target add {target}`, or `cargo xtask setup --boards` on Debian"
    );
    Ok(for_target("rustc", target))
}

/// A verb of cargo's for a machine without a system, with Rust's library for size, where a defect ends the program without a text.
pub(crate) fn bare(verb: &str, target: &str) -> anyhow::Result<Command> {
    let mut build = for_target(verb, target);
    let flags = words([NO_UNWINDING, NO_TEXTS]);
    // Where there is a system, its C library has `memcpy` and the like, and they are faster.
    let is_alone = target.contains("-none-");
    let features = if is_alone { "compiler-builtins-mem,optimize_for_size" } else { FOR_SIZE };
    let (crates, profile) = ("core,alloc,compiler_builtins", SMALL);
    let library = sysroot::Library { crates, features, target, profile, flags: &flags };
    let linker = words(["-C", &format!("linker={BARE_LINKER}")]);
    sysroot::apply(&mut build, &library, linker)?;
    Ok(build)
}

/// A verb of cargo's for a target.
fn for_target(verb: &str, target: &str) -> Command {
    let mut build = cargo::plain(verb);
    build.args(["--target", target]);
    build.env("CARGO_TARGET_DIR", project::target_dir().join("cross"));
    build
}

/// What links programs for machines without a system: Debian's compiler comes without a linker.
pub(crate) const BARE_LINKER: &str = "ld.lld-22";

/// Flags by which zig's files are linked that start programs, and not Rust's.
const OWN_START: &str = "-C link-self-contained=no";

/// No tables for unwinding, which a program that ends at a defect does not read.
const NO_UNWINDING: &str = "-C force-unwind-tables=no";

/// Callees of some more instructions are put in their place. Defects are told with file and line. SHA-256 is a loop and not 64 rounds.
const SMALLER_CODE: &str =
    "-C llvm-args=-inline-threshold=10 -Z location-detail=file,line --cfg sha2_backend_soft=\"compact\"";

/// What many functions have in common is a function, looked for five times over.
const SHARED_CODE: &str = "-C llvm-args=-enable-machine-outliner -C llvm-args=-machine-outliner-reruns=4";

/// All that a program has lies within a mebibyte, and functions save registers by helpers that they share.
const SMALLER_CODE_OF_ARM: &str = "-C code-model=tiny -C llvm-args=-homogeneous-prolog-epilog";

/// No texts of defects.
const NO_TEXTS: &str = "-Z unstable-options -C panic=immediate-abort";

/// The profile of small programs and libraries.
pub(crate) const SMALL: &str = "device";

/// Rust's library in its small variant, and without the reader of debugging tables.
const FOR_SIZE: &str = "optimize_for_size";

/// With what Rust's library has by default.
const AS_IT_COMES: &str = "panic-unwind,backtrace,default";

/// The target that programs for this machine are of.
pub(crate) fn host() -> Option<String> {
    let version = project::output_of(project::command("rustc").arg("-vV"))?;
    version.lines().find_map(|line| line.strip_prefix("host: ")).map(String::from)
}

/// The folders where programs are looked for, after one more.
fn path_with(folder: &Path) -> anyhow::Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_path_buf()).chain(env::split_paths(&path));
    env::join_paths(folders).context("a folder whose name cannot stand in PATH")
}
