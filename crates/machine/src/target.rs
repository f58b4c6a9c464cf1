//! Targets: a machine together with a code generator, and maybe a GPU.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::codegen::{Codegen, CodegenKind};
use crate::error::TargetError;
use crate::feature::{Arch, Feature};
use crate::gpu::Gpu;
use crate::machine::Machine;

/// What code is generated for, by what. Prints as `MACHINE@CODEGEN` in full, before it `GPU/` where there is one, and parses back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// The hardware.
    pub machine: Machine,
    /// The code generator.
    pub codegen: Codegen,
    /// The GPU whose threads functions are scheduled for. Code for the machine runs threads as loops.
    pub gpu: Option<Gpu>,
}

impl Target {
    /// The machine as the code generator can use it.
    pub fn new(machine: Machine, codegen: CodegenKind) -> Target {
        Target { machine, codegen: codegen.describe(), gpu: None }
    }

    /// The machine the compiler runs on.
    pub fn host(codegen: CodegenKind) -> Target {
        Target::new(Machine::host(), codegen)
    }

    /// A target from the machine's name or description (see [`Machine`]), before it `GPU/` where functions are scheduled for one.
    ///
    /// # Errors
    /// Where there is no such machine or GPU.
    pub fn parse(machine: &str, codegen: CodegenKind) -> Result<Target, TargetError> {
        let (gpu, machine) = match machine.split_once('/').filter(|(gpu, _)| gpu.starts_with("sm_")) {
            Some((gpu, machine)) => (Some(gpu.parse()?), machine),
            None => (None, machine),
        };
        Ok(Target { gpu, ..Target::new(machine.parse()?, codegen) })
    }

    /// Width of the vectors to use, in bits.
    pub fn vector_bits(&self) -> u32 {
        self.machine.vector_bits.min(self.codegen.max_vector_bits)
    }

    /// Lanes of a vector register of elements of so many bytes.
    pub fn lanes(&self, element_bytes: usize) -> u32 {
        self.vector_bits() / (8 * element_bytes.max(1) as u32)
    }

    /// Number of vector registers of [`Target::vector_bits`].
    pub fn n_vector_registers(&self) -> u32 {
        // The upper sixteen registers of AVX-512 cannot be named by the encodings of narrower code generators.
        match self.machine.arch {
            Arch::X86_64 if self.codegen.max_vector_bits < 512 => self.machine.n_vector_registers.min(16),
            Arch::X86_64 | Arch::Aarch64 => self.machine.n_vector_registers,
        }
    }

    /// Whether a fused multiply-add is one instruction.
    pub fn has_fma(&self) -> bool {
        self.machine.has_fma()
    }

    /// Bytes from which on an element may be of masked loads and stores that are single instructions; `None` where there
    /// are no such instructions.
    pub fn masked_access(&self) -> Option<u32> {
        let has = |feature| self.codegen.masked_access && self.machine.has(feature);
        match (has(Feature::Avx512bw) && has(Feature::Avx512vl), has(Feature::Avx2)) {
            (true, _) => Some(1),
            (false, true) => Some(4),
            (false, false) => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.gpu.iter().try_for_each(|gpu| write!(f, "{gpu}/"))?;
        write!(f, "{}@{}", self.machine, self.codegen.kind)
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let (machine, codegen) = text.rsplit_once('@').unwrap_or((text, CodegenKind::Llvm.name()));
        Target::parse(machine, codegen.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_round_trip() {
        for kind in CodegenKind::ALL {
            let target = Target::host(kind);
            assert_eq!(target.to_string().parse(), Ok(target.clone()));
            let target = Target { gpu: Some("sm_90".parse().unwrap()), ..target };
            assert!(target.to_string().starts_with("sm_90/"), "{target}");
            assert_eq!(target.to_string().parse(), Ok(target));
        }
        assert!(matches!("sm_7/cpu".parse::<Target>(), Err(TargetError::UnknownGpu { .. })));
        assert_eq!(
            "cpu@gcc".parse::<Target>().unwrap_err().to_string(),
            "unknown code generator `gcc`; known are llvm, cranelift"
        );
    }

    #[test]
    fn a_target_is_the_lesser_of_machine_and_generator() {
        let lanes = |machine, codegen| Target::parse(machine, codegen).unwrap().lanes(4);
        assert_eq!(lanes("x86-64-v4", CodegenKind::Llvm), 16);
        assert_eq!(lanes("x86-64-v3", CodegenKind::Llvm), 8);
        assert_eq!(lanes("x86-64-v4", CodegenKind::Cranelift), 4);
        let masked = |machine, codegen| Target::parse(machine, codegen).unwrap().masked_access();
        assert_eq!(masked("x86-64-v4", CodegenKind::Cranelift), None);
        assert_eq!(masked("x86-64-v4", CodegenKind::Llvm), Some(1));
        assert_eq!(masked("x86-64-v3", CodegenKind::Llvm), Some(4));
        assert_eq!(masked("x86-64-v2", CodegenKind::Llvm), None);
    }
}
