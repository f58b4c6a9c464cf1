//! What a comparison found: the record that is kept, and the table that is shown.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context;
use serde_json::{Value, json};

use super::args::{Args, Peer};
use crate::project;

/// What the figures depend on besides the models.
pub(super) fn heading(args: &Args, codegen: &str) -> Value {
    let ask = |program: &str, arguments: &[&str]| {
        project::output_of(project::command(program).args(arguments)).unwrap_or_else(|| "unknown".into())
    };
    // Earlier results are no change that could alter this one.
    let changes = ask("git", &["status", "--porcelain", "--", ".", ":!benches/results"]);
    let peers: Vec<&str> = args.peers().into_iter().map(Peer::name).collect();
    json!({
        "date": ask("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
        "machine": processor().unwrap_or_else(|| ask("uname", &["-m"])),
        "load": std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
        "commit": ask("git", &["rev-parse", "--short=12", "HEAD"]),
        "local_changes": !changes.is_empty(),
        "program": args.program,
        "codegen": codegen,
        "threads": args.threads,
        "rounds": args.rounds,
        "seconds": args.seconds,
        "peers": peers,
        "dims": args.dims,
        "shapes": args.shapes,
        "values": args.values,
        "options": args.options,
    })
}

/// The heading for people.
pub(super) fn describe(heading: &Value) -> String {
    let text = |key: &str| heading[key].as_str().unwrap_or_default().to_string();
    let changes = if heading["local_changes"] == true { " with local changes" } else { "" };
    format!(
        "{}, {}, commit {}{changes}, {}, {} threads, {} rounds of {} s",
        text("date"),
        text("machine"),
        text("commit"),
        text("codegen"),
        heading["threads"],
        heading["rounds"],
        heading["seconds"],
    )
}

/// The processor's name and the number of its cores that this process may use.
fn processor() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1))?;
    let cores = std::thread::available_parallelism().ok()?;
    Some(format!("{name} ({cores} cores)"))
}

/// The rounds of a model.
fn rounds(result: &Value) -> &[Value] {
    result["rounds"].as_array().map_or(&[], Vec::as_slice)
}

/// The peers that were measured, in the order of their names, which is that of [`Peer`].
fn peers(result: &Value) -> Vec<&str> {
    let round = rounds(result).first().and_then(Value::as_object);
    round.into_iter().flatten().map(|(name, _)| name.as_str()).filter(|name| *name != "ours").collect()
}

/// The median of a figure of a contestant over the rounds.
fn of(result: &Value, contestant: &str, key: &str) -> Option<f64> {
    median(rounds(result).iter().filter_map(|round| round[contestant][key].as_f64()).collect())
}

/// The median over the rounds of the best peer's time by ours; none where an answer is wrong or missing.
pub(super) fn figure(result: &Value) -> Option<f64> {
    if result["answer"]["agrees"] != true {
        return None;
    }
    let ratio = |round: &Value| {
        let time = |name: &str| round[name]["median_ms"].as_f64();
        let best = peers(result).into_iter().filter_map(time).min_by(f64::total_cmp)?;
        Some(best / time("ours")?)
    };
    median(rounds(result).iter().filter_map(ratio).collect())
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    (n > 0).then(|| (values[(n - 1) / 2] + values[n / 2]) / 2.0)
}

/// The line above the models.
pub(super) fn table_head(peers: &[&str]) -> String {
    let peers: String = peers.iter().map(|peer| format!("{peer:>13}")).collect();
    format!("{:24}{:>11}{peers}{:>11}   peak MiB, load ms: ours, peers", "median ms", "ours", "best/ours")
}

/// The line of one model, with what went wrong below.
pub(super) fn table_line(result: &Value) -> String {
    let number = |n: Option<f64>, digits: usize| n.map_or("-".to_string(), |n| format!("{n:.digits$}"));
    let peers = peers(result);
    let times: String =
        peers.iter().map(|peer| format!("{:>13}", number(of(result, peer, "median_ms"), 2))).collect();
    let all = |key: &str, scale: f64| {
        let contestants = std::iter::once(&"ours").chain(&peers);
        let list = contestants.map(|name| number(of(result, name, key).map(|n| n * scale), 0));
        list.collect::<Vec<_>>().join("/")
    };
    let mut line = format!(
        "{:24}{:>11}{times}{:>11}   {}, {}",
        result["model"].as_str().unwrap_or_default(),
        number(of(result, "ours", "median_ms"), 2),
        number(figure(result), 3),
        all("peak_mib", 1.0),
        all("load_s", 1e3),
    );
    for name in std::iter::once(&"ours").chain(&peers) {
        if let Some(error) = rounds(result).iter().find_map(|round| round[*name]["error"].as_str()) {
            line += &format!("\n  {name}: {error}");
        }
    }
    if result["answer"]["agrees"] != true {
        let why = |key: &str| result["answer"][key].as_str().map(str::to_string);
        line += &format!("\n  the answer is wrong: {}", why("why").or(why("error")).unwrap_or_default());
    }
    line
}

/// The geometric mean of all figures.
pub(super) fn summary(results: &[Value]) -> String {
    let figures: Vec<f64> = results.iter().filter_map(figure).collect();
    let mean = (figures.iter().map(|figure| figure.ln()).sum::<f64>() / figures.len() as f64).exp();
    format!("geometric mean of best/ours over {} of {} models: {mean:.3}", figures.len(), results.len())
}

/// Appends a record to those of earlier comparisons; where they are.
pub(super) fn keep(record: &Value) -> anyhow::Result<PathBuf> {
    let dir = project::path("benches/results");
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let path = dir.join("models.jsonl");
    let open = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    let written = open.and_then(|mut file| writeln!(file, "{record}"));
    written.with_context(|| path.display().to_string())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(agrees: bool, rounds: &[[Option<f64>; 3]]) -> Value {
        let time = |ms: Option<f64>| match ms {
            Some(ms) => json!({"median_ms": ms}),
            None => json!({"error": "crashed"}),
        };
        let round =
            |[ours, a, b]: &[Option<f64>; 3]| json!({"ours": time(*ours), "a": time(*a), "b": time(*b)});
        let rounds: Vec<Value> = rounds.iter().map(round).collect();
        json!({"model": "m", "rounds": rounds, "answer": {"agrees": agrees, "why": "all off"}})
    }

    #[test]
    fn the_figure_is_the_median_of_ratios_to_the_best_peer_of_each_round() {
        let rounds = [
            [Some(2.0), Some(4.0), Some(3.0)],
            [Some(2.0), Some(1.0), Some(9.0)],
            [Some(1.0), None, Some(2.0)],
        ];
        assert_eq!(figure(&result(true, &rounds)), Some(1.5));
        assert_eq!(figure(&result(false, &rounds)), None);
        assert_eq!(figure(&result(true, &[[None, Some(1.0), Some(1.0)]])), None);
    }

    #[test]
    fn what_went_wrong_is_below_the_line() {
        let line = table_line(&result(false, &[[Some(2.0), None, Some(3.0)]]));
        assert!(line.ends_with("\n  a: crashed\n  the answer is wrong: all off"), "{line}");
    }

    #[test]
    fn the_summary_is_of_the_models_that_have_a_figure() {
        let good = result(true, &[[Some(1.0), Some(4.0), Some(4.0)]]);
        let results = [good.clone(), result(true, &[[Some(1.0), Some(1.0), Some(2.0)]]), result(false, &[])];
        assert_eq!(summary(&results), "geometric mean of best/ours over 2 of 3 models: 2.000");
        assert_eq!(summary(&[good]), "geometric mean of best/ours over 1 of 1 models: 4.000");
    }
}
