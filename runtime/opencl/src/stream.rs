//! A queue of commands that are done in order.
#![allow(unsafe_code, reason = "calls a C library")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use opencl_sys::{
    CL_EVENT_COMMAND_EXECUTION_STATUS, CL_FALSE, CL_PROFILING_COMMAND_END, CL_PROFILING_COMMAND_START,
    CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_PROPERTIES, cl_command_queue, cl_event, cl_int, cl_kernel,
    cl_queue_properties,
};
use tilewright_runtime::device::{DeviceError, Launch, Stream};

use crate::api::Handle;
use crate::program::Loaded;
use crate::status::{Name, Status, check};

/// Work-items of a command in a dimension; drivers count them in 32 bits.
const MOST_ITEMS: i64 = 1 << 31;

/// Commands whose outcome is not known yet. More of them are waited for, so that they do not pile up.
const MOST_COMMANDS: usize = 1024;

/// What a command does, for errors.
#[derive(Clone, Copy)]
enum Work {
    Transfer,
    /// Of the kernel of this number.
    Kernel(usize),
}

/// A queue with its own objects of the kernels. The fields are given up in this order.
pub(crate) struct Queue {
    /// Commands since the last wait: a queue that is waited for does not tell that one of them failed.
    commands: Vec<(Work, Handle)>,
    queue: Handle,
    /// A queue that tells times, from the first time that they are asked for: it takes longer over each command.
    timed: Option<Handle>,
    /// Nanoseconds of each command since times were switched on, as far as the queue has been waited for; nothing while they are off.
    spans: Option<Vec<f64>>,
    /// Objects of the kernels that were launched.
    kernels: Vec<Option<Handle>>,
    module: Arc<Loaded>,
}

impl Queue {
    pub(crate) fn new(module: &Arc<Loaded>) -> Result<Queue, DeviceError> {
        let queue = create(module, None)?;
        let kernels = module.kernels.iter().map(|_| None).collect();
        let (timed, spans) = (None, None);
        Ok(Queue { commands: Vec::new(), queue, timed, spans, kernels, module: module.clone() })
    }

    /// The queue that commands go to.
    fn current(&self) -> cl_command_queue {
        self.timed.as_ref().filter(|_| self.spans.is_some()).unwrap_or(&self.queue).raw()
    }

    /// The object of a kernel.
    fn kernel(&mut self, kernel: usize) -> Result<cl_kernel, DeviceError> {
        let made = &mut self.kernels[kernel];
        if let Some(object) = made {
            return Ok(object.raw());
        }
        let object = self.module.object(kernel).map_err(|status| self.module.device.failed(status))?;
        Ok(made.insert(object).raw())
    }

    /// Gives the queue a command, which `enqueue` does.
    ///
    /// # Safety
    /// Where it succeeds, `enqueue` writes a new event.
    unsafe fn command(
        &mut self,
        work: Work,
        call: &'static str,
        enqueue: impl FnOnce(cl_command_queue, *mut cl_event) -> cl_int,
    ) -> Result<(), DeviceError> {
        if self.commands.len() >= MOST_COMMANDS {
            self.wait()?;
        }
        let device = &self.module.device;
        let make = |code: *mut cl_int| {
            let mut event = ptr::null_mut();
            // SAFETY: the caller of `make` has a place for the error.
            unsafe { *code = enqueue(self.current(), &raw mut event) };
            event
        };
        // SAFETY: the event is new.
        let event = unsafe { Handle::create(call, device.api.release_event, make) };
        self.commands
            .push((work, event.map_err(|status| device.fault(format!("{}: {status}", self.told(work))))?));
        Ok(())
    }

    /// Copies from anywhere to anywhere.
    ///
    /// # Safety
    /// Both places stay what they are until the queue is waited for, and do not overlap.
    unsafe fn transfer(
        &mut self,
        from: *const c_void,
        to: *mut c_void,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        let enqueue = self.module.device.api.enqueue_svm_memcpy;
        // SAFETY: the places are the caller's word; OpenCL takes memory of the process and of the device alike.
        unsafe {
            self.command(Work::Transfer, "clEnqueueSVMMemcpy", |queue, event| {
                enqueue(queue, CL_FALSE, to, from, bytes, 0, ptr::null(), event)
            })
        }
    }

    fn told(&self, work: Work) -> String {
        match work {
            Work::Transfer => "a transfer".to_owned(),
            Work::Kernel(kernel) => format!("kernel `{}`", self.module.kernels[kernel].name()),
        }
    }

    /// Nanoseconds that a command took on the device.
    fn span(&self, event: &Handle) -> Result<f64, Status> {
        let ask = |what| {
            let mut at = 0u64;
            // SAFETY: there is room for the number.
            let code = unsafe {
                let ask = self.module.device.api.get_event_profiling_info;
                ask(event.raw(), what, size_of::<u64>(), (&raw mut at).cast(), ptr::null_mut())
            };
            check("clGetEventProfilingInfo", code).map(|()| at)
        };
        Ok(ask(CL_PROFILING_COMMAND_END)?.saturating_sub(ask(CL_PROFILING_COMMAND_START)?) as f64)
    }

    /// Where a command failed, its error.
    fn outcome(&self, event: &Handle) -> Result<(), cl_int> {
        let mut status: cl_int = 0;
        // SAFETY: there is room for the status.
        let asked = unsafe {
            let (what, room) = (CL_EVENT_COMMAND_EXECUTION_STATUS, size_of::<cl_int>());
            let ask = self.module.device.api.get_event_info;
            ask(event.raw(), what, room, (&raw mut status).cast(), ptr::null_mut())
        };
        // Errors are negative; what is not negative is how far a command has come.
        match asked.min(status) {
            error @ ..0 => Err(error),
            _ => Ok(()),
        }
    }
}

/// A queue in order, which tells times where its `properties` say so.
fn create(module: &Loaded, properties: Option<&[cl_queue_properties; 3]>) -> Result<Handle, DeviceError> {
    let device = &module.device;
    let properties = properties.map_or(ptr::null(), |list| list.as_ptr());
    let make = |code| {
        // SAFETY: the device is that of the context; the list of properties ends with a zero.
        unsafe { (device.api.create_command_queue)(module.context.raw(), device.id(), properties, code) }
    };
    let (call, release) = ("clCreateCommandQueueWithProperties", device.api.release_command_queue);
    // SAFETY: a new queue.
    unsafe { Handle::create(call, release, make) }.map_err(|status| device.failed(status))
}

/// The properties of a queue that tells times.
const TIMED: [cl_queue_properties; 3] =
    [CL_QUEUE_PROPERTIES as cl_queue_properties, CL_QUEUE_PROFILING_ENABLE as cl_queue_properties, 0];

/// Tasks as ranges that commands can have: the first, and how many.
fn ranges(first: i64, tasks: i64, lanes: u32) -> impl Iterator<Item = (i64, i64)> {
    let most = (MOST_ITEMS / i64::from(lanes.max(1))).max(1);
    let whole = (0..tasks / most).map(move |n| (first + n * most, most));
    let rest = tasks % most;
    whole.chain((rest > 0).then_some((first + (tasks - rest), rest)))
}

/// The pointer that an address on the device is.
fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

impl Stream for Queue {
    unsafe fn upload(&mut self, from: *const u8, to: u64, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: as the caller has it.
        unsafe { self.transfer(from.cast(), pointer(to), bytes) }
    }

    unsafe fn download(&mut self, from: u64, to: *mut u8, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: as the caller has it.
        unsafe { self.transfer(pointer(from), to.cast(), bytes) }
    }

    unsafe fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: as the caller has it.
        unsafe { self.transfer(pointer(from), pointer(to), bytes) }
    }

    unsafe fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        let Launch { kernel: index, buffers, sizes, first, tasks } = *launch;
        let (module, work) = (self.module.clone(), Work::Kernel(index));
        let (device, api) = (&module.device, module.device.api);
        let Some(kernel) = module.kernels.get(index) else {
            return Err(device.fault(format!("no kernel {index}, there are {}", module.kernels.len())));
        };
        let given = buffers.len() + sizes.len() + 1;
        if given != kernel.args {
            let (told, takes) = (self.told(work), kernel.args);
            return Err(device.fault(format!("{told} takes {takes} arguments, {given} are given")));
        }
        let object = self.kernel(index)?;
        let failed = |status| device.fault(format!("kernel `{}`: {status}", kernel.name()));
        let mut at = 0;
        for address in buffers {
            // SAFETY: the object is this stream's; the address is of memory of the context.
            let code = unsafe { (api.set_kernel_arg_svm_pointer)(object, at, pointer(*address)) };
            check("clSetKernelArgSVMPointer", code).map_err(failed)?;
            at += 1;
        }
        let set = |at, number: i64| {
            // SAFETY: the object is this stream's; the number is copied.
            let code =
                unsafe { (api.set_kernel_arg)(object, at, size_of::<i64>(), (&raw const number).cast()) };
            check("clSetKernelArg", code).map_err(failed)
        };
        for size in sizes {
            set(at, *size)?;
            at += 1;
        }
        let [warps, lanes] = kernel.threads;
        let local = [lanes as usize, warps as usize];
        for (first, tasks) in ranges(first, tasks, lanes) {
            set(at, first)?;
            let global = [tasks as usize * local[0], local[1]];
            // SAFETY: all arguments are set, and two dimensions given; that buffers are as large as the kernel takes them to be is
            // the caller's word.
            unsafe {
                self.command(work, "clEnqueueNDRangeKernel", |queue, event| {
                    let (global, local) = (global.as_ptr(), local.as_ptr());
                    let enqueue = api.enqueue_nd_range_kernel;
                    enqueue(queue, object, 2, ptr::null(), global, local, 0, ptr::null(), event)
                })
            }?;
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), DeviceError> {
        let device = &self.module.device;
        // SAFETY: the queue is owned.
        let finished = check("clFinish", unsafe { (device.api.finish)(self.current()) });
        let commands = std::mem::take(&mut self.commands);
        for (work, event) in &commands {
            if let Err(code) = self.outcome(event) {
                return Err(device.fault(format!("{}: {}", self.told(*work), Name(code))));
            }
        }
        finished.map_err(|status| device.failed(status))?;
        if self.spans.is_some() {
            let spans: Result<Vec<f64>, Status> =
                commands.iter().map(|(_, event)| self.span(event)).collect();
            let spans = spans.map_err(|status| self.module.device.failed(status))?;
            self.spans.get_or_insert_default().extend(spans);
        }
        Ok(())
    }

    fn set_timing(&mut self, on: bool) -> Result<bool, DeviceError> {
        self.wait()?;
        if on && self.timed.is_none() {
            self.timed = Some(create(&self.module, Some(&TIMED))?);
        }
        self.spans = on.then(Vec::new);
        Ok(on)
    }

    /// The number of commands that come before.
    fn mark(&mut self) -> Result<u32, DeviceError> {
        Ok((self.spans.as_ref().map_or(0, Vec::len) + self.commands.len()) as u32)
    }

    /// What lies between commands does not count.
    fn elapsed(&mut self, from: u32, to: u32) -> Result<f64, DeviceError> {
        let spans = self.spans.as_ref().and_then(|spans| spans.get(from as usize..to as usize));
        let unknown = || self.module.device.fault("a time is asked for between places that are not marked");
        spans.map(|spans| spans.iter().sum()).ok_or_else(unknown)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // What commands work on may be given back next. There is nobody to tell of an error.
        // SAFETY: the queue is owned.
        unsafe { (self.module.device.api.finish)(self.current()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_ranges(first: i64, tasks: i64, lanes: u32, expect: &[(i64, i64)]) {
        assert_eq!(ranges(first, tasks, lanes).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn many_tasks_are_several_commands() {
        check_ranges(7, 100, 32, &[(7, 100)]);
        check_ranges(5, 1 << 26, 32, &[(5, 1 << 26)]);
        check_ranges(5, (1 << 26) + 3, 32, &[(5, 1 << 26), (5 + (1 << 26), 3)]);
        check_ranges(0, 1 << 32, 1, &[(0, 1 << 31), (1 << 31, 1 << 31)]);
        check_ranges(0, 0, 32, &[]);
    }
}
