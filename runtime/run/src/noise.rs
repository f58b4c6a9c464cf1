//! Seeded noise in place of inputs.

use tilewright_dtype::numbers;
use tilewright_runtime::{Tensor, TensorError, Value};

use crate::spec::{Extent, Spec};
use crate::values::Named;

/// Why there is no noise for an input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoiseError {
    /// An extent that is open and no batch: no number would be a fair guess.
    #[error("input {input} has an open extent")]
    OpenExtent {
        /// The input with its type.
        input: String,
        /// The extent; empty where it has no name.
        dim: String,
    },
    /// A value that is not a tensor of numbers of known rank.
    #[error("no noise for input {input}")]
    Unsupported {
        /// The input with its type.
        input: String,
    },
    /// Extents that no machine can hold, or no memory.
    #[error("input {input}: {error}")]
    Tensor {
        /// The input with its type.
        input: String,
        /// What does not fit.
        error: TensorError,
    },
}

/// Seeded noise for every input, the same every time: floats of a normal distribution, integers and truth values 0 or 1,
/// which are valid as ids and as masks of any model. An open extent whose name begins with `batch` is 1.
///
/// # Errors
/// For an input of which nobody can say what would do.
pub fn noise(specs: &[Spec]) -> Result<Named, NoiseError> {
    let mut random = Random(0);
    let value = |spec: &Spec| Ok((spec.name.clone(), Value::from(tensor(spec, &mut random)?)));
    specs.iter().map(value).collect()
}

fn tensor(spec: &Spec, random: &mut Random) -> Result<Tensor, NoiseError> {
    let unsupported = || NoiseError::Unsupported { input: spec.to_string() };
    let fault = |error| NoiseError::Tensor { input: spec.to_string(), error };
    let Some(extents) = spec.dims.as_ref().filter(|_| spec.is_plain()) else { return Err(unsupported()) };
    let dims = extents.iter().map(|dim| extent(spec, dim)).collect::<Result<Vec<_>, _>>()?;
    let mut tensor = Tensor::zeros(spec.dtype, &dims).map_err(fault)?;
    let mut element = Vec::new();
    for place in tensor.bytes_mut().chunks_exact_mut(spec.dtype.bytes()) {
        let value = if spec.dtype.is_float() { random.normal() } else { (random.next() & 1) as f64 };
        element.clear();
        if !numbers::append(spec.dtype, value, &mut element) {
            return Err(unsupported());
        }
        place.copy_from_slice(&element);
    }
    Ok(tensor)
}

fn extent(spec: &Spec, dim: &Extent) -> Result<usize, NoiseError> {
    match dim {
        Extent::Fixed(n) => {
            usize::try_from(*n).map_err(|_| NoiseError::Unsupported { input: spec.to_string() })
        }
        Extent::Open(name) if name.to_ascii_lowercase().starts_with("batch") => Ok(1),
        Extent::Open(name) => Err(NoiseError::OpenExtent { input: spec.to_string(), dim: name.clone() }),
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Of the standard normal distribution (Box, Muller 1958).
    fn normal(&mut self) -> f64 {
        // The same bits on every machine.
        (-2.0 * libm::log(self.unit())).sqrt() * libm::cos(std::f64::consts::TAU * self.unit())
    }
}

#[cfg(test)]
mod tests {
    use tilewright_dtype::DType;

    use super::*;
    use crate::values::{to_f64s, to_i64s};

    fn spec(dtype: DType, dims: Vec<Extent>) -> Spec {
        Spec { name: "x".to_string(), nesting: vec![], dtype, dims: Some(dims) }
    }

    #[test]
    fn noise_is_the_same_every_time_and_spread() {
        let specs = [spec(DType::F32, vec![Extent::Open("batch".into()), Extent::Fixed(1000)])];
        let first = noise(&specs).unwrap();
        assert_eq!(first, noise(&specs).unwrap());
        let tensor = first[0].1.as_tensor().unwrap();
        assert_eq!(tensor.dims(), [1, 1000]);
        let values = to_f64s(tensor).unwrap();
        let mean = values.iter().sum::<f64>() / 1000.0;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / 1000.0;
        assert!(mean.abs() < 0.1 && (variance - 1.0).abs() < 0.15, "{mean} {variance}");
        let noise = noise(&[spec(DType::I64, vec![Extent::Fixed(50)])]).unwrap();
        let ids = noise[0].1.as_tensor().and_then(to_i64s).unwrap();
        assert!(ids.contains(&0) && ids.contains(&1) && ids.iter().all(|id| (0..2).contains(id)));
    }

    #[test]
    fn what_nobody_can_guess_is_an_error() {
        let error = noise(&[spec(DType::F32, vec![Extent::Open("seq".into())])]).unwrap_err();
        assert_eq!(error, NoiseError::OpenExtent { input: "x: f32[seq]".into(), dim: "seq".into() });
        let error = noise(&[spec(DType::String, vec![Extent::Fixed(1)])]).unwrap_err();
        assert_eq!(error.to_string(), "no noise for input x: string[1]");
        let huge = spec(DType::F32, vec![Extent::Fixed(i64::MAX); 2]);
        assert!(matches!(
            noise(&[huge]),
            Err(NoiseError::Tensor { error: TensorError::TooLarge { .. }, .. })
        ));
    }
}
