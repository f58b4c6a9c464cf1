//! Cranelift's settings for a target.

use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use tilewright_machine::{Arch, CodegenError, CodegenKind, Feature, Target};

use crate::error::internal;

/// The instruction set, with the features of the target and no others.
pub(crate) fn isa(target: &Target) -> Result<OwnedTargetIsa, CodegenError> {
    with(target, "true")
}

/// The same for code that refers to data elsewhere. Code that is called position-independent would take addresses from a table that a
/// linker makes. Code that is not reaches what is near, which hidden symbols are, by relative addresses too.
pub(crate) fn isa_of_run(target: &Target) -> Result<OwnedTargetIsa, CodegenError> {
    with(target, "false")
}

fn with(target: &Target, is_pic: &str) -> Result<OwnedTargetIsa, CodegenError> {
    let machine = &target.machine;
    if machine.arch == Arch::X86_64 && !machine.has(Feature::Sse41) {
        return Err(CodegenError::Unsupported {
            codegen: CodegenKind::Cranelift,
            kernel: "*".to_owned(),
            what: "x86 without SSE4.1; the least target is x86-64-v2".to_owned(),
        });
    }
    if machine.arch.pointer_bits() < 64 {
        return Err(CodegenError::Unsupported {
            codegen: CodegenKind::Cranelift,
            kernel: "*".to_owned(),
            what: format!("{}: it has code for processors of 64 bits only", machine.arch),
        });
    }
    let mut shared = settings::builder();
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    let flags = [
        // The optimiser keeps loads where they are and puts what computes at the end of a block, so that a register
        // tile's operands would all be live at once and spilled. Kernels arrive with common parts shared and
        // invariants outside loops; program order is the better schedule, and cheaper.
        ("opt_level", "none"),
        ("is_pic", is_pic),
        ("unwind_info", "false"),
        ("enable_probestack", "false"),
        ("enable_verifier", verify),
    ];
    for (name, value) in flags {
        shared.set(name, value).map_err(internal)?;
    }
    let mut builder = isa::lookup_by_name(machine.arch.triple()).map_err(internal)?;
    for flag in machine.features.iter().filter_map(flag) {
        builder.enable(flag).map_err(internal)?;
    }
    builder.finish(settings::Flags::new(shared)).map_err(internal)
}

/// Cranelift's name of a feature, where it knows it.
fn flag(feature: Feature) -> Option<&'static str> {
    Some(match feature {
        Feature::Sse3 => "has_sse3",
        Feature::Ssse3 => "has_ssse3",
        Feature::Sse41 => "has_sse41",
        Feature::Sse42 => "has_sse42",
        Feature::Popcnt => "has_popcnt",
        Feature::Cx16 => "has_cmpxchg16b",
        Feature::Lzcnt => "has_lzcnt",
        Feature::Bmi1 => "has_bmi1",
        Feature::Bmi2 => "has_bmi2",
        Feature::Avx => "has_avx",
        Feature::Avx2 => "has_avx2",
        Feature::Fma => "has_fma",
        Feature::AvxVnni => "has_avx_vnni",
        Feature::Avx512f => "has_avx512f",
        Feature::Avx512dq => "has_avx512dq",
        Feature::Avx512vl => "has_avx512vl",
        Feature::Avx512vbmi => "has_avx512vbmi",
        Feature::Avx512vnni => "has_avx512vnni",
        Feature::Avx512bitalg => "has_avx512bitalg",
        Feature::Fp16 => "has_fp16",
        Feature::Dotprod => "has_dotprod",
        Feature::I8mm => "has_i8mm",
        Feature::Lse => "has_lse",
        Feature::Sahf
        | Feature::Movbe
        | Feature::F16c
        | Feature::Avx512cd
        | Feature::Avx512bw
        | Feature::Avx512ifma
        | Feature::Avx512vbmi2
        | Feature::Avx512vpopcntdq
        | Feature::Avx512bf16
        | Feature::Avx512fp16
        | Feature::AmxTile
        | Feature::AmxInt8
        | Feature::AmxBf16
        | Feature::AmxFp16
        | Feature::Bf16
        | Feature::Vfp4
        | Feature::HwdivArm
        | Feature::Neon
        | Feature::Fpv5
        | Feature::Fp64
        | Feature::MveFp
        | Feature::V => return None,
    })
}
