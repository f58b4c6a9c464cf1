//! The cache's folder as a whole: its size, and what goes when it grows too large.

use std::fs::{self, DirEntry};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::{Cache, TEMPORARY};

/// No process takes so long to write an entry: it was killed.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// What a cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of entries.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What pruning did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// What went.
    pub removed: Stats,
    /// What is left.
    pub left: Stats,
}

struct Entry {
    used: SystemTime,
    bytes: u64,
    path: PathBuf,
}

impl Stats {
    fn add(&mut self, entry: &Entry) {
        self.entries += 1;
        self.bytes += entry.bytes;
    }
}

impl Cache {
    /// What the cache holds.
    ///
    /// # Errors
    /// When the folder cannot be read; one that is not there is empty.
    pub fn stats(&self) -> io::Result<Stats> {
        let mut stats = Stats::default();
        self.list()?.iter().for_each(|entry| stats.add(entry));
        Ok(stats)
    }

    /// Removes every entry, and nothing else.
    ///
    /// # Errors
    /// As [`Cache::prune_to`].
    pub fn clear(&self) -> io::Result<Pruned> {
        self.prune_to(0)
    }

    /// If the cache is larger than its limit, removes the entries unused for longest until it is a tenth below.
    ///
    /// # Errors
    /// As [`Cache::prune_to`].
    pub fn prune(&self) -> io::Result<Pruned> {
        let left = self.stats()?;
        match left.bytes > self.limit() {
            true => self.prune_to(self.limit() / 10 * 9),
            false => Ok(Pruned { left, ..Pruned::default() }),
        }
    }

    /// Removes the entries unused for longest until at most `bytes` are left. Files that are no entries stay.
    ///
    /// # Errors
    /// When the folder cannot be read or an entry not be removed.
    pub fn prune_to(&self, bytes: u64) -> io::Result<Pruned> {
        let mut entries = self.list()?;
        // Of equal age, by name, so that two processes remove the same ones.
        entries.sort_by(|a, b| (b.used, &b.path).cmp(&(a.used, &a.path)));
        let mut pruned = Pruned::default();
        let mut is_full = false;
        for entry in &entries {
            is_full |= pruned.left.bytes + entry.bytes > bytes;
            if !is_full {
                pruned.left.add(entry);
                continue;
            }
            match fs::remove_file(&entry.path) {
                Ok(()) => pruned.removed.add(entry),
                // Another process was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(pruned)
    }

    /// The entries. Removes on the way what killed processes left.
    fn list(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for shard in read_dir(self.entries())? {
            let Ok(shard) = shard else { continue };
            let prefix = shard.file_name().to_string_lossy().into_owned();
            if !is_hexadecimal(&prefix, 2) {
                continue;
            }
            for file in read_dir(shard.path())?.flatten() {
                let name = file.file_name().to_string_lossy().into_owned();
                if is_hexadecimal(&name, 64) && name.starts_with(&prefix) {
                    entries.extend(entry(&file));
                } else if name.starts_with(TEMPORARY)
                    && entry(&file).is_some_and(|entry| entry.used.elapsed().is_ok_and(|age| age > ABANDONED))
                {
                    // Tried again next time.
                    _ = fs::remove_file(file.path());
                }
            }
        }
        Ok(entries)
    }
}

/// A folder's files; none where there is no folder.
fn read_dir(path: PathBuf) -> io::Result<impl Iterator<Item = io::Result<DirEntry>>> {
    match fs::read_dir(path) {
        Ok(files) => Ok(Some(files).into_iter().flatten()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None.into_iter().flatten())
        }
        Err(error) => Err(error),
    }
}

/// A file as an entry; nothing if it has just gone.
fn entry(file: &DirEntry) -> Option<Entry> {
    let metadata = file.metadata().ok().filter(fs::Metadata::is_file)?;
    Some(Entry { used: metadata.modified().ok()?, bytes: metadata.len(), path: file.path() })
}

fn is_hexadecimal(name: &str, len: usize) -> bool {
    name.len() == len && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::DEFAULT_LIMIT;
    use crate::cache::tests::entry_key;
    use tilewright_digest::Digest;

    fn key(n: u64) -> Digest {
        entry_key(&n.to_le_bytes())
    }

    /// Ten entries of 132 bytes, the first unused for longest.
    fn cache(limit: u64) -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path(), limit);
        for n in 0..10 {
            cache.write(key(n), &[n as u8; 100]).unwrap();
            let file = fs::File::options().write(true).open(cache.path(key(n))).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(100 * (10 - n))).unwrap();
        }
        (dir, cache)
    }

    fn kept(cache: &Cache) -> Vec<u64> {
        (0..10).filter(|&n| cache.read(key(n)).is_some()).collect()
    }

    #[test]
    fn what_was_used_last_stays() {
        let (_dir, cache) = cache(DEFAULT_LIMIT);
        assert_eq!(cache.stats().unwrap(), Stats { entries: 10, bytes: 1320 });
        assert_eq!(cache.prune().unwrap().removed, Stats::default());
        let pruned = cache.prune_to(400).unwrap();
        assert_eq!(pruned.removed, Stats { entries: 7, bytes: 924 });
        assert_eq!(pruned.left, Stats { entries: 3, bytes: 396 });
        assert_eq!(kept(&cache), [7, 8, 9]);
        assert_eq!(cache.clear().unwrap().left, Stats::default());
        assert_eq!(cache.stats().unwrap(), Stats::default());
    }

    #[test]
    fn the_limit_leaves_room() {
        let (_dir, cache) = cache(1000);
        assert_eq!(cache.prune().unwrap().left, Stats { entries: 6, bytes: 792 });
        assert_eq!(kept(&cache), [4, 5, 6, 7, 8, 9]);
        assert_eq!(cache.prune().unwrap().removed, Stats::default());
    }

    #[test]
    fn files_of_others_stay_and_what_killed_processes_left_goes() {
        let (dir, cache) = cache(DEFAULT_LIMIT);
        let entry = cache.path(key(0));
        let shard = entry.parent().unwrap();
        let foreign = [
            dir.path().join("notes.txt"),
            cache.entries().join("README"),
            shard.join("README"),
            shard.join("0".repeat(63) + "g"),
            shard.join(TEMPORARY.to_owned() + "now"),
        ];
        foreign.iter().for_each(|path| fs::write(path, "x").unwrap());
        let abandoned = shard.join(TEMPORARY.to_owned() + "then");
        fs::write(&abandoned, "x").unwrap();
        let file = fs::File::options().write(true).open(&abandoned).unwrap();
        file.set_modified(SystemTime::now() - 2 * ABANDONED).unwrap();
        assert_eq!(cache.clear().unwrap().removed.entries, 10);
        assert!(foreign.iter().all(|path| path.exists()));
        assert!(!abandoned.exists());
    }

    #[test]
    fn a_folder_that_is_not_there_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("none"), 0);
        assert_eq!(cache.prune().unwrap(), Pruned::default());
        assert!(!cache.folder().exists());
    }
}
