//! The rows of a profile as a graph: who reads what whom wrote, laid out in layers.

use std::collections::{BTreeSet, HashMap};

use tilewright_runtime::plan::{Access, BufferId, Operand, Place, Plan, PlanOp};

/// A row's place in the drawing: layers go down, the nodes of a layer side by side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spot {
    /// Which layer: one more than the lowest that it reads from.
    pub layer: usize,
    /// Distance from the middle of the layer, in nodes.
    pub x: f64,
}

/// Pairs of rows where the second reads what the first wrote. `row_of` gives each instruction's row.
pub fn edges(plan: &Plan, row_of: &[usize]) -> Vec<(usize, usize)> {
    /// What instructions pass to each other.
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    enum Thing {
        Buffer(BufferId),
        Value(u32),
    }
    let root = |mut id: BufferId| {
        while let Place::Alias { buffer, .. } = plan.buffers[id.index()].place {
            id = buffer;
        }
        Thing::Buffer(id)
    };
    let operand = |operand: &Operand| match operand {
        Operand::Buffer(id) => Some(root(*id)),
        Operand::Value(id) => Some(Thing::Value(id.0)),
        Operand::Absent => None,
    };
    let mut writer: HashMap<Thing, usize> = HashMap::new();
    let mut edges = BTreeSet::new();
    for (instr, &row) in plan.instrs.iter().zip(row_of) {
        let (reads, writes): (Vec<Thing>, Vec<Thing>) = match &instr.op {
            PlanOp::Call { kernel, buffers, .. } => {
                let params = &plan.kernels[kernel.index()].params;
                let of = |access: Access| {
                    let chosen = buffers.iter().zip(params).filter(move |(_, param)| param.access == access);
                    chosen.map(|(&id, _)| root(id)).collect()
                };
                (of(Access::Read), of(Access::Write))
            }
            PlanOp::Host { inputs, outputs, .. } => {
                (inputs.iter().filter_map(operand).collect(), outputs.iter().filter_map(operand).collect())
            }
            PlanOp::Copy { from, to } => (vec![root(*from)], vec![root(*to)]),
            PlanOp::CopyValue { from, to } => (vec![Thing::Value(from.0)], vec![Thing::Value(to.0)]),
            PlanOp::ReadSize { buffer, .. } | PlanOp::ScaleSize { buffer, .. } => {
                (vec![root(*buffer)], vec![])
            }
            PlanOp::WriteSize { buffer, .. } => (vec![], vec![root(*buffer)]),
            PlanOp::ReadDim { value, .. } => (vec![Thing::Value(value.0)], vec![]),
            PlanOp::Alloc { .. }
            | PlanOp::Grow { .. }
            | PlanOp::Free { .. }
            | PlanOp::SetSize { .. }
            | PlanOp::Guard { .. }
            | PlanOp::BranchIfZero { .. }
            | PlanOp::Jump { .. } => (vec![], vec![]),
        };
        edges.extend(reads.iter().filter_map(|thing| writer.get(thing)).map(|&from| (from, row)));
        writer.extend(writes.into_iter().map(|thing| (thing, row)));
    }
    // Rows are numbered by their first instruction: an edge back is one of a loop.
    edges.into_iter().filter(|(from, to)| from < to).collect()
}

/// Lays out `n` nodes whose edges lead from lower to higher numbers: layers by the longest path, in a layer by the mean
/// place of what is read.
pub fn layout(n: usize, edges: &[(usize, usize)]) -> Vec<Spot> {
    let mut sources: Vec<Vec<usize>> = vec![Vec::new(); n];
    for &(from, to) in edges {
        sources[to].push(from);
    }
    let mut layers: Vec<usize> = Vec::with_capacity(n);
    for from in &sources {
        layers.push(from.iter().map(|&node| layers[node] + 1).max().unwrap_or(0));
    }
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); layers.iter().max().map_or(0, |most| most + 1)];
    for (node, &layer) in layers.iter().enumerate() {
        members[layer].push(node);
    }
    let mut xs = vec![0.0; n];
    for layer in &mut members {
        let wish: HashMap<usize, f64> = layer
            .iter()
            .map(|&node| {
                let from = &sources[node];
                (node, from.iter().map(|&source| xs[source]).sum::<f64>() / from.len().max(1) as f64)
            })
            .collect();
        layer.sort_by(|a, b| wish[a].total_cmp(&wish[b]).then(a.cmp(b)));
        let middle = (layer.len() as f64 - 1.0) / 2.0;
        for (place, &node) in layer.iter().enumerate() {
            xs[node] = place as f64 - middle;
        }
    }
    layers.into_iter().zip(xs).map(|(layer, x)| Spot { layer, x }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_lie_below_and_in_the_order_of_what_they_read() {
        // 0 and 1 feed 2 and 3 crosswise in number, 4 reads 2 and, past a layer, 0.
        let spots = layout(5, &[(1, 2), (0, 3), (2, 4), (0, 4)]);
        assert_eq!(spots.iter().map(|spot| spot.layer).collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
        assert!(spots[0].x < spots[1].x && spots[3].x < spots[2].x);
        assert_eq!(spots[4].x, 0.0);
        assert!(layout(0, &[]).is_empty());
    }
}
