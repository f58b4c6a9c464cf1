//! Code for NVIDIA GPUs: kernels to PTX through LLVM, and to cubins by ptxas.
//!
//! PTX is text that a driver assembles for its device when it is loaded, also for devices that are newer than the text. A cubin is
//! machine code of one generation, made here by ptxas, which is a program of NVIDIA's. It is not needed to compile: what it adds is
//! that nothing has to be assembled at load time, and that it says what registers and memory a kernel takes.

mod ptxas;

pub use ptxas::{Cubin, Limits, Ptxas, PtxasError, Usage};
pub use tilewright_llvm::ptx::{Entry, Module, check_kernel, compile};
