//! The interface to a device beside the processor: memory, transfers, launch, wait.
//!
//! The core knows no device. What implements [`Device`] is given to the loader, as host operators are. A model loads its code
//! into one [`DeviceModule`]; each session has a [`Stream`] of it, which works in the order in which it is asked, and
//! behind the caller's back: what it was asked for is done when [`Stream::wait`] returns.
//!
//! Memory of a device has addresses, as the processor's has: part of an allocation is an address inside it.
//!
//! A stream may record what it is asked for as a graph, and do all of it by one request later; the methods for that have
//! defaults, for streams without.
#![allow(unsafe_code, reason = "a device reads and writes what it is told to")]

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
#[cfg(feature = "devices")]
use core::ffi::c_void;

use crate::artifact::DeviceDef;

/// Alignment in bytes of what a device allocates.
pub const DEVICE_ALIGN: usize = 256;

/// What goes wrong on a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The device cannot run code of this kind.
    #[error("{device} cannot run code for {code}: {reason}")]
    Unfit {
        /// The device.
        device: String,
        /// What the code is for.
        code: String,
        /// Why not.
        reason: String,
    },
    /// The code is damaged, or the driver's compiler refuses it.
    #[error("{device} does not load the code: {reason}")]
    Code {
        /// The device.
        device: String,
        /// What the driver says.
        reason: String,
    },
    /// Memory of the device could not be had.
    #[error("{device} is out of memory: {bytes} bytes asked for{}", Free(.free))]
    Memory {
        /// The device.
        device: String,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes that are free, where the driver tells.
        free: Option<u64>,
    },
    /// The device's kind has no streams that a caller could have made.
    #[cfg(feature = "devices")]
    #[error("{device} takes no stream of a caller")]
    Stream {
        /// The device.
        device: String,
    },
    /// A kernel or a transfer failed, or the device is lost; the session is of no more use.
    #[error("{device} failed: {reason}")]
    Fault {
        /// The device.
        device: String,
        /// What the driver says.
        reason: String,
    },
}

struct Free<'a>(&'a Option<u64>);

impl core::fmt::Display for Free<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.map_or(Ok(()), |free| write!(f, ", {free} are free"))
    }
}

/// A device that models can be loaded for.
pub trait Device: Send + Sync {
    /// The kind of code it runs, as artifacts name it: `opencl`, `cuda`.
    fn kind(&self) -> &str;

    /// Its name, for people.
    fn name(&self) -> String;

    /// How well code suits the device: of several the highest is taken.
    ///
    /// # Errors
    /// [`DeviceError::Unfit`] for code that it cannot run.
    fn suits(&self, def: &DeviceDef) -> Result<u32, DeviceError>;

    /// Loads code, which holds the kernels of `def`.
    ///
    /// # Errors
    /// [`DeviceError::Unfit`] and [`DeviceError::Code`].
    fn load(&self, def: &DeviceDef, code: &[u8]) -> Result<Arc<dyn DeviceModule>, DeviceError>;
}

/// The code of a model on a device, and the memory that its kernels work on.
pub trait DeviceModule: Send + Sync {
    /// The device, for people.
    fn device(&self) -> String;

    /// Memory of at least one byte, aligned to [`DEVICE_ALIGN`], contents unspecified; its address.
    ///
    /// # Errors
    /// [`DeviceError::Memory`].
    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError>;

    /// Gives memory back.
    ///
    /// # Safety
    /// `address` is from [`DeviceModule::allocate`] of this module, given back once, and no stream has work left on it.
    unsafe fn free(&self, address: u64);

    /// A new stream.
    ///
    /// # Errors
    /// [`DeviceError::Fault`].
    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError>;

    /// A stream that works in the order of the caller's own, as the driver has it: for CUDA a `CUstream`.
    ///
    /// # Errors
    /// [`DeviceError::Stream`] where there is no such thing, which is the default.
    ///
    /// # Safety
    /// `raw` is a stream of this device, in the context that the module is loaded into, and outlives what is returned.
    #[cfg(feature = "devices")]
    unsafe fn stream_of_caller(&self, raw: *mut c_void) -> Result<Box<dyn Stream>, DeviceError> {
        let _ = raw;
        Err(DeviceError::Stream { device: self.device() })
    }
}

/// A call of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Which: index into [`DeviceDef::kernels`].
    pub kernel: usize,
    /// Addresses of its buffers.
    pub buffers: &'a [u64],
    /// Its symbolic extents.
    pub sizes: &'a [i64],
    /// The first task.
    pub first: i64,
    /// Number of tasks, 1 or more; each is run by one group of threads.
    pub tasks: i64,
}

/// Work in order. Errors of earlier work may be told by later calls.
pub trait Stream: Send + Sync {
    /// Copies from the processor's memory.
    ///
    /// # Errors
    /// [`DeviceError::Fault`].
    ///
    /// # Safety
    /// `from` stays readable and unchanged, and `to` allocated, until [`Stream::wait`] returns.
    unsafe fn upload(&mut self, from: *const u8, to: u64, bytes: usize) -> Result<(), DeviceError>;

    /// Copies to the processor's memory.
    ///
    /// # Errors
    /// [`DeviceError::Fault`].
    ///
    /// # Safety
    /// `from` stays allocated, and `to` writable and not read, until [`Stream::wait`] returns.
    unsafe fn download(&mut self, from: u64, to: *mut u8, bytes: usize) -> Result<(), DeviceError>;

    /// Copies from one place on the device to another.
    ///
    /// # Errors
    /// [`DeviceError::Fault`].
    ///
    /// # Safety
    /// Both stay allocated until [`Stream::wait`] returns, and do not overlap.
    unsafe fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), DeviceError>;

    /// Runs tasks of a kernel.
    ///
    /// # Errors
    /// [`DeviceError::Fault`].
    ///
    /// # Safety
    /// Buffers are as large as the kernel takes them to be, and stay allocated until [`Stream::wait`] returns; the kernel is the compiler's.
    unsafe fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError>;

    /// Waits until all is done.
    ///
    /// # Errors
    /// [`DeviceError::Fault`]: what went wrong since the last wait.
    fn wait(&mut self) -> Result<(), DeviceError>;

    /// Begins to record: the launches and copies on the device that are asked for next are not done, but become a graph. Gives
    /// whether it does; a stream that has no graphs, which is the default, does not.
    ///
    /// # Errors
    /// Where recording is not to be had now. The stream is as before.
    fn begin_capture(&mut self) -> Result<bool, DeviceError> {
        Ok(false)
    }

    /// Ends what [`Stream::begin_capture`] began: the graph of what was asked for since, which the stream keeps. `None` where
    /// nothing was recorded.
    ///
    /// # Errors
    /// Where no graph could be made. The stream records no more, and nothing of what was asked for is done.
    fn end_capture(&mut self) -> Result<Option<GraphId>, DeviceError> {
        Ok(None)
    }

    /// Does what was recorded, in order with all else, by one request.
    ///
    /// # Errors
    /// [`DeviceError::Fault`]. Nothing of it is done then.
    ///
    /// # Safety
    /// `graph` is of this stream and was not forgotten. For all that it does, what [`Stream::launch`] and [`Stream::copy`] demand
    /// holds: the addresses of when it was recorded are those of memory of the same sizes.
    unsafe fn replay(&mut self, graph: GraphId) -> Result<(), DeviceError> {
        let _ = graph;
        Ok(())
    }

    /// Gives up all graphs. No work is left on the stream.
    fn forget_graphs(&mut self) {}

    /// Switches times by events on or off, while nothing is under way; gives whether they are on. Marks made before are void. A stream
    /// that has no such times, as by default, leaves them off.
    ///
    /// # Errors
    /// [`DeviceError::Fault`].
    fn set_timing(&mut self, on: bool) -> Result<bool, DeviceError> {
        let _ = on;
        Ok(false)
    }

    /// Marks the place that the work asked for has come to, while times are on; gives the mark, which [`Stream::elapsed`] takes.
    ///
    /// # Errors
    /// [`DeviceError::Fault`].
    fn mark(&mut self) -> Result<u32, DeviceError> {
        Ok(0)
    }

    /// Nanoseconds that the device took from one mark to a later one. Both have been waited for.
    ///
    /// # Errors
    /// [`DeviceError::Fault`].
    fn elapsed(&mut self, from: u32, to: u32) -> Result<f64, DeviceError> {
        let _ = (from, to);
        Ok(0.0)
    }
}

/// A graph that a stream has recorded, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphId(pub u32);
