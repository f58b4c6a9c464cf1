//! Groups nodes into kernels.
//!
//! Nodes are visited in topological order and join the group of a producer where that saves a trip through
//! memory: elementwise operators behind convolutions, products, reductions and norms (epilogues, residual
//! additions included), chains of elementwise and injective operators, and cheap elementwise operators in front
//! of reductions and norms (prologues). Heavy work is never duplicated: whatever a group computes and someone else
//! needs is an output of the group, and may be one only if it has the extents of the group's loop nest. Groups never form
//! a cycle, nor does a group compute what gives its own extents: a node comes after those that define the extents it has. A group ends where going on saves less than it costs ([`MAX_OPERATIONS`]). A reshape is a group of its own: a view, for which no code is needed. Data-dependent operators, control flow and constants stay alone (constants are in no group).

use std::cell::Cell;
use std::collections::BTreeSet;

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_dtype::DType;

use crate::dim::Dim;
use crate::graph::{Graph, Use};
use crate::ids::{NodeId, RegionId, SymbolId, ValueId};
use crate::op::{FusionClass, Op};

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

/// Uses that the search for a cycle follows before it takes for granted that there is one.
const MAX_FOLLOWED: usize = 1 << 12;

/// Partitions a region. Regions held by its nodes have plans of their own.
pub fn fuse(graph: &Graph, region: RegionId) -> FusionPlan {
    fuse_counting(graph, region).0
}

/// As [`fuse`], with the number of uses that searches for cycles have followed: what takes most of the time.
pub fn fuse_counting(graph: &Graph, region: RegionId) -> (FusionPlan, usize) {
    let mut builder = Builder {
        graph,
        uses: graph.uses(),
        region,
        group_of: SecondaryMap::new(),
        groups: Vec::new(),
        extents: ExtentEdges::of(graph, region),
        followed: Cell::new(0),
    };
    for &node in &graph.region(region).nodes {
        if !matches!(graph.node(node).op, Op::Constant(_)) {
            builder.visit(node);
        }
    }
    let followed = builder.followed.get();
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
    region: RegionId,
    group_of: SecondaryMap<NodeId, Option<usize>>,
    /// `None` for groups that were merged into others.
    groups: Vec<Option<Draft>>,
    extents: ExtentEdges,
    /// Uses that searches for cycles have followed.
    followed: Cell<usize>,
}

/// Dependences that no operand shows: a node whose attributes or results have an extent that another node's data define comes
/// after that node. Only where no operand has the extent, since what computes such an operand comes after it already.
#[derive(Default)]
struct ExtentEdges {
    /// The nodes that define extents of a node.
    definers: FxHashMap<NodeId, Vec<NodeId>>,
    /// The nodes with extents that a node defines.
    dependents: FxHashMap<NodeId, Vec<NodeId>>,
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
            for &definer in &definers {
                edges.dependents.entry(definer).or_default().push(node);
            }
            if !definers.is_empty() {
                edges.definers.insert(node, definers.into_iter().collect());
            }
        }
        edges
    }

    fn definers(&self, node: NodeId) -> &[NodeId] {
        self.definers.get(&node).map_or(&[], Vec::as_slice)
    }

    fn dependents(&self, node: NodeId) -> &[NodeId] {
        self.dependents.get(&node).map_or(&[], Vec::as_slice)
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
        if self.result(node).is_none_or(|value| self.dims(value).is_none()) {
            return;
        }
        match class {
            FusionClass::Elementwise => {
                self.join_epilogue(node);
                self.absorb_prologue(node, |_| true);
            }
            FusionClass::Movement => self.absorb_prologue(node, |_| true),
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
            if takes_epilogue && same_nest && fits && !self.would_cycle(&[group], node) {
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
            if self.would_cycle(&[group, own], node) {
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

    /// Whether some operand of `node` from outside `groups` depends on one of `groups` through another group, or that would take
    /// following more than [`MAX_FOLLOWED`] uses to find out.
    fn would_cycle(&self, groups: &[usize], node: NodeId) -> bool {
        let mut outside: FxHashSet<usize> = FxHashSet::default();
        let members =
            groups.iter().filter_map(|&group| self.groups[group].as_ref()).flat_map(|draft| &draft.nodes);
        for member in members.chain([&node]) {
            for &value in self.graph.node(*member).inputs.iter().flatten() {
                let home = self.graph.producer(value).and_then(|producer| self.group_of[producer]);
                outside.extend(home.filter(|home| !groups.contains(home)));
            }
            let homes = self.extents.definers(*member).iter().filter_map(|&definer| self.group_of[definer]);
            outside.extend(homes.filter(|home| !groups.contains(home)));
        }
        if outside.is_empty() {
            return false;
        }
        let own = self.group_of[node];
        let mut left = MAX_FOLLOWED;
        let mut seen: FxHashSet<usize> = groups.iter().copied().collect();
        let mut stack: Vec<usize> = groups.to_vec();
        while let Some(group) = stack.pop() {
            let Some(draft) = &self.groups[group] else { continue };
            for user in draft.nodes.iter().flat_map(|&member| self.users(member)) {
                let Some(fewer) = left.checked_sub(1) else { return true };
                left = fewer;
                self.followed.set(self.followed.get() + 1);
                // Nodes that were not visited yet have no group; they come after all that have.
                let Some(next) = self.group_of[user] else { continue };
                if Some(next) == own || !seen.insert(next) {
                    continue;
                }
                if outside.contains(&next) {
                    return true;
                }
                stack.push(next);
            }
        }
        false
    }

    /// The nodes that come after a node because of its results, or of extents that it defines.
    fn users(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let uses = self.graph.node(node).outputs.iter().flat_map(|&value| &self.uses[value]);
        let users = uses.filter_map(|place| match place {
            Use::Input(user, _) => Some(*user),
            Use::Result(..) => None,
        });
        users.chain(self.extents.dependents(node).iter().copied())
    }

    /// Moves a node that is alone in its group to another group.
    fn merge(&mut self, group: usize, node: NodeId) {
        let own = self.group_of[node].replace(group);
        if let Some(own) = own {
            self.groups[own] = None;
        }
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
        if let Some(target) = &mut self.groups[into] {
            target.nodes.splice(0..0, draft.nodes);
            target.operations += draft.operations;
        }
    }

    fn finish(self) -> FusionPlan {
        let order: FxHashMap<NodeId, usize> = self
            .graph
            .region(self.region)
            .nodes
            .iter()
            .enumerate()
            .map(|(index, &node)| (node, index))
            .collect();
        let mut groups: Vec<(usize, Group)> = Vec::new();
        for (index, draft) in self.groups.iter().enumerate() {
            let Some(draft) = draft else { continue };
            let mut nodes = draft.nodes.clone();
            nodes.sort_by_key(|node| order[node]);
            groups.push((index, self.close(nodes, draft)));
        }
        FusionPlan { groups: self.sort(groups, &order) }
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

    /// Orders groups so that each comes after those it reads from; earliest last node first among the ready.
    fn sort(&self, groups: Vec<(usize, Group)>, order: &FxHashMap<NodeId, usize>) -> Vec<Group> {
        let rank = |group: &Group| group.nodes.iter().map(|node| order[node]).max().unwrap_or(0);
        let position: FxHashMap<usize, usize> =
            groups.iter().enumerate().map(|(position, (index, _))| (*index, position)).collect();
        let mut users: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); groups.len()];
        let mut waiting = vec![0usize; groups.len()];
        for (at, (_, group)) in groups.iter().enumerate() {
            let operands = group.inputs.iter().filter_map(|&value| self.graph.producer(value));
            let definers = group.nodes.iter().flat_map(|&node| self.extents.definers(node));
            for before in operands.chain(definers.copied()) {
                if let Some(from) = self.group_of[before].and_then(|home| position.get(&home))
                    && *from != at
                    && users[*from].insert(at)
                {
                    waiting[at] += 1;
                }
            }
        }
        let mut ready: BTreeSet<(usize, usize)> = BTreeSet::new();
        for (at, (_, group)) in groups.iter().enumerate() {
            if waiting[at] == 0 {
                ready.insert((rank(group), at));
            }
        }
        let mut sorted = Vec::with_capacity(groups.len());
        while let Some((_, at)) = ready.pop_first() {
            for &user in &users[at] {
                waiting[user] -= 1;
                if waiting[user] == 0 {
                    ready.insert((rank(&groups[user].1), user));
                }
            }
            sorted.push(groups[at].1.clone());
        }
        sorted
    }
}
