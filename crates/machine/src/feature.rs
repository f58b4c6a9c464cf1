//! Instruction sets: architectures and their optional features.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A processor architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Arch {
    /// 64-bit x86; SSE2 is given.
    X86_64,
    /// 64-bit ARM; NEON is given.
    Aarch64,
    /// 32-bit ARM for Linux, with hardware floats of both widths.
    Armv7,
    /// 32-bit ARM without a system, Cortex-M from M4F on: Thumb-2 and hardware floats of one width. Vectors are of Armv8.1-M.
    ThumbM,
    /// 64-bit RISC-V for Linux: `rv64gc`, with floats of both widths and compressed instructions.
    Riscv64,
}

impl Arch {
    /// Every architecture.
    pub const ALL: [Arch; 5] = [Arch::X86_64, Arch::Aarch64, Arch::Armv7, Arch::ThumbM, Arch::Riscv64];

    /// The name in target names.
    pub const fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86-64",
            Arch::Aarch64 => "aarch64",
            Arch::Armv7 => "armv7",
            Arch::ThumbM => "thumbv7em",
            Arch::Riscv64 => "riscv64",
        }
    }

    /// Bits of an address, which are those that it computes with at a time.
    pub const fn pointer_bits(self) -> u32 {
        match self {
            Arch::X86_64 | Arch::Aarch64 | Arch::Riscv64 => 64,
            Arch::Armv7 | Arch::ThumbM => 32,
        }
    }

    /// Whether an operating system is there, which loads programs and libraries.
    pub const fn has_system(self) -> bool {
        match self {
            Arch::X86_64 | Arch::Aarch64 | Arch::Armv7 | Arch::Riscv64 => true,
            Arch::ThumbM => false,
        }
    }

    /// The target triple that makes code generators emit ELF objects.
    pub const fn triple(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64-unknown-linux-gnu",
            Arch::Aarch64 => "aarch64-unknown-linux-gnu",
            Arch::Armv7 => "armv7-unknown-linux-gnueabihf",
            Arch::ThumbM => "thumbv7em-none-eabihf",
            Arch::Riscv64 => "riscv64gc-unknown-linux-gnu",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Declares [`Feature`] from rows of `Variant, architecture, LLVM's name, what it directly requires`.
macro_rules! features {
    ($($(#[$doc:meta])* $variant:ident, $arch:ident, $name:literal, [$($requires:ident),*];)*) => {
        /// An optional part of an instruction set.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum Feature {
            $($(#[$doc])* $variant,)*
        }

        impl Feature {
            /// Every feature, least demanding first.
            pub const ALL: &[Feature] = &[$(Feature::$variant),*];

            /// LLVM's name of the feature, which is also the name in target texts and artifacts.
            pub const fn name(self) -> &'static str {
                match self { $(Feature::$variant => $name,)* }
            }

            /// The architecture the feature belongs to.
            pub const fn arch(self) -> Arch {
                match self { $(Feature::$variant => Arch::$arch,)* }
            }

            /// Features without which this one cannot be.
            pub const fn requires(self) -> &'static [Feature] {
                match self { $(Feature::$variant => &[$(Feature::$requires),*],)* }
            }
        }
    };
}

features! {
    /// Streaming SIMD Extensions 3.
    Sse3, X86_64, "sse3", [];
    /// Byte shuffles.
    Ssse3, X86_64, "ssse3", [Sse3];
    /// Rounding, blends, 32-bit multiplies, widening loads.
    Sse41, X86_64, "sse4.1", [Ssse3];
    /// 64-bit comparisons.
    Sse42, X86_64, "sse4.2", [Sse41];
    /// Population count.
    Popcnt, X86_64, "popcnt", [];
    /// 16-byte compare and exchange.
    Cx16, X86_64, "cx16", [];
    /// `lahf` in 64-bit mode.
    Sahf, X86_64, "sahf", [];
    /// Leading-zero count.
    Lzcnt, X86_64, "lzcnt", [];
    /// Byte-swapping moves.
    Movbe, X86_64, "movbe", [];
    /// Bit manipulation, first set.
    Bmi1, X86_64, "bmi", [];
    /// Bit manipulation, second set.
    Bmi2, X86_64, "bmi2", [];
    /// 256-bit float vectors.
    Avx, X86_64, "avx", [Sse42];
    /// 256-bit integer vectors and gathers.
    Avx2, X86_64, "avx2", [Avx];
    /// Fused multiply-add.
    Fma, X86_64, "fma", [Avx];
    /// Conversions between binary16 and binary32.
    F16c, X86_64, "f16c", [Avx];
    /// 8-bit dot products on up to 256 bits.
    AvxVnni, X86_64, "avxvnni", [Avx2];
    /// 512-bit vectors and masks.
    Avx512f, X86_64, "avx512f", [Avx2, Fma, F16c];
    /// Conflict detection.
    Avx512cd, X86_64, "avx512cd", [Avx512f];
    /// 512-bit vectors of bytes and words.
    Avx512bw, X86_64, "avx512bw", [Avx512f];
    /// Conversions and arithmetic of 64-bit integers.
    Avx512dq, X86_64, "avx512dq", [Avx512f];
    /// Masked instructions on narrower vectors.
    Avx512vl, X86_64, "avx512vl", [Avx512f];
    /// 52-bit integer multiply-add.
    Avx512ifma, X86_64, "avx512ifma", [Avx512f];
    /// Byte permutations.
    Avx512vbmi, X86_64, "avx512vbmi", [Avx512bw];
    /// Byte and word compress, expand and funnel shifts.
    Avx512vbmi2, X86_64, "avx512vbmi2", [Avx512bw];
    /// 8-bit dot products on 512 bits.
    Avx512vnni, X86_64, "avx512vnni", [Avx512f];
    /// Bit counting in bytes and words.
    Avx512bitalg, X86_64, "avx512bitalg", [Avx512bw];
    /// Bit counting in words of 32 and 64 bits.
    Avx512vpopcntdq, X86_64, "avx512vpopcntdq", [Avx512f];
    /// bfloat16 dot products and conversions.
    Avx512bf16, X86_64, "avx512bf16", [Avx512bw];
    /// binary16 arithmetic.
    Avx512fp16, X86_64, "avx512fp16", [Avx512bw, Avx512dq, Avx512vl];
    /// Tiles: eight registers of 1 KiB.
    AmxTile, X86_64, "amx-tile", [];
    /// 8-bit dot products of tiles.
    AmxInt8, X86_64, "amx-int8", [AmxTile];
    /// bfloat16 dot products of tiles.
    AmxBf16, X86_64, "amx-bf16", [AmxTile];
    /// binary16 dot products of tiles.
    AmxFp16, X86_64, "amx-fp16", [AmxTile];
    /// binary16 arithmetic.
    Fp16, Aarch64, "fullfp16", [];
    /// 8-bit dot products.
    Dotprod, Aarch64, "dotprod", [];
    /// bfloat16 dot products and conversions.
    Bf16, Aarch64, "bf16", [];
    /// 8-bit integer matrix multiply.
    I8mm, Aarch64, "i8mm", [];
    /// Atomic read-modify-write instructions.
    Lse, Aarch64, "lse", [];
    /// Fused multiply-add, among others.
    Vfp4, Armv7, "vfp4", [];
    /// Integer division.
    HwdivArm, Armv7, "hwdiv-arm", [];
    /// Vectors, whose floats flush subnormals to zero whatever the processor is told.
    Neon, Armv7, "neon", [];
    /// Floats of version 5: rounding to integral values, among others.
    Fpv5, ThumbM, "fp-armv8d16sp", [];
    /// Floats of two words.
    Fp64, ThumbM, "fp64", [Fpv5];
    /// Helium: vectors of 128 bits of integers and floats, whose floats flush subnormals to zero whatever the processor is told.
    MveFp, ThumbM, "mve.fp", [Fpv5];
    /// Vectors, of at least 128 bits.
    V, Riscv64, "v", [];
}

impl Feature {
    /// Whether a loader can find out that a processor has the feature. One built by Rust 1.85, or without a system, cannot ask for the others, so they are
    /// used only where a target names them, and code for such a target is refused.
    pub const fn is_detectable(self) -> bool {
        !matches!(
            self,
            Feature::AvxVnni
                | Feature::Avx512fp16
                | Feature::AmxTile
                | Feature::AmxInt8
                | Feature::AmxBf16
                | Feature::AmxFp16
                | Feature::Fpv5
                | Feature::Fp64
                | Feature::MveFp
        )
    }

    /// The feature of that name.
    pub fn from_name(name: &str) -> Option<Feature> {
        Feature::ALL.iter().copied().find(|feature| feature.name() == name)
    }
}

/// A set of features, closed under [`Feature::requires`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FeatureSet(u64);

impl FeatureSet {
    /// No optional feature.
    pub const EMPTY: FeatureSet = FeatureSet(0);

    /// Whether the feature is in the set.
    pub const fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u8) != 0
    }

    /// The set with the feature and all it requires.
    pub fn with(self, feature: Feature) -> FeatureSet {
        let base = FeatureSet(self.0 | (1 << feature as u8));
        feature.requires().iter().fold(base, |set, required| set.with(*required))
    }

    /// The set without the feature and all that require it.
    pub fn without(self, feature: Feature) -> FeatureSet {
        let base = FeatureSet(self.0 & !(1 << feature as u8));
        base.iter().filter(|other| other.requires().contains(&feature)).fold(base, FeatureSet::without)
    }

    /// The features, in the order of [`Feature::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.iter().copied().filter(move |feature| self.has(*feature))
    }

    /// Whether every feature of `other` is in this set: code for `other` runs here.
    pub const fn contains(self, other: FeatureSet) -> bool {
        other.0 & !self.0 == 0
    }
}

impl FromIterator<Feature> for FeatureSet {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> FeatureSet {
        features.into_iter().fold(FeatureSet::EMPTY, FeatureSet::with)
    }
}

impl fmt::Display for FeatureSet {
    /// The features' names, a `+` before each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|feature| write!(f, "+{}", feature.name()))
    }
}

impl fmt::Debug for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_stay_closed() {
        let set = FeatureSet::EMPTY.with(Feature::Avx512f);
        assert!(set.has(Feature::Fma) && set.has(Feature::Sse3));
        let less = set.without(Feature::Avx);
        assert_eq!(less.to_string(), "+sse3+ssse3+sse4.1+sse4.2");
        assert!(set.contains(less) && !less.contains(set));
    }

    #[test]
    fn names_are_unique_and_requirements_stay_in_the_architecture() {
        assert!(Feature::ALL.len() <= 64);
        for feature in Feature::ALL {
            assert_eq!(Feature::from_name(feature.name()), Some(*feature));
            for required in feature.requires() {
                assert_eq!(required.arch(), feature.arch());
                assert!((*required as u8) < *feature as u8, "{} before {}", feature.name(), required.name());
            }
        }
    }
}
