//! What cannot be printed.

use tilewright_machine::{CodegenError, CodegenKind};
use tilewright_te::kernel::Kernel;

pub(crate) fn unsupported(kernel: &Kernel, what: impl Into<String>) -> CodegenError {
    CodegenError::Unsupported { codegen: CodegenKind::C, kernel: kernel.name.clone(), what: what.into() }
}

pub(crate) fn invalid(kernel: &Kernel, reason: impl Into<String>) -> CodegenError {
    CodegenError::InvalidKernel { kernel: kernel.name.clone(), reason: reason.into() }
}
