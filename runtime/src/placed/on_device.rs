//! Tensors in memory of a device.
#![allow(unsafe_code, reason = "moves bytes between host and device")]

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use tilewright_dtype::DType;

use crate::device::{DeviceError, DeviceModule};
use crate::error::{InputError, InputErrors, RunError};
use crate::exec::DeviceBuf;
use crate::model::Model;
use crate::tensor::{TensorView, TensorViewMut, byte_len};

/// A dense row-major tensor in memory of a device, which somebody else keeps there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceTensor<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub dims: &'a [usize],
    /// Where its first element is, by the device: a multiple of the bytes of an element.
    pub address: u64,
    /// Number of bytes there, which must be [`byte_len`] of type and extents.
    pub bytes: usize,
}

impl DeviceTensor<'_> {
    /// Whether it has a byte in common with another.
    pub(crate) fn overlaps(&self, other: &DeviceTensor<'_>) -> bool {
        let end = |tensor: &DeviceTensor<'_>| tensor.address.saturating_add(tensor.bytes as u64);
        self.bytes > 0 && other.bytes > 0 && self.address < end(other) && other.address < end(self)
    }
}

/// Where an output is to go.
#[derive(Debug)]
pub enum Output<'a> {
    /// To memory of the host.
    Host(TensorViewMut<'a>),
    /// To memory of the session's device.
    Device(DeviceTensor<'a>),
    /// To memory of the session's device that is allocated for it and is the caller's then; a run that fails leaves what was there.
    /// Its extents may depend on data.
    New(&'a mut Option<OwnedDeviceTensor>),
}

/// A dense row-major tensor in memory of a device, which is given back with it.
pub struct OwnedDeviceTensor {
    memory: DeviceBuf,
    dtype: DType,
    dims: Vec<usize>,
    bytes: usize,
}

impl OwnedDeviceTensor {
    /// One whose elements are unspecified, in at least `room` bytes.
    pub(crate) fn with_room(
        module: &Arc<dyn DeviceModule>,
        dtype: DType,
        dims: Vec<usize>,
        room: usize,
    ) -> Result<OwnedDeviceTensor, DeviceError> {
        let bytes = byte_len(dtype, &dims).unwrap_or(usize::MAX);
        let mut memory = DeviceBuf::default();
        memory.replace(module, room.max(bytes))?;
        Ok(OwnedDeviceTensor { memory, dtype, dims, bytes })
    }

    /// A copy of a tensor of the host on the device of a model.
    ///
    /// # Errors
    /// [`InputError::Bytes`] where the bytes are not those of type and extents, [`InputError::NoDevice`] where the model runs on the
    /// processor, and what the device lacks or says.
    pub fn upload(model: &Model, view: &TensorView<'_>) -> Result<OwnedDeviceTensor, RunError> {
        let Some(device) = model.program().device() else {
            let error = InputError::NoDevice { name: "tensor".to_string() };
            return Err(RunError::Inputs(InputErrors(vec![error])));
        };
        let expected = byte_len(view.dtype, view.dims);
        if expected != Some(view.bytes.len()) {
            let (expected, got) = (expected.map_or(u64::MAX, |bytes| bytes as u64), view.bytes.len());
            let error = InputError::Bytes { name: "tensor".to_string(), expected, got };
            return Err(RunError::Inputs(InputErrors(vec![error])));
        }
        let module = &device.module;
        let tensor = OwnedDeviceTensor::with_room(module, view.dtype, view.dims.to_vec(), 0)?;
        if tensor.bytes > 0 {
            let mut stream = module.stream()?;
            // SAFETY: both are as large and live to the wait, which also ends what an error left under way.
            let asked = unsafe { stream.upload(view.bytes.as_ptr(), tensor.address(), tensor.bytes) };
            stream.wait().and(asked)?;
        }
        Ok(tensor)
    }

    /// Its bytes, copied to the host.
    ///
    /// # Errors
    /// What the device says.
    pub fn download(&self) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; self.bytes];
        if let Some(module) = self.memory.owner().filter(|_| self.bytes > 0) {
            let mut stream = module.stream()?;
            // SAFETY: both are as large and live to the wait, which also ends what an error left under way.
            let asked = unsafe { stream.download(self.address(), bytes.as_mut_ptr(), self.bytes) };
            stream.wait().and(asked)?;
        }
        Ok(bytes)
    }

    /// The device, for people; none where it has no elements.
    pub fn device(&self) -> Option<String> {
        self.memory.owner().map(|module| module.device())
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Where its first element is, by the device; 0 where it has none.
    pub fn address(&self) -> u64 {
        self.memory.as_mut_ptr().addr() as u64
    }

    /// It, to be given to a run.
    pub fn view(&self) -> DeviceTensor<'_> {
        DeviceTensor { dtype: self.dtype, dims: &self.dims, address: self.address(), bytes: self.bytes }
    }
}

impl core::fmt::Debug for OwnedDeviceTensor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "OwnedDeviceTensor({:?})", self.view())
    }
}
