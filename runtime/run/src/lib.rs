//! What a program that runs compiled models needs beside the runtime, and nothing of the compiler: the types of a model's
//! inputs and outputs, models that any thread runs, named values, seeded noise, comparison, times and profiles of runs, what
//! artifacts are made of, tensors in files, and models on other machines.
//!
//! # Features
//! - `host-operators`: models with host operators: sequences, selection by data, random numbers.
//! - `files`: [`files`], which needs the protobuf messages of ONNX and zip archives.
//! - `measure`: [`measure`], measurements of schedules for tuning.
//! - `remote`: [`remote`], which needs the network, and random numbers and signals of the system.
//! - `ndarray`: arrays of that crate are inputs, and outputs are seen as arrays or become some.

pub mod bench;
pub mod compare;
pub mod exit;
#[cfg(feature = "files")]
pub mod files;
pub mod inspect;
mod load;
#[cfg(feature = "measure")]
pub mod measure;
mod model;
pub mod noise;
mod outputs;
pub mod profile;
mod ranges;
#[cfg(feature = "remote")]
pub mod remote;
mod sessions;
pub mod spec;
pub mod summary;
pub mod timing;
pub mod values;

pub use load::LoadOptions;
pub use model::Model;
pub use outputs::Outputs;
pub use spec::{Extent, Spec};
pub use tilewright_dtype::DType;
pub use tilewright_runtime::{
    Cancel, Input, LoadError, RunError, Session, Tensor, TensorError, TensorView, TensorViewMut, Trust, Value,
};
pub use values::Named;
