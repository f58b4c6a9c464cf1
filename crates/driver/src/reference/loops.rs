//! `Loop` and `Scan`, iteration by iteration.

use tilewright_dtype::DType;
use tilewright_graph::op::{LoopAttrs, ScanAttrs};
use tilewright_graph::{NodeId, RegionId, ValueId};
use tilewright_te::interp::TensorData;

use super::dynamic::integer;
use super::{Reference, State};
use crate::error::CompileError;

type Values = Vec<(ValueId, TensorData)>;
type Inspect<'i> = &'i mut dyn FnMut(ValueId, &TensorData);

impl Reference<'_> {
    pub(super) fn loop_node(
        &self,
        node: NodeId,
        attrs: &LoopAttrs,
        state: &mut State,
        inspect: Inspect<'_>,
    ) -> Result<Values, CompileError> {
        let node = self.graph.node(node);
        let operand = |state: &State, i: usize| node.input(i).map(|v| self.value(state, v)).transpose();
        let trips = operand(state, 0)?.and_then(|data| integer(&data, 0));
        let mut condition = operand(state, 1)?.unwrap_or(TensorData {
            dtype: DType::Bool,
            shape: Vec::new(),
            bytes: vec![1],
        });
        let rest = self.values(state, &node.inputs[2..])?;
        let (initial, captures) = rest.split_at(attrs.carried);
        let mut carried = initial.to_vec();
        let mut rows: Vec<Vec<TensorData>> = vec![Vec::new(); node.outputs.len() - attrs.carried];
        let mut i = 0i64;
        while trips.is_none_or(|trips| i < trips) && condition.bytes.first().is_some_and(|&b| b != 0) {
            let iteration =
                TensorData { dtype: DType::I64, shape: Vec::new(), bytes: i.to_le_bytes().to_vec() };
            let mut operands = vec![iteration, condition];
            operands.extend(carried.iter().chain(captures).cloned());
            let mut results = self.iterate(attrs.body, operands, state, inspect)?.into_iter();
            condition = results.next().ok_or_else(short)?;
            carried = results.by_ref().take(attrs.carried).collect();
            rows.iter_mut().zip(results).for_each(|(rows, row)| rows.push(row));
            i += 1;
        }
        let stacked = node.outputs[attrs.carried..].iter().zip(&rows);
        let stacked = stacked.map(|(&output, rows)| self.stack(state, output, rows, 0));
        let results = carried.into_iter().chain(stacked);
        Ok(node.outputs.iter().copied().zip(results).collect())
    }

    pub(super) fn scan_node(
        &self,
        node: NodeId,
        attrs: &ScanAttrs,
        state: &mut State,
        inspect: Inspect<'_>,
    ) -> Result<Values, CompileError> {
        let node = self.graph.node(node);
        let operands = self.values(state, &node.inputs)?;
        let (initial, rest) = operands.split_at(attrs.states);
        let (scanned, captures) = rest.split_at(attrs.input_axes.len());
        let trips = scanned.iter().zip(&attrs.input_axes).map(|(data, &axis)| data.shape[axis]).min();
        let trips = trips.unwrap_or_default();
        let mut carried = initial.to_vec();
        let mut rows: Vec<Vec<TensorData>> = vec![Vec::new(); node.outputs.len() - attrs.states];
        for i in 0..trips {
            let slices = scanned.iter().zip(attrs.input_axes.iter().zip(&attrs.input_reversed));
            let slices = slices.map(|(data, (&axis, &reversed))| {
                slice(data, axis, if reversed { trips - 1 - i } else { i })
            });
            let operands = carried.iter().cloned().chain(slices).chain(captures.iter().cloned()).collect();
            let mut results = self.iterate(attrs.body, operands, state, inspect)?.into_iter();
            carried = results.by_ref().take(attrs.states).collect();
            rows.iter_mut().zip(results).for_each(|(rows, row)| rows.push(row));
        }
        for (rows, _) in rows.iter_mut().zip(&attrs.output_reversed).filter(|(_, reversed)| **reversed) {
            rows.reverse();
        }
        let stacked = node.outputs[attrs.states..].iter().zip(rows.iter().zip(&attrs.output_axes));
        let stacked = stacked.map(|(&output, (rows, &axis))| self.stack(state, output, rows, axis));
        let results = carried.into_iter().chain(stacked);
        Ok(node.outputs.iter().copied().zip(results).collect())
    }

    fn values(&self, state: &State, values: &[Option<ValueId>]) -> Result<Vec<TensorData>, CompileError> {
        values.iter().flatten().map(|&value| self.value(state, value)).collect()
    }

    /// Runs a body once. The extents it defines are forgotten: they differ from one iteration to the next.
    fn iterate(
        &self,
        body: RegionId,
        operands: Vec<TensorData>,
        state: &mut State,
        inspect: Inspect<'_>,
    ) -> Result<Vec<TensorData>, CompileError> {
        let outside = state.symbols.clone();
        let region = self.graph.region(body);
        for (&param, data) in region.params.iter().zip(operands) {
            self.bind(state, param, &data);
            state.values.insert(param, data);
        }
        self.region(body, state, inspect)?;
        let results = region.results.iter().map(|&value| self.value(state, value)).collect();
        state.symbols = outside;
        results
    }

    /// Rows of equal shape, one after another along a new axis.
    fn stack(&self, state: &State, output: ValueId, rows: &[TensorData], axis: usize) -> TensorData {
        let dtype = self.graph.tensor_type(output).map_or(DType::F32, |ty| ty.dtype);
        let Some(first) = rows.first() else {
            let known = |s| state.symbols.get(&s).copied();
            let dims = self.graph.dims(output).unwrap_or_default();
            let mut shape: Vec<i64> = dims.iter().map(|d| d.evaluate(&known).unwrap_or(0)).collect();
            shape[axis] = 0;
            return TensorData { dtype, shape, bytes: Vec::new() };
        };
        let mut shape = first.shape.clone();
        let outer = shape[..axis].iter().product::<i64>() as usize;
        let run = first.bytes.len().checked_div(outer).unwrap_or(0);
        shape.insert(axis, rows.len() as i64);
        let runs = (0..outer).flat_map(|o| rows.iter().map(move |row| &row.bytes[o * run..(o + 1) * run]));
        TensorData { dtype, shape, bytes: runs.flatten().copied().collect() }
    }
}

fn short() -> CompileError {
    CompileError::internal("interpreter", "a loop's body has no condition")
}

/// Slice `index` along an axis, without the axis.
fn slice(data: &TensorData, axis: usize, index: i64) -> TensorData {
    let mut shape = data.shape.clone();
    let extent = shape.remove(axis) as usize;
    let outer = shape[..axis].iter().product::<i64>() as usize;
    let run = data.bytes.len().checked_div(outer * extent).unwrap_or(0);
    let at = |o: usize| (o * extent + index as usize) * run;
    let bytes = (0..outer).flat_map(|o| data.bytes[at(o)..at(o) + run].iter().copied()).collect();
    TensorData { dtype: data.dtype, shape, bytes }
}
