//! Removal of narrow types: 16-, 8- and 4-bit floats become integers in memory and `F32` in
//! expressions, integers of fewer than 8 bits become bytes, so that code generators see `Bool`, integers, `F32` and `F64` only.
//!
//! Results are those of the interpreter: each operation is done in `F32` and rounded to its type at once.

use rustc_hash::FxHashMap;
use tilewright_dtype::DType;
use tilewright_dtype::float_format::FloatFormat;

use super::build::*;
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::func::{Func, Stmt};

const INFINITY: i64 = 0x7f80_0000;

/// Rewrites a function over narrow floats into one over their bits: buffers become `U16` or `U8`.
///
/// Runs after [`super::expand_func`]; leaves functions without such types unchanged.
pub fn narrow_floats(func: &mut Func) {
    let mut widened = Widener::default();
    widen_stmts(&mut func.body, &mut widened);
    for data in func.buffers.values_mut() {
        data.dtype = storage_type(data.dtype);
    }
}

fn widen_stmts(stmts: &mut [Stmt], widened: &mut Widener) {
    for stmt in stmts {
        match stmt {
            Stmt::Loop(l) => {
                l.extent = widened.value(&l.extent);
                widen_stmts(&mut l.body, widened);
            }
            Stmt::Block(block) => {
                if let Some(predicate) = &mut block.predicate {
                    *predicate = widened.value(predicate);
                }
                for iter in &mut block.iters {
                    iter.value = widened.value(&iter.value);
                }
                for store in block.init.iter_mut().chain(&mut block.body) {
                    for index in &mut store.indices {
                        *index = widened.value(index);
                    }
                    store.value = widened.stored(&store.value);
                }
            }
        }
    }
}

/// The type that holds the bits of a narrow float in memory; any other type itself.
fn storage_type(dtype: DType) -> DType {
    match FloatFormat::of(dtype) {
        Some(format) if format.bits == 16 => DType::U16,
        Some(_) => DType::U8,
        None => byte_type(dtype),
    }
}

/// The 8-bit type that holds an integer type of fewer bits; any other type itself.
fn byte_type(dtype: DType) -> DType {
    match dtype {
        DType::I4 | DType::I2 => DType::I8,
        DType::U4 | DType::U2 => DType::U8,
        _ => dtype,
    }
}

/// A byte as a value of an integer type of fewer bits, wrapping.
fn wrap_to(dtype: DType, byte: Expr) -> Expr {
    let spare = Expr::int_of(byte.dtype(), 8 - dtype.bits() as i64);
    let shifted = Expr::binary(BinaryOp::Shl, byte, spare.clone());
    Expr::binary(BinaryOp::Shr, shifted, spare)
}

/// Maps expressions to ones in which narrow floats are `F32`.
#[derive(Default)]
struct Widener {
    done: FxHashMap<Expr, Expr>,
}

impl Widener {
    /// The bits (for a narrow float) or the value to store.
    fn stored(&mut self, e: &Expr) -> Expr {
        let Some(format) = FloatFormat::of(e.dtype()) else { return self.value(e) };
        let storage = storage_type(e.dtype());
        match e.kind() {
            // Bits that exist are kept: encoding would saturate an infinity.
            ExprKind::Float(bits) => self.constant_bits(format, f64::from_bits(*bits), storage),
            ExprKind::Load(buffer, indices) => {
                let indices = indices.iter().map(|index| self.value(index)).collect();
                Expr::load(storage, *buffer, indices)
            }
            ExprKind::Bitcast(a) => self.stored(a).bitcast(storage),
            ExprKind::Select(c, a, b) => select(&self.value(c), &self.stored(a), &self.stored(b)),
            // Encoding rounds; what it encodes need not be rounded before.
            ExprKind::Int(_)
            | ExprKind::Var(_)
            | ExprKind::Unary(..)
            | ExprKind::Binary(..)
            | ExprKind::Compare(..)
            | ExprKind::Cast(_)
            | ExprKind::Fma(..) => encode(format, &self.unrounded(e).0).cast(storage),
        }
    }

    /// The bits of a constant; an infinity keeps its pattern where the format has one.
    fn constant_bits(&self, format: FloatFormat, value: f64, storage: DType) -> Expr {
        let exact = (0..1u32 << format.bits).map(|code| code as u16).find(|&code| {
            let decoded = format.decode(code);
            decoded == value && decoded.is_sign_negative() == value.is_sign_negative()
        });
        Expr::int_of(storage, i64::from(exact.unwrap_or_else(|| format.encode(value))))
    }

    /// The value, as `F32` if narrow.
    fn value(&mut self, e: &Expr) -> Expr {
        if let Some(done) = self.done.get(e) {
            return done.clone();
        }
        let result = match FloatFormat::of(e.dtype()) {
            Some(format) => {
                let (value, exact) = self.unrounded(e);
                if exact { value } else { round(format, &value) }
            }
            None if byte_type(e.dtype()) != e.dtype() => self.small(e),
            None => self.wide(e),
        };
        self.done.insert(e.clone(), result.clone());
        result
    }

    /// An expression that is not a narrow float itself.
    fn wide(&mut self, e: &Expr) -> Expr {
        match e.kind() {
            ExprKind::Cast(a) if FloatFormat::of(a.dtype()).is_some() => self.value(a).cast(e.dtype()),
            ExprKind::Bitcast(a) if FloatFormat::of(a.dtype()).is_some() => self.stored(a).bitcast(e.dtype()),
            _ => e.map_operands(|operand| self.value(operand)),
        }
    }

    /// An integer of fewer than 8 bits, as a byte that holds a value of its type.
    fn small(&mut self, e: &Expr) -> Expr {
        let (dtype, byte) = (e.dtype(), byte_type(e.dtype()));
        match e.kind() {
            ExprKind::Int(value) => Expr::int_of(byte, *value),
            ExprKind::Load(buffer, indices) => {
                let indices = indices.iter().map(|index| self.value(index)).collect();
                Expr::load(byte, *buffer, indices)
            }
            ExprKind::Select(c, a, b) => select(&self.value(c), &self.value(a), &self.value(b)),
            ExprKind::Bitcast(a) => wrap_to(dtype, self.stored(a).bitcast(byte)),
            ExprKind::Cast(a) => {
                let value = self.value(a);
                if !value.dtype().is_float() {
                    return wrap_to(dtype, value.cast(byte));
                }
                // A float saturates at the type's own bounds.
                let as_byte = |bound: Expr| Expr::int_of(byte, bound.as_int().unwrap_or(0));
                let (low, high) = (as_byte(Expr::lowest(dtype)), as_byte(Expr::highest(dtype)));
                value.cast(byte).max(low).min(high)
            }
            ExprKind::Unary(op, a) => wrap_to(dtype, Expr::unary(*op, self.value(a))),
            ExprKind::Binary(op, a, b) => wrap_to(dtype, Expr::binary(*op, self.value(a), self.value(b))),
            ExprKind::Fma(a, b, c) => wrap_to(dtype, Expr::fma(self.value(a), self.value(b), self.value(c))),
            ExprKind::Float(_) | ExprKind::Var(_) | ExprKind::Compare(..) => e.clone(),
        }
    }

    /// A narrow float before it is rounded to its type, and whether it is exact already.
    fn unrounded(&mut self, e: &Expr) -> (Expr, bool) {
        match e.kind() {
            ExprKind::Float(bits) => (Expr::float_of(DType::F32, f64::from_bits(*bits)), true),
            ExprKind::Int(value) => (Expr::int_of(DType::F32, *value), false),
            ExprKind::Var(_) => (e.clone(), true),
            ExprKind::Unary(op, a) => {
                (Expr::unary(*op, self.value(a)), matches!(op, UnaryOp::Neg | UnaryOp::Abs))
            }
            ExprKind::Binary(op, a, b) => {
                let value = Expr::binary(*op, self.value(a), self.value(b));
                (value, matches!(op, BinaryOp::Min | BinaryOp::Max))
            }
            ExprKind::Compare(op, a, b) => (Expr::compare(*op, self.value(a), self.value(b)), true),
            ExprKind::Select(c, a, b) => (select(&self.value(c), &self.value(a), &self.value(b)), true),
            ExprKind::Fma(a, b, c) => (fma(&self.value(a), &self.value(b), &self.value(c)), false),
            ExprKind::Cast(a) => {
                let value = self.value(a);
                let single =
                    if value.dtype() == DType::F64 { to_odd(&value) } else { value.cast(DType::F32) };
                (single, a.dtype() == e.dtype())
            }
            ExprKind::Bitcast(a) => {
                let bits = self.value(a).bitcast(storage_type(e.dtype()));
                (FloatFormat::of(e.dtype()).map_or(bits.clone(), |format| decode(format, &bits)), true)
            }
            ExprKind::Load(buffer, indices) => {
                let indices = indices.iter().map(|index| self.value(index)).collect();
                let bits = Expr::load(storage_type(e.dtype()), *buffer, indices);
                (FloatFormat::of(e.dtype()).map_or(bits.clone(), |format| decode(format, &bits)), true)
            }
        }
    }
}

fn int(value: i64) -> Expr {
    Expr::int_of(DType::I32, value)
}

fn shift_left(a: &Expr, by: u32) -> Expr {
    if by == 0 { a.clone() } else { Expr::binary(BinaryOp::Shl, a.clone(), int(by as i64)) }
}

fn shift_right(a: &Expr, by: u32) -> Expr {
    Expr::binary(BinaryOp::Shr, a.clone(), int(by as i64))
}

fn single(bits: &Expr) -> Expr {
    bits.clone().bitcast(DType::F32)
}

fn power_of_two(exponent: i32) -> Expr {
    Expr::float_of(DType::F32, f64::powi(2.0, exponent))
}

/// `F64` to `F32`, rounding inexact values to the neighbour with an odd last bit: rounding that to a
/// narrower type gives what rounding the original would.
fn to_odd(x: &Expr) -> Expr {
    let nearest = x.clone().cast(DType::F32);
    let back = nearest.clone().cast(DType::F64);
    let b = to_bits(&nearest);
    let inexact = or(&lt(&back, x), &gt(&back, x));
    let even = eq(&and(&b, &int(1)), &int(0));
    let step = select(&lt(&abs(&back), &abs(x)), &int(1), &int(-1));
    single(&add(&b, &select(&and(&inexact, &even), &step, &int(0))))
}

/// The value of the bits, an `U16` or `U8`, as `F32`.
fn decode(format: FloatFormat, stored: &Expr) -> Expr {
    let b = stored.clone().cast(DType::I32);
    let nan = Expr::f32(f32::NAN);
    if !format.signed {
        // A bare exponent; the least one is a subnormal of F32.
        let value = select(&eq(&b, &int(0)), &power_of_two(-127), &single(&shift_left(&b, 23)));
        return select(&eq(&b, &int(format.nan as i64)), &nan, &value);
    }
    let shift = 23 - format.mantissa_bits;
    let sign_bit = 1i64 << (format.bits - 1);
    if format.bits == 16 && format.bias == 127 {
        return single(&shift_left(&b, shift));
    }
    let magnitude = and(&b, &int(sign_bit - 1));
    // The exponent field is too small by the difference of the biases, which a product mends exactly.
    let scaled = mul(&single(&shift_left(&magnitude, shift)), &power_of_two(127 - format.bias));
    let special = gt(&magnitude, &int(format.max_finite as i64));
    let value = if format.nan_is_negative_zero {
        select(&eq(&b, &int(sign_bit)), &nan, &scaled)
    } else if format.bits == 4 {
        scaled
    } else if format.max_finite == format.nan - 1 {
        select(&special, &nan, &scaled)
    } else {
        let unbounded = single(&or(&to_bits(&scaled), &int(INFINITY)));
        select(&special, &unbounded, &scaled)
    };
    let sign = shift_left(&and(&b, &int(sign_bit)), 32 - format.bits);
    single(&or(&to_bits(&value), &sign))
}

/// The bits (as `I32`) of the value of the format nearest to an `F32`.
fn encode(format: FloatFormat, x: &Expr) -> Expr {
    let whole = to_bits(x);
    let a = and(&whole, &int(0x7fff_ffff));
    let shift = 23 - format.mantissa_bits;
    let rounded = |a: &Expr| {
        if shift == 23 {
            // The even code, not the even exponent field, wins a tie; both have equal parity here.
            let odd = and(&shift_right(a, 23), &int(1));
            return shift_right(&add(&add(a, &odd), &int((1 << 22) - 1)), 23);
        }
        let odd = and(&shift_right(a, shift), &int(1));
        let rebias = (127 - format.bias as i64) << 23;
        shift_right(&add(&add(a, &odd), &int((1 << (shift - 1)) - 1 - rebias)), shift)
    };
    if !format.signed {
        let tiny = select(&gt(&a, &int(0x0060_0000)), &int(1), &int(0));
        let code = select(&lt(&a, &int(0x0080_0000)), &tiny, &rounded(&a));
        let code = int(format.max_finite as i64).min(code);
        let code = select(&lt(&whole, &int(0)), &int(0), &code);
        return select(&is_nan(x), &int(format.nan as i64), &code);
    }
    let normal = rounded(&a);
    let code = if format.bias == 127 {
        normal
    } else {
        // Adding a number whose last place is the least subnormal rounds to a multiple of that.
        let magic = power_of_two(24 - format.bias - format.mantissa_bits as i32);
        let subnormal = sub(&to_bits(&add(&single(&a), &magic)), &to_bits(&magic));
        let least_normal = int((128 - format.bias as i64) << 23);
        select(&lt(&a, &least_normal), &subnormal, &normal)
    };
    let finite = gt(&int(format.max_finite as i64 + 1), &code);
    let code = select(&finite, &code, &int(format.overflow as i64));
    let sign = and(&shift_right(&whole, 32 - format.bits), &int(1 << (format.bits - 1)));
    let signed = or(&code, &sign);
    let signed =
        if format.nan_is_negative_zero { select(&eq(&code, &int(0)), &int(0), &signed) } else { signed };
    let nan = int(format.nan as i64);
    let nan = if format.nan_is_negative_zero { nan } else { or(&nan, &sign) };
    select(&is_nan(x), &nan, &signed)
}

/// An `F32` rounded to the format, as `F32`.
fn round(format: FloatFormat, x: &Expr) -> Expr {
    if format.bits != 16 {
        return decode(format, &encode(format, x));
    }
    let whole = to_bits(x);
    let shift = 23 - format.mantissa_bits;
    let mask = !((1i64 << shift) - 1);
    let a = and(&whole, &int(0x7fff_ffff));
    let odd = and(&shift_right(&a, shift), &int(1));
    let nearest = and(&add(&add(&a, &odd), &int((1 << (shift - 1)) - 1)), &int(mask));
    let magnitude = if format.bias == 127 {
        nearest
    } else {
        let magic = power_of_two(24 - format.bias - format.mantissa_bits as i32);
        let subnormal = to_bits(&sub(&add(&single(&a), &magic), &magic));
        let small = lt(&a, &int((128 - format.bias as i64) << 23));
        let greatest = (format.max_finite as i64) << shift;
        let limit = int(greatest + ((127 - format.bias as i64) << 23));
        let bounded = select(&gt(&nearest, &limit), &int(INFINITY), &nearest);
        select(&small, &subnormal, &bounded)
    };
    let sign = and(&whole, &int(i32::MIN as i64));
    select(&is_nan(x), x, &single(&or(&magnitude, &sign)))
}
