//! Devices over OpenCL: what implements the interface of [`tilewright_runtime::device`] for artifacts with code of kind `opencl`.
//!
//! The system's OpenCL is loaded when it is first asked for; a program that uses this crate starts without it. A device must offer
//! what the compiler's kernels take for granted: binary64, division and roots of binary32 with correct rounding, subnormal numbers.
//! Memory is coarse-grained shared virtual memory of OpenCL 2.0, whose addresses kernels and transfers take, also inside
//! an allocation.
//!
//! ```no_run
//! use tilewright_runtime::device::Device;
//! use tilewright_runtime_opencl::OpenClDevice;
//!
//! let device = OpenClDevice::first().expect("an OpenCL device");
//! println!("{}", device.name());
//! ```

mod api;
mod device;
mod error;
mod found;
mod module;
mod program;
mod status;
mod stream;

pub use device::{OpenCl, OpenClDevice};
pub use error::{OpenClError, Unusable};
