//! Conversions between element types.

use tilewright_dtype::{DType, Kind};
use tilewright_machine::CodegenError;
use tilewright_te::kernel::{Type, Value};

use super::arithmetic::Text;
use super::function::Function;
use super::{invalid, same_bits, splat, suffix, vector};

impl Function<'_> {
    pub(super) fn cast(&mut self, ty: Type, a: Value) -> Result<String, CodegenError> {
        let from = self.ty(a)?;
        if from.lanes != ty.lanes {
            return Err(invalid(self.kernel, format!("cast of a {from} to {ty}")));
        }
        let operand = self.operand(a)?;
        if from.dtype == ty.dtype {
            return Ok(operand);
        }
        let (source, target) = (self.text(from)?, self.text(ty)?);
        let (source_bits, target_bits) = (from.dtype.bits(), ty.dtype.bits());
        let convert = |name: &str| format!("{name} {} {operand} to {}", source.ty, target.ty);
        let saturate = |name: &str| {
            format!(
                "call {} @llvm.{name}.sat.{}.{}({} {operand})",
                target.ty, target.suffix, source.suffix, source.ty
            )
        };
        let by_words = |lane: &str| lane == "i64" && self.isa.is_32_bit();
        match (from.dtype.kind(), ty.dtype.kind()) {
            (Kind::Int | Kind::UInt, Kind::Float) if by_words(source.lane) => {
                let signed = from.dtype.is_signed();
                return Ok(self.float_of_i64(target.lane, ty.lanes, signed, &operand));
            }
            (Kind::Float, Kind::Int | Kind::UInt) if by_words(target.lane) => {
                let signed = ty.dtype.is_signed();
                return Ok(self.i64_of_float(source.lane, ty.lanes, signed, &operand));
            }
            (Kind::Float, Kind::Int | Kind::UInt) if ty.lanes > 1 && self.isa.rounds_without_truncation() => {
                return Ok(self.int_of_floats(&source, &target, ty, &operand));
            }
            _ => {}
        }
        let instruction = match (from.dtype.kind(), ty.dtype.kind()) {
            (Kind::Float, Kind::Bool) => {
                format!("fcmp une {} {operand}, {}", source.ty, splat(source.lane, ty.lanes, "0.0"))
            }
            (Kind::Int | Kind::UInt, Kind::Bool) => {
                format!("icmp ne {} {operand}, {}", source.ty, splat(source.lane, ty.lanes, "0"))
            }
            (Kind::Bool, Kind::Int | Kind::UInt) => convert("zext"),
            (Kind::Int | Kind::UInt, Kind::Int | Kind::UInt) if source_bits == target_bits => {
                return Ok(operand);
            }
            (Kind::Int | Kind::UInt, Kind::Int | Kind::UInt) if source_bits > target_bits => convert("trunc"),
            (Kind::Int, Kind::Int | Kind::UInt) => convert("sext"),
            (Kind::UInt, Kind::Int | Kind::UInt) => convert("zext"),
            (Kind::Int, Kind::Float) => convert("sitofp"),
            (Kind::Bool | Kind::UInt, Kind::Float) => convert("uitofp"),
            (Kind::Float, Kind::Int) => saturate("fptosi"),
            (Kind::Float, Kind::UInt) => saturate("fptoui"),
            (Kind::Float, Kind::Float) => {
                convert(if source_bits < target_bits { "fpext" } else { "fptrunc" })
            }
            (Kind::Bool, Kind::Bool) => return Ok(operand),
            (Kind::String, _) | (_, Kind::String) => {
                return Err(invalid(self.kernel, format!("cast of a {from} to {ty}")));
            }
        };
        Ok(self.def(instruction))
    }

    /// Vectors of floats as integers, which saturate, by the conversion that rounds to the nearest: what it is given is integral and in
    /// range.
    fn int_of_floats(&mut self, source: &Text, target: &Text, ty: Type, x: &str) -> String {
        let (lanes, truth, bits) = (ty.lanes, vector("i1", ty.lanes), ty.dtype.bits());
        let float = |value: f64| splat(source.lane, lanes, &format!("0x{:016X}", value.to_bits()));
        let signed = ty.dtype.is_signed();
        // One more than the greatest; the least.
        let (end, least) = match signed {
            true => (2f64.powi(bits as i32 - 1), -(2f64.powi(bits as i32 - 1))),
            false => (2f64.powi(bits as i32), 0.0),
        };
        let whole = self.rounded("trunc", source.lane, lanes, x);
        let reaches = self.def(format!("fcmp oge {} {whole}, {}", source.ty, float(least)));
        let ends = self.def(format!("fcmp olt {} {whole}, {}", source.ty, float(end)));
        let fits = self.def(format!("and {truth} {reaches}, {ends}"));
        // Half of an unsigned range is out of reach of the conversion, which is signed.
        let middle = if signed { 0.0 } else { end / 2.0 };
        let upper = self.def(format!("fcmp oge {} {whole}, {}", source.ty, float(middle)));
        let moved = match signed {
            true => whole.clone(),
            false => {
                let down = self.def(format!("fsub {} {whole}, {}", source.ty, float(middle)));
                self.def(format!("select {truth} {upper}, {0} {down}, {0} {whole}", source.ty))
            }
        };
        let safe = self.def(format!("select {truth} {fits}, {0} {moved}, {0} {1}", source.ty, float(0.0)));
        let wide = vector(if bits > 32 { "i64" } else { "i32" }, lanes);
        let suffixes = format!("{}.{}", suffix(if bits > 32 { "i64" } else { "i32" }, lanes), source.suffix);
        let mut number = self.def(format!("call {wide} @llvm.lrint.{suffixes}({} {safe})", source.ty));
        if bits < 32 {
            number = self.def(format!("trunc {wide} {number} to {}", target.ty));
        }
        let constant = |value: i64| splat(target.lane, lanes, &value.to_string());
        if !signed {
            let top = self.def(format!("xor {} {number}, {}", target.ty, constant(i64::MIN >> (64 - bits))));
            let is_moved = self.def(format!("and {truth} {upper}, {ends}"));
            number = self.def(format!("select {truth} {is_moved}, {0} {top}, {0} {number}", target.ty));
        }
        let most = if signed { i64::MAX >> (64 - bits) } else { -1 };
        let beyond = self.def(format!("fcmp oge {} {whole}, {}", source.ty, float(end)));
        let number =
            self.def(format!("select {truth} {beyond}, {0} {1}, {0} {number}", target.ty, constant(most)));
        let below = self.def(format!("fcmp olt {} {whole}, {}", source.ty, float(least)));
        let least = if signed { i64::MIN >> (64 - bits) } else { 0 };
        self.def(format!("select {truth} {below}, {0} {1}, {0} {number}", target.ty, constant(least)))
    }

    pub(super) fn bitcast(&mut self, ty: Type, a: Value) -> Result<String, CodegenError> {
        let from = self.ty(a)?;
        if !same_bits(from, ty) {
            return Err(invalid(self.kernel, format!("bitcast of a {from} to {ty}")));
        }
        let operand = self.operand(a)?;
        let (source, target) = (self.text(from)?, self.text(ty)?);
        if source.ty == target.ty {
            return Ok(operand);
        }
        let bytes = vector("i8", ty.lanes);
        Ok(match (from.dtype, ty.dtype) {
            (DType::Bool, _) => self.def(format!("zext {} {operand} to {bytes}", source.ty)),
            (_, DType::Bool) => self.def(format!("trunc {bytes} {operand} to {}", target.ty)),
            (_, _) => self.def(format!("bitcast {} {operand} to {}", source.ty, target.ty)),
        })
    }
}
