//! Inputs and outputs of models, as their user sees them.

use std::fmt;

use tilewright_dtype::DType;
use tilewright_runtime::plan::{DimSpec, Nesting, Plan, SizeDef, TensorSpec, ValueSpec};

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// What is around the tensor, outermost first.
    pub nesting: Vec<Nesting>,
    /// Element type of the tensor.
    pub dtype: DType,
    /// Extents of the tensor, outermost first, if their number is known.
    pub dims: Option<Vec<Extent>>,
}

/// One extent of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Known.
    Fixed(i64),
    /// Open, or computed from open ones; empty where it has no name.
    Open(String),
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.ty())
    }
}

impl Spec {
    /// Its type: `f32[batch, 3]`, `seq(i64[*])`.
    pub fn ty(&self) -> String {
        let open = |nesting: &Nesting| match nesting {
            Nesting::Sequence => "seq(",
            Nesting::Optional => "opt(",
        };
        let extent = |dim: &Extent| match dim {
            Extent::Fixed(n) => n.to_string(),
            Extent::Open(name) if name.is_empty() => "?".to_string(),
            Extent::Open(name) => name.clone(),
        };
        let dims = match &self.dims {
            Some(dims) => dims.iter().map(extent).collect::<Vec<_>>().join(", "),
            None => "*".to_string(),
        };
        let opened: String = self.nesting.iter().map(open).collect();
        format!("{opened}{}[{dims}]{}", self.dtype, ")".repeat(self.nesting.len()))
    }

    /// Whether it is a tensor of numbers of known rank, and no host value.
    pub fn is_plain(&self) -> bool {
        self.nesting.is_empty() && self.dtype != DType::String && self.dims.is_some()
    }
}

/// The inputs of a plan, in the model's order.
pub fn inputs(plan: &Plan) -> Vec<Spec> {
    in_order(of_tensors(plan, &plan.inputs), of_values(plan, &plan.value_inputs))
}

/// The outputs of a plan, in the model's order.
pub fn outputs(plan: &Plan) -> Vec<Spec> {
    in_order(of_tensors(plan, &plan.outputs), of_values(plan, &plan.value_outputs))
}

/// Puts tensors and other values, these with their positions, into the model's order.
fn in_order<T>(tensors: Vec<T>, values: Vec<(u32, T)>) -> Vec<T> {
    let mut all = tensors;
    for (position, value) in values {
        all.insert((position as usize).min(all.len()), value);
    }
    all
}

fn of_values(plan: &Plan, values: &[ValueSpec]) -> Vec<(u32, Spec)> {
    let extent = |dim: &Option<u64>| match dim.map(i64::try_from) {
        Some(Ok(n)) => Extent::Fixed(n),
        Some(Err(_)) | None => Extent::Open(String::new()),
    };
    let spec = |value: &ValueSpec| {
        let ty = &plan.values[value.value.index()];
        let dims = ty.dims.as_ref().map(|dims| dims.iter().map(extent).collect());
        let spec = Spec { name: value.name.clone(), nesting: ty.nesting.clone(), dtype: ty.dtype, dims };
        (value.position, spec)
    };
    values.iter().map(spec).collect()
}

fn of_tensors(plan: &Plan, tensors: &[TensorSpec]) -> Vec<Spec> {
    let extent = |dim: &DimSpec| match plan.sizes[dim.size.index()] {
        SizeDef::Const(n) => Extent::Fixed(n),
        _ => Extent::Open(dim.name.clone().unwrap_or_default()),
    };
    let spec = |tensor: &TensorSpec| Spec {
        name: tensor.name.clone(),
        nesting: Vec::new(),
        dtype: tensor.dtype,
        dims: Some(tensor.dims.iter().map(extent).collect()),
    };
    tensors.iter().map(spec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_print() {
        let extents = vec![Extent::Open("n".to_string()), Extent::Fixed(2), Extent::Open(String::new())];
        let plain = Spec { name: "x".to_string(), nesting: vec![], dtype: DType::F32, dims: Some(extents) };
        assert_eq!((plain.to_string().as_str(), plain.is_plain()), ("x: f32[n, 2, ?]", true));
        let scalar = Spec { name: "s".to_string(), nesting: vec![], dtype: DType::Bool, dims: Some(vec![]) };
        assert_eq!(scalar.to_string(), "s: bool[]");
        let nesting = vec![Nesting::Optional, Nesting::Sequence];
        let nested = Spec { name: "o".to_string(), nesting, dtype: DType::I64, dims: None };
        assert_eq!((nested.to_string().as_str(), nested.is_plain()), ("o: opt(seq(i64[*]))", false));
    }

    #[test]
    fn values_take_their_positions_among_tensors() {
        assert_eq!(in_order(vec!["a", "b"], vec![(0, "v"), (2, "w"), (9, "x")]), ["v", "a", "w", "b", "x"]);
    }
}
