//! Kernels as files: code for a device with what it is run on, for a machine without a compiler.
//!
//! A file is a line of text, which tells version and digest, and then its entries (postcard).

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tilewright_digest::Digest;
use tilewright_dtype::DType;
use tilewright_run::measure::made_up::noise;
use tilewright_runtime::device::Device;
use tilewright_runtime::kernel_run::{KernelProgram, KernelRunError, LoadedKernels};

/// Kernels and what they are run on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelEntry {
    /// Code, buffers and calls.
    pub program: KernelProgram,
    /// The contents of each buffer.
    pub contents: Vec<Contents>,
    /// Each output.
    pub outputs: Vec<OutputDef>,
}

/// What is in a buffer at first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Contents {
    /// Zeros.
    Nothing,
    /// 32-bit floats between -0.5 and 0.5 that follow from a seed.
    Noise(u64),
    /// These bytes; what is beyond is zero.
    Bytes(Vec<u8>),
}

/// What is known of an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputDef {
    /// What it is, for people.
    pub what: String,
    /// The name of its type of elements.
    pub dtype: String,
    /// Its bytes, where they are known: a NaN is as good as another.
    pub expected: Option<Vec<u8>>,
    /// A byte an element, 1 where that is padding of its layout; empty where none is.
    pub padding: Vec<u8>,
}

impl OutputDef {
    /// The type of its elements; bytes where the name is none.
    pub fn dtype(&self) -> DType {
        self.dtype.parse().unwrap_or(DType::U8)
    }

    /// Whether an element is padding.
    pub fn is_padding(&self, element: usize) -> bool {
        self.padding.get(element) == Some(&1)
    }

    /// The first element that is another than expected, by its place.
    pub fn first_difference(&self, found: &[u8]) -> Option<usize> {
        let expected = self.expected.as_deref()?;
        let dtype = self.dtype();
        let width = dtype.bytes().max(1);
        let is_nan = |bytes: &[u8]| match (dtype, bytes) {
            (DType::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]).is_nan(),
            (DType::F64, bytes) => bytes.try_into().is_ok_and(|bytes| f64::from_le_bytes(bytes).is_nan()),
            (DType::F16, &[a, b]) => u16::from_le_bytes([a, b]) & 0x7fff > 0x7c00,
            (DType::BF16, &[a, b]) => u16::from_le_bytes([a, b]) & 0x7fff > 0x7f80,
            _ => false,
        };
        if found.len() != expected.len() {
            return Some(found.len().min(expected.len()) / width);
        }
        let mut pairs = expected.chunks(width).zip(found.chunks(width));
        pairs.position(|(a, b)| a != b && !(is_nan(a) && is_nan(b)))
    }
}

/// A file of kernels that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KernelFileError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is somebody else's, or of another version.
    #[error("{} is no file of kernels of this version", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It has changed since it was written, or was cut short.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What tells.
        what: String,
    },
}

/// What a file begins with, before its digest.
const HEAD: &str = "tilewright kernels 1 ";

/// Bytes of a head with its digest and the end of the line.
const MOST_HEAD: usize = 128;

/// Writes entries to a file.
///
/// # Errors
/// [`KernelFileError::Write`].
pub fn write(path: &Path, entries: &[KernelEntry]) -> Result<(), KernelFileError> {
    let write = || -> std::io::Result<()> {
        let bytes = postcard::to_allocvec(entries).map_err(std::io::Error::other)?;
        let mut file = std::fs::File::create(path)?;
        file.write_all(format!("{HEAD}{}\n", digest(&bytes)).as_bytes())?;
        file.write_all(&bytes)
    };
    write().map_err(|error| KernelFileError::Write { path: path.to_path_buf(), error })
}

/// The entries of a file, each sound in itself.
///
/// # Errors
/// [`KernelFileError`], but for that of writing.
pub fn read(path: &Path) -> Result<Vec<KernelEntry>, KernelFileError> {
    let path = path.to_path_buf();
    let damaged = |what: &dyn std::fmt::Display| KernelFileError::Damaged {
        path: path.clone(),
        what: what.to_string(),
    };
    let bytes = std::fs::read(&path).map_err(|error| KernelFileError::Read { path: path.clone(), error })?;
    let Some(rest) = bytes.strip_prefix(HEAD.as_bytes()) else {
        return Err(KernelFileError::Foreign { path });
    };
    let end = rest.iter().take(MOST_HEAD).position(|&byte| byte == b'\n');
    let end = end.ok_or_else(|| damaged(&"its head is cut short"))?;
    let (told, body) = (&rest[..end], &rest[end + 1..]);
    if told != digest(body).as_bytes() {
        return Err(damaged(&"its digest differs"));
    }
    let entries: Vec<KernelEntry> = postcard::from_bytes(body).map_err(|error| damaged(&error))?;
    for entry in &entries {
        entry.program.check().map_err(|error| damaged(&error))?;
        if entry.contents.len() != entry.program.buffers.len() {
            return Err(damaged(&"buffers without contents"));
        }
    }
    Ok(entries)
}

fn digest(bytes: &[u8]) -> String {
    Digest::of("kernels", |writer| writer.bytes(bytes)).short(32)
}

impl KernelEntry {
    /// Loads it on a device; `far` as [`LoadedKernels::new`] takes it.
    ///
    /// # Errors
    /// What the device says.
    pub fn load(&self, device: &dyn Device, far: u64) -> Result<LoadedKernels, KernelRunError> {
        let made = self.contents.iter().zip(&self.program.buffers).map(|(contents, buffer)| match contents {
            Contents::Nothing => Vec::new(),
            Contents::Noise(seed) => noise(*seed, (buffer.bytes / 4) as usize),
            Contents::Bytes(bytes) => bytes.clone(),
        });
        let made: Vec<Vec<u8>> = made.collect();
        let slices: Vec<&[u8]> = made.iter().map(Vec::as_slice).collect();
        LoadedKernels::new(device, self.program.clone(), &slices, far)
    }

    /// Runs it once, and holds its outputs against what they are to be; what is wrong, if anything.
    ///
    /// # Errors
    /// What the device says.
    pub fn check(&self, device: &dyn Device) -> Result<Option<String>, KernelRunError> {
        let mut loaded = self.load(device, 0)?;
        loaded.run()?;
        let outputs = loaded.outputs()?;
        let wrong = outputs.iter().zip(&self.outputs).find_map(|(found, output)| {
            let element = output.first_difference(found)?;
            Some(format!("{}: element {element} is another than the evaluator's", output.what))
        });
        Ok(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_back_and_damaged_ones_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("k.twk");
        let program = KernelProgram { name: "none".into(), ..KernelProgram::default() };
        let entries = vec![KernelEntry { program, contents: vec![], outputs: vec![] }];
        write(&path, &entries).expect("writes");
        assert_eq!(read(&path).expect("reads"), entries);
        let bytes = std::fs::read(&path).expect("bytes");
        let check = |bytes: &[u8], is_foreign: bool| {
            std::fs::write(&path, bytes).expect("writes");
            match read(&path) {
                Err(KernelFileError::Foreign { .. }) => assert!(is_foreign),
                Err(KernelFileError::Damaged { .. }) => assert!(!is_foreign),
                other => panic!("{other:?}"),
            }
        };
        check(b"a shopping list", true);
        check(&bytes[..bytes.len() - 1], false);
        check(&bytes[..30], false);
        let mut changed = bytes.clone();
        *changed.last_mut().expect("bytes") ^= 1;
        check(&changed, false);
    }

    #[test]
    fn one_nan_is_as_good_as_another() {
        let bytes = |numbers: &[f32]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let output = OutputDef {
            what: "y".into(),
            dtype: DType::F32.to_string(),
            expected: Some(bytes(&[1.0, f32::NAN, -0.0])),
            padding: vec![],
        };
        assert_eq!(output.first_difference(&bytes(&[1.0, -f32::NAN, -0.0])), None);
        assert_eq!(output.first_difference(&bytes(&[1.0, f32::NAN, 0.0])), Some(2));
        assert_eq!(output.first_difference(&bytes(&[1.0])), Some(1));
    }
}
