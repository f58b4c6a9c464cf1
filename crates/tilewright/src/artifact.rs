//! The result of a compilation: a plan, code and weights that can be written or run.

use std::path::Path;

use tilewright_runtime::Bytes;
use tilewright_runtime::artifact::{Contents, Manifest};
use tilewright_runtime::plan::{ALIGN, Plan};

use crate::error::CompileError;
use crate::files;
use crate::weights::Weight;

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

    /// Writes the artifact to `path`, whole or not at all; the number of bytes.
    ///
    /// # Errors
    /// Input/output errors, with the path.
    pub fn write(&self, path: &Path) -> Result<u64, CompileError> {
        let pieces = self.weight_pieces();
        let images = [self.code.as_slice()];
        let contents =
            Contents { manifest: &self.manifest, plan: &self.plan, images: &images, weights: &pieces };
        let written = files::replace(path, |out| contents.write_to(out).map_err(std::io::Error::other));
        written.map_err(|source| CompileError::Output { path: path.display().to_string(), source })
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
