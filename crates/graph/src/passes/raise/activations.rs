//! Activations: GELU in both forms, SiLU and Swish, HardSwish, Mish.

use super::matcher::{Matcher, is_near};
use crate::ids::{NodeId, ValueId};
use crate::op::{ActivationAttrs, ActivationKind, BinaryOp, Op, Real, UnaryOp};
use crate::patch::{Patch, View};

/// `x * 0.5 * (1 + erf(x / sqrt 2))`, factors in any order.
pub(super) fn gelu(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let matcher = Matcher::new(view);
    let (orders, nodes) = matcher.two_factors(root(view, id)?, 0.5)?;
    orders.into_iter().find_map(|(x, gate)| {
        let (sum, erf, one) = matcher.plus_constant(gate)?;
        let (erf, argument) = matcher.unary(erf, UnaryOp::Erf)?;
        let scaled = matcher.product(argument);
        let matches = one == 1.0 && scaled.factors == [x] && is_near(scaled.constant, 0.5f64.sqrt());
        let absorbed = nodes.iter().copied().chain(scaled.nodes).chain([sum, erf]);
        matches.then(|| Patch::single(Op::Unary(UnaryOp::Gelu), [x]).absorb(absorbed))
    })
}

/// `x * 0.5 * (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
pub(super) fn gelu_tanh(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let matcher = Matcher::new(view);
    let (orders, nodes) = matcher.two_factors(root(view, id)?, 0.5)?;
    orders.into_iter().find_map(|(x, gate)| {
        let (sum, tanh, one) = matcher.plus_constant(gate)?;
        let (tanh, argument) = matcher.unary(tanh, UnaryOp::Tanh)?;
        let scaled = matcher.product(argument);
        let &[inner] = scaled.factors.as_slice() else { return None };
        if one != 1.0 || !is_near(scaled.constant, (2.0 / std::f64::consts::PI).sqrt()) {
            return None;
        }
        let (inner_sum, [a, b]) = matcher.binary(inner, BinaryOp::Add)?;
        let cubic = if a == x { b } else { a };
        let cube = matcher.product(cubic);
        let is_cube = cube.factors == [x, x, x]
            || matches!(cube.factors.as_slice(), &[power] if is_power(&matcher, power, x, 3.0));
        let matches = (a == x || b == x) && is_cube && is_near(cube.constant, 0.044_715);
        let absorbed =
            nodes.iter().copied().chain(scaled.nodes).chain(cube.nodes).chain([sum, tanh, inner_sum]);
        matches.then(|| Patch::single(Op::Unary(UnaryOp::GeluTanh), [x]).absorb(absorbed))
    })
}

/// `x * sigmoid(alpha x)`.
pub(super) fn swish(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let matcher = Matcher::new(view);
    let (orders, nodes) = matcher.two_factors(root(view, id)?, 1.0)?;
    orders.into_iter().find_map(|(x, gate)| {
        let (sigmoid, argument) = matcher.unary(gate, UnaryOp::Sigmoid)?;
        let scaled = matcher.product(argument);
        let (alpha, inner) = if argument == x { (1.0, Vec::new()) } else { (scaled.constant, scaled.nodes) };
        if !view.is_used_once(gate) || (argument != x && scaled.factors != [x]) {
            return None;
        }
        let attrs =
            ActivationAttrs { kind: ActivationKind::Swish, alpha: Real(alpha as f32), beta: Real(0.0) };
        let absorbed = nodes.iter().copied().chain(inner).chain([sigmoid]);
        Some(Patch::single(Op::Activation(attrs), [x]).absorb(absorbed))
    })
}

/// `x * hard_sigmoid(x)` with slope 1/6, or `x * clip(x + 3, 0, 6) / 6`.
pub(super) fn hard_swish(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let matcher = Matcher::new(view);
    let root = root(view, id)?;
    let product = matcher.product(root);
    let &[a, b] = product.factors.as_slice() else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
        let (gate_id, node) = matcher.node(gate)?;
        let inner = match &node.op {
            Op::Activation(attrs) if attrs.kind == ActivationKind::HardSigmoid => {
                let fits = is_near(attrs.alpha.to_f64(), 1.0 / 6.0) && attrs.beta == Real(0.5);
                (fits && node.input(0)? == x && is_near(product.constant, 1.0)).then(Vec::new)?
            }
            Op::Clip => {
                let (sum, argument, three) = matcher.plus_constant(node.input(0)?)?;
                let bounds = (view.splat(node.input(1)?)?, view.splat(node.input(2)?)?);
                let fits = argument == x && three == 3.0 && bounds == (0.0, 6.0);
                (fits && is_near(product.constant, 1.0 / 6.0)).then(|| vec![sum])?
            }
            _ => return None,
        };
        let absorbed = product.nodes.iter().copied().chain(inner).chain([gate_id]);
        Some(Patch::single(Op::Unary(UnaryOp::HardSwish), [x]).absorb(absorbed))
    })
}

/// `x * tanh(softplus(x))`.
pub(super) fn mish(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let matcher = Matcher::new(view);
    let (orders, nodes) = matcher.two_factors(root(view, id)?, 1.0)?;
    orders.into_iter().find_map(|(x, gate)| {
        let (tanh, argument) = matcher.unary(gate, UnaryOp::Tanh)?;
        let (softplus, inner) = matcher.unary(argument, UnaryOp::Softplus)?;
        let absorbed = nodes.iter().copied().chain([tanh, softplus]);
        (inner == x).then(|| Patch::single(Op::Unary(UnaryOp::Mish), [x]).absorb(absorbed))
    })
}

fn root(view: &View<'_>, id: NodeId) -> Option<ValueId> {
    let node = view.graph.node(id);
    match node.op {
        Op::Binary(BinaryOp::Mul | BinaryOp::Div) => node.output(),
        _ => None,
    }
}

fn is_power(matcher: &Matcher<'_>, value: ValueId, base: ValueId, exponent: f64) -> bool {
    matcher
        .binary(value, BinaryOp::Pow)
        .is_some_and(|(_, [x, power])| x == base && matcher.view.splat(power) == Some(exponent))
}
