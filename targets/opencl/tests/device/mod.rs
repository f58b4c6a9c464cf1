//! The first OpenCL device that computes in binary64.

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT, Device as Found};
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
use opencl3::program::Program;
use opencl3::types::CL_BLOCKING;
use tilewright_opencl::{OPTIONS, symbol};
use tilewright_target_suite::Case;

/// A device with a queue.
pub(crate) struct Device {
    context: Context,
    queue: CommandQueue,
}

impl Device {
    /// A device, or why there is none.
    pub(crate) fn find() -> Result<Device, String> {
        let none = |error| format!("no OpenCL ({error:?}; `cargo xtask setup` installs PoCL)");
        for platform in opencl3::platform::get_platforms().map_err(none)? {
            for id in platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default() {
                let found = Found::new(id);
                let rounds =
                    found.single_fp_config().unwrap_or_default() & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0;
                if !rounds || found.double_fp_config().unwrap_or_default() == 0 {
                    continue;
                }
                let context = Context::from_device(&found).map_err(|error| error.to_string())?;
                // SAFETY: the device is one of the context.
                let queue = unsafe { CommandQueue::create_with_properties(&context, id, 0, 0) };
                return Ok(Device { context, queue: queue.map_err(|error| error.to_string())? });
            }
        }
        Err("no OpenCL device rounds division correctly and computes in binary64 (PoCL does)".to_owned())
    }

    /// Compiles a program.
    pub(crate) fn build(&self, source: &str) -> Result<Program, String> {
        Program::create_and_build_from_source(&self.context, source, OPTIONS)
            .map_err(|error| format!("{error}\n{source}"))
    }

    /// Runs a case in two ranges of tasks. Gives the contents of its buffers.
    pub(crate) fn run(&self, program: &Program, case: &Case) -> Result<Vec<Vec<u8>>, String> {
        let text = |error: opencl3::error_codes::ClError| format!("{}: {error}", case.kernel.name);
        let mut buffers = Vec::new();
        for bytes in &case.buffers {
            // SAFETY: no memory of the host is given; the buffer has room for all bytes, and the write is awaited.
            unsafe {
                let (len, host) = (bytes.len().max(1), std::ptr::null_mut());
                let mut buffer =
                    Buffer::<u8>::create(&self.context, CL_MEM_READ_WRITE, len, host).map_err(text)?;
                if !bytes.is_empty() {
                    self.queue.enqueue_write_buffer(&mut buffer, CL_BLOCKING, 0, bytes, &[]).map_err(text)?;
                }
                buffers.push(buffer);
            }
        }
        let kernel = Kernel::create(program, &symbol(&case.kernel.name)).map_err(text)?;
        let threads = case.kernel.threads;
        let [lanes, warps] = [threads.lanes, threads.warps].map(|n| n as usize);
        let middle = case.tasks / 2;
        for (begin, end) in [(0, middle), (middle, case.tasks)] {
            if begin == end {
                continue;
            }
            let groups = (end - begin) as usize;
            let mut execute = ExecuteKernel::new(&kernel);
            // SAFETY: arguments are those that the kernel declares, in its order, and they live until it is done.
            unsafe {
                buffers.iter().for_each(|buffer| _ = execute.set_arg(buffer));
                case.sizes.iter().for_each(|size| _ = execute.set_arg(size));
                execute.set_arg(&begin);
                execute.set_global_work_sizes(&[groups * lanes, warps]);
                execute.set_local_work_sizes(&[lanes, warps]);
                execute.enqueue_nd_range(&self.queue).map_err(text)?.wait().map_err(text)?;
            }
        }
        let mut found = Vec::new();
        for (buffer, bytes) in buffers.iter().zip(&case.buffers) {
            let mut contents = vec![0; bytes.len()];
            if !contents.is_empty() {
                // SAFETY: the buffer has as many bytes, and the read is awaited.
                let read =
                    unsafe { self.queue.enqueue_read_buffer(buffer, CL_BLOCKING, 0, &mut contents, &[]) };
                read.map_err(text)?;
            }
            found.push(contents);
        }
        Ok(found)
    }
}
