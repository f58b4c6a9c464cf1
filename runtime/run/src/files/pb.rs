//! Folders of `input_J.pb` and `output_J.pb`: ONNX `TensorProto`s, `SequenceProto`s and `OptionalProto`s, J counting
//! the model's inputs or outputs. The type of the input or output tells which message a file holds.
//!
//! Other files in the folder are left alone.

use std::path::Path;

use prost::Message;
use prost::bytes::Bytes;
use tilewright_proto::tensor::{self as message, Elements, no_files};
use tilewright_proto::{OptionalProto, SequenceProto, TensorProto, optional_proto, sequence_proto};
use tilewright_runtime::plan::Nesting;
use tilewright_runtime::{Tensor, Value};

use super::error::{FileError, PbError};
use super::write::write_file;
use crate::spec::Spec;
use crate::values::Named;

/// Reads the files `STEM` J `.pb` of a folder; J counts the specs. A file for what the model does not have comes back under
/// its own name.
pub(super) fn read(dir: &Path, stem: &str, specs: &[Spec]) -> Result<Named, FileError> {
    let in_dir = |error| FileError::Read { path: dir.into(), error };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(in_dir)? {
        let name = entry.map_err(in_dir)?.file_name();
        let name = name.to_string_lossy();
        let number = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(".pb"));
        if let Some(number) = number.and_then(|number| number.parse::<usize>().ok()) {
            files.push((number, name.into_owned()));
        }
    }
    files.sort();
    let load = |(number, file): (usize, String)| {
        let path = dir.join(&file);
        let bytes = std::fs::read(&path).map_err(|error| FileError::Read { path: path.clone(), error })?;
        let spec = specs.get(number);
        let value = decode(&bytes, spec.map_or(&[], |spec| &spec.nesting));
        let value = value.map_err(|error| FileError::Pb { path, error })?;
        Ok((spec.map_or(file, |spec| spec.name.clone()), value))
    };
    files.into_iter().map(load).collect()
}

/// Decodes the message of a value that is nested so.
pub(crate) fn decode(bytes: &[u8], nesting: &[Nesting]) -> Result<Value, PbError> {
    match nesting.first() {
        None => of_tensor(&parse(bytes, "TensorProto")?),
        Some(Nesting::Sequence) => of_sequence(&parse(bytes, "SequenceProto")?, &nesting[1..]),
        Some(Nesting::Optional) => of_optional(&parse(bytes, "OptionalProto")?, &nesting[1..]),
    }
}

fn parse<M: Message + Default>(bytes: &[u8], expected: &'static str) -> Result<M, PbError> {
    M::decode(bytes).map_err(|error| PbError::Message { expected, error })
}

fn of_tensor(proto: &TensorProto) -> Result<Value, PbError> {
    let message::Tensor { dtype, dims, elements } = message::decode(proto, &no_files).map_err(Box::new)?;
    let tensor = match elements {
        Elements::Bytes(bytes) => Tensor::from_bytes(dtype, &dims, bytes)?,
        Elements::Strings(strings) => {
            let text = |(at, bytes): (usize, &Bytes)| {
                String::from_utf8(bytes.to_vec()).map_err(|_| PbError::Utf8(at))
            };
            let strings = strings.iter().enumerate().map(text).collect::<Result<_, _>>()?;
            Tensor::from_strings(&dims, strings)?
        }
    };
    Ok(tensor.into())
}

fn of_sequence(proto: &SequenceProto, inner: &[Nesting]) -> Result<Value, PbError> {
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
        return Err(PbError::Items);
    }
    Ok(Value::sequence(items))
}

fn of_optional(proto: &OptionalProto, inner: &[Nesting]) -> Result<Value, PbError> {
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
        return Err(PbError::Held);
    }
    Ok(Value::optional(value.transpose()?))
}

/// Writes `output_J.pb` into a folder, which is made where it does not exist, and in that case goes again where
/// writing fails.
pub(super) fn write_outputs(dir: &Path, outputs: &Named) -> Result<(), FileError> {
    let is_new = !dir.is_dir();
    if is_new {
        std::fs::create_dir(dir).map_err(|error| FileError::Write { path: dir.into(), error })?;
    }
    let write = |(j, (name, value)): (usize, &(String, Value))| {
        write_file(&dir.join(format!("output_{j}.pb")), &encode(name, value))
    };
    let written = outputs.iter().enumerate().try_for_each(write);
    if written.is_err() && is_new {
        // That removal fails too (a vanished disk) changes nothing.
        _ = std::fs::remove_dir_all(dir);
    }
    written
}

/// The message of a value.
pub(crate) fn encode(name: &str, value: &Value) -> Vec<u8> {
    match value {
        Value::Tensor(tensor) => to_tensor(tensor, name).encode_to_vec(),
        Value::Sequence(items) => to_sequence(items, name).encode_to_vec(),
        Value::Optional(value) => to_optional(value.as_deref(), name).encode_to_vec(),
    }
}

fn to_tensor(tensor: &Tensor, name: &str) -> TensorProto {
    let elements = match tensor.view() {
        Some(view) => Elements::Bytes(Bytes::copy_from_slice(view.bytes)),
        None => {
            let strings = tensor.strings().iter();
            Elements::Strings(strings.map(|text| Bytes::copy_from_slice(text.as_bytes())).collect())
        }
    };
    message::Tensor { dtype: tensor.dtype(), dims: tensor.dims().to_vec(), elements }.to_proto(name)
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
            Value::Tensor(tensor) => proto.tensor_values.push(to_tensor(tensor, "")),
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
            proto.tensor_value = Some(to_tensor(tensor, ""));
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
    use tilewright_dtype::DType;

    use super::*;

    fn spec(name: &str, nesting: &[Nesting]) -> Spec {
        Spec { name: name.to_string(), nesting: nesting.to_vec(), dtype: DType::F32, dims: None }
    }

    fn scalar(element: i32) -> Value {
        Tensor::new(&[], [element]).unwrap().into()
    }

    #[test]
    fn files_are_matched_by_number_and_others_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let strings = Tensor::from_strings(&[2], vec!["a".to_string(), "é".to_string()]).unwrap();
        let narrow = Tensor::from_bytes(DType::I4, &[3], [0xf8, 0, 7]).unwrap();
        let outputs = vec![
            ("y".to_string(), scalar(1)),
            ("z".to_string(), strings.into()),
            ("w".to_string(), narrow.into()),
        ];
        write_outputs(dir.path(), &outputs).unwrap();
        std::fs::write(dir.path().join("labels.txt"), "1").unwrap();
        let specs = ["y", "z", "w"].map(|name| spec(name, &[]));
        assert_eq!(read(dir.path(), "output_", &specs).unwrap(), outputs);
        let extra = read(dir.path(), "output_", &specs[..1]).unwrap();
        assert_eq!(extra[1].0, "output_1.pb");
        assert!(read(dir.path(), "input_", &[spec("x", &[])]).unwrap().is_empty());
    }

    #[test]
    fn sequences_and_optionals_come_back() {
        use Nesting::{Optional, Sequence};
        let dir = tempfile::tempdir().unwrap();
        let list = Value::sequence(vec![scalar(1), scalar(2)]);
        let some = |value| Value::optional(Some(value));
        let values = [
            (vec![Sequence], list.clone()),
            (vec![Optional, Sequence], some(list.clone())),
            (vec![Sequence, Optional], Value::sequence(vec![some(scalar(3))])),
            (vec![Optional, Optional], some(Value::optional(None))),
            (vec![Sequence, Sequence], Value::sequence(vec![list])),
        ];
        let (specs, outputs): (Vec<Spec>, Named) = values
            .into_iter()
            .map(|(nesting, value)| (spec("y", &nesting), ("y".to_string(), value)))
            .unzip();
        write_outputs(dir.path(), &outputs).unwrap();
        assert_eq!(read(dir.path(), "output_", &specs).unwrap(), outputs);
        let error = read(dir.path(), "output_", &[spec("y", &[Sequence, Sequence])]).unwrap_err();
        assert!(matches!(error, FileError::Pb { error: PbError::Items, .. }), "{error}");
    }

    #[test]
    fn damaged_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("input_0.pb");
        std::fs::write(&path, [0xff]).unwrap();
        for (nesting, what) in [(&[][..], "TensorProto"), (&[Nesting::Sequence], "SequenceProto")] {
            let error = read(dir.path(), "input_", &[spec("x", nesting)]).unwrap_err();
            assert!(matches!(error, FileError::Pb { error: PbError::Message { .. }, .. }), "{error}");
            assert!(error.to_string().contains(&format!("input_0.pb: not a {what}")), "{error}");
        }
        let text = message::Tensor {
            dtype: DType::String,
            dims: vec![2],
            elements: Elements::Strings(vec![Bytes::from("a"), Bytes::from(vec![0xff])]),
        };
        std::fs::write(&path, text.to_proto("").encode_to_vec()).unwrap();
        let error = read(dir.path(), "input_", &[spec("x", &[])]).unwrap_err();
        assert!(error.to_string().ends_with("input_0.pb: element 1 is not UTF-8"), "{error}");
    }
}
