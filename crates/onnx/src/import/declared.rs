//! Declared types: of graph inputs, and of values that inference must not contradict.

use std::collections::BTreeSet;

use tilewright_graph::tensor::Tensor;
use tilewright_graph::{Dim, Graph, Op, Provenance, Shape, SymbolKind, TensorType, Type, ValueId, infer};

use super::error::{FaultKind, Reason, Result};
use super::importer::{Binding, Importer, Scope};
use super::options::DimOption;
use crate::proto::tensor::dtype_from_onnx;
use crate::proto::tensor_shape_proto::dimension;
use crate::proto::type_proto::Value;
use crate::proto::{TensorShapeProto, TypeProto, ValueInfoProto};

impl Importer<'_> {
    /// The type of a graph input; its open extents become symbols, or what the options say. Names of options
    /// that occur are taken from `unused`.
    pub(super) fn input_type(&mut self, input: &ValueInfoProto, unused: &mut BTreeSet<&str>) -> Result<Type> {
        let untyped = || Reason::malformed("the graph input has no type");
        self.type_of_input(input.name(), input.r#type.as_ref().ok_or_else(untyped)?, unused)
    }

    /// The type of the graph input `name` that a declaration gives, as [`Importer::input_type`].
    pub(super) fn type_of_input(
        &mut self,
        name: &str,
        proto: &TypeProto,
        unused: &mut BTreeSet<&str>,
    ) -> Result<Type> {
        let mut open = |axis: usize, param: &str| self.open_dim(name, axis, param, unused);
        let ty = convert(proto, &mut open)?;
        // Elements of sequences may differ in their open extents, so these are known when an element is.
        let mut renew = |dims: Vec<Dim>| {
            let symbols = &mut self.graph.symbols;
            let mut fresh = || Dim::symbol(symbols.fresh("element", SymbolKind::Computed));
            dims.into_iter().map(|dim| if dim.is(-1) { fresh() } else { dim }).collect::<Vec<_>>().into()
        };
        Ok(map_open(ty, &mut renew))
    }

    /// The value of a graph output. Where the model declares what an optional holds, it is taken out of it.
    pub(super) fn declared_output(&mut self, value: ValueId, declared: Option<&TypeProto>) -> ValueId {
        let is_optional = matches!(self.graph.ty(value), Type::Optional(_));
        let wants_content = matches!(
            declared.and_then(|ty| ty.value.as_ref()),
            Some(Value::TensorType(_) | Value::SequenceType(_))
        );
        if !is_optional || !wants_content {
            return value;
        }
        let (region, name) = (self.graph.main(), self.graph.value(value).name.as_deref().unwrap_or_default());
        let provenance = Provenance::named(name);
        let node = infer::append(&mut self.graph, region, Op::OptionalGet, vec![Some(value)], provenance);
        node.ok().and_then(|node| self.graph.node(node).output()).unwrap_or(value)
    }

    fn open_dim(
        &mut self,
        input: &str,
        axis: usize,
        param: &str,
        unused: &mut BTreeSet<&str>,
    ) -> Result<Dim> {
        let name = if param.is_empty() { format!("{input}[{axis}]") } else { param.to_owned() };
        unused.remove(name.as_str());
        match self.options.dims.get(&name) {
            Some(DimOption::Fixed(value)) if *value >= 0 => Ok(Dim::from(*value)),
            Some(DimOption::Fixed(value)) => {
                Err(Reason::new(FaultKind::Option, format!("extent `{name}` cannot be {value}")))
            }
            Some(DimOption::Range(range)) => {
                if range.lo < 0 || range.step < 1 || range.hi.is_some_and(|hi| hi < range.lo) {
                    return Err(Reason::new(
                        FaultKind::Option,
                        format!("the range of extent `{name}` is empty"),
                    ));
                }
                let symbol = self.graph.symbols.intern(&name, SymbolKind::Input);
                self.graph.symbols.set_range(symbol, *range);
                Ok(Dim::symbol(symbol))
            }
            None => Ok(Dim::symbol(self.graph.symbols.intern(&name, SymbolKind::Input))),
        }
    }

    /// Checks an initializer that is also listed as an input against the declaration there.
    pub(super) fn check_initializer(&mut self, scope: &Scope, name: &str, declared: Result<Type>) {
        let (Ok(Type::Tensor(declared)), Some(Binding::Tensor(tensor))) = (declared, scope.names.get(name))
        else {
            return;
        };
        if !fits(tensor, &declared) {
            let reason =
                format!("the initializer is {tensor:?}, which is not what the input of that name declares");
            self.fault(FaultKind::Type, name, reason);
        }
    }
}

fn fits(tensor: &Tensor, declared: &TensorType) -> bool {
    let dims_fit = declared.shape.dims().is_none_or(|dims| {
        let same = |(dim, &extent): (&Dim, &usize)| dim.as_const().is_none_or(|dim| dim == extent as i64);
        dims.len() == tensor.dims().len() && dims.iter().zip(tensor.dims()).all(same)
    });
    tensor.dtype() == declared.dtype && dims_fit
}

/// A type from its protobuf form; `open` makes the extent of an axis that has a name or nothing.
pub(super) fn convert(proto: &TypeProto, open: &mut dyn FnMut(usize, &str) -> Result<Dim>) -> Result<Type> {
    match &proto.value {
        Some(Value::TensorType(tensor)) => {
            let dtype =
                dtype_from_onnx(tensor.elem_type()).map_err(|f| Reason::unsupported(f.to_string()))?;
            let shape = tensor.shape.as_ref().map(|shape| dims(shape, open)).transpose()?;
            Ok(Type::Tensor(TensorType { dtype, shape: shape.map_or(Shape::Unranked, Shape::Ranked) }))
        }
        Some(Value::SequenceType(sequence)) => {
            let element =
                sequence.elem_type.as_deref().ok_or_else(|| Reason::malformed("a type is incomplete"))?;
            Ok(Type::Sequence(Box::new(inner_type(element)?)))
        }
        Some(Value::OptionalType(optional)) => {
            let element =
                optional.elem_type.as_deref().ok_or_else(|| Reason::malformed("a type is incomplete"))?;
            Ok(Type::Optional(Box::new(inner_type(element)?)))
        }
        Some(Value::MapType(_)) => Err(Reason::unsupported("maps are not supported")),
        Some(Value::SparseTensorType(_)) => {
            Err(Reason::unsupported("sparse tensors as values are not supported"))
        }
        Some(Value::OpaqueType(_)) => Err(Reason::unsupported("opaque types are not supported")),
        None => Err(Reason::malformed("a type is incomplete")),
    }
}

/// A type whose open extents are nobody's: of the elements of sequences, or of optional values. They are -1 here.
pub(super) fn inner_type(proto: &TypeProto) -> Result<Type> {
    convert(proto, &mut |_, _| Ok(Dim::from(-1i64)))
}

/// A type that an attribute gives to what is inside an optional: a tensor with open extents counts as unranked.
pub(super) fn element_type(proto: &TypeProto) -> Result<Type> {
    let mut unrank = |_: Vec<Dim>| Shape::Unranked;
    Ok(map_open(inner_type(proto)?, &mut unrank))
}

/// Replaces the shapes of tensors that have open extents.
fn map_open(ty: Type, map: &mut dyn FnMut(Vec<Dim>) -> Shape) -> Type {
    match ty {
        Type::Sequence(inner) => Type::Sequence(Box::new(map_open(*inner, map))),
        Type::Optional(inner) => Type::Optional(Box::new(map_open(*inner, map))),
        Type::Tensor(TensorType { dtype, shape: Shape::Ranked(dims) }) if dims.iter().any(|d| d.is(-1)) => {
            Type::Tensor(TensorType { dtype, shape: map(dims) })
        }
        tensor @ Type::Tensor(_) => tensor,
    }
}

fn dims(shape: &TensorShapeProto, open: &mut dyn FnMut(usize, &str) -> Result<Dim>) -> Result<Vec<Dim>> {
    let convert = |(axis, dim): (usize, &crate::proto::tensor_shape_proto::Dimension)| match &dim.value {
        Some(dimension::Value::DimValue(value)) if *value >= 0 => Ok(Dim::from(*value)),
        Some(dimension::Value::DimParam(param)) => open(axis, param),
        // A negative extent is how some exporters write an open one.
        Some(dimension::Value::DimValue(_)) | None => open(axis, ""),
    };
    shape.dim.iter().enumerate().map(convert).collect()
}

/// What a declared type says against the inferred one.
pub(super) enum Contradiction {
    /// Other elements, or another kind of value: one of both is wrong.
    Type(String),
    /// Other extents only. Exporters leave such declarations behind, so the inferred shape holds.
    Shape(String),
}

/// Checks an inferred type against a declared one. Where no rank was inferred, the declared one is taken over.
pub(super) fn check(
    graph: &mut Graph,
    value: ValueId,
    declared: &TypeProto,
) -> std::result::Result<(), Contradiction> {
    // A declaration in terms that are not supported cannot contradict anything.
    let Ok(declared_type) = convert(declared, &mut |_, _| Ok(Dim::from(-1i64))) else { return Ok(()) };
    let inferred = graph.ty(value);
    if let (Type::Tensor(TensorType { dtype, shape: Shape::Unranked }), Type::Tensor(declared)) =
        (inferred, &declared_type)
        && *dtype == declared.dtype
        && let Some(rank) = declared.shape.rank()
    {
        let dtype = *dtype;
        let fresh = |_| Dim::symbol(graph.symbols.fresh("declared", SymbolKind::Computed));
        let dims = (0..rank).map(fresh).collect();
        graph.set_type(value, Type::Tensor(TensorType::new(dtype, dims)));
        return Ok(());
    }
    let Some(fits) = same_kind(inferred, &declared_type) else {
        let inferred = inferred.display(&graph.symbols);
        let reason = format!("declared as {}, but it is {inferred}", describe(&declared_type));
        return Err(Contradiction::Type(reason));
    };
    if fits {
        return Ok(());
    }
    let inferred = inferred.display(&graph.symbols);
    let reason = format!("declared as {}, but it is {inferred}, which holds", describe(&declared_type));
    Err(Contradiction::Shape(reason))
}

/// Whether the shapes agree, where both are known; `None` if the types differ otherwise.
fn same_kind(inferred: &Type, declared: &Type) -> Option<bool> {
    match (inferred, declared) {
        (Type::Tensor(inferred), Type::Tensor(declared)) => {
            (inferred.dtype == declared.dtype).then(|| same_shape(&inferred.shape, &declared.shape))
        }
        (Type::Sequence(a), Type::Sequence(b)) | (Type::Optional(a), Type::Optional(b)) => same_kind(a, b),
        // A value that may be absent on some path is declared as what it is when it is there.
        (Type::Optional(inner), declared @ (Type::Tensor(_) | Type::Sequence(_))) => {
            same_kind(inner, declared)
        }
        _ => None,
    }
}

fn same_shape(inferred: &Shape, declared: &Shape) -> bool {
    let (Some(inferred), Some(declared)) = (inferred.dims(), declared.dims()) else { return true };
    let same = |(a, b): (&Dim, &Dim)| match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => a == b || b < 0,
        _ => true,
    };
    inferred.len() == declared.len() && inferred.iter().zip(declared).all(same)
}

/// A declared type in words; open extents (-1) print as `?`.
fn describe(ty: &Type) -> String {
    match ty {
        Type::Sequence(element) => format!("seq({})", describe(element)),
        Type::Optional(element) => format!("opt({})", describe(element)),
        Type::Tensor(TensorType { dtype, shape: Shape::Unranked }) => format!("{dtype}[*]"),
        Type::Tensor(TensorType { dtype, shape: Shape::Ranked(dims) }) => {
            let show = |dim: &Dim| match dim.as_const() {
                Some(value) if value >= 0 => value.to_string(),
                _ => "?".to_owned(),
            };
            format!("{dtype}[{}]", dims.iter().map(show).collect::<Vec<_>>().join(", "))
        }
    }
}
