//! Branches that no run can take: known extents do not fit the operands of their nodes.
//!
//! A model may have branches for inputs of different extents, and data may say which one is meant, as a sample rate does.
//! With the extents of one of them the others are not valid. A run that takes such a branch fails, as it does where
//! nothing is compiled, and the other branch is of use.

use tilewright_graph::op::{DimsAttrs, Op};
use tilewright_graph::{Comparison, Dim, Guard, RegionId, SymbolKind, Tensor, TensorType, Type};

use super::captures::{Capture, bind_captures};
use super::error::{FaultKind, Result};
use super::importer::{Importer, Scope};

/// The types of a region's results where another region can give them too: tensors of numbers, whose extents are known before
/// it runs.
fn types_for_others(importer: &Importer<'_>, region: RegionId) -> Option<Vec<(Tensor, Vec<Dim>)>> {
    let graph = &importer.graph;
    let is_known =
        |dim: &Dim| dim.symbols().iter().all(|&symbol| graph.symbols[symbol].kind == SymbolKind::Input);
    let ty = |value| {
        let Type::Tensor(TensorType { dtype, shape }) = graph.ty(value) else { return None };
        let dims = shape.dims().filter(|dims| dims.iter().all(is_known))?;
        Some((Tensor::scalar_of(*dtype, 0.0)?, dims.to_vec()))
    };
    graph.region(region).results.iter().map(|&value| ty(value)).collect()
}

/// A branch with results of the types that `sound` has, in place of one whose faults are those from `first_fault` on: it
/// fails when it runs, and the faults become warnings. `None`, with the faults as they were, if they are others than operands
/// that do not fit.
pub(super) fn failing_branch(
    importer: &mut Importer<'_>,
    outer: &Scope,
    sound: RegionId,
    first_fault: usize,
    captures: &[Capture],
    label: &str,
) -> Result<Option<RegionId>> {
    let faults = importer.faults.get(first_fault..).unwrap_or_default();
    let [first, ..] = faults else { return Ok(None) };
    let message = first.to_string();
    if faults.iter().any(|fault| fault.kind != FaultKind::Type) {
        return Ok(None);
    }
    let Some(types) = types_for_others(importer, sound) else { return Ok(None) };
    let faults = importer.faults.split_off(first_fault);
    for fault in faults {
        importer.note(fault.of_failing_branch(label));
    }
    let region = importer.graph.add_region();
    bind_captures(importer, &mut outer.inner(region, label), captures);
    let mut results = Vec::new();
    for (zero, dims) in types {
        let zero = importer.emit(region, Op::Constant(zero), &[], label)?;
        results.push(importer.emit(region, Op::Expand(DimsAttrs { dims }), &[zero], label)?);
    }
    importer.graph.set_results(region, results);
    importer.graph.add_guard(Guard {
        left: Dim::from(1usize),
        comparison: Comparison::Equal,
        right: Dim::from(0usize),
        region,
        message,
    });
    Ok(Some(region))
}
