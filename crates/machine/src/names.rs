//! Names of machines.

use crate::feature::{Arch, Feature};

/// A machine that has a name.
pub(crate) struct NamedMachine {
    /// The name, as it stands behind `--target`.
    pub(crate) name: &'static str,
    /// What it means.
    meaning: &'static str,
    pub(crate) arch: Arch,
    pub(crate) features: &'static [&'static [Feature]],
    /// Its timing, which says what caches it has; that of its features where there is none.
    pub(crate) timing: Option<&'static str>,
}

const fn x86(
    name: &'static str,
    meaning: &'static str,
    features: &'static [&'static [Feature]],
) -> NamedMachine {
    NamedMachine { name, meaning, arch: Arch::X86_64, features, timing: None }
}

const fn arm32(name: &'static str, meaning: &'static str, timing: &'static str) -> NamedMachine {
    let features: &[&[Feature]] = &[&[Feature::Vfp4, Feature::HwdivArm]];
    NamedMachine { name, meaning, arch: Arch::Armv7, features, timing: Some(timing) }
}

const fn arm(
    name: &'static str,
    meaning: &'static str,
    features: &'static [&'static [Feature]],
    timing: &'static str,
) -> NamedMachine {
    NamedMachine { name, meaning, arch: Arch::Aarch64, features, timing: Some(timing) }
}

const fn thumb(
    name: &'static str,
    meaning: &'static str,
    features: &'static [&'static [Feature]],
    timing: &'static str,
) -> NamedMachine {
    NamedMachine { name, meaning, arch: Arch::ThumbM, features, timing: Some(timing) }
}

const fn riscv(
    name: &'static str,
    meaning: &'static str,
    features: &'static [&'static [Feature]],
) -> NamedMachine {
    NamedMachine { name, meaning, arch: Arch::Riscv64, features, timing: Some("riscv64") }
}

// What each level of x86-64 has beside the one before.
#[rustfmt::skip]
const X86_64_V2: &[Feature] = &[Feature::Sse42, Feature::Popcnt, Feature::Cx16, Feature::Sahf];
#[rustfmt::skip]
const X86_64_V3: &[Feature] = &[
    Feature::Avx2, Feature::Fma, Feature::F16c, Feature::Bmi1, Feature::Bmi2, Feature::Lzcnt, Feature::Movbe,
];
#[rustfmt::skip]
const X86_64_V4: &[Feature] =
    &[Feature::Avx512f, Feature::Avx512bw, Feature::Avx512cd, Feature::Avx512dq, Feature::Avx512vl];

/// What Armv8.2 cores have beside Armv8.0: half precision, dot products, atomic operations.
const ARMV8_2: &[Feature] = &[Feature::Fp16, Feature::Dotprod, Feature::Lse];

/// Machines by name, beside the one that the compiler runs on.
#[rustfmt::skip]
pub(crate) const MACHINES: &[NamedMachine] = &[
    x86("x86-64", "any 64-bit x86 (SSE2)", &[]),
    x86("x86-64-v2", "x86 with SSE4.2 (2009 on)", &[X86_64_V2]),
    x86("x86-64-v3", "x86 with AVX2 and FMA (2013 on)", &[X86_64_V2, X86_64_V3]),
    x86("x86-64-v4", "x86 with AVX-512 F, BW, CD, DQ, VL", &[X86_64_V2, X86_64_V3, X86_64_V4]),
    arm("aarch64", "any 64-bit ARM (NEON)", &[], "aarch64"),
    arm("cortex-a53", "Arm Cortex-A53", &[], "cortex-a53"),
    arm("cortex-a72", "Arm Cortex-A72", &[], "cortex-a72"),
    arm("cortex-a76", "Arm Cortex-A76", &[ARMV8_2], "cortex-a76"),
    arm("neoverse-n1", "Arm Neoverse N1 (AWS Graviton2, Ampere Altra)", &[ARMV8_2], "neoverse-n1"),
    arm("rpi3", "Raspberry Pi 3: Cortex-A53", &[], "cortex-a53"),
    arm("rpi4", "Raspberry Pi 4: Cortex-A72", &[], "cortex-a72"),
    arm("rpi5", "Raspberry Pi 5: Cortex-A76", &[ARMV8_2], "cortex-a76"),
    arm32("armv7", "32-bit ARM with VFPv4 and division; NEON, which flushes subnormals, by +neon", "cortex-a7"),
    arm32("cortex-a7", "Arm Cortex-A7", "cortex-a7"),
    arm32("cortex-a15", "Arm Cortex-A15", "cortex-a15"),
    thumb("thumbv7em", "any Cortex-M with floats, without a system", &[], "cortex-m4"),
    thumb("cortex-m4", "Arm Cortex-M4 with FPU", &[], "cortex-m4"),
    thumb("cortex-m7", "Arm Cortex-M7 with FPU, floats of both widths", &[&[Feature::Fp64]], "cortex-m7"),
    thumb("cortex-m55", "Arm Cortex-M55 with FPU; its vectors (Helium), which flush subnormals, by +mve.fp", &[&[Feature::Fp64]], "cortex-m55"),
    riscv("riscv64", "any 64-bit RISC-V for Linux (RV64GC)", &[]),
];

/// The name of the machine that the compiler runs on.
pub(crate) const HOST: &str = "cpu";

/// Names that [`Machine`](crate::Machine) parses, with what they mean.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let named = MACHINES.iter().map(|machine| (machine.name, machine.meaning));
    std::iter::once((HOST, "this machine, every feature it has")).chain(named)
}

/// How much alike names must be for one to be taken for another one misspelt, from 0 to 1.
const ALIKE: f64 = 0.75;

/// Names that something misspelt may mean, the most alike first.
pub(crate) fn nearest(text: &str) -> Vec<&'static str> {
    let mut alike: Vec<(f64, &str)> =
        names().map(|(name, _)| (strsim::normalized_damerau_levenshtein(text, name), name)).collect();
    alike.retain(|(alike, _)| *alike >= ALIKE);
    alike.sort_by(|a, b| b.0.total_cmp(&a.0));
    alike.into_iter().map(|(_, name)| name).take(3).collect()
}

/// The generations of NVIDIA GPUs that code is made for ([`Gpu`](crate::Gpu)), the oldest first.
pub(crate) const GPU_NAMES: [&str; 5] = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100"];
