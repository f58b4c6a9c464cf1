//! `tilewright calibrate`: measures how fast this machine is, for the cost model, and writes it down.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use tilewright_driver::calibrate::{Record, Report, Samples, compare, report};
use tilewright_driver::machine::measure::timing::{Measured, measure};
use tilewright_driver::machine::{Method, Numbers, ProcessorId, Provenance, Timing, TimingFile};
use tilewright_driver::tune::fit::{FITTED, Ranked, geometric_mean};
use tilewright_driver::{Machine, Options, Target};

use crate::failure::{Exit, Failure};
use crate::output;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File to write, for `--target 'cpu;timing=FILE'` [default: print it]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Measurements of each number, of which the median counts
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=100))]
    passes: u32,
    /// Seconds to fit numbers that cannot be measured by themselves, on functions that are measured for it; 0 keeps them as they were
    #[arg(long, value_name = "S", default_value = "230")]
    fit_time: u64,
    /// Functions to fit on, and functions to tell by how well the numbers fit
    #[arg(long, value_name = "N", num_args = 2, default_values = ["160", "50"])]
    functions: Vec<usize>,
    /// Keep what was measured of functions in this file, one JSON object a line: strategies with their times
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Fit on what such a file holds, and measure no functions
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "fit_time", "functions", "seed"])]
    recorded: Option<PathBuf>,
    /// Numbers to begin with, and to stay with unless others choose faster schedules: a file, or a timing that comes with the compiler
    /// [default: what `--target cpu` takes]
    #[arg(long, value_name = "TIMING")]
    before: Option<String>,
    /// Where the choice of functions and candidates begins
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How often what the model takes for itself is measured, and the numbers are fitted again.
const ROUNDS: usize = 4;

/// How much less time the default schedules of the functions that numbers are fitted on must take, for these to be better than those before:
/// they fit the functions that they have seen. On a machine whose file had been fitted on its kind, four fits gained 0.5 to 1 % there, and
/// 0 to -0.6 % on others.
const GAIN: f64 = 0.01;

/// Functions of a report that are told one by one: those that are ranked worst.
const WORST: usize = 10;

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let machine = match &args.before {
        Some(before) => Machine::host().with_timing(Timing::named(before).map_err(Failure::usage)?),
        None => Machine::host(),
    };
    let before = &machine.timing;
    let passes: Vec<Measured> = (0..args.passes).map(|_| measure(&before.numbers)).collect();
    let Some(measured) = Measured::median(&passes) else {
        return Err(Failure::new(Exit::Internal, "measurements have no median"));
    };
    let fitted = match args.fit_time {
        0 => None,
        _ => Some(Fitted::new(args, &measured, before)?),
    };
    let numbers = fitted.as_ref().map_or(&measured.numbers, |fitted| &fitted.numbers);
    let file = TimingFile {
        provenance: provenance(&measured, fitted.as_ref(), before, args.passes),
        processors: ProcessorId::host().iter().map(ProcessorId::processor).collect(),
        timing: numbers.clone(),
    };
    let text = file.text().map_err(|error| Failure::new(Exit::Internal, error))?;
    if let Some(path) = &args.output {
        output::write_file(path, text.as_bytes())?;
    }
    match (args.json, &args.output) {
        (true, _) => {
            let mut report = json(&measured, before);
            report["fitted"] = fitted.as_ref().map_or(serde_json::Value::Null, Fitted::json);
            output::print_json(&report)
        }
        (false, None) => output::print(&text),
        (false, Some(_)) => {
            output::print(&(table(&measured, before) + &fitted.as_ref().map_or(String::new(), Fitted::text)))
        }
    }
}

/// Numbers that were fitted, and how well they fit.
struct Fitted {
    numbers: Numbers,
    /// Keys and values of those that the fit has changed.
    changed: Vec<(String, f64)>,
    n_fitted: usize,
    left_out: usize,
    /// By the functions that they were not fitted on: with the numbers of the file before, and with these.
    reports: [Report; 2],
    /// What fitted numbers gained over those of before; none where nothing was measured.
    gain: Option<Gain>,
    /// Time of the default schedule with these numbers over that with those of before, for the functions of the reports, the slowest first;
    /// none where nothing was measured.
    defaults: Vec<(String, f64)>,
}

/// Time of default schedules with fitted numbers over that with those of before, for the functions that they were fitted on.
struct Gain {
    ratio: f64,
    /// Functions whose schedules differ.
    n_other: usize,
}

impl Gain {
    /// Whether the numbers of before stay.
    fn is_too_small(&self) -> bool {
        self.ratio > 1.0 - GAIN
    }
}

impl Fitted {
    fn new(args: &Args, measured: &Measured, before: &Timing) -> Result<Fitted, Failure> {
        let timing = Timing { name: "measured".to_string(), numbers: measured.numbers.clone() };
        let options =
            Options::for_target(Target::new(Machine::host().with_timing(timing), Options::best_codegen()));
        let [n_fitted, n_held_out] = [0, 1].map(|n| args.functions.get(n).copied().unwrap_or_default());
        let is_terminal = std::io::stderr().is_terminal();
        let seen = |samples: &Samples| {
            let Samples { fitted, held_out, left_out } = samples;
            if is_terminal {
                output::note(&format!(
                    "\r{} functions to fit on, {} to tell by, {left_out} left out",
                    fitted.len(),
                    held_out.len()
                ));
            }
        };
        // Rounds of fitting take a quarter of the time.
        let (start, time) = (Instant::now(), Duration::from_secs(args.fit_time));
        let wanted = [n_fitted, n_held_out];
        let mut samples = match &args.recorded {
            Some(path) => Samples::of_records(read_records(path)?, &options)?,
            None => Samples::measure(&options, wanted, start + time * 3 / 4, args.seed, seen)?,
        };
        if is_terminal {
            output::note("\n");
        }
        let mut numbers = samples.fit(&before.numbers, &measured.numbers)?;
        let (mut gain, mut defaults) = (None, Vec::new());
        if args.recorded.is_none() {
            // What was chosen before has to be known as well: by random candidates alone, numbers that choose otherwise look better than
            // they are.
            samples.refine(&before.numbers, start + time);
            for round in 1..=ROUNDS {
                let found = samples.refine(&numbers, start + time);
                output::note(&format!("round {round}: {found} first choices were new\n"));
                if found == 0 {
                    break;
                }
                numbers = samples.fit(&before.numbers, &measured.numbers)?;
            }
            let ratios = compare(&samples.fitted, &before.numbers, &numbers)?;
            let n_other = ratios.iter().filter(|(_, ratio)| *ratio != 1.0).count();
            let found = Gain { ratio: mean_of(&ratios), n_other };
            if found.is_too_small() {
                numbers = Numbers { caches: measured.numbers.caches, ..before.numbers.clone() };
            }
            gain = Some(found);
            defaults = compare(&samples.held_out, &before.numbers, &numbers)?;
            defaults.sort_by(|a, b| b.1.total_cmp(&a.1));
        }
        if let Some(path) = &args.record {
            write_records(path, &samples.records())?;
        }
        let was = |key: &str| measured.numbers.get(key);
        let changed = FITTED.iter().filter_map(|(key, _)| Some((key.to_string(), numbers.get(key)?)));
        let changed = changed.filter(|(key, value)| was(key) != Some(*value)).collect();
        let reports = [&before.numbers, &numbers].map(|numbers| report(&samples.held_out, numbers));
        let (n_fitted, left_out) = (samples.fitted.len(), samples.left_out);
        Ok(Fitted { numbers, changed, n_fitted, left_out, reports, gain, defaults })
    }

    /// Whether the numbers are those of before.
    fn is_before(&self) -> bool {
        self.gain.as_ref().is_some_and(Gain::is_too_small)
    }

    fn text(&self) -> String {
        let mut text = format!(
            "Fitted on {} functions, told by {} others ({} left out):\n",
            self.n_fitted,
            self.reports[1].functions.len(),
            self.left_out
        );
        if let Some(Gain { ratio, n_other }) = &self.gain {
            text += &format!(
                "{n_other} of the default schedules of those fitted on differ, and take {ratio:.3} of the time with the numbers before in the geometric mean: {}\n",
                if self.is_before() { "these stay, and are written" } else { "the fitted ones are better" }
            );
        }
        for (key, value) in self.changed.iter().filter(|_| !self.is_before()) {
            text += &format!("  {key} = {value}\n");
        }
        for (when, report) in ["before", "after"].iter().zip(&self.reports) {
            text += &format!(
                "{when}: rank correlation {:.3} in the median, first choice {:.3} times as long as the best, algorithm {:.3} (of {}); worst\n",
                report.median(),
                report.regret(),
                report.regret_of_algorithms(),
                report.algorithms.len()
            );
            for function in report.functions.iter().take(WORST) {
                text += &format!(
                    "  {:6.3}  {} candidates, spread {:.2}: {}\n",
                    function.correlation(),
                    function.measured.len(),
                    function.spread(),
                    function.name
                );
            }
        }
        if !self.defaults.is_empty() {
            let mean = mean_of(&self.defaults);
            let n_same = self.defaults.iter().filter(|(_, ratio)| *ratio == 1.0).count();
            text += &format!(
                "default schedules: {mean:.3} of the time with the numbers before in the geometric mean, {n_same} of {} the same; slowest\n",
                self.defaults.len()
            );
            for (name, ratio) in self.defaults.iter().take(WORST) {
                text += &format!("  {ratio:6.3}  {name}\n");
            }
        }
        text
    }

    fn json(&self) -> serde_json::Value {
        let function = |function: &Ranked| {
            json!({
                "name": function.name, "correlation": function.correlation(), "spread": function.spread(),
                "predicted": function.predicted, "measured": function.measured,
            })
        };
        let report = |report: &Report| {
            json!({
                "median": report.median(), "regret": report.regret(),
                "regret_of_algorithms": report.regret_of_algorithms(),
                "functions": report.functions.iter().map(function).collect::<Vec<_>>(),
            })
        };
        let [before, after] = &self.reports;
        json!({
            "changed": self.changed, "fitted_on": self.n_fitted, "before": report(before), "after": report(after),
            "ratio_on_fitted": self.gain.as_ref().map(|gain| gain.ratio), "is_before": self.is_before(),
            "defaults": self.defaults,
        })
    }
}

/// The geometric mean of named ratios.
fn mean_of(ratios: &[(String, f64)]) -> f64 {
    geometric_mean(&ratios.iter().map(|(_, ratio)| *ratio).collect::<Vec<_>>())
}

/// Reads samples that were kept.
fn read_records(path: &Path) -> Result<Vec<Record>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::read(path, &error))?;
    let parse = |(n, line): (usize, &str)| {
        serde_json::from_str(line)
            .map_err(|error| Failure::data(format!("{}, line {}: {error}", path.display(), n + 1)))
    };
    text.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(parse).collect()
}

/// Keeps samples, one a line.
fn write_records(path: &Path, records: &[Record]) -> Result<(), Failure> {
    let mut text = String::new();
    for record in records {
        let line = serde_json::to_string(record);
        text += &line.map_err(|error| Failure::new(Exit::Internal, error.to_string()))?;
        text.push('\n');
    }
    output::write_file(path, text.as_bytes())
}

/// Where the numbers come from.
fn provenance(measured: &Measured, fitted: Option<&Fitted>, before: &Timing, passes: u32) -> Provenance {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = crate::proc_files::value_of(&cpuinfo, "model name").unwrap_or_else(|| "unknown".to_string());
    let processor = ProcessorId::host().map(|p| match p.model {
        Some(number) => format!("{model}, {} family {} model {number}", p.vendor, p.family),
        None => format!("{model}, {} part {}", p.vendor, p.family),
    });
    let notes = match fitted {
        Some(fitted) if fitted.is_before() => notes_of_before(fitted, before),
        _ => notes(measured, fitted, before),
    };
    Provenance {
        machine: processor.unwrap_or(model),
        method: Method::Measured,
        by: format!("tilewright {} calibrate, the median of {passes}", env!("CARGO_PKG_VERSION")),
        date: date(SystemTime::now()),
        notes,
    }
}

/// What to know of numbers that are those of before.
fn notes_of_before(fitted: &Fitted, before: &Timing) -> Vec<String> {
    let ratio = fitted.gain.as_ref().map_or(1.0, |gain| gain.ratio);
    vec![format!(
        "All numbers are those of {}: default schedules with others, fitted on {} functions, took {ratio:.3} of the time there.",
        before.name, fitted.n_fitted
    )]
}

/// What to know of numbers that were measured, and maybe fitted.
fn notes(measured: &Measured, fitted: Option<&Fitted>, before: &Timing) -> Vec<String> {
    let changed = fitted.map_or(&[][..], |fitted| &fitted.changed);
    let kept: Vec<String> = measured
        .numbers
        .rows()
        .into_iter()
        .map(|(key, _)| key)
        .filter(|key| !measured.keys.contains(key) && !changed.iter().any(|(other, _)| other == key))
        .collect();
    let mut notes = vec![format!("Not measured, but as in {}: {}.", before.name, kept.join(", "))];
    if let Some(Fitted { n_fitted, reports: [_, report], .. }) = fitted {
        let keys: Vec<&str> = changed.iter().map(|(key, _)| key.as_str()).collect();
        notes.push(format!(
            "Fitted on measured candidates of {n_fitted} functions: {}. Rank correlation over {} others: {:.3} in the median.",
            keys.join(", "),
            report.functions.len(),
            report.median()
        ));
    }
    notes
}

/// Each number beside what it was, `measured` where it was measured.
pub(crate) fn table(measured: &Measured, before: &Timing) -> String {
    let old = before.numbers.rows();
    let was = |key: &str| old.iter().find(|(other, _)| other == key).map_or("-", |(_, value)| value.as_str());
    let rows: Vec<(String, String)> = measured
        .numbers
        .rows()
        .into_iter()
        .map(|(key, value)| {
            let text = match measured.keys.contains(&key) {
                true => format!("{value} ({} in {})", was(&key), before.name),
                false => format!("{value} in {}, not measured", before.name),
            };
            (key, text)
        })
        .collect();
    output::table(&rows)
}

/// The same for other programs.
pub(crate) fn json(measured: &Measured, before: &Timing) -> serde_json::Value {
    let number = |value: &str| value.parse::<f64>().map_or_else(|_| json!(value == "true"), |n| json!(n));
    let numbers: serde_json::Map<String, serde_json::Value> =
        measured.numbers.rows().iter().map(|(key, value)| (key.clone(), number(value))).collect();
    json!({"before": before.name, "measured": measured.keys, "numbers": numbers})
}

/// A day as `YYYY-MM-DD`, in UTC.
fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`: years begin in March, so that a leap day is the
    // last of its year.
    let days = (seconds / 86_400) as i64 + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (d, m) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year + era * 400 + i64::from(m <= 2);
    format!("{year:04}-{m:02}-{d:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        let of = |days: u64| date(SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400 + 80_000));
        assert_eq!(
            [0, 59, 11_016, 19_782, 20_819].map(of),
            ["1970-01-01", "1970-03-01", "2000-02-29", "2024-02-29", "2027-01-01"]
        );
    }
}
