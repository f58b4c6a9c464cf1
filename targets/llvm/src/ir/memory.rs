//! Loads, stores, gathers and scatters.

use tilewright_dtype::DType;
use tilewright_machine::CodegenError;
use tilewright_te::kernel::{MemRef, Type, Value};

use super::function::Function;
use super::{Isa, PlaceInfo, invalid, splat, suffix, vector};

impl Function<'_> {
    pub(super) fn load(
        &mut self,
        ty: Type,
        place: MemRef,
        index: Value,
        offset: i64,
        mask: Option<Value>,
    ) -> Result<String, CodegenError> {
        let place = self.typed_place(place, ty.dtype)?;
        let element = self.memory_type(ty.dtype)?;
        let pointer = self.address(&place, index, offset)?;
        let align = self.alignment(&place, index, offset);
        let bits = match mask {
            None => {
                let invariant = if place.invariant { ", !invariant.load !0" } else { "" };
                let vector = vector(element, ty.lanes);
                let ptr = place.ptr();
                self.def(format!("load {vector}, {ptr} {pointer}, align {align}{}{invariant}", place.scopes))
            }
            Some(mask) => {
                let mask = self.mask(mask, ty.lanes)?;
                let (lanes, suffix) = (ty.lanes, masked_suffix(element, ty.lanes));
                let loaded = self.def(format!(
                    "call <{lanes} x {element}> @llvm.masked.load.{suffix}.p{}({} align {align} {pointer}, \
                     <{lanes} x i1> {mask}, <{lanes} x {element}> zeroinitializer){}",
                    place.space,
                    place.ptr(),
                    place.scopes
                ));
                self.scalar_if_one(loaded, element, lanes)
            }
        };
        Ok(self.unpack(ty, bits))
    }

    pub(super) fn store(
        &mut self,
        place: MemRef,
        index: Value,
        offset: i64,
        value: Value,
        mask: Option<Value>,
    ) -> Result<(), CodegenError> {
        let ty = self.ty(value)?;
        let place = self.typed_place(place, ty.dtype)?;
        let element = self.memory_type(ty.dtype)?;
        let pointer = self.address(&place, index, offset)?;
        let align = self.alignment(&place, index, offset);
        let bits = self.operand(value)?;
        let bits = self.pack(ty, bits);
        match mask {
            None if element == "i8" && ty.lanes == 3 && self.isa.loses_third_bytes() => {
                self.store_bytes(&place, &pointer, &bits, ty.lanes);
            }
            None => {
                let vector = vector(element, ty.lanes);
                let ptr = place.ptr();
                self.effect(format!("store {vector} {bits}, {ptr} {pointer}, align {align}{}", place.scopes));
            }
            Some(mask) => {
                let mask = self.mask(mask, ty.lanes)?;
                let bits = self.vector_if_one(bits, element, ty.lanes);
                let (lanes, suffix) = (ty.lanes, masked_suffix(element, ty.lanes));
                self.effect(format!(
                    "call void @llvm.masked.store.{suffix}.p{}(<{lanes} x {element}> {bits}, \
                     {} align {align} {pointer}, <{lanes} x i1> {mask}){}",
                    place.space,
                    place.ptr(),
                    place.scopes
                ));
            }
        }
        Ok(())
    }

    pub(super) fn gather(
        &mut self,
        ty: Type,
        place: MemRef,
        indices: Value,
        offset: i64,
        mask: Option<Value>,
    ) -> Result<String, CodegenError> {
        if ty.lanes == 1 {
            return self.load(ty, place, indices, offset, mask);
        }
        let place = self.typed_place(place, ty.dtype)?;
        let element = self.memory_type(ty.dtype)?;
        let pointers = self.addresses(&place, indices, offset, ty.lanes)?;
        let mask = self.mask_or_all(mask, ty.lanes)?;
        let (lanes, suffix) = (ty.lanes, masked_suffix(element, ty.lanes));
        let bits = self.def(format!(
            "call <{lanes} x {element}> @llvm.masked.gather.{suffix}.v{lanes}p{}(<{lanes} x {}> align {} {pointers}, \
             <{lanes} x i1> {mask}, <{lanes} x {element}> zeroinitializer){}",
            place.space,
            place.ptr(),
            ty.dtype.bytes(),
            place.scopes
        ));
        Ok(self.unpack(ty, bits))
    }

    pub(super) fn scatter(
        &mut self,
        place: MemRef,
        indices: Value,
        offset: i64,
        value: Value,
        mask: Option<Value>,
    ) -> Result<(), CodegenError> {
        let ty = self.ty(value)?;
        if ty.lanes == 1 {
            return self.store(place, indices, offset, value, mask);
        }
        let place = self.typed_place(place, ty.dtype)?;
        let element = self.memory_type(ty.dtype)?;
        let pointers = self.addresses(&place, indices, offset, ty.lanes)?;
        let mask = self.mask_or_all(mask, ty.lanes)?;
        let bits = self.operand(value)?;
        let bits = self.pack(ty, bits);
        let (lanes, suffix) = (ty.lanes, masked_suffix(element, ty.lanes));
        // LLVM orders overlapping lanes from the first to the last, as kernels do.
        self.effect(format!(
            "call void @llvm.masked.scatter.{suffix}.v{lanes}p{}(<{lanes} x {element}> {bits}, \
             <{lanes} x {}> align {} {pointers}, <{lanes} x i1> {mask}){}",
            place.space,
            place.ptr(),
            ty.dtype.bytes(),
            place.scopes
        ));
        Ok(())
    }

    pub(super) fn typed_place(&self, place: MemRef, dtype: DType) -> Result<PlaceInfo, CodegenError> {
        let info = self.place(place)?;
        if info.dtype != dtype {
            return Err(invalid(self.kernel, format!("{dtype} access to {place:?} of {}", info.dtype)));
        }
        Ok(info)
    }

    /// Asks for a cache line, into the second level: more requests can be under way from there than from the first. Threads
    /// of a GPU wait for each other's memory anyway.
    pub(super) fn prefetch(&mut self, place: MemRef, index: Value, offset: i64) -> Result<(), CodegenError> {
        if matches!(self.isa, Isa::Gpu(_)) {
            return Ok(());
        }
        let place = self.place(place)?;
        let pointer = self.address(&place, index, offset)?;
        self.effect(format!("call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 2, i32 1)"));
        Ok(())
    }

    /// The address of element `index + offset`. The offset is a step of its own so that accesses of a
    /// register tile differ by constants, which instruction selection folds.
    pub(super) fn address(
        &mut self,
        place: &PlaceInfo,
        index: Value,
        offset: i64,
    ) -> Result<String, CodegenError> {
        let element = self.memory_type(place.dtype)?;
        let index_ty = self.ty(index)?;
        if index_ty != Type::scalar(DType::I64) {
            return Err(invalid(self.kernel, format!("index {index} is a {index_ty}")));
        }
        let index = self.operand(index)?;
        let ptr = place.ptr();
        let base = self.def(format!("getelementptr {element}, {ptr} {}, i64 {index}", place.pointer));
        Ok(if offset == 0 {
            base
        } else {
            self.def(format!("getelementptr {element}, {ptr} {base}, i64 {offset}"))
        })
    }

    fn addresses(
        &mut self,
        place: &PlaceInfo,
        indices: Value,
        offset: i64,
        lanes: u32,
    ) -> Result<String, CodegenError> {
        let element = self.memory_type(place.dtype)?;
        let index_ty = self.ty(indices)?;
        if index_ty != Type::vector(DType::I64, lanes) {
            return Err(invalid(self.kernel, format!("indices {indices} are a {index_ty}")));
        }
        let (indices, ptr) = (self.operand(indices)?, place.ptr());
        let base = match offset {
            0 => place.pointer.clone(),
            _ => self.def(format!("getelementptr {element}, {ptr} {}, i64 {offset}", place.pointer)),
        };
        Ok(self.def(format!("getelementptr {element}, {ptr} {base}, <{lanes} x i64> {indices}")))
    }

    /// Bytes that the address of `index + offset` is a multiple of; on processors, which read vectors from anywhere, for a constant
    /// index only: LLVM finds out more from the alignment of the buffer itself.
    fn alignment(&self, place: &PlaceInfo, index: Value, offset: i64) -> u64 {
        let bytes = place.dtype.bytes() as u64;
        if matches!(self.isa, Isa::Gpu(_)) {
            return self.known_alignment(index, offset, place);
        }
        match self.constant(index) {
            Some(index) => {
                let at = (index.wrapping_add(offset) as u64).wrapping_mul(bytes);
                1 << (at | place.align).trailing_zeros()
            }
            None => bytes.min(place.align),
        }
    }

    /// A mask as a vector, even of one lane.
    fn mask(&mut self, mask: Value, lanes: u32) -> Result<String, CodegenError> {
        let ty = self.ty(mask)?;
        if ty != Type::vector(DType::Bool, lanes) {
            return Err(invalid(self.kernel, format!("mask {mask} of {lanes} lanes is a {ty}")));
        }
        let mask = self.operand(mask)?;
        Ok(self.vector_if_one(mask, "i1", lanes))
    }

    fn mask_or_all(&mut self, mask: Option<Value>, lanes: u32) -> Result<String, CodegenError> {
        match mask {
            Some(mask) => self.mask(mask, lanes),
            None => Ok("splat (i1 true)".to_owned()),
        }
    }

    /// Stores the bytes of a vector one by one.
    fn store_bytes(&mut self, place: &PlaceInfo, pointer: &str, bits: &str, lanes: u32) {
        let ptr = place.ptr();
        for lane in 0..lanes {
            let byte = self.def(format!("extractelement {} {bits}, i64 {lane}", vector("i8", lanes)));
            let at = self.def(format!("getelementptr inbounds i8, {ptr} {pointer}, i64 {lane}"));
            self.effect(format!("store i8 {byte}, {ptr} {at}, align 1{}", place.scopes));
        }
    }

    /// LLVM's masked accesses want a vector where kernels have a scalar.
    fn vector_if_one(&mut self, operand: String, lane: &str, lanes: u32) -> String {
        match lanes {
            1 => self.def(format!("insertelement <1 x {lane}> poison, {lane} {operand}, i64 0")),
            _ => operand,
        }
    }

    fn scalar_if_one(&mut self, operand: String, lane: &str, lanes: u32) -> String {
        match lanes {
            1 => self.def(format!("extractelement <1 x {lane}> {operand}, i64 0")),
            _ => operand,
        }
    }

    fn unpack(&mut self, ty: Type, bits: String) -> String {
        if ty.dtype != DType::Bool {
            return bits;
        }
        let zero = splat("i8", ty.lanes, "0");
        self.def(format!("icmp ne {} {bits}, {zero}", vector("i8", ty.lanes)))
    }

    fn pack(&mut self, ty: Type, operand: String) -> String {
        if ty.dtype != DType::Bool {
            return operand;
        }
        let (from, to) = (vector("i1", ty.lanes), vector("i8", ty.lanes));
        self.def(format!("zext {from} {operand} to {to}"))
    }
}

/// Like [`suffix`], but one lane is a vector too.
fn masked_suffix(lane: &str, lanes: u32) -> String {
    if lanes == 1 { format!("v1{}", suffix(lane, 1)) } else { suffix(lane, lanes) }
}
