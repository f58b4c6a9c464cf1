//! What a run takes and gives, as far as it follows from the extents of the inputs: for callers who bring the memory.

use alloc::sync::Arc;

use crate::artifact::tensor_bytes;
use crate::model::{Model, Program};
use crate::plan::SizeId;
use crate::session::fit_sizes;
use crate::sizes::Sizes;

/// What a run on inputs of some extents takes and gives.
pub struct Forecast {
    program: Arc<Program>,
    sizes: Sizes,
}

impl Model {
    /// What a run takes and gives for inputs of these extents, those of all of them concatenated; nothing where they do not fit.
    pub fn forecast(&self, dims: &[usize]) -> Option<Forecast> {
        let program = self.choose(dims).clone();
        let starts = &program.facts.dim_starts;
        let n_dims: usize = program.plan.inputs.iter().map(|spec| spec.dims.len()).sum();
        if dims.len() != n_dims {
            return None;
        }
        let mut sizes = Sizes::default();
        let dim = |input: u32, axis: u32| i64::try_from(dims[starts[input as usize] + axis as usize]).ok();
        sizes.evaluate(&program.plan.sizes, dim);
        let fits = fit_sizes(&program.plan, &sizes, starts, dims);
        fits.then_some(Forecast { program, sizes })
    }
}

impl Forecast {
    /// Bytes of arena and outputs, each in whole aligned pieces; nothing where they overflow. What is only sized while the model runs
    /// ([`Plan::sizes_memory`](crate::plan::Plan::sizes_memory)) comes on top.
    pub fn tensor_bytes(&self) -> Option<u64> {
        tensor_bytes(&self.program.plan, |id| self.count(id), Some(0))
    }

    /// The extent of an output along an axis; nothing where a run decides.
    pub fn output_dim(&self, output: usize, axis: usize) -> Option<u64> {
        self.count(self.program.plan.outputs.get(output)?.dims.get(axis)?.size)
    }

    fn count(&self, id: SizeId) -> Option<u64> {
        u64::try_from(self.sizes.get(id)?).ok()
    }
}
