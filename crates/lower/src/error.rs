//! Errors of lowering: everything that cannot be compiled, with where and why.

use std::fmt;

use tilewright_graph::{Graph, NodeId, ValueId};

/// Why a graph cannot be lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// What has no lowering: of [`crate::lower`] every node, of [`crate::plan`] the first.
    #[error("{}", Gaps(.0))]
    Unsupported(Vec<Gap>),
    /// The compiler contradicts itself.
    #[error("internal error in lowering: {0}")]
    Internal(String),
}

/// What of a graph has a gap: without it the rest can be lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Anchor {
    /// A node.
    Node(NodeId),
    /// A value, whoever makes it and uses it.
    Value(ValueId),
}

/// A node or value that cannot be lowered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where it is in the graph.
    pub anchor: Anchor,
    /// The operator; `Input` for an input of the graph.
    pub op: &'static str,
    /// The names of the nodes in the model; of an input, its own.
    pub nodes: Vec<String>,
    /// The types of its operands, or that of the value.
    pub operands: Vec<String>,
    /// Why not.
    pub reason: String,
}

impl Gap {
    /// The gap of a node.
    pub fn of_node(graph: &Graph, id: NodeId, reason: impl Into<String>) -> Gap {
        let node = graph.node(id);
        Gap {
            anchor: Anchor::Node(id),
            op: node.op.name(),
            nodes: node.provenance.names().map(str::to_string).collect(),
            operands: node.inputs.iter().flatten().map(|&value| show(graph, value)).collect(),
            reason: reason.into(),
        }
    }

    /// The gap of a value: it is the node's that makes it, or of the input that it is.
    pub fn of_value(graph: &Graph, value: ValueId, reason: impl Into<String>) -> Gap {
        let node = graph.producer(value).map(|node| graph.node(node));
        let name = || graph.value(value).name.iter().map(ToString::to_string).collect();
        let names = |node: &tilewright_graph::Node| node.provenance.names().map(str::to_string).collect();
        Gap {
            anchor: Anchor::Value(value),
            op: node.map_or("Input", |node| node.op.name()),
            nodes: node.map_or_else(name, names),
            operands: vec![show(graph, value)],
            reason: reason.into(),
        }
    }
}

fn show(graph: &Graph, value: ValueId) -> String {
    graph.ty(value).display(&graph.symbols).to_string()
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.op)?;
        if !self.nodes.is_empty() {
            write!(f, " (node `{}`)", self.nodes.join("`, `"))?;
        }
        write!(f, " on ({}): {}", self.operands.join(", "), self.reason)
    }
}

struct Gaps<'a>(&'a [Gap]);

impl fmt::Display for Gaps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} node(s) cannot be compiled:", self.0.len())?;
        self.0.iter().try_for_each(|gap| write!(f, "\n  {gap}"))
    }
}
