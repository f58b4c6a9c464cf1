//! A pool made before `fork` works in the child, where its threads do not exist. A binary of its own: it forks.
#![allow(unsafe_code, reason = "forks")]

use std::sync::atomic::{AtomicI64, Ordering};

use tilewright_runtime::pool::{Pool, TaskGrid};
use tilewright_runtime::threads::ThreadPool;

fn count(pool: &ThreadPool) -> i64 {
    let sum = AtomicI64::new(0);
    pool.run(TaskGrid::flat(100), &|begin, end| _ = sum.fetch_add(end - begin, Ordering::Relaxed));
    sum.into_inner()
}

#[test]
fn a_pool_survives_a_fork() {
    let pool = ThreadPool::new(3);
    assert_eq!(count(&pool), 100);
    // SAFETY: the child calls only the pool, which takes no lock there, and ends without destructors.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            // A child that waits for threads that it has not is ended by the signal.
            libc::alarm(20);
            libc::_exit(if count(&pool) == 100 { 0 } else { 1 });
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    };
    assert_eq!(status, 0);
    assert_eq!(count(&pool), 100);
}
