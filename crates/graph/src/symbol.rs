//! Symbols: the named unknown extents of a graph.

use std::collections::HashMap;
use std::ops::Index;

use cranelift_entity::PrimaryMap;

use crate::ids::SymbolId;

/// Where a symbol's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SymbolKind {
    /// Bound by the shape of a graph input before the first node runs.
    Input,
    /// Known only after a node has run (the count of `NonZero`, a reshape target that arrives as a tensor).
    /// The symbol's definition is the first output, in topological order, with an extent equal to it.
    Computed,
}

/// The values a symbol may take: `lo, lo + step, ..`, up to `hi` inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// Least value; never negative.
    pub lo: i64,
    /// Greatest value, if bounded.
    pub hi: Option<i64>,
    /// Distance of neighbouring values; at least 1.
    pub step: i64,
}

impl Range {
    /// Every non-negative integer.
    pub const ANY: Range = Range { lo: 0, hi: None, step: 1 };

    /// Whether `value` is one of the range's values.
    pub fn contains(&self, value: i64) -> bool {
        value >= self.lo && self.hi.is_none_or(|hi| value <= hi) && (value - self.lo) % self.step == 0
    }
}

/// A named unknown extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Unique within the graph.
    pub name: String,
    /// Where its value comes from.
    pub kind: SymbolKind,
    /// What is known about its value.
    pub range: Range,
}

/// All symbols of a graph, by id and by name.
#[derive(Clone, Debug, Default)]
pub struct SymbolTable {
    symbols: PrimaryMap<SymbolId, Symbol>,
    by_name: HashMap<String, SymbolId>,
}

impl SymbolTable {
    /// The symbol called `name`, created as an unbounded symbol of `kind` if there is none.
    pub fn intern(&mut self, name: &str, kind: SymbolKind) -> SymbolId {
        if let Some(&symbol) = self.by_name.get(name) {
            return symbol;
        }
        let symbol = self.symbols.push(Symbol { name: name.to_owned(), kind, range: Range::ANY });
        self.by_name.insert(name.to_owned(), symbol);
        symbol
    }

    /// A new symbol whose name starts with `stem`.
    pub fn fresh(&mut self, stem: &str, kind: SymbolKind) -> SymbolId {
        let mut name = stem.to_owned();
        let mut suffix = self.symbols.len();
        while self.by_name.contains_key(&name) {
            name = format!("{stem}_{suffix}");
            suffix += 1;
        }
        self.intern(&name, kind)
    }

    /// The symbol called `name`.
    pub fn find(&self, name: &str) -> Option<SymbolId> {
        self.by_name.get(name).copied()
    }

    /// Restricts a symbol's values.
    pub fn set_range(&mut self, symbol: SymbolId, range: Range) {
        self.symbols[symbol].range = range;
    }

    /// Every symbol with its id, in order of creation.
    pub fn iter(&self) -> impl Iterator<Item = (SymbolId, &Symbol)> {
        self.symbols.iter()
    }
}

impl Index<SymbolId> for SymbolTable {
    type Output = Symbol;

    fn index(&self, symbol: SymbolId) -> &Symbol {
        &self.symbols[symbol]
    }
}
