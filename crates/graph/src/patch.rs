//! Patches: the one way rewrite rules change a graph.
//!
//! A [`Rule`] looks at a node and the producers of its operands and returns a [`Patch`]: new nodes, and for each
//! result of the node the value that replaces it. A patch may replace results of other nodes of the region as well: two products
//! that become one, for instance. The [`rewrite`] driver infers the types of the new nodes,
//! checks that every replacement has the type of what it replaces, and names the rule in the log and in errors.
//! It sweeps each region from top to bottom, so new nodes land where their operands are defined, and repeats
//! until nothing changes. Where results of several nodes were replaced, it sorts the region after the sweep. Nodes a patch leaves
//! without users are for `passes::dead_code` to remove; until then they count as gone.

use std::collections::BTreeSet;

use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashMap;

use crate::graph::{Graph, Provenance};
use crate::ids::{NodeId, RegionId, ValueId};
use crate::infer;
use crate::op::{Effect, Op};
use crate::pass::PassError;
use crate::passes::dead_code::dead_code;
use crate::verify::is_compatible;

/// A value a patch refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A value of the graph.
    Old(ValueId),
    /// Result `.1` of the patch's node `.0`.
    New(usize, usize),
}

impl From<ValueId> for Source {
    fn from(value: ValueId) -> Source {
        Source::Old(value)
    }
}

#[derive(Clone, Debug)]
struct NewNode {
    op: Op,
    inputs: Vec<Option<Source>>,
    n_outputs: Option<usize>,
}

/// New nodes and what they replace.
#[derive(Clone, Debug, Default)]
pub struct Patch {
    nodes: Vec<NewNode>,
    replacements: Vec<Source>,
    /// Results of other nodes, with what replaces them.
    others: Vec<(ValueId, Source)>,
    absorbed: Vec<NodeId>,
}

impl Patch {
    /// An empty patch.
    pub fn new() -> Patch {
        Patch::default()
    }

    /// A patch that puts an existing value in place of the node's only result.
    pub fn forward(value: ValueId) -> Patch {
        Patch { replacements: vec![Source::Old(value)], ..Patch::default() }
    }

    /// A patch that puts one new node in place of a node with one result.
    pub fn single(op: Op, inputs: impl IntoIterator<Item = ValueId>) -> Patch {
        let mut patch = Patch::new();
        let value = patch.add(op, inputs.into_iter().map(Source::Old));
        patch.replace(value)
    }

    /// Adds a node with the results [`infer::append`] would give it; returns the first one.
    pub fn add(&mut self, op: Op, inputs: impl IntoIterator<Item = Source>) -> Source {
        self.add_sparse(op, inputs.into_iter().map(Some).collect(), None)
    }

    /// Adds a node that may lack operands, with a chosen number of results; returns the first one.
    pub fn add_sparse(&mut self, op: Op, inputs: Vec<Option<Source>>, n_outputs: Option<usize>) -> Source {
        self.nodes.push(NewNode { op, inputs, n_outputs });
        Source::New(self.nodes.len() - 1, 0)
    }

    /// Puts a value in place of the node's next result; call once a result, in order.
    #[must_use]
    pub fn replace(mut self, value: impl Into<Source>) -> Patch {
        self.replacements.push(value.into());
        self
    }

    /// Puts a value in place of a result of another node of the same region. The value must not depend on what it replaces.
    #[must_use]
    pub fn replace_result(mut self, result: ValueId, value: impl Into<Source>) -> Patch {
        self.others.push((result, value.into()));
        self
    }

    /// Adds the origin of another matched node to the new nodes' provenance.
    #[must_use]
    pub fn absorb(mut self, nodes: impl IntoIterator<Item = NodeId>) -> Patch {
        self.absorbed.extend(nodes);
        self
    }
}

/// What a rule may look at.
pub struct View<'a> {
    /// The graph.
    pub graph: &'a Graph,
    uses: &'a SecondaryMap<ValueId, u32>,
}

impl<'a> View<'a> {
    /// The node that produces a value.
    pub fn producer(&self, value: ValueId) -> Option<(NodeId, &'a crate::Node)> {
        let node = self.graph.producer(value)?;
        Some((node, self.graph.node(node)))
    }

    /// Whether a value has exactly one use.
    pub fn is_used_once(&self, value: ValueId) -> bool {
        self.uses[value] == 1
    }

    /// Whether a value has no use.
    pub fn is_unused(&self, value: ValueId) -> bool {
        self.uses[value] == 0
    }

    /// The number every element of a constant has.
    pub fn splat(&self, value: ValueId) -> Option<f64> {
        self.graph.constant(value)?.as_splat()
    }
}

/// A named rewrite rule.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Name in logs and errors.
    pub name: &'static str,
    /// The rule: a patch for the node, or nothing.
    pub apply: fn(&View<'_>, NodeId) -> Option<Patch>,
}

/// Applies rules to every node until none matches, at most `max_sweeps` times; tells whether anything changed.
pub fn rewrite(graph: &mut Graph, rules: &[Rule], max_sweeps: usize) -> Result<bool, PassError> {
    rewrite_where(graph, rules, max_sweeps, &|_| true)
}

/// As [`rewrite`], at nodes whose operator `wanted` accepts.
pub fn rewrite_where(
    graph: &mut Graph,
    rules: &[Rule],
    max_sweeps: usize,
    wanted: &dyn Fn(&Op) -> bool,
) -> Result<bool, PassError> {
    let mut changed = false;
    for _ in 0..max_sweeps {
        changed |= dead_code(graph)?;
        let mut swept = false;
        for region in graph.live_regions() {
            swept |= sweep(graph, region, rules, wanted)?;
        }
        if !swept {
            break;
        }
        changed = true;
    }
    Ok(changed)
}

fn sweep(
    graph: &mut Graph,
    region: RegionId,
    rules: &[Rule],
    wanted: &dyn Fn(&Op) -> bool,
) -> Result<bool, PassError> {
    let mut uses: SecondaryMap<ValueId, u32> = SecondaryMap::new();
    let old = graph.take_nodes(region);
    for &node in &old {
        graph.node(node).inputs.iter().flatten().for_each(|&value| uses[value] += 1);
    }
    graph.region(region).results.iter().for_each(|&value| uses[value] += 1);
    let mut sweep =
        Sweep { graph, region, wanted, uses, replaced: FxHashMap::default(), reaches_back: false };
    let result = sweep.run(&old, rules);
    let Sweep { replaced, reaches_back, .. } = sweep;
    graph.replace_uses_in(region, &replaced);
    if reaches_back && result.is_ok() {
        graph.sort(region)?;
    }
    result.map(|()| !replaced.is_empty())
}

struct Sweep<'a> {
    graph: &'a mut Graph,
    region: RegionId,
    wanted: &'a dyn Fn(&Op) -> bool,
    uses: SecondaryMap<ValueId, u32>,
    replaced: FxHashMap<ValueId, ValueId>,
    /// Whether results of other nodes than the matched ones were replaced, which nodes before may use.
    reaches_back: bool,
}

impl Sweep<'_> {
    fn run(&mut self, old: &[NodeId], rules: &[Rule]) -> Result<(), PassError> {
        for &node in old {
            for position in 0..self.graph.node(node).inputs.len() {
                if let Some(value) = self.graph.node(node).inputs[position]
                    && self.replaced.contains_key(&value)
                {
                    self.graph.set_input(node, position, Some(self.target(value)));
                }
            }
            let is_dead = self.graph.node(node).outputs.iter().all(|&value| self.uses[value] == 0)
                && self.graph.node(node).op.effect() != Effect::Unknown;
            let skip = is_dead || !(self.wanted)(&self.graph.node(node).op);
            let matched = if skip { None } else { self.find(rules, node) };
            match matched {
                Some((rule, patch)) => self.apply(rule, node, patch)?,
                None => self.graph.push_node(self.region, node),
            }
        }
        Ok(())
    }

    fn find(&self, rules: &[Rule], node: NodeId) -> Option<(Rule, Patch)> {
        let view = View { graph: self.graph, uses: &self.uses };
        rules.iter().find_map(|rule| Some((*rule, (rule.apply)(&view, node)?)))
    }

    fn apply(&mut self, rule: Rule, root: NodeId, patch: Patch) -> Result<(), PassError> {
        let fail = |graph: &Graph, message: String| PassError::Rule {
            rule: rule.name,
            node: graph.node_name(root),
            message,
        };
        let made =
            self.append(root, patch.nodes, &patch.absorbed).map_err(|error| fail(self.graph, error))?;
        let outputs = self.graph.node(root).outputs.clone();
        if patch.replacements.len() != outputs.len() {
            let message = format!("replaces {} of {} results", patch.replacements.len(), outputs.len());
            return Err(fail(self.graph, message));
        }
        let of_root = outputs.iter().copied().zip(patch.replacements);
        self.reaches_back |= !patch.others.is_empty();
        let mut gone = BTreeSet::from([root]);
        for (from, source) in of_root.chain(patch.others) {
            self.replace(from, source, &made).map_err(|message| fail(self.graph, message))?;
            gone.extend(self.graph.producer(from));
        }
        for node in gone {
            let is_gone = self.graph.node(node).outputs.iter().all(|value| self.uses[*value] == 0);
            if node == root || is_gone {
                self.release(node);
            }
        }
        Ok(())
    }

    /// Appends the new nodes of a patch; gives their ids.
    fn append(
        &mut self,
        root: NodeId,
        nodes: Vec<NewNode>,
        absorbed: &[NodeId],
    ) -> Result<Vec<NodeId>, String> {
        // Ids grow in the order of the model, so names come in that order too.
        let origins: BTreeSet<NodeId> = absorbed.iter().copied().chain([root]).collect();
        let provenance = Provenance::merge(origins.iter().map(|&node| &self.graph.node(node).provenance));
        let mut made: Vec<NodeId> = Vec::with_capacity(nodes.len());
        for new in nodes {
            let inputs: Vec<Option<ValueId>> =
                new.inputs.iter().map(|source| source.map(|source| self.resolve(source, &made))).collect();
            let (region, provenance) = (self.region, provenance.clone());
            let node = match new.n_outputs {
                Some(n) => infer::append_n(self.graph, region, new.op, inputs, n, provenance),
                None => infer::append(self.graph, region, new.op, inputs, provenance),
            }
            .map_err(|error| error.to_string())?;
            self.graph.node(node).inputs.iter().flatten().for_each(|&value| self.uses[value] += 1);
            made.push(node);
        }
        Ok(made)
    }

    /// Puts a value in place of a result.
    fn replace(&mut self, from: ValueId, source: Source, made: &[NodeId]) -> Result<(), String> {
        let to = self.resolve(source, made);
        let show = |graph: &Graph, value| graph.ty(value).display(&graph.symbols).to_string();
        if !is_compatible(self.graph.ty(from), self.graph.ty(to)) {
            return Err(format!("replaces {} by {}", show(self.graph, from), show(self.graph, to)));
        }
        let home = self.graph.producer(from).map(|producer| self.graph.node(producer).region);
        if home != Some(self.region) || self.replaced.contains_key(&from) || to == from {
            return Err(format!(
                "cannot replace {from} by {to}: it is no result of the region, or replaced already"
            ));
        }
        if self.graph.value(to).name.is_none()
            && let Some(name) = self.graph.value(from).name.clone()
            && made.iter().any(|&node| self.graph.node(node).outputs.contains(&to))
        {
            self.graph.set_name(to, &name);
        }
        self.uses[to] += std::mem::take(&mut self.uses[from]);
        self.replaced.insert(from, to);
        Ok(())
    }

    fn resolve(&self, source: Source, made: &[NodeId]) -> ValueId {
        self.target(match source {
            Source::Old(value) => value,
            Source::New(node, output) => self.graph.node(made[node]).outputs[output],
        })
    }

    /// What stands in place of a value by now. What replaces a value may be replaced later, never by what it replaced.
    fn target(&self, mut value: ValueId) -> ValueId {
        while let Some(&next) = self.replaced.get(&value) {
            value = next;
        }
        value
    }

    /// Takes back the uses of a node that is gone, and of what only it needed.
    fn release(&mut self, node: NodeId) {
        let mut gone = vec![node];
        while let Some(node) = gone.pop() {
            for value in self.graph.node(node).inputs.iter().flatten() {
                self.uses[*value] = self.uses[*value].saturating_sub(1);
                if self.uses[*value] == 0
                    && let Some(producer) = self.graph.producer(*value)
                    && self.graph.node(producer).outputs.iter().all(|&output| self.uses[output] == 0)
                    && self.graph.node(producer).op.effect() != Effect::Unknown
                {
                    gone.push(producer);
                }
            }
        }
    }
}
