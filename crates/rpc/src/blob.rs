//! Blobs: bytes that are known by their digest.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::frame::PIECE;

/// The SHA-256 digest of a blob.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Digest([u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Digest {
    /// That of some bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }
}

/// A digest that is made piece by piece.
#[derive(Clone, Default)]
pub(crate) struct Digester(Sha256);

impl Digester {
    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// Bytes that a job needs.
#[derive(Clone, Debug)]
pub struct Blob {
    digest: Digest,
    bytes: u64,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Bytes(Vec<u8>),
    File(PathBuf),
}

impl Blob {
    /// Bytes in memory.
    pub fn new(bytes: Vec<u8>) -> Blob {
        Blob { digest: Digest::of(&bytes), bytes: bytes.len() as u64, content: Content::Bytes(bytes) }
    }

    /// A file, which must stay as it is.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of_file(path: impl Into<PathBuf>) -> io::Result<Blob> {
        let content = Content::File(path.into());
        let (mut digester, mut bytes) = (Digester::default(), 0);
        content.pieces(&mut |piece| {
            digester.update(piece);
            bytes += piece.len() as u64;
            Ok::<(), io::Error>(())
        })?;
        Ok(Blob { digest: digester.finish(), bytes, content })
    }

    /// What it is known by.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives its pieces away, one after the other.
    pub(crate) fn pieces<E: From<io::Error>>(
        &self,
        take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.content.pieces(take)
    }
}

impl Content {
    fn pieces<E: From<io::Error>>(&self, take: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match self {
            Content::Bytes(bytes) => bytes.chunks(PIECE).try_for_each(take),
            Content::File(path) => {
                let mut file = File::open(path)?;
                let mut piece = Vec::with_capacity(PIECE);
                loop {
                    piece.clear();
                    (&mut file).take(PIECE as u64).read_to_end(&mut piece)?;
                    if piece.is_empty() {
                        return Ok(());
                    }
                    take(&piece)?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_bytes_have_the_same_digest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b");
        for n in [0, 5, PIECE, 2 * PIECE + 3] {
            let bytes: Vec<u8> = (0..n).map(|i| i as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            let (of_file, of_bytes) = (Blob::of_file(&path).unwrap(), Blob::new(bytes.clone()));
            assert_eq!((of_file.digest(), of_file.bytes()), (of_bytes.digest(), of_bytes.bytes()));
            let mut seen = Vec::new();
            of_file
                .pieces(&mut |piece| {
                    seen.extend_from_slice(piece);
                    Ok::<(), io::Error>(())
                })
                .unwrap();
            assert_eq!(seen, bytes);
        }
        // The digest that `sha256sum` tells.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").to_string(), expected);
    }
}
