//! What the tests on whole models share: ONNX Runtime's answers, ours, and how close they must be; and a `main` for
//! tests that may be skipped.
//!
//! The models are large and not part of the repository: `cargo xtask models` puts them into `target/models`. A
//! model that is not there counts as ignored, and so do all of them in a build without optimisation.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fmt::{Display, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use tilewright::runtime::threads::ThreadPool;
use tilewright::runtime::{Bytes, Model, RunError, Session, SessionOptions, TensorView};
use tilewright::{CodegenKind, DType, Options, compile};

/// Tolerances of an element, relative to itself and to the largest of its output.
const RELATIVE: f64 = 1e-3;
const OF_LARGEST: f64 = 1e-4;

/// A named tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Tensor {
    /// A tensor of F32.
    pub(crate) fn of_f32(name: &str, dims: &[usize], values: impl IntoIterator<Item = f32>) -> Tensor {
        let bytes = values.into_iter().flat_map(f32::to_le_bytes).collect();
        Tensor { name: name.to_string(), dtype: DType::F32, dims: dims.to_vec(), bytes }
    }

    /// A tensor of I64.
    pub(crate) fn of_i64(name: &str, dims: &[usize], values: impl IntoIterator<Item = i64>) -> Tensor {
        let bytes = values.into_iter().flat_map(i64::to_le_bytes).collect();
        Tensor { name: name.to_string(), dtype: DType::I64, dims: dims.to_vec(), bytes }
    }

    fn view(&self) -> TensorView<'_> {
        TensorView::new(self.dtype, &self.dims, &self.bytes)
    }

    /// The elements of an F32 tensor.
    pub(crate) fn numbers(&self) -> Result<Vec<f64>, String> {
        let values = self.view().to_vec::<f32>().ok_or_else(|| format!("is of type {}", self.dtype))?;
        Ok(values.into_iter().map(f64::from).collect())
    }
}

/// Why a subject did not pass.
pub(crate) enum Outcome {
    Skipped(String),
    Failed(String),
}

/// Prefixes an error with what was being done.
pub(crate) fn failed<E: Display>(doing: &str) -> impl FnOnce(E) -> Outcome {
    move |error| Outcome::Failed(format!("{doing}: {error}"))
}

/// Checks subjects one after the other and reports as other test programs do. Arguments choose subjects by parts of
/// their names.
pub(crate) fn check_all<'a, S>(
    subjects: &'a [S],
    name_of: impl Fn(&'a S) -> &'static str,
    check: impl Fn(&'a S) -> Result<(), Outcome>,
) -> ExitCode {
    let filters: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for subject in subjects {
        let name = name_of(subject);
        if !filters.is_empty() && !filters.iter().any(|f| name.contains(f.as_str())) {
            continue;
        }
        let start = Instant::now();
        match check(subject) {
            Ok(()) => {
                passed += 1;
                println!("model {name} ... ok, {:.1} s", start.elapsed().as_secs_f64());
            }
            Err(Outcome::Skipped(reason)) => {
                ignored += 1;
                println!("model {name} ... skipped: {reason}");
            }
            Err(Outcome::Failed(reason)) => {
                failed += 1;
                println!("model {name} ... FAILED: {reason}");
            }
        }
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn target_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Where a model lies, if it can be tested here.
pub(crate) fn model_path(name: &str) -> Result<PathBuf, Outcome> {
    if cfg!(debug_assertions) {
        return Err(Outcome::Skipped("the build is not optimised".to_string()));
    }
    let model = target_dir().join("models").join(format!("{name}.onnx"));
    if !model.exists() {
        let reason = format!("no {}; `cargo xtask models` makes it", model.display());
        return Err(Outcome::Skipped(reason));
    }
    Ok(model)
}

/// An input of a case: elements of its own, or an output of an earlier case.
pub(crate) enum Feed {
    Tensor(Tensor),
    /// The input called `name` takes output `output` of case `case`.
    Carried {
        name: &'static str,
        dims: Vec<usize>,
        case: usize,
        output: usize,
    },
}

/// ONNX Runtime's outputs for each case, or why it refuses the inputs.
pub(crate) type Answers = Vec<Result<Vec<Tensor>, String>>;

/// Runs a model by ONNX Runtime, case after case.
pub(crate) fn onnx_runtime(model: &Path, cases: &[Vec<Feed>]) -> Result<Answers, Outcome> {
    let python = target_dir().join("venv/bin/python");
    let probe = Command::new(&python).args(["-c", "import onnxruntime"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return Err(Outcome::Skipped("no ONNX Runtime; `cargo xtask setup` installs it".to_string()));
    }
    let scratch = tempfile::tempdir().map_err(failed("scratch folder"))?;
    let folders: Vec<PathBuf> = (0..cases.len()).map(|case| scratch.path().join(case.to_string())).collect();
    for (folder, feeds) in folders.iter().zip(cases) {
        write(folder, feeds).map_err(failed("inputs"))?;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/reference.py");
    let output = Command::new(python).arg(script).arg(model).args(&folders).output();
    let output = output.map_err(failed("ONNX Runtime"))?;
    if !output.status.success() {
        return Err(Outcome::Failed(format!("ONNX Runtime: {}", String::from_utf8_lossy(&output.stderr))));
    }
    folders.iter().map(|folder| read(folder).map_err(failed("outputs of ONNX Runtime"))).collect()
}

/// Writes inputs as `reference.py` reads them.
fn write(folder: &Path, feeds: &[Feed]) -> std::io::Result<()> {
    std::fs::create_dir(folder)?;
    let mut list = String::new();
    for (index, feed) in feeds.iter().enumerate() {
        let (name, dtype, dims, file) = match feed {
            Feed::Tensor(tensor) => {
                let file = format!("input_{index}");
                std::fs::write(folder.join(&file), &tensor.bytes)?;
                (tensor.name.as_str(), tensor.dtype, &tensor.dims, file)
            }
            Feed::Carried { name, dims, case, output } => {
                (*name, DType::F32, dims, format!("../{case}/output_{output}"))
            }
        };
        let dtype = if dtype == DType::F32 { "float32" } else { "int64" };
        let dims: Vec<String> = dims.iter().map(usize::to_string).collect();
        let dims = if dims.is_empty() { "-".to_string() } else { dims.join(",") };
        writeln!(list, "{name} {dtype} {dims} {file}").map_err(std::io::Error::other)?;
    }
    std::fs::write(folder.join("inputs"), list)
}

/// Reads outputs as `reference.py` writes them, or the reason for which there are none.
fn read(folder: &Path) -> Result<Result<Vec<Tensor>, String>, Box<dyn std::error::Error>> {
    let refused = folder.join("refused");
    if refused.exists() {
        return Ok(Err(std::fs::read_to_string(refused)?));
    }
    let mut outputs = Vec::new();
    for line in std::fs::read_to_string(folder.join("outputs"))?.lines() {
        let [name, "float32", dims, file] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("not an F32 output: {line}").into());
        };
        let dims = match dims {
            "-" => Vec::new(),
            dims => dims.split(',').map(str::parse).collect::<Result<_, _>>()?,
        };
        let bytes = std::fs::read(folder.join(file))?;
        outputs.push(Tensor { name: name.to_string(), dtype: DType::F32, dims, bytes });
    }
    Ok(Ok(outputs))
}

/// The code generators of this build.
pub(crate) fn codegens() -> impl Iterator<Item = CodegenKind> {
    let has_llvm = Options::best_codegen() == CodegenKind::Llvm;
    CodegenKind::ALL.into_iter().filter(move |&codegen| codegen != CodegenKind::Llvm || has_llvm)
}

/// Compiles a model, and again: the bytes must be the same.
pub(crate) fn artifact(model: &Path, codegen: CodegenKind) -> Result<Bytes, String> {
    let bytes = || -> Result<Bytes, String> {
        let compiled = compile(model, &Options::host(codegen), &mut ());
        compiled.and_then(|compiled| compiled.artifact.to_bytes()).map_err(|error| error.to_string())
    };
    let first = bytes()?;
    if first[..] != bytes()?[..] {
        return Err("the second compilation made another artifact".to_string());
    }
    Ok(first)
}

/// A session of a model on a number of threads.
pub(crate) fn session(model: &Model, threads: usize) -> Session {
    let pool = Arc::new(ThreadPool::new(threads));
    model.session_with(SessionOptions { pool, ..SessionOptions::default() })
}

/// Runs a model on inputs by name.
pub(crate) fn run(session: &mut Session, inputs: &[Tensor]) -> Result<Vec<Tensor>, RunError> {
    let inputs: Vec<_> = inputs.iter().map(|input| (input.name.as_str(), input.view())).collect();
    let outputs = session.run_named(&inputs)?;
    let owned = outputs.iter().map(|(name, view)| Tensor {
        name: name.to_string(),
        dtype: view.dtype,
        dims: view.dims.to_vec(),
        bytes: view.bytes.to_vec(),
    });
    Ok(owned.collect())
}

/// Whether the outputs of one and of two threads have the same bits, and are the expected ones within the tolerances.
pub(crate) fn agree(single: &[Tensor], double: &[Tensor], expected: &[Tensor]) -> Result<(), String> {
    if single.len() != expected.len() {
        return Err(format!("{} outputs, expected {}", single.len(), expected.len()));
    }
    for ((one, two), expected) in single.iter().zip(double).zip(expected) {
        let complain = |reason: &str| format!("output {}: {reason}", expected.name);
        if one.bytes != two.bytes {
            return Err(complain("other bits on 2 threads than on 1"));
        }
        is_close(one, expected).map_err(|reason| complain(&reason))?;
    }
    Ok(())
}

/// Whether an F32 output is the expected one within the tolerances.
fn is_close(got: &Tensor, expected: &Tensor) -> Result<(), String> {
    if (&got.name, got.dtype, &got.dims) != (&expected.name, expected.dtype, &expected.dims) {
        return Err(format!("is {} {} {:?}", got.name, got.dtype, got.dims));
    }
    let (got, expected) = (got.numbers()?, expected.numbers()?);
    let largest = expected.iter().fold(0.0, |largest, value| value.abs().max(largest));
    let far = |(got, expected): &(&f64, &f64)| {
        let close = (*got - *expected).abs() <= RELATIVE * expected.abs() + OF_LARGEST * largest;
        !close
    };
    let pairs = || got.iter().zip(&expected);
    match pairs().find(far) {
        None => Ok(()),
        Some((got, expected)) => Err(format!(
            "{} of {} elements are wrong, the first is {got}, expected {expected}",
            pairs().filter(far).count(),
            pairs().len()
        )),
    }
}
