//! Tensors that are given away.
#![allow(unsafe_code, reason = "makes structs of C, which give themselves back")]

use std::ffi::c_void;
use std::ptr::NonNull;

use tilewright_runtime::OwnedDeviceTensor;
use tilewright_runtime::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, KDL_CUDA, VERSION,
    compact_strides,
};

use super::error::DlpackError;
use crate::device::CudaDevice;

/// What an exported tensor keeps until its deleter is called.
struct Kept {
    shape: Vec<i64>,
    strides: Vec<i64>,
    _tensor: OwnedDeviceTensor,
}

/// Gives a tensor away as before DLPack 1.0. Whoever takes it over calls its deleter, once and from any thread, and has then waited for
/// the work that it has asked of the device on it. `name` is what errors call it.
///
/// # Errors
/// [`DlpackError::Device`] for a tensor of another device, [`DlpackError::DType`] for elements of less than a byte. The tensor is given
/// back to the device.
pub fn export(
    name: &str,
    device: &CudaDevice,
    tensor: OwnedDeviceTensor,
) -> Result<NonNull<DLManagedTensor>, DlpackError> {
    let told = described(name, device, &tensor)?;
    let (dl_tensor, manager_ctx) = kept(tensor, told);
    Ok(leaked(DLManagedTensor { dl_tensor, manager_ctx, deleter: Some(delete) }))
}

/// [`export`] by DLPack 1.0.
///
/// # Errors
/// As [`export`].
pub fn export_versioned(
    name: &str,
    device: &CudaDevice,
    tensor: OwnedDeviceTensor,
) -> Result<NonNull<DLManagedTensorVersioned>, DlpackError> {
    let told = described(name, device, &tensor)?;
    let (dl_tensor, manager_ctx) = kept(tensor, told);
    let (version, deleter) = (VERSION, Some(delete_versioned as _));
    Ok(leaked(DLManagedTensorVersioned { version, manager_ctx, deleter, flags: 0, dl_tensor }))
}

/// Element type and device of a tensor, as DLPack has them.
fn described(
    name: &str,
    device: &CudaDevice,
    tensor: &OwnedDeviceTensor,
) -> Result<(DLDataType, DLDevice), DlpackError> {
    if let Some(found) = tensor.device().filter(|found| *found != device.to_string()) {
        return Err(DlpackError::Device { name: name.to_owned(), found, wanted: device.to_string() });
    }
    let dtype = DLDataType::of(tensor.dtype()).ok_or_else(|| DlpackError::DType {
        name: name.to_owned(),
        found: tensor.dtype().to_string(),
        wanted: "a type that DLPack has, of whole bytes",
    })?;
    Ok((dtype, DLDevice { device_type: KDL_CUDA, device_id: device.index() as i32 }))
}

/// The tensor as DLPack has it, and what it points to.
fn kept(tensor: OwnedDeviceTensor, (dtype, device): (DLDataType, DLDevice)) -> (DLTensor, *mut c_void) {
    let shape: Vec<i64> = tensor.dims().iter().map(|&extent| extent as i64).collect();
    let strides = compact_strides(&shape);
    let data = std::ptr::without_provenance_mut(tensor.address() as usize);
    let ndim = shape.len() as i32;
    let kept = Box::leak(Box::new(Kept { shape, strides, _tensor: tensor }));
    let (shape, strides) = (kept.shape.as_mut_ptr(), kept.strides.as_mut_ptr());
    let tensor = DLTensor { data, device, ndim, dtype, shape, strides, byte_offset: 0 };
    (tensor, std::ptr::from_mut(kept).cast())
}

fn leaked<M>(managed: M) -> NonNull<M> {
    NonNull::from(Box::leak(Box::new(managed)))
}

/// # Safety
/// `managed` is from [`export`], and nobody uses it any more.
unsafe extern "C" fn delete(managed: *mut DLManagedTensor) {
    // SAFETY: both were leaked by `export`, and are freed once, by the caller's word.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.manager_ctx.cast::<Kept>()));
    }
}

/// # Safety
/// `managed` is from [`export_versioned`], and nobody uses it any more.
unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: both were leaked by `export_versioned`, and are freed once, by the caller's word.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.manager_ctx.cast::<Kept>()));
    }
}
