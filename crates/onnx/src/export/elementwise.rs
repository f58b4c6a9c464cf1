//! Elementwise operators.

use tilewright_graph::DType;
use tilewright_graph::op::{
    ActivationAttrs, ActivationKind, BinaryOp, CastAttrs, DequantizeAttrs, QuantizeAttrs, RoundMode, UnaryOp,
};

use super::build::{flag, int, real, size, text};
use super::{Exporter, Item, Result};
use crate::proto::tensor::dtype_to_onnx;

pub(super) fn dtype_attr(name: &str, dtype: DType) -> crate::proto::AttributeProto {
    int(name, i64::from(dtype_to_onnx(dtype)))
}

impl Exporter<'_> {
    pub(super) fn unary(&mut self, item: &Item<'_>, op: UnaryOp) -> Result<()> {
        use UnaryOp::*;
        let (op_type, attributes) = match op {
            Abs => ("Abs", vec![]),
            Neg => ("Neg", vec![]),
            Exp => ("Exp", vec![]),
            Log => ("Log", vec![]),
            Sqrt => ("Sqrt", vec![]),
            Reciprocal => ("Reciprocal", vec![]),
            Floor => ("Floor", vec![]),
            Ceil => ("Ceil", vec![]),
            Round => ("Round", vec![]),
            Sign => ("Sign", vec![]),
            Not => ("Not", vec![]),
            BitwiseNot => ("BitwiseNot", vec![]),
            Sin => ("Sin", vec![]),
            Cos => ("Cos", vec![]),
            Tan => ("Tan", vec![]),
            Asin => ("Asin", vec![]),
            Acos => ("Acos", vec![]),
            Atan => ("Atan", vec![]),
            Sinh => ("Sinh", vec![]),
            Cosh => ("Cosh", vec![]),
            Tanh => ("Tanh", vec![]),
            Asinh => ("Asinh", vec![]),
            Acosh => ("Acosh", vec![]),
            Atanh => ("Atanh", vec![]),
            Erf => ("Erf", vec![]),
            Sigmoid => ("Sigmoid", vec![]),
            Relu => ("Relu", vec![]),
            Softplus => ("Softplus", vec![]),
            Softsign => ("Softsign", vec![]),
            Gelu => ("Gelu", vec![]),
            GeluTanh => ("Gelu", vec![text("approximate", "tanh")]),
            HardSwish => ("HardSwish", vec![]),
            Mish => ("Mish", vec![]),
            IsNan => ("IsNaN", vec![]),
            IsInf => ("IsInf", vec![]),
            IsPosInf => ("IsInf", vec![int("detect_negative", 0)]),
            IsNegInf => ("IsInf", vec![int("detect_positive", 0)]),
        };
        self.plain(item, op_type, attributes)
    }

    pub(super) fn binary(&mut self, item: &Item<'_>, op: BinaryOp) -> Result<()> {
        use BinaryOp::*;
        let (op_type, attributes) = match op {
            Add => ("Add", vec![]),
            Sub => ("Sub", vec![]),
            Mul => ("Mul", vec![]),
            Div => ("Div", vec![]),
            Pow => ("Pow", vec![]),
            Mod if self.operand_dtype(item, 0)?.is_float() => return self.float_mod(item),
            Mod => ("Mod", vec![]),
            Fmod => ("Mod", vec![int("fmod", 1)]),
            Min => ("Min", vec![]),
            Max => ("Max", vec![]),
            And => ("And", vec![]),
            Or => ("Or", vec![]),
            Xor => ("Xor", vec![]),
            BitwiseAnd => ("BitwiseAnd", vec![]),
            BitwiseOr => ("BitwiseOr", vec![]),
            BitwiseXor => ("BitwiseXor", vec![]),
            ShiftLeft => ("BitShift", vec![text("direction", "LEFT")]),
            ShiftRight => ("BitShift", vec![text("direction", "RIGHT")]),
            Equal => ("Equal", vec![]),
            Less => ("Less", vec![]),
            LessEqual => ("LessOrEqual", vec![]),
            Greater => ("Greater", vec![]),
            GreaterEqual => ("GreaterOrEqual", vec![]),
        };
        self.plain(item, op_type, attributes)
    }

    /// ONNX's `Mod` has the divisor's sign for integers only: `r = fmod(a, b)`, and `r + b` where signs differ.
    fn float_mod(&mut self, item: &Item<'_>) -> Result<()> {
        let b = item.input(1);
        let zero = self.scalar(self.operand_dtype(item, 0)?, 0.0)?;
        let rest = self.emit("Mod", &[item.input(0), b], vec![int("fmod", 1)]);
        let below = self.emit("Less", &[&rest, &zero], Vec::new());
        let divisor_below = self.emit("Less", &[b, &zero], Vec::new());
        let differ = self.emit("Xor", &[&below, &divisor_below], Vec::new());
        let is_zero = self.emit("Equal", &[&rest, &zero], Vec::new());
        let is_some = self.emit("Not", &[&is_zero], Vec::new());
        let shifts = self.emit("And", &[&differ, &is_some], Vec::new());
        let shifted = self.emit("Add", &[&rest, b], Vec::new());
        self.finish(item, "Where", &[&shifts, &shifted, &rest], Vec::new());
        Ok(())
    }

    pub(super) fn activation(&mut self, item: &Item<'_>, attrs: &ActivationAttrs) -> Result<()> {
        let alpha = real("alpha", attrs.alpha);
        let (op_type, attributes) = match attrs.kind {
            ActivationKind::LeakyRelu => ("LeakyRelu", vec![alpha]),
            ActivationKind::Elu => ("Elu", vec![alpha]),
            ActivationKind::Selu => ("Selu", vec![alpha, real("gamma", attrs.beta)]),
            ActivationKind::Celu => ("Celu", vec![alpha]),
            ActivationKind::HardSigmoid => ("HardSigmoid", vec![alpha, real("beta", attrs.beta)]),
            ActivationKind::ThresholdedRelu => ("ThresholdedRelu", vec![alpha]),
            ActivationKind::Shrink => ("Shrink", vec![real("lambd", attrs.alpha), real("bias", attrs.beta)]),
            ActivationKind::Swish => {
                self.need(24);
                ("Swish", vec![alpha])
            }
        };
        self.plain(item, op_type, attributes)
    }

    pub(super) fn cast(&mut self, item: &Item<'_>, attrs: &CastAttrs) -> Result<()> {
        let mut attributes = vec![dtype_attr("to", attrs.to)];
        if !attrs.saturate {
            attributes.push(flag("saturate", false));
        }
        if let Some(round) = attrs.round {
            self.need(24);
            let mode = match round {
                RoundMode::Up => "up",
                RoundMode::Down => "down",
                RoundMode::Nearest => "nearest",
            };
            attributes.push(text("round_mode", mode));
        }
        self.plain(item, "Cast", attributes)
    }

    pub(super) fn quantize(&mut self, item: &Item<'_>, attrs: &QuantizeAttrs) -> Result<()> {
        let mut attributes = vec![size("axis", attrs.axis)];
        if attrs.block_size != 0 {
            attributes.push(size("block_size", attrs.block_size));
        }
        if !attrs.saturate {
            attributes.push(flag("saturate", false));
        }
        if item.input(2).is_empty() {
            attributes.push(dtype_attr("output_dtype", attrs.to));
        }
        if let Some(precision) = attrs.precision {
            self.need(23);
            attributes.push(dtype_attr("precision", precision));
        }
        self.plain(item, "QuantizeLinear", attributes)
    }

    pub(super) fn dequantize(&mut self, item: &Item<'_>, attrs: &DequantizeAttrs) -> Result<()> {
        let mut attributes = vec![size("axis", attrs.axis)];
        if attrs.block_size != 0 {
            attributes.push(size("block_size", attrs.block_size));
        }
        if attrs.to != self.operand_dtype(item, 1)? {
            self.need(23);
            attributes.push(dtype_attr("output_dtype", attrs.to));
        }
        self.plain(item, "DequantizeLinear", attributes)
    }

    pub(super) fn bit_cast(&mut self, item: &Item<'_>, to: DType) -> Result<()> {
        self.need(26);
        self.plain(item, "BitCast", vec![dtype_attr("to", to)])
    }
}
