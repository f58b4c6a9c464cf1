//! The graph: arenas of nodes, values and regions, edited through a few checked methods.
//!
//! A region's nodes are kept in topological order. Regions are closed: a node only uses values of its own
//! region (results of earlier nodes or parameters); what a body needs from outside is an operand of its owner
//! and a parameter of the region. So every analysis and pass treats one region at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use cranelift_entity::{PrimaryMap, SecondaryMap};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::dim::Dim;
use crate::guard::Guard;
use crate::ids::{NodeId, RegionId, SymbolId, ValueId};
use crate::op::{AttrVisitor, Op};
use crate::order::topological_order;
use crate::symbol::SymbolTable;
use crate::tensor::Tensor;
use crate::types::{TensorType, Type};

/// Names of the nodes of the user's model that a node stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance(Arc<[Arc<str>]>);

impl Provenance {
    /// The provenance of a node imported under one name.
    pub fn named(name: &str) -> Provenance {
        Provenance(Arc::from([Arc::from(name)]))
    }

    /// The union of several provenances, in order, without repetition.
    pub fn merge<'a>(parts: impl IntoIterator<Item = &'a Provenance>) -> Provenance {
        let mut parts = parts.into_iter().peekable();
        let Some(first) = parts.next() else { return Provenance::default() };
        if parts.peek().is_none() {
            return first.clone();
        }
        let mut names: Vec<Arc<str>> = first.0.to_vec();
        let mut known: FxHashSet<Arc<str>> = names.iter().cloned().collect();
        for name in parts.flat_map(|part| part.0.iter()) {
            if known.insert(Arc::clone(name)) {
                names.push(Arc::clone(name));
            }
        }
        Provenance(names.into())
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}

/// An operator application.
#[derive(Clone, Debug)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// Operands; `None` for an absent optional one.
    pub inputs: Vec<Option<ValueId>>,
    /// Results.
    pub outputs: Vec<ValueId>,
    /// The region it belongs to.
    pub region: RegionId,
    /// Where it comes from.
    pub provenance: Provenance,
}

impl Node {
    /// The operand at a position, if present.
    pub fn input(&self, position: usize) -> Option<ValueId> {
        self.inputs.get(position).copied().flatten()
    }

    /// The first result; every node that patterns look at has one.
    pub fn output(&self) -> Option<ValueId> {
        self.outputs.first().copied()
    }
}

/// What produces a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDef {
    /// The result of a node at a position.
    Output(NodeId, usize),
    /// The parameter of a region at a position.
    Param(RegionId, usize),
}

/// A value.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its type.
    pub ty: Type,
    /// What produces it.
    pub def: ValueDef,
    /// Its name in the user's model, if it has one. Names of the main region's parameters and results are
    /// those of the model's inputs and outputs.
    pub name: Option<Arc<str>>,
}

/// A sub-graph.
#[derive(Clone, Debug, Default)]
pub struct Region {
    /// Parameters: the inputs of the main region, or what the owner passes.
    pub params: Vec<ValueId>,
    /// Live nodes, in topological order.
    pub nodes: Vec<NodeId>,
    /// Results.
    pub results: Vec<ValueId>,
    /// Names of the results, where they have names of their own (the model's outputs).
    pub result_names: Vec<String>,
    /// The node that holds the region; none for the main one.
    pub owner: Option<NodeId>,
}

/// One use of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Operand of a node at a position.
    Input(NodeId, usize),
    /// Result of a region at a position.
    Result(RegionId, usize),
}

/// A program: a main region and the regions its nodes hold.
#[derive(Clone, Debug)]
pub struct Graph {
    /// Name of the model.
    pub name: String,
    /// Free-form facts kept for the exporter and the artifact's manifest (opset, producer, ...).
    pub metadata: BTreeMap<String, String>,
    /// The unknown extents.
    pub symbols: SymbolTable,
    /// What inference assumed about them; checked at run time.
    pub guards: Vec<Guard>,
    nodes: PrimaryMap<NodeId, Node>,
    values: PrimaryMap<ValueId, Value>,
    regions: PrimaryMap<RegionId, Region>,
    main: RegionId,
    /// Elements of small integer tensors, as far as inference follows them.
    shape_values: SecondaryMap<ValueId, Option<Arc<[Dim]>>>,
}

/// Nodes of a region that depend on one another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", cycles.iter().map(|cycle| cycle_text(cycle.iter().map(|(_, name)| name.as_str()))).collect::<Vec<_>>().join("; "))]
pub struct CycleError {
    /// Each cycle's nodes, with the names that errors call them by.
    pub cycles: Vec<Vec<(NodeId, String)>>,
}

/// What errors say of a cycle: how many nodes it has, and the names of the first of them.
pub fn cycle_text<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    /// Names in a message.
    const MOST_NAMES: usize = 8;
    let n = names.len();
    let listed: Vec<String> = names.take(MOST_NAMES).map(|name| format!("`{name}`")).collect();
    let more = if n > MOST_NAMES { " and others" } else { "" };
    match n {
        1 => format!("a node depends on itself: {}", listed.join(", ")),
        _ => format!("{n} nodes form a cycle: {}{more}", listed.join(", ")),
    }
}

impl Default for Graph {
    fn default() -> Graph {
        Graph::new("main")
    }
}

impl Graph {
    /// An empty graph.
    pub fn new(name: &str) -> Graph {
        let mut regions = PrimaryMap::new();
        let main = regions.push(Region::default());
        Graph {
            name: name.to_owned(),
            metadata: BTreeMap::new(),
            symbols: SymbolTable::default(),
            guards: Vec::new(),
            nodes: PrimaryMap::new(),
            values: PrimaryMap::new(),
            regions,
            main,
            shape_values: SecondaryMap::new(),
        }
    }

    /// The main region.
    pub fn main(&self) -> RegionId {
        self.main
    }

    /// The graph's inputs.
    pub fn inputs(&self) -> &[ValueId] {
        &self.regions[self.main].params
    }

    /// The graph's outputs.
    pub fn outputs(&self) -> &[ValueId] {
        &self.regions[self.main].results
    }

    /// A node.
    pub fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node]
    }

    /// A value.
    pub fn value(&self, value: ValueId) -> &Value {
        &self.values[value]
    }

    /// A region.
    pub fn region(&self, region: RegionId) -> &Region {
        &self.regions[region]
    }

    /// Whether the id is one of this graph's values.
    pub fn is_value(&self, value: ValueId) -> bool {
        self.values.is_valid(value)
    }

    /// Whether the id is one of this graph's regions.
    pub fn is_region(&self, region: RegionId) -> bool {
        self.regions.is_valid(region)
    }

    /// Every live region: the main one and those held by live nodes, outer before inner.
    pub fn live_regions(&self) -> Vec<RegionId> {
        let mut regions = vec![self.main];
        let mut known = FxHashSet::from_iter([self.main]);
        let mut next = 0;
        while let Some(&region) = regions.get(next) {
            next += 1;
            for &node in &self.regions[region].nodes {
                for inner in self.nodes[node].op.regions() {
                    if self.regions.is_valid(inner) && known.insert(inner) {
                        regions.push(inner);
                    }
                }
            }
        }
        regions
    }

    /// Every live node, region by region, in topological order within each.
    pub fn live_nodes(&self) -> Vec<NodeId> {
        self.live_regions()
            .into_iter()
            .flat_map(|region| self.regions[region].nodes.iter().copied())
            .collect()
    }

    /// The type of a value.
    pub fn ty(&self, value: ValueId) -> &Type {
        &self.values[value].ty
    }

    /// The tensor type of a value, if it is a tensor.
    pub fn tensor_type(&self, value: ValueId) -> Option<&TensorType> {
        self.values[value].ty.as_tensor()
    }

    /// The extents of a value, if it is a tensor of known rank.
    pub fn dims(&self, value: ValueId) -> Option<&[Dim]> {
        self.tensor_type(value)?.shape.dims()
    }

    /// The node that produces a value, if one does.
    pub fn producer(&self, value: ValueId) -> Option<NodeId> {
        match self.values[value].def {
            ValueDef::Output(node, _) => Some(node),
            ValueDef::Param(..) => None,
        }
    }

    /// The region that a value belongs to.
    pub fn region_of(&self, value: ValueId) -> RegionId {
        match self.values[value].def {
            ValueDef::Output(node, _) => self.nodes[node].region,
            ValueDef::Param(region, _) => region,
        }
    }

    /// The constant a value is, if it is one.
    pub fn constant(&self, value: ValueId) -> Option<&Tensor> {
        match &self.nodes[self.producer(value)?].op {
            Op::Constant(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The elements of a small integer tensor, where inference followed them.
    pub fn shape_value(&self, value: ValueId) -> Option<&[Dim]> {
        self.shape_values[value].as_deref()
    }

    /// Records the elements of a small integer tensor.
    pub fn set_shape_value(&mut self, value: ValueId, elements: Option<Arc<[Dim]>>) {
        self.shape_values[value] = elements;
    }

    /// Adds an input to the graph.
    pub fn add_input(&mut self, name: &str, ty: Type) -> ValueId {
        self.add_param(self.main, Some(name), ty)
    }

    /// Adds an output to the graph.
    pub fn add_output(&mut self, name: &str, value: ValueId) {
        let region = &mut self.regions[self.main];
        region.results.push(value);
        region.result_names.push(name.to_owned());
    }

    /// Takes inputs, which nothing uses any more, from the graph.
    pub(crate) fn drop_inputs(&mut self, dropped: &FxHashSet<ValueId>) {
        let main = self.main;
        self.regions[main].params.retain(|value| !dropped.contains(value));
        for (position, &value) in self.regions[main].params.iter().enumerate() {
            self.values[value].def = ValueDef::Param(main, position);
        }
    }

    /// Takes outputs from the graph: those for which `drops` answers true, of a value and the node that makes it.
    pub(crate) fn drop_outputs(&mut self, mut drops: impl FnMut(ValueId, Option<NodeId>) -> bool) {
        let results = std::mem::take(&mut self.regions[self.main].results);
        let names = std::mem::take(&mut self.regions[self.main].result_names);
        for (position, value) in results.into_iter().enumerate() {
            if !drops(value, self.producer(value)) {
                self.add_output(names.get(position).map_or("", String::as_str), value);
            }
        }
    }

    /// Adds a region that a node to come will hold.
    pub fn add_region(&mut self) -> RegionId {
        self.regions.push(Region::default())
    }

    /// Adds a parameter to a region.
    pub fn add_param(&mut self, region: RegionId, name: Option<&str>, ty: Type) -> ValueId {
        let def = ValueDef::Param(region, self.regions[region].params.len());
        let value = self.values.push(Value { ty, def, name: name.map(Arc::from) });
        self.regions[region].params.push(value);
        value
    }

    /// Sets the results of a region.
    pub fn set_results(&mut self, region: RegionId, results: Vec<ValueId>) {
        self.regions[region].results = results;
    }

    /// Names the results of a region.
    pub fn set_result_names(&mut self, region: RegionId, names: Vec<String>) {
        self.regions[region].result_names = names;
    }

    /// Appends a node whose result types are already known. Most callers want [`crate::infer::append`].
    pub fn append_typed(
        &mut self,
        region: RegionId,
        op: Op,
        inputs: Vec<Option<ValueId>>,
        output_types: Vec<Type>,
        provenance: Provenance,
    ) -> NodeId {
        let node = self.nodes.push(Node { op, inputs, outputs: Vec::new(), region, provenance });
        for (position, ty) in output_types.into_iter().enumerate() {
            let value = self.values.push(Value { ty, def: ValueDef::Output(node, position), name: None });
            self.nodes[node].outputs.push(value);
        }
        for inner in self.nodes[node].op.regions() {
            self.regions[inner].owner = Some(node);
        }
        self.regions[region].nodes.push(node);
        node
    }

    /// Appends a constant.
    pub fn append_constant(&mut self, region: RegionId, tensor: Tensor, provenance: Provenance) -> ValueId {
        let ty = Type::Tensor(tensor.tensor_type());
        let small = tensor.len() <= 256;
        let elements = if small { tensor.to_i64s() } else { None };
        let node = self.append_typed(region, Op::Constant(tensor), Vec::new(), vec![ty], provenance);
        let value = self.nodes[node].outputs[0];
        self.shape_values[value] = elements.map(|elements| elements.into_iter().map(Dim::new).collect());
        value
    }

    /// Names a value.
    pub fn set_name(&mut self, value: ValueId, name: &str) {
        self.values[value].name = Some(Arc::from(name));
    }

    /// Changes a value's type.
    pub fn set_type(&mut self, value: ValueId, ty: Type) {
        self.values[value].ty = ty;
    }

    /// Changes a node's operator, keeping operands and results. The owner link of regions follows.
    pub fn set_op(&mut self, node: NodeId, op: Op) {
        for inner in op.regions() {
            self.regions[inner].owner = Some(node);
        }
        self.nodes[node].op = op;
    }

    /// Shows the visitor every symbolic extent and region among the attributes of a node, to change in place.
    pub(crate) fn visit_op(&mut self, node: NodeId, visitor: &mut dyn AttrVisitor) {
        self.nodes[node].op.visit(visitor);
    }

    /// Changes an operand of a node. The caller restores topological order if the operand is defined later.
    pub fn set_input(&mut self, node: NodeId, position: usize, value: Option<ValueId>) {
        self.nodes[node].inputs[position] = value;
    }

    /// Changes where a node comes from.
    pub fn set_provenance(&mut self, node: NodeId, provenance: Provenance) {
        self.nodes[node].provenance = provenance;
    }

    /// Hands a value on to the regions of a node, as its last operand and their last parameter; the parameters.
    pub(crate) fn add_capture(&mut self, node: NodeId, value: ValueId) -> Vec<ValueId> {
        self.nodes[node].inputs.push(Some(value));
        let regions = self.nodes[node].op.regions();
        regions.into_iter().map(|region| self.add_param(region, None, self.ty(value).clone())).collect()
    }

    /// Drops an operand and the parameters that go with it from a node with regions: operand `input`, and
    /// parameter `param` of every region.
    pub(crate) fn remove_capture(&mut self, node: NodeId, input: usize, param: usize) {
        self.nodes[node].inputs.remove(input);
        for region in self.nodes[node].op.regions() {
            self.regions[region].params.remove(param);
            for (position, &value) in self.regions[region].params.iter().enumerate() {
                self.values[value].def = ValueDef::Param(region, position);
            }
        }
    }

    /// Replaces every use of values: operands of nodes and results of regions.
    pub fn replace_uses(&mut self, replacements: &FxHashMap<ValueId, ValueId>) {
        for region in self.live_regions() {
            self.replace_uses_in(region, replacements);
        }
    }

    /// Replaces every use of values within one region. Chains of replacements are followed.
    pub fn replace_uses_in(&mut self, region: RegionId, replacements: &FxHashMap<ValueId, ValueId>) {
        let target = |value: ValueId| {
            let mut value = value;
            // A chain cannot be longer than the map; a circle would be a bug of the caller's.
            for _ in 0..replacements.len() {
                match replacements.get(&value) {
                    Some(&next) => value = next,
                    None => break,
                }
            }
            value
        };
        let region = &mut self.regions[region];
        region.results.iter_mut().for_each(|value| *value = target(*value));
        for &node in &region.nodes {
            self.nodes[node].inputs.iter_mut().flatten().for_each(|value| *value = target(*value));
        }
    }

    /// Adds a guard, unless one is there that demands the same.
    pub fn add_guard(&mut self, guard: Guard) {
        guard.add_to(&mut self.guards);
    }

    /// Writes extents in place of symbols wherever these occur: in types, attributes, followed elements and guards.
    pub fn replace_symbols(&mut self, replacements: &FxHashMap<SymbolId, Dim>) {
        let replace = |dim: &Dim| match dim.symbols().iter().any(|symbol| replacements.contains_key(symbol)) {
            true => dim.substitute(&|symbol| replacements.get(&symbol).cloned()),
            false => dim.clone(),
        };
        for node in self.live_nodes() {
            if !matches!(self.nodes[node].op, Op::Constant(_)) {
                self.nodes[node].op.map_dims(&mut |dim| replace(dim));
            }
        }
        for (value, data) in self.values.iter_mut() {
            data.ty.map_dims(&mut |dim| replace(dim));
            if let Some(elements) = &mut self.shape_values[value] {
                *elements = elements.iter().map(replace).collect();
            }
        }
        for guard in &mut self.guards {
            (guard.left, guard.right) = (replace(&guard.left), replace(&guard.right));
        }
        Guard::merge(&mut self.guards);
    }

    /// Takes all nodes out of a region, to be pushed back one by one.
    pub(crate) fn take_nodes(&mut self, region: RegionId) -> Vec<NodeId> {
        std::mem::take(&mut self.regions[region].nodes)
    }

    /// Puts a node at the end of its region.
    pub(crate) fn push_node(&mut self, region: RegionId, node: NodeId) {
        self.regions[region].nodes.push(node);
    }

    /// Keeps only the nodes of a region for which `keep` answers true.
    pub fn retain_nodes(&mut self, region: RegionId, mut keep: impl FnMut(NodeId) -> bool) {
        self.regions[region].nodes.retain(|&node| keep(node));
    }

    /// Drops the nodes of a region that define a replaced value (and then only such).
    pub(crate) fn retain_nodes_defining_none_of(
        &mut self,
        region: RegionId,
        replaced: &FxHashMap<ValueId, ValueId>,
    ) {
        let nodes = &self.nodes;
        self.regions[region]
            .nodes
            .retain(|&node| !nodes[node].outputs.iter().any(|value| replaced.contains_key(value)));
    }

    /// Every use of every value, by value.
    pub fn uses(&self) -> SecondaryMap<ValueId, Vec<Use>> {
        let mut uses: SecondaryMap<ValueId, Vec<Use>> = SecondaryMap::with_capacity(self.values.len());
        for region in self.live_regions() {
            for &node in &self.regions[region].nodes {
                for (position, value) in self.nodes[node].inputs.iter().enumerate() {
                    if let Some(value) = value {
                        uses[*value].push(Use::Input(node, position));
                    }
                }
            }
            for (position, &value) in self.regions[region].results.iter().enumerate() {
                uses[value].push(Use::Result(region, position));
            }
        }
        uses
    }

    /// Puts a region's nodes into topological order, keeping the present order where it is one.
    ///
    /// # Errors
    /// Nodes that depend on one another: then the region stays as it is.
    pub fn sort(&mut self, region: RegionId) -> Result<(), CycleError> {
        let nodes = &self.regions[region].nodes;
        let position: FxHashMap<NodeId, usize> =
            nodes.iter().enumerate().map(|(index, &node)| (node, index)).collect();
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        for (index, &node) in nodes.iter().enumerate() {
            for value in self.nodes[node].inputs.iter().flatten() {
                if let Some(&producer) = self.producer(*value).and_then(|producer| position.get(&producer)) {
                    users[producer].push(index);
                }
            }
        }
        let order = topological_order(&users, |index| index);
        if !order.cycles.is_empty() {
            let named = |&index: &usize| (nodes[index], self.node_name(nodes[index]));
            return Err(CycleError {
                cycles: order.cycles.iter().map(|cycle| cycle.iter().map(named).collect()).collect(),
            });
        }
        self.regions[region].nodes = order.sorted.into_iter().map(|index| nodes[index]).collect();
        Ok(())
    }

    /// What errors call a node: the names of the model's nodes that it comes from, or else its operator and id.
    pub fn node_name(&self, node: NodeId) -> String {
        let names = self.nodes[node].provenance.names().collect::<Vec<_>>().join("+");
        if names.is_empty() { format!("{} {node}", self.nodes[node].op.name()) } else { names }
    }

    /// For every computed symbol, the value and axis that define it: the first node result, in topological
    /// order, with an extent that is exactly the symbol.
    pub fn symbol_definitions(&self) -> BTreeMap<SymbolId, (ValueId, usize)> {
        let mut definitions = BTreeMap::new();
        for node in self.live_nodes() {
            for &value in &self.nodes[node].outputs {
                for (axis, dim) in self.dims(value).unwrap_or_default().iter().enumerate() {
                    if let Some(symbol) = dim.as_symbol()
                        && self.symbols[symbol].kind == crate::symbol::SymbolKind::Computed
                    {
                        definitions.entry(symbol).or_insert((value, axis));
                    }
                }
            }
        }
        definitions
    }
}
