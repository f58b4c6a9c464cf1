//! Plans that run their function several times at once.
//!
//! A run of a small function takes less than its start and the clock. The function is repeated within a run, each time on constants of
//! its own: weights are not read again so soon in a model.

use std::fmt;

use tilewright_dtype::DType;
use tilewright_runtime::artifact::Plans;
use tilewright_runtime::plan::{ALIGN, BufferId, Instr, Place, Plan, PlanOp, SizeDef, TensorSpec};

use super::times::MeasureError;

/// An input of 32-bit floats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Extents.
    pub dims: Vec<usize>,
    /// Whether it is a constant of the function.
    pub is_constant: bool,
}

impl Input {
    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        self.dims.iter().product::<usize>() * DType::F32.bytes()
    }

    /// Bytes that it takes where the next begins at a multiple of [`ALIGN`].
    pub fn room(&self) -> usize {
        self.bytes().next_multiple_of(ALIGN)
    }
}

fn failed(error: impl fmt::Display) -> MeasureError {
    MeasureError::Failed(error.to_string())
}

/// Changes the plan of one function, whose inputs are constants where `constants` says so, to one that runs it `times` times; the inputs
/// that it then has.
///
/// # Errors
/// Where there are several programs, for instruction sets or extents, or one does more than to call kernels on inputs of known extents.
pub fn repeat(plans: &mut [Plans], constants: &[bool], times: usize) -> Result<Vec<Input>, MeasureError> {
    let plan = match plans {
        [Plans { open, specialised }] if specialised.is_empty() => open,
        _ => return Err(failed("an artifact of several programs is no measurement's")),
    };
    let mut inputs = inputs(plan, constants)?;
    if times <= 1 {
        return Ok(inputs);
    }
    let (once, inputs_once) = (plan.clone(), inputs.clone());
    for _ in 1..times {
        let renamed = add_constants(plan, &once, constants)?;
        for Instr { op, provenance } in &once.instrs {
            let op = with_buffers(op, &renamed)?;
            plan.instrs.push(Instr { op, provenance: *provenance });
        }
        inputs.extend(inputs_once.iter().filter(|input| input.is_constant).cloned());
    }
    Ok(inputs)
}

/// The inputs of a plan, which have known extents.
fn inputs(plan: &Plan, constants: &[bool]) -> Result<Vec<Input>, MeasureError> {
    if plan.inputs.len() != constants.len() || !plan.value_inputs.is_empty() {
        let (is, said) = (plan.inputs.len() + plan.value_inputs.len(), constants.len());
        return Err(failed(format!("an artifact with {is} inputs of which the request knows {said}")));
    }
    let extent = |dim: &tilewright_runtime::plan::DimSpec| match plan.sizes.get(dim.size.index()) {
        Some(SizeDef::Const(extent)) => usize::try_from(*extent).ok(),
        _ => None,
    };
    let input = |(spec, &is_constant): (&TensorSpec, &bool)| {
        let dims: Option<Vec<usize>> = spec.dims.iter().map(extent).collect();
        match dims {
            Some(dims) if spec.dtype == DType::F32 => Ok(Input { dims, is_constant }),
            _ => Err(failed(format!("input {} is not one of 32-bit floats and known extents", spec.name))),
        }
    };
    plan.inputs.iter().zip(constants).map(input).collect()
}

/// Adds inputs for constants of another run of the function; the buffers that these have in place of others.
fn add_constants(
    plan: &mut Plan,
    once: &Plan,
    constants: &[bool],
) -> Result<Vec<(BufferId, BufferId)>, MeasureError> {
    let mut renamed = Vec::new();
    for (spec, _) in once.inputs.iter().zip(constants).filter(|(_, is_constant)| **is_constant) {
        let n = plan.inputs.len();
        let known = once.buffers.get(spec.buffer.index());
        let mut def = known.ok_or_else(|| failed("an input without a buffer"))?.clone();
        def.place = Place::Input(n as u32);
        let buffer = BufferId(plan.buffers.len() as u32);
        plan.buffers.push(def);
        plan.inputs.push(TensorSpec { name: format!("in{n}"), buffer, ..spec.clone() });
        renamed.push((spec.buffer, buffer));
    }
    Ok(renamed)
}

/// A call with some buffers in place of others.
fn with_buffers(op: &PlanOp, renamed: &[(BufferId, BufferId)]) -> Result<PlanOp, MeasureError> {
    let PlanOp::Call { kernel, buffers, sizes, rounds, per_round, in_order } = op else {
        return Err(failed("an artifact that does more than to call kernels is no measurement's"));
    };
    let new = |buffer: &BufferId| {
        let pair = renamed.iter().find(|(old, _)| old == buffer);
        pair.map_or(*buffer, |(_, new)| *new)
    };
    Ok(PlanOp::Call {
        kernel: *kernel,
        buffers: buffers.iter().map(new).collect(),
        sizes: sizes.clone(),
        rounds: *rounds,
        per_round: *per_round,
        in_order: *in_order,
    })
}
