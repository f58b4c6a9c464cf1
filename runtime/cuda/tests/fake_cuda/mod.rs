//! The driver of ours, and the tests that run with it.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// The name of a test in the environment of the process that runs it.
pub(crate) const CASE: &str = "TILEWRIGHT_CUDA_CASE";

/// A test that runs in a process of its own.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// Its name, which the process finds it by.
    pub(crate) name: &'static str,
    /// What the driver of ours is told, without `FAKE_CUDA_`.
    pub(crate) settings: &'static [(&'static str, &'static str)],
}

const fn case(name: &'static str, settings: &'static [(&'static str, &'static str)]) -> Case {
    Case { name, settings }
}

pub(crate) const CASES: &[Case] = &[
    case("kernels_run_and_all_is_given_back", &[]),
    case("addresses_inside_allocations", &[]),
    case("many_tasks_are_split", &[]),
    case("shared_memory_is_asked_for", &[]),
    case("machine_code_is_taken_before_ptx", &[]),
    case("machine_code_that_the_driver_does_not_run", &[]),
    case("code_is_ranked_and_refused", &[]),
    case("kernels_that_the_device_cannot_run", &[]),
    case("damaged_code_is_refused", &[]),
    case("memory_runs_out_and_comes_back", &[("MEMORY", "4096")]),
    case("faults_are_named_and_stay", &[]),
    case("faults_of_other_kinds", &[("FAULT", "719")]),
    case("results_that_only_newer_drivers_have", &[("FAULT", "4711")]),
    case("streams_of_the_caller", &[]),
    case("times_are_told_by_events", &[]),
    case("threads_share_a_module", &[]),
    case("the_threads_own_context_stays", &[]),
    case("drivers_too_old_for_ptx", &[("VERSION", "11040")]),
    case("drivers_too_old_at_all", &[("VERSION", "10020")]),
    case("no_device_by_count", &[("DEVICES", "0")]),
    case("no_device_by_init", &[("INIT", "100")]),
    case("drivers_that_do_not_start", &[("INIT", "803")]),
    case("devices_out_of_range", &[]),
    case("one_device", &[("DEVICES", "1")]),
];

/// The driver of ours, compiled.
pub(crate) struct Fake(TempDir);

impl Fake {
    /// Compiles it; gives what is lacking.
    pub(crate) fn build() -> Result<Fake, String> {
        if !cfg!(all(target_os = "linux", target_pointer_width = "64")) {
            return Err("the fake driver is for 64-bit Linux".into());
        }
        let folder =
            tempfile::tempdir().map_err(|error| format!("no folder for the fake driver: {error}"))?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_cuda/fake.c");
        // This name comes first where libraries are looked for, even before a real `libcuda.so.1`.
        let library = folder.path().join("libcuda.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(library).arg(source);
        let output =
            compiler.arg("-lpthread").output().map_err(|error| format!("no C compiler `cc`: {error}"))?;
        // A compiler that is there but refuses the source is no lack of the machine.
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(Fake(folder))
    }

    /// Where it lies.
    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }
}

impl Case {
    /// Runs it in a process: with the driver in a folder, or with that of the machine.
    pub(crate) fn run(&self, driver: Option<&Path>) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut process = Command::new(program);
        process.env(CASE, self.name);
        let log = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        if let Some(folder) = driver {
            process.env("LD_LIBRARY_PATH", folder).env("FAKE_CUDA_LOG", log.path());
        }
        for (name, value) in self.settings {
            process.env(format!("FAKE_CUDA_{name}"), value);
        }
        let output = process.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))),
        }
    }
}
