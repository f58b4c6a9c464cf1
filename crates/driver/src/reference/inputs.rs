//! Named inputs, held against a graph.

use std::collections::BTreeMap;

use tilewright_graph::{Graph, SymbolId, ValueId};
use tilewright_runtime::{InputError, InputErrors, Tensor};

/// Puts named inputs into the order of a graph, all of whose inputs are tensors; one that is something else is `None`.
/// Every problem at once.
pub(super) fn arrange<'t>(
    graph: &Graph,
    named: &[(&str, Option<&'t Tensor>)],
) -> Result<Vec<&'t Tensor>, InputErrors> {
    let name_of = |value: ValueId| graph.value(value).name.as_deref().unwrap_or_default();
    let names: Vec<&str> = graph.inputs().iter().map(|&value| name_of(value)).collect();
    let mut errors = Vec::new();
    for (i, (name, _)) in named.iter().enumerate() {
        if !names.contains(name) {
            errors.push(InputError::Unknown { name: name.to_string(), known: names.join(", ") });
        } else if named[..i].iter().any(|(other, _)| other == name) {
            errors.push(InputError::Duplicate { name: name.to_string() });
        }
    }
    let mut symbols = BTreeMap::new();
    let mut ordered = Vec::with_capacity(names.len());
    for (&value, name) in graph.inputs().iter().zip(names) {
        match named.iter().find(|(other, _)| *other == name) {
            None => errors.push(InputError::Missing { name: name.to_string() }),
            Some((_, None)) => {
                let expected = graph.ty(value).display(&graph.symbols).to_string();
                errors.push(InputError::Value { name: name.to_string(), expected });
            }
            Some(&(_, Some(tensor))) => {
                check(graph, value, tensor, &mut symbols, &mut errors);
                ordered.push(tensor);
            }
        }
    }
    if errors.is_empty() { Ok(ordered) } else { Err(InputErrors(errors)) }
}

/// Holds a tensor against an input; `symbols` are the open extents met so far.
fn check(
    graph: &Graph,
    value: ValueId,
    tensor: &Tensor,
    symbols: &mut BTreeMap<SymbolId, i64>,
    errors: &mut Vec<InputError>,
) {
    let Some(ty) = graph.tensor_type(value) else { return };
    let name = || graph.value(value).name.as_deref().unwrap_or_default().to_string();
    if tensor.dtype() != ty.dtype {
        errors.push(InputError::DType { name: name(), expected: ty.dtype, got: tensor.dtype() });
    }
    let Some(dims) = ty.shape.dims() else { return };
    if tensor.dims().len() != dims.len() {
        let (expected, got) = (dims.len(), tensor.dims().len());
        errors.push(InputError::Rank { name: name(), expected, got });
        return;
    }
    for (axis, (dim, &got)) in dims.iter().zip(tensor.dims()).enumerate() {
        let extent = i64::try_from(got).unwrap_or(i64::MAX);
        if let Some(symbol) = dim.as_symbol() {
            symbols.entry(symbol).or_insert(extent);
        }
        // What hangs on inputs to come is not known yet.
        let Some(expected) = dim.evaluate(&|symbol| symbols.get(&symbol).copied()) else { continue };
        if expected != extent {
            let symbol = dim.as_const().is_none().then(|| dim.display(&graph.symbols).to_string());
            let (name, expected) = (name(), Some(expected));
            errors.push(InputError::Dim { name, axis, symbol, expected, got });
        }
    }
}

#[cfg(test)]
mod tests {
    use tilewright_graph::text;

    use super::*;

    #[test]
    fn every_problem_with_inputs_is_told_at_once() {
        let graph = text::parse(
            "graph g {
              sym n input 1..9:1
              region0(%x x: f32[n, 2], %y y: i64[n], %z z: f32[], %t t: f32[]) {
                %a: f32[n, 2] = Unary[neg](%x)
                return %a as a
              }
            }",
        );
        let graph = graph.expect("a graph");
        let x = Tensor::new(&[3, 4], [0f32; 12]).expect("a tensor");
        let y = Tensor::new(&[2], [1i32, 2]).expect("a tensor");
        let w = Tensor::new(&[], [1f32]).expect("a tensor");
        let given = [("x", Some(&x)), ("y", Some(&y)), ("w", Some(&w)), ("t", None)];
        let errors = arrange(&graph, &given).expect_err("problems");
        let expect = "the model has no input \"w\" (it has x, y, z, t); \"x\": axis 1 must be 2, got 4; \
                      \"y\": expected element type i64, got i32; \"y\": axis 0 must be n = 3, got 2; \
                      input \"z\" is missing; \"t\": expected f32[], got a value of another type";
        assert_eq!(errors.to_string(), expect);
    }
}
