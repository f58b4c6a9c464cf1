//! Infers types again behind what has become known.
//!
//! Import types each node once. Later an operand turns out to be a constant, or shape arithmetic is followed
//! further, and an extent that was a computed symbol has a value. A [`Refinement`] visits nodes in topological
//! order, infers those with an operand of which more is known, and hands the news on to their users; so a sweep
//! over the graph settles a chain of any length. A symbol that its own node now expresses by others is replaced
//! everywhere at the end: in types, elements, attributes and guards.

use rustc_hash::{FxHashMap, FxHashSet};

use super::context::{Context, InferError, is_computed};
use super::{Facts, infer};
use crate::dim::Dim;
use crate::graph::Graph;
use crate::guard::Guard;
use crate::ids::{NodeId, RegionId, SymbolId, ValueId};
use crate::op::AttrVisitor;
use crate::symbol::SymbolTable;
use crate::types::{Shape, TensorType, Type};

/// Infers every node again, in topological order: after parsing, or when operands of shape arithmetic have
/// become constants. Tells whether any type changed.
pub fn refine(graph: &mut Graph) -> bool {
    let mut refinement = Refinement::new(graph);
    for region in graph.live_regions() {
        refinement.enter(graph, region);
        for node in graph.region(region).nodes.clone() {
            refinement.infer(graph, node);
        }
    }
    refinement.finish(graph)
}

/// What has become known during one sweep.
pub(crate) struct Refinement {
    /// What computed symbols are, by symbols that are known before them.
    known: FxHashMap<SymbolId, Dim>,
    /// Values of which more is known than when the sweep began.
    changed: FxHashSet<ValueId>,
    /// A copy that inference may add to. Symbols from `first_fresh` on are not the graph's.
    symbols: SymbolTable,
    first_fresh: usize,
    any: bool,
    /// Nodes that every run comes to and whose operands turn out not to fit.
    misfits: Vec<InferError>,
}

struct Substitution<'a>(&'a FxHashMap<SymbolId, Dim>);

impl AttrVisitor for Substitution<'_> {
    fn dim(&mut self, dim: &mut Dim) {
        if let Some(new) = self.of(dim) {
            *dim = new;
        }
    }
}

impl Substitution<'_> {
    /// The extent in terms of what is known; `None` if that changes nothing.
    fn of(&self, dim: &Dim) -> Option<Dim> {
        if dim.as_const().is_some() || !dim.symbols().iter().any(|symbol| self.0.contains_key(symbol)) {
            return None;
        }
        Some(
            dim.substitute(&|symbol| {
                self.0.get(&symbol).map(|dim| self.of(dim).unwrap_or_else(|| dim.clone()))
            }),
        )
    }

    fn ty(&self, ty: &Type) -> Option<Type> {
        match ty {
            Type::Tensor(TensorType { dtype, shape: Shape::Ranked(dims) }) => {
                let dims = self.list(dims)?;
                Some(Type::Tensor(TensorType::new(*dtype, dims)))
            }
            Type::Tensor(_) => None,
            Type::Sequence(inner) => self.ty(inner).map(|inner| Type::Sequence(Box::new(inner))),
            Type::Optional(inner) => self.ty(inner).map(|inner| Type::Optional(Box::new(inner))),
        }
    }

    fn list(&self, dims: &[Dim]) -> Option<Vec<Dim>> {
        let new: Vec<Option<Dim>> = dims.iter().map(|dim| self.of(dim)).collect();
        let changed = new.iter().any(Option::is_some);
        changed
            .then(|| new.into_iter().zip(dims).map(|(new, old)| new.unwrap_or_else(|| old.clone())).collect())
    }
}

impl Refinement {
    /// The beginning of a sweep.
    pub(crate) fn new(graph: &Graph) -> Refinement {
        Refinement {
            known: FxHashMap::default(),
            changed: FxHashSet::default(),
            symbols: graph.symbols.clone(),
            first_fresh: graph.symbols.iter().count(),
            any: false,
            misfits: Vec::new(),
        }
    }

    /// Notes that more is known of a value than when its users were typed.
    pub(crate) fn note(&mut self, value: ValueId) {
        self.changed.insert(value);
    }

    /// Brings a region's parameters up to date; call before its nodes.
    pub(crate) fn enter(&mut self, graph: &mut Graph, region: RegionId) {
        for param in graph.region(region).params.clone() {
            self.update(graph, param);
        }
    }

    /// Infers a node again if more is known of an operand.
    pub(crate) fn visit(&mut self, graph: &mut Graph, node: NodeId) {
        let inputs = &graph.node(node).inputs;
        if inputs.iter().flatten().any(|value| self.changed.contains(value)) {
            self.infer(graph, node);
        } else {
            self.substitute(graph, node);
        }
    }

    fn infer(&mut self, graph: &mut Graph, node: NodeId) {
        self.substitute(graph, node);
        let (facts, guards) = match self.facts(graph, node) {
            Ok(found) => found,
            Err(misfit) => {
                // A branch that does not fit may be one that no run takes.
                if graph.node(node).region == graph.main() {
                    self.misfits.push(misfit);
                }
                return;
            }
        };
        let mut retyped = false;
        for (value, facts) in graph.node(node).outputs.clone().into_iter().zip(facts) {
            if let Some(ty) = self.narrowed(graph, node, graph.ty(value), &facts.ty) {
                graph.set_type(value, ty);
                self.changed.insert(value);
                retyped = true;
            }
            if let Some(elements) = facts.elements
                && !elements.iter().any(|dim| self.is_fresh(dim))
                && graph.shape_value(value) != Some(&elements[..])
            {
                graph.set_shape_value(value, Some(elements));
                self.changed.insert(value);
            }
        }
        if retyped {
            self.any = true;
            self.add_guards(graph, guards);
        }
    }

    /// What the type rule says, and what it has to assume.
    fn facts(&mut self, graph: &Graph, node: NodeId) -> Result<(Vec<Facts>, Vec<Guard>), InferError> {
        let node = graph.node(node);
        let mut guards = Vec::new();
        let (region, n_outputs) = (node.region, node.outputs.len());
        let symbols = &mut self.symbols;
        let (inputs, provenance) = (&node.inputs, &node.provenance);
        let mut cx =
            Context::new(graph, symbols, &mut guards, region, &node.op, inputs, n_outputs, provenance);
        let facts = infer(&mut cx)?;
        Ok((facts, guards))
    }

    /// The old type with those extents of the new one that say more; `None` if none does.
    fn narrowed(&mut self, graph: &Graph, node: NodeId, old: &Type, new: &Type) -> Option<Type> {
        let (Type::Tensor(old), Type::Tensor(new)) = (old, new) else { return None };
        let (Some(old_dims), Some(new_dims)) = (old.shape.dims(), new.shape.dims()) else { return None };
        if old.dtype != new.dtype || old_dims.len() != new_dims.len() {
            return None;
        }
        let mut dims = old_dims.to_vec();
        for (dim, new) in dims.iter_mut().zip(new_dims) {
            if *dim == *new || self.is_fresh(new) || !is_computed(dim, &self.symbols) {
                continue;
            }
            match dim.as_symbol() {
                Some(symbol) if new.symbols().contains(&symbol) => continue,
                // The node defines the symbol, so its users may all take what it is. One that an operand
                // brings is equal under guard only, and is the operand's node's to say.
                Some(symbol) if !is_of_operands(graph, node, symbol) => {
                    _ = self.known.insert(symbol, new.clone())
                }
                Some(_) | None if is_computed(new, &self.symbols) => continue,
                Some(_) | None => {}
            }
            *dim = new.clone();
        }
        (dims != old_dims).then(|| Type::Tensor(TensorType::new(old.dtype, dims)))
    }

    fn is_fresh(&self, dim: &Dim) -> bool {
        dim.symbols().iter().any(|symbol| symbol.as_u32() as usize >= self.first_fresh)
    }

    fn add_guards(&self, graph: &mut Graph, guards: Vec<Guard>) {
        for guard in guards {
            let fresh = self.is_fresh(&guard.left) || self.is_fresh(&guard.right);
            if !fresh {
                guard.add_to(&mut graph.guards);
            }
        }
    }

    fn substitute(&mut self, graph: &mut Graph, node: NodeId) {
        if self.known.is_empty() {
            return;
        }
        graph.visit_op(node, &mut Substitution(&self.known));
        for value in graph.node(node).outputs.clone() {
            self.update(graph, value);
        }
    }

    fn update(&mut self, graph: &mut Graph, value: ValueId) {
        let substitution = Substitution(&self.known);
        if let Some(ty) = substitution.ty(graph.ty(value)) {
            graph.set_type(value, ty);
            self.changed.insert(value);
        }
        if let Some(elements) = graph.shape_value(value).and_then(|elements| substitution.list(elements)) {
            graph.set_shape_value(value, Some(elements.into()));
            self.changed.insert(value);
        }
    }

    /// The nodes found so far whose operands do not fit, though nothing said so before more was known.
    pub(crate) fn take_misfits(&mut self) -> Vec<InferError> {
        std::mem::take(&mut self.misfits)
    }

    /// Ends the sweep: replaces what is known in the whole graph. Tells whether any type changed.
    pub(crate) fn finish(mut self, graph: &mut Graph) -> bool {
        if self.known.is_empty() {
            return self.any;
        }
        for region in graph.live_regions() {
            self.enter(graph, region);
            for node in graph.region(region).nodes.clone() {
                self.substitute(graph, node);
            }
        }
        let mut substitution = Substitution(&self.known);
        for guard in &mut graph.guards {
            substitution.dim(&mut guard.left);
            substitution.dim(&mut guard.right);
        }
        graph.guards.retain(|guard| !guard.holds());
        Guard::merge(&mut graph.guards);
        true
    }
}

/// Whether a symbol is part of what is known about the node's operands, or of its attributes.
fn is_of_operands(graph: &Graph, node: NodeId, symbol: SymbolId) -> bool {
    let mentions = |dims: Option<&[Dim]>| {
        dims.is_some_and(|dims| dims.iter().any(|dim| dim.symbols().contains(&symbol)))
    };
    let node = graph.node(node);
    node.inputs
        .iter()
        .flatten()
        .any(|&value| mentions(graph.dims(value)) || mentions(graph.shape_value(value)))
}
