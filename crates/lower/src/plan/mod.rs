//! The execution plan: where every value lives and what runs in which order.
//!
//! The steps of a [`Program`] become plan instructions over buffers. What a buffer is depends on its value:
//! graph inputs and outputs are the caller's memory, constants lie in the weights, views alias, extents
//! known before the run go to the arena, the rest is allocated when its size is known. What no buffer can hold is a
//! host value.

mod builder;
mod control;
mod dynamic;
mod guards;
mod host;
mod loops;
mod memory_plan;
mod stored;

use rustc_hash::FxHashMap;
use tilewright_digest::{Canonical, Digest, Writer};
use tilewright_dtype::DType;
use tilewright_graph::{Graph, Tensor};
use tilewright_runtime::artifact::StepDef;
use tilewright_runtime::plan::{KernelDef, KernelId, Plan};
use tilewright_te::kernel::TaskGrid;
use tilewright_te::{Buffer, Func};

use crate::error::LowerError;
use crate::program::Program;

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

/// A piece of the weights section: a constant, as it is or as a function wants it.
#[derive(Clone, Debug)]
pub struct Weight {
    /// The constant.
    pub tensor: Tensor,
    /// What is made of it: functions of one input and one output, one after the other.
    pub packing: Vec<Func>,
}

/// The weights of one or more plans, each different one once; it starts at the next multiple of 64 bytes.
#[derive(Debug, Default)]
pub struct Weights {
    list: Vec<Weight>,
    bytes: u64,
    /// Places by content and packing function.
    known: FxHashMap<(Tensor, Digest), Place>,
}

/// Offset and length in the weights section, in bytes.
type Place = (u64, u64);

impl Weights {
    /// The weights in the order of their offsets.
    pub fn into_list(self) -> Vec<Weight> {
        self.list
    }

    /// Length of the section in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The place of a weight of `len` bytes.
    fn place(&mut self, weight: Weight, len: u64) -> Place {
        let write = |writer: &mut Writer| weight.packing.iter().for_each(|func| func.write(writer));
        let key = (weight.tensor.clone(), Digest::of("packing", write));
        if let Some(&place) = self.known.get(&key) {
            return place;
        }
        let place = (self.bytes, len);
        self.bytes += len.div_ceil(ALIGN).max(1) * ALIGN;
        self.list.push(weight);
        self.known.insert(key, place);
        place
    }
}

/// A plan with what is known of it.
#[derive(Debug)]
pub struct Planned {
    /// The plan, valid for the weights so far.
    pub plan: Plan,
    /// What the instructions of each step compute.
    pub steps: Vec<StepDef>,
    /// The largest sum of sizes of arena buffers alive at once: what no plan can do without, in bytes.
    pub arena_lower_bound: u64,
}

/// Makes the plan of a program and adds its constants to the weights.
///
/// # Errors
/// Control flow or extents that the plan cannot express, and internal contradictions.
pub fn build(
    graph: &Graph,
    program: &Program,
    compiled: &[CompiledFunc],
    kernels: Vec<KernelDef>,
    weights: &mut Weights,
) -> Result<Planned, LowerError> {
    builder::Builder::new(graph, program, compiled, kernels, weights)?.build()
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
