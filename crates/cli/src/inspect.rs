//! `tilewright inspect`: what a model or an artifact is made of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tilewright::graph::Graph;
use tilewright::onnx::OnnxModel;
use tilewright::onnx::proto::tensor::dtype_from_onnx;
use tilewright::onnx::proto::{AttributeProto, GraphProto, TensorProto};
use tilewright::run::inspect::{LevelReport, ProgramReport, inspect};
use tilewright::run::{Extent, Spec};
use tilewright::runtime::plan::Nesting;
use tilewright::{Gap, Survey};

use crate::cost;
use crate::failure::Failure;
use crate::model::{self, Source};
use crate::options::CompileArgs;
use crate::output;

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
    let fail = |error: tilewright::CompileError| Failure::from(error).about(path);
    let model = OnnxModel::load(path).map_err(|error| fail(error.into()))?;
    let mut report = Report { facts: Vec::new(), lists: Vec::new() };
    header(&model, &mut report);
    let Survey { graph, gaps } = tilewright::survey(&model, &options.options()?).map_err(fail)?;
    if let Some(graph) = &graph {
        simplified(graph, &mut report)?;
    }
    report.fact("supported", gaps.is_empty(), if gaps.is_empty() { "yes" } else { "no" }.to_string());
    report.list(
        "unsupported",
        gaps.iter().map(gap_json).collect(),
        gaps.iter().map(Gap::to_string).collect(),
    );
    Ok(report)
}

/// A gap as one object.
fn gap_json(gap: &Gap) -> Value {
    json!({
        "stage": gap.stage.name(), "operator": gap.operator, "domain": gap.domain, "opset": gap.opset,
        "node": gap.node, "reason": gap.reason, "hint": gap.hint,
    })
}

/// What the file says of itself.
fn header(model: &OnnxModel, report: &mut Report) {
    let proto = &model.proto;
    report.fact("format", "onnx", "ONNX".to_string());
    report.fact("name", model.graph().name(), model.graph().name().to_string());
    let producer = format!("{} {}", proto.producer_name(), proto.producer_version());
    report.fact("producer", producer.trim(), producer.trim().to_string());
    report.fact("ir_version", proto.ir_version(), proto.ir_version().to_string());
    let domain = |name: &str| if name.is_empty() { "ai.onnx".to_string() } else { name.to_string() };
    let opsets: BTreeMap<String, i64> =
        proto.opset_import.iter().map(|opset| (domain(opset.domain()), opset.version())).collect();
    let text: Vec<String> = opsets.iter().map(|(name, version)| format!("{name} {version}")).collect();
    report.fact("opsets", json!(opsets), text.join(", "));
    let mut counts = Counts::default();
    counts.graph(model.graph());
    for function in &proto.functions {
        counts.nodes(&function.node);
    }
    let n_nodes: usize = counts.operators.values().sum();
    report.fact("nodes", n_nodes, n_nodes.to_string());
    report.fact("parameters", counts.parameters, output::count(counts.parameters as f64));
    report.fact("parameter_bytes", counts.parameter_bytes, output::bytes(counts.parameter_bytes));
    let mut operators: Vec<(&String, &usize)> = counts.operators.iter().collect();
    operators.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let lines = operators.iter().map(|(name, count)| format!("{count:5} {name}")).collect();
    let values = operators.iter().map(|(name, count)| json!({"operator": name, "count": count})).collect();
    report.list("operators", values, lines);
}

/// Counts over a graph and the graphs inside its nodes.
#[derive(Default)]
struct Counts {
    operators: BTreeMap<String, usize>,
    parameters: u64,
    parameter_bytes: u64,
}

impl Counts {
    fn graph(&mut self, graph: &GraphProto) {
        graph.initializer.iter().for_each(|tensor| self.tensor(tensor));
        graph
            .sparse_initializer
            .iter()
            .filter_map(|s| s.values.as_ref())
            .for_each(|values| self.tensor(values));
        self.nodes(&graph.node);
    }

    fn nodes(&mut self, nodes: &[tilewright::onnx::proto::NodeProto]) {
        for node in nodes {
            let name = match node.domain() {
                "" | "ai.onnx" => node.op_type().to_string(),
                domain => format!("{domain}.{}", node.op_type()),
            };
            *self.operators.entry(name).or_default() += 1;
            node.attribute.iter().for_each(|attribute| self.attribute(attribute));
        }
    }

    fn attribute(&mut self, attribute: &AttributeProto) {
        attribute.g.iter().chain(&attribute.graphs).for_each(|graph| self.graph(graph));
    }

    fn tensor(&mut self, proto: &TensorProto) {
        let count =
            proto.dims.iter().map(|&dim| u64::try_from(dim).unwrap_or(0)).fold(1u64, u64::saturating_mul);
        let bits = dtype_from_onnx(proto.data_type()).map_or(0, |dtype| dtype.bits());
        self.parameters = self.parameters.saturating_add(count);
        self.parameter_bytes =
            self.parameter_bytes.saturating_add(count.saturating_mul(bits as u64).div_ceil(8));
    }
}

/// What is left after simplification, and what it costs.
fn simplified(graph: &Graph, report: &mut Report) -> Result<(), Failure> {
    report.specs("inputs", &model::graph_inputs(graph));
    report.specs("outputs", &model::graph_outputs(graph));
    let cost = cost::of(graph);
    report.fact("nodes_simplified", cost.nodes, cost.nodes.to_string());
    let open: Vec<String> = cost.open.iter().map(|name| format!("{name} = 1")).collect();
    let at = if open.is_empty() { String::new() } else { format!(" at {}", open.join(", ")) };
    report.fact("flops", cost.flops, format!("{}{at}", output::count(cost.flops)));
    report.fact("weight_bytes", cost.weight_bytes, output::bytes(cost.weight_bytes));
    let text = format!("{}{at}, without fusion", output::bytes(cost.activation_bytes));
    report.fact("activation_bytes", cost.activation_bytes, text);
    Ok(())
}

fn artifact(path: &Path) -> Result<Report, Failure> {
    let bytes = std::fs::read(path).map_err(|error| Failure::read(path, &error))?;
    let artifact = inspect(&bytes, &model::isa()?).map_err(|error| Failure::data(error).about(path))?;
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
    let metadata = artifact.metadata.iter();
    report.list(
        "metadata",
        metadata.clone().map(|(key, value)| json!({"key": key, "value": value})).collect(),
        metadata.map(|(key, value)| format!("{key}: {value}")).collect(),
    );
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
