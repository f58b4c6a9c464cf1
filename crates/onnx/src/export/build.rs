//! Attributes and types in their protobuf form.

use bytes::Bytes;
use tilewright_graph::op::Real;
use tilewright_graph::tensor::Tensor;
use tilewright_graph::{Dim, Shape, SymbolTable, Type};

use crate::proto::attribute_proto::AttributeType;
use crate::proto::tensor::dtype_to_onnx;
use crate::proto::tensor_shape_proto::{Dimension, dimension};
use crate::proto::type_proto::{Optional, Sequence, Tensor as TensorTypeProto, Value};
use crate::proto::{AttributeProto, GraphProto, TensorShapeProto, TypeProto, ValueInfoProto};
use crate::tensor;

fn attribute(name: &str, ty: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.to_owned()), r#type: Some(ty as i32), ..AttributeProto::default() }
}

pub(super) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name, AttributeType::Int) }
}

pub(super) fn size(name: &str, value: usize) -> AttributeProto {
    int(name, value as i64)
}

pub(super) fn flag(name: &str, value: bool) -> AttributeProto {
    int(name, i64::from(value))
}

pub(super) fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto { ints: values.to_vec(), ..attribute(name, AttributeType::Ints) }
}

pub(super) fn sizes(name: &str, values: &[usize]) -> AttributeProto {
    ints(name, &values.iter().map(|&value| value as i64).collect::<Vec<_>>())
}

pub(super) fn real(name: &str, value: Real) -> AttributeProto {
    AttributeProto { f: Some(value.0), ..attribute(name, AttributeType::Float) }
}

pub(super) fn reals(name: &str, values: &[Real]) -> AttributeProto {
    let floats = values.iter().map(|value| value.0).collect();
    AttributeProto { floats, ..attribute(name, AttributeType::Floats) }
}

pub(super) fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        s: Some(Bytes::copy_from_slice(value.as_bytes())),
        ..attribute(name, AttributeType::String)
    }
}

pub(super) fn texts(name: &str, values: &[String]) -> AttributeProto {
    let strings = values.iter().map(|value| Bytes::copy_from_slice(value.as_bytes())).collect();
    AttributeProto { strings, ..attribute(name, AttributeType::Strings) }
}

pub(super) fn graph(name: &str, value: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(value), ..attribute(name, AttributeType::Graph) }
}

pub(super) fn type_attribute(name: &str, value: TypeProto) -> AttributeProto {
    AttributeProto { tp: Some(value), ..attribute(name, AttributeType::TypeProto) }
}

pub(super) fn tensor_attribute(name: &str, value: &Tensor) -> AttributeProto {
    AttributeProto { t: Some(tensor::to_proto(value, "")), ..attribute(name, AttributeType::Tensor) }
}

/// The protobuf form of a type. Symbolic extents become parameters that spell the expression.
pub(super) fn type_proto(ty: &Type, symbols: &SymbolTable) -> TypeProto {
    let inner = |ty| Some(Box::new(type_proto(ty, symbols)));
    let value = match ty {
        Type::Tensor(tensor) => {
            let shape = match &tensor.shape {
                Shape::Ranked(dims) => Some(shape_proto(dims, symbols)),
                Shape::Unranked => None,
            };
            Value::TensorType(TensorTypeProto { elem_type: Some(dtype_to_onnx(tensor.dtype)), shape })
        }
        Type::Sequence(element) => Value::SequenceType(Box::new(Sequence { elem_type: inner(element) })),
        Type::Optional(element) => Value::OptionalType(Box::new(Optional { elem_type: inner(element) })),
    };
    TypeProto { value: Some(value), denotation: None }
}

fn shape_proto(dims: &[Dim], symbols: &SymbolTable) -> TensorShapeProto {
    let dimension = |dim: &Dim| {
        let value = match (dim.as_const(), dim.as_symbol()) {
            (Some(value), _) => dimension::Value::DimValue(value),
            (None, Some(symbol)) => dimension::Value::DimParam(symbols[symbol].name.clone()),
            (None, None) => dimension::Value::DimParam(dim.display(symbols).to_string()),
        };
        Dimension { value: Some(value), denotation: None }
    };
    TensorShapeProto { dim: dims.iter().map(dimension).collect() }
}

pub(super) fn value_info(name: &str, ty: &Type, symbols: &SymbolTable) -> ValueInfoProto {
    let name = Some(name.to_owned());
    ValueInfoProto { name, r#type: Some(type_proto(ty, symbols)), ..ValueInfoProto::default() }
}
