//! The result of a compilation: a plan, code and weights that can be written or run.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use tilewright_lower::Weight;
use tilewright_runtime::artifact::{Contents, Manifest};
use tilewright_runtime::load::Bytes;
use tilewright_runtime::plan::{ALIGN, Plan};

use crate::error::CompileError;

/// A compiled model.
#[derive(Debug)]
pub struct Artifact {
    /// Names, target, options.
    pub manifest: Manifest,
    /// The execution plan.
    pub plan: Plan,
    /// The flat code image.
    pub code: Vec<u8>,
    /// The weights, in the order of their offsets.
    pub weights: Vec<Weight>,
}

static ZEROS: [u8; ALIGN] = [0; ALIGN];

impl Artifact {
    /// The weights with the zeros between them.
    fn weight_pieces(&self) -> Vec<&[u8]> {
        let mut pieces = Vec::with_capacity(self.weights.len() * 2);
        for weight in &self.weights {
            let bytes = weight.bytes();
            let padded = bytes.len().div_ceil(ALIGN).max(1) * ALIGN;
            pieces.push(bytes);
            pieces.push(&ZEROS[..padded - bytes.len()]);
        }
        pieces
    }

    /// Writes the artifact to `path`: a temporary file beside it that is renamed when complete, so that
    /// nothing is left where writing fails.
    ///
    /// # Errors
    /// Input/output errors, with the path.
    pub fn write(&self, path: &Path) -> Result<u64, CompileError> {
        let fail = |source| CompileError::Output { path: path.display().to_string(), source };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        let written = self.write_file(&temporary);
        let renamed = written.and_then(|n| std::fs::rename(&temporary, path).map(|()| n));
        if renamed.is_err() {
            // Nothing may be left behind; that removal fails too (a full or vanished disk) changes nothing.
            let _ = std::fs::remove_file(&temporary);
        }
        renamed.map_err(fail)
    }

    fn write_file(&self, path: &Path) -> std::io::Result<u64> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let pieces = self.weight_pieces();
        let images = [self.code.as_slice()];
        let contents =
            Contents { manifest: &self.manifest, plan: &self.plan, images: &images, weights: &pieces };
        let n = contents.write_to(&mut out).map_err(std::io::Error::other)?;
        out.flush()?;
        Ok(n)
    }

    /// The artifact's bytes in memory, as the loader takes them.
    ///
    /// # Errors
    /// Where a section is larger than the format allows.
    pub fn to_bytes(&self) -> Result<Bytes, CompileError> {
        let pieces = self.weight_pieces();
        let images = [self.code.as_slice()];
        let contents =
            Contents { manifest: &self.manifest, plan: &self.plan, images: &images, weights: &pieces };
        let buffer = contents.to_bytes().map_err(|e| CompileError::Limit(e.to_string()))?;
        Ok(Bytes::new(buffer))
    }
}
