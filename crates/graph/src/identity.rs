//! When graphs are the same: their digest.
//!
//! The identity of a graph is what it computes of which inputs: nodes reached from results, numbered in the order in which
//! a walk from the results leaves them, with operators, operands and types. Names of inputs, outputs and of the extents of
//! inputs belong to it, since callers use them; the graph's name, provenance, metadata, names of other values and of computed
//! extents, arena numbers, and which of two independent nodes stands first do not. Nodes with an effect count in their
//! order, used or not. Elements of constants count, so a digest reads all weights.

use rustc_hash::FxHashMap;
use tilewright_digest::{Canonical, Digest, Writer};

use crate::dim::{Atom, Dim};
use crate::graph::{Graph, Node, Region, ValueDef};
use crate::guard::{Comparison, Guard};
use crate::ids::{NodeId, RegionId, SymbolId, ValueId};
use crate::op::Effect;
use crate::symbol::{Range, Symbol, SymbolKind};
use crate::tensor::{Bytes, Tensor};
use crate::types::{Shape, TensorType, Type};

impl Canonical for Graph {
    const KIND: &'static str = "graph";

    fn write(&self, writer: &mut Writer) {
        let mut identity = Identity {
            graph: self,
            writer,
            symbols: FxHashMap::default(),
            regions: FxHashMap::default(),
            nodes: FxHashMap::default(),
        };
        identity.region(self.main());
        for Guard { left, comparison, right, region, message: _ } in &self.guards {
            // What guards a region that nothing holds is never checked.
            let Some(&region) = identity.regions.get(region) else { continue };
            identity.group(|identity| {
                identity.dim(left);
                identity.writer.text(match comparison {
                    Comparison::Equal => "equal",
                    Comparison::AtMost => "at_most",
                });
                identity.dim(right);
                identity.writer.int(region);
            });
        }
    }
}

/// A graph being written, and the numbers of what was met.
pub struct Identity<'a> {
    graph: &'a Graph,
    pub(crate) writer: &'a mut Writer,
    symbols: FxHashMap<SymbolId, u32>,
    regions: FxHashMap<RegionId, u32>,
    nodes: FxHashMap<NodeId, u32>,
}

impl Identity<'_> {
    pub(crate) fn group(&mut self, write: impl FnOnce(&mut Self)) {
        self.writer.open();
        write(self);
        self.writer.close();
    }

    /// A region: its number where it has been met, else all of it.
    pub(crate) fn region(&mut self, region: RegionId) {
        let next = self.regions.len() as u32;
        if let Some(&number) = self.regions.get(&region) {
            self.writer.int(number);
            return;
        }
        self.regions.insert(region, next);
        if !self.graph.is_region(region) {
            self.writer.nothing();
            return;
        }
        let Region { params, nodes, results, result_names, owner: _ } = self.graph.region(region);
        let is_main = region == self.graph.main();
        self.group(|identity| {
            for &param in params {
                let value = identity.graph.value(param);
                identity.writer.option(is_main.then_some(value.name.as_deref()).flatten(), |writer, name| {
                    writer.text(name);
                });
                identity.ty(&value.ty);
            }
        });
        let has_effect = |&node: &NodeId| self.graph.node(node).op.effect() != Effect::Pure;
        let effects: Vec<NodeId> = nodes.iter().copied().filter(has_effect).collect();
        self.group(|identity| {
            let producers = results.iter().filter_map(|&result| identity.graph.producer(result));
            let roots: Vec<NodeId> = producers.chain(effects.iter().copied()).collect();
            roots.into_iter().for_each(|root| identity.nodes_before(root));
        });
        self.group(|identity| results.iter().for_each(|&result| identity.value(result)));
        self.writer.list(result_names, |writer, name| writer.text(name));
        let numbers: Vec<u32> = effects.iter().filter_map(|node| self.nodes.get(node).copied()).collect();
        self.writer.data(&numbers);
    }

    /// A node and all that it needs, unless written; operands first.
    fn nodes_before(&mut self, root: NodeId) {
        let mut stack = vec![(root, 0)];
        while let Some((node, input)) = stack.pop() {
            if self.nodes.contains_key(&node) {
                continue;
            }
            let inputs = &self.graph.node(node).inputs;
            match inputs.get(input) {
                Some(operand) => {
                    stack.push((node, input + 1));
                    let producer = operand.and_then(|operand| self.graph.producer(operand));
                    stack.extend(producer.map(|producer| (producer, 0)));
                }
                None => {
                    self.node(node);
                    self.nodes.insert(node, self.nodes.len() as u32);
                }
            }
        }
    }

    fn node(&mut self, node: NodeId) {
        let Node { op, inputs, outputs, region: _, provenance: _ } = self.graph.node(node);
        self.group(|identity| {
            op.identify(identity);
            identity.group(|identity| {
                for input in inputs {
                    match input {
                        Some(input) => identity.value(*input),
                        None => identity.writer.nothing(),
                    }
                }
            });
            identity.group(|identity| {
                outputs.iter().for_each(|&output| identity.ty(identity.graph.ty(output)));
            });
        });
    }

    /// Where a value comes from.
    fn value(&mut self, value: ValueId) {
        match self.graph.value(value).def {
            ValueDef::Param(_, position) => self.writer.variant("param", |writer| writer.size(position)),
            ValueDef::Output(node, position) => {
                let number = self.nodes.get(&node).copied();
                self.writer.variant("output", |writer| {
                    writer.option(number, |writer, number| writer.int(number));
                    writer.size(position);
                });
            }
        }
    }

    /// A type.
    pub(crate) fn ty(&mut self, ty: &Type) {
        match ty {
            Type::Tensor(TensorType { dtype, shape }) => self.group(|identity| {
                identity.writer.text("tensor");
                identity.writer.data(dtype);
                match shape {
                    Shape::Unranked => identity.writer.nothing(),
                    Shape::Ranked(dims) => {
                        identity.group(|identity| dims.iter().for_each(|dim| identity.dim(dim)));
                    }
                }
            }),
            Type::Sequence(inner) => self.group(|identity| {
                identity.writer.text("sequence");
                identity.ty(inner);
            }),
            Type::Optional(inner) => self.group(|identity| {
                identity.writer.text("optional");
                identity.ty(inner);
            }),
        }
    }

    /// An extent: its summands as a set, for their order follows the numbers of symbols.
    pub(crate) fn dim(&mut self, dim: &Dim) {
        if let Some(value) = dim.as_const() {
            self.writer.int(value);
            return;
        }
        let digest = self.dim_digest(dim);
        self.writer.digest(&digest);
    }

    fn dim_digest(&mut self, dim: &Dim) -> Digest {
        let mut summands: Vec<(i64, Vec<Digest>)> = Vec::new();
        for summand in dim.summands() {
            let mut atoms: Vec<Digest> = summand.atoms.iter().map(|atom| self.atom(atom)).collect();
            atoms.sort_unstable();
            summands.push((summand.coefficient, atoms));
        }
        summands.sort_unstable();
        Digest::of_data("extent", &summands)
    }

    fn atom(&mut self, atom: &Atom) -> Digest {
        let (name, operands) = match atom {
            Atom::Symbol(symbol) => return self.symbol(*symbol),
            Atom::FloorDiv(operands) => ("floor_div", operands),
            Atom::Mod(operands) => ("mod", operands),
            Atom::Min(operands) => ("min", operands),
            Atom::Max(operands) => ("max", operands),
        };
        let mut operands = [self.dim_digest(&operands.0), self.dim_digest(&operands.1)];
        if matches!(atom, Atom::Min(_) | Atom::Max(_)) {
            operands.sort_unstable();
        }
        Digest::of_data("atom", &(name, operands))
    }

    /// A symbol: by its name if callers bind it, else by its number.
    fn symbol(&mut self, symbol: SymbolId) -> Digest {
        let next = self.symbols.len() as u32;
        let Symbol { name, kind, range: Range { lo, hi, step } } = &self.graph.symbols[symbol];
        match kind {
            SymbolKind::Input => Digest::of_data("input", &(name, lo, hi, step)),
            SymbolKind::Computed => {
                let number = *self.symbols.entry(symbol).or_insert(next);
                Digest::of_data("computed", &(number, lo, hi, step))
            }
        }
    }

    /// A constant.
    pub(crate) fn tensor(&mut self, tensor: &Tensor) {
        self.group(|identity| {
            identity.writer.data(&tensor.dtype());
            identity.writer.data(tensor.dims());
            match tensor.strings() {
                Some(strings) => identity.writer.list(strings, |writer, text| writer.bytes(text)),
                None => identity.writer.bytes(tensor.bytes().map_or(&[][..], Bytes::as_slice)),
            }
        });
    }
}
