//! Topological order, and the cycles that stand in its way.

use std::collections::BTreeSet;

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};

/// The order in which nodes can run, as far as there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The nodes that can run, each after all that it waits for.
    pub sorted: Vec<usize>,
    /// The cycles: strongly connected components of several nodes, or of one that waits for itself. Each is in ascending order.
    pub cycles: Vec<Vec<usize>>,
    /// The nodes that cannot run: those of cycles, and all that wait for them, in ascending order.
    pub blocked: Vec<usize>,
}

/// Sorts nodes `0..users.len()`, where the nodes `users[n]` wait for node `n`; of those that are ready the one of least `rank`
/// comes first (Kahn, "Topological sorting of large networks", 1962). With the nodes' present places as ranks, an order that
/// is topological already stays. Cycles are found by Tarjan's algorithm. Linear in nodes and edges, but for the
/// logarithm of the number of ready nodes.
pub fn topological_order(users: &[Vec<usize>], rank: impl Fn(usize) -> usize) -> Order {
    let mut waiting = vec![0usize; users.len()];
    users.iter().flatten().for_each(|&user| waiting[user] += 1);
    let mut ready: BTreeSet<(usize, usize)> =
        (0..users.len()).filter(|&node| waiting[node] == 0).map(|node| (rank(node), node)).collect();
    let mut order = Order::default();
    while let Some((_, node)) = ready.pop_first() {
        order.sorted.push(node);
        for &user in &users[node] {
            waiting[user] -= 1;
            if waiting[user] == 0 {
                ready.insert((rank(user), user));
            }
        }
    }
    if order.sorted.len() < users.len() {
        order.blocked = (0..users.len()).filter(|&node| waiting[node] > 0).collect();
        order.cycles = cycles(users, &order.blocked);
    }
    order
}

/// The cycles among some of the nodes.
fn cycles(users: &[Vec<usize>], among: &[usize]) -> Vec<Vec<usize>> {
    let mut graph: DiGraph<usize, ()> = DiGraph::with_capacity(among.len(), among.len());
    for &node in among {
        graph.add_node(node);
    }
    for (from, &node) in among.iter().enumerate() {
        for user in &users[node] {
            if let Ok(to) = among.binary_search(user) {
                graph.add_edge(NodeIndex::new(from), NodeIndex::new(to), ());
            }
        }
    }
    let is_cycle = |component: &Vec<NodeIndex>| match component[..] {
        [only] => graph.contains_edge(only, only),
        _ => true,
    };
    let nodes = |component: Vec<NodeIndex>| {
        let mut nodes: Vec<usize> = component.into_iter().map(|index| graph[index]).collect();
        nodes.sort_unstable();
        nodes
    };
    let mut cycles: Vec<Vec<usize>> = tarjan_scc(&graph).into_iter().filter(is_cycle).map(nodes).collect();
    cycles.sort();
    cycles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(users: &[&[usize]]) -> Order {
        let users: Vec<Vec<usize>> = users.iter().map(|users| users.to_vec()).collect();
        topological_order(&users, |node| node)
    }

    #[test]
    fn an_order_stays_where_it_is_one() {
        assert_eq!(order(&[&[1, 2], &[3], &[3], &[]]).sorted, [0, 1, 2, 3]);
        assert_eq!(order(&[&[], &[0], &[1]]).sorted, [2, 1, 0]);
        assert_eq!(order(&[]), Order::default());
    }

    #[test]
    fn the_ready_node_of_least_rank_comes_first() {
        let users = vec![Vec::new(); 4];
        assert_eq!(topological_order(&users, |node| 4 - node).sorted, [3, 2, 1, 0]);
    }

    /// What is behind a cycle, or between two, is on none.
    #[test]
    fn cycles_are_told_from_what_waits_for_them() {
        let found = order(&[&[1], &[2], &[1, 3], &[4], &[5], &[4, 6], &[6], &[]]);
        assert_eq!(found.sorted, [0, 7]);
        assert_eq!(found.cycles, [vec![1, 2], vec![4, 5], vec![6]]);
        assert_eq!(found.blocked, [1, 2, 3, 4, 5, 6]);
    }
}
