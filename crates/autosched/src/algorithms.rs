//! The algorithms of a function, by what the model has each cost.

use std::collections::BTreeSet;

use tilewright_machine::Target;
use tilewright_te::computation::DIRECT;
use tilewright_te::{Computation, Func, Var};

use crate::context::Context;
use crate::decisions::Candidate;
use crate::model::machine::memory_cycles;
use crate::pattern::bytes_of;
use crate::prepare::Prepared;
use crate::rule::RuleSet;

/// What is taken at least for an open extent with whose square a temporary grows, as the scores of attention do: only where it is long does it
/// matter which algorithm is taken.
const SQUARED: i64 = 1024;

/// The algorithms of a function, prepared: they may be priced for several machines that differ in their timing alone.
#[derive(Clone, Debug)]
pub struct Algorithms {
    constant_inputs: Vec<bool>,
    direct: Prepared,
    variants: Vec<Variant>,
    /// By size variable, whether a temporary of the direct one grows with its square.
    squared: Vec<bool>,
}

/// Another algorithm than the direct one.
#[derive(Clone, Debug)]
struct Variant {
    algorithm: String,
    prepared: Prepared,
    /// Bytes of constants that it needs more than the direct one.
    added: f64,
}

impl Algorithms {
    /// Prepares the functions of a computation.
    pub fn new(computation: &Computation, target: &Target) -> Algorithms {
        let constants = |func: &Func| constant_bytes(func, &computation.constant_inputs);
        let direct = constants(&computation.func);
        let variant = |variant: &tilewright_te::Variant| Variant {
            algorithm: variant.algorithm.clone(),
            prepared: Prepared::new(&variant.func, computation, target),
            added: (constants(&variant.func) - direct).max(0.0),
        };
        Algorithms {
            constant_inputs: computation.constant_inputs.clone(),
            direct: Prepared::new(&computation.func, computation, target),
            variants: computation.variants.iter().map(variant).collect(),
            squared: squared(&computation.func),
        }
    }

    /// The algorithms by their cost in cycles on one core, the lowest first; none where the rules have a price for the direct one at most.
    pub(crate) fn candidates<S>(&self, rules: &RuleSet<S>, target: &Target) -> Vec<Candidate<String>> {
        let price = |prepared: &Prepared| {
            let (func, layouts, taken) = (prepared.func(), &prepared.layouts, BTreeSet::new());
            let constant_inputs = &self.constant_inputs[..];
            // Beside the sides of an image it is how many images there are.
            let is_of_image = func.sizes.iter().any(|&size| func.typical(size).is_some());
            let unknown = if is_of_image { 1 } else { rules.open };
            let extent = |size: Var| {
                let is_squared =
                    func.sizes.iter().zip(&self.squared).any(|(own, squared)| *own == size && *squared);
                let open = func.typical(size).unwrap_or(unknown);
                if is_squared { open.max(SQUARED) } else { open }
            };
            let known = (!func.sizes.is_empty()).then(|| func.with_sizes(extent));
            let context = &Context { target, func, layouts, constant_inputs, taken: &taken };
            (rules.price)(context, known.as_ref().unwrap_or(func))
        };
        let candidate = |name: &str, cost: f64| Candidate {
            value: name.to_string(),
            cost,
            features: vec![("algorithm.cost", cost.log2())],
        };
        let of_variant = |variant: &Variant| {
            // What it adds to constants has to be worth its way from memory, and its place there.
            let cost = price(&variant.prepared)? + memory_cycles(target, variant.added);
            Some(candidate(&variant.algorithm, cost))
        };
        let mut candidates: Vec<_> = self.variants.iter().filter_map(of_variant).collect();
        if !candidates.is_empty() {
            // What the model cannot tell is not among what there are good rules for.
            candidates.insert(0, candidate(DIRECT, price(&self.direct).unwrap_or(f64::INFINITY)));
            candidates.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        }
        candidates
    }

    /// The function of an algorithm, the direct one's where there is none of that name.
    pub(crate) fn into_prepared(self, algorithm: &str) -> Prepared {
        let variant = self.variants.into_iter().find(|variant| variant.algorithm == algorithm);
        variant.map_or(self.direct, |variant| variant.prepared)
    }
}

/// By size variable, whether a temporary grows with its square.
fn squared(func: &Func) -> Vec<bool> {
    let is_squared = |size: &Var| {
        let times = |buffer| {
            func.buffers[buffer].shape.iter().filter(|extent| extent.as_var() == Some(*size)).count()
        };
        func.workspaces().any(|buffer| times(buffer) > 1)
    };
    func.sizes.iter().map(is_squared).collect()
}

/// Bytes of a function's constants; those of open extents count for nothing.
fn constant_bytes(func: &Func, constant_inputs: &[bool]) -> f64 {
    let constants = func.params.iter().zip(constant_inputs).filter(|(_, is_constant)| **is_constant);
    constants.filter_map(|(&buffer, _)| bytes_of(func, buffer)).map(|bytes| bytes as f64).sum()
}
