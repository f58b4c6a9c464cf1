//! A profile as it is told: its rows and what holds for the whole run, without the program that it is of.

use tilewright_runtime::Program;

use super::measure::{OfDevice, Profile};
use super::rows::{By, LeastSeconds, Row, rows};

/// What is told of a profile.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "remote", derive(serde::Serialize, serde::Deserialize))]
pub struct Report {
    /// Time of a run, in milliseconds.
    pub wall_ms: f64,
    /// What of it are instructions, in milliseconds.
    pub sum_ms: f64,
    /// Median time of the runs without a profile, in milliseconds.
    pub plain_ms: f64,
    /// How much longer a run takes with the profile.
    pub overhead: f64,
    /// Runs with a profile.
    pub runs: usize,
    /// Of these, the ones that the means are of.
    pub used: usize,
    /// Threads that ran it.
    pub threads: usize,
    /// The device's time, where its events told it.
    pub of_device: Option<OfDevice>,
    /// The extents that the program which ran is specialised for; none where it is the one for all.
    pub extents: Vec<(String, u64)>,
    /// The rows that took time, the longest first.
    pub rows: Vec<Row>,
}

impl Report {
    /// That of a profile. Without `least` nothing is said of how fast rows could be.
    pub fn new(
        program: &Program,
        profile: &Profile,
        least: Option<LeastSeconds<'_>>,
        by: By,
        threads: usize,
    ) -> Report {
        Report {
            wall_ms: profile.wall_ms,
            sum_ms: profile.sum_ms(),
            plain_ms: profile.plain_ms,
            overhead: profile.overhead(),
            runs: profile.runs,
            used: profile.used,
            threads,
            of_device: profile.of_device(program),
            extents: profile.extents.clone(),
            rows: rows(program, profile, least, by),
        }
    }
}
