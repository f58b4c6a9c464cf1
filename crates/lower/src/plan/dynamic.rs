//! Extents that are data, in the plan: reads of operands, slots that depend on them, and the guards both need.

use tilewright_dtype::{DType, Kind};
use tilewright_graph::dim::Dim;
use tilewright_graph::{NodeId, Provenance, SymbolId, ValueId};
use tilewright_runtime::plan::{Cmp, PlanOp, SizeDef, SizeId, Space};

use super::builder::Builder;
use crate::dynamic::{Extents, SizeOp, extent};
use crate::error::{Gap, LowerError};

impl Builder<'_> {
    /// Binds a symbol that an operator's operands define at run time: from here on its slot has a value.
    pub(super) fn define_symbol(
        &mut self,
        symbol: SymbolId,
        value: Option<ValueId>,
    ) -> Result<(), LowerError> {
        let unbound = |b: &Builder<'_>| b.unbound(symbol, value);
        let Some(&(made, axis)) = self.definitions.get(&symbol) else { return Err(unbound(self)) };
        let Some(node) = self.graph.producer(made) else { return Err(unbound(self)) };
        let position = self.graph.node(node).outputs.iter().position(|&v| v == made).unwrap_or_default();
        let provenance = self.graph.node(node).provenance.clone();
        let graph = self.graph;
        let slot = extent(graph, node, position, axis, &mut Slots { builder: self, node, provenance })?;
        self.sizes.bind(symbol, slot);
        self.pending_guards()
    }

    /// The error for an extent that nothing defines before it is needed, for a value if it is that value's.
    fn unbound(&self, symbol: SymbolId, value: Option<ValueId>) -> LowerError {
        let name = &self.graph.symbols[symbol].name;
        let reason = format!("its extent `{name}` is needed before anything tells it");
        match value {
            Some(value) => self.value_gap(value, &reason),
            None => LowerError::Internal(format!("extent `{name}` is needed, and nothing tells it")),
        }
    }

    /// The error for a node that the plan cannot express.
    pub(super) fn dynamic_gap(&self, node: NodeId, reason: &str) -> LowerError {
        LowerError::Unsupported(vec![Gap::of_node(self.graph, node, reason)])
    }
}

/// Numbers as size slots of the plan under construction.
struct Slots<'b, 'a> {
    builder: &'b mut Builder<'a>,
    node: NodeId,
    provenance: Provenance,
}

impl Slots<'_, '_> {
    fn buffer(&mut self, value: ValueId) -> Result<tilewright_runtime::plan::BufferId, LowerError> {
        let exists = self.builder.values.contains_key(&value) || self.builder.graph.constant(value).is_some();
        if !exists {
            return Err(self.gap("an operand that gives extents is computed in the same kernel"));
        }
        self.builder.operand_in(value, Space::Host, &self.provenance)
    }
}

impl Extents for Slots<'_, '_> {
    type Size = SizeId;
    type Error = LowerError;

    fn constant(&mut self, value: i64) -> SizeId {
        self.builder.sizes.constant(value)
    }

    fn dim(&mut self, dim: &Dim) -> Result<SizeId, LowerError> {
        self.builder.dim_slot(dim, self.builder.graph.node(self.node).output())
    }

    fn element(&mut self, value: ValueId, position: usize) -> Result<SizeId, LowerError> {
        let dtype = self.builder.dtype(value)?;
        match dtype.kind() {
            Kind::Int | Kind::UInt | Kind::Bool => {}
            Kind::Float | Kind::String => {
                return Err(self.gap("extents that follow from such elements are not compiled"));
            }
        }
        let buffer = self.buffer(value)?;
        let slot = self.builder.sizes.computed();
        self.builder.push(PlanOp::ReadSize { buffer, element: position as u32, slot }, &self.provenance);
        Ok(slot)
    }

    fn scaled(&mut self, size: SizeId, value: ValueId, position: usize) -> Result<SizeId, LowerError> {
        if self.builder.dtype(value)? != DType::F32 {
            return Err(self.gap("extents that follow from such elements are not compiled"));
        }
        let buffer = self.buffer(value)?;
        let slot = self.builder.sizes.computed();
        let element = position as u32;
        self.builder.push(PlanOp::ScaleSize { size, buffer, element, slot }, &self.provenance);
        Ok(slot)
    }

    fn apply(&mut self, op: SizeOp, a: SizeId, b: SizeId) -> SizeId {
        let def: fn(SizeId, SizeId) -> SizeDef = match op {
            SizeOp::Add => SizeDef::Add,
            SizeOp::Sub => SizeDef::Sub,
            SizeOp::Mul => SizeDef::Mul,
            SizeOp::FloorDiv => SizeDef::FloorDiv,
            SizeOp::CeilDiv => SizeDef::CeilDiv,
            SizeOp::Min => SizeDef::Min,
            SizeOp::Max => SizeDef::Max,
        };
        self.builder.sizes.binary(def, a, b)
    }

    fn require(&mut self, lhs: SizeId, cmp: Cmp, rhs: SizeId, message: &str) -> Result<(), LowerError> {
        let sizes = &self.builder.sizes;
        if let (Some(a), Some(b)) = (sizes.as_constant(lhs), sizes.as_constant(rhs))
            && cmp.holds(a, b)
        {
            return Ok(());
        }
        let message = self.builder.texts.intern(message);
        self.builder.push(PlanOp::Guard { lhs, cmp, rhs, message }, &self.provenance);
        Ok(())
    }

    fn gap(&self, reason: &str) -> LowerError {
        self.builder.dynamic_gap(self.node, reason)
    }
}
