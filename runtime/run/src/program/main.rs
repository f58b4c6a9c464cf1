//! `tilewright-run`: runs, times and profiles compiled models where there is no compiler, and measures schedules for tuning.

mod args;
mod remote;
mod verbs;

use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use tilewright_run::exit::{self, Exit};
use tilewright_run::files::FileError;
use tilewright_run::noise::NoiseError;
use tilewright_run::remote::{RemoteError, ServeFailure};
use tilewright_run::{LoadError, RunError, measure};

use args::Command;

/// Why the program does not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    code: u8,
    message: String,
}

impl Failure {
    /// The command line asks for what makes no sense.
    pub(crate) fn usage(message: impl ToString) -> Failure {
        Failure { code: Exit::Usage as u8, message: message.to_string() }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Failure {
        Failure { code: Exit::from(&error) as u8, message: error.to_string() }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        Failure { code: Exit::from(&error) as u8, message: exit::message(&error) }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        Failure { code: Exit::from(&error) as u8, message: error.to_string() }
    }
}

impl From<NoiseError> for Failure {
    fn from(error: NoiseError) -> Failure {
        Failure { code: Exit::from(&error) as u8, message: format!("{error}: give --inputs") }
    }
}

impl From<RemoteError> for Failure {
    fn from(error: RemoteError) -> Failure {
        Failure { code: error.exit_code(), message: error.to_string() }
    }
}

impl From<ServeFailure> for Failure {
    fn from(failure: ServeFailure) -> Failure {
        Failure { code: Exit::from(&failure) as u8, message: failure.to_string() }
    }
}

impl From<measure::files::FileError> for Failure {
    fn from(error: measure::files::FileError) -> Failure {
        Failure { code: Exit::from(&error) as u8, message: error.to_string() }
    }
}

/// Prints to standard output. A reader that has gone (`| head`) is no failure; a full disk is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure {
            code: Exit::Io as u8,
            message: format!("cannot write to standard output: {error}"),
        }),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn main() -> ExitCode {
    let done = args::parse(lexopt::Parser::from_env()).and_then(|command| match command {
        Command::Print(text) => print(&text),
        Command::Run(run) => verbs::run(&run),
        Command::Bench(bench) => verbs::bench(&bench),
        Command::Profile(profile) => verbs::profile(&profile),
        Command::Measure(request) => verbs::measure_request(&request),
        Command::Serve(serve) => remote::serve(serve),
        Command::Work => remote::work(),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, message }) => {
            // That nobody can read it is not worth another failure.
            _ = writeln!(std::io::stderr(), "error: {message}");
            ExitCode::from(code)
        }
    }
}
