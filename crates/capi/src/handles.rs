//! Handles: what C programs hold in place of addresses.
//!
//! A handle is the number of a slot in a table, with the generation of what lies there, in the bits of a pointer. A call looks it up, so a
//! handle that is null, freed, made up or of another kind is an error and nothing worse. No generation of a slot comes twice: a handle
//! that was freed never means what came later. A call counts itself in while it works, and to free waits until all have left: when it
//! returns, nothing of the caller's is used any more. Threads count in places of their own, so those that share a model do not wait for
//! one another at its count.
#![allow(unsafe_code, reason = "shares what lies in slots between threads")]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Bits of a handle that say which table it is of.
const KIND_BITS: u32 = 3;
/// Bits that say which slot of the table.
const INDEX_BITS: u32 = if usize::BITS == 64 { 28 } else { 13 };
/// Generations that a handle has bits for: an odd one is that of something alive.
const LAST_GENERATION: u32 = if usize::BITS == 64 { u32::MAX } else { (1 << 16) - 1 };

/// Slots are made in chunks, of which each has as many as all before it and these.
const FIRST_CHUNK: usize = 16;
const CHUNKS: usize = INDEX_BITS as usize - FIRST_CHUNK.ilog2() as usize + 1;

/// Counts of users, for threads by turns.
const COUNTS: usize = 8;

/// A count of the calls that use what lies in a slot, apart from others in the caches of cores.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

struct Slot<T> {
    /// Odd while something is there.
    generation: AtomicU32,
    users: [Count; COUNTS],
    value: UnsafeCell<Option<T>>,
}

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot { generation: AtomicU32::new(0), users: Default::default(), value: UnsafeCell::new(None) }
    }
}

/// Everything of one kind that C programs hold. Slots are kept for as long as the process lives.
pub struct Table<T> {
    kind: usize,
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    vacant: Mutex<Vacant>,
}

/// Slots in which nothing is.
struct Vacant {
    slots: Vec<usize>,
    /// Slots that there are.
    n: usize,
}

// SAFETY: a value is given to threads by reference alone, and made and dropped by those that hold its slot alone: see `free`.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

/// A handle that means nothing, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHandle;

/// What a handle means, while a call uses it.
pub struct Used<'t, T> {
    value: &'t T,
    count: &'t AtomicUsize,
    /// The count is of the thread's own.
    _not_send: PhantomData<*const ()>,
}

impl<T> Deref for Used<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> Drop for Used<'_, T> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Release);
    }
}

impl<T> Table<T> {
    /// An empty table. `kind` tells its handles from those of others; it is from 1 to 7.
    pub const fn new(kind: usize) -> Table<T> {
        assert!(kind > 0 && kind < 1 << KIND_BITS);
        let chunks = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];
        Table { kind, chunks, vacant: Mutex::new(Vacant { slots: Vec::new(), n: 0 }) }
    }

    /// Puts something into the table, and gives its handle; nothing where there are too many.
    pub fn insert<H>(&self, value: T) -> Option<*mut H> {
        let index = self.vacant_slot()?;
        let slot = self.slot(index)?;
        // SAFETY: the slot is vacant and its number was taken by this call, so nobody else looks at the value before the generation is
        // odd.
        unsafe { *slot.value.get() = Some(value) };
        let generation = slot.generation.load(Ordering::Relaxed) + 1;
        slot.generation.store(generation, Ordering::SeqCst);
        let bits = (generation as usize) << (KIND_BITS + INDEX_BITS) | index << KIND_BITS | self.kind;
        Some(ptr::without_provenance_mut(bits))
    }

    /// What a handle means.
    ///
    /// # Errors
    /// Where it means nothing of this table.
    pub fn get<H>(&self, handle: *const H) -> Result<Used<'_, T>, NoHandle> {
        let (slot, generation) = self.parts(handle)?;
        let count = &slot.users[PLACE.with(|place| *place)].0;
        // In one order with the generation: of a call that counts itself in and one that frees, one sees the other.
        count.fetch_add(1, Ordering::SeqCst);
        if slot.generation.load(Ordering::SeqCst) != generation {
            count.fetch_sub(1, Ordering::Release);
            return Err(NoHandle);
        }
        // SAFETY: the generation is that of the handle, so a value is there, and stays while this call is counted.
        match unsafe { &*slot.value.get() } {
            Some(value) => Ok(Used { value, count, _not_send: PhantomData }),
            None => {
                count.fetch_sub(1, Ordering::Release);
                Err(NoHandle)
            }
        }
    }

    /// Takes what a handle means out of the table, once no call uses it any more.
    ///
    /// # Errors
    /// Where it means nothing of this table, as when it was freed before.
    pub fn free<H>(&self, handle: *const H) -> Result<T, NoHandle> {
        let (slot, generation) = self.parts(handle)?;
        let gone = slot.generation.compare_exchange(
            generation,
            generation.wrapping_add(1),
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        gone.map_err(|_| NoHandle)?;
        while slot.users.iter().any(|count| count.0.load(Ordering::SeqCst) > 0) {
            thread::yield_now();
        }
        // SAFETY: of all that were given this handle, this call alone changed the generation. Calls that came before have left, and later
        // ones see the generation.
        let value = unsafe { (*slot.value.get()).take() };
        // A slot whose generations are used up is left.
        if generation < LAST_GENERATION {
            let index = Table::<T>::index_of(handle);
            self.vacant.lock().unwrap_or_else(PoisonError::into_inner).slots.push(index);
        }
        value.ok_or(NoHandle)
    }

    fn index_of<H>(handle: *const H) -> usize {
        handle.addr() >> KIND_BITS & ((1 << INDEX_BITS) - 1)
    }

    /// The slot that a handle names, and the generation.
    fn parts<H>(&self, handle: *const H) -> Result<(&Slot<T>, u32), NoHandle> {
        let bits = handle.addr();
        let generation = u32::try_from(bits >> (KIND_BITS + INDEX_BITS)).map_err(|_| NoHandle)?;
        let is_ours = bits & ((1 << KIND_BITS) - 1) == self.kind;
        let slot = self.slot(Table::<T>::index_of(handle)).filter(|_| is_ours && generation % 2 == 1);
        Ok((slot.ok_or(NoHandle)?, generation))
    }

    /// The slot of a number; nothing where there is none yet.
    fn slot(&self, index: usize) -> Option<&Slot<T>> {
        let (chunk, at) = place(index);
        let start = self.chunks.get(chunk)?.load(Ordering::Acquire);
        // SAFETY: the chunk was published whole, and is never given back.
        (!start.is_null()).then(|| unsafe { &*start.add(at) })
    }

    /// The number of a slot in which nothing is; nothing where there can be no more.
    fn vacant_slot(&self) -> Option<usize> {
        let mut vacant = self.vacant.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = vacant.slots.pop() {
            return Some(index);
        }
        let index = vacant.n;
        let (chunk, at) = place(index);
        let chunk = self.chunks.get(chunk)?;
        if at == 0 {
            let slots: Vec<Slot<T>> = (0..index.max(FIRST_CHUNK)).map(|_| Slot::default()).collect();
            chunk.store(Box::leak(slots.into_boxed_slice()).as_mut_ptr(), Ordering::Release);
        }
        vacant.n += 1;
        Some(index)
    }
}

/// The chunk that a slot is in, and its place there.
fn place(index: usize) -> (usize, usize) {
    match (index / FIRST_CHUNK).checked_ilog2() {
        None => (0, index),
        Some(log) => (log as usize + 1, index - (FIRST_CHUNK << log)),
    }
}

thread_local! {
    /// Which of a slot's counts the thread uses.
    static PLACE: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed) % COUNTS
    };
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn insert<T>(table: &Table<T>, value: T) -> *mut u8 {
        table.insert(value).expect("room")
    }

    #[test]
    fn a_handle_means_what_was_put_in_until_it_is_freed() {
        let table = Table::new(1);
        let handles: Vec<*mut u8> = (0..100).map(|i| insert(&table, i)).collect();
        for (i, &handle) in handles.iter().enumerate() {
            assert_eq!(table.get(handle).map(|used| *used), Ok(i));
        }
        assert_eq!(table.free(handles[40]), Ok(40));
        assert_eq!(table.free(handles[40]), Err(NoHandle));
        assert!(table.get(handles[40]).is_err());
        // What takes its slot has another handle.
        let next = insert(&table, 1000);
        assert_ne!(next, handles[40]);
        assert!(table.get(handles[40]).is_err());
        assert_eq!(table.get(next).map(|used| *used), Ok(1000));
    }

    #[test]
    fn what_is_no_handle_means_nothing() {
        let (table, other) = (Table::new(1), Table::new(2));
        let handle = insert(&table, 5);
        insert(&other, 6);
        assert!(other.get(handle).is_err());
        let local = 7u64;
        assert!(table.get(ptr::null::<u8>()).is_err());
        assert!(table.get(&raw const local).is_err());
        for bits in [1usize, 2, usize::MAX, 1 << 40, 0xdead_beef] {
            assert!(table.get(ptr::without_provenance::<u8>(bits)).is_err(), "{bits:#x}");
            assert!(table.free(ptr::without_provenance::<u8>(bits)).is_err(), "{bits:#x}");
        }
    }

    #[test]
    fn places_of_slots_follow_one_another() {
        let mut expect = (0, 0);
        for index in 0..1000 {
            assert_eq!(place(index), expect, "{index}");
            let size = if expect.0 == 0 { FIRST_CHUNK } else { FIRST_CHUNK << (expect.0 - 1) };
            expect = if expect.1 + 1 == size { (expect.0 + 1, 0) } else { (expect.0, expect.1 + 1) };
        }
        assert_eq!(place((1 << INDEX_BITS) - 1).0, CHUNKS - 1);
    }

    /// Of many threads that use and free one handle at once, one frees it, and none uses what is gone.
    #[test]
    fn one_of_many_threads_frees() {
        for _ in 0..200 {
            let table = Table::new(3);
            let value = Arc::new(());
            let handle = insert(&table, value.clone()).addr();
            let freed: usize = thread::scope(|scope| {
                let work = || {
                    let handle = ptr::without_provenance::<u8>(handle);
                    for _ in 0..50 {
                        if let Ok(used) = table.get(handle) {
                            assert!(Arc::strong_count(&used) > 1);
                        }
                    }
                    usize::from(table.free(handle).is_ok())
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
            });
            assert_eq!((freed, Arc::strong_count(&value)), (1, 1));
        }
    }
}
