//! `.npz`: named arrays in a zip archive, stored or deflated.

mod stored;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crc::{Digest, Table};
use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, ErrorKind, RECOMMENDED_BUFFER_SIZE, ZipArchive, ZipVerification};

use super::error::{FileError, Format};
use super::npy;
use super::write::{array, write_file};
use crate::spec::Spec;
use crate::values::Named;

/// Reads every array; the types that numpy lacks follow from the spec of the same name.
pub(super) fn read(path: &Path, file: File, specs: &[Spec]) -> Result<Named, FileError> {
    let damaged = |error: rawzip::Error| match error.into_kind() {
        ErrorKind::IO(error) => FileError::Read { path: path.into(), error },
        kind => FileError::NotNpz { path: path.into(), reason: kind.to_string() },
    };
    let refused = |reason: String| FileError::NotNpz { path: path.into(), reason };
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let archive = ZipArchive::from_file(file, &mut buffer).map_err(damaged)?;
    let mut arrays = Named::new();
    let mut entries = archive.entries(&mut buffer);
    while let Some(entry) = entries.next_entry().map_err(damaged)? {
        let name = std::str::from_utf8(entry.file_path().as_bytes());
        let name = name.map_err(|_| refused("a name in it is not UTF-8".to_string()))?;
        let name = name.strip_suffix(".npy").unwrap_or(name).to_string();
        if entry.flags().is_encrypted() {
            return Err(refused(format!("array {name:?} is encrypted")));
        }
        if arrays.iter().any(|(other, _)| *other == name) {
            return Err(FileError::Twice { path: path.into(), array: name });
        }
        let (method, place) = (entry.compression_method(), entry.wayfinder());
        let found = archive.get_entry(place).map_err(damaged)?;
        let dtype = specs.iter().find(|spec| spec.name == name).map(|spec| spec.dtype);
        let expected = found.reader().claim_verifier();
        let element = |reader: &mut dyn Read, expected| {
            let mut checked = Checked { reader, expected, crc: stored::CRC.digest(), size: 0 };
            npy::read(&mut checked, dtype)
        };
        let tensor = match method {
            CompressionMethod::STORE => element(&mut found.reader(), expected),
            CompressionMethod::DEFLATE => element(&mut DeflateDecoder::new(found.reader()), expected),
            other => {
                return Err(refused(format!("array {name:?} is compressed by {other:?}, not by deflate")));
            }
        };
        let tensor =
            tensor.map_err(|error| FileError::Array { path: path.into(), array: name.clone(), error })?;
        arrays.push((name, tensor.into()));
    }
    Ok(arrays)
}

/// A file of an archive, which ends where length and checksum are what the archive says.
struct Checked<'a> {
    reader: &'a mut dyn Read,
    expected: ZipVerification,
    crc: Digest<'static, u32, Table<1>>,
    size: u64,
}

impl Read for Checked<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(bytes)?;
        self.crc.update(bytes.get(..n).unwrap_or_default());
        self.size += n as u64;
        if self.size >= self.expected.uncompressed_size || (n == 0 && !bytes.is_empty()) {
            let found = ZipVerification { crc: self.crc.clone().finalize(), uncompressed_size: self.size };
            let checked = self.expected.valid(found);
            checked.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        }
        Ok(n)
    }
}

/// Writes named arrays, stored; the bytes depend on names and arrays alone.
pub(super) fn write(path: &Path, arrays: &Named) -> Result<(), FileError> {
    let mut archive = stored::Archive::default();
    for (name, value) in arrays {
        let added = archive.add(&format!("{name}.npy"), &array(name, value, Format::Npz)?);
        added.map_err(|error| FileError::Write { path: path.into(), error })?;
    }
    write_file(path, &archive.finish())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

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
    fn a_name_that_no_archive_holds_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let array = Tensor::new(&[1], [1.0f32]).unwrap();
        let error = write(&dir.path().join("a.npz"), &vec![("x".repeat(70_000), array.into())]).unwrap_err();
        assert!(error.to_string().contains("no name of 70004 bytes"), "{error}");
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

    #[test]
    fn deflated_arrays_are_read_and_damaged_ones_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        let tensor = Tensor::new(&[3, 1000], (0..3000).collect::<Vec<i32>>()).unwrap();
        let array = npy::write(&tensor).unwrap();
        let archive = |method: CompressionMethod, bytes: &[u8]| {
            let mut file = Vec::new();
            let mut archive = rawzip::ZipArchiveWriter::new(&mut file);
            let builder = archive.new_file("x.npy").compression_method(method);
            let (mut entry, _) = builder.start().unwrap();
            entry.write_all(bytes).unwrap();
            let sum = rawzip::DataDescriptorOutput::new(rawzip::crc32(&array), array.len() as u64);
            entry.finish(sum).unwrap();
            archive.finish().unwrap();
            std::fs::write(&path, &file).unwrap();
            open(&path)
        };
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&array).unwrap();
        let deflated = encoder.finish().unwrap();
        assert!(deflated.len() < array.len());
        let expected: Named = vec![("x".to_string(), tensor.clone().into())];
        assert_eq!(archive(CompressionMethod::DEFLATE, &deflated).unwrap(), expected);
        assert_eq!(archive(CompressionMethod::STORE, &array).unwrap(), expected);
        let mut wrong = array.clone();
        *wrong.last_mut().unwrap() ^= 1;
        let error = archive(CompressionMethod::STORE, &wrong).unwrap_err().to_string();
        assert!(error.contains("array \"x\": Invalid checksum"), "{error}");
        let error = archive(CompressionMethod::DEFLATE, &array).unwrap_err();
        assert!(matches!(error, FileError::Array { .. }), "{error}");
        let error = archive(CompressionMethod::ZSTD, &array).unwrap_err().to_string();
        assert!(error.contains("not by deflate"), "{error}");
    }

    #[test]
    fn archives_are_cut_short_nowhere_without_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        write(&path, &vec![("x".to_string(), Tensor::new(&[2], [1.0f32, 2.0]).unwrap().into())]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(open(&path).is_err(), "{len} bytes of {}", whole.len());
        }
    }
}
