//! Groups nodes into kernels.
//!
//! Nodes are visited in topological order and join the group of a producer where that saves a trip through
//! memory: elementwise operators behind convolutions, products, reductions and norms (epilogues, residual
//! additions included), chains of elementwise and injective operators, and cheap elementwise operators in front
//! of reductions and norms (prologues). Heavy work is never duplicated: whatever a group computes and someone else
//! needs is an output of the group, and may be one only if it has the extents of the group's loop nest. Groups never form
//! a cycle, nor does a group compute what gives its own extents: a node comes after those that define the extents it has. A group ends where going on saves less than it costs ([`MAX_OPERATIONS`]). A reshape is a group of its own: a view, for which no code is needed. Data-dependent operators, control flow and constants stay alone (constants are in no group).

mod condensation;

use std::collections::BTreeSet;

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_dtype::DType;

use crate::dim::Dim;
use crate::graph::{Graph, Use};
use crate::ids::{NodeId, RegionId, SymbolId, ValueId};
use crate::op::{FusionClass, Op};
use crate::order::topological_order;

use self::condensation::Condensation;
pub use self::condensation::MAX_FOLLOWED;

/// A kernel to be: nodes that are computed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The nodes, in topological order.
    pub nodes: Vec<NodeId>,
    /// Values read from outside, in order of first use; constants included.
    pub inputs: Vec<ValueId>,
    /// Values someone outside needs, in order of definition.
    pub outputs: Vec<ValueId>,
    /// The node that decides the schedule: the heavy one, or the last.
    pub anchor: NodeId,
    /// Class of the anchor.
    pub class: FusionClass,
}

/// A partition of a region's nodes, constants aside, into groups in an order they can run in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FusionPlan {
    /// The groups.
    pub groups: Vec<Group>,
}

/// Vector operations for each element beyond which a group takes no more nodes.
///
/// A cut costs one round trip of a value: 8 bytes an element of F32, which from memory at 6 bytes a cycle take as long as some 20
/// vector operations at two a cycle with 8 lanes, and a fraction of that from a cache. Two groups of this size are slower than one by at
/// most a tenth, and by about 1 % where the value stays in a cache. In return the code of a group stays within the first-level
/// instruction cache when its loop is unrolled, and what scheduling and code generation take for one function is bounded, so that
/// compile time is linear in nodes.
pub const MAX_OPERATIONS: u32 = 256;

/// About how many operations an elementary function is expanded to.
const ELEMENTARY: u32 = 24;

/// Partitions a region. Regions held by its nodes have plans of their own.
pub fn fuse(graph: &Graph, region: RegionId) -> FusionPlan {
    fuse_counting(graph, region).0
}

/// As [`fuse`], with the number of groups that searches for cycles have looked at: what could take most of the time.
pub fn fuse_counting(graph: &Graph, region: RegionId) -> (FusionPlan, usize) {
    let mut builder = Builder {
        graph,
        uses: graph.uses(),
        places: SecondaryMap::new(),
        group_of: SecondaryMap::new(),
        groups: Vec::new(),
        condensation: Condensation::default(),
        extents: ExtentEdges::of(graph, region),
    };
    for (place, &node) in graph.region(region).nodes.iter().enumerate() {
        builder.places[node] = place;
        if !matches!(graph.node(node).op, Op::Constant(_)) {
            builder.visit(node);
        }
    }
    let followed = builder.condensation.followed();
    (builder.finish(), followed)
}

/// A group under construction.
struct Draft {
    nodes: Vec<NodeId>,
    anchor: NodeId,
    class: FusionClass,
    /// Of all nodes, for each element of the results.
    operations: u32,
}

struct Builder<'a> {
    graph: &'a Graph,
    uses: SecondaryMap<ValueId, Vec<Use>>,
    /// Where each node is in its region.
    places: SecondaryMap<NodeId, usize>,
    group_of: SecondaryMap<NodeId, Option<usize>>,
    /// `None` for groups that were merged into others.
    groups: Vec<Option<Draft>>,
    /// What these read of each other; all of each node that was visited.
    condensation: Condensation,
    extents: ExtentEdges,
}

/// Dependences that no operand shows: a node whose attributes or results have an extent that another node's data define comes
/// after that node. Only where no operand has the extent, since what computes such an operand comes after it already.
#[derive(Default)]
struct ExtentEdges {
    /// The nodes that define extents of a node.
    definers: FxHashMap<NodeId, Vec<NodeId>>,
    /// The nodes whose data define extents.
    defining: FxHashSet<NodeId>,
}

impl ExtentEdges {
    fn of(graph: &Graph, region: RegionId) -> ExtentEdges {
        let mut edges = ExtentEdges::default();
        let definitions = graph.symbol_definitions();
        if definitions.is_empty() {
            return edges;
        }
        edges.defining = definitions.values().filter_map(|&(value, _)| graph.producer(value)).collect();
        for &node in &graph.region(region).nodes {
            let mut symbols = BTreeSet::new();
            mentioned(graph, node, &mut symbols);
            for value in graph.node(node).inputs.iter().flatten() {
                for symbol in graph.dims(*value).unwrap_or_default().iter().flat_map(Dim::symbols) {
                    symbols.remove(&symbol);
                }
            }
            let definers: BTreeSet<NodeId> = symbols
                .iter()
                .filter_map(|symbol| graph.producer(definitions.get(symbol)?.0))
                .filter(|&definer| definer != node && graph.node(definer).region == region)
                .collect();
            if !definers.is_empty() {
                edges.definers.insert(node, definers.into_iter().collect());
            }
        }
        edges
    }

    fn definers(&self, node: NodeId) -> &[NodeId] {
        self.definers.get(&node).map_or(&[], Vec::as_slice)
    }
}

/// The symbols in a node's attributes and the extents of its results, and those of all that it holds.
fn mentioned(graph: &Graph, node: NodeId, symbols: &mut BTreeSet<SymbolId>) {
    let data = graph.node(node);
    if !matches!(data.op, Op::Constant(_)) {
        data.op.clone().map_dims(&mut |dim| {
            symbols.extend(dim.symbols());
            dim.clone()
        });
    }
    let results = data.outputs.iter().filter_map(|&value| graph.dims(value)).flatten();
    symbols.extend(results.flat_map(Dim::symbols));
    for region in data.op.regions() {
        graph.region(region).nodes.iter().for_each(|&inner| mentioned(graph, inner, symbols));
    }
}

/// Operations for each element of a node's results.
fn operations(op: &Op) -> u32 {
    if op.is_cheap() { 1 } else { ELEMENTARY }
}

/// Whether an operator is pure index arithmetic and never reads an operand element more than once.
fn moves_only(op: &Op) -> bool {
    matches!(op.fusion_class(), FusionClass::View | FusionClass::Movement)
}

impl Builder<'_> {
    fn dims(&self, value: ValueId) -> Option<&[Dim]> {
        self.graph.dims(value)
    }

    fn result(&self, node: NodeId) -> Option<ValueId> {
        match self.graph.node(node).outputs.as_slice() {
            &[value] => Some(value),
            _ => None,
        }
    }

    /// The fusion class of a node: what is no tensor of numbers of known rank is never fused, whatever the operator.
    fn class(&self, node: NodeId) -> FusionClass {
        let data = self.graph.node(node);
        let is_plain = |&value: &ValueId| {
            let tensor = self.graph.tensor_type(value);
            tensor.is_some_and(|tensor| tensor.dtype != DType::String && tensor.shape.rank().is_some())
        };
        if !data.inputs.iter().flatten().chain(&data.outputs).all(is_plain) {
            return FusionClass::Opaque;
        }
        data.op.fusion_class()
    }

    fn visit(&mut self, node: NodeId) {
        let class = self.class(node);
        let alone = self.groups.len();
        let operations = operations(&self.graph.node(node).op);
        self.groups.push(Some(Draft { nodes: vec![node], anchor: node, class, operations }));
        self.group_of[node] = Some(alone);
        self.condensation.add(self.places[node]);
        let is_fused = self.result(node).is_some_and(|value| self.dims(value).is_some());
        if is_fused && class == FusionClass::Elementwise {
            self.join_epilogue(node);
        }
        let home = self.group_of[node].unwrap_or(alone);
        self.read_by(node)
            .into_iter()
            .filter(|&from| from != home)
            .for_each(|from| self.condensation.read(home, from));
        if !is_fused {
            return;
        }
        match class {
            FusionClass::Elementwise | FusionClass::Movement => self.absorb_prologue(node, |_| true),
            // Several passes, or strided ones, over a transposed operand cost more than transposing it once.
            FusionClass::Reduction | FusionClass::Window => {
                self.absorb_prologue(node, |op| !matches!(op, Op::Transpose(_)));
            }
            FusionClass::Normalisation => {
                self.absorb_prologue(node, |op| op.is_cheap() && !matches!(op, Op::Transpose(_)));
            }
            // A view alone is only another name for its operand: it costs nothing unless it is fused.
            FusionClass::View
            | FusionClass::Injective
            | FusionClass::Parts
            | FusionClass::ComplexOut
            | FusionClass::Composite
            | FusionClass::Opaque => {}
        }
    }

    /// Producers of a node's operands that are in this region and not constants, each once, latest first.
    fn producers(&self, node: NodeId) -> Vec<NodeId> {
        let operands = self.graph.node(node).inputs.iter().flatten();
        let producers: BTreeSet<NodeId> = operands
            .filter_map(|&value| self.graph.producer(value))
            .filter(|&producer| self.group_of[producer].is_some())
            .collect();
        let mut producers: Vec<NodeId> = producers.into_iter().collect();
        producers.sort_by_key(|&producer| std::cmp::Reverse(self.group_of[producer]));
        producers
    }

    /// Lets an elementwise node join the latest producer's group whose loop nest has the node's extents.
    fn join_epilogue(&mut self, node: NodeId) {
        let Some(dims) = self.result(node).and_then(|value| self.dims(value)).map(<[Dim]>::to_vec) else {
            return;
        };
        for producer in self.producers(node) {
            let Some(group) = self.group_of[producer] else { continue };
            let Some(draft) = &self.groups[group] else { continue };
            let takes_epilogue = match draft.class {
                FusionClass::Elementwise
                | FusionClass::Movement
                | FusionClass::Injective
                | FusionClass::Reduction
                | FusionClass::Window
                | FusionClass::ComplexOut
                | FusionClass::Normalisation => true,
                FusionClass::View | FusionClass::Parts | FusionClass::Composite | FusionClass::Opaque => {
                    false
                }
            };
            let same_nest = self.result(draft.anchor).and_then(|value| self.dims(value)) == Some(&dims)
                && self.result(producer).and_then(|value| self.dims(value)) == Some(&dims);
            let fits = draft.operations + operations(&self.graph.node(node).op) <= MAX_OPERATIONS;
            if takes_epilogue && same_nest && fits && !self.would_cycle(group, node) {
                self.merge(group, node);
                return;
            }
        }
    }

    /// Pulls groups of elementwise and injective producers in front of a node into its group, where everything
    /// they compute is needed only there.
    fn absorb_prologue(&mut self, node: NodeId, accept: impl Fn(&Op) -> bool) {
        for producer in self.producers(node) {
            let (Some(group), Some(own)) = (self.group_of[producer], self.group_of[node]) else { continue };
            if group == own {
                continue;
            }
            let (Some(draft), Some(target)) = (&self.groups[group], &self.groups[own]) else { continue };
            if draft.operations + target.operations > MAX_OPERATIONS {
                continue;
            }
            let inlinable = (draft.class == FusionClass::Elementwise || draft.class.moves_elements())
                && draft.nodes.iter().all(|&inner| {
                    let op = &self.graph.node(inner).op;
                    accept(op)
                        && matches!(op.fusion_class(), FusionClass::Elementwise | FusionClass::Movement)
                });
            if !inlinable || !self.is_private(group, own) || self.is_repeated(draft, node) {
                continue;
            }
            let joined = [group, own];
            let operands = joined.iter().flat_map(|&group| self.condensation.operands(group));
            if self.condensation.depends(operands.filter(|operand| !joined.contains(operand)), &joined) {
                continue;
            }
            self.merge_groups(group, own);
        }
    }

    /// Whether every use of what a group computes is in that group or in `other`, and none gives extents: those are known before a
    /// kernel runs.
    fn is_private(&self, group: usize, other: usize) -> bool {
        let Some(draft) = &self.groups[group] else { return false };
        draft.nodes.iter().flat_map(|&node| &self.graph.node(node).outputs).all(|&value| {
            self.uses[value].iter().all(|place| match place {
                Use::Input(user, position) => {
                    let gives_extents = *position > 0 && self.extents.defining.contains(user);
                    !gives_extents && self.group_of[*user].is_some_and(|home| home == group || home == other)
                }
                Use::Result(..) => false,
            })
        })
    }

    /// Whether a node would compute a prologue's elements several times (broadcasting) and that is not cheap.
    fn is_repeated(&self, draft: &Draft, node: NodeId) -> bool {
        let elements = |node: NodeId| self.result(node).and_then(|value| self.dims(value)).map(Dim::product);
        let class = self.graph.node(node).op.fusion_class();
        match class {
            // Windows that overlap visit an operand's element again and again.
            FusionClass::Window => return true,
            // These visit each operand element once a pass.
            FusionClass::Reduction | FusionClass::Normalisation | FusionClass::Composite => return false,
            FusionClass::Elementwise
            | FusionClass::View
            | FusionClass::Movement
            | FusionClass::Injective
            | FusionClass::Parts
            | FusionClass::ComplexOut
            | FusionClass::Opaque => {}
        }
        let last = draft.nodes.last().copied();
        let broadcast = last.and_then(elements) != elements(node) && !moves_only(&self.graph.node(node).op);
        broadcast && !draft.nodes.iter().all(|&inner| self.graph.node(inner).op.is_cheap())
    }

    /// The groups of what a node reads, and of what defines its extents.
    fn read_by(&self, node: NodeId) -> BTreeSet<usize> {
        let operands = self.graph.node(node).inputs.iter().flatten();
        let producers = operands.filter_map(|&value| self.graph.producer(value));
        producers
            .chain(self.extents.definers(node).iter().copied())
            .filter_map(|from| self.group_of[from])
            .collect()
    }

    /// Whether what a node reads from other groups depends on `group`, as far as that can be told.
    fn would_cycle(&self, group: usize, node: NodeId) -> bool {
        let others = self.read_by(node).into_iter().filter(|&other| other != group);
        self.condensation.depends(others, &[group])
    }

    /// Moves a node that is alone in its group to another group.
    fn merge(&mut self, group: usize, node: NodeId) {
        let own = self.group_of[node].replace(group);
        if let Some(own) = own {
            self.groups[own] = None;
        }
        self.condensation.extend(group, self.places[node]);
        if let Some(draft) = &mut self.groups[group] {
            draft.nodes.push(node);
            draft.operations += operations(&self.graph.node(node).op);
            if draft.class == FusionClass::Elementwise || draft.class.moves_elements() {
                draft.anchor = node;
            }
        }
    }

    /// Moves all nodes of `from` in front of those of `into`.
    fn merge_groups(&mut self, from: usize, into: usize) {
        let Some(draft) = self.groups[from].take() else { return };
        for &node in &draft.nodes {
            self.group_of[node] = Some(into);
        }
        self.condensation.join(from, into);
        if let Some(target) = &mut self.groups[into] {
            target.nodes.splice(0..0, draft.nodes);
            target.operations += draft.operations;
        }
    }

    /// The groups, each after those that it reads from; earliest last node first among the ready.
    fn finish(self) -> FusionPlan {
        let live: Vec<usize> = (0..self.groups.len()).filter(|&group| self.groups[group].is_some()).collect();
        let mut at = vec![0; self.groups.len()];
        live.iter().enumerate().for_each(|(position, &group)| at[group] = position);
        let users = |&group: &usize| self.condensation.users(group).map(|user| at[user]).collect();
        let users: Vec<Vec<usize>> = live.iter().map(users).collect();
        let order = topological_order(&users, |position| self.condensation.last(live[position]));
        let drafts = order.sorted.into_iter().filter_map(|position| self.groups[live[position]].as_ref());
        let groups = drafts.map(|draft| {
            let mut nodes = draft.nodes.clone();
            nodes.sort_by_key(|&node| self.places[node]);
            self.close(nodes, draft)
        });
        FusionPlan { groups: groups.collect() }
    }

    fn close(&self, nodes: Vec<NodeId>, draft: &Draft) -> Group {
        let members: FxHashSet<NodeId> = nodes.iter().copied().collect();
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let mut read: FxHashSet<ValueId> = FxHashSet::default();
        for &node in &nodes {
            for &value in self.graph.node(node).inputs.iter().flatten() {
                let inner = self.graph.producer(value).is_some_and(|producer| members.contains(&producer));
                if !inner && read.insert(value) {
                    inputs.push(value);
                }
            }
            for &value in &self.graph.node(node).outputs {
                let leaves = self.uses[value].iter().any(|place| match place {
                    Use::Input(user, _) => !members.contains(user),
                    Use::Result(..) => true,
                });
                if leaves {
                    outputs.push(value);
                }
            }
        }
        Group { nodes, inputs, outputs, anchor: draft.anchor, class: draft.class }
    }
}
