//! Schedules that are measured on another machine than the one that makes them: a round of them as files.
//!
//! A round is a folder. `round.json` says which schedules it has and in which files their kernels are; whoever measures appends to
//! `results.jsonl`, a line a schedule with a checksum, so that a measurement that was cut goes on where it ended. What is learned
//! becomes entries of a database, from which the next round follows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tilewright_autosched::Decisions;
use tilewright_digest::Digest;

use crate::entry::{COMPILER, Entry, Finding, checksum};
use crate::measure::{MeasureError, Times};
use crate::task::TaskKey;

/// A schedule to be measured beside that of the rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The function and the family of machines.
    #[serde(flatten)]
    pub task: TaskKey,
    /// The name of the function, for people.
    pub name: String,
    /// Digest of the rules' own strategy.
    pub baseline: String,
    /// The schedule.
    pub decisions: Decisions,
    /// The file with its kernels, within the folder.
    pub candidate: String,
    /// The file with the kernels of the rules' own schedule.
    pub reference: String,
    /// Bytes of other constants between two uses of one.
    pub far: u64,
}

/// The schedules of a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// What they are compiled for.
    pub target: String,
    /// The schedules.
    pub trials: Vec<Trial>,
}

/// What came of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Its place among [`Round::trials`].
    pub trial: usize,
    /// Times of a short measurement.
    pub times: Option<Times>,
    /// Times of a long one, where the short one was promising; the results were equal then.
    pub confirmed: Option<Times>,
    /// Why there are none.
    pub error: Option<String>,
    /// Whether that is a result other than the rules' own schedule has.
    pub is_wrong: bool,
}

/// A folder that is no round, or not as it was written.
#[derive(Debug, thiserror::Error)]
pub enum RoundError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is a round already.
    #[error("{} has a round of schedules already: name another folder", folder.display())]
    Taken {
        /// The folder.
        folder: PathBuf,
    },
    /// A file of somebody else's, or of another version.
    #[error("{} is no round of schedules of this version: {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What tells.
        what: String,
    },
    /// A file that has changed since it was written.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What tells.
        what: String,
    },
}

/// The file of a round.
const ROUND: &str = "round.json";

/// The file of its results.
const RESULTS: &str = "results.jsonl";

/// Version of both files.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Head<'a> {
    #[serde(default)]
    tilewright_round: u32,
    crc: String,
    #[serde(borrow)]
    round: &'a RawValue,
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    /// Digest of the round.
    round: String,
    crc: String,
    #[serde(borrow)]
    result: &'a RawValue,
}

impl Round {
    /// Whether a folder has one.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(ROUND).exists()
    }

    /// Writes it into a folder, which has all of its files already: who finds it finds them too.
    ///
    /// # Errors
    /// [`RoundError::Write`], and [`RoundError::Taken`] where there is another.
    pub fn write(&self, folder: &Path) -> Result<(), RoundError> {
        if Round::is_in(folder) {
            return Err(RoundError::Taken { folder: folder.to_path_buf() });
        }
        let path = folder.join(ROUND);
        let write = || -> io::Result<()> {
            let round = serde_json::value::to_raw_value(self)?;
            let head = Head { tilewright_round: VERSION, crc: checksum(round.get()), round: &round };
            std::fs::write(&path, serde_json::to_string(&head)? + "\n")
        };
        write().map_err(|error| RoundError::Write { path: path.clone(), error })
    }

    /// The round in a folder.
    ///
    /// # Errors
    /// [`RoundError`].
    pub fn read(folder: &Path) -> Result<Round, RoundError> {
        let path = folder.join(ROUND);
        let bytes = std::fs::read(&path).map_err(|error| RoundError::Read { path: path.clone(), error })?;
        let text = String::from_utf8_lossy(&bytes);
        let foreign = |what: String| RoundError::Foreign { path: path.clone(), what };
        let damaged = |what: String| RoundError::Damaged { path: path.clone(), what };
        let head: Head<'_> =
            serde_json::from_str(&text).map_err(|error| match text.contains("\"tilewright_round\"") {
                true => damaged(error.to_string()),
                false => foreign(error.to_string()),
            })?;
        if head.tilewright_round != VERSION {
            return Err(foreign(format!("version {}", head.tilewright_round)));
        }
        if checksum(head.round.get()) != head.crc {
            return Err(damaged("its checksum differs".to_string()));
        }
        let round: Round =
            serde_json::from_str(head.round.get()).map_err(|error| damaged(error.to_string()))?;
        // Files are within the folder, whoever wrote their names.
        let is_plain = |name: &String| !name.is_empty() && !name.contains(['/', '\\']) && name != "..";
        match round.trials.iter().all(|trial| is_plain(&trial.candidate) && is_plain(&trial.reference)) {
            true => Ok(round),
            false => Err(damaged("a file outside of its folder".to_string())),
        }
    }

    fn digest(&self) -> String {
        Digest::of_data("round", self).short(16)
    }

    /// What is known of its schedules, the last result of each, and the number of lines that are left out because they are damaged.
    ///
    /// # Errors
    /// [`RoundError::Read`], and [`RoundError::Foreign`] for results of another round.
    pub fn results(&self, folder: &Path) -> Result<(Vec<TrialResult>, usize), RoundError> {
        let path = folder.join(RESULTS);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
            Err(error) => return Err(RoundError::Read { path, error }),
        };
        let digest = self.digest();
        let (mut results, mut damaged) = (BTreeMap::new(), 0);
        for line in String::from_utf8_lossy(&bytes).lines().filter(|line| !line.trim().is_empty()) {
            let whole = serde_json::from_str::<Line<'_>>(line).ok();
            let whole = whole.filter(|line| checksum(line.result.get()) == line.crc);
            let Some(whole) = whole else {
                damaged += 1;
                continue;
            };
            if whole.round != digest {
                let what = "results of another round".to_string();
                return Err(RoundError::Foreign { path, what });
            }
            match serde_json::from_str::<TrialResult>(whole.result.get()) {
                Ok(result) if result.trial < self.trials.len() => drop(results.insert(result.trial, result)),
                Ok(_) | Err(_) => damaged += 1,
            }
        }
        Ok((results.into_values().collect(), damaged))
    }

    /// Appends a result. It is in the hands of the system when this returns.
    ///
    /// # Errors
    /// [`RoundError::Write`].
    pub fn append(&self, folder: &Path, result: &TrialResult) -> Result<(), RoundError> {
        let path = folder.join(RESULTS);
        let write = || -> io::Result<()> {
            let text = serde_json::value::to_raw_value(result)?;
            let line = Line { round: self.digest(), crc: checksum(text.get()), result: &text };
            let mut file = File::options().append(true).create(true).open(&path)?;
            // A line that a killed process left unfinished ends here: an empty one is no damage.
            file.write_all(format!("\n{}\n", serde_json::to_string(&line)?).as_bytes())
        };
        write().map_err(|error| RoundError::Write { path: path.clone(), error })
    }

    /// What the results teach.
    pub fn entries(&self, results: &[TrialResult]) -> Vec<Entry> {
        let mut entries = Vec::new();
        for result in results {
            let Some(trial) = self.trials.get(result.trial) else { continue };
            let entry = |finding: Finding, times: Option<&Times>| Entry {
                task: trial.task.clone(),
                baseline: trial.baseline.clone(),
                finding,
                decisions: trial.decisions.clone(),
                ratio: times.map_or(0.0, Times::ratio),
                baseline_ns: times.map_or(0.0, Times::baseline_ns),
                compiler: COMPILER.to_string(),
            };
            let times = result.times.as_ref().filter(|times| times.ratio().is_finite());
            entries.push(match times.filter(|_| !result.is_wrong) {
                Some(times) => entry(Finding::Trial, Some(times)),
                None => entry(Finding::Failed, None),
            });
            let confirmed = result.confirmed.as_ref().filter(|times| times.is_faster() && !result.is_wrong);
            entries.extend(confirmed.map(|times| entry(Finding::Best, Some(times))));
        }
        entries
    }
}

impl TrialResult {
    /// What a measurement came to: times of a short one, and of a long one where there was one.
    pub fn new(trial: usize, measured: Result<(Times, Option<Times>), MeasureError>) -> TrialResult {
        let is_wrong = matches!(measured, Err(MeasureError::Wrong(_)));
        let error = measured.as_ref().err().map(MeasureError::to_string);
        let (times, confirmed) = measured.map_or((None, None), |(times, confirmed)| (Some(times), confirmed));
        TrialResult { trial, times, confirmed, error, is_wrong }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round() -> Round {
        let mut decisions = Decisions::default();
        decisions.set("y/tile", "64x64of8x8");
        let task = TaskKey { function: "f".into(), family: "opencl:sm_80".into() };
        let (candidate, reference) = ("0.twk".to_string(), "f.twk".to_string());
        let name = "product".into();
        let trial = Trial { task, name, baseline: "b".into(), decisions, candidate, reference, far: 1 };
        Round { target: "opencl:sm_80".into(), trials: vec![trial] }
    }

    fn faster() -> Times {
        Times { candidate: vec![50.0; 8], baseline: vec![100.0; 8] }
    }

    #[test]
    fn a_round_comes_back_with_its_results() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let round = round();
        round.write(folder).expect("writes");
        assert!(matches!(round.write(folder), Err(RoundError::Taken { .. })));
        assert_eq!(Round::read(folder).expect("reads"), round);
        assert_eq!(round.results(folder).expect("none"), (vec![], 0));
        let failed = TrialResult::new(0, Err(MeasureError::Failed("it hangs".into())));
        let measured = TrialResult::new(0, Ok((faster(), Some(faster()))));
        round.append(folder, &failed).expect("appends");
        std::fs::File::options()
            .append(true)
            .open(folder.join(RESULTS))
            .and_then(|mut file| file.write_all(b"{\"round\":\"cut sh"))
            .expect("writes");
        round.append(folder, &measured).expect("appends");
        assert_eq!(round.results(folder).expect("results"), (vec![measured.clone()], 1));
        let findings = |result: &TrialResult| -> Vec<Finding> {
            round.entries(std::slice::from_ref(result)).iter().map(|entry| entry.finding).collect()
        };
        assert_eq!(findings(&failed), [Finding::Failed]);
        assert_eq!(findings(&measured), [Finding::Trial, Finding::Best]);
        let wrong = TrialResult { is_wrong: true, ..measured };
        assert_eq!(findings(&wrong), [Finding::Failed]);
    }

    #[test]
    fn damaged_and_foreign_files_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        assert!(matches!(Round::read(folder), Err(RoundError::Read { .. })));
        let path = folder.join(ROUND);
        let read = |text: &str| {
            std::fs::write(&path, text).expect("writes");
            Round::read(folder)
        };
        assert!(matches!(read("{}"), Err(RoundError::Foreign { .. })));
        assert!(matches!(read("a shopping list"), Err(RoundError::Foreign { .. })));
        std::fs::remove_file(&path).expect("removes");
        round().write(folder).expect("writes");
        let text = std::fs::read_to_string(&path).expect("reads");
        assert!(matches!(read(&text.replace("product", "quotient")), Err(RoundError::Damaged { .. })));
        assert!(matches!(read(&text[..text.len() / 2]), Err(RoundError::Damaged { .. })));
        assert!(matches!(read(&text.replace("round\":1", "round\":2")), Err(RoundError::Foreign { .. })));
        let mut outside = round();
        outside.trials[0].candidate = "../0.twk".into();
        std::fs::remove_file(&path).expect("removes");
        outside.write(folder).expect("writes");
        assert!(matches!(Round::read(folder), Err(RoundError::Damaged { .. })));
        let other = Round { target: "cuda:sm_90".into(), ..round() };
        other.append(folder, &TrialResult::new(0, Ok((faster(), None)))).expect("appends");
        assert!(matches!(round().results(folder), Err(RoundError::Foreign { .. })));
    }
}
