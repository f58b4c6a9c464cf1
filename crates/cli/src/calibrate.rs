//! `tilewright calibrate`: measures how fast this machine is, for the cost model, and writes it down.

use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::json;
use tilewright::Machine;
use tilewright::machine::measure::timing::{Measured, measure};
use tilewright::machine::{Method, Processor, Provenance, Timing, TimingFile};

use crate::failure::Failure;
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
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let machine = Machine::host();
    let before = &machine.timing;
    let passes: Vec<Measured> = (0..args.passes).map(|_| measure(&before.numbers)).collect();
    let Some(measured) = Measured::median(&passes) else {
        return Err(Failure::new(crate::failure::Exit::Internal, "measurements have no median"));
    };
    let file = TimingFile {
        provenance: provenance(&measured, before, args.passes),
        processors: Processor::host().into_iter().collect(),
        timing: measured.numbers.clone(),
    };
    let text = file.text().map_err(|error| Failure::new(crate::failure::Exit::Internal, error))?;
    if let Some(path) = &args.output {
        output::write_file(path, text.as_bytes())?;
    }
    match (args.json, &args.output) {
        (true, _) => output::print_json(&json(&measured, before)),
        (false, None) => output::print(&text),
        (false, Some(_)) => output::print(&table(&measured, before)),
    }
}

/// Where the numbers come from.
fn provenance(measured: &Measured, before: &Timing, passes: u32) -> Provenance {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = crate::doctor::value_of(&cpuinfo, "model name").unwrap_or_else(|| "unknown".to_string());
    let processor = Processor::host().map(|p| match p.models {
        Some([number, _]) => format!("{model}, {} family {} model {number}", p.vendor, p.family),
        None => format!("{model}, {} part {}", p.vendor, p.family),
    });
    let kept: Vec<String> = measured
        .numbers
        .rows()
        .into_iter()
        .filter_map(|(key, _)| (!measured.keys.contains(&key)).then_some(key))
        .collect();
    Provenance {
        machine: processor.unwrap_or(model),
        method: Method::Measured,
        by: format!("tilewright {} calibrate, the median of {passes}", env!("CARGO_PKG_VERSION")),
        date: date(SystemTime::now()),
        notes: vec![format!("Not measured, but as in {}: {}.", before.name, kept.join(", "))],
    }
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
    use std::time::Duration;

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
