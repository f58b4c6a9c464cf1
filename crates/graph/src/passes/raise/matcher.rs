//! Matching of fragments.

use crate::graph::Node;
use crate::ids::{NodeId, ValueId};
use crate::op::{BinaryOp, Op, ReduceKind, UnaryOp};
use crate::patch::View;

/// Matching helpers: each answers with the node matched and what the pattern leaves open.
pub(super) struct Matcher<'a> {
    pub(super) view: &'a View<'a>,
}

/// A product flattened to its factors.
pub(super) struct Product {
    pub(super) factors: Vec<ValueId>,
    pub(super) constant: f64,
    pub(super) nodes: Vec<NodeId>,
}

/// Two factors, and the same the other way round: a pattern may find its parts in either.
pub(super) type BothOrders = [(ValueId, ValueId); 2];

pub(super) fn is_near(value: f64, expected: f64) -> bool {
    (value - expected).abs() <= 1e-5 * expected.abs()
}

impl<'a> Matcher<'a> {
    pub(super) fn new(view: &'a View<'a>) -> Matcher<'a> {
        Matcher { view }
    }

    pub(super) fn node(&self, value: ValueId) -> Option<(NodeId, &'a Node)> {
        self.view.producer(value)
    }

    pub(super) fn unary(&self, value: ValueId, op: UnaryOp) -> Option<(NodeId, ValueId)> {
        let (id, node) = self.node(value)?;
        if node.op == Op::Unary(op) { Some((id, node.input(0)?)) } else { None }
    }

    pub(super) fn binary(&self, value: ValueId, op: BinaryOp) -> Option<(NodeId, [ValueId; 2])> {
        let (id, node) = self.node(value)?;
        if node.op == Op::Binary(op) { Some((id, [node.input(0)?, node.input(1)?])) } else { None }
    }

    /// `x + c`, in either order: the sum's node, x and c.
    pub(super) fn plus_constant(&self, value: ValueId) -> Option<(NodeId, ValueId, f64)> {
        let (id, [a, b]) = self.binary(value, BinaryOp::Add)?;
        match (self.view.splat(a), self.view.splat(b)) {
            (None, Some(c)) => Some((id, a, c)),
            (Some(c), None) => Some((id, b, c)),
            _ => None,
        }
    }

    /// A reduction over one or more axes that keeps them, of the kind: its node, operand and axes.
    pub(super) fn reduction(
        &self,
        value: ValueId,
        kind: ReduceKind,
    ) -> Option<(NodeId, ValueId, &'a [usize])> {
        let (id, node) = self.node(value)?;
        match &node.op {
            Op::Reduce(attrs) if attrs.kind == kind && attrs.keep_dims => {
                Some((id, node.input(0)?, &attrs.axes))
            }
            _ => None,
        }
    }

    /// Flattens products and quotients by constants, through values that nobody else uses.
    pub(super) fn product(&self, value: ValueId) -> Product {
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
    pub(super) fn two_factors(&self, value: ValueId, constant: f64) -> Option<(BothOrders, Vec<NodeId>)> {
        let product = self.product(value);
        match product.factors.as_slice() {
            &[a, b] if is_near(product.constant, constant) => Some(([(a, b), (b, a)], product.nodes)),
            _ => None,
        }
    }
}
