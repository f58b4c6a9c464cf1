//! What the user says about an import.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_graph::Range;

/// What the user says about an open extent of the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimOption {
    /// It always has this value.
    Fixed(i64),
    /// It stays open, within a range.
    Range(Range),
}

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Open extents by name; an extent without a name is called `INPUT[AXIS]`.
    pub dims: BTreeMap<String, DimOption>,
    /// Initializers that are also graph inputs and stay inputs, instead of becoming constants.
    pub runtime_initializers: BTreeSet<String>,
}
