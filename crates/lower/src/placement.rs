//! Where steps run: on the device of a target, or on the host beside it.
//!
//! Kernels run on the device, but for small ones whose results only the host needs: for extents, conditions of control flow, and operands
//! of host operators. A small one whose operands are all on the host runs there as soon as the host needs its result at all, because
//! an upload delays nobody and a download makes the host wait.
//!
//! First all small groups count as the host's, and those with a result that the device needs are taken away until none is left; so
//! what goes round in a loop and never leaves it stays on the host.

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_graph::dim::Dim;
use tilewright_graph::passes::fuse::{FusionPlan, Group};
use tilewright_graph::{Graph, NodeId, Op, RegionId, ValueId};
use tilewright_runtime::plan::{Cmp, Space};

use crate::dynamic::{Extents, SizeOp, extent};
use crate::host::{is_host_value, runs_on_host};
use crate::work::Work;

/// Operations and elements up to which a step may run on the host: as long as a launch and a transfer take, about 10 microseconds.
const SMALL: i64 = 1 << 14;

/// Where steps run, and where the results are that are not views.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// Anchors of groups that run on the device.
    on_device: FxHashSet<NodeId>,
    /// Values that the device holds.
    pub(crate) values: FxHashMap<ValueId, Space>,
}

impl Placement {
    /// Where a group's function runs.
    pub(crate) fn of(&self, group: &Group) -> Space {
        if self.on_device.contains(&group.anchor) { Space::Device } else { Space::Host }
    }

    /// Whether the device holds a value.
    pub(crate) fn holds(&self, value: ValueId) -> bool {
        self.values.get(&value) == Some(&Space::Device)
    }
}

/// What is done with a value.
#[derive(Clone, Copy)]
enum Use {
    /// It is read on the host.
    Host,
    /// It leaves the model.
    Output,
    /// The group of this number computes with it.
    Group(usize),
    /// It becomes another value, or part of one.
    Same(ValueId),
}

struct Placer<'a> {
    graph: &'a Graph,
    /// Groups that are functions.
    groups: Vec<&'a Group>,
    /// Which of them may run on the host.
    small: Vec<bool>,
    uses: FxHashMap<ValueId, Vec<Use>>,
    /// Values with a buffer of their own that control flow makes.
    carried: Vec<ValueId>,
}

/// Places the groups of all regions.
pub(crate) fn place<'a>(
    graph: &'a Graph,
    plans: impl IntoIterator<Item = (RegionId, &'a FusionPlan)>,
) -> Placement {
    let mut placer = Placer {
        graph,
        groups: Vec::new(),
        small: Vec::new(),
        uses: FxHashMap::default(),
        carried: Vec::new(),
    };
    for (_, plan) in plans {
        plan.groups.iter().for_each(|group| placer.group(group));
    }
    for &value in graph.outputs() {
        placer.add(value, Use::Output);
    }
    placer.extents();
    placer.place()
}

impl<'a> Placer<'a> {
    fn add(&mut self, value: ValueId, what: Use) {
        self.uses.entry(value).or_default().push(what);
    }

    fn group(&mut self, group: &'a Group) {
        let graph = self.graph;
        if let [only] = group.nodes[..] {
            let node = graph.node(only);
            let inputs = node.inputs.iter().flatten();
            match &node.op {
                Op::If(_) | Op::Loop(_) | Op::Scan(_) => return self.control(only),
                Op::Shape(_) | Op::Size => return,
                Op::Reshape(_) | Op::Identity => {
                    if let (Some(input), Some(output)) = (node.input(0), node.output())
                        && !is_host_value(graph, input)
                        && !is_host_value(graph, output)
                    {
                        return self.add(input, Use::Same(output));
                    }
                }
                _ => {}
            }
            if runs_on_host(graph, only) || node.outputs.iter().any(|&value| is_host_value(graph, value)) {
                return inputs.for_each(|&value| self.add(value, Use::Host));
            }
        }
        let number = self.groups.len();
        self.groups.push(group);
        self.small.push(is_small(graph, group));
        for &value in &group.inputs {
            self.add(value, Use::Group(number));
        }
    }

    /// What control flow reads, and hands into its regions and out of them.
    fn control(&mut self, node: NodeId) {
        let graph = self.graph;
        let data = graph.node(node);
        let params = |region: RegionId| graph.region(region).params.clone();
        let results = |region: RegionId| graph.region(region).results.clone();
        self.carried.extend(data.outputs.iter().copied());
        let (host_inputs, rest) = match &data.op {
            Op::If(_) => data.inputs.split_at(1),
            Op::Loop(_) => data.inputs.split_at(2),
            _ => data.inputs.split_at(0),
        };
        host_inputs.iter().flatten().for_each(|&value| self.add(value, Use::Host));
        let mut same = |from: &[ValueId], to: &[ValueId]| {
            from.iter().zip(to).for_each(|(&from, &to)| self.add(from, Use::Same(to)));
        };
        let given =
            |values: &[Option<ValueId>], to: &[ValueId], same: &mut dyn FnMut(&[ValueId], &[ValueId])| {
                for (value, &param) in values.iter().zip(to) {
                    value.iter().for_each(|&value| same(&[value], &[param]));
                }
            };
        match &data.op {
            Op::If(attrs) => {
                for region in [attrs.then_region, attrs.else_region] {
                    given(rest, &params(region), &mut same);
                    same(&results(region), &data.outputs);
                }
            }
            Op::Loop(attrs) => {
                let (params, results) = (params(attrs.body), results(attrs.body));
                given(rest, &params[2..], &mut same);
                // What is carried has one buffer, whatever it is called.
                same(&results[1..][..attrs.carried], &params[2..]);
                same(&params[2..][..attrs.carried], &data.outputs);
                same(&data.outputs[..attrs.carried], &params[2..]);
                same(&results[1..], &data.outputs);
                self.carried.extend(&params[2..][..attrs.carried]);
                results.first().iter().for_each(|&&value| self.add(value, Use::Host));
            }
            Op::Scan(attrs) => {
                let (params, results) = (params(attrs.body), results(attrs.body));
                given(rest, &params, &mut same);
                same(&results[..attrs.states], &params);
                same(&params[..attrs.states], &data.outputs);
                same(&data.outputs[..attrs.states], &params);
                same(&results, &data.outputs);
                self.carried.extend(&params[..attrs.states + attrs.input_axes.len()]);
            }
            _ => {}
        }
    }

    /// Reads of operands that define extents.
    fn extents(&mut self) {
        let mut reads = Reads { graph: self.graph, values: Vec::new() };
        for &(made, axis) in self.graph.symbol_definitions().values() {
            let Some(node) = self.graph.producer(made) else { continue };
            let position = self.graph.node(node).outputs.iter().position(|&v| v == made).unwrap_or_default();
            // What has no rule is refused when the plan is made.
            let _ = extent(self.graph, node, position, axis, &mut reads);
        }
        for value in reads.values {
            self.add(value, Use::Host);
        }
    }

    fn place(self) -> Placement {
        let mut on_host = self.small.clone();
        let mut needed: FxHashSet<ValueId> = FxHashSet::default();
        loop {
            let before = needed.len();
            for (&value, uses) in &self.uses {
                let by_device = |what: &Use| match *what {
                    Use::Host => false,
                    Use::Output => true,
                    Use::Group(group) => !on_host[group],
                    Use::Same(other) => needed.contains(&other),
                };
                if !needed.contains(&value) && uses.iter().any(by_device) {
                    needed.insert(value);
                }
            }
            for (group, on_host) in self.groups.iter().zip(&mut on_host) {
                *on_host &= !group.outputs.iter().any(|value| needed.contains(value));
            }
            if needed.len() == before {
                break;
            }
        }
        self.take_back(&mut on_host);
        let mut placement = Placement::default();
        for (group, on_host) in self.groups.iter().zip(on_host) {
            let space = if on_host { Space::Host } else { Space::Device };
            placement.values.extend(group.outputs.iter().map(|&value| (value, space)));
            if !on_host {
                placement.on_device.insert(group.anchor);
            }
        }
        let carried = self.carried.iter().filter(|value| needed.contains(value));
        placement.values.extend(carried.map(|&value| (value, Space::Device)));
        placement
    }

    /// Gives the host small groups back whose operands it has, and whose results it needs among others.
    fn take_back(&self, on_host: &mut [bool]) {
        let mut made_by: FxHashMap<ValueId, usize> = FxHashMap::default();
        for (number, group) in self.groups.iter().enumerate() {
            made_by.extend(group.outputs.iter().map(|&value| (value, number)));
        }
        for (number, group) in self.groups.iter().enumerate() {
            let is_read = |what: &Use| match *what {
                Use::Host => true,
                Use::Group(group) => on_host[group],
                Use::Output | Use::Same(_) => false,
            };
            let is_needed =
                group.outputs.iter().any(|value| self.uses.get(value).is_some_and(|u| u.iter().any(is_read)));
            let is_there = |value: &ValueId| match made_by.get(&self.root(*value)) {
                Some(&group) => on_host[group],
                None => self.is_from_host(self.root(*value)),
            };
            if self.small[number] && is_needed && group.inputs.iter().all(is_there) {
                on_host[number] = true;
            }
        }
    }

    /// What a value is a view of, in the end.
    fn root(&self, mut value: ValueId) -> ValueId {
        while let Some(node) = self.graph.producer(value)
            && let Op::Reshape(_) | Op::Identity = &self.graph.node(node).op
            && let Some(input) = self.graph.node(node).input(0)
        {
            value = input;
        }
        value
    }

    /// Whether a value that no group computes is on the host: an input of the model, a constant, extents.
    fn is_from_host(&self, value: ValueId) -> bool {
        match self.graph.producer(value) {
            None => self.graph.inputs().contains(&value),
            Some(node) => !matches!(self.graph.node(node).op, Op::If(_) | Op::Loop(_) | Op::Scan(_)),
        }
    }
}

/// Whether a group does little, on little, and all of that is known.
fn is_small(graph: &Graph, group: &Group) -> bool {
    let work = Work::of(graph, group.anchor, &group.nodes, &group.inputs, &group.outputs);
    let is_little = |dim: Option<Dim>| dim.and_then(|dim| dim.as_const()).is_some_and(|n| n <= SMALL);
    let elements = |value: &ValueId| graph.dims(*value).map(Dim::product);
    is_little(work.flops) && group.inputs.iter().chain(&group.outputs).all(|value| is_little(elements(value)))
}

/// Notes which operands are read for extents, and computes nothing.
struct Reads<'a> {
    graph: &'a Graph,
    values: Vec<ValueId>,
}

impl Extents for Reads<'_> {
    type Size = ();
    type Error = ();

    fn constant(&mut self, _: i64) {}

    fn dim(&mut self, _: &Dim) -> Result<(), ()> {
        Ok(())
    }

    fn element(&mut self, value: ValueId, _: usize) -> Result<(), ()> {
        if self.graph.constant(value).is_none() {
            self.values.push(value);
        }
        Ok(())
    }

    fn scaled(&mut self, (): (), value: ValueId, position: usize) -> Result<(), ()> {
        self.element(value, position)
    }

    fn apply(&mut self, _: SizeOp, (): (), (): ()) {}

    fn require(&mut self, (): (), _: Cmp, (): (), _: &str) -> Result<(), ()> {
        Ok(())
    }

    fn gap(&self, _: &str) {}
}
