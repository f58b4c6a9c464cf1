//! What code generators return.
//!
//! Every crate under `targets/` offers
//! `compile(kernels: &[Kernel], target: &Target) -> Result<ObjectCode, CodegenError>`.

use crate::codegen::CodegenKind;

/// A relocatable ELF object with one function a kernel and no undefined symbol.
///
/// Each function is `extern "C" fn(buffers: *const *mut u8, sizes: *const i64, task_begin: i64, task_end: i64)`
/// and runs the tasks `task_begin..task_end`. The bytes depend on the kernels and the target alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectCode {
    /// The object file.
    pub object: Vec<u8>,
    /// The function of each kernel, in the order given.
    pub symbols: Vec<String>,
}

/// Why there is no code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodegenError {
    /// The code generator is not part of this build.
    #[error("the code generator {codegen} is not in this build: {how}")]
    Unavailable {
        /// The code generator.
        codegen: CodegenKind,
        /// How to get it.
        how: &'static str,
    },
    /// The code generator or the machine cannot do what the kernel asks for.
    #[error("{codegen} cannot compile kernel `{kernel}`: {what}")]
    Unsupported {
        /// The code generator.
        codegen: CodegenKind,
        /// Name of the kernel.
        kernel: String,
        /// The operation, type or missing feature.
        what: String,
    },
    /// The kernel breaks a rule of the kernel form: a bug of whoever made it.
    #[error("kernel `{kernel}` is malformed: {reason}")]
    InvalidKernel {
        /// Name of the kernel.
        kernel: String,
        /// The rule and the value or instruction.
        reason: String,
    },
    /// The code generator failed where it should not have: a bug below us.
    #[error("{codegen} failed: {message}")]
    Internal {
        /// The code generator.
        codegen: CodegenKind,
        /// What it said.
        message: String,
    },
}

/// A text form of generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// The code generator's own intermediate form, after its optimisations: LLVM IR, or CLIF.
    Ir,
    /// Assembly.
    Assembly,
}
