//! A device made of the host's memory that puts everything off until it is waited for. Its addresses are none of the host's.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unsafe_code, reason = "plays a device, and runs its kernels")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tilewright_runtime::artifact::{Manifest, ProgramDef};
use tilewright_runtime::device::{DeviceError, DeviceModule, Launch, Stream};
use tilewright_runtime::plan::Plan;
use tilewright_runtime::{Bytes, KernelCode, Kernels, Model, ModelError, NoHostOps, ProgramParts};

/// Allocations by address.
#[derive(Default)]
pub(crate) struct Memory {
    blocks: BTreeMap<u64, Vec<u64>>,
    pub(crate) limit: usize,
    /// Streams with work left.
    busy: usize,
    pub(crate) waits: usize,
    /// Uploads, downloads, copies on the device.
    pub(crate) moves: [usize; 3],
    pub(crate) fails: bool,
    /// Whether its streams tell times.
    pub(crate) has_events: bool,
}

impl Memory {
    /// A range of an allocation, as a pointer; a range outside of all is a mistake of the executor.
    pub(crate) fn at(&mut self, address: u64, bytes: usize) -> *mut u8 {
        let (start, block) = self.blocks.range_mut(..=address).next_back().expect("an address of the device");
        let offset = (address - start) as usize;
        assert!(
            offset + bytes <= 8 * block.len(),
            "bytes {offset}..{} of {}",
            offset + bytes,
            8 * block.len()
        );
        block.as_mut_ptr().cast::<u8>().wrapping_add(offset)
    }

    pub(crate) fn used(&self) -> usize {
        self.blocks.values().map(|block| 8 * block.len()).sum()
    }
}

#[derive(Clone, Default)]
pub(crate) struct Fake(pub(crate) Arc<Mutex<Memory>>);

type Work = Box<dyn FnOnce(&mut Memory) + Send + Sync>;

struct Lazy {
    memory: Fake,
    queue: Vec<Work>,
    marks: u32,
}

impl Lazy {
    fn later(&mut self, work: impl FnOnce(&mut Memory) + Send + Sync + 'static) {
        if self.queue.is_empty() {
            self.memory.0.lock().unwrap().busy += 1;
        }
        self.queue.push(Box::new(work));
    }
}

fn device_error() -> DeviceError {
    DeviceError::Fault { device: "fake".into(), reason: "it was told to".into() }
}

impl DeviceModule for Fake {
    fn device(&self) -> String {
        "fake".into()
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        let mut memory = self.0.lock().unwrap();
        let free = memory.limit - memory.used();
        if bytes > free {
            let (device, bytes, free) = ("fake".into(), bytes as u64, Some(free as u64));
            return Err(DeviceError::Memory { device, bytes, free });
        }
        let last =
            memory.blocks.last_key_value().map_or(4096, |(start, block)| start + 8 * block.len() as u64);
        let address = last.next_multiple_of(256) + 256;
        memory.blocks.insert(address, vec![u64::MAX; bytes.div_ceil(8)]);
        Ok(address)
    }

    unsafe fn free(&self, address: u64) {
        let mut memory = self.0.lock().unwrap();
        assert_eq!(memory.busy, 0, "memory goes while a stream works");
        memory.blocks.remove(&address).expect("an allocation");
    }

    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError> {
        Ok(Box::new(Lazy { memory: self.clone(), queue: Vec::new(), marks: 0 }))
    }
}

impl Stream for Lazy {
    unsafe fn upload(&mut self, from: *const u8, to: u64, bytes: usize) -> Result<(), DeviceError> {
        let from = from.addr();
        self.later(move |memory| {
            memory.moves[0] += 1;
            let from = std::ptr::with_exposed_provenance::<u8>(from);
            // SAFETY: the caller keeps the source until the wait; the target is checked.
            unsafe { std::ptr::copy_nonoverlapping(from, memory.at(to, bytes), bytes) }
        });
        Ok(())
    }

    unsafe fn download(&mut self, from: u64, to: *mut u8, bytes: usize) -> Result<(), DeviceError> {
        let to = to.expose_provenance();
        self.later(move |memory| {
            memory.moves[1] += 1;
            let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
            // SAFETY: as in `upload`.
            unsafe { std::ptr::copy_nonoverlapping(memory.at(from, bytes), to, bytes) }
        });
        Ok(())
    }

    unsafe fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), DeviceError> {
        self.later(move |memory| {
            memory.moves[2] += 1;
            let (from, to) = (memory.at(from, bytes), memory.at(to, bytes));
            // SAFETY: both ranges are checked, and do not overlap by the caller's word.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) }
        });
        Ok(())
    }

    /// The kernel: `out[i] = in[i] + in[i]`, an element a task.
    unsafe fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        let &Launch { kernel, buffers: &[from, to], first, tasks, .. } = launch else {
            return Err(device_error());
        };
        assert_eq!(kernel, 0);
        self.later(move |memory| {
            for i in first as u64..(first + tasks) as u64 {
                let (from, to) = (memory.at(from + 4 * i, 4), memory.at(to + 4 * i, 4));
                // SAFETY: both are checked, and buffers are aligned.
                unsafe { *to.cast::<f32>() = 2.0 * *from.cast::<f32>() }
            }
        });
        Ok(())
    }

    fn wait(&mut self) -> Result<(), DeviceError> {
        let mut memory = self.memory.0.lock().unwrap();
        memory.busy -= usize::from(!self.queue.is_empty());
        memory.waits += 1;
        self.queue.drain(..).for_each(|work| work(&mut memory));
        if memory.fails { Err(device_error()) } else { Ok(()) }
    }

    fn set_timing(&mut self, on: bool) -> Result<bool, DeviceError> {
        self.marks = 0;
        Ok(on && self.memory.0.lock().unwrap().has_events)
    }

    /// A mark tells how many came before.
    fn mark(&mut self) -> Result<u32, DeviceError> {
        self.marks += 1;
        Ok(self.marks - 1)
    }

    fn elapsed(&mut self, from: u32, to: u32) -> Result<f64, DeviceError> {
        assert!(self.queue.is_empty() && to < self.marks, "marks that were waited for");
        Ok(f64::from(to - from))
    }
}

/// `double` on the host counts tasks as elements, as the device's kernel does.
pub(crate) unsafe extern "C" fn double(buffers: *const *mut u8, _sizes: *const i64, begin: i64, end: i64) {
    for i in begin as usize..end as usize {
        // SAFETY: by the plan, both buffers have an element for each task.
        unsafe {
            let (source, target) = (*buffers, *buffers.add(1));
            *target.cast::<f32>().add(i) = 2.0 * *source.cast::<f32>().add(i);
        }
    }
}

pub(crate) fn model(plan: &str, memory: &Fake) -> Result<Model, ModelError> {
    let plan: Plan = plan.parse().expect("a plan");
    let weights: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let weights = if plan.weight_bytes == 0 { Vec::new() } else { weights };
    let code = plan.kernels.iter().map(|kernel| match kernel.space {
        tilewright_runtime::plan::Space::Host => KernelCode::Host(double),
        tilewright_runtime::plan::Space::Device => KernelCode::Device(0),
    });
    let open = ProgramParts { kernels: Kernels::of(code.collect(), None), plan, def: ProgramDef::default() };
    let module: Arc<dyn DeviceModule> = Arc::new(memory.clone());
    // SAFETY: the kernels do what the plans say.
    unsafe {
        let weights = Bytes::new(weights);
        Model::of_programs(Manifest::default(), open, Vec::new(), weights, Arc::new(NoHostOps), Some(module))
    }
}

pub(crate) fn fake(limit: usize) -> Fake {
    let memory = Fake::default();
    memory.0.lock().unwrap().limit = limit;
    memory
}

/// x to the device, doubled there, to the host, doubled, to the device once more through the same memory of the host, out.
pub(crate) const THERE_AND_BACK: &str = r#"
arena 128 bytes, weights 16 bytes
device arena 64 bytes
input "x": f32[n = s0] in b0
output "y": f32[s0] in b1
s0 = dim 0 of input 0
s1 = 4
s2 = s0 * s1
s3 = 1
s4 = 16
device block 0: s2 bytes
block 0: s2 bytes
b0: f32[s0], s2 bytes, input 0
b1: f32[s0], s2 bytes, output 0
b2: f32[s0], s2 bytes, device block 0
b3: f32[s0], s2 bytes, device dynamic
b4: f32[s0], s2 bytes, block 0
b5: f32[s0], s2 bytes, block 0
b6: f32[s1], s4 bytes, device weights at 0 (16 bytes)
b7: f32[s1], s4 bytes, device arena at 0
b8: f32[s1], s4 bytes, arena at 0
k0: on_device(read align 4, write align 4; 0 sizes) on device
k1: on_host(read align 4, write align 4; 0 sizes)
0: copy b0 to b2
1: alloc b3
2: call k0(b2, b3) tasks s3 x s0
3: copy b3 to b4
4: call k1(b4, b5) tasks s3 x s0
5: copy b5 to b2
6: call k0(b2, b3) tasks s3 x s0
7: call k0(b6, b7) tasks s3 x s1
8: copy b7 to b8
9: copy b3 to b1
"#;
