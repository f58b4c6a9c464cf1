//! The execution plan: where every value lives and what runs in which order.
//!
//! The steps of a [`Program`] become plan instructions over buffers. What a buffer is depends on its value:
//! graph inputs and outputs are the caller's memory, constants lie in the weights, views alias, extents
//! known before the run go to the arena, the rest is allocated when its size is known. What no buffer can hold is a
//! host value.

mod builder;
mod control;
mod dynamic;
mod host;
mod loops;
mod memory_plan;

use rustc_hash::FxHashMap;
use tilewright_dtype::DType;
use tilewright_graph::{Graph, Tensor};
use tilewright_runtime::artifact::StepDef;
use tilewright_runtime::plan::{KernelDef, KernelId, Plan};
use tilewright_te::{Buffer, Expr, Func};

use crate::error::LowerError;
use crate::program::Program;

/// What code generation made of one function of the program.
#[derive(Clone, Debug)]
pub struct CompiledFunc {
    /// The scheduled function: its buffers give parameters, workspaces and sizes.
    pub func: Func,
    /// The kernels to run, in order.
    pub kernels: Vec<CompiledKernel>,
    /// For each input, how its elements are laid out anew at compile time: a function of one input and one
    /// output. Only constant inputs may have one.
    pub packing: Vec<Option<Func>>,
}

/// One kernel of a function.
#[derive(Clone, Debug)]
pub struct CompiledKernel {
    /// Index into the plan's kernels.
    pub kernel: KernelId,
    /// Buffers of the function, in the order of the kernel's parameters.
    pub buffers: Vec<Buffer>,
    /// Number of tasks, over the function's size variables.
    pub tasks: Expr,
}

/// A piece of the weights section.
#[derive(Clone, Debug)]
pub enum Weight {
    /// The bytes of a constant as they are.
    Tensor(Tensor),
    /// Bytes made at compile time.
    Packed(Vec<u8>),
}

impl Weight {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Weight::Tensor(tensor) => tensor.bytes().map_or(&[], |b| b.as_slice()),
            Weight::Packed(bytes) => bytes,
        }
    }
}

/// A plan with the weights it refers to.
#[derive(Debug)]
pub struct Planned {
    /// The plan, valid.
    pub plan: Plan,
    /// What the instructions of each step compute.
    pub steps: Vec<StepDef>,
    /// The weights in order; each starts at the next multiple of 64 bytes.
    pub weights: Vec<Weight>,
    /// The largest sum of sizes of arena buffers alive at once: what no plan can do without, in bytes.
    pub arena_lower_bound: u64,
}

/// Runs a packing function on a constant.
pub type Pack<'a> = dyn Fn(&Func, &Tensor) -> Result<Vec<u8>, String> + 'a;

/// Makes the plan of a program.
///
/// # Errors
/// Control flow or extents that the plan cannot express, and internal contradictions.
pub fn build(
    graph: &Graph,
    program: &Program,
    compiled: &[CompiledFunc],
    kernels: Vec<KernelDef>,
    pack: &Pack<'_>,
) -> Result<Planned, LowerError> {
    builder::Builder::new(graph, program, compiled, kernels, pack)?.build()
}

/// Bytes between weights, and alignment of every buffer.
const ALIGN: u64 = tilewright_runtime::plan::ALIGN as u64;

/// Strings of the plan, each once.
#[derive(Default)]
struct Texts {
    list: Vec<String>,
    index: FxHashMap<String, u32>,
}

impl Texts {
    fn intern(&mut self, text: &str) -> tilewright_runtime::plan::TextId {
        if let Some(&i) = self.index.get(text) {
            return tilewright_runtime::plan::TextId(i);
        }
        let i = self.list.len() as u32;
        self.list.push(text.to_string());
        self.index.insert(text.to_string(), i);
        tilewright_runtime::plan::TextId(i)
    }
}

/// Bytes of one element in memory, at least 1 so that strings fail elsewhere and not by zero.
pub(crate) fn element_bytes(dtype: DType) -> usize {
    dtype.bytes().max(1)
}
