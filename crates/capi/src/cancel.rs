//! Requests to stop.
#![allow(unsafe_code, reason = "functions of C")]
#![allow(non_camel_case_types, reason = "the names of C")]

use tilewright_run::Cancel;

use crate::failure::{Failure, Status, call};
use crate::handles::Table;

/// What handles of C point to: nothing.
#[repr(C)]
pub struct tw_cancel {
    _private: [u8; 0],
}

static CANCELS: Table<Cancel> = Table::new(1);

/// The request that a handle means; none for null.
///
/// # Errors
/// Where it means nothing.
pub fn given(cancel: *const tw_cancel) -> Result<Option<Cancel>, Failure> {
    if cancel.is_null() { Ok(None) } else { Ok(Some(CANCELS.get(cancel)?.clone())) }
}

/// Puts something into a table and its handle where the caller wants it.
///
/// # Errors
/// Where that is nowhere, and where there are too many.
///
/// # Safety
/// `to` is null or has room for a handle.
pub unsafe fn give<T: Send + Sync, H>(table: &Table<T>, value: T, to: *mut *mut H) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::null("where to put the handle"));
    }
    let too_many = || Failure::new(Status::Limit, "there are too many handles");
    let handle = table.insert(value).ok_or_else(too_many)?;
    // SAFETY: by the caller's word.
    unsafe { to.write(handle) };
    Ok(())
}

/// Frees a handle, once no call uses it.
pub fn free<T: Send + Sync, H>(table: &Table<T>, handle: *const H) -> i32 {
    call(|| {
        table.free(handle)?;
        Ok(())
    })
}

/// Makes a request that was not made yet.
///
/// # Safety
/// `cancel` is null or has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_cancel_new(cancel: *mut *mut tw_cancel) -> i32 {
    // SAFETY: by the caller's word.
    call(|| unsafe { give(&CANCELS, Cancel::new(), cancel) })
}

/// Makes the request.
#[unsafe(no_mangle)]
pub extern "C" fn tw_cancel_request(cancel: *mut tw_cancel) -> i32 {
    call(|| {
        CANCELS.get(cancel)?.cancel();
        Ok(())
    })
}

/// Frees the handle; what heeds the request still does.
#[unsafe(no_mangle)]
pub extern "C" fn tw_cancel_free(cancel: *mut tw_cancel) -> i32 {
    free(&CANCELS, cancel)
}
