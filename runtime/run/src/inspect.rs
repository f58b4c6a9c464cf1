//! What an artifact is made of.

use tilewright_runtime::artifact::{Artifact, ArtifactError, ImageDef, Plans};
use tilewright_runtime::isa::Isa;
use tilewright_runtime::plan::Plan;

use crate::spec::{self, Spec};

/// What an artifact is made of. Numbers of bytes and kernels are of all its code together, where nothing else is said.
#[derive(Clone, Debug, PartialEq)]
pub struct ArtifactReport {
    /// Name of the model.
    pub name: String,
    /// Version of the compiler.
    pub compiler: String,
    /// The target as asked for and as resolved.
    pub target: String,
    /// Options that differ from the default, by name.
    pub options: Vec<(String, String)>,
    /// Metadata of the user's model, by key.
    pub metadata: Vec<(String, String)>,
    /// Inputs, in the model's order.
    pub inputs: Vec<Spec>,
    /// Outputs, in the model's order.
    pub outputs: Vec<Spec>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of machine code for the host.
    pub code_bytes: u64,
    /// Bytes of weights.
    pub weight_bytes: u64,
    /// Bytes of memory that the program which needs most has from the start of a run.
    pub arena_bytes: u64,
    /// Blocks of memory that a run asks for as it goes.
    pub run_time_blocks: usize,
    /// Kernels.
    pub kernels: usize,
    /// Instructions of plans.
    pub instructions: usize,
    /// Whether the weights have their checksum.
    pub weights_sound: bool,
    /// The code, by instruction set and device.
    pub levels: Vec<LevelReport>,
}

/// The code for one instruction set.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelReport {
    /// What it was compiled for.
    pub target: String,
    /// Instruction set and calling convention, as LLVM names them.
    pub triple: String,
    /// Extensions that it needs.
    pub features: Vec<String>,
    /// Whether a processor of the instruction set that was asked about takes it. For devices only the device can tell: never.
    pub is_chosen: bool,
    /// Bytes of machine code for the host.
    pub code_bytes: u64,
    /// The program for all extents.
    pub program: ProgramReport,
    /// The programs that are specialised for some.
    pub specialised: Vec<ProgramReport>,
    /// Code for a device beside the processor.
    pub device: Option<DeviceReport>,
}

/// A program of a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramReport {
    /// The open dimensions that it is specialised for, and their extents.
    pub extents: Vec<(String, u64)>,
    /// Kernels.
    pub kernels: usize,
    /// Bytes of memory that it has from the start of a run.
    pub arena_bytes: u64,
}

/// Code for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// What it is for, as a target is named.
    pub target: String,
    /// What made machine code of it, where something did.
    pub assembler: String,
    /// Its formats, each with its bytes.
    pub formats: Vec<(String, u64)>,
    /// Kernels.
    pub kernels: usize,
    /// Bytes of the device's memory that the program for all extents has from the start of a run.
    pub arena_bytes: u64,
}

/// Looks into the bytes of an artifact; `isa` says which level a processor would take.
///
/// # Errors
/// When the bytes are no sound artifact. Damaged weights are reported, and no error.
pub fn inspect(bytes: &[u8], isa: &Isa) -> Result<ArtifactReport, ArtifactError> {
    let artifact = Artifact::read(bytes)?;
    // All levels are of one model: inputs, outputs and control flow are the same.
    let Some(Plans { open: plan, .. }) = artifact.plans.first() else {
        return Err(ArtifactError::Mismatch("no code"));
    };
    let manifest = &artifact.manifest;
    let all = || artifact.plans.iter().flat_map(Plans::all);
    Ok(ArtifactReport {
        name: manifest.model.clone(),
        compiler: manifest.compiler.clone(),
        target: manifest.target.clone(),
        options: manifest.options.clone(),
        metadata: manifest.metadata.clone(),
        inputs: spec::inputs(plan),
        outputs: spec::outputs(plan),
        file_bytes: bytes.len() as u64,
        code_bytes: artifact.images.iter().map(|image| image.len() as u64).sum(),
        weight_bytes: artifact.weights.len() as u64,
        arena_bytes: all().map(|plan| plan.arena.bytes).max().unwrap_or(0),
        run_time_blocks: plan.arena.blocks.len(),
        kernels: all().map(|plan| plan.kernels.len()).sum(),
        instructions: all().map(|plan| plan.instrs.len()).sum(),
        weights_sound: artifact.verify_weights(bytes).is_ok(),
        levels: levels(&artifact, isa),
    })
}

fn levels(artifact: &Artifact, isa: &Isa) -> Vec<LevelReport> {
    let images = &artifact.manifest.images;
    let of_host: Vec<usize> = (0..images.len()).filter(|&i| images[i].device.is_none()).collect();
    let chosen = isa.choose(of_host.iter().map(|&i| &images[i])).ok().map(|i| of_host[i]);
    let parts = images.iter().zip(&artifact.images).zip(&artifact.plans).enumerate();
    parts
        .map(|(i, ((image, code), plans))| level(image, code.len() as u64, plans, chosen == Some(i)))
        .collect()
}

fn level(image: &ImageDef, code_bytes: u64, plans: &Plans, is_chosen: bool) -> LevelReport {
    let program = |extents: &[(String, u64)], plan: &Plan| ProgramReport {
        extents: extents.to_vec(),
        kernels: plan.kernels.len(),
        arena_bytes: plan.arena.bytes,
    };
    let specialised = image.specialised.iter().zip(&plans.specialised);
    LevelReport {
        target: image.target.clone(),
        triple: image.triple.clone(),
        features: image.features.clone(),
        is_chosen,
        code_bytes,
        program: program(&image.program.extents, &plans.open),
        specialised: specialised.map(|(def, plan)| program(&def.extents, plan)).collect(),
        device: image.device.as_ref().map(|def| DeviceReport {
            target: def.target(),
            assembler: def.assembler.clone(),
            formats: def.parts.clone(),
            kernels: def.kernels.len(),
            arena_bytes: plans.open.device_arena.bytes,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_artifact_is_an_error() {
        let isa = Isa { arch: "x86_64".into(), features: vec![] };
        assert_eq!(inspect(b"something else, long enough", &isa), Err(ArtifactError::Magic));
    }
}
