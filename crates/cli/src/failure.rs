//! Failures of the command: a message and an exit code that says whose fault it is.

use std::path::Path;

use tilewright_driver::run::exit;
pub(crate) use tilewright_driver::run::exit::Exit;
use tilewright_driver::run::files::FileError;
use tilewright_driver::run::noise::NoiseError;
use tilewright_driver::runtime::{LoadError, RunError, TensorError};
use tilewright_driver::tune::JournalError;
use tilewright_driver::{CompileError, Error, SearchError};
use tilewright_run::remote::{RemoteError, ServeFailure};

/// What messages of failures begin with.
pub(crate) const ERROR: &str = "error: ";

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
        Failure::new((&error).into(), error)
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        Failure::new((&error).into(), error)
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
            NoiseError::Tensor { .. } => Failure::new((&error).into(), error),
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

impl From<RemoteError> for Failure {
    fn from(error: RemoteError) -> Failure {
        Failure { code: error.exit_code(), message: error.to_string() }
    }
}

impl From<ServeFailure> for Failure {
    fn from(failure: ServeFailure) -> Failure {
        Failure::new((&failure).into(), failure)
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Failure {
        Failure::new((&error).into(), error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        Failure::new((&error).into(), exit::message(&error))
    }
}
