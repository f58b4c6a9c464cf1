//! Files mapped into memory: the model itself and its external data, which is confined to the model's folder.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

use bytes::Bytes;

use crate::proto::ExternalFault;

/// Maps a regular file; `Ok(None)` if it is something else. An empty file gives no bytes.
pub(crate) fn map_file(path: &Path) -> io::Result<Option<Bytes>> {
    // Asked before opening: opening a pipe would wait for its writer.
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(Some(Bytes::new()));
    }
    #[allow(unsafe_code, reason = "mapping a file is the only way to read weights without copying them")]
    // SAFETY: the mapping is read-only and lives as long as the `Bytes` that owns it. Another process that
    // writes to or truncates the file meanwhile breaks this, as it breaks every program that maps its inputs.
    let map = unsafe { memmap2::Mmap::map(&file)? };
    Ok(Some(Bytes::from_owner(map)))
}

/// The folder of a model, and the files in it that were mapped so far.
#[derive(Debug)]
pub(crate) struct ExternalFolder {
    folder: PathBuf,
    mapped: Mutex<HashMap<PathBuf, Bytes>>,
}

impl ExternalFolder {
    /// The folder that `model` lies in.
    pub(crate) fn of_model(model: &Path) -> ExternalFolder {
        let folder = model.parent().filter(|parent| !parent.as_os_str().is_empty());
        ExternalFolder { folder: folder.unwrap_or(Path::new(".")).to_owned(), mapped: Mutex::default() }
    }

    /// All bytes of the file at `location`, which must lie in the folder, links followed.
    pub(crate) fn map(&self, location: &str) -> Result<Bytes, ExternalFault> {
        let relative = Path::new(location);
        if location.is_empty() {
            return Err(ExternalFault::NoLocation);
        }
        let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !relative.components().all(inside) || location.contains('\0') {
            return Err(ExternalFault::Outside);
        }
        let folder = self.folder.canonicalize()?;
        let path = folder.join(relative).canonicalize()?;
        if !path.starts_with(&folder) {
            return Err(ExternalFault::LinkOutside(path));
        }
        let mut mapped = self.mapped.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(bytes) = mapped.get(&path) {
            return Ok(bytes.clone());
        }
        let bytes = map_file(&path)?.ok_or(ExternalFault::NotAFile)?;
        mapped.insert(path, bytes.clone());
        Ok(bytes)
    }
}
