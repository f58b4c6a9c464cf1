//! What goes wrong in a compilation, as C programs hear of it.
#![allow(unsafe_code, reason = "functions and structs of C")]
#![allow(non_camel_case_types, reason = "the names of C")]

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use tilewright_capi::failure::{Failure, Kind, Problem, Status, c_text, tw_last_status, tw_problem_count};
use tilewright_capi::sized;
use tilewright_driver::{CompileError, Error, Gap};

/// Texts of a gap.
struct KeptGap {
    stage: CString,
    operator: CString,
    domain: CString,
    node: CString,
    reason: CString,
    hint: CString,
    opset: i64,
}

thread_local! {
    /// The gaps of the thread's last failure that had any.
    static GAPS: RefCell<Vec<KeptGap>> = const { RefCell::new(Vec::new()) };
}

/// A compilation's failure, for C. Its gaps are kept for the thread.
pub(crate) fn of_compile(error: &CompileError) -> Failure {
    let mut problems = Vec::new();
    if let CompileError::Gaps(gaps) = error {
        problems = gaps.iter().map(|gap| Problem::new(Kind::Gap, &gap.node, &gap.to_string())).collect();
        // A thread that ends has nowhere to keep them.
        let _ = GAPS.try_with(|kept| *kept.borrow_mut() = gaps.iter().map(kept_gap).collect());
    }
    // The command line's exit codes say whose fault it is too.
    let status = match error.exit_code() {
        2 => Status::Option,
        3 if problems.is_empty() => Status::Option,
        3 => Status::Gaps,
        4 => Status::Limit,
        5 => Status::Model,
        6 => Status::File,
        130 => Status::Cancelled,
        _ => Status::Internal,
    };
    Failure { status, text: error.to_string(), problems }
}

fn kept_gap(gap: &Gap) -> KeptGap {
    KeptGap {
        stage: c_text(gap.stage.name()),
        operator: c_text(&gap.operator),
        domain: c_text(&gap.domain),
        node: c_text(&gap.node),
        reason: c_text(&gap.reason),
        hint: c_text(&gap.hint),
        opset: gap.opset,
    }
}

/// A failure on the road from a compilation to a loaded model, for C.
pub(crate) fn of_any(error: Error) -> Failure {
    match error {
        Error::Compile(error) => of_compile(&error),
        Error::Load(error) => error.into(),
        Error::Run(error) => error.into(),
        Error::Device(error) => Failure::new(Status::Unsupported, error.to_string()),
        other => Failure::new(Status::Internal, other.to_string()),
    }
}

/// `tw_gap`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct tw_gap {
    size: usize,
    stage: *const c_char,
    operator_name: *const c_char,
    domain: *const c_char,
    node: *const c_char,
    reason: *const c_char,
    hint: *const c_char,
    opset: i64,
}

/// One gap of the thread's last failure.
///
/// # Safety
/// `gap` is null or begins with its size and has room for as many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_gap_at(index: usize, gap: *mut tw_gap) -> i32 {
    if tw_last_status() != Status::Gaps as i32 || index >= tw_problem_count() {
        return Status::Argument as i32;
    }
    let found = GAPS.try_with(|gaps| {
        gaps.borrow().get(index).map(|found| tw_gap {
            size: size_of::<tw_gap>(),
            stage: found.stage.as_ptr(),
            operator_name: found.operator.as_ptr(),
            domain: found.domain.as_ptr(),
            node: found.node.as_ptr(),
            reason: found.reason.as_ptr(),
            hint: found.hint.as_ptr(),
            opset: found.opset,
        })
    });
    match found {
        // SAFETY: by the caller's word.
        Ok(Some(found)) if unsafe { sized::write(gap, found) }.is_ok() => Status::Ok as i32,
        _ => Status::Argument as i32,
    }
}
