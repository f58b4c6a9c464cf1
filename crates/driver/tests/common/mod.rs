//! What the test programs on whole models share: where models lie, and a `main` for tests that may be skipped.
//!
//! The models are large and not part of the repository: `cargo xtask models` puts them into `target/models`. A
//! model that is not there counts as ignored, and so do all of them in a build without optimisation.

#[path = "../../../../tools/conditional_tests.rs"]
mod conditional;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prefixes an error with what was being done.
pub(crate) fn failed<E: Display>(doing: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{doing}: {error}")
}

/// Checks subjects, each a test of its own, which may lack something here.
pub(crate) fn check_all<S: Sync>(
    subjects: &'static [S],
    name_of: impl Fn(&'static S) -> &'static str,
    lacking: impl Fn(&'static S) -> Option<String>,
    check: fn(&'static S) -> Result<(), String>,
) -> ExitCode {
    let test =
        |subject| conditional::Conditional::new(name_of(subject), lacking(subject), move || check(subject));
    conditional::run(subjects.iter().map(test))
}

/// Cargo's target folder.
pub(crate) fn target_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Where a model lies, or why it cannot be tested here.
pub(crate) fn model_path(name: &str) -> Result<PathBuf, String> {
    if cfg!(debug_assertions) {
        return Err("the build is not optimised".to_string());
    }
    let model = target_dir().join("models").join(format!("{name}.onnx"));
    if !model.exists() {
        let reason = format!("no {}; `cargo xtask models` makes it", model.display());
        return Err(reason);
    }
    Ok(model)
}
