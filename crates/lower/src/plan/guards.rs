//! Guards that are not in the plan yet.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use tilewright_graph::{Graph, RegionId, SymbolId};

use crate::sizes::SizeTable;

/// The graph's guards that wait for values of extents. Each watches one symbol without a value, as clauses watch literals in
/// solvers of satisfiability, so that a new value concerns only the guards that watch it.
pub(super) struct PendingGuards {
    watching: FxHashMap<SymbolId, Vec<usize>>,
    /// Guards of each region all of whose symbols have values.
    ready: FxHashMap<RegionId, BTreeSet<usize>>,
    /// How many of the values there are have been looked at.
    n_seen: usize,
}

impl PendingGuards {
    pub(super) fn of(graph: &Graph) -> PendingGuards {
        let mut pending =
            PendingGuards { watching: FxHashMap::default(), ready: FxHashMap::default(), n_seen: 0 };
        (0..graph.guards.len()).for_each(|index| pending.wait(graph, index, &|_| false));
        pending
    }

    /// Takes the first guard of a region that can be checked now.
    pub(super) fn next(&mut self, graph: &Graph, region: RegionId, sizes: &SizeTable) -> Option<usize> {
        while let Some(symbol) = sizes.bound().get(self.n_seen) {
            self.n_seen += 1;
            for index in self.watching.remove(symbol).unwrap_or_default() {
                self.wait(graph, index, &|symbol| sizes.symbol(symbol).is_some());
            }
        }
        self.ready.get_mut(&region)?.pop_first()
    }

    fn wait(&mut self, graph: &Graph, index: usize, has_value: &dyn Fn(SymbolId) -> bool) {
        let guard = &graph.guards[index];
        let symbols = guard.left.symbols().into_iter().chain(guard.right.symbols());
        match symbols.into_iter().find(|&symbol| !has_value(symbol)) {
            Some(symbol) => self.watching.entry(symbol).or_default().push(index),
            None => {
                self.ready.entry(guard.region).or_default().insert(index);
            }
        }
    }
}
