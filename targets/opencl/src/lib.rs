//! Kernels as OpenCL C 1.2.
//!
//! A work-group is a task, its work-items are the threads: lanes in dimension 0, warps in dimension 1. A kernel takes the buffers, the
//! extents as `long`, and the first task as `long`; group `n` runs the `n`-th task from there. Where OpenCL 1.2 lacks something, what
//! it has stands in: shuffles go through local memory, asynchronous copies are plain ones.
//!
//! Each lane of a vector is a variable of its own, so that any number of lanes will do; what comes out is what the interpreter
//! computes, bit for bit, on a device that divides and takes roots with correct rounding and keeps subnormal numbers. Programs are to
//! be built with [`OPTIONS`].

mod error;
mod expr;
mod kernel;
mod types;

use std::collections::HashSet;

use tilewright_te::kernel::Kernel;

pub use error::PrintError;
pub use types::symbol;

/// Options for the device's compiler: language, and correct rounding of binary32 division and roots.
pub const OPTIONS: &str = "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";

/// The kernels as one program.
///
/// # Errors
/// Malformed kernels, two of one name, element types that must have been expanded, and shuffles where not all warps arrive.
pub fn print(kernels: &[Kernel]) -> Result<String, PrintError> {
    let mut out = String::from(PRELUDE);
    let mut symbols = HashSet::new();
    for kernel in kernels {
        if !symbols.insert(symbol(&kernel.name)) {
            let reason = "another kernel of the program has its name".to_owned();
            return Err(PrintError::Invalid { kernel: kernel.name.clone(), reason });
        }
        kernel::print(kernel, &mut out)?;
    }
    Ok(out)
}

/// One kernel, without the [`PRELUDE`] of its program.
///
/// # Errors
/// As [`print`].
pub fn print_kernel(kernel: &Kernel) -> Result<String, PrintError> {
    let mut out = String::new();
    kernel::print(kernel, &mut out)?;
    Ok(out)
}

/// What a program begins with: integer division as kernels have it. Nothing traps, and the least integer by -1 wraps.
pub const PRELUDE: &str = "\
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
#define SIGNED(T, W) \\
  T div_##T(T x, T y) { return y == 0 ? (T)0 : y == -1 ? (T)((W)0 - (W)x) : (T)(x / y); } \\
  T rem_##T(T x, T y) { return y == 0 ? x : y == -1 ? (T)0 : (T)(x % y); } \\
  bool below_##T(T x, T y) { T r = rem_##T(x, y); return y != 0 && r != 0 && (r < 0) != (y < 0); } \\
  T floordiv_##T(T x, T y) { return (T)((W)div_##T(x, y) - (W)below_##T(x, y)); } \\
  T floormod_##T(T x, T y) { return (T)((W)rem_##T(x, y) + (below_##T(x, y) ? (W)y : (W)0)); } \\
  T shl_##T(T x, W n) { return n >= 8 * sizeof(T) ? (T)0 : (T)((W)x << n); } \\
  T shr_##T(T x, W n) { return (T)(x >> (n >= 8 * sizeof(T) ? (W)(8 * sizeof(T) - 1) : n)); }
#define UNSIGNED(T, W) \\
  T div_##T(T x, T y) { return y == 0 ? (T)0 : (T)(x / y); } \\
  T rem_##T(T x, T y) { return y == 0 ? x : (T)(x % y); } \\
  T floordiv_##T(T x, T y) { return div_##T(x, y); } \\
  T floormod_##T(T x, T y) { return rem_##T(x, y); } \\
  T shl_##T(T x, W n) { return n >= 8 * sizeof(T) ? (T)0 : (T)((W)x << n); } \\
  T shr_##T(T x, W n) { return n >= 8 * sizeof(T) ? (T)0 : (T)(x >> n); }
SIGNED(char, uint) SIGNED(short, uint) SIGNED(int, uint) SIGNED(long, ulong)
UNSIGNED(uchar, uint) UNSIGNED(ushort, uint) UNSIGNED(uint, uint) UNSIGNED(ulong, ulong)

";
