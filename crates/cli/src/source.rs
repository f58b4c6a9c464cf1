//! Files that the user names: models and artifacts.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use tilewright_driver::runtime::artifact::MAGIC;

use crate::failure::Failure;

/// A file the user named.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A model to compile.
    Onnx(PathBuf),
    /// A compiled one.
    Artifact(PathBuf),
}

impl Source {
    /// Tells the two apart by their first bytes; a damaged artifact by its name.
    pub(crate) fn of(path: &Path) -> Result<Source, Failure> {
        let fail = |error| Failure::read(path, &error);
        // A pipe would keep its reader waiting.
        if !std::fs::metadata(path).map_err(fail)?.is_file() {
            return Err(Failure::data(format!("{}: not a regular file", path.display())));
        }
        let mut start = Vec::new();
        let file = File::open(path).map_err(fail)?;
        file.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(fail)?;
        let is_artifact = start == MAGIC || path.extension().is_some_and(|extension| extension == "twm");
        Ok(if is_artifact { Source::Artifact(path.into()) } else { Source::Onnx(path.into()) })
    }
}

/// Whether two names are of one file that is there.
pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
