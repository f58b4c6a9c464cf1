//! Moves nodes out of the bodies of loops that compute the same in every iteration: loop-invariant code motion.
//!
//! A node is invariant where it is pure and its operands are constants, captures, or results of invariant nodes. It then runs once before
//! the loop, and the body captures its result. A loop may run no iteration, and then nothing of its body would have run. So only what cannot
//! fail moves, and no node of a body with guards, which hold what the nodes there rely on.
//!
//! ```text
//! Loop body: %p = MatMul(%capture0, %capture1)     %q = MatMul(%x, %w)
//!            %next = Add(%state, %p)               Loop body: %next = Add(%state, %capture2)
//! ```
//!
//! Branches of an `If` keep their nodes: which of them runs is not known before.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::dim::Dim;
use crate::graph::{Graph, Node};
use crate::ids::{NodeId, RegionId, ValueId};
use crate::op::{AttrVisitor, Effect, FusionClass, Op};
use crate::pass::PassError;
use crate::passes::regions::first_capture;
use crate::symbol::SymbolKind;

/// Moves what is invariant, out of inner loops first, so that it leaves the outer ones too.
pub fn loop_invariants(graph: &mut Graph) -> Result<bool, PassError> {
    let mut changed = false;
    for region in graph.live_regions().into_iter().rev() {
        let is_loop = |node: &NodeId| matches!(graph.node(*node).op, Op::Loop(_) | Op::Scan(_));
        let loops: Vec<NodeId> = graph.region(region).nodes.iter().copied().filter(is_loop).collect();
        for node in loops {
            changed |= move_out(graph, region, node);
        }
    }
    Ok(changed)
}

/// Moves nodes of a loop's body in front of the loop.
fn move_out(graph: &mut Graph, region: RegionId, node: NodeId) -> bool {
    let [body] = graph.node(node).op.regions()[..] else { return false };
    if graph.guards.iter().any(|guard| guard.region == body) {
        return false;
    }
    let captures = captures(graph, node, body);
    let moved = moving(graph, body, &captures);
    if moved.is_empty() {
        return false;
    }
    let nodes = graph.take_nodes(region);
    let (before, behind) = nodes.split_at(nodes.iter().position(|&other| other == node).unwrap_or(0));
    before.iter().for_each(|&other| graph.push_node(region, other));
    let outside = copy(graph, region, &moved, captures);
    behind.iter().for_each(|&other| graph.push_node(region, other));

    let mut replaced: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let is_moved: FxHashSet<NodeId> = moved.iter().copied().collect();
    for value in used_inside(graph, body, &is_moved) {
        if let Some(&from) = outside.get(&value) {
            replaced.extend(graph.add_capture(node, from).into_iter().map(|param| (value, param)));
        }
    }
    graph.replace_uses_in(body, &replaced);
    graph.retain_nodes(body, |inner| !is_moved.contains(&inner));
    true
}

/// What the captured parameters of a body stand for outside, where both are of one type.
fn captures(graph: &Graph, node: NodeId, body: RegionId) -> FxHashMap<ValueId, ValueId> {
    let Some((first_input, first_param)) = first_capture(&graph.node(node).op) else {
        return FxHashMap::default();
    };
    let params = graph.region(body).params.iter().skip(first_param);
    let operands = graph.node(node).inputs.iter().skip(first_input);
    let pairs = params.zip(operands).filter_map(|(&param, operand)| Some((param, (*operand)?)));
    pairs.filter(|&(param, operand)| graph.ty(param) == graph.ty(operand)).collect()
}

/// The nodes of a body to move, in order: those that are worth it, and invariant ones that they need.
fn moving(graph: &Graph, body: RegionId, captures: &FxHashMap<ValueId, ValueId>) -> Vec<NodeId> {
    let mut known: FxHashSet<ValueId> = captures.keys().copied().collect();
    let mut invariant = Vec::new();
    for &id in &graph.region(body).nodes {
        let node = graph.node(id);
        let is_constant = matches!(node.op, Op::Constant(_));
        if is_constant || can_move(graph, node) && node.inputs.iter().flatten().all(|v| known.contains(v)) {
            known.extend(&node.outputs);
            invariant.push(id);
        }
    }
    let mut needed: FxHashSet<ValueId> = FxHashSet::default();
    let mut moving: Vec<NodeId> = Vec::new();
    for &id in invariant.iter().rev() {
        let node = graph.node(id);
        if is_worth_it(graph, node) || node.outputs.iter().any(|value| needed.contains(value)) {
            needed.extend(node.inputs.iter().flatten());
            moving.push(id);
        }
    }
    moving.reverse();
    moving
}

/// Whether a node may run though the loop might not, and where nothing of the body is known.
fn can_move(graph: &Graph, node: &Node) -> bool {
    let is_total = match node.op.fusion_class() {
        FusionClass::Elementwise
        | FusionClass::View
        | FusionClass::Movement
        | FusionClass::Reduction
        | FusionClass::Window
        | FusionClass::ComplexOut
        | FusionClass::Normalisation
        | FusionClass::Composite => true,
        // Places that are read from data may be outside of a tensor.
        FusionClass::Injective | FusionClass::Parts | FusionClass::Opaque => false,
    };
    is_total
        && node.op.effect() == Effect::Pure
        && node.op.regions().is_empty()
        && Symbols::of(graph, node).iter().all(|dim| is_of_inputs(graph, dim))
}

/// Whether an extent is the same everywhere: a function of the graph's inputs.
fn is_of_inputs(graph: &Graph, dim: &Dim) -> bool {
    dim.symbols().iter().all(|&symbol| graph.symbols[symbol].kind == SymbolKind::Input)
}

/// Collects extents.
#[derive(Default)]
struct Symbols(Vec<Dim>);

impl AttrVisitor for Symbols {
    fn dim(&mut self, dim: &mut Dim) {
        self.0.push(dim.clone());
    }
}

impl Symbols {
    /// The extents in a node's attributes and in the types of its results.
    fn of(graph: &Graph, node: &Node) -> Vec<Dim> {
        let mut symbols = Symbols::default();
        node.op.clone().visit(&mut symbols);
        let results = node.outputs.iter().filter_map(|&value| graph.dims(value));
        symbols.0.extend(results.flatten().cloned());
        symbols.0
    }
}

/// Whether a node does more than its result costs to read in every iteration.
fn is_worth_it(graph: &Graph, node: &Node) -> bool {
    match node.op.fusion_class() {
        FusionClass::Reduction
        | FusionClass::Window
        | FusionClass::ComplexOut
        | FusionClass::Normalisation
        | FusionClass::Composite => true,
        FusionClass::Elementwise | FusionClass::Movement => {
            let elements = |value: ValueId| graph.dims(value).map(Dim::product);
            let operands: Vec<Dim> = node.inputs.iter().flatten().filter_map(|&v| elements(v)).collect();
            let results = node.outputs.iter().map(|&value| elements(value));
            let is_no_larger = |n: Dim| operands.iter().any(|operand| n.is_at_most(operand));
            results.into_iter().all(|n| n.is_some_and(is_no_larger))
        }
        FusionClass::View | FusionClass::Injective | FusionClass::Parts | FusionClass::Opaque => false,
    }
}

/// Copies nodes to the end of a region; what their values, and those that were `known`, are there.
fn copy(
    graph: &mut Graph,
    region: RegionId,
    nodes: &[NodeId],
    mut known: FxHashMap<ValueId, ValueId>,
) -> FxHashMap<ValueId, ValueId> {
    for &id in nodes {
        let Node { op, inputs, outputs, provenance, .. } = graph.node(id).clone();
        let inputs =
            inputs.into_iter().map(|value| value.and_then(|value| known.get(&value).copied())).collect();
        let types = outputs.iter().map(|&value| graph.ty(value).clone()).collect();
        let copy = graph.append_typed(region, op, inputs, types, provenance);
        for (from, to) in outputs.into_iter().zip(graph.node(copy).outputs.clone()) {
            let elements = graph.shape_value(from).map(Into::into);
            graph.set_shape_value(to, elements);
            known.insert(from, to);
        }
    }
    known
}

/// Values of moved nodes that the body still uses, in the order of their nodes.
fn used_inside(graph: &Graph, body: RegionId, moved: &FxHashSet<NodeId>) -> Vec<ValueId> {
    let data = graph.region(body);
    let staying = data.nodes.iter().filter(|node| !moved.contains(node));
    let operands = staying.flat_map(|&node| graph.node(node).inputs.iter().flatten());
    let used: FxHashSet<ValueId> = operands.chain(&data.results).copied().collect();
    let made =
        data.nodes.iter().filter(|node| moved.contains(node)).flat_map(|&node| &graph.node(node).outputs);
    made.copied().filter(|value| used.contains(value)).collect()
}
