//! The runtime inside a model's library for C programs (`tilewright compile --emit static`), where the model is more than straight code.
//!
//! `cargo xtask cross` makes one object of it, which knows no system and calls nothing but `memcpy` and the like. The compiler adds the
//! artifact to that object, and gives the functions the model's name. What they do is [`instance`]; the C declarations are in the header that
//! the compiler writes.
//!
//! Memory is the caller's: that of the model holds a heap for Rust's collections, for which a bound is proven
//! ([`Needs`](tilewright_runtime::artifact::Needs)), and each run is given a workspace for tensors. So several threads may run the model at once,
//! each with memory of its own ([`calls`]).
#![cfg_attr(not(test), no_std)]

extern crate alloc;

#[cfg(feature = "alone")]
mod alone;
pub mod calls;
pub mod instance;
mod operands;
pub mod status;
