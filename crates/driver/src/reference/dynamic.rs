//! Extents that are data, as numbers.

use tilewright_dtype::{DType, Kind};
use tilewright_graph::dim::Dim;
use tilewright_graph::{NodeId, SymbolId, ValueId};
use tilewright_lower::dynamic::{Extents, SizeOp, extent};
use tilewright_lower::{Gap, LowerError};
use tilewright_runtime::plan::Cmp;
use tilewright_te::interp::TensorData;

use super::{Reference, State};
use crate::error::CompileError;
use crate::gap::Stage;

impl Reference<'_> {
    /// Gives a symbol its value, from the operands of the node that defines it.
    pub(super) fn define_symbol(&self, state: &mut State, symbol: SymbolId) -> Result<(), CompileError> {
        if state.symbols.contains_key(&symbol) {
            return Ok(());
        }
        let unbound = || {
            let name = &self.graph.symbols[symbol].name;
            CompileError::internal("interpreter", format!("nothing tells extent `{name}`"))
        };
        let &(made, axis) = self.definitions.get(&symbol).ok_or_else(unbound)?;
        let node = self.graph.producer(made).ok_or_else(unbound)?;
        let position = self.graph.node(node).outputs.iter().position(|&v| v == made).unwrap_or_default();
        let mut numbers = Numbers { reference: self, state, node };
        let size = extent(self.graph, node, position, axis, &mut numbers)?;
        let undefined = || CompileError::internal("interpreter", "an extent is out of range");
        state.symbols.insert(symbol, size.ok_or_else(undefined)?);
        Ok(())
    }
}

/// Numbers known at once; `None` where the arithmetic fails.
struct Numbers<'r, 'a> {
    reference: &'r Reference<'a>,
    state: &'r mut State,
    node: NodeId,
}

impl Extents for Numbers<'_, '_> {
    type Size = Option<i64>;
    type Error = CompileError;

    fn constant(&mut self, value: i64) -> Option<i64> {
        Some(value)
    }

    fn dim(&mut self, dim: &Dim) -> Result<Option<i64>, CompileError> {
        let values = self.reference.extents(self.state, std::slice::from_ref(dim))?;
        Ok(values.first().copied())
    }

    fn element(&mut self, value: ValueId, position: usize) -> Result<Option<i64>, CompileError> {
        let data = self.reference.value(self.state, value)?;
        match integer(&data, position) {
            Some(element) => Ok(Some(element)),
            None => Err(self.gap("extents that follow from such elements are not compiled")),
        }
    }

    fn scaled(
        &mut self,
        size: Option<i64>,
        value: ValueId,
        position: usize,
    ) -> Result<Option<i64>, CompileError> {
        let data = self.reference.value(self.state, value)?;
        let bytes = data.bytes.chunks_exact(4).nth(position).and_then(|b| b.try_into().ok());
        match bytes.filter(|_| data.dtype == DType::F32) {
            Some(bytes) => {
                let product = size.map(|size| (size as f32 * f32::from_le_bytes(bytes)).floor());
                Ok(product.filter(|p| p.abs() < 9e18).map(|p| p as i64))
            }
            None => Err(self.gap("extents that follow from such elements are not compiled")),
        }
    }

    fn apply(&mut self, op: SizeOp, a: Option<i64>, b: Option<i64>) -> Option<i64> {
        op.apply(a?, b?)
    }

    fn require(
        &mut self,
        a: Option<i64>,
        cmp: Cmp,
        b: Option<i64>,
        message: &str,
    ) -> Result<(), CompileError> {
        match (a, b) {
            (Some(a), Some(b)) if cmp.holds(a, b) => Ok(()),
            _ => Err(CompileError::Option(message.to_string())),
        }
    }

    fn gap(&self, reason: &str) -> CompileError {
        let gap = Gap::of_node(self.reference.graph, self.node, reason);
        CompileError::of_lowering(Stage::Interpreter, LowerError::Unsupported(vec![gap]))
    }
}

/// An element of an integer tensor, by its row-major position.
pub(super) fn integer(data: &TensorData, position: usize) -> Option<i64> {
    let width = data.dtype.bytes();
    let bytes = data.bytes.get(position * width..(position + 1) * width)?;
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(bytes);
    let unsigned = u64::from_le_bytes(wide);
    match data.dtype.kind() {
        Kind::UInt | Kind::Bool => i64::try_from(unsigned).ok(),
        Kind::Int => {
            let unused = 64 - 8 * width as u32;
            Some((unsigned << unused) as i64 >> unused)
        }
        Kind::Float | Kind::String => None,
    }
}
