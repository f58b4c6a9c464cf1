//! Digests of bytes, and where the bytes behind them come from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use tilewright_runtime::Bytes;

/// The SHA-256 of bytes: what stores with content addresses know them by. As text it has 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId(pub [u8; 32]);

impl BlobId {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> BlobId {
        BlobId(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no digest: a SHA-256 has 64 hexadecimal digits")]
pub struct NotADigest(String);

impl FromStr for BlobId {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<BlobId, NotADigest> {
        let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
        let bytes = digits.map(|digits| {
            digits.chunks(2).map(|pair| pair.iter().fold(0, |n, digit| (n << 4) | digit)).collect()
        });
        let bytes: Option<Vec<u8>> = bytes;
        let id = bytes.filter(|_| text.len() == 64).and_then(|bytes| bytes.try_into().ok());
        id.map(BlobId).ok_or_else(|| NotADigest(text.to_string()))
    }
}

impl Serialize for BlobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BlobId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Why there are no bytes behind a digest.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// Nobody has brought them.
    #[error("the bytes of {0} are missing: they must come with the request")]
    Missing(BlobId),
    /// They cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Where they should be.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Other bytes are there.
    #[error("{} is damaged: its digest is {found}", path.display())]
    Damaged {
        /// Where they should be.
        path: PathBuf,
        /// The digest of what is there.
        found: BlobId,
    },
}

/// Bytes by their digests.
pub trait Blobs {
    /// The bytes that have this digest.
    ///
    /// # Errors
    /// [`BlobError`].
    fn get(&self, id: &BlobId) -> Result<Bytes, BlobError>;
}

impl Blobs for BTreeMap<BlobId, Bytes> {
    fn get(&self, id: &BlobId) -> Result<Bytes, BlobError> {
        BTreeMap::get(self, id).cloned().ok_or(BlobError::Missing(*id))
    }
}

/// A folder with a file for each digest, which is its name.
#[derive(Clone, Debug)]
pub struct BlobFolder(PathBuf);

impl BlobFolder {
    /// This folder.
    pub fn new(path: impl Into<PathBuf>) -> BlobFolder {
        BlobFolder(path.into())
    }

    /// Where bytes are.
    pub fn path_of(&self, id: &BlobId) -> PathBuf {
        self.0.join(id.to_string())
    }

    /// Where the folder is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Blobs for BlobFolder {
    fn get(&self, id: &BlobId) -> Result<Bytes, BlobError> {
        let path = self.path_of(id);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(BlobError::Missing(*id));
            }
            Err(error) => return Err(BlobError::Read { path, error }),
        };
        match BlobId::of(&bytes) {
            found if found == *id => Ok(Bytes::new(bytes)),
            found => Err(BlobError::Damaged { path, found }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_that_other_programs_compute() {
        let id = BlobId::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(id.to_string(), text);
        assert_eq!(text.parse(), Ok(id));
        for wrong in ["", "ba78", &text[1..], &text.replace('f', "g"), &format!("{text}00")] {
            assert_eq!(wrong.parse::<BlobId>(), Err(NotADigest(wrong.to_string())));
        }
    }

    #[test]
    fn a_folder_gives_what_a_digest_names_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = BlobFolder::new(folder.path());
        let id = BlobId::of(b"abc");
        assert!(matches!(blobs.get(&id), Err(BlobError::Missing(missing)) if missing == id));
        std::fs::write(blobs.path_of(&id), b"abc").unwrap();
        assert_eq!(blobs.get(&id).unwrap()[..], *b"abc");
        std::fs::write(blobs.path_of(&id), b"abd").unwrap();
        let error = blobs.get(&id).unwrap_err();
        assert!(matches!(error, BlobError::Damaged { found, .. } if found == BlobId::of(b"abd")));
    }
}
