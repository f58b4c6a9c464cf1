//! A model's run as one function: what a plan becomes where every extent is known.
//!
//! Every code generator offers
//! `compile_run(function: &RunFunction, target: &Target) -> Result<ObjectCode, CodegenError>`: an object that defines
//! [`RunFunction::symbol`] as
//! `extern "C" fn(inputs: *const *const u8, outputs: *const *mut u8, workspace: *mut u8) -> i32`, and refers to the
//! kernels that it calls, each as [`ObjectCode`](crate::ObjectCode) tells, and to [`RunFunction::weights`]. It calls one
//! kernel after the other on the thread that calls it, and returns 0; where an address is not what [`RunFunction::checks`]
//! demands it returns 1 and does nothing.

/// A function that runs a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFunction {
    /// Its name, which the object exports.
    pub symbol: String,
    /// Name of the first byte of the weights, which another object has.
    pub weights: String,
    /// What is checked before the first step: these addresses are neither null nor odd.
    pub checks: Vec<Check>,
    /// What it does, in order.
    pub steps: Vec<RunStep>,
}

/// Demands on an address that the caller gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// The address. Weights are not checked.
    pub base: Base,
    /// It is a multiple of this power of two, in bytes.
    pub align: u64,
}

/// One step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunStep {
    /// Calls a kernel for all of its tasks.
    Call {
        /// Its symbol.
        kernel: String,
        /// Its buffers, in order.
        buffers: Vec<Address>,
        /// Its symbolic extents.
        sizes: Vec<i64>,
        /// Number of its tasks: it is called for `0..tasks`.
        tasks: i64,
    },
    /// Copies bytes; the two ranges do not overlap.
    Copy {
        /// First byte of the source.
        from: Address,
        /// First byte of the destination.
        to: Address,
        /// Number of bytes.
        bytes: u64,
    },
}

/// An address in memory that the caller gives, or in the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Where it starts.
    pub base: Base,
    /// Bytes from there.
    pub offset: u64,
}

/// The start of a piece of memory, in the order of the function's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Base {
    /// Element of the function's first argument.
    Input(u32),
    /// Element of the function's second argument.
    Output(u32),
    /// The function's third argument.
    Workspace,
    /// The symbol of the weights.
    Weights,
}
