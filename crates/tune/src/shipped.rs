//! The records that come with the compiler.
//!
//! They were measured on shapes of well-known networks, of which `tools/corpus.py` is the list with sources.

use std::sync::LazyLock;

use crate::database::Database;

/// The records, measured on x86-64 processors.
const X86_64: &str = include_str!("../data/x86-64.jsonl");

/// The records of every family.
pub fn records() -> &'static Database {
    static RECORDS: LazyLock<Database> = LazyLock::new(|| Database::parse_best(X86_64));
    &RECORDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Finding;

    #[test]
    fn every_line_is_whole_and_a_confirmed_gain() {
        let (database, left_out) = Database::parse(X86_64);
        assert!(!left_out.any(), "{left_out}");
        assert!(database.iter().next().is_some(), "no records: `cargo xtask corpus` measures them");
        assert!(
            database.iter().all(|e| e.finding == Finding::Best && e.ratio < 1.0 && !e.decisions.is_empty())
        );
        assert_eq!(database.to_text().expect("numbers"), X86_64, "not as `database export` writes it");
    }
}
