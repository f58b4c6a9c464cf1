//! What the test programs on whole models share: where models lie, and a `main` for tests that may be skipped.
//!
//! The models are large and not part of the repository: `cargo xtask models` puts them into `target/models`. A
//! model that is not there counts as ignored, and so do all of them in a build without optimisation.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Why a subject did not pass.
pub(crate) enum Outcome {
    Skipped(String),
    Failed(String),
}

/// Prefixes an error with what was being done.
pub(crate) fn failed<E: Display>(doing: &str) -> impl FnOnce(E) -> Outcome {
    move |error| Outcome::Failed(format!("{doing}: {error}"))
}

/// Checks subjects one after the other and reports as other test programs do. Arguments choose subjects by parts of
/// their names.
pub(crate) fn check_all<'a, S>(
    subjects: &'a [S],
    name_of: impl Fn(&'a S) -> &'static str,
    check: impl Fn(&'a S) -> Result<(), Outcome>,
) -> ExitCode {
    let filters: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for subject in subjects {
        let name = name_of(subject);
        if !filters.is_empty() && !filters.iter().any(|f| name.contains(f.as_str())) {
            continue;
        }
        let start = Instant::now();
        match check(subject) {
            Ok(()) => {
                passed += 1;
                println!("model {name} ... ok, {:.1} s", start.elapsed().as_secs_f64());
            }
            Err(Outcome::Skipped(reason)) => {
                ignored += 1;
                println!("model {name} ... skipped: {reason}");
            }
            Err(Outcome::Failed(reason)) => {
                failed += 1;
                println!("model {name} ... FAILED: {reason}");
            }
        }
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Cargo's target folder.
pub(crate) fn target_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Where a model lies, if it can be tested here.
pub(crate) fn model_path(name: &str) -> Result<PathBuf, Outcome> {
    if cfg!(debug_assertions) {
        return Err(Outcome::Skipped("the build is not optimised".to_string()));
    }
    let model = target_dir().join("models").join(format!("{name}.onnx"));
    if !model.exists() {
        let reason = format!("no {}; `cargo xtask models` makes it", model.display());
        return Err(Outcome::Skipped(reason));
    }
    Ok(model)
}
