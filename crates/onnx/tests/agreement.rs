//! Imported and exported again, the models of ONNX's own backend suite pass `onnx.checker` and give the results
//! that come with them.
//!
//! Needs the Python environment in `target/venv`, with `onnx` and `onnxruntime`; without it the test counts as ignored. Which cases there are, and how results are compared, is in `agreement.py`.

#[path = "../../../tools/conditional_tests.rs"]
mod conditional;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use conditional::Conditional;
use prost::Message;
use tilewright_onnx::import::FaultKind;
use tilewright_onnx::{ImportOptions, OnnxModel, export, import};

/// Fewer cases than this that agree mean that the importer or exporter lost something.
const LEAST_AGREEING: usize = 1_800;

fn target_dir() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    env::var_os("CARGO_TARGET_DIR").map_or_else(default, PathBuf::from)
}

fn script(python: &Path, arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agreement.py");
    let output = Command::new(python).arg(script).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn main() -> ExitCode {
    let python = target_dir().join("venv/bin/python");
    let lacking =
        (!python.exists()).then(|| format!("no {} (made by `cargo xtask setup`)", python.display()));
    conditional::run([Conditional::new("exported_suites_agree", lacking, move || {
        exported_suites_agree(&python)
    })])
}

fn exported_suites_agree(python: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let (cases, exported) = (folder.path().join("cases"), folder.path().join("exported"));
    fs::create_dir(&exported).unwrap();
    script(python, &["lay-out", cases.to_str().unwrap()]);
    let mut unexpected = Vec::new();
    for case in fs::read_dir(&cases).unwrap() {
        let case = case.unwrap();
        let model = OnnxModel::load(case.path().join("model.onnx")).unwrap();
        let name = case.file_name().into_string().unwrap();
        let graph = match import(&model, &ImportOptions::default()) {
            Ok(graph) => graph,
            Err(errors) if errors.faults.iter().all(|fault| fault.kind == FaultKind::UnknownOperator) => {
                continue;
            }
            Err(errors) => {
                unexpected.push(format!("{name}: {errors}"));
                continue;
            }
        };
        let proto = export(&graph).unwrap_or_else(|error| panic!("{name}: {error}"));
        fs::write(exported.join(format!("{name}.onnx")), proto.encode_to_vec()).unwrap();
    }
    // Scan with a batch axis; tensors whose rank depends on data.
    assert!(unexpected.len() <= 6, "{}", unexpected.join("\n"));
    let report = script(python, &["compare", cases.to_str().unwrap(), exported.to_str().unwrap()]);
    let (lines, last) = report.trim_end().rsplit_once('\n').unwrap_or(("", report.trim_end()));
    assert_eq!(lines, "", "exported models that do not agree");
    let agreeing: usize = last.parse().unwrap();
    assert!(agreeing >= LEAST_AGREEING, "only {agreeing} cases agree");
    Ok(())
}
