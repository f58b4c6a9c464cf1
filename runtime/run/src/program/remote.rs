//! Models on other machines, and this machine for others.

use std::io::Write as _;
use std::path::Path;

use tilewright_run::exit::Exit;
use tilewright_run::remote::{self, Access, How, JobFailure, Remote, RemoteModel, Serve};
use tilewright_run::{LoadOptions, Model, Trust};

use crate::{Failure, print};

/// A server that will load models so, and an artifact for it.
pub(crate) fn open(access: &Access, how: How, model: &Path) -> Result<(Remote, RemoteModel), Failure> {
    let server = access.server.clone();
    let waiting = move |ahead| note(&format!("waiting for {server}: {ahead} before this\n"));
    let remote = Remote::connect(access)?.loading(how).waiting(waiting);
    Ok((remote, RemoteModel::read(model)?))
}

/// `serve`: lets other machines run models here.
pub(crate) fn serve(serve: Serve) -> Result<(), Failure> {
    let mut printed = Ok(());
    let ready = |address| printed = print(&format!("serving on {address}\n"));
    remote::serve(serve, ready, |line| note(&format!("{line}\n")))?;
    printed
}

/// `work`: does what a server asks for.
pub(crate) fn work() -> Result<(), Failure> {
    let load = |path: &Path, options: LoadOptions, device: Option<&str>| match device {
        // The server's clients are trusted with all that it may do.
        None | Some("cpu") => Ok(Model::load_with(path, Trust::Origin, &options)?),
        Some(name) => Err(JobFailure {
            code: Exit::Unsupported as u8,
            message: format!("no device {name}: tilewright-run has the processor alone"),
        }),
    };
    remote::work(&load).map_err(|error| Failure { code: Exit::Io as u8, message: error.to_string() })
}

/// Prints to standard error; that nobody can read it is not worth a failure.
fn note(text: &str) {
    _ = std::io::stderr().write_all(text.as_bytes());
}
