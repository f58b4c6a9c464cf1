//! A plan as straight code: calls of kernels on known addresses, one after the other.
//!
//! That is possible where every size is known and no instruction decides what runs. Everything that stands in the way is told at once.

use std::collections::BTreeMap;
use std::fmt;

use tilewright_machine::{Address, Base, Check, RunFunction, RunStep};
use tilewright_runtime::plan::{
    ALIGN, BufferId, Instr, KernelDef, Place, Plan, PlanOp, SizeId, Space, TensorSpec,
};

/// What a plan has that straight code has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// An extent of an input that only a run tells.
    OpenDim {
        /// Name of the input.
        input: String,
        /// The axis.
        axis: usize,
        /// The dimension's name, if it has one.
        dim: Option<String>,
    },
    /// An input or output that is a sequence, an optional, or a tensor of strings or of open rank.
    HostValue {
        /// Its name.
        name: String,
    },
    /// Something that is decided or sized while the model runs.
    Dynamic {
        /// The nodes it comes from.
        nodes: String,
        /// What it is.
        what: &'static str,
    },
    /// An operator of the runtime's library of host operators.
    HostOperator {
        /// The nodes it comes from.
        nodes: String,
    },
    /// A condition that no run meets.
    NeverRuns {
        /// What the user is told then.
        message: String,
    },
}

impl Obstacle {
    /// Whether a library with a runtime in it has what is in the way.
    pub(super) fn is_for_the_runtime(&self) -> bool {
        match self {
            Obstacle::OpenDim { .. } | Obstacle::Dynamic { .. } => true,
            Obstacle::HostValue { .. } | Obstacle::HostOperator { .. } | Obstacle::NeverRuns { .. } => false,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::OpenDim { input, axis, dim: Some(dim) } => {
                write!(f, "axis {axis} of input {input:?} is open: fix it by `--dim {dim}=N`")
            }
            Obstacle::OpenDim { input, axis, dim: None } => {
                write!(f, "axis {axis} of input {input:?} is open: fix it by `--dim '{input}[{axis}]=N'`")
            }
            Obstacle::HostValue { name } => write!(f, "{name:?} is not a tensor of numbers"),
            Obstacle::Dynamic { nodes, what } => write!(f, "{what} ({nodes})"),
            Obstacle::HostOperator { nodes } => {
                write!(f, "an operator that the runtime's library of host operators has ({nodes})")
            }
            Obstacle::NeverRuns { message } => write!(f, "no run succeeds: {message}"),
        }
    }
}

/// A plan as straight code.
#[derive(Debug)]
pub(super) struct Straight {
    pub(super) function: RunFunction,
    pub(super) workspace_bytes: u64,
    /// For each input its extents, and for each output.
    pub(super) inputs: Vec<Vec<u64>>,
    pub(super) outputs: Vec<Vec<u64>>,
}

/// Makes straight code of a plan for the host that calls the kernels by these names. `symbol` and `weights` are what the function and the
/// weights are called. Where `loads_elements`, kernels read and write memory element by element, aligned as elements are.
pub(super) fn straight(
    plan: &Plan,
    kernels: &[&str],
    [symbol, weights]: [&str; 2],
    loads_elements: bool,
) -> Result<Straight, Vec<Obstacle>> {
    let mut builder = Builder {
        plan,
        kernels,
        loads_elements,
        sizes: plan.fixed_sizes(),
        aligns: BTreeMap::new(),
        obstacles: Vec::new(),
    };
    builder.interface();
    let steps = builder.steps();
    let blocks = builder.blocks();
    let [inputs, outputs] =
        [&plan.inputs, &plan.outputs].map(|specs| specs.iter().map(|spec| builder.extents(spec)).collect());
    let checks = builder.aligns.iter().map(|(&base, &align)| Check { base, align }).collect();
    let workspace_bytes = blocks.last().map_or(plan.arena.bytes, |(offset, bytes)| offset + bytes);
    if !builder.obstacles.is_empty() {
        // Inputs that share an open dimension are all named; what follows from one cause is named once.
        builder.obstacles.dedup();
        return Err(builder.obstacles);
    }
    let function = RunFunction { symbol: symbol.to_owned(), weights: weights.to_owned(), checks, steps };
    Ok(Straight { function, workspace_bytes, inputs, outputs })
}

struct Builder<'a> {
    plan: &'a Plan,
    kernels: &'a [&'a str],
    loads_elements: bool,
    sizes: Vec<Option<i64>>,
    /// What kernels assume of memory that the caller gives.
    aligns: BTreeMap<Base, u64>,
    obstacles: Vec<Obstacle>,
}

impl Builder<'_> {
    fn size(&self, id: SizeId) -> Option<i64> {
        self.sizes.get(id.index()).copied().flatten()
    }

    fn bytes(&self, id: SizeId) -> Option<u64> {
        self.size(id).and_then(|bytes| u64::try_from(bytes).ok())
    }

    fn extents(&self, spec: &TensorSpec) -> Vec<u64> {
        spec.dims.iter().map(|dim| self.bytes(dim.size).unwrap_or_default()).collect()
    }

    /// What inputs and outputs have that a caller in C cannot give.
    fn interface(&mut self) {
        for input in &self.plan.inputs {
            for (axis, dim) in input.dims.iter().enumerate() {
                if self.size(dim.size).is_none() {
                    let (input, dim) = (input.name.clone(), dim.name.clone());
                    self.obstacles.push(Obstacle::OpenDim { input, axis, dim });
                }
            }
        }
        let values = self.plan.value_inputs.iter().chain(&self.plan.value_outputs);
        self.obstacles.extend(values.map(|value| Obstacle::HostValue { name: value.name.clone() }));
    }

    fn dynamic(&mut self, instr: &Instr, what: &'static str) {
        let nodes = self.plan.text(instr.provenance).to_owned();
        self.obstacles.push(Obstacle::Dynamic { nodes, what });
    }

    /// What is in the way of an instruction is more than that an input is open.
    fn is_open(&self) -> bool {
        self.obstacles.iter().any(|obstacle| matches!(obstacle, Obstacle::OpenDim { .. }))
    }

    /// Follows the plan from its first instruction to its end.
    fn steps(&mut self) -> Vec<RunStep> {
        let plan = self.plan;
        let mut steps = Vec::new();
        let mut at = 0;
        while let Some(instr) = plan.instrs.get(at) {
            at += 1;
            match &instr.op {
                PlanOp::Call { kernel, buffers, sizes, rounds, per_round, .. } => {
                    let kernel = (&plan.kernels[kernel.index()], self.kernels[kernel.index()]);
                    match self.call(kernel, buffers, sizes, [*rounds, *per_round]) {
                        Some(step) => steps.extend(step),
                        None if self.is_open() => {}
                        None => self.dynamic(instr, "sizes that are computed while the model runs"),
                    }
                }
                PlanOp::Copy { from, to } => match self.copy(*from, *to) {
                    Some(step) => steps.extend(step),
                    None if self.is_open() => {}
                    None => self.dynamic(instr, "sizes that are computed while the model runs"),
                },
                PlanOp::Guard { lhs, cmp, rhs, message } => match (self.size(*lhs), self.size(*rhs)) {
                    (Some(lhs), Some(rhs)) if cmp.holds(lhs, rhs) => {}
                    (Some(_), Some(_)) => {
                        let message = plan.text(*message).to_owned();
                        self.obstacles.push(Obstacle::NeverRuns { message });
                    }
                    _ if self.is_open() => {}
                    _ => self.dynamic(instr, "a condition on what is computed while the model runs"),
                },
                PlanOp::BranchIfZero { slot, target } => match self.size(*slot) {
                    Some(0) if *target as usize >= at => at = *target as usize,
                    Some(1..) => {}
                    _ => self.dynamic(instr, "a branch or loop"),
                },
                PlanOp::Jump { target } => match *target as usize {
                    target if target >= at => at = target,
                    _ => self.dynamic(instr, "a loop"),
                },
                PlanOp::Host { .. } | PlanOp::CopyValue { .. } | PlanOp::ReadDim { .. } => {
                    let nodes = plan.text(instr.provenance).to_owned();
                    self.obstacles.push(Obstacle::HostOperator { nodes });
                }
                PlanOp::Alloc { .. } | PlanOp::Grow { .. } | PlanOp::Free { .. } => {
                    self.dynamic(instr, "memory of a size that is computed while the model runs");
                }
                PlanOp::ReadSize { .. }
                | PlanOp::ScaleSize { .. }
                | PlanOp::WriteSize { .. }
                | PlanOp::SetSize { .. } => {
                    self.dynamic(instr, "an extent that is computed while the model runs");
                }
            }
        }
        steps
    }

    /// The step of a call; none where it has no tasks.
    fn call(
        &mut self,
        (def, name): (&KernelDef, &str),
        buffers: &[BufferId],
        sizes: &[SizeId],
        [rounds, per_round]: [SizeId; 2],
    ) -> Option<Option<RunStep>> {
        if def.space != Space::Host {
            return None;
        }
        let tasks = self.size(rounds)?.checked_mul(self.size(per_round)?)?;
        let sizes = sizes.iter().map(|&size| self.size(size)).collect::<Option<Vec<i64>>>()?;
        let addresses =
            buffers.iter().map(|&buffer| self.address(buffer)).collect::<Option<Vec<Address>>>()?;
        if tasks <= 0 {
            return Some(None);
        }
        for ((address, param), buffer) in addresses.iter().zip(&def.params).zip(buffers) {
            let element = self.plan.buffers[buffer.index()].dtype.bytes() as u64;
            self.demand(*address, if self.loads_elements { element } else { u64::from(param.align) });
        }
        Some(Some(RunStep::Call { kernel: name.to_owned(), buffers: addresses, sizes, tasks }))
    }

    fn copy(&mut self, from: BufferId, to: BufferId) -> Option<Option<RunStep>> {
        let bytes = self.bytes(self.plan.buffers[to.index()].size_bytes)?;
        let [from, to] = [self.address(from)?, self.address(to)?];
        if bytes == 0 {
            return Some(None);
        }
        [from, to].into_iter().for_each(|address| self.demand(address, 1));
        Some(Some(RunStep::Copy { from, to, bytes }))
    }

    /// Notes what a step assumes of an address.
    fn demand(&mut self, Address { base, offset }: Address, align: u64) {
        debug_assert!(offset.is_multiple_of(align), "a buffer at {offset} is aligned to {align}");
        // Weights are aligned for all.
        if base != Base::Weights {
            let known = self.aligns.entry(base).or_insert(1);
            *known = (*known).max(align);
        }
    }

    fn address(&self, buffer: BufferId) -> Option<Address> {
        let def = &self.plan.buffers[buffer.index()];
        let at = |base, offset| Some(Address { base, offset });
        match def.place {
            Place::Input(i) => at(Base::Input(i), 0),
            Place::Output(i) => at(Base::Output(i), 0),
            Place::Weight { offset, .. } => at(Base::Weights, offset),
            Place::Arena { offset } => at(Base::Workspace, offset),
            Place::Block(block) => at(Base::Workspace, self.blocks().get(block as usize)?.0),
            Place::Dynamic => None,
            Place::Alias { buffer, byte_offset } => {
                let whole = self.address(buffer)?;
                at(whole.base, whole.offset.checked_add(self.bytes(byte_offset)?)?)
            }
        }
    }

    /// Start and bytes of each block of the arena, as far as they are known.
    fn blocks(&self) -> Vec<(u64, u64)> {
        let mut end = self.plan.arena.bytes;
        let block = |&size: &SizeId| {
            let bytes = self.bytes(size)?;
            let start = end.next_multiple_of(ALIGN as u64);
            end = start.checked_add(bytes)?;
            Some((start, bytes))
        };
        self.plan.arena.blocks.iter().map_while(block).collect()
    }
}
