//! Models.
#![allow(unsafe_code, reason = "functions of C")]
#![allow(non_camel_case_types, reason = "the names of C")]

use std::ffi::{c_char, c_void};

use tilewright_run::Model;
use tilewright_runtime::dlpack::{DLManagedTensorVersioned, DLTensor};
use tilewright_runtime::{AlignedBuf, Bytes};

use crate::cancel::{self, free, give, tw_cancel};
use crate::failure::{Failure, Status, call};
use crate::handles::{Table, Used};
use crate::options::{load_options, text, trust, tw_options};
use crate::run;
use crate::sized;
use crate::specs::{self, KeptSpec, tw_spec};
use crate::tensors::Few;

/// What handles of C point to: nothing.
#[repr(C)]
pub struct tw_model {
    _private: [u8; 0],
}

/// A model with what C programs may ask of it.
pub(crate) struct Loaded {
    pub(crate) model: Model,
    inputs: Vec<KeptSpec>,
    outputs: Vec<KeptSpec>,
}

static MODELS: Table<Loaded> = Table::new(2);

/// The model that a handle means.
pub(crate) fn used(model: *const tw_model) -> Result<Used<'static, Loaded>, Failure> {
    Ok(MODELS.get(model)?)
}

/// Gives a C program a model.
///
/// # Errors
/// Where `to` is null, and where there are too many.
///
/// # Safety
/// `to` is null or has room for a handle.
pub unsafe fn give_model(model: Model, to: *mut *mut tw_model) -> Result<(), Failure> {
    let (inputs, outputs) = specs::of_model(&model);
    // SAFETY: by the caller's word.
    unsafe { give(&MODELS, Loaded { model, inputs, outputs }, to) }
}

/// Loads a file.
///
/// # Safety
/// As `tilewright.h` has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_model_load(
    path: *const c_char,
    trusted: u32,
    options: *const tw_options,
    model: *mut *mut tw_model,
) -> i32 {
    call(|| {
        // SAFETY: by the caller's word, here and below.
        let (path, options) = unsafe { (text(path, "path")?, load_options(options)?) };
        let loaded = Model::load_with(path, trust(trusted)?, &options)?;
        // SAFETY: as above.
        unsafe { give_model(loaded, model) }
    })
}

/// Bytes of a C program, which hears when nobody uses them any more.
struct Borrowed {
    start: *const u8,
    len: usize,
    release: unsafe extern "C" fn(*mut c_void, *const c_void),
    ctx: *mut c_void,
}

// SAFETY: the bytes do not change, and `release` may be called from any thread: the caller's word.
unsafe impl Send for Borrowed {}
// SAFETY: likewise.
unsafe impl Sync for Borrowed {}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the caller's word, until `release` is called.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // SAFETY: the caller's function, called once.
        unsafe { (self.release)(self.ctx, self.start.cast()) };
    }
}

/// Loads from memory.
///
/// # Safety
/// As `tilewright.h` has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_model_load_bytes(
    bytes: *const c_void,
    n_bytes: usize,
    release: Option<unsafe extern "C" fn(*mut c_void, *const c_void)>,
    ctx: *mut c_void,
    trusted: u32,
    options: *const tw_options,
    model: *mut *mut tw_model,
) -> i32 {
    call(|| {
        let start = bytes.cast::<u8>();
        // Whatever happens, what is lent is released: so this comes first.
        let borrowed = release.map(|release| Borrowed { start, len: n_bytes, release, ctx });
        if bytes.is_null() || isize::try_from(n_bytes).is_err() {
            return Err(Failure::new(Status::Argument, "`bytes` is null, or too many"));
        }
        let bytes = match borrowed {
            Some(borrowed) => Bytes::new(borrowed),
            // SAFETY: by the caller's word.
            None => Bytes::new(AlignedBuf::copy_of(unsafe { std::slice::from_raw_parts(start, n_bytes) })?),
        };
        // SAFETY: by the caller's word, here and below.
        let options = unsafe { load_options(options)? };
        let loaded = Model::from_bytes(bytes, trust(trusted)?, &options)?;
        // SAFETY: as above.
        unsafe { give_model(loaded, model) }
    })
}

/// Frees the handle, once no call uses it.
#[unsafe(no_mangle)]
pub extern "C" fn tw_model_free(model: *mut tw_model) -> i32 {
    free(&MODELS, model)
}

/// How many inputs it has.
///
/// # Safety
/// `count` is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_model_input_count(model: *mut tw_model, count: *mut usize) -> i32 {
    // SAFETY: by the caller's word.
    call(|| unsafe { put_count(used(model)?.inputs.len(), count) })
}

/// How many outputs it has.
///
/// # Safety
/// `count` is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_model_output_count(model: *mut tw_model, count: *mut usize) -> i32 {
    // SAFETY: by the caller's word.
    call(|| unsafe { put_count(used(model)?.outputs.len(), count) })
}

/// # Safety
/// `count` is null or has room for a number.
unsafe fn put_count(n: usize, count: *mut usize) -> Result<(), Failure> {
    if count.is_null() {
        return Err(Failure::null("count"));
    }
    // SAFETY: by the caller's word.
    unsafe { count.write(n) };
    Ok(())
}

/// One of its inputs.
///
/// # Safety
/// `spec` is null or begins with its size and has room for as many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_model_input(model: *mut tw_model, index: usize, spec: *mut tw_spec) -> i32 {
    // SAFETY: by the caller's word.
    call(|| unsafe { put_spec(&used(model)?.inputs, index, spec) })
}

/// One of its outputs.
///
/// # Safety
/// As [`tw_model_input`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_model_output(model: *mut tw_model, index: usize, spec: *mut tw_spec) -> i32 {
    // SAFETY: by the caller's word.
    call(|| unsafe { put_spec(&used(model)?.outputs, index, spec) })
}

/// # Safety
/// As [`tw_model_input`].
unsafe fn put_spec(specs: &[KeptSpec], index: usize, spec: *mut tw_spec) -> Result<(), Failure> {
    let none = || Failure::new(Status::Argument, format!("there is no {index} of {}", specs.len()));
    let found = specs.get(index).ok_or_else(none)?;
    // SAFETY: by the caller's word.
    unsafe { sized::write(spec, found.spec())? };
    Ok(())
}

/// Runs the model, in a session that nobody uses.
///
/// # Safety
/// As `tilewright.h` has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_model_run(
    model: *mut tw_model,
    n_inputs: usize,
    names: *const *const c_char,
    inputs: *const DLTensor,
    cancel: *mut tw_cancel,
    n_outputs: usize,
    outputs: *mut *mut DLManagedTensorVersioned,
) -> i32 {
    call(|| {
        let model = &used(model)?.model;
        // SAFETY: by the caller's word, here and below.
        unsafe { run::clear(n_outputs, outputs, model)? };
        let cancel = cancel::given(cancel)?;
        let mut dims = Vec::new();
        // SAFETY: as above.
        let inputs = unsafe { run::inputs(n_inputs, names, inputs, model.inputs(), &mut dims)? };
        // SAFETY: as above.
        let views: Few<_> = inputs.lent.iter().map(|lent| unsafe { lent.view(&dims) }).collect();
        let named = inputs.named(model, &views)?;
        let made = match &cancel {
            None => model.run(named)?,
            Some(cancel) => model.run_cancellable(named, cancel)?,
        };
        let names = model.outputs().iter().map(|spec| spec.name.as_str());
        let values = names.zip(made.into_iter().map(|(_, value)| value));
        // SAFETY: as above.
        unsafe { run::give(values, outputs) }
    })
}
