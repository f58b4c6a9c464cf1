//! Operations that compute: constants, lanes, arithmetic, comparisons.

use tilewright_dtype::{DType, Kind};
use tilewright_machine::CodegenError;
use tilewright_te::expr::{BinaryOp, CompareOp, UnaryOp, wrap};
use tilewright_te::kernel::{KernelOp, Type, Value};

use super::function::Function;
use super::threads::Axis;
use super::{Isa, invalid, splat, suffix, unsupported, vector};

/// LLVM's view of a type: its lane, the text of the whole type, the suffix of intrinsics.
pub(super) struct Text {
    pub(super) lane: &'static str,
    pub(super) ty: String,
    pub(super) suffix: String,
}

impl Function<'_> {
    pub(super) fn text(&self, ty: Type) -> Result<Text, CodegenError> {
        let lane = self.lane(ty.dtype)?;
        Ok(Text { lane, ty: vector(lane, ty.lanes), suffix: suffix(lane, ty.lanes) })
    }

    /// The operand that holds the result of `op`.
    pub(super) fn op(&mut self, result: Value, op: &KernelOp) -> Result<String, CodegenError> {
        let ty = self.ty(result)?;
        match op {
            KernelOp::Int(value) => self.int(ty, *value),
            KernelOp::Float(bits) => self.float(ty, f64::from_bits(*bits)),
            KernelOp::Size(i) => self.size(*i),
            KernelOp::Warp => self.thread_index(Axis::Warp),
            KernelOp::Lane => self.thread_index(Axis::Lane),
            KernelOp::Shuffle { value, from } => self.shuffle(*value, *from),
            KernelOp::Iota => self.iota(ty),
            KernelOp::Splat(scalar) => self.splat(ty, *scalar),
            KernelOp::Extract(a, lane) => {
                self.extracted[result] = Some((*a, *lane));
                self.extract(*a, *lane)
            }
            KernelOp::Concat(parts) => self.concat(ty, parts),
            KernelOp::Slice(a, first) => self.slice(ty, *a, *first),
            KernelOp::Unary(op, a) => self.unary(ty, *op, *a),
            KernelOp::Binary(op, a, b) => self.binary(result, *op, [*a, *b]),
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

    fn int(&mut self, ty: Type, value: i64) -> Result<String, CodegenError> {
        let lane = self.lane(ty.dtype)?;
        match ty.dtype.kind() {
            Kind::Bool => Ok(splat(lane, ty.lanes, if value != 0 { "true" } else { "false" })),
            Kind::Int | Kind::UInt => {
                // LLVM takes the bit pattern as a signed number of the width.
                let spare = 64 - ty.dtype.bits();
                let value = (wrap(ty.dtype, value) << spare) >> spare;
                Ok(splat(lane, ty.lanes, &value.to_string()))
            }
            Kind::Float | Kind::String => Err(invalid(self.kernel, format!("integer constant of type {ty}"))),
        }
    }

    fn float(&mut self, ty: Type, value: f64) -> Result<String, CodegenError> {
        let lane = self.lane(ty.dtype)?;
        // LLVM writes floats of every width as the bits of the double of equal value.
        let value = match ty.dtype {
            DType::F32 => f64::from(value as f32),
            DType::F64 => value,
            dtype => return Err(invalid(self.kernel, format!("float constant of type {dtype}"))),
        };
        Ok(splat(lane, ty.lanes, &format!("0x{:016X}", value.to_bits())))
    }

    fn iota(&mut self, ty: Type) -> Result<String, CodegenError> {
        let lane = self.lane(ty.dtype)?;
        if !ty.dtype.is_integer() {
            return Err(invalid(self.kernel, format!("iota of type {ty}")));
        }
        if ty.lanes == 1 {
            return Ok("0".to_owned());
        }
        let spare = 64 - ty.dtype.bits();
        let lanes: Vec<String> =
            (0..i64::from(ty.lanes)).map(|i| format!("{lane} {}", (i << spare) >> spare)).collect();
        Ok(format!("<{}>", lanes.join(", ")))
    }

    fn splat(&mut self, ty: Type, scalar: Value) -> Result<String, CodegenError> {
        let from = self.ty(scalar)?;
        if from != Type::scalar(ty.dtype) {
            return Err(invalid(self.kernel, format!("splat of a {from} to {ty}")));
        }
        let operand = self.operand(scalar)?;
        if !operand.starts_with('%') {
            return Ok(splat(self.lane(ty.dtype)?, ty.lanes, &operand));
        }
        Ok(self.splat_operand(self.lane(ty.dtype)?, ty.lanes, operand))
    }

    fn splat_operand(&mut self, lane: &str, lanes: u32, operand: String) -> String {
        if lanes == 1 {
            return operand;
        }
        let ty = vector(lane, lanes);
        let first = self.def(format!("insertelement {ty} poison, {lane} {operand}, i64 0"));
        self.def(format!("shufflevector {ty} {first}, {ty} poison, <{lanes} x i32> zeroinitializer"))
    }

    fn extract(&mut self, a: Value, lane: u32) -> Result<String, CodegenError> {
        let (from, operand) = (self.ty(a)?, self.operand(a)?);
        if lane >= from.lanes {
            return Err(invalid(self.kernel, format!("lanes {lane} to {} of {a}, a {from}", lane + 1)));
        }
        if from.lanes == 1 {
            return Ok(operand);
        }
        let ty = self.text_type(a)?;
        Ok(self.def(format!("extractelement {ty} {operand}, i64 {lane}")))
    }

    fn slice(&mut self, ty: Type, a: Value, first: u32) -> Result<String, CodegenError> {
        let from = self.ty(a)?;
        if u64::from(first) + u64::from(ty.lanes) > u64::from(from.lanes) {
            return Err(invalid(
                self.kernel,
                format!("lanes {first} to {} of {a}, a {from}", first + ty.lanes),
            ));
        }
        if ty.lanes == 1 {
            return self.extract(a, first);
        }
        let (text, operand) = (self.text_type(a)?, self.operand(a)?);
        let lanes = shuffle_mask((0..ty.lanes).map(|i| Some(first + i)));
        Ok(self.def(format!("shufflevector {text} {operand}, {text} poison, {lanes}")))
    }

    fn concat(&mut self, ty: Type, parts: &[Value]) -> Result<String, CodegenError> {
        let text = self.text(ty)?;
        let types = parts.iter().map(|part| self.ty(*part)).collect::<Result<Vec<_>, _>>()?;
        let total: u64 = types.iter().map(|part| u64::from(part.lanes)).sum();
        if total != u64::from(ty.lanes) || types.iter().any(|part| part.dtype != ty.dtype) {
            return Err(invalid(self.kernel, format!("concatenation of {types:?} to {ty}")));
        }
        if let [single] = parts {
            return self.operand(*single);
        }
        if let Some(column) = self.column(ty, parts)? {
            return Ok(column);
        }
        let mut joined = "poison".to_owned();
        let mut filled = 0;
        for (part, from) in parts.iter().zip(&types) {
            let operand = self.operand(*part)?;
            joined = if from.lanes == 1 {
                self.def(format!("insertelement {} {joined}, {} {operand}, i64 {filled}", text.ty, text.lane))
            } else {
                let part_text = self.text_type(*part)?;
                let here = |i: u32| (filled..filled + from.lanes).contains(&i);
                let widen = shuffle_mask((0..ty.lanes).map(|i| here(i).then(|| i - filled)));
                let wide =
                    self.def(format!("shufflevector {part_text} {operand}, {part_text} poison, {widen}"));
                let blend = shuffle_mask((0..ty.lanes).map(|i| Some(if here(i) { i + ty.lanes } else { i })));
                self.def(format!("shufflevector {0} {joined}, {0} {wide}, {blend}", text.ty))
            };
            filled += from.lanes;
        }
        Ok(joined)
    }

    fn unary(&mut self, ty: Type, op: UnaryOp, a: Value) -> Result<String, CodegenError> {
        let from = self.ty(a)?;
        let Text { lane, ty: text, suffix } = self.text(from)?;
        let operand = self.operand(a)?;
        let kind = from.dtype.kind();
        let call = |name: &str| format!("call {text} @llvm.{name}.{suffix}({text} {operand})");
        match (op, kind) {
            (UnaryOp::Neg, Kind::Float) => Ok(self.def(format!("fneg {text} {operand}"))),
            (UnaryOp::Neg, Kind::Int | Kind::UInt) => {
                let zero = splat(lane, ty.lanes, "0");
                Ok(self.def(format!("sub {text} {zero}, {operand}")))
            }
            (UnaryOp::Abs, Kind::Float) => Ok(self.def(call("fabs"))),
            (UnaryOp::Abs, Kind::Int) => {
                Ok(self.def(format!("call {text} @llvm.abs.{suffix}({text} {operand}, i1 false)")))
            }
            (UnaryOp::Abs, Kind::UInt) => Ok(operand),
            (UnaryOp::Not, Kind::Bool | Kind::Int | Kind::UInt) => {
                let ones = splat(lane, ty.lanes, if kind == Kind::Bool { "true" } else { "-1" });
                Ok(self.def(format!("xor {text} {operand}, {ones}")))
            }
            (UnaryOp::Sqrt, Kind::Float) => Ok(self.def(call("sqrt"))),
            (UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round, Kind::Float) => {
                let name = if op == UnaryOp::Round { "roundeven" } else { op.name() };
                let is_vector = ty.lanes > 1 && self.isa.rounds_without_truncation();
                if is_vector || !self.isa.has_rounding() && self.isa.is_32_bit() {
                    return Ok(self.rounded(name, lane, ty.lanes, &operand));
                }
                if !self.isa.has_rounding() {
                    return Err(unsupported(self.kernel, format!("{} without SSE4.1", op.name())));
                }
                Ok(self.def(call(name)))
            }
            (UnaryOp::IsNan, Kind::Float) => Ok(self.def(format!("fcmp uno {text} {operand}, {operand}"))),
            _ if op.is_intrinsic() => {
                Err(invalid(self.kernel, format!("intrinsic {} was not expanded", op.name())))
            }
            _ => Err(invalid(self.kernel, format!("{} of a {from}", op.name()))),
        }
    }

    fn binary(&mut self, result: Value, op: BinaryOp, [a, b]: [Value; 2]) -> Result<String, CodegenError> {
        let (ty, a_ty, b_ty) = (self.ty(result)?, self.ty(a)?, self.ty(b)?);
        if a_ty != ty || b_ty != ty {
            return Err(invalid(self.kernel, format!("{} of {a_ty} and {b_ty} to {ty}", op.name())));
        }
        let Text { ty: text, .. } = self.text(ty)?;
        let (x, y) = (self.operand(a)?, self.operand(b)?);
        let plain = |name: &str| Ok(format!("{name} {text} {x}, {y}"));
        let has_bounds = ty.dtype.is_signed() && self.ranges[result].is_some();
        let integer = |name: &str| plain(&format!("{name}{}", if has_bounds { " nsw" } else { "" }));
        let instruction: Result<String, CodegenError> = match (op, ty.dtype.kind()) {
            (BinaryOp::Add, Kind::Float) => plain("fadd"),
            (BinaryOp::Sub, Kind::Float) => plain("fsub"),
            (BinaryOp::Mul, Kind::Float) => plain("fmul"),
            (BinaryOp::Div, Kind::Float) => plain("fdiv"),
            (BinaryOp::Add, Kind::Int | Kind::UInt) => integer("add"),
            (BinaryOp::Sub, Kind::Int | Kind::UInt) => integer("sub"),
            (BinaryOp::Mul, Kind::Int | Kind::UInt) => integer("mul"),
            (BinaryOp::And, Kind::Bool | Kind::Int | Kind::UInt) => plain("and"),
            (BinaryOp::Or, Kind::Bool | Kind::Int | Kind::UInt) => plain("or"),
            (BinaryOp::Xor, Kind::Bool | Kind::Int | Kind::UInt) => plain("xor"),
            (
                BinaryOp::Div | BinaryOp::Rem | BinaryOp::FloorDiv | BinaryOp::FloorMod,
                Kind::Int | Kind::UInt,
            ) => {
                return self.divide(ty, op, a, b);
            }
            (BinaryOp::Shl | BinaryOp::Shr, Kind::Int | Kind::UInt) => return self.shift(ty, op, a, b),
            (BinaryOp::Min | BinaryOp::Max, Kind::Bool | Kind::Int | Kind::UInt | Kind::Float) => {
                let less = if op == BinaryOp::Min { CompareOp::Lt } else { CompareOp::Gt };
                let chosen = self.compare(less, a, b)?;
                let condition = vector("i1", ty.lanes);
                Ok(format!("select {condition} {chosen}, {text} {x}, {text} {y}"))
            }
            _ if op.is_intrinsic() => {
                Err(invalid(self.kernel, format!("intrinsic {} was not expanded", op.name())))
            }
            _ => Err(invalid(self.kernel, format!("{} of {ty}", op.name()))),
        };
        Ok(self.def(instruction?))
    }

    /// Shifts, whose amount is an unsigned number; at least the width shifts everything out.
    fn shift(&mut self, ty: Type, op: BinaryOp, a: Value, b: Value) -> Result<String, CodegenError> {
        let Text { lane, ty: text, suffix } = self.text(ty)?;
        let (x, amount) = (self.operand(a)?, self.operand(b)?);
        let width = ty.dtype.bits() as i64;
        let (name, keeps_sign) = match op {
            BinaryOp::Shl => ("shl", false),
            _ if ty.dtype.is_signed() => ("ashr", true),
            _ => ("lshr", false),
        };
        if self.constant(b).is_some_and(|amount| (0..width).contains(&amount)) {
            return Ok(self.def(format!("{name} {text} {x}, {amount}")));
        }
        if keeps_sign {
            let most = splat(lane, ty.lanes, &(width - 1).to_string());
            let amount = self.def(format!("call {text} @llvm.umin.{suffix}({text} {amount}, {text} {most})"));
            return Ok(self.def(format!("{name} {text} {x}, {amount}")));
        }
        let (limit, zero) = (splat(lane, ty.lanes, &width.to_string()), splat(lane, ty.lanes, "0"));
        let fits = self.def(format!("icmp ult {text} {amount}, {limit}"));
        // For NVPTX, LLVM makes one instruction of a select and a shift by the same amount, of whose 64 bits it then reads 32.
        let amount = match self.isa {
            Isa::Gpu(_) => {
                let bits = splat(lane, ty.lanes, &(width - 1).to_string());
                self.def(format!("and {text} {amount}, {bits}"))
            }
            Isa::Processor(_) => amount,
        };
        let shifted = self.def(format!("{name} {text} {x}, {amount}"));
        let condition = vector("i1", ty.lanes);
        Ok(self.def(format!("select {condition} {fits}, {text} {shifted}, {text} {zero}")))
    }

    /// The four integer divisions. A divisor of zero gives quotient 0 and the dividend as remainder; the
    /// least integer by -1 wraps.
    fn divide(&mut self, ty: Type, op: BinaryOp, a: Value, b: Value) -> Result<String, CodegenError> {
        let Text { lane, ty: text, .. } = self.text(ty)?;
        let (x, y) = (self.operand(a)?, self.operand(b)?);
        let condition = vector("i1", ty.lanes);
        let constant = |value: i64| splat(lane, ty.lanes, &value.to_string());
        let (zero, one) = (constant(0), constant(1));
        let signed = ty.dtype.is_signed();
        let floors = signed && matches!(op, BinaryOp::FloorDiv | BinaryOp::FloorMod);
        let wants_quotient = matches!(op, BinaryOp::Div | BinaryOp::FloorDiv);
        let known = self.constant(b).map(|value| wrap(ty.dtype, value));

        if let Some(divisor) = known.filter(|divisor| *divisor > 0) {
            if floors && divisor.count_ones() == 1 {
                let (name, by) = if wants_quotient {
                    ("ashr", i64::from(divisor.trailing_zeros()))
                } else {
                    ("and", divisor - 1)
                };
                return Ok(self.def(format!("{name} {text} {x}, {}", constant(by))));
            }
            let rem = if signed { "srem" } else { "urem" };
            // Powers of two are shifts.
            let by_words = divisor.count_ones() > 1 && self.divides_by_words(lane);
            if !floors && !wants_quotient && !by_words {
                return Ok(self.def(format!("{rem} {text} {x}, {y}")));
            }
            let quotient = self.quotient(lane, ty.lanes, signed, by_words, [&x, &y]);
            if !floors && wants_quotient {
                return Ok(quotient);
            }
            // A negative remainder is one too little: its sign bit, spread, is the correction.
            let product = self.def(format!("mul {text} {quotient}, {y}"));
            let rest = self.def(format!("sub {text} {x}, {product}"));
            if !floors {
                return Ok(rest);
            }
            let below = self.def(format!("ashr {text} {rest}, {}", constant(ty.dtype.bits() as i64 - 1)));
            return Ok(if wants_quotient {
                self.def(format!("add {text} {quotient}, {below}"))
            } else {
                let step = self.def(format!("and {text} {below}, {y}"));
                self.def(format!("add {text} {rest}, {step}"))
            });
        }

        let by_zero = self.def(format!("icmp eq {text} {y}, {zero}"));
        if !signed {
            let divisor = self.def(format!("select {condition} {by_zero}, {text} {one}, {text} {y}"));
            let by_words = self.divides_by_words(lane);
            let quotient = self.quotient(lane, ty.lanes, false, by_words, [&x, &divisor]);
            return Ok(if wants_quotient {
                self.def(format!("select {condition} {by_zero}, {text} {zero}, {text} {quotient}"))
            } else {
                // Of the replaced divisor 1 the remainder is 0, of divisor 0 it is the dividend.
                let product = self.def(format!("mul {text} {quotient}, {y}"));
                self.def(format!("sub {text} {x}, {product}"))
            });
        }
        let by_minus_one = self.def(format!("icmp eq {text} {y}, {}", constant(-1)));
        let special = self.def(format!("or {condition} {by_zero}, {by_minus_one}"));
        let divisor = self.def(format!("select {condition} {special}, {text} {one}, {text} {y}"));
        let by_words = self.divides_by_words(lane);
        let quotient = self.quotient(lane, ty.lanes, true, by_words, [&x, &divisor]);
        let negated = self.def(format!("sub {text} {zero}, {x}"));
        let quotient =
            self.def(format!("select {condition} {by_minus_one}, {text} {negated}, {text} {quotient}"));
        let quotient = self.def(format!("select {condition} {by_zero}, {text} {zero}, {text} {quotient}"));
        if wants_quotient && !floors {
            return Ok(quotient);
        }
        let product = self.def(format!("mul {text} {quotient}, {y}"));
        let rest = self.def(format!("sub {text} {x}, {product}"));
        if !floors {
            return Ok(rest);
        }
        let some = self.def(format!("icmp ne {text} {rest}, {zero}"));
        let signs = self.def(format!("xor {text} {rest}, {y}"));
        let differ = self.def(format!("icmp slt {text} {signs}, {zero}"));
        let inexact = self.def(format!("and {condition} {some}, {differ}"));
        // A remainder by zero is the dividend itself, whatever its sign.
        let divided = self.def(format!("icmp ne {text} {y}, {zero}"));
        let below = self.def(format!("and {condition} {inexact}, {divided}"));
        let (from, change) = if wants_quotient {
            (&quotient, self.def(format!("sext {condition} {below} to {text}")))
        } else {
            (&rest, self.def(format!("select {condition} {below}, {text} {y}, {text} {zero}")))
        };
        Ok(self.def(format!("add {text} {from}, {change}")))
    }

    pub(super) fn compare(&mut self, op: CompareOp, a: Value, b: Value) -> Result<String, CodegenError> {
        let (ty, b_ty) = (self.ty(a)?, self.ty(b)?);
        if ty != b_ty {
            return Err(invalid(self.kernel, format!("comparison of {ty} and {b_ty}")));
        }
        let text = self.text_type(a)?;
        let (x, y) = (self.operand(a)?, self.operand(b)?);
        let (of_floats, of_signed, of_unsigned) = match op {
            CompareOp::Eq => ("oeq", "eq", "eq"),
            CompareOp::Ne => ("une", "ne", "ne"),
            CompareOp::Lt => ("olt", "slt", "ult"),
            CompareOp::Le => ("ole", "sle", "ule"),
            CompareOp::Gt => ("ogt", "sgt", "ugt"),
            CompareOp::Ge => ("oge", "sge", "uge"),
        };
        let comparison = match ty.dtype.kind() {
            Kind::Float => format!("fcmp {of_floats}"),
            Kind::Int => format!("icmp {of_signed}"),
            Kind::Bool | Kind::UInt => format!("icmp {of_unsigned}"),
            Kind::String => return Err(unsupported(self.kernel, "strings")),
        };
        Ok(self.def(format!("{comparison} {text} {x}, {y}")))
    }

    fn select(&mut self, ty: Type, condition: Value, a: Value, b: Value) -> Result<String, CodegenError> {
        let lanes = self.ty(condition)?.lanes;
        if lanes != ty.lanes && lanes != 1 {
            return Err(invalid(self.kernel, format!("condition of {lanes} lanes for {ty}")));
        }
        let (of, text) = (self.text_type(condition)?, self.text_type(a)?);
        let (condition, x, y) = (self.operand(condition)?, self.operand(a)?, self.operand(b)?);
        Ok(self.def(format!("select {of} {condition}, {text} {x}, {text} {y}")))
    }

    fn fma(&mut self, ty: Type, a: Value, b: Value, c: Value) -> Result<String, CodegenError> {
        let Text { ty: text, suffix, .. } = self.text(ty)?;
        if !ty.dtype.is_float() {
            return Err(invalid(self.kernel, format!("fma of {ty}")));
        }
        let (x, y, z) = (self.operand(a)?, self.operand(b)?, self.operand(c)?);
        if self.isa.has_fma() {
            return Ok(
                self.def(format!("call {text} @llvm.fma.{suffix}({text} {x}, {text} {y}, {text} {z})"))
            );
        }
        match ty.dtype {
            DType::F32 => Ok(self.fma_through_f64(ty.lanes, &x, &y, &z)),
            dtype => Err(unsupported(self.kernel, format!("fma of {dtype} on a machine without it"))),
        }
    }

    /// A binary32 fused multiply-add by binary64 arithmetic: the product is exact, the sum is rounded to odd,
    /// after which rounding to binary32 is the only rounding that shows (Boldo and Melquiond, "Emulation of
    /// a FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
    fn fma_through_f64(&mut self, lanes: u32, a: &str, b: &str, c: &str) -> String {
        let [single, double, bits, truth] = ["float", "double", "i64", "i1"].map(|lane| vector(lane, lanes));
        let zero = splat("double", lanes, "0.0");
        let [a, b, c] = [a, b, c].map(|x| self.def(format!("fpext {single} {x} to {double}")));
        let product = self.def(format!("fmul {double} {a}, {b}"));
        let sum = self.def(format!("fadd {double} {product}, {c}"));
        // Knuth's two-sum: what the sum lost.
        let c_part = self.def(format!("fsub {double} {sum}, {product}"));
        let product_part = self.def(format!("fsub {double} {sum}, {c_part}"));
        let product_lost = self.def(format!("fsub {double} {product}, {product_part}"));
        let c_lost = self.def(format!("fsub {double} {c}, {c_part}"));
        let lost = self.def(format!("fadd {double} {product_lost}, {c_lost}"));
        // To odd: an inexact sum with an even last bit moves one step toward what was lost.
        let sum_bits = self.def(format!("bitcast {double} {sum} to {bits}"));
        let last = self.def(format!("trunc {bits} {sum_bits} to {truth}"));
        let even = self.def(format!("xor {truth} {last}, {}", splat("i1", lanes, "true")));
        let inexact = self.def(format!("fcmp one {double} {lost}, {zero}"));
        let moves = self.def(format!("and {truth} {inexact}, {even}"));
        let lost_more = self.def(format!("fcmp ogt {double} {lost}, {zero}"));
        let positive = self.def(format!("fcmp ogt {double} {sum}, {zero}"));
        let inward = self.def(format!("xor {truth} {lost_more}, {positive}"));
        let step = self.def(format!(
            "select {truth} {inward}, {bits} {}, {bits} {}",
            splat("i64", lanes, "-1"),
            splat("i64", lanes, "1")
        ));
        let moved = self.def(format!("add {bits} {sum_bits}, {step}"));
        let odd = self.def(format!("select {truth} {moves}, {bits} {moved}, {bits} {sum_bits}"));
        let odd = self.def(format!("bitcast {bits} {odd} to {double}"));
        self.def(format!("fptrunc {double} {odd} to {single}"))
    }
}

/// The lane numbers of a shuffle; `None` where the lane does not matter.
pub(super) fn shuffle_mask(lanes: impl Iterator<Item = Option<u32>>) -> String {
    let lanes: Vec<String> = lanes
        .map(|lane| match lane {
            Some(lane) => format!("i32 {lane}"),
            None => "i32 poison".to_owned(),
        })
        .collect();
    format!("<{} x i32> <{}>", lanes.len(), lanes.join(", "))
}
