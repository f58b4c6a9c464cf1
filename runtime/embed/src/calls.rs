//! Calls under way, and whose heap each of them allocates from.
//!
//! Rust's collections ask one allocator for all threads, and without a system there is no memory of threads. So a call notes an address of
//! its stack, and who allocates finds the call whose address is the next above its own: stacks grow down, and those of threads do not overlap.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use tilewright_runtime::Arena;

/// Most calls at once: interrupts may interrupt one another on a machine without a system, elsewhere each thread has one.
const MOST: usize = if cfg!(target_os = "none") { 4 } else { 64 };

/// A call that began and did not note its address yet: above all addresses, and so nobody's.
const BEGUN: usize = usize::MAX;

/// A call: the address on its stack, 0 where there is none, and its heap.
struct Call {
    mark: AtomicUsize,
    heap: AtomicPtr<Arena>,
}

static CALLS: [Call; MOST] =
    [const { Call { mark: AtomicUsize::new(0), heap: AtomicPtr::new(ptr::null_mut()) } }; MOST];

/// Does some work whose allocations come from a heap; nothing where too many calls are at work.
pub fn with_heap<T>(heap: &'static Arena, work: impl FnOnce() -> T) -> Option<T> {
    let begin =
        |call: &&Call| call.mark.compare_exchange(0, BEGUN, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let call = CALLS.iter().find(begin)?;
    let on_stack = 0u8;
    call.heap.store(ptr::from_ref(heap).cast_mut(), Ordering::Relaxed);
    call.mark.store((&raw const on_stack).addr(), Ordering::Release);
    let (mut work, mut done) = (Some(work), None);
    below(&mut || done = work.take().map(|work| work()));
    call.mark.store(0, Ordering::Release);
    done
}

/// Calls a function in a frame of its own, so that its addresses on the stack are below those of the caller's.
#[inline(never)]
fn below(work: &mut dyn FnMut()) {
    work();
}

/// The heap of the call that this function is called in.
#[inline(never)]
pub fn heap() -> Option<&'static Arena> {
    let on_stack = 0u8;
    let here = (&raw const on_stack).addr();
    let above =
        |call: &Call| Some(call.mark.load(Ordering::Acquire)).filter(|&mark| mark > here && mark != BEGUN);
    let nearest = CALLS.iter().filter_map(|call| Some((above(call)?, call))).min_by_key(|&(mark, _)| mark);
    let heap = nearest?.1.heap.load(Ordering::Relaxed);
    #[allow(unsafe_code, reason = "a reference that went through a pointer")]
    // SAFETY: null, or of the reference that the call was given, which lives for ever.
    unsafe {
        heap.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    fn heap_of_its_own() -> &'static Arena {
        Box::leak(Box::new(Arena::new()))
    }

    fn is_heap(expected: &'static Arena) -> bool {
        heap().is_some_and(|found| ptr::eq(found, expected))
    }

    // One test: the calls are those of the process.
    #[test]
    fn each_call_has_its_heap() {
        let (outer, inner) = (heap_of_its_own(), heap_of_its_own());
        assert!(heap().is_none(), "nothing is under way");
        let nested = with_heap(outer, || {
            let inside = with_heap(inner, || is_heap(inner));
            (inside, is_heap(outer))
        });
        assert_eq!(nested, Some((Some(true), true)));
        assert!(heap().is_none(), "the calls have ended");

        let all_at_work = Barrier::new(MOST);
        let found: Vec<bool> = thread::scope(|scope| {
            let threads: Vec<_> = (0..MOST)
                .map(|_| {
                    scope.spawn(|| {
                        let own = heap_of_its_own();
                        let found = with_heap(own, || {
                            all_at_work.wait();
                            let found = is_heap(own);
                            let is_full = with_heap(own, || ()).is_none();
                            all_at_work.wait();
                            found && is_full
                        });
                        found == Some(true)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(false)).collect()
        });
        assert_eq!(found, [true; MOST]);
    }
}
