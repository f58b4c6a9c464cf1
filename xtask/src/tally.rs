//! Counts of checks and tests.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, ensure};

/// Counts of checks and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Tally {
    pub(crate) fn of_check(passed: bool) -> Tally {
        Tally { passed: passed.into(), failed: (!passed).into(), skipped: 0 }
    }

    /// A check that lacks what `setup` could not install: skipped for a user, a failure in the continuous build.
    pub(crate) fn of_missing() -> Tally {
        let strict = std::env::var_os("CI").is_some();
        println!("{}: the set-up is not complete", if strict { "failed" } else { "skipped" });
        Tally { passed: 0, failed: strict.into(), skipped: (!strict).into() }
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

impl FromStr for Tally {
    type Err = anyhow::Error;

    /// Reads what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> anyhow::Result<Tally> {
        let mut words = text.split([' ', ',']).filter(|word| !word.is_empty());
        let mut count = |what: &str| -> anyhow::Result<usize> {
            let n = words.next().context("it ends early")?.parse()?;
            ensure!(words.next() == Some(what), "no count of what {what}");
            Ok(n)
        };
        Ok(Tally { passed: count("passed")?, failed: count("failed")?, skipped: count("skipped")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_are_written() {
        let tally = Tally { passed: 12, failed: 0, skipped: 3 };
        assert_eq!(tally.to_string().parse::<Tally>().unwrap(), tally);
        for text in ["", "12 passed, 0 failed", "error: 3", "12 failed, 0 passed, 3 skipped"] {
            assert!(text.parse::<Tally>().is_err(), "{text}");
        }
    }
}
