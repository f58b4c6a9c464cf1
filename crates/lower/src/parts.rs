//! Values that lie in others: concatenations and slices without copies.
//!
//! Where the pieces of a concatenation follow one another in memory, what computes them can write them there, and
//! nothing is left to do for the concatenation. A slice that is one piece of memory is read where it is. Both hold along
//! the outermost dimension that has more than one index in the layout of the values: the channels of a single image in
//! blocks of channels, for instance.

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_graph::dim::Dim;
use tilewright_graph::passes::fuse::Group;
use tilewright_graph::{Graph, Layouts, NodeId, Op, RegionId, ValueId};

use crate::host::{is_host_value, runs_on_host};

/// Where a value lies that is part of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The other value.
    pub whole: ValueId,
    /// Where in it, in bytes.
    pub offset: u64,
}

/// Values that lie in others, with what is left to do for the nodes that need no function.
#[derive(Debug, Default)]
pub struct Parts {
    /// The places.
    pub places: FxHashMap<ValueId, Part>,
    /// Concatenations, slices and splits that need no function, with the operands that must be copied all the same.
    pub nodes: FxHashMap<NodeId, Vec<(ValueId, Part)>>,
}

/// Bytes to which every part is aligned: what kernels may assume of a buffer.
const ALIGNMENT: u64 = 64;

/// One operand in so many may be copied, by bytes: a copy runs on one thread.
const MAX_COPIED: u64 = 4;

/// Chooses the parts of a region's values; of those that functions compute, only such as `may_join` lie in others.
pub fn choose(
    graph: &Graph,
    region: RegionId,
    groups: &[Group],
    layouts: &Layouts,
    may_join: &dyn Fn(ValueId) -> bool,
) -> Parts {
    let chooser = Chooser::new(graph, region, groups, layouts, may_join);
    let mut parts = Parts::default();
    // Of concatenations that share operands the largest has them; others may turn out to be pieces of it.
    let mut joins: Vec<(u64, NodeId)> = Vec::new();
    for node in alone(groups) {
        let is_join = |output: &ValueId| matches!(&graph.node(node).op, Op::Concat(_)) && may_join(*output);
        let output = graph.node(node).output().filter(is_join);
        joins.extend(output.and_then(|output| Some((chooser.bytes(output)?, node))));
    }
    joins.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    for (bytes, node) in joins {
        chooser.join(node, bytes, &mut parts);
    }
    alone(groups).for_each(|node| chooser.slice(node, &mut parts));
    parts
}

/// Nodes that are groups by themselves.
fn alone(groups: &[Group]) -> impl Iterator<Item = NodeId> {
    groups.iter().filter_map(|group| match group.nodes[..] {
        [only] => Some(only),
        _ => None,
    })
}

struct Chooser<'a> {
    graph: &'a Graph,
    layouts: &'a Layouts,
    /// What functions compute.
    computed: FxHashSet<ValueId>,
    /// Views, with what they are views of.
    views: FxHashMap<ValueId, ValueId>,
    /// What leaves the region, views resolved.
    results: FxHashSet<ValueId>,
}

impl<'a> Chooser<'a> {
    fn new(
        graph: &'a Graph,
        region: RegionId,
        groups: &[Group],
        layouts: &'a Layouts,
        may_join: &dyn Fn(ValueId) -> bool,
    ) -> Chooser<'a> {
        let (mut computed, mut views): (FxHashSet<ValueId>, _) = (FxHashSet::default(), FxHashMap::default());
        for group in groups {
            match group.nodes[..] {
                [only] => {
                    match (&graph.node(only).op, graph.node(only).input(0), graph.node(only).output()) {
                        (Op::Reshape(_) | Op::Identity, Some(input), Some(output)) => {
                            views.insert(output, input);
                        }
                        (
                            Op::If(_) | Op::Loop(_) | Op::Scan(_) | Op::FromDims(_) | Op::Shape(_) | Op::Size,
                            ..,
                        ) => {}
                        _ if runs_on_host(graph, only) => {}
                        _ => computed.extend(group.outputs.iter().copied()),
                    }
                }
                _ => computed.extend(group.outputs.iter().copied()),
            }
        }
        computed.retain(|value| may_join(*value));
        let mut chooser = Chooser { graph, layouts, computed, views, results: FxHashSet::default() };
        chooser.results = graph.region(region).results.iter().map(|&value| chooser.root(value)).collect();
        chooser
    }

    /// What a value is a view of, in the end.
    fn root(&self, mut value: ValueId) -> ValueId {
        while let Some(&input) = self.views.get(&value) {
            value = input;
        }
        value
    }

    fn extents(&self, value: ValueId) -> Option<Vec<u64>> {
        if is_host_value(self.graph, value) {
            return None;
        }
        let extent = |d: &Dim| u64::try_from(d.as_const()?).ok();
        self.graph.dims(value)?.iter().map(extent).collect()
    }

    /// Bytes of a value whose extents are known, and which no block of its layout exceeds.
    fn bytes(&self, value: ValueId) -> Option<u64> {
        let extents = self.extents(value)?;
        let blocks = self.layouts.get(&value).into_iter().flat_map(|layout| &layout.pieces);
        for (dim, factor) in blocks.filter_map(|piece| Some((piece.dim, piece.factor?))) {
            if extents.get(dim)? % factor.unsigned_abs() != 0 {
                return None;
            }
        }
        let bytes = self.graph.tensor_type(value)?.dtype.bytes() as u64;
        extents.iter().try_fold(bytes, |n, &extent| n.checked_mul(extent)).filter(|&n| n > 0)
    }

    /// Whether values that differ along an axis alone are pieces of memory one after the other: all dimensions that the
    /// layout has outside of the axis have one index.
    fn is_outermost(&self, value: ValueId, axis: usize) -> bool {
        let Some(extents) = self.extents(value) else { return false };
        match self.layouts.get(&value) {
            None => extents.iter().take(axis).all(|&extent| extent == 1),
            Some(layout) => layout
                .pieces
                .iter()
                .take_while(|piece| piece.dim != axis)
                .all(|piece| extents.get(piece.dim) == Some(&1)),
        }
    }

    /// The value that is part of no other in which a value lies, and where.
    fn place(&self, value: ValueId, parts: &Parts) -> Part {
        let mut place = Part { whole: self.root(value), offset: 0 };
        while let Some(part) = parts.places.get(&place.whole) {
            place = Part { whole: self.root(part.whole), offset: place.offset + part.offset };
        }
        place
    }

    /// Lets the operands of a concatenation lie in its result, or the result where they lie already.
    fn join(&self, node: NodeId, bytes: u64, parts: &mut Parts) {
        let data = self.graph.node(node);
        let (Op::Concat(attrs), Some(output)) = (&data.op, data.output()) else { return };
        let inputs: Vec<ValueId> = data.inputs.iter().flatten().copied().collect();
        if self.results.contains(&output) || !self.is_outermost(output, attrs.axis) {
            return;
        }
        let mut offsets = Vec::new();
        let mut offset = 0;
        for &input in &inputs {
            let Some(size) =
                self.bytes(input).filter(|_| self.layouts.get(&input) == self.layouts.get(&output))
            else {
                return;
            };
            offsets.push((input, offset, size));
            offset += size;
        }
        if offset != bytes || offsets.iter().any(|(_, offset, _)| offset % ALIGNMENT != 0) {
            return;
        }
        let start = inputs.first().map(|&first| self.place(first, parts));
        let continues = |part: Part| {
            let follows = |&(input, offset, _): &(ValueId, u64, u64)| {
                self.place(input, parts) == Part { whole: part.whole, offset: part.offset + offset }
            };
            offsets.iter().all(follows)
        };
        let is_placed = parts.places.contains_key(&output);
        if let Some(part) = start.filter(|&part| inputs.len() > 1 && !is_placed && continues(part)) {
            parts.places.insert(output, part);
            parts.nodes.insert(node, Vec::new());
            return;
        }
        let mut moved: Vec<(ValueId, Part)> = Vec::new();
        let (mut copied, mut n_copied) = (Vec::new(), 0);
        for &(input, offset, size) in &offsets {
            let (root, part) = (self.root(input), Part { whole: output, offset });
            let is_free = self.computed.contains(&root)
                && !self.results.contains(&root)
                && !parts.places.contains_key(&root)
                && moved.iter().all(|(other, _)| *other != root);
            if is_free {
                moved.push((root, part));
            } else {
                copied.push((input, part));
                n_copied += size;
            }
        }
        if n_copied * MAX_COPIED <= bytes {
            parts.places.extend(moved);
            parts.nodes.insert(node, copied);
        }
    }

    /// Lets the results of a slice or split lie in the operand.
    fn slice(&self, node: NodeId, parts: &mut Parts) {
        let data = self.graph.node(node);
        let Some(input) = data.input(0) else { return };
        let (axis, start) = match &data.op {
            Op::Split(attrs) => (attrs.axis, Some(0)),
            Op::Slice(attrs) => match (&attrs.axes[..], &attrs.starts[..], &attrs.steps[..]) {
                ([axis], [start], [1]) => (*axis, start.as_const().and_then(|n| u64::try_from(n).ok())),
                _ => return,
            },
            _ => return,
        };
        let (Some(start), Some(extents)) = (start, self.extents(input)) else { return };
        let (Some(bytes), Some(&extent)) = (self.bytes(input), extents.get(axis)) else { return };
        if extent == 0 || !self.is_outermost(input, axis) {
            return;
        }
        let mut offset = bytes / extent * start;
        let mut places = Vec::new();
        for &output in &data.outputs {
            let Some(size) = self.bytes(output) else { return };
            let same = self.layouts.get(&input) == self.layouts.get(&output);
            let taken = parts.places.contains_key(&output) || self.results.contains(&output);
            if !same || taken || offset % ALIGNMENT != 0 {
                return;
            }
            places.push((output, Part { whole: input, offset }));
            offset += size;
        }
        if offset <= bytes {
            parts.places.extend(places);
            parts.nodes.insert(node, Vec::new());
        }
    }
}
