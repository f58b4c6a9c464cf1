//! The verifier: every violated invariant of a graph, with its place.

use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::{Graph, ValueDef};
use crate::ids::{NodeId, RegionId, ValueId};
use crate::infer;
use crate::op::Op;
use crate::symbol::SymbolTable;
use crate::types::{Shape, Type};

/// Where an invariant is violated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// At a node, shown by its operator and the names it stands for.
    Node(NodeId, String),
    /// In a region as a whole.
    Region(RegionId),
}

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Violation {
    /// Where.
    pub place: Location,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Node(node, description) => write!(f, "{node} {description}"),
            Location::Region(region) => write!(f, "{region}"),
        }
    }
}

/// All violations, in order of place; empty for a valid graph.
pub fn verify(graph: &Graph) -> Vec<Violation> {
    let symbols = graph.symbols.clone();
    let mut verifier = Verifier {
        graph,
        symbols,
        violations: Vec::new(),
        homes: FxHashMap::default(),
        holders: FxHashMap::default(),
    };
    for region in graph.live_regions() {
        verifier.region(region);
    }
    verifier.violations
}

struct Verifier<'a> {
    graph: &'a Graph,
    /// A copy that inference may add to.
    symbols: SymbolTable,
    violations: Vec<Violation>,
    /// The region each live node was seen in.
    homes: FxHashMap<NodeId, RegionId>,
    /// The node that holds each inner region.
    holders: FxHashMap<RegionId, NodeId>,
}

impl Verifier<'_> {
    fn at_node(&mut self, node: NodeId, message: impl Into<String>) {
        let data = self.graph.node(node);
        let names = data.provenance.names().collect::<Vec<_>>().join("+");
        let place = Location::Node(node, format!("{} `{names}`", data.op.name()));
        self.violations.push(Violation { place, message: message.into() });
    }

    fn at_region(&mut self, region: RegionId, message: impl Into<String>) {
        self.violations.push(Violation { place: Location::Region(region), message: message.into() });
    }

    fn region(&mut self, region: RegionId) {
        let graph = self.graph;
        let data = graph.region(region);
        let mut defined: FxHashSet<ValueId> = FxHashSet::default();
        for (position, &param) in data.params.iter().enumerate() {
            if !graph.is_value(param) || graph.value(param).def != ValueDef::Param(region, position) {
                self.at_region(region, format!("parameter {position} does not point back to it"));
            }
            defined.insert(param);
        }
        for &node in &data.nodes {
            if let Some(home) = self.homes.insert(node, region) {
                self.at_node(node, format!("is in {home} and again in {region}"));
                continue;
            }
            self.node(region, node, &defined);
            defined.extend(&graph.node(node).outputs);
        }
        for (position, value) in data.results.iter().enumerate() {
            if !defined.contains(value) {
                self.at_region(region, format!("result {position} ({value}) is not defined in it"));
            }
        }
        if region == graph.main() && data.result_names.len() != data.results.len() {
            self.at_region(region, "outputs and their names differ in number");
        }
    }

    fn node(&mut self, region: RegionId, node: NodeId, defined: &FxHashSet<ValueId>) {
        let graph = self.graph;
        let data = graph.node(node);
        if data.region != region {
            self.at_node(node, format!("belongs to {} but is in {region}", data.region));
        }
        let mut operands_fit = true;
        for (position, value) in data.inputs.iter().enumerate() {
            if let Some(value) = value
                && !defined.contains(value)
            {
                operands_fit = false;
                self.at_node(
                    node,
                    format!("operand {position} ({value}) is not defined before it in {region}"),
                );
            }
        }
        for (position, &output) in data.outputs.iter().enumerate() {
            if !graph.is_value(output) || graph.value(output).def != ValueDef::Output(node, position) {
                self.at_node(node, format!("result {position} does not point back to it"));
            }
        }
        for inner in data.op.regions() {
            if let Some(holder) = self.holders.insert(inner, node) {
                self.at_node(node, format!("{inner} is already held by {holder}"));
            }
            if !graph.is_region(inner) || graph.region(inner).owner != Some(node) {
                operands_fit = false;
                self.at_node(node, format!("{inner} is not its own"));
            }
        }
        if operands_fit {
            self.params(node);
            self.types(node);
        }
    }

    /// Operands of a node with regions against the regions' parameters.
    fn params(&mut self, node: NodeId) {
        let graph = self.graph;
        let data = graph.node(node);
        // (region, operand of each of its parameters from the first checked one on, first checked parameter)
        let checks: Vec<(RegionId, usize, usize)> = match &data.op {
            Op::If(attrs) => vec![(attrs.then_region, 1, 0), (attrs.else_region, 1, 0)],
            Op::Loop(attrs) => vec![(attrs.body, 2, 2)],
            Op::Scan(attrs) => vec![(attrs.body, 0, 0)],
            _ => return,
        };
        for (region, first_operand, first_param) in checks {
            let params = &graph.region(region).params;
            let operands = data.inputs.get(first_operand..).unwrap_or_default();
            if params.len() != operands.len() + first_param {
                let (n, m) = (params.len(), operands.len() + first_param);
                self.at_node(node, format!("{region} has {n} parameters, but {m} values are passed"));
                continue;
            }
            for (position, (operand, &param)) in operands.iter().zip(&params[first_param..]).enumerate() {
                let Some(operand) = *operand else {
                    self.at_node(node, format!("operand {} is missing", position + first_operand));
                    continue;
                };
                let scanned = matches!(&data.op, Op::Scan(attrs)
                    if (attrs.states..attrs.states + attrs.input_axes.len()).contains(&position));
                if !scanned && !is_compatible(graph.ty(param), graph.ty(operand)) {
                    let (param, operand) = (self.show(graph.ty(param)), self.show(graph.ty(operand)));
                    self.at_node(
                        node,
                        format!("passes {operand} for a parameter of {region} of type {param}"),
                    );
                }
            }
        }
    }

    fn types(&mut self, node: NodeId) {
        let graph = self.graph;
        let data = graph.node(node);
        if matches!(data.op, Op::Extern(_)) {
            return;
        }
        match infer::facts_of(graph, &mut self.symbols, node) {
            Err(error) => self.at_node(node, error.message),
            Ok(facts) => {
                for (position, (&output, facts)) in data.outputs.iter().zip(&facts).enumerate() {
                    if !is_compatible(graph.ty(output), &facts.ty) {
                        let (declared, inferred) = (self.show(graph.ty(output)), self.show(&facts.ty));
                        self.at_node(
                            node,
                            format!("result {position} is {declared}, but inference says {inferred}"),
                        );
                    }
                }
            }
        }
    }

    fn show(&self, ty: &Type) -> String {
        ty.display(&self.symbols).to_string()
    }
}

/// Whether a value could have both types: equal but for what either does not know.
pub fn is_compatible(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Tensor(a), Type::Tensor(b)) => {
            a.dtype == b.dtype
                && match (&a.shape, &b.shape) {
                    (Shape::Ranked(a), Shape::Ranked(b)) => {
                        let may_equal =
                            |(a, b): (&crate::Dim, &crate::Dim)| a == b || (a - b).as_const().is_none();
                        a.len() == b.len() && a.iter().zip(b).all(may_equal)
                    }
                    (Shape::Unranked, _) | (_, Shape::Unranked) => true,
                }
        }
        (Type::Sequence(a), Type::Sequence(b)) | (Type::Optional(a), Type::Optional(b)) => {
            is_compatible(a, b)
        }
        (Type::Optional(inner), other) | (other, Type::Optional(inner)) => is_compatible(inner, other),
        (Type::Tensor(_), Type::Sequence(_)) | (Type::Sequence(_), Type::Tensor(_)) => false,
    }
}
