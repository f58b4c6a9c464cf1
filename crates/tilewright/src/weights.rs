//! Constants as the bytes of the weights section.

use tilewright_graph::Tensor;
use tilewright_lower::evaluate::pack;

use crate::error::CompileError;
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

/// Lays constants out as the functions that read them want, on `jobs` threads.
///
/// # Errors
/// Packing functions that fail: defects.
pub fn lay_out(weights: Vec<tilewright_lower::Weight>, jobs: usize) -> Result<Vec<Weight>, CompileError> {
    let one = |weight: &tilewright_lower::Weight| match &weight.packing[..] {
        [] => Ok(Weight::Tensor(weight.tensor.clone())),
        packing => match pack(packing, &weight.tensor) {
            Ok(bytes) => Ok(Weight::Packed(bytes)),
            Err(error) => Err(CompileError::internal("weights", error)),
        },
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
