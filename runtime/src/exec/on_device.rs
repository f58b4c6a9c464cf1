//! What models and sessions have on a device: code, weights, memory.
#![allow(unsafe_code, reason = "owns memory of devices")]

use alloc::string::ToString;
use alloc::sync::Arc;
use core::ptr::without_provenance_mut;

use crate::device::{DeviceError, DeviceModule};

/// Bytes to either side of where kernels find a buffer without elements, as [`nothing`](crate::memory::nothing) on the host.
const AROUND: usize = 256;

/// Whether this build runs models on devices. What is for these alone is left out where it does not: a program for a board is smaller.
pub(crate) const DEVICES: bool = cfg!(feature = "devices");

/// A model's code and weights on a device.
pub(crate) struct ModelDevice {
    pub(crate) module: Arc<dyn DeviceModule>,
    weights: DeviceBuf,
    nothing: DeviceBuf,
}

impl ModelDevice {
    /// Uploads the weights.
    pub(crate) fn new(module: Arc<dyn DeviceModule>, weights: &[u8]) -> Result<ModelDevice, DeviceError> {
        let mut on_device = DeviceBuf::default();
        on_device.replace(&module, weights.len())?;
        let mut nothing = DeviceBuf::default();
        nothing.replace(&module, 2 * AROUND)?;
        let mut stream = module.stream()?;
        let zeros = [0; 2 * AROUND];
        // SAFETY: sources and targets are of these sizes, and live until the stream has been waited for, which also ends what an
        // error left under way.
        let uploaded = unsafe {
            let weights = match weights.len() {
                0 => Ok(()),
                bytes => stream.upload(weights.as_ptr(), on_device.address, bytes),
            };
            weights.and_then(|()| stream.upload(zeros.as_ptr(), nothing.address, zeros.len()))
        };
        stream.wait().and(uploaded)?;
        Ok(ModelDevice { module, weights: on_device, nothing })
    }

    /// The start of the weights.
    pub(crate) fn weights(&self) -> *mut u8 {
        self.weights.as_mut_ptr()
    }

    /// Where kernels find a buffer without elements.
    pub(crate) fn nothing(&self) -> u64 {
        self.nothing.address + AROUND as u64
    }
}

/// Memory of a device; empty by default.
#[derive(Default)]
pub(crate) struct DeviceBuf {
    owner: Option<Arc<dyn DeviceModule>>,
    address: u64,
    len: usize,
    capacity: usize,
}

impl DeviceBuf {
    /// Gives its memory back and takes other, of `capacity` bytes. Nothing may be under way on the device.
    pub(crate) fn replace(
        &mut self,
        module: &Arc<dyn DeviceModule>,
        capacity: usize,
    ) -> Result<(), DeviceError> {
        *self = DeviceBuf::default();
        if capacity > 0 {
            let address = module.allocate(capacity)?;
            *self = DeviceBuf { owner: Some(module.clone()), address, len: capacity, capacity };
            // Addresses go through the executor as pointers.
            if usize::try_from(address).is_err() {
                let reason = "its addresses are wider than those of this program".to_string();
                return Err(DeviceError::Fault { device: module.device(), reason });
            }
        }
        Ok(())
    }

    /// The module whose memory it is; none of nothing.
    #[cfg(feature = "devices")]
    pub(crate) fn owner(&self) -> Option<&Arc<dyn DeviceModule>> {
        self.owner.as_ref()
    }

    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity);
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The address as the executor has it: nothing on the host may follow it.
    pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
        without_provenance_mut(self.address as usize)
    }
}

impl Drop for DeviceBuf {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.as_ref().filter(|_| DEVICES) {
            // SAFETY: allocated by this module and given back once; a session waits for its stream before it lets go of memory.
            unsafe { owner.free(self.address) }
        }
    }
}
