//! The primary context of a device: what the process has on it.
#![allow(unsafe_code, reason = "keeps and enters a context of the driver")]

use std::sync::OnceLock;

use cudarc::driver::sys::CUcontext;

use crate::api::{Api, call};
use crate::error::Failure;
use crate::gpu::Gpu;

/// A share of a device's primary context: it stays as long as anyone in the process has one.
pub(crate) struct Context {
    /// The device.
    pub(crate) gpu: Gpu,
    handle: CUcontext,
    /// What the context was lost by. The driver gives the same error for most later calls, but not for all.
    lost: OnceLock<Failure>,
}

// SAFETY: a context belongs to no thread; the driver's functions may be called from any, at the same time.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Makes the context, where it is not there yet.
    pub(crate) fn retain(gpu: &Gpu) -> Result<Context, Failure> {
        let mut handle: CUcontext = std::ptr::null_mut();
        // SAFETY: a pointer is written. What is retained is released once, by `drop`.
        unsafe { call!(gpu.driver.api, context_retain(&mut handle, gpu.handle)) }?;
        Ok(Context { gpu: gpu.clone(), handle, lost: OnceLock::new() })
    }

    /// Calls the driver in the context, from whatever thread.
    ///
    /// # Errors
    /// What `work` gives; and what the context was lost by, without a call of `work`.
    pub(crate) fn run<T>(&self, work: impl FnOnce(&Api) -> Result<T, Failure>) -> Result<T, Failure> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone());
        }
        let result = self.enter(work);
        if let Some(failure) = result.as_ref().err().filter(|failure| failure.is_sticky()) {
            self.lost.get_or_init(|| failure.clone());
        }
        result
    }

    fn enter<T>(&self, work: impl FnOnce(&Api) -> Result<T, Failure>) -> Result<T, Failure> {
        let api = &self.gpu.driver.api;
        let mut before: CUcontext = std::ptr::null_mut();
        // SAFETY: a pointer is written.
        unsafe { call!(api, context_current(&mut before)) }?;
        if before == self.handle {
            return work(api);
        }
        // SAFETY: the context is retained.
        unsafe { call!(api, context_set_current(self.handle)) }?;
        let result = work(api);
        // The thread's own context tells CUDA's runtime library, so PyTorch too, which device is meant: it comes back.
        // SAFETY: the thread had it, or none.
        let _ = unsafe { call!(api, context_set_current(before)) };
        result
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A failure leaves nothing to do: the driver is shutting down, or the context is lost.
        // SAFETY: retained once.
        let _ = unsafe { call!(self.gpu.driver.api, context_release(self.gpu.handle)) };
    }
}
