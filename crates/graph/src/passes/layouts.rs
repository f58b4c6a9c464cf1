//! Chooses which activations are blocked by channels.
//!
//! Convolutions accumulate vectors of output channels; in blocks of channels every access of theirs is consecutive, and pooling
//! and elementwise operators keep what they are given. Values stay row-major where somebody addresses their memory without
//! index arithmetic. What each operator wants and makes of layouts is its [`LayoutRole`].

use cranelift_entity::SecondaryMap;
use tilewright_dtype::DType;

use crate::dim::Dim;
use crate::graph::{Graph, Use};
use crate::ids::{NodeId, RegionId, ValueId};
use crate::layout::{Layout, Layouts};
use crate::op::{ConvAttrs, LayoutRole, Op};
use crate::passes::fuse::{FusionPlan, Group};

/// Chooses the layouts of a region's values; `lanes` is the number of f32 elements in a vector of the target.
pub fn layouts(graph: &Graph, region: RegionId, plan: &FusionPlan, lanes: i64) -> Layouts {
    let mut layouts = Layouts::default();
    if lanes < 4 {
        return layouts;
    }
    let mut chooser = Chooser { graph, lanes, uses: graph.uses(), is_alone: SecondaryMap::new() };
    for group in &plan.groups {
        if let [only] = group.nodes[..] {
            chooser.is_alone[only] = true;
        }
    }
    for group in &plan.groups {
        let given = group.inputs.iter().find_map(|value| layouts.get(value)?.innermost_block());
        for &value in &group.outputs {
            let Some((rank, channels)) = chooser.channels_of(value) else { continue };
            let is_result = graph.region(region).results.contains(&value);
            if is_result
                || chooser.is_for_few_channels(group, value)
                || chooser.is_between_small_groups(group, value)
                || chooser.uses[value].iter().any(|u| chooser.needs_row_major(u))
            {
                continue;
            }
            if let Some(factor) = chooser.block(group, value, channels, given) {
                layouts.insert(value, Layout::channel_blocks(rank, factor));
            }
        }
    }
    layouts
}

struct Chooser<'a> {
    graph: &'a Graph,
    lanes: i64,
    uses: SecondaryMap<ValueId, Vec<Use>>,
    /// Nodes that are groups by themselves.
    is_alone: SecondaryMap<NodeId, bool>,
}

impl Chooser<'_> {
    fn op(&self, node: NodeId) -> &Op {
        &self.graph.node(node).op
    }

    /// Channels of a block of a group's result; `given` are those of its operands.
    fn block(&self, group: &Group, value: ValueId, channels: i64, given: Option<i64>) -> Option<i64> {
        let uses = &self.uses[value];
        let writes_blocks = group.nodes.iter().any(|&n| self.op(n).layout_role() == LayoutRole::Blocks);
        // Blocks hold channels of one group alone, of those who write and who read.
        let group_channels = self.channels_of_group(group, channels, uses);
        if writes_blocks && group_channels == channels && self.pads_blocks(channels, self.lanes, uses) {
            Some(self.lanes)
        } else if writes_blocks || self.moves_for_convolutions(group, uses) {
            block_factor(group_channels, self.lanes)
        } else if group.nodes.iter().all(|&n| self.keeps_channels(n)) {
            given.filter(|&factor| channels % factor == 0 || self.pads_blocks(channels, factor, uses))
        } else {
            None
        }
    }

    /// Whether a value is for convolutions to so few channels that they compute vectors along rows instead, and no convolution makes it,
    /// which would store its channels one by one then.
    fn is_for_few_channels(&self, group: &Group, value: ValueId) -> bool {
        let is_few = |u: &Use| {
            let Use::Input(node, 0) = u else { return false };
            let Op::Conv(attrs) = self.op(*node) else { return false };
            let weights = self.weights(*node);
            let Some([channels, _, kernel @ ..]) = weights.as_deref() else { return false };
            attrs.group == 1 && 2 * channels <= self.lanes && kernel.iter().any(|&n| n > 1)
        };
        let makes_blocks = group.nodes.iter().any(|&n| self.op(n).layout_role() == LayoutRole::Blocks);
        !makes_blocks && !self.uses[value].is_empty() && self.uses[value].iter().all(is_few)
    }

    /// Whether convolutions write a value and read it whose groups leave so many lanes empty that vectors along rows are fuller.
    fn is_between_small_groups(&self, group: &Group, value: ValueId) -> bool {
        let mut writers = group.nodes.iter().filter(|&&n| matches!(self.op(n), Op::Conv(_))).peekable();
        let fills_rows = |u: &Use| match u {
            Use::Input(node, 0) => self.fills_rows(*node),
            Use::Input(..) | Use::Result(..) => false,
        };
        let uses = &self.uses[value];
        writers.peek().is_some()
            && !uses.is_empty()
            && writers.all(|&node| self.fills_rows(node))
            && uses.iter().all(fills_rows)
    }

    /// Whether a convolution in groups of channels fills its vectors clearly better along rows than along the channels of a group.
    fn fills_rows(&self, node: NodeId) -> bool {
        let Op::Conv(attrs) = self.op(node) else { return false };
        let weights = self.weights(node);
        let Some([channels, of_group, kernel @ ..]) = weights.as_deref() else { return false };
        let output = self.graph.node(node).outputs.first().and_then(|&value| self.extents(value));
        let Some([_, _, positions @ ..]) = output.as_deref() else { return false };
        let is_small = attrs.group > 1 && *of_group > 1;
        // A row is consecutive in the image at a stride of one. Without a window all positions are one row.
        let row = match kernel.iter().all(|&n| n == 1) && attrs.strides.iter().all(|&n| n == 1) {
            true => positions.iter().product(),
            false => positions.last().copied().unwrap_or(1),
        };
        let taken = |n: i64| (n + self.lanes - 1) / self.lanes * self.lanes;
        let group = channels / (attrs.group as i64).max(1);
        // Borders of images cost something: a quarter at least is to be gained.
        is_small && attrs.strides.last() == Some(&1) && 4 * group * taken(row) < 3 * row * taken(group)
    }

    /// The extents of a convolution's weights, where they are known: its channels, those of a group of its image, and the kernel's.
    fn weights(&self, node: NodeId) -> Option<Vec<i64>> {
        self.extents(self.graph.node(node).inputs.get(1).copied().flatten()?)
    }

    /// The extents of a tensor, where all are known.
    fn extents(&self, value: ValueId) -> Option<Vec<i64>> {
        self.graph.tensor_type(value)?.shape.dims()?.iter().map(Dim::as_const).collect()
    }

    /// The rank and channels of an f32 signal, image or volume with more than one position.
    fn channels_of(&self, value: ValueId) -> Option<(usize, i64)> {
        let ty = self.graph.tensor_type(value)?;
        let dims = ty.shape.dims()?;
        let [_, channels, positions @ ..] = dims else { return None };
        let many = !positions.iter().all(|extent| extent.is(1));
        (ty.dtype == DType::F32 && many)
            .then(|| channels.as_const())
            .flatten()
            .map(|channels| (dims.len(), channels))
    }

    /// The most channels that whole groups are made of, of the convolutions that write and that read a value of so many: all of
    /// them where there are no groups, or of one channel each.
    fn channels_of_group(&self, group: &Group, channels: i64, uses: &[Use]) -> i64 {
        let n_groups = |node: NodeId| match self.op(node) {
            Op::Conv(attrs) if attrs.group as i64 != channels => attrs.group as i64,
            _ => 1,
        };
        let written = group.nodes.iter().map(|&node| n_groups(node));
        let read = uses.iter().filter_map(|u| match u {
            Use::Input(node, 0) => Some(n_groups(*node)),
            Use::Input(..) | Use::Result(..) => None,
        });
        written
            .chain(read)
            .filter(|&n| n > 0 && channels % n == 0)
            .fold(channels, |most, n| gcd(most, channels / n))
    }

    /// Whether channels that no whole vectors divide are better cut into vectors with a padded last one than into shorter ones
    /// or none: where that adds little, and every reader knows the channels from the padding. What the padding holds, nobody reads.
    fn pads_blocks(&self, channels: i64, lanes: i64, uses: &[Use]) -> bool {
        /// One padded channel in so many at most.
        const LEAST_SHARE: i64 = 3;
        let padded = (channels + lanes - 1) / lanes * lanes;
        // Vectors of fewer lanes take as long.
        let is_less = block_factor(channels, lanes).is_none_or(|f| 4 * padded * f <= 3 * channels * lanes);
        padded > channels
            && (padded - channels) * LEAST_SHARE <= channels
            && is_less
            && uses.iter().all(|u| self.reads_padded(u, channels))
    }

    /// Whether a reader of so many channels takes no notice of padded ones.
    fn reads_padded(&self, u: &Use, channels: i64) -> bool {
        let Use::Input(node, place) = u else { return false };
        // All channels, or each by itself.
        let is_plain =
            |attrs: &ConvAttrs| *place == 0 && (attrs.group == 1 || attrs.group as i64 == channels);
        match (self.op(*node).layout_role(), self.op(*node)) {
            (LayoutRole::Blocks, Op::Conv(attrs)) => is_plain(attrs),
            (LayoutRole::Reduces, Op::Reduce(attrs)) => !attrs.axes.contains(&1),
            (LayoutRole::Keeps | LayoutRole::KeepsView, _) => true,
            (
                LayoutRole::Blocks
                | LayoutRole::Reduces
                | LayoutRole::Joins
                | LayoutRole::Moves
                | LayoutRole::View
                | LayoutRole::Any
                | LayoutRole::Dense,
                _,
            ) => false,
        }
    }

    /// Whether a group moves every element anyway, and does so for convolutions: it may as well move them to where
    /// those want them.
    fn moves_for_convolutions(&self, group: &Group, uses: &[Use]) -> bool {
        let is_convolution = |u: &Use| match u {
            Use::Input(node, 0) => matches!(self.op(*node), Op::Conv(_)),
            Use::Input(..) | Use::Result(..) => false,
        };
        let moves = group.nodes.iter().all(|&n| self.op(n).layout_role() == LayoutRole::Moves);
        moves && !uses.is_empty() && uses.iter().all(is_convolution)
    }

    /// Whether a node computes each channel of its result from the same channel of its operands, or moves whole
    /// blocks of channels.
    fn keeps_channels(&self, node: NodeId) -> bool {
        match self.op(node).layout_role() {
            LayoutRole::Keeps | LayoutRole::KeepsView => true,
            LayoutRole::Joins => matches!(self.op(node), Op::Concat(attrs) if attrs.axis == 1),
            LayoutRole::Blocks
            | LayoutRole::Reduces
            | LayoutRole::Moves
            | LayoutRole::View
            | LayoutRole::Any
            | LayoutRole::Dense => false,
        }
    }

    /// Whether a use addresses the value's memory without index arithmetic: results, views, control flow and host operators.
    fn needs_row_major(&self, u: &Use) -> bool {
        let Use::Input(node, _) = u else { return true };
        match self.op(*node).layout_role() {
            LayoutRole::Dense => true,
            LayoutRole::View | LayoutRole::KeepsView => self.is_alone[*node],
            LayoutRole::Blocks
            | LayoutRole::Keeps
            | LayoutRole::Joins
            | LayoutRole::Reduces
            | LayoutRole::Moves
            | LayoutRole::Any => false,
        }
    }
}

/// The widest block that divides the channels.
fn block_factor(channels: i64, lanes: i64) -> Option<i64> {
    [lanes, lanes / 2, lanes / 4].into_iter().find(|&f| f >= 4 && channels % f == 0)
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
