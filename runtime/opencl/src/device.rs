//! Which devices there are.
#![allow(unsafe_code, reason = "calls a C library")]

use std::fmt;
use std::ptr;
use std::sync::Arc;

use opencl_sys::{
    CL_DEVICE_NOT_FOUND, CL_DEVICE_TYPE_ALL, CL_PLATFORM_NAME, CL_PLATFORM_NOT_FOUND_KHR, cl_device_id,
    cl_int, cl_platform_id, cl_uint,
};
use tilewright_runtime::artifact::DeviceDef;
use tilewright_runtime::device::{Device, DeviceError, DeviceModule};

use crate::api::{Api, info, text};
use crate::error::{OpenClError, Unusable};
use crate::found::{Found, KIND};
use crate::module::Module;
use crate::status::{Status, check};

/// What OpenCL finds on this machine.
#[derive(Debug)]
pub struct OpenCl {
    /// Devices that can be used, in the order of their platforms.
    pub usable: Vec<OpenClDevice>,
    /// Devices that cannot be used, and why.
    pub unusable: Vec<Unusable>,
}

impl OpenCl {
    /// All devices, usable or not.
    ///
    /// # Errors
    /// [`OpenClError::Library`] and [`OpenClError::Driver`].
    pub fn find() -> Result<OpenCl, OpenClError> {
        let api = Api::get().map_err(|reason| OpenClError::Library { reason })?;
        let mut found = OpenCl { usable: Vec::new(), unusable: Vec::new() };
        let driver = |status: Status| OpenClError::Driver { reason: status.to_string() };
        for platform in platforms(api).map_err(driver)? {
            let of = platform_name(api, platform);
            let ids = match devices(api, platform) {
                Ok(ids) => ids,
                // Others may still work.
                Err(status) => {
                    found.unusable.push(Unusable { name: of, reason: status.to_string() });
                    continue;
                }
            };
            for id in ids {
                match Found::new(api, id, &of) {
                    Ok(device) => found.usable.push(OpenClDevice(Arc::new(device))),
                    Err(unusable) => found.unusable.push(unusable),
                }
            }
        }
        Ok(found)
    }

    /// Devices that can be used, in the order of their platforms: at least one.
    ///
    /// # Errors
    /// As [`OpenCl::find`]; and [`OpenClError::NoDevice`], which tells why those that there are cannot be used.
    pub fn devices() -> Result<Vec<OpenClDevice>, OpenClError> {
        let OpenCl { usable, unusable } = OpenCl::find()?;
        match usable.is_empty() {
            true => Err(OpenClError::NoDevice { unusable }),
            false => Ok(usable),
        }
    }
}

/// A list as OpenCL gives it: asked first for its length.
fn ids<T: Copy>(
    call: &'static str,
    none: cl_int,
    null: T,
    ask: impl Fn(cl_uint, *mut T, *mut cl_uint) -> cl_int,
) -> Result<Vec<T>, Status> {
    let mut count = 0;
    match ask(0, ptr::null_mut(), &raw mut count) {
        code if code == none => return Ok(Vec::new()),
        code => check(call, code)?,
    }
    let mut ids = vec![null; count as usize];
    if count > 0 {
        let mut now = count;
        check(call, ask(count, ids.as_mut_ptr(), &raw mut now))?;
        ids.truncate(now as usize);
    }
    Ok(ids)
}

fn platforms(api: &Api) -> Result<Vec<cl_platform_id>, Status> {
    // SAFETY: there is room for as many as are asked for.
    let ask = |room, to, count| unsafe { (api.get_platform_ids)(room, to, count) };
    ids("clGetPlatformIDs", CL_PLATFORM_NOT_FOUND_KHR, ptr::null_mut(), ask)
}

fn devices(api: &Api, platform: cl_platform_id) -> Result<Vec<cl_device_id>, Status> {
    // SAFETY: there is room for as many as are asked for.
    let ask =
        |room, to, count| unsafe { (api.get_device_ids)(platform, CL_DEVICE_TYPE_ALL, room, to, count) };
    ids("clGetDeviceIDs", CL_DEVICE_NOT_FOUND, ptr::null_mut(), ask)
}

fn platform_name(api: &Api, platform: cl_platform_id) -> String {
    // SAFETY: there is room for as many bytes as are asked for.
    let ask = |room, to, size| unsafe { (api.get_platform_info)(platform, CL_PLATFORM_NAME, room, to, size) };
    info("clGetPlatformInfo", ask).map_or_else(|_| "a platform".to_owned(), |bytes| text(&bytes))
}

/// An OpenCL device that can be used.
#[derive(Clone)]
pub struct OpenClDevice(Arc<Found>);

impl OpenClDevice {
    /// The first.
    ///
    /// # Errors
    /// As [`OpenCl::devices`].
    pub fn first() -> Result<OpenClDevice, OpenClError> {
        OpenClDevice::by_index(0)
    }

    /// One of [`OpenCl::devices`], numbered from 0.
    ///
    /// # Errors
    /// As [`OpenCl::devices`]; and [`OpenClError::NoSuchDevice`].
    pub fn by_index(index: usize) -> Result<OpenClDevice, OpenClError> {
        let mut devices = OpenCl::devices()?;
        match index < devices.len() {
            true => Ok(devices.swap_remove(index)),
            false => Err(OpenClError::NoSuchDevice { index, usable: devices.len() }),
        }
    }
}

impl fmt::Debug for OpenClDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenClDevice").field(&self.0.name()).finish()
    }
}

impl Device for OpenClDevice {
    fn kind(&self) -> &str {
        KIND
    }

    fn name(&self) -> String {
        self.0.name()
    }

    fn suits(&self, def: &DeviceDef) -> Result<u32, DeviceError> {
        self.0.suits(def).map(|()| 1)
    }

    fn load(&self, def: &DeviceDef, code: &[u8]) -> Result<Arc<dyn DeviceModule>, DeviceError> {
        self.0.suits(def)?;
        Ok(Arc::new(Module::load(&self.0, def, code)?))
    }
}
