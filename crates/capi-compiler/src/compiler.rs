//! Compilers: options, said one by one.
#![allow(unsafe_code, reason = "functions of C")]
#![allow(non_camel_case_types, reason = "the names of C")]

use std::ffi::{c_char, c_void};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tilewright_capi::cancel::{self, free, give, tw_cancel};
use tilewright_capi::failure::{Failure, Status, call};
use tilewright_capi::handles::Table;
use tilewright_capi::options::text;
use tilewright_driver::cache::DEFAULT_LIMIT;
use tilewright_driver::{Cache, Cancel, CodegenKind, Compiler, Extents, Mode, Numerics, Source};

use crate::artifact::{self, tw_artifact};
use crate::failure::of_compile;

/// What handles of C point to: nothing.
#[repr(C)]
pub struct tw_compiler {
    _private: [u8; 0],
}

static COMPILERS: Table<Mutex<Compiler>> = Table::new(4);

/// Changes what a compiler is told; it stays as it was where that fails.
fn change(
    compiler: *const tw_compiler,
    change: impl FnOnce(Compiler) -> Result<Compiler, Failure>,
) -> Result<(), Failure> {
    let own = COMPILERS.get(compiler)?;
    let mut own = own.lock().unwrap_or_else(PoisonError::into_inner);
    *own = change(own.clone())?;
    Ok(())
}

fn unknown(what: &str, name: &str, known: &str) -> Failure {
    Failure::new(Status::Option, format!("unknown {what} `{name}`: {known}"))
}

/// Makes a compiler.
///
/// # Safety
/// `compiler` is null or has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_compiler_new(compiler: *mut *mut tw_compiler) -> i32 {
    // SAFETY: by the caller's word.
    call(|| unsafe { give(&COMPILERS, Mutex::new(Compiler::new()), compiler) })
}

/// Frees the handle, once no call uses it.
#[unsafe(no_mangle)]
pub extern "C" fn tw_compiler_free(compiler: *mut tw_compiler) -> i32 {
    free(&COMPILERS, compiler)
}

/// Says what to compile for.
///
/// # Safety
/// `names` is null or a text of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_compiler_target(compiler: *mut tw_compiler, names: *const c_char) -> i32 {
    call(|| {
        // SAFETY: by the caller's word.
        let names = unsafe { text(names, "names") }?;
        change(compiler, |compiler| compiler.target(names).map_err(|error| of_compile(&error)))
    })
}

/// Says what extents an open dimension may have.
///
/// # Safety
/// `name` is null or a text of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_compiler_dim(
    compiler: *mut tw_compiler,
    name: *const c_char,
    least: i64,
    most: i64,
    step: i64,
) -> i32 {
    call(|| {
        // SAFETY: by the caller's word.
        let name = unsafe { text(name, "name") }?;
        let extents = Extents::from(least..=most);
        let extents = if step == 0 { extents } else { extents.step(step) };
        change(compiler, |compiler| Ok(compiler.dim(name, extents)))
    })
}

/// Says what to optimise for.
///
/// # Safety
/// `name` is null or a text of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_compiler_mode(
    compiler: *mut tw_compiler,
    name: *const c_char,
    seconds: u32,
) -> i32 {
    call(|| {
        // SAFETY: by the caller's word.
        let mode: Mode = unsafe { text(name, "name") }?.parse().map_err(|error| of_compile(&error))?;
        let mode = match mode {
            Mode::MaxAutotune { .. } if seconds > 0 => {
                Mode::MaxAutotune { time: Duration::from_secs(seconds.into()) }
            }
            mode => mode,
        };
        change(compiler, |compiler| Ok(compiler.mode(mode)))
    })
}

/// Says which reassociations are allowed.
///
/// # Safety
/// `name` is null or a text of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_compiler_numerics(compiler: *mut tw_compiler, name: *const c_char) -> i32 {
    call(|| {
        // SAFETY: by the caller's word.
        let numerics = match unsafe { text(name, "name") }? {
            "default" => Numerics::Default,
            "strict" => Numerics::Strict,
            name => return Err(unknown("numerics", name, "default or strict")),
        };
        change(compiler, |compiler| Ok(compiler.numerics(numerics)))
    })
}

/// Says what makes machine code.
///
/// # Safety
/// `name` is null or a text of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_compiler_codegen(compiler: *mut tw_compiler, name: *const c_char) -> i32 {
    call(|| {
        // SAFETY: by the caller's word.
        let name = unsafe { text(name, "name") }?;
        let codegen = match name {
            "llvm" => CodegenKind::Llvm,
            "cranelift" => CodegenKind::Cranelift,
            name => return Err(unknown("code generator", name, "llvm or cranelift")),
        };
        change(compiler, |compiler| Ok(compiler.codegen(codegen)))
    })
}

/// Says where compiled functions are kept.
///
/// # Safety
/// `folder` is null or a text of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_compiler_cache(
    compiler: *mut tw_compiler,
    folder: *const c_char,
    limit: u64,
) -> i32 {
    call(|| {
        // SAFETY: by the caller's word.
        let folder = unsafe { text(folder, "folder") }?;
        let limit = if limit == 0 { DEFAULT_LIMIT } else { limit };
        change(compiler, |compiler| Ok(compiler.cache(Cache::at(folder, limit))))
    })
}

/// Says by which records functions are scheduled.
///
/// # Safety
/// `path` is null or a text of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_compiler_records(compiler: *mut tw_compiler, path: *const c_char) -> i32 {
    call(|| {
        if path.is_null() {
            return change(compiler, |compiler| Ok(compiler.without_records()));
        }
        // SAFETY: by the caller's word.
        let path = unsafe { text(path, "path") }?;
        let failure = |error: &dyn ToString| Failure::new(Status::File, error.to_string());
        change(compiler, |compiler| compiler.records(path).map_err(|error| failure(&error)))
    })
}

/// Switches graph passes off and on.
///
/// # Safety
/// `selection` is null or a text of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_compiler_passes(compiler: *mut tw_compiler, selection: *const c_char) -> i32 {
    call(|| {
        // SAFETY: by the caller's word.
        let selection = unsafe { text(selection, "selection") }?;
        change(compiler, |compiler| Ok(compiler.select_passes(selection)))
    })
}

/// Says how many threads compile.
#[unsafe(no_mangle)]
pub extern "C" fn tw_compiler_threads(compiler: *mut tw_compiler, n_threads: u32) -> i32 {
    call(|| {
        let jobs = match n_threads {
            0 => Compiler::new().options().jobs,
            n => n as usize,
        };
        change(compiler, |compiler| Ok(compiler.jobs(jobs)))
    })
}

/// Says what stops compilations.
#[unsafe(no_mangle)]
pub extern "C" fn tw_compiler_cancel(compiler: *mut tw_compiler, cancel: *mut tw_cancel) -> i32 {
    call(|| {
        let cancel = cancel::given(cancel)?.unwrap_or_else(Cancel::new);
        change(compiler, |compiler| Ok(compiler.cancel(cancel)))
    })
}

/// Compiles a file.
///
/// # Safety
/// `path` is null or a text of C, `artifact` null or has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_compile(
    compiler: *mut tw_compiler,
    path: *const c_char,
    artifact: *mut *mut tw_artifact,
) -> i32 {
    call(|| {
        // SAFETY: by the caller's word.
        let path = unsafe { text(path, "path") }?;
        // SAFETY: as above.
        unsafe { compile(compiler, path.into(), artifact) }
    })
}

/// Compiles bytes.
///
/// # Safety
/// `bytes` is null or has as many; `artifact` is null or has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_compile_bytes(
    compiler: *mut tw_compiler,
    bytes: *const c_void,
    n_bytes: usize,
    artifact: *mut *mut tw_artifact,
) -> i32 {
    call(|| {
        if bytes.is_null() || isize::try_from(n_bytes).is_err() {
            return Err(Failure::new(Status::Argument, "`bytes` is null, or too many"));
        }
        // SAFETY: by the caller's word.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), n_bytes) };
        // SAFETY: as above.
        unsafe { compile(compiler, bytes.into(), artifact) }
    })
}

/// # Safety
/// `to` is null or has room for a handle.
unsafe fn compile(
    compiler: *const tw_compiler,
    source: Source,
    to: *mut *mut tw_artifact,
) -> Result<(), Failure> {
    // Others may change it and compile by it meanwhile.
    let own = COMPILERS.get(compiler)?.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let made = own.compile(source).map_err(|error| of_compile(&error))?;
    // SAFETY: by the caller's word.
    unsafe { artifact::give_artifact(made, to) }
}
