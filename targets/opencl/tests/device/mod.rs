//! The first usable OpenCL device, by the runtime that models run with.

use std::sync::Arc;

use tilewright_opencl::symbol;
use tilewright_runtime::artifact::{DeviceDef, DeviceKernel};
use tilewright_runtime::device::{Device as _, DeviceError, DeviceModule, Launch};
use tilewright_runtime_opencl::OpenClDevice;
use tilewright_target_suite::Case;

/// A device.
pub(crate) struct Device(OpenClDevice);

impl Device {
    /// A device, or why there is none.
    pub(crate) fn find() -> Result<Device, String> {
        OpenClDevice::first()
            .map(Device)
            .map_err(|error| format!("{error} (`cargo xtask setup` installs PoCL, which is one)"))
    }

    /// Builds a program of the kernels of cases, in their order.
    pub(crate) fn build(&self, source: &str, cases: &[Case]) -> Result<Arc<dyn DeviceModule>, String> {
        let kernels = cases.iter().map(|case| {
            let threads = case.kernel.threads;
            let (symbol, threads) = (symbol(&case.kernel.name), [threads.warps, threads.lanes]);
            DeviceKernel { symbol, threads, dynamic_shared: 0 }
        });
        let parts = vec![("opencl-c".to_owned(), source.len() as u64)];
        let kernels = kernels.collect();
        let def = DeviceDef { kind: "opencl".to_owned(), parts, kernels, ..DeviceDef::default() };
        self.0.load(&def, source.as_bytes()).map_err(|error| format!("{error}\n{source}"))
    }
}

/// Runs a case, whose kernel has this number in its program, in two ranges of tasks. Gives the contents of its buffers.
pub(crate) fn run(program: &dyn DeviceModule, kernel: usize, case: &Case) -> Result<Vec<Vec<u8>>, String> {
    let mut addresses = Vec::new();
    let found = run_on(program, kernel, case, &mut addresses);
    for address in addresses {
        // SAFETY: it was allocated above; the stream is gone, after what it was asked for.
        unsafe { program.free(address) };
    }
    found.map_err(|error| format!("{}: {error}", case.kernel.name))
}

fn run_on(
    program: &dyn DeviceModule,
    kernel: usize,
    case: &Case,
    addresses: &mut Vec<u64>,
) -> Result<Vec<Vec<u8>>, DeviceError> {
    let mut stream = program.stream()?;
    for bytes in &case.buffers {
        let address = program.allocate(bytes.len())?;
        addresses.push(address);
        // SAFETY: the case outlives the wait below, and so many bytes were allocated.
        unsafe { stream.upload(bytes.as_ptr(), address, bytes.len()) }?;
    }
    let middle = case.tasks / 2;
    for (first, end) in [(0, middle), (middle, case.tasks)] {
        if first < end {
            let (buffers, sizes) = (&addresses[..], &case.sizes[..]);
            // SAFETY: the buffers are those that the kernel declares, in its order, and live until the wait.
            unsafe { stream.launch(&Launch { kernel, buffers, sizes, first, tasks: end - first }) }?;
        }
    }
    let mut found: Vec<Vec<u8>> = case.buffers.iter().map(|bytes| vec![0; bytes.len()]).collect();
    for (contents, &address) in found.iter_mut().zip(addresses.iter()) {
        // SAFETY: as many bytes as were allocated; they are waited for before they are read.
        unsafe { stream.download(address, contents.as_mut_ptr(), contents.len()) }?;
    }
    stream.wait()?;
    Ok(found)
}
