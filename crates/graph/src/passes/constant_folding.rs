//! Runs nodes with constant operands at compile time.
//!
//! The types of what uses a result are inferred again in the same sweep, so arithmetic on the extents of a result
//! whose extents follow from such arithmetic is folded too, however often that repeats.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tilewright_dtype::DType;

use crate::graph::Graph;
use crate::ids::{NodeId, RegionId};
use crate::infer::Refinement;
use crate::op::{Effect, FusionClass, Op};
use crate::pass::{Pass, PassError};
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Computes operators on constant tensors. The graph layer does not know what operators mean; whoever runs the
/// pass brings the meaning.
pub trait Evaluate: Send + Sync {
    /// The results of `op` on `inputs`, whose types are `outputs`. An error leaves the node as it is.
    fn evaluate(
        &self,
        op: &Op,
        inputs: &[Option<&Tensor>],
        outputs: &[TensorType],
    ) -> Result<Vec<Tensor>, String>;
}

/// An evaluator that knows no operator: only what needs no arithmetic is folded.
pub struct NoEvaluator;

impl Evaluate for NoEvaluator {
    fn evaluate(&self, op: &Op, _: &[Option<&Tensor>], _: &[TensorType]) -> Result<Vec<Tensor>, String> {
        Err(format!("{} is not evaluated at compile time", op.name()))
    }
}

/// The pass.
pub struct ConstantFolding {
    evaluate: Arc<dyn Evaluate>,
    max_growth: usize,
    max_elements: usize,
}

impl ConstantFolding {
    /// Folding with the default size guard: a result may have at most 1 MiB more than the operands it replaces,
    /// and at most 2^26 elements.
    pub fn new(evaluate: Arc<dyn Evaluate>) -> ConstantFolding {
        ConstantFolding { evaluate, max_growth: 1 << 20, max_elements: 1 << 26 }
    }

    fn fold(&self, graph: &Graph, node: NodeId) -> Option<Vec<Tensor>> {
        let data = graph.node(node);
        if matches!(data.op, Op::Constant(_)) || data.op.effect() != Effect::Pure || data.outputs.is_empty() {
            return None;
        }
        if let Some(tensors) = from_elements(graph, node) {
            return Some(tensors);
        }
        let mut inputs = Vec::with_capacity(data.inputs.len());
        for value in &data.inputs {
            inputs.push(match value {
                Some(value) => Some(graph.constant(*value)?),
                None => None,
            });
        }
        // Generators of large tensors are cheaper to run than to store.
        if inputs.iter().flatten().count() == 0 {
            return None;
        }
        let mut outputs = Vec::with_capacity(data.outputs.len());
        for &value in &data.outputs {
            outputs.push(graph.tensor_type(value)?.clone());
        }
        if outputs.iter().any(|ty| ty.dtype == DType::String) {
            return None;
        }
        let bytes_in: usize =
            inputs.iter().flatten().map(|tensor| tensor.len() * tensor.dtype().bytes()).sum();
        let mut bytes_out = 0usize;
        for ty in &outputs {
            let elements =
                ty.shape.as_fixed()?.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))?;
            if elements > self.max_elements {
                return None;
            }
            bytes_out = bytes_out.checked_add(elements.checked_mul(ty.dtype.bytes())?)?;
        }
        if bytes_out > bytes_in.saturating_add(self.max_growth) {
            return None;
        }
        if let Op::Reshape(_) | Op::Identity = data.op {
            return Some(vec![inputs.first().copied()??.reshaped(outputs[0].shape.as_fixed()?)?]);
        }
        if data.op.fusion_class() == FusionClass::Opaque {
            return None;
        }
        let results = self.evaluate.evaluate(&data.op, &inputs, &outputs).ok()?;
        let fits = |(tensor, ty): (&Tensor, &TensorType)| tensor.tensor_type() == *ty;
        (results.len() == outputs.len() && results.iter().zip(&outputs).all(fits)).then_some(results)
    }

    fn region(&self, graph: &mut Graph, region: RegionId, refinement: &mut Refinement) -> bool {
        let mut replaced = FxHashMap::default();
        refinement.enter(graph, region);
        let nodes = graph.take_nodes(region);
        for node in nodes {
            // Earlier folds of this sweep count as constants for later ones.
            for position in 0..graph.node(node).inputs.len() {
                if let Some(&to) = graph.node(node).inputs[position].and_then(|value| replaced.get(&value)) {
                    graph.set_input(node, position, Some(to));
                }
            }
            refinement.visit(graph, node);
            match self.fold(graph, node) {
                None => graph.push_node(region, node),
                Some(tensors) => {
                    let outputs = graph.node(node).outputs.clone();
                    for (from, tensor) in outputs.into_iter().zip(tensors) {
                        let to = graph.append_constant(region, tensor, graph.node(node).provenance.clone());
                        replaced.insert(from, to);
                        refinement.note(to);
                    }
                }
            }
        }
        graph.replace_uses(&replaced);
        !replaced.is_empty()
    }
}

/// The node's only result as a constant, where inference knows all its elements.
fn from_elements(graph: &Graph, node: NodeId) -> Option<Vec<Tensor>> {
    let &[value] = graph.node(node).outputs.as_slice() else { return None };
    let ty = graph.tensor_type(value)?;
    let dims = ty.shape.as_fixed()?;
    let elements: Option<Vec<i64>> = graph.shape_value(value)?.iter().map(crate::Dim::as_const).collect();
    let elements = elements?;
    let tensor = match ty.dtype {
        DType::I64 => Tensor::from_elements(&dims, &elements),
        DType::I32 => {
            let narrow: Option<Vec<i32>> = elements.iter().map(|&value| i32::try_from(value).ok()).collect();
            Tensor::from_elements(&dims, &narrow?)
        }
        DType::Bool => {
            Tensor::from_elements(&dims, &elements.iter().map(|&value| value != 0).collect::<Vec<_>>())
        }
        _ => return None,
    };
    Some(vec![tensor.ok()?])
}

impl Pass for ConstantFolding {
    fn name(&self) -> &str {
        "constant_folding"
    }

    fn run(&self, graph: &mut Graph) -> Result<bool, PassError> {
        let mut changed = false;
        let mut refinement = Refinement::new(graph);
        for region in graph.live_regions() {
            changed |= self.region(graph, region, &mut refinement);
        }
        let misfits = refinement.take_misfits();
        if !misfits.is_empty() {
            return Err(PassError::Misfits(misfits));
        }
        Ok(changed | refinement.finish(graph))
    }
}
