//! The result of a compilation: a plan, code and weights that can be written or run.

use std::path::Path;

use tilewright_machine::Arch;
use tilewright_run::files;
use tilewright_run::{LoadOptions, Model};
use tilewright_runtime::artifact::{self, Contents, Manifest, Needs};
use tilewright_runtime::plan::Plan;
use tilewright_runtime::{Bytes, Trust};

use crate::error::{CompileError, Error};
use crate::load;
use crate::weights::Weights;

/// The code of a model for one instruction set.
#[derive(Debug)]
pub struct Level {
    /// The execution plan for all extents of the inputs.
    pub plan: Plan,
    /// The plans that are specialised for some extents, in the order of [`DimOption`](crate::DimOption)s and their extents.
    pub specialised: Vec<Plan>,
    /// The flat code image, of all plans.
    pub code: Vec<u8>,
    /// What the start of the image must be a multiple of, in bytes; at most a page.
    pub code_align: u64,
    /// Where the code is text, the functions in it, as the entries of programs number them.
    pub(crate) symbols: Vec<String>,
    /// The code for the device, of all plans.
    pub device_code: Option<Vec<u8>>,
}

impl Level {
    /// The plan for all extents, then the specialised ones.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        std::iter::once(&self.plan).chain(&self.specialised)
    }
}

/// A compiled model.
#[derive(Debug)]
pub struct Artifact {
    /// Names, targets, options.
    pub manifest: Manifest,
    /// The code for each target, in the order of the manifest's images; at least one.
    pub levels: Vec<Level>,
    /// The weights of all levels.
    pub(crate) weights: Weights,
}

impl Artifact {
    /// Gives what is to be written to `write`.
    fn with_contents<T>(&self, write: impl FnOnce(&Contents<'_>) -> T) -> T {
        let levels = self.levels.iter().map(|l| artifact::Level {
            plan: &l.plan,
            specialised: &l.specialised,
            image: &l.code,
            device_code: l.device_code.as_deref(),
        });
        let levels: Vec<_> = levels.collect();
        write(&Contents { manifest: &self.manifest, levels: &levels, weights: &self.weights })
    }

    /// The memory that the model needs in a program without a system, by a runtime with or without names; nothing where it has code for other
    /// machines.
    pub fn needs(&self, names: bool) -> Option<Needs> {
        let arch = |triple: &str| Arch::ALL.into_iter().find(|arch| arch.triple() == triple);
        let plans: Vec<(&Plan, &[Plan])> = self.levels.iter().map(|l| (&l.plan, &*l.specialised)).collect();
        let mut needs: Option<Needs> = None;
        for (level, image) in self.manifest.images.iter().enumerate() {
            let arch = arch(&image.triple).filter(|arch| !arch.has_system())?;
            let own = Needs::of_level(&self.manifest, &plans, level, arch.pointer_bits() as usize / 8, names);
            needs = Some(needs.map_or(own, |needs| needs.or(&own)));
        }
        needs
    }

    /// Writes the artifact to `path`, whole or not at all; the number of bytes.
    ///
    /// # Errors
    /// Input/output errors, with the path.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<u64, CompileError> {
        let path = path.as_ref();
        let written = self.with_contents(|contents| {
            files::replace(path, |out| contents.write_to(out).map_err(std::io::Error::other))
        });
        if written.is_err() {
            self.weights.check()?;
        }
        written.map_err(|source| CompileError::Output { path: path.display().to_string(), source })
    }

    /// The artifact's bytes in memory, as the loader takes them.
    ///
    /// # Errors
    /// Where a section is larger than the format allows, or there are too many levels.
    pub fn to_bytes(&self) -> Result<Bytes, CompileError> {
        let buffer = self.with_contents(|contents| contents.to_bytes());
        if buffer.is_err() {
            self.weights.check()?;
        }
        Ok(Bytes::new(buffer.map_err(|e| CompileError::Limit(e.to_string()))?))
    }

    /// The model, ready to run in this process. Its code was made here, so nobody has to be trusted; of a compilation with a
    /// [`Cache`](crate::Cache) that is to say that its folder is as trusted as this program. Where there is code for a device alone,
    /// the first of its kind runs it.
    ///
    /// # Errors
    /// As [`Artifact::to_bytes`], and where this machine does not run code for the target.
    pub fn load(&self) -> Result<Model, Error> {
        self.load_with(&LoadOptions::new())
    }

    /// As [`Artifact::load`], with options.
    ///
    /// # Errors
    /// As [`Artifact::load`], and where there is no code for the device that is asked for.
    pub fn load_with(&self, options: &LoadOptions) -> Result<Model, Error> {
        load::bytes(self.to_bytes()?, Trust::Origin, options)
    }
}
