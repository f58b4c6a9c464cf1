//! Compiles neural networks: a model goes in, an artifact comes out and runs.
//!
//! ```
//! # fn main() -> Result<(), tilewright::Error> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
//! use tilewright::{Compiler, Mode, Tensor};
//!
//! let artifact = Compiler::new().target("cpu")?.mode(Mode::Default).compile(path)?;
//! let model = artifact.load()?;
//! let image = Tensor::new(&[1, 1, 8, 8], [0.5f32; 64])?;
//! let outputs = model.run([("image", &image)])?;
//! # assert_eq!(outputs.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! The names here are stable; `docs/library.md` says what each is for. All else that the compiler is made of is under [`internals`], which
//! changes as the compiler does.

pub use tilewright_driver as internals;
pub use tilewright_driver::graph::Graph;
pub use tilewright_driver::graph::pass::{Pass, PassError};
pub use tilewright_driver::onnx::OnnxModel;
pub use tilewright_driver::run::{Extent, Named, Spec, compare, files, noise, profile, timing, values};
pub use tilewright_driver::{
    Artifact, Cache, Cancel, CodegenKind, CompileError, CompileObserver, Compiled, Compiler, DType, Engine,
    Error, Extents, Gap, Input, Interpreter, LoadError, LoadOptions, Mode, Model, ModelReport, Numerics,
    Outputs, RunError, SearchError, SearchReport, Session, Source, Stage, Tensor, TensorError, TensorView,
    TensorViewMut, Trust, Value, Verdict, Verification, VerifyOptions, WholeModel,
};
