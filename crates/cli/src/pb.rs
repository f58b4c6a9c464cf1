//! Folders of `input_J.pb` and `output_J.pb`: ONNX `TensorProto`s, J counting the model's inputs or outputs.
//!
//! Other files in the folder are left alone.

use std::path::Path;

use prost::Message;
use tilewright::graph::Tensor;
use tilewright::onnx::proto::TensorProto;
use tilewright::onnx::tensor;

use crate::failure::Failure;
use crate::output;

/// Reads `input_J.pb`; `names` are the model's inputs. A file for an input that the model does not have comes
/// back under its own name.
pub(crate) fn read_inputs(dir: &Path, names: &[&str]) -> Result<Vec<(String, Tensor)>, Failure> {
    read(dir, "input_", names)
}

/// Reads `output_J.pb`; `names` are the model's outputs.
pub(crate) fn read_outputs(dir: &Path, names: &[&str]) -> Result<Vec<(String, Tensor)>, Failure> {
    read(dir, "output_", names)
}

fn read(dir: &Path, stem: &str, names: &[&str]) -> Result<Vec<(String, Tensor)>, Failure> {
    let entries = std::fs::read_dir(dir).map_err(|error| Failure::read(dir, &error))?;
    let mut files = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| Failure::read(dir, &error))?.file_name();
        let name = name.to_string_lossy();
        let number = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(".pb"));
        if let Some(number) = number.and_then(|number| number.parse::<usize>().ok()) {
            files.push((number, name.into_owned()));
        }
    }
    files.sort();
    let load = |(number, file): (usize, String)| {
        let path = dir.join(&file);
        let bytes = std::fs::read(&path).map_err(|error| Failure::read(&path, &error))?;
        let invalid = |error: &dyn std::fmt::Display| Failure::data(format!("{}: {error}", path.display()));
        let proto = TensorProto::decode(bytes.as_slice());
        let proto = proto.map_err(|error| invalid(&format!("not a TensorProto: {error}")))?;
        let tensor = tensor::from_proto(&proto).map_err(|error| invalid(&error))?;
        Ok((names.get(number).map_or(file, ToString::to_string), tensor))
    };
    files.into_iter().map(load).collect()
}

/// Writes `output_J.pb` into a folder, which is made where it does not exist, and in that case goes again where
/// writing fails.
pub(crate) fn write_outputs(dir: &Path, outputs: &[(String, Tensor)]) -> Result<(), Failure> {
    let is_new = !dir.is_dir();
    if is_new {
        std::fs::create_dir(dir).map_err(|error| Failure::write(dir, &error))?;
    }
    let write = |(j, (name, tensor)): (usize, &(String, Tensor))| {
        let bytes = tensor::to_proto(tensor, name).encode_to_vec();
        output::write_file(&dir.join(format!("output_{j}.pb")), &bytes)
    };
    let written = outputs.iter().enumerate().try_for_each(write);
    if written.is_err() && is_new {
        // That removal fails too (a vanished disk) changes nothing.
        _ = std::fs::remove_dir_all(dir);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_matched_by_number_and_others_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = [("y".to_string(), Tensor::scalar(1i32)), ("z".to_string(), Tensor::vector(&[2.5f64]))];
        write_outputs(dir.path(), &outputs).unwrap();
        std::fs::write(dir.path().join("labels.txt"), "1").unwrap();
        assert_eq!(read_outputs(dir.path(), &["y", "z"]).unwrap(), outputs);
        let extra = read_outputs(dir.path(), &["y"]).unwrap();
        assert_eq!(extra[1].0, "output_1.pb");
        assert!(read_inputs(dir.path(), &["x"]).unwrap().is_empty());
    }

    #[test]
    fn damaged_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("input_0.pb"), [0xff]).unwrap();
        let failure = read_inputs(dir.path(), &["x"]).unwrap_err();
        assert_eq!(failure.code, 5);
        assert!(failure.message.contains("input_0.pb: not a TensorProto"), "{}", failure.message);
    }
}
