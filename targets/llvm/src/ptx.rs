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
    let ptx = split_halves(&passes::ptx(&text, gpu)?);
    Ok(Module { ptx, entries: kernels.iter().map(|kernel| entry(kernel, gpu)).collect() })
}

/// Whether there is code for a kernel, without making it.
///
/// # Errors
/// As [`compile`], but for what LLVM itself says.
pub fn check_kernel(kernel: &Kernel, gpu: &Gpu) -> Result<(), CodegenError> {
    crate::check(kernel, Isa::Gpu(gpu))
}

/// Splits 32 bits into halves by a shift. ptxas 12.9 to 13.5 lose the upper half of some `mov.b32 {low, high}, whole`: machine code then
/// reads a register that nothing writes.
fn split_halves(ptx: &str) -> String {
    let mut text = String::with_capacity(ptx.len());
    for line in ptx.split_inclusive('\n') {
        match halves(line) {
            Some([low, high, whole]) => {
                if low != "_" {
                    text += &format!("\tcvt.u16.u32 \t{low}, {whole};\n");
                }
                if high != "_" {
                    let shifted = format!("shr.u32 \t%upper, {whole}, 16;");
                    text += &format!("\t{{ .reg .b32 \t%upper; {shifted} cvt.u16.u32 \t{high}, %upper; }}\n");
                }
            }
            None => text += line,
        }
    }
    text
}

/// The registers of `mov.b32 {low, high}, whole;`.
fn halves(line: &str) -> Option<[&str; 3]> {
    let (pair, whole) =
        line.trim().strip_prefix("mov.b32")?.trim_start().strip_prefix('{')?.split_once('}')?;
    let (low, high) = pair.split_once(',')?;
    let whole = whole.trim_start_matches(',').strip_suffix(';')?;
    Some([low, high, whole].map(str::trim))
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

#[cfg(test)]
mod tests {
    use super::split_halves;

    #[test]
    fn halves_are_split_by_shifts() {
        let text =
            "\tmov.b32 \t{%rs1, %rs2}, %r1;\n\tmov.b32 \t{_, %rs3}, %r2;\n\tmov.b32 \t%r3, {%rs1, %rs2};\n";
        let split = split_halves(text);
        assert!(!split.contains("}, %r") && split.contains("cvt.u16.u32 \t%rs1, %r1;"), "{split}");
        assert!(split.contains("shr.u32 \t%upper, %r2, 16; cvt.u16.u32 \t%rs3, %upper;"), "{split}");
        assert!(split.ends_with("\tmov.b32 \t%r3, {%rs1, %rs2};\n"), "{split}");
    }
}
