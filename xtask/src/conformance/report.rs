//! The table by suite and operator, and the figures for programs.

use std::collections::BTreeMap;
use std::fmt;

use super::case::{Case, Outcome, SUITES};

/// The columns, in the order of [`Counts::of`].
const COLUMNS: [&str; 5] = ["pass", "wrong", "unsupported", "crashed", "not comparable"];

/// At most this many wrong or crashed cases are printed; the listing holds all.
const SHOWN: usize = 40;

/// The outcome of every case that was run.
pub(crate) struct Report {
    results: Vec<(Case, Outcome)>,
}

/// How many cases came to each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts([usize; 5]);

impl Counts {
    fn of<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Counts {
        let mut counts = Counts::default();
        for outcome in outcomes {
            let column = match outcome {
                Outcome::Pass => 0,
                Outcome::Wrong(_) => 1,
                Outcome::Unsupported(_) => 2,
                Outcome::Crashed(_) => 3,
                Outcome::NotComparable => 4,
            };
            counts.0[column] += 1;
        }
        counts
    }

    /// Cases with every output as expected.
    pub(crate) fn pass(self) -> usize {
        self.0[0]
    }

    /// Cases that are a fault of ours: wrong or crashed.
    pub(crate) fn faults(self) -> usize {
        self.0[1] + self.0[3]
    }

    /// Cases that say nothing either way: unsupported or not comparable.
    pub(crate) fn skipped(self) -> usize {
        self.0[2] + self.0[4]
    }

    fn total(self) -> usize {
        self.0.iter().sum()
    }
}

impl Report {
    /// Sorts the results by name.
    pub(crate) fn new(mut results: Vec<(Case, Outcome)>) -> Report {
        results.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        Report { results }
    }

    /// Every case with its outcome, by name.
    pub(crate) fn results(&self) -> &[(Case, Outcome)] {
        &self.results
    }

    /// The counts over all cases.
    pub(crate) fn counts(&self) -> Counts {
        self.counts_where(|_| true)
    }

    /// Whether no case was wrong or crashed.
    pub(crate) fn is_clean(&self) -> bool {
        self.counts().faults() == 0
    }

    fn counts_where(&self, chosen: impl Fn(&Case) -> bool) -> Counts {
        Counts::of(self.results.iter().filter(|(case, _)| chosen(case)).map(|(_, outcome)| outcome))
    }

    fn suite(&self, suite: &str) -> Counts {
        self.counts_where(|case| case.name.split('/').next() == Some(suite))
    }

    /// One line a case: outcome, name, message.
    pub(crate) fn listing(&self) -> String {
        let line = |(case, outcome): &(Case, Outcome)| {
            format!("{}\t{}\t{}\t{}\n", outcome.label(), case.name, case.operator, outcome.message())
        };
        self.results.iter().map(line).collect()
    }

    /// The figures on one line: `[pass, total]` of core and of each suite, and the counts of the other outcomes.
    pub(crate) fn json(&self) -> serde_json::Value {
        let pair = |counts: Counts| serde_json::json!([counts.pass(), counts.total()]);
        let mut object = serde_json::Map::new();
        object.insert("core".into(), pair(self.counts_where(|case| case.core)));
        for (suite, _) in SUITES {
            object.insert(suite.into(), pair(self.suite(suite)));
        }
        let all = self.counts();
        for (column, label) in COLUMNS.iter().enumerate().skip(1) {
            object.insert(label.replace(' ', "_"), all.0[column].into());
        }
        object.into()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, counts: Counts| {
            write!(f, "{name:34}{:>8}", counts.total())?;
            for (count, label) in counts.0.iter().zip(COLUMNS) {
                write!(f, "{count:>width$}", width = label.len() + 2)?;
            }
            writeln!(f)
        };
        let mut operators: BTreeMap<&str, Vec<&Outcome>> = BTreeMap::new();
        // The other suites test whole networks.
        for (case, outcome) in self.results.iter().filter(|(case, _)| case.name.starts_with("node/")) {
            operators.entry(&case.operator).or_default().push(outcome);
        }
        let operators =
            operators.into_iter().map(|(name, outcomes)| (name, Counts::of(outcomes.into_iter())));
        let (whole, partial): (Vec<_>, Vec<_>) =
            operators.partition(|(_, counts)| counts.pass() == counts.total());

        writeln!(f, "{:34}{:>8}  {}", "operator (not all pass)", "cases", COLUMNS.join("  "))?;
        for (name, counts) in &partial {
            row(f, name, *counts)?;
        }
        writeln!(f, "{} operators pass in every case, {} do not\n", whole.len(), partial.len())?;
        writeln!(f, "{:34}{:>8}  {}", "suite", "cases", COLUMNS.join("  "))?;
        for (suite, _) in SUITES {
            row(f, suite, self.suite(suite))?;
        }
        row(f, "core (of node)", self.counts_where(|case| case.core))?;
        row(f, "all", self.counts())?;
        let faults = || self.results.iter().filter(|(_, outcome)| outcome.is_fault());
        for (case, outcome) in faults().take(SHOWN) {
            let message = outcome.message().chars().take(200).collect::<String>();
            writeln!(f, "{}: {}: {message}", outcome.label(), case.name)?;
        }
        let hidden = faults().count().saturating_sub(SHOWN);
        if hidden > 0 {
            writeln!(f, "... and {hidden} more")?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A report over made-up cases; those of the node suite are core.
    pub(crate) fn report(outcomes: &[(&str, Outcome)]) -> Report {
        let case = |name: &str| Case::for_report(name, "Add", name.starts_with("node/"));
        Report::new(outcomes.iter().map(|(name, outcome)| (case(name), outcome.clone())).collect())
    }

    fn sample() -> Report {
        report(&[
            ("simple/c", Outcome::Crashed("signal".into())),
            ("node/b", Outcome::Wrong("output 0".into())),
            ("node/a", Outcome::Pass),
            ("light/d", Outcome::Unsupported("no LRN".into())),
            ("node/e", Outcome::NotComparable),
        ])
    }

    #[test]
    fn json_holds_pairs_by_suite_and_counts_by_outcome() {
        let expect = r#"{"core":[1,3],"node":[1,3],"simple":[0,1],"light":[0,1],"pytorch-operator":[0,0],
            "pytorch-converted":[0,0],"wrong":1,"unsupported":1,"crashed":1,"not_comparable":1}"#;
        assert_eq!(sample().json(), serde_json::from_str::<serde_json::Value>(expect).unwrap());
        assert!(!sample().is_clean());
    }

    #[test]
    fn the_table_ends_with_the_faults() {
        let text = sample().to_string();
        assert!(text.contains("0 operators pass in every case, 1 do not"), "{text}");
        assert!(text.ends_with("wrong: node/b: output 0\ncrashed: simple/c: signal\n"), "{text}");
    }

    #[test]
    fn the_listing_has_a_line_a_case_by_name() {
        let listing = sample().listing();
        assert_eq!(listing.lines().count(), 5);
        assert!(listing.starts_with("unsupported\tlight/d\tAdd\tno LRN\n"), "{listing}");
    }
}
