//! Tests of the pool: every task runs once, whatever threads do.

use super::*;
use crate::pool::run_tasks;
use std::sync::atomic::AtomicI64;
use std::vec;

#[test]
fn every_task_runs_once_at_any_number_of_threads() {
    for threads in [1, 2, 3, 8] {
        let pool = ThreadPool::new(threads);
        for (rounds, per_round) in
            [1, 2, 7].into_iter().flat_map(|r| (0..40).chain([500]).map(move |n| (r, n)))
        {
            let grid = TaskGrid::new(rounds, per_round).expect("few tasks");
            let counts: Vec<AtomicI64> = (0..grid.tasks()).map(|_| AtomicI64::new(0)).collect();
            pool.run(grid, &|begin, end| {
                for task in begin..end {
                    counts[task as usize].fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(
                counts.iter().all(|count| count.load(Ordering::Relaxed) == 1),
                "{threads} threads, {grid:?}"
            );
        }
    }
}

#[test]
fn a_round_in_order_begins_when_the_one_before_has_ended() {
    for threads in [1, 2, 3, 8] {
        let pool = ThreadPool::new(threads);
        for (rounds, per_round) in [(0, 3), (1, 5), (50, 1), (50, 2), (20, 7)] {
            let grid = TaskGrid::new(rounds, per_round).expect("few tasks");
            let done = AtomicI64::new(0);
            run_tasks(&pool, grid, true, &|begin, end| {
                for task in begin..end {
                    let before = task / per_round * per_round;
                    assert!(done.load(Ordering::Acquire) >= before, "{threads} threads, {grid:?}: {task}");
                    done.fetch_add(1, Ordering::AcqRel);
                }
            });
            assert_eq!(done.into_inner(), grid.tasks(), "{threads} threads, {grid:?}");
        }
    }
}

#[test]
fn a_thread_that_is_through_takes_over_from_a_slow_one() {
    let pool = ThreadPool::new(2);
    let (caller, helped) = (thread::current().id(), AtomicI64::new(0));
    // The caller's first task lasts until a task of the caller's own share has run on the other thread.
    pool.run(TaskGrid::flat(64), &|begin, end| {
        let on_caller = thread::current().id() == caller;
        if !on_caller && begin < 32 {
            _ = helped.fetch_add(end.min(32) - begin, Ordering::Relaxed);
        }
        while on_caller && begin == 0 && helped.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
    });
    assert!(helped.into_inner() > 0);
}

#[test]
fn shares_are_contiguous_and_even() {
    assert_eq!([0, 1, 2].map(|part| share(8, part, 3)), [(0, 3), (3, 6), (6, 8)]);
    assert_eq!(share(i64::MAX, 1, 2), (i64::MAX / 2 + 1, i64::MAX));
}

#[test]
fn a_part_is_the_same_tasks_of_every_round() {
    let grid = TaskGrid::new(3, 5).expect("few tasks");
    let tasks = |part, begin, end| {
        let tasks = Mutex::new(Vec::new());
        Piece { part, begin, end }.run(&|a, b| tasks.lock().expect("no panic").push((a, b)), grid, 2);
        tasks.into_inner().expect("no panic")
    };
    assert_eq!(tasks(0, 0, 9), [(0, 3), (5, 8), (10, 13)]);
    assert_eq!(tasks(1, 0, 6), [(3, 5), (8, 10), (13, 15)]);
    assert_eq!(tasks(1, 1, 4), [(4, 5), (8, 10)], "a piece that starts and ends inside of rounds");
}

#[test]
fn concurrent_and_nested_jobs_finish() {
    let pool = ThreadPool::new(3);
    let total = AtomicI64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    pool.run(TaskGrid::flat(7), &|begin, end| {
                        pool.run(TaskGrid::flat(end - begin), &|from, to| {
                            _ = total.fetch_add(to - from, Ordering::Relaxed)
                        });
                    });
                }
            });
        }
    });
    assert_eq!(total.load(Ordering::Relaxed), 4 * 2000 * 7);
}

#[test]
fn after_two_callers_have_met_each_works_alone_for_a_while() {
    let pool = ThreadPool::new(2);
    let met = AtomicBool::new(false);
    pool.run(TaskGrid::flat(2), &|_, _| {
        if !met.swap(true, Ordering::Relaxed) {
            thread::scope(|scope| _ = scope.spawn(|| pool.run(TaskGrid::flat(2), &|_, _| {})));
        }
    });
    let ranges = || {
        let ranges = AtomicI64::new(0);
        pool.run(TaskGrid::flat(2), &|_, _| _ = ranges.fetch_add(1, Ordering::Relaxed));
        ranges.into_inner()
    };
    assert!((0..APART).all(|_| ranges() == 1), "apart: one range a job");
    assert_eq!(ranges(), 2, "together again");
}

#[test]
fn a_panic_reaches_the_caller_and_leaves_the_pool_usable() {
    let pool = ThreadPool::new(2);
    for bad in [0, 1] {
        let run = || pool.run(TaskGrid::flat(2), &|begin, _| assert!(begin != bad, "task {bad}"));
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        let sum = AtomicI64::new(0);
        pool.run(TaskGrid::flat(10), &|begin, end| _ = sum.fetch_add(end - begin, Ordering::Relaxed));
        assert_eq!(sum.into_inner(), 10);
    }
}

#[test]
fn workers_that_are_kept_awake_work_and_end_as_others_do() {
    let pool = ThreadPool::new(3);
    let total = AtomicI64::new(0);
    let sum = || pool.run(TaskGrid::flat(50), &|a, b| _ = total.fetch_add(b - a, Ordering::Relaxed));
    // Two runs at once, of which one ends first; then none, while workers linger.
    pool.keep_awake(true);
    thread::sleep(SPIN * 4);
    sum();
    pool.keep_awake(true);
    sum();
    pool.keep_awake(false);
    sum();
    pool.keep_awake(false);
    thread::sleep(SPIN * 4);
    sum();
    assert_eq!(total.into_inner(), 200);
    // Dropped while they linger, and while a run keeps them awake.
    drop(pool);
    let pool = ThreadPool::new(2);
    pool.keep_awake(true);
    drop(pool);
}

/// The caller runs what a worker that has not begun would have, and does not wait for it.
#[test]
fn jobs_shorter_than_it_takes_to_wake_a_worker_finish() {
    let pool = ThreadPool::new(2);
    for round in 0..2000 {
        if round % 100 == 0 {
            thread::sleep(SPIN * 4);
        }
        let counts = [const { AtomicI64::new(0) }; 4];
        pool.run(TaskGrid::flat(4), &|begin, end| {
            for task in begin..end {
                _ = counts[task as usize].fetch_add(1, Ordering::Relaxed);
            }
        });
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "round {round}");
    }
}

#[test]
fn the_variable_overrides_only_with_a_number() {
    assert_eq!(parse_threads(" 3 "), Some(3));
    assert_eq!(vec!["", "0", "-1", "x"].into_iter().find_map(parse_threads), None);
    assert!(available_threads() >= 1);
}

/// A caller whose own tasks are done sleeps while workers are long at theirs, and is woken by the last of them.
#[test]
fn callers_that_sleep_are_woken() {
    let pool = ThreadPool::new(4);
    let run = |jobs: usize| {
        let caller = thread::current().id();
        for _ in 0..jobs {
            let total = AtomicI64::new(0);
            pool.run(TaskGrid::flat(4), &|begin, end| {
                if thread::current().id() != caller {
                    thread::sleep(SPIN * 3);
                }
                _ = total.fetch_add(end - begin, Ordering::Relaxed);
            });
            assert_eq!(total.into_inner(), 4);
        }
    };
    // Callers by turns: what a worker still has of the last one must not keep it from waking the next.
    for _ in 0..50 {
        thread::scope(|scope| _ = scope.spawn(|| run(2)));
        run(2);
    }
    thread::scope(|scope| (0..3).for_each(|_| _ = scope.spawn(|| run(300))));
}
