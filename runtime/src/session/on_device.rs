//! What sessions do on a device alone.
#![allow(unsafe_code, reason = "takes streams of callers")]

use alloc::string::ToString;
use core::ffi::c_void;

use super::Session;
use crate::device::DeviceError;
use crate::error::RunError;

impl Session {
    /// Works in the order of the caller's own stream from now on: what the caller has asked of it comes before the next run, and a run
    /// is over when it returns. For CUDA `raw` is a `CUstream`, or a `cudaStream_t` of CUDA's runtime library; null is the default
    /// stream, on which nothing can be recorded as graphs. It is not destroyed.
    ///
    /// # Errors
    /// [`DeviceError::Stream`] where the model runs on no device or its kind has no such streams; the session goes on as before.
    ///
    /// # Safety
    /// `raw` is a stream of the model's device (CUDA: of its primary context), and outlives the session's use of it: until it is
    /// dropped or given another stream. While a run lasts nobody asks for anything of the stream, or of the default stream where the two
    /// wait for one another.
    pub unsafe fn use_stream(&mut self, raw: *mut c_void) -> Result<(), RunError> {
        let Some(device) = self.program.device() else {
            return Err(DeviceError::Stream { device: "the processor".to_string() }.into());
        };
        // SAFETY: by the caller's word.
        let stream = unsafe { device.module.stream_of_caller(raw) }?;
        self.frame.set_stream(stream)?;
        Ok(())
    }
}
