//! `cargo xtask c-library`: builds the C libraries and puts them, with headers and what pkg-config and CMake find them by, below a folder.

mod archive;
mod check;
pub(crate) mod emitted;
mod headers;
pub(crate) mod inside;
mod libraries;
pub(crate) mod on_boards;
mod tools;

use std::path::PathBuf;

use crate::build;
use crate::cargo::Cargo;
use crate::project::Verdict;

use libraries::{Flavour, Library, default_prefix, install};

pub(crate) use check::check;
use check::check_models;
pub(crate) use libraries::small;

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to put them: `include`, `lib` and what is in these; target/c-library/prefix if not said
    #[arg(long)]
    prefix: Option<PathBuf>,
    /// Another machine and system in Rust's words, as aarch64-unknown-linux-gnu
    #[arg(long)]
    target: Option<String>,
    /// The compiler's library as well, which is far larger
    #[arg(long)]
    compiler: bool,
    /// Take Rust's library built for size, without the texts of its defects, and leave host operators out: the smallest library
    #[arg(long, conflicts_with = "compiler")]
    small: bool,
    /// Keep host operators in the small library
    #[arg(long, requires = "small")]
    host_operators: bool,
    /// Check the libraries for this machine instead, as `cargo xtask test` does
    #[arg(long)]
    check: bool,
    /// Check only the libraries that models become (`tilewright compile --emit static`)
    #[arg(long)]
    check_models: bool,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    if args.check || args.check_models {
        let program = build::tilewright(&Cargo::detect())?;
        let tally = if args.check { check(&program)? } else { check_models(&program) };
        println!("{tally}");
        return Ok(tally.failed == 0);
    }
    let prefix = match &args.prefix {
        Some(prefix) => std::path::absolute(prefix)?,
        None => default_prefix(),
    };
    let flavour = Flavour {
        target: args.target.clone(),
        small: args.small,
        host_operators: !args.small || args.host_operators,
    };
    install(Library::Runtime, &flavour, &prefix)?;
    if args.compiler {
        install(Library::Compiler, &flavour, &prefix)?;
    }
    println!("{}", prefix.display());
    Ok(true)
}
