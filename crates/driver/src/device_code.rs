//! Kernels to code for the device of a target: pieces by kernel, which a cache may keep, and all of them as one module.

use tilewright_cuda::{Limits, Ptxas, PtxasError};
use tilewright_digest::Digest;
use tilewright_machine::{DeviceKind, Gpu, Target};
use tilewright_opencl::PrintError;
use tilewright_runtime::Cancel;
use tilewright_runtime::artifact::{DeviceDef, DeviceKernel};
use tilewright_te::kernel::Kernel;

use crate::cache::Cache;
use crate::error::CompileError;
use crate::gap::Gap;
use crate::options::CompileObserver;

/// The code of one kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Piece {
    /// OpenCL C or PTX.
    pub(crate) text: Vec<u8>,
    /// How the kernel is called and launched.
    pub(crate) kernel: DeviceKernel,
}

/// Code of one kernel, which depends on the kernel, the kind of device and the GPU alone.
///
/// # Errors
/// What the code generators say.
pub(crate) fn compile_kernel(kernel: &Kernel, device: DeviceKind, gpu: &Gpu) -> Result<Piece, CompileError> {
    let threads = [kernel.threads.warps, kernel.threads.lanes];
    match device {
        DeviceKind::OpenCl => {
            let printed = tilewright_opencl::print_kernel(kernel);
            let text = printed.map_err(of_printer)?.into_bytes();
            let symbol = tilewright_opencl::symbol(&kernel.name);
            Ok(Piece { text, kernel: DeviceKernel { symbol, threads, dynamic_shared: 0 } })
        }
        DeviceKind::Cuda => {
            let module = tilewright_cuda::compile(std::slice::from_ref(kernel), gpu)?;
            let entry = module.entries.into_iter().next();
            let (symbol, dynamic_shared) =
                entry.map(|entry| (entry.symbol, entry.dynamic_shared)).unwrap_or_default();
            let text = module.ptx.into_bytes();
            Ok(Piece { text, kernel: DeviceKernel { symbol, threads, dynamic_shared } })
        }
    }
}

/// Whether there is code for a kernel, without making more of it than that takes.
///
/// # Errors
/// As [`compile_kernel`].
pub(crate) fn check_kernel(kernel: &Kernel, device: DeviceKind, gpu: &Gpu) -> Result<(), CompileError> {
    match device {
        DeviceKind::OpenCl => tilewright_opencl::print_kernel(kernel).map(drop).map_err(of_printer),
        DeviceKind::Cuda => Ok(tilewright_cuda::check_kernel(kernel, gpu)?),
    }
}

/// What the OpenCL C of a kernel lacks is a gap of the model; all else is a defect.
fn of_printer(error: PrintError) -> CompileError {
    match error {
        PrintError::Unsupported { kernel, what } => {
            CompileError::Gaps(vec![Gap::of_kernel("OpenCL C", &kernel, &what)])
        }
        PrintError::Invalid { .. } => CompileError::internal("codegen", error),
    }
}

/// Kernels as one module, in the formats that the device takes.
///
/// # Errors
/// What code generators say, and ptxas where it is found.
pub fn module(
    kernels: &[Kernel],
    device: DeviceKind,
    gpu: &Gpu,
) -> Result<(DeviceDef, Vec<u8>), CompileError> {
    let pieces = kernels.iter().map(|kernel| compile_kernel(kernel, device, gpu));
    let mut assembled = Assembled { cache: None, cancel: &Cancel::new(), observer: &mut () };
    join(pieces.collect::<Result<_, _>>()?, device, gpu, &mut assembled)
}

/// The pieces as one module, in the formats that the device takes; what `assembled` keeps is not assembled again.
///
/// # Errors
/// What ptxas says, where it is found: a defect, or a limit of it.
pub(crate) fn join(
    pieces: Vec<Piece>,
    device: DeviceKind,
    gpu: &Gpu,
    assembled: &mut Assembled<'_>,
) -> Result<(DeviceDef, Vec<u8>), CompileError> {
    let mut def = DeviceDef { kind: device.name().to_string(), ..DeviceDef::default() };
    let mut code = match device {
        DeviceKind::OpenCl => tilewright_opencl::PRELUDE.as_bytes().to_vec(),
        DeviceKind::Cuda => Vec::new(),
    };
    for (i, Piece { text, kernel }) in pieces.into_iter().enumerate() {
        match device {
            DeviceKind::OpenCl => code.extend(text),
            DeviceKind::Cuda if i == 0 => code.extend(text),
            DeviceKind::Cuda => code.extend(without_head(&text)),
        }
        def.kernels.push(kernel);
    }
    let format = match device {
        DeviceKind::OpenCl => "opencl-c",
        DeviceKind::Cuda => "ptx",
    };
    def.parts.push((format.to_string(), code.len() as u64));
    if device == DeviceKind::Cuda {
        def.arch = gpu.to_string();
        if let Some((cubin, assembler)) = assembled.assemble(&code, gpu)? {
            def.parts.push(("cubin".to_string(), cubin.len() as u64));
            def.assembler = assembler;
            code.extend(cubin);
        }
    }
    Ok((def, code))
}

/// Modules that were assembled before.
pub(crate) struct Assembled<'a> {
    /// Where they are kept, if they are.
    pub(crate) cache: Option<&'a Cache>,
    /// Asks to stop.
    pub(crate) cancel: &'a Cancel,
    /// Hears where they cannot be.
    pub(crate) observer: &'a mut dyn CompileObserver,
}

impl Assembled<'_> {
    /// Machine code for the GPU, and the version of what made it, where ptxas is found.
    fn assemble(&mut self, ptx: &[u8], gpu: &Gpu) -> Result<Option<(Vec<u8>, String)>, CompileError> {
        let internal = |error: &dyn std::fmt::Display| CompileError::internal("codegen", error);
        let unusable = |error| CompileError::Option(format!("the ptxas of TILEWRIGHT_PTXAS: {error}"));
        let found = Ptxas::find().map_err(unusable)?;
        let Some(ptxas) = found else { return Ok(None) };
        if ptx.is_empty() {
            return Ok(None);
        }
        let assembler = format!("ptxas {}", ptxas.version());
        let key = Digest::of("cubin", |writer| {
            writer.text(&assembler);
            writer.text(&gpu.to_string());
            writer.bytes(ptx);
        });
        if let Some(cubin) = self.cache.and_then(|cache| cache.read(key)) {
            return Ok(Some((cubin, assembler)));
        }
        let text = std::str::from_utf8(ptx).map_err(|error| internal(&error))?;
        // All kernels of a model are one module.
        let ptxas = ptxas.with_limits(Limits::of(ptx.len()));
        let cancel = self.cancel;
        let cubin = ptxas.assemble(text, gpu, &|| cancel.is_cancelled()).map_err(|error| match error {
            PtxasError::Stopped => CompileError::Cancelled,
            PtxasError::TimedOut { .. } => CompileError::Limit(error.to_string()),
            _ => internal(&error),
        })?;
        if let Some(cache) = self.cache
            && let Err(error) = cache.write(key, &cubin.bytes).and_then(|()| cache.prune().map(drop))
        {
            let folder = cache.folder().display();
            self.observer.warning(&format!("assembled code is not kept in {folder}: {error}"));
        }
        Ok(Some((cubin.bytes, assembler)))
    }
}

/// The version of the ptxas that machine code for CUDA devices is made by; none where there is none.
pub fn ptxas_version() -> Option<String> {
    Ptxas::find().ok().flatten().map(|ptxas| ptxas.version().to_string())
}

/// What makes machine code of PTX here, which a target's cubins depend on; nothing where there is no ptxas, or the target is none for CUDA.
pub(crate) fn assembler(target: &Target) -> String {
    match target.device {
        Some(DeviceKind::Cuda) => {
            ptxas_version().map_or_else(String::new, |version| format!("ptxas {version}"))
        }
        Some(DeviceKind::OpenCl) | None => String::new(),
    }
}

/// A PTX module without the directives that a module begins with.
fn without_head(ptx: &[u8]) -> Vec<u8> {
    let lines = ptx.split_inclusive(|&byte| byte == b'\n');
    let is_head = |line: &&[u8]| {
        [&b".version"[..], b".target", b".address_size"].iter().any(|directive| line.starts_with(directive))
    };
    lines.filter(|line| !is_head(line)).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_after_the_first_lose_their_head() {
        let module = b"//\n.version 9.0\n.target sm_80\n.address_size 64\n\n.visible .entry k() { ret; }\n";
        assert_eq!(without_head(module), b"//\n\n.visible .entry k() { ret; }\n");
    }
}
