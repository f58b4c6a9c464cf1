//! Machines: what the hardware offers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::caches::Caches;
use crate::error::TargetError;
use crate::feature::{Arch, Feature, FeatureSet};
use crate::host;
use crate::names::{HOST, MACHINES};
use crate::processor::ProcessorId;
use crate::timing::Timing;

/// What compiled code may assume of the machine it runs on, and what schedules tune for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Machine {
    /// Architecture.
    pub arch: Arch,
    /// Optional parts of the instruction set that code may use.
    pub features: FeatureSet,
    /// Widest vector register worth using, in bits; under [`Machine::LEAST_VECTOR_BITS`] there are none, and each element has a
    /// register of its own.
    pub vector_bits: u32,
    /// Number of vector registers; of registers of floats, where there are no vectors.
    pub n_vector_registers: u32,
    /// Data caches.
    pub caches: Caches,
    /// How fast it is.
    pub timing: Timing,
}

impl Machine {
    /// Bits of the narrowest vectors that code is made with.
    pub const LEAST_VECTOR_BITS: u32 = 128;

    /// The machine the compiler runs on.
    pub fn host() -> Machine {
        let machine = Machine::with_features(host::arch(), host::features());
        let machine = match ProcessorId::host().and_then(|id| Timing::of_processor(&id)) {
            Some(timing) => machine.with_timing(timing),
            None => machine,
        };
        Machine { caches: host::caches(machine.caches), ..machine }
    }

    /// Features of the machine the compiler runs on that are described here, but that no code is made for: artifacts
    /// cannot ask for them, because the loader could not find out about them.
    pub fn unused_features() -> Vec<Feature> {
        host::unused_features()
    }

    /// A typical machine with these features: vectors of the widest kind they offer, modest caches.
    pub fn with_features(arch: Arch, features: FeatureSet) -> Machine {
        let (vector_bits, n_vector_registers) = match arch {
            Arch::X86_64 if features.has(Feature::Avx512vl) => (512, 32),
            Arch::X86_64 if features.has(Feature::Avx) => (256, 16),
            Arch::X86_64 => (128, 16),
            Arch::Aarch64 => (128, 32),
            Arch::Armv7 if features.has(Feature::Neon) => (128, 16),
            Arch::ThumbM if features.has(Feature::MveFp) => (128, 8),
            Arch::Armv7 | Arch::ThumbM => (32, 32),
            Arch::Riscv64 if features.has(Feature::V) => (128, 32),
            Arch::Riscv64 => (32, 32),
        };
        let timing = Timing::of_level(arch, features);
        let caches = timing.numbers.caches;
        Machine { arch, features, vector_bits, n_vector_registers, caches, timing }
    }

    /// The machine with that speed, and the caches of the machine that it is of.
    pub fn with_timing(self, timing: Timing) -> Machine {
        Machine { caches: timing.numbers.caches, timing, ..self }
    }

    /// The machine of one of [`names`](crate::names()).
    fn named(name: &str) -> Option<Machine> {
        if name == HOST {
            return Some(Machine::host());
        }
        let named = MACHINES.iter().find(|machine| machine.name == name)?;
        let features = named.features.iter().copied().flatten().copied().collect();
        let machine = Machine::with_features(named.arch, features);
        match named.timing {
            Some(timing) => Some(machine.with_timing(Timing::committed(timing)?)),
            None => Some(machine),
        }
    }

    /// Whether the feature is there.
    pub fn has(&self, feature: Feature) -> bool {
        self.features.has(feature)
    }

    /// Whether a fused multiply-add is one instruction.
    pub fn has_fma(&self) -> bool {
        match self.arch {
            Arch::X86_64 => self.has(Feature::Fma),
            Arch::Aarch64 | Arch::ThumbM | Arch::Riscv64 => true,
            Arch::Armv7 => self.has(Feature::Vfp4),
        }
    }

    /// The most capable of [`names`](crate::names()) whose features this machine has: a processor model for code generators.
    pub fn level(&self) -> &'static str {
        let levels: &[&'static str] = match self.arch {
            Arch::X86_64 => &["x86-64-v4", "x86-64-v3", "x86-64-v2"],
            Arch::Aarch64 | Arch::Armv7 | Arch::ThumbM | Arch::Riscv64 => &[],
        };
        let fits = |name: &&str| Machine::named(name).is_some_and(|level| self.runs_code_for(&level));
        levels.iter().copied().find(fits).unwrap_or(self.arch.name())
    }

    /// Whether code for `other` runs on this machine.
    pub fn runs_code_for(&self, other: &Machine) -> bool {
        self.arch == other.arch && self.features.contains(other.features)
    }
}

/// The full description in one line, which parses back to an equal machine:
/// `x86-64+sse3+...;timing=zen5;vector=512;registers=32;l1d=49152;l2=2097152;l3=16777216;line=64`. A timing that is no part of the
/// compiler is there in full.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Caches { l1d, l2, l3, line } = self.caches;
        write!(f, "{}{};timing={};vector={}", self.arch, self.features, self.timing, self.vector_bits)?;
        write!(f, ";registers={};l1d={l1d};l2={l2};l3={l3};line={line}", self.n_vector_registers)
    }
}

impl FromStr for Machine {
    type Err = TargetError;

    /// `NAME[+FEATURE|~FEATURE]...[;KEY=VALUE]...`: one of [`names`](crate::names()), with features added (`+`) or removed (`~`)
    /// and properties set, in order. `timing=` takes one of [`TIMINGS`](crate::TIMINGS), a file, or a timing in full
    /// ([`Timing::inline`]), and sets the caches too.
    fn from_str(text: &str) -> Result<Machine, TargetError> {
        let mut parts = text.split(';');
        let isa = parts.next().unwrap_or_default();
        let name_len = isa.find(['+', '~']).unwrap_or(isa.len());
        let (name, mut changes) = isa.split_at(name_len);
        let mut machine =
            Machine::named(name).ok_or_else(|| TargetError::UnknownMachine { name: name.to_owned() })?;
        if !changes.is_empty() {
            let mut features = machine.features;
            while let Some(sign) = changes.chars().next() {
                let rest = &changes[1..];
                let len = rest.find(['+', '~']).unwrap_or(rest.len());
                let feature = Feature::from_name(&rest[..len])
                    .filter(|feature| feature.arch() == machine.arch)
                    .ok_or_else(|| TargetError::UnknownFeature {
                        name: rest[..len].to_owned(),
                        arch: machine.arch,
                    })?;
                features = if sign == '+' { features.with(feature) } else { features.without(feature) };
                changes = &rest[len..];
            }
            let Machine { arch, features: before, caches, timing, .. } = machine;
            machine = Machine::with_features(arch, features);
            // The speed of a level follows from its features; a processor has its own whatever of it is used.
            if timing != Timing::of_level(arch, before) {
                machine = machine.with_timing(timing);
            }
            machine.caches = caches;
        }
        for part in parts {
            if let Some(timing) = part.strip_prefix("timing=") {
                machine = machine.with_timing(Timing::named(timing)?);
                continue;
            }
            machine.set(part).ok_or_else(|| TargetError::BadProperty { property: part.to_owned() })?;
        }
        Ok(machine)
    }
}

impl Machine {
    /// Sets a property from `KEY=VALUE`; nothing if there is no such property or the value is out of range.
    fn set(&mut self, property: &str) -> Option<()> {
        fn number(value: &str, max: u64) -> Option<u64> {
            value.parse().ok().filter(|number| (1..=max).contains(number))
        }
        let (key, value) = property.split_once('=')?;
        match key {
            "vector" => {
                let bits = number(value, 512).filter(|bits| bits.is_power_of_two() && *bits >= 32)?;
                // Never wider than the instruction set has: a narrower preference is the only freedom.
                let widest = Machine::with_features(self.arch, self.features).vector_bits;
                self.vector_bits = (bits as u32).min(widest);
            }
            "registers" => self.n_vector_registers = number(value, 1 << 10)? as u32,
            "l1d" => self.caches.l1d = number(value, 1 << 40)?,
            "l2" => self.caches.l2 = number(value, 1 << 40)?,
            "l3" if value == "0" => self.caches.l3 = 0,
            "l3" => self.caches.l3 = number(value, 1 << 40)?,
            "line" => self.caches.line = number(value, 1 << 12)?,
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::CodegenKind;
    use crate::names::names;
    use crate::target::Target;
    use crate::timing::TimingFile;

    #[test]
    fn names_and_descriptions_round_trip() {
        for (name, _) in names() {
            let machine: Machine = name.parse().unwrap();
            assert_eq!(machine.to_string().parse::<Machine>().as_ref(), Ok(&machine), "{name}");
        }
    }

    #[test]
    fn a_timing_is_part_of_the_description() {
        let machine: Machine = "x86-64-v3;timing=zen3".parse().unwrap();
        assert_eq!((machine.timing.name.as_str(), machine.caches.l2), ("zen3", 512 << 10));
        assert!(machine.to_string().contains(";timing=zen3;vector=256"), "{machine}");
        let smaller: Machine = "x86-64-v3;timing=zen3;l2=262144".parse().unwrap();
        assert_eq!((&smaller.timing, smaller.caches.l2), (&machine.timing, 256 << 10));
        assert_eq!(smaller.to_string().parse(), Ok(smaller));
        // That of a level follows its features, that of a processor stays.
        let name = |text: &str| text.parse::<Machine>().unwrap().timing.name;
        assert_eq!(["x86-64-v4~avx512f", "cortex-a76+bf16"].map(name), ["x86-64-v3", "cortex-a76"]);
    }

    #[test]
    fn a_timing_of_ones_own_is_there_in_full() {
        let folder = std::env::temp_dir().join(format!("tilewright-timing-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("mine.toml");
        let mut file = TimingFile::committed("zen3").unwrap().clone();
        file.timing.core.fma_latency = 5;
        std::fs::write(&path, file.text().unwrap()).unwrap();
        let machine: Machine = format!("x86-64-v3;timing={}", path.display()).parse().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((machine.timing.name.as_str(), machine.timing.numbers.core.fma_latency), ("mine", 5));
        assert_ne!(machine, "x86-64-v3;timing=zen3".parse().unwrap());
        assert_eq!(machine.to_string().parse(), Ok(machine));
    }

    #[test]
    fn levels_nest_and_widen() {
        let bits = |name: &str| name.parse::<Machine>().unwrap().vector_bits;
        assert_eq!(
            ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"].map(bits),
            [128, 128, 256, 512, 128]
        );
        let [v2, v3]: [Machine; 2] = ["x86-64-v2", "x86-64-v3"].map(|name| name.parse().unwrap());
        assert!(v3.runs_code_for(&v2) && !v2.runs_code_for(&v3));
    }

    #[test]
    fn a_level_needs_all_its_features() {
        let level = |name: &str| name.parse::<Machine>().unwrap().level();
        assert_eq!(level("x86-64-v4+avx512fp16"), "x86-64-v4");
        assert_eq!(level("x86-64-v4~bmi2"), "x86-64-v2");
        assert_eq!(level("x86-64"), "x86-64");
        assert_eq!(level("aarch64+bf16"), "aarch64");
    }

    #[test]
    fn machines_without_vectors_have_one_lane() {
        let lanes = |text: &str| Target::parse(text, CodegenKind::Llvm).unwrap().lanes(4);
        assert_eq!(["riscv64", "armv7", "cortex-m7", "x86-64-v3;vector=32"].map(lanes), [1; 4]);
        assert_eq!(["riscv64+v", "armv7+neon", "aarch64"].map(lanes), [4; 3]);
        let has_fma = |text: &str| text.parse::<Machine>().unwrap().has_fma();
        assert!(has_fma("riscv64") && has_fma("cortex-a7") && !has_fma("armv7~vfp4"));
    }

    #[test]
    fn features_are_added_and_removed() {
        let machine: Machine = "x86-64-v4~avx512f;l2=2097152".parse().unwrap();
        assert_eq!((machine.vector_bits, machine.caches.l2), (256, 2 << 20));
        assert!(machine.has_fma());
    }

    #[track_caller]
    fn check_error(text: &str, expect: &str) {
        assert_eq!(text.parse::<Machine>().unwrap_err().to_string(), expect);
    }

    #[test]
    fn bad_texts_are_explained() {
        check_error(
            "z80",
            "unknown target `z80`; known are cpu, x86-64, x86-64-v2, x86-64-v3, x86-64-v4, aarch64, cortex-a53, cortex-a72, cortex-a76, \
             neoverse-n1, rpi3, rpi4, rpi5, armv7, cortex-a7, cortex-a15, thumbv7em, cortex-m4, \
             cortex-m7, cortex-m55, riscv64",
        );
        let start = |text: &str| {
            text.parse::<Machine>().unwrap_err().to_string().split(';').next().map(str::to_owned)
        };
        let misspelt = "unknown target `cortexa72`: did you mean cortex-a72, cortex-a76 or cortex-a7?";
        assert_eq!(start("cortexa72").as_deref(), Some(misspelt));
        assert_eq!(start("rip5").as_deref(), Some("unknown target `rip5`: did you mean rpi5?"));
        check_error("x86-64+neon", "x86-64 has no feature `neon`");
        check_error("x86-64+dotprod", "x86-64 has no feature `dotprod`");
        let error = "x86-64;timing=/nowhere/x.toml".parse::<Machine>().unwrap_err().to_string();
        assert!(error.starts_with("timing /nowhere/x.toml: No such file or directory"), "{error}");
        assert!(error.contains("timings that come with the compiler are sapphire-rapids, zen3"), "{error}");
        check_error("x86-64;l1d=many", "`l1d=many` is not a property of a target");
    }
}
