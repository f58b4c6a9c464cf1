//! A server and clients over loopback: jobs, tokens, versions, the queue, silence, crashes, and frames that somebody has damaged.
//!
//! This test is also the program of the child processes, so it has a main function of its own.

mod live {
    pub(crate) mod damage;
    pub(crate) mod jobs;
    pub(crate) mod memory;
    pub(crate) mod parties;
    pub(crate) mod support;
}

use libtest_mimic::{Arguments, Trial};
use live::{damage, jobs, parties, support};

fn main() {
    match std::env::var(support::CHILD).as_deref() {
        Ok("serve") => return support::serve(),
        Ok(_) => return support::child(),
        Err(_) => {}
    }
    let trials: Vec<(&str, fn())> = vec![
        ("a_job_gets_its_blobs_and_answers", jobs::a_job_gets_its_blobs_and_answers),
        ("blobs_are_uploaded_once", jobs::blobs_are_uploaded_once),
        ("what_a_job_says_of_its_failure_is_told", jobs::what_a_job_says_of_its_failure_is_told),
        ("a_job_that_crashes_costs_its_process", jobs::a_job_that_crashes_costs_its_process),
        ("a_job_that_hangs_is_killed", jobs::a_job_that_hangs_is_killed),
        ("a_client_that_goes_takes_its_job_along", jobs::a_client_that_goes_takes_its_job_along),
        ("a_server_that_stops_leaves_nothing", jobs::a_server_that_stops_leaves_nothing),
        ("tokens_are_proven_both_ways", parties::tokens_are_proven_both_ways),
        ("no_server_is_open_without_a_token", parties::no_server_is_open_without_a_token),
        ("versions_must_be_the_same", parties::versions_must_be_the_same),
        ("one_client_at_a_time_has_the_machine", parties::one_client_at_a_time_has_the_machine),
        ("a_silent_client_loses_the_machine", parties::a_silent_client_loses_the_machine),
        ("there_are_so_many_connections", parties::there_are_so_many_connections),
        ("an_idle_server_sleeps", parties::an_idle_server_sleeps),
        ("a_blob_with_another_digest_is_refused", damage::a_blob_with_another_digest_is_refused),
        ("an_upload_that_stops_leaves_nothing", damage::an_upload_that_stops_leaves_nothing),
        ("long_frames_take_no_memory", damage::long_frames_take_no_memory),
        ("damaged_frames_end_connections_alone", damage::damaged_frames_end_connections_alone),
    ];
    let trial = |(name, test): (&str, fn())| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().map(trial).collect()).exit();
}
