//! What a program that runs compiled models needs beside the runtime, and nothing of the compiler: the types of a model's
//! inputs and outputs, named values, seeded noise, comparison, and tensors in files.
//!
//! # Features
//! - `files`: [`files`], which needs the protobuf messages of ONNX and zip archives.

pub mod compare;
#[cfg(feature = "files")]
pub mod files;
mod load;
mod model;
pub mod noise;
mod outputs;
mod sessions;
pub mod spec;
pub mod values;

pub use load::LoadOptions;
pub use model::Model;
pub use outputs::Outputs;
pub use spec::{Extent, Spec};
pub use values::Named;
