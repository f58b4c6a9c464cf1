//! The functions as a table, by version of the interface.
#![allow(unsafe_code, reason = "functions of C")]
#![allow(non_camel_case_types, reason = "the names of C")]

use std::ffi::{c_char, c_void};
use std::ptr;

use tilewright_runtime::dlpack::{DLManagedTensor, DLManagedTensorVersioned, DLTensor};

use crate::cancel::{tw_cancel, tw_cancel_free, tw_cancel_new, tw_cancel_request};
use crate::failure::{
    tw_last_error, tw_last_status, tw_problem, tw_problem_at, tw_problem_count, tw_status_name,
};
use crate::model::{
    tw_model, tw_model_free, tw_model_input, tw_model_input_count, tw_model_load, tw_model_load_bytes,
    tw_model_output, tw_model_output_count, tw_model_run,
};
use crate::options::tw_options;
use crate::session::{
    tw_session, tw_session_free, tw_session_memory, tw_session_new, tw_session_run, tw_session_run_into,
    tw_session_set_cancel, tw_session_set_seed,
};
use crate::specs::tw_spec;
use crate::tensors::{tw_tensor_free, tw_tensor_unversioned};

/// The version of the interface: that of `tilewright.h`.
pub const TW_ABI_VERSION: u32 = 1;

type Names = *const *const c_char;
type Tensors = *const DLTensor;
type Release = Option<unsafe extern "C" fn(*mut c_void, *const c_void)>;
type Outputs = *mut *mut DLManagedTensorVersioned;

/// Declares the table and makes the one there is: fields are functions of their name behind `tw_`, in the header's order.
macro_rules! table {
    ($($field:ident = $function:ident: fn($($argument:ty),*) $(-> $result:ty)?,)*) => {
        /// The table of version 1.
        #[repr(C)]
        pub struct tw_api_1 {
            size: usize,
            abi_version: u32,
            $($field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        static API_1: tw_api_1 = tw_api_1 {
            size: size_of::<tw_api_1>(),
            abi_version: TW_ABI_VERSION,
            $($field: $function,)*
        };
    };
}

table! {
    last_status = tw_last_status: fn() -> i32,
    last_error = tw_last_error: fn() -> *const c_char,
    problem_count = tw_problem_count: fn() -> usize,
    problem_at = tw_problem_at: fn(usize, *mut tw_problem) -> i32,
    status_name = tw_status_name: fn(i32) -> *const c_char,
    version = tw_version: fn() -> *const c_char,
    cancel_new = tw_cancel_new: fn(*mut *mut tw_cancel) -> i32,
    cancel_request = tw_cancel_request: fn(*mut tw_cancel) -> i32,
    cancel_free = tw_cancel_free: fn(*mut tw_cancel) -> i32,
    model_load = tw_model_load: fn(*const c_char, u32, *const tw_options, *mut *mut tw_model) -> i32,
    model_load_bytes = tw_model_load_bytes:
        fn(*const c_void, usize, Release, *mut c_void, u32, *const tw_options, *mut *mut tw_model) -> i32,
    model_free = tw_model_free: fn(*mut tw_model) -> i32,
    model_input_count = tw_model_input_count: fn(*mut tw_model, *mut usize) -> i32,
    model_output_count = tw_model_output_count: fn(*mut tw_model, *mut usize) -> i32,
    model_input = tw_model_input: fn(*mut tw_model, usize, *mut tw_spec) -> i32,
    model_output = tw_model_output: fn(*mut tw_model, usize, *mut tw_spec) -> i32,
    model_run = tw_model_run: fn(*mut tw_model, usize, Names, Tensors, *mut tw_cancel, usize, Outputs) -> i32,
    session_new = tw_session_new: fn(*mut tw_model, *mut *mut tw_session) -> i32,
    session_free = tw_session_free: fn(*mut tw_session) -> i32,
    session_set_seed = tw_session_set_seed: fn(*mut tw_session, u64) -> i32,
    session_set_cancel = tw_session_set_cancel: fn(*mut tw_session, *mut tw_cancel) -> i32,
    session_memory = tw_session_memory: fn(*mut tw_session, *mut u64) -> i32,
    session_run = tw_session_run: fn(*mut tw_session, usize, Names, Tensors, usize, Outputs) -> i32,
    session_run_into = tw_session_run_into: fn(*mut tw_session, usize, Names, Tensors, usize, Tensors) -> i32,
    tensor_free = tw_tensor_free: fn(*mut DLManagedTensorVersioned),
    tensor_unversioned = tw_tensor_unversioned:
        fn(*mut DLManagedTensorVersioned, *mut *mut DLManagedTensor) -> i32,
}

/// The table of a version; null for one that is not known.
#[unsafe(no_mangle)]
pub extern "C" fn tw_api(abi_version: u32) -> *const c_void {
    match abi_version {
        TW_ABI_VERSION => (&raw const API_1).cast(),
        _ => ptr::null(),
    }
}

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn tw_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
