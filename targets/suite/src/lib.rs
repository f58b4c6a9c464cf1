//! Conformance suite of code generators: one set of kernels, every target, an evaluator as oracle.
//!
//! A case is a kernel with the contents of its buffers ([`Case`]). [`eval`] says what it means, lane by lane
//! and without any cleverness; [`run`] compiles, links and calls it. The two must agree bit for bit, a NaN
//! with any NaN. The cases ([`cases`]) cover every operation on every element type at lane counts that do and
//! do not fill vector registers. A new code generator passes when `check(&cases::all(), ...)` does.

pub mod build;
pub mod by_rules;
pub mod cases;
pub mod eval;
pub mod kernels;
pub mod run;
pub mod scheduled;

use tilewright_dtype::DType;
use tilewright_machine::{CodegenError, ObjectCode, Target};
use tilewright_te::kernel::{Access, Kernel};

use crate::run::Place;

/// A kernel and what to run it on.
#[derive(Clone, Debug)]
pub struct Case {
    /// The kernel.
    pub kernel: Kernel,
    /// Contents of the buffers before the run, in the order of the kernel's buffers.
    pub buffers: Vec<Vec<u8>>,
    /// The symbolic extents.
    pub sizes: Vec<i64>,
    /// Number of tasks.
    pub tasks: i64,
    /// What parts of the buffers mean: for the message of a failure.
    pub regions: Vec<Region>,
}

/// A range of elements of a buffer with a name.
#[derive(Clone, Debug)]
pub struct Region {
    /// Index of the buffer.
    pub buffer: usize,
    /// First element.
    pub first: usize,
    /// What is computed there.
    pub what: String,
}

impl Case {
    /// Its code.
    ///
    /// # Errors
    /// Where the kernel does not compile: its name, and why.
    pub fn compile(&self, compile: CompileKernel, target: &Target) -> Result<ObjectCode, String> {
        compile(&self.kernel, target).map_err(|error| format!("{}: {error}", self.kernel.name))
    }
}

/// A code generator's `compile_kernel`.
pub type CompileKernel = fn(&Kernel, &Target) -> Result<ObjectCode, CodegenError>;

/// Runs every case in this process and returns a line for each that fails.
pub fn check(cases: &[Case], compile: CompileKernel, target: &Target) -> Vec<String> {
    let outcome = |case: &Case| check_at(&mut Place::Here, case, &case.compile(compile, target)?);
    cases.iter().filter_map(|case| outcome(case).err()).collect()
}

/// Runs the code of a case somewhere.
///
/// # Errors
/// What does not run, or which element is wrong.
pub fn check_at(place: &mut Place, case: &Case, code: &ObjectCode) -> Result<(), String> {
    let name = &case.kernel.name;
    // In two ranges, as threads would take them.
    let ranges = [0..case.tasks / 2, case.tasks / 2..case.tasks];
    let found =
        place.run(code, &case.buffers, &case.sizes, &ranges).map_err(|error| format!("{name}: {error}"))?;
    let found: Vec<&[u8]> = found.iter().map(Vec::as_slice).collect();
    compare(case, &found)
}

/// Holds the contents of the buffers after all tasks were run against what the evaluator makes of them.
///
/// # Errors
/// The first element that differs, what it means, and both values.
pub fn compare(case: &Case, found: &[&[u8]]) -> Result<(), String> {
    let name = &case.kernel.name;
    let mut expected = case.buffers.clone();
    eval::run(&case.kernel, &mut expected, &case.sizes, 0..case.tasks)
        .map_err(|error| format!("{name}: {error}"))?;
    for (i, buffer) in case.kernel.buffers.iter().enumerate() {
        if buffer.access == Access::Read && found[i] != case.buffers[i] {
            return Err(format!("{name}: `{}` is only read, yet it changed", buffer.name));
        }
        if let Some(element) = first_difference(buffer.dtype, &expected[i], found[i]) {
            let region = case.regions.iter().rev().find(|r| r.buffer == i && r.first <= element);
            let (what, at) = region.map_or(("", element), |r| (r.what.as_str(), element - r.first));
            let bytes = buffer.dtype.bytes();
            let show = |all: &[u8]| eval::show(buffer.dtype, &all[element * bytes..(element + 1) * bytes]);
            return Err(format!(
                "{name}: {what} element {at} is {}, expected {}",
                show(found[i]),
                show(&expected[i])
            ));
        }
    }
    Ok(())
}

/// The first element whose bits differ; one NaN is as good as another.
fn first_difference(dtype: DType, expected: &[u8], found: &[u8]) -> Option<usize> {
    let bytes = dtype.bytes();
    expected
        .chunks_exact(bytes)
        .zip(found.chunks_exact(bytes))
        .position(|(a, b)| a != b && !(dtype.is_float() && eval::is_nan(dtype, a) && eval::is_nan(dtype, b)))
}
