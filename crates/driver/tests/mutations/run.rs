//! Runs a model once on seeded inputs.

use std::sync::Arc;

use tilewright_driver::DType;
use tilewright_driver::runtime::plan::{SizeDef, TensorSpec};
use tilewright_driver::runtime::{
    ExecFault, Model, RunError, SessionOptions, TensorView, byte_len, pool::Serial,
};

use super::children::FAULT;
use super::random::Random;

/// Inputs of more bytes are not made, and a run may hold so many.
const MOST_INPUT_BYTES: usize = 64 << 20;
const MOST_BYTES: u64 = 1 << 30;

/// What came of a run. Every open extent is 3.
pub(crate) fn run(model: &Model, random: &mut Random) -> String {
    if !model.value_inputs().is_empty() {
        return "compiled, takes values that are no tensors".to_string();
    }
    let mut inputs = Vec::new();
    let mut total = 0;
    for spec in model.inputs() {
        let dims: Option<Vec<usize>> = extents(model, spec);
        let bytes = dims.as_ref().and_then(|dims| byte_len(spec.dtype, dims));
        let (Some(dims), Some(bytes)) = (dims, bytes.filter(|bytes| *bytes <= MOST_INPUT_BYTES)) else {
            return "compiled, takes inputs beyond measure".to_string();
        };
        total += bytes;
        inputs.push((spec.dtype, dims, bytes));
    }
    if total > MOST_INPUT_BYTES {
        return "compiled, takes inputs beyond measure".to_string();
    }
    let inputs: Vec<_> = inputs
        .into_iter()
        .map(|(dtype, dims, bytes)| (dtype, dims, elements(dtype, bytes, random)))
        .collect();
    let views: Vec<TensorView<'_>> =
        inputs.iter().map(|(dtype, dims, bytes)| TensorView::new(*dtype, dims, bytes)).collect();
    let options =
        SessionOptions { pool: Arc::new(Serial), memory_limit: MOST_BYTES, ..SessionOptions::default() };
    let mut session = model.session_with(options);
    let outcome = match session.run(&views) {
        Ok(_) => "ran",
        Err(RunError::Inputs(_)) => "run refused: extents of inputs",
        Err(RunError::Guard { .. }) => "run refused: an assumption of the model",
        Err(RunError::Host { .. }) => "run refused: by a host operator",
        Err(RunError::Limit { .. } | RunError::Memory(_)) => "run refused: memory",
        Err(RunError::Plan { fault: ExecFault::Negative(_) | ExecFault::Undefined(_), .. }) => {
            "run refused: an extent is negative or beyond 64 bits"
        }
        Err(RunError::Device(fault)) => return format!("{FAULT}no device was asked for: {fault}"),
        Err(RunError::Cancelled) => return format!("{FAULT}nobody cancelled"),
        Err(RunError::Plan { fault, nodes }) => return format!("{FAULT}plan: {nodes}: {fault}"),
    };
    outcome.to_string()
}

fn extents(model: &Model, spec: &TensorSpec) -> Option<Vec<usize>> {
    let sizes = &model.plan().sizes;
    let extent = |size: &SizeDef| match size {
        SizeDef::Const(extent) => usize::try_from(*extent).ok(),
        _ => Some(3),
    };
    spec.dims.iter().map(|dim| extent(sizes.get(dim.size.0 as usize)?)).collect()
}

/// Small numbers of any sign for the most part.
fn elements(dtype: DType, bytes: usize, random: &mut Random) -> Vec<u8> {
    let mut elements = Vec::with_capacity(bytes);
    while elements.len() < bytes {
        let (small, float) = (random.below(5) as i64 - 1, random.below(4001) as f64 / 1000.0 - 2.0);
        let integer = if random.below(64) == 0 { random.edge() } else { small };
        match dtype {
            DType::F32 => elements.extend((float as f32).to_le_bytes()),
            DType::F64 => elements.extend(float.to_le_bytes()),
            DType::Bool | DType::U2 => elements.push((integer & 1) as u8),
            DType::I2 => elements.push((integer & 1) as u8 * 0xff),
            DType::I4 => elements.push((integer & 7) as u8),
            DType::U4 | DType::F4E2M1 => elements.push((integer & 15) as u8),
            DType::I64
            | DType::U64
            | DType::I32
            | DType::U32
            | DType::I16
            | DType::U16
            | DType::I8
            | DType::U8 => {
                elements.extend_from_slice(&integer.to_le_bytes()[..dtype.bytes()]);
            }
            _ => elements.extend_from_slice(&random.next().to_le_bytes()[..dtype.bytes().max(1)]),
        }
    }
    elements
}
