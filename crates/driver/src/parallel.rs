//! One function on many items, on several threads, with results in the order of the items.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use tilewright_runtime::Cancel;

use crate::error::CompileError;

/// How work is done: on how many threads at most, and until when.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    threads: usize,
    cancel: Cancel,
}

impl Jobs {
    /// On at most so many threads, until `cancel` says stop.
    pub(crate) fn new(threads: usize, cancel: Cancel) -> Jobs {
        Jobs { threads, cancel }
    }

    /// Threads at most.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// An error once the work was asked to stop.
    pub(crate) fn check(&self) -> Result<(), CompileError> {
        if self.cancel.is_cancelled() { Err(CompileError::Cancelled) } else { Ok(()) }
    }
}

/// Stack of a thread; expressions nest deeply, and so do our recursions. The memory is taken only where used.
pub(crate) const STACK: usize = 256 << 20;

/// `work` on each of `items`; `progress` hears how many are done.
///
/// # Errors
/// When a thread cannot be started or panics: `step` says in which step of the compilation. When the work was asked to stop: what was begun
/// then is finished, and no more.
pub(crate) fn map<T: Sync, R: Send>(
    step: &'static str,
    items: &[T],
    jobs: &Jobs,
    progress: &mut dyn FnMut(usize),
    work: impl Fn(&T) -> R + Sync,
) -> Result<Vec<R>, CompileError> {
    let threads = jobs.threads.min(items.len());
    if threads <= 1 {
        let one = |(done, item): (usize, &T)| {
            jobs.check()?;
            let result = work(item);
            progress(done + 1);
            Ok(result)
        };
        return items.iter().enumerate().map(one).collect();
    }
    let slots: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let (finished, events) = mpsc::channel();
    let run = |finished: mpsc::Sender<()>| {
        while jobs.check().is_ok() {
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
        for _ in 0..threads {
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
    jobs.check()?;
    let results = slots.into_iter().map(|slot| slot.into_inner().ok().flatten());
    results.collect::<Option<_>>().ok_or_else(|| CompileError::internal(step, "a thread stopped"))
}

/// [`map`] that begins with the largest items, so that none is left for one thread at the end while the others wait.
///
/// # Errors
/// As of [`map`].
pub(crate) fn map_largest_first<T: Sync, R: Send>(
    step: &'static str,
    items: &[T],
    jobs: &Jobs,
    progress: &mut dyn FnMut(usize),
    size: impl Fn(&T) -> usize,
    work: impl Fn(&T) -> R + Sync,
) -> Result<Vec<R>, CompileError> {
    let mut order: Vec<(usize, &T)> = items.iter().enumerate().collect();
    order.sort_by_key(|(_, item)| std::cmp::Reverse(size(item)));
    let results = map(step, &order, jobs, progress, |(_, item)| work(item))?;
    let mut results: Vec<(usize, R)> = order.iter().map(|(n, _)| *n).zip(results).collect();
    results.sort_by_key(|(n, _)| *n);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// Where several threads are in a list of items.
struct Progress<R> {
    /// The next item that no thread has begun.
    next: usize,
    /// Items whose results were consumed.
    consumed: usize,
    results: BTreeMap<usize, R>,
    /// Whether nobody goes on.
    is_over: bool,
}

struct Shared<R> {
    progress: Mutex<Progress<R>>,
    changed: Condvar,
}

impl<R> Shared<R> {
    fn lock(&self) -> MutexGuard<'_, Progress<R>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `ready` gives something.
    fn wait<T>(&self, mut ready: impl FnMut(&mut Progress<R>) -> Option<T>) -> T {
        let mut progress = self.lock();
        loop {
            if let Some(value) = ready(&mut progress) {
                return value;
            }
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Progress<R>)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

/// Says that nobody goes on, also where a thread panics.
struct Over<'a, R>(&'a Shared<R>);

impl<R> Drop for Over<'_, R> {
    fn drop(&mut self) {
        self.0.change(|progress| progress.is_over = true);
    }
}

/// `work` on each of `items`, and meanwhile `consume` on place and result of each, in their order and on this thread.
/// No item is begun before all but `window` of those before it are consumed.
///
/// # Errors
/// The first that `consume` gives; what `failed` makes of it when a thread cannot be started or panics, in this `step` of the compilation,
/// and when the work was asked to stop.
pub(crate) fn in_order<T: Sync, R: Send, E>(
    step: &'static str,
    items: &[T],
    (jobs, window): (&Jobs, usize),
    work: impl Fn(&T) -> R + Sync,
    mut consume: impl FnMut(usize, R) -> Result<(), E>,
    failed: impl Fn(CompileError) -> E,
) -> Result<(), E> {
    let threads = jobs.threads.min(items.len());
    if threads <= 1 {
        return items.iter().enumerate().try_for_each(|(n, item)| {
            jobs.check().map_err(&failed)?;
            consume(n, work(item))
        });
    }
    let progress = Progress { next: 0, consumed: 0, results: BTreeMap::new(), is_over: false };
    let shared = Shared { progress: Mutex::new(progress), changed: Condvar::new() };
    let begin = |progress: &mut Progress<R>| {
        if progress.is_over || progress.next >= items.len() {
            return Some(None);
        }
        let may_begin = progress.next < progress.consumed + window.max(1);
        may_begin.then(|| {
            progress.next += 1;
            Some(progress.next - 1)
        })
    };
    let run = || {
        let panicking = Over(&shared);
        while let Some(n) = shared.wait(begin) {
            let result = work(&items[n]);
            shared.change(|progress| _ = progress.results.insert(n, result));
        }
        std::mem::forget(panicking);
    };
    thread::scope(|scope| {
        let mut workers = Vec::new();
        // However this ends, the threads do.
        let over = Over(&shared);
        for _ in 0..threads {
            match thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run) {
                Ok(worker) => workers.push(worker),
                // Those that could be started do the work.
                Err(_) if !workers.is_empty() => break,
                Err(error) => {
                    return Err(failed(CompileError::Limit(format!("cannot start a thread: {error}"))));
                }
            }
        }
        let mut consume_all = || {
            for n in 0..items.len() {
                jobs.check().map_err(&failed)?;
                let result = shared.wait(|progress| match progress.results.remove(&n) {
                    Some(result) => Some(Some(result)),
                    None => progress.is_over.then_some(None),
                });
                let result =
                    result.ok_or_else(|| failed(CompileError::internal(step, "a thread stopped")))?;
                consume(n, result)?;
                shared.change(|progress| progress.consumed += 1);
            }
            Ok(())
        };
        let consumed = consume_all();
        drop(over);
        // One that panicked is told of above.
        workers.into_iter().for_each(|worker| _ = worker.join());
        consumed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(threads: usize) -> Jobs {
        Jobs::new(threads, Cancel::new())
    }

    #[test]
    fn nothing_begins_once_the_work_was_asked_to_stop() {
        let items: Vec<usize> = (0..100).collect();
        for threads in [1, 3] {
            let jobs = on(threads);
            let begun = AtomicUsize::new(0);
            let work = |&n: &usize| {
                begun.fetch_add(1, Ordering::Relaxed);
                if n == 5 {
                    jobs.cancel.cancel();
                }
            };
            let result = map("test", &items, &jobs, &mut |_| {}, work);
            assert!(matches!(result, Err(CompileError::Cancelled)));
            assert!(begun.load(Ordering::Relaxed) < items.len());
            let consumed = in_order("test", &items, (&jobs, 2), work, |_, ()| Ok(()), |error| error);
            assert!(matches!(consumed, Err(CompileError::Cancelled)));
        }
    }

    #[test]
    fn results_are_in_order_on_any_number_of_threads() {
        let items: Vec<usize> = (0..100).collect();
        let expected: Vec<usize> = items.iter().map(|n| n * n).collect();
        for jobs in [1, 2, 7, 200] {
            let mut heard = Vec::new();
            let results = map("test", &items, &on(jobs), &mut |done| heard.push(done), |n| n * n).unwrap();
            assert_eq!(results, expected);
            assert_eq!(heard, (1..=100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_largest_begin_and_results_are_in_order() {
        let items = [3, 50, 7, 50, 1];
        for jobs in [1, 3] {
            let begun = Mutex::new(Vec::new());
            let work = |&n: &usize| {
                begun.lock().unwrap().push(n);
                n + 1
            };
            let results = map_largest_first("test", &items, &on(jobs), &mut |_| {}, |&n| n, work).unwrap();
            assert_eq!(results, [4, 51, 8, 51, 2]);
            if jobs == 1 {
                assert_eq!(begun.into_inner().unwrap(), [50, 50, 7, 3, 1]);
            }
        }
    }

    #[test]
    fn a_panic_is_an_error() {
        let result = map("test", &[1, 2, 3], &on(2), &mut |_| {}, |&n| assert_ne!(n, 2));
        assert_eq!(result.unwrap_err().to_string(), "internal error in test: a thread stopped");
    }

    #[test]
    fn results_are_consumed_in_order_while_others_are_made() {
        let items: Vec<usize> = (0..100).collect();
        for (jobs, window) in [(1, 1), (2, 1), (2, 5), (7, 3), (200, 1000)] {
            let (begun, consumed) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let work = |&n: &usize| {
                begun.fetch_add(1, Ordering::SeqCst);
                n * n
            };
            let consume = |n: usize, square: usize| {
                assert_eq!((n, square), (consumed.fetch_add(1, Ordering::SeqCst), n * n));
                assert!(begun.load(Ordering::SeqCst) <= n + window.max(1));
                Ok(())
            };
            in_order("test", &items, (&on(jobs), window), work, consume, |e| e).unwrap();
            assert_eq!(consumed.into_inner(), 100);
        }
    }

    #[test]
    fn an_error_ends_the_work() {
        for jobs in [1, 3] {
            let begun = AtomicUsize::new(0);
            let work = |_: &usize| begun.fetch_add(1, Ordering::SeqCst);
            let consume = |n, _| if n < 5 { Ok(()) } else { Err(format!("no room for {n}")) };
            let items: Vec<usize> = (0..1000).collect();
            let result = in_order("test", &items, (&on(jobs), 4), work, consume, |e| e.to_string());
            assert_eq!(result.unwrap_err(), "no room for 5");
            assert!(begun.into_inner() <= 10);
        }
        let work = |&n: &i32| assert_ne!(n, 2);
        let result = in_order("test", &[1, 2, 3], (&on(2), 1), work, |_, ()| Ok(()), |e| e.to_string());
        assert_eq!(result.unwrap_err(), "internal error in test: a thread stopped");
    }
}
