//! Adds before it multiplies: a sum of two products with a common factor becomes one product.
//!
//! The distributive law, from right to left, for elementwise products, matrix products and convolutions. Integers wrap around, so for them it
//! is exact. For floats the factors that are added must be finite constants with a finite sum: then nothing overflows that did not before, the
//! sum costs nothing at run time, and rounding differs as that of a reassociated reduction does. Strict numerics leave the pass out.
//!
//! ```text
//! %p = MatMul(%x, %v)               %u = Binary[add](%v, %w)
//! %q = MatMul(%x, %w)               %y = MatMul(%x, %u)
//! %y = Binary[add](%p, %q)
//! ```

use crate::graph::{Graph, Node};
use crate::ids::{NodeId, ValueId};
use crate::op::{BinaryOp, Op};
use crate::pass::PassError;
use crate::patch::{Patch, Rule, Source, View, rewrite};

/// Hoists what is worth it.
pub fn common_factors(graph: &mut Graph) -> Result<bool, PassError> {
    rewrite(graph, RULES, 4)
}

const RULES: &[Rule] = &[Rule { name: "common_factors", apply: hoist }];

fn hoist(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let sum = view.graph.node(id);
    let Op::Binary(BinaryOp::Add) = sum.op else { return None };
    let [p, q] = [sum.input(0)?, sum.input(1)?];
    if p == q || !view.is_used_once(p) || !view.is_used_once(q) || view.graph.ty(p) != view.graph.ty(q) {
        return None;
    }
    let ((p_id, p), (q_id, q)) = (view.producer(p)?, view.producer(q)?);
    if p.op != q.op {
        return None;
    }
    let places: &[[usize; 2]] = match p.op {
        Op::Binary(BinaryOp::Mul) => &[[0, 0], [0, 1], [1, 0], [1, 1]],
        Op::MatMul(_) => &[[0, 0], [1, 1]],
        Op::Conv(_) => &[[0, 0]],
        _ => return None,
    };
    let [at_p, at_q] = *places.iter().find(|[at_p, at_q]| p.input(*at_p) == q.input(*at_q))?;
    let (of_p, of_q) = (p.input(1 - at_p)?, q.input(1 - at_q)?);
    if view.graph.ty(of_p) != view.graph.ty(of_q) || !may_add(view, of_p, of_q) {
        return None;
    }
    let mut patch = Patch::new();
    let mut inputs: Vec<Option<Source>> = p.inputs.iter().map(|value| value.map(Source::Old)).collect();
    inputs[1 - at_p] = Some(add(&mut patch, of_p, of_q));
    if matches!(p.op, Op::Conv(_)) {
        inputs.truncate(2);
        inputs.extend(bias(&mut patch, view, [p, q])?.map(Some));
    }
    let product = patch.add_sparse(p.op.clone(), inputs, None);
    Some(patch.replace(product).absorb([p_id, q_id]))
}

fn add(patch: &mut Patch, a: ValueId, b: ValueId) -> Source {
    patch.add(Op::Binary(BinaryOp::Add), [Source::Old(a), Source::Old(b)])
}

/// Whether two factors may be added instead of their products.
fn may_add(view: &View<'_>, a: ValueId, b: ValueId) -> bool {
    let Some(dtype) = view.graph.tensor_type(a).map(|ty| ty.dtype) else { return false };
    if !dtype.is_float() {
        return true;
    }
    // Narrower floats would round the sum once more.
    let most = match dtype {
        crate::DType::F32 => f64::from(f32::MAX),
        crate::DType::F64 => f64::MAX,
        _ => return false,
    };
    let elements = |value: ValueId| view.graph.constant(value)?.to_f64s();
    let (Some(a), Some(b)) = (elements(a), elements(b)) else { return false };
    a.iter().zip(&b).all(|(a, b)| a.is_finite() && b.is_finite() && (a + b).abs() <= most)
}

/// The sum of the biases of two convolutions, if they have any; nothing where it must not be made.
fn bias(patch: &mut Patch, view: &View<'_>, convolutions: [&Node; 2]) -> Option<Option<Source>> {
    match convolutions.map(|node| node.input(2)) {
        [Some(a), Some(b)] => may_add(view, a, b).then(|| Some(add(patch, a, b))),
        [a, b] => Some(a.or(b).map(Source::Old)),
    }
}
