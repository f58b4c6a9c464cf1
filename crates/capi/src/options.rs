//! Structs that C programs fill in, whose first field is their size, and what they mean.
#![allow(unsafe_code, reason = "reads structs of C")]
#![allow(non_camel_case_types, reason = "the names of C")]

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use tilewright_run::LoadOptions;

use crate::caller::{OwnMemory, OwnThreads, tw_allocator, tw_threads};
use crate::failure::{Failure, Status};
use crate::sized;

/// The value of `TW_TRUST_ORIGIN`.
pub const TW_TRUST_ORIGIN: u32 = 0x5452_5553;

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
    let Some(options) = (unsafe { sized::read(options, "tw_options") })? else { return Ok(load) };
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
    if let Some(threads) = unsafe { sized::read(options.threads, "tw_threads") }? {
        load = load.pool(Arc::new(OwnThreads::new(&threads)?));
    } else if options.n_threads > 0 {
        load = load.threads(options.n_threads as usize);
    }
    // SAFETY: as above.
    if let Some(allocator) = unsafe { sized::read(options.allocator, "tw_allocator") }? {
        load = load.allocator(Arc::new(OwnMemory::new(&allocator)?));
    }
    Ok(load)
}

/// Holds a program to the statement that it trusts what it loads.
pub(crate) fn trust(word: u32) -> Result<tilewright_run::Trust, Failure> {
    match word {
        TW_TRUST_ORIGIN => Ok(tilewright_run::Trust::Origin),
        _ => {
            let text =
                "an artifact is a program: to load one, state by TW_TRUST_ORIGIN that its origin is trusted";
            Err(Failure::new(Status::Trust, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
