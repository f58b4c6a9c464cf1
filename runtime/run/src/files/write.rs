//! Files of outputs: arrays, and bytes that are whole or not there.

use std::io::Write;
use std::path::Path;

use tilewright_runtime::Value;

use super::error::{FileError, Format};
use super::npy;
use super::replace::replace;
use crate::values::form;

/// A value as the file of an array.
pub(super) fn array(output: &str, value: &Value, format: Format) -> Result<Vec<u8>, FileError> {
    let output = || output.to_string();
    let Some(tensor) = value.as_tensor() else {
        return Err(FileError::NoArray { output: output(), form: form(value), format });
    };
    npy::write(tensor).ok_or_else(|| FileError::Strings { output: output(), format })
}

pub(super) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    replace(path, |out| out.write_all(bytes)).map_err(|error| FileError::Write { path: path.into(), error })
}
