//! Validation of plans: after it, no index of a plan is out of range and nothing read-only is written.

mod instrs;

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use thiserror::Error;
use tilewright_dtype::DType;

use crate::told::told;

use super::{
    ALIGN, BufferId, HostId, MAX_NESTING, Place, Plan, SizeDef, SizeId, Space, TensorSpec, TextId, ValueSpec,
};

/// The place of a fault in a plan: table and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// Entry of [`Plan::sizes`].
    Size(u32),
    /// Entry of [`Plan::bounds`].
    Bounds(u32),
    /// Entry of [`Plan::buffers`].
    Buffer(u32),
    /// Entry of [`ArenaDef::blocks`](super::ArenaDef::blocks).
    Block(u32),
    /// Entry of [`Plan::kernels`].
    Kernel(u32),
    /// Entry of [`Plan::inputs`].
    Input(u32),
    /// Entry of [`Plan::outputs`].
    Output(u32),
    /// Entry of [`Plan::values`].
    Value(u32),
    /// Entry of [`Plan::value_inputs`].
    ValueInput(u32),
    /// Entry of [`Plan::value_outputs`].
    ValueOutput(u32),
    /// Entry of [`Plan::instrs`].
    Instr(u32),
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Site::Size(i) => write!(f, "size {i}"),
            Site::Bounds(i) => write!(f, "bounds {i}"),
            Site::Buffer(i) => write!(f, "buffer {i}"),
            Site::Block(i) => write!(f, "block {i}"),
            Site::Kernel(i) => write!(f, "kernel {i}"),
            Site::Input(i) => write!(f, "input {i}"),
            Site::Output(i) => write!(f, "output {i}"),
            Site::Value(i) => write!(f, "value {i}"),
            Site::ValueInput(i) => write!(f, "value input {i}"),
            Site::ValueOutput(i) => write!(f, "value output {i}"),
            Site::Instr(i) => write!(f, "instruction {i}"),
        }
    }
}

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// An id or index that its table does not have.
    #[error("{0} does not exist")]
    Missing(String),
    /// A size defined by a slot that is not lower.
    #[error("operand {0} is not a lower slot")]
    OperandOrder(SizeId),
    /// A size that must be known from the input dims alone, but depends on a computed slot.
    #[error("{0} depends on a computed slot")]
    Late(SizeId),
    /// An instruction writes a slot that is not [`SizeDef::Computed`].
    #[error("{0} is not a computed slot")]
    NotComputed(SizeId),
    /// An offset that is no multiple of [`ALIGN`], or an alignment that is no power of two up to it.
    #[error("{0} is not aligned")]
    Misaligned(u64),
    /// Bytes outside the weights or the arena.
    #[error("bytes {start}..{end} lie outside {region} of {len} bytes")]
    OutOfRange {
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// The region's name.
        region: &'static str,
        /// The region's size.
        len: u64,
    },
    /// An alias that reaches itself.
    #[error("alias of itself")]
    AliasCycle,
    /// A call with the wrong number of buffers or sizes.
    #[error("kernel takes {expected} {what}, given {given}")]
    Arity {
        /// `buffers` or `sizes`.
        what: &'static str,
        /// By the signature.
        expected: usize,
        /// By the call.
        given: usize,
    },
    /// A write to an input or a weight.
    #[error("{0} is written, but lies in an input or a weight")]
    ReadOnly(BufferId),
    /// Allocation of a buffer that has a planned place.
    #[error("{0} is not a buffer allocated at run time")]
    NotDynamic(BufferId),
    /// An element type the instruction cannot handle.
    #[error("element type {0} is not allowed here")]
    DType(DType),
    /// Input or output and its buffer do not refer to each other, or differ in type or rank.
    #[error("does not agree with its buffer {0}")]
    Spec(BufferId),
    /// A second buffer placed at the same input or output; it should be an alias.
    #[error("is at the place of {0}, and no alias of it")]
    Second(BufferId),
    /// The same name twice among inputs, outputs or kernels.
    #[error("name {0:?} is used twice")]
    Duplicate(String),
    /// A type that is nested deeper than [`MAX_NESTING`].
    #[error("nested {0} deep")]
    Nesting(usize),
    /// A position that is none of the model's inputs or outputs, or not above the one before.
    #[error("position {0} is out of order")]
    Position(u32),
    /// Bounds that no value satisfies, or a step under 1.
    #[error("bounds admit no value")]
    EmptyBounds,
    /// Rounds in order of a kernel on a device, which runs its tasks in any order.
    #[error("a device runs rounds in any order")]
    InOrder,
    /// A buffer on a device where one of the host is needed, or the other way round.
    #[error("{buffer} is not in the memory of the {}", space_name(*.expected))]
    Space {
        /// The buffer.
        buffer: BufferId,
        /// Where it would have to be.
        expected: Space,
    },
}

const fn space_name(space: Space) -> &'static str {
    match space {
        Space::Host => "host",
        Space::Device => "device",
    }
}

/// A fault of a plan and its place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{site}: {fault}")]
pub struct PlanError {
    /// Where.
    pub site: Site,
    /// What.
    pub fault: Fault,
}

struct Validator<'a> {
    plan: &'a Plan,
    late: Vec<bool>,
    errors: Vec<PlanError>,
}

impl Plan {
    /// Checks that the plan is consistent in itself; see [`Fault`] for all that is checked.
    ///
    /// # Errors
    /// Every fault found, with its place.
    pub fn validate(&self) -> Result<(), Vec<PlanError>> {
        let mut v = Validator { plan: self, late: Vec::new(), errors: Vec::new() };
        v.sizes();
        if !v.errors.is_empty() {
            return Err(v.errors);
        }
        v.late = self.late_sizes();
        v.bounds();
        v.blocks();
        v.buffers();
        v.kernels();
        v.specs();
        v.values();
        if v.errors.is_empty() {
            // Instructions are judged by the roots of buffers, which must be sound first.
            v.instrs();
        }
        if v.errors.is_empty() { Ok(()) } else { Err(v.errors) }
    }
}

impl Validator<'_> {
    fn fail(&mut self, site: Site, fault: Fault) {
        self.errors.push(PlanError { site, fault });
    }

    fn missing(&mut self, site: Site, what: fmt::Arguments<'_>) {
        self.fail(site, Fault::Missing(told(|| what.to_string())));
    }

    fn size(&mut self, site: Site, id: SizeId) -> bool {
        let ok = id.index() < self.plan.sizes.len();
        if !ok {
            self.missing(site, format_args!("{id}"));
        }
        ok
    }

    fn early_size(&mut self, site: Site, id: SizeId) {
        if self.size(site, id) && self.late[id.index()] {
            self.fail(site, Fault::Late(id));
        }
    }

    fn computed_size(&mut self, site: Site, id: SizeId) {
        if self.size(site, id) && !matches!(self.plan.sizes[id.index()], SizeDef::Computed) {
            self.fail(site, Fault::NotComputed(id));
        }
    }

    fn buffer(&mut self, site: Site, id: BufferId) -> bool {
        let ok = id.index() < self.plan.buffers.len();
        if !ok {
            self.missing(site, format_args!("{id}"));
        }
        ok
    }

    /// A buffer that exists is in a space.
    fn in_space(&mut self, site: Site, id: BufferId, expected: Space) {
        if self.plan.buffers.get(id.index()).is_some_and(|def| def.space != expected) {
            self.fail(site, Fault::Space { buffer: id, expected });
        }
    }

    fn value(&mut self, site: Site, id: HostId) {
        if id.index() >= self.plan.values.len() {
            self.missing(site, format_args!("{id}"));
        }
    }

    fn text(&mut self, site: Site, id: TextId) {
        if cfg!(feature = "names") && id.index() >= self.plan.texts.len() {
            self.missing(site, format_args!("{id}"));
        }
    }

    fn sizes(&mut self) {
        let plan = self.plan;
        for (i, def) in plan.sizes.iter().enumerate() {
            let site = Site::Size(i as u32);
            match *def {
                SizeDef::Const(_) | SizeDef::Computed => {}
                SizeDef::InputDim { input, axis } => {
                    let rank = plan.inputs.get(input as usize).map(|spec| spec.dims.len());
                    if rank.is_none_or(|rank| axis as usize >= rank) {
                        self.missing(site, format_args!("axis {axis} of input {input}"));
                    }
                }
                SizeDef::Add(a, b)
                | SizeDef::Sub(a, b)
                | SizeDef::Mul(a, b)
                | SizeDef::FloorDiv(a, b)
                | SizeDef::CeilDiv(a, b)
                | SizeDef::Mod(a, b)
                | SizeDef::Min(a, b)
                | SizeDef::Max(a, b) => {
                    for operand in [a, b] {
                        if operand.index() >= i {
                            self.fail(site, Fault::OperandOrder(operand));
                        }
                    }
                }
            }
        }
    }

    fn bounds(&mut self) {
        let plan = self.plan;
        for (i, bounds) in plan.bounds.iter().enumerate() {
            let site = Site::Bounds(i as u32);
            self.early_size(site, bounds.size);
            if bounds.step < 1 || bounds.max.is_some_and(|max| max < bounds.min) {
                self.fail(site, Fault::EmptyBounds);
            }
        }
    }

    fn blocks(&mut self) {
        let plan = self.plan;
        for arena in [&plan.arena, &plan.device_arena] {
            for (i, &size) in arena.blocks.iter().enumerate() {
                self.early_size(Site::Block(i as u32), size);
            }
        }
    }

    fn buffers(&mut self) {
        let plan = self.plan;
        for (i, def) in plan.buffers.iter().enumerate() {
            let site = Site::Buffer(i as u32);
            self.size(site, def.size_bytes);
            for &dim in &def.shape {
                self.size(site, dim);
            }
            let bytes = match plan.sizes.get(def.size_bytes.index()) {
                Some(SizeDef::Const(bytes)) => u64::try_from(*bytes).unwrap_or(0),
                _ => 0,
            };
            let arena = plan.arena_in(def.space);
            match def.place {
                Place::Input(input) => {
                    self.in_space(site, BufferId(i as u32), Space::Host);
                    self.early_size(site, def.size_bytes);
                    match plan.inputs.get(input as usize) {
                        None => self.missing(site, format_args!("input {input}")),
                        Some(spec) => self.only_buffer(site, spec, i),
                    }
                }
                Place::Output(output) => {
                    self.in_space(site, BufferId(i as u32), Space::Host);
                    match plan.outputs.get(output as usize) {
                        None => self.missing(site, format_args!("output {output}")),
                        Some(spec) => self.only_buffer(site, spec, i),
                    }
                }
                Place::Weight { offset, len } => {
                    self.early_size(site, def.size_bytes);
                    self.range(site, offset, len.max(bytes), "the weights", plan.weight_bytes);
                }
                Place::Arena { offset } => {
                    self.early_size(site, def.size_bytes);
                    self.range(site, offset, bytes, "the arena", arena.bytes);
                }
                Place::Block(block) => {
                    self.early_size(site, def.size_bytes);
                    if block as usize >= arena.blocks.len() {
                        self.missing(site, format_args!("block {block}"));
                    }
                }
                Place::Dynamic => {}
                Place::Alias { buffer, byte_offset } => {
                    self.size(site, byte_offset);
                    if self.buffer(site, buffer) {
                        self.in_space(site, buffer, def.space);
                    }
                }
            }
        }
        self.alias_chains();
    }

    /// The memory of an input or output is that of one buffer; others are aliases of it.
    fn only_buffer(&mut self, site: Site, spec: &TensorSpec, index: usize) {
        if spec.buffer.index() != index {
            self.fail(site, Fault::Second(spec.buffer));
        }
    }

    /// Walks the chain of each buffer and marks what it visits: meeting a mark of the same walk is a cycle, meeting
    /// one of an earlier walk ends it, so that each buffer is visited once.
    fn alias_chains(&mut self) {
        let plan = self.plan;
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            Walking(usize),
            Done,
        }
        let mut marks = vec![Mark::New; plan.buffers.len()];
        for start in 0..plan.buffers.len() {
            let mut at = start;
            loop {
                match marks[at] {
                    Mark::New => marks[at] = Mark::Walking(start),
                    Mark::Walking(walk) if walk == start => {
                        self.fail(Site::Buffer(start as u32), Fault::AliasCycle);
                        break;
                    }
                    Mark::Walking(_) | Mark::Done => break,
                }
                let Place::Alias { buffer, .. } = plan.buffers[at].place else { break };
                if buffer.index() >= plan.buffers.len() {
                    break;
                }
                at = buffer.index();
            }
            marks[start] = Mark::Done;
        }
    }

    fn range(&mut self, site: Site, offset: u64, len: u64, region: &'static str, region_len: u64) {
        if offset % ALIGN as u64 != 0 {
            self.fail(site, Fault::Misaligned(offset));
        }
        let end = offset.saturating_add(len);
        if end > region_len {
            self.fail(site, Fault::OutOfRange { start: offset, end, region, len: region_len });
        }
    }

    fn kernels(&mut self) {
        let plan = self.plan;
        for (i, kernel) in plan.kernels.iter().enumerate() {
            for param in &kernel.params {
                if !param.align.is_power_of_two() || param.align as usize > ALIGN {
                    self.fail(Site::Kernel(i as u32), Fault::Misaligned(param.align.into()));
                }
            }
        }
        self.unique(plan.kernels.iter().map(|kernel| kernel.name.as_str()), Site::Kernel);
    }

    fn unique<'n>(&mut self, names: impl Iterator<Item = &'n str>, site: impl Fn(u32) -> Site) {
        if !cfg!(feature = "names") {
            return;
        }
        let mut sorted: Vec<(&str, u32)> = names.zip(0..).collect();
        sorted.sort_unstable();
        for pair in sorted.windows(2) {
            if pair[0].0 == pair[1].0 {
                self.fail(site(pair[1].1), Fault::Duplicate(told(|| pair[1].0.to_string())));
            }
        }
    }

    fn specs(&mut self) {
        let plan = self.plan;
        for (i, spec) in plan.inputs.iter().enumerate() {
            let site = Site::Input(i as u32);
            for dim in &spec.dims {
                self.early_size(site, dim.size);
            }
            self.spec_buffer(site, spec, Place::Input(i as u32));
        }
        for (i, spec) in plan.outputs.iter().enumerate() {
            let site = Site::Output(i as u32);
            for dim in &spec.dims {
                self.size(site, dim.size);
            }
            self.spec_buffer(site, spec, Place::Output(i as u32));
        }
        self.names(&plan.inputs, &plan.value_inputs, Site::Input, Site::ValueInput);
        self.names(&plan.outputs, &plan.value_outputs, Site::Output, Site::ValueOutput);
    }

    /// Tensors and host values share their names.
    fn names(
        &mut self,
        tensors: &[TensorSpec],
        values: &[ValueSpec],
        tensor_site: fn(u32) -> Site,
        value_site: fn(u32) -> Site,
    ) {
        let first_value = tensors.len() as u32;
        let site = |i: u32| i.checked_sub(first_value).map_or(tensor_site(i), value_site);
        let names = tensors.iter().map(|spec| spec.name.as_str());
        self.unique(names.chain(values.iter().map(|spec| spec.name.as_str())), site);
    }

    fn values(&mut self) {
        let plan = self.plan;
        for (i, ty) in plan.values.iter().enumerate() {
            if ty.nesting.len() > MAX_NESTING {
                self.fail(Site::Value(i as u32), Fault::Nesting(ty.nesting.len()));
            }
        }
        self.value_specs(&plan.value_inputs, plan.inputs.len(), Site::ValueInput);
        self.value_specs(&plan.value_outputs, plan.outputs.len(), Site::ValueOutput);
    }

    fn value_specs(&mut self, specs: &[ValueSpec], n_tensors: usize, site: fn(u32) -> Site) {
        let mut least = 0;
        for (i, spec) in specs.iter().enumerate() {
            let site = site(i as u32);
            self.value(site, spec.value);
            if spec.position < least || spec.position as usize >= n_tensors + specs.len() {
                self.fail(site, Fault::Position(spec.position));
            }
            least = spec.position.saturating_add(1);
        }
    }

    fn spec_buffer(&mut self, site: Site, spec: &TensorSpec, place: Place) {
        if !self.buffer(site, spec.buffer) {
            return;
        }
        let def = &self.plan.buffers[spec.buffer.index()];
        let agrees = def.place == place
            && def.dtype == spec.dtype
            && def.shape.len() == spec.dims.len()
            && def.shape.iter().zip(&spec.dims).all(|(&size, dim)| size == dim.size);
        if !agrees {
            self.fail(site, Fault::Spec(spec.buffer));
        }
    }
}
