//! Constants as the bytes of the weights section.

use std::collections::HashMap;
use std::sync::Arc;

use tilewright_digest::{Canonical, Digest};
use tilewright_graph::Tensor;
use tilewright_lower::evaluate::{interpret, operations, pack_by};
use tilewright_runtime::TensorView;
use tilewright_runtime::pool::Serial;
use tilewright_te::Func;
use tilewright_te::relayout::Relayout;

use crate::error::CompileError;
use crate::fold::{COMPILED_FROM, Compiled};
use crate::parallel;

/// A piece of the weights section.
#[derive(Clone, Debug)]
pub enum Weight {
    /// The bytes of a constant as they are.
    Tensor(Tensor),
    /// Bytes made at compile time.
    Packed(Vec<u8>),
}

impl Weight {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Weight::Tensor(tensor) => tensor.bytes().map_or(&[], |b| b.as_slice()),
            Weight::Packed(bytes) => bytes,
        }
    }
}

/// Packing functions that compute much, as machine code: those of weights of the same extents are the same function.
struct Packers {
    compiled: HashMap<Digest, Compiled>,
}

impl Packers {
    /// Compiles what packs these weights, on `jobs` threads.
    fn new(weights: &[tilewright_lower::Weight], jobs: usize) -> Result<Packers, CompileError> {
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

    /// Runs one packing function that does more than move elements.
    fn compute(&self, func: &Func, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let Some(compiled) = self.compiled.get(&func.digest()) else { return interpret(func, bytes) };
        let input = &func.buffers[func.params[0]];
        let dims: Vec<usize> =
            input.shape.iter().map(|extent| extent.as_int().unwrap_or_default() as usize).collect();
        let view = TensorView::new(input.dtype, &dims, bytes);
        let mut results = compiled.run(&[view], Arc::new(Serial)).map_err(|error| error.to_string())?;
        match results.len() {
            1 => Ok(results.remove(0)),
            n => Err(format!("a packing function gives one output, not {n}")),
        }
    }
}

/// Lays constants out as the functions that read them want, on `jobs` threads.
///
/// # Errors
/// Packing functions that fail: defects.
pub fn lay_out(weights: Vec<tilewright_lower::Weight>, jobs: usize) -> Result<Vec<Weight>, CompileError> {
    let packers = Packers::new(&weights, jobs)?;
    let one = |weight: &tilewright_lower::Weight| match &weight.packing[..] {
        [] => Ok(Weight::Tensor(weight.tensor.clone())),
        packing => {
            let packed = pack_by(packing, &weight.tensor, |func, bytes| packers.compute(func, bytes));
            packed.map(Weight::Packed).map_err(|error| CompileError::internal("weights", error))
        }
    };
    // The longest first: then no thread is left with one when the others are done.
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&n| std::cmp::Reverse(weights[n].packing.len() * weights[n].tensor.len()));
    let mut made: Vec<Option<Weight>> = vec![None; weights.len()];
    let results = parallel::map("weights", &order, jobs, &mut |_| {}, |&n| one(&weights[n]))?;
    for (n, weight) in order.into_iter().zip(results) {
        made[n] = Some(weight?);
    }
    Ok(made.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let by = |packers: Packers| packers.compute(&func, bytes).expect("bytes");
        assert_eq!(by(Packers { compiled }), by(Packers { compiled: HashMap::new() }));
    }
}
