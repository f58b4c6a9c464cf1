//! `.npz`: named arrays in a zip archive, stored or deflated.

use std::io::{Cursor, Read, Seek, Write};
use std::path::Path;

use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::error::{FileError, Format};
use super::npy;
use super::write::{array, write_file};
use crate::spec::Spec;
use crate::values::Named;

/// Reads every array; the types that numpy lacks follow from the spec of the same name.
pub(super) fn read(path: &Path, file: impl Read + Seek, specs: &[Spec]) -> Result<Named, FileError> {
    let damaged = |error: ZipError| match error {
        ZipError::Io(error) => FileError::Read { path: path.into(), error },
        error => FileError::NotNpz { path: path.into(), reason: error.to_string() },
    };
    let mut archive = ZipArchive::new(file).map_err(damaged)?;
    let mut arrays = Named::with_capacity(archive.len());
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i).map_err(damaged)?;
        let name = entry.name().strip_suffix(".npy").unwrap_or(entry.name()).to_string();
        if arrays.iter().any(|(other, _)| *other == name) {
            return Err(FileError::Twice { path: path.into(), array: name });
        }
        let expected = specs.iter().find(|spec| spec.name == name).map(|spec| spec.dtype);
        let tensor = npy::read(&mut entry, expected);
        let tensor =
            tensor.map_err(|error| FileError::Array { path: path.into(), array: name.clone(), error })?;
        arrays.push((name, tensor.into()));
    }
    Ok(arrays)
}

/// Writes named arrays, stored; the bytes depend on names and arrays alone.
pub(super) fn write(path: &Path, arrays: &Named) -> Result<(), FileError> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let broken = |error: ZipError| FileError::Write { path: path.into(), error: error.into() };
    for (name, value) in arrays {
        let file = array(name, value, Format::Npz)?;
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(u32::try_from(file.len()).is_err());
        archive.start_file(format!("{name}.npy"), options).map_err(broken)?;
        archive.write_all(&file).map_err(|error| FileError::Write { path: path.into(), error })?;
    }
    let bytes = archive.finish().map_err(broken)?.into_inner();
    write_file(path, &bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use tilewright_runtime::Tensor;

    use super::*;

    fn open(path: &Path) -> Result<Named, FileError> {
        read(path, File::open(path).unwrap(), &[])
    }

    #[test]
    fn arrays_come_back_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        let arrays = vec![
            ("/model/out:0".to_string(), Tensor::new(&[2], [1.5f32, -2.0]).unwrap().into()),
            ("b".to_string(), Tensor::new(&[], [7i64]).unwrap().into()),
        ];
        write(&path, &arrays).unwrap();
        assert_eq!(open(&path).unwrap(), arrays);
        let first = std::fs::read(&path).unwrap();
        write(&path, &arrays).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
    }

    #[test]
    fn other_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        std::fs::write(&path, b"no archive").unwrap();
        let error = open(&path).unwrap_err();
        assert!(matches!(error, FileError::NotNpz { .. }), "{error}");
        assert!(error.to_string().contains("a.npz: not an .npz file"), "{error}");
    }
}
