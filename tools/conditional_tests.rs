//! Tests that need what a machine may lack: `main` of test programs without the standard harness. Where it is lacking, a test
//! counts as ignored, and the reason is said.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// A test, and what it lacks here, if anything.
pub(crate) struct Conditional {
    name: String,
    lacking: Option<String>,
    check: Box<dyn FnOnce() -> Result<(), Failed> + Send>,
}

impl Conditional {
    /// A test that fails by an error or a panic.
    pub(crate) fn new<E: Into<Failed>>(
        name: impl Into<String>,
        lacking: Option<String>,
        check: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> Conditional {
        let check = Box::new(move || check().map_err(Into::into));
        Conditional { name: name.into(), lacking, check }
    }
}

/// Runs tests, one at a time unless arguments say otherwise, and reports as the standard harness does.
pub(crate) fn run(tests: impl IntoIterator<Item = Conditional>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    let trial = |Conditional { name, lacking, check }: Conditional| {
        if let Some(reason) = lacking.as_ref().filter(|_| !arguments.list) {
            eprintln!("{name} cannot run: {reason}");
        }
        Trial::test(name, check).with_ignored_flag(lacking.is_some())
    };
    let trials = tests.into_iter().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
