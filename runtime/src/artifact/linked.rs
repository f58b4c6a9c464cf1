//! What the compiler and the runtime of a model's library agree on: the symbols by which they find each other, and the memory that the
//! caller gives for the model.

use crate::plan::{ALIGN, Plan};

use super::Needs;

/// What the runtime's object calls the artifact's bytes, which the compiler adds to it.
pub const ARTIFACT_SYMBOL: &str = "tilewright_embed_artifact";

/// What it calls the [`LinkedFacts`].
pub const FACTS_SYMBOL: &str = "tilewright_embed_facts";

/// What the functions of a library are called in the runtime's object, and what comes behind `NAME_` in the library.
pub const FUNCTIONS: [(&str, &str); 3] =
    [("tilewright_embed_open", "open"), ("tilewright_embed_sizes", "sizes"), ("tilewright_embed_run", "run")];

/// Bytes at the start of the model's memory that hold what the runtime keeps beside its heap.
pub const HEAD: u64 = 256;

/// What the compiler tells the runtime of an artifact that it is linked with.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkedFacts {
    /// Bytes of the artifact.
    pub artifact_bytes: u64,
    /// Bytes of memory that the model needs: [`LinkedFacts::of`].
    pub model_bytes: u64,
    /// Extents that the caller's structs have room for.
    pub rank: u64,
}

impl LinkedFacts {
    /// Of an artifact of so many bytes, where an address has `address` bytes.
    pub fn of(artifact_bytes: u64, needs: &Needs, plan: &Plan, address: u64) -> LinkedFacts {
        let ranks = || plan.inputs.iter().chain(&plan.outputs).map(|spec| spec.dims.len() as u64);
        let n_dims: u64 = plan.inputs.iter().map(|spec| spec.dims.len() as u64).sum();
        // A call lists extents, and views of the inputs; the sizes of a forecast take what those of a session do, and not at once.
        let lists = [n_dims * address, plan.inputs.len() as u64 * view(address)];
        let lists = lists.map(|bytes| bytes.next_multiple_of(2 * address)).into_iter().sum::<u64>();
        let heap = (needs.heap + lists).next_multiple_of(ALIGN as u64);
        LinkedFacts { artifact_bytes, model_bytes: HEAD + heap, rank: ranks().max().unwrap_or(0).max(1) }
    }

    /// As they lie in a program for a little-endian machine.
    pub fn to_bytes(self) -> Vec24 {
        let mut bytes = [0; 24];
        let LinkedFacts { artifact_bytes, model_bytes, rank } = self;
        for (to, fact) in bytes.chunks_exact_mut(8).zip([artifact_bytes, model_bytes, rank]) {
            to.copy_from_slice(&fact.to_le_bytes());
        }
        bytes
    }
}

/// Bytes of [`LinkedFacts`].
type Vec24 = [u8; size_of::<LinkedFacts>()];

/// Bytes of a view of a tensor.
const fn view(address: u64) -> u64 {
    5 * address
}

const _: () =
    assert!(size_of::<crate::TensorView<'_>>() as u64 <= view(size_of::<usize>() as u64), "a view is larger");
