//! The C library that compiles models: the functions that `tilewright_compiler.h` declares, and those of `tilewright.h`.
//!
//! As in `crates/capi`, each function of C is one here, which checks what it is given, calls the Rust library, and keeps what went wrong for
//! the thread.

pub mod artifact;
pub mod compiler;
pub mod failure;

/// The functions that run models are part of this library.
pub use tilewright_capi as capi;
