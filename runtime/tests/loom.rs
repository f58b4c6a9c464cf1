//! The thread pool's hand-over, sleep and shutdown in every interleaving of its threads, up to a number of preemptions.
//!
//! `cargo xtask test` runs this with `RUSTFLAGS="--cfg loom"`, in a target folder of its own; otherwise there is nothing here.
//! A task writes a cell that nothing else guards, so that loom finds a task that runs twice, or whose effects its caller
//! does not see; a thread that sleeps for ever is a deadlock to it.
#![cfg(loom)]
#![allow(unsafe_code, reason = "cells that loom watches are written and read by pointers")]

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use tilewright_runtime::pool::{Pool, TaskGrid};
use tilewright_runtime::threads::ThreadPool;

/// Runs a model in all interleavings with at most so many preemptions.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// A count for each task, without any lock.
struct Counts(Vec<UnsafeCell<usize>>);

// SAFETY: loom reports accesses at the same time.
unsafe impl Sync for Counts {}

impl Counts {
    fn new(tasks: i64) -> Counts {
        Counts((0..tasks).map(|_| UnsafeCell::new(0)).collect())
    }

    fn count(&self, begin: i64, end: i64) {
        for task in begin..end {
            // SAFETY: of one task; loom reports it if not.
            self.0[task as usize].with_mut(|count| unsafe { *count += 1 });
        }
    }

    #[track_caller]
    fn assert_all(&self, expected: usize) {
        for (task, count) in self.0.iter().enumerate() {
            // SAFETY: no task runs any more; loom reports it if one does.
            assert_eq!(count.with(|count| unsafe { *count }), expected, "task {task}");
        }
    }
}

/// Runs jobs one after the other, each of which sees what the last one did.
fn run_jobs(pool: &ThreadPool, tasks: i64, jobs: usize) {
    let counts = Counts::new(tasks);
    for job in 1..=jobs {
        pool.run(TaskGrid::flat(tasks), &|begin, end| counts.count(begin, end));
        counts.assert_all(job);
    }
}

#[test]
fn a_pool_without_jobs_ends() {
    check(3, || drop(ThreadPool::new(2)));
    check(2, || drop(ThreadPool::new(3)));
}

#[test]
fn every_task_runs_once_and_is_seen() {
    check(3, || run_jobs(&ThreadPool::new(2), 2, 1));
    check(2, || run_jobs(&ThreadPool::new(2), 4, 1));
}

#[test]
fn workers_hear_of_the_next_job_whatever_the_last_one_left_them_at() {
    check(2, || run_jobs(&ThreadPool::new(2), 2, 2));
}

#[test]
fn several_workers_share_a_job() {
    check(1, || run_jobs(&ThreadPool::new(3), 3, 1));
}

#[test]
fn callers_at_the_same_time_do_not_wait_for_each_other() {
    check(2, || {
        let pool = Arc::new(ThreadPool::new(2));
        let other = loom::thread::spawn({
            let pool = pool.clone();
            move || run_jobs(&pool, 2, 1)
        });
        run_jobs(&pool, 2, 1);
        other.join().unwrap();
    });
}
