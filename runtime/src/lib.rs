//! The deployable runtime: artifact format, loader, executor, thread pool.
//!
//! The core is `no_std` and `alloc`; the feature `std` adds threads and loading from files.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod plan;
