//! Control flow in the plan: branches and loops as jumps.

use tilewright_graph::dim::Dim;
use tilewright_graph::{NodeId, Op, Provenance, RegionId, ValueId};
use tilewright_runtime::plan::{BufferId, Operand, PlanOp, SizeId, Space};

use super::builder::{Builder, Home};
use crate::error::LowerError;
use crate::host::is_host_value;

impl Builder<'_> {
    pub(super) fn control(&mut self, node: NodeId) -> Result<(), LowerError> {
        match &self.graph.node(node).op {
            Op::If(attrs) => self.branch(node, attrs.then_region, attrs.else_region),
            Op::Loop(attrs) => self.loop_node(node, attrs),
            Op::Scan(attrs) => self.scan_node(node, attrs),
            op => Err(LowerError::Internal(format!("{} is no control flow", op.name()))),
        }
    }

    /// `If`: the condition is read, one region runs, its results are copied to the node's.
    fn branch(
        &mut self,
        node: NodeId,
        then_region: RegionId,
        else_region: RegionId,
    ) -> Result<(), LowerError> {
        let data = self.graph.node(node);
        let provenance = data.provenance.clone();
        let inputs = data.inputs.clone();
        let outputs = data.outputs.clone();
        let Some(condition) = data.input(0) else {
            return Err(LowerError::Internal("an If without a condition".to_string()));
        };
        let condition = self.operand_in(condition, Space::Host, &provenance)?;
        let slot = self.sizes.computed();
        self.push(PlanOp::ReadSize { buffer: condition, element: 0, slot }, &provenance);
        for region in [then_region, else_region] {
            let params = self.graph.region(region).params.clone();
            for (param, value) in params.into_iter().zip(inputs.iter().skip(1)) {
                if let Some(value) = value {
                    self.capture_one(*value, param, &provenance)?;
                }
            }
        }
        // Extents of the results that depend on the branch are slots that both branches set.
        let mut late: Vec<Vec<Option<SizeId>>> = Vec::new();
        for &output in &outputs {
            let dims = self.buffer_dims(output);
            let slots = dims
                .iter()
                .map(|dim| {
                    let symbol = dim.as_symbol().filter(|&s| self.sizes.symbol(s).is_none())?;
                    let slot = self.sizes.computed();
                    self.sizes.bind(symbol, slot);
                    Some(slot)
                })
                .collect();
            late.push(slots);
        }
        let known = late.iter().flatten().all(Option::is_none);
        let mut targets = Vec::new();
        for &output in &outputs {
            targets.push(if is_host_value(self.graph, output) {
                Operand::Value(self.declare_value(output)?)
            } else if known {
                Operand::Buffer(self.result(output, &provenance)?)
            } else {
                Operand::Buffer(self.declare(output)?)
            });
        }
        let branch_at = self.instrs.len();
        self.push(PlanOp::BranchIfZero { slot, target: 0 }, &provenance);
        self.arm(then_region, &outputs, &targets, &late, known, &provenance)?;
        let jump_at = self.instrs.len();
        self.push(PlanOp::Jump { target: 0 }, &provenance);
        let else_at = self.instrs.len() as u32;
        self.arm(else_region, &outputs, &targets, &late, known, &provenance)?;
        let end = self.instrs.len() as u32;
        self.instrs[branch_at].op = PlanOp::BranchIfZero { slot, target: else_at };
        self.instrs[jump_at].op = PlanOp::Jump { target: end };
        outputs.iter().try_for_each(|&output| self.read_dims(output, &provenance))
    }

    /// The extents of a value that a buffer holds; none of a host value.
    fn buffer_dims(&self, value: ValueId) -> Vec<Dim> {
        match self.graph.dims(value) {
            Some(dims) if !is_host_value(self.graph, value) => dims.to_vec(),
            Some(_) | None => Vec::new(),
        }
    }

    /// A buffer for a value whose size each branch of an `If` sets before it allocates.
    fn declare(&mut self, value: ValueId) -> Result<BufferId, LowerError> {
        let dims = self.graph.dims(value).map(<[_]>::to_vec).unwrap_or_default();
        let shape = dims.iter().map(|d| self.dim_slot(d, Some(value))).collect::<Result<Vec<_>, _>>()?;
        let dtype = self.dtype(value)?;
        let buffer = self.add_buffer(dtype, shape, self.home_space(value), Home::Planned);
        self.values.insert(value, buffer);
        Ok(buffer)
    }

    fn arm(
        &mut self,
        region: RegionId,
        outputs: &[ValueId],
        targets: &[Operand],
        late: &[Vec<Option<SizeId>>],
        known: bool,
        provenance: &Provenance,
    ) -> Result<(), LowerError> {
        self.region(region)?;
        let results = self.graph.region(region).results.clone();
        for (((&result, &output), &to), slots) in results.iter().zip(outputs).zip(targets).zip(late) {
            let to = match to {
                Operand::Buffer(to) => to,
                Operand::Value(to) => {
                    self.assign(result, to, output, provenance)?;
                    continue;
                }
                Operand::Absent => continue,
            };
            let from = self.operand(result)?;
            let dims = self.graph.dims(result).map(<[_]>::to_vec).unwrap_or_default();
            for (dim, slot) in dims.iter().zip(slots) {
                if let Some(slot) = *slot {
                    let value = self.dim_slot(dim, Some(result))?;
                    self.push(PlanOp::SetSize { slot, value }, provenance);
                }
            }
            if !known && self.is_late(to) {
                self.push(PlanOp::Alloc { buffer: to }, provenance);
            }
            self.push(PlanOp::Copy { from, to }, provenance);
        }
        Ok(())
    }
}
