//! Host operators in the reference: the same functions that the runtime calls, on tensors.

use tilewright_graph::{NodeId, ValueId};
use tilewright_host::HostOp;
use tilewright_runtime::{Draw, HostArg, HostTensor, Value};
use tilewright_te::interp::TensorData;

use super::{Reference, State};
use crate::error::CompileError;

impl Reference<'_> {
    pub(super) fn host(
        &self,
        node: NodeId,
        op: &HostOp,
        state: &mut State,
    ) -> Result<Vec<(ValueId, TensorData)>, CompileError> {
        let node = self.graph.node(node);
        let inputs = node.inputs.iter().map(|input| input.map(|value| self.value(state, value)).transpose());
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let args: Vec<HostArg<'_>> = inputs
            .iter()
            .map(|input| match input {
                None => HostArg::Absent,
                Some(data) => HostArg::Tensor(HostTensor {
                    dtype: data.dtype,
                    dims: data.shape.iter().map(|&dim| dim as usize).collect(),
                    bytes: &data.bytes,
                }),
            })
            .collect();
        if let (Some(stream), &[output]) = (op.stream(), node.outputs.as_slice()) {
            return self.draw(op, &args, stream, output, state);
        }
        let results = op.run(&args).map_err(|message| CompileError::internal("interpreter", message))?;
        let tensor = |(&output, result): (&ValueId, Value)| match result {
            Value::Tensor(tensor) => Ok((
                output,
                TensorData {
                    dtype: tensor.dtype(),
                    shape: tensor.dims().iter().map(|&dim| dim as i64).collect(),
                    bytes: tensor.bytes().to_vec(),
                },
            )),
            Value::Sequence(_) | Value::Optional(_) => {
                Err(CompileError::internal("interpreter", format!("{output} is no tensor")))
            }
        };
        node.outputs.iter().zip(results).map(tensor).collect()
    }

    /// A tensor of random numbers: those of a new session.
    fn draw(
        &self,
        op: &HostOp,
        args: &[HostArg<'_>],
        stream: u64,
        output: ValueId,
        state: &mut State,
    ) -> Result<Vec<(ValueId, TensorData)>, CompileError> {
        let shape = self.extents(state, self.graph.dims(output).unwrap_or_default())?;
        let count = state.draws.entry(stream).or_default();
        let draw = Draw { seed: self.seed, count: *count };
        *count += 1;
        let ty = self.graph.tensor_type(output);
        let dtype =
            ty.map(|ty| ty.dtype).ok_or_else(|| CompileError::internal("interpreter", "no tensor"))?;
        let elements = shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(usize::try_from(dim).ok()?));
        let bytes = elements.and_then(|n| n.checked_mul(dtype.bytes()));
        let too_large = || CompileError::internal("interpreter", format!("{output} is too large"));
        let mut bytes = vec![0; bytes.ok_or_else(too_large)?];
        let fault = |message| CompileError::internal("interpreter", message);
        op.draw(args, draw, &mut bytes).map_err(fault)?;
        Ok(vec![(output, TensorData { dtype, shape, bytes })])
    }
}
