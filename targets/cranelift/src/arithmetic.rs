//! Operations that compute: constants, lanes, arithmetic, comparisons.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{self, InstBuilder, types};
use cranelift_frontend::FunctionBuilder;
use tilewright_dtype::{DType, Kind};
use tilewright_machine::CodegenError;
use tilewright_te::expr::{BinaryOp, CompareOp, UnaryOp, wrap};
use tilewright_te::kernel::{KernelOp, Type, Value};

use crate::error::{invalid, unsupported};
use crate::function::{Function, scalar};
use crate::lanes::{Lanes, int_of};
use crate::memory::int_condition;

impl Function<'_, '_> {
    /// What `op` computes.
    pub(crate) fn op(&mut self, ty: Type, op: &KernelOp) -> Result<Lanes, CodegenError> {
        match op {
            KernelOp::Int(value) => self.int(ty, *value),
            KernelOp::Float(bits) => self.float(ty, f64::from_bits(*bits)),
            KernelOp::Size(i) => self.size(*i),
            KernelOp::Warp | KernelOp::Lane | KernelOp::Shuffle { .. } => {
                Err(unsupported(self.kernel, "cooperation of threads"))
            }
            KernelOp::Iota => self.iota(ty),
            KernelOp::Splat(a) => self.splat_value(ty, *a),
            KernelOp::Extract(a, lane) => self.slice(Type::scalar(ty.dtype), *a, *lane),
            KernelOp::Concat(parts) => self.concat(ty, parts),
            KernelOp::Slice(a, first) => self.slice(ty, *a, *first),
            KernelOp::Unary(op, a) => self.unary(*op, *a),
            KernelOp::Binary(op, a, b) => self.binary(ty, *op, *a, *b),
            KernelOp::Compare(op, a, b) => self.compare(*op, *a, *b),
            KernelOp::Select(condition, a, b) => self.select(ty, *condition, *a, *b),
            KernelOp::Cast(a) => self.cast(ty, *a),
            KernelOp::Bitcast(a) => self.bitcast(ty, *a),
            KernelOp::Fma(a, b, c) => self.fma(ty, *a, *b, *c),
            KernelOp::Load { place, index, offset, mask } => self.load(ty, *place, *index, *offset, *mask),
            KernelOp::Gather { place, indices, offset, mask } => {
                self.gather(ty, *place, *indices, *offset, *mask)
            }
        }
    }

    fn int(&mut self, ty: Type, value: i64) -> Result<Lanes, CodegenError> {
        let lane = self.lane_type(ty.dtype)?;
        match ty.dtype.kind() {
            Kind::Bool | Kind::Int | Kind::UInt => {
                let bits = wrap(ty.dtype, value) as u64;
                Ok(self.constants(lane, ty.dtype == DType::Bool, &vec![bits; ty.lanes as usize]))
            }
            Kind::Float | Kind::String => Err(invalid(self.kernel, format!("integer constant of type {ty}"))),
        }
    }

    fn float(&mut self, ty: Type, value: f64) -> Result<Lanes, CodegenError> {
        let lane = self.lane_type(ty.dtype)?;
        let bits = match ty.dtype {
            DType::F32 => u64::from((value as f32).to_bits()),
            DType::F64 => value.to_bits(),
            dtype => return Err(invalid(self.kernel, format!("float constant of type {dtype}"))),
        };
        Ok(self.constants(lane, false, &vec![bits; ty.lanes as usize]))
    }

    fn iota(&mut self, ty: Type) -> Result<Lanes, CodegenError> {
        let lane = self.lane_type(ty.dtype)?;
        if !ty.dtype.is_integer() {
            return Err(invalid(self.kernel, format!("iota of type {ty}")));
        }
        let lanes: Vec<u64> = (0..u64::from(ty.lanes)).collect();
        Ok(self.constants(lane, false, &lanes))
    }

    fn splat_value(&mut self, ty: Type, a: Value) -> Result<Lanes, CodegenError> {
        let from = self.ty(a)?;
        if from != Type::scalar(ty.dtype) {
            return Err(invalid(self.kernel, format!("splat of a {from} to {ty}")));
        }
        if let Some(value) = self.constant(a) {
            return self.int(ty, value);
        }
        let value = self.value(a)?;
        Ok(self.splat(value.lane, value.mask, ty.lanes, value.scalar()))
    }

    fn slice(&mut self, ty: Type, a: Value, first: u32) -> Result<Lanes, CodegenError> {
        let from = self.ty(a)?;
        if u64::from(first) + u64::from(ty.lanes) > u64::from(from.lanes) {
            return Err(invalid(
                self.kernel,
                format!("lanes {first} to {} of {a}, a {from}", first + ty.lanes),
            ));
        }
        let value = self.value(a)?;
        let per_vector = self.per_vector(value.lane);
        if first.is_multiple_of(per_vector) && ty.lanes.is_multiple_of(per_vector) {
            let vectors = (first / per_vector) as usize..((first + ty.lanes) / per_vector) as usize;
            return Ok(Lanes { n: ty.lanes, parts: value.parts[vectors].to_vec(), ..value });
        }
        let scalars: Vec<_> = (first..first + ty.lanes).map(|i| self.lane(&value, i)).collect();
        Ok(self.assemble(value.lane, value.mask, &scalars))
    }

    fn concat(&mut self, ty: Type, parts: &[Value]) -> Result<Lanes, CodegenError> {
        let types = parts.iter().map(|part| self.ty(*part)).collect::<Result<Vec<_>, _>>()?;
        let total: u64 = types.iter().map(|part| u64::from(part.lanes)).sum();
        if total != u64::from(ty.lanes) || types.iter().any(|part| part.dtype != ty.dtype) {
            return Err(invalid(self.kernel, format!("concatenation of {types:?} to {ty}")));
        }
        let mut values = parts.iter().map(|part| self.value(*part)).collect::<Result<Vec<_>, _>>()?;
        let lane = values[0].lane;
        if values[0].mask {
            values = values.iter().map(|value| self.mask_as(value, lane)).collect();
        }
        let (last, front) = values.split_last().expect("a concatenation has parts");
        if front.iter().all(|value| value.n.is_multiple_of(self.per_vector(lane))) {
            let parts = front.iter().chain([last]).flat_map(|value| value.parts.clone()).collect();
            return Ok(Lanes { n: ty.lanes, parts, ..values[0] });
        }
        let mut scalars = Vec::new();
        for value in &values {
            scalars.extend(self.scalars(value));
        }
        Ok(self.assemble(lane, values[0].mask, &scalars))
    }

    fn unary(&mut self, op: UnaryOp, a: Value) -> Result<Lanes, CodegenError> {
        let from = self.ty(a)?;
        let value = self.value(a)?;
        Ok(match (op, from.dtype.kind()) {
            (UnaryOp::Neg, Kind::Float) => self.map(&value, |b, x| b.ins().fneg(x)),
            (UnaryOp::Neg, Kind::Int | Kind::UInt) => self.map(&value, |b, x| b.ins().ineg(x)),
            (UnaryOp::Abs, Kind::Float) => self.map(&value, |b, x| b.ins().fabs(x)),
            (UnaryOp::Abs, Kind::Int) => self.map(&value, |b, x| b.ins().iabs(x)),
            (UnaryOp::Abs, Kind::UInt) => value,
            (UnaryOp::Not, Kind::Int | Kind::UInt) => self.map(&value, |b, x| b.ins().bnot(x)),
            (UnaryOp::Not, Kind::Bool) => {
                let ones = self.constant_splat(&value, 1);
                self.map2(&value, &ones, |b, x, y| b.ins().bxor(x, y))
            }
            (UnaryOp::Sqrt, Kind::Float) => self.map(&value, |b, x| b.ins().sqrt(x)),
            (UnaryOp::Floor, Kind::Float) => self.map(&value, |b, x| b.ins().floor(x)),
            (UnaryOp::Ceil, Kind::Float) => self.map(&value, |b, x| b.ins().ceil(x)),
            (UnaryOp::Trunc, Kind::Float) => self.map(&value, |b, x| b.ins().trunc(x)),
            (UnaryOp::Round, Kind::Float) => self.map(&value, |b, x| b.ins().nearest(x)),
            (UnaryOp::IsNan, Kind::Float) => self.compare_floats(CompareOp::Ne, &value, &value),
            _ if op.is_intrinsic() => {
                return Err(invalid(self.kernel, format!("intrinsic {} was not expanded", op.name())));
            }
            _ => return Err(invalid(self.kernel, format!("{} of a {from}", op.name()))),
        })
    }

    fn binary(&mut self, ty: Type, op: BinaryOp, a: Value, b: Value) -> Result<Lanes, CodegenError> {
        let (a_ty, b_ty) = (self.ty(a)?, self.ty(b)?);
        if a_ty != ty || b_ty != ty {
            return Err(invalid(self.kernel, format!("{} of {a_ty} and {b_ty} to {ty}", op.name())));
        }
        let (x, mut y) = (self.value(a)?, self.value(b)?);
        if x.mask {
            y = self.mask_as(&y, x.lane);
        }
        Ok(match (op, ty.dtype.kind()) {
            (BinaryOp::Add, Kind::Float) => self.map2(&x, &y, |b, x, y| b.ins().fadd(x, y)),
            (BinaryOp::Sub, Kind::Float) => self.map2(&x, &y, |b, x, y| b.ins().fsub(x, y)),
            (BinaryOp::Mul, Kind::Float) => self.map2(&x, &y, |b, x, y| b.ins().fmul(x, y)),
            (BinaryOp::Div, Kind::Float) => self.map2(&x, &y, |b, x, y| b.ins().fdiv(x, y)),
            (BinaryOp::Add, Kind::Int | Kind::UInt) => self.map2(&x, &y, |b, x, y| b.ins().iadd(x, y)),
            (BinaryOp::Sub, Kind::Int | Kind::UInt) => self.map2(&x, &y, |b, x, y| b.ins().isub(x, y)),
            // Processors multiply vectors of anything but bytes.
            (BinaryOp::Mul, Kind::Int | Kind::UInt) if x.lane == types::I8 => {
                self.each2(&x, &y, |b, x, y| b.ins().imul(x, y))
            }
            (BinaryOp::Mul, Kind::Int | Kind::UInt) => self.map2(&x, &y, |b, x, y| b.ins().imul(x, y)),
            (BinaryOp::And, Kind::Bool | Kind::Int | Kind::UInt) => {
                self.map2(&x, &y, |b, x, y| b.ins().band(x, y))
            }
            (BinaryOp::Or, Kind::Bool | Kind::Int | Kind::UInt) => {
                self.map2(&x, &y, |b, x, y| b.ins().bor(x, y))
            }
            (BinaryOp::Xor, Kind::Bool | Kind::Int | Kind::UInt) => {
                self.map2(&x, &y, |b, x, y| b.ins().bxor(x, y))
            }
            (BinaryOp::Min, Kind::Bool) => self.map2(&x, &y, |b, x, y| b.ins().band(x, y)),
            (BinaryOp::Max, Kind::Bool) => self.map2(&x, &y, |b, x, y| b.ins().bor(x, y)),
            (BinaryOp::Min | BinaryOp::Max, Kind::Int | Kind::UInt | Kind::Float) => {
                self.min_max(op, ty.dtype, &x, &y)
            }
            (
                BinaryOp::Div | BinaryOp::Rem | BinaryOp::FloorDiv | BinaryOp::FloorMod,
                Kind::Int | Kind::UInt,
            ) => self.divide(ty.dtype, op, &x, &y, self.constant(b)),
            (BinaryOp::Shl | BinaryOp::Shr, Kind::Int | Kind::UInt) => {
                self.shift(ty.dtype, op, &x, &y, self.constant(b))
            }
            _ if op.is_intrinsic() => {
                return Err(invalid(self.kernel, format!("intrinsic {} was not expanded", op.name())));
            }
            _ => return Err(invalid(self.kernel, format!("{} of {ty}", op.name()))),
        })
    }

    /// Shifts, whose amount is an unsigned number; at least the width shifts everything out.
    fn shift(&mut self, dtype: DType, op: BinaryOp, x: &Lanes, y: &Lanes, by: Option<i64>) -> Lanes {
        let width = i64::from(x.lane.bits());
        let signed = dtype.is_signed();
        let left = op == BinaryOp::Shl;
        if let Some(by) = by.filter(|by| (0..width).contains(by)) {
            let by = self.builder.ins().iconst(types::I32, by);
            return self.map(x, |b, x| match (left, signed) {
                (true, _) => b.ins().ishl(x, by),
                (false, true) => b.ins().sshr(x, by),
                (false, false) => b.ins().ushr(x, by),
            });
        }
        self.each2(x, y, |b, x, amount| {
            let fits = b.ins().icmp_imm_s(IntCC::UnsignedLessThan, amount, width);
            if !left && signed {
                let ty = b.func.dfg.value_type(amount);
                let most = b.ins().iconst(ty, width - 1);
                let amount = b.ins().select(fits, amount, most);
                return b.ins().sshr(x, amount);
            }
            let shifted = if left { b.ins().ishl(x, amount) } else { b.ins().ushr(x, amount) };
            let ty = b.func.dfg.value_type(x);
            let zero = b.ins().iconst(ty, 0);
            b.ins().select(fits, shifted, zero)
        })
    }

    /// The four integer divisions; no processor divides vectors, powers of two aside.
    fn divide(&mut self, dtype: DType, op: BinaryOp, x: &Lanes, y: &Lanes, by: Option<i64>) -> Lanes {
        let by = by.map(|by| wrap(dtype, by));
        if let Some(by) = by.filter(|by| *by > 0 && by.count_ones() == 1) {
            let shift = self.builder.ins().iconst(types::I32, i64::from(by.trailing_zeros()));
            let rest = self.constant_splat(y, (by - 1) as u64);
            match (op, dtype.is_signed()) {
                (BinaryOp::FloorDiv, true) => return self.map(x, |b, x| b.ins().sshr(x, shift)),
                (BinaryOp::Div | BinaryOp::FloorDiv, false) => {
                    return self.map(x, |b, x| b.ins().ushr(x, shift));
                }
                (BinaryOp::FloorMod, _) | (BinaryOp::Rem, false) => {
                    return self.map2(x, &rest, |b, x, y| b.ins().band(x, y));
                }
                _ => {}
            }
        }
        let safe = by.is_some_and(|by| by > 0);
        self.each2(x, y, |b, x, y| match dtype.is_signed() {
            true => divide_signed(b, op, safe, x, y),
            false => divide_unsigned(b, op, safe, x, y),
        })
    }

    /// The first operand where it is less (greater), else the second.
    pub(crate) fn min_max(&mut self, op: BinaryOp, dtype: DType, x: &Lanes, y: &Lanes) -> Lanes {
        let less = if op == BinaryOp::Min { CompareOp::Lt } else { CompareOp::Gt };
        let chosen = match dtype.is_float() {
            // The only comparison of floats that instruction selection merges with a choice is "less".
            true if op == BinaryOp::Max => self.compare_floats(CompareOp::Lt, y, x),
            true => self.compare_floats(less, x, y),
            false => self.compare_ints(less, dtype.is_signed(), x, y),
        };
        self.choose(&chosen, x, y)
    }

    fn compare(&mut self, op: CompareOp, a: Value, b: Value) -> Result<Lanes, CodegenError> {
        let (ty, b_ty) = (self.ty(a)?, self.ty(b)?);
        if ty != b_ty {
            return Err(invalid(self.kernel, format!("comparison of {ty} and {b_ty}")));
        }
        let (x, y) = (self.value(a)?, self.value(b)?);
        Ok(match ty.dtype.kind() {
            Kind::Float => self.compare_floats(op, &x, &y),
            Kind::Int => self.compare_ints(op, true, &x, &y),
            Kind::UInt => self.compare_ints(op, false, &x, &y),
            Kind::Bool => {
                let (x, y) = (self.mask_to_int(&x, types::I8), self.mask_to_int(&y, types::I8));
                self.compare_ints(op, false, &x, &y)
            }
            Kind::String => return Err(unsupported(self.kernel, "strings")),
        })
    }

    pub(crate) fn compare_floats(&mut self, op: CompareOp, x: &Lanes, y: &Lanes) -> Lanes {
        let condition = match op {
            CompareOp::Eq => FloatCC::Equal,
            CompareOp::Ne => FloatCC::NotEqual,
            CompareOp::Lt => FloatCC::LessThan,
            CompareOp::Le => FloatCC::LessThanOrEqual,
            CompareOp::Gt => FloatCC::GreaterThan,
            CompareOp::Ge => FloatCC::GreaterThanOrEqual,
        };
        let result = self.map2(x, y, |b, x, y| b.ins().fcmp(condition, x, y));
        Lanes { lane: int_of(x.lane), mask: true, ..result }
    }

    pub(crate) fn compare_ints(&mut self, op: CompareOp, signed: bool, x: &Lanes, y: &Lanes) -> Lanes {
        let condition = int_condition(op, signed);
        let result = self.map2(x, y, |b, x, y| b.ins().icmp(condition, x, y));
        Lanes { mask: true, ..result }
    }

    fn select(&mut self, ty: Type, condition: Value, a: Value, b: Value) -> Result<Lanes, CodegenError> {
        let (condition, x, y) = (self.value(condition)?, self.value(a)?, self.value(b)?);
        if x.n != ty.lanes || y.n != ty.lanes || (condition.n != ty.lanes && condition.n != 1) {
            return Err(invalid(self.kernel, format!("condition of {} lanes for {ty}", condition.n)));
        }
        let y = if x.mask { self.mask_as(&y, x.lane) } else { y };
        if condition.n == 1 && ty.lanes > 1 {
            let condition = condition.scalar();
            return Ok(self.map2(&x, &y, |b, x, y| b.ins().select(condition, x, y)));
        }
        Ok(self.choose(&condition, &x, &y))
    }

    /// `x` in the lanes where the mask is set, `y` elsewhere.
    fn choose(&mut self, mask: &Lanes, x: &Lanes, y: &Lanes) -> Lanes {
        let chooser = self.chooser(mask, x.lane);
        let n_vectors = x.n_vectors();
        let parts = (0..x.parts.len())
            .map(|i| {
                let (c, x, y) = (chooser.parts[i], x.parts[i], y.parts[i]);
                let ins = self.builder.ins();
                if i < n_vectors { ins.bitselect(c, x, y) } else { ins.select(c, x, y) }
            })
            .collect();
        Lanes { parts, ..x.clone() }
    }

    fn fma(&mut self, ty: Type, a: Value, b: Value, c: Value) -> Result<Lanes, CodegenError> {
        let (x, y, z) = (self.value(a)?, self.value(b)?, self.value(c)?);
        if !ty.dtype.is_float() || x.n != ty.lanes || y.n != ty.lanes || z.n != ty.lanes {
            return Err(invalid(self.kernel, format!("fma of {ty}")));
        }
        if self.target.has_fma() {
            let parts = (0..x.parts.len())
                .map(|i| self.builder.ins().fma(x.parts[i], y.parts[i], z.parts[i]))
                .collect();
            return Ok(Lanes { parts, ..x });
        }
        if ty.dtype != DType::F32 {
            return Err(unsupported(self.kernel, format!("fma of {} on a machine without it", ty.dtype)));
        }
        let [xs, ys, zs] = [&x, &y, &z].map(|value| self.scalars(value));
        let results: Vec<_> =
            (0..xs.len()).map(|i| fma_through_f64(&mut self.builder, xs[i], ys[i], zs[i])).collect();
        if let [single] = results[..] {
            return Ok(scalar(types::F32, single));
        }
        Ok(self.assemble(types::F32, false, &results))
    }
}

/// Unsigned division; by zero the quotient is 0 and the remainder the dividend. `safe`: the divisor is not 0.
fn divide_unsigned(
    b: &mut FunctionBuilder<'_>,
    op: BinaryOp,
    safe: bool,
    x: ir::Value,
    y: ir::Value,
) -> ir::Value {
    let narrow = b.func.dfg.value_type(x);
    let wide = if narrow.bits() < 32 { types::I32 } else { narrow };
    let [x, y] = [x, y].map(|v| if wide == narrow { v } else { b.ins().uextend(wide, v) });
    let zero = b.ins().iconst(wide, 0);
    let by_zero = b.ins().icmp(IntCC::Equal, y, zero);
    let one = b.ins().iconst(wide, 1);
    let divisor = if safe { y } else { b.ins().select(by_zero, one, y) };
    let quotient = b.ins().udiv(x, divisor);
    let result = if matches!(op, BinaryOp::Div | BinaryOp::FloorDiv) {
        if safe { quotient } else { b.ins().select(by_zero, zero, quotient) }
    } else {
        let product = b.ins().imul(quotient, y);
        b.ins().isub(x, product)
    };
    if wide == narrow { result } else { b.ins().ireduce(narrow, result) }
}

/// Signed division; by zero the quotient is 0 and the remainder the dividend, the least integer by -1 wraps.
/// `safe`: the divisor is positive.
fn divide_signed(
    b: &mut FunctionBuilder<'_>,
    op: BinaryOp,
    safe: bool,
    x: ir::Value,
    y: ir::Value,
) -> ir::Value {
    let narrow = b.func.dfg.value_type(x);
    let wide = if narrow.bits() < 32 { types::I32 } else { narrow };
    let [x, y] = [x, y].map(|v| if wide == narrow { v } else { b.ins().sextend(wide, v) });
    let zero = b.ins().iconst(wide, 0);
    let quotient = if safe {
        b.ins().sdiv(x, y)
    } else {
        let by_zero = b.ins().icmp(IntCC::Equal, y, zero);
        let by_minus_one = b.ins().icmp_imm_s(IntCC::Equal, y, -1);
        let special = b.ins().bor(by_zero, by_minus_one);
        let one = b.ins().iconst(wide, 1);
        let divisor = b.ins().select(special, one, y);
        let quotient = b.ins().sdiv(x, divisor);
        let negated = b.ins().ineg(x);
        let quotient = b.ins().select(by_minus_one, negated, quotient);
        b.ins().select(by_zero, zero, quotient)
    };
    let product = b.ins().imul(quotient, y);
    let rest = b.ins().isub(x, product);
    let result = match op {
        BinaryOp::Div => quotient,
        BinaryOp::Rem => rest,
        _ => {
            // One too much where the signs of remainder and divisor differ, unless the divisor is zero.
            let signs = b.ins().bxor(rest, y);
            let differ = b.ins().icmp(IntCC::SignedLessThan, signs, zero);
            let some = b.ins().icmp(IntCC::NotEqual, rest, zero);
            let divided = b.ins().icmp(IntCC::NotEqual, y, zero);
            let inexact = b.ins().band(differ, some);
            let below = b.ins().band(inexact, divided);
            let (value, change) = match op {
                BinaryOp::FloorDiv => (quotient, b.ins().iconst(wide, -1)),
                _ => (rest, y),
            };
            let corrected = b.ins().iadd(value, change);
            b.ins().select(below, corrected, value)
        }
    };
    if wide == narrow { result } else { b.ins().ireduce(narrow, result) }
}

/// A binary32 fused multiply-add by binary64 arithmetic: the product is exact, the sum is rounded to odd, after
/// which rounding to binary32 is the only rounding that shows (Boldo and Melquiond, "Emulation of a FMA and
/// correctly rounded sums: proved algorithms using rounding to odd", 2008).
fn fma_through_f64(b: &mut FunctionBuilder<'_>, x: ir::Value, y: ir::Value, z: ir::Value) -> ir::Value {
    let [x, y, z] = [x, y, z].map(|v| b.ins().fpromote(types::F64, v));
    let product = b.ins().fmul(x, y);
    let sum = b.ins().fadd(product, z);
    // Knuth's two-sum: what the sum lost.
    let z_part = b.ins().fsub(sum, product);
    let product_part = b.ins().fsub(sum, z_part);
    let product_lost = b.ins().fsub(product, product_part);
    let z_lost = b.ins().fsub(z, z_part);
    let lost = b.ins().fadd(product_lost, z_lost);
    // To odd: an inexact sum with an even last bit moves one step toward what was lost.
    let bits = b.ins().bitcast(types::I64, crate::lanes::bitcast_flags(), sum);
    let last = b.ins().band_imm_s(bits, 1);
    let even = b.ins().icmp_imm_s(IntCC::Equal, last, 0);
    let zero = b.ins().f64const(0.0);
    let lost_more = b.ins().fcmp(FloatCC::GreaterThan, lost, zero);
    let lost_less = b.ins().fcmp(FloatCC::LessThan, lost, zero);
    let inexact = b.ins().bor(lost_more, lost_less);
    let moves = b.ins().band(inexact, even);
    let positive = b.ins().fcmp(FloatCC::GreaterThan, sum, zero);
    let inward = b.ins().bxor(lost_more, positive);
    let (down, up) = (b.ins().iadd_imm_s(bits, -1), b.ins().iadd_imm_s(bits, 1));
    let moved = b.ins().select(inward, down, up);
    let odd = b.ins().select(moves, moved, bits);
    let odd = b.ins().bitcast(types::F64, crate::lanes::bitcast_flags(), odd);
    b.ins().fdemote(types::F32, odd)
}
