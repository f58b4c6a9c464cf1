//! Devices by name, for programs that load models for them.

use std::sync::Arc;

use tilewright_machine::{DeviceKind, Gpu};
use tilewright_runtime::device::Device;
use tilewright_runtime_cuda::{Cuda, CudaDevice, CudaError};
use tilewright_runtime_opencl::{OpenCl, OpenClDevice, OpenClError};

/// A device that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DevicesError {
    /// A text that names no device.
    #[error(
        "`{name}` is no device: `opencl` and `cuda` are, with a number after a colon where there are several"
    )]
    Name {
        /// The text.
        name: String,
    },
    /// No CUDA device.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// No OpenCL device.
    #[error(
        "{0}; what has a driver for OpenCL is a device, and PoCL makes one of the processor (package pocl-opencl-icd)"
    )]
    OpenCl(#[from] OpenClError),
}

/// The device of a name: a kind, `opencl`, or one of several of a kind, `opencl:1`.
///
/// # Errors
/// Where there is no such device.
pub fn open(name: &str) -> Result<Arc<dyn Device>, DevicesError> {
    let unknown = || DevicesError::Name { name: name.to_string() };
    let (kind, index) = match name.split_once(':') {
        Some((kind, index)) => (kind, index.parse().map_err(|_| unknown())?),
        None => (name, 0),
    };
    match DeviceKind::ALL.into_iter().find(|device| device.name() == kind).ok_or_else(unknown)? {
        DeviceKind::OpenCl => Ok(Arc::new(OpenClDevice::by_index(index)?)),
        DeviceKind::Cuda => Ok(Arc::new(CudaDevice::by_index(index)?)),
    }
}

/// The newest generation that code is made for and this machine's first CUDA device runs; nothing where there is none.
pub fn cuda_gpu() -> Option<Gpu> {
    let (major, minor) = CudaDevice::by_index(0).ok()?.compute_capability();
    newest(10 * major + minor)
}

/// The newest generation that a device of a compute capability runs.
fn newest(capability: u32) -> Option<Gpu> {
    Gpu::ALL.into_iter().filter(|gpu| gpu.sm <= capability).max_by_key(|gpu| gpu.sm)
}

/// A device, or what stands in the way of using it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// What [`open`] takes; nothing where the device cannot be used.
    pub name: Option<String>,
    /// What it is, or why it cannot be used.
    pub description: String,
}

/// All devices that this build could run models on, and what stands in the way of others.
pub fn list() -> Vec<Listed> {
    let reason = |description: String| Listed { name: None, description };
    let of_kind = |kind: DeviceKind, names: Vec<String>| {
        let listed = move |(i, description)| Listed { name: Some(format!("{kind}:{i}")), description };
        names.into_iter().enumerate().map(listed)
    };
    let mut devices = Vec::new();
    match Cuda::devices() {
        Err(error) => devices.push(reason(error.to_string())),
        Ok(found) => devices.extend(of_kind(DeviceKind::Cuda, found.iter().map(Device::name).collect())),
    }
    match OpenCl::find() {
        Err(error) => devices.push(reason(error.to_string())),
        Ok(OpenCl { usable, unusable }) => {
            devices.extend(of_kind(DeviceKind::OpenCl, usable.iter().map(Device::name).collect()));
            let unusable =
                unusable.into_iter().map(|other| reason(format!("{}: {}", other.name, other.reason)));
            devices.extend(unusable);
        }
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_runs_code_for_its_generation_and_older_ones() {
        let newest = |capability| newest(capability).map(|gpu| gpu.sm);
        assert_eq!([75, 80, 87, 90, 120].map(newest), [None, Some(80), Some(86), Some(90), Some(100)]);
    }

    #[test]
    fn names_of_no_device_are_told_apart() {
        for name in ["gpu", "opencl:x", ""] {
            assert!(matches!(open(name), Err(DevicesError::Name { .. })), "{name}");
        }
        assert!(matches!(open("opencl:9999"), Err(DevicesError::OpenCl(_))));
        assert!(matches!(open("cuda:9999"), Err(DevicesError::Cuda(_))));
    }
}
