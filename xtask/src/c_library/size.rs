//! The size of the library that runs models, as small as it is built: it fails where it grows.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, ensure};

use super::libraries::{Flavour, Library, build};
use crate::{cross, project};

/// Bytes that the stripped library may have at most.
const MOST: u64 = 300_000;

/// Where the figures are: a line for each machine.
const FIGURES: &str = "xtask/data/c-library/sizes.txt";

/// A check, what it lacks, and how it is done.
type Check<'c> = &'c mut dyn FnMut(&str, Option<String>, Box<dyn FnOnce() -> anyhow::Result<()>>);

/// Holds each machine's library to its figure.
pub(super) fn check(check: Check<'_>) {
    let figures = match figures() {
        Ok(figures) => figures,
        Err(error) => return check("sizes", None, Box::new(move || Err(error))),
    };
    for (target, figure) in figures {
        let is_here = cross::host().as_ref() == Some(&target);
        let no_source = || Some("no source of Rust's library: run `cargo xtask setup --boards`".to_string());
        let missing = match cross::has_library_source() {
            false => no_source(),
            true if is_here => None,
            true => cross::missing(&target),
        };
        check(&format!("size for {target}"), missing, Box::new(move || hold(&target, is_here, figure)));
    }
}

fn hold(target: &str, is_here: bool, figure: u64) -> anyhow::Result<()> {
    let flavour = Flavour { target: (!is_here).then(|| target.to_string()), small: true };
    let bytes = fs::metadata(stripped(&flavour)?)?.len();
    println!("libtilewright.so for {target}: {bytes} bytes, by {FIGURES} {figure}");
    ensure!(bytes <= MOST, "{bytes} bytes are more than {MOST}");
    ensure!(
        bytes * 100 <= figure * 102,
        "{bytes} bytes are over 2 % more than {figure}, which {FIGURES} says"
    );
    Ok(())
}

/// The shared library, which the profile strips.
fn stripped(flavour: &Flavour) -> anyhow::Result<PathBuf> {
    Ok(build(Library::Runtime, flavour)?.shared)
}

/// The targets of the file of figures, with their bytes.
fn figures() -> anyhow::Result<Vec<(String, u64)>> {
    let text = fs::read_to_string(project::path(FIGURES)).context(FIGURES)?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let figure = |line: &str| {
        let (target, bytes) = line.split_once(' ').with_context(|| format!("{FIGURES}: {line}"))?;
        Ok((target.to_string(), bytes.trim().parse()?))
    };
    lines.map(figure).collect()
}
