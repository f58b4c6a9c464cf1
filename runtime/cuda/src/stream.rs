//! Work in order on a device.
#![allow(unsafe_code, reason = "hands memory and kernels to the driver")]

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUgraph, CUgraphExec, CUstream, CUstream_flags, CUstreamCaptureMode};
use tilewright_runtime::device::{DeviceError, GraphId, Launch, Stream};

use crate::api::{Api, Graphs, call};
use crate::code::Code;
use crate::error::Failure;
use crate::events::Events;

/// Blocks of one launch at most: what every device takes in `x`.
const MOST_BLOCKS: i64 = i32::MAX as i64;

/// A stream of the driver.
pub struct CudaStream {
    code: Arc<Code>,
    handle: CUstream,
    is_own: bool,
    /// Whether there was work since the last wait.
    is_busy: bool,
    /// Pointers to a launch's arguments, kept for their memory.
    arguments: Vec<*mut c_void>,
    /// What was recorded on it, by number.
    graphs: Vec<CUgraphExec>,
    events: Events,
}

// SAFETY: a stream of the driver belongs to no thread. The pointers are of no use after the launch that wrote them.
unsafe impl Send for CudaStream {}
// SAFETY: shared access reads nothing that changes.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    /// A stream of its own, which waits for none other.
    pub(crate) fn new(code: &Arc<Code>) -> Result<CudaStream, DeviceError> {
        let created = code.context.run(|api| {
            let mut handle: CUstream = std::ptr::null_mut();
            let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
            // SAFETY: a pointer is written. The stream is destroyed once, by `drop`.
            unsafe { call!(api, stream_create(&mut handle, flags)) }?;
            Ok(handle)
        });
        let handle = created.map_err(|failure| failure.fault(&code.context.gpu.name))?;
        Ok(CudaStream::of(code, handle, true))
    }

    fn of(code: &Arc<Code>, handle: CUstream, is_own: bool) -> CudaStream {
        let code = code.clone();
        CudaStream {
            code,
            handle,
            is_own,
            is_busy: false,
            arguments: Vec::new(),
            graphs: Vec::new(),
            events: Events::default(),
        }
    }

    /// One that is the caller's.
    ///
    /// # Safety
    /// The stream is of the same context, and outlives what is returned.
    pub(crate) unsafe fn on(code: &Arc<Code>, raw: *mut c_void) -> CudaStream {
        CudaStream::of(code, raw.cast(), false)
    }

    /// The driver's stream, for what else is to work in its order.
    pub fn raw(&self) -> *mut c_void {
        self.handle.cast()
    }

    fn fault(&self, failure: Failure) -> DeviceError {
        failure.fault(&self.code.context.gpu.name)
    }

    /// Asks for work.
    fn enqueue(
        &mut self,
        work: impl FnOnce(&Api, CUstream) -> Result<(), Failure>,
    ) -> Result<(), DeviceError> {
        self.is_busy = true;
        let handle = self.handle;
        self.code.context.run(|api| work(api, handle)).map_err(|failure| self.fault(failure))
    }
}

impl Stream for CudaStream {
    unsafe fn upload(&mut self, from: *const u8, to: u64, bytes: usize) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both are as large, and stay, by the caller's word.
        self.enqueue(|api, stream| unsafe {
            call!(api, upload(to as CUdeviceptr, from.cast(), bytes, stream))
        })
    }

    unsafe fn download(&mut self, from: u64, to: *mut u8, bytes: usize) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both are as large, and stay, by the caller's word.
        self.enqueue(|api, stream| unsafe {
            call!(api, download(to.cast(), from as CUdeviceptr, bytes, stream))
        })
    }

    unsafe fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both are as large, and stay, by the caller's word.
        self.enqueue(|api, stream| unsafe {
            call!(api, copy(to as CUdeviceptr, from as CUdeviceptr, bytes, stream))
        })
    }

    unsafe fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        let code = &self.code;
        let Some(kernel) = code.kernels.get(launch.kernel).copied() else {
            let reason =
                format!("the code has {} kernels, none is number {}", code.kernels.len(), launch.kernel);
            return Err(DeviceError::Fault { device: code.context.gpu.name.clone(), reason });
        };
        let [warps, lanes] = kernel.threads;
        let (mut first, mut left) = (launch.first, launch.tasks);
        // Reached by this pointer alone, which the driver has too.
        let first = &raw mut first;
        let mut arguments = std::mem::take(&mut self.arguments);
        arguments.clear();
        arguments.extend(launch.buffers.iter().map(|address| std::ptr::from_ref(address).cast_mut().cast()));
        arguments.extend(launch.sizes.iter().map(|size| std::ptr::from_ref(size).cast_mut().cast()));
        arguments.push(first.cast());
        let launched = self.enqueue(|api, stream| {
            while left > 0 {
                let blocks = left.min(MOST_BLOCKS);
                let (function, shared, grid) = (kernel.function, kernel.dynamic_shared, blocks as c_uint);
                let (arguments, extra) = (arguments.as_mut_ptr(), std::ptr::null_mut());
                // SAFETY: the kernel is the compiler's and takes these arguments, by the caller's word; the driver reads them
                // before it returns, through pointers to what lives longer.
                unsafe {
                    call!(
                        api,
                        launch(function, grid, 1, 1, lanes, warps, 1, shared, stream, arguments, extra)
                    )?;
                    *first += blocks;
                }
                left -= blocks;
            }
            Ok(())
        });
        self.arguments = arguments;
        launched
    }

    fn wait(&mut self) -> Result<(), DeviceError> {
        let handle = self.handle;
        // SAFETY: the stream is there.
        let waited = self.code.context.run(|api| unsafe { call!(api, stream_wait(handle)) });
        self.is_busy = false;
        waited.map_err(|failure| self.fault(failure))
    }

    fn set_timing(&mut self, on: bool) -> Result<bool, DeviceError> {
        self.events.begin();
        Ok(on)
    }

    fn mark(&mut self) -> Result<u32, DeviceError> {
        self.is_busy = true;
        let CudaStream { code, handle, events, .. } = self;
        let marked = code.context.run(|api| events.mark(api, *handle));
        marked.map_err(|failure| self.fault(failure))
    }

    fn elapsed(&mut self, from: u32, to: u32) -> Result<f64, DeviceError> {
        let elapsed = self.code.context.run(|api| self.events.elapsed(api, from, to));
        elapsed.map_err(|failure| self.fault(failure))
    }

    fn begin_capture(&mut self) -> Result<bool, DeviceError> {
        let handle = self.handle;
        let begun = self.code.context.run(|api| {
            let Some(graphs) = &api.graphs else { return Ok(false) };
            // The mode in which other threads may go on calling the driver, and this one may not call what would break the recording.
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            // SAFETY: the stream is there.
            unsafe { call!(api, graphs => begin_capture(handle, mode)) }?;
            Ok(true)
        });
        begun.map_err(|failure| self.fault(failure))
    }

    fn end_capture(&mut self) -> Result<Option<GraphId>, DeviceError> {
        let handle = self.handle;
        let made = self.code.context.run(|api| match &api.graphs {
            Some(graphs) => instantiate(api, graphs, handle),
            None => Ok(None),
        });
        let number = self.graphs.len() as u32;
        let made = made.map_err(|failure| self.fault(failure))?;
        self.graphs.extend(made);
        Ok(made.map(|_| GraphId(number)))
    }

    unsafe fn replay(&mut self, graph: GraphId) -> Result<(), DeviceError> {
        let Some(&graph) = self.graphs.get(graph.0 as usize) else {
            let reason = format!("there are {} graphs, none is number {}", self.graphs.len(), graph.0);
            return Err(DeviceError::Fault { device: self.code.context.gpu.name.clone(), reason });
        };
        self.enqueue(|api, stream| match &api.graphs {
            // SAFETY: the graph is there, and what it works on too, by the caller's word.
            Some(graphs) => unsafe { call!(api, graphs => graph_launch(graph, stream)) },
            None => Ok(()),
        })
    }

    fn forget_graphs(&mut self) {
        for graph in self.graphs.drain(..) {
            // A failure leaves nothing to do: the context is lost, and the graph with it.
            let _ = self.code.context.run(|api| match &api.graphs {
                // SAFETY: instantiated once, and idle by the caller's word.
                Some(graphs) => unsafe { call!(api, graphs => exec_destroy(graph)) },
                None => Ok(()),
            });
        }
    }
}

/// Ends a recording, and makes a graph of it that can be launched.
fn instantiate(api: &Api, graphs: &Graphs, stream: CUstream) -> Result<Option<CUgraphExec>, Failure> {
    let mut graph: CUgraph = std::ptr::null_mut();
    // SAFETY: the stream is there, and a pointer is written.
    unsafe { call!(api, graphs => end_capture(stream, &mut graph)) }?;
    if graph.is_null() {
        return Ok(None);
    }
    let mut exec: CUgraphExec = std::ptr::null_mut();
    // SAFETY: a pointer is written; the graph is there, and destroyed once. What can be launched needs it no more.
    unsafe {
        let made = call!(api, graphs => instantiate(&mut exec, graph, 0));
        // Where this fails the context is lost, as the next call tells.
        let _ = call!(api, graphs => graph_destroy(graph));
        made?;
    }
    Ok(Some(exec))
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.is_busy {
            // The code is unloaded with the last stream that has it. Of a failure the next call tells.
            let _ = self.wait();
        }
        self.forget_graphs();
        self.events.destroy(&self.code.context);
        if self.is_own {
            // SAFETY: created once, and idle.
            let _ = self.code.context.run(|api| unsafe { call!(api, stream_destroy(self.handle)) });
        }
    }
}
