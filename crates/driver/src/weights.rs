//! Constants as the bytes of the weights section, made when they are written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tilewright_digest::{Canonical, Digest};
use tilewright_lower::Weight;
use tilewright_lower::evaluate::{Compute, interpret, operations, pack_by};
use tilewright_runtime::TensorView;
use tilewright_runtime::artifact::{ContentsError, Pieces};
use tilewright_runtime::plan::ALIGN;
use tilewright_runtime::pool::Serial;
use tilewright_te::Func;
use tilewright_te::relayout::Relayout;

use crate::error::CompileError;
use crate::fold::{COMPILED_FROM, Compiled};
use crate::parallel::{self, Jobs};

/// Packing functions that compute much, as machine code: those of weights of the same extents are the same function.
#[derive(Default)]
struct Packers {
    compiled: HashMap<Digest, Compiled>,
}

impl Packers {
    /// Compiles what packs these weights.
    fn new(weights: &[Weight], jobs: &Jobs) -> Result<Packers, CompileError> {
        let mut funcs: HashMap<Digest, (Func, u64)> = HashMap::new();
        for func in weights.iter().flat_map(|weight| &weight.packing) {
            if Relayout::of(func).is_none() {
                let (_, total) = funcs.entry(func.digest()).or_insert_with(|| (func.clone(), 0));
                *total = total.saturating_add(operations(func));
            }
        }
        let many = funcs.into_iter().filter(|(_, (_, operations))| *operations >= COMPILED_FROM);
        let many: Vec<(Digest, Func)> = many.map(|(digest, (func, _))| (digest, func)).collect();
        let compiled =
            parallel::map("weights", &many, jobs, &mut |_| {}, |(_, func)| Compiled::new(func.clone()))?;
        let compiled = many.iter().zip(compiled).map(|((digest, _), compiled)| Ok((*digest, compiled?)));
        Ok(Packers { compiled: compiled.collect::<Result<_, CompileError>>()? })
    }

    /// Runs one packing function that does more than move elements; `then` on its result.
    fn compute(
        &self,
        func: &Func,
        bytes: &[u8],
        then: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(compiled) = self.compiled.get(&func.digest()) else { return then(&interpret(func, bytes)?) };
        let input = &func.buffers[func.params[0]];
        let dims: Vec<usize> =
            input.shape.iter().map(|extent| extent.as_int().unwrap_or_default() as usize).collect();
        let view = TensorView::new(input.dtype, &dims, bytes);
        let results = compiled.run(&[view], &(Arc::new(Serial) as _), |results| match results[..] {
            [result] => then(result),
            _ => Err(format!("a packing function gives one output, not {}", results.len())),
        });
        results.map_err(|error| error.to_string())?
    }
}

/// The weights section. Packed weights are made on several threads while those before them are written, in memory that is used again and
/// again: a model's weights are often more than all else that compiling it takes.
pub(crate) struct Weights {
    list: Vec<Weight>,
    packers: Packers,
    jobs: Jobs,
}

impl std::fmt::Debug for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Weights").field("list", &self.list).field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

/// Weights for each thread that may be packed before the first of them is written.
const AHEAD: usize = 2;

static ZEROS: [u8; ALIGN] = [0; ALIGN];

impl Weights {
    /// The weights in the order of their offsets; `jobs` say how they are packed.
    ///
    /// # Errors
    /// Packing functions that cannot be compiled: defects.
    pub(crate) fn new(list: Vec<Weight>, jobs: Jobs) -> Result<Weights, CompileError> {
        Ok(Weights { packers: Packers::new(&list, &jobs)?, list, jobs })
    }

    /// An error once the work was asked to stop.
    pub(crate) fn check(&self) -> Result<(), CompileError> {
        self.jobs.check()
    }

    fn pack(&self, weight: &Weight, packed: &mut Vec<u8>) -> Result<(), String> {
        let compute: Compute<'_> = &|func, bytes, then| self.packers.compute(func, bytes, then);
        pack_by(&weight.packing, &weight.tensor, packed, compute)
    }
}

impl Pieces for Weights {
    fn total(&self) -> usize {
        self.list.iter().map(|weight| weight.padded_bytes() as usize).sum()
    }

    fn each(&self, visit: &mut dyn FnMut(&[u8]) -> Result<(), ContentsError>) -> Result<(), ContentsError> {
        let idle: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
        let pack = |weight: &Weight| {
            if weight.packing.is_empty() {
                return Ok(None);
            }
            let mut packed = idle.lock().ok().and_then(|mut idle| idle.pop()).unwrap_or_default();
            self.pack(weight, &mut packed).map(|()| Some(packed))
        };
        let write = |n: usize, packed: Result<Option<Vec<u8>>, String>| {
            let (packed, weight) = (packed.map_err(ContentsError::Pieces)?, &self.list[n]);
            let bytes = match &packed {
                Some(packed) => packed,
                None => weight.tensor.bytes().map_or(&[][..], |bytes| bytes.as_slice()),
            };
            visit(bytes)?;
            visit(&ZEROS[..(weight.padded_bytes() as usize).saturating_sub(bytes.len())])?;
            if let (Some(packed), Ok(mut idle)) = (packed, idle.lock()) {
                idle.push(packed);
            }
            Ok(())
        };
        let failed = |error: CompileError| ContentsError::Pieces(error.to_string());
        parallel::in_order(
            "weights",
            &self.list,
            (&self.jobs, AHEAD * self.jobs.threads()),
            pack,
            write,
            failed,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_graph::Tensor;

    /// Sums and differences of neighbours, in double precision.
    const TRANSFORM: &str = "func transform(w: f32[999, 2]) -> (t: f32[2, 999]) {
  for i in 0..999 {
    block t(v: spatial 999 = i) {
      t[0, v] = cast.f32((cast.f64(w[v, 0]) + cast.f64(w[v, 1])))
      t[1, v] = cast.f32((cast.f64(w[v, 0]) - cast.f64(w[v, 1])))
    }
  }
}
";

    #[test]
    fn compiled_packing_gives_the_bits_of_the_interpreter() {
        let elements: Vec<f32> = (0..2 * 999).map(|i| (i as f32 * 0.37).sin()).collect();
        let tensor = Tensor::from_elements(&[999, 2], &elements).expect("a tensor");
        let func: Func = TRANSFORM.parse().expect("a function");
        let bytes = tensor.bytes().expect("elements").as_slice();
        let compiled = HashMap::from([(func.digest(), Compiled::new(func.clone()).expect("code"))]);
        let by = |packers: Packers| {
            let mut result = Vec::new();
            let take = &mut |bytes: &[u8]| {
                result = bytes.to_vec();
                Ok(())
            };
            packers.compute(&func, bytes, take).expect("bytes");
            result
        };
        assert_eq!(by(Packers { compiled }), by(Packers::default()));
    }
}
