//! Compiled models.
#![allow(unsafe_code, reason = "functions of C")]
#![allow(non_camel_case_types, reason = "the names of C")]

use std::ffi::{c_char, c_void};

use tilewright_capi::cancel::{free, give};
use tilewright_capi::failure::{Failure, Status, call};
use tilewright_capi::handles::Table;
use tilewright_capi::model::{give_model, tw_model};
use tilewright_capi::options::{load_options, text, tw_options};
use tilewright_driver::Artifact;

use crate::failure::{of_any, of_compile};

/// What handles of C point to: nothing.
#[repr(C)]
pub struct tw_artifact {
    _private: [u8; 0],
}

static ARTIFACTS: Table<Artifact> = Table::new(5);

/// Gives a C program an artifact.
///
/// # Safety
/// `to` is null or has room for a handle.
pub(crate) unsafe fn give_artifact(artifact: Artifact, to: *mut *mut tw_artifact) -> Result<(), Failure> {
    // SAFETY: by the caller's word.
    unsafe { give(&ARTIFACTS, artifact, to) }
}

/// Frees the handle, once no call uses it.
#[unsafe(no_mangle)]
pub extern "C" fn tw_artifact_free(artifact: *mut tw_artifact) -> i32 {
    free(&ARTIFACTS, artifact)
}

/// Writes the file.
///
/// # Safety
/// `path` is null or a text of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_artifact_write(artifact: *mut tw_artifact, path: *const c_char) -> i32 {
    call(|| {
        // SAFETY: by the caller's word.
        let path = unsafe { text(path, "path") }?;
        ARTIFACTS.get(artifact)?.write(path).map_err(|error| of_compile(&error))?;
        Ok(())
    })
}

/// Gives the file's bytes.
///
/// # Safety
/// `bytes` is null or has room for a pointer, `n_bytes` null or for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_artifact_bytes(
    artifact: *mut tw_artifact,
    bytes: *mut *const c_void,
    n_bytes: *mut usize,
) -> i32 {
    call(|| {
        if bytes.is_null() || n_bytes.is_null() {
            return Err(Failure::null("where to put the bytes, or their number"));
        }
        let made = ARTIFACTS.get(artifact)?.to_bytes().map_err(|error| of_compile(&error))?;
        let own: Box<[u8]> = made.to_vec().into_boxed_slice();
        // SAFETY: by the caller's word.
        unsafe {
            n_bytes.write(own.len());
            bytes.write(Box::into_raw(own).cast_const().cast());
        }
        Ok(())
    })
}

/// Gives bytes back.
///
/// # Safety
/// They are of [`tw_artifact_bytes`], as many, and were not given back; or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_bytes_free(bytes: *const c_void, n_bytes: usize) -> i32 {
    call(|| {
        if bytes.is_null() {
            return Err(Failure::new(Status::Argument, "`bytes` is null"));
        }
        let slice = std::ptr::slice_from_raw_parts_mut(bytes.cast_mut().cast::<u8>(), n_bytes);
        // SAFETY: by the caller's word.
        drop(unsafe { Box::from_raw(slice) });
        Ok(())
    })
}

/// Loads it.
///
/// # Safety
/// `options` is null or as `tilewright.h` has it; `model` is null or has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_artifact_load(
    artifact: *mut tw_artifact,
    options: *const tw_options,
    model: *mut *mut tw_model,
) -> i32 {
    call(|| {
        // SAFETY: by the caller's word.
        let options = unsafe { load_options(options) }?;
        let loaded = ARTIFACTS.get(artifact)?.load_with(&options).map_err(of_any)?;
        // SAFETY: as above.
        unsafe { give_model(loaded, model) }
    })
}
