//! `tilewright inspect`: what a model or an artifact is made of.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tilewright_driver::cost::Cost;
use tilewright_driver::inspect::Simplified;
use tilewright_driver::run::inspect::{LevelReport, ProgramReport, inspect};
use tilewright_driver::run::{Extent, Spec};
use tilewright_driver::runtime::plan::Nesting;
use tilewright_driver::{Compiler, Gap};

use crate::failure::Failure;
use crate::load;
use crate::options::CompileArgs;
use crate::output;
use crate::source::Source;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model to look into
    #[arg(value_name = "MODEL.onnx|MODEL.twm")]
    model: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: CompileArgs,
}

/// Facts about a model, in the order they are printed.
struct Report {
    facts: Vec<(&'static str, Value, String)>,
    /// Lists under a heading.
    lists: Vec<(&'static str, Value, Vec<String>)>,
}

impl Report {
    fn fact(&mut self, key: &'static str, value: impl Into<Value>, text: String) {
        self.facts.push((key, value.into(), text));
    }

    fn list(&mut self, key: &'static str, value: Vec<Value>, lines: Vec<String>) {
        self.lists.push((key, value.into(), lines));
    }

    fn specs(&mut self, key: &'static str, specs: &[Spec]) {
        self.list(key, specs.iter().map(spec_json).collect(), specs.iter().map(Spec::to_string).collect());
    }

    /// What the model's maker says of it.
    fn metadata(&mut self, entries: &[(String, String)]) {
        let entries = entries.iter();
        self.list(
            "metadata",
            entries.clone().map(|(key, value)| json!({"key": key, "value": value})).collect(),
            entries.map(|(key, value)| format!("{key}: {value}")).collect(),
        );
    }

    /// What running the simplified model takes.
    fn cost(&mut self, cost: &Cost) {
        self.fact("nodes_simplified", cost.nodes, cost.nodes.to_string());
        let open: Vec<String> = cost.open.iter().map(|name| format!("{name} = 1")).collect();
        let at = if open.is_empty() { String::new() } else { format!(" at {}", open.join(", ")) };
        self.fact("flops", cost.flops, format!("{}{at}", output::count(cost.flops)));
        self.fact("weight_bytes", cost.weight_bytes, output::bytes(cost.weight_bytes));
        let text = format!("{}{at}, without fusion", output::bytes(cost.activation_bytes));
        self.fact("activation_bytes", cost.activation_bytes, text);
    }

    fn json(self) -> Value {
        let facts = self.facts.into_iter().map(|(key, value, _)| (key.to_string(), value));
        let lists = self.lists.into_iter().map(|(key, value, _)| (key.to_string(), value));
        Value::Object(facts.chain(lists).collect())
    }

    fn text(&self) -> String {
        let rows: Vec<_> =
            self.facts.iter().map(|(key, _, text)| (key.replace('_', " "), text.clone())).collect();
        let mut text = output::table(&rows);
        for (key, _, lines) in self.lists.iter().filter(|(_, _, lines)| !lines.is_empty()) {
            text += &format!("{}:\n", key.replace('_', " "));
            lines.iter().for_each(|line| text += &format!("  {line}\n"));
        }
        text
    }
}

/// An input or output, for other programs.
fn spec_json(spec: &Spec) -> Value {
    let extent = |dim: &Extent| match dim {
        Extent::Fixed(n) => (*n).into(),
        Extent::Open(name) => name.as_str().into(),
    };
    let dims: Option<Vec<Value>> = spec.dims.as_ref().map(|dims| dims.iter().map(extent).collect());
    let mut json = json!({"name": spec.name, "dtype": spec.dtype.name(), "dims": dims});
    if !spec.nesting.is_empty() {
        let name = |nesting: &Nesting| match nesting {
            Nesting::Sequence => "sequence",
            Nesting::Optional => "optional",
        };
        json["nesting"] = spec.nesting.iter().map(name).collect();
    }
    json
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let report = match Source::of(&args.model)? {
        Source::Onnx(path) => onnx(&path, &args.options)?,
        Source::Artifact(path) => {
            args.options.refuse(&format!("{} is compiled already", path.display()))?;
            artifact(&path)?
        }
    };
    if args.json { output::print_json(&report.json()) } else { output::print(&report.text()) }
}

fn onnx(path: &Path, options: &CompileArgs) -> Result<Report, Failure> {
    let model = Compiler::from(options.options()?).inspect(path);
    let model = model.map_err(|error| Failure::from(error).about(path))?;
    let mut report = Report { facts: Vec::new(), lists: Vec::new() };
    report.fact("format", "onnx", "ONNX".to_string());
    report.fact("name", model.name.as_str(), model.name.clone());
    report.fact("producer", model.producer.as_str(), model.producer.clone());
    report.fact("ir_version", model.ir_version, model.ir_version.to_string());
    let opsets: Vec<String> =
        model.opsets.iter().map(|(domain, version)| format!("{domain} {version}")).collect();
    report.fact("opsets", json!(model.opsets), opsets.join(", "));
    report.fact("nodes", model.nodes, model.nodes.to_string());
    report.fact("parameters", model.parameters, output::count(model.parameters as f64));
    report.fact("parameter_bytes", model.parameter_bytes, output::bytes(model.parameter_bytes));
    let trains = model.has_training_info;
    report.fact("training_info", trains, yes_no(trains));
    let operators = model.operators.iter();
    report.list(
        "operators",
        operators.clone().map(|(name, count)| json!({"operator": name, "count": count})).collect(),
        operators.map(|(name, count)| format!("{count:5} {name}")).collect(),
    );
    let functions = model.functions.iter();
    report.list(
        "functions",
        functions.clone().map(|f| json!({"domain": f.domain, "name": f.name, "nodes": f.nodes})).collect(),
        functions.map(|f| format!("{}.{}: {} nodes", f.domain, f.name, f.nodes)).collect(),
    );
    if let Some(Simplified { inputs, outputs, cost }) = &model.simplified {
        report.specs("inputs", inputs);
        report.specs("outputs", outputs);
        report.cost(cost);
    }
    let gaps = model.gaps.iter();
    report.fact("supported", model.gaps.is_empty(), yes_no(model.gaps.is_empty()));
    report.list("unsupported", gaps.clone().map(gap_json).collect(), gaps.map(Gap::to_string).collect());
    report.metadata(&model.metadata);
    Ok(report)
}

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_string()
}

/// A gap as one object.
fn gap_json(gap: &Gap) -> Value {
    json!({
        "stage": gap.stage.name(), "operator": gap.operator, "domain": gap.domain, "opset": gap.opset,
        "node": gap.node, "reason": gap.reason, "hint": gap.hint,
    })
}

fn artifact(path: &Path) -> Result<Report, Failure> {
    let bytes = std::fs::read(path).map_err(|error| Failure::read(path, &error))?;
    let artifact = inspect(&bytes, &load::isa()?).map_err(|error| Failure::data(error).about(path))?;
    let mut report = Report { facts: Vec::new(), lists: Vec::new() };
    report.fact("format", "twm", "Tilewright artifact".to_string());
    for (key, text) in
        [("name", &artifact.name), ("compiler", &artifact.compiler), ("target", &artifact.target)]
    {
        report.fact(key, text.as_str(), text.clone());
    }
    let options: Vec<String> = artifact.options.iter().map(|(key, value)| format!("{key}={value}")).collect();
    report.fact("options", options.clone(), options.join(" "));
    for (key, n) in [
        ("file_bytes", artifact.file_bytes),
        ("code_bytes", artifact.code_bytes),
        ("weight_bytes", artifact.weight_bytes),
        ("arena_bytes", artifact.arena_bytes),
    ] {
        report.fact(key, n, output::bytes(n));
    }
    for (key, n) in [
        ("run_time_blocks", artifact.run_time_blocks),
        ("kernels", artifact.kernels),
        ("instructions", artifact.instructions),
    ] {
        report.fact(key, n, n.to_string());
    }
    let is_sound = artifact.weights_sound;
    report.fact("weights_sound", is_sound, if is_sound { "yes" } else { "NO: damaged" }.to_string());
    let levels = &artifact.levels;
    report.list(
        "levels",
        levels.iter().map(level_json).collect(),
        levels.iter().flat_map(level_lines).collect(),
    );
    report.specs("inputs", &artifact.inputs);
    report.specs("outputs", &artifact.outputs);
    report.metadata(&artifact.metadata);
    Ok(report)
}

/// What of a program does not depend on how it was specialised.
fn program_text(program: &ProgramReport) -> String {
    format!("{} kernels, arena {}", program.kernels, output::bytes(program.arena_bytes))
}

fn variant_json(program: &ProgramReport) -> Value {
    let extents: serde_json::Map<String, Value> =
        program.extents.iter().map(|(name, n)| (name.clone(), (*n).into())).collect();
    json!({"extents": extents, "kernels": program.kernels, "arena_bytes": program.arena_bytes})
}

fn level_json(level: &LevelReport) -> Value {
    json!({
        "target": level.target, "triple": level.triple, "features": level.features, "chosen": level.is_chosen,
        "code_bytes": level.code_bytes, "kernels": level.program.kernels, "arena_bytes": level.program.arena_bytes,
        "variants": level.specialised.iter().map(variant_json).collect::<Vec<_>>(),
        "device": level.device.as_ref().map(|device| json!({
            "target": device.target, "assembler": device.assembler, "formats": device.formats, "kernels": device.kernels,
            "arena_bytes": device.arena_bytes,
        })),
    })
}

/// A level, its code for a device, and its specialised programs, a line each.
fn level_lines(level: &LevelReport) -> Vec<String> {
    let mut lines = vec![format!(
        "{}: {}, code {}{}; {} {}",
        level.target,
        program_text(&level.program),
        output::bytes(level.code_bytes),
        if level.is_chosen { ", taken here" } else { "" },
        level.triple,
        level.features.join(" "),
    )];
    if let Some(device) = &level.device {
        let formats: Vec<String> =
            device.formats.iter().map(|(name, n)| format!("{name} {}", output::bytes(*n))).collect();
        let assembler = if device.assembler.is_empty() { "" } else { ", by " };
        lines.push(format!(
            "  on {}: {} kernels, arena {}, {}{assembler}{}",
            device.target,
            device.kernels,
            output::bytes(device.arena_bytes),
            formats.join(", "),
            device.assembler,
        ));
    }
    let specialised = level.specialised.iter();
    lines.extend(specialised.map(|p| format!("  {}: {}", output::extents(&p.extents), program_text(p))));
    lines
}
