//! The `.twm` artifact: one file with manifest, plans, code images and weights.
//!
//! ```text
//! header   64 bytes   magic, version, number of sections, length of the file, checksum of the section table
//! table    64 bytes each: kind, offset, length, checksum of the section; of plans also what the level needs ([`Needs`])
//! sections in table order: manifest; its notes for people; plans, a code image and maybe code for a device for each level; weights
//! ```
//! A level is an instruction set that there is code for. Levels differ in schedules and layouts, so each has its own plans;
//! they share the weights, where what both read alike is once. The plans of a level are that of the program for all extents
//! of inputs, and those of programs specialised for some; they share the code image too.
//!
//! All numbers are little-endian. Sections follow each other with zero padding up to their alignment (code and
//! weights: [`PAGE`]), so every byte of a file is determined by its contents and the reader accepts nothing else. The checksums of table, manifest, plan and
//! code are checked when a file is read, that of the weights only by [`Artifact::verify_weights`]: weights are
//! mapped, not read, at load. A checksum is XXH3 of 128 bits: it finds damage, and proves no origin.

mod figures;
pub mod linked;
mod needs;
#[cfg(any(feature = "names", feature = "checksums"))]
mod notes;
mod read;
#[cfg(feature = "checksums")]
mod write;

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use crate::plan::{ALIGN, Plan, SizeId};

pub use needs::Needs;
pub(crate) use needs::tensor_bytes;
#[cfg(feature = "checksums")]
pub use write::{Contents, ContentsError, Level, Pieces};

/// First bytes of every artifact: not text, and damaged by transfers that treat it as text.
pub const MAGIC: [u8; 8] = *b"\x89TWM\r\n\x1a\n";

/// Version of the format. Readers accept only their own.
pub const VERSION: u32 = 11;

/// Alignment of code and weights in the file; that of a memory page on common machines.
pub const PAGE: usize = 4096;

type Checksum = [u8; 16];

#[cfg(feature = "checksums")]
fn checksum(bytes: &[u8]) -> Checksum {
    xxhash_rust::xxh3::xxh3_128(bytes).to_le_bytes()
}

const HEADER: usize = 64;
const ENTRY: usize = 64;

/// More sections than any artifact has.
const MAX_SECTIONS: usize = 64;

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    Manifest = 1,
    Plans = 2,
    Code = 3,
    Weights = 4,
    DeviceCode = 5,
    Notes = 6,
}

impl Kind {
    fn from_u32(code: u32) -> Option<Kind> {
        let all = [Kind::Manifest, Kind::Plans, Kind::Code, Kind::Weights, Kind::DeviceCode, Kind::Notes];
        all.into_iter().find(|&kind| kind as u32 == code)
    }

    const fn name(self) -> &'static str {
        match self {
            Kind::Manifest => "manifest",
            Kind::Plans => "plans",
            Kind::Code => "code",
            Kind::Weights => "weights",
            Kind::DeviceCode => "code for a device",
            Kind::Notes => "notes",
        }
    }

    const fn align(self) -> usize {
        match self {
            Kind::Manifest | Kind::Notes | Kind::Plans | Kind::DeviceCode => ALIGN,
            Kind::Code | Kind::Weights => PAGE,
        }
    }
}

/// The code image of one level of an artifact; the i-th describes the i-th code section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageDef {
    /// What the level was compiled for, for people.
    #[serde(skip)]
    pub target: String,
    /// LLVM target triple (`x86_64-unknown-linux-gnu`): instruction set and calling convention.
    pub triple: String,
    /// Instruction set extensions the code uses, by their names in Rust and LLVM (`avx2`, `fma`).
    pub features: Vec<String>,
    /// The program for all extents.
    pub program: ProgramDef,
    /// The programs that are specialised for some extents, in the order of [`Plans::specialised`].
    pub specialised: Vec<ProgramDef>,
    /// Code for a device beside the processor.
    #[cfg_attr(not(any(feature = "devices", feature = "std")), serde(deserialize_with = "read::no_device"))]
    pub device: Option<DeviceDef>,
}

/// The code of a level for a device: one section that holds all of [`DeviceDef::parts`], one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceDef {
    /// The kind of device: `opencl`, `cuda`.
    pub kind: String,
    /// The oldest generation of it that runs the code (`sm_80`); empty where all do.
    pub arch: String,
    /// What made machine code of it, where something did: a program and its version.
    pub assembler: String,
    /// The code in its formats (`opencl-c`, `ptx`, `cubin`), each with its bytes. They are of the same kernels.
    pub parts: Vec<(String, u64)>,
    /// The kernels.
    pub kernels: Vec<DeviceKernel>,
}

impl DeviceDef {
    /// What the code is for, as `--target` has it.
    pub fn target(&self) -> String {
        match self.arch.is_empty() {
            true => self.kind.clone(),
            false => [&*self.kind, ":", &*self.arch].concat(),
        }
    }

    /// The code in one of its formats; `None` where it is not there.
    pub fn part<'a>(&self, format: &str, code: &'a [u8]) -> Option<&'a [u8]> {
        let mut start = 0u64;
        for (name, bytes) in &self.parts {
            let end = start.checked_add(*bytes)?;
            if name == format {
                return code.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?);
            }
            start = end;
        }
        None
    }
}

/// A kernel for a device. It takes the addresses of its buffers, its extents as 64-bit integers, and the first task as one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceKernel {
    /// Its name in the code.
    pub symbol: String,
    /// Warps of a task, and lanes of a warp.
    pub threads: [u32; 2],
    /// Bytes of shared memory that its launch asks for.
    pub dynamic_shared: u32,
}

impl ImageDef {
    /// The program for all extents, then the specialised ones.
    pub fn programs(&self) -> impl Iterator<Item = &ProgramDef> {
        core::iter::once(&self.program).chain(&self.specialised)
    }
}

/// What belongs to one plan of a level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramDef {
    /// The open dimensions that it is specialised for, by name, and their extents. Notes for people: that a program fits
    /// some inputs is told by its plan.
    #[serde(skip)]
    pub extents: Vec<(String, u64)>,
    /// For each of [`Plan::kernels`] its offset in the image, or its index in [`DeviceDef::kernels`] if a device runs it.
    pub entries: Vec<u64>,
    /// How each kernel was scheduled, in the same order; empty where the compiler does not tell.
    #[serde(skip)]
    pub schedules: Vec<ScheduleDef>,
    /// What the instructions of the plan compute in terms of the user's operators, for profiles.
    #[serde(skip)]
    pub steps: Vec<StepDef>,
}

/// How a kernel was scheduled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleDef {
    /// The rules that scheduled its function's blocks.
    pub rules: String,
    /// How its function's results are laid out: a letter an axis, outermost first, as `aBcd16b`; capital where the axis is blocked.
    pub layout: String,
    /// What a call of its function takes on one core of the target by the compiler's model, in nanoseconds. It stands at the function's
    /// first kernel, with 0 at the others; nothing where the model has no price for all of the function, or an extent is open.
    pub estimate_ns: Option<u64>,
}

/// What some instructions compute, by the definitions of the user's operators. Notes for people: nothing that runs
/// depends on it, so what does not fit the plan is only not shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepDef {
    /// The instructions, as places in [`Plan::instrs`].
    pub instrs: Range<u32>,
    /// The operators: first the one that decides the schedule.
    pub operators: Vec<String>,
    /// Slot of the number of arithmetic operations.
    pub flops: Option<SizeId>,
    /// Slot of the bytes that must be read and written.
    pub bytes: Option<SizeId>,
}

/// What the compiler records about a model beside the plan. All but the images are notes for people, which a runtime without the feature
/// `names` does not read; likewise in what the images are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Name of the model.
    #[serde(skip)]
    pub model: String,
    /// Version of the compiler.
    #[serde(skip)]
    pub compiler: String,
    /// The target as asked for and as resolved.
    #[serde(skip)]
    pub target: String,
    /// Options that differ from the default, by name.
    #[serde(skip)]
    pub options: Vec<(String, String)>,
    /// Digest of the tuning records used; empty without.
    #[serde(skip)]
    pub records: String,
    /// Metadata of the user's model, by key.
    #[serde(skip)]
    pub metadata: Vec<(String, String)>,
    /// The code images.
    pub images: Vec<ImageDef>,
}

/// The plans of a level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plans {
    /// For all extents of the inputs.
    pub open: Plan,
    /// For those extents that they have as constants; the first that fits is taken.
    pub specialised: Vec<Plan>,
}

impl Plans {
    /// The plan for all extents, then the specialised ones.
    pub fn all(&self) -> impl Iterator<Item = &Plan> {
        core::iter::once(&self.open).chain(&self.specialised)
    }
}

/// An artifact that was read and found consistent. Sections are ranges of the bytes it was read from.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The manifest.
    pub manifest: Manifest,
    /// The plans of each level, validated, in the order of [`Manifest::images`].
    pub plans: Vec<Plans>,
    /// The code images in the order of [`Manifest::images`].
    pub images: Vec<Range<usize>>,
    /// Code for devices, in the same order; empty where [`ImageDef::device`] is nothing.
    pub device_code: Vec<Range<usize>>,
    /// The weights.
    pub weights: Range<usize>,
    weights_checksum: Checksum,
}

/// Bytes that are not a sound artifact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactError {
    /// Another kind of file.
    #[error("not a Tilewright artifact")]
    Magic,
    /// Written by another version of the compiler.
    #[error("artifact format version {found}, this runtime reads version {VERSION}: compile the model again")]
    Version {
        /// In the file.
        found: u32,
    },
    /// Cut short, or with bytes after the end.
    #[error("damaged artifact: {got} bytes, the header says {expected}")]
    Length {
        /// By the header.
        expected: u64,
        /// In the file.
        got: u64,
    },
    /// Header or section table are not what a writer produces.
    #[error("damaged artifact: bad {0}")]
    Table(&'static str),
    /// A checksum that does not match.
    #[error("damaged artifact: the checksum of {0} does not match")]
    Checksum(&'static str),
    /// A section that does not decode.
    #[error("damaged artifact: the {0} does not decode")]
    Decode(&'static str),
    /// A plan that is not consistent; a bug of the compiler that wrote it.
    #[error("the plan of the artifact is invalid: {0}")]
    Plan(crate::plan::PlanError),
    /// Something that this build of the runtime leaves out.
    #[error("the artifact has {0}, which this build of the runtime leaves out")]
    LeftOut(&'static str),
    /// Sections that contradict each other; a bug of the compiler that wrote them.
    #[error("the artifact contradicts itself: {0}")]
    Mismatch(&'static str),
}
