//! One function on many items, on several threads, with results in the order of the items.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

use crate::error::CompileError;

/// Stack of a thread; expressions nest deeply, and so do our recursions. The memory is taken only where used.
const STACK: usize = 256 << 20;

/// `work` on each of `items`, on at most `jobs` threads; `progress` hears how many are done.
///
/// # Errors
/// When a thread cannot be started or panics: `step` says in which step of the compilation.
pub(crate) fn map<T: Sync, R: Send>(
    step: &'static str,
    items: &[T],
    jobs: usize,
    progress: &mut dyn FnMut(usize),
    work: impl Fn(&T) -> R + Sync,
) -> Result<Vec<R>, CompileError> {
    let jobs = jobs.min(items.len());
    if jobs <= 1 {
        let one = |(done, item): (usize, &T)| {
            let result = work(item);
            progress(done + 1);
            result
        };
        return Ok(items.iter().enumerate().map(one).collect());
    }
    let slots: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let (finished, events) = mpsc::channel();
    let run = |finished: mpsc::Sender<()>| {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let (Some(item), Some(slot)) = (items.get(i), slots.get(i)) else { break };
            let result = work(item);
            if let Ok(mut slot) = slot.lock() {
                *slot = Some(result);
            }
            if finished.send(()).is_err() {
                break;
            }
        }
    };
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..jobs {
            let finished = finished.clone();
            let run = &run;
            let worker = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || run(finished));
            match worker {
                Ok(worker) => workers.push(worker),
                // Those that could be started do the work.
                Err(_) if !workers.is_empty() => break,
                Err(error) => return Err(CompileError::Limit(format!("cannot start a thread: {error}"))),
            }
        }
        drop(finished);
        for done in 1.. {
            if events.recv().is_err() {
                break;
            }
            progress(done);
        }
        match workers.into_iter().all(|worker| worker.join().is_ok()) {
            true => Ok(()),
            false => Err(CompileError::internal(step, "a thread stopped")),
        }
    })?;
    let results = slots.into_iter().map(|slot| slot.into_inner().ok().flatten());
    results.collect::<Option<_>>().ok_or_else(|| CompileError::internal(step, "a thread stopped"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_on_any_number_of_threads() {
        let items: Vec<usize> = (0..100).collect();
        let expected: Vec<usize> = items.iter().map(|n| n * n).collect();
        for jobs in [1, 2, 7, 200] {
            let mut heard = Vec::new();
            let results = map("test", &items, jobs, &mut |done| heard.push(done), |n| n * n).unwrap();
            assert_eq!(results, expected);
            assert_eq!(heard, (1..=100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_panic_is_an_error() {
        let result = map("test", &[1, 2, 3], 2, &mut |_| {}, |&n| assert_ne!(n, 2));
        assert_eq!(result.unwrap_err().to_string(), "internal error in test: a thread stopped");
    }
}
