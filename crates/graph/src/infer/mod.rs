//! Type and shape inference: the result types of every operator, from the types of its operands.
//!
//! One file a family. Inference also follows the elements of small integer tensors (`elements.rs`), so that
//! the shape arithmetic of exported graphs becomes symbolic extents. Where two extents must agree but cannot be
//! decided, a [`Guard`](crate::Guard) is recorded; where an extent depends on data, a computed symbol is made.

mod context;
mod control;
mod elements;
mod elementwise;
mod generate;
mod movement;
mod nn;
mod products;
mod reduce;
mod refine;
mod sequence;
mod windows;

use std::sync::Arc;

pub(crate) use context::Context;
pub use context::InferError;
pub use control::merge_types;
pub(crate) use movement::slice_bounds;
pub(crate) use refine::Refinement;
pub use refine::refine;

use crate::dim::Dim;
use crate::graph::{Graph, Provenance};
use crate::ids::{NodeId, RegionId, ValueId};
use crate::op::Op;
use crate::symbol::SymbolTable;
use crate::types::Type;

/// What inference knows about one result.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Its type.
    pub ty: Type,
    /// Its elements, row-major, if it is a small integer tensor whose elements are known extents.
    pub elements: Option<Arc<[Dim]>>,
}

/// Appends a node to a region with inferred result types. The node gets the results that its attributes say
/// (`Split`, control flow) and otherwise the least number the operator allows.
pub fn append(
    graph: &mut Graph,
    region: RegionId,
    op: Op,
    inputs: Vec<Option<ValueId>>,
    provenance: Provenance,
) -> Result<NodeId, InferError> {
    let n_outputs = match &op {
        Op::Split(attrs) => attrs.sizes.len(),
        Op::If(attrs) => graph.region(attrs.then_region).results.len(),
        Op::Loop(attrs) => graph.region(attrs.body).results.len().saturating_sub(1),
        Op::Scan(attrs) => graph.region(attrs.body).results.len(),
        op => *op.output_arity().start(),
    };
    append_n(graph, region, op, inputs, n_outputs, provenance)
}

/// Appends a node with a chosen number of results.
pub fn append_n(
    graph: &mut Graph,
    region: RegionId,
    op: Op,
    inputs: Vec<Option<ValueId>>,
    n_outputs: usize,
    provenance: Provenance,
) -> Result<NodeId, InferError> {
    // Inference reads the graph and adds symbols and guards: both are taken out for its time.
    let mut symbols = std::mem::take(&mut graph.symbols);
    let mut guards = std::mem::take(&mut graph.guards);
    let mut cx = Context::new(graph, &mut symbols, &mut guards, region, &op, &inputs, n_outputs, &provenance);
    let facts = infer(&mut cx);
    graph.symbols = symbols;
    graph.guards = guards;
    let facts = facts?;
    let (types, elements): (Vec<_>, Vec<_>) =
        facts.into_iter().map(|facts| (facts.ty, facts.elements)).unzip();
    let node = graph.append_typed(region, op, inputs, types, provenance);
    for (position, elements) in elements.into_iter().enumerate() {
        if elements.is_some() {
            graph.set_shape_value(graph.node(node).outputs[position], elements);
        }
    }
    Ok(node)
}

/// What the type rule says about a node that is already there, without changing the graph: for the verifier.
pub(crate) fn facts_of(
    graph: &Graph,
    symbols: &mut SymbolTable,
    node: NodeId,
) -> Result<Vec<Facts>, InferError> {
    let node = graph.node(node);
    let mut guards = Vec::new();
    let n_outputs = node.outputs.len();
    let mut cx = Context::new(
        graph,
        symbols,
        &mut guards,
        node.region,
        &node.op,
        &node.inputs,
        n_outputs,
        &node.provenance,
    );
    infer(&mut cx)
}

/// Recomputes the followed elements of every value, in topological order: after parsing, which gives types alone.
pub fn follow_elements(graph: &mut Graph) {
    let mut symbols = graph.symbols.clone();
    for node in graph.live_nodes() {
        let Ok(facts) = facts_of(graph, &mut symbols, node) else { continue };
        let outputs = graph.node(node).outputs.clone();
        for (value, facts) in outputs.into_iter().zip(facts) {
            if facts.elements.is_some() {
                graph.set_shape_value(value, facts.elements);
            }
        }
    }
}

/// The facts about the results of the operator in `cx`: checks arity, applies the type rule, follows elements.
pub(crate) fn infer(cx: &mut Context<'_>) -> Result<Vec<Facts>, InferError> {
    let (inputs, outputs) = (cx.op.input_arity(), cx.op.output_arity());
    if !inputs.contains(&cx.inputs.len()) {
        return Err(cx.fail(format!("has {} operands, but takes {}", cx.inputs.len(), show_arity(&inputs))));
    }
    if !outputs.contains(&cx.n_outputs) {
        return Err(cx.fail(format!("has {} results, but gives {}", cx.n_outputs, show_arity(&outputs))));
    }
    let mut types = types(cx)?;
    if types.len() < cx.n_outputs {
        return Err(cx.fail(format!("has {} results, but gives {}", cx.n_outputs, types.len())));
    }
    types.truncate(cx.n_outputs);
    let elements = elements::follow(cx, &types);
    let mut elements = elements.into_iter();
    Ok(types.into_iter().map(|ty| Facts { ty, elements: elements.next().flatten() }).collect())
}

fn show_arity(range: &std::ops::RangeInclusive<usize>) -> String {
    match (*range.start(), *range.end()) {
        (least, usize::MAX) => format!("at least {least}"),
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    }
}

fn types(cx: &mut Context<'_>) -> Result<Vec<Type>, InferError> {
    use Op::*;
    match cx.op {
        Identity | Unary(_) | Activation(_) | Clip | Binary(_) | Where | Cast(_) | BitCast(_)
        | QuantizeLinear(_) | DequantizeLinear(_) | BatchNorm(_) | StringConcat => elementwise::types(cx),
        MatMul(_) | Gemm(_) | MatMulInteger | Einsum(_) | Det => products::types(cx),
        Conv(_) | ConvInteger(_) | ConvTranspose(_) | DeformConv(_) | CausalConv(_) | Pool(_)
        | MaxPoolIndices(_) | MaxUnpool(_) | MaxUnpoolDynamic(_) | MaxRoiPool(_) | RoiAlign(_)
        | Col2Im(_) => windows::types(cx),
        Reduce(_) | ReduceDynamic(_) | ArgReduce(_) | Cumulative(_) | TopK(_) | NonZero | Unique(_)
        | NonMaxSuppression(_) | Compress(_) => reduce::types(cx),
        Softmax(_) | LayerNorm(_) | RmsNorm(_) | InstanceNorm(_) | GroupNorm(_) | LpNorm(_) | Lrn(_)
        | Attention(_) | LinearAttention(_) | RotaryEmbedding(_) | Lstm(_) | Gru(_) | Rnn(_) | Dft(_)
        | Stft(_) => nn::types(cx),
        Reshape(_) | ReshapeDynamic(_) | Transpose(_) | Expand(_) | ExpandDynamic | Slice(_)
        | SliceDynamic | Concat(_) | Split(_) | SplitDynamic(_) | Pad(_) | PadDynamic(_) | Gather(_)
        | GatherElements(_) | GatherNd(_) | ScatterElements(_) | ScatterNd(_) | TensorScatter(_)
        | Tile(_) | TileDynamic | Resize(_) | ResizeDynamic(_) | GridSample(_) | AffineGrid(_)
        | CenterCropPad(_) | Trilu(_) | ReverseSequence(_) => movement::types(cx),
        Constant(_) | FromDims(_) | Shape(_) | Size | Full(_) | FullDynamic | Iota(_) | RangeDynamic
        | Eye(_) | OneHot(_) | Random(_) | Multinomial(_) | MelWeightMatrix(_) => generate::types(cx),
        If(_) | Loop(_) | Scan(_) => control::types(cx),
        SequenceConstruct
        | SequenceEmpty(_)
        | SequenceAt
        | SequenceInsert
        | SequenceErase
        | SequenceLength
        | SplitToSequence(_)
        | ConcatFromSequence(_)
        | Optional(_)
        | OptionalGet
        | OptionalHas
        | StringSplit(_)
        | StringNormalizer(_)
        | RegexFullMatch(_)
        | TfIdf(_)
        | Extern(_) => sequence::types(cx),
    }
}
