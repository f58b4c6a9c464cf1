//! The driver: from a model to an artifact, and what goes with it.
//!
//! [`compile`](compile::compile) is one straight function in which each step of a model's road is a line with
//! a name. [`Options`] say for which target and how; [`reference`] computes the same by the interpreter, and [`tuning`] searches for
//! schedules that are faster than those the rules make.

pub mod artifact;
pub mod autoschedule;
pub mod cache;
pub mod calibrate;
pub mod codegen;
pub mod compile;
pub mod compiler;
pub mod cost;
pub mod device_code;
pub mod devices;
pub mod engine;
pub mod error;
mod fold;
mod forms;
mod front_end;
pub mod gap;
pub mod inspect;
pub mod kernel_file;
pub mod library;
pub mod load;
pub mod options;
mod parallel;
pub mod records;
pub mod reference;
pub mod search;
pub mod search_report;
pub mod specialise;
pub mod specs;
mod stack;
pub mod survey;
pub mod tuning;
pub mod units;
pub mod verify;
mod weights;

pub use artifact::{Artifact, Level};
pub use cache::Cache;
pub use compile::{Compiled, compile, compile_model, kernels, load_graph};
pub use compiler::{Compiler, Extents, Mode, Source};
pub use engine::{Engine, Interpreter};
pub use error::{CompileError, Error, LibraryError, SearchError};
pub use gap::{Gap, Stage};
pub use inspect::ModelReport;
pub use library::{Library, Obstacle};
pub use options::{CompileObserver, DimOption, Numerics, Options};
pub use search_report::{SearchReport, WholeModel};
pub use survey::{Survey, survey};
pub use tilewright_dtype::DType;
pub use tilewright_graph as graph;
pub use tilewright_host as host;
pub use tilewright_machine as machine;
pub use tilewright_machine::{CodegenKind, Listing, Machine, Target};
pub use tilewright_onnx as onnx;
pub use tilewright_run as run;
pub use tilewright_run::{
    Cancel, Input, LoadError, LoadOptions, Model, Outputs, RunError, Session, Tensor, TensorError,
    TensorView, TensorViewMut, Trust, Value,
};
pub use tilewright_runtime as runtime;
pub use tilewright_te::interp::TensorData;
pub use tilewright_tune as tune;
pub use verify::{Verdict, Verification, VerifyOptions};

/// A machine as the runtime sees one: what code may need of it.
pub fn isa(machine: &Machine) -> runtime::isa::Isa {
    let arch = machine.arch.triple().split('-').next().unwrap_or_default().to_string();
    runtime::isa::Isa {
        arch,
        features: machine.features.iter().map(|feature| feature.name().to_string()).collect(),
    }
}

/// A loader for what [`compile`] makes: one that has the host operators.
pub fn loader(trust: Trust) -> runtime::Loader {
    runtime::Loader::new(trust).host_ops(std::sync::Arc::new(host::Registry))
}
