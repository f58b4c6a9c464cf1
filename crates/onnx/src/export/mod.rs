//! Export: from the graph IR to an ONNX model.
//!
//! Every operator becomes one ONNX node, or a few. Symbolic extents among attributes become shape arithmetic on
//! the values that define the symbols. The opset is the least one, from 21 on, that has all operators used.
//! Constants of all regions become initializers of the main graph, which subgraphs see.

mod build;
mod dims;
mod elementwise;
mod movement;
mod nn;
mod nodes;
mod opset;
mod sequence;

use std::collections::{BTreeMap, HashMap, HashSet};

use tilewright_graph::op::Op;
use tilewright_graph::tensor::Tensor;
use tilewright_graph::{DType, Dim, Graph, NodeId, RegionId, SymbolId, SymbolKind, ValueId};

use crate::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto,
};
use crate::tensor;

/// The opset of exported models that need no newer one.
const BASE_OPSET: i64 = 21;

/// An operator that has no ONNX form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operator} `{node}` cannot be exported: {reason}")]
pub struct ExportError {
    /// Name of the graph operator.
    pub operator: &'static str,
    /// Names of the user's nodes it stands for.
    pub node: String,
    /// Why.
    pub reason: String,
}

type Result<T> = std::result::Result<T, String>;

/// Exports a graph. Weights are shared with the graph, not copied.
pub fn export(graph: &Graph) -> std::result::Result<ModelProto, ExportError> {
    let mut exporter = Exporter {
        graph,
        names: HashMap::new(),
        used: HashSet::new(),
        node_names: HashSet::new(),
        definitions: definitions(graph),
        initializers: Vec::new(),
        constants: HashMap::new(),
        bodies: Vec::new(),
        opset: BASE_OPSET,
        label: String::new(),
    };
    exporter.model()
}

/// Where each symbol's value can be read: an input's extent, or that of the node result that makes it.
fn definitions(graph: &Graph) -> BTreeMap<SymbolId, (ValueId, usize)> {
    let mut definitions = graph.symbol_definitions();
    for &input in graph.inputs() {
        for (axis, dim) in graph.dims(input).unwrap_or_default().iter().enumerate() {
            if let Some(symbol) = dim.as_symbol()
                && graph.symbols[symbol].kind == SymbolKind::Input
            {
                definitions.entry(symbol).or_insert((input, axis));
            }
        }
    }
    definitions
}

/// The nodes of one graph under construction, and the extents that it computes already.
#[derive(Default)]
struct Body {
    nodes: Vec<NodeProto>,
    extents: HashMap<Dim, String>,
}

/// A graph node under export.
struct Item<'g> {
    id: NodeId,
    op: &'g Op,
    /// Names of the operands, empty for absent ones.
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl Item<'_> {
    fn input(&self, position: usize) -> &str {
        self.inputs.get(position).map_or("", String::as_str)
    }

    /// How many operands it has at least, by the operator table.
    fn least_inputs(&self) -> usize {
        *self.op.input_arity().start()
    }
}

struct Exporter<'g> {
    graph: &'g Graph,
    names: HashMap<ValueId, String>,
    used: HashSet<String>,
    node_names: HashSet<String>,
    definitions: BTreeMap<SymbolId, (ValueId, usize)>,
    initializers: Vec<TensorProto>,
    /// Small integer vectors that are initializers already.
    constants: HashMap<Vec<i64>, String>,
    bodies: Vec<Body>,
    opset: i64,
    /// Name for the nodes being made.
    label: String,
}

impl<'g> Exporter<'g> {
    fn model(&mut self) -> std::result::Result<ModelProto, ExportError> {
        let graph = self.graph;
        let symbols = &graph.symbols;
        let output_names = graph.region(graph.main()).result_names.clone();
        self.used.extend(output_names.iter().cloned());
        let mut input = Vec::new();
        for &value in graph.inputs() {
            let name = self.fresh(graph.value(value).name.as_deref().unwrap_or("input"));
            self.names.insert(value, name.clone());
            input.push(build::value_info(&name, graph.ty(value), symbols));
        }
        // A value that is an output under its own name gets that name; the other outputs are copies.
        for (name, &value) in output_names.iter().zip(graph.outputs()) {
            if graph.producer(value).is_some() && graph.constant(value).is_none() {
                self.names.entry(value).or_insert_with(|| name.clone());
            }
        }
        self.bodies.push(Body::default());
        self.region(graph.main())?;
        let mut output = Vec::new();
        for (name, &value) in output_names.iter().zip(graph.outputs()) {
            if self.names.get(&value) != Some(name) {
                let source = self.name(value);
                self.push("Identity", "", 1, vec![source], vec![name.clone()], Vec::new());
            }
            output.push(build::value_info(name, graph.ty(value), symbols));
        }
        let body = self.bodies.pop().unwrap_or_default();
        let name = if graph.name.is_empty() { "main" } else { &graph.name };
        let proto = GraphProto {
            node: body.nodes,
            name: Some(name.to_owned()),
            initializer: std::mem::take(&mut self.initializers),
            input,
            output,
            ..GraphProto::default()
        };
        Ok(self.wrap(proto))
    }

    fn wrap(&self, graph: GraphProto) -> ModelProto {
        let entry = |(key, value): (&String, &String)| StringStringEntryProto {
            key: Some(key.clone()),
            value: Some(value.clone()),
        };
        // The IR version that came with the opset.
        let ir_version = match self.opset {
            ..=22 => 10,
            23 => 11,
            24 => 12,
            25 | 26 => 13,
            _ => 14,
        };
        ModelProto {
            ir_version: Some(ir_version),
            opset_import: vec![OperatorSetIdProto { domain: Some(String::new()), version: Some(self.opset) }],
            producer_name: Some("tilewright".to_owned()),
            producer_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            graph: Some(graph),
            metadata_props: self.graph.metadata.iter().map(entry).collect(),
            ..ModelProto::default()
        }
    }

    /// Exports the nodes of a region into the innermost body.
    fn region(&mut self, region: RegionId) -> std::result::Result<(), ExportError> {
        for &id in &self.graph.region(region).nodes {
            let node = self.graph.node(id);
            let provenance = node.provenance.names().collect::<Vec<_>>().join("+");
            self.label = if provenance.is_empty() { node.op.name().to_owned() } else { provenance };
            if let Op::Constant(tensor) = &node.op {
                for &value in &node.outputs {
                    self.constant(value, tensor);
                }
                continue;
            }
            let inputs =
                node.inputs.iter().map(|input| input.map_or(String::new(), |v| self.name(v))).collect();
            let outputs = node.outputs.iter().map(|&value| self.name(value)).collect();
            let item = Item { id, op: &node.op, inputs, outputs };
            let label = self.label.clone();
            self.need_types(&item);
            self.node(&item).map_err(|reason| ExportError {
                operator: node.op.name(),
                node: label,
                reason,
            })?;
        }
        Ok(())
    }

    /// A region as a subgraph. Its first parameters become the subgraph's inputs, the captures behind them are
    /// seen from outside under their names there.
    fn subgraph(&mut self, region: RegionId, formals: usize, captures: &[String]) -> Result<GraphProto> {
        let graph = self.graph;
        let params = &graph.region(region).params;
        let mut input = Vec::new();
        for (position, &param) in params.iter().enumerate() {
            if position < formals {
                let name = self.name(param);
                input.push(build::value_info(&name, graph.ty(param), &graph.symbols));
            } else {
                let outside = captures.get(position - formals).ok_or("a capture is missing")?;
                self.names.insert(param, outside.clone());
            }
        }
        let label = self.label.clone();
        self.bodies.push(Body::default());
        let done = self.region(region).map_err(|error| error.to_string());
        let mut output = Vec::new();
        for &value in &graph.region(region).results {
            // Results must be made inside, each under a name of its own.
            let name = self.fresh("result");
            let source = self.name(value);
            self.push("Identity", "", 1, vec![source], vec![name.clone()], Vec::new());
            output.push(build::value_info(&name, graph.ty(value), &graph.symbols));
        }
        let body = self.bodies.pop().unwrap_or_default();
        done?;
        self.label = label;
        let name = Some(format!("{region}"));
        Ok(GraphProto { node: body.nodes, name, input, output, ..GraphProto::default() })
    }

    /// A name that nothing has, near `stem`.
    fn fresh(&mut self, stem: &str) -> String {
        let mut name = stem.to_owned();
        let mut suffix = 0;
        while name.is_empty() || self.used.contains(&name) {
            suffix += 1;
            name = format!("{stem}_{suffix}");
        }
        self.used.insert(name.clone());
        name
    }

    /// The name of a value.
    fn name(&mut self, value: ValueId) -> String {
        if let Some(name) = self.names.get(&value) {
            return name.clone();
        }
        let stem = self.graph.value(value).name.as_deref().map_or_else(|| value.to_string(), str::to_owned);
        let name = self.fresh(&stem);
        self.names.insert(value, name.clone());
        name
    }

    fn constant(&mut self, value: ValueId, tensor: &Tensor) {
        let name = self.name(value);
        self.initializers.push(tensor::to_proto(tensor, &name));
    }

    /// A new initializer.
    fn initializer(&mut self, stem: &str, tensor: &Tensor) -> String {
        let name = self.fresh(stem);
        self.initializers.push(tensor::to_proto(tensor, &name));
        name
    }

    /// An initializer that is a vector of integers.
    fn ints(&mut self, values: &[i64]) -> String {
        if let Some(name) = self.constants.get(values) {
            return name.clone();
        }
        let name = self.initializer("const", &Tensor::vector(values));
        self.constants.insert(values.to_vec(), name.clone());
        name
    }

    fn scalar(&mut self, dtype: DType, value: f64) -> Result<String> {
        let tensor = Tensor::scalar_of(dtype, value).ok_or(format!("constants of {dtype} cannot be made"))?;
        Ok(self.initializer("const", &tensor))
    }

    /// Requires an opset.
    fn need(&mut self, opset: i64) {
        self.opset = self.opset.max(opset);
    }

    /// Adds a node. It keeps its first `least` operands, absent or not.
    fn push(
        &mut self,
        op_type: &str,
        label: &str,
        least: usize,
        mut input: Vec<String>,
        output: Vec<String>,
        attribute: Vec<AttributeProto>,
    ) {
        // Trailing operands that are absent are left out, but for those that have to be named.
        while input.len() > least && input.last().is_some_and(String::is_empty) {
            input.pop();
        }
        let mut name = if label.is_empty() { op_type.to_owned() } else { label.to_owned() };
        let mut suffix = 0;
        while !self.node_names.insert(name.clone()) {
            suffix += 1;
            name = format!("{label}_{suffix}");
        }
        let node = NodeProto {
            input,
            output,
            name: Some(name),
            op_type: Some(op_type.to_owned()),
            attribute,
            ..NodeProto::default()
        };
        if let Some(body) = self.bodies.last_mut() {
            body.nodes.push(node);
        }
    }

    /// Adds a node with one new result, and gives its name.
    fn emit(&mut self, op_type: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        let output = self.fresh("t");
        let inputs = inputs.iter().map(|&input| input.to_owned()).collect();
        let label = self.label.clone();
        self.push(op_type, &label, 0, inputs, vec![output.clone()], attributes);
        output
    }

    /// Adds the node that gives the results of `item`.
    fn finish(&mut self, item: &Item<'_>, op_type: &str, inputs: &[&str], attributes: Vec<AttributeProto>) {
        let inputs = inputs.iter().map(|&input| input.to_owned()).collect();
        let label = self.label.clone();
        self.push(op_type, &label, item.least_inputs(), inputs, item.outputs.clone(), attributes);
    }

    /// The node of `item` with its operands as they are.
    fn plain(&mut self, item: &Item<'_>, op_type: &str, attributes: Vec<AttributeProto>) -> Result<()> {
        let label = self.label.clone();
        self.push(
            op_type,
            &label,
            item.least_inputs(),
            item.inputs.clone(),
            item.outputs.clone(),
            attributes,
        );
        Ok(())
    }

    fn operand(&self, item: &Item<'_>, position: usize) -> Result<ValueId> {
        self.graph.node(item.id).input(position).ok_or_else(|| format!("operand {position} is missing"))
    }

    fn operand_dtype(&self, item: &Item<'_>, position: usize) -> Result<DType> {
        let tensor = self.graph.tensor_type(self.operand(item, position)?);
        tensor.map(|tensor| tensor.dtype).ok_or_else(|| format!("operand {position} is not a tensor"))
    }

    fn operand_dims(&self, item: &Item<'_>, position: usize) -> Result<&'g [Dim]> {
        let dims = self.graph.dims(self.operand(item, position)?);
        dims.ok_or_else(|| format!("the rank of operand {position} is not known"))
    }
}
