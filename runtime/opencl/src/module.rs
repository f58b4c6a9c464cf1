//! The code of a model on a device.
#![allow(unsafe_code, reason = "gives memory of a device back")]

use std::sync::Arc;

use tilewright_runtime::artifact::DeviceDef;
use tilewright_runtime::device::{DeviceError, DeviceModule, Stream};

use crate::found::Found;
use crate::program::Loaded;
use crate::stream::Queue;

/// The code of a model on a device.
pub(crate) struct Module(Arc<Loaded>);

impl Module {
    /// Builds the kernels of code that suits the device.
    pub(crate) fn load(device: &Arc<Found>, def: &DeviceDef, code: &[u8]) -> Result<Module, DeviceError> {
        Loaded::new(device, def, code).map(|loaded| Module(Arc::new(loaded)))
    }
}

impl DeviceModule for Module {
    fn device(&self) -> String {
        self.0.device.name()
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        self.0.allocate(bytes)
    }

    unsafe fn free(&self, address: u64) {
        // SAFETY: no stream has work left on it, by the word of who gives it back.
        unsafe { self.0.free(address) };
    }

    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError> {
        Ok(Box::new(Queue::new(&self.0)?))
    }
}
