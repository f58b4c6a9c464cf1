//! The condensation of a region under fusion: its groups so far, and which group reads from which.
//!
//! Groups may be joined where the condensation stays without cycles. A group depends on another where a breadth-first search against
//! the edges finds it. Nodes are grouped in topological order, so what depends on a group has a node behind the group's first one: all
//! other groups are left out of the search, which therefore ends at once where a node joins what was computed just before.

use std::cell::Cell;

use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::{Bfs, NodeFiltered, Reversed, VisitMap, Visitable};

/// Groups that a search looks at before it takes for granted that there is a dependence.
pub const MAX_FOLLOWED: usize = 1 << 12;

/// Where the nodes of a group are in the region.
#[derive(Clone, Copy)]
struct Span {
    first: usize,
    last: usize,
}

/// Groups by number, and an edge from each to those that read its results or extents that it defines.
#[derive(Default)]
pub(super) struct Condensation {
    graph: DiGraph<Span, ()>,
    /// Groups that searches have looked at.
    followed: Cell<usize>,
}

impl Condensation {
    /// A new group of the node at `place` of the region, under the next number.
    pub(super) fn add(&mut self, place: usize) {
        self.graph.add_node(Span { first: place, last: place });
    }

    /// Notes that `group` reads from `from`.
    pub(super) fn read(&mut self, group: usize, from: usize) {
        self.graph.add_edge(NodeIndex::new(from), NodeIndex::new(group), ());
    }

    /// The groups that a group reads from; one from which it reads several values comes several times.
    pub(super) fn operands(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        self.graph.neighbors_directed(NodeIndex::new(group), Direction::Incoming).map(NodeIndex::index)
    }

    /// The groups that read from a group; one that reads several values comes several times.
    pub(super) fn users(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        self.graph.neighbors(NodeIndex::new(group)).map(NodeIndex::index)
    }

    /// The place of a group's last node.
    pub(super) fn last(&self, group: usize) -> usize {
        self.graph[NodeIndex::new(group)].last
    }

    /// How many groups searches have looked at.
    pub(super) fn followed(&self) -> usize {
        self.followed.get()
    }

    /// Whether one of some groups, `readers`, is or depends on one of `joined`, or that would take looking at more than
    /// [`MAX_FOLLOWED`] groups to find out.
    pub(super) fn depends(&self, readers: impl Iterator<Item = usize>, joined: &[usize]) -> bool {
        let spans = joined.iter().map(|&group| self.graph[NodeIndex::new(group)]);
        let first = spans.map(|span| span.first).min().unwrap_or(0);
        let mut readers =
            readers.map(NodeIndex::new).filter(|&group| self.graph[group].last >= first).peekable();
        if readers.peek().is_none() {
            return false;
        }
        let behind = NodeFiltered::from_fn(Reversed(&self.graph), |group| self.graph[group].last >= first);
        let mut search = Bfs { stack: readers.collect(), discovered: self.graph.visit_map() };
        search.stack.retain(|&group| search.discovered.visit(group));
        for _ in 0..MAX_FOLLOWED {
            let Some(group) = search.next(&behind) else { return false };
            self.followed.set(self.followed.get() + 1);
            if joined.contains(&group.index()) {
                return true;
            }
        }
        true
    }

    /// Makes the node at `place` of the region one of a group.
    pub(super) fn extend(&mut self, group: usize, place: usize) {
        let span = &mut self.graph[NodeIndex::new(group)];
        *span = Span { first: span.first.min(place), last: span.last.max(place) };
    }

    /// Joins a group to another one, which gets its operands and its users; its number is free of edges then.
    pub(super) fn join(&mut self, from: usize, into: usize) {
        let [from, into] = [from, into].map(NodeIndex::new);
        while let Some(edge) = self.graph.first_edge(from, Direction::Incoming) {
            let operand = self.graph.edge_endpoints(edge).map(|(operand, _)| operand);
            self.graph.remove_edge(edge);
            operand.filter(|&operand| operand != into).map(|operand| self.graph.add_edge(operand, into, ()));
        }
        while let Some(edge) = self.graph.first_edge(from, Direction::Outgoing) {
            let user = self.graph.edge_endpoints(edge).map(|(_, user)| user);
            self.graph.remove_edge(edge);
            user.filter(|&user| user != into).map(|user| self.graph.add_edge(into, user, ()));
        }
        let Span { first, last } = self.graph[from];
        self.extend(into.index(), first);
        self.extend(into.index(), last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of one node each, with what each reads.
    fn condensation(operands: &[&[usize]]) -> Condensation {
        let mut condensation = Condensation::default();
        (0..operands.len()).for_each(|group| condensation.add(group));
        for (group, operands) in operands.iter().enumerate() {
            operands.iter().for_each(|&operand| condensation.read(group, operand));
        }
        condensation
    }

    #[test]
    fn dependences_are_found_through_groups_and_only_there() {
        let condensation = condensation(&[&[], &[], &[0], &[1], &[2, 3]]);
        let depends = |reader: usize, joined: &[usize]| condensation.depends([reader].into_iter(), joined);
        assert!(depends(4, &[0]) && depends(4, &[1]) && depends(2, &[0]) && depends(2, &[1, 0]));
        assert!(!depends(2, &[1]) && !depends(3, &[0]) && !depends(0, &[4]));
    }

    /// 0 and 3 are one group, so that 2 depends on it by a node that is behind 1, and 4 on 1.
    #[test]
    fn joined_groups_have_the_edges_of_both() {
        let mut condensation = condensation(&[&[], &[], &[3], &[], &[0], &[1]]);
        condensation.read(3, 1);
        condensation.join(3, 0);
        let depends = |reader: usize, joined: usize| condensation.depends([reader].into_iter(), &[joined]);
        assert!(depends(2, 0) && depends(4, 0) && depends(4, 1) && depends(2, 1));
        assert!(!depends(5, 0) && !depends(1, 0));
        assert_eq!(condensation.operands(0).collect::<Vec<_>>(), [1]);
        assert_eq!(condensation.users(3).count() + condensation.operands(3).count(), 0);
        assert_eq!(condensation.last(0), 3);
    }

    #[test]
    fn what_lies_before_the_joined_groups_is_not_looked_at() {
        let long: Vec<Vec<usize>> =
            (0..100).map(|group: usize| group.checked_sub(1).into_iter().collect()).collect();
        let mut condensation = condensation(&long.iter().map(Vec::as_slice).collect::<Vec<_>>());
        condensation.add(100);
        assert!(!condensation.depends([99].into_iter(), &[100]));
        assert_eq!(condensation.followed(), 0);
    }
}
