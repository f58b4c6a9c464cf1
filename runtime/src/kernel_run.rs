//! Kernels on a device without a model around them: schedules are measured so, and code is checked so, where there is no compiler.
//!
//! A [`KernelProgram`] is data: code for a device, the buffers that its kernels work on, and their calls in order. [`LoadedKernels`]
//! has it on a device.
#![allow(unsafe_code, reason = "a device reads and writes what it is told to")]

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::artifact::DeviceDef;
use crate::device::{DEVICE_ALIGN, Device, DeviceError, DeviceModule, Launch, Stream};

/// Code for a device, and what its kernels are called on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelProgram {
    /// For people.
    pub name: String,
    /// What the code is for, and its kernels.
    pub device: DeviceDef,
    /// The code, in the formats that `device` tells.
    pub code: Vec<u8>,
    /// The buffers.
    pub buffers: Vec<ProgramBuffer>,
    /// The calls of one run, in order.
    pub calls: Vec<ProgramCall>,
}

/// A buffer of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramBuffer {
    /// Its size.
    pub bytes: u64,
    /// What it is there for.
    pub role: Role,
}

/// What a buffer is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// It is read and never written, and nothing was near it lately: a model's weights.
    Constant,
    /// It was written shortly before.
    Given,
    /// Its contents are what the program is run for. They may be given too.
    Output,
    /// Calls pass it on to others.
    Workspace,
}

/// A call of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramCall {
    /// Index into [`DeviceDef::kernels`].
    pub kernel: u32,
    /// Indices into [`KernelProgram::buffers`].
    pub buffers: Vec<u32>,
    /// Symbolic extents.
    pub sizes: Vec<i64>,
    /// Number of tasks; there may be none.
    pub tasks: i64,
}

/// Why a program does not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelRunError {
    /// What it says of itself does not fit together.
    #[error("the kernels of `{name}` contradict themselves: {what}")]
    Contradiction {
        /// The program.
        name: String,
        /// What does not fit.
        what: &'static str,
    },
    /// The device does not do it.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl KernelProgram {
    /// Whether all that it names is there.
    ///
    /// # Errors
    /// [`KernelRunError::Contradiction`].
    pub fn check(&self) -> Result<(), KernelRunError> {
        let fails = |what| Err(KernelRunError::Contradiction { name: self.name.clone(), what });
        let parts = self.device.parts.iter().try_fold(0u64, |sum, (_, bytes)| sum.checked_add(*bytes));
        if parts != Some(self.code.len() as u64) {
            return fails("the size of the code");
        }
        let room =
            |sum: u64, bytes: u64| sum.checked_add(bytes.checked_next_multiple_of(DEVICE_ALIGN as u64)?);
        let all = self.buffers.iter().try_fold(0u64, |sum, buffer| room(sum, buffer.bytes));
        if all.is_none_or(|all| isize::try_from(all).is_err()) {
            return fails("the sizes of its buffers");
        }
        for call in &self.calls {
            if call.kernel as usize >= self.device.kernels.len() {
                return fails("a call of a kernel that there is not");
            }
            if call.buffers.iter().any(|&buffer| buffer as usize >= self.buffers.len()) {
                return fails("a call on a buffer that there is not");
            }
            if call.tasks < 0 {
                return fails("a call of fewer than no tasks");
            }
        }
        Ok(())
    }
}

/// Memory of a module, given back at the end.
struct Memory {
    module: Arc<dyn DeviceModule>,
    address: u64,
}

impl Memory {
    fn new(module: &Arc<dyn DeviceModule>, bytes: u64) -> Result<Memory, DeviceError> {
        let address = module.allocate(usize::try_from(bytes).unwrap_or(usize::MAX).max(1))?;
        Ok(Memory { module: module.clone(), address })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by this module and given back once; `LoadedKernels` drops its stream first, which waits.
        unsafe { self.module.free(self.address) }
    }
}

/// A program on a device. The fields are given up in this order.
pub struct LoadedKernels {
    stream: Box<dyn Stream>,
    program: KernelProgram,
    /// Constants, as often as it takes until the first ones are far away.
    constants: Memory,
    /// All other buffers.
    others: Memory,
    /// Where each buffer is in the memory of its kind.
    offsets: Vec<u64>,
    /// Bytes of the constants of one run.
    once: u64,
    /// How often they are there.
    copies: u64,
    /// The copy that the next run reads.
    next: u64,
    /// Addresses of a call's buffers, kept for their memory.
    addresses: Vec<u64>,
}

impl LoadedKernels {
    /// Loads a program. `contents` has those of each buffer from its start; what is beyond is zero. Before a constant is read again as many
    /// bytes of others are read as `far` says, so that it is in no cache that is smaller.
    ///
    /// # Errors
    /// [`KernelRunError`]: also for contents that are longer than their buffer.
    pub fn new(
        device: &dyn Device,
        program: KernelProgram,
        contents: &[&[u8]],
        far: u64,
    ) -> Result<LoadedKernels, KernelRunError> {
        program.check()?;
        let sizes = program.buffers.iter().map(|buffer| buffer.bytes);
        let fits = contents.iter().zip(sizes).all(|(contents, bytes)| contents.len() as u64 <= bytes);
        if !fits || contents.len() > program.buffers.len() {
            let what = "contents that are no buffer's";
            return Err(KernelRunError::Contradiction { name: program.name, what });
        }
        let module = device.load(&program.device, &program.code)?;
        let stream = module.stream()?;
        let (mut once, mut rest) = (0, 0);
        let offsets = program.buffers.iter().map(|buffer| {
            let end = if buffer.role == Role::Constant { &mut once } else { &mut rest };
            let offset = *end;
            *end += buffer.bytes.next_multiple_of(DEVICE_ALIGN as u64);
            offset
        });
        let offsets = offsets.collect();
        let copies = if once == 0 { 1 } else { far.div_ceil(once).max(1) };
        let (constants, others) =
            (Memory::new(&module, once.saturating_mul(copies))?, Memory::new(&module, rest)?);
        let (next, addresses) = (0, Vec::new());
        let mut loaded =
            LoadedKernels { stream, program, constants, others, offsets, once, copies, next, addresses };
        for (n, buffer) in loaded.program.buffers.clone().iter().enumerate() {
            loaded.fill(n, contents.get(n).copied().unwrap_or_default(), buffer.bytes)?;
        }
        loaded.copy_constants()?;
        Ok(loaded)
    }

    fn address(&self, buffer: usize, copy: u64) -> u64 {
        match self.program.buffers[buffer].role {
            Role::Constant => self.constants.address + copy * self.once + self.offsets[buffer],
            Role::Given | Role::Output | Role::Workspace => self.others.address + self.offsets[buffer],
        }
    }

    fn fill(&mut self, buffer: usize, contents: &[u8], bytes: u64) -> Result<(), DeviceError> {
        let mut all = contents.to_vec();
        all.resize(bytes as usize, 0);
        let to = self.address(buffer, 0);
        // SAFETY: there is room for so many bytes, which stay until the wait.
        let uploaded = unsafe { self.stream.upload(all.as_ptr(), to, all.len()) };
        self.stream.wait().and(uploaded)
    }

    /// Copies the constants to where further runs read them.
    fn copy_constants(&mut self) -> Result<(), DeviceError> {
        let (from, mut filled) = (self.constants.address, 1);
        while self.once > 0 && filled < self.copies {
            let more = filled.min(self.copies - filled);
            let bytes = (more * self.once) as usize;
            // SAFETY: both ranges are inside of the constants' memory, and follow one another.
            unsafe { self.stream.copy(from, from + filled * self.once, bytes) }?;
            filled += more;
        }
        self.stream.wait()
    }

    /// Gives the device the calls of one run to do.
    fn ask(&mut self) -> Result<(), DeviceError> {
        let copy = self.next;
        self.next = (self.next + 1) % self.copies;
        let mut addresses = core::mem::take(&mut self.addresses);
        for n in 0..self.program.calls.len() {
            let call = &self.program.calls[n];
            if call.tasks == 0 {
                continue;
            }
            addresses.clear();
            addresses.extend(call.buffers.iter().map(|&buffer| self.address(buffer as usize, copy)));
            let (kernel, sizes) = (call.kernel as usize, &call.sizes[..]);
            let launch = Launch { kernel, buffers: &addresses, sizes, first: 0, tasks: call.tasks };
            // SAFETY: the addresses are of this program's memory, which stays until the stream is dropped; that kernels keep to their
            // buffers is the word of who made the program, as it is for an artifact.
            unsafe { self.stream.launch(&launch) }?;
        }
        self.addresses = addresses;
        Ok(())
    }

    /// Runs all calls once.
    ///
    /// # Errors
    /// [`DeviceError::Fault`].
    pub fn run(&mut self) -> Result<(), DeviceError> {
        let asked = self.ask();
        self.stream.wait().and(asked)
    }

    /// Runs all calls so many times; gives the nanoseconds that the device took for all of them, where its events tell.
    ///
    /// # Errors
    /// [`DeviceError::Fault`].
    pub fn run_timed(&mut self, times: usize) -> Result<Option<f64>, DeviceError> {
        let has_events = self.stream.set_timing(true)?;
        let mut marked = || -> Result<[u32; 2], DeviceError> {
            let begin = self.stream.mark()?;
            (0..times).try_for_each(|_| self.ask())?;
            Ok([begin, self.stream.mark()?])
        };
        let marks = marked();
        self.stream.wait()?;
        let [begin, end] = marks?;
        let elapsed = if has_events { Some(self.stream.elapsed(begin, end)?) } else { None };
        self.stream.set_timing(false)?;
        Ok(elapsed)
    }

    /// The contents of the outputs, in the order of the buffers.
    ///
    /// # Errors
    /// [`DeviceError::Fault`].
    pub fn outputs(&mut self) -> Result<Vec<Vec<u8>>, DeviceError> {
        let mut outputs = Vec::new();
        for n in 0..self.program.buffers.len() {
            if self.program.buffers[n].role != Role::Output {
                continue;
            }
            let mut bytes = vec![0; self.program.buffers[n].bytes as usize];
            // SAFETY: there are so many bytes on both sides, which stay until the wait.
            let asked = unsafe { self.stream.download(self.address(n, 0), bytes.as_mut_ptr(), bytes.len()) };
            self.stream.wait().and(asked)?;
            outputs.push(bytes);
        }
        Ok(outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::DeviceKernel;

    #[test]
    fn programs_that_name_what_is_not_there_are_refused() {
        let kernel = DeviceKernel { symbol: "k".into(), threads: [1, 32], dynamic_shared: 0 };
        let device =
            DeviceDef { parts: vec![("x".into(), 3)], kernels: vec![kernel], ..DeviceDef::default() };
        let call = ProgramCall { kernel: 0, buffers: vec![0], sizes: vec![], tasks: 1 };
        let buffers = vec![ProgramBuffer { bytes: 8, role: Role::Output }];
        let name = "sum".into();
        let sound = KernelProgram { name, device, code: b"abc".to_vec(), buffers, calls: vec![call] };
        assert_eq!(sound.check(), Ok(()));
        let faults = |change: &dyn Fn(&mut KernelProgram), what: &str| {
            let mut program = sound.clone();
            change(&mut program);
            let expect = alloc::format!("the kernels of `sum` contradict themselves: {what}");
            assert_eq!(program.check().map_err(|error| alloc::format!("{error}")), Err(expect));
        };
        faults(&|p| p.code.push(0), "the size of the code");
        faults(&|p| p.buffers[0].bytes = u64::MAX, "the sizes of its buffers");
        faults(&|p| p.calls[0].kernel = 1, "a call of a kernel that there is not");
        faults(&|p| p.calls[0].buffers[0] = 1, "a call on a buffer that there is not");
        faults(&|p| p.calls[0].tasks = -1, "a call of fewer than no tasks");
    }
}
