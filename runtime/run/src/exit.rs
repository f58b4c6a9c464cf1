//! Exit codes of programs that run models: whose fault it is that one does not succeed.

use tilewright_runtime::device::DeviceError;
use tilewright_runtime::{LoadError, ModelError, RunError, TensorError};

#[cfg(feature = "files")]
use crate::files::{FileError, NpyError, PbError};
use crate::noise::NoiseError;

/// Exit codes other than 0, as the manual states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// A comparison found a difference.
    Check = 1,
    /// The command line asks for what makes no sense.
    Usage = 2,
    /// The model or the options need what is not there.
    Unsupported = 3,
    /// A limit of memory or size.
    Limit = 4,
    /// Invalid model, artifact or data.
    Data = 5,
    /// Files that cannot be read or written.
    Io = 6,
    /// A bug of ours.
    Internal = 70,
    /// Somebody asked it to stop.
    Cancelled = 130,
}

impl From<&TensorError> for Exit {
    fn from(error: &TensorError) -> Exit {
        match error {
            TensorError::Memory(_) => Exit::Limit,
            TensorError::Elements { .. }
            | TensorError::Bytes { .. }
            | TensorError::DType { .. }
            | TensorError::TooLarge { .. }
            | TensorError::Strings => Exit::Data,
        }
    }
}

#[cfg(feature = "files")]
impl From<&FileError> for Exit {
    fn from(error: &FileError) -> Exit {
        match error {
            FileError::Read { .. } | FileError::Write { .. } => Exit::Io,
            FileError::NoArray { .. } | FileError::Strings { .. } => Exit::Unsupported,
            FileError::Array { error: NpyError::Tensor(error), .. }
            | FileError::Npy { error: NpyError::Tensor(error), .. }
            | FileError::Pb { error: PbError::Made(error), .. } => error.into(),
            FileError::NotNpz { .. }
            | FileError::Array { .. }
            | FileError::Twice { .. }
            | FileError::Npy { .. }
            | FileError::NoName { .. }
            | FileError::Pb { .. } => Exit::Data,
        }
    }
}

#[cfg(feature = "measure")]
impl From<&crate::measure::files::FileError> for Exit {
    fn from(error: &crate::measure::files::FileError) -> Exit {
        use crate::measure::files::FileError;
        match error {
            FileError::Read { .. } | FileError::Write { .. } => Exit::Io,
            FileError::Request { .. } => Exit::Data,
        }
    }
}

impl From<&NoiseError> for Exit {
    fn from(error: &NoiseError) -> Exit {
        match error {
            NoiseError::OpenExtent { .. } | NoiseError::Unsupported { .. } => Exit::Usage,
            NoiseError::Tensor { error, .. } => error.into(),
        }
    }
}

impl From<&DeviceError> for Exit {
    fn from(error: &DeviceError) -> Exit {
        match error {
            DeviceError::Code { .. } => Exit::Data,
            DeviceError::Memory { .. } => Exit::Limit,
            DeviceError::Fault { .. } => Exit::Io,
            // Unfit, or without what a caller brings: the runtime has the latter only where it has devices.
            _ => Exit::Unsupported,
        }
    }
}

impl From<&LoadError> for Exit {
    fn from(error: &LoadError) -> Exit {
        match error {
            LoadError::File { .. } => Exit::Io,
            LoadError::Code(_) | LoadError::Model(ModelError::Memory(_)) => Exit::Limit,
            LoadError::SeveralDevices(_) => Exit::Usage,
            LoadError::Model(ModelError::DType { .. } | ModelError::HostOps(_) | ModelError::NoDevice)
            | LoadError::NeedsDevice(_)
            | LoadError::OtherDevice { .. } => Exit::Unsupported,
            LoadError::Device(error) | LoadError::Model(ModelError::Device(error)) => error.into(),
            LoadError::Artifact(_)
            | LoadError::Isa(_)
            | LoadError::Model(
                ModelError::Plan(_)
                | ModelError::Kernels { .. }
                | ModelError::Space(_)
                | ModelError::Weights { .. }
                | ModelError::Program(_),
            ) => Exit::Data,
        }
    }
}

impl From<&RunError> for Exit {
    fn from(error: &RunError) -> Exit {
        match error {
            RunError::Inputs(_) | RunError::Guard { .. } | RunError::Host { .. } => Exit::Data,
            RunError::Limit { .. } | RunError::Memory(_) => Exit::Limit,
            RunError::Device(fault) => fault.into(),
            RunError::Plan { .. } => Exit::Internal,
            RunError::Cancelled => Exit::Cancelled,
        }
    }
}

/// A message that says all that is wrong with a run: problems with the inputs line by line.
pub fn message(error: &RunError) -> String {
    match error {
        RunError::Inputs(errors) => {
            let lines: String = errors.0.iter().map(|error| format!("\n  {error}")).collect();
            format!("the inputs do not fit the model:{lines}")
        }
        _ => error.to_string(),
    }
}
