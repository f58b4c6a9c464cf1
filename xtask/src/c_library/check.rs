//! What the C libraries must show: clean headers, functions of the headers alone, examples and tests that run without an error of memory,
//! and a size that stays.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::libraries::{Flavour, Library, compiler_libraries, default_prefix, header_folder, install};
use super::tools::{
    C, C_WARNINGS, CPP, CPP_WARNINGS, FEW_ROUNDS, HERE, SANITIZERS, VALGRIND, WARNINGS, count, held_out,
    missing,
};
use super::{emitted, headers, inside};
use crate::cargo::Cargo;
use crate::project;
use crate::tally::Tally;

/// Standards that tilewright.hpp is clean by.
const HPP: &[&str] = &["c++17", "c++20"];

/// What C programs are built with.
const COMPILERS: [(&str, &str); 2] = [("gcc", "g++"), ("clang", "clang++")];

/// Everything that is checked of the libraries; `program` is the compiler that makes the artifacts.
pub(crate) fn check(program: &Path) -> anyhow::Result<Tally> {
    let folder = project::target_dir().join("c-library/check");
    fs::create_dir_all(&folder)?;
    let models = Models::compile(program, here(), &folder)?;
    let bench = Bench { prefix: default_prefix(), models, folder };
    let mut tally = Tally::default();
    let flavour = Flavour::default();
    count(&mut tally, "the runtime's library", None, || install(Library::Runtime, &flavour, &bench.prefix));
    count(&mut tally, "the compiler's library", None, || install(Library::Compiler, &flavour, &bench.prefix));
    for library in [Library::Runtime, Library::Compiler] {
        let name = library.name();
        count(&mut tally, &format!("functions of lib{name}.so"), missing("nm"), || {
            bench.exports(library, "so")
        });
        count(&mut tally, &format!("functions of lib{name}.a"), missing("nm"), || {
            bench.exports(library, "a")
        });
    }
    for (c, cpp) in COMPILERS {
        count(&mut tally, &format!("headers by {c}"), missing(c), || {
            bench.headers(c, C, "tilewright.h", C_WARNINGS)
        });
        count(&mut tally, &format!("headers by {cpp}"), missing(cpp), || {
            bench.headers(cpp, CPP, "tilewright.h", CPP_WARNINGS)?;
            bench.headers(cpp, HPP, "tilewright.hpp", CPP_WARNINGS)
        });
    }
    for test in TESTS {
        let compiler = if test.source.ends_with("cpp") { "g++" } else { "gcc" };
        let name = test.source;
        count(&mut tally, name, missing(compiler), || {
            bench.build(test, compiler, &[], "so")?;
            bench.run(test, &[])
        });
        count(
            &mut tally,
            &format!("{name} under valgrind"),
            missing(compiler).or(missing("valgrind")),
            || {
                bench.build(test, compiler, &[FEW_ROUNDS], "so")?;
                bench.run(test, VALGRIND)
            },
        );
        count(&mut tally, &format!("{name}, static, under sanitizers"), missing(compiler), || {
            bench.build(test, compiler, &[SANITIZERS], "a")?;
            bench.run(test, &[])
        });
    }
    count(&mut tally, "a library that is opened", missing("gcc"), || bench.plugin());
    count(&mut tally, "examples by CMake", missing("cmake").or(missing("gcc")), || bench.cmake());
    count(&mut tally, "examples by pkg-config", missing("pkg-config").or(missing("gcc")), || {
        bench.pkg_config()
    });
    tally.add(check_models(program));
    Ok(tally)
}

/// What is checked of the libraries that models become.
pub(super) fn check_models(program: &Path) -> Tally {
    let mut tally = Tally::default();
    let cargo = Cargo::detect();
    emitted::check(program, here(), cargo.codegens(), &mut tally);
    inside::check(program, here(), cargo.codegens(), &mut tally);
    tally
}

/// The example, compiled.
pub(super) struct Models {
    /// For the machine of the programs: this one, as valgrind plays it, or a board.
    here: PathBuf,
    /// For another machine.
    other: PathBuf,
    /// With bounds of its open dimension.
    bounded: PathBuf,
}

impl Models {
    pub(super) fn compile(program: &Path, here: &str, folder: &Path) -> anyhow::Result<Models> {
        let other = if here.starts_with("x86") { "aarch64" } else { "x86-64-v3" };
        let compile = |target: &str, more: &[&str], name: &str| -> anyhow::Result<PathBuf> {
            let artifact = folder.join(name);
            let mut compile = project::command(program);
            compile.arg("compile").arg(project::path(MODEL)).args(["--target", target]).args(more);
            project::run(compile.args(["--no-cache", "-o"]).arg(&artifact))?;
            Ok(artifact)
        };
        Ok(Models {
            here: compile(here, &[], "digits.twm")?,
            other: compile(other, &[], "other.twm")?,
            bounded: compile(here, &["--dim", "batch=1..8"], "bounded.twm")?,
        })
    }
}

/// What artifacts for this machine are compiled for: valgrind does not know the newest instructions.
fn here() -> &'static str {
    if std::env::consts::ARCH == "x86_64" { "x86-64-v3" } else { "cpu" }
}

const MODEL: &str = "examples/digits/digits.onnx";

/// A program in C or C++ that must end well.
pub(super) struct Test {
    pub(super) source: &'static str,
    pub(super) library: Library,
    pub(super) arguments: fn(&Models) -> Vec<PathBuf>,
}

pub(super) const TESTS: &[Test] = &[
    Test {
        source: "crates/capi/tests/errors.c",
        library: Library::Runtime,
        arguments: |models| vec![models.here.clone(), models.other.clone(), models.bounded.clone()],
    },
    Test {
        source: "crates/capi/tests/caller.c",
        library: Library::Runtime,
        arguments: |models| vec![models.here.clone()],
    },
    Test { source: "crates/capi/tests/layout.c", library: Library::Runtime, arguments: |_| vec![] },
    Test {
        source: "examples/c/digits.c",
        library: Library::Runtime,
        arguments: |models| vec![models.here.clone(), project::path("examples/digits/images/3/input_0.pb")],
    },
    Test {
        source: "examples/c/threads.c",
        library: Library::Runtime,
        arguments: |models| vec![models.here.clone(), held_out()],
    },
    Test {
        source: "examples/cpp/digits.cpp",
        library: Library::Runtime,
        arguments: |models| vec![models.here.clone(), held_out()],
    },
    Test {
        source: "examples/c/compile.c",
        library: Library::Compiler,
        arguments: |_| vec![project::path(MODEL), project::path("examples/digits/images/3/input_0.pb")],
    },
    Test {
        source: "crates/capi-compiler/tests/compiler.c",
        library: Library::Compiler,
        arguments: |_| vec![project::path(MODEL), project::target_dir().join("c-library/check/written.twm")],
    },
];

/// What compilers are told of a program: its language, and that it has POSIX threads and aligned memory, which the standard has not.
pub(super) fn words(source: &str) -> Vec<&'static str> {
    let standard = match source {
        _ if source.ends_with("cpp") => "-std=c++17",
        _ if source.ends_with("layout.c") => "-std=c11",
        _ => "-std=c99",
    };
    [&[standard, "-D_POSIX_C_SOURCE=200809L", "-pthread"], WARNINGS].concat()
}

/// What the checks work with.
struct Bench {
    prefix: PathBuf,
    models: Models,
    folder: PathBuf,
}

impl Bench {
    fn library(&self, library: Library, ending: &str) -> PathBuf {
        self.prefix.join(format!("lib/lib{}.{ending}", library.name()))
    }

    /// The library defines the functions of its headers for others, and nothing else.
    fn exports(&self, library: Library, ending: &str) -> anyhow::Result<()> {
        let mut list = project::command("nm");
        list.args(["--defined-only", "--extern-only", "--format=posix"]);
        list.args((ending == "so").then_some("--dynamic")).arg(self.library(library, ending));
        let listed = project::output_of(&mut list).context("nm lists no names")?;
        let names =
            listed.lines().filter(|line| line.contains(' ')).filter_map(|line| line.split(' ').next());
        let found: BTreeSet<String> = names.map(String::from).collect();
        let declared = headers::functions(&header_folder(), library.headers())?;
        let (more, less) = (found.difference(&declared), declared.difference(&found));
        let differ: Vec<&String> = more.chain(less).collect();
        ensure!(differ.is_empty(), "only one of header and library has {differ:?}");
        ensure!(!declared.is_empty(), "the headers declare nothing");
        Ok(())
    }

    /// Every header is clean by itself.
    fn headers(
        &self,
        compiler: &str,
        standards: &[&str],
        first: &str,
        warnings: &[&str],
    ) -> anyhow::Result<()> {
        let is_cpp = compiler.ends_with("++");
        let source = self.folder.join(if is_cpp { "header.cpp" } else { "header.c" });
        let all = if first.ends_with("hpp") { vec![first] } else { vec![first, "tilewright_compiler.h"] };
        for header in all {
            let main = if is_cpp { "int main() { return 0; }" } else { "int main(void) { return 0; }" };
            fs::write(&source, format!("#include <tilewright/{header}>\n{main}\n"))?;
            for standard in standards {
                let mut compile = project::command(compiler);
                compile.arg(format!("-std={standard}")).args(WARNINGS).args(warnings);
                // Functions that are defined in a header are used by nobody here.
                compile.arg("-I").arg(self.prefix.join("include")).arg("-c").arg(&source);
                project::run(compile.arg("-o").arg(self.folder.join("header.o")))?;
            }
        }
        Ok(())
    }

    /// Where a test's program is.
    fn program(&self, test: &Test) -> PathBuf {
        self.folder.join(test.source.replace(['/', '.'], "-"))
    }

    /// `cc` as the documentation has it.
    fn compile(&self, compiler: &str, source: &str) -> Command {
        let mut compile = project::command(compiler);
        compile
            .args(HERE)
            .args(words(source))
            .arg("-I")
            .arg(self.prefix.join("include"))
            .arg(project::path(source));
        compile
    }

    fn build(&self, test: &Test, compiler: &str, flags: &[&str], ending: &str) -> anyhow::Result<()> {
        let mut compile = self.compile(compiler, test.source);
        compile.args(flags).arg(self.library(test.library, ending));
        compile.arg(format!("-Wl,-rpath,{}", self.prefix.join("lib").display()));
        if ending == "a" {
            compile.args(["-lm", "-ldl", "-lgcc_s"]);
            if test.library == Library::Compiler {
                compile.args(compiler_libraries()?);
            }
        }
        project::run(compile.arg("-o").arg(self.program(test)))
    }

    fn run(&self, test: &Test, runner: &[&str]) -> anyhow::Result<()> {
        let program = self.program(test);
        let mut run = match runner.split_first() {
            Some((first, rest)) => {
                let mut run = project::command(first);
                run.args(rest).arg(program);
                run
            }
            None => project::command(program),
        };
        project::run(run.args((test.arguments)(&self.models)))
    }

    /// A program that opens the library by itself, and closes it.
    fn plugin(&self) -> anyhow::Result<()> {
        let program = self.folder.join("plugin");
        let mut compile = self.compile("gcc", "crates/capi/tests/plugin.c");
        project::run(compile.arg("-ldl").arg("-o").arg(&program))?;
        let library = self.library(Library::Runtime, "so");
        project::run(project::command(program).arg(library).arg(&self.models.here))
    }

    fn cmake(&self) -> anyhow::Result<()> {
        let folder = self.folder.join("cmake");
        let mut configure = project::command("cmake");
        configure.arg("-S").arg(project::path("examples")).arg("-B").arg(&folder);
        let prefix = self.prefix.display();
        project::run(configure.arg(format!("-DCMAKE_PREFIX_PATH={prefix}")).arg("--log-level=WARNING"))?;
        project::run(project::command("cmake").arg("--build").arg(&folder))?;
        for program in ["digits", "digits_static", "digits_cpp", "threads"] {
            project::run(project::command(folder.join(program)).arg(&self.models.here).arg(held_out()))?;
        }
        let mut compile = project::command(folder.join("compile"));
        project::run(
            compile.arg(project::path(MODEL)).arg(project::path("examples/digits/images/3/input_0.pb")),
        )
    }

    fn pkg_config(&self) -> anyhow::Result<()> {
        let mut ask = project::command("pkg-config");
        ask.env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig"));
        let flags = project::output_of(ask.args(["--cflags", "--libs", "tilewright"]));
        let flags = flags.context("pkg-config does not find tilewright")?;
        let program = self.folder.join("by-pkg-config");
        let mut compile = project::command("cc");
        compile.arg(project::path("examples/c/digits.c")).args(flags.split_whitespace());
        project::run(compile.arg("-o").arg(&program))?;
        let mut run = project::command(program);
        run.env("LD_LIBRARY_PATH", self.prefix.join("lib"));
        project::run(run.arg(&self.models.here).arg(held_out()))
    }
}
