//! Which activations are blocked by channels.
//!
//! A layout is data on a value: a list of pieces (logical dimension, factor) that index arithmetic applies, so
//! that every function is right in any layout and the choice is one of speed only. Convolutions accumulate
//! vectors of output channels; storing them channel-blocked makes every access of theirs consecutive, and
//! pooling and elementwise functions keep what they are given.

use rustc_hash::FxHashMap;
use tilewright_graph::passes::fuse::Group;
use tilewright_graph::{DType, Graph, Op, RegionId, Use, ValueId};
use tilewright_te::schedule::Piece;

use crate::host::runs_on_host;

/// The layouts of values that are not row-major.
pub type Layouts = FxHashMap<ValueId, Vec<Piece>>;

/// Chooses the layouts of a region's values; `lanes` is the vector width in f32 elements.
pub fn choose(graph: &Graph, region: RegionId, groups: &[Group], lanes: i64) -> Layouts {
    let mut layouts = Layouts::default();
    if lanes < 4 {
        return layouts;
    }
    let uses = graph.uses();
    for group in groups {
        let is_convolution = |n| matches!(&graph.node(n).op, Op::Conv(_) | Op::ConvTranspose(_));
        let is_convolution = group.nodes.iter().any(|&n| is_convolution(n));
        let given = group.inputs.iter().find_map(|v| layouts.get(v)).and_then(|pieces| pieces.last()?.factor);
        let keeps = group.nodes.iter().all(|&n| keeps_channels(graph, n));
        for &value in &group.outputs {
            let Some((rank, channels)) = channels_of(graph, value) else { continue };
            let is_result = graph.region(region).results.contains(&value);
            if is_result || uses[value].iter().any(|u| needs_row_major(graph, groups, u)) {
                continue;
            }
            // Blocks hold channels of one group alone, of those who write and who read.
            let group_channels = channels_of_group(graph, group, channels, &uses[value]);
            let factor = if is_convolution
                && group_channels == channels
                && pads_blocks(graph, channels, lanes, &uses[value])
            {
                Some(lanes)
            } else if is_convolution || moves_for_convolutions(graph, group, &uses[value]) {
                block_factor(group_channels, lanes)
            } else if keeps {
                given.filter(|&f| channels % f == 0 || pads_blocks(graph, channels, f, &uses[value]))
            } else {
                None
            };
            if let Some(factor) = factor {
                layouts.insert(value, blocked(rank, factor));
            }
        }
    }
    layouts
}

/// `[N][C][spatial..]` in blocks of channels: `[N][C / factor][spatial..][factor]`.
fn blocked(rank: usize, factor: i64) -> Vec<Piece> {
    let open = (0..rank).map(|dim| Piece { dim, factor: None });
    open.chain([Piece { dim: 1, factor: Some(factor) }]).collect()
}

/// The widest block that divides the channels.
fn block_factor(channels: i64, lanes: i64) -> Option<i64> {
    [lanes, lanes / 2, lanes / 4].into_iter().find(|&f| f >= 4 && channels % f == 0)
}

/// The most channels that whole groups are made of, of the convolutions that write and that read a value of so many: all of them where
/// there are no groups, or of one channel each.
fn channels_of_group(graph: &Graph, group: &Group, channels: i64, uses: &[Use]) -> i64 {
    let n_groups = |op: &Op| match op {
        Op::Conv(attrs) if attrs.group as i64 != channels => attrs.group as i64,
        _ => 1,
    };
    let written = group.nodes.iter().map(|&n| n_groups(&graph.node(n).op));
    let read = uses.iter().filter_map(|u| match u {
        Use::Input(node, 0) => Some(n_groups(&graph.node(*node).op)),
        Use::Input(..) | Use::Result(..) => None,
    });
    written
        .chain(read)
        .filter(|&n| n > 0 && channels % n == 0)
        .fold(channels, |most, n| gcd(most, channels / n))
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Whether channels that no whole vectors divide are better cut into vectors with a padded last one than into shorter ones
/// or none: where that adds little, and every reader knows the channels from the padding. What the padding holds, nobody reads.
fn pads_blocks(graph: &Graph, channels: i64, lanes: i64, uses: &[Use]) -> bool {
    /// One padded channel in so many at most.
    const LEAST_SHARE: i64 = 3;
    let padded = (channels + lanes - 1) / lanes * lanes;
    let keeps = |u: &Use| match u {
        Use::Input(node, place) => match &graph.node(*node).op {
            Op::Reduce(attrs) => !attrs.axes.contains(&1),
            Op::Concat(_) => false,
            // All channels, or each by itself.
            Op::Conv(attrs) => *place == 0 && (attrs.group == 1 || attrs.group as i64 == channels),
            _ => keeps_channels(graph, *node),
        },
        Use::Result(..) => false,
    };
    // Vectors of fewer lanes take as long.
    let is_less = block_factor(channels, lanes).is_none_or(|f| 4 * padded * f <= 3 * channels * lanes);
    padded > channels && (padded - channels) * LEAST_SHARE <= channels && is_less && uses.iter().all(keeps)
}

/// The rank and channels of an f32 signal, image or volume with more than one position.
fn channels_of(graph: &Graph, value: ValueId) -> Option<(usize, i64)> {
    let ty = graph.tensor_type(value)?;
    let dims = ty.shape.dims()?;
    let [_, channels, positions @ ..] = dims else { return None };
    let many = !positions.iter().all(|extent| extent.is(1));
    (ty.dtype == DType::F32 && many)
        .then(|| channels.as_const())
        .flatten()
        .map(|channels| (dims.len(), channels))
}

/// Whether a group moves every element anyway, and does so for convolutions: it may as well move them to where
/// those want them.
fn moves_for_convolutions(graph: &Graph, group: &Group, uses: &[Use]) -> bool {
    let is_convolution = |u: &Use| match u {
        Use::Input(node, 0) => matches!(&graph.node(*node).op, Op::Conv(_)),
        Use::Input(..) | Use::Result(..) => false,
    };
    let moves = group.nodes.iter().all(|&n| matches!(&graph.node(n).op, Op::Transpose(_)));
    moves && !uses.is_empty() && uses.iter().all(is_convolution)
}

/// Whether a node computes each channel of its result from the same channel of its operands, or moves whole
/// blocks of channels.
fn keeps_channels(graph: &Graph, node: tilewright_graph::NodeId) -> bool {
    let node = graph.node(node);
    match &node.op {
        Op::Pool(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Activation(_)
        | Op::Clip
        | Op::BatchNorm(_)
        | Op::Identity
        | Op::Resize(_)
        | Op::Pad(_) => true,
        Op::Concat(attrs) => attrs.axis == 1,
        _ => false,
    }
}

/// Whether a use addresses the value's memory without index arithmetic: views, control flow and host operators.
fn needs_row_major(graph: &Graph, groups: &[Group], u: &Use) -> bool {
    match u {
        Use::Result(..) => true,
        Use::Input(node, _) => {
            let alone = groups.iter().any(|g| g.nodes[..] == [*node]);
            match &graph.node(*node).op {
                Op::Reshape(_) | Op::Identity => alone,
                Op::If(_) | Op::Loop(_) | Op::Scan(_) => true,
                _ => runs_on_host(graph, *node),
            }
        }
    }
}
