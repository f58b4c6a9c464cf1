//! What a build without LLVM says.

use tilewright_machine::{CodegenError, CodegenKind};

/// The error of a build without LLVM.
pub(crate) const UNAVAILABLE: CodegenError = CodegenError::Unavailable {
    codegen: CodegenKind::Llvm,
    how: "install LLVM 22 and build with the feature `llvm` (`cargo xtask setup` does both)",
};
