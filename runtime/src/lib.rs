//! The deployable runtime: artifact format, loader, executor, thread pool.
//!
//! The core is `no_std` and `alloc`: [`plan`] and [`artifact`] are the formats, [`Model`] and [`Session`] run
//! them. The feature `std` (default) adds [`Loader`], [`threads`] and detection of the machine's instruction set.
//!
//! ```no_run
//! # #[cfg(feature = "std")] {
//! use tilewright_runtime::{Model, TensorView, Trust};
//!
//! let model = Model::load("model.twm", Trust::Origin).expect("a sound artifact");
//! let mut session = model.session();
//! let outputs = session.run(&[TensorView::of(&[1, 2], &[0.5f32, 2.0])]).expect("inputs that fit");
//! let scores = outputs.get(0).and_then(|output| output.to_vec::<f32>());
//! # _ = scores; }
//! ```
//!
//! # Features
//! - `std`: threads, loading of files, errors as std errors.
//! - `devices`: models whose kernels run on a [`device`]; without it they are refused, and a program is smaller.
//! - `ndarray`: arrays of that crate are inputs, and tensors are seen as arrays or become some.
//! - `text`: plans from text.
//! - `arena`: heaps in memory that the caller gives ([`Arena`]), for programs without a system.
//!
//! # Invariants
//! - The runtime depends on no compiler crate.
//! - What [`plan::Plan::validate`] and [`artifact::Artifact::read`] have accepted indexes nothing out of range; sizes are
//!   checked before an address leaves the executor.
//! - Results do not depend on the number of threads: the tasks of a kernel are fixed by the plan.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "arena")]
mod arena;
pub mod artifact;
mod cancel;
pub mod device;
pub mod dlpack;
mod error;
mod exec;
mod forecast;
mod host;
pub mod isa;
#[cfg(feature = "devices")]
pub mod kernel_run;
mod load;
mod memory;
mod model;
mod placed;
pub mod plan;
pub mod pool;
mod session;
mod sizes;
mod tensor;
#[cfg(feature = "std")]
pub mod threads;
mod told;
mod value;

#[cfg(feature = "arena")]
pub use arena::{Arena, ArenaError};
pub use cancel::Cancel;
pub use error::{ExecFault, InputError, InputErrors, RunError};
pub use exec::{HostCall, Inspect, RunObserver};
pub use forecast::Forecast;
pub use host::{Draw, HostArg, HostError, HostOps, HostTensor, HostTensorMut, NoHostOps};
pub use load::LoadError;
#[cfg(feature = "std")]
pub use load::{Loader, Trust};
pub use memory::{AlignedBuf, Allocator, Bytes, OutOfMemory};
pub use model::{KernelCode, KernelFn, Kernels, Model, ModelError, Program, ProgramParts};
pub use placed::Placed;
#[cfg(feature = "devices")]
pub use placed::{DeviceTensor, Output, OwnedDeviceTensor};
pub use session::{Input, Inputs, Outputs, Room, Session, SessionOptions};
#[cfg(feature = "ndarray")]
pub use tensor::ArrayElement;
pub use tensor::{Element, Reuse, Scalar, Tensor, TensorError, TensorView, TensorViewMut, byte_len};
pub use value::{Value, Values};
