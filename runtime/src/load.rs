//! Loading artifacts: checks the bytes and ties the code to the plan.
//!
//! With `std`, [`Loader`] maps a file and makes its code executable. Without, [`Model::in_place`] runs an artifact
//! where it lies, in the text section of a program or in flash.
#![allow(unsafe_code, reason = "runs what was compiled")]

#[cfg(feature = "std")]
mod mapped;

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

use crate::artifact::{Artifact, ArtifactError, ImageDef, ProgramDef};
use crate::device::{Device, DeviceError};
use crate::host::HostOps;
use crate::isa::{Isa, IsaError};
use crate::memory::Bytes;
use crate::model::{KernelCode, KernelFn, Kernels, Model, ModelError, ProgramParts};
use crate::plan::{KernelDef, Plan, Space};
use crate::told::told;

#[cfg(feature = "std")]
pub use mapped::{Loader, Trust};

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
    /// Code for a kind of device alone, and none was given.
    #[error("the artifact has code for {0} alone: load it for such a device")]
    NeedsDevice(String),
    /// Code for several kinds of devices, and none was named.
    #[error("the artifact has code for {0}: name one of them")]
    SeveralDevices(String),
    /// No code for the device that was given.
    #[error("the artifact has no code for {asked}; it has code for {found}")]
    OtherDevice {
        /// The kind of device.
        asked: String,
        /// What there is code for.
        found: String,
    },
    /// The device cannot run the code, or has no memory for it.
    #[error(transparent)]
    Device(#[from] DeviceError),
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
        let chosen = choose(&artifact.manifest.images, isa, Wanted::Only)?;
        let base = bytes[artifact.images[chosen].clone()].as_ptr();
        // SAFETY: executable and written by the compiler, by the caller's word.
        unsafe { tie(artifact, chosen, base, None, &Bytes::new(bytes), host, None) }
    }
}

impl Model {
    /// As [`Model::in_place`], of an artifact that is linked into a program: for which machine it is was decided then.
    ///
    /// # Errors
    /// When the bytes are damaged, or have code for several machines or for a device.
    ///
    /// # Safety
    /// As [`Model::in_place`]; and the code is for this machine.
    pub unsafe fn linked(bytes: &'static [u8], host: Arc<dyn HostOps>) -> Result<Model, LoadError> {
        let artifact = Artifact::read(bytes)?;
        if artifact.images.len() != 1 || artifact.manifest.images[0].device.is_some() {
            return Err(ArtifactError::LeftOut("code for several machines or a device").into());
        }
        let base = bytes[artifact.images[0].clone()].as_ptr();
        // SAFETY: executable, for this machine and written by the compiler, by the caller's word.
        unsafe { tie(artifact, 0, base, None, &Bytes::new(bytes), host, None) }
    }
}

/// What messages call the machine that the loader runs on.
const PROCESSOR: &str = "the processor";

/// What a model is to run on.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "std"), expect(dead_code, reason = "without std nothing is loaded for devices"))]
enum Wanted<'d> {
    /// The only thing that there is code for.
    Only,
    /// The processor.
    Host,
    /// A device.
    Device(&'d dyn Device),
}

/// The image to run: of those for the device, or for none, which suit it best, that which uses most of the machine.
fn choose(images: &[ImageDef], isa: &Isa, wanted: Wanted<'_>) -> Result<usize, LoadError> {
    let mut kinds: Vec<&str> = Vec::new();
    for image in images {
        let kind = image.device.as_ref().map_or(PROCESSOR, |def| &def.kind);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let device = match wanted {
        Wanted::Device(device) => device,
        Wanted::Only if kinds.len() > 1 => {
            return Err(LoadError::SeveralDevices(told(|| kinds.join(" and "))));
        }
        Wanted::Only | Wanted::Host if !images.is_empty() && !kinds.contains(&PROCESSOR) => {
            return Err(LoadError::NeedsDevice(told(|| kinds.join(" and "))));
        }
        Wanted::Only | Wanted::Host => {
            let of_host: Vec<usize> = (0..images.len()).filter(|&i| images[i].device.is_none()).collect();
            return Ok(of_host[isa.choose(of_host.iter().map(|&i| &images[i]))?]);
        }
    };
    let of_kind = |i: &usize| images[*i].device.as_ref().filter(|def| def.kind == device.kind());
    let mut best: Vec<usize> = Vec::new();
    let mut best_rank = None;
    let mut unfit = None;
    for i in 0..images.len() {
        let Some(def) = of_kind(&i) else { continue };
        match device.suits(def) {
            Err(error) => unfit = Some(error),
            Ok(rank) if best_rank.is_some_and(|best| rank < best) => {}
            Ok(rank) => {
                if best_rank != Some(rank) {
                    best.clear();
                }
                best_rank = Some(rank);
                best.push(i);
            }
        }
    }
    match (best.is_empty(), unfit) {
        (false, _) => Ok(best[isa.choose(best.iter().map(|&i| &images[i]))?]),
        (true, Some(error)) => Err(error.into()),
        (true, None) => Err(LoadError::OtherDevice {
            asked: device.kind().to_string(),
            found: told(|| kinds.join(" and ")),
        }),
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
    device: Option<&dyn Device>,
) -> Result<Model, LoadError> {
    // A call says by the lowest bit of an address that code is Thumb.
    let thumb = usize::from(artifact.manifest.images[chosen].triple.starts_with("thumb"));
    let entry = |(&entry, kernel): (&u64, &KernelDef)| match kernel.space {
        Space::Device => KernelCode::Device(entry as usize),
        Space::Host => {
            let code = base.wrapping_add(entry as usize).map_addr(|address| address | thumb);
            // SAFETY: `Artifact::read` checked that the entry is inside the image, which holds kernels.
            KernelCode::Host(unsafe { core::mem::transmute::<*const u8, KernelFn>(code) })
        }
    };
    let module = match (&artifact.manifest.images[chosen].device, device) {
        (Some(def), Some(device)) => Some(device.load(def, &bytes[artifact.device_code[chosen].clone()])?),
        (Some(_), None) | (None, _) => None,
    };
    // Of the levels the model knows the one that it runs.
    let mut image = artifact.manifest.images.swap_remove(chosen);
    let plans = artifact.plans.swap_remove(chosen);
    artifact.manifest.images.clear();
    let part = |plan: Plan, def: ProgramDef| {
        let table = def.entries.iter().zip(&plan.kernels).map(entry).collect();
        let kernels = Kernels::of(table, code.clone());
        ProgramParts { plan, kernels, def }
    };
    let open = part(plans.open, core::mem::take(&mut image.program));
    let specialised = core::mem::take(&mut image.specialised);
    let specialised = plans.specialised.into_iter().zip(specialised).map(|(plan, def)| part(plan, def));
    let specialised = specialised.collect();
    artifact.manifest.images.push(image);
    let weights = bytes.slice(artifact.weights.clone()).ok_or(ArtifactError::Table("weights"))?;
    // SAFETY: the kernels are the compiler's for these plans.
    Ok(unsafe { Model::of_programs(artifact.manifest, open, specialised, weights, host, module) }?)
}
