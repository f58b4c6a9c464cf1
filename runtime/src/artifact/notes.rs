//! What an artifact says for people, in a section of its own: what runs the model needs none of it.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

#[cfg(feature = "checksums")]
use super::ProgramDef;
use super::{Manifest, ScheduleDef, StepDef};

/// The fields of a manifest that its own section leaves out.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Notes {
    model: String,
    compiler: String,
    target: String,
    options: Vec<(String, String)>,
    records: String,
    metadata: Vec<(String, String)>,
    images: Vec<OfImage>,
}

#[derive(Default, Serialize, Deserialize)]
struct OfImage {
    target: String,
    /// As [`ImageDef::programs`](super::ImageDef::programs).
    programs: Vec<OfProgram>,
}

#[derive(Default, Serialize, Deserialize)]
struct OfProgram {
    extents: Vec<(String, u64)>,
    schedules: Vec<ScheduleDef>,
    steps: Vec<StepDef>,
}

impl Notes {
    /// Those of a manifest.
    #[cfg(feature = "checksums")]
    pub(super) fn of(manifest: &Manifest) -> Notes {
        let program = |def: &ProgramDef| OfProgram {
            extents: def.extents.clone(),
            schedules: def.schedules.clone(),
            steps: def.steps.clone(),
        };
        let images = manifest.images.iter().map(|image| OfImage {
            target: image.target.clone(),
            programs: image.programs().map(program).collect(),
        });
        Notes {
            model: manifest.model.clone(),
            compiler: manifest.compiler.clone(),
            target: manifest.target.clone(),
            options: manifest.options.clone(),
            records: manifest.records.clone(),
            metadata: manifest.metadata.clone(),
            images: images.collect(),
        }
    }

    /// Gives them to the manifest they are of.
    #[cfg(feature = "names")]
    pub(super) fn give(self, manifest: &mut Manifest) {
        let Notes { model, compiler, target, options, records, metadata, images } = self;
        (manifest.model, manifest.compiler, manifest.target) = (model, compiler, target);
        (manifest.options, manifest.records, manifest.metadata) = (options, records, metadata);
        for (image, of_image) in manifest.images.iter_mut().zip(images) {
            image.target = of_image.target;
            let programs = core::iter::once(&mut image.program).chain(&mut image.specialised);
            for (program, of_program) in programs.zip(of_image.programs) {
                let OfProgram { extents, schedules, steps } = of_program;
                (program.extents, program.schedules, program.steps) = (extents, schedules, steps);
            }
        }
    }
}
