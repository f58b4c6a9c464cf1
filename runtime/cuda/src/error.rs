//! What the driver's results mean.

use tilewright_runtime::device::DeviceError;

/// Why there is no device to be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// The machine has no CUDA driver.
    #[error("there is no CUDA driver on this machine (libcuda is not found)")]
    NoDriver,
    /// There is a driver, but it has no device, or is told to show none.
    #[error("the CUDA driver has no device")]
    NoDevice,
    /// Fewer devices than that.
    #[error("there is no CUDA device {index}: devices are counted from 0, and there {}", Devices(*count))]
    NoSuchDevice {
        /// The one asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The driver is older than all that code is made for.
    #[error("the driver is of CUDA {version}, and CUDA {needed} is needed: install a newer driver")]
    Old {
        /// The version of CUDA that the driver is made for.
        version: String,
        /// The oldest that will do.
        needed: String,
    },
    /// The driver does not work.
    #[error("the CUDA driver does not work: {call}: {reason}")]
    Driver {
        /// Which of its functions.
        call: &'static str,
        /// What it says.
        reason: String,
    },
}

struct Devices(usize);

impl std::fmt::Display for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            1 => write!(f, "is 1"),
            count => write!(f, "are {count}"),
        }
    }
}

/// A call of the driver that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The function.
    pub(crate) call: &'static str,
    /// Its result.
    pub(crate) code: u32,
    /// Name and text of the result.
    pub(crate) reason: String,
}

impl Failure {
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const NO_DEVICE: u32 = 100;
    pub(crate) const NO_BINARY_FOR_GPU: u32 = 209;
    pub(crate) const UNSUPPORTED_PTX_VERSION: u32 = 222;

    /// Whether the context is lost with it, so that all later calls fail too.
    ///
    /// The driver says of each of these that the process must be started anew, or that the context is gone: `DEINITIALIZED`,
    /// `ECC_UNCORRECTABLE`, `NVLINK_UNCORRECTABLE`, `CONTAINED`, then from `ILLEGAL_ADDRESS` on, `LAUNCH_TIMEOUT`,
    /// `CONTEXT_IS_DESTROYED`, `ASSERT`, `HARDWARE_STACK_ERROR` to `LAUNCH_FAILED`, `TENSOR_MEMORY_LEAK`, `MPS_CLIENT_TERMINATED`.
    pub(crate) fn is_sticky(&self) -> bool {
        matches!(self.code, 4 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 809)
    }

    /// As a fault of a device.
    pub(crate) fn fault(self, device: &str) -> DeviceError {
        let call = self.call;
        let reason = match self.is_sticky() {
            true => {
                format!("{} ({call}); its context is lost, and only a new process can use it", self.reason)
            }
            false => format!("{} ({call})", self.reason),
        };
        DeviceError::Fault { device: device.to_owned(), reason }
    }
}

impl From<Failure> for CudaError {
    fn from(failure: Failure) -> CudaError {
        match failure.code {
            Failure::NO_DEVICE => CudaError::NoDevice,
            _ => CudaError::Driver { call: failure.call, reason: failure.reason },
        }
    }
}
