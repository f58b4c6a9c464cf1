//! Tensors on the device from and for other libraries of the process, by DLPack 1.0: PyTorch, CuPy and JAX speak it.
//!
//! [`DlpackTensor`] takes over what another library has exported, checks it, and is an input or an output of
//! [`Session::run_placed`](tilewright_runtime::Session::run_placed). [`export`] and [`export_versioned`] give an
//! [`OwnedDeviceTensor`] away. In Python a pointer lies in a capsule named `dltensor` or `dltensor_versioned`; whoever takes it over
//! renames the capsule to `used_dltensor` or `used_dltensor_versioned`.
//!
//! # Streams
//! A tensor does not say which work on it is under way. Either the caller waits for what writes an input before the run, or
//! the session works on the stream that the work was asked of ([`Session::use_stream`](tilewright_runtime::Session::use_stream)), which is what
//! the argument `stream` of `__dlpack__` is for. A run is over when it returns, so nobody need wait for an output, whatever the
//! stream.
//!
//! # Errors
//! What cannot be taken over is a [`DlpackError`], which names the tensor, what was found, and what is wanted.
#![allow(unsafe_code, reason = "reads and writes structs of C")]

mod error;
mod export;

use tilewright_dtype::DType;
use tilewright_runtime::{DeviceTensor, Output, Placed, byte_len, dlpack};

use crate::device::CudaDevice;

pub use error::DlpackError;
pub use export::{export, export_versioned};
pub use tilewright_runtime::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_READ_ONLY, DLPackVersion,
    DLTensor, KDL_CUDA,
};

/// A tensor of another library, checked. Its deleter is called when it is dropped, once.
#[derive(Debug)]
pub struct DlpackTensor {
    name: String,
    dtype: DType,
    dims: Vec<usize>,
    address: u64,
    bytes: usize,
    is_read_only: bool,
    _held: Held,
}

impl DlpackTensor {
    /// Takes over a tensor that a library of before DLPack 1.0 has exported. `name` is what errors call it: the input's name.
    ///
    /// # Errors
    /// What is wrong with it. It is taken over then too: its deleter has been called.
    ///
    /// # Safety
    /// `managed` is null, or a tensor as DLPack has it that nobody else takes over.
    pub unsafe fn from_managed(
        name: &str,
        device: &CudaDevice,
        managed: *mut DLManagedTensor,
    ) -> Result<DlpackTensor, DlpackError> {
        if managed.is_null() {
            return Err(DlpackError::Null { name: name.to_owned() });
        }
        let held = Held::Plain(managed);
        // SAFETY: it is a tensor, by the caller's word, and held until its deleter is called.
        let tensor = unsafe { &(*managed).dl_tensor };
        // SAFETY: as above.
        unsafe { checked(name, device, tensor, false, held) }
    }

    /// Takes over a tensor that a library has exported by DLPack 1.0 or newer.
    ///
    /// # Errors
    /// As [`DlpackTensor::from_managed`]; also for versions of DLPack that are not known.
    ///
    /// # Safety
    /// As [`DlpackTensor::from_managed`].
    pub unsafe fn from_versioned(
        name: &str,
        device: &CudaDevice,
        managed: *mut DLManagedTensorVersioned,
    ) -> Result<DlpackTensor, DlpackError> {
        if managed.is_null() {
            return Err(DlpackError::Null { name: name.to_owned() });
        }
        let held = Held::Versioned(managed);
        // SAFETY: version, context and deleter are where they are in every version.
        let DLPackVersion { major, minor } = unsafe { (*managed).version };
        if major != dlpack::VERSION.major {
            return Err(DlpackError::Version { name: name.to_owned(), major, minor });
        }
        // SAFETY: it is a tensor of a version whose structs are known, by the caller's word, and held until its deleter is called.
        let (tensor, flags) = unsafe { (&(*managed).dl_tensor, (*managed).flags) };
        // SAFETY: as above.
        unsafe { checked(name, device, tensor, flags & DLPACK_FLAG_READ_ONLY != 0, held) }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Whether its library says that it must not be written.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// It, as an input of a run.
    pub fn input(&self) -> Placed<'_> {
        Placed::Device(self.view())
    }

    /// It, as a place for an output of a run.
    ///
    /// # Errors
    /// [`DlpackError::ReadOnly`].
    pub fn output(&mut self) -> Result<Output<'_>, DlpackError> {
        match self.is_read_only {
            true => Err(DlpackError::ReadOnly { name: self.name.clone() }),
            false => Ok(Output::Device(self.view())),
        }
    }

    /// Where it lies.
    pub fn view(&self) -> DeviceTensor<'_> {
        DeviceTensor { dtype: self.dtype, dims: &self.dims, address: self.address, bytes: self.bytes }
    }
}

/// What is taken over; its deleter is called when it is dropped.
#[derive(Debug)]
enum Held {
    Plain(*mut DLManagedTensor),
    Versioned(*mut DLManagedTensorVersioned),
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: a tensor that was taken over; nothing of it is used after this, which happens once.
        unsafe {
            match *self {
                Held::Plain(managed) => {
                    if let Some(deleter) = (*managed).deleter {
                        deleter(managed);
                    }
                }
                Held::Versioned(managed) => {
                    if let Some(deleter) = (*managed).deleter {
                        deleter(managed);
                    }
                }
            }
        }
    }
}

/// Checks what was taken over.
///
/// # Safety
/// The tensor is as DLPack has it: extents and strides, where there are any, are as many as axes.
unsafe fn checked(
    name: &str,
    device: &CudaDevice,
    tensor: &DLTensor,
    is_read_only: bool,
    held: Held,
) -> Result<DlpackTensor, DlpackError> {
    let name = || name.to_owned();
    let wanted = DLDevice { device_type: KDL_CUDA, device_id: device.index() as i32 };
    if tensor.device != wanted {
        let (found, wanted) = (tensor.device.to_string(), wanted.to_string());
        return Err(DlpackError::Device { name: name(), found, wanted });
    }
    let dtype = tensor.dtype.to_dtype().ok_or_else(|| {
        let wanted = "whole elements of a type that ONNX has, one lane each";
        DlpackError::DType { name: name(), found: tensor.dtype.to_string(), wanted }
    })?;
    let (ndim, has_shape) = (tensor.ndim, !tensor.shape.is_null());
    let axes = usize::try_from(ndim).ok().filter(|&axes| axes == 0 || has_shape);
    let axes = axes.ok_or_else(|| DlpackError::Rank { name: name(), ndim, has_shape })?;
    // SAFETY: by the caller's word.
    let shape = unsafe { numbers(tensor.shape, axes) };
    let extents = || DlpackError::Extents { name: name(), found: shape.to_vec() };
    let dims: Option<Vec<usize>> = shape.iter().map(|&extent| usize::try_from(extent).ok()).collect();
    let dims = dims.ok_or_else(extents)?;
    let bytes = byte_len(dtype, &dims).filter(|&bytes| bytes <= isize::MAX as usize).ok_or_else(extents)?;
    // SAFETY: by the caller's word.
    let strides = unsafe { numbers(tensor.strides, if tensor.strides.is_null() { 0 } else { axes }) };
    if !strides.is_empty() && bytes > 0 {
        let compact = dlpack::compact_strides(shape);
        // The stride of an axis with one element moves nothing.
        let is_compact = |((&extent, &found), &wanted)| extent == 1 || found == wanted;
        if !shape.iter().zip(strides).zip(&compact).all(is_compact) {
            return Err(DlpackError::Strides { name: name(), found: strides.to_vec(), wanted: compact });
        }
    }
    let (address, align) = ((tensor.data.addr() as u64).wrapping_add(tensor.byte_offset), dtype.bytes());
    if bytes > 0 && (tensor.data.is_null() || address % align as u64 != 0) {
        let address = if tensor.data.is_null() { 0 } else { address };
        return Err(DlpackError::Address { name: name(), address, align });
    }
    Ok(DlpackTensor { name: name(), dtype, dims, address, bytes, is_read_only, _held: held })
}

/// An array of C.
///
/// # Safety
/// It has as many numbers, which stay.
unsafe fn numbers<'a>(start: *const i64, count: usize) -> &'a [i64] {
    if count == 0 {
        return &[];
    }
    // SAFETY: by the caller's word.
    unsafe { std::slice::from_raw_parts(start, count) }
}
