//! Kernels as PTX, the assembly of NVIDIA's GPUs.
//!
//! A module has an entry for each kernel, `.entry SYMBOL(buffers..., extents..., first task)`: pointers to global memory, then 64-bit
//! integers. A grid of blocks in one dimension runs so many tasks from the first one on; a block has lanes in `x` and warps in `y`.

use tilewright_machine::{CodegenError, Gpu};
use tilewright_te::kernel::{Kernel, Threads};

use crate::ir::{self, Isa, shared_bytes};
use crate::passes;

/// A PTX module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The text.
    pub ptx: String,
    /// The entry of each kernel, in the order given.
    pub entries: Vec<Entry>,
}

/// How a kernel of a module is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the module.
    pub symbol: String,
    /// Threads of a block, in `x` and `y`.
    pub threads: [u32; 2],
    /// Bytes of shared memory to ask for at the launch; 0 where the module has them.
    pub dynamic_shared: u32,
}

/// Compiles kernels into one module, for a GPU and those that are newer.
///
/// # Errors
/// Kernels that the GPU cannot run, and malformed ones; a build without LLVM.
pub fn compile(kernels: &[Kernel], gpu: &Gpu) -> Result<Module, CodegenError> {
    let text = ir::translate(kernels, Isa::Gpu(gpu))?;
    let ptx = passes::ptx(&text, gpu)?;
    Ok(Module { ptx, entries: kernels.iter().map(|kernel| entry(kernel, gpu)).collect() })
}

fn entry(kernel: &Kernel, gpu: &Gpu) -> Entry {
    let Threads { warps, lanes } = kernel.threads;
    let bytes = shared_bytes(&kernel.shared);
    let is_dynamic = bytes > u64::from(Gpu::STATIC_SHARED);
    Entry {
        symbol: Isa::Gpu(gpu).symbol(&kernel.name).into_owned(),
        threads: [lanes, warps],
        dynamic_shared: if is_dynamic { bytes as u32 } else { 0 },
    }
}
