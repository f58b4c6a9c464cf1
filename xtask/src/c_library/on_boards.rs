//! The C library on boards: its tests and examples in C, linked with the smallest static library and run where something plays a board.

use std::fs;
use std::path::Path;

use super::check::{Models, TESTS, words};
use super::emitted::{Board, command};
use super::libraries::{Library, build_archive, header_folder};
use super::tools::count;
use crate::project;
use crate::tally::Tally;

/// Checks the library for a machine whose part something else plays; `rust` is that in Rust's words.
pub(crate) fn check_on(program: &Path, target: &str, rust: &str, board: &Board) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let folder = project::target_dir().join(format!("boards/c-library-{target}"));
    fs::create_dir_all(&folder)?;
    let library = folder.join("libtilewright.a");
    count(&mut tally, "the C library", None, || build_archive(rust, &library));
    let mut models = None;
    count(&mut tally, "models for the C library", None, || {
        models = Some(Models::compile(program, target, &folder)?);
        Ok(())
    });
    let Some(models) = models else { return Ok(tally) };
    let headers = header_folder();
    let in_c = |source: &str| source.ends_with(".c");
    for test in TESTS.iter().filter(|test| test.library == Library::Runtime && in_c(test.source)) {
        count(&mut tally, test.source, None, || {
            let built = folder.join(test.source.replace(['/', '.'], "-"));
            let mut compile = command(&board.compiler, words(test.source));
            compile.arg("-static").arg("-I").arg(headers.parent().unwrap_or(&headers));
            compile.arg(project::path(test.source)).arg(&library).arg("-o").arg(&built);
            project::run(&mut compile)?;
            project::run(command(&board.emulator, [built]).args((test.arguments)(&models)))
        });
    }
    Ok(tally)
}
