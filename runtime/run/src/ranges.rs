//! A device whose kernels run range by range, for checks: what a kernel computes must not depend on which of its tasks run together.
#![allow(unsafe_code, reason = "calls of another device are passed on to it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tilewright_runtime::artifact::DeviceDef;
use tilewright_runtime::device::{Device, DeviceError, DeviceModule, GraphId, Launch, Stream};

use crate::noise::Random;

/// Most ranges that the tasks of a kernel are cut into.
const MOST: u64 = 4;

/// A device that cuts each launch into ranges of tasks, at places that a seed decides and that differ from launch to launch.
pub(crate) struct InRanges {
    device: Arc<dyn Device>,
    seed: u64,
}

impl InRanges {
    /// Launches on `device`, in ranges by a seed.
    pub(crate) fn new(device: Arc<dyn Device>, seed: u64) -> InRanges {
        InRanges { device, seed }
    }
}

impl Device for InRanges {
    fn kind(&self) -> &str {
        self.device.kind()
    }

    fn name(&self) -> String {
        self.device.name()
    }

    fn suits(&self, def: &DeviceDef) -> Result<u32, DeviceError> {
        self.device.suits(def)
    }

    fn load(&self, def: &DeviceDef, code: &[u8]) -> Result<Arc<dyn DeviceModule>, DeviceError> {
        let module = self.device.load(def, code)?;
        Ok(Arc::new(Module { module, seed: AtomicU64::new(self.seed) }))
    }
}

struct Module {
    module: Arc<dyn DeviceModule>,
    /// The seed of the next stream.
    seed: AtomicU64,
}

impl Module {
    fn in_ranges(&self, stream: Box<dyn Stream>) -> Box<dyn Stream> {
        Box::new(Ranges { stream, random: Random(self.seed.fetch_add(1, Ordering::Relaxed)) })
    }
}

impl DeviceModule for Module {
    fn device(&self) -> String {
        self.module.device()
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        self.module.allocate(bytes)
    }

    unsafe fn free(&self, address: u64) {
        // SAFETY: the caller's promise is the one that this asks for.
        unsafe { self.module.free(address) }
    }

    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError> {
        Ok(self.in_ranges(self.module.stream()?))
    }
}

struct Ranges {
    stream: Box<dyn Stream>,
    random: Random,
}

/// The ends of up to [`MOST`] ranges of tasks, the last one at `tasks`.
fn ends(tasks: i64, random: &mut Random) -> Vec<i64> {
    let cuts = random.next() % MOST;
    let mut ends: Vec<i64> = (0..cuts).map(|_| (random.next() % tasks.max(1) as u64) as i64).collect();
    ends.push(tasks);
    ends.sort_unstable();
    ends
}

impl Stream for Ranges {
    unsafe fn upload(&mut self, from: *const u8, to: u64, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise is the one that this asks for.
        unsafe { self.stream.upload(from, to, bytes) }
    }

    unsafe fn download(&mut self, from: u64, to: *mut u8, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise is the one that this asks for.
        unsafe { self.stream.download(from, to, bytes) }
    }

    unsafe fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise is the one that this asks for.
        unsafe { self.stream.copy(from, to, bytes) }
    }

    unsafe fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        let mut begin = 0;
        for end in ends(launch.tasks, &mut self.random) {
            if end > begin {
                let part = Launch { first: launch.first + begin, tasks: end - begin, ..*launch };
                // SAFETY: these are some of the tasks that the caller promises to be sound.
                unsafe { self.stream.launch(&part) }?;
                begin = end;
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), DeviceError> {
        self.stream.wait()
    }

    fn begin_capture(&mut self) -> Result<bool, DeviceError> {
        self.stream.begin_capture()
    }

    fn end_capture(&mut self) -> Result<Option<GraphId>, DeviceError> {
        self.stream.end_capture()
    }

    unsafe fn replay(&mut self, graph: GraphId) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise is the one that this asks for.
        unsafe { self.stream.replay(graph) }
    }

    fn forget_graphs(&mut self) {
        self.stream.forget_graphs();
    }

    fn set_timing(&mut self, on: bool) -> Result<bool, DeviceError> {
        self.stream.set_timing(on)
    }

    fn mark(&mut self) -> Result<u32, DeviceError> {
        self.stream.mark()
    }

    fn elapsed(&mut self, from: u32, to: u32) -> Result<f64, DeviceError> {
        self.stream.elapsed(from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_all_tasks_in_order() {
        let mut random = Random(7);
        let mut several = 0;
        for tasks in [0, 1, 2, 5, 1000] {
            for _ in 0..100 {
                let ends = ends(tasks, &mut random);
                assert!(
                    ends.is_sorted() && ends.last() == Some(&tasks) && ends.len() <= MOST as usize,
                    "{ends:?}"
                );
                several += usize::from(ends.len() > 1);
            }
        }
        assert!(several > 300, "{several}");
    }
}
