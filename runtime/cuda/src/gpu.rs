//! A device as the driver lists it.
#![allow(unsafe_code, reason = "asks the driver")]

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys::{CUdevice, CUdevice_attribute};
use tilewright_runtime::artifact::DeviceDef;
use tilewright_runtime::device::DeviceError;

use crate::api::{Driver, call, driver};
use crate::arch::Sm;
use crate::error::{CudaError, Failure};

/// A device of the driver. Nothing is made on it yet.
#[derive(Clone)]
pub(crate) struct Gpu {
    /// The driver.
    pub(crate) driver: &'static Driver,
    /// The driver's name of the device.
    pub(crate) handle: CUdevice,
    /// Its place among the devices.
    pub(crate) index: usize,
    /// For people.
    pub(crate) name: String,
    /// Its compute capability.
    pub(crate) sm: Sm,
}

impl Gpu {
    /// How many the driver shows.
    pub(crate) fn count() -> Result<usize, CudaError> {
        let mut count = 0;
        // SAFETY: one number is written.
        unsafe {
            let api = &driver()?.api;
            call!(api, device_count(&mut count))
        }?;
        // With a driver but no device, some drivers count 0 and others refuse.
        usize::try_from(count).ok().filter(|&count| count > 0).ok_or(CudaError::NoDevice)
    }

    /// One of them.
    pub(crate) fn at(index: usize, count: usize) -> Result<Gpu, CudaError> {
        let ordinal = c_int::try_from(index).ok().filter(|_| index < count);
        let ordinal = ordinal.ok_or(CudaError::NoSuchDevice { index, count })?;
        let driver = driver()?;
        let mut handle: CUdevice = 0;
        // SAFETY: one number is written.
        unsafe { call!(driver.api, device(&mut handle, ordinal)) }?;
        let mut gpu = Gpu { driver, handle, index, name: String::new(), sm: 0 };
        gpu.name = format!("{} (CUDA device {index})", gpu.model()?);
        let major = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        gpu.sm = major * 10 + minor;
        Ok(gpu)
    }

    /// The name of its model.
    fn model(&self) -> Result<String, Failure> {
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: as many bytes are written at most; the last one stays zero, so there is an end.
        unsafe {
            call!(self.driver.api, device_name(name.as_mut_ptr(), 255, self.handle))?;
            Ok(CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
        }
    }

    /// A number that describes it.
    pub(crate) fn attribute(&self, which: CUdevice_attribute) -> Result<u32, Failure> {
        let mut value = 0;
        // SAFETY: one number is written.
        unsafe { call!(self.driver.api, device_attribute(&mut value, which, self.handle)) }?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// That it cannot run some code.
    pub(crate) fn unfit(&self, def: &DeviceDef, reason: String) -> DeviceError {
        DeviceError::Unfit { device: self.name.clone(), code: def.target(), reason }
    }
}
