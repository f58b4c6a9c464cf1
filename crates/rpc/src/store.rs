//! Blobs that clients have uploaded: files of a folder that goes with the server, those not used for longest first to make room.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use crate::blob::{Digest, Digester};
use crate::fault::Fault;

/// The blobs.
pub(crate) struct Store {
    folder: TempDir,
    limit: u64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// The least recently used first.
    blobs: Vec<(Digest, u64)>,
    /// Those that the next job needs.
    kept: Vec<Digest>,
    /// How many files were begun: each has a name of its own.
    begun: u64,
}

impl Held {
    fn bytes(&self) -> u64 {
        self.blobs.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Moves a blob behind the others, if it is there.
    fn touch(&mut self, digest: Digest) -> bool {
        let Some(at) = self.blobs.iter().position(|(other, _)| *other == digest) else { return false };
        let blob = self.blobs.remove(at);
        self.blobs.push(blob);
        true
    }
}

fn disk(error: io::Error) -> Fault {
    Fault::Store(error.to_string())
}

impl Store {
    /// A store of so many bytes at most.
    pub(crate) fn new(limit: u64) -> io::Result<Store> {
        let folder = tempfile::Builder::new().prefix("tilewright-rpc-").tempdir()?;
        Ok(Store { folder, limit, held: Mutex::default() })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder, for what jobs leave.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Bytes of all blobs.
    pub(crate) fn bytes(&self) -> u64 {
        self.held().bytes()
    }

    fn path_of(&self, digest: Digest) -> PathBuf {
        self.folder().join(digest.to_string())
    }

    /// Keeps these blobs until it is asked again; the places of those that are not there.
    pub(crate) fn keep(&self, digests: Vec<Digest>) -> Vec<u32> {
        let mut held = self.held();
        let lacks = (0..).zip(&digests).filter(|(_, digest)| !held.touch(**digest));
        let lacks = lacks.map(|(at, _)| at).collect();
        held.kept = digests;
        lacks
    }

    /// The file of a blob.
    pub(crate) fn find(&self, digest: Digest) -> Option<PathBuf> {
        self.held().touch(digest).then(|| self.path_of(digest))
    }

    /// Begins a blob of so many bytes; others make room for it.
    pub(crate) fn begin(&self, digest: Digest, bytes: u64) -> Result<Upload<'_>, Fault> {
        let mut held = self.held();
        while held.bytes().saturating_add(bytes) > self.limit {
            let next = held.blobs.iter().position(|(blob, _)| !held.kept.contains(blob));
            let Some(next) = next.filter(|_| bytes <= self.limit) else {
                return Err(Fault::NoRoom { bytes, limit: self.limit, used: held.bytes() });
            };
            let (blob, _) = held.blobs.remove(next);
            fs::remove_file(self.path_of(blob)).map_err(disk)?;
        }
        held.begun += 1;
        let path = self.folder().join(format!("upload-{}", held.begun));
        let file = File::create_new(&path).map_err(disk)?;
        Ok(Upload {
            store: self,
            announced: digest,
            bytes,
            left: bytes,
            path,
            file,
            digester: Digester::default(),
        })
    }
}

/// A blob that comes piece by piece. What is not finished leaves nothing.
pub(crate) struct Upload<'s> {
    store: &'s Store,
    announced: Digest,
    bytes: u64,
    left: u64,
    path: PathBuf,
    file: File,
    digester: Digester,
}

impl Upload<'_> {
    /// Bytes that are still to come.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Takes a piece, which is no longer than what is left.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Result<(), Fault> {
        self.left = self.left.saturating_sub(piece.len() as u64);
        self.digester.update(piece);
        self.file.write_all(piece).map_err(disk)
    }

    /// Keeps the blob, if it is the one that was announced.
    pub(crate) fn finish(mut self) -> Result<(), Fault> {
        let came = std::mem::take(&mut self.digester).finish();
        if came != self.announced {
            return Err(Fault::WrongDigest { announced: self.announced, came });
        }
        let mut held = self.store.held();
        if !held.touch(came) {
            fs::rename(&self.path, self.store.path_of(came)).map_err(disk)?;
            held.blobs.push((came, self.bytes));
        }
        Ok(())
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        // What is finished has another name by now.
        _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &Store, bytes: &[u8]) -> Result<Digest, Fault> {
        let digest = Digest::of(bytes);
        let mut upload = store.begin(digest, bytes.len() as u64)?;
        upload.take(bytes)?;
        upload.finish()?;
        Ok(digest)
    }

    fn files(store: &Store) -> usize {
        fs::read_dir(store.folder()).unwrap().count()
    }

    #[test]
    fn the_least_recently_used_make_room() {
        let store = Store::new(10).unwrap();
        let (a, b) = (put(&store, b"aaaa").unwrap(), put(&store, b"bbbb").unwrap());
        assert!(store.find(a).is_some());
        let c = put(&store, b"cccc").unwrap();
        assert_eq!([a, b, c].map(|digest| store.find(digest).is_some()), [true, false, true]);
        assert_eq!((store.bytes(), files(&store)), (8, 2));
        assert_eq!(fs::read(store.find(c).unwrap()).unwrap(), b"cccc");
    }

    #[test]
    fn what_the_next_job_needs_stays() {
        let store = Store::new(10).unwrap();
        let (a, b) = (put(&store, b"aaaa").unwrap(), Digest::of(b"bbbbbbbb"));
        assert_eq!(store.keep(vec![b, a]), [0]);
        assert_eq!(put(&store, b"bbbbbbbb"), Err(Fault::NoRoom { bytes: 8, limit: 10, used: 4 }));
        assert!(store.find(a).is_some());
        store.keep(vec![b]);
        assert_eq!(put(&store, b"bbbbbbbb"), Ok(b));
        assert!(store.find(a).is_none());
        assert_eq!(
            store.begin(a, u64::MAX).err(),
            Some(Fault::NoRoom { bytes: u64::MAX, limit: 10, used: 8 })
        );
        assert_eq!(store.bytes(), 8, "what can never fit evicts nothing");
    }

    #[test]
    fn what_is_not_finished_or_wrong_leaves_nothing() {
        let store = Store::new(10).unwrap();
        let announced = Digest::of(b"aaaa");
        let mut upload = store.begin(announced, 4).unwrap();
        upload.take(b"aa").unwrap();
        drop(upload);
        let mut upload = store.begin(announced, 4).unwrap();
        upload.take(b"aaab").unwrap();
        assert_eq!(upload.finish(), Err(Fault::WrongDigest { announced, came: Digest::of(b"aaab") }));
        assert_eq!((store.bytes(), files(&store)), (0, 0));
    }
}
