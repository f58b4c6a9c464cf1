//! Conversions between element types.

use tilewright_dtype::{DType, Kind};
use tilewright_machine::CodegenError;
use tilewright_te::kernel::{Type, Value};

use super::function::Function;
use super::{invalid, same_bits, splat, vector};

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
