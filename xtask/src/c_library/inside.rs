//! Libraries with a runtime inside, of models with open extents or decisions: clean headers, no names for others but their own, the artifact's
//! results bit by bit, and what the header promises.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use super::emitted::{Board, asks_for_nothing, command, compiler};
use super::tools::{
    C, C_WARNINGS, CPP, CPP_WARNINGS, FEW_ROUNDS, SANITIZERS, VALGRIND, WARNINGS, count, held_out, missing,
};
use crate::tally::Tally;
use crate::tensor::{self, Elements, Tensor, Value, ValueKind};
use crate::{cross, embedded, project};

/// What a library gives others.
const FUNCTIONS: [&str; 3] = ["open", "run", "sizes"];

/// What it takes from them.
const TAKEN: [&str; 5] = ["bcmp", "memcmp", "memcpy", "memmove", "memset"];

/// Batches of the example.
const BATCHES: [usize; 3] = [1, 3, 7];

/// Models with decisions, of the ONNX suites: a branch, and a loop that does not know how much it gives.
const CASES: [&str; 2] = ["test_if", "test_loop11"];

/// Checks the libraries that the program makes for this machine.
pub(super) fn check(program: &Path, target: &str, codegens: &[&str], tally: &mut Tally) {
    let host = cross::host();
    count(tally, "a runtime for libraries", host.is_none().then(|| "no rustc".to_string()), || {
        embedded::build(host.as_deref().unwrap_or_default()).map(|_| ())
    });
    for codegen in codegens {
        for emit in ["static", "shared"] {
            let folder = project::target_dir().join(format!("c-library/check/inside-{emit}-{codegen}"));
            let inside = Inside { folder, emit, codegen, program, target, board: None };
            let name = format!("--emit {emit} by {codegen} with a runtime");
            let mut one = |what: &str, tools: &[&str], check: &dyn Fn() -> anyhow::Result<()>| {
                let missing = tools.iter().find_map(|tool| missing(tool));
                count(tally, &format!("{name}: {what}"), missing, check);
            };
            one("made", &[], &|| inside.make());
            one("names", &["nm"], &|| inside.names());
            one("header", &["gcc", "g++"], &|| inside.header());
            one("results", &["gcc"], &|| inside.batches());
            one("example", &["gcc"], &|| inside.example());
            one("promises", &["gcc"], &|| inside.promises(&[], &[]));
            one("promises under valgrind", &["gcc", "valgrind"], &|| {
                inside.promises(&[FEW_ROUNDS], VALGRIND)
            });
            one("promises under sanitizers", &["gcc"], &|| inside.promises(&[SANITIZERS], &[]));
            one("system calls", &["gcc", "strace"], &|| inside.system_calls());
            for case in CASES {
                let data = case_folder(case);
                let no_data = (!data.exists())
                    .then(|| format!("no {}: `cargo xtask conformance` has it", data.display()));
                let missing = no_data.or(missing("gcc"));
                count(tally, &format!("{name}: {case}"), missing, || inside.case(&data));
            }
        }
    }
}

/// Checks the static library that the program makes for a machine whose part something else plays; `rust` is that in Rust's words.
pub(crate) fn check_on(program: &Path, codegen: &str, target: &str, rust: &str, board: &Board) -> Tally {
    let mut tally = Tally::default();
    let folder = project::target_dir().join(format!("boards/inside-{target}-{codegen}"));
    let inside = Inside { folder, emit: "static", codegen, program, target, board: Some(board) };
    count(&mut tally, "a runtime for libraries", None, || embedded::build(rust).map(|_| ()));
    count(&mut tally, "a library with a runtime: made", None, || inside.make());
    count(&mut tally, "a library with a runtime: results", None, || inside.batches());
    count(&mut tally, "a library with a runtime: promises", None, || inside.promises(&[], &[]));
    tally
}

fn case_folder(case: &str) -> PathBuf {
    project::target_dir().join("conformance/node").join(case)
}

struct Inside<'a> {
    folder: PathBuf,
    emit: &'a str,
    codegen: &'a str,
    program: &'a Path,
    target: &'a str,
    /// Where it runs, if not here.
    board: Option<&'a Board>,
}

impl Inside<'_> {
    /// Compiles a model, to a library of this name or to an artifact.
    fn compile(&self, model: &Path, name: Option<&str>, dims: &[&str]) -> anyhow::Result<PathBuf> {
        fs::create_dir_all(&self.folder)?;
        let mut compile = project::command(self.program);
        compile.arg("compile").arg(model).args(["--no-cache", "--target", self.target]);
        compile.args(["--codegen", self.codegen]).args(dims.iter().flat_map(|dim| ["--dim", dim]));
        compile.env("TILEWRIGHT_RUNTIMES", project::target_dir().join("runtimes"));
        let output = match name {
            None => self.folder.join("model.twm"),
            Some(name) => {
                compile.args(["--emit", self.emit, "--name", name]);
                self.library(name)
            }
        };
        let compiled = project::output_of(compile.arg("--json").arg("-o").arg(&output));
        compiled.with_context(|| format!("{} does not compile", model.display()))?;
        Ok(output)
    }

    fn library(&self, name: &str) -> PathBuf {
        self.folder.join(format!("lib{name}.{}", if self.emit == "static" { "a" } else { "so" }))
    }

    /// The libraries are made, twice with the same bytes.
    fn make(&self) -> anyhow::Result<()> {
        let digits = digits();
        self.compile(&digits, Some("other"), &["batch=1..16"])?;
        let library = self.compile(&digits, Some("digits"), &["batch=1..8"])?;
        let bytes = fs::read(&library)?;
        self.compile(&digits, Some("digits"), &["batch=1..8"])?;
        ensure!(bytes == fs::read(&library)?, "the second library has other bytes");
        Ok(())
    }

    /// It gives its functions to others, and takes what compilers take.
    fn names(&self) -> anyhow::Result<()> {
        let list = |flag: &str| {
            let mut list = project::command("nm");
            list.args([flag, "--extern-only", "--format=posix"]);
            list.args((self.emit == "shared").then_some("--dynamic")).arg(self.library("digits"));
            let listed = project::output_of(&mut list).context("nm lists no names")?;
            let names = listed.lines().filter(|line| line.contains(' '));
            let mut names: Vec<String> =
                names.filter_map(|line| line.split(' ').next()).map(String::from).collect();
            names.sort();
            anyhow::Ok(names)
        };
        let (defined, undefined) = (list("--defined-only")?, list("--undefined-only")?);
        ensure!(defined == FUNCTIONS.map(|function| format!("digits_{function}")), "it defines {defined:?}");
        let strange: Vec<&String> = undefined.iter().filter(|name| !TAKEN.contains(&name.as_str())).collect();
        ensure!(strange.is_empty(), "it refers to {strange:?}");
        Ok(())
    }

    fn header(&self) -> anyhow::Result<()> {
        let languages = [("gcc", "c", C, C_WARNINGS), ("g++", "cpp", CPP, CPP_WARNINGS)];
        for (compiler, ending, standards, warnings) in languages {
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

    /// A program with some of the libraries in it.
    fn build(&self, source: &str, libraries: &[&str], flags: &[&str]) -> anyhow::Result<PathBuf> {
        let program = self.folder.join(Path::new(source).with_extension("").file_name().context("a file")?);
        let mut compile = compiler(self.board);
        compile.args(["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-pthread"]);
        compile.args(WARNINGS).arg("-Wno-cast-qual").args(flags).arg("-I").arg(&self.folder);
        compile.arg(project::path(source)).args(libraries.iter().map(|name| self.library(name)));
        compile.arg(format!("-Wl,-rpath,{}", self.folder.display()));
        project::run(compile.arg("-o").arg(&program))?;
        Ok(program)
    }

    /// A program where it runs.
    fn running(&self, program: &Path) -> Command {
        match self.board {
            None => project::command(program),
            Some(board) => command(&board.emulator, [program]),
        }
    }

    /// Batches of images have the artifact's scores.
    fn batches(&self) -> anyhow::Result<()> {
        let (model, dims) = (digits(), ["batch=1..8"]);
        self.compile(&model, Some("model"), &dims)?;
        let artifact = self.compile(&model, None, &dims)?;
        let program = self.build("crates/driver/tests/library/any_model.c", &["model"], &[])?;
        let pixels = floats(&held_out())?;
        for batch in BATCHES {
            let input = self.folder.join(format!("batch-{batch}"));
            fs::create_dir_all(&input)?;
            let images = pixels.iter().skip(64 * batch).take(64 * batch).copied();
            let bytes = tensor::floats(&[i64::try_from(batch)?, 1, 8, 8], images);
            fs::write(input.join("input_0.pb"), bytes)?;
            self.compare(&program, &artifact, &input, 1, 1).with_context(|| format!("a batch of {batch}"))?;
        }
        Ok(())
    }

    /// A case of the suites has the artifact's results.
    fn case(&self, case: &Path) -> anyhow::Result<()> {
        let model = case.join("model.onnx");
        self.compile(&model, Some("model"), &[])?;
        let artifact = self.compile(&model, None, &[])?;
        let program = self.build("crates/driver/tests/library/any_model.c", &["model"], &[])?;
        let data = case.join("test_data_set_0");
        let count = |kind: &str| (0..).take_while(|i| data.join(format!("{kind}_{i}.pb")).exists()).count();
        self.compare(&program, &artifact, &data, count("input"), count("output"))
    }

    /// The library and the artifact give the same bits for the inputs of a folder.
    fn compare(
        &self,
        program: &Path,
        artifact: &Path,
        data: &Path,
        n_inputs: usize,
        n_outputs: usize,
    ) -> anyhow::Result<()> {
        let (expected, found) = (self.folder.join("expected"), self.folder.join("found"));
        let mut run = match self.board {
            None => project::command(self.program),
            Some(board) => command(&board.runner, [""; 0]),
        };
        run.arg("run").arg(artifact).arg("--inputs").arg(data).arg("--outputs").arg(&expected);
        project::output_of(&mut run).context("the artifact does not run")?;
        let mut words: Vec<OsString> = vec![found.clone().into()];
        for i in 0..n_inputs {
            let input = tensor_of(&data.join(format!("input_{i}.pb")))?;
            let raw = self.folder.join(format!("input.{i}"));
            fs::write(&raw, bytes_of(&input)?)?;
            let extents: Vec<String> = input.dims.iter().map(i64::to_string).collect();
            let extents = if extents.is_empty() { "-".to_string() } else { extents.join(",") };
            words.extend([raw.into(), extents.into()]);
        }
        let told = project::output_of(self.running(program).args(words)).context("the program fails")?;
        ensure!(told.lines().count() == n_outputs || n_outputs == 1, "it tells of other outputs: {told}");
        for (i, extents) in (0..n_outputs).zip(told.lines()) {
            let expected = tensor_of(&expected.join(format!("output_{i}.pb")))?;
            let dims: Vec<i64> = extents.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
            ensure!(dims == expected.dims, "output {i} is {dims:?} and not {:?}", expected.dims);
            let bytes = fs::read(self.folder.join(format!("found.{i}")))?;
            ensure!(bytes == bytes_of(&expected)?, "output {i} has other bits");
        }
        Ok(())
    }

    /// The example reads the digits as the artifact does.
    fn example(&self) -> anyhow::Result<()> {
        let program = self.build("examples/c/batches.c", &["digits"], &[])?;
        let told = project::output_of(self.running(&program).arg(held_out())).context("the example fails")?;
        let labels = fs::read_to_string(project::path("examples/digits/held-out/labels.txt"))?;
        let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
        ensure!(digits(&told) == digits(&labels), "it reads other digits");
        Ok(())
    }

    fn promises(&self, flags: &[&str], runner: &[&str]) -> anyhow::Result<()> {
        let source = "crates/driver/tests/library/inside.c";
        let program = self.build(source, &["digits", "other"], flags)?;
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
        let program = self.build("crates/driver/tests/library/inside.c", &["digits", "other"], &[])?;
        asks_for_nothing(&program, &self.folder)
    }
}

fn digits() -> PathBuf {
    project::path("examples/digits/digits.onnx")
}

fn tensor_of(path: &Path) -> anyhow::Result<Tensor> {
    match tensor::read(path, ValueKind::Tensor)? {
        Value::Tensor(tensor) => Ok(tensor),
        Value::Sequence(_) | Value::Optional(_) => bail!("{}: not a tensor", path.display()),
    }
}

fn floats(path: &Path) -> anyhow::Result<Vec<f32>> {
    match tensor_of(path)?.elements {
        // Widened when they were read.
        Elements::Float(values) => Ok(values.into_iter().map(|value| value as f32).collect()),
        Elements::Int(_) | Elements::Text(_) => bail!("{}: not a tensor of floats", path.display()),
    }
}

/// The elements as memory has them; of the types that the cases have, by their numbers in ONNX.
fn bytes_of(tensor: &Tensor) -> anyhow::Result<Vec<u8>> {
    match (&tensor.elements, tensor.data_type) {
        (Elements::Float(values), 1) => {
            Ok(values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect())
        }
        (Elements::Int(values), 7) => {
            Ok(values.iter().flat_map(|&value| (value as i64).to_le_bytes()).collect())
        }
        (Elements::Int(values), 9) => Ok(values.iter().map(|&value| value as u8).collect()),
        (_, other) => bail!("elements of type {other}"),
    }
}
