//! Which operator of the model a node of the graph comes from.

use std::fmt;

use rustc_hash::FxHashMap;

use super::names;
use crate::proto::NodeProto;

/// An operator as a model writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Its name.
    pub operator: String,
    /// The domain of its operator set; empty for that of ONNX.
    pub domain: String,
    /// The version of the set that the model imports; 0 where it imports none.
    pub opset: i64,
}

impl Origin {
    pub(super) fn of(node: &NodeProto, opset: i64) -> Origin {
        let domain = names::domain(node).to_owned();
        Origin { operator: node.op_type().to_owned(), domain, opset }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.domain.is_empty() {
            write!(f, "{}::", self.domain)?;
        }
        f.write_str(&self.operator)?;
        match self.opset {
            0 => Ok(()),
            opset => write!(f, " (opset {opset})"),
        }
    }
}

/// The operators of a model's nodes, by the names that provenances have.
#[derive(Clone, Debug, Default)]
pub struct Origins(FxHashMap<String, Vec<Origin>>);

impl Origins {
    pub(super) fn note(&mut self, label: &str, origin: Origin) {
        let known = self.0.entry(label.to_owned()).or_default();
        if !known.contains(&origin) {
            known.push(origin);
        }
    }

    /// The operator of a node that has one of these names: one that is called `operator`, where nodes differ.
    pub fn find<'a>(&self, names: impl IntoIterator<Item = &'a str>, operator: &str) -> Option<&Origin> {
        let found: Vec<&Origin> = names.into_iter().filter_map(|name| self.0.get(name)).flatten().collect();
        found.iter().find(|origin| origin.operator == operator).or(found.first()).copied()
    }
}
