//! Code of a model in a device's context: its module and kernels.
#![allow(unsafe_code, reason = "loads code through the driver")]

use std::ffi::{CString, c_int, c_uint, c_void};

use cudarc::driver::sys;
use cudarc::driver::sys::{CUdevice_attribute, CUfunction, CUmodule};
use tilewright_runtime::AlignedBuf;
use tilewright_runtime::artifact::{DeviceDef, DeviceKernel};
use tilewright_runtime::device::DeviceError;

use crate::api::call;
use crate::arch::{CodeArch, newest_ptx, ptx_version, sm_name, version};
use crate::context::Context;
use crate::elf;
use crate::error::Failure;
use crate::gpu::Gpu;

/// Bytes that the driver's assembler may write of what is wrong.
const LOG: usize = 8192;

/// Of these, what an error shows.
const LOG_SHOWN: usize = 600;

/// What code is for, where a device runs one of its formats.
pub(crate) fn fitting(gpu: &Gpu, def: &DeviceDef) -> Result<CodeArch, DeviceError> {
    if def.kind != "cuda" {
        return Err(gpu.unfit(def, "it is code for another kind of device".into()));
    }
    let has = |format: &str| def.parts.iter().any(|(name, _)| name == format);
    let arch = CodeArch::parse(&def.arch).ok_or_else(|| {
        gpu.unfit(def, format!("`{}` is no generation of GPUs that this runtime knows", def.arch))
    })?;
    match (has("cubin"), has("ptx")) {
        (true, _) if arch.cubin_runs_on(gpu.sm) => Ok(arch),
        (_, true) if arch.ptx_runs_on(gpu.sm) => Ok(arch),
        (false, false) => Err(gpu.unfit(def, "it has neither PTX nor machine code".into())),
        (true, false) if arch.ptx_runs_on(gpu.sm) => {
            let (code, device) = (&def.arch, sm_name(gpu.sm));
            Err(gpu.unfit(
                def,
                format!("the device is {device}, and the code machine code of {code} without PTX"),
            ))
        }
        _ => Err(gpu.unfit(def, format!("the device is {}, and the code of {}", sm_name(gpu.sm), def.arch))),
    }
}

/// A kernel that was found.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    /// The driver's name of it.
    pub(crate) function: CUfunction,
    /// Threads of a block in `y` and `x`.
    pub(crate) threads: [u32; 2],
    /// Bytes of shared memory that its launch asks for.
    pub(crate) dynamic_shared: u32,
}

/// Loaded code.
pub(crate) struct Code {
    /// Where it is loaded.
    pub(crate) context: Context,
    /// Whether the driver made the machine code.
    pub(crate) assembled_by_driver: bool,
    /// The kernels, in the order of [`DeviceDef::kernels`].
    pub(crate) kernels: Vec<Kernel>,
    module: CUmodule,
}

// SAFETY: module and functions belong to no thread, and do not change.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Code {
    /// Loads code and finds its kernels.
    pub(crate) fn load(gpu: &Gpu, def: &DeviceDef, code: &[u8]) -> Result<Code, DeviceError> {
        let arch = fitting(gpu, def)?;
        check_limits(gpu, def)?;
        let bytes = def.parts.iter().try_fold(0u64, |sum, (_, bytes)| sum.checked_add(*bytes));
        if bytes != Some(code.len() as u64) {
            return Err(damaged(&gpu.name, "it is not as long as it is said to be"));
        }
        let context = Context::retain(gpu).map_err(|failure| failure.fault(&gpu.name))?;
        let cubin = def.part("cubin", code).filter(|_| arch.cubin_runs_on(gpu.sm));
        let ptx = def.part("ptx", code).filter(|_| arch.ptx_runs_on(gpu.sm));
        let from_cubin = match cubin {
            Some(cubin) => Some(load_cubin(&context, cubin)?),
            None => None,
        };
        let (module, assembled_by_driver) = match (from_cubin, ptx) {
            (Some(Some(module)), _) => (module, false),
            (_, Some(ptx)) => (load_ptx(&context, def, ptx)?, true),
            _ => {
                let driver = version(gpu.driver.version);
                let reason = format!(
                    "the driver, of CUDA {driver}, does not run its machine code, and there is no PTX"
                );
                return Err(gpu.unfit(def, reason));
            }
        };
        // From here on, what fails unloads the module.
        let mut loaded = Code { context, assembled_by_driver, kernels: Vec::new(), module };
        for kernel in &def.kernels {
            let found = loaded.find(kernel)?;
            loaded.kernels.push(found);
        }
        Ok(loaded)
    }

    fn find(&self, kernel: &DeviceKernel) -> Result<Kernel, DeviceError> {
        let refused = |reason: String| {
            damaged(&self.context.gpu.name, &format!("kernel `{}`: {reason}", kernel.symbol))
        };
        let &DeviceKernel { ref symbol, threads, dynamic_shared } = kernel;
        let symbol = CString::new(symbol.as_str()).map_err(|_| refused("a zero byte in its name".into()))?;
        let found = self.context.run(|api| {
            let mut function: CUfunction = std::ptr::null_mut();
            // SAFETY: the module is loaded, the name ends with a zero byte, and a pointer is written.
            unsafe { call!(api, module_function(&mut function, self.module, symbol.as_ptr())) }?;
            if dynamic_shared > 0 {
                // Without it a launch gets 48 KiB at most.
                let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                // SAFETY: takes no pointers but the function's.
                unsafe { call!(api, function_set_attribute(function, which, dynamic_shared as c_int)) }?;
            }
            Ok(function)
        });
        let function = found.map_err(|failure| match failure.is_sticky() {
            true => failure.fault(&self.context.gpu.name),
            false => refused(format!("{} ({})", failure.reason, failure.call)),
        })?;
        Ok(Kernel { function, threads, dynamic_shared })
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // A failure leaves nothing to do: the context is gone, and the module with it.
        // SAFETY: loaded once, and no stream has work left: each keeps the code, and waits before it lets go.
        let _ = self.context.run(|api| unsafe { call!(api, module_unload(self.module)) });
    }
}

fn damaged(device: &str, reason: &str) -> DeviceError {
    DeviceError::Code { device: device.to_owned(), reason: reason.to_owned() }
}

/// What kernels need of the device, which is told before their code is loaded.
fn check_limits(gpu: &Gpu, def: &DeviceDef) -> Result<(), DeviceError> {
    let limit = |which| gpu.attribute(which).map_err(|failure| failure.fault(&gpu.name));
    let threads = limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
    let shared = limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
    for DeviceKernel { symbol, threads: [warps, lanes], dynamic_shared } in &def.kernels {
        let asked = u64::from(*warps) * u64::from(*lanes);
        if asked == 0 || asked > u64::from(threads) {
            let reason =
                format!("kernel `{symbol}` has {asked} threads a task, and the device 1 to {threads}");
            return Err(gpu.unfit(def, reason));
        }
        if *dynamic_shared > shared {
            let reason = format!(
                "kernel `{symbol}` asks for {dynamic_shared} bytes of shared memory a task, and the device has {shared}"
            );
            return Err(gpu.unfit(def, reason));
        }
    }
    Ok(())
}

/// Loads machine code; `None` where the driver says that it is for another device or driver.
fn load_cubin(context: &Context, cubin: &[u8]) -> Result<Option<CUmodule>, DeviceError> {
    let device = &context.gpu.name;
    // The driver is not told where it ends, and reads what its tables say.
    if !elf::is_whole(cubin) {
        return Err(damaged(device, "its machine code is damaged"));
    }
    match load_module(context, cubin)? {
        Ok(module) => Ok(Some(module)),
        Err((failure, _)) if failure.code == Failure::NO_BINARY_FOR_GPU => Ok(None),
        Err((failure, _)) => Err(damaged(device, &format!("machine code: {}", failure.reason))),
    }
}

/// Assembles PTX.
fn load_ptx(context: &Context, def: &DeviceDef, ptx: &[u8]) -> Result<CUmodule, DeviceError> {
    let gpu = &context.gpu;
    let stated = ptx_version(ptx).filter(|_| !ptx.contains(&0));
    let stated = stated.ok_or_else(|| damaged(&gpu.name, "its PTX is damaged"))?;
    let show = |(major, minor)| format!("{major}.{minor}");
    let driver = version(gpu.driver.version);
    if let Some(newest) = newest_ptx(gpu.driver.version).filter(|newest| *newest < stated) {
        let reason = format!(
            "its PTX is of version {}, and the driver, of CUDA {driver}, reads up to {}: install a newer driver",
            show(stated),
            show(newest)
        );
        return Err(gpu.unfit(def, reason));
    }
    load_module(context, ptx)?.map_err(|(failure, log)| match failure.code {
        Failure::UNSUPPORTED_PTX_VERSION => {
            let reason = format!(
                "its PTX is of version {}, which the driver, of CUDA {driver}, does not read",
                show(stated)
            );
            gpu.unfit(def, reason)
        }
        _ if log.is_empty() => damaged(&gpu.name, &format!("PTX: {}", failure.reason)),
        _ => damaged(&gpu.name, &format!("PTX: {}; {log}", failure.reason)),
    })
}

/// Loads a module; the inner error has what the driver's assembler says.
fn load_module(context: &Context, image: &[u8]) -> Result<Result<CUmodule, (Failure, String)>, DeviceError> {
    // Parts of an artifact are not aligned and end with no zero byte, as the driver expects of them.
    let copy = AlignedBuf::zeroed(image.len() + 1).map(|mut copy| {
        copy[..image.len()].copy_from_slice(image);
        copy
    });
    let copy = copy.map_err(|error| damaged(&context.gpu.name, &error.to_string()))?;
    let mut log = vec![0u8; LOG];
    let mut options =
        [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // A number is passed as a pointer that has its value.
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(LOG)];
    let result = context.run(|api| {
        let mut module: CUmodule = std::ptr::null_mut();
        let count = options.len() as c_uint;
        // SAFETY: the image is whole and ends with a zero byte; there are as many options as values, and the log is as long
        // as they say; a pointer is written.
        unsafe {
            let image = copy.as_ptr().cast();
            call!(api, module_load(&mut module, image, count, options.as_mut_ptr(), values.as_mut_ptr()))
        }?;
        Ok(module)
    });
    match result {
        Ok(module) => Ok(Ok(module)),
        Err(failure) if failure.is_sticky() => Err(failure.fault(&context.gpu.name)),
        Err(failure) => Ok(Err((failure, shortened(&log)))),
    }
}

/// The first lines of a log that ends with a zero byte or where its buffer ends, as one line.
fn shortened(log: &[u8]) -> String {
    let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut line = lines.join("; ");
    if let Some((end, _)) = line.char_indices().nth(LOG_SHOWN) {
        line.truncate(end);
        line.push_str(" ...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_shortened() {
        assert_eq!(shortened(b"\0rest"), "");
        assert_eq!(shortened(b"ptxas line 1\n\n  ptxas line 2 \n\0rest"), "ptxas line 1; ptxas line 2");
        let long = shortened("\u{e9}".repeat(LOG).as_bytes());
        assert_eq!(long.chars().count(), LOG_SHOWN + 4);
    }
}
