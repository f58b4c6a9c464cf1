//! Structs that C programs fill in, whose first field is their size, and what they mean.
#![allow(unsafe_code, reason = "reads structs of C")]
#![allow(non_camel_case_types, reason = "the names of C")]

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use tilewright_run::LoadOptions;

use crate::caller::{OwnMemory, OwnThreads};
use crate::failure::{Failure, Status};

/// The value of `TW_TRUST_ORIGIN`.
pub const TW_TRUST_ORIGIN: u32 = 0x5452_5553;

/// Memory of the caller's: `tw_allocator`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct tw_allocator {
    pub(crate) size: usize,
    pub(crate) ctx: *mut c_void,
    pub(crate) allocate: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>,
    pub(crate) free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize)>,
}

/// One task of a job: `tw_task`.
pub type tw_task = unsafe extern "C" fn(*mut c_void, usize);

/// Threads of the caller's: `tw_threads`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct tw_threads {
    pub(crate) size: usize,
    pub(crate) ctx: *mut c_void,
    pub(crate) count: usize,
    pub(crate) parallel_for: Option<unsafe extern "C" fn(*mut c_void, usize, tw_task, *mut c_void)>,
}

/// How a model is loaded and run: `tw_options`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct tw_options {
    pub(crate) size: usize,
    pub(crate) memory_limit: u64,
    pub(crate) seed: u64,
    pub(crate) n_threads: u32,
    pub(crate) n_sessions: u32,
    pub(crate) verify_weights: u32,
    pub(crate) reserved: u32,
    pub(crate) allocator: *const tw_allocator,
    pub(crate) threads: *const tw_threads,
}

/// A struct of C as this library knows it: fields that the caller's has not are zero, and those that are not known here must be.
///
/// # Safety
/// `from` is null or begins with its size, and has as many bytes. All zero is a value of the type.
unsafe fn read_sized<T: Copy>(from: *const T, what: &str) -> Result<Option<T>, Failure> {
    if from.is_null() {
        return Ok(None);
    }
    let fault = |why: String| Failure::new(Status::Argument, format!("{what}: {why}"));
    // SAFETY: by the caller's word; not said to be aligned.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    // Nothing that grows is of a page or more: that is no size.
    if size < size_of::<usize>() || size > 4096 {
        return Err(fault(format!("its size is said to be {size}, and {} is meant", size_of::<T>())));
    }
    // SAFETY: by the caller's word.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
    if bytes.get(size_of::<T>()..).is_some_and(|rest| rest.iter().any(|&byte| byte != 0)) {
        return Err(fault("it has fields that this version of the library does not know".to_string()));
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: so many bytes are in both; the result is initialised, and any value of fields is one of the type.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast(), size.min(size_of::<T>()));
        Ok(Some(value.assume_init()))
    }
}

/// Fills in a struct of C. Its size stays as the caller said it.
///
/// # Errors
/// Where there is no struct, or it is smaller than the first version of it.
///
/// # Safety
/// `to` is null or begins with its size, and has room for as many bytes.
pub unsafe fn write_sized<T: Copy>(to: *mut T, value: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::null("the struct to be filled in"));
    }
    let head = size_of::<usize>();
    // SAFETY: by the caller's word.
    let size = unsafe { to.cast::<usize>().read_unaligned() };
    if size < size_of::<T>() {
        let text = format!("the struct's size is said to be {size}, and {} is meant", size_of::<T>());
        return Err(Failure::new(Status::Argument, text));
    }
    // SAFETY: it has room for that; the first field is left.
    unsafe {
        let (from, to) = ((&raw const value).cast::<u8>().add(head), to.cast::<u8>().add(head));
        ptr::copy_nonoverlapping(from, to, size_of::<T>() - head);
    }
    Ok(())
}

/// A text of C.
///
/// # Errors
/// Where it is null, or no UTF-8.
///
/// # Safety
/// It is null or ends in a zero byte, and stays.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: by the caller's word.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::new(Status::Argument, format!("`{what}` is no UTF-8")))
}

/// What the options of a C program say.
///
/// # Errors
/// What makes no sense in them.
///
/// # Safety
/// `options` is null, or as `tilewright.h` has it, and so is what it points to.
pub unsafe fn load_options(options: *const tw_options) -> Result<LoadOptions, Failure> {
    let load = LoadOptions::new();
    // SAFETY: by the caller's word, here and below.
    let Some(options) = (unsafe { read_sized(options, "tw_options") })? else { return Ok(load) };
    let mut load = load.seed(options.seed).verify_weights(options.verify_weights != 0);
    if options.reserved != 0 || options.verify_weights > 1 {
        let text = "tw_options: `reserved` is 0, and `verify_weights` 0 or 1";
        return Err(Failure::new(Status::Argument, text));
    }
    if options.memory_limit > 0 {
        load = load.memory_limit(options.memory_limit);
    }
    if options.n_sessions > 0 {
        load = load.sessions(options.n_sessions as usize);
    }
    // SAFETY: as above.
    if let Some(threads) = unsafe { read_sized(options.threads, "tw_threads") }? {
        load = load.pool(Arc::new(OwnThreads::new(&threads)?));
    } else if options.n_threads > 0 {
        load = load.threads(options.n_threads as usize);
    }
    // SAFETY: as above.
    if let Some(allocator) = unsafe { read_sized(options.allocator, "tw_allocator") }? {
        load = load.allocator(Arc::new(OwnMemory::new(&allocator)?));
    }
    Ok(load)
}

/// Holds a program to the statement that it trusts what it loads.
pub(crate) fn trust(word: u32) -> Result<tilewright_run::Trust, Failure> {
    match word {
        TW_TRUST_ORIGIN => Ok(tilewright_run::Trust::Origin),
        _ => {
            let text = "an artifact is a program: to load one, state by TW_TRUST_ORIGIN that its origin is trusted";
            Err(Failure::new(Status::Trust, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Newer {
        size: usize,
        old: u64,
        new: u64,
    }

    #[test]
    fn structs_of_other_versions_are_read() {
        let read = |of: Newer| {
            // SAFETY: it has as many bytes as it says, or says too little.
            unsafe { read_sized(&raw const of, "s") }
        };
        let full = Newer { size: size_of::<Newer>(), old: 1, new: 2 };
        assert_eq!(read(full).ok(), Some(Some(full)));
        let older = Newer { size: 16, ..full };
        assert_eq!(read(older).ok(), Some(Some(Newer { new: 0, ..older })));
        for size in [0, 7, 5000] {
            assert_eq!(read(Newer { size, ..full }).map_err(|failure| failure.status), Err(Status::Argument));
        }
        let known = |newer: &Newer| {
            // SAFETY: it has as many bytes as it says.
            unsafe { read_sized((&raw const *newer).cast::<[usize; 2]>(), "s") }
        };
        assert_eq!(known(&Newer { new: 0, ..full }).ok(), Some(Some([size_of::<Newer>(), 1])));
        assert_eq!(known(&full).map_err(|failure| failure.status), Err(Status::Argument));
    }

    /// As a compiler of C for 64-bit machines lays them out; `tests/layout.c` holds the header to the same numbers.
    #[test]
    fn structs_are_laid_out_as_in_c() {
        use std::mem::offset_of;

        use crate::failure::tw_problem;
        use crate::specs::{tw_extent, tw_spec};

        if cfg!(target_pointer_width = "64") {
            let sizes = [size_of::<tw_allocator>(), size_of::<tw_threads>(), size_of::<tw_options>()];
            assert_eq!(sizes, [32, 32, 56]);
            assert_eq!((size_of::<tw_problem>(), size_of::<tw_extent>(), size_of::<tw_spec>()), (48, 40, 48));
            assert_eq!((offset_of!(tw_options, n_sessions), offset_of!(tw_options, allocator)), (28, 40));
            assert_eq!((offset_of!(tw_threads, count), offset_of!(tw_threads, parallel_for)), (16, 24));
            assert_eq!(size_of::<crate::api::tw_api_1>(), 224);
        }
    }
}
