//! A process that may use one processor gets one thread. A binary of its own: it changes what the process may use.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "calls the system")]

use tilewright_runtime::pool::Pool;
use tilewright_runtime::threads::{NUM_THREADS, ThreadPool, available_threads};

#[test]
fn one_allowed_processor_gives_one_thread() {
    assert!(std::env::var_os(NUM_THREADS).is_none(), "{NUM_THREADS} overrides what is tested");
    // SAFETY: the set is as large as the call is told, and only sets of processors are read and written.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &allowed)).unwrap();
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(first, &mut one);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
    }
    assert_eq!(available_threads(), 1);
    assert_eq!(ThreadPool::global().threads(), 1);
}
