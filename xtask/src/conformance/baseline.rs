//! The committed list of cases that pass.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::case::{Case, Outcome};
use super::report::Report;
use crate::project;

const HEADING: &str =
    "# Cases of the ONNX backend suites that pass; written by `cargo xtask conformance --bless`.\n";

/// Cases that passed when the list was last recorded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Baseline {
    passing: BTreeSet<String>,
}

impl Baseline {
    /// Where the list of a code generator lies.
    pub(crate) fn path(codegen: &str) -> PathBuf {
        project::path(format!("xtask/data/conformance-{codegen}.txt"))
    }

    /// Reads the list; one that does not exist yet is empty.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Baseline> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Baseline::parse(&text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Baseline::default()),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    fn parse(text: &str) -> Baseline {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Baseline { passing: lines.map(str::to_string).collect() }
    }

    /// Writes the list.
    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let lines = self.passing.iter().map(|name| format!("{name}\n"));
        std::fs::write(path, HEADING.to_string() + &lines.collect::<String>())
            .with_context(|| path.display().to_string())
    }

    /// Takes over the outcome of every case that was run and leaves the others as they are.
    pub(crate) fn record(&mut self, report: &Report) {
        for (case, outcome) in report.results() {
            if *outcome == Outcome::Pass {
                self.passing.insert(case.name.clone());
            } else {
                self.passing.remove(&case.name);
            }
        }
    }

    /// Cases that were run, are on the list and did not pass.
    pub(crate) fn regressions<'a>(&self, report: &'a Report) -> Vec<&'a (Case, Outcome)> {
        let failed = report.results().iter().filter(|(_, outcome)| *outcome != Outcome::Pass);
        failed.filter(|(case, _)| self.passing.contains(&case.name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn a_listed_case_that_no_longer_passes_is_a_regression() {
        let baseline = Baseline::parse("# heading\nnode/a\nnode/b\nsimple/not_run\n");
        let unsupported = || Outcome::Unsupported("why".into());
        let report =
            report(&[("node/a", Outcome::Pass), ("node/b", unsupported()), ("node/new", unsupported())]);
        let names = baseline.regressions(&report).into_iter().map(|(case, _)| case.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["node/b"]);
    }

    #[test]
    fn recording_keeps_what_was_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list.txt");
        let mut baseline = Baseline::load(&path).unwrap();
        baseline.record(&report(&[("node/b", Outcome::Pass), ("node/a", Outcome::Pass)]));
        baseline.record(&report(&[("node/b", Outcome::NotComparable), ("node/c", Outcome::Pass)]));
        baseline.save(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{HEADING}node/a\nnode/c\n"));
        assert_eq!(Baseline::load(&path).unwrap(), baseline);
    }
}
