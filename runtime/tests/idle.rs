//! A pool without work takes no time of the processors. A binary of its own: it measures the time of the process.
#![cfg(unix)]
#![allow(unsafe_code, reason = "asks the system")]

use std::time::Duration;

use tilewright_runtime::pool::{Pool, TaskGrid};
use tilewright_runtime::threads::ThreadPool;

/// Time of the processors that the process has used.
fn used() -> Duration {
    // SAFETY: a structure of numbers, filled by the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        usage
    };
    let duration = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    duration(usage.ru_utime) + duration(usage.ru_stime)
}

#[test]
fn an_idle_pool_sleeps() {
    const IDLE: Duration = Duration::from_secs(2);
    let pool = ThreadPool::new(4);
    pool.run(TaskGrid::flat(64), &|_, _| {});
    let before = used();
    std::thread::sleep(IDLE);
    // Under half a per cent of one processor.
    let spent = used() - before;
    assert!(spent < IDLE / 200, "{spent:?} in {IDLE:?}");
}
