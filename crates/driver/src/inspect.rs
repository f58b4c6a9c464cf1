//! What a model is made of.

use std::collections::BTreeMap;

use tilewright_onnx::OnnxModel;
use tilewright_onnx::proto::tensor::dtype_from_onnx;
use tilewright_onnx::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto};
use tilewright_run::Spec;

use crate::compiler::{Compiler, Source};
use crate::cost::{self, Cost};
use crate::error::CompileError;
use crate::gap::Gap;
use crate::specs;
use crate::stack::on_own_stack;
use crate::survey::{Survey, survey};

/// What a model is made of, and what of it is not supported.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReport {
    /// Name of the main graph.
    pub name: String,
    /// Name and version of what made the file.
    pub producer: String,
    /// Version of the format.
    pub ir_version: i64,
    /// Versions of the operator sets, by domain.
    pub opsets: BTreeMap<String, i64>,
    /// What the file says of itself, as key and value.
    pub metadata: Vec<(String, String)>,
    /// Nodes, also those of graphs inside nodes and of functions.
    pub nodes: usize,
    /// Elements of constants.
    pub parameters: u64,
    /// Bytes of constants.
    pub parameter_bytes: u64,
    /// Operators and how many nodes have each, most frequent first.
    pub operators: Vec<(String, usize)>,
    /// The model's own functions, in its order.
    pub functions: Vec<FunctionReport>,
    /// Whether it says how to train it, which is not for running it.
    pub has_training_info: bool,
    /// What is left after simplification; none where import has gaps.
    pub simplified: Option<Simplified>,
    /// Everything that the compiler's targets do not support.
    pub gaps: Vec<Gap>,
}

/// A function of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionReport {
    /// Domain of the operator that it defines.
    pub domain: String,
    /// Name of the operator that it defines.
    pub name: String,
    /// Nodes of its body, also those of graphs inside nodes.
    pub nodes: usize,
}

/// A model after simplification.
#[derive(Clone, Debug, PartialEq)]
pub struct Simplified {
    /// Inputs, in order.
    pub inputs: Vec<Spec>,
    /// Outputs, in order.
    pub outputs: Vec<Spec>,
    /// What running it takes, before fusion.
    pub cost: Cost,
}

impl Compiler {
    /// Looks into a model without compiling it: what it is made of, and everything that stands in the way of
    /// [`Compiler::compile`].
    ///
    /// # Errors
    /// Where there is no model, or one that is not valid. What is not supported is no error.
    pub fn inspect(&self, model: impl Into<Source>) -> Result<ModelReport, CompileError> {
        let source = model.into();
        on_own_stack(|| {
            let model = self.load(source, &mut ())?;
            let Survey { graph, gaps } = survey(&model, self.options())?;
            let simplified = graph.map(|graph| Simplified {
                inputs: specs::inputs(&graph),
                outputs: specs::outputs(&graph),
                cost: cost::of(&graph),
            });
            Ok(report(&model, simplified, gaps))
        })
    }
}

fn report(model: &OnnxModel, simplified: Option<Simplified>, gaps: Vec<Gap>) -> ModelReport {
    let proto = &model.proto;
    let mut counts = Counts::default();
    counts.graph(model.graph());
    proto.functions.iter().for_each(|function| counts.nodes(&function.node));
    let nodes = counts.n_nodes();
    let mut operators: Vec<(String, usize)> = counts.operators.into_iter().collect();
    // By name where equal: the sort is stable.
    operators.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let opset = |domain: &str, version| (domain_name(domain).to_string(), version);
    let entry = |key: &str, value: &str| (key.to_string(), value.to_string());
    ModelReport {
        name: model.graph().name().to_string(),
        producer: format!("{} {}", proto.producer_name(), proto.producer_version()).trim().to_string(),
        ir_version: proto.ir_version(),
        opsets: proto.opset_import.iter().map(|o| opset(o.domain(), o.version())).collect(),
        metadata: proto.metadata_props.iter().map(|prop| entry(prop.key(), prop.value())).collect(),
        nodes,
        parameters: counts.parameters,
        parameter_bytes: counts.parameter_bytes,
        operators,
        functions: proto.functions.iter().map(function).collect(),
        has_training_info: !proto.training_info.is_empty(),
        simplified,
        gaps,
    }
}

fn function(function: &FunctionProto) -> FunctionReport {
    let mut counts = Counts::default();
    counts.nodes(&function.node);
    FunctionReport {
        domain: domain_name(function.domain()).to_string(),
        name: function.name().to_string(),
        nodes: counts.n_nodes(),
    }
}

/// The default domain has two names.
fn domain_name(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
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
        let sparse = graph.sparse_initializer.iter().filter_map(|s| s.values.as_ref());
        sparse.for_each(|values| self.tensor(values));
        self.nodes(&graph.node);
    }

    fn nodes(&mut self, nodes: &[NodeProto]) {
        for node in nodes {
            let name = match domain_name(node.domain()) {
                "ai.onnx" => node.op_type().to_string(),
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
        let extents = proto.dims.iter().map(|&dim| u64::try_from(dim).unwrap_or(0));
        let count = extents.fold(1u64, u64::saturating_mul);
        let bits = dtype_from_onnx(proto.data_type()).map_or(0, |dtype| dtype.bits());
        let bytes = count.saturating_mul(bits as u64).div_ceil(8);
        self.parameters = self.parameters.saturating_add(count);
        self.parameter_bytes = self.parameter_bytes.saturating_add(bytes);
    }

    fn n_nodes(&self) -> usize {
        self.operators.values().sum()
    }
}
