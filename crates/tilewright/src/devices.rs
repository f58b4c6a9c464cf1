//! Devices by name, for programs that load models for them.

use std::sync::Arc;

use tilewright_machine::DeviceKind;
use tilewright_runtime::device::Device;
use tilewright_runtime_opencl::{OpenCl, OpenClDevice, OpenClError};

/// A device that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DevicesError {
    /// A text that names no device.
    #[error("`{name}` is no device: `opencl` and `cuda` are, with a number after a colon where there are several")]
    Name {
        /// The text.
        name: String,
    },
    /// This build cannot run models on the kind of device.
    #[error("this build runs nothing on {0} devices")]
    NotBuilt(DeviceKind),
    /// No OpenCL device.
    #[error("{0}; what has a driver for OpenCL is a device, and PoCL makes one of the processor (package pocl-opencl-icd)")]
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
        DeviceKind::Cuda => Err(DevicesError::NotBuilt(DeviceKind::Cuda)),
    }
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
    match OpenCl::find() {
        Err(error) => vec![reason(error.to_string())],
        Ok(OpenCl { usable, unusable }) => {
            let name = |index: usize| Some(format!("{}:{index}", DeviceKind::OpenCl));
            let usable = usable.iter().enumerate();
            let usable = usable.map(|(i, device)| Listed { name: name(i), description: device.name() });
            let unusable = unusable.into_iter().map(|other| reason(format!("{}: {}", other.name, other.reason)));
            usable.chain(unusable).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_no_device_are_told_apart() {
        for name in ["gpu", "opencl:x", ""] {
            assert!(matches!(open(name), Err(DevicesError::Name { .. })), "{name}");
        }
        assert!(matches!(open("opencl:9999"), Err(DevicesError::OpenCl(_))));
    }
}
