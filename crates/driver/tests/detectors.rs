//! torchvision's detectors: what is compiled of them agrees with ONNX Runtime, whose answers `tools/detectors.py` stores.
//!
//! `cargo xtask models --detectors` exports them, which takes a large Python environment of its own. A detector that is not there
//! counts as ignored; `post_processing.rs` runs what is particular to them on every machine.

mod common;
mod onnx_runtime;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use common::{failed, model_path};
use onnx_runtime::{Tensor, agree, artifact, codegens, run, session};
use prost::Message;
use tilewright_driver::onnx::proto::TensorProto;
use tilewright_driver::onnx::tensor::from_proto;

const SUBJECTS: [&str; 4] = ["ssd300", "retinanet", "fcos", "faster_rcnn"];

fn main() -> ExitCode {
    common::check_all(&SUBJECTS, |name| name, |name| folder(name).err(), |name| check(&folder(name)?))
}

/// Where a detector lies, or why it cannot be tested here.
fn folder(name: &str) -> Result<PathBuf, String> {
    let model = model_path(&format!("detectors/{name}/model"))
        .map_err(|reason| reason.replace("cargo xtask models", "cargo xtask models --detectors"))?;
    Ok(model.with_file_name(""))
}

/// Compiles and runs a detector by every code generator.
fn check(folder: &Path) -> Result<(), String> {
    let (inputs, expected) = (tensors(folder, "input")?, tensors(folder, "output")?);
    if !expected.iter().all(|output| output.dims.first().is_some_and(|&found| found > 0)) {
        return Err("nothing is detected".to_string());
    }
    for codegen in codegens() {
        let model = tilewright_driver::loader(tilewright_driver::Trust::Origin)
            .from_bytes(artifact(&folder.join("model.onnx"), codegen)?)
            .map_err(failed(codegen.name()))?;
        let of_threads =
            |threads| run(&mut session(&model, threads), &inputs).map_err(|error| error.to_string());
        let checked = of_threads(1).and_then(|single| agree(&single, &of_threads(2)?, &expected));
        checked.map_err(failed(codegen.name()))?;
    }
    Ok(())
}

/// The tensors `KIND_J.pb` of the stored run.
fn tensors(folder: &Path, kind: &str) -> Result<Vec<Tensor>, String> {
    let mut tensors = Vec::new();
    loop {
        let file = folder.join("test_data_set_0").join(format!("{kind}_{}.pb", tensors.len()));
        if !file.exists() {
            return Ok(tensors);
        }
        let bytes = std::fs::read(&file).map_err(failed("a stored tensor"))?;
        let proto = TensorProto::decode(bytes.as_slice()).map_err(failed("a stored tensor"))?;
        let tensor = from_proto(&proto).map_err(failed("a stored tensor"))?;
        let bytes = tensor.bytes().ok_or("a stored tensor is of strings")?.as_slice().to_vec();
        let dims = tensor.dims().to_vec();
        tensors.push(Tensor { name: proto.name().to_string(), dtype: tensor.dtype(), dims, bytes });
    }
}
