//! Runs an artifact without std: no operating system services but one `write` and an exit code. The heap has what the artifact says it needs.
//!
//! The artifact is embedded in the text section and runs where it lies, as from the flash of a board. Every input gets
//! the values 0, 1, 2, ... and open dims are 2; the bytes of all outputs go to standard output. That std is absent is proved by
//! the build: with it, panic handler and allocator would be defined twice.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::mem::MaybeUninit;
use core::panic::PanicInfo;

use tilewright_runtime::artifact::Needs;
use tilewright_runtime::isa::Isa;
use tilewright_runtime::plan::{DimSpec, SizeDef};
use tilewright_runtime::{Arena, Model, NoHostOps, SessionOptions, TensorView};

const MODEL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/model.twm"));

#[repr(C, align(4096))]
struct Flash([u8; MODEL.len()]);

#[unsafe(link_section = ".text.model")]
static FLASH: Flash = Flash(*include_bytes!(concat!(env!("OUT_DIR"), "/model.twm")));

/// Memory of the model: more than it needs, so that its heap is what it says, to the byte.
const MEMORY: usize = 1 << 20;

#[repr(C, align(64))]
struct Aligned<T>(T);

static mut MEMORY_OF_MODEL: Aligned<[MaybeUninit<u8>; MEMORY]> = Aligned([MaybeUninit::uninit(); MEMORY]);

#[global_allocator]
static HEAP: Arena = Arena::new();
static TENSORS: Arena = Arena::new();

unsafe extern "C" {
    fn write(file: i32, bytes: *const u8, len: usize) -> isize;
    fn _exit(code: i32) -> !;
}

#[panic_handler]
fn panic(_info: &PanicInfo<'_>) -> ! {
    // SAFETY: ends the process.
    unsafe { _exit(101) }
}

fn print(bytes: &[u8]) {
    // SAFETY: the range is readable.
    unsafe { write(1, bytes.as_ptr(), bytes.len()) };
}

/// The compiled `alloc` of the toolchain refers to unwinding, which `panic = "abort"` never does.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> ! {
    // SAFETY: ends the process.
    unsafe { _exit(102) }
}

/// See [`rust_eh_personality`].
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    // SAFETY: ends the process.
    unsafe { _exit(102) }
}

/// The start of the program for the C library.
#[unsafe(no_mangle)]
pub extern "C" fn main() -> i32 {
    match run() {
        Ok(()) => 0,
        Err(message) => {
            print(message.as_bytes());
            1
        }
    }
}

/// Messages are static or of errors: what these take of the heap is part of what the model needs.
fn run() -> Result<(), String> {
    let needs = Needs::of(&FLASH.0).map_err(|_| String::new())?;
    // SAFETY: borrowed once, here.
    let memory = unsafe { &mut (*(&raw mut MEMORY_OF_MODEL)).0 };
    let (heap, tensors) = needs.split(memory).map_err(|_| String::new())?;
    HEAP.give(heap).map_err(|_| String::new())?;
    TENSORS.give(tensors).map_err(|_| String::new())?;
    let arch = if cfg!(target_arch = "x86_64") { "x86_64" } else { "aarch64" };
    // A program for one board knows at build time what that has.
    let features = env!("FEATURES").split(',').filter(|name| !name.is_empty()).map(ToString::to_string);
    let isa = Isa { arch: arch.to_string(), features: features.collect() };
    // SAFETY: the artifact lies in the text section, on a page boundary, and was written by the test that runs this.
    let model =
        unsafe { Model::in_place(&FLASH.0, &isa, Arc::new(NoHostOps)) }.map_err(|error| error.to_string())?;
    let mut dims = [[0; MOST]; MOST];
    let values: [f32; 256] = core::array::from_fn(|i| i as f32);
    let mut inputs = [TensorView::of(&[0], &values[..0]); MOST];
    for ((spec, dims), input) in model.inputs().iter().zip(&mut dims).zip(&mut inputs) {
        let extent = |size: &DimSpec| match model.plan().sizes[size.size.index()] {
            SizeDef::Const(value) => value as usize,
            _ => 2,
        };
        dims.iter_mut().zip(&spec.dims).for_each(|(dim, size)| *dim = extent(size));
        let dims = &dims[..spec.dims.len()];
        *input = TensorView::of(dims, &values[..dims.iter().product()]);
    }
    let inputs = &inputs[..model.inputs().len()];
    let options = SessionOptions { allocator: Some(Arc::new(&TENSORS)), ..SessionOptions::default() };
    let mut session = model.session_with(options);
    if session.run(&[]).is_ok() {
        return Err("a run without inputs".to_string());
    }
    for _ in 0..2 {
        session.run(inputs).map_err(|error| error.to_string())?;
    }
    let outputs = session.run(inputs).map_err(|error| error.to_string())?;
    outputs.iter().for_each(|(_, output)| print(output.bytes));
    Ok(())
}

/// Inputs of a model, and axes of one, at most.
const MOST: usize = 4;
