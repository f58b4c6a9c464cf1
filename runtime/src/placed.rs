//! Tensors that lie on the host or on a device.

#[cfg(feature = "devices")]
mod on_device;

use tilewright_dtype::DType;

#[cfg(feature = "devices")]
use crate::error::InputError;
use crate::tensor::TensorView;

#[cfg(feature = "devices")]
pub use on_device::{DeviceTensor, Output, OwnedDeviceTensor};

/// A tensor, where it lies.
#[derive(Clone, Copy, Debug)]
pub enum Placed<'a> {
    /// In memory of the host.
    Host(TensorView<'a>),
    /// In memory of the session's device.
    #[cfg(feature = "devices")]
    Device(DeviceTensor<'a>),
}

impl<'a> Placed<'a> {
    pub(crate) fn dtype(&self) -> DType {
        match self {
            Placed::Host(view) => view.dtype,
            #[cfg(feature = "devices")]
            Placed::Device(tensor) => tensor.dtype,
        }
    }

    pub(crate) fn dims(&self) -> &'a [usize] {
        match self {
            Placed::Host(view) => view.dims,
            #[cfg(feature = "devices")]
            Placed::Device(tensor) => tensor.dims,
        }
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Placed::Host(view) => view.bytes.len(),
            #[cfg(feature = "devices")]
            Placed::Device(tensor) => tensor.bytes,
        }
    }
    /// What is wrong with the address of a tensor on a device.
    #[cfg(feature = "devices")]
    pub(crate) fn misaligned(&self, name: &str) -> Option<InputError> {
        let Placed::Device(tensor) = self else { return None };
        let (address, dtype, align) = (tensor.address, tensor.dtype, tensor.dtype.bytes());
        let is = tensor.bytes > 0 && align > 0 && address % align as u64 != 0;
        is.then(|| InputError::Address { name: name.into(), address, dtype, align })
    }
}
