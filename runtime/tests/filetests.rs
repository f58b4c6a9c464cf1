//! File tests: each file under `tests/filetests` holds a plan, what to do with it, and what comes of it.
//!
//! The first line is `test: KIND`; then the plan, a line `----`, and a transcript. In a transcript, lines that begin at the margin
//! are input, and the indented ones after them are what comes of it; `BLESS=1` rewrites these.
//!
//! - `test: run` assembles a model of the plan with the kernels `double` and `add`. `weights V..` sets the weights as `f32`;
//!   `run NAME: TYPE[EXTENTS] = V.., ..` runs, and gives outputs or the error.
//! - `test: validate` gives the faults of the plan; `with LINE` first replaces the line of the same entry, or adds it, for this
//!   case only; `and LINE` does the same to what is there by then.
//! - `test: parse` gives the plan as printed, or where and why it does not parse; `with` likewise.
//!
//! Every plan that parses must also print to a text that gives the same plan.
#![cfg(feature = "text")]

mod common;
#[path = "../../tools/golden_files.rs"]
mod golden_files;

use std::fmt::Write;
use std::sync::Arc;

use common::{add, double};
use tilewright_dtype::DType;
use tilewright_runtime::artifact::Manifest;
use tilewright_runtime::plan::Plan;
use tilewright_runtime::{Bytes, KernelFn, Kernels, Model, NoHostOps, Session, TensorView};

/// The plan of a text, which must come back from what it prints.
fn parse(text: &str) -> Result<Plan, String> {
    let plan: Plan = text.parse().map_err(|error: tilewright_runtime::plan::ParseError| error.to_string())?;
    let again: Plan = plan.to_string().parse().expect("what is printed parses");
    assert_eq!(again, plan, "the text form does not come back:\n{plan}");
    Ok(plan)
}

/// What an entry is known by: `s1 =`, `s1 "`, `b1:`, `input "x"`, `arena`, ...
fn key(line: &str) -> &str {
    let line = line.trim_start();
    let quoted = |at: usize| line[at + 1..].find('"').map_or(line.len(), |end| at + end + 2);
    match line.find([':', '=', '"', ' ']) {
        Some(at) if line[at..].starts_with([':', '=']) => &line[..=at],
        Some(at) if matches!(&line[..at], "input" | "output") => &line[..quoted(at + 1)],
        Some(at) if line[at + 1..].starts_with(['=', '"']) => &line[..at + 2],
        Some(at) if &line[..at] == "block" => &line[..=line.find(':').unwrap_or(at)],
        Some(at) => &line[..at],
        None => line,
    }
}

/// The plan with the line of the same entry replaced, or the line added.
fn with(plan: &str, line: &str) -> String {
    let is_same = |old: &&str| key(old) == key(line);
    match plan.lines().find(is_same) {
        Some(_) => plan.lines().map(|old| format!("{}\n", if is_same(&old) { line } else { old })).collect(),
        None => format!("{plan}{line}\n"),
    }
}

/// What a kind of test keeps from one line of the transcript to the next.
struct State {
    plan: String,
    edited: Option<String>,
    weights: Vec<u8>,
    session: Option<Session>,
}

impl State {
    fn step(&mut self, kind: &str, command: &str) -> Option<String> {
        let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
        match (kind, word) {
            ("validate" | "parse", "with" | "and") => {
                let edited = with(self.edited.as_ref().unwrap_or(&self.plan), rest);
                self.edited = Some(edited);
                None
            }
            ("run", "weights") => {
                self.weights = rest.split_whitespace().flat_map(|v| number(v, DType::F32)).collect();
                None
            }
            ("run", "run") => Some(self.run(rest)),
            _ => panic!("`{command}` is nothing to do in a test of `{kind}`"),
        }
    }

    /// The end of a case: what comes of the plan as edited.
    fn outcome(&mut self, kind: &str) -> String {
        let text = self.edited.take().unwrap_or_else(|| self.plan.clone());
        match (kind, parse(&text)) {
            (_, Err(error)) => error,
            ("parse", Ok(plan)) => plan.to_string(),
            (_, Ok(plan)) => match plan.validate() {
                Ok(()) => "sound".into(),
                Err(faults) => faults.iter().map(|fault| format!("{fault}\n")).collect(),
            },
        }
    }

    fn run(&mut self, inputs: &str) -> String {
        if self.session.is_none() {
            let plan = parse(&self.plan).expect("the plan parses");
            let code = plan.kernels.iter().map(|kernel| match kernel.name.as_str() {
                "double" => double as KernelFn,
                "add" => add as KernelFn,
                other => panic!("there is no kernel `{other}`"),
            });
            let kernels = Kernels::new(code.collect(), None);
            let (manifest, weights) = (Manifest::default(), Bytes::new(self.weights.clone()));
            // SAFETY: the kernels do what the plans of the tests say: f32 elements, one a task or `sizes[0]` of them.
            #[allow(unsafe_code, reason = "kernels without a compiler")]
            let model = unsafe { Model::assemble(manifest, plan, kernels, weights, Arc::new(NoHostOps)) };
            match model {
                Ok(model) => self.session = Some(model.session()),
                Err(error) => return format!("error: {error}"),
            }
        }
        let inputs: Vec<_> = inputs.split(", ").filter(|input| !input.is_empty()).collect();
        let inputs: Vec<_> = join_extents(&inputs).iter().map(|input| tensor(input)).collect();
        let views: Vec<_> =
            inputs.iter().map(|(dtype, dims, bytes)| TensorView::new(*dtype, dims, bytes)).collect();
        let session = self.session.as_mut().expect("made above");
        match session.run(&views) {
            Err(error) => format!("error: {error}"),
            Ok(outputs) => outputs.iter().fold(String::new(), |mut text, (name, view)| {
                let elements =
                    view.bytes.chunks_exact(view.dtype.bytes()).map(|bytes| show(bytes, view.dtype));
                let elements = elements.collect::<Vec<_>>().join(" ");
                writeln!(text, "{name}: {}{:?} = {elements}", view.dtype, view.dims).expect("a string");
                text
            }),
        }
    }
}

/// Inputs are parted at commas, those between extents too.
fn join_extents(parts: &[&str]) -> Vec<String> {
    parts.iter().fold(Vec::new(), |mut inputs: Vec<String>, part| {
        match inputs.last_mut() {
            Some(last) if !last.contains(']') => *last += &format!(", {part}"),
            _ => inputs.push((*part).to_string()),
        }
        inputs
    })
}

/// `NAME: TYPE[EXTENTS] = V V ..`.
fn tensor(text: &str) -> (DType, Vec<usize>, Vec<u8>) {
    let bad = || panic!("`{text}` is no tensor");
    let (declared, values) = text.split_once('=').unwrap_or_else(bad);
    let (_, ty) = declared.split_once(':').unwrap_or_else(bad);
    let (dtype, dims) = ty.trim().trim_end_matches(']').split_once('[').unwrap_or_else(bad);
    let dtype: DType = dtype.parse().expect("an element type");
    let dims = dims.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    let dims = dims.map(|dim| dim.parse().expect("an extent")).collect();
    (dtype, dims, values.split_whitespace().flat_map(|value| number(value, dtype)).collect())
}

fn number(text: &str, dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F32 => text.parse::<f32>().expect("a number").to_le_bytes().to_vec(),
        DType::I64 => text.parse::<i64>().expect("a number").to_le_bytes().to_vec(),
        other => panic!("elements of type {other} cannot be written here"),
    }
}

fn show(bytes: &[u8], dtype: DType) -> String {
    match dtype {
        DType::F32 => f32::from_le_bytes(bytes.try_into().expect("four bytes")).to_string(),
        DType::I64 => i64::from_le_bytes(bytes.try_into().expect("eight bytes")).to_string(),
        other => panic!("elements of type {other} cannot be shown here"),
    }
}

/// The transcript with what comes of each of its commands now.
fn replay(kind: &str, plan: &str, transcript: &str) -> String {
    let mut state = State { plan: plan.into(), edited: None, weights: Vec::new(), session: None };
    let mut out = String::new();
    let commands: Vec<&str> = transcript.lines().filter(|line| !line.is_empty()).collect();
    let indented = |text: &str| {
        text.lines().map(|line| format!("{}\n", format!("  {line}").trim_end())).collect::<String>()
    };
    if kind != "run" && commands.first().is_none_or(|first| first.starts_with(' ')) {
        out += &indented(&state.outcome(kind));
    }
    let is_input = |line: &&&str| !line.starts_with(' ');
    let inputs: Vec<(usize, &&str)> =
        commands.iter().enumerate().filter(|(_, line)| is_input(line)).collect();
    for &(at, command) in &inputs {
        if command.starts_with("//") {
            writeln!(out, "{command}").expect("a string");
            continue;
        }
        writeln!(out, "{command}").expect("a string");
        if let Some(text) = state.step(kind, command) {
            out += &indented(&text);
        }
        let goes_on = commands.get(at + 1).is_some_and(|next| next.starts_with("and "));
        if kind != "run" && !goes_on {
            out += &indented(&state.outcome(kind));
        }
    }
    out
}

#[test]
fn files() {
    golden_files::check("tests/filetests", 5, |input, transcript| {
        let (head, plan) = input.split_once('\n').expect("a first line");
        let kind = head.strip_prefix("test: ").expect("`test: KIND` in the first line");
        replay(kind, plan, transcript)
    });
}
