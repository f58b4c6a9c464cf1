//! ONNX Runtime's answers, ours, and how close they must be.

#![allow(dead_code, reason = "each test uses its part")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use tilewright_driver::runtime::threads::ThreadPool;
use tilewright_driver::runtime::{Bytes, Model, RunError, Session, SessionOptions, TensorView};
use tilewright_driver::{CodegenKind, DType, Options, Target, compile};

use crate::common::{failed, target_dir};

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

/// An input of a case: the elements of a tensor, or, with its name and extents, those of an earlier output.
pub(crate) struct Feed {
    pub(crate) tensor: Tensor,
    /// The case and the output of it that the elements come from.
    pub(crate) carried: Option<(usize, usize)>,
}

impl From<Tensor> for Feed {
    fn from(tensor: Tensor) -> Feed {
        Feed { tensor, carried: None }
    }
}

/// ONNX Runtime's outputs for each case, or why it refuses the inputs.
pub(crate) type Answers = Vec<Result<Vec<Tensor>, String>>;

/// Why there is no ONNX Runtime, if so.
pub(crate) fn lacking() -> Option<String> {
    static IS_THERE: OnceLock<bool> = OnceLock::new();
    let probe =
        || Command::new(target_dir().join("venv/bin/python")).args(["-c", "import onnxruntime"]).output();
    let is_there = IS_THERE.get_or_init(|| probe().is_ok_and(|output| output.status.success()));
    (!is_there).then(|| "no ONNX Runtime; `cargo xtask setup` installs it".to_string())
}

/// Runs a model by ONNX Runtime, case after case.
pub(crate) fn answers_of(model: &Path, cases: &[Vec<Feed>]) -> Result<Answers, String> {
    let python = target_dir().join("venv/bin/python");
    let scratch = tempfile::tempdir().map_err(failed("scratch folder"))?;
    let folders: Vec<PathBuf> = (0..cases.len()).map(|case| scratch.path().join(case.to_string())).collect();
    for (folder, feeds) in folders.iter().zip(cases) {
        write(folder, feeds).map_err(failed("inputs"))?;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx_runtime/reference.py");
    let output = Command::new(python).arg(script).arg(model).args(&folders).output();
    let output = output.map_err(failed("ONNX Runtime"))?;
    if !output.status.success() {
        return Err(format!("ONNX Runtime: {}", String::from_utf8_lossy(&output.stderr)));
    }
    folders.iter().map(|folder| read(folder).map_err(failed("outputs of ONNX Runtime"))).collect()
}

/// Writes inputs as `reference.py` reads them.
fn write(folder: &Path, feeds: &[Feed]) -> std::io::Result<()> {
    std::fs::create_dir(folder)?;
    let mut list = String::new();
    for (index, feed) in feeds.iter().enumerate() {
        let Tensor { name, dtype, dims, bytes } = &feed.tensor;
        let file = match feed.carried {
            Some((case, output)) => format!("../{case}/output_{output}"),
            None => {
                let file = format!("input_{index}");
                std::fs::write(folder.join(&file), bytes)?;
                file
            }
        };
        let dtype = if *dtype == DType::F32 { "float32" } else { "int64" };
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
    let all = CodegenKind::ALL.into_iter().filter(|codegen| codegen.makes_machine_code());
    all.filter(move |&codegen| codegen != CodegenKind::Llvm || has_llvm)
}

/// Compiles a model, and again: the bytes must be the same.
pub(crate) fn artifact(model: &Path, codegen: CodegenKind) -> Result<Bytes, String> {
    artifact_for(model, Target::host(codegen))
}

/// The same for any target.
pub(crate) fn artifact_for(model: &Path, target: Target) -> Result<Bytes, String> {
    let options = Options::for_target(target);
    let bytes = || -> Result<Bytes, String> {
        let compiled = compile(model, &options, &mut ());
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
    let outputs = session.run_named(inputs)?;
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

/// Whether an output is the expected one: floats within the tolerances, integers exactly.
fn is_close(got: &Tensor, expected: &Tensor) -> Result<(), String> {
    if (&got.name, got.dtype, &got.dims) != (&expected.name, expected.dtype, &expected.dims) {
        return Err(format!("is {} {} {:?}", got.name, got.dtype, got.dims));
    }
    if got.dtype.is_integer() {
        let differ = got.bytes.chunks(got.dtype.bytes()).zip(expected.bytes.chunks(got.dtype.bytes()));
        let count = differ.filter(|(got, expected)| got != expected).count();
        return if count == 0 { Ok(()) } else { Err(format!("{count} integers are wrong")) };
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
