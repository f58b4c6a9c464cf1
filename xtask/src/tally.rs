//! Counts of checks and tests.

use std::fmt;

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
