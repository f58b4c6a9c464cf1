//! Reading digits: the model, its memory, and the images.

use alloc::string::ToString;
use alloc::sync::Arc;
use core::mem::{ManuallyDrop, MaybeUninit};

use tilewright_runtime::artifact::{ArtifactError, Needs};
use tilewright_runtime::isa::Isa;
use tilewright_runtime::plan::ALIGN;
use tilewright_runtime::{
    Arena, ArenaError, LoadError, Model, NoHostOps, RunError, SessionOptions, TensorView,
};

use crate::semihosting::read_file;

const MODEL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/model.twm"));

/// Where an artifact runs in place: on a boundary of pages.
#[repr(C, align(4096))]
struct Flash([u8; MODEL.len()]);

#[unsafe(link_section = ".model")]
static FLASH: Flash = Flash(*include_bytes!(concat!(env!("OUT_DIR"), "/model.twm")));

/// What `tilewright compile` said that the model needs.
const MEMORY: usize = include!(concat!(env!("OUT_DIR"), "/memory.rs"));

#[repr(C, align(64))]
struct Aligned<T>(T);

const _: () = assert!(align_of::<Aligned<u8>>() == ALIGN);

#[global_allocator]
pub(crate) static HEAP: Arena = Arena::new();
pub(crate) static TENSORS: Arena = Arena::new();
static mut MEMORY_OF_MODEL: Aligned<[MaybeUninit<u8>; MEMORY]> = Aligned([MaybeUninit::uninit(); MEMORY]);

const PIXELS: usize = 64;

static mut IMAGES: [u8; 120 * 1024] = [0; 120 * 1024];

/// Why no digits are read. A firmware without reports tells by its status alone.
#[cfg_attr(not(feature = "report"), expect(dead_code, reason = "errors are for reports"))]
pub(crate) enum Trouble {
    NoImages,
    Artifact(ArtifactError),
    Arena(ArenaError),
    Load(LoadError),
    Run(RunError),
}

/// What the firmware finds out.
pub(crate) struct Findings {
    pub(crate) right: usize,
    pub(crate) images: usize,
    pub(crate) ticks: u32,
}

pub(crate) fn read() -> Result<Findings, Trouble> {
    let needs = Needs::of(&FLASH.0).map_err(Trouble::Artifact)?;
    // SAFETY: borrowed once, here.
    let memory = unsafe { &mut (*(&raw mut MEMORY_OF_MODEL)).0 };
    let (heap, tensors) = needs.split(memory).map_err(Trouble::Arena)?;
    HEAP.give(heap).map_err(Trouble::Arena)?;
    TENSORS.give(tensors).map_err(Trouble::Arena)?;
    // A program for one board knows at build time what that has.
    let features = env!("FEATURES").split(',').filter(|name| !name.is_empty()).map(ToString::to_string);
    let isa = Isa { arch: "thumbv7em".to_string(), features: features.collect() };
    // SAFETY: the artifact lies in flash, which runs code, on a boundary of pages, and was written by the compiler.
    let model = unsafe { Model::in_place(&FLASH.0, &isa, Arc::new(NoHostOps)) }.map_err(Trouble::Load)?;
    let options = SessionOptions { allocator: Some(Arc::new(&TENSORS)), ..SessionOptions::default() };
    // Firmware has its model for as long as it runs.
    let model = ManuallyDrop::new(model);
    let mut session = ManuallyDrop::new(model.session_with(options));

    // SAFETY: borrowed once, here.
    let room = unsafe { &mut *(&raw mut IMAGES) };
    let mut labels = [0; 2048];
    let labels = read_file(concat!(env!("LABELS"), "\0").as_bytes(), &mut labels).ok_or(Trouble::NoImages)?;
    let images = read_file(concat!(env!("IMAGES"), "\0").as_bytes(), room).ok_or(Trouble::NoImages)?;
    // The pixels are the last field of the file.
    let (_, pixels) = images.split_at(images.len() % (4 * PIXELS));
    let mut findings = Findings { right: 0, images: 0, ticks: 0 };
    let mut image = Aligned([0f32; PIXELS]);
    for (bytes, label) in
        pixels.chunks_exact(4 * PIXELS).zip(labels.iter().filter(|label| label.is_ascii_digit()))
    {
        for (pixel, bytes) in image.0.iter_mut().zip(bytes.chunks_exact(4)) {
            *pixel = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let begin = ticks();
        let outputs = session.run(&[TensorView::of(&[1, 1, 8, 8], &image.0)]).map_err(Trouble::Run)?;
        findings.ticks = findings.ticks.max(begin.wrapping_sub(ticks()) & MOST_TICKS);
        let scores = outputs.get(0).and_then(|output| output.elements::<f32>()).unwrap_or(&[]);
        let best = (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        findings.images += 1;
        findings.right += usize::from(best == Some(usize::from(label - b'0')));
    }
    Ok(findings)
}

/// The counter of the core has 24 bits.
const MOST_TICKS: u32 = 0xff_ffff;

/// The counter of the core, which counts down by its clock.
fn ticks() -> u32 {
    const CONTROL: *mut u32 = core::ptr::without_provenance_mut(0xe000_e010);
    const RELOAD: *mut u32 = core::ptr::without_provenance_mut(0xe000_e014);
    const VALUE: *mut u32 = core::ptr::without_provenance_mut(0xe000_e018);
    // SAFETY: the registers of the core's timer, which nothing else uses.
    unsafe {
        if CONTROL.read_volatile() & 1 == 0 {
            RELOAD.write_volatile(MOST_TICKS);
            VALUE.write_volatile(0);
            CONTROL.write_volatile(5);
        }
        VALUE.read_volatile()
    }
}
