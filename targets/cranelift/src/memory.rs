//! Loads, stores, gathers and scatters.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, types};
use tilewright_dtype::DType;
use tilewright_machine::CodegenError;
use tilewright_te::expr::CompareOp;
use tilewright_te::kernel::{MemRef, Type, Value};

use crate::error::invalid;
use crate::function::{Function, Nowhere, PlaceInfo, arguments};
use crate::lanes::Lanes;

/// An address and a constant number of bytes after it.
#[derive(Clone, Copy)]
struct Address {
    base: ir::Value,
    offset: i32,
}

impl Function<'_, '_> {
    pub(crate) fn load(
        &mut self,
        ty: Type,
        place: MemRef,
        index: Value,
        offset: i64,
        mask: Option<Value>,
    ) -> Result<Lanes, CodegenError> {
        let place = self.typed_place(place, ty.dtype)?;
        let lane = self.lane_type(ty.dtype)?;
        let address = self.address(&place, index, offset, ty.lanes)?;
        let Some(mask) = mask else {
            let bits = self.load_parts(&place, address, lane, ty.lanes);
            return Ok(self.unpack(ty, bits));
        };
        // All lanes at once where none is masked off, which is so in all but the last step of most loops.
        let mask = self.mask(mask, ty.lanes)?;
        let [whole, single, after] = [(); 3].map(|()| self.builder.create_block());
        let all = self.all(&mask);
        self.builder.ins().brif(all, whole, &[], single, &[]);
        self.builder.switch_to_block(whole);
        let bits = self.load_parts(&place, address, lane, ty.lanes);
        self.builder.ins().jump(after, &arguments(&bits.parts));
        self.builder.switch_to_block(single);
        let zeros = self.nowhere(&place)?.zeros;
        let mut scalars = Vec::new();
        for i in 0..ty.lanes {
            let active = self.lane(&mask, i);
            let element = self.element(address, lane, i);
            let from = self.builder.ins().select(active, element, zeros);
            scalars.push(self.builder.ins().load(lane, place.flags, from, 0));
        }
        let bits = self.assemble(lane, false, &scalars);
        self.builder.ins().jump(after, &arguments(&bits.parts));
        self.builder.switch_to_block(after);
        let types = self.part_types(lane, ty.lanes);
        let parts = types.into_iter().map(|ty| self.builder.append_block_param(after, ty)).collect();
        Ok(self.unpack(ty, Lanes { lane, n: ty.lanes, mask: false, parts }))
    }

    pub(crate) fn store(
        &mut self,
        place: MemRef,
        index: Value,
        offset: i64,
        value: Value,
        mask: Option<Value>,
    ) -> Result<(), CodegenError> {
        let ty = self.ty(value)?;
        let place = self.typed_place(place, ty.dtype)?;
        let address = self.address(&place, index, offset, ty.lanes)?;
        let bits = self.value(value)?;
        let bits = self.pack(bits);
        let Some(mask) = mask else {
            self.store_parts(&place, address, &bits);
            return Ok(());
        };
        let mask = self.mask(mask, ty.lanes)?;
        let [whole, single, after] = [(); 3].map(|()| self.builder.create_block());
        let all = self.all(&mask);
        self.builder.ins().brif(all, whole, &[], single, &[]);
        self.builder.switch_to_block(whole);
        self.store_parts(&place, address, &bits);
        self.builder.ins().jump(after, &[]);
        self.builder.switch_to_block(single);
        let sink = self.nowhere(&place)?.sink;
        for i in 0..ty.lanes {
            let (active, scalar) = (self.lane(&mask, i), self.lane(&bits, i));
            let element = self.element(address, bits.lane, i);
            let to = self.builder.ins().select(active, element, sink);
            self.builder.ins().store(place.flags, scalar, to, 0);
        }
        self.builder.ins().jump(after, &[]);
        self.builder.switch_to_block(after);
        Ok(())
    }

    pub(crate) fn gather(
        &mut self,
        ty: Type,
        place: MemRef,
        indices: Value,
        offset: i64,
        mask: Option<Value>,
    ) -> Result<Lanes, CodegenError> {
        let place = self.typed_place(place, ty.dtype)?;
        let lane = self.lane_type(ty.dtype)?;
        let elements = self.elements(&place, indices, offset, ty.lanes)?;
        let mut scalars = Vec::new();
        match mask {
            None => {
                for Address { base, offset } in elements {
                    scalars.push(self.builder.ins().load(lane, place.flags, base, offset));
                }
            }
            Some(mask) => {
                let mask = self.mask(mask, ty.lanes)?;
                let zeros = self.nowhere(&place)?.zeros;
                for (i, address) in elements.into_iter().enumerate() {
                    let active = self.lane(&mask, i as u32);
                    let element = self.element(address, lane, 0);
                    let from = self.builder.ins().select(active, element, zeros);
                    scalars.push(self.builder.ins().load(lane, place.flags, from, 0));
                }
            }
        }
        let bits = self.assemble(lane, false, &scalars);
        Ok(self.unpack(ty, bits))
    }

    pub(crate) fn scatter(
        &mut self,
        place: MemRef,
        indices: Value,
        offset: i64,
        value: Value,
        mask: Option<Value>,
    ) -> Result<(), CodegenError> {
        let ty = self.ty(value)?;
        let place = self.typed_place(place, ty.dtype)?;
        let bits = self.value(value)?;
        let bits = self.pack(bits);
        let elements = self.elements(&place, indices, offset, ty.lanes)?;
        let mask = mask.map(|mask| self.mask(mask, ty.lanes)).transpose()?;
        for (i, address) in elements.into_iter().enumerate() {
            let scalar = self.lane(&bits, i as u32);
            match &mask {
                None => {
                    self.builder.ins().store(place.flags, scalar, address.base, address.offset);
                }
                Some(mask) => {
                    let (sink, active) = (self.nowhere(&place)?.sink, self.lane(mask, i as u32));
                    let element = self.element(address, bits.lane, 0);
                    let to = self.builder.ins().select(active, element, sink);
                    self.builder.ins().store(place.flags, scalar, to, 0);
                }
            }
        }
        Ok(())
    }

    fn load_parts(&mut self, place: &PlaceInfo, address: Address, lane: ir::Type, n: u32) -> Lanes {
        let mut offset = address.offset;
        let types = self.part_types(lane, n);
        let parts = types
            .into_iter()
            .map(|ty| {
                let part = self.builder.ins().load(ty, place.flags, address.base, offset);
                offset += ty.bytes() as i32;
                part
            })
            .collect();
        Lanes { lane, n, mask: false, parts }
    }

    fn store_parts(&mut self, place: &PlaceInfo, address: Address, bits: &Lanes) {
        let mut offset = address.offset;
        for part in &bits.parts {
            self.builder.ins().store(place.flags, *part, address.base, offset);
            offset += self.builder.func.dfg.value_type(*part).bytes() as i32;
        }
    }

    fn typed_place(&self, place: MemRef, dtype: DType) -> Result<PlaceInfo, CodegenError> {
        let info = self.place(place)?;
        if info.dtype != dtype {
            return Err(invalid(self.kernel, format!("{dtype} access to {place:?} of {}", info.dtype)));
        }
        Ok(info)
    }

    /// The address of element `index + offset`, from which `n` elements are accessed.
    fn address(
        &mut self,
        place: &PlaceInfo,
        index: Value,
        offset: i64,
        n: u32,
    ) -> Result<Address, CodegenError> {
        let ty = self.ty(index)?;
        if ty != Type::scalar(DType::I64) {
            return Err(invalid(self.kernel, format!("index {index} is a {ty}")));
        }
        let index = self.value(index)?.scalar();
        Ok(self.displaced(place, index, offset, n))
    }

    /// The address of element `indices[i] + offset` for every lane.
    fn elements(
        &mut self,
        place: &PlaceInfo,
        indices: Value,
        offset: i64,
        lanes: u32,
    ) -> Result<Vec<Address>, CodegenError> {
        let ty = self.ty(indices)?;
        if ty != Type::vector(DType::I64, lanes) {
            return Err(invalid(self.kernel, format!("indices {indices} are a {ty}")));
        }
        let indices = self.value(indices)?;
        let indices = self.scalars(&indices);
        Ok(indices.into_iter().map(|index| self.displaced(place, index, offset, 1)).collect())
    }

    /// The constant part stays apart where it fits an addressing mode's displacement.
    fn displaced(&mut self, place: &PlaceInfo, index: ir::Value, offset: i64, n: u32) -> Address {
        let bytes = place.dtype.bytes() as i64;
        let scaled = self.builder.ins().ishl_imm_s(index, i64::from(bytes.trailing_zeros()));
        let base = self.builder.ins().iadd(place.pointer, scaled);
        let offset = offset.wrapping_mul(bytes);
        match i32::try_from(offset) {
            Ok(small) if i32::try_from(offset.saturating_add(i64::from(n) * bytes)).is_ok() => {
                Address { base, offset: small }
            }
            _ => Address { base: self.builder.ins().iadd_imm_s(base, offset), offset: 0 },
        }
    }

    /// The address of the `i`-th element from an address on.
    fn element(&mut self, address: Address, lane: ir::Type, i: u32) -> ir::Value {
        let offset = i64::from(address.offset) + i64::from(i * lane.bytes());
        if offset == 0 { address.base } else { self.builder.ins().iadd_imm_s(address.base, offset) }
    }

    fn nowhere(&self, place: &PlaceInfo) -> Result<Nowhere, CodegenError> {
        place.nowhere.ok_or_else(|| invalid(self.kernel, "a masked access was not foreseen"))
    }

    fn mask(&mut self, mask: Value, lanes: u32) -> Result<Lanes, CodegenError> {
        let ty = self.ty(mask)?;
        if ty != Type::vector(DType::Bool, lanes) {
            return Err(invalid(self.kernel, format!("mask {mask} of {lanes} lanes is a {ty}")));
        }
        self.value(mask)
    }

    /// Whether every lane of a mask is set.
    fn all(&mut self, mask: &Lanes) -> ir::Value {
        let n_vectors = mask.n_vectors();
        let mut all = None;
        for (i, part) in mask.parts.iter().enumerate() {
            let set = if i < n_vectors { self.builder.ins().vall_true(*part) } else { *part };
            all = Some(match all {
                None => set,
                Some(others) => self.builder.ins().band(others, set),
            });
        }
        all.unwrap_or_else(|| self.builder.ins().iconst(types::I8, 1))
    }

    /// A loaded value: truth values become masks.
    fn unpack(&mut self, ty: Type, bits: Lanes) -> Lanes {
        if ty.dtype != DType::Bool {
            return bits;
        }
        let zero = self.constant_splat(&bits, 0);
        self.compare_ints(CompareOp::Ne, false, &bits, &zero)
    }

    /// A value to be stored: masks become bytes.
    fn pack(&mut self, value: Lanes) -> Lanes {
        if value.mask { self.mask_to_int(&value, types::I8) } else { value }
    }
}

/// Cranelift's name of an integer comparison.
pub(crate) fn int_condition(op: CompareOp, signed: bool) -> IntCC {
    match (op, signed) {
        (CompareOp::Eq, _) => IntCC::Equal,
        (CompareOp::Ne, _) => IntCC::NotEqual,
        (CompareOp::Lt, true) => IntCC::SignedLessThan,
        (CompareOp::Le, true) => IntCC::SignedLessThanOrEqual,
        (CompareOp::Gt, true) => IntCC::SignedGreaterThan,
        (CompareOp::Ge, true) => IntCC::SignedGreaterThanOrEqual,
        (CompareOp::Lt, false) => IntCC::UnsignedLessThan,
        (CompareOp::Le, false) => IntCC::UnsignedLessThanOrEqual,
        (CompareOp::Gt, false) => IntCC::UnsignedGreaterThan,
        (CompareOp::Ge, false) => IntCC::UnsignedGreaterThanOrEqual,
    }
}
