//! Sessions: runs of one caller, one after the other.
#![allow(unsafe_code, reason = "functions of C")]
#![allow(non_camel_case_types, reason = "the names of C")]

use std::ffi::c_char;
use std::sync::{Mutex, TryLockError};

use tilewright_run::{Model, Session, TensorView, Value};
use tilewright_runtime::dlpack::{DLManagedTensorVersioned, DLTensor};
use tilewright_runtime::{AlignedBuf, Room, Values};

use crate::cancel::{self, free, give, tw_cancel};
use crate::failure::{Failure, Kind, Problem, Status, call};
use crate::handles::Table;
use crate::model::{self, tw_model};
use crate::run;
use crate::tensors::{Few, lent};

/// What handles of C point to: nothing.
#[repr(C)]
pub struct tw_session {
    _private: [u8; 0],
}

/// A session, and what its runs use again.
struct Own {
    session: Session,
    model: Model,
    /// Extents of the tensors of a run.
    dims: Vec<usize>,
}

static SESSIONS: Table<Mutex<Own>> = Table::new(3);

/// Works with the session that a handle means, which nobody else does meanwhile.
fn with_own<R>(
    session: *const tw_session,
    work: impl FnOnce(&mut Own) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let own = SESSIONS.get(session)?;
    let mut own = own.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Failure::new(Status::Busy, "another thread runs the session: one each"),
        TryLockError::Poisoned(_) => Failure::new(
            Status::Internal,
            "the session is in no state to be used after a defect of the library",
        ),
    })?;
    work(&mut own)
}

/// Makes a session.
///
/// # Safety
/// `session` is null or has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_session_new(model: *mut tw_model, session: *mut *mut tw_session) -> i32 {
    call(|| {
        let model = model::used(model)?.model.clone();
        let own = Own { session: model.session(), model, dims: Vec::new() };
        // SAFETY: by the caller's word.
        unsafe { give(&SESSIONS, Mutex::new(own), session) }
    })
}

/// Frees the handle, once no call uses it.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_free(session: *mut tw_session) -> i32 {
    free(&SESSIONS, session)
}

/// Begins the streams of random numbers anew.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_set_seed(session: *mut tw_session, seed: u64) -> i32 {
    call(|| {
        with_own(session, |own| {
            own.session.set_seed(seed);
            Ok(())
        })
    })
}

/// Says what stops runs from now on.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_set_cancel(session: *mut tw_session, cancel: *mut tw_cancel) -> i32 {
    call(|| {
        with_own(session, |own| {
            own.session.set_cancel(cancel::given(cancel)?);
            Ok(())
        })
    })
}

/// Bytes that the session holds.
///
/// # Safety
/// `bytes` is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_session_memory(session: *mut tw_session, bytes: *mut u64) -> i32 {
    call(|| {
        with_own(session, |own| {
            if bytes.is_null() {
                return Err(Failure::null("bytes"));
            }
            // SAFETY: by the caller's word.
            unsafe { bytes.write(own.session.memory()) };
            Ok(())
        })
    })
}

/// Runs the model; outputs are the caller's.
///
/// # Safety
/// As `tilewright.h` has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_session_run(
    session: *mut tw_session,
    n_inputs: usize,
    names: *const *const c_char,
    inputs: *const DLTensor,
    n_outputs: usize,
    outputs: *mut *mut DLManagedTensorVersioned,
) -> i32 {
    call(|| {
        with_own(session, |Own { session, model, dims }| {
            // SAFETY: by the caller's word, here and below.
            unsafe { run::clear(n_outputs, outputs, model)? };
            dims.clear();
            // SAFETY: as above.
            let inputs = unsafe { run::inputs(n_inputs, names, inputs, model.inputs(), dims)? };
            let allocator = model.allocator();
            let room = |bytes| AlignedBuf::zeroed_of(bytes, allocator).map(Room::from);
            let mut made = Values::new();
            let mut run = |tensors: &[TensorView<'_>], values: &[Value]| {
                made = session.run_new(tensors, values, room)?;
                Ok(())
            };
            // SAFETY: as above.
            unsafe { inputs.arranged(model, dims, &mut run)? };
            let names = model.outputs().iter().map(|spec| spec.name.as_str());
            // SAFETY: as above.
            unsafe { run::give(names.zip(made), outputs) }
        })
    })
}

/// Runs the model and writes outputs into the caller's tensors.
///
/// # Safety
/// As `tilewright.h` has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_session_run_into(
    session: *mut tw_session,
    n_inputs: usize,
    names: *const *const c_char,
    inputs: *const DLTensor,
    n_outputs: usize,
    outputs: *const DLTensor,
) -> i32 {
    call(|| {
        with_own(session, |own| {
            // SAFETY: by the caller's word.
            unsafe { run_into(own, (n_inputs, names, inputs), (n_outputs, outputs)) }
        })
    })
}

/// # Safety
/// As [`tw_session_run_into`].
unsafe fn run_into(
    own: &mut Own,
    (n_inputs, names, inputs): (usize, *const *const c_char, *const DLTensor),
    (n_outputs, outputs): (usize, *const DLTensor),
) -> Result<(), Failure> {
    let Own { session, model, dims } = own;
    let plan = model.inner().plan();
    if !plan.value_inputs.is_empty() || !plan.value_outputs.is_empty() {
        let text = "the model has inputs or outputs whose ranks are known only in a run: use tw_session_run";
        return Err(Failure::new(Status::Unsupported, text));
    }
    dims.clear();
    // SAFETY: by the caller's word, here and below.
    let inputs = unsafe { run::inputs(n_inputs, names, inputs, model.inputs(), dims)? };
    let specs = model.outputs();
    let name = |i: usize| specs.get(i).map_or_else(|| format!("output {i}"), |spec| spec.name.clone());
    // SAFETY: as above.
    let outputs = unsafe { lent(outputs, n_outputs, &name, dims)? };
    let mut problems = Vec::new();
    for (i, output) in outputs.iter().enumerate() {
        let mut others = inputs.lent.iter().chain(&outputs[..i]);
        if others.any(|other| other.overlaps(output)) {
            let text = format!("output {:?} shares memory with another tensor of the run", name(i));
            problems.push(Problem::new(Kind::Address, &name(i), &text));
        }
    }
    if !problems.is_empty() {
        return Err(Failure::of_problems(problems));
    }
    // SAFETY: as above; no output overlaps anything.
    let mut views: Few<_> = outputs.iter().map(|output| unsafe { output.view_mut(dims) }).collect();
    let mut run = |tensors: &[TensorView<'_>], _: &[Value]| session.run_into(tensors, &mut views);
    // SAFETY: as above.
    unsafe { inputs.arranged(model, dims, &mut run) }
}
