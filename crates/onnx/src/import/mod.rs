//! Import: from a decoded model to the graph IR.
//!
//! Nodes are converted in topological order, each by the function that `registry` has for its operator; types
//! are inferred at once, so that conversions see the ranks and constants before them. A fault does not end the
//! import: results of the faulty node count as unknown, what depends on them is only looked up, and all faults
//! come back together. Model-local functions are expanded where they are called. Initializers become constants
//! where they are used, even if they are listed as inputs.

mod attrs;
mod captures;
mod control;
mod convert;
mod cx;
mod declared;
mod error;
mod failing;
mod importer;
mod names;
mod options;
mod origin;
mod partial;
mod registry;

mod attention;
mod conv;
mod elementwise;
mod flex_attention;
mod generate;
mod index;
mod linear;
mod loss;
mod norm;
mod pool;
mod quantize;
mod recurrent;
mod reduce;
mod resize;
mod scan;
mod sequence;
mod sequence_map;
mod shape;
mod signal;
mod training;

use std::collections::BTreeSet;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use tilewright_graph::Graph;

use crate::model::OnnxModel;
use crate::proto::{GraphProto, MAX_OPSET};
pub use convert::MAX_NODES;
pub use error::{Fault, FaultKind, ImportErrors};
use importer::{Binding, Importer, Scope};
pub use options::{DimOption, ImportOptions};
pub use origin::{Origin, Origins};
pub use partial::{Partial, import_partial};

/// Imports a model. Node names become provenances, names of values are kept, and the metadata gets the
/// producer and the operator sets.
///
/// # Errors
/// Everything that keeps the model from being imported.
pub fn import(model: &OnnxModel, options: &ImportOptions) -> std::result::Result<Graph, ImportErrors> {
    import_noting(model, options, &mut Vec::new())
}

/// As [`import`]; what is odd about the model and does not keep it from being imported goes to `warnings`.
///
/// # Errors
/// As [`import`].
pub fn import_noting(
    model: &OnnxModel,
    options: &ImportOptions,
    warnings: &mut Vec<Fault>,
) -> std::result::Result<Graph, ImportErrors> {
    let mut importer = Importer::new(model, options);
    importer.run();
    warnings.append(&mut importer.warnings);
    if importer.faults.is_empty() {
        Ok(importer.graph)
    } else {
        Err(ImportErrors { faults: importer.faults })
    }
}

impl<'m> Importer<'m> {
    fn new(model: &'m OnnxModel, options: &'m ImportOptions) -> Importer<'m> {
        Importer {
            model,
            options,
            graph: Graph::new(model.graph().name()),
            faults: Vec::new(),
            partial: None,
            warnings: Vec::new(),
            functions: FxHashMap::default(),
            singles: FxHashMap::default(),
            n_nodes: 0,
            call_depth: 0,
        }
    }

    fn run(&mut self) {
        self.note_metadata();
        self.check_opsets();
        self.collect_functions();
        self.import_main(self.model.graph());
    }

    fn note_metadata(&mut self) {
        let proto = &self.model.proto;
        let mut note = |key: &str, value: String| {
            if !value.is_empty() {
                self.graph.metadata.insert(key.to_owned(), value);
            }
        };
        note("producer", format!("{} {}", proto.producer_name(), proto.producer_version()).trim().to_owned());
        note("ir_version", proto.ir_version().to_string());
        for import in &proto.opset_import {
            let domain = if import.domain().is_empty() { "ai.onnx" } else { import.domain() };
            note(&format!("opset.{domain}"), import.version().to_string());
        }
    }

    fn check_opsets(&mut self) {
        let imports = &self.model.proto.opset_import;
        let version = crate::model::opset(imports, "");
        if let Some(version) = version.filter(|version| !(1..=MAX_OPSET).contains(version)) {
            let reason = format!("opset {version} is not known; the known ones are 1 to {MAX_OPSET}");
            self.fault(FaultKind::UnknownOpset, "opset_import", reason);
        }
        if imports.is_empty() && self.model.proto.ir_version() >= 3 {
            self.fault(FaultKind::UnknownOpset, "opset_import", "the model imports no operator set");
        }
    }

    fn collect_functions(&mut self) {
        for function in &self.model.proto.functions {
            let key = names::operator_key(function.domain(), function.name(), function.overload());
            if self.functions.insert(key, function).is_some() {
                self.fault(FaultKind::DuplicateName, function.name(), "the function is defined twice");
            }
        }
    }

    fn import_main(&mut self, proto: &GraphProto) {
        let mut scope = Scope {
            region: self.graph.main(),
            names: FxHashMap::default(),
            opsets: self.model.proto.opset_import.clone().into(),
            attributes: None,
            prefix: Rc::from(""),
            named: true,
        };
        self.bind_initializers(&mut scope, proto);
        self.bind_inputs(&mut scope, proto);
        let declared = names::declared_types(proto.value_info.iter().chain(&proto.output));
        self.import_nodes(&mut scope, &proto.node, declared);
        let mut seen = BTreeSet::new();
        for output in &proto.output {
            if !seen.insert(output.name()) {
                self.fault(FaultKind::DuplicateName, output.name(), "the graph output is there twice");
                continue;
            }
            match self.value_of(&mut scope, output.name()) {
                Some(Ok(value)) if self.is_stand_in(value) => {}
                Some(Ok(value)) => {
                    let value = self.declared_output(value, output.r#type.as_ref());
                    self.graph.add_output(output.name(), value);
                }
                Some(Err(_)) => {}
                None => {
                    self.fault(FaultKind::DanglingInput, output.name(), "the graph output is never defined")
                }
            }
        }
        if proto.output.is_empty() {
            self.fault(FaultKind::Malformed, proto.name(), "the graph has no outputs");
        }
    }

    fn bind_inputs(&mut self, scope: &mut Scope, proto: &GraphProto) {
        let mut unused: BTreeSet<&str> = self.options.dims.keys().map(String::as_str).collect();
        let mut seen = BTreeSet::new();
        for input in &proto.input {
            let name = input.name();
            if !seen.insert(name) || name.is_empty() {
                self.fault(FaultKind::DuplicateName, name, "the graph input is there twice, or has no name");
                continue;
            }
            let declared = self.input_type(input, &mut unused);
            if scope.names.contains_key(name) {
                self.check_initializer(scope, name, declared);
                continue;
            }
            let binding = match declared {
                Ok(ty) => Binding::Value(self.graph.add_input(name, ty)),
                Err(reason) => {
                    self.fault(reason.kind, name, reason.message);
                    Binding::Faulty
                }
            };
            scope.names.insert(name.to_owned(), binding);
        }
        let known: Vec<String> =
            self.graph.symbols.iter().map(|(_, symbol)| format!("`{}`", symbol.name)).collect();
        for name in unused {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let reason = format!("no open extent of the inputs has this name; the open ones are: {known}");
            self.fault(FaultKind::Option, name, reason);
        }
    }
}
