//! Which processor a machine has: what it says of itself.

use serde::{Deserialize, Serialize};

/// A processor, or several of a kind, by their identification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// On x86 the vendor of CPUID leaf 0 (`GenuineIntel`, `AuthenticAMD`); on ARM the implementer of MIDR_EL1 (`0x41` is Arm).
    pub vendor: String,
    /// On x86 the family of CPUID leaf 1, with its extension; on ARM the part number of MIDR_EL1.
    pub family: u32,
    /// On x86 the first and the last of the models, with their extension; nothing where the family tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<[u32; 2]>,
}

impl Processor {
    /// The processor the compiler runs on; nothing where the system does not tell.
    pub fn host() -> Option<Processor> {
        Processor::described(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
    }

    /// The first processor in what Linux says of a machine's.
    fn described(cpuinfo: &str) -> Option<Processor> {
        let value = |key: &str| {
            let is_key = |line: &&str| line.split(':').next().is_some_and(|name| name.trim() == key);
            Some(cpuinfo.lines().find(is_key)?.split_once(':')?.1.trim())
        };
        let hexadecimal = |text: &str| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        if let (Some(vendor), Some(family), Some(model)) =
            (value("vendor_id"), value("cpu family"), value("model"))
        {
            let (family, model) = (family.parse().ok()?, model.parse().ok()?);
            return Some(Processor { vendor: vendor.to_owned(), family, models: Some([model; 2]) });
        }
        let family = hexadecimal(value("CPU part")?)?;
        Some(Processor { vendor: value("CPU implementer")?.to_owned(), family, models: None })
    }

    /// Whether this entry of a file is of that processor.
    pub fn covers(&self, processor: &Processor) -> bool {
        let covers_models = match (self.models, processor.models) {
            (None, _) => true,
            (Some([first, last]), Some([from, to])) => first <= from && to <= last,
            (Some(_), None) => false,
        };
        self.vendor == processor.vendor && self.family == processor.family && covers_models
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_of_proc() {
        let x86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n";
        let found = Processor::described(x86).unwrap();
        assert_eq!(found, Processor { vendor: "AuthenticAMD".to_owned(), family: 26, models: Some([2; 2]) });
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd08\n";
        let found_arm = Processor::described(arm).unwrap();
        assert_eq!(found_arm, Processor { vendor: "0x41".to_owned(), family: 0xd08, models: None });
        assert_eq!(Processor::described("processor : 0\n"), None);
        assert!(Processor { models: None, ..found.clone() }.covers(&found));
        assert!(Processor { models: Some([0, 15]), ..found.clone() }.covers(&found));
        assert!(!Processor { models: Some([3, 15]), ..found.clone() }.covers(&found));
        assert!(!found_arm.covers(&found));
    }
}
