//! Attributes of one node: typed access that notices the attributes nobody asked for.

use std::cell::RefCell;

use tilewright_graph::tensor::Tensor;

use super::error::{FaultKind, Reason, Result};
use crate::model::OnnxModel;
use crate::proto::attribute_proto::AttributeType;
use crate::proto::{AttributeProto, GraphProto, NodeProto, TypeProto};

/// The attributes of a node.
pub(crate) struct Attrs<'a> {
    node: &'a NodeProto,
    asked: RefCell<Vec<bool>>,
}

impl<'a> Attrs<'a> {
    pub(crate) fn new(node: &'a NodeProto) -> Attrs<'a> {
        Attrs { node, asked: RefCell::new(vec![false; node.attribute.len()]) }
    }

    /// The attribute `name`, which must be of type `ty` (old models leave the type out).
    fn find(&self, name: &str, ty: AttributeType) -> Result<Option<&'a AttributeProto>> {
        let mut found = None;
        for (i, attribute) in self.node.attribute.iter().enumerate().filter(|(_, a)| a.name() == name) {
            self.asked.borrow_mut()[i] = true;
            if found.replace(attribute).is_some() {
                return Err(Reason::malformed(format!("attribute `{name}` is there twice")));
            }
        }
        match found {
            Some(attribute) if attribute.r#type() == ty || attribute.r#type() == AttributeType::Undefined => {
                Ok(Some(attribute))
            }
            Some(attribute) => {
                let got = attribute.r#type().as_str_name();
                Err(Reason::malformed(format!("attribute `{name}` is {got}, not {}", ty.as_str_name())))
            }
            None => Ok(None),
        }
    }

    /// Accepts an attribute that changes nothing here.
    pub(crate) fn accept(&self, name: &str) {
        for (i, _) in self.node.attribute.iter().enumerate().filter(|(_, a)| a.name() == name) {
            self.asked.borrow_mut()[i] = true;
        }
    }

    pub(crate) fn opt_int(&self, name: &str) -> Result<Option<i64>> {
        Ok(self.find(name, AttributeType::Int)?.map(|attribute| attribute.i()))
    }

    pub(crate) fn int(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.opt_int(name)?.unwrap_or(default))
    }

    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.int(name, i64::from(default))? != 0)
    }

    pub(crate) fn opt_float(&self, name: &str) -> Result<Option<f32>> {
        Ok(self.find(name, AttributeType::Float)?.map(|attribute| attribute.f()))
    }

    pub(crate) fn float(&self, name: &str, default: f32) -> Result<f32> {
        Ok(self.opt_float(name)?.unwrap_or(default))
    }

    pub(crate) fn ints(&self, name: &str) -> Result<Option<&'a [i64]>> {
        Ok(self.find(name, AttributeType::Ints)?.map(|attribute| attribute.ints.as_slice()))
    }

    pub(crate) fn floats(&self, name: &str) -> Result<Option<&'a [f32]>> {
        Ok(self.find(name, AttributeType::Floats)?.map(|attribute| attribute.floats.as_slice()))
    }

    pub(crate) fn opt_text(&self, name: &str) -> Result<Option<&'a str>> {
        let Some(attribute) = self.find(name, AttributeType::String)? else { return Ok(None) };
        let bytes = attribute.s.as_deref().unwrap_or_default();
        let text = std::str::from_utf8(bytes);
        text.map(Some).map_err(|_| Reason::malformed(format!("attribute `{name}` is not UTF-8")))
    }

    pub(crate) fn text(&self, name: &str, default: &'a str) -> Result<&'a str> {
        Ok(self.opt_text(name)?.unwrap_or(default))
    }

    pub(crate) fn texts(&self, name: &str) -> Result<Option<Vec<String>>> {
        let Some(attribute) = self.find(name, AttributeType::Strings)? else { return Ok(None) };
        let text = |bytes: &bytes::Bytes| {
            let text = String::from_utf8(bytes.to_vec());
            text.map_err(|_| Reason::malformed(format!("attribute `{name}` is not UTF-8")))
        };
        attribute.strings.iter().map(text).collect::<Result<_>>().map(Some)
    }

    /// Raw strings, as tensors of strings keep them.
    pub(crate) fn raw_strings(&self, name: &str) -> Result<Option<&'a [bytes::Bytes]>> {
        Ok(self.find(name, AttributeType::Strings)?.map(|attribute| attribute.strings.as_slice()))
    }

    pub(crate) fn raw_string(&self, name: &str) -> Result<Option<&'a bytes::Bytes>> {
        Ok(self.find(name, AttributeType::String)?.and_then(|attribute| attribute.s.as_ref()))
    }

    pub(crate) fn tensor(&self, name: &str, model: &OnnxModel) -> Result<Option<Tensor>> {
        let Some(attribute) = self.find(name, AttributeType::Tensor)? else { return Ok(None) };
        let proto = attribute.t.as_ref().ok_or_else(|| missing_value(name))?;
        model.tensor(proto).map(Some).map_err(|error| Reason::malformed(error.to_string()))
    }

    pub(crate) fn sparse_tensor(&self, name: &str, model: &OnnxModel) -> Result<Option<Tensor>> {
        let Some(attribute) = self.find(name, AttributeType::SparseTensor)? else { return Ok(None) };
        let proto = attribute.sparse_tensor.as_ref().ok_or_else(|| missing_value(name))?;
        model.sparse_tensor(proto).map(Some).map_err(|error| Reason::malformed(error.to_string()))
    }

    pub(crate) fn opt_graph(&self, name: &str) -> Result<Option<&'a GraphProto>> {
        Ok(self.find(name, AttributeType::Graph)?.and_then(|attribute| attribute.g.as_ref()))
    }

    pub(crate) fn graph(&self, name: &str) -> Result<&'a GraphProto> {
        self.opt_graph(name)?.ok_or_else(|| missing_value(name))
    }

    pub(crate) fn type_proto(&self, name: &str) -> Result<Option<&'a TypeProto>> {
        Ok(self.find(name, AttributeType::TypeProto)?.and_then(|attribute| attribute.tp.as_ref()))
    }

    /// An error if an attribute was never asked for: ignoring what it says would give wrong answers.
    pub(crate) fn check_all_known(&self) -> Result<()> {
        let asked = self.asked.borrow();
        let unknown: Vec<String> = self
            .node
            .attribute
            .iter()
            .zip(asked.iter())
            .filter(|(_, asked)| !**asked)
            .map(|(attribute, _)| format!("`{}`", attribute.name()))
            .collect();
        match unknown.as_slice() {
            [] => Ok(()),
            [one] => Err(Reason::new(FaultKind::UnknownAttribute, format!("unknown attribute {one}"))),
            more => Err(Reason::new(
                FaultKind::UnknownAttribute,
                format!("unknown attributes {}", more.join(", ")),
            )),
        }
    }
}

/// An attribute that must be there.
pub(crate) fn missing(name: &str) -> Reason {
    Reason::malformed(format!("attribute `{name}` is missing"))
}

fn missing_value(name: &str) -> Reason {
    Reason::malformed(format!("attribute `{name}` is missing or has no value"))
}
