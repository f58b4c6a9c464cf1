//! The code of a model on a device, with the memory that it works on.
#![allow(unsafe_code, reason = "allocates through the driver")]

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use tilewright_runtime::artifact::DeviceDef;
use tilewright_runtime::device::{DeviceError, DeviceModule, Stream};

use crate::api::call;
use crate::code::Code;
use crate::error::Failure;
use crate::gpu::Gpu;
use crate::stream::CudaStream;

/// The code of a model, loaded into a device's primary context. Its streams keep it loaded.
pub struct CudaModule {
    code: Arc<Code>,
}

impl CudaModule {
    pub(crate) fn load(gpu: &Gpu, def: &DeviceDef, code: &[u8]) -> Result<CudaModule, DeviceError> {
        Code::load(gpu, def, code).map(|code| CudaModule { code: Arc::new(code) })
    }

    /// Whether the driver made machine code of PTX, which takes time at each load that its cache does not know.
    pub fn assembled_by_driver(&self) -> bool {
        self.code.assembled_by_driver
    }

    /// A stream that works in the order of the caller's own (a `CUstream`, or a `cudaStream_t` of CUDA's runtime library;
    /// null is the default stream). It is not destroyed.
    ///
    /// # Safety
    /// `raw` is a stream of the device's primary context, and outlives what is returned.
    pub unsafe fn stream_on(&self, raw: *mut c_void) -> CudaStream {
        // SAFETY: by the caller's word.
        unsafe { CudaStream::on(&self.code, raw) }
    }
}

impl DeviceModule for CudaModule {
    fn device(&self) -> String {
        self.code.context.gpu.name.clone()
    }

    /// The driver aligns to 256 bytes: CUDA's programming guide says so.
    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        let Code { context, .. } = &*self.code;
        let allocated = context.run(|api| {
            let mut address: CUdeviceptr = 0;
            // SAFETY: a number is written.
            unsafe { call!(api, allocate(&mut address, bytes.max(1))) }?;
            Ok(address)
        });
        allocated.map_err(|failure| {
            if failure.code != Failure::OUT_OF_MEMORY {
                return failure.fault(&context.gpu.name);
            }
            let free = context.run(|api| {
                let (mut free, mut total) = (0, 0);
                // SAFETY: two numbers are written.
                unsafe { call!(api, memory_info(&mut free, &mut total)) }?;
                Ok(free as u64)
            });
            DeviceError::Memory { device: self.device(), bytes: bytes as u64, free: free.ok() }
        })
    }

    unsafe fn free(&self, address: u64) {
        // A failure leaves nothing to do: the context is lost, and the memory with it.
        // SAFETY: allocated, and of no more use, by the caller's word.
        let _ = self.code.context.run(|api| unsafe { call!(api, free(address as CUdeviceptr)) });
    }

    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError> {
        Ok(Box::new(CudaStream::new(&self.code)?))
    }

    unsafe fn stream_of_caller(&self, raw: *mut c_void) -> Result<Box<dyn Stream>, DeviceError> {
        // SAFETY: by the caller's word.
        Ok(Box::new(unsafe { self.stream_on(raw) }))
    }
}
