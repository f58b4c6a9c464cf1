//! Folders of `input_J.pb` and `output_J.pb`: ONNX `TensorProto`s, `SequenceProto`s and `OptionalProto`s, J counting
//! the model's inputs or outputs. The type of the input or output tells which message a file holds.
//!
//! Other files in the folder are left alone.

use std::path::Path;

use prost::Message;
use tilewright::onnx::proto::{OptionalProto, SequenceProto, TensorProto, optional_proto, sequence_proto};
use tilewright::onnx::tensor;
use tilewright::runtime::plan::Nesting;

use crate::failure::Failure;
use crate::output;
use crate::spec::Spec;
use crate::value::{Named, Value};

/// Reads `input_J.pb`; `specs` are the model's inputs. A file for an input that the model does not have comes
/// back under its own name.
pub(crate) fn read_inputs(dir: &Path, specs: &[Spec]) -> Result<Named, Failure> {
    read(dir, "input_", specs)
}

/// Reads `output_J.pb`; `specs` are the model's outputs.
pub(crate) fn read_outputs(dir: &Path, specs: &[Spec]) -> Result<Named, Failure> {
    read(dir, "output_", specs)
}

fn read(dir: &Path, stem: &str, specs: &[Spec]) -> Result<Named, Failure> {
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
        let spec = specs.get(number);
        let value = decode(&bytes, spec.map_or(&[], |spec| &spec.nesting));
        let value = value.map_err(|error| Failure::data(format!("{}: {error}", path.display())))?;
        Ok((spec.map_or(file, |spec| spec.name.clone()), value))
    };
    files.into_iter().map(load).collect()
}

/// Decodes the message of a value that is nested so.
fn decode(bytes: &[u8], nesting: &[Nesting]) -> Result<Value, String> {
    match nesting.first() {
        None => of_tensor(&message(bytes, "TensorProto")?),
        Some(Nesting::Sequence) => of_sequence(&message(bytes, "SequenceProto")?, &nesting[1..]),
        Some(Nesting::Optional) => of_optional(&message(bytes, "OptionalProto")?, &nesting[1..]),
    }
}

fn message<M: Message + Default>(bytes: &[u8], what: &str) -> Result<M, String> {
    M::decode(bytes).map_err(|error| format!("not a {what}: {error}"))
}

fn of_tensor(proto: &TensorProto) -> Result<Value, String> {
    tensor::from_proto(proto).map(Value::Tensor).map_err(|error| error.to_string())
}

fn of_sequence(proto: &SequenceProto, inner: &[Nesting]) -> Result<Value, String> {
    let items: Vec<Value> = match inner.first() {
        None => proto.tensor_values.iter().map(of_tensor).collect::<Result<_, _>>()?,
        Some(Nesting::Sequence) => {
            let item = |item| of_sequence(item, &inner[1..]);
            proto.sequence_values.iter().map(item).collect::<Result<_, _>>()?
        }
        Some(Nesting::Optional) => {
            let item = |item| of_optional(item, &inner[1..]);
            proto.optional_values.iter().map(item).collect::<Result<_, _>>()?
        }
    };
    let there = proto.tensor_values.len()
        + proto.sparse_tensor_values.len()
        + proto.sequence_values.len()
        + proto.map_values.len()
        + proto.optional_values.len();
    if there != items.len() {
        return Err("the items of the sequence are not of the model's type".to_string());
    }
    Ok(Value::Sequence(items))
}

fn of_optional(proto: &OptionalProto, inner: &[Nesting]) -> Result<Value, String> {
    let value = match inner.first() {
        None => proto.tensor_value.as_ref().map(of_tensor),
        Some(Nesting::Sequence) => proto.sequence_value.as_ref().map(|value| of_sequence(value, &inner[1..])),
        Some(Nesting::Optional) => proto.optional_value.as_ref().map(|value| of_optional(value, &inner[1..])),
    };
    let there = [
        proto.tensor_value.is_some(),
        proto.sparse_tensor_value.is_some(),
        proto.sequence_value.is_some(),
        proto.map_value.is_some(),
        proto.optional_value.is_some(),
    ];
    if there.into_iter().filter(|&there| there).count() != usize::from(value.is_some()) {
        return Err("what the optional holds is not of the model's type".to_string());
    }
    Ok(Value::Optional(value.transpose()?.map(Box::new)))
}

/// Writes `output_J.pb` into a folder, which is made where it does not exist, and in that case goes again where
/// writing fails.
pub(crate) fn write_outputs(dir: &Path, outputs: &Named) -> Result<(), Failure> {
    let is_new = !dir.is_dir();
    if is_new {
        std::fs::create_dir(dir).map_err(|error| Failure::write(dir, &error))?;
    }
    let write = |(j, (name, value)): (usize, &(String, Value))| {
        let bytes = match value {
            Value::Tensor(tensor) => tensor::to_proto(tensor, name).encode_to_vec(),
            Value::Sequence(items) => to_sequence(items, name).encode_to_vec(),
            Value::Optional(value) => to_optional(value.as_deref(), name).encode_to_vec(),
        };
        output::write_file(&dir.join(format!("output_{j}.pb")), &bytes)
    };
    let written = outputs.iter().enumerate().try_for_each(write);
    if written.is_err() && is_new {
        // That removal fails too (a vanished disk) changes nothing.
        _ = std::fs::remove_dir_all(dir);
    }
    written
}

fn to_sequence(items: &[Value], name: &str) -> SequenceProto {
    use sequence_proto::DataType;
    let elem_type = match items.first() {
        None | Some(Value::Tensor(_)) => DataType::Tensor,
        Some(Value::Sequence(_)) => DataType::Sequence,
        Some(Value::Optional(_)) => DataType::Optional,
    };
    let mut proto = SequenceProto {
        name: Some(name.to_string()),
        elem_type: Some(elem_type as i32),
        ..SequenceProto::default()
    };
    for item in items {
        match item {
            Value::Tensor(tensor) => proto.tensor_values.push(tensor::to_proto(tensor, "")),
            Value::Sequence(items) => proto.sequence_values.push(to_sequence(items, "")),
            Value::Optional(value) => proto.optional_values.push(to_optional(value.as_deref(), "")),
        }
    }
    proto
}

fn to_optional(value: Option<&Value>, name: &str) -> OptionalProto {
    use optional_proto::DataType;
    let mut proto = OptionalProto { name: Some(name.to_string()), ..OptionalProto::default() };
    let elem_type = match value {
        None => DataType::Undefined,
        Some(Value::Tensor(tensor)) => {
            proto.tensor_value = Some(tensor::to_proto(tensor, ""));
            DataType::Tensor
        }
        Some(Value::Sequence(items)) => {
            proto.sequence_value = Some(to_sequence(items, ""));
            DataType::Sequence
        }
        Some(Value::Optional(value)) => {
            proto.optional_value = Some(Box::new(to_optional(value.as_deref(), "")));
            DataType::Optional
        }
    };
    proto.elem_type = Some(elem_type as i32);
    proto
}

#[cfg(test)]
mod tests {
    use tilewright::DType;
    use tilewright::graph::Tensor;

    use super::*;

    fn spec(name: &str, nesting: &[Nesting]) -> Spec {
        Spec { name: name.to_string(), nesting: nesting.to_vec(), dtype: DType::F32, dims: None }
    }

    #[test]
    fn files_are_matched_by_number_and_others_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = vec![
            ("y".to_string(), Value::Tensor(Tensor::scalar(1i32))),
            ("z".to_string(), Value::Tensor(Tensor::vector(&[2.5f64]))),
        ];
        write_outputs(dir.path(), &outputs).unwrap();
        std::fs::write(dir.path().join("labels.txt"), "1").unwrap();
        assert_eq!(read_outputs(dir.path(), &[spec("y", &[]), spec("z", &[])]).unwrap(), outputs);
        let extra = read_outputs(dir.path(), &[spec("y", &[])]).unwrap();
        assert_eq!(extra[1].0, "output_1.pb");
        assert!(read_inputs(dir.path(), &[spec("x", &[])]).unwrap().is_empty());
    }

    #[test]
    fn sequences_and_optionals_come_back() {
        use Nesting::{Optional, Sequence};
        let dir = tempfile::tempdir().unwrap();
        let list =
            Value::Sequence(vec![Value::Tensor(Tensor::scalar(1i32)), Value::Tensor(Tensor::scalar(2i32))]);
        let some = |value| Value::Optional(Some(Box::new(value)));
        let values = [
            (vec![Sequence], list.clone()),
            (vec![Optional, Sequence], some(list.clone())),
            (vec![Sequence, Optional], Value::Sequence(vec![some(Value::Tensor(Tensor::scalar(3i32)))])),
            (vec![Optional, Optional], some(Value::Optional(None))),
            (vec![Sequence, Sequence], Value::Sequence(vec![list])),
        ];
        let (specs, outputs): (Vec<Spec>, Named) = values
            .into_iter()
            .map(|(nesting, value)| (spec("y", &nesting), ("y".to_string(), value)))
            .unzip();
        write_outputs(dir.path(), &outputs).unwrap();
        assert_eq!(read_outputs(dir.path(), &specs).unwrap(), outputs);
        let failure = read_outputs(dir.path(), &[spec("y", &[Sequence, Sequence])]).unwrap_err();
        assert!(failure.message.contains("not of the model's type"), "{}", failure.message);
    }

    #[test]
    fn damaged_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("input_0.pb"), [0xff]).unwrap();
        for (nesting, what) in [(&[][..], "TensorProto"), (&[Nesting::Sequence], "SequenceProto")] {
            let failure = read_inputs(dir.path(), &[spec("x", nesting)]).unwrap_err();
            assert_eq!(failure.code, 5);
            assert!(failure.message.contains(&format!("input_0.pb: not a {what}")), "{}", failure.message);
        }
    }
}
