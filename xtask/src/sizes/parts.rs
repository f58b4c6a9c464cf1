//! What is measured: each part's name, the machine it is for, and how it is made. The builds are those of other checks, where these are.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::cargo::Cargo;
use crate::{build, c_library, cross, embedded, firmware, project, sysroot};

/// Something that is deployed.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) target: &'static str,
    kind: Kind,
}

enum Kind {
    /// `tilewright-run`, as `cargo xtask cross` builds it.
    Program,
    /// `libtilewright.so`, as `cargo xtask c-library --small` builds it.
    Library { host_operators: bool },
    /// The runtime that a model's library has inside, as `cargo xtask cross` builds it: code and constants of the object. What a program links
    /// of it is less.
    Embedded,
    /// The code of the example that `tilewright compile --emit static` makes by LLVM.
    Digits,
    /// The firmware in Rust of `cargo xtask firmware` beside its model: the runtime's core and what is around it.
    Core { report: bool },
}

/// In the order in which they are measured.
pub(super) const PARTS: &[Part] = &[
    program("aarch64-unknown-linux-musl"),
    program("armv7-unknown-linux-musleabihf"),
    program("riscv64gc-unknown-linux-musl"),
    embedded("aarch64-unknown-linux-musl"),
    embedded("armv7-unknown-linux-musleabihf"),
    embedded("riscv64gc-unknown-linux-musl"),
    embedded("thumbv7em-none-eabihf"),
    library("libtilewright.so", "x86_64-unknown-linux-gnu", false),
    library("libtilewright.so", "aarch64-unknown-linux-gnu", false),
    library("libtilewright.so with host operators", "x86_64-unknown-linux-gnu", true),
    library("libtilewright.so with host operators", "aarch64-unknown-linux-gnu", true),
    digits("x86-64-v3"),
    digits("cortex-m7"),
    core("firmware in Rust", true),
    core("firmware in Rust, without messages, names, checksums", false),
];

const fn program(target: &'static str) -> Part {
    Part { name: "tilewright-run", target, kind: Kind::Program }
}

const fn embedded(target: &'static str) -> Part {
    Part { name: "runtime inside libraries", target, kind: Kind::Embedded }
}

const fn library(name: &'static str, target: &'static str, host_operators: bool) -> Part {
    Part { name, target, kind: Kind::Library { host_operators } }
}

const fn digits(target: &'static str) -> Part {
    Part { name: "digits", target, kind: Kind::Digits }
}

const fn core(name: &'static str, report: bool) -> Part {
    Part { name, target: "cortex-m7", kind: Kind::Core { report } }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", self.name, self.target)
    }
}

/// What parts are made with.
pub(super) struct Workshop<'a> {
    /// The compiler of models, if another than this tree's.
    program: Option<&'a Path>,
    cargo: Cargo,
}

impl Workshop<'_> {
    pub(super) fn new(program: Option<&Path>) -> Workshop<'_> {
        Workshop { program, cargo: Cargo::detect() }
    }

    /// Why a part cannot be made here; nothing where it can.
    pub(super) fn missing(&self, part: &Part) -> Option<String> {
        match part.kind {
            // Of a library that rustup has, the figures do not hold.
            Kind::Program | Kind::Embedded | Kind::Library { .. } if !sysroot::has_source() => {
                Some("no source of Rust's library: run `cargo xtask setup --boards` on Debian".to_string())
            }
            Kind::Program | Kind::Embedded => cross::missing(part.target),
            Kind::Library { .. } if is_here(part.target) => None,
            Kind::Library { .. } => cross::missing(part.target),
            Kind::Core { .. } => firmware::missing(),
            Kind::Digits => self.cargo.llvm.is_none().then(|| "no LLVM in this build".to_string()),
        }
    }

    /// The tool whose version decides over a part's bytes.
    pub(super) fn tool(&self, part: &Part) -> anyhow::Result<String> {
        match part.kind {
            Kind::Program | Kind::Embedded | Kind::Library { .. } | Kind::Core { .. } => sysroot::compiler(),
            Kind::Digits => {
                let llvm = self.cargo.llvm.as_ref().context("no LLVM in this build")?;
                Ok(format!("LLVM {}", llvm.version))
            }
        }
    }

    /// Makes a part; gives its bytes.
    pub(super) fn bytes(&self, part: &Part) -> anyhow::Result<u64> {
        match part.kind {
            Kind::Program => Ok(fs::metadata(cross::build(part.target, &cross::RUN)?)?.len()),
            Kind::Embedded => text_of(&embedded::build(part.target)?),
            Kind::Library { host_operators } => {
                let target = (!is_here(part.target)).then_some(part.target);
                Ok(fs::metadata(c_library::small(target, host_operators)?)?.len())
            }
            Kind::Digits => self.code_of_digits(part.target),
            Kind::Core { report } => {
                let program = build::tilewright_or(self.program, &self.cargo)?;
                firmware::core::bytes(&program, part.target, report)
            }
        }
    }

    fn code_of_digits(&self, target: &str) -> anyhow::Result<u64> {
        let folder = project::target_dir().join(format!("sizes/{target}"));
        fs::create_dir_all(&folder)?;
        let mut compile = project::command(build::tilewright_or(self.program, &self.cargo)?);
        compile.arg("compile").arg(project::path("examples/digits/digits.onnx"));
        compile.args(["--no-cache", "--dim", "batch=1", "--target", target, "--codegen", "llvm"]);
        compile.args(["--emit", "static", "--name", "digits", "--json", "-o"]);
        let said = project::output_of(compile.arg(folder.join("libdigits.a")));
        let said: serde_json::Value = serde_json::from_str(&said.context("the model does not compile")?)?;
        said["code_bytes"].as_u64().context("no `code_bytes`")
    }
}

/// Bytes of code and constants of an object.
fn text_of(object: &Path) -> anyhow::Result<u64> {
    let sizes = project::output_of(project::command("llvm-size-22").arg(object));
    let sizes = sizes.context("llvm-size tells nothing")?;
    let text = sizes.lines().nth(1).and_then(|row| row.split_whitespace().next()?.parse().ok());
    text.with_context(|| format!("llvm-size tells {sizes:?}"))
}

fn is_here(target: &str) -> bool {
    cross::host().as_deref() == Some(target)
}
