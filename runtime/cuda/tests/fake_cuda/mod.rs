//! The tests that run with the driver of ours.

mod driver;

use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) use driver::Fake;

/// No test with the driver of ours takes as long.
const LONGEST: Duration = Duration::from_secs(10);

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
    case("graphs_of_a_stream", &[]),
    case("graphs_replace_launches", &[]),
    case("graphs_are_for_extents", &[]),
    case("graphs_on_a_callers_stream", &[]),
    case("graphs_with_the_host_between", &[]),
    case("graphs_and_observers", &[]),
    case("graphs_of_programs", &[]),
    case("graphs_and_faults", &[("FAULT", "0")]),
    case("no_graphs_by_default", &[]),
    case("no_graphs_in_old_drivers", &[("OLD", "1")]),
    case("recordings_that_do_not_begin", &[("REFUSES", "begin")]),
    case("recordings_that_break", &[("REFUSES", "launch")]),
    case("recordings_that_do_not_end", &[("REFUSES", "end")]),
    case("recordings_that_make_no_graph", &[("REFUSES", "instantiate")]),
    case("graphs_that_do_not_start", &[("REFUSES", "replay")]),
    case("tensors_of_other_libraries_are_inputs_and_outputs", &[]),
    case("tensors_of_other_libraries_are_refused", &[]),
    case("tensors_by_versions_of_dlpack", &[]),
    case("outputs_are_given_away", &[]),
    case("graphs_beside_tensors_on_the_device", &[]),
    case("artifacts_run_or_say_why_not", &[]),
    case("memory_for_a_session_runs_out", &[("MEMORY", "8192")]),
    case("memory_for_weights_is_lacking", &[("MEMORY", "8192")]),
    case("memory_for_outputs_runs_out", &[("MEMORY", "8192")]),
    case("faults_end_with_the_context", &[]),
    case("faults_end_when_the_context_is_reset", &[]),
];

impl Case {
    /// Runs it in a process: with the driver of ours, or with that of the machine.
    pub(crate) fn run(&self, driver: Option<&Fake>) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut process = Command::new(program);
        process.env(CASE, self.name);
        let log = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        if let Some(driver) = driver {
            let is_old = self.settings.iter().any(|(name, _)| *name == "OLD");
            let folder = if is_old { driver.without_graphs() } else { driver.folder() };
            process.env("LD_LIBRARY_PATH", folder).env("FAKE_CUDA_LOG", log.path());
        }
        for (name, value) in self.settings {
            process.env(format!("FAKE_CUDA_{name}"), value);
        }
        let begin = Instant::now();
        let output = process.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true if driver.is_some() && begin.elapsed() > LONGEST => Err(format!("{:?}", begin.elapsed())),
            true => Ok(()),
            false => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))),
        }
    }
}
