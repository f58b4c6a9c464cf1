//! Failures of the command: a message and an exit code that says whose fault it is.

use std::fmt::Write as _;
use std::path::Path;

use tilewright_driver::run::files::{FileError, NpyError, PbError};
use tilewright_driver::run::noise::NoiseError;
use tilewright_driver::runtime::device::DeviceError;
use tilewright_driver::runtime::{InputErrors, LoadError, ModelError, RunError, TensorError};
use tilewright_driver::tune::JournalError;
use tilewright_driver::{CompileError, Error, SearchError};

/// What messages of failures begin with.
pub(crate) const ERROR: &str = "error: ";

/// Exit codes other than 0, as the manual states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
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

/// Why the command did not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    /// What the user is told.
    pub(crate) message: String,
}

impl Failure {
    /// A failure with a message.
    pub(crate) fn new(exit: Exit, message: impl ToString) -> Failure {
        Failure { code: exit as u8, message: message.to_string() }
    }

    /// The command line asks for what makes no sense.
    pub(crate) fn usage(message: impl ToString) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// Data that is not what it should be.
    pub(crate) fn data(message: impl ToString) -> Failure {
        Failure::new(Exit::Data, message)
    }

    /// A file that cannot be read.
    pub(crate) fn read(path: &Path, error: &std::io::Error) -> Failure {
        Failure::new(Exit::Io, format!("cannot read {}: {error}", path.display()))
    }

    /// A file that cannot be written.
    pub(crate) fn write(path: &Path, error: &std::io::Error) -> Failure {
        Failure::new(Exit::Io, format!("cannot write {}: {error}", path.display()))
    }

    /// The same failure with the file it is about in front.
    pub(crate) fn about(mut self, path: &Path) -> Failure {
        let name = path.display().to_string();
        if !self.message.contains(&name) {
            self.message = format!("{name}: {}", self.message);
        }
        self
    }
}

impl From<CompileError> for Failure {
    fn from(error: CompileError) -> Failure {
        Failure { code: error.exit_code(), message: error.to_string() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Compile(error) => error.into(),
            Error::Load(error) => error.into(),
            Error::Tensor(error) => error.into(),
            Error::Run(error) => error.into(),
            Error::Device(error) => error.into(),
            Error::Files(error) => error.into(),
            Error::Noise(error) => error.into(),
            Error::NoReference => Failure::usage(error),
            Error::Unpaired { .. } => Failure::data(error),
            _ => Failure::new(Exit::Internal, error),
        }
    }
}

impl From<TensorError> for Failure {
    fn from(error: TensorError) -> Failure {
        Failure::new(of_tensor(&error), error)
    }
}

fn of_tensor(error: &TensorError) -> Exit {
    match error {
        TensorError::Memory(_) => Exit::Limit,
        TensorError::Elements { .. }
        | TensorError::Bytes { .. }
        | TensorError::DType { .. }
        | TensorError::TooLarge { .. }
        | TensorError::Strings => Exit::Data,
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        let exit = match &error {
            FileError::Read { .. } | FileError::Write { .. } => Exit::Io,
            FileError::NoArray { .. } | FileError::Strings { .. } => Exit::Unsupported,
            FileError::Array { error: NpyError::Tensor(error), .. }
            | FileError::Npy { error: NpyError::Tensor(error), .. }
            | FileError::Pb { error: PbError::Made(error), .. } => of_tensor(error),
            FileError::NotNpz { .. }
            | FileError::Array { .. }
            | FileError::Twice { .. }
            | FileError::Npy { .. }
            | FileError::NoName { .. }
            | FileError::Pb { .. } => Exit::Data,
        };
        Failure::new(exit, error)
    }
}

impl From<NoiseError> for Failure {
    fn from(error: NoiseError) -> Failure {
        match &error {
            NoiseError::OpenExtent { dim, .. } => {
                let dim = if dim.is_empty() { "NAME" } else { dim };
                let way = format!("give --inputs, or fix it with --dim {dim}=N on the ONNX file");
                Failure::usage(format!("{error}: {way}"))
            }
            NoiseError::Unsupported { .. } => Failure::usage(format!("{error}: give --inputs")),
            NoiseError::Tensor { error: fault, .. } => Failure::new(of_tensor(fault), error),
        }
    }
}

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Failure {
        Failure { code: error.exit_code(), message: error.to_string() }
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Failure {
        let exit = match &error {
            JournalError::Read { .. } | JournalError::Write { .. } => Exit::Io,
            JournalError::Entry(_) => Exit::Internal,
        };
        Failure::new(exit, error)
    }
}

/// Whose fault it is that a device does not do what it is to.
fn of_device(error: &DeviceError) -> Exit {
    match error {
        DeviceError::Unfit { .. } | DeviceError::Stream { .. } => Exit::Unsupported,
        DeviceError::Code { .. } => Exit::Data,
        DeviceError::Memory { .. } => Exit::Limit,
        DeviceError::Fault { .. } => Exit::Io,
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Failure {
        let exit = match &error {
            LoadError::File { .. } => Exit::Io,
            LoadError::Code(_) | LoadError::Model(ModelError::Memory(_)) => Exit::Limit,
            LoadError::SeveralDevices(_) => Exit::Usage,
            LoadError::Model(ModelError::DType { .. } | ModelError::HostOps(_) | ModelError::NoDevice)
            | LoadError::NeedsDevice(_)
            | LoadError::OtherDevice { .. } => Exit::Unsupported,
            LoadError::Device(error) | LoadError::Model(ModelError::Device(error)) => of_device(error),
            LoadError::Artifact(_)
            | LoadError::Isa(_)
            | LoadError::Model(
                ModelError::Plan(_)
                | ModelError::Kernels { .. }
                | ModelError::Space(_)
                | ModelError::Weights { .. }
                | ModelError::Program(_),
            ) => Exit::Data,
        };
        Failure::new(exit, error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        match &error {
            RunError::Inputs(errors) => errors.clone().into(),
            RunError::Guard { .. } | RunError::Host { .. } => Failure::data(error),
            RunError::Limit { .. } | RunError::Memory(_) => Failure::new(Exit::Limit, error),
            RunError::Device(fault) => Failure::new(of_device(fault), error),
            // The command cancels nothing.
            RunError::Plan { .. } => Failure::new(Exit::Internal, error),
            RunError::Cancelled => Failure::new(Exit::Cancelled, error),
        }
    }
}

impl From<InputErrors> for Failure {
    fn from(errors: InputErrors) -> Failure {
        let mut message = "the inputs do not fit the model:".to_string();
        for error in &errors.0 {
            // Writing to a string cannot fail.
            _ = write!(message, "\n  {error}");
        }
        Failure::data(message)
    }
}
