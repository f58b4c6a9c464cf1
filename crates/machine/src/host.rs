//! What the machine we run on is.

use crate::caches::Caches;
use crate::feature::{Arch, Feature, FeatureSet};

#[cfg(target_arch = "x86_64")]
pub(crate) fn arch() -> Arch {
    Arch::X86_64
}

#[cfg(target_arch = "aarch64")]
pub(crate) fn arch() -> Arch {
    Arch::Aarch64
}

/// The features std finds, which asks the processor and the operating system; of them those that a loader of
/// Rust 1.85 can find as well.
#[cfg(target_arch = "x86_64")]
pub(crate) fn features() -> FeatureSet {
    use std::arch::is_x86_feature_detected as has;
    [
        (Feature::Sse3, has!("sse3")),
        (Feature::Ssse3, has!("ssse3")),
        (Feature::Sse41, has!("sse4.1")),
        (Feature::Sse42, has!("sse4.2")),
        (Feature::Popcnt, has!("popcnt")),
        (Feature::Cx16, has!("cmpxchg16b")),
        // Every processor with SSE4.2 has `lahf`; std does not tell.
        (Feature::Sahf, has!("sse4.2")),
        (Feature::Lzcnt, has!("lzcnt")),
        (Feature::Movbe, has!("movbe")),
        (Feature::Bmi1, has!("bmi1")),
        (Feature::Bmi2, has!("bmi2")),
        (Feature::Avx, has!("avx")),
        (Feature::Avx2, has!("avx2")),
        (Feature::Fma, has!("fma")),
        (Feature::F16c, has!("f16c")),
        (Feature::Avx512f, has!("avx512f")),
        (Feature::Avx512cd, has!("avx512cd")),
        (Feature::Avx512bw, has!("avx512bw")),
        (Feature::Avx512dq, has!("avx512dq")),
        (Feature::Avx512vl, has!("avx512vl")),
        (Feature::Avx512ifma, has!("avx512ifma")),
        (Feature::Avx512vbmi, has!("avx512vbmi")),
        (Feature::Avx512vbmi2, has!("avx512vbmi2")),
        (Feature::Avx512vnni, has!("avx512vnni")),
        (Feature::Avx512bitalg, has!("avx512bitalg")),
        (Feature::Avx512vpopcntdq, has!("avx512vpopcntdq")),
        (Feature::Avx512bf16, has!("avx512bf16")),
    ]
    .into_iter()
    .filter_map(|(feature, found)| found.then_some(feature))
    .collect()
}

/// Features of the processor that the kernel lets programs use, but that no code is made for: a loader could not find
/// out about them.
#[cfg(target_arch = "x86_64")]
pub(crate) fn unused_features() -> Vec<Feature> {
    described(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

/// The same of what the kernel says of a processor.
#[cfg(target_arch = "x86_64")]
fn described(cpuinfo: &str) -> Vec<Feature> {
    const NAMES: [(&str, Feature); 6] = [
        ("avx_vnni", Feature::AvxVnni),
        ("avx512_fp16", Feature::Avx512fp16),
        ("amx_tile", Feature::AmxTile),
        ("amx_int8", Feature::AmxInt8),
        ("amx_bf16", Feature::AmxBf16),
        ("amx_fp16", Feature::AmxFp16),
    ];
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
    let has = |name: &str| flags.split_ascii_whitespace().any(|flag| flag == name);
    NAMES.into_iter().filter(|(name, _)| has(name)).map(|(_, feature)| feature).collect()
}

/// None that std would not find.
#[cfg(target_arch = "aarch64")]
pub(crate) fn unused_features() -> Vec<Feature> {
    Vec::new()
}

/// The features std finds, which asks the operating system.
#[cfg(target_arch = "aarch64")]
pub(crate) fn features() -> FeatureSet {
    use std::arch::is_aarch64_feature_detected as has;
    [
        (Feature::Fp16, has!("fp16")),
        (Feature::Dotprod, has!("dotprod")),
        (Feature::Bf16, has!("bf16")),
        (Feature::I8mm, has!("i8mm")),
        (Feature::Lse, has!("lse")),
    ]
    .into_iter()
    .filter_map(|(feature, found)| found.then_some(feature))
    .collect()
}

/// Cache sizes from sysfs; what cannot be read stays as in `default`.
pub(crate) fn caches(default: Caches) -> Caches {
    let mut caches = default;
    for index in 0..8 {
        let read = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
            std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
        };
        let (Some(level), Some(kind), Some(size)) = (read("level"), read("type"), read("size")) else {
            break;
        };
        if kind == "Instruction" {
            continue;
        }
        let Some(bytes) = parse_size(&size) else { continue };
        match level.as_str() {
            "1" => caches.l1d = bytes,
            "2" => caches.l2 = bytes,
            "3" => caches.l3 = bytes,
            _ => {}
        }
        if let Some(line) = read("coherency_line_size").and_then(|text| text.parse().ok()) {
            caches.line = line;
        }
    }
    caches
}

/// A size as sysfs prints it (`48K`, `2M`), in bytes.
fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => match text.strip_suffix('M') {
            Some(digits) => (digits, 1 << 20),
            None => (text, 1),
        },
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn features_of_proc() {
        let cpuinfo = "processor\t: 0\nflags\t\t: fpu avx512_fp16 amx_tile amx_int8x\nbugs\t\t: amx_bf16\n";
        assert_eq!(described(cpuinfo), [Feature::Avx512fp16, Feature::AmxTile]);
        assert_eq!(described(""), []);
        let all = "flags : avx_vnni avx512_fp16 amx_tile amx_int8 amx_bf16 amx_fp16";
        let undetectable = |feature: &Feature| feature.arch() == Arch::X86_64 && !feature.is_detectable();
        assert_eq!(described(all), Feature::ALL.iter().copied().filter(undetectable).collect::<Vec<_>>());
    }

    #[test]
    fn sizes_of_sysfs() {
        assert_eq!(["48K", "2M", "512", "x"].map(parse_size), [Some(49152), Some(2 << 20), Some(512), None]);
    }
}
