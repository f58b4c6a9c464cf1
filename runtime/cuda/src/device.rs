//! Devices that models can be loaded for.

use std::fmt;
use std::sync::Arc;

use tilewright_runtime::artifact::DeviceDef;
use tilewright_runtime::device::{Device, DeviceError, DeviceModule};

use crate::code::fitting;
use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::module::CudaModule;

/// The driver's devices.
pub enum Cuda {}

impl Cuda {
    /// All of them, at least one. Nothing is made on any.
    ///
    /// # Errors
    /// Where there is none, or no driver that works.
    pub fn devices() -> Result<Vec<CudaDevice>, CudaError> {
        let count = Gpu::count()?;
        (0..count).map(|index| Ok(CudaDevice { gpu: Gpu::at(index, count)? })).collect()
    }
}

/// An NVIDIA GPU.
#[derive(Clone)]
pub struct CudaDevice {
    gpu: Gpu,
}

impl CudaDevice {
    /// One device, by its place among [`Cuda::devices`].
    ///
    /// # Errors
    /// Where there are fewer, or no driver that works.
    pub fn by_index(index: usize) -> Result<CudaDevice, CudaError> {
        Ok(CudaDevice { gpu: Gpu::at(index, Gpu::count()?)? })
    }

    /// Its place among the devices.
    pub fn index(&self) -> usize {
        self.gpu.index
    }

    /// Its compute capability: major number, minor number.
    pub fn compute_capability(&self) -> (u32, u32) {
        (self.gpu.sm / 10, self.gpu.sm % 10)
    }

    /// [`Device::load`], for what only this kind of device has.
    ///
    /// # Errors
    /// [`DeviceError::Unfit`] and [`DeviceError::Code`]; [`DeviceError::Fault`] where the device has no room for a context.
    pub fn load_module(&self, def: &DeviceDef, code: &[u8]) -> Result<CudaModule, DeviceError> {
        CudaModule::load(&self.gpu, def, code)
    }
}

impl fmt::Display for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.gpu.name)
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaDevice({self})")
    }
}

impl Device for CudaDevice {
    fn kind(&self) -> &str {
        "cuda"
    }

    fn name(&self) -> String {
        self.gpu.name.clone()
    }

    /// Code for a newer generation is the better, then code that the driver need not assemble.
    fn suits(&self, def: &DeviceDef) -> Result<u32, DeviceError> {
        let arch = fitting(&self.gpu, def)?;
        let has_cubin = def.parts.iter().any(|(format, _)| format == "cubin");
        Ok(2 * arch.sm() + u32::from(has_cubin && arch.cubin_runs_on(self.gpu.sm)))
    }

    fn load(&self, def: &DeviceDef, code: &[u8]) -> Result<Arc<dyn DeviceModule>, DeviceError> {
        Ok(Arc::new(self.load_module(def, code)?))
    }
}
