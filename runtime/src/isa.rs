//! Instruction sets: what code needs and what a machine has.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::artifact::ImageDef;
use crate::told::told;

/// The machine a model is loaded on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isa {
    /// Architecture: the first part of a target triple.
    pub arch: String,
    /// Instruction set extensions that are present, of [`DETECTABLE`].
    pub features: Vec<String>,
}

/// Why no code image of an artifact runs on a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// The artifact has no code for the architecture.
    #[error(
        "artifact for another instruction set: it has code for {}, this machine is {machine}",
        or_none(found)
    )]
    Arch {
        /// Triples of the images.
        found: String,
        /// Architecture of the machine.
        machine: String,
    },
    /// The architecture fits, but extensions are missing.
    #[error("artifact for another instruction set: this machine lacks {missing}")]
    Features {
        /// The extensions missing for the image that lacks fewest.
        missing: String,
    },
}

fn or_none(found: &str) -> &str {
    if found.is_empty() { "no machine" } else { found }
}

impl Isa {
    /// What two machines have in common; of different architectures, that is this one's name alone.
    pub fn common(&self, other: &Isa) -> Isa {
        let is_common = |feature: &&String| self.arch == other.arch && other.features.contains(feature);
        Isa { arch: self.arch.clone(), features: self.features.iter().filter(is_common).cloned().collect() }
    }

    /// The image that uses most of this machine, by the number of its features; the first of equals.
    ///
    /// # Errors
    /// When none runs here.
    pub fn choose<'i>(&self, images: impl IntoIterator<Item = &'i ImageDef>) -> Result<usize, IsaError> {
        let images: Vec<&ImageDef> = images.into_iter().collect();
        let mut best: Option<usize> = None;
        let mut nearest: Option<Vec<&str>> = None;
        for (i, image) in images.iter().enumerate() {
            if arch_of(&image.triple) != self.arch {
                continue;
            }
            let missing: Vec<&str> = image
                .features
                .iter()
                .filter(|feature| !self.features.contains(feature))
                .map(String::as_str)
                .collect();
            if !missing.is_empty() {
                if nearest.as_ref().is_none_or(|nearest| missing.len() < nearest.len()) {
                    nearest = Some(missing);
                }
            } else if best.is_none_or(|best| image.features.len() > images[best].features.len()) {
                best = Some(i);
            }
        }
        match (best, nearest) {
            (Some(best), _) => Ok(best),
            (None, Some(missing)) => Err(IsaError::Features { missing: told(|| missing.join(", ")) }),
            (None, None) => {
                let triples: Vec<&str> = images.iter().map(|image| image.triple.as_str()).collect();
                Err(IsaError::Arch { found: told(|| triples.join(", ")), machine: self.arch.to_string() })
            }
        }
    }
}

fn arch_of(triple: &str) -> &str {
    triple.split('-').next().unwrap_or("")
}

/// Declares what a loader can find out: for each architecture, by its name in triples, the features' names in artifacts, which are LLVM's,
/// each with the name by which `std` detects it; or, by `std`'s name of the architecture, with the bit of `AT_HWCAP` that Linux sets for it.
macro_rules! detectable {
    (
        std: $($arch:literal, $detect:ident: [$($feature:literal $std:tt),* $(,)?];)*
        linux: $($triple:literal, $target_arch:literal: [$($linux_feature:literal $bit:literal),* $(,)?];)*
        no system: $($bare:literal),*;
    ) => {
        /// Architectures and the features that [`Isa::native`] can find there. Code that needs any other runs nowhere.
        pub const DETECTABLE: &[(&str, &[&str])] =
            &[$(($arch, &[$($feature),*]),)* $(($triple, &[$($linux_feature),*]),)* $(($bare, &[])),*];

        /// What triples call this machine's architecture.
        #[cfg(feature = "std")]
        fn arch() -> &'static str {
            $(if cfg!(target_arch = $target_arch) { return $triple; })*
            std::env::consts::ARCH
        }

        /// The features of [`DETECTABLE`] that this machine has.
        #[cfg(feature = "std")]
        fn detected() -> Vec<String> {
            let mut features: Vec<String> = Vec::new();
            $(
                #[cfg(target_arch = $arch)]
                {
                    $(if std::arch::$detect!($std) { features.push($feature.to_string()); })*
                }
            )*
            $(
                #[cfg(target_arch = $target_arch)]
                {
                    let capabilities = hardware_capabilities();
                    $(if capabilities >> $bit & 1 != 0 { features.push($linux_feature.to_string()); })*
                }
            )*
            features.sort_unstable();
            features
        }
    };
}

detectable! {
    std:
    // std does not tell of `lahf`: every processor with SSE4.2 has it.
    "x86_64", is_x86_feature_detected: [
        "sse3" "sse3", "ssse3" "ssse3", "sse4.1" "sse4.1", "sse4.2" "sse4.2", "popcnt" "popcnt", "cx16" "cmpxchg16b",
        "sahf" "sse4.2", "lzcnt" "lzcnt", "movbe" "movbe", "bmi" "bmi1", "bmi2" "bmi2", "avx" "avx", "avx2" "avx2",
        "fma" "fma", "f16c" "f16c", "avx512f" "avx512f", "avx512cd" "avx512cd", "avx512bw" "avx512bw",
        "avx512dq" "avx512dq", "avx512vl" "avx512vl", "avx512ifma" "avx512ifma", "avx512vbmi" "avx512vbmi",
        "avx512vbmi2" "avx512vbmi2", "avx512vnni" "avx512vnni", "avx512bitalg" "avx512bitalg",
        "avx512vpopcntdq" "avx512vpopcntdq", "avx512bf16" "avx512bf16",
    ];
    "aarch64", is_aarch64_feature_detected: [
        "fullfp16" "fp16", "dotprod" "dotprod", "bf16" "bf16", "i8mm" "i8mm", "lse" "lse",
    ];
    linux:
    "armv7", "arm": ["vfp4" 16, "hwdiv-arm" 17, "neon" 12];
    "riscv64gc", "riscv64": ["v" 21];
    // Programs are linked with what they run.
    no system: "thumbv7em";
}

/// What Linux says of the processor in `AT_HWCAP`; nothing where it does not tell. Rust 1.85 finds no features there.
#[cfg(all(feature = "std", any(target_arch = "arm", target_arch = "riscv64")))]
fn hardware_capabilities() -> usize {
    const AT_HWCAP: usize = 16;
    const WORD: usize = size_of::<usize>();
    let vector = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let words = vector.chunks_exact(WORD).map(|word| word.try_into().map_or(0, usize::from_ne_bytes));
    let words: Vec<usize> = words.collect();
    words.chunks_exact(2).find(|pair| pair[0] == AT_HWCAP).map_or(0, |pair| pair[1])
}

#[cfg(feature = "std")]
impl Isa {
    /// The machine this program runs on.
    pub fn native() -> Isa {
        Isa { arch: arch().to_string(), features: detected() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn image(triple: &str, features: &[&str]) -> ImageDef {
        let features = features.iter().map(ToString::to_string).collect();
        ImageDef { triple: triple.to_string(), features, ..ImageDef::default() }
    }

    #[test]
    fn machines_have_in_common_what_both_have() {
        let isa = |arch: &str, features: &[&str]| Isa {
            arch: arch.into(),
            features: features.iter().map(ToString::to_string).collect(),
        };
        let native = isa("x86_64", &["sse3", "avx2", "fma"]);
        assert_eq!(native.common(&isa("x86_64", &["fma", "sse3", "amx"])), isa("x86_64", &["sse3", "fma"]));
        assert_eq!(native.common(&isa("aarch64", &["sse3"])), isa("x86_64", &[]));
    }

    #[test]
    fn chooses_the_image_that_uses_most_of_the_machine() {
        let isa = Isa { arch: "x86_64".into(), features: vec!["avx2".into(), "fma".into()] };
        let images = [
            image("aarch64-unknown-linux-gnu", &[]),
            image("x86_64-unknown-linux-gnu", &[]),
            image("x86_64-unknown-linux-gnu", &["avx2", "fma"]),
            image("x86_64-unknown-linux-gnu", &["avx2", "fma", "avx512f"]),
        ];
        assert_eq!(isa.choose(&images), Ok(2));
        let error = isa.choose(&images[..1]).unwrap_err().to_string();
        assert!(error.contains("code for aarch64-unknown-linux-gnu, this machine is x86_64"), "{error}");
        let error = isa.choose(&images[3..]).unwrap_err().to_string();
        assert!(error.ends_with("this machine lacks avx512f"), "{error}");
    }
}
