//! The ten benchmark models: what every code generator makes of them agrees with ONNX Runtime, has the same bits
//! on any number of threads, and is the same artifact when compiled again.
//!
//! The models are large and not part of the repository: `cargo xtask models` puts them into `target/models`. A
//! model that is not there counts as ignored, and so do all of them in a build without optimisation. Arguments
//! choose models by parts of their names.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use tilewright::runtime::threads::ThreadPool;
use tilewright::runtime::{Bytes, Model, SessionOptions, TensorView};
use tilewright::{CodegenKind, DType, Options, compile};

/// Tolerances of an element, relative to itself and to the largest of its output.
const RELATIVE: f64 = 1e-3;
const OF_LARGEST: f64 = 1e-4;

/// A model and the inputs it runs on: for each case the extents of every input.
struct Subject {
    name: &'static str,
    inputs: &'static [(&'static str, Fill)],
    cases: &'static [&'static [usize]],
}

/// What an input is filled with.
#[derive(Clone, Copy)]
enum Fill {
    /// Seeded noise between -2 and 2, as F32.
    Noise,
    /// Seeded token ids below 100, as I64.
    Ids,
    /// Ones whose last eighth is padding, as I64.
    Mask,
}

const IMAGE: &[(&str, Fill)] = &[("input", Fill::Noise)];

const SUBJECTS: [Subject; 10] = [
    Subject { name: "squeezenet1_1", inputs: IMAGE, cases: &[&[1, 3, 224, 224]] },
    Subject { name: "mobilenet_v2", inputs: IMAGE, cases: &[&[1, 3, 224, 224]] },
    Subject { name: "efficientnet_b0", inputs: IMAGE, cases: &[&[1, 3, 224, 224]] },
    Subject { name: "densenet121", inputs: IMAGE, cases: &[&[1, 3, 224, 224]] },
    Subject { name: "resnet50", inputs: IMAGE, cases: &[&[1, 3, 224, 224]] },
    Subject { name: "inception_v3", inputs: IMAGE, cases: &[&[1, 3, 299, 299]] },
    Subject { name: "convnext_tiny", inputs: IMAGE, cases: &[&[1, 3, 224, 224]] },
    Subject { name: "vit_b_16", inputs: IMAGE, cases: &[&[1, 3, 224, 224]] },
    Subject { name: "gpt2_s64", inputs: &[("input_ids", Fill::Ids)], cases: &[&[1, 64]] },
    Subject {
        name: "bert_base_dyn",
        inputs: &[("input_ids", Fill::Ids), ("attention_mask", Fill::Mask)],
        cases: &[&[1, 7], &[2, 128], &[1, 384]],
    },
];

/// A named tensor.
struct Tensor {
    name: String,
    dtype: DType,
    dims: Vec<usize>,
    bytes: Vec<u8>,
}

impl Tensor {
    fn view(&self) -> TensorView<'_> {
        TensorView::new(self.dtype, &self.dims, &self.bytes)
    }
}

/// Inputs, and the outputs that ONNX Runtime has for them.
struct Case {
    inputs: Vec<Tensor>,
    expected: Vec<Tensor>,
}

fn main() -> ExitCode {
    let filters: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let chosen =
        |subject: &&Subject| filters.is_empty() || filters.iter().any(|f| subject.name.contains(f.as_str()));
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for subject in SUBJECTS.iter().filter(chosen) {
        let start = Instant::now();
        match prepare(subject).and_then(|cases| check(subject, &cases)) {
            Ok(()) => {
                passed += 1;
                println!("model {} ... ok, {:.1} s", subject.name, start.elapsed().as_secs_f64());
            }
            Err(Outcome::Skipped(reason)) => {
                ignored += 1;
                println!("model {} ... skipped: {reason}", subject.name);
            }
            Err(Outcome::Failed(reason)) => {
                failed += 1;
                println!("model {} ... FAILED: {reason}", subject.name);
            }
        }
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Why a model did not pass.
enum Outcome {
    Skipped(String),
    Failed(String),
}

/// Prefixes an error with what was being done.
fn failed<E: std::fmt::Display>(doing: &str) -> impl FnOnce(E) -> Outcome {
    move |error| Outcome::Failed(format!("{doing}: {error}"))
}

fn target_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

fn model_path(subject: &Subject) -> PathBuf {
    target_dir().join("models").join(format!("{}.onnx", subject.name))
}

/// The cases of a model with ONNX Runtime's outputs.
fn prepare(subject: &Subject) -> Result<Vec<Case>, Outcome> {
    if cfg!(debug_assertions) {
        return Err(Outcome::Skipped("the build is not optimised".to_string()));
    }
    let model = model_path(subject);
    if !model.exists() {
        let reason = format!("no {}; `cargo xtask models` makes it", model.display());
        return Err(Outcome::Skipped(reason));
    }
    let python = target_dir().join("venv/bin/python");
    let probe = Command::new(&python).args(["-c", "import onnxruntime"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return Err(Outcome::Skipped("no ONNX Runtime; `cargo xtask setup` installs it".to_string()));
    }
    let scratch = tempfile::tempdir().map_err(failed("scratch folder"))?;
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/reference.py")).arg(model);
    let mut prepared = Vec::new();
    for (index, dims) in subject.cases.iter().enumerate() {
        let folder = scratch.path().join(index.to_string());
        let inputs = inputs(subject, dims);
        write(&folder, &inputs).map_err(failed("inputs"))?;
        command.arg(&folder);
        prepared.push((folder, inputs));
    }
    let output = command.output().map_err(failed("ONNX Runtime"))?;
    if !output.status.success() {
        return Err(Outcome::Failed(format!("ONNX Runtime: {}", String::from_utf8_lossy(&output.stderr))));
    }
    let with_outputs = |(folder, inputs): (PathBuf, Vec<Tensor>)| {
        Ok(Case { inputs, expected: read(&folder).map_err(failed("outputs of ONNX Runtime"))? })
    };
    prepared.into_iter().map(with_outputs).collect()
}

/// Compiles and runs a model with every code generator of this build.
fn check(subject: &Subject, cases: &[Case]) -> Result<(), Outcome> {
    for codegen in CodegenKind::ALL {
        if codegen == CodegenKind::Llvm && Options::best_codegen() != CodegenKind::Llvm {
            continue;
        }
        check_with(subject, cases, codegen)
            .map_err(|reason| Outcome::Failed(format!("{codegen}: {reason}")))?;
    }
    Ok(())
}

fn check_with(subject: &Subject, cases: &[Case], codegen: CodegenKind) -> Result<(), String> {
    let bytes = artifact(subject, codegen)?;
    if bytes[..] != artifact(subject, codegen)?[..] {
        return Err("the second compilation made another artifact".to_string());
    }
    let model = Model::from_bytes(bytes).map_err(|error| error.to_string())?;
    for case in cases {
        let shape = &case.inputs[0].dims;
        let single = run(&model, case, 1).map_err(|error| format!("{shape:?}: {error}"))?;
        let double = run(&model, case, 2).map_err(|error| format!("{shape:?}: {error}"))?;
        if single.len() != case.expected.len() {
            return Err(format!("{} outputs, expected {}", single.len(), case.expected.len()));
        }
        for ((one, two), expected) in single.iter().zip(&double).zip(&case.expected) {
            let complain = |reason: &str| format!("{shape:?}, output {}: {reason}", expected.name);
            if one.bytes != two.bytes {
                return Err(complain("other bits on 2 threads than on 1"));
            }
            agrees(one, expected).map_err(|reason| complain(&reason))?;
        }
    }
    Ok(())
}

fn artifact(subject: &Subject, codegen: CodegenKind) -> Result<Bytes, String> {
    let compiled = compile(&model_path(subject), &Options::host(codegen), &mut ());
    compiled.and_then(|compiled| compiled.artifact.to_bytes()).map_err(|error| error.to_string())
}

fn run(model: &Model, case: &Case, threads: usize) -> Result<Vec<Tensor>, String> {
    let pool = Arc::new(ThreadPool::new(threads));
    let mut session = model.session_with(SessionOptions { pool, ..SessionOptions::default() });
    let inputs: Vec<_> = case.inputs.iter().map(|input| (input.name.as_str(), input.view())).collect();
    let outputs = session.run_named(&inputs).map_err(|error| error.to_string())?;
    let owned = outputs.iter().map(|(name, view)| Tensor {
        name: name.to_string(),
        dtype: view.dtype,
        dims: view.dims.to_vec(),
        bytes: view.bytes.to_vec(),
    });
    Ok(owned.collect())
}

/// Whether an F32 output is the expected one within the tolerances.
fn agrees(got: &Tensor, expected: &Tensor) -> Result<(), String> {
    if (&got.name, got.dtype, &got.dims) != (&expected.name, expected.dtype, &expected.dims) {
        return Err(format!("is {} {} {:?}", got.name, got.dtype, got.dims));
    }
    let (got, expected) = (numbers(got)?, numbers(expected)?);
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

fn numbers(tensor: &Tensor) -> Result<Vec<f64>, String> {
    let values = tensor.view().to_vec::<f32>().ok_or_else(|| format!("is of type {}", tensor.dtype))?;
    Ok(values.into_iter().map(f64::from).collect())
}

/// Seeded inputs of the given extents.
fn inputs(subject: &Subject, dims: &[usize]) -> Vec<Tensor> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 40
    };
    let n: usize = dims.iter().product();
    let last = dims.last().copied().unwrap_or(1);
    let fill = |&(name, fill): &(&str, Fill)| {
        let (dtype, bytes) = match fill {
            Fill::Noise => {
                let mut noise = || random() as f32 / (1 << 22) as f32 - 2.0;
                (DType::F32, (0..n).flat_map(|_| noise().to_le_bytes()).collect())
            }
            Fill::Ids => (DType::I64, (0..n).flat_map(|_| (random() as i64 % 100).to_le_bytes()).collect()),
            Fill::Mask => {
                let kept = (last * 7 / 8).max(1);
                (DType::I64, (0..n).flat_map(|i| i64::from(i % last < kept).to_le_bytes()).collect())
            }
        };
        Tensor { name: name.to_string(), dtype, dims: dims.to_vec(), bytes }
    };
    subject.inputs.iter().map(fill).collect()
}

/// Writes inputs as `reference.py` reads them.
fn write(folder: &Path, inputs: &[Tensor]) -> std::io::Result<()> {
    std::fs::create_dir(folder)?;
    let mut list = String::new();
    for (index, input) in inputs.iter().enumerate() {
        let dims: Vec<String> = input.dims.iter().map(usize::to_string).collect();
        let dtype = if input.dtype == DType::F32 { "float32" } else { "int64" };
        writeln!(list, "{} {dtype} {}", input.name, dims.join(",")).map_err(std::io::Error::other)?;
        std::fs::write(folder.join(format!("input_{index}")), &input.bytes)?;
    }
    std::fs::write(folder.join("inputs"), list)
}

/// Reads outputs as `reference.py` writes them.
fn read(folder: &Path) -> Result<Vec<Tensor>, Box<dyn std::error::Error>> {
    let mut outputs = Vec::new();
    for (index, line) in std::fs::read_to_string(folder.join("outputs"))?.lines().enumerate() {
        let [name, "float32", dims] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("not an F32 output: {line}").into());
        };
        let dims = dims.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let bytes = std::fs::read(folder.join(format!("output_{index}")))?;
        outputs.push(Tensor { name: name.to_string(), dtype: DType::F32, dims, bytes });
    }
    Ok(outputs)
}
