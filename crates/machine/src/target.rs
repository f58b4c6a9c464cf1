//! Targets: a machine together with a code generator, and maybe a device beside it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::codegen::{Codegen, CodegenKind};
use crate::error::TargetError;
use crate::feature::{Arch, Feature};
use crate::gpu::{DeviceKind, Gpu};
use crate::machine::Machine;

/// What code is generated for, by what. Prints as `MACHINE@CODEGEN` in full, before it `KIND:GPU/` where there is a device (`GPU/` where
/// its threads run as loops), and parses back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// The hardware.
    pub machine: Machine,
    /// The code generator.
    pub codegen: Codegen,
    /// The GPU whose threads functions are scheduled for.
    pub gpu: Option<Gpu>,
    /// The kind of device that runs them; without it, code for the machine runs threads as loops.
    pub device: Option<DeviceKind>,
}

impl Target {
    /// The machine as the code generator can use it.
    pub fn new(machine: Machine, codegen: CodegenKind) -> Target {
        Target { machine, codegen: codegen.describe(), gpu: None, device: None }
    }

    /// The machine the compiler runs on.
    pub fn host(codegen: CodegenKind) -> Target {
        Target::new(Machine::host(), codegen)
    }

    /// A target from the machine's name or description (see [`Machine`]), before it `KIND:GPU/` or `GPU/`; of a device, GPU and
    /// machine may be left out.
    ///
    /// # Errors
    /// Where there is no such machine or GPU.
    pub fn parse(text: &str, codegen: CodegenKind) -> Result<Target, TargetError> {
        let (first, machine) = text.split_once('/').map_or((text, None), |(first, rest)| (first, Some(rest)));
        let (kind, gpu) = first.split_once(':').map_or((first, None), |(kind, gpu)| (kind, Some(gpu)));
        if let Some(device) = DeviceKind::ALL.into_iter().find(|device| device.name() == kind) {
            let gpu = gpu.map_or(Ok(device.default_gpu()), str::parse)?;
            let machine = machine.unwrap_or(BESIDE_DEVICES).parse()?;
            return Ok(Target { gpu: Some(gpu), device: Some(device), ..Target::new(machine, codegen) });
        }
        match machine.filter(|_| first.starts_with("sm_")) {
            Some(machine) => {
                let gpu = Some(first.parse()?);
                Ok(Target { gpu, ..Target::new(machine.parse()?, codegen) })
            }
            None => Ok(Target::new(text.parse()?, codegen)),
        }
    }

    /// The machine beside the device, alone.
    pub fn without_device(&self) -> Target {
        Target { gpu: None, device: None, ..self.clone() }
    }

    /// Width of the vectors to use, in bits.
    pub fn vector_bits(&self) -> u32 {
        self.machine.vector_bits.min(self.codegen.max_vector_bits)
    }

    /// Whether there are vectors to use.
    pub fn has_vectors(&self) -> bool {
        self.vector_bits() >= Machine::LEAST_VECTOR_BITS
    }

    /// Lanes of a vector register of elements of so many bytes; 1 on a machine without vectors.
    pub fn lanes(&self, element_bytes: usize) -> u32 {
        match self.has_vectors() {
            true => self.vector_bits() / (8 * element_bytes.max(1) as u32),
            false => 1,
        }
    }

    /// Number of vector registers of [`Target::vector_bits`].
    pub fn n_vector_registers(&self) -> u32 {
        // The upper sixteen registers of AVX-512 cannot be named by the encodings of narrower code generators.
        match self.machine.arch {
            Arch::X86_64 if self.codegen.max_vector_bits < 512 => self.machine.n_vector_registers.min(16),
            Arch::X86_64 | Arch::Aarch64 | Arch::Armv7 | Arch::ThumbM | Arch::Riscv64 => {
                self.machine.n_vector_registers
            }
        }
    }

    /// Number of vector registers that a register tile leaves to elements on their way from memory to a multiply-add by all lanes. Where
    /// multiply-adds can read memory one is enough, and none where they read general registers; elsewhere some are loaded while others are used.
    pub fn n_element_registers(&self) -> u32 {
        match self.machine.arch {
            Arch::X86_64 => 1,
            Arch::ThumbM if self.machine.has(Feature::MveFp) => 0,
            Arch::Aarch64 | Arch::Armv7 | Arch::ThumbM | Arch::Riscv64 => 3,
        }
    }

    /// Lanes of the vectors of elements of so many bytes of which a multiply-add can multiply by one lane; 1 where there is no such
    /// instruction.
    pub fn element_lanes(&self, element_bytes: usize) -> u32 {
        match self.machine.arch {
            Arch::Aarch64 if self.codegen.multiplies_by_lane => self.lanes(element_bytes),
            Arch::X86_64 | Arch::Aarch64 | Arch::Armv7 | Arch::ThumbM | Arch::Riscv64 => 1,
        }
    }

    /// Whether vectors that lie side by side are loaded two at a time, the second whether it is needed yet or not.
    pub fn loads_pairs(&self) -> bool {
        self.machine.arch == Arch::Aarch64 && self.codegen.joins_loads
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

/// The machine of a target for a device that names none. Little is computed there, so it is one that most machines are.
const BESIDE_DEVICES: &str = if cfg!(target_arch = "aarch64") { "aarch64" } else { "x86-64-v3" };

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device.iter().try_for_each(|device| write!(f, "{device}:"))?;
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
            assert_eq!(target.to_string().parse(), Ok(target.clone()));
            for device in DeviceKind::ALL {
                let target = Target { device: Some(device), ..target.clone() };
                assert!(target.to_string().starts_with(&format!("{device}:sm_90/")), "{target}");
                assert_eq!(target.to_string().parse(), Ok(target));
            }
        }
        let named =
            |text: &str| text.parse::<Target>().map(|target| (target.device, target.gpu.map(|gpu| gpu.sm)));
        assert_eq!(named("cuda"), Ok((Some(DeviceKind::Cuda), Some(80))));
        assert_eq!(named("cuda:sm_90"), Ok((Some(DeviceKind::Cuda), Some(90))));
        assert_eq!(named("opencl/x86-64-v4"), Ok((Some(DeviceKind::OpenCl), Some(80))));
        assert!(matches!(named("cuda:sm_12"), Err(TargetError::UnknownGpu { .. })));
        assert!(matches!(named("vulkan:sm_90"), Err(TargetError::UnknownMachine { .. })));
        assert!(matches!("sm_7/cpu".parse::<Target>(), Err(TargetError::UnknownGpu { .. })));
        assert_eq!(
            "cpu@gcc".parse::<Target>().unwrap_err().to_string(),
            "unknown code generator `gcc`; known are llvm, cranelift, c"
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
