//! Names of machines.

/// Names that [`Machine`](crate::Machine) parses, with what they mean; `cpu` is the machine the compiler runs on.
#[rustfmt::skip]
pub const NAMES: &[(&str, &str)] = &[
    ("cpu", "this machine, every feature it has"),
    ("x86-64", "any 64-bit x86 (SSE2)"),
    ("x86-64-v2", "x86 with SSE4.2 (2009 on)"),
    ("x86-64-v3", "x86 with AVX2 and FMA (2013 on)"),
    ("x86-64-v4", "x86 with AVX-512 F, BW, CD, DQ, VL"),
    ("aarch64", "any 64-bit ARM (NEON)"),
    ("cortex-a72", "Arm Cortex-A72 (Raspberry Pi 4)"),
    ("cortex-a76", "Arm Cortex-A76 (Raspberry Pi 5)"),
];

/// The generations of NVIDIA GPUs that code is made for ([`Gpu`](crate::Gpu)), the oldest first.
pub(crate) const GPU_NAMES: [&str; 5] = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100"];
