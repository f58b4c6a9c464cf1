//! How many elements values take in memory, as the scheduled functions that write and read them have it.
//!
//! A layout in blocks rounds extents up, so a value may take more elements than its type has. The functions'
//! parameters say how many, and nothing else does.

use rustc_hash::FxHashMap;
use tilewright_graph::dim::Dim;
use tilewright_graph::{Graph, ValueId};

use super::compiled::CompiledFunc;
use crate::dims::dim_of;
use crate::error::LowerError;
use crate::program::{Program, Step};

/// Elements of every value that a function writes or reads as it lies in memory.
///
/// # Errors
/// Functions that take the same value to be of different sizes, all of them: a defect of their schedules.
pub(super) fn stored_elements(
    graph: &Graph,
    program: &Program,
    compiled: &[CompiledFunc],
) -> Result<FxHashMap<ValueId, Dim>, LowerError> {
    let mut stored: FxHashMap<ValueId, (Dim, &str)> = FxHashMap::default();
    let mut problems = Vec::new();
    for step in program.regions.values().flatten() {
        let Step::Call { func, inputs, outputs, sizes, .. } = step else { continue };
        let CompiledFunc { func: scheduled, packing, .. } = &compiled[*func];
        let name = program.funcs[*func].computation.func.name.as_str();
        let (params_in, params_out) = scheduled.params.split_at(scheduled.n_inputs);
        // What is packed lies in memory in another form for each function.
        let read = params_in.iter().zip(inputs).zip(packing).filter(|(_, packing)| packing.is_empty());
        for (param, value) in read.map(|(pair, _)| pair).chain(params_out.iter().zip(outputs)) {
            let data = &scheduled.buffers[*param];
            let extents = data.shape.iter().map(|extent| dim_of(scheduled, sizes, extent));
            let Some(extents) = extents.collect::<Option<Vec<Dim>>>() else {
                problems.push(format!("`{name}`: `{}` has an extent that is no size", data.name));
                continue;
            };
            let elements = Dim::product(&extents);
            match stored.get(value) {
                Some((known, other)) if (known - &elements).as_const().is_some_and(|n| n != 0) => {
                    let [known, elements] = [known, &elements].map(|n| n.display(&graph.symbols).to_string());
                    problems.push(format!(
                        "{value} has {known} elements for `{other}` and {elements} for `{name}`"
                    ));
                }
                Some(_) => {}
                None => {
                    stored.insert(*value, (elements, name));
                }
            }
        }
    }
    match problems.is_empty() {
        true => Ok(stored.into_iter().map(|(value, (elements, _))| (value, elements)).collect()),
        false => Err(LowerError::Internal(problems.join("; "))),
    }
}
