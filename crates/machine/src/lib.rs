//! Descriptions of machines and of what a code generator can emit for them.
//!
//! A [`Machine`] says what the hardware offers (instruction set, vector width, registers, caches), a
//! [`Codegen`] what a code generator makes of it; a [`Target`] is the two together, and is what schedules and
//! code generators look at. A target is a value that prints in full and parses back: compiled code is a
//! function of that text, never of the machine the compiler happens to run on or of its thread count.
//!
//! A [`Timing`] says how fast the machine is: every number of it that the cost model knows, from a data file a machine.
//!
//! [`measure`] measures this machine.
//! [`code`] holds what every code generator returns: an object, or a [`CodegenError`]. A [`RunFunction`] is what they make the
//! function of a library that runs a model from.

mod caches;
pub mod code;
mod codegen;
mod error;
mod feature;
mod gpu;
mod host;
mod machine;
pub mod measure;
mod names;
mod processor;
mod run_function;
mod target;
mod timing;

pub use caches::Caches;
pub use code::{CodegenError, Listing, ObjectCode};
pub use codegen::{Codegen, CodegenKind};
pub use error::TargetError;
pub use feature::{Arch, Feature, FeatureSet};
pub use gpu::{DeviceKind, Gpu};
pub use machine::Machine;
pub use measure::ceilings::Ceilings;
pub use names::names;
pub use processor::{Processor, ProcessorId};
pub use run_function::{Address, Base, Check, RunFunction, RunStep};
pub use target::Target;
pub use timing::{
    Core, Level, Method, Numbers, Provenance, TIMINGS, Threads, Timing, TimingError, TimingFile,
};
