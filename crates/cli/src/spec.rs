//! Inputs and outputs of models, as the user sees them.

use std::fmt;

use tilewright::DType;
use tilewright::runtime::plan::Nesting;

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    /// Its name.
    pub(crate) name: String,
    /// What is around the tensor, outermost first.
    pub(crate) nesting: Vec<Nesting>,
    /// Element type of the tensor.
    pub(crate) dtype: DType,
    /// Extents of the tensor, outermost first, if their number is known.
    pub(crate) dims: Option<Vec<Extent>>,
}

/// One extent of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
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
    pub(crate) fn ty(&self) -> String {
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
    pub(crate) fn is_plain(&self) -> bool {
        self.nesting.is_empty() && self.dtype != DType::String && self.dims.is_some()
    }

    /// As a JSON object.
    pub(crate) fn json(&self) -> serde_json::Value {
        let extent = |dim: &Extent| match dim {
            Extent::Fixed(n) => (*n).into(),
            Extent::Open(name) => name.as_str().into(),
        };
        let dims: Option<Vec<serde_json::Value>> =
            self.dims.as_ref().map(|dims| dims.iter().map(extent).collect());
        let mut json = serde_json::json!({"name": self.name, "dtype": self.dtype.name(), "dims": dims});
        if !self.nesting.is_empty() {
            let name = |nesting: &Nesting| match nesting {
                Nesting::Sequence => "sequence",
                Nesting::Optional => "optional",
            };
            json["nesting"] = self.nesting.iter().map(name).collect();
        }
        json
    }
}
