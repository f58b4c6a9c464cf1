//! A program with its kernels, and the memory that they work on.
#![allow(unsafe_code, reason = "calls a C library")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use opencl_sys::{
    CL_KERNEL_LOCAL_MEM_SIZE, CL_KERNEL_NUM_ARGS, CL_KERNEL_WORK_GROUP_SIZE, CL_MEM_READ_WRITE,
    CL_PROGRAM_BUILD_LOG, cl_kernel_work_group_info,
};
use tilewright_runtime::artifact::{DeviceDef, DeviceKernel};
use tilewright_runtime::device::{DEVICE_ALIGN, DeviceError};

use crate::api::{Handle, info, numbers, text};
use crate::found::{FORMAT, Found};
use crate::status::{Status, check};

/// Options for the device's compiler: those for which the compiler of models prints kernels, `OPTIONS` of `targets/opencl`, on which
/// a runtime must not depend.
const OPTIONS: &CStr = c"-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";

/// Bytes of a build log that are told. The first error says most; a log repeats the code.
const MOST_LOG: usize = 1000;

/// A kernel, which each stream makes its own object of: arguments are set in the object.
pub(crate) struct Kernel {
    symbol: CString,
    /// Threads of a task: warps, and lanes of a warp.
    pub(crate) threads: [u32; 2],
    /// Number of its arguments.
    pub(crate) args: usize,
}

impl Kernel {
    /// Its name in the code.
    pub(crate) fn name(&self) -> String {
        self.symbol.to_string_lossy().into_owned()
    }
}

/// Memory as OpenCL gave it.
struct Memory {
    base: usize,
    bytes: u64,
}

/// What the streams of a module share. The fields are given up in this order.
pub(crate) struct Loaded {
    pub(crate) kernels: Vec<Kernel>,
    program: Handle,
    pub(crate) context: Handle,
    /// What OpenCL gave, by the address that the caller has.
    memory: Mutex<HashMap<u64, Memory>>,
    pub(crate) device: Arc<Found>,
}

impl Loaded {
    /// Builds the kernels of code that suits the device.
    pub(crate) fn new(device: &Arc<Found>, def: &DeviceDef, code: &[u8]) -> Result<Loaded, DeviceError> {
        if let Some(kernel) = def.kernels.iter().find(|kernel| kernel.dynamic_shared != 0) {
            let reason = format!(
                "kernel `{}` asks for {} bytes of local memory at launch, which kernels in OpenCL C declare",
                kernel.symbol, kernel.dynamic_shared
            );
            return Err(device.refused(reason));
        }
        let part = def.part(FORMAT, code).ok_or_else(|| device.refused("it is cut short"))?;
        let source = std::str::from_utf8(part).map_err(|error| device.refused(error.to_string()))?;
        let context = context(device)?;
        let program = build(device, &context, source)?;
        let kernels = def.kernels.iter().map(|kernel| examine(device, &program, def, kernel));
        let kernels = kernels.collect::<Result<_, _>>()?;
        let memory = Mutex::default();
        Ok(Loaded { kernels, program, context, memory, device: device.clone() })
    }

    /// A new object of a kernel.
    pub(crate) fn object(&self, kernel: usize) -> Result<Handle, Status> {
        create(&self.device, &self.program, &self.kernels[kernel].symbol)
    }

    /// Memory of at least so many bytes.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        let device = &self.device;
        let none = || DeviceError::Memory { device: device.name(), bytes: bytes as u64, free: None };
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        // OpenCL aligns to 128 bytes at most, so there is more than asked for.
        let room = bytes.max(1).checked_add(DEVICE_ALIGN).ok_or_else(none)?;
        let taken = memory.values().map(|memory| memory.bytes).sum();
        if !device.limits.allow(room as u64, taken) {
            return Err(none());
        }
        // SAFETY: the context is that of a device with such memory.
        let base = unsafe { (device.api.svm_alloc)(self.context.raw(), CL_MEM_READ_WRITE, room, 0) };
        if base.is_null() {
            return Err(none());
        }
        let base = base.expose_provenance();
        let address = base.next_multiple_of(DEVICE_ALIGN) as u64;
        memory.insert(address, Memory { base, bytes: room as u64 });
        Ok(address)
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// No stream has work left on it.
    pub(crate) unsafe fn free(&self, address: u64) {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        memory.into_iter().for_each(|memory| self.give_back(&memory));
    }

    fn give_back(&self, memory: &Memory) {
        let base = ptr::with_exposed_provenance_mut(memory.base);
        // SAFETY: memory of this context; who has it here gives it back once.
        unsafe { (self.device.api.svm_free)(self.context.raw(), base) };
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // Memory outlives its context otherwise. No stream is left, so nothing uses it.
        let memory = std::mem::take(self.memory.get_mut().unwrap_or_else(PoisonError::into_inner));
        memory.values().for_each(|memory| self.give_back(memory));
    }
}

fn create(device: &Found, program: &Handle, symbol: &CStr) -> Result<Handle, Status> {
    let make = |code| {
        // SAFETY: the program is built.
        unsafe { (device.api.create_kernel)(program.raw(), symbol.as_ptr(), code) }
    };
    // SAFETY: a new kernel.
    unsafe { Handle::create("clCreateKernel", device.api.release_kernel, make) }
}

fn context(device: &Found) -> Result<Handle, DeviceError> {
    let id = device.id();
    let make = |code| {
        // SAFETY: one device is given, and nobody to call.
        unsafe { (device.api.create_context)(ptr::null(), 1, &raw const id, None, ptr::null_mut(), code) }
    };
    // SAFETY: a new context.
    let context = unsafe { Handle::create("clCreateContext", device.api.release_context, make) };
    context.map_err(|status| device.refused(status.to_string()))
}

fn build(device: &Found, context: &Handle, source: &str) -> Result<Handle, DeviceError> {
    let id = device.id();
    let mut text_at: *const c_char = source.as_ptr().cast();
    let length = source.len();
    let make = |code| {
        // SAFETY: one text is given, with its length; it is copied.
        unsafe {
            let create = device.api.create_program_with_source;
            create(context.raw(), 1, &raw mut text_at, &raw const length, code)
        }
    };
    // SAFETY: a new program.
    let program = unsafe { Handle::create("clCreateProgramWithSource", device.api.release_program, make) }
        .map_err(|status| device.refused(status.to_string()))?;
    // SAFETY: the device is one of the context, options end with a zero, and nobody is to be called.
    let built = unsafe {
        let options = OPTIONS.as_ptr();
        (device.api.build_program)(program.raw(), 1, &raw const id, options, None, ptr::null_mut())
    };
    if let Err(status) = check("clBuildProgram", built) {
        let ask = |room, to, size| {
            // SAFETY: there is room for as many bytes as are asked for.
            unsafe {
                let ask = device.api.get_program_build_info;
                ask(program.raw(), id, CL_PROGRAM_BUILD_LOG, room, to, size)
            }
        };
        let log = info("clGetProgramBuildInfo", ask).map_or_else(|_| String::new(), |bytes| text(&bytes));
        return Err(device.refused(format!("{status}: {}", shorten(&log))));
    }
    Ok(program)
}

/// The first bytes of a log.
fn shorten(log: &str) -> String {
    match log.len() > MOST_LOG {
        true => {
            let end = (0..=MOST_LOG).rev().find(|end| log.is_char_boundary(*end)).unwrap_or(0);
            format!("{} … ({} bytes more)", &log[..end], log.len() - end)
        }
        false => log.to_owned(),
    }
}

/// Whether the device can run a kernel, by what its compiler made of it.
fn examine(
    device: &Found,
    program: &Handle,
    def: &DeviceDef,
    kernel: &DeviceKernel,
) -> Result<Kernel, DeviceError> {
    let name = &kernel.symbol;
    let refused = |status: Status| device.refused(format!("kernel `{name}`: {status}"));
    let symbol =
        CString::new(name.as_str()).map_err(|error| device.refused(format!("kernel `{name}`: {error}")))?;
    let object = create(device, program, &symbol).map_err(refused)?;
    let ask = |room, to, size| {
        // SAFETY: there is room for as many bytes as are asked for.
        unsafe { (device.api.get_kernel_info)(object.raw(), CL_KERNEL_NUM_ARGS, room, to, size) }
    };
    let args = numbers(&info("clGetKernelInfo", ask).map_err(refused)?, size_of::<u32>());
    let args = args.first().map_or(0, |args| *args as usize);
    if args == 0 {
        return Err(device.refused(format!("kernel `{name}` has no argument, not even the first task")));
    }
    let group = |what: cl_kernel_work_group_info| {
        let ask = |room, to, size| {
            // SAFETY: the kernel is of a program of the device; there is room for as many bytes as are asked for.
            unsafe {
                let ask = device.api.get_kernel_work_group_info;
                ask(object.raw(), device.id(), what, room, to, size)
            }
        };
        let bytes = info("clGetKernelWorkGroupInfo", ask).map_err(refused)?;
        Ok(numbers(&bytes, bytes.len()).first().copied().unwrap_or(0))
    };
    let (local, most) = (group(CL_KERNEL_LOCAL_MEM_SIZE)?, device.limits.local);
    if local > most {
        let reason = format!("kernel `{name}` has {local} bytes of local memory, the device {most}");
        return Err(device.unfit(def, reason));
    }
    // Fewer than the device takes where a kernel has many registers.
    let [warps, lanes] = kernel.threads.map(u64::from);
    let (threads, most) = (warps * lanes, group(CL_KERNEL_WORK_GROUP_SIZE)?);
    if threads > most {
        let reason = format!("kernel `{name}` has {threads} threads a task, the device runs {most} of it");
        return Err(device.unfit(def, reason));
    }
    Ok(Kernel { symbol, threads: kernel.threads, args })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_logs_are_cut_between_characters() {
        assert_eq!(shorten("error"), "error");
        let log = format!("x{}", "é".repeat(600));
        let short = shorten(&log);
        assert!(short.starts_with("xé") && short.ends_with("é … (202 bytes more)"), "{short}");
    }
}
