//! `.npz`: named arrays in a zip archive, stored or deflated.

use std::fs::File;
use std::io::{BufReader, Cursor, Write};
use std::path::Path;

use tilewright::DType;
use tilewright::graph::Tensor;
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::failure::{Exit, Failure};
use crate::npy;
use crate::output;

/// Reads every array; `expected` tells the type that an array of a name should have, where it is known.
pub(crate) fn read(
    path: &Path,
    expected: &dyn Fn(&str) -> Option<DType>,
) -> Result<Vec<(String, Tensor)>, Failure> {
    let file = File::open(path).map_err(|error| Failure::read(path, &error))?;
    let invalid = |message: String| Failure::data(format!("{}: {message}", path.display()));
    let damaged = |error: ZipError| match error {
        ZipError::Io(error) => Failure::read(path, &error),
        error => Failure::data(format!("{}: not an .npz file: {error}", path.display())),
    };
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(damaged)?;
    let mut arrays: Vec<(String, Tensor)> = Vec::with_capacity(archive.len());
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i).map_err(damaged)?;
        let name = entry.name().map_err(damaged)?;
        let name = name.strip_suffix(".npy").unwrap_or(&name).to_string();
        if arrays.iter().any(|(other, _)| *other == name) {
            return Err(invalid(format!("array {name:?} occurs twice")));
        }
        let tensor = npy::read(&mut entry, expected(&name));
        let tensor = tensor.map_err(|message| invalid(format!("array {name:?}: {message}")))?;
        arrays.push((name, tensor));
    }
    Ok(arrays)
}

/// Writes named arrays, stored; the bytes depend on names and arrays alone.
pub(crate) fn write(path: &Path, arrays: &[(String, Tensor)]) -> Result<(), Failure> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let broken = |error: ZipError| Failure::new(Exit::Internal, format!("{}: {error}", path.display()));
    for (name, tensor) in arrays {
        let file = npy::write(tensor).ok_or_else(|| {
            let message = format!("output {name:?} holds strings, which .npz cannot carry: give a folder");
            Failure::new(Exit::Unsupported, message)
        })?;
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(u32::try_from(file.len()).is_err());
        archive.start_file(format!("{name}.npy"), options).map_err(broken)?;
        archive.write_all(&file).map_err(|error| Failure::write(path, &error))?;
    }
    let bytes = archive.finish().map_err(broken)?.into_inner();
    output::write_file(path, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_come_back_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        let arrays = [
            ("/model/out:0".to_string(), Tensor::vector(&[1.5f32, -2.0])),
            ("b".to_string(), Tensor::scalar(7i64)),
        ];
        write(&path, &arrays).unwrap();
        assert_eq!(read(&path, &|_| None).unwrap(), arrays);
        let first = std::fs::read(&path).unwrap();
        write(&path, &arrays).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
    }

    #[test]
    fn other_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        std::fs::write(&path, b"no archive").unwrap();
        let failure = read(&path, &|_| None).unwrap_err();
        assert_eq!(failure.code, 5);
        assert!(failure.message.contains("a.npz: not an .npz file"), "{}", failure.message);
        assert_eq!(read(&dir.path().join("b.npz"), &|_| None).unwrap_err().code, 6);
    }
}
