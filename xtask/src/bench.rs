//! `cargo xtask bench`: speed and answers against ONNX Runtime and OpenVINO on the same models and inputs.
//!
//! What it costs to leave extents open is compared likewise: `--peers fixed`.
//!
//! Rounds take turns (ours, each peer, ours, ...), every measurement in a fresh process, so that a machine whose speed
//! drifts still gives fair ratios. The figure of a model is the median over the rounds of the best peer's time by
//! ours: above 1, we are faster. A wrong answer has no speed.
//!
//! The raw record is kept in `benches/results`, headed by date, machine, commit and options: a figure without these
//! cannot be compared with anything.

mod args;
mod record;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::cargo::Cargo;
use crate::project::Verdict;
use crate::{build, project};
pub(crate) use args::Args;
use args::Peer;

/// The task: whether every model was measured and its answers agree.
pub(crate) fn run(args: &Args) -> Verdict {
    let python = project::venv_python();
    for peer in args.peers().into_iter().filter(|&peer| peer != Peer::Fixed) {
        let import = format!("import numpy, onnx, {}", peer.name());
        if project::output_of(project::command(&python).args(["-c", &import])).is_none() {
            bail!("{} is not installed; `cargo xtask setup --peers` installs it", peer.name());
        }
    }
    let models = if args.models.is_empty() { materialised_models()? } else { absolute(&args.models)? };
    let cargo = Cargo::detect();
    let program = build::tilewright_or(args.program.as_deref(), &cargo)?;
    let codegen = args.codegen.as_deref().unwrap_or(cargo.default_codegen());
    let scratch = project::target_dir().join("bench");
    std::fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    let campaign = Campaign { args, program, codegen, python, scratch };

    let heading = record::heading(args, codegen);
    println!("{}", record::describe(&heading));
    println!("{}", record::table_head(&args.peers().into_iter().map(Peer::name).collect::<Vec<_>>()));
    let mut results = Vec::new();
    for model in &models {
        let result = campaign.model(model)?;
        println!("{}", record::table_line(&result));
        results.push(result);
    }
    println!("{}", record::summary(&results));
    let complete = results.iter().all(|result| record::figure(result).is_some());
    let mut line = heading;
    line["models"] = results.into();
    println!("kept in {}", record::keep(&line)?.display());
    Ok(complete)
}

struct Campaign<'a> {
    args: &'a Args,
    program: PathBuf,
    codegen: &'a str,
    python: PathBuf,
    /// Where inputs and outputs lie.
    scratch: PathBuf,
}

impl Campaign<'_> {
    /// Measures one model; its record.
    fn model(&self, model: &Path) -> anyhow::Result<Value> {
        let args = self.args;
        let name = model.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let inputs = self.scratch.join("inputs.npz");
        let mut make = self.script("inputs");
        make.arg(model).arg(&inputs);
        for (option, list) in [("--dim", &args.dims), ("--shape", &args.shapes), ("--value", &args.values)] {
            make.args(list.iter().flat_map(|pair| [option, pair.as_str()]));
        }
        let made = last_object(&mut make);
        if let Some(error) = made.get("error") {
            bail!("no inputs for {name}: {}", error.as_str().unwrap_or_default());
        }
        let outputs = |contestant: &str| self.scratch.join(format!("{contestant}.npz"));
        let mut rounds = Vec::new();
        for _ in 0..args.rounds.max(1) {
            let mut round = json!({"ours": last_object(&mut self.ours(model, &inputs, &outputs("ours")))});
            for peer in args.peers() {
                if peer == Peer::Fixed {
                    let mut fixed = self.ours(model, &inputs, &outputs(peer.name()));
                    let dims = made["dims"].as_array().into_iter().flatten().filter_map(Value::as_str);
                    fixed.args(dims.flat_map(|pair| ["--dim", pair]));
                    round[peer.name()] = last_object(&mut fixed);
                    continue;
                }
                let mut measure = self.script("run");
                measure.arg(peer.name()).arg(model).arg(&inputs).arg(outputs(peer.name()));
                measure.args([
                    "--threads",
                    &args.threads.to_string(),
                    "--seconds",
                    &args.seconds.to_string(),
                ]);
                measure.env("OMP_NUM_THREADS", args.threads.to_string());
                round[peer.name()] = last_object(&mut measure);
            }
            rounds.push(round);
        }
        let answer = match args.reference() {
            None => json!({"agrees": true, "why": "no peer to compare with"}),
            Some(reference) => {
                last_object(self.script("agree").arg(outputs(reference.name())).arg(outputs("ours")))
            }
        };
        Ok(json!({"model": name, "inputs": made["inputs"], "rounds": rounds, "answer": answer}))
    }

    fn ours(&self, model: &Path, inputs: &Path, outputs: &Path) -> Command {
        let args = self.args;
        let mut command = project::command(&self.program);
        command.arg("bench").arg(model).arg("--inputs").arg(inputs).arg("--outputs").arg(outputs);
        command.args(["--threads", &args.threads.to_string(), "--seconds", &args.seconds.to_string()]);
        command.args(["--codegen", self.codegen, "--json"]).args(&args.options);
        command
    }

    fn script(&self, verb: &str) -> Command {
        let mut command = project::command(&self.python);
        command.arg(project::path("tools/peers.py")).arg(verb);
        command
    }
}

/// The object that is the last line of a command's output, or `{"error": ...}`.
fn last_object(command: &mut Command) -> Value {
    let error = |message: &str| json!({"error": gist(message)});
    match command.output() {
        Err(failure) => error(&failure.to_string()),
        Ok(output) if !output.status.success() => error(&String::from_utf8_lossy(&output.stderr)),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let object = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
            object.unwrap_or_else(|| error("no figures"))
        }
    }
}

/// The line of a message that says most: where it says that it is an error, else the last one with any text.
fn gist(message: &str) -> &str {
    let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.clone().next_back();
    lines.find(|line| line.starts_with("error")).or(last).unwrap_or("no message")
}

fn materialised_models() -> anyhow::Result<Vec<PathBuf>> {
    let dir = project::target_dir().join("models");
    let entries = std::fs::read_dir(&dir)
        .with_context(|| format!("{} is not there; `cargo xtask models` makes it", dir.display()))?;
    let mut models = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    models.retain(|path| path.extension().is_some_and(|extension| extension == "onnx"));
    models.sort();
    Ok(models)
}

/// The comparison runs in the repository's root, the user may stand elsewhere.
fn absolute(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    paths.iter().map(|path| path.canonicalize().with_context(|| path.display().to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::gist;

    #[test]
    fn errors_are_told_by_the_line_that_says_most() {
        assert_eq!(gist("error: no kernel for `n`\n\n  hint: fix `n`\n\n"), "error: no kernel for `n`");
        assert_eq!(gist("Traceback:\n  line 1\nValueError: no\n\n"), "ValueError: no");
        assert_eq!(gist(" \n"), "no message");
    }
}
