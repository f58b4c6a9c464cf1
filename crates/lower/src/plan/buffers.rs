//! The buffers of values: operands, results, constants, parts of others.

use tilewright_dtype::DType;
use tilewright_graph::dim::Dim;
use tilewright_graph::{Provenance, Tensor, ValueId};
use tilewright_runtime::plan::{BufferDef, BufferId, Place, PlanOp, SizeId, Space};
use tilewright_te::Func;

use super::builder::{Builder, Home, NO_BUFFER};
use super::weights::Weight;
use crate::error::LowerError;
use crate::host::is_host_value;
use crate::parts::Part;
use crate::sizes::element_bytes;

impl Builder<'_> {
    /// A buffer in a space; an alias is where the other buffer is.
    pub(super) fn add_buffer(
        &mut self,
        dtype: DType,
        shape: Vec<SizeId>,
        space: Space,
        home: Home,
    ) -> BufferId {
        let size_bytes = self.sizes.bytes(&shape, element_bytes(dtype));
        self.add_buffer_of(dtype, shape, size_bytes, space, home)
    }

    pub(super) fn add_buffer_of(
        &mut self,
        dtype: DType,
        shape: Vec<SizeId>,
        size_bytes: SizeId,
        space: Space,
        home: Home,
    ) -> BufferId {
        let place = match home {
            Home::Fixed(place) => place,
            Home::Planned => Place::Dynamic,
        };
        let space = match place {
            Place::Alias { buffer, .. } => self.space(buffer),
            _ => space,
        };
        let buffer = BufferId(self.buffers.len() as u32);
        self.buffers.push(BufferDef { dtype, size_bytes, shape, space, place });
        self.homes.push(home);
        buffer
    }

    pub(super) fn space(&self, buffer: BufferId) -> Space {
        self.buffers[buffer.index()].space
    }

    /// Where the result of a function or of control flow belongs.
    pub(super) fn home_space(&self, value: ValueId) -> Space {
        self.program.spaces.get(&value).copied().unwrap_or_default()
    }

    /// The buffer of a value that exists, in a space: its own, or a copy that is made here if there is none.
    ///
    /// A copy serves what comes after it in the same region: whether a branch or a loop runs at all is not known outside of it.
    pub(super) fn operand_in(
        &mut self,
        value: ValueId,
        space: Space,
        provenance: &Provenance,
    ) -> Result<BufferId, LowerError> {
        if let Some(tensor) = self.graph.constant(value).filter(|_| space == Space::Device) {
            if let Some(&buffer) = self.device_constants.get(&value) {
                return Ok(buffer);
            }
            let buffer = self.constant_buffer(tensor.clone(), space)?;
            self.device_constants.insert(value, buffer);
            return Ok(buffer);
        }
        let from = self.operand(value)?;
        Ok(if self.space(from) == space { from } else { self.copied(from, provenance) })
    }

    /// A buffer's copy in the other space. Views of a buffer are views of its copy, and weights are in both spaces from the beginning.
    fn copied(&mut self, from: BufferId, provenance: &Provenance) -> BufferId {
        if let Some(&copy) = self.copies.iter().find_map(|copies| copies.get(&from)) {
            return copy;
        }
        let BufferDef { dtype, size_bytes, shape, space, place } = self.buffers[from.index()].clone();
        let to = match (self.views.get(&from).copied(), place) {
            (Some(whole), _) => {
                let whole = self.copied(whole, provenance);
                self.alias(whole, dtype, shape)
            }
            (None, Place::Weight { .. }) => {
                self.add_buffer_of(dtype, shape, size_bytes, space.other(), Home::Fixed(place))
            }
            (None, _) => {
                let to = self.add_buffer_of(dtype, shape, size_bytes, space.other(), Home::Planned);
                if self.is_late(to) {
                    self.push(PlanOp::Alloc { buffer: to }, provenance);
                }
                self.push(PlanOp::Copy { from, to }, provenance);
                to
            }
        };
        self.copies.last_mut().map(|copies| copies.insert(from, to));
        to
    }

    /// Whether the buffer's size is known only once instructions have run.
    pub(super) fn is_late(&self, buffer: BufferId) -> bool {
        self.sizes.is_late(self.buffers[buffer.index()].size_bytes)
    }

    /// The buffer of a value that exists: a result so far, an input, or a constant.
    pub(super) fn operand(&mut self, value: ValueId) -> Result<BufferId, LowerError> {
        if let Some(&buffer) = self.values.get(&value) {
            return Ok(buffer);
        }
        if is_host_value(self.graph, value) {
            return Err(self.value_gap(value, NO_BUFFER));
        }
        let Some(tensor) = self.graph.constant(value) else {
            return Err(LowerError::Internal(format!("{value} is used before it is computed")));
        };
        let buffer = self.constant_buffer(tensor.clone(), Space::Host)?;
        self.values.insert(value, buffer);
        Ok(buffer)
    }

    /// The buffer of a constant in the weights.
    pub(super) fn constant_buffer(&mut self, tensor: Tensor, space: Space) -> Result<BufferId, LowerError> {
        let shape: Vec<i64> = tensor.dims().iter().map(|&d| d as i64).collect();
        let (dtype, bytes) =
            (tensor.dtype(), tensor.bytes().map_or(0, |bytes| bytes.as_slice().len() as u64));
        Ok(self.weight(Weight { tensor, packing: Vec::new(), bytes }, dtype, &shape, space))
    }

    fn weight(&mut self, weight: Weight, dtype: DType, shape: &[i64], space: Space) -> BufferId {
        let (offset, len) = self.weights.place(weight);
        let shape: Vec<SizeId> = shape.iter().map(|&n| self.sizes.constant(n)).collect();
        self.add_buffer(dtype, shape, space, Home::Fixed(Place::Weight { offset, len }))
    }

    /// The buffer of a constant as a function wants it.
    pub(super) fn packed(
        &mut self,
        value: ValueId,
        packing: &[Func],
        space: Space,
    ) -> Result<BufferId, LowerError> {
        let Some(tensor) = self.graph.constant(value) else {
            return Err(LowerError::Internal(format!("{value} is packed and no constant")));
        };
        let Some((last, [_, output])) = packing.last().map(|last| (last, &last.params[..])) else {
            return Err(LowerError::Internal(format!("{value} is not packed into one tensor")));
        };
        let data = &last.buffers[*output];
        let shape: Option<Vec<i64>> = data.shape.iter().map(|e| e.as_int()).collect();
        let bytes = shape.as_ref().and_then(|shape| {
            let mut extents = shape.iter().map(|&n| u64::try_from(n).ok());
            extents.try_fold(data.dtype.bytes() as u64, |bytes, n| bytes.checked_mul(n?))
        });
        let (Some(shape), Some(bytes)) = (shape, bytes) else {
            return Err(LowerError::Internal("a packed constant has no constant shape".to_string()));
        };
        let weight = Weight { tensor: tensor.clone(), packing: packing.to_vec(), bytes };
        Ok(self.weight(weight, data.dtype, &shape, space))
    }

    /// A new buffer for a value as it lies in memory.
    pub(super) fn stored_buffer(&mut self, value: ValueId, home: Home) -> Result<BufferId, LowerError> {
        let dims = self.value_dims(value)?;
        let shape = self.shape(value, &dims)?;
        let (dtype, space) = (self.dtype(value)?, self.home_space(value));
        match self.stored.get(&value).cloned() {
            Some(elements) if elements != Dim::product(&dims) => {
                let elements = self.dim_slot(&elements, Some(value))?;
                let size_bytes = self.sizes.bytes(&[elements], element_bytes(dtype));
                Ok(self.add_buffer_of(dtype, shape, size_bytes, space, home))
            }
            Some(_) | None => Ok(self.add_buffer(dtype, shape, space, home)),
        }
    }

    /// A new buffer for a value that a step is about to compute.
    pub(super) fn result(&mut self, value: ValueId, provenance: &Provenance) -> Result<BufferId, LowerError> {
        if let Some(&part) = self.program.parts.get(&value) {
            let buffer = self.part(value, part, provenance)?;
            self.values.insert(value, buffer);
            return Ok(buffer);
        }
        let dims = self.value_dims(value)?;
        let shape = self.shape(value, &dims)?;
        let dtype = self.dtype(value)?;
        let buffer = match self.claims.get(&value).copied() {
            Some(i) => {
                let output_value = self.graph.outputs()[i];
                let output_dims = self.value_dims(output_value)?;
                let output_shape = self.shape(output_value, &output_dims)?;
                let place = Home::Fixed(Place::Output(self.output_index(i)));
                let output = self.add_buffer(dtype, output_shape, Space::Host, place);
                if self.is_late(output) {
                    self.push(PlanOp::Alloc { buffer: output }, provenance);
                }
                if output_value == value { output } else { self.alias(output, dtype, shape) }
            }
            None => {
                let buffer = self.stored_buffer(value, Home::Planned)?;
                if self.is_late(buffer) {
                    self.push(PlanOp::Alloc { buffer }, provenance);
                }
                buffer
            }
        };
        self.values.insert(value, buffer);
        Ok(buffer)
    }

    /// The buffer of a value that another one may already have called for, to lie in it.
    pub(super) fn placed(&mut self, value: ValueId, provenance: &Provenance) -> Result<BufferId, LowerError> {
        match self.values.get(&value) {
            Some(&buffer) => Ok(buffer),
            None if self.graph.constant(value).is_some() => self.operand(value),
            None => self.result(value, provenance),
        }
    }

    /// A value's place in another one.
    pub(super) fn part(
        &mut self,
        value: ValueId,
        part: Part,
        provenance: &Provenance,
    ) -> Result<BufferId, LowerError> {
        let buffer = self.placed(part.whole, provenance)?;
        let offset = i64::try_from(part.offset)
            .map_err(|_| LowerError::Internal(format!("{value} lies too far inside of another value")))?;
        let byte_offset = self.sizes.constant(offset);
        self.stored_buffer(value, Home::Fixed(Place::Alias { buffer, byte_offset }))
    }

    pub(super) fn alias(&mut self, buffer: BufferId, dtype: DType, shape: Vec<SizeId>) -> BufferId {
        let byte_offset = self.sizes.constant(0);
        let space = self.space(buffer);
        self.add_buffer(dtype, shape, space, Home::Fixed(Place::Alias { buffer, byte_offset }))
    }
}
