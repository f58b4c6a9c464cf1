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
