//! Tensors in files: an `.npz`, one `.npy`, or a folder of ONNX's messages.

mod error;
mod npy;
mod npz;
pub(crate) mod pb;
mod replace;
mod write;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::spec::Spec;
use crate::values::Named;

pub use error::{FileError, Format, PbError};
pub use npy::NpyError;
pub use replace::replace;

use write::{array, write_file};

/// Reads inputs for the specs of a model's inputs: from an `.npz` or a folder of `input_J.pb`, or, where the model has one
/// input, from an `.npy`. What the model does not know comes along under its own name, for its complaint.
///
/// # Errors
/// [`FileError`]; whether the inputs fit the model is not asked here.
pub fn read_inputs(path: &Path, specs: &[Spec]) -> Result<Named, FileError> {
    read(path, "input_", specs)
}

/// Reads outputs, as [`read_inputs`] reads inputs, of a folder `output_J.pb`.
///
/// # Errors
/// As [`read_inputs`].
pub fn read_outputs(path: &Path, specs: &[Spec]) -> Result<Named, FileError> {
    read(path, "output_", specs)
}

fn read(path: &Path, stem: &str, specs: &[Spec]) -> Result<Named, FileError> {
    if path.is_dir() {
        return pb::read(path, stem, specs);
    }
    let error = |error| FileError::Read { path: path.into(), error };
    let mut file = BufReader::new(File::open(path).map_err(error)?);
    // By its content: a file may be called anything.
    if !file.fill_buf().map_err(error)?.starts_with(npy::MAGIC) {
        return npz::read(path, file, specs);
    }
    let [spec] = specs else { return Err(FileError::NoName { path: path.into(), n: specs.len() }) };
    let tensor = npy::read(&mut file, Some(spec.dtype));
    let tensor = tensor.map_err(|error| FileError::Npy { path: path.into(), error })?;
    Ok(vec![(spec.name.clone(), tensor.into())])
}

/// Writes outputs where the path says: to an `.npz`, to an `.npy` where there is one output, else to a folder of
/// `output_J.pb`. Files are whole or not there.
///
/// # Errors
/// [`FileError`]; of a folder that was not there nothing is left then.
pub fn write_outputs(path: &Path, outputs: &Named) -> Result<(), FileError> {
    match Format::of_path(path) {
        Format::Pb => pb::write_outputs(path, outputs),
        Format::Npz => npz::write(path, outputs),
        Format::Npy => {
            let [(name, value)] = &outputs[..] else {
                return Err(FileError::NoName { path: path.into(), n: outputs.len() });
            };
            write_file(path, &array(name, value, Format::Npy)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use tilewright_dtype::DType;
    use tilewright_runtime::{Tensor, Value};

    use super::*;

    fn spec(name: &str) -> Spec {
        Spec { name: name.to_string(), nesting: vec![], dtype: DType::BF16, dims: None }
    }

    #[test]
    fn one_array_needs_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let tensor = Tensor::from_bytes(DType::BF16, &[2], [0x80, 0x3f, 0, 0]).unwrap();
        let outputs = vec![("y".to_string(), Value::from(tensor))];
        let path = dir.path().join("y.npy");
        write_outputs(&path, &outputs).unwrap();
        assert_eq!(read_outputs(&path, &[spec("y")]).unwrap(), outputs);
        // What it is called does not matter.
        let other = dir.path().join("array.bin");
        std::fs::rename(&path, &other).unwrap();
        assert_eq!(read_inputs(&other, &[spec("x")]).unwrap()[0].0, "x");
        let error = read_inputs(&other, &[spec("x"), spec("mask")]).unwrap_err();
        let expected = "array.bin: one array without a name, for 2 tensors: give an .npz";
        assert!(error.to_string().ends_with(expected), "{error}");
        assert!(matches!(write_outputs(&path, &vec![]), Err(FileError::NoName { n: 0, .. })));
    }

    #[test]
    fn what_no_array_can_hold_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let strings = Tensor::from_strings(&[1], vec!["a".to_string()]).unwrap();
        let refusal = |value: Value, name: &str| {
            let path = dir.path().join(name);
            let error = write_outputs(&path, &vec![("y".to_string(), value)]).unwrap_err();
            assert!(!path.exists());
            error.to_string()
        };
        let expected = "output \"y\" holds strings, which .npz cannot carry: give a folder";
        assert_eq!(refusal(strings.into(), "y.npz"), expected);
        let expected = "output \"y\" is a sequence of 0, which .npy cannot carry: give a folder";
        assert_eq!(refusal(Value::sequence(vec![]), "y.npy"), expected);
    }
}
