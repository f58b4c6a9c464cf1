//! Libraries that `tilewright compile --emit static|shared|c` makes of a model: clean headers, one name for others and none from
//! others, the results of the artifact bit by bit, and what the header promises.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use super::tools::{
    C, C_WARNINGS, CPP, CPP_WARNINGS, HERE, SANITIZERS, VALGRIND, WARNINGS, count, held_out, missing,
};
use crate::project;
use crate::tally::Tally;
use crate::tensor::{self, Elements, Tensor, Value, ValueKind};

/// Most bytes of code that the example may become, its weights aside.
const MOST_CODE: u64 = 40_000;

/// A way to make a library.
struct Way {
    codegen: &'static str,
    emit: &'static str,
    /// Its file.
    file: &'static str,
}

const WAYS: &[Way] = &[
    Way { codegen: "llvm", emit: "static", file: "libdigits.a" },
    Way { codegen: "llvm", emit: "shared", file: "libdigits.so" },
    Way { codegen: "cranelift", emit: "static", file: "libdigits.a" },
    Way { codegen: "cranelift", emit: "shared", file: "libdigits.so" },
    Way { codegen: "c", emit: "c", file: "digits.c" },
];

/// Checks the libraries that the program makes; `codegens` are those it has.
pub(super) fn check(program: &Path, target: &str, codegens: &[&str], tally: &mut Tally) {
    for way in WAYS {
        let has = way.is_text() || codegens.contains(&way.codegen);
        let name = format!("--emit {} by {}", way.emit, way.codegen);
        let no_generator = (!has).then(|| format!("no {} in this build", way.codegen));
        let folder = project::target_dir().join(format!("c-library/check/{}-{}", way.emit, way.codegen));
        let emitted = Emitted { folder, way, program, target, board: None };
        let mut one = |what: &str, tools: &[&str], check: &dyn Fn() -> anyhow::Result<()>| {
            let missing = no_generator.clone().or_else(|| tools.iter().find_map(|tool| missing(tool)));
            count(tally, &format!("{name}: {what}"), missing, check);
        };
        one("made", &[], &|| emitted.make());
        one("names", if way.is_text() { &["nm", "gcc"] } else { &["nm"] }, &|| emitted.names());
        one("header", &["gcc", "g++"], &|| emitted.header());
        one("results", &["gcc"], &|| emitted.results());
        one("promises", &["gcc"], &|| emitted.promises(&[], &[]));
        one("promises under valgrind", &["gcc", "valgrind"], &|| emitted.promises(&[], VALGRIND));
        // Optimised, a model's text takes gcc more than a minute.
        one("promises under sanitizers", &["gcc"], &|| emitted.promises(&[SANITIZERS, "-O0"], &[]));
        one("system calls", &["gcc", "strace"], &|| emitted.system_calls());
    }
}

impl Way {
    /// Whether it makes the text of a program.
    fn is_text(&self) -> bool {
        self.emit == "c"
    }
}

/// What the C library has that programs in C call.
const MATHEMATICS: &[&str] = &[
    "ceil", "ceilf", "floor", "floorf", "fma", "fmaf", "memcpy", "rint", "rintf", "sqrt", "sqrtf", "trunc",
    "truncf",
];

/// Checks the static library that the program makes for a machine whose part something else plays.
pub(crate) fn check_on(program: &Path, codegen: &str, target: &str, board: &Board) -> Tally {
    let mut tally = Tally::default();
    for way in WAYS.iter().filter(|way| way.emit == "static" && way.codegen == codegen) {
        let folder = project::target_dir().join(format!("boards/library-{target}-{codegen}"));
        let emitted = Emitted { folder, way, program, target, board: Some(board) };
        count(&mut tally, "a library: made", None, || emitted.make());
        count(&mut tally, "a library: results", None, || emitted.results());
        count(&mut tally, "a library: promises", None, || emitted.promises(&[], &[]));
    }
    tally
}

/// What builds and runs programs for another machine.
pub(crate) struct Board {
    /// A compiler of C, and its words for the machine.
    pub(crate) compiler: Vec<OsString>,
    /// What runs a program.
    pub(crate) emulator: Vec<OsString>,
    /// What runs an artifact: `run` and what follows come behind it.
    pub(crate) runner: Vec<OsString>,
}

struct Emitted<'a> {
    folder: PathBuf,
    way: &'a Way,
    program: &'a Path,
    target: &'a str,
    /// Where it runs, if not here.
    board: Option<&'a Board>,
}

/// A compiler of C for a board, or for this machine.
pub(super) fn compiler(board: Option<&Board>) -> Command {
    match board {
        None => {
            let mut compiler = project::command("gcc");
            compiler.args(HERE);
            compiler
        }
        Some(board) => command(&board.compiler, ["-static"]),
    }
}

/// A command of words, of which there is one at least.
pub(super) fn command(words: &[OsString], more: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let (first, rest) = words.split_first().map_or((OsStr::new(""), words), |(first, rest)| (first, rest));
    let mut command = project::command(first);
    command.args(rest).args(more);
    command
}

impl Emitted<'_> {
    fn compile(&self, more: &[&str], output: &str) -> anyhow::Result<Command> {
        fs::create_dir_all(&self.folder)?;
        let mut compile = project::command(self.program);
        compile.arg("compile").arg(project::path("examples/digits/digits.onnx"));
        compile.args(["--no-cache", "--dim", "batch=1", "--target", self.target]);
        compile.args(more).arg("-o").arg(self.folder.join(output));
        Ok(compile)
    }

    fn library(&self) -> PathBuf {
        self.folder.join(self.way.file)
    }

    /// The library is made, twice with the same bytes, and its code is small.
    fn make(&self) -> anyhow::Result<()> {
        let emit = ["--codegen", self.way.codegen, "--emit", self.way.emit, "--name", "digits", "--json"];
        let mut compile = self.compile(&emit, self.way.file)?;
        let said = project::output_of(&mut compile).context("no library was made")?;
        let bytes = fs::read(self.library())?;
        project::output_of(&mut self.compile(&emit, self.way.file)?).context("no library was made again")?;
        ensure!(bytes == fs::read(self.library())?, "the second library has other bytes");
        let said: serde_json::Value = serde_json::from_str(&said)?;
        let code = said["code_bytes"].as_u64().context("no `code_bytes`")?;
        ensure!(self.way.is_text() || code <= MOST_CODE, "{code} bytes of code are more than {MOST_CODE}");
        Ok(())
    }

    /// It gives one name to others, and takes none; a program in C takes some of the C library's.
    fn names(&self) -> anyhow::Result<()> {
        let object = match self.way.is_text() {
            false => self.library(),
            true => {
                let object = self.folder.join("digits.o");
                let mut compile = project::command("gcc");
                compile.args(["-std=c99", "-O2", "-c"]).args(WARNINGS).arg(self.library());
                project::run(compile.arg("-o").arg(&object))?;
                object
            }
        };
        let list = |flag: &str| {
            let mut list = project::command("nm");
            list.args([flag, "--extern-only", "--format=posix"]);
            list.args((self.way.emit == "shared").then_some("--dynamic")).arg(&object);
            let listed = project::output_of(&mut list).context("nm lists no names")?;
            let names =
                listed.lines().filter(|line| line.contains(' ')).filter_map(|line| line.split(' ').next());
            anyhow::Ok(names.map(String::from).collect::<Vec<String>>())
        };
        let (defined, undefined) = (list("--defined-only")?, list("--undefined-only")?);
        ensure!(defined == ["digits_run"], "it defines {defined:?}");
        let is_allowed = |name: &&String| self.way.is_text() && MATHEMATICS.contains(&name.as_str());
        let strange: Vec<&String> = undefined.iter().filter(|name| !is_allowed(name)).collect();
        ensure!(strange.is_empty(), "it refers to {strange:?}");
        Ok(())
    }

    fn header(&self) -> anyhow::Result<()> {
        let languages = [("gcc", "c", C, C_WARNINGS), ("g++", "cpp", CPP, CPP_WARNINGS)];
        let clang = [("clang", "c", C, C_WARNINGS), ("clang++", "cpp", CPP, CPP_WARNINGS)];
        let there = clang.into_iter().filter(|(compiler, ..)| missing(compiler).is_none());
        for (compiler, ending, standards, warnings) in languages.into_iter().chain(there) {
            let source = self.folder.join(format!("header.{ending}"));
            let void = if ending == "c" { "void" } else { "" };
            fs::write(&source, format!("#include \"digits.h\"\nint main({void}) {{ return 0; }}\n"))?;
            for standard in standards {
                let mut compile = project::command(compiler);
                compile.arg(format!("-std={standard}")).args(WARNINGS).args(warnings).arg("-c").arg(&source);
                project::run(compile.arg("-o").arg(self.folder.join("header.o")))?;
            }
        }
        Ok(())
    }

    /// A program with the library in it.
    fn build(&self, source: &str, flags: &[&str], name: &str) -> anyhow::Result<PathBuf> {
        let program = self.folder.join(name);
        let mut compile = compiler(self.board);
        compile.args(["-std=c99", "-D_POSIX_C_SOURCE=200809L"]).args(WARNINGS).args(flags);
        compile.arg("-I").arg(&self.folder).arg(project::path(source)).arg(self.library());
        compile.arg(format!("-Wl,-rpath,{}", self.folder.display())).arg("-lm");
        project::run(compile.arg("-o").arg(&program))?;
        Ok(program)
    }

    /// The example program reads digits as the artifact does, with the same scores bit by bit. A program in C adds in another order than any
    /// artifact, so its scores are near those of one: each is a sum of some hundred products.
    fn results(&self) -> anyhow::Result<()> {
        let codegen = if self.way.is_text() { "cranelift" } else { self.way.codegen };
        project::run(&mut self.compile(&["--codegen", codegen], "digits.twm")?)?;
        let program = self.build("examples/c/embedded.c", &[], "embedded")?;
        let mut images = Vec::new();
        for digit in fs::read_dir(project::path("examples/digits/images"))? {
            images.push(digit?.path());
        }
        ensure!(!images.is_empty(), "there are no images");
        for image in images {
            let outputs = self.folder.join("outputs");
            let mut run = match self.board {
                None => project::command(self.program),
                Some(board) => command(&board.runner, [""; 0]),
            };
            run.arg("run").arg(self.folder.join("digits.twm")).arg("--inputs").arg(&image);
            project::output_of(run.arg("--outputs").arg(&outputs)).context("the artifact does not run")?;
            let expected = scores(&outputs.join("output_0.pb"))?;
            let said = project::output_of(self.running(&program).arg(image.join("input_0.pb")));
            let said = said.context("the program does not run")?;
            let found: Vec<f32> =
                said.split_whitespace().skip(1).map(str::parse).collect::<Result<_, _>>()?;
            let bits = |scores: &[f32]| scores.iter().map(|score| score.to_bits()).collect::<Vec<u32>>();
            let highest = expected.iter().fold(0.0f32, |highest, score| highest.max(score.abs()));
            let is_near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * highest;
            let holds = match self.way.is_text() {
                true => found.len() == expected.len() && found.iter().zip(&expected).all(is_near),
                false => bits(&found) == bits(&expected),
            };
            ensure!(holds, "{}: {found:?} is not {expected:?}", image.display());
        }
        let all = project::output_of(self.running(&program).arg(held_out()));
        ensure!(all.is_some(), "the program does not read the held-out digits");
        Ok(())
    }

    /// A program where it runs.
    fn running(&self, program: &Path) -> Command {
        match self.board {
            None => project::command(program),
            Some(board) => command(&board.emulator, [program]),
        }
    }

    fn promises(&self, flags: &[&str], runner: &[&str]) -> anyhow::Result<()> {
        let program = self.build("crates/driver/tests/library/contract.c", flags, "contract")?;
        let mut run = match runner.split_first() {
            Some((first, rest)) => {
                let mut run = project::command(first);
                run.args(rest).arg(program);
                run
            }
            None => self.running(&program),
        };
        project::run(&mut run)
    }

    /// Runs ask the system for nothing.
    fn system_calls(&self) -> anyhow::Result<()> {
        let program = self.build("crates/driver/tests/library/contract.c", &[], "contract")?;
        asks_for_nothing(&program, &self.folder)
    }
}

/// Holds a program to asking the system for nothing between its two marks, which are calls of `getppid`.
pub(super) fn asks_for_nothing(program: &Path, folder: &Path) -> anyhow::Result<()> {
    let trace = folder.join("trace.txt");
    project::run(project::command("strace").arg("-o").arg(&trace).arg(program))?;
    let calls = fs::read_to_string(trace)?;
    let calls: Vec<&str> = calls.lines().collect();
    let marks: Vec<usize> = (0..calls.len()).filter(|&i| calls[i].starts_with("getppid")).collect();
    ensure!(marks.len() == 2, "the trace has {} marks", marks.len());
    ensure!(marks[0] + 1 == marks[1], "runs call {:?}", &calls[marks[0] + 1..marks[1]]);
    Ok(())
}

fn scores(path: &Path) -> anyhow::Result<Vec<f32>> {
    match tensor::read(path, ValueKind::Tensor)? {
        // Widened when they were read.
        Value::Tensor(Tensor { elements: Elements::Float(scores), .. }) => {
            Ok(scores.into_iter().map(|score| score as f32).collect())
        }
        _ => bail!("{}: not a tensor of floats", path.display()),
    }
}
