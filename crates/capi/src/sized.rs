//! Structs of C whose first field is their size: callers and libraries of different versions understand each other by it.
#![allow(unsafe_code, reason = "reads and writes structs of C")]

use std::mem::MaybeUninit;
use std::ptr;

/// Why a struct cannot be read or filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeFault(pub String);

/// Nothing that grows is of a page or more: that is no size.
const MOST: usize = 4096;

/// A struct of C as this library knows it: fields that the caller's has not are zero, and those that are not known here must be.
///
/// # Errors
/// Where its size makes no sense, or it has fields that are not known.
///
/// # Safety
/// `from` is null or begins with its size, and has as many bytes. All zero is a value of the type.
pub(crate) unsafe fn read<T: Copy>(from: *const T, what: &str) -> Result<Option<T>, SizeFault> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: by the caller's word; not said to be aligned.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    if size < size_of::<usize>() || size > MOST {
        let meant = size_of::<T>();
        return Err(SizeFault(format!("{what}: its size is said to be {size}, and {meant} is meant")));
    }
    // SAFETY: by the caller's word.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
    if bytes.get(size_of::<T>()..).is_some_and(|rest| rest.iter().any(|&byte| byte != 0)) {
        let text = "it has fields that this version of the library does not know";
        return Err(SizeFault(format!("{what}: {text}")));
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
pub unsafe fn write<T: Copy>(to: *mut T, value: T) -> Result<(), SizeFault> {
    if to.is_null() {
        return Err(SizeFault("the struct to be filled in is null".to_string()));
    }
    let (head, meant) = (size_of::<usize>(), size_of::<T>());
    // SAFETY: by the caller's word.
    let size = unsafe { to.cast::<usize>().read_unaligned() };
    if size < meant {
        return Err(SizeFault(format!("the struct's size is said to be {size}, and {meant} is meant")));
    }
    // SAFETY: it has room for that; the first field is left.
    unsafe {
        let (from, to) = ((&raw const value).cast::<u8>().add(head), to.cast::<u8>().add(head));
        ptr::copy_nonoverlapping(from, to, meant - head);
    }
    Ok(())
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
        let outcome = |of: Newer| {
            // SAFETY: it has as many bytes as it says, or says too little.
            unsafe { read(&raw const of, "s") }
        };
        let full = Newer { size: size_of::<Newer>(), old: 1, new: 2 };
        assert_eq!(outcome(full).ok(), Some(Some(full)));
        let older = Newer { size: 16, ..full };
        assert_eq!(outcome(older).ok(), Some(Some(Newer { new: 0, ..older })));
        for size in [0, 7, 5000] {
            assert!(outcome(Newer { size, ..full }).is_err());
        }
        let known = |newer: &Newer| {
            // SAFETY: it has as many bytes as it says.
            unsafe { read((&raw const *newer).cast::<[usize; 2]>(), "s") }
        };
        assert_eq!(known(&Newer { new: 0, ..full }).ok(), Some(Some([size_of::<Newer>(), 1])));
        assert!(known(&full).is_err());
    }
}
