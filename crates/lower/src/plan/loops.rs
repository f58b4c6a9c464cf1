//! `Loop` and `Scan` in the plan: jumps, a counter, buffers that carry values from one iteration to the next.
//!
//! A carried value has one buffer, which the body reads and which its result is copied into. Extents of it that
//! change are slots that change with it, so a result is copied aside before any of them does. Stacked results
//! grow by a row an iteration where the number of iterations is not known.

use tilewright_graph::dim::Dim;
use tilewright_graph::op::{LoopAttrs, ScanAttrs};
use tilewright_graph::{NodeId, Provenance, Tensor, ValueId};
use tilewright_runtime::plan::{BufferId, Cmp, HostId, Operand, Place, PlanOp, SizeDef, SizeId, Space};

use super::builder::{Builder, Home};
use crate::error::LowerError;
use crate::host::is_host_value;
use crate::sizes::element_bytes;

/// Most copies that one iteration may take to slice or stack a value along an inner axis.
const MAX_RUNS: i64 = 64;

/// A value carried from one iteration to the next: what holds it at the beginning of an iteration, and after the last.
enum Carried {
    /// A tensor.
    Tensor {
        buffer: BufferId,
        /// The slots of its extents that change from one iteration to the next.
        late: Vec<Option<SizeId>>,
    },
    /// A host value.
    Value {
        id: HostId,
        /// The parameter of the body.
        param: ValueId,
    },
}

impl Carried {
    fn buffer(&self) -> Option<BufferId> {
        match self {
            Carried::Tensor { buffer, .. } => Some(*buffer),
            Carried::Value { .. } => None,
        }
    }

    fn value(&self) -> Option<HostId> {
        match self {
            Carried::Tensor { .. } => None,
            Carried::Value { id, .. } => Some(*id),
        }
    }
}

/// A result whose values in all iterations are stacked.
struct Stacked {
    buffer: BufferId,
    axis: usize,
    reversed: bool,
    /// The slots of its extents that the first iteration decides, in the order of the body's result.
    late: Vec<Option<SizeId>>,
}

impl Builder<'_> {
    /// `Loop`: at most so many trips, as long as the condition holds.
    pub(super) fn loop_node(&mut self, node: NodeId, attrs: &LoopAttrs) -> Result<(), LowerError> {
        let data = self.graph.node(node);
        let (provenance, inputs, outputs) =
            (data.provenance.clone(), data.inputs.clone(), data.outputs.clone());
        let body = self.graph.region(attrs.body);
        let (params, results) = (body.params.clone(), body.results.clone());
        let trips = match inputs[0] {
            Some(trips) => Some(self.scalar(trips, &provenance)?),
            None => None,
        };
        let (iteration, condition) = (params[0], params[1]);
        let counter = self.counter(&provenance);
        let iteration_buffer = self.result(iteration, &provenance)?;
        let condition_buffer = self.result(condition, &provenance)?;
        let initial = match inputs[1] {
            Some(initial) => self.operand(initial)?,
            None => self.constant_buffer(Tensor::scalar(true), Space::Host)?,
        };
        self.push(PlanOp::Copy { from: initial, to: condition_buffer }, &provenance);
        let (initials, captures) = inputs[2..].split_at(attrs.carried);
        let carried = self.carry(initials, &params[2..2 + attrs.carried], &provenance)?;
        self.capture(captures, &params[2 + attrs.carried..], &provenance)?;
        let zero = self.sizes.constant(0);
        let stacked: Vec<Stacked> = outputs[attrs.carried..]
            .iter()
            .map(|&output| self.stack(node, output, 0, false, counter, &provenance))
            .collect::<Result<_, _>>()?;

        let head = self.position();
        let mut exits = Vec::new();
        if let Some(trips) = trips {
            let left = self.sizes.binary(SizeDef::Sub, trips, counter);
            let left = self.sizes.binary(SizeDef::Max, left, zero);
            exits.push(self.exit(left, &provenance));
        }
        let goes_on = self.sizes.computed();
        self.push(PlanOp::ReadSize { buffer: condition_buffer, element: 0, slot: goes_on }, &provenance);
        exits.push(self.exit(goes_on, &provenance));
        self.push(PlanOp::WriteSize { buffer: iteration_buffer, element: 0, value: counter }, &provenance);
        self.read_carried_dims(&carried, &provenance)?;
        self.region(attrs.body)?;
        let next = self.operand(results[0])?;
        self.push(PlanOp::Copy { from: next, to: condition_buffer }, &provenance);
        self.end_of_iteration(counter, &results[1..], &carried, &stacked, None, &provenance)?;
        self.close(head, exits, &provenance);
        self.carried_results(&outputs, &carried, &provenance)
    }

    /// `Scan`: one iteration for each slice of the scanned operands.
    pub(super) fn scan_node(&mut self, node: NodeId, attrs: &ScanAttrs) -> Result<(), LowerError> {
        let data = self.graph.node(node);
        let (provenance, inputs, outputs) =
            (data.provenance.clone(), data.inputs.clone(), data.outputs.clone());
        let body = self.graph.region(attrs.body);
        let (params, results) = (body.params.clone(), body.results.clone());
        let (scanned, n_scanned) = (attrs.states, attrs.input_axes.len());
        let counter = self.counter(&provenance);
        let carried = self.carry(&inputs[..attrs.states], &params[..attrs.states], &provenance)?;
        self.capture(&inputs[scanned + n_scanned..], &params[scanned + n_scanned..], &provenance)?;
        let mut trips: Option<SizeId> = None;
        let mut slices = Vec::new();
        for i in 0..n_scanned {
            let value = inputs[scanned + i]
                .ok_or_else(|| LowerError::Internal("a scanned operand is absent".to_string()))?;
            let dims = self.value_dims(value)?;
            let extent = self.dim_slot(&dims[attrs.input_axes[i]], Some(value))?;
            match trips {
                None => trips = Some(extent),
                Some(trips) if trips != extent => {
                    let message = self.texts.intern("scanned extents must be equal");
                    self.push(PlanOp::Guard { lhs: trips, cmp: Cmp::Eq, rhs: extent, message }, &provenance);
                }
                Some(_) => {}
            }
            let from = self.operand(value)?;
            let to = self.result(params[scanned + i], &provenance)?;
            slices.push((from, to, attrs.input_axes[i], attrs.input_reversed[i]));
        }
        let zero = self.sizes.constant(0);
        let trips = trips.unwrap_or(zero);
        let mut stacked = Vec::new();
        for (i, &output) in outputs[attrs.states..].iter().enumerate() {
            let (axis, reversed) = (attrs.output_axes[i], attrs.output_reversed[i]);
            stacked.push(self.stack(node, output, axis, reversed, trips, &provenance)?);
        }
        let head = self.position();
        let left = self.sizes.binary(SizeDef::Sub, trips, counter);
        let exits = vec![self.exit(left, &provenance)];
        for (from, to, axis, reversed) in slices {
            let index = self.index(counter, trips, reversed);
            for (part, whole) in self.runs(node, from, to, axis, index)? {
                self.push(PlanOp::Copy { from: whole, to: part }, &provenance);
            }
        }
        self.read_carried_dims(&carried, &provenance)?;
        self.region(attrs.body)?;
        self.end_of_iteration(counter, &results, &carried, &stacked, Some((node, trips)), &provenance)?;
        self.close(head, exits, &provenance);
        self.carried_results(&outputs, &carried, &provenance)
    }

    // ---- pieces of both

    fn position(&self) -> u32 {
        self.instrs.len() as u32
    }

    /// The counter of iterations, at 0.
    fn counter(&mut self, provenance: &Provenance) -> SizeId {
        let (slot, value) = (self.sizes.computed(), self.sizes.constant(0));
        self.push(PlanOp::SetSize { slot, value }, provenance);
        slot
    }

    /// A branch out of the loop, to be given its target.
    fn exit(&mut self, slot: SizeId, provenance: &Provenance) -> u32 {
        let at = self.position();
        self.push(PlanOp::BranchIfZero { slot, target: 0 }, provenance);
        at
    }

    fn close(&mut self, head: u32, exits: Vec<u32>, provenance: &Provenance) {
        self.push(PlanOp::Jump { target: head }, provenance);
        let end = self.position();
        self.loops.push((head, end - 1));
        for at in exits {
            if let PlanOp::BranchIfZero { target, .. } = &mut self.instrs[at as usize].op {
                *target = end;
            }
        }
    }

    /// The value of an integer scalar.
    fn scalar(&mut self, value: ValueId, provenance: &Provenance) -> Result<SizeId, LowerError> {
        if let Some([dim]) = self.graph.shape_value(value) {
            return self.dim_slot(dim, Some(value));
        }
        let (buffer, slot) = (self.operand_in(value, Space::Host, provenance)?, self.sizes.computed());
        self.push(PlanOp::ReadSize { buffer, element: 0, slot }, provenance);
        Ok(slot)
    }

    /// New slots, set to 0, for the extents of a value that nothing defines yet.
    fn open_extents(&mut self, dims: &[Dim], provenance: &Provenance) -> Vec<Option<SizeId>> {
        let mut slots = Vec::new();
        for dim in dims {
            let open = dim.as_symbol().filter(|&symbol| self.sizes.symbol(symbol).is_none());
            slots.push(open.map(|symbol| {
                let (slot, value) = (self.sizes.computed(), self.sizes.constant(0));
                self.push(PlanOp::SetSize { slot, value }, provenance);
                self.sizes.bind(symbol, slot);
                slot
            }));
        }
        slots
    }

    fn carry(
        &mut self,
        initials: &[Option<ValueId>],
        params: &[ValueId],
        provenance: &Provenance,
    ) -> Result<Vec<Carried>, LowerError> {
        let mut carried = Vec::new();
        for (initial, &param) in initials.iter().zip(params) {
            let initial = initial
                .ok_or_else(|| LowerError::Internal("a carried value has no beginning".to_string()))?;
            if is_host_value(self.graph, param) {
                let id = self.declare_value(param)?;
                self.assign(initial, id, param, provenance)?;
                carried.push(Carried::Value { id, param });
                continue;
            }
            let from = self.operand(initial)?;
            let dims = self.value_dims(param)?;
            let late = self.open_extents(&dims, provenance);
            for (axis, slot) in late.iter().enumerate() {
                if let Some(slot) = *slot {
                    let value = self.buffers[from.index()].shape[axis];
                    self.push(PlanOp::SetSize { slot, value }, provenance);
                }
            }
            let buffer = self.result(param, provenance)?;
            self.push(PlanOp::Copy { from, to: buffer }, provenance);
            carried.push(Carried::Tensor { buffer, late });
        }
        Ok(carried)
    }

    /// Binds the extents of carried strings, at the beginning of every iteration.
    fn read_carried_dims(&mut self, carried: &[Carried], provenance: &Provenance) -> Result<(), LowerError> {
        for carried in carried {
            if let Carried::Value { param, .. } = carried {
                self.read_dims(*param, provenance)?;
            }
        }
        Ok(())
    }

    fn capture(
        &mut self,
        captures: &[Option<ValueId>],
        params: &[ValueId],
        provenance: &Provenance,
    ) -> Result<(), LowerError> {
        for (value, &param) in captures.iter().zip(params) {
            if let Some(value) = value {
                self.capture_one(*value, param, provenance)?;
            }
        }
        Ok(())
    }

    /// The buffer of a stacked result; `trips` is its extent along the axis where that is open.
    fn stack(
        &mut self,
        node: NodeId,
        output: ValueId,
        axis: usize,
        reversed: bool,
        trips: SizeId,
        provenance: &Provenance,
    ) -> Result<Stacked, LowerError> {
        if is_host_value(self.graph, output) {
            return Err(self.dynamic_gap(node, "what it stacks over iterations must be tensors of numbers whose rank is known at compile time"));
        }
        let mut dims = self.value_dims(output)?;
        if let Some(symbol) = dims[axis].as_symbol()
            && self.sizes.symbol(symbol).is_none()
        {
            self.sizes.bind(symbol, trips);
        }
        dims.remove(axis);
        let late = self.open_extents(&dims, provenance);
        let buffer = self.result(output, provenance)?;
        Ok(Stacked { buffer, axis, reversed, late })
    }

    /// Counts the iteration, stacks what is stacked and hands the carried values on.
    fn end_of_iteration(
        &mut self,
        counter: SizeId,
        results: &[ValueId],
        carried: &[Carried],
        stacked: &[Stacked],
        scan: Option<(NodeId, SizeId)>,
        provenance: &Provenance,
    ) -> Result<(), LowerError> {
        let (carried_results, stacked_results) = results.split_at(carried.len());
        let one = self.sizes.constant(1);
        for (&result, stacked) in stacked_results.iter().zip(stacked) {
            let from = self.operand(result)?;
            for (axis, slot) in stacked.late.iter().enumerate() {
                if let Some(slot) = *slot {
                    self.settle(slot, self.buffers[from.index()].shape[axis], counter, provenance);
                }
            }
        }
        let next = self.sizes.binary(SizeDef::Add, counter, one);
        self.push(PlanOp::SetSize { slot: counter, value: next }, provenance);
        let index = self.sizes.binary(SizeDef::Sub, counter, one);
        for (&result, stacked) in stacked_results.iter().zip(stacked) {
            let from = self.operand(result)?;
            if self.is_late(stacked.buffer) {
                self.push(PlanOp::Grow { buffer: stacked.buffer }, provenance);
            }
            match scan {
                None => {
                    let row = self.row(stacked.buffer, from, index);
                    self.push(PlanOp::Copy { from, to: row }, provenance);
                }
                Some((node, trips)) => {
                    let index = self.index(index, trips, stacked.reversed);
                    for (part, whole) in self.runs(node, stacked.buffer, from, stacked.axis, index)? {
                        self.push(PlanOp::Copy { from: part, to: whole }, provenance);
                    }
                }
            }
        }
        self.hand_on_values(carried_results, carried, provenance)?;
        self.hand_on_tensors(carried_results, carried, provenance)
    }

    /// Lets the carried host values be the body's results; those that are overwritten before they are read go aside.
    fn hand_on_values(
        &mut self,
        results: &[ValueId],
        carried: &[Carried],
        provenance: &Provenance,
    ) -> Result<(), LowerError> {
        let slots: Vec<HostId> = carried.iter().filter_map(Carried::value).collect();
        let mut moves = Vec::new();
        for (&result, carried) in results.iter().zip(carried) {
            let Carried::Value { id, param } = *carried else { continue };
            let from = match self.held_on_host(result, provenance)? {
                Operand::Value(from) if from != id && slots.contains(&from) => {
                    Operand::Value(self.set_aside(from, provenance))
                }
                from => from,
            };
            moves.push((from, result, id, param));
        }
        for (from, result, id, param) in moves {
            self.assign_held(from, result, id, param, provenance);
        }
        Ok(())
    }

    /// Copies the body's results into the carried tensors. Results go aside first where a copy would change what another
    /// one, or its own extents, is read from.
    fn hand_on_tensors(
        &mut self,
        results: &[ValueId],
        carried: &[Carried],
        provenance: &Provenance,
    ) -> Result<(), LowerError> {
        let buffers: Vec<BufferId> = carried.iter().filter_map(Carried::buffer).collect();
        let mut moves = Vec::new();
        for (&result, carried) in results.iter().zip(carried) {
            let Carried::Tensor { buffer, late } = carried else { continue };
            let from = self.operand(result)?;
            let root = self.root(from);
            if root == *buffer && late.iter().all(Option::is_none) {
                continue;
            }
            let aliases = buffers.contains(&root);
            let moving = late.iter().any(Option::is_some);
            if !aliases && !moving {
                moves.push((from, *buffer, late, Vec::new()));
                continue;
            }
            let shape = self.buffers[from.index()].shape.clone();
            let mut fixed = Vec::new();
            for value in shape {
                let slot = self.sizes.computed();
                self.push(PlanOp::SetSize { slot, value }, provenance);
                fixed.push(slot);
            }
            let dtype = self.dtype(result)?;
            let aside = self.add_buffer(dtype, fixed.clone(), self.space(*buffer), Home::Planned);
            if self.is_late(aside) {
                self.push(PlanOp::Alloc { buffer: aside }, provenance);
            }
            self.push(PlanOp::Copy { from, to: aside }, provenance);
            moves.push((aside, *buffer, late, fixed));
        }
        for (_, _, late, fixed) in &moves {
            for (slot, &value) in late.iter().zip(fixed) {
                if let Some(slot) = *slot {
                    self.push(PlanOp::SetSize { slot, value }, provenance);
                }
            }
        }
        for (from, to, _, _) in moves {
            if self.is_late(to) {
                self.push(PlanOp::Alloc { buffer: to }, provenance);
            }
            self.push(PlanOp::Copy { from, to }, provenance);
        }
        Ok(())
    }

    /// Sets an extent of a stacked result, which must be the same in every iteration.
    fn settle(&mut self, slot: SizeId, value: SizeId, counter: SizeId, provenance: &Provenance) {
        let difference = self.sizes.binary(SizeDef::Sub, value, slot);
        let clash = self.sizes.binary(SizeDef::Mul, difference, counter);
        let (rhs, message) = (self.sizes.constant(0), self.texts.intern("stacked extents must be equal"));
        self.push(PlanOp::Guard { lhs: clash, cmp: Cmp::Eq, rhs, message }, provenance);
        self.push(PlanOp::SetSize { slot, value }, provenance);
    }

    fn carried_results(
        &mut self,
        outputs: &[ValueId],
        carried: &[Carried],
        provenance: &Provenance,
    ) -> Result<(), LowerError> {
        for (&output, carried) in outputs.iter().zip(carried) {
            let buffer = match carried {
                Carried::Tensor { buffer, .. } => *buffer,
                Carried::Value { id, .. } => {
                    self.host_values.insert(output, *id);
                    self.read_dims(output, provenance)?;
                    continue;
                }
            };
            let dims = self.graph.dims(output).unwrap_or_default();
            for (axis, dim) in dims.iter().enumerate() {
                if let Some(symbol) = dim.as_symbol()
                    && self.sizes.symbol(symbol).is_none()
                {
                    self.sizes.bind(symbol, self.buffers[buffer.index()].shape[axis]);
                }
            }
            self.values.insert(output, buffer);
        }
        Ok(())
    }

    /// The buffer that an alias is part of in the end.
    fn root(&self, buffer: BufferId) -> BufferId {
        let mut root = buffer;
        while let Place::Alias { buffer, .. } = self.buffers[root.index()].place {
            root = buffer;
        }
        root
    }

    fn index(&mut self, index: SizeId, trips: SizeId, reversed: bool) -> SizeId {
        if !reversed {
            return index;
        }
        let one = self.sizes.constant(1);
        let last = self.sizes.binary(SizeDef::Sub, trips, one);
        self.sizes.binary(SizeDef::Sub, last, index)
    }

    /// The place of row `index` in a buffer, for a value of a row.
    fn row(&mut self, whole: BufferId, part: BufferId, index: SizeId) -> BufferId {
        let data = &self.buffers[part.index()];
        let (dtype, shape, bytes) = (data.dtype, data.shape.clone(), data.size_bytes);
        let byte_offset = self.sizes.binary(SizeDef::Mul, bytes, index);
        let space = self.space(whole);
        self.add_buffer(dtype, shape, space, Home::Fixed(Place::Alias { buffer: whole, byte_offset }))
    }

    /// The contiguous runs of slice `index` along `axis`: in the slice's own buffer, and in the whole.
    fn runs(
        &mut self,
        node: NodeId,
        whole: BufferId,
        part: BufferId,
        axis: usize,
        index: SizeId,
    ) -> Result<Vec<(BufferId, BufferId)>, LowerError> {
        if axis == 0 {
            return Ok(vec![(part, self.row(whole, part, index))]);
        }
        let data = &self.buffers[whole.index()];
        let (dtype, shape) = (data.dtype, data.shape.clone());
        let outer: Option<i64> = shape[..axis].iter().map(|&s| self.sizes.as_constant(s)).product();
        let Some(outer) = outer.filter(|n| (0..=MAX_RUNS).contains(n)) else {
            return Err(self
                .dynamic_gap(node, "slices along the axis that it scans are not contiguous, and too many"));
        };
        let bytes = self.sizes.bytes(&shape[axis + 1..], element_bytes(dtype));
        let mut runs = Vec::new();
        for run in 0..outer {
            let run = self.sizes.constant(run);
            let base = self.sizes.binary(SizeDef::Mul, run, shape[axis]);
            let at = self.sizes.binary(SizeDef::Add, base, index);
            let (in_whole, in_part) =
                (self.sizes.binary(SizeDef::Mul, at, bytes), self.sizes.binary(SizeDef::Mul, run, bytes));
            let mut piece = |buffer, byte_offset| {
                let place = Place::Alias { buffer, byte_offset };
                let space = self.space(buffer);
                self.add_buffer(dtype, shape[axis + 1..].to_vec(), space, Home::Fixed(place))
            };
            runs.push((piece(part, in_part), piece(whole, in_whole)));
        }
        Ok(runs)
    }
}
