//! Which processor a machine has: what it says of itself.

use serde::{Deserialize, Serialize};

/// A processor, or several of a kind: an entry of a timing's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// On x86 the vendor of CPUID leaf 0 (`GenuineIntel`, `AuthenticAMD`); on ARM the implementer of MIDR_EL1 (`0x41` is Arm).
    pub vendor: String,
    /// On x86 the family of CPUID leaf 1, with its extension; on ARM the part number of MIDR_EL1.
    pub family: u32,
    /// On x86 the first and the last of the models, with their extension; nothing where family and flags tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<[u32; 2]>,
    /// Flags of `/proc/cpuinfo` that all of them have: clouds make up the models of their virtual machines, but not these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

impl Processor {
    /// Whether this entry of a file is of a machine that says this of itself.
    pub fn covers(&self, id: &ProcessorId) -> bool {
        let covers_model = match (self.models, id.model) {
            (None, _) => true,
            (Some([first, last]), Some(model)) => (first..=last).contains(&model),
            (Some(_), None) => false,
        };
        self.vendor == id.vendor
            && self.family == id.family
            && covers_model
            && self.flags.iter().all(|flag| id.flags.contains(flag))
    }
}

/// What a machine says of its processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessorId {
    /// As [`Processor::vendor`].
    pub vendor: String,
    /// As [`Processor::family`].
    pub family: u32,
    /// As [`Processor::models`].
    pub model: Option<u32>,
    /// As [`Processor::flags`]; on ARM none.
    pub flags: Vec<String>,
}

impl ProcessorId {
    /// That of the machine the compiler runs on; nothing where the system does not tell.
    pub fn host() -> Option<ProcessorId> {
        ProcessorId::described(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
    }

    /// That of the first processor in what Linux says of a machine's.
    fn described(cpuinfo: &str) -> Option<ProcessorId> {
        let value = |key: &str| {
            let is_key = |line: &&str| line.split(':').next().is_some_and(|name| name.trim() == key);
            Some(cpuinfo.lines().find(is_key)?.split_once(':')?.1.trim())
        };
        let hexadecimal = |text: &str| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        if let (Some(vendor), Some(family), Some(model)) =
            (value("vendor_id"), value("cpu family"), value("model"))
        {
            let (family, model) = (family.parse().ok()?, Some(model.parse().ok()?));
            let flags = value("flags").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
            return Some(ProcessorId { vendor: vendor.to_owned(), family, model, flags });
        }
        let family = hexadecimal(value("CPU part")?)?;
        Some(ProcessorId {
            vendor: value("CPU implementer")?.to_owned(),
            family,
            model: None,
            flags: Vec::new(),
        })
    }

    /// The entry of a file that is of this processor alone.
    pub fn processor(&self) -> Processor {
        let (vendor, family) = (self.vendor.clone(), self.family);
        Processor { vendor, family, models: self.model.map(|model| [model; 2]), flags: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_of_proc() {
        let x86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2\n";
        let found = ProcessorId::described(x86).unwrap();
        let flags = vec!["fpu".to_owned(), "avx2".to_owned()];
        assert_eq!(
            found,
            ProcessorId {
                vendor: "AuthenticAMD".to_owned(),
                family: 26,
                model: Some(2),
                flags: flags.clone()
            }
        );
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd08\n";
        let found_arm = ProcessorId::described(arm).unwrap();
        assert_eq!(
            found_arm,
            ProcessorId { vendor: "0x41".to_owned(), family: 0xd08, model: None, flags: Vec::new() }
        );
        assert_eq!(ProcessorId::described("processor : 0\n"), None);
        let exact = found.processor();
        assert!(exact.covers(&found));
        assert!(Processor { models: None, ..exact.clone() }.covers(&found));
        assert!(Processor { models: None, flags, ..exact.clone() }.covers(&found));
        assert!(!Processor { flags: vec!["amx_tile".to_owned()], ..exact.clone() }.covers(&found));
        assert!(Processor { models: Some([0, 15]), ..exact.clone() }.covers(&found));
        assert!(!Processor { models: Some([3, 15]), ..exact.clone() }.covers(&found));
        assert!(!found_arm.processor().covers(&found));
    }
}
