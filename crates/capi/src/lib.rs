//! The C library that runs compiled models: the functions that `tilewright.h` declares. `docs/c-library.md` is for its users.
//!
//! Each function of C is one here with its name, which checks what it is given, calls the Rust library, and keeps what went wrong for
//! the thread. The Rust names are for the compiler's C library (`crates/capi-compiler`), which adds functions of its own to these.
//!
//! # Invariants
//! - No panic leaves a function: where programs unwind it becomes `TW_ERROR_INTERNAL`, elsewhere it ends the process.
//! - Handles are looked up, never followed ([`handles`]).
//! - Structs that may grow say their size first.

pub mod api;
pub mod caller;
pub mod cancel;
pub mod failure;
pub mod handles;
pub mod model;
pub mod options;
pub mod run;
pub mod session;
pub mod sized;
pub mod specs;
pub mod tensors;
