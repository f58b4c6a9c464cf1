//! Building the plan: buffers of values, instructions of steps.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_dtype::DType;
use tilewright_graph::dim::Dim;
use tilewright_graph::{Comparison, Graph, Op, Provenance, RegionId, SymbolId, SymbolKind, ValueId};
use tilewright_runtime::artifact::StepDef;
use tilewright_runtime::plan::{
    BufferDef, BufferId, Cmp, DimSpec, HostId, Instr, KernelDef, Place, Plan, PlanOp, SizeBounds, SizeDef,
    SizeId, Space, TensorSpec, ValueSpec, ValueType,
};
use tilewright_te::{Buffer, Var};

use super::compiled::CompiledFunc;
use super::guards::PendingGuards;
use super::stored::stored_elements;
use super::texts::Texts;
use super::weights::Weights;
use crate::error::{Gap, LowerError};
use crate::host::is_host_value;
use crate::program::{Program, Step};
use crate::sizes::SizeTable;
use crate::work::Work;

/// Where a buffer will live, until memory is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// The place is final.
    Fixed(Place),
    /// To be planned: arena or, where the size is known only at run time, dynamic.
    Planned,
}

/// Why a kernel cannot have a value as an operand.
pub(super) const NO_BUFFER: &str = "kernels take only tensors of numbers whose rank is known at compile time";

/// A plan with what is known of it.
#[derive(Debug)]
pub struct Planned {
    /// The plan, valid for the weights so far.
    pub plan: Plan,
    /// What the instructions of each step compute.
    pub steps: Vec<StepDef>,
    /// The largest sum of sizes of arena buffers alive at once: what no plan can do without, in bytes.
    pub arena_lower_bound: u64,
    /// The same of the arena on the device.
    pub device_arena_lower_bound: u64,
}

pub(super) struct Builder<'a> {
    pub(super) graph: &'a Graph,
    pub(super) program: &'a Program,
    pub(super) compiled: &'a [CompiledFunc],
    /// Elements of values in memory.
    pub(super) stored: FxHashMap<ValueId, Dim>,
    pub(super) weights: &'a mut Weights,
    pub(super) sizes: SizeTable,
    pub(super) texts: Texts,
    pub(super) buffers: Vec<BufferDef>,
    pub(super) homes: Vec<Home>,
    pub(super) values: FxHashMap<ValueId, BufferId>,
    /// Copies of buffers in the other space, by region, outermost first.
    pub(super) copies: Vec<FxHashMap<BufferId, BufferId>>,
    /// Buffers that are all of another one with another shape, with that one.
    pub(super) views: FxHashMap<BufferId, BufferId>,
    /// Constants as the device has them.
    pub(super) device_constants: FxHashMap<ValueId, BufferId>,
    pub(super) value_types: Vec<ValueType>,
    pub(super) host_values: FxHashMap<ValueId, HostId>,
    pub(super) value_inputs: Vec<ValueSpec>,
    value_outputs: Vec<ValueSpec>,
    pub(super) instrs: Vec<Instr>,
    kernels: Vec<KernelDef>,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    /// Which output of the graph a value is written to directly.
    pub(super) claims: FxHashMap<ValueId, usize>,
    /// Instructions `first..=last` that may run again after `last`: loops.
    pub(super) loops: Vec<(u32, u32)>,
    /// Which result and axis first shows each symbol that is no extent of an input.
    pub(super) definitions: BTreeMap<SymbolId, (ValueId, usize)>,
    /// The regions whose steps are being planned, outermost first.
    active: Vec<RegionId>,
    guards: PendingGuards,
    /// The instructions of steps, with what they compute.
    works: Vec<(Range<u32>, &'a Work)>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        program: &'a Program,
        compiled: &'a [CompiledFunc],
        kernels: Vec<KernelDef>,
        weights: &'a mut Weights,
    ) -> Result<Builder<'a>, LowerError> {
        Ok(Builder {
            graph,
            program,
            compiled,
            stored: stored_elements(graph, program, compiled)?,
            weights,
            sizes: SizeTable::default(),
            texts: Texts::default(),
            buffers: Vec::new(),
            homes: Vec::new(),
            values: FxHashMap::default(),
            copies: Vec::new(),
            views: FxHashMap::default(),
            device_constants: FxHashMap::default(),
            value_types: Vec::new(),
            host_values: FxHashMap::default(),
            value_inputs: Vec::new(),
            value_outputs: Vec::new(),
            instrs: Vec::new(),
            kernels,
            inputs: Vec::new(),
            outputs: Vec::new(),
            claims: FxHashMap::default(),
            loops: Vec::new(),
            definitions: graph.symbol_definitions(),
            active: Vec::new(),
            guards: PendingGuards::of(graph),
            works: Vec::new(),
        })
    }

    /// Where every value lives, and the instructions.
    pub(super) fn lay_out(&mut self) -> Result<(), LowerError> {
        self.texts.intern("");
        self.declare_inputs()?;
        self.claim_outputs();
        self.region(self.graph.main())?;
        self.finish_outputs()
    }

    pub(super) fn build(mut self) -> Result<Planned, LowerError> {
        self.lay_out()?;
        let spans = self.spans();
        let (arena, arena_lower_bound) = self.plan_memory(Space::Host, &spans);
        let (device_arena, device_arena_lower_bound) = self.plan_memory(Space::Device, &spans);
        let steps = self.steps();
        let plan = Plan {
            bounds: self.bounds(),
            sizes: self.sizes.into_defs(),
            buffers: self.buffers,
            arena,
            device_arena,
            weight_bytes: self.weights.bytes(),
            keep_awake: false,
            kernels: self.kernels,
            inputs: self.inputs,
            outputs: self.outputs,
            values: self.value_types,
            value_inputs: self.value_inputs,
            value_outputs: self.value_outputs,
            instrs: self.instrs,
            texts: self.texts.list,
        };
        match plan.validate() {
            Ok(()) => Ok(Planned { plan, steps, arena_lower_bound, device_arena_lower_bound }),
            Err(errors) => {
                let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
                Err(LowerError::Internal(format!("invalid plan: {}", list.join("; "))))
            }
        }
    }

    // ---- inputs, outputs, sizes

    fn declare_inputs(&mut self) -> Result<(), LowerError> {
        let is_tensor = |value: &ValueId| !is_host_value(self.graph, *value);
        let inputs: Vec<ValueId> = self.graph.inputs().iter().copied().filter(is_tensor).collect();
        // First every symbol that is an extent by itself, then expressions over them.
        for (i, &value) in inputs.iter().enumerate() {
            for (axis, dim) in self.value_dims(value)?.iter().enumerate() {
                if let Some(symbol) = dim.as_symbol()
                    && self.sizes.symbol(symbol).is_none()
                {
                    let def = SizeDef::InputDim { input: i as u32, axis: axis as u32 };
                    let slot = self.sizes.define(def);
                    self.sizes.bind(symbol, slot);
                }
            }
        }
        for (i, &value) in inputs.iter().enumerate() {
            let dims = self.value_dims(value)?;
            let shape = self.shape(value, &dims)?;
            let dtype = self.dtype(value)?;
            let place = Home::Fixed(Place::Input(i as u32));
            let buffer = self.add_buffer(dtype, shape.clone(), Space::Host, place);
            self.values.insert(value, buffer);
            let name = self.graph.value(value).name.as_deref().unwrap_or_default().to_string();
            let dims = self.dim_specs(&dims, &shape);
            self.inputs.push(TensorSpec { name, dtype, dims, buffer });
        }
        self.declare_value_inputs()
    }

    fn dim_specs(&self, dims: &[Dim], shape: &[SizeId]) -> Vec<DimSpec> {
        let name = |d: &Dim| d.as_const().is_none().then(|| d.display(&self.graph.symbols).to_string());
        dims.iter().zip(shape).map(|(d, &size)| DimSpec { name: name(d), size }).collect()
    }

    fn bounds(&self) -> Vec<SizeBounds> {
        let mut bounds = Vec::new();
        for (id, symbol) in self.graph.symbols.iter() {
            let trivial = symbol.range == tilewright_graph::Range::ANY;
            if symbol.kind == SymbolKind::Input
                && !trivial
                && let Some(size) = self.sizes.symbol(id)
                && !self.sizes.is_late(size)
            {
                let (min, max, step) = (symbol.range.lo, symbol.range.hi, symbol.range.step);
                bounds.push(SizeBounds { size, name: symbol.name.clone(), min, max, step });
            }
        }
        bounds
    }

    /// Guards of the innermost region whose extents are known by now and were not before. Those over extents of
    /// inputs come before all else the region does, others as soon as their symbols are bound.
    pub(super) fn pending_guards(&mut self) -> Result<(), LowerError> {
        let graph = self.graph;
        let Some(&region) = self.active.last() else { return Ok(()) };
        while let Some(index) = self.guards.next(graph, region, &self.sizes) {
            self.guard(&graph.guards[index])?;
        }
        Ok(())
    }

    fn guard(&mut self, guard: &tilewright_graph::Guard) -> Result<(), LowerError> {
        let text = match guard.never_holds() {
            true => guard.message.clone(),
            false => format!("{}: {}", guard.message, guard.display(&self.graph.symbols)),
        };
        let message = self.texts.intern(&text);
        let (lhs, rhs) = (self.dim_slot(&guard.left, None)?, self.dim_slot(&guard.right, None)?);
        let cmp = match guard.comparison {
            Comparison::Equal => Cmp::Eq,
            Comparison::AtMost => Cmp::Le,
        };
        self.push(PlanOp::Guard { lhs, cmp, rhs, message }, &Provenance::default());
        Ok(())
    }

    /// Lets the function that makes an output write it in place, directly or under a view.
    fn claim_outputs(&mut self) {
        let main = self.graph.main();
        let Some(steps) = self.program.regions.get(&main) else { return };
        let mut view_of: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        let mut made: FxHashMap<ValueId, ()> = FxHashMap::default();
        let mut made_on_host: FxHashMap<ValueId, ()> = FxHashMap::default();
        for step in steps {
            match step {
                Step::View { input, output, .. } => {
                    view_of.insert(*output, *input);
                }
                // What the device makes is copied to the output.
                Step::Call { outputs, .. } => {
                    let on_host = outputs.iter().filter(|value| self.home_space(**value) == Space::Host);
                    made.extend(on_host.map(|&value| (value, ())));
                }
                Step::Host { node, .. } => {
                    made_on_host.extend(self.graph.node(*node).outputs.iter().map(|&o| (o, ())));
                }
                Step::Part { .. } | Step::Extents { .. } | Step::Control { .. } => {}
            }
        }
        for (i, &value) in self.graph.outputs().iter().enumerate() {
            if is_host_value(self.graph, value) {
                continue;
            }
            let mut root = value;
            while let Some(&input) = view_of.get(&root) {
                root = input;
            }
            // A host operator allocates what it makes, which must be the output itself then and no view of it.
            let claimable = made.contains_key(&root) || (root == value && made_on_host.contains_key(&value));
            if claimable && !self.claims.contains_key(&root) {
                self.claims.insert(root, i);
            }
        }
    }

    fn finish_outputs(&mut self) -> Result<(), LowerError> {
        let names = self.graph.region(self.graph.main()).result_names.clone();
        let claimed: FxHashSet<usize> = self.claims.values().copied().collect();
        let written: FxHashMap<u32, BufferId> = self.output_buffers();
        for (i, &value) in self.graph.outputs().to_vec().iter().enumerate() {
            let name = names.get(i).cloned().unwrap_or_default();
            if is_host_value(self.graph, value) {
                let id = self.value_of(value)?;
                self.value_outputs.push(ValueSpec { name, position: i as u32, value: id });
                continue;
            }
            let dims = self.value_dims(value)?;
            let shape = self.shape(value, &dims)?;
            let dtype = self.dtype(value)?;
            let index = self.output_index(i);
            let place = Place::Output(index);
            let buffer = if let Some(&buffer) = written.get(&index).filter(|_| claimed.contains(&i)) {
                buffer
            } else {
                let from = self.operand(value)?;
                let to = self.add_buffer(dtype, shape.clone(), Space::Host, Home::Fixed(place));
                if self.is_late(to) {
                    self.push(PlanOp::Alloc { buffer: to }, &Provenance::default());
                }
                self.push(PlanOp::Copy { from, to }, &Provenance::default());
                to
            };
            let dims = self.dim_specs(&dims, &shape);
            self.outputs.push(TensorSpec { name, dtype, dims, buffer });
        }
        Ok(())
    }

    /// The first buffer that lies in each output.
    fn output_buffers(&self) -> FxHashMap<u32, BufferId> {
        let mut buffers = FxHashMap::default();
        for (i, buffer) in self.buffers.iter().enumerate() {
            if let Place::Output(index) = buffer.place {
                buffers.entry(index).or_insert(BufferId(i as u32));
            }
        }
        buffers
    }

    // ---- values and buffers

    pub(super) fn value_dims(&self, value: ValueId) -> Result<Vec<Dim>, LowerError> {
        match self.graph.dims(value) {
            Some(dims) => Ok(dims.to_vec()),
            None => Err(self.value_gap(value, NO_BUFFER)),
        }
    }

    pub(super) fn dtype(&self, value: ValueId) -> Result<DType, LowerError> {
        match self.graph.tensor_type(value) {
            Some(ty) => Ok(ty.dtype),
            None => Err(self.value_gap(value, NO_BUFFER)),
        }
    }

    /// The error for a value that the plan cannot express.
    pub(super) fn value_gap(&self, value: ValueId, reason: &str) -> LowerError {
        LowerError::Unsupported(vec![Gap::of_value(self.graph, value, reason)])
    }

    pub(super) fn dim_slot(&mut self, dim: &Dim, value: Option<ValueId>) -> Result<SizeId, LowerError> {
        loop {
            match self.sizes.dim(dim) {
                Ok(slot) => return Ok(slot),
                Err(symbol) => self.define_symbol(symbol, value)?,
            }
        }
    }

    pub(super) fn shape(&mut self, value: ValueId, dims: &[Dim]) -> Result<Vec<SizeId>, LowerError> {
        dims.iter().map(|d| self.dim_slot(d, Some(value))).collect()
    }

    pub(super) fn push(&mut self, op: PlanOp, provenance: &Provenance) {
        let names: Vec<&str> = provenance.names().collect();
        let provenance = self.texts.intern(&names.join(" "));
        self.instrs.push(Instr { op, provenance });
    }

    pub(super) fn region(&mut self, region: RegionId) -> Result<(), LowerError> {
        let program = self.program;
        let Some(steps) = program.regions.get(&region) else {
            return Err(LowerError::Internal(format!("{region} has no steps")));
        };
        self.active.push(region);
        self.copies.push(FxHashMap::default());
        self.pending_guards()?;
        steps.iter().try_for_each(|step| self.step(step))?;
        self.copies.pop();
        self.active.pop();
        Ok(())
    }

    fn step(&mut self, step: &'a Step) -> Result<(), LowerError> {
        match step {
            Step::Call { func, inputs, outputs, sizes, provenance, work, .. } => {
                let first = self.instrs.len() as u32;
                self.call(*func, inputs, outputs, sizes, provenance)?;
                self.worked(first, work);
                Ok(())
            }
            Step::View { input, output, provenance } if is_host_value(self.graph, *output) => {
                self.capture_one(*input, *output, provenance)
            }
            Step::View { input, output, .. } => {
                let from = self.operand(*input)?;
                let dims = self.value_dims(*output)?;
                let shape = self.shape(*output, &dims)?;
                let dtype = self.dtype(*output)?;
                let buffer = self.alias(from, dtype, shape);
                self.views.insert(buffer, from);
                self.values.insert(*output, buffer);
                Ok(())
            }
            Step::Part { outputs, copies, provenance } => {
                for &output in outputs.iter() {
                    self.placed(output, provenance)?;
                }
                let space = outputs.first().map_or(Space::Host, |&output| self.home_space(output));
                for &(value, part) in copies {
                    let from = self.operand_in(value, space, provenance)?;
                    let to = self.part(value, part, provenance)?;
                    self.push(PlanOp::Copy { from, to }, provenance);
                }
                Ok(())
            }
            Step::Extents { output, provenance } => self.extents(*output, provenance),
            Step::Host { node, op, work } => {
                let first = self.instrs.len() as u32;
                self.host(*node, op)?;
                self.worked(first, work);
                Ok(())
            }
            Step::Control { node } => self.control(*node),
        }
    }

    /// Notes what the instructions from `first` on compute.
    fn worked(&mut self, first: u32, work: &'a Work) {
        self.works.push((first..self.instrs.len() as u32, work));
    }

    /// What each step computes; extents that the plan never defines leave a count open.
    fn steps(&mut self) -> Vec<StepDef> {
        let works = std::mem::take(&mut self.works);
        let mut slot = |dim: &Option<Dim>| self.sizes.dim(dim.as_ref()?).ok();
        let step = |(instrs, work): (Range<u32>, &Work)| StepDef {
            instrs,
            operators: work.operators.clone(),
            flops: slot(&work.flops),
            bytes: slot(&work.bytes),
        };
        works.into_iter().map(step).collect()
    }

    fn call(
        &mut self,
        func: usize,
        inputs: &[ValueId],
        outputs: &[ValueId],
        sizes: &[Dim],
        provenance: &Provenance,
    ) -> Result<(), LowerError> {
        let (compiled, space) = (&self.compiled[func], self.program.funcs[func].space);
        let mut places: FxHashMap<Buffer, BufferId> = FxHashMap::default();
        let (params_in, params_out) = compiled.func.params.split_at(compiled.func.n_inputs);
        for ((&param, &value), packing) in params_in.iter().zip(inputs).zip(&compiled.packing) {
            let buffer = match &packing[..] {
                [] => self.operand_in(value, space, provenance)?,
                packing => self.packed(value, packing, space)?,
            };
            places.insert(param, buffer);
        }
        for (&param, table) in params_in[inputs.len()..].iter().zip(&self.program.funcs[func].tables) {
            let buffer = self.constant_buffer(table.clone(), space)?;
            places.insert(param, buffer);
        }
        for (&param, &value) in params_out.iter().zip(outputs) {
            let buffer = self.result(value, provenance)?;
            places.insert(param, buffer);
        }
        let mut slots: FxHashMap<Var, SizeId> = FxHashMap::default();
        let mut size_args = Vec::new();
        for (&var, dim) in compiled.func.sizes.iter().zip(sizes) {
            let slot = self.dim_slot(dim, outputs.first().copied())?;
            slots.insert(var, slot);
            size_args.push(slot);
        }
        let lookup = |var: Var| slots.get(&var).copied();
        for buffer in compiled.func.workspaces() {
            if !compiled.kernels.iter().any(|k| k.buffers.contains(&buffer)) {
                continue;
            }
            let data = &compiled.func.buffers[buffer];
            let shape: Option<Vec<SizeId>> = data.shape.iter().map(|e| self.sizes.expr(e, &lookup)).collect();
            let Some(shape) = shape else {
                return Err(LowerError::Internal(format!("workspace `{}` has no size", data.name)));
            };
            let id = self.add_buffer(data.dtype, shape, space, Home::Planned);
            if self.is_late(id) {
                self.push(PlanOp::Alloc { buffer: id }, provenance);
            }
            places.insert(buffer, id);
        }
        for kernel in &compiled.kernels {
            let mut size = |e: &tilewright_te::Expr| {
                let internal = || LowerError::Internal("a kernel's number of tasks is no size".to_string());
                self.sizes.expr(e, &lookup).ok_or_else(internal)
            };
            let (rounds, per_round) = (size(&kernel.grid.rounds)?, size(&kernel.grid.per_round)?);
            let buffers: Option<Vec<BufferId>> =
                kernel.buffers.iter().map(|b| places.get(b).copied()).collect();
            let Some(buffers) = buffers else {
                return Err(LowerError::Internal("a kernel's buffer has no place".to_string()));
            };
            let (kernel, sizes, in_order) = (kernel.kernel, size_args.clone(), kernel.grid.in_order);
            self.push(PlanOp::Call { kernel, buffers, sizes, rounds, per_round, in_order }, provenance);
        }
        Ok(())
    }

    /// Writes extents into an integer tensor.
    fn extents(&mut self, output: ValueId, provenance: &Provenance) -> Result<(), LowerError> {
        let Some(node) = self.graph.producer(output) else {
            return Err(LowerError::Internal(format!("{output} has no producer")));
        };
        let node = self.graph.node(node);
        let dims: Vec<Dim> = match (&node.op, node.input(0)) {
            (Op::FromDims(attrs), _) => attrs.values.clone(),
            (Op::Shape(attrs), Some(input)) => {
                let dims = self.value_dims(input)?;
                let end = attrs.end.min(dims.len());
                dims[attrs.start.min(end)..end].to_vec()
            }
            (Op::Size, Some(input)) => vec![Dim::product(&self.value_dims(input)?)],
            _ => return Err(LowerError::Internal(format!("{output} holds no extents"))),
        };
        let buffer = self.result(output, provenance)?;
        for (element, dim) in dims.iter().enumerate() {
            let value = self.dim_slot(dim, Some(output))?;
            self.push(PlanOp::WriteSize { buffer, element: element as u32, value }, provenance);
        }
        Ok(())
    }
}
