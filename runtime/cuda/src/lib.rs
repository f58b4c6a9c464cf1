//! Models on NVIDIA GPUs, through the CUDA driver that the machine has.
//!
//! No CUDA library is linked: the driver is looked for when [`Cuda::devices`] or [`CudaDevice::by_index`] is first called, and a
//! machine without one is told by [`CudaError::NoDriver`]. A device's memory and errors are those of its primary context, which
//! is also that of PyTorch and of all else that uses CUDA's runtime library in the process.
//!
//! ```no_run
//! use tilewright_runtime_cuda::{Cuda, CudaDevice};
//!
//! for device in Cuda::devices().expect("a driver and a device") {
//!     println!("{device}");
//! }
//! let first = CudaDevice::by_index(0).expect("a device");
//! # _ = first;
//! ```
//!
//! Tensors that lie on the device come from and go to other libraries of the process by [`dlpack`].

mod api;
mod arch;
mod code;
mod context;
mod device;
pub mod dlpack;
mod elf;
mod error;
mod events;
mod gpu;
mod module;
mod stream;

pub use device::{Cuda, CudaDevice};
pub use error::CudaError;
pub use module::CudaModule;
pub use stream::CudaStream;
