//! The tests, which run in processes of their own.

mod dlpack;
mod faked;
mod graphs;
mod help;
pub(crate) mod real;
mod sessions;

use std::process::ExitCode;

/// Runs one, as all that the process does.
pub(crate) fn run(name: &str) -> ExitCode {
    let outcome = match faked::find(name)
        .or_else(|| graphs::find(name))
        .or_else(|| dlpack::find(name))
        .or_else(|| sessions::find(name))
        .or_else(|| real::find(name))
    {
        Some(check) => check(),
        None => Err(format!("there is no test {name}").into()),
    };
    if let Err(error) = &outcome {
        eprintln!("{error}");
    }
    ExitCode::from(u8::from(outcome.is_err()))
}
