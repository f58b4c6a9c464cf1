//! Conversions between element types, and between masks of different widths.

use cranelift_codegen::ir::{self, InstBuilder, types};
use tilewright_dtype::{DType, Kind};
use tilewright_machine::CodegenError;
use tilewright_te::expr::{BinaryOp, CompareOp};
use tilewright_te::kernel::{Type, Value};

use crate::error::invalid;
use crate::function::Function;
use crate::lanes::{Lanes, bitcast_flags, int_of, vector_of};

impl Function<'_, '_> {
    pub(crate) fn cast(&mut self, ty: Type, a: Value) -> Result<Lanes, CodegenError> {
        let from = self.ty(a)?;
        let lane = self.lane_type(ty.dtype)?;
        if from.lanes != ty.lanes {
            return Err(invalid(self.kernel, format!("cast of a {from} to {ty}")));
        }
        let value = self.value(a)?;
        if from.dtype == ty.dtype {
            return Ok(value);
        }
        Ok(match (from.dtype.kind(), ty.dtype.kind()) {
            (Kind::Bool, Kind::Bool) => value,
            (Kind::Float, Kind::Bool) => {
                let zero = self.constant_splat(&value, 0);
                self.compare_floats(CompareOp::Ne, &value, &zero)
            }
            (Kind::Int | Kind::UInt, Kind::Bool) => {
                let zero = self.constant_splat(&value, 0);
                self.compare_ints(CompareOp::Ne, false, &value, &zero)
            }
            (Kind::Bool, Kind::Int | Kind::UInt) => self.mask_to_int(&value, lane),
            (Kind::Bool, Kind::Float) => {
                let ints = self.mask_to_int(&value, types::I32);
                self.int_to_float(&ints, true, lane)
            }
            (Kind::Int | Kind::UInt, Kind::Int | Kind::UInt) => {
                self.resize(&value, from.dtype.is_signed(), lane)
            }
            (Kind::Int | Kind::UInt, Kind::Float) if value.lane.bytes() < 4 => {
                let wide = self.resize(&value, from.dtype.is_signed(), types::I32);
                self.int_to_float(&wide, true, lane)
            }
            (Kind::Int | Kind::UInt, Kind::Float) => self.int_to_float(&value, from.dtype.is_signed(), lane),
            (Kind::Float, Kind::Int | Kind::UInt) => self.float_to_int(&value, ty.dtype, lane),
            (Kind::Float, Kind::Float) if lane == types::F64 => self.promote(&value),
            (Kind::Float, Kind::Float) => self.demote(&value),
            (Kind::String, _) | (_, Kind::String) => {
                return Err(invalid(self.kernel, format!("cast of a {from} to {ty}")));
            }
        })
    }

    pub(crate) fn bitcast(&mut self, ty: Type, a: Value) -> Result<Lanes, CodegenError> {
        let from = self.ty(a)?;
        let lane = self.lane_type(ty.dtype)?;
        if from.lanes != ty.lanes || from.dtype.bytes() != ty.dtype.bytes() {
            return Err(invalid(self.kernel, format!("bitcast of a {from} to {ty}")));
        }
        let value = self.value(a)?;
        Ok(match (value.mask, ty.dtype == DType::Bool) {
            (true, true) => value,
            (true, false) => self.mask_to_int(&value, types::I8),
            (false, true) => {
                let zero = self.constant_splat(&value, 0);
                self.compare_ints(CompareOp::Ne, false, &value, &zero)
            }
            (false, false) => self.reinterpret(&value, lane),
        })
    }

    /// The bits of every lane as a type of the same width.
    pub(crate) fn reinterpret(&mut self, value: &Lanes, lane: ir::Type) -> Lanes {
        if value.lane == lane {
            return value.clone();
        }
        let n_vectors = value.n_vectors();
        let mut part = 0;
        let bits = self.map(value, |builder, x| {
            part += 1;
            let to = if part <= n_vectors { vector_of(lane) } else { lane };
            builder.ins().bitcast(to, bitcast_flags(), x)
        });
        bits.retyped(lane)
    }

    /// A mask with vectors of another integer lane type.
    pub(crate) fn mask_as(&mut self, mask: &Lanes, lane: ir::Type) -> Lanes {
        if mask.lane == lane {
            return mask.clone();
        }
        if self.fills_vectors(mask.n, mask.lane, lane) {
            // All ones and all zeros survive sign extension and truncation.
            return self.resize_vectors(mask, true, lane);
        }
        let scalars = self.scalars(mask);
        self.assemble(lane, true, &scalars)
    }

    /// 0 or 1 in integer lanes.
    pub(crate) fn mask_to_int(&mut self, mask: &Lanes, lane: ir::Type) -> Lanes {
        let same = self.mask_as(mask, lane);
        let n_vectors = same.n_vectors();
        let ones = (n_vectors > 0).then(|| {
            let one = self.scalar_constant(lane, 1);
            self.builder.ins().splat(vector_of(lane), one)
        });
        let mut part = 0;
        let ints = self.map(&same, |builder, x| {
            part += 1;
            match ones {
                Some(ones) if part <= n_vectors => builder.ins().band(x, ones),
                _ if lane == types::I8 => x,
                _ => builder.ins().uextend(lane, x),
            }
        });
        Lanes { mask: false, ..ints }
    }

    /// Integers of another width: extended by the sign or by zeros, or truncated.
    fn resize(&mut self, value: &Lanes, signed: bool, lane: ir::Type) -> Lanes {
        let (from, to) = (value.lane.bytes(), lane.bytes());
        if from == to {
            return value.clone();
        }
        if self.fills_vectors(value.n, value.lane, lane) {
            return self.resize_vectors(value, signed, lane);
        }
        self.each(value, lane, |builder, x| match (from < to, signed) {
            (true, true) => builder.ins().sextend(lane, x),
            (true, false) => builder.ins().uextend(lane, x),
            (false, _) => builder.ins().ireduce(lane, x),
        })
    }

    /// [`Function::resize`] of a value without scalars before and after, by doubling and halving.
    fn resize_vectors(&mut self, value: &Lanes, signed: bool, lane: ir::Type) -> Lanes {
        let mut current = value.clone();
        while current.lane.bytes() < lane.bytes() {
            let wide = current.lane.double_width().expect("lanes below eight bytes can double");
            let mut parts = Vec::new();
            for x in current.parts {
                let ins = |builder: &mut cranelift_frontend::FunctionBuilder<'_>| match signed {
                    true => [builder.ins().swiden_low(x), builder.ins().swiden_high(x)],
                    false => [builder.ins().uwiden_low(x), builder.ins().uwiden_high(x)],
                };
                parts.extend(ins(&mut self.builder));
            }
            current = Lanes { lane: wide, parts, ..*value };
        }
        while current.lane.bytes() > lane.bytes() {
            let narrow = current.lane.half_width().expect("lanes above one byte can halve");
            let bytes = narrow.bytes() as u8;
            // The lower half of every lane of two vectors.
            let mask: Vec<u8> = (0..16).map(|i| i / bytes * 2 * bytes + i % bytes).collect();
            let mut parts = Vec::new();
            for pair in current.parts.chunks(2) {
                let low = self.builder.ins().bitcast(types::I8X16, bitcast_flags(), pair[0]);
                let high = self.builder.ins().bitcast(types::I8X16, bitcast_flags(), pair[pair.len() - 1]);
                parts.push(self.shuffle(low, high, &mask, narrow));
            }
            current = Lanes { lane: narrow, parts, ..*value };
        }
        current
    }

    /// Bytes of two vectors by number, as a vector of `lane`.
    fn shuffle(&mut self, a: ir::Value, b: ir::Value, bytes: &[u8], lane: ir::Type) -> ir::Value {
        let mask = self.builder.func.dfg.immediates.push(bytes.into());
        let shuffled = self.builder.ins().shuffle(a, b, mask);
        if lane == types::I8 {
            return shuffled;
        }
        self.builder.ins().bitcast(vector_of(lane), bitcast_flags(), shuffled)
    }

    fn int_to_float(&mut self, value: &Lanes, signed: bool, lane: ir::Type) -> Lanes {
        if value.lane == types::I32 && lane == types::F32 {
            let n_vectors = value.n_vectors();
            let mut part = 0;
            let floats = self.map(value, |builder, x| {
                part += 1;
                let to = if part <= n_vectors { vector_of(lane) } else { lane };
                if signed { builder.ins().fcvt_from_sint(to, x) } else { builder.ins().fcvt_from_uint(to, x) }
            });
            return floats.retyped(lane);
        }
        self.each(value, lane, |builder, x| {
            if signed { builder.ins().fcvt_from_sint(lane, x) } else { builder.ins().fcvt_from_uint(lane, x) }
        })
    }

    /// Truncates toward zero and saturates; NaN gives 0.
    fn float_to_int(&mut self, value: &Lanes, dtype: DType, lane: ir::Type) -> Lanes {
        if lane.bytes() < 4 {
            // By way of `i32`, which holds the whole range, and its own saturation is out of that range.
            let (low, high) = match dtype.is_signed() {
                true => (-(1i64 << (lane.bits() - 1)), (1i64 << (lane.bits() - 1)) - 1),
                false => (0, (1i64 << lane.bits()) - 1),
            };
            let wide = self.float_to_int(value, DType::I32, types::I32);
            let low = self.constant_splat(&wide, low as u64 & 0xffff_ffff);
            let high = self.constant_splat(&wide, high as u64 & 0xffff_ffff);
            let wide = self.min_max(BinaryOp::Max, DType::I32, &wide, &low);
            let wide = self.min_max(BinaryOp::Min, DType::I32, &wide, &high);
            return self.resize(&wide, true, lane);
        }
        let signed = dtype.is_signed();
        if value.lane == types::F32 && lane == types::I32 {
            let n_vectors = value.n_vectors();
            let mut part = 0;
            let ints = self.map(value, |builder, x| {
                part += 1;
                let to = if part <= n_vectors { vector_of(lane) } else { lane };
                if signed {
                    builder.ins().fcvt_to_sint_sat(to, x)
                } else {
                    builder.ins().fcvt_to_uint_sat(to, x)
                }
            });
            return ints.retyped(lane);
        }
        self.each(value, lane, |builder, x| {
            if signed {
                builder.ins().fcvt_to_sint_sat(lane, x)
            } else {
                builder.ins().fcvt_to_uint_sat(lane, x)
            }
        })
    }

    fn promote(&mut self, value: &Lanes) -> Lanes {
        if !self.fills_vectors(value.n, types::F32, types::F64) {
            return self.each(value, types::F64, |builder, x| builder.ins().fpromote(types::F64, x));
        }
        let mut parts = Vec::new();
        for x in &value.parts {
            let bytes = self.builder.ins().bitcast(types::I8X16, bitcast_flags(), *x);
            let upper: Vec<u8> = (8..16).chain(8..16).collect();
            let upper = self.shuffle(bytes, bytes, &upper, types::F32);
            parts.push(self.builder.ins().fvpromote_low(*x));
            parts.push(self.builder.ins().fvpromote_low(upper));
        }
        Lanes { lane: types::F64, parts, ..*value }
    }

    fn demote(&mut self, value: &Lanes) -> Lanes {
        if !self.fills_vectors(value.n, types::F32, types::F64) {
            return self.each(value, types::F32, |builder, x| builder.ins().fdemote(types::F32, x));
        }
        let mut parts = Vec::new();
        for pair in value.parts.chunks_exact(2) {
            let halves = [pair[0], pair[1]].map(|x| {
                let half = self.builder.ins().fvdemote(x);
                self.builder.ins().bitcast(types::I8X16, bitcast_flags(), half)
            });
            let lower: Vec<u8> = (0..8).chain(16..24).collect();
            parts.push(self.shuffle(halves[0], halves[1], &lower, types::F32));
        }
        Lanes { lane: types::F32, parts, ..*value }
    }

    /// A mask as the bits that choose between values of a lane type.
    pub(crate) fn chooser(&mut self, mask: &Lanes, lane: ir::Type) -> Lanes {
        let mask = self.mask_as(mask, int_of(lane));
        if int_of(lane) == lane {
            return mask;
        }
        let n_vectors = mask.n_vectors();
        let mut part = 0;
        self.map(&mask, |builder, x| {
            part += 1;
            if part <= n_vectors { builder.ins().bitcast(vector_of(lane), bitcast_flags(), x) } else { x }
        })
    }
}
