//! What goes wrong, as C programs hear of it: a status, a text, and a list of problems, kept for the thread.
#![allow(unsafe_code, reason = "functions and structs of C")]
#![allow(non_camel_case_types, reason = "the names of C")]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tilewright_runtime::{InputError, LoadError, ModelError, OutOfMemory, RunError};

use crate::handles::NoHandle;
use crate::sized::{self, SizeFault};

/// Declares the statuses, with their names in C.
macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $value:literal $c:literal,)*) => {
        /// The outcome of a call: `tw_status`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Status {
            $($(#[$doc])* $name = $value,)*
        }

        /// The name of a status, as `tilewright.h` has it.
        #[unsafe(no_mangle)]
        pub extern "C" fn tw_status_name(status: i32) -> *const c_char {
            let name: &CStr = match status {
                $($value => $c,)*
                _ => c"unknown",
            };
            name.as_ptr()
        }
    };
}

statuses! {
    /// It did what it is for.
    Ok = 0 c"TW_OK",
    /// A handle that means nothing.
    Handle = 1 c"TW_ERROR_HANDLE",
    /// A null pointer, an index out of range, a struct of unknown size.
    Argument = 2 c"TW_ERROR_ARGUMENT",
    /// A session that another thread uses.
    Busy = 3 c"TW_ERROR_BUSY",
    /// Loading without the statement of trust.
    Trust = 4 c"TW_ERROR_TRUST",
    /// A file that cannot be read or written.
    File = 5 c"TW_ERROR_FILE",
    /// No artifact, or a damaged one.
    Artifact = 6 c"TW_ERROR_ARTIFACT",
    /// No code for this machine.
    Machine = 7 c"TW_ERROR_MACHINE",
    /// Tensors that do not fit the model.
    Input = 8 c"TW_ERROR_INPUT",
    /// What this library does not pass on.
    Unsupported = 9 c"TW_ERROR_UNSUPPORTED",
    /// No such memory.
    Memory = 10 c"TW_ERROR_MEMORY",
    /// The caller's limit of memory.
    Limit = 11 c"TW_ERROR_LIMIT",
    /// Values that the model does not take.
    Data = 12 c"TW_ERROR_DATA",
    /// Somebody asked it to stop.
    Cancelled = 13 c"TW_ERROR_CANCELLED",
    /// A defect of ours.
    Internal = 14 c"TW_ERROR_INTERNAL",
    /// A model that is not valid.
    Model = 15 c"TW_ERROR_MODEL",
    /// A model that is not supported.
    Gaps = 16 c"TW_ERROR_GAPS",
    /// An option of the compiler that makes no sense.
    Option = 17 c"TW_ERROR_OPTION",
}

/// What is wrong with one tensor, or with one operator: `TW_PROBLEM_...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    /// Not given.
    Missing = 1,
    /// More than the model has.
    TooMany = 2,
    /// A name that the model has not.
    Unknown = 3,
    /// Given twice.
    Duplicate = 4,
    /// Another element type.
    DType = 5,
    /// Another number of axes.
    Rank = 6,
    /// Another extent.
    Extent = 7,
    /// An extent that the model was not compiled for.
    Bounds = 8,
    /// No tensor.
    Value = 9,
    /// Not in the processor's memory.
    Device = 10,
    /// Not dense and row-major.
    Strides = 11,
    /// Null, or shared with an output.
    Address = 12,
    /// Not supported by the compiler.
    Gap = 13,
}

/// One problem of a failure.
#[derive(Debug)]
pub struct Problem {
    /// What it is.
    pub kind: Kind,
    /// The axis that it is about.
    pub axis: Option<usize>,
    /// What should be, where that is a number.
    pub expected: Option<i64>,
    /// What is, where that is a number.
    pub got: Option<i64>,
    /// What it is about.
    pub name: CString,
    /// All that is to be said.
    pub text: CString,
}

impl Problem {
    /// A problem without numbers.
    pub fn new(kind: Kind, name: &str, text: &str) -> Problem {
        let (name, text) = (c_text(name), c_text(text));
        Problem { kind, axis: None, expected: None, got: None, name, text }
    }

    /// The numbers that should be and are.
    #[must_use]
    pub fn with(self, expected: impl TryInto<i64>, got: impl TryInto<i64>) -> Problem {
        Problem { expected: expected.try_into().ok(), got: got.try_into().ok(), ..self }
    }
}

/// Why a call did not do what it is for.
#[derive(Debug)]
pub struct Failure {
    /// In a word.
    pub status: Status,
    /// In a text.
    pub text: String,
    /// One by one.
    pub problems: Vec<Problem>,
}

impl Failure {
    /// A failure without a list of problems.
    pub fn new(status: Status, text: impl Into<String>) -> Failure {
        Failure { status, text: text.into(), problems: Vec::new() }
    }

    /// A null pointer where there must be something.
    pub fn null(what: &str) -> Failure {
        Failure::new(Status::Argument, format!("`{what}` is null"))
    }

    /// Tensors that do not fit.
    pub fn of_problems(problems: Vec<Problem>) -> Failure {
        let text: Vec<_> = problems.iter().map(|problem| problem.text.to_string_lossy()).collect();
        Failure { status: Status::Input, text: text.join("; "), problems }
    }
}

impl From<NoHandle> for Failure {
    fn from(_: NoHandle) -> Failure {
        let text = "the handle means nothing here: it is null, was freed, or is of another kind";
        Failure::new(Status::Handle, text)
    }
}

impl From<SizeFault> for Failure {
    fn from(SizeFault(text): SizeFault) -> Failure {
        Failure::new(Status::Argument, text)
    }
}

impl From<OutOfMemory> for Failure {
    fn from(error: OutOfMemory) -> Failure {
        Failure::new(Status::Memory, error.to_string())
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Failure {
        let status = match &error {
            LoadError::File { .. } => Status::File,
            LoadError::Code(_) | LoadError::Model(ModelError::Memory(_)) => Status::Memory,
            LoadError::Artifact(_) => Status::Artifact,
            LoadError::Isa(_) => Status::Machine,
            LoadError::NeedsDevice(_)
            | LoadError::SeveralDevices(_)
            | LoadError::OtherDevice { .. }
            | LoadError::Device(_)
            | LoadError::Model(
                ModelError::NoDevice
                | ModelError::Device(_)
                | ModelError::HostOps(_)
                | ModelError::DType { .. },
            ) => Status::Unsupported,
            LoadError::Model(
                ModelError::Plan(_)
                | ModelError::Kernels { .. }
                | ModelError::Space(_)
                | ModelError::Weights { .. }
                | ModelError::Program(_),
            ) => Status::Artifact,
        };
        Failure::new(status, error.to_string())
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        let status = match error {
            RunError::Inputs(errors) => {
                return Failure::of_problems(errors.0.iter().map(problem).collect());
            }
            RunError::Guard { .. } | RunError::Host { .. } => Status::Data,
            RunError::Cancelled => Status::Cancelled,
            RunError::Limit { .. } => Status::Limit,
            RunError::Memory(_) => Status::Memory,
            RunError::Device(_) => Status::Unsupported,
            RunError::Plan { .. } => Status::Internal,
        };
        Failure::new(status, error.to_string())
    }
}

/// A problem with an input, for C.
fn problem(error: &InputError) -> Problem {
    let text = error.to_string();
    let new = |kind, name: &str| Problem::new(kind, name, &text);
    match error {
        InputError::Missing { name } => new(Kind::Missing, name),
        InputError::TooMany { given, expected, .. } => new(Kind::TooMany, "").with(*expected, *given),
        InputError::Unknown { name, .. } => new(Kind::Unknown, name),
        InputError::Duplicate { name } => new(Kind::Duplicate, name),
        InputError::DType { name, .. } => new(Kind::DType, name),
        InputError::Rank { name, expected, got } => new(Kind::Rank, name).with(*expected, *got),
        InputError::Dim { name, axis, expected, got, .. } => {
            let problem = new(Kind::Extent, name).with(expected.unwrap_or(-1), *got);
            Problem { axis: Some(*axis), ..problem }
        }
        InputError::Bounds { name, input, got, .. } => {
            let (of, axis) = match input {
                Some((input, axis)) => (input, Some(*axis as usize)),
                None => (name, None),
            };
            Problem { axis, got: Some(*got), ..new(Kind::Bounds, of) }
        }
        InputError::Value { name, .. } | InputError::Tensor { name, .. } => new(Kind::Value, name),
        InputError::Bytes { name, expected, got } => new(Kind::Extent, name).with(*expected, *got),
        // Of models on devices, which this library does not load; the runtime has more of these where it has devices.
        #[allow(unreachable_patterns, reason = "all there are without devices")]
        _ => new(Kind::Device, ""),
    }
}

/// A text of C, with a mark in place of zero bytes.
pub fn c_text(text: &str) -> CString {
    CString::new(text).unwrap_or_else(|_| CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default())
}

/// What went wrong last on a thread.
struct Last {
    status: Status,
    text: CString,
    problems: Vec<Problem>,
}

thread_local! {
    static LAST: RefCell<Last> =
        RefCell::new(Last { status: Status::Ok, text: CString::default(), problems: Vec::new() });
}

/// Does what a function of C is for; what goes wrong is kept for the thread.
pub fn call(work: impl FnOnce() -> Result<(), Failure>) -> i32 {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => Status::Ok as i32,
        Ok(Err(failure)) => keep(failure),
        Err(payload) => keep(of_panic(&*payload)),
    }
}

fn of_panic(payload: &(dyn Any + Send)) -> Failure {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    Failure::new(Status::Internal, format!("a defect of the library: {text}"))
}

/// Keeps a failure for the thread, and gives its status. Apart from [`call`], of which each function has a copy.
#[inline(never)]
fn keep(failure: Failure) -> i32 {
    let Failure { status, text, problems } = failure;
    let last = Last { status, text: c_text(&text), problems };
    // A thread that ends, with calls in destructors of its own, has nowhere to keep it.
    let before = LAST.try_with(|kept| kept.try_borrow_mut().map(|mut kept| mem::replace(&mut *kept, last)));
    drop(before);
    status as i32
}

/// The status of the thread's last failure.
#[unsafe(no_mangle)]
pub extern "C" fn tw_last_status() -> i32 {
    LAST.try_with(|last| last.borrow().status).unwrap_or(Status::Internal) as i32
}

/// The text of the thread's last failure.
#[unsafe(no_mangle)]
pub extern "C" fn tw_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// How many problems the thread's last failure lists.
#[unsafe(no_mangle)]
pub extern "C" fn tw_problem_count() -> usize {
    LAST.try_with(|last| last.borrow().problems.len()).unwrap_or(0)
}

/// `tw_problem`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct tw_problem {
    size: usize,
    kind: i32,
    axis: i32,
    expected: i64,
    got: i64,
    name: *const c_char,
    text: *const c_char,
}

/// One problem of the thread's last failure.
///
/// # Safety
/// `problem` is null or begins with its size and has room for as many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_problem_at(index: usize, problem: *mut tw_problem) -> i32 {
    // What is asked for stays while it is looked at: a failure here is told by the status alone.
    let found = LAST.try_with(|last| {
        let last = last.borrow();
        let found = last.problems.get(index)?;
        Some(tw_problem {
            size: size_of::<tw_problem>(),
            kind: found.kind as i32,
            axis: found.axis.and_then(|axis| i32::try_from(axis).ok()).unwrap_or(-1),
            expected: found.expected.unwrap_or(-1),
            got: found.got.unwrap_or(-1),
            name: found.name.as_ptr(),
            text: found.text.as_ptr(),
        })
    });
    match found {
        // SAFETY: by the caller's word.
        Ok(Some(found)) if unsafe { sized::write(problem, found) }.is_ok() => Status::Ok as i32,
        _ => Status::Argument as i32,
    }
}
