//! Recovers composite operators from the fragments exporters write.
//!
//! Each rule matches at the last node of a fragment. Inner values must have no other user, so that the fragment
//! really disappears. Constants are compared with the tolerance of binary32 rounding.

mod activations;
mod attention;
mod norms;

pub use attention::raise_attention;

use crate::graph::{Graph, Node};
use crate::ids::{NodeId, ValueId};
use crate::op::{BinaryOp, Op, ReduceKind, UnaryOp};
use crate::pass::PassError;
use crate::patch::{Rule, View, rewrite};

/// Raises every fragment that is recognised.
pub fn raise(graph: &mut Graph) -> Result<bool, PassError> {
    rewrite(graph, RULES, 8)
}

const RULES: &[Rule] = &[
    Rule { name: "raise_gelu", apply: activations::gelu },
    Rule { name: "raise_gelu_tanh", apply: activations::gelu_tanh },
    Rule { name: "raise_hard_swish", apply: activations::hard_swish },
    Rule { name: "raise_swish", apply: activations::swish },
    Rule { name: "raise_mish", apply: activations::mish },
    Rule { name: "raise_softmax", apply: norms::softmax },
    Rule { name: "raise_layer_norm", apply: norms::layer_norm },
    Rule { name: "raise_rms_norm", apply: norms::rms_norm },
    Rule { name: "raise_norm_scale", apply: norms::scale },
    Rule { name: "raise_norm_bias", apply: norms::bias },
];

/// Matching helpers: each answers with the node matched and what the pattern leaves open.
struct Matcher<'a> {
    view: &'a View<'a>,
}

/// A product flattened to its factors.
struct Product {
    factors: Vec<ValueId>,
    constant: f64,
    nodes: Vec<NodeId>,
}

/// Two factors, and the same the other way round: a pattern may find its parts in either.
type BothOrders = [(ValueId, ValueId); 2];

fn is_near(value: f64, expected: f64) -> bool {
    (value - expected).abs() <= 1e-5 * expected.abs()
}

impl<'a> Matcher<'a> {
    fn new(view: &'a View<'a>) -> Matcher<'a> {
        Matcher { view }
    }

    fn node(&self, value: ValueId) -> Option<(NodeId, &'a Node)> {
        self.view.producer(value)
    }

    fn unary(&self, value: ValueId, op: UnaryOp) -> Option<(NodeId, ValueId)> {
        let (id, node) = self.node(value)?;
        if node.op == Op::Unary(op) { Some((id, node.input(0)?)) } else { None }
    }

    fn binary(&self, value: ValueId, op: BinaryOp) -> Option<(NodeId, [ValueId; 2])> {
        let (id, node) = self.node(value)?;
        if node.op == Op::Binary(op) { Some((id, [node.input(0)?, node.input(1)?])) } else { None }
    }

    /// `x + c`, in either order: the sum's node, x and c.
    fn plus_constant(&self, value: ValueId) -> Option<(NodeId, ValueId, f64)> {
        let (id, [a, b]) = self.binary(value, BinaryOp::Add)?;
        match (self.view.splat(a), self.view.splat(b)) {
            (None, Some(c)) => Some((id, a, c)),
            (Some(c), None) => Some((id, b, c)),
            _ => None,
        }
    }

    /// A reduction over one or more axes that keeps them, of the kind: its node, operand and axes.
    fn reduction(&self, value: ValueId, kind: ReduceKind) -> Option<(NodeId, ValueId, &'a [usize])> {
        let (id, node) = self.node(value)?;
        match &node.op {
            Op::Reduce(attrs) if attrs.kind == kind && attrs.keep_dims => {
                Some((id, node.input(0)?, &attrs.axes))
            }
            _ => None,
        }
    }

    /// Flattens products and quotients by constants, through values that nobody else uses.
    fn product(&self, value: ValueId) -> Product {
        let mut product = Product { factors: Vec::new(), constant: 1.0, nodes: Vec::new() };
        let mut open = vec![value];
        while let Some(next) = open.pop() {
            if let Some(constant) = self.view.splat(next) {
                product.constant *= constant;
                continue;
            }
            let inner = next == value || self.view.is_used_once(next);
            match (inner, self.binary(next, BinaryOp::Mul), self.binary(next, BinaryOp::Div)) {
                (true, Some((id, [a, b])), _) => {
                    product.nodes.push(id);
                    open.extend([b, a]);
                }
                (true, None, Some((id, [a, b]))) => match self.view.splat(b) {
                    Some(constant) => {
                        product.constant /= constant;
                        product.nodes.push(id);
                        open.push(a);
                    }
                    None => product.factors.push(next),
                },
                _ => product.factors.push(next),
            }
        }
        product
    }

    /// A product of two values and a constant near `constant`: both orders of the two.
    fn two_factors(&self, value: ValueId, constant: f64) -> Option<(BothOrders, Vec<NodeId>)> {
        let product = self.product(value);
        match product.factors.as_slice() {
            &[a, b] if is_near(product.constant, constant) => Some(([(a, b), (b, a)], product.nodes)),
            _ => None,
        }
    }
}
