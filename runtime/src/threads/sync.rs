//! What the pool's threads meet by: the standard library's atomics, locks and parking, or with `--cfg loom` those of loom, which
//! runs every interleaving of them (`tests/loom.rs`).

#[cfg(loom)]
pub(super) use loom::{
    cell::UnsafeCell,
    sync::Mutex,
    thread::{Builder, JoinHandle, Thread, current, park},
};
#[cfg(loom)]
pub(super) use model::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(not(loom))]
pub(super) use std::{
    sync::Mutex,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize},
    thread::{Builder, JoinHandle, Thread, current, park},
};

/// A cell whose accesses loom sees.
#[cfg(not(loom))]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// Loom's atomics with sequentially consistent operations, which loom takes for acquire and release: as processors without such
/// operations have them, between fences, which loom knows. That orders other accesses a little more than the language does.
#[cfg(loom)]
mod model {
    use std::sync::atomic::Ordering;

    fn fenced<R>(order: Ordering, operation: impl FnOnce() -> R) -> R {
        let fence = || {
            if order == Ordering::SeqCst {
                loom::sync::atomic::fence(Ordering::SeqCst);
            }
        };
        fence();
        let result = operation();
        fence();
        result
    }

    macro_rules! operations {
        ($name:ident, $value:ty: $($operation:ident($($argument:ident: $ty:ty),*) -> $result:ty,)*) => {
            $(pub(in super::super) fn $operation(&self, $($argument: $ty,)* order: Ordering) -> $result {
                fenced(order, || self.0.$operation($($argument,)* order))
            })*
        };
    }

    macro_rules! atomics {
        ($($name:ident($value:ty) { $($operations:tt)* })*) => {
            $(
                #[derive(Debug, Default)]
                pub(in super::super) struct $name(loom::sync::atomic::$name);

                #[allow(dead_code, reason = "all have the same operations")]
                impl $name {
                    pub(in super::super) fn new(value: $value) -> $name {
                        $name(loom::sync::atomic::$name::new(value))
                    }

                    operations! { $name, $value:
                        load() -> $value,
                        store(value: $value) -> (),
                        swap(value: $value) -> $value,
                        $($operations)*
                    }

                    pub(in super::super) fn compare_exchange(
                        &self,
                        current: $value,
                        new: $value,
                        success: Ordering,
                        failure: Ordering,
                    ) -> Result<$value, $value> {
                        fenced(success, || self.0.compare_exchange(current, new, success, failure))
                    }

                    pub(in super::super) fn fetch_update(
                        &self,
                        set: Ordering,
                        fetch: Ordering,
                        update: impl FnMut($value) -> Option<$value>,
                    ) -> Result<$value, $value> {
                        fenced(set, || self.0.fetch_update(set, fetch, update))
                    }
                }
            )*
        };
    }

    atomics! {
        AtomicBool(bool) {}
        AtomicU32(u32) {}
        AtomicU64(u64) { fetch_max(value: u64) -> u64, }
        AtomicUsize(usize) { fetch_add(value: usize) -> usize, fetch_sub(value: usize) -> usize, }
    }
}
