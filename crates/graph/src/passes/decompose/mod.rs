//! Late legalisation: composite operators as primitives, for targets and shapes that have no kernel for them whole.
//!
//! The inverse of `raise`; the caller says which operators it wants taken apart. An operator, or a form of one, that
//! has no entry here stays as it is.

mod attention;
mod emit;
mod norms;

use crate::graph::Graph;
use crate::ids::NodeId;
use crate::op::*;
use crate::pass::{Pass, PassError};
use crate::patch::{Patch, Rule, Source, View, rewrite_where};
use emit::Emit;

/// Decomposes every operator that `wanted` accepts and that has a decomposition.
pub fn decompose(graph: &mut Graph, wanted: &dyn Fn(&Op) -> bool) -> Result<bool, PassError> {
    rewrite_where(graph, RULES, 8, wanted)
}

/// The pass, with a fixed choice of operators.
pub struct Decompose(pub fn(&Op) -> bool);

impl Pass for Decompose {
    fn name(&self) -> &str {
        "decompose"
    }

    fn run(&self, graph: &mut Graph) -> Result<bool, PassError> {
        decompose(graph, &self.0)
    }
}

const RULES: &[Rule] = &[
    Rule { name: "decompose_attention", apply: attention::attention },
    Rule { name: "decompose_softmax", apply: norms::softmax },
    Rule { name: "decompose_layer_norm", apply: norms::layer_norm },
    Rule { name: "decompose_channel_norm", apply: norms::channel_norm },
    Rule { name: "decompose_gemm", apply: gemm },
    Rule { name: "decompose_activation", apply: activation },
];

/// `alpha op(A) op(B) + beta C` as a product, scalings and a sum.
fn gemm(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Gemm(attrs) = &node.op else { return None };
    let (mut emit, a) = Emit::new(view, node)?;
    let flags = MatMulAttrs { transpose_a: attrs.transpose_a, transpose_b: attrs.transpose_b };
    let mut value = emit.patch.add(Op::MatMul(flags), [a, Source::Old(node.input(1)?)]);
    if attrs.alpha != Real(1.0) {
        value = emit.with_constant(BinaryOp::Mul, value, attrs.alpha.to_f64())?;
    }
    if let Some(c) = node.input(2).map(Source::Old) {
        let scaled = match attrs.beta {
            Real(1.0) => c,
            beta => emit.with_constant(BinaryOp::Mul, c, beta.to_f64())?,
        };
        value = emit.binary(BinaryOp::Add, value, scaled);
    }
    emit.finish(value)
}

fn activation(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let (mut emit, x) = Emit::new(view, node)?;
    let gate = match &node.op {
        Op::Unary(UnaryOp::Gelu) => {
            let scaled = emit.with_constant(BinaryOp::Mul, x, 0.5f64.sqrt())?;
            let erf = emit.unary(UnaryOp::Erf, scaled);
            half_of_one_plus(&mut emit, erf)?
        }
        Op::Unary(UnaryOp::GeluTanh) => {
            let square = emit.binary(BinaryOp::Mul, x, x);
            let cube = emit.binary(BinaryOp::Mul, square, x);
            let cubic = emit.with_constant(BinaryOp::Mul, cube, 0.044_715)?;
            let sum = emit.binary(BinaryOp::Add, x, cubic);
            let scaled = emit.with_constant(BinaryOp::Mul, sum, (2.0 / std::f64::consts::PI).sqrt())?;
            let tanh = emit.unary(UnaryOp::Tanh, scaled);
            half_of_one_plus(&mut emit, tanh)?
        }
        Op::Unary(UnaryOp::Mish) => {
            let softplus = emit.unary(UnaryOp::Softplus, x);
            emit.unary(UnaryOp::Tanh, softplus)
        }
        Op::Activation(attrs) if attrs.kind == ActivationKind::Swish => {
            let scaled = match attrs.alpha {
                Real(1.0) => x,
                alpha => emit.with_constant(BinaryOp::Mul, x, alpha.to_f64())?,
            };
            emit.unary(UnaryOp::Sigmoid, scaled)
        }
        _ => return None,
    };
    let value = emit.binary(BinaryOp::Mul, x, gate);
    emit.finish(value)
}

fn half_of_one_plus(emit: &mut Emit, x: Source) -> Option<Source> {
    let sum = emit.with_constant(BinaryOp::Add, x, 1.0)?;
    emit.with_constant(BinaryOp::Mul, sum, 0.5)
}
