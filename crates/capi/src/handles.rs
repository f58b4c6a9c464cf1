//! Handles: what C programs hold in place of addresses.
//!
//! A handle is the number of a slot in a table, with the generation of what lies there, in the bits of a pointer. A call looks it up, so a
//! handle that is null, freed, made up or of another kind is an error and nothing worse. No generation of a slot comes twice: a handle
//! that was freed never means what came later. A call counts itself in while it works, and to free waits until all have left: when it
//! returns, nothing of the caller's is used any more. Threads count in places of their own, so those that share a model do not wait for
//! one another at its count.
#![allow(unsafe_code, reason = "shares what lies in slots between threads")]

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

/// One for all kinds, so that there is one copy of the code.
struct Slot {
    /// Odd while something is there.
    generation: AtomicU32,
    users: [Count; COUNTS],
    /// A box of the table's type; null where nothing is.
    value: AtomicPtr<()>,
}

impl Default for Slot {
    fn default() -> Slot {
        let value = AtomicPtr::new(ptr::null_mut());
        Slot { generation: AtomicU32::new(0), users: Default::default(), value }
    }
}

/// Everything of one kind that C programs hold. Slots are kept for as long as the process lives.
pub struct Table<T> {
    slots: Slots,
    _values: PhantomData<fn() -> T>,
}

/// Slots of one kind of handles.
struct Slots {
    kind: usize,
    chunks: [AtomicPtr<Slot>; CHUNKS],
    vacant: Mutex<Vacant>,
}

/// Slots in which nothing is.
struct Vacant {
    slots: Vec<usize>,
    /// Slots that there are.
    n: usize,
}

/// A handle that means nothing, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHandle;

/// What a handle means, while a call uses it.
pub struct Used<'t, T> {
    value: &'t T,
    _counted: Counted<'t>,
}

impl<T> Deref for Used<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

/// A call that is counted in until this is dropped, by the thread that made it.
struct Counted<'t> {
    count: &'t AtomicUsize,
    _not_send: PhantomData<*const ()>,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Release);
    }
}

impl<T: Send + Sync> Table<T> {
    /// An empty table. `kind` tells its handles from those of others; it is from 1 to 7.
    pub const fn new(kind: usize) -> Table<T> {
        assert!(kind > 0 && kind < 1 << KIND_BITS);
        let chunks = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];
        let vacant = Mutex::new(Vacant { slots: Vec::new(), n: 0 });
        Table { slots: Slots { kind, chunks, vacant }, _values: PhantomData }
    }

    /// Puts something into the table, and gives its handle; nothing where there are too many.
    pub fn insert<H>(&self, value: T) -> Option<*mut H> {
        let value = Box::into_raw(Box::new(value));
        let handle = self.slots.insert(value.cast());
        if handle.is_none() {
            // SAFETY: made above, and in no slot.
            drop(unsafe { Box::from_raw(value) });
        }
        handle.map(ptr::without_provenance_mut)
    }

    /// What a handle means.
    ///
    /// # Errors
    /// Where it means nothing of this table.
    pub fn get<H>(&self, handle: *const H) -> Result<Used<'_, T>, NoHandle> {
        let (value, counted) = self.slots.get(handle.addr())?;
        // SAFETY: a box of this table's type, which stays while the call is counted.
        Ok(Used { value: unsafe { &*value.cast::<T>() }, _counted: counted })
    }

    /// Takes what a handle means out of the table, once no call uses it any more.
    ///
    /// # Errors
    /// Where it means nothing of this table, as when it was freed before.
    pub fn free<H>(&self, handle: *const H) -> Result<T, NoHandle> {
        let value = self.slots.free(handle.addr())?;
        // SAFETY: a box of this table's type, which nobody uses, and which this call alone was given.
        Ok(*unsafe { Box::from_raw(value.cast::<T>()) })
    }
}

impl Slots {
    #[inline(never)]
    fn insert(&self, value: *mut ()) -> Option<usize> {
        let index = self.vacant_slot()?;
        let slot = self.slot(index)?;
        slot.value.store(value, Ordering::Relaxed);
        // The number of the slot was taken by this call, so nobody else changes the generation.
        let generation = slot.generation.load(Ordering::Relaxed) + 1;
        slot.generation.store(generation, Ordering::SeqCst);
        Some((generation as usize) << (KIND_BITS + INDEX_BITS) | index << KIND_BITS | self.kind)
    }

    #[inline(never)]
    fn get(&self, handle: usize) -> Result<(*mut (), Counted<'_>), NoHandle> {
        let (slot, generation) = self.parts(handle)?;
        let count = &slot.users[PLACE.with(|place| *place)].0;
        // In one order with the generation: of a call that counts itself in and one that frees, one sees the other.
        count.fetch_add(1, Ordering::SeqCst);
        let counted = Counted { count, _not_send: PhantomData };
        if slot.generation.load(Ordering::SeqCst) != generation {
            return Err(NoHandle);
        }
        Ok((slot.value.load(Ordering::Relaxed), counted))
    }

    #[inline(never)]
    fn free(&self, handle: usize) -> Result<*mut (), NoHandle> {
        let (slot, generation) = self.parts(handle)?;
        let next = generation.wrapping_add(1);
        let gone = slot.generation.compare_exchange(generation, next, Ordering::SeqCst, Ordering::SeqCst);
        gone.map_err(|_| NoHandle)?;
        while slot.users.iter().any(|count| count.0.load(Ordering::SeqCst) > 0) {
            thread::yield_now();
        }
        // Of all that were given this handle, this call alone changed the generation. Calls that came before have left, and later ones see
        // the generation.
        let value = slot.value.swap(ptr::null_mut(), Ordering::Relaxed);
        // A slot whose generations are used up is left.
        if generation < LAST_GENERATION {
            let mut vacant = self.vacant.lock().unwrap_or_else(PoisonError::into_inner);
            vacant.slots.push(index_of(handle));
        }
        Ok(value)
    }

    /// The slot that a handle names, and the generation.
    fn parts(&self, handle: usize) -> Result<(&Slot, u32), NoHandle> {
        let generation = u32::try_from(handle >> (KIND_BITS + INDEX_BITS)).map_err(|_| NoHandle)?;
        let is_ours = handle & ((1 << KIND_BITS) - 1) == self.kind;
        let slot = self.slot(index_of(handle)).filter(|_| is_ours && generation % 2 == 1);
        Ok((slot.ok_or(NoHandle)?, generation))
    }

    /// The slot of a number; nothing where there is none yet.
    fn slot(&self, index: usize) -> Option<&Slot> {
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
            let slots: Vec<Slot> = (0..index.max(FIRST_CHUNK)).map(|_| Slot::default()).collect();
            chunk.store(Box::leak(slots.into_boxed_slice()).as_mut_ptr(), Ordering::Release);
        }
        vacant.n += 1;
        Some(index)
    }
}

fn index_of(handle: usize) -> usize {
    handle >> KIND_BITS & ((1 << INDEX_BITS) - 1)
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

    fn insert<T: Send + Sync>(table: &Table<T>, value: T) -> *mut u8 {
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
