//! What functions are flattened with for a target.

use tilewright_machine::Target;
use tilewright_te::flatten::FlattenOptions;

/// Bytes of a float of single precision, the type of what multiply-adds take.
const FLOAT: usize = 4;

/// The options for the processor of a target.
pub fn flatten_options(target: &Target) -> FlattenOptions {
    let lanes = target.element_lanes(FLOAT);
    FlattenOptions {
        masked_access: target.masked_access(),
        element_vector: (lanes > 1).then_some(lanes * FLOAT as u32),
        computes_narrow: target.machine.arch.pointer_bits() == 32,
        ..FlattenOptions::PLAIN
    }
}
