//! Code generator that prints kernels as portable C99, for machines that no other generator knows.
//!
//! A program is one text: [`prelude`], the kernels ([`print_kernel`]), the [`weights`], and the function that calls the kernels
//! ([`run_function`]). It includes four headers of the standard library and calls nothing but `fma`, `floor` and the like, and
//! `memcpy`. Each lane of a vector is a variable of its own: compilers of C make vectors of those again where they can.
//!
//! What this crate promises:
//! - Results are those of the interpreter, bit for bit, with any compiler that keeps to IEEE 754. The prelude stops those that are told not to.
//! - Nothing is undefined: arithmetic wraps by unsigned types, shifts and conversions are bounded, and memory is read by the type
//!   that it was written by. Of what C leaves to compilers it takes one thing for granted: that conversion to a narrower integer
//!   keeps the low bits.
//! - Nothing is there that compilers warn of: variables that nothing reads are not printed.

mod error;
mod expr;
mod helpers;
mod kernel;
mod live;
mod run;
mod types;

use tilewright_machine::{CodegenError, RunFunction};
use tilewright_te::kernel::Kernel;

pub use kernel::Linkage;
pub use types::symbol;

/// One kernel as a function with the kernel's calling convention, named [`symbol`] of the kernel's name.
///
/// # Errors
/// Malformed kernels, tasks of several threads, and element types that must have been expanded.
pub fn print_kernel(kernel: &Kernel, linkage: Linkage) -> Result<String, CodegenError> {
    let mut out = String::new();
    kernel::print(kernel, linkage, &mut out)?;
    Ok(out)
}

/// Whether there is code for a kernel.
///
/// # Errors
/// As [`print_kernel`].
pub fn check_kernel(kernel: &Kernel) -> Result<(), CodegenError> {
    print_kernel(kernel, Linkage::Internal).map(drop)
}

/// What a program of these pieces of code begins with: headers, and the functions that the pieces call.
pub fn prelude<'a>(code: impl IntoIterator<Item = &'a str>) -> String {
    helpers::prelude(code)
}

/// The function that runs a model, `int32_t SYMBOL(const void *const *inputs, void *const *outputs, void *workspace)`. The kernels
/// and the weights come before it in the program; its calls name kernels as they are named before [`symbol`] makes C of it.
pub fn run_function(function: &RunFunction) -> String {
    run::function(function)
}

/// Weights as an array of a name, which a program has where there are any.
pub fn weights(symbol: &str, bytes: &[u8]) -> String {
    run::weights(symbol, bytes)
}
