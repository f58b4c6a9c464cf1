//! A folder of things that took time to make, found again by what they were made from.
//!
//! An entry is a file named by a [`Digest`], the digest of everything that decided its contents, so that an entry is never
//! out of date: it is there or not. Any number of processes may use one folder at the same time, and may be killed:
//! files are written aside and renamed, and each begins with a digest of itself, so that a file that is cut short,
//! damaged or somebody else's is no entry. Nothing is ever waited for, and no lock is taken.
//!
//! ```text
//! FOLDER/functions/3f/3f09...e1     64 hexadecimal digits: the key
//!   32 bytes   SHA-256 of key and contents
//!   contents
//! FOLDER/generator                  version of the LLVM that entries were made with last
//! ```

mod folder;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use tilewright_digest::Digest;

pub use folder::{Pruned, Stats};

/// What the names of files begin with that are being written.
const TEMPORARY: &str = ".tmp-";

/// Variable that names the folder.
pub const CACHE_DIR: &str = "TILEWRIGHT_CACHE_DIR";

/// Variable that limits the size of the folder, in bytes.
pub const CACHE_LIMIT: &str = "TILEWRIGHT_CACHE_LIMIT";

/// Size of the folder where [`CACHE_LIMIT`] does not say: 1 GiB.
pub const DEFAULT_LIMIT: u64 = 1 << 30;

/// Entries read within this time before are not marked as read again: reading should not write.
const MARK: Duration = Duration::from_secs(60 * 60);

/// Length of the checksum before the contents.
const CHECKSUM: usize = 32;

/// A variable of the environment that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{CACHE_LIMIT}={value} is not a number of bytes")]
pub struct CacheLimitError {
    value: String,
}

/// A cache in a folder. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
}

impl Cache {
    /// The cache in `folder`, which is made when the first entry is written, of at most about `limit` bytes.
    pub fn at(folder: impl Into<PathBuf>, limit: u64) -> Cache {
        Cache { folder: folder.into(), limit }
    }

    /// The user's cache: in the folder that [`CACHE_DIR`] names, else in `tilewright` below `XDG_CACHE_HOME` or
    /// `~/.cache`; nothing where the environment names none of these.
    ///
    /// # Errors
    /// When [`CACHE_LIMIT`] is no number.
    pub fn of_user() -> Result<Option<Cache>, CacheLimitError> {
        let limit = match std::env::var_os(CACHE_LIMIT) {
            None => DEFAULT_LIMIT,
            Some(value) => {
                let value = value.to_string_lossy().into_owned();
                value.parse().map_err(|_| CacheLimitError { value })?
            }
        };
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        // By the specification a relative XDG_CACHE_HOME is to be ignored.
        let shared = path("XDG_CACHE_HOME").filter(|path| path.is_absolute());
        let shared = shared.or_else(|| path("HOME").map(|home| home.join(".cache")));
        let folder = path(CACHE_DIR).or_else(|| shared.map(|shared| shared.join("tilewright")));
        Ok(folder.map(|folder| Cache::at(folder, limit)))
    }

    /// Where the cache is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The size it is kept to, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The contents of an entry, if it is there and sound. A damaged one is removed.
    pub fn read(&self, key: Digest) -> Option<Vec<u8>> {
        let path = self.path(key);
        let mut file = fs::read(&path).ok()?;
        let is_sound = |(stored, contents): (&[u8], &[u8])| *stored == checksum(key, contents);
        if !file.split_at_checked(CHECKSUM).is_some_and(is_sound) {
            self.remove(key);
            return None;
        }
        self.mark(&path);
        Some(file.split_off(CHECKSUM))
    }

    /// Writes an entry, whole or not at all.
    ///
    /// # Errors
    /// What the system says: no permission, no space.
    pub fn write(&self, key: Digest, contents: &[u8]) -> io::Result<()> {
        let path = self.path(key);
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder)?;
        let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(folder)?;
        file.write_all(&checksum(key, contents))?;
        file.write_all(contents)?;
        file.persist(&path).map_err(|error| error.error)?;
        Ok(())
    }

    /// The version of LLVM that entries were made with last; nothing where none was.
    pub fn generator(&self) -> Option<String> {
        let text = fs::read_to_string(self.generator_path()).ok()?;
        Some(text.trim().to_string()).filter(|version| !version.is_empty())
    }

    /// Remembers the version of LLVM that entries are made with, for [`Cache::generator`] of a build without LLVM.
    ///
    /// # Errors
    /// As [`Cache::write`].
    pub fn set_generator(&self, version: &str) -> io::Result<()> {
        if self.generator().as_deref() == Some(version) {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(&self.folder)?;
        writeln!(file, "{version}")?;
        file.persist(self.generator_path()).map_err(|error| error.error)?;
        Ok(())
    }

    fn generator_path(&self) -> PathBuf {
        self.folder.join("generator")
    }

    /// Removes an entry that is of no use.
    pub fn remove(&self, key: Digest) {
        // One that stays will be met again, and no more.
        _ = fs::remove_file(self.path(key));
    }

    /// Remembers that an entry was of use, for [`Cache::prune`].
    fn mark(&self, path: &Path) {
        let is_recent = || fs::metadata(path)?.modified().map(|at| at.elapsed().is_ok_and(|age| age < MARK));
        if matches!(is_recent(), Ok(false)) {
            // In a folder that may only be read nothing is pruned either.
            _ = fs::File::options()
                .write(true)
                .open(path)
                .and_then(|file| file.set_modified(SystemTime::now()));
        }
    }

    fn path(&self, key: Digest) -> PathBuf {
        let name = key.to_string();
        self.entries().join(&name[..2]).join(name)
    }

    /// The folder of the entries; others may lie beside it.
    fn entries(&self) -> PathBuf {
        self.folder.join("functions")
    }
}

fn checksum(key: Digest, contents: &[u8]) -> [u8; CHECKSUM] {
    Sha256::new().chain_update(key.bytes()).chain_update(contents).finalize().into()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A key for tests.
    pub(super) fn entry_key(name: &[u8]) -> Digest {
        Digest::of("test", |writer| writer.bytes(name))
    }

    fn cache() -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("cache"), DEFAULT_LIMIT);
        (dir, cache)
    }

    #[test]
    fn what_was_written_is_read() {
        let (_dir, cache) = cache();
        let [a, b] = [entry_key(b"a"), entry_key(b"b")];
        assert_eq!(cache.read(a), None);
        cache.write(a, b"one").unwrap();
        cache.write(b, b"").unwrap();
        assert_eq!((cache.read(a), cache.read(b)), (Some(b"one".to_vec()), Some(vec![])));
        cache.write(a, b"again").unwrap();
        assert_eq!(cache.read(a), Some(b"again".to_vec()));
        cache.remove(a);
        assert_eq!(cache.read(a), None);
    }

    #[test]
    fn the_generator_is_that_of_the_last_entries() {
        let (_dir, cache) = cache();
        assert_eq!(cache.generator(), None);
        for version in ["22.1.8", "22.1.8", "22.1.9"] {
            cache.set_generator(version).unwrap();
            assert_eq!(cache.generator().as_deref(), Some(version));
        }
        cache.clear().unwrap();
        assert_eq!(cache.generator().as_deref(), Some("22.1.9"));
        fs::write(cache.generator_path(), "\n").unwrap();
        assert_eq!(cache.generator(), None);
    }

    #[test]
    fn every_damage_is_a_miss_and_goes_away() {
        let (_dir, cache) = cache();
        let key = entry_key(b"key");
        let path = cache.path(key);
        let check = |damage: &dyn Fn(&mut Vec<u8>)| {
            cache.write(key, b"contents of some length").unwrap();
            let mut bytes = fs::read(&path).unwrap();
            damage(&mut bytes);
            fs::write(&path, bytes).unwrap();
            assert_eq!(cache.read(key), None);
            assert!(!path.exists());
        };
        let len = CHECKSUM + b"contents of some length".len();
        (0..len).for_each(|at| check(&|bytes| bytes[at] ^= 1 << (at % 8)));
        (0..len).for_each(|at| check(&|bytes| bytes.truncate(at)));
        check(&|bytes| bytes.push(0));
        // An entry under another's name.
        let other = entry_key(b"other");
        cache.write(other, b"other contents").unwrap();
        check(&|bytes| *bytes = fs::read(cache.path(other)).unwrap());
    }

    #[test]
    fn reading_marks_what_was_not_used_for_long() {
        let (_dir, cache) = cache();
        let key = entry_key(b"key");
        cache.write(key, b"x").unwrap();
        let file = fs::File::options().write(true).open(cache.path(key)).unwrap();
        let age = || fs::metadata(cache.path(key)).unwrap().modified().unwrap().elapsed().unwrap();
        file.set_modified(SystemTime::now() - 2 * MARK).unwrap();
        assert!(age() > MARK);
        cache.read(key).unwrap();
        assert!(age() < MARK);
    }
}
