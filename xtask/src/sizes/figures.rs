//! The file of figures: for each part its bytes, the tool that they hold for, and the most it may ever take.

use std::fs;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use super::parts::Part;
use crate::project;

const FILE: &str = "xtask/data/sizes.toml";

/// What the file opens with.
const HEAD: &str = "\
# Bytes of what is deployed, stripped; of emitted libraries the code alone, beside weights. `cargo xtask sizes` holds parts to them: at most
# 2 % more than `bytes`, and at most `limit`, where there is one. `--bless` writes `bytes` and `by`: the tool whose version decides. Where
# another version is installed, a part is skipped.

";

/// The file.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figures {
    part: Vec<Entry>,
}

/// A part's figure.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    name: String,
    target: String,
    /// 0 before the first `--bless`.
    #[serde(default)]
    pub(super) bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<u64>,
    #[serde(default)]
    pub(super) by: String,
}

impl Figures {
    pub(super) fn read() -> anyhow::Result<Figures> {
        let text = fs::read_to_string(project::path(FILE)).context(FILE)?;
        toml::from_str(&text).context(FILE)
    }

    pub(super) fn write(&self) -> anyhow::Result<()> {
        fs::write(project::path(FILE), format!("{HEAD}{}", toml::to_string(self)?)).context(FILE)
    }

    /// Whether the file has the parts that there are, each once.
    pub(super) fn are_of(&self, parts: &[Part]) -> anyhow::Result<()> {
        for (i, entry) in self.part.iter().enumerate() {
            let is_twice =
                self.part.iter().take(i).any(|o| (&o.name, &o.target) == (&entry.name, &entry.target));
            let is_known = parts.iter().any(|part| entry.is_of(part));
            ensure!(!is_twice, "{FILE}: {} for {} is there twice", entry.name, entry.target);
            ensure!(is_known, "{FILE}: {} for {} is nothing that is measured", entry.name, entry.target);
        }
        match parts.iter().find(|part| !self.part.iter().any(|entry| entry.is_of(part))) {
            Some(part) => bail!("{FILE} has no figure of {part}"),
            None => Ok(()),
        }
    }

    pub(super) fn of(&mut self, part: &Part) -> Option<&mut Entry> {
        self.part.iter_mut().find(|entry| entry.is_of(part))
    }
}

impl Entry {
    fn is_of(&self, part: &Part) -> bool {
        self.name == part.name && self.target == part.target
    }

    /// Why so many bytes are too many; nothing where they are not. Where a new figure is written, the old one does not count.
    pub(super) fn fault(&self, bytes: u64, bless: bool) -> Option<String> {
        if let Some(limit) = self.limit.filter(|&limit| bytes > limit) {
            return Some(format!("over the limit of {limit}"));
        }
        (!bless && bytes * 100 > self.bytes * 102).then(|| {
            "over 2 % more than the figure: `cargo xtask sizes --bless` where that is meant".to_string()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::parts::PARTS;
    use super::*;

    #[test]
    fn two_percent_more_pass_and_a_limit_holds() {
        let entry = |limit| Entry {
            name: "a".to_string(),
            target: "b".to_string(),
            bytes: 1000,
            limit,
            by: "c".to_string(),
        };
        assert_eq!(entry(None).fault(1020, false), None);
        assert!(entry(None).fault(1021, false).is_some_and(|fault| fault.contains("2 %")));
        assert_eq!(entry(None).fault(1021, true), None);
        assert_eq!(entry(Some(1010)).fault(1010, false), None);
        assert!(entry(Some(1010)).fault(1011, true).is_some_and(|fault| fault.contains("limit of 1010")));
    }

    #[test]
    fn the_file_has_every_part_and_is_as_it_would_be_written() {
        let figures = Figures::read().unwrap();
        figures.are_of(PARTS).unwrap();
        let written = format!("{HEAD}{}", toml::to_string(&figures).unwrap());
        assert_eq!(fs::read_to_string(project::path(FILE)).unwrap(), written);
    }

    #[test]
    fn a_file_that_lacks_a_part_or_has_one_twice_is_refused() {
        let entry = |name: &str| format!("[[part]]\nname = \"{name}\"\ntarget = \"b\"\n");
        let figures = |text: String| toml::from_str::<Figures>(&text).unwrap().are_of(&[]).unwrap_err();
        assert!(figures(entry("a")).to_string().contains("nothing that is measured"));
        let none = toml::from_str::<Figures>("part = []").unwrap().are_of(PARTS).unwrap_err();
        assert!(none.to_string().contains("no figure of"), "{none}");
        let mut twice = Figures::read().unwrap();
        twice.part.extend(Figures::read().unwrap().part);
        assert!(twice.are_of(PARTS).unwrap_err().to_string().contains("twice"));
    }
}
