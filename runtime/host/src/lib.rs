//! Host operators: the closed list of operators that are Rust code instead of kernels.
//!
//! They select by data (results whose extents are known only when they have run), or work on values that no buffer
//! can hold: sequences, optionals, strings. [`HostOp`] is the list, with a stable code and the attributes of each; the
//! compiler writes them into plans, and [`Registry`] runs them for the runtime. What an operator computes is one
//! function of its operands, [`HostOp::run`], which the reference calls too.
//!
//! The crate is `no_std` and `alloc`, but for regular expressions, which the feature `std` adds. Operators trust neither attributes nor operands: what does not fit is an error.
#![cfg_attr(not(any(test, feature = "std")), no_std)]

extern crate alloc;

mod args;
mod attrs;
mod boxes;
mod ngrams;
mod op;
mod order;
mod pattern;
mod random;
mod registry;
mod select;
mod sequence;
mod text;

pub use attrs::{
    Case, CompressAttrs, ConcatAttrs, Distribution, MultinomialAttrs, NgramAttrs, NgramMode, NmsAttrs,
    NormalizeAttrs, Pool, RandomAttrs, SplitAttrs, StringSplitAttrs, StringsAttrs, UniqueAttrs,
};
pub use op::{DecodeError, HostOp};
pub use registry::Registry;

/// The outcome of an operator: an error is a message for the user.
type Result<T> = core::result::Result<T, alloc::string::String>;
