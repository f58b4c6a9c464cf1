//! Loading artifacts: checks the bytes and ties the code to the plan.
//!
//! With `std`, [`Loader`] maps a file and makes its code executable. Without, [`Model::in_place`] runs an artifact
//! where it lies, in the text section of a program or in flash.
#![allow(unsafe_code, reason = "runs what was compiled")]

#[cfg(feature = "std")]
mod mapped;

use alloc::sync::Arc;
use core::any::Any;

use crate::artifact::{Artifact, ArtifactError, ProgramDef};
use crate::host::HostOps;
use crate::isa::{Isa, IsaError};
use crate::memory::Bytes;
use crate::model::{KernelFn, Kernels, Model, ModelError, ProgramParts};
use crate::plan::Plan;

#[cfg(feature = "std")]
pub use mapped::Loader;

/// A model that could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be read.
    #[cfg(feature = "std")]
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The system gave no executable memory.
    #[cfg(feature = "std")]
    #[error("no executable memory: {0}")]
    Code(std::io::Error),
    /// Not a sound artifact.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// No code for this machine.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// Plan, code, weights and host operators do not fit each other.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl Model {
    /// Loads an artifact that lies in executable memory, and runs its code there.
    ///
    /// `isa` is the machine, which cannot be asked without an operating system. The weights are used in place
    /// where they are aligned to [`ALIGN`](crate::plan::ALIGN) bytes.
    ///
    /// # Errors
    /// When the bytes are damaged, or have no code for the machine.
    ///
    /// # Safety
    /// `bytes` are executable, start at a multiple of [`PAGE`](crate::artifact::PAGE), and were written by the compiler.
    pub unsafe fn in_place(
        bytes: &'static [u8],
        isa: &Isa,
        host: Arc<dyn HostOps>,
    ) -> Result<Model, LoadError> {
        let artifact = Artifact::read(bytes)?;
        let chosen = isa.choose(&artifact.manifest.images)?;
        let base = bytes[artifact.images[chosen].clone()].as_ptr();
        // SAFETY: executable and written by the compiler, by the caller's word.
        unsafe { tie(artifact, chosen, base, None, &Bytes::new(bytes), host) }
    }
}

/// Makes a model of an artifact whose image `chosen` is executable at `base`, kept there by `code`.
///
/// # Safety
/// As stated; and the image holds the compiler's kernels for the plans.
unsafe fn tie(
    mut artifact: Artifact,
    chosen: usize,
    base: *const u8,
    code: Option<Arc<dyn Any + Send + Sync>>,
    bytes: &Bytes,
    host: Arc<dyn HostOps>,
) -> Result<Model, LoadError> {
    let entry = |&offset: &u64| {
        // SAFETY: `Artifact::read` checked that the entry is inside the image, which holds kernels.
        unsafe { core::mem::transmute::<*const u8, KernelFn>(base.wrapping_add(offset as usize)) }
    };
    // Of the levels the model knows the one that it runs.
    let mut image = artifact.manifest.images.swap_remove(chosen);
    let plans = artifact.plans.swap_remove(chosen);
    artifact.manifest.images.clear();
    let part = |plan: Plan, def: ProgramDef| {
        let kernels = Kernels::new(def.entries.iter().map(entry).collect(), code.clone());
        ProgramParts { plan, kernels, def }
    };
    let open = part(plans.open, core::mem::take(&mut image.program));
    let specialised = core::mem::take(&mut image.specialised);
    let specialised = plans.specialised.into_iter().zip(specialised).map(|(plan, def)| part(plan, def));
    let specialised = specialised.collect();
    artifact.manifest.images.push(image);
    let weights = bytes.slice(artifact.weights.clone()).ok_or(ArtifactError::Table("weights"))?;
    // SAFETY: the kernels are the compiler's for these plans.
    Ok(unsafe { Model::of_programs(artifact.manifest, open, specialised, weights, host) }?)
}
