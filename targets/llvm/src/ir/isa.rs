//! What differs between the machines that kernels are translated for.

use std::borrow::Cow;

use tilewright_machine::{Arch, Feature, Gpu, Target};

/// A machine to translate kernels for.
#[derive(Clone, Copy, Debug)]
pub enum Isa<'a> {
    /// A processor: a function runs a range of tasks.
    Processor(&'a Target),
    /// An NVIDIA GPU, through PTX: a block of threads runs a task.
    Gpu(&'a Gpu),
}

impl Isa<'_> {
    pub(super) fn triple(self) -> &'static str {
        match self {
            Isa::Processor(target) => triple(target),
            Isa::Gpu(_) => GPU_TRIPLE,
        }
    }

    /// Attributes of functions.
    pub(super) fn attributes(self) -> String {
        match self {
            Isa::Processor(target) => format!(
                "\"frame-pointer\"=\"none\" \"prefer-vector-width\"=\"{}\" \"target-features\"=\"{}\"{}",
                target.vector_bits(),
                features(target),
                core(target).map(|name| format!(" \"tune-cpu\"=\"{name}\"")).unwrap_or_default()
            ),
            Isa::Gpu(gpu) => {
                format!("\"target-cpu\"=\"{gpu}\" \"target-features\"=\"{}\"", gpu_features(gpu))
            }
        }
    }

    /// What modules say of the binary interface, where LLVM cannot tell from the triple.
    pub(super) fn module_flag(self) -> Option<&'static str> {
        match self {
            Isa::Processor(target) => match target.machine.arch {
                Arch::Riscv64 => Some("!{i32 1, !\"target-abi\", !\"lp64d\"}"),
                Arch::X86_64 | Arch::Aarch64 | Arch::Armv7 | Arch::ThumbM => None,
            },
            Isa::Gpu(_) => None,
        }
    }

    /// Whether LLVM 22 makes wrong code of a store of three bytes that are truncated from three numbers of 64 bits: for AArch64 it stores the
    /// third as the second, and nothing as the third.
    pub(super) fn loses_third_bytes(self) -> bool {
        matches!(self, Isa::Processor(target) if target.machine.arch == Arch::Aarch64)
    }

    /// Whether a fused multiply-add is one instruction.
    pub(super) fn has_fma(self) -> bool {
        match self {
            Isa::Processor(target) => target.has_fma(),
            Isa::Gpu(_) => true,
        }
    }

    /// The symbol of a kernel; those of PTX have no dots.
    pub fn symbol(self, name: &str) -> Cow<'_, str> {
        match self {
            Isa::Gpu(_) if name.contains('.') => Cow::Owned(name.replace('.', "$")),
            Isa::Gpu(_) | Isa::Processor(_) => Cow::Borrowed(name),
        }
    }

    /// Whether rounding to an integral value is one instruction.
    pub(super) fn has_rounding(self) -> bool {
        match self {
            Isa::Processor(target) => match target.machine.arch {
                Arch::X86_64 => target.machine.has(Feature::Sse41),
                Arch::Aarch64 | Arch::Riscv64 => true,
                Arch::Armv7 => false,
                Arch::ThumbM => target.machine.has(Feature::Fpv5),
            },
            Isa::Gpu(_) => true,
        }
    }

    /// Whether vectors of floats are rounded without the instructions that turn them into integers toward zero. LLVM has no shorter code for
    /// that, and qemu 7.2, which the tests run, ends with an assertion where `vfcvt.rtz` is the first float operation of a block.
    pub(super) fn rounds_without_truncation(self) -> bool {
        matches!(self, Isa::Processor(target) if target.machine.arch == Arch::Riscv64 && target.has_vectors())
    }

    /// Whether numbers of 64 bits take two registers: what needs more than a few instructions of such a processor would be a call.
    pub(super) fn is_32_bit(self) -> bool {
        matches!(self, Isa::Processor(target) if target.machine.arch.pointer_bits() == 32)
    }
}

/// LLVM's name of the architecture and system, which has no extensions in it but those that make another version of it.
pub(crate) fn triple(target: &Target) -> &'static str {
    match target.machine.arch {
        Arch::Riscv64 => "riscv64-unknown-linux-gnu",
        // By the features alone LLVM 22 loses copies of vectors.
        Arch::ThumbM if target.machine.has(Feature::MveFp) => "thumbv8.1m.main-none-eabihf",
        arch @ (Arch::X86_64 | Arch::Aarch64 | Arch::Armv7 | Arch::ThumbM) => arch.triple(),
    }
}

/// The core whose model instructions are ordered by, of targets with its timing or that of the core it was made from. LLVM's models of
/// Cortex-A53 and -A72 make no better code for them than its generic one does, by its own count of cycles.
fn core(target: &Target) -> Option<&'static str> {
    let is_known = target.machine.arch == Arch::Aarch64;
    let timing = Some(target.machine.timing.name.as_str()).filter(|_| is_known)?;
    matches!(timing, "neoverse-n1" | "cortex-a76").then_some("neoverse-n1")
}

/// LLVM's feature string.
pub(crate) fn features(target: &Target) -> String {
    // What the triple alone does not say. Relaxation is left out because nothing here makes code shorter when it is linked.
    let base: &[&str] = match target.machine.arch {
        Arch::X86_64 | Arch::Aarch64 => &[],
        Arch::Armv7 => &["+v7", "+vfp3", "-neon"],
        Arch::ThumbM => &["+vfp4d16sp"],
        Arch::Riscv64 => &["+m", "+a", "+f", "+d", "+c", "-relax"],
    };
    let names = target.machine.features.iter().map(|f| format!("+{}", f.name()));
    let names: Vec<String> = base.iter().map(ToString::to_string).chain(names).collect();
    names.join(",")
}

pub(crate) const GPU_TRIPLE: &str = "nvptx64-nvidia-cuda";

/// The same for a GPU: the version of PTX, which has to know the generation. Drivers since CUDA 11.8 take 7.8, since 12.7 8.6.
pub(crate) fn gpu_features(gpu: &Gpu) -> &'static str {
    if gpu.sm <= 90 { "+ptx78" } else { "+ptx86" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core's model orders instructions, and gives a target no feature that its description lacks.
    #[test]
    fn the_core_is_named_beside_the_targets_own_features() {
        let attributes = |text: &str| {
            let target: Target = text.parse().expect("a target");
            Isa::Processor(&target).attributes()
        };
        for machine in ["neoverse-n1@llvm", "rpi5@llvm"] {
            let said = attributes(machine);
            assert!(
                said.ends_with(
                    "\"target-features\"=\"+fullfp16,+dotprod,+lse\" \"tune-cpu\"=\"neoverse-n1\""
                ),
                "{said}"
            );
        }
        let said = attributes("aarch64;timing=neoverse-n1@llvm");
        assert!(said.ends_with("\"target-features\"=\"\" \"tune-cpu\"=\"neoverse-n1\""), "{said}");
        for machine in ["aarch64@llvm", "cortex-a53@llvm", "armv7@llvm", "x86-64-v3@llvm"] {
            assert!(!attributes(machine).contains("tune-cpu"), "{machine}");
        }
    }
}
