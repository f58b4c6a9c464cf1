//! Runs an artifact without std: no operating system services but memory for a heap, one `write` and an exit code.
//!
//! The artifact is embedded in the text section and runs where it lies, as from the flash of a board. Every input gets
//! the values 0, 1, 2, ... and open dims are 2; the bytes of all outputs go to standard output. That std is absent is proved by
//! the build: with it, panic handler and allocator would be defined twice.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicUsize, Ordering};

use tilewright_runtime::isa::Isa;
use tilewright_runtime::{Model, NoHostOps, TensorView, byte_len};

const MODEL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/model.twm"));

#[repr(C, align(4096))]
struct Flash([u8; MODEL.len()]);

#[unsafe(link_section = ".text.model")]
static FLASH: Flash = Flash(*include_bytes!(concat!(env!("OUT_DIR"), "/model.twm")));

const HEAP: usize = 16 << 20;

/// Hands out memory from a static region and takes none back.
struct Bump {
    region: UnsafeCell<[u8; HEAP]>,
    next: AtomicUsize,
}

// SAFETY: ranges handed out are disjoint: `next` only grows, atomically.
unsafe impl Sync for Bump {}

// SAFETY: as above; ranges have the size and alignment asked for, and the region lives for ever.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = self.region.get().cast::<u8>();
        let place = |next: usize| {
            let start = (base.addr() + next).next_multiple_of(layout.align()) - base.addr();
            let end = start.checked_add(layout.size())?;
            (end <= HEAP).then_some((start, end))
        };
        let update =
            self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some(place(next)?.1));
        match update.ok().and_then(place) {
            Some((start, _)) => base.wrapping_add(start),
            None => core::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, _ptr: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Bump = Bump { region: UnsafeCell::new([0; HEAP]), next: AtomicUsize::new(0) };

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

fn run() -> Result<(), alloc::string::String> {
    let arch = if cfg!(target_arch = "x86_64") { "x86_64" } else { "aarch64" };
    // A program for one board knows at build time what that has.
    let features = env!("FEATURES").split(',').filter(|name| !name.is_empty()).map(ToString::to_string);
    let isa = Isa { arch: arch.to_string(), features: features.collect() };
    // SAFETY: the artifact lies in the text section, on a page boundary, and was written by the test that runs this.
    let model =
        unsafe { Model::in_place(&FLASH.0, &isa, Arc::new(NoHostOps)) }.map_err(|error| error.to_string())?;
    let mut tensors: Vec<(Vec<usize>, Vec<f32>)> = Vec::new();
    for spec in model.inputs() {
        let extent = |size: &tilewright_runtime::plan::DimSpec| match model.plan().sizes[size.size.index()] {
            tilewright_runtime::plan::SizeDef::Const(value) => value as usize,
            _ => 2,
        };
        let dims: Vec<usize> = spec.dims.iter().map(extent).collect();
        let count = byte_len(spec.dtype, &dims).unwrap_or(0) / spec.dtype.bytes().max(1);
        tensors.push((dims, (0..count).map(|i| i as f32).collect()));
    }
    let inputs: Vec<TensorView<'_>> =
        tensors.iter().map(|(dims, values)| TensorView::of(dims, values)).collect();
    let mut session = model.session();
    for _ in 0..2 {
        session.run(&inputs).map_err(|error| error.to_string())?;
    }
    let outputs = session.run(&inputs).map_err(|error| error.to_string())?;
    outputs.iter().for_each(|(_, output)| print(output.bytes));
    Ok(())
}
