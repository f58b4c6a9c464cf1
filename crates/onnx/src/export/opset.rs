//! The opset that element types ask for: operators got more types as ONNX grew.

use tilewright_graph::op::{ActivationKind, BinaryOp, Op};
use tilewright_graph::{DType, Type};

use super::{Exporter, Item};

/// The first opset in which operators that move or convert data know the type.
fn first_opset(dtype: DType) -> i64 {
    use DType::*;
    match dtype {
        Bool | I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64 | F16 | F32 | F64 | String => 0,
        F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | I4 | U4 => 21,
        BF16 => 22,
        F4E2M1 => 23,
        F8E8M0 => 24,
        I2 | U2 => 25,
    }
}

/// The first opset in which an operator knows a type that others knew earlier; from ONNX's change log.
fn late_opset(op: &Op, dtype: DType) -> i64 {
    let is = |dtypes: &[DType]| dtypes.contains(&dtype);
    let half = is(&[DType::F16, DType::BF16]);
    let brain = is(&[DType::BF16]);
    let is_28 = match op {
        Op::Binary(BinaryOp::ShiftLeft | BinaryOp::ShiftRight) => {
            is(&[DType::I8, DType::I16, DType::I32, DType::I64])
        }
        Op::Activation(attrs) => attrs.kind == ActivationKind::Celu && half,
        Op::Compress(_) | Op::OneHot(_) | Op::ReverseSequence(_) | Op::Unique(_) | Op::Einsum(_) => brain,
        _ => false,
    };
    let is_27 = matches!(op, Op::RangeDynamic) && half;
    if is_28 {
        28
    } else if is_27 {
        27
    } else {
        0
    }
}

impl Exporter<'_> {
    /// Requires the opset that the element types of a node's values ask for.
    pub(super) fn need_types(&mut self, item: &Item<'_>) {
        let graph = self.graph;
        let node = graph.node(item.id);
        for &value in node.inputs.iter().flatten().chain(&node.outputs) {
            if let Type::Tensor(tensor) = graph.ty(value) {
                self.need(first_opset(tensor.dtype).max(late_opset(item.op, tensor.dtype)));
            }
        }
    }
}
