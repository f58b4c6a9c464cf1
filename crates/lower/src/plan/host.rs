//! Host operators and host values in the plan.

use tilewright_graph::dim::Dim;
use tilewright_graph::{NodeId, Provenance, SymbolKind, Type, ValueId};
use tilewright_host::HostOp;
use tilewright_runtime::plan::{
    BufferId, Cmp, HostId, MAX_NESTING, Nesting, Operand, Place, PlanOp, SizeDef, SizeId, Space, ValueSpec,
    ValueType,
};

use super::builder::{Builder, Home};
use crate::error::LowerError;
use crate::host::{constant, is_host_value};

impl Builder<'_> {
    // ---- values

    /// A new host value for a value of the graph.
    pub(super) fn declare_value(&mut self, value: ValueId) -> Result<HostId, LowerError> {
        let ty = self.value_type(value)?;
        let id = self.new_value(ty);
        self.host_values.insert(value, id);
        Ok(id)
    }

    fn new_value(&mut self, ty: ValueType) -> HostId {
        let id = HostId(self.value_types.len() as u32);
        self.value_types.push(ty);
        id
    }

    fn value_type(&self, value: ValueId) -> Result<ValueType, LowerError> {
        let mut nesting = Vec::new();
        let mut ty = self.graph.ty(value);
        let tensor = loop {
            match ty {
                Type::Tensor(tensor) => break tensor,
                Type::Sequence(inner) => {
                    nesting.push(Nesting::Sequence);
                    ty = inner;
                }
                Type::Optional(inner) => {
                    nesting.push(Nesting::Optional);
                    ty = inner;
                }
            }
        };
        if nesting.len() > MAX_NESTING {
            return Err(self.value_gap(value, "its type is nested too deeply"));
        }
        let extent = |dim: &Dim| dim.as_const().and_then(|dim| u64::try_from(dim).ok());
        let dims = tensor.shape.dims().map(|dims| dims.iter().map(extent).collect());
        Ok(ValueType { nesting, dtype: tensor.dtype, dims })
    }

    /// Where a value is that exists. Constants of strings are made where they are used.
    pub(super) fn held(&mut self, value: ValueId, provenance: &Provenance) -> Result<Operand, LowerError> {
        if let Some(&id) = self.host_values.get(&value) {
            return Ok(Operand::Value(id));
        }
        if !is_host_value(self.graph, value) || self.values.contains_key(&value) {
            return self.operand(value).map(Operand::Buffer);
        }
        let Some(tensor) = self.graph.constant(value) else {
            return Err(LowerError::Internal(format!("{value} is used before it is computed")));
        };
        let Some(op) = constant(tensor) else {
            return Err(self.value_gap(value, "its strings are not UTF-8"));
        };
        let ty = self.value_type(value)?;
        let made = Operand::Value(self.new_value(ty));
        self.push_host(&op, vec![], vec![made], vec![], provenance);
        Ok(made)
    }

    /// [`Builder::held`], for a host operator.
    pub(super) fn held_on_host(
        &mut self,
        value: ValueId,
        provenance: &Provenance,
    ) -> Result<Operand, LowerError> {
        match self.held(value, provenance)? {
            Operand::Buffer(_) => self.operand_in(value, Space::Host, provenance).map(Operand::Buffer),
            held @ (Operand::Value(_) | Operand::Absent) => Ok(held),
        }
    }

    /// The host value of a value that the graph has as one.
    pub(super) fn value_of(&mut self, value: ValueId) -> Result<HostId, LowerError> {
        let none = Provenance::default();
        match self.held_on_host(value, &none)? {
            Operand::Value(id) => Ok(id),
            from @ (Operand::Buffer(_) | Operand::Absent) => {
                let id = self.declare_value(value)?;
                self.assign_held(from, value, id, value, &none);
                Ok(id)
            }
        }
    }

    /// Lets a parameter of a region be a value from outside.
    pub(super) fn capture_one(
        &mut self,
        value: ValueId,
        param: ValueId,
        provenance: &Provenance,
    ) -> Result<(), LowerError> {
        match self.held(value, provenance)? {
            Operand::Buffer(buffer) => _ = self.values.insert(param, buffer),
            Operand::Value(id) => _ = self.host_values.insert(param, id),
            Operand::Absent => {}
        }
        Ok(())
    }

    /// Makes the host value `to`, of the type of the graph's value `like`, from a value of a type that it covers.
    pub(super) fn assign(
        &mut self,
        value: ValueId,
        to: HostId,
        like: ValueId,
        provenance: &Provenance,
    ) -> Result<(), LowerError> {
        let from = self.held_on_host(value, provenance)?;
        self.assign_held(from, value, to, like, provenance);
        Ok(())
    }

    /// [`Builder::assign`] where the value is in another place than its own.
    pub(super) fn assign_held(
        &mut self,
        from: Operand,
        value: ValueId,
        to: HostId,
        like: ValueId,
        provenance: &Provenance,
    ) {
        let is_optional = |value| matches!(self.graph.ty(value), Type::Optional(_));
        let wraps = is_optional(like) && !is_optional(value);
        match from {
            Operand::Value(from) if !wraps && from == to => {}
            Operand::Value(from) if !wraps => self.push(PlanOp::CopyValue { from, to }, provenance),
            Operand::Value(_) | Operand::Buffer(_) | Operand::Absent => {
                let op = if wraps { HostOp::OptionalSome } else { HostOp::Copy };
                self.push_host(&op, vec![from], vec![Operand::Value(to)], vec![], provenance);
            }
        }
    }

    /// A copy of a host value that keeps it when it is overwritten.
    pub(super) fn set_aside(&mut self, from: HostId, provenance: &Provenance) -> HostId {
        let to = self.new_value(self.value_types[from.index()].clone());
        self.push(PlanOp::CopyValue { from, to }, provenance);
        to
    }

    /// Binds the extents of a tensor of strings that nothing defines yet.
    pub(super) fn read_dims(&mut self, value: ValueId, provenance: &Provenance) -> Result<(), LowerError> {
        let Some(&id) = self.host_values.get(&value) else { return Ok(()) };
        let dims = self.graph.dims(value).map(<[Dim]>::to_vec).unwrap_or_default();
        for (axis, dim) in dims.iter().enumerate() {
            if let Some(symbol) = dim.as_symbol()
                && self.sizes.symbol(symbol).is_none()
            {
                let slot = self.sizes.computed();
                self.push(PlanOp::ReadDim { value: id, axis: axis as u32, slot }, provenance);
                self.sizes.bind(symbol, slot);
            }
        }
        self.pending_guards()
    }

    // ---- operators

    fn push_host(
        &mut self,
        op: &HostOp,
        inputs: Vec<Operand>,
        outputs: Vec<Operand>,
        sizes_out: Vec<SizeId>,
        provenance: &Provenance,
    ) {
        let (op, attrs) = (op.code(), op.attrs());
        self.push(PlanOp::Host { op, attrs, inputs, outputs, sizes_out }, provenance);
    }

    /// A node that runs on the host. Extents of results that nothing defines yet are sizes the operator sets; it
    /// checks the others.
    pub(super) fn host(&mut self, node: NodeId, op: &HostOp) -> Result<(), LowerError> {
        let data = self.graph.node(node);
        let provenance = data.provenance.clone();
        let (inputs, outputs) = (data.inputs.clone(), data.outputs.clone());
        let mut operands = Vec::with_capacity(inputs.len());
        for input in inputs {
            operands.push(match input {
                Some(input) => self.held_on_host(input, &provenance)?,
                None => Operand::Absent,
            });
        }
        let mut sizes_out = Vec::new();
        let mut results = Vec::with_capacity(outputs.len());
        for &output in &outputs {
            results.push(if is_host_value(self.graph, output) {
                Operand::Value(self.declare_value(output)?)
            } else {
                Operand::Buffer(self.host_result(output, &mut sizes_out)?)
            });
        }
        self.push_host(op, operands, results, sizes_out, &provenance);
        for &output in &outputs {
            self.read_dims(output, &provenance)?;
        }
        self.pending_guards()
    }

    /// The buffer of a result, which the operator allocates itself where its size is late.
    fn host_result(&mut self, value: ValueId, sizes_out: &mut Vec<SizeId>) -> Result<BufferId, LowerError> {
        let dims = self.value_dims(value)?;
        for symbol in dims.iter().filter_map(Dim::as_symbol) {
            let is_computed = self.graph.symbols[symbol].kind == SymbolKind::Computed;
            match self.sizes.symbol(symbol) {
                None if is_computed => {
                    let slot = self.sizes.computed();
                    self.sizes.bind(symbol, slot);
                    sizes_out.push(slot);
                }
                Some(_) | None => {}
            }
        }
        let shape = dims.iter().map(|d| self.dim_slot(d, Some(value))).collect::<Result<Vec<_>, _>>()?;
        let home = match self.claims.get(&value) {
            Some(&output) if self.graph.outputs()[output] == value => {
                Home::Fixed(Place::Output(self.output_index(output)))
            }
            Some(_) | None => Home::Planned,
        };
        let buffer = self.add_buffer(self.dtype(value)?, shape, Space::Host, home);
        self.values.insert(value, buffer);
        Ok(buffer)
    }

    // ---- inputs and outputs

    /// Declares the inputs that are host values. Extents of strings that are also extents of tensors must agree.
    pub(super) fn declare_value_inputs(&mut self) -> Result<(), LowerError> {
        let none = Provenance::default();
        for (i, &value) in self.graph.inputs().to_vec().iter().enumerate() {
            if !is_host_value(self.graph, value) {
                continue;
            }
            let id = self.declare_value(value)?;
            let name = self.graph.value(value).name.as_deref().unwrap_or_default().to_string();
            self.value_inputs.push(ValueSpec { name, position: i as u32, value: id });
            let dims = self.graph.dims(value).map(<[Dim]>::to_vec).unwrap_or_default();
            for (axis, dim) in dims.iter().enumerate() {
                let Some(symbol) = dim.as_symbol() else { continue };
                let slot = self.sizes.computed();
                self.push(PlanOp::ReadDim { value: id, axis: axis as u32, slot }, &none);
                match self.sizes.symbol(symbol) {
                    Some(known) => {
                        let message = self.texts.intern("extents of the same name must be equal");
                        self.push(PlanOp::Guard { lhs: slot, cmp: Cmp::Eq, rhs: known, message }, &none);
                    }
                    None => {
                        self.sizes.bind(symbol, slot);
                        self.guard_range(slot, symbol);
                    }
                }
            }
        }
        Ok(())
    }

    /// Guards the range of a symbol that is late, for which bounds, checked before the run, come too early.
    fn guard_range(&mut self, slot: SizeId, symbol: tilewright_graph::SymbolId) {
        let (range, name) = (self.graph.symbols[symbol].range, self.graph.symbols[symbol].name.clone());
        if range == tilewright_graph::Range::ANY {
            return;
        }
        let message = self.texts.intern(&format!("size `{name}` is outside what the model was compiled for"));
        let (lo, step, zero) =
            (self.sizes.constant(range.lo), self.sizes.constant(range.step), self.sizes.constant(0));
        let above = self.sizes.binary(SizeDef::Sub, slot, lo);
        let rest = self.sizes.binary(SizeDef::Mod, above, step);
        let none = Provenance::default();
        self.push(PlanOp::Guard { lhs: lo, cmp: Cmp::Le, rhs: slot, message }, &none);
        self.push(PlanOp::Guard { lhs: rest, cmp: Cmp::Eq, rhs: zero, message }, &none);
        if let Some(hi) = range.hi {
            let hi = self.sizes.constant(hi);
            self.push(PlanOp::Guard { lhs: slot, cmp: Cmp::Le, rhs: hi, message }, &none);
        }
    }

    /// The place of an output of the graph among those that are tensors.
    pub(super) fn output_index(&self, output: usize) -> u32 {
        self.graph.outputs()[..output].iter().filter(|&&value| !is_host_value(self.graph, value)).count()
            as u32
    }
}
