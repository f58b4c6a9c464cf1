//! The references of a section, by the rules of its architecture.

use object::Architecture;
use object::elf::RelocationType;

use super::{Problem, Reference, aarch64, arm, riscv, x86_64};

/// What writes the references of one section.
pub(crate) struct Relocations {
    architecture: Architecture,
    pairs: riscv::Pairs,
}

impl Relocations {
    pub(crate) fn new(architecture: Architecture) -> Relocations {
        Relocations { architecture, pairs: riscv::Pairs::default() }
    }

    /// Writes a reference, or keeps it for the end.
    pub(crate) fn apply(
        &mut self,
        kind: RelocationType,
        place: Reference,
        bytes: &mut [u8],
    ) -> Result<(), Problem> {
        match self.architecture {
            Architecture::X86_64 => x86_64(kind, place, bytes),
            Architecture::Arm => arm::apply(kind, place, bytes),
            Architecture::Riscv64 => self.pairs.apply(kind, place, bytes),
            _ => aarch64(kind, place, bytes),
        }
    }

    /// Writes what was kept; gives what cannot be written, as what it belongs to was not.
    pub(crate) fn finish(self, bytes: &mut [u8]) -> Vec<(RelocationType, Reference)> {
        self.pairs.finish(bytes)
    }
}
