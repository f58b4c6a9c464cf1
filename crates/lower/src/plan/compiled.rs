//! Functions as code generation leaves them.

use tilewright_runtime::plan::KernelId;
use tilewright_te::kernel::TaskGrid;
use tilewright_te::{Buffer, Func};

/// What code generation made of one function of the program.
#[derive(Clone, Debug)]
pub struct CompiledFunc {
    /// The scheduled function: its buffers give parameters, workspaces and sizes.
    pub func: Func,
    /// The kernels to run, in order.
    pub kernels: Vec<CompiledKernel>,
    /// For each input, what is made of it at compile time: functions of one input and one output, each applied to what
    /// the one before gave. Only constant inputs may have any.
    pub packing: Vec<Vec<Func>>,
}

impl CompiledFunc {
    /// A function of no kernels, its buffers as they are before it is scheduled.
    pub(super) fn without_code(func: &Func) -> CompiledFunc {
        let func = Func { body: Vec::new(), ..func.clone() };
        CompiledFunc { packing: vec![Vec::new(); func.n_inputs], func, kernels: Vec::new() }
    }
}

/// One kernel of a function.
#[derive(Clone, Debug)]
pub struct CompiledKernel {
    /// Index into the plan's kernels.
    pub kernel: KernelId,
    /// Buffers of the function, in the order of the kernel's parameters.
    pub buffers: Vec<Buffer>,
    /// Number of tasks, over the function's size variables.
    pub grid: TaskGrid,
}
