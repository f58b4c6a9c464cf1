//! Moves a scale of channels from an image to the weights of the convolution that reads it, where those are fewer.
//!
//! `Conv(x * g, w, b)` with a factor `g` of dims `[1, C, 1, ..]` is `Conv(x, w * g, b)`: squeeze-and-excitation (Hu, Shen and Sun,
//! "Squeeze-and-Excitation Networks", 2018) otherwise reads and writes all of an image once more. Only for constant weights
//! and windows of one element: larger ones have algorithms that want their weights at compile time.
//!
//! ```text
//! %y = Binary[mul](%x, %g)          %v = Binary[mul](%w, %g)
//! %z = Conv(%y, %w)                 %z = Conv(%x, %v)
//! ```

use crate::graph::Graph;
use crate::ids::{NodeId, ValueId};
use crate::op::*;
use crate::pass::PassError;
use crate::patch::{Patch, Rule, Source, View, rewrite};

/// Moves what is worth it.
pub fn scale_weights(graph: &mut Graph) -> Result<bool, PassError> {
    rewrite(graph, RULES, 4)
}

/// How many times fewer the weights must be: they are scaled and then laid out anew, by two kernels more, where the image is read
/// and written once by one that every thread has much to do in.
const FEWER: i64 = 4;

const RULES: &[Rule] = &[Rule { name: "scale_weights", apply: into_weights }];

fn into_weights(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let (image, weights) = (node.input(0)?, node.input(1)?);
    if !matches!(&node.op, Op::Conv(attrs) if attrs.group == 1) || !view.is_used_once(image) {
        return None;
    }
    let (product_id, product) = view.producer(image)?;
    let Op::Binary(BinaryOp::Mul) = product.op else { return None };
    view.graph.constant(weights)?;
    let [_, channels, window @ ..] = view.graph.dims(weights)? else { return None };
    if !window.iter().all(|dim| dim.is(1))
        || elements(view, weights)?.saturating_mul(FEWER) > elements(view, image)?
    {
        return None;
    }
    let operands = [product.input(0)?, product.input(1)?];
    let rank = view.graph.dims(image)?.len();
    let is_scale = |value: ValueId| {
        let [batch, own, rest @ ..] = view.graph.dims(value)? else { return None };
        (rest.len() + 2 == rank && batch.is(1) && own == channels && rest.iter().all(|dim| dim.is(1)))
            .then_some(())
    };
    let (scale, x) = (0..2).find_map(|n| is_scale(operands[n]).map(|()| (operands[n], operands[1 - n])))?;
    if view.graph.dims(x)? != view.graph.dims(image)? {
        return None;
    }
    let mut patch = Patch::new();
    let scaled = patch.add(Op::Binary(BinaryOp::Mul), [Source::Old(weights), Source::Old(scale)]);
    let mut inputs: Vec<Option<Source>> = node.inputs.iter().map(|value| value.map(Source::Old)).collect();
    (inputs[0], inputs[1]) = (Some(Source::Old(x)), Some(scaled));
    let value = patch.add_sparse(node.op.clone(), inputs, None);
    Some(patch.replace(value).absorb([product_id]))
}

/// Elements of a value, where its extents are known.
fn elements(view: &View<'_>, value: ValueId) -> Option<i64> {
    view.graph.dims(value)?.iter().try_fold(1i64, |n, dim| n.checked_mul(dim.as_const()?))
}
