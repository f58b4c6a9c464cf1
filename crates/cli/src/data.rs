//! Tensors in and out: an `.npz` file, a folder of protobuf messages, or seeded noise.

use std::path::Path;

use tilewright::DType;
use tilewright::graph::Tensor;

use crate::failure::{Exit, Failure};
use crate::spec::{Extent, Spec};
use crate::value::{Named, Value};
use crate::{npz, pb};

/// Reads inputs from an `.npz` or a folder. What the model does not know comes along, for its complaint.
pub(crate) fn read_inputs(path: &Path, specs: &[Spec]) -> Result<Named, Failure> {
    if path.is_dir() { pb::read_inputs(path, specs) } else { read_npz(path, specs) }
}

/// Reads expected outputs from an `.npz` or a folder.
pub(crate) fn read_outputs(path: &Path, specs: &[Spec]) -> Result<Named, Failure> {
    if path.is_dir() { pb::read_outputs(path, specs) } else { read_npz(path, specs) }
}

fn read_npz(path: &Path, specs: &[Spec]) -> Result<Named, Failure> {
    let arrays = npz::read(path, &|name| dtype(specs, name))?;
    Ok(arrays.into_iter().map(|(name, tensor)| (name, Value::Tensor(tensor))).collect())
}

/// Writes outputs to an `.npz`, if the name ends so, else to a folder.
pub(crate) fn write_outputs(path: &Path, outputs: &Named) -> Result<(), Failure> {
    let is_npz = path.extension().is_some_and(|extension| extension == "npz") && !path.is_dir();
    if !is_npz {
        return pb::write_outputs(path, outputs);
    }
    let array = |(name, value): &(String, Value)| match value.as_tensor() {
        Some(tensor) => Ok((name.clone(), tensor.clone())),
        None => {
            let message =
                format!("output {name:?} is {}, which .npz cannot carry: give a folder", value.form());
            Err(Failure::new(Exit::Unsupported, message))
        }
    };
    npz::write(path, &outputs.iter().map(array).collect::<Result<Vec<_>, _>>()?)
}

fn dtype(specs: &[Spec], name: &str) -> Option<DType> {
    specs.iter().find(|spec| spec.name == name).map(|spec| spec.dtype)
}

/// The extents that noise has: those of the spec, with 1 for an open batch.
///
/// # Errors
/// Where another extent is open: no number would be a fair guess.
fn noise_dims(spec: &Spec) -> Result<Vec<usize>, Failure> {
    let extent = |dim: &Extent| match dim {
        Extent::Fixed(n) => usize::try_from(*n).map_err(Failure::data),
        Extent::Open(name) if name.to_ascii_lowercase().starts_with("batch") => Ok(1),
        Extent::Open(name) => {
            let dim = if name.is_empty() { "NAME" } else { name };
            Err(Failure::usage(format!(
                "input {spec} has an open extent: give --inputs, or fix it with --dim {dim}=N on the ONNX file"
            )))
        }
    };
    let unranked = || Failure::usage(format!("no noise for input {spec}: give --inputs"));
    spec.dims.as_ref().ok_or_else(unranked)?.iter().map(extent).collect()
}

/// Seeded noise for every input: floats of a normal distribution, integers and truth values 0 or 1, which
/// are valid as ids and as masks of any model.
pub(crate) fn noise(specs: &[Spec]) -> Result<Named, Failure> {
    let mut random = Random(0);
    let value = |spec: &Spec| Ok((spec.name.clone(), Value::Tensor(noise_tensor(spec, &mut random)?)));
    specs.iter().map(value).collect()
}

fn noise_tensor(spec: &Spec, random: &mut Random) -> Result<Tensor, Failure> {
    if !spec.is_plain() {
        return Err(Failure::usage(format!("no noise for input {spec}: give --inputs")));
    }
    let dims = noise_dims(spec)?;
    let count = dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
    let count = count.ok_or_else(|| Failure::data(format!("input {spec} is too large")))?;
    let unsupported = || Failure::usage(format!("no noise for input {spec}: give --inputs"));
    let mut bytes = Vec::new();
    for _ in 0..count {
        let value = if spec.dtype.is_float() { random.normal() } else { (random.next() & 1) as f64 };
        let element = Tensor::scalar_of(spec.dtype, value).ok_or_else(unsupported)?;
        bytes.extend_from_slice(element.bytes().ok_or_else(unsupported)?.as_slice());
    }
    Tensor::from_bytes(spec.dtype, dims, bytes.into()).map_err(Failure::data)
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
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
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let values = tensor.to_f64s().unwrap();
        let mean = values.iter().sum::<f64>() / 1000.0;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / 1000.0;
        assert!(mean.abs() < 0.1 && (variance - 1.0).abs() < 0.15, "{mean} {variance}");
        let noise = noise(&[spec(DType::I64, vec![Extent::Fixed(50)])]).unwrap();
        let ids = noise[0].1.as_tensor().unwrap().to_i64s().unwrap();
        assert!(ids.contains(&0) && ids.contains(&1) && ids.iter().all(|id| (0..2).contains(id)));
    }

    #[test]
    fn an_open_extent_that_is_no_batch_needs_a_number() {
        let failure = noise(&[spec(DType::F32, vec![Extent::Open("seq".into())])]).unwrap_err();
        assert_eq!(failure.code, 2);
        assert!(failure.message.contains("give --inputs, or fix it with --dim seq=N"), "{}", failure.message);
    }
}
