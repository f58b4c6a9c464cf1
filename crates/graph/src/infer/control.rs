//! Type rules of control flow.

use tilewright_dtype::DType;

use super::context::{Context, InferError, is_computed};
use crate::dim::Dim;
use crate::ids::RegionId;
use crate::op::{Op, ScanAttrs};
use crate::symbol::{SymbolKind, SymbolTable};
use crate::types::{Shape, TensorType, Type};

type Result<T> = std::result::Result<T, InferError>;

pub(super) fn types(cx: &mut Context<'_>) -> Result<Vec<Type>> {
    match cx.op {
        Op::If(attrs) => {
            let (then_types, else_types) = (results(cx, attrs.then_region), results(cx, attrs.else_region));
            cx.check_len("results", else_types.len(), then_types.len())?;
            then_types.iter().zip(&else_types).map(|(a, b)| merge(cx, a, b, "branch")).collect()
        }
        Op::Loop(attrs) => {
            let body = results(cx, attrs.body);
            if body.len() <= attrs.carried || cx.inputs.len() < 2 + attrs.carried {
                return Err(cx.fail("the body does not have the carried values"));
            }
            check_condition(cx, &body[0])?;
            let trips = match cx.elements(0) {
                // A condition may end the loop early; only a counted loop has a known number of trips.
                Some([trips]) if cx.input(1).is_none() && counts(cx, attrs.body) => Some(trips.clone()),
                _ => None,
            };
            let trips = match trips {
                Some(trips) => trips.maximum(&Dim::ZERO),
                None => cx.fresh("trips"),
            };
            let mut types = Vec::new();
            for position in 0..attrs.carried {
                let initial = cx.ty(2 + position)?.clone();
                types.push(merge(cx, &initial, &body[1 + position], "carried")?);
            }
            for ty in &body[1 + attrs.carried..] {
                types.push(stack(cx, ty, 0, &trips)?);
            }
            Ok(types)
        }
        _ => {
            let Op::Scan(attrs) = cx.op else { return Err(cx.fail("has no type rule here")) };
            scan(cx, attrs)
        }
    }
}

fn scan(cx: &mut Context<'_>, attrs: &ScanAttrs) -> Result<Vec<Type>> {
    let body = results(cx, attrs.body);
    let scanned = attrs.input_axes.len();
    if body.len() < attrs.states || cx.inputs.len() < attrs.states + scanned {
        return Err(cx.fail("the body does not have the state values"));
    }
    let mut trips: Option<Dim> = None;
    for (index, &axis) in attrs.input_axes.iter().enumerate() {
        if let Some(dims) = cx.dims(attrs.states + index)? {
            cx.check_axis(axis, dims.len())?;
            trips = Some(match trips {
                Some(trips) => cx.unify(&trips, &dims[axis], "scanned extents")?,
                None => dims[axis].clone(),
            });
        }
    }
    let trips = match trips {
        Some(trips) => trips,
        None => cx.fresh("trips"),
    };
    let mut types = Vec::new();
    for (position, ty) in body.iter().enumerate().take(attrs.states) {
        let initial = cx.ty(position)?.clone();
        types.push(merge(cx, &initial, ty, "state")?);
    }
    cx.check_len("output_axes", attrs.output_axes.len(), body.len() - attrs.states)?;
    for (ty, &axis) in body[attrs.states..].iter().zip(&attrs.output_axes) {
        types.push(stack(cx, ty, axis, &trips)?);
    }
    Ok(types)
}

/// The condition of a loop's body: whether it goes on.
fn check_condition(cx: &Context<'_>, ty: &Type) -> Result<()> {
    let one = |dims: &[Dim]| dims.iter().all(|dim| dim.as_const().is_none_or(|extent| extent == 1));
    match ty {
        Type::Tensor(tensor) if tensor.dtype == DType::Bool && tensor.shape.dims().is_none_or(one) => Ok(()),
        _ => Err(cx.fail(format!("the condition of the body is {}, not one bool", ty.display(cx.symbols)))),
    }
}

fn results(cx: &Context<'_>, region: RegionId) -> Vec<Type> {
    cx.graph.region(region).results.iter().map(|&value| cx.graph.ty(value).clone()).collect()
}

/// Whether a loop body always continues: its condition result is a true constant or its own parameter.
fn counts(cx: &Context<'_>, body: RegionId) -> bool {
    let region = cx.graph.region(body);
    let Some(&condition) = region.results.first() else { return false };
    if region.params.get(1) == Some(&condition) {
        return true;
    }
    let mut value = condition;
    while let Some(node) = cx.graph.producer(value) {
        match (&cx.graph.node(node).op, cx.graph.node(node).input(0)) {
            (Op::Identity, Some(source)) => value = source,
            (Op::Constant(tensor), _) => return tensor.as_splat() == Some(1.0),
            _ => return false,
        }
    }
    region.params.get(1) == Some(&value)
}

fn stack(cx: &mut Context<'_>, ty: &Type, axis: usize, trips: &Dim) -> Result<Type> {
    let Type::Tensor(tensor) = ty else { return Err(cx.fail("only tensors can be stacked")) };
    let Some(dims) = tensor.shape.dims() else { return Ok(ty.clone()) };
    cx.check_axis(axis, dims.len() + 1)?;
    let mut dims: Vec<Dim> = dims.to_vec();
    for dim in &mut dims {
        if cx.is_computed(dim) {
            *dim = cx.fresh("stacked");
        }
    }
    dims.insert(axis, trips.clone());
    Ok(Type::Tensor(TensorType::new(tensor.dtype, dims)))
}

fn merge(cx: &mut Context<'_>, a: &Type, b: &Type, what: &str) -> Result<Type> {
    match merge_types(a, b, cx.symbols) {
        Some(ty) => Ok(ty),
        None => {
            let (a, b) = (a.display(cx.symbols).to_string(), b.display(cx.symbols).to_string());
            Err(cx.fail(format!("{what} types differ: {a} and {b}")))
        }
    }
}

/// The narrowest type that covers both: extents that differ, or that depend on what a region computed, become
/// new computed symbols. `None` if the types have nothing in common.
pub fn merge_types(a: &Type, b: &Type, symbols: &mut SymbolTable) -> Option<Type> {
    match (a, b) {
        (Type::Tensor(a), Type::Tensor(b)) if a.dtype == b.dtype => {
            let shape = match (&a.shape, &b.shape) {
                (Shape::Ranked(a), Shape::Ranked(b)) if a.len() == b.len() => {
                    let mut merged = Vec::with_capacity(a.len());
                    for (a, b) in a.iter().zip(b) {
                        merged.push(if a == b && !is_computed(a, symbols) {
                            a.clone()
                        } else {
                            Dim::symbol(symbols.fresh("merged", SymbolKind::Computed))
                        });
                    }
                    Shape::Ranked(merged)
                }
                _ => Shape::Unranked,
            };
            Some(Type::Tensor(TensorType { dtype: a.dtype, shape }))
        }
        (Type::Sequence(a), Type::Sequence(b)) => Some(Type::Sequence(Box::new(merge_types(a, b, symbols)?))),
        (Type::Optional(a), Type::Optional(b)) => Some(Type::Optional(Box::new(merge_types(a, b, symbols)?))),
        (Type::Optional(inner), other) | (other, Type::Optional(inner)) => {
            Some(Type::Optional(Box::new(merge_types(inner, other, symbols)?)))
        }
        _ => None,
    }
}
