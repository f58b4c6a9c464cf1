//! How much memory a model needs in a program without a system.
//!
//! The heap's part is a bound, found by adding up: each allocation that loading, a session and its runs make, in whole units, as if nothing
//! were ever freed. Sizes of types are formulas of the bytes of an address. Each build of the runtime holds its own types to them
//! (`fits` below), so a compiler on one machine knows the need on another.

use core::mem::size_of;

use crate::model::{Inner, KernelCode, Program, ProgramParts};
use crate::plan::{
    ALIGN, BufferDef, DimSpec, Instr, KernelDef, KernelParam, Operand, Place, Plan, PlanOp, SizeBounds,
    SizeDef, SizeId, TensorSpec, ValueSpec, ValueType,
};

use super::figures::{Figures, UNKNOWN};
use super::{
    ArtifactError, DeviceDef, DeviceKernel, ImageDef, Manifest, Plans, ProgramDef, ScheduleDef, StepDef,
};

/// Bytes of memory that a model needs in a program without a system: to load it, for one session, and for its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Heap: what Rust's collections take at most, with runs by [`Session::run`](crate::Session::run) and
    /// [`run_into`](crate::Session::run_into), and host operators left out.
    pub heap: u64,
    /// Arena and outputs of the session; nothing where they follow from the inputs. Inputs are the caller's own, aligned to [`ALIGN`] bytes.
    pub tensors: Option<u64>,
}

impl Needs {
    /// What the artifact says of itself; of several levels, what suffices for each. Allocates nothing.
    ///
    /// # Errors
    /// When head or section table are damaged.
    pub fn of(bytes: &[u8]) -> Result<Needs, ArtifactError> {
        let mut needs = Needs { heap: 0, tensors: Some(0) };
        for level in super::read::figures(bytes)? {
            needs = needs.or(&Needs::of_figures(level, size_of::<usize>(), cfg!(feature = "names")));
        }
        Ok(needs)
    }

    /// What a level needs where an address has so many bytes, by a runtime with or without `names`; `plans` are those of all levels of the
    /// artifact.
    pub fn of_level(
        manifest: &Manifest,
        plans: &[(&Plan, &[Plan])],
        level: usize,
        address: usize,
        names: bool,
    ) -> Needs {
        Needs::of_figures(figures(manifest, plans, level), address, names)
    }

    fn of_figures(figures: Figures, address: usize, names: bool) -> Needs {
        let heap = figures.heap[usize::from(address > 4)][usize::from(names)];
        Needs { heap: heap.into(), tensors: (figures.tensors != UNKNOWN).then_some(figures.tensors) }
    }

    /// What suffices for either.
    pub fn or(&self, other: &Needs) -> Needs {
        let tensors = self.tensors.zip(other.tensors).map(|(own, others)| own.max(others));
        Needs { heap: self.heap.max(other.heap), tensors }
    }

    /// Heap and tensors together; the heap alone where the inputs decide on tensors.
    pub fn total(&self) -> u64 {
        self.heap.next_multiple_of(ALIGN as u64).saturating_add(self.tensors.unwrap_or(0))
    }

    /// Memory for the heap, and the rest for tensors.
    ///
    /// # Errors
    /// When it is too small, or not aligned to [`ALIGN`] bytes.
    #[cfg(feature = "arena")]
    pub fn split<'m>(
        &self,
        memory: &'m mut [Room],
    ) -> Result<(&'m mut [Room], &'m mut [Room]), crate::ArenaError> {
        let address = memory.as_ptr().addr();
        if address % ALIGN != 0 {
            return Err(crate::ArenaError::Misaligned { address });
        }
        let (needed, given) = (self.total(), memory.len() as u64);
        match usize::try_from(self.heap.next_multiple_of(ALIGN as u64)) {
            Ok(heap) if needed <= given => Ok(memory.split_at_mut(heap)),
            Ok(_) | Err(_) => Err(crate::ArenaError::TooSmall { needed, given }),
        }
    }
}

#[cfg(feature = "arena")]
type Room = core::mem::MaybeUninit<u8>;

/// What a level needs.
pub(super) fn figures(manifest: &Manifest, plans: &[(&Plan, &[Plan])], level: usize) -> Figures {
    let heap = |address, names| {
        let mut sum = Sum { address, names, bytes: 0 };
        sum.artifact(manifest, plans);
        if let Some(&(open, specialised)) = plans.get(level) {
            sum.model(open, specialised);
        }
        u32::try_from(sum.bytes).unwrap_or(u32::MAX)
    };
    let tensors = plans.get(level).and_then(|&(open, specialised)| match specialised {
        [] => {
            let sizes = open.fixed_sizes();
            let fixed = |id: SizeId| u64::try_from((*sizes.get(id.index())?)?).ok();
            tensor_bytes(open, fixed, None)
        }
        _ => None,
    });
    let heap = [4, 8].map(|address| [false, true].map(|names| heap(address, names)));
    Figures { heap, tensors: tensors.unwrap_or(UNKNOWN) }
}

/// Arena and outputs, each in whole aligned pieces, by the sizes that are known. `late` stands for each piece that is only sized while the
/// model runs.
pub(crate) fn tensor_bytes(
    plan: &Plan,
    size: impl Fn(SizeId) -> Option<u64>,
    late: Option<u64>,
) -> Option<u64> {
    let align = |bytes: u64| bytes.checked_next_multiple_of(ALIGN as u64);
    let arena = plan
        .arena
        .blocks
        .iter()
        .try_fold(plan.arena.bytes, |end, &block| align(end)?.checked_add(size(block)?));
    plan.buffers.iter().try_fold(align(arena?)?, |bytes, def| match def.place {
        Place::Output(_) => bytes.checked_add(align(size(def.size_bytes).or(late)?)?),
        Place::Dynamic => bytes.checked_add(late?),
        Place::Input(_)
        | Place::Weight { .. }
        | Place::Arena { .. }
        | Place::Block(_)
        | Place::Alias { .. } => Some(bytes),
    })
}

/// Bytes of types where an address has so many, at most.
#[rustfmt::skip]
mod sizes {
    pub(super) const fn vec(a: u64) -> u64 { 3 * a }
    pub(super) const fn size_def(_: u64) -> u64 { 16 }
    pub(super) const fn size_bounds(a: u64) -> u64 { 3 * a + 44 }
    pub(super) const fn buffer(a: u64) -> u64 { 3 * a + 36 }
    pub(super) const fn kernel(a: u64) -> u64 { 7 * a + 4 }
    pub(super) const fn param(_: u64) -> u64 { 8 }
    pub(super) const fn instr(a: u64) -> u64 { 12 * a + 16 }
    pub(super) const fn tensor_spec(a: u64) -> u64 { 6 * a + 8 }
    pub(super) const fn dim_spec(a: u64) -> u64 { 4 * a }
    pub(super) const fn operand(_: u64) -> u64 { 8 }
    pub(super) const fn value_type(a: u64) -> u64 { 7 * a }
    pub(super) const fn value_spec(a: u64) -> u64 { 3 * a + 8 }
    pub(super) const fn numbered(a: u64) -> u64 { 4 * a + 8 }
    pub(super) const fn image(a: u64) -> u64 { 39 * a }
    pub(super) const fn program_def(a: u64) -> u64 { 12 * a }
    pub(super) const fn schedule(a: u64) -> u64 { 6 * a + 16 }
    pub(super) const fn step(a: u64) -> u64 { 3 * a + 24 }
    pub(super) const fn device_kernel(a: u64) -> u64 { 3 * a + 16 }
    pub(super) const fn plans(a: u64) -> u64 { 42 * a + 40 }
    pub(super) const fn code(a: u64) -> u64 { 2 * a }
    pub(super) const fn parts(a: u64) -> u64 { 58 * a + 40 }
    pub(super) const fn program(a: u64) -> u64 { 96 * a + 48 }
    pub(super) const fn model(a: u64) -> u64 { 26 * a }
    pub(super) const fn section(a: u64) -> u64 { 2 * a + 24 }
    pub(super) const fn buf(a: u64) -> u64 { 8 * a }
    pub(super) const fn input_error(a: u64) -> u64 { 12 * a + 48 }
}

/// Whether a type of this build is no larger than its formula says.
const fn fits<T>(bytes: u64) {
    assert!(size_of::<T>() as u64 <= bytes, "a type that is larger than its formula in `sizes`");
}

const ADDRESS: u64 = size_of::<usize>() as u64;

const _: () = {
    fits::<alloc::vec::Vec<u8>>(sizes::vec(ADDRESS));
    fits::<SizeDef>(sizes::size_def(ADDRESS));
    fits::<SizeBounds>(sizes::size_bounds(ADDRESS));
    fits::<BufferDef>(sizes::buffer(ADDRESS));
    fits::<KernelDef>(sizes::kernel(ADDRESS));
    fits::<KernelParam>(sizes::param(ADDRESS));
    fits::<Instr>(sizes::instr(ADDRESS));
    fits::<TensorSpec>(sizes::tensor_spec(ADDRESS));
    fits::<DimSpec>(sizes::dim_spec(ADDRESS));
    fits::<Operand>(sizes::operand(ADDRESS));
    fits::<ValueType>(sizes::value_type(ADDRESS));
    fits::<ValueSpec>(sizes::value_spec(ADDRESS));
    fits::<(alloc::string::String, u64)>(sizes::numbered(ADDRESS));
    fits::<ImageDef>(sizes::image(ADDRESS));
    fits::<ProgramDef>(sizes::program_def(ADDRESS));
    fits::<ScheduleDef>(sizes::schedule(ADDRESS));
    fits::<StepDef>(sizes::step(ADDRESS));
    fits::<DeviceKernel>(sizes::device_kernel(ADDRESS));
    fits::<Plans>(sizes::plans(ADDRESS));
    fits::<KernelCode>(sizes::code(ADDRESS));
    fits::<ProgramParts>(sizes::parts(ADDRESS));
    fits::<Program>(sizes::program(ADDRESS));
    fits::<Inner>(sizes::model(ADDRESS));
    fits::<super::read::Section>(sizes::section(ADDRESS));
    fits::<crate::memory::AlignedBuf>(sizes::buf(ADDRESS));
    fits::<crate::error::InputError>(sizes::input_error(ADDRESS));
};

/// What calls take besides: the machine's description, pool, host operators and allocators that the program makes for them.
const CALLS: u64 = 512;

/// Elements that a vector that grows has room for at first; and how often all the places it has had hold what it has at last, at most.
const GROWN: u64 = 4;

/// What serde makes room for at once, however many elements a vector is said to have.
const READ_AT_ONCE: u64 = 1 << 20;

/// Bytes of all allocations.
struct Sum {
    address: u64,
    /// Whether what is for people is read.
    names: bool,
    bytes: u64,
}

impl Sum {
    /// An allocation.
    fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes.next_multiple_of(2 * self.address));
    }

    /// A vector of so many elements.
    fn vec(&mut self, n: usize, element: fn(u64) -> u64) {
        self.flat(n, element(self.address));
    }

    fn flat(&mut self, n: usize, element: u64) {
        let bytes = (n as u64).saturating_mul(element);
        // Vectors that are read grow by doubling beyond so many bytes.
        let grows = bytes > READ_AT_ONCE;
        self.add(if grows { bytes.saturating_mul(GROWN) } else { bytes });
    }

    /// A vector that grows as its elements come, by doubling, from room for four: all the places it has had.
    fn grown(&mut self, n: usize, element: u64) {
        let mut room = GROWN;
        if n > 0 {
            self.add(room.saturating_mul(element));
        }
        while room < n as u64 {
            room *= 2;
            self.add(room.saturating_mul(element));
        }
    }

    fn text(&mut self, text: &str) {
        self.flat(text.len(), 1);
    }

    /// A text for people.
    fn name(&mut self, text: &str) {
        if self.names {
            self.text(text);
        }
    }

    /// Everything that is read, whatever level runs.
    fn artifact(&mut self, manifest: &Manifest, plans: &[(&Plan, &[Plan])]) {
        let n_sections = 3 + 3 * plans.len();
        self.vec(n_sections, sizes::section);
        self.manifest(manifest);
        self.vec(plans.len(), sizes::plans);
        self.flat(2 * plans.len(), 2 * self.address);
        for &(open, specialised) in plans {
            self.vec(specialised.len(), |a| sizes::plans(a) - sizes::vec(a));
            core::iter::once(open).chain(specialised).for_each(|plan| {
                self.plan(plan);
                self.validation(plan);
            });
        }
        // The levels are compared by kind of device and by instruction set.
        (0..5).for_each(|_| self.grown(plans.len(), 2 * self.address));
        self.add(CALLS);
    }

    fn manifest(&mut self, manifest: &Manifest) {
        let Manifest { images, .. } = manifest;
        self.vec(images.len(), sizes::image);
        images.iter().for_each(|image| self.image(image));
        if self.names {
            self.notes(manifest);
        }
    }

    /// What is for people.
    fn notes(&mut self, manifest: &Manifest) {
        let Manifest { model, compiler, target, options, records, metadata, images } = manifest;
        [model, compiler, target, records].into_iter().for_each(|text| self.text(text));
        for pairs in [options, metadata] {
            self.vec(pairs.len(), |a| 2 * sizes::vec(a));
            pairs.iter().for_each(|(name, value)| {
                self.text(name);
                self.text(value);
            });
        }
        self.vec(images.len(), |a| 2 * sizes::vec(a));
        for image in images {
            self.text(&image.target);
            self.vec(1 + image.specialised.len(), |a| 3 * sizes::vec(a));
            for ProgramDef { extents, schedules, steps, .. } in image.programs() {
                self.vec(extents.len(), sizes::numbered);
                extents.iter().for_each(|(name, _)| self.text(name));
                self.vec(schedules.len(), sizes::schedule);
                schedules.iter().for_each(|ScheduleDef { rules, layout, .. }| {
                    self.text(rules);
                    self.text(layout);
                });
                self.vec(steps.len(), sizes::step);
                for StepDef { operators, .. } in steps {
                    self.vec(operators.len(), sizes::vec);
                    operators.iter().for_each(|operator| self.text(operator));
                }
            }
        }
    }

    fn image(&mut self, image: &ImageDef) {
        let ImageDef { target: _, triple, features, program: _, specialised, device } = image;
        self.text(triple);
        self.vec(features.len(), sizes::vec);
        // Those that a machine lacks are listed.
        self.grown(features.len(), 2 * self.address);
        features.iter().for_each(|feature| self.text(feature));
        self.vec(specialised.len(), sizes::program_def);
        image.programs().for_each(|program| self.flat(program.entries.len(), 8));
        if let Some(DeviceDef { kind, arch, assembler, parts, kernels }) = device {
            [kind, arch, assembler].into_iter().for_each(|text| self.text(text));
            self.vec(parts.len(), sizes::numbered);
            parts.iter().for_each(|(name, _)| self.text(name));
            self.vec(kernels.len(), sizes::device_kernel);
            kernels.iter().for_each(|kernel| self.text(&kernel.symbol));
        }
    }

    /// A plan as it is read.
    fn plan(&mut self, plan: &Plan) {
        self.vec(plan.sizes.len(), sizes::size_def);
        self.vec(plan.bounds.len(), sizes::size_bounds);
        plan.bounds.iter().for_each(|bounds| self.name(&bounds.name));
        self.vec(plan.buffers.len(), sizes::buffer);
        plan.buffers.iter().for_each(|buffer| self.flat(buffer.shape.len(), 4));
        [&plan.arena, &plan.device_arena].into_iter().for_each(|arena| self.flat(arena.blocks.len(), 4));
        self.vec(plan.kernels.len(), sizes::kernel);
        for KernelDef { name, params, .. } in &plan.kernels {
            self.name(name);
            self.vec(params.len(), sizes::param);
        }
        for TensorSpec { name, dims, .. } in plan.inputs.iter().chain(&plan.outputs) {
            self.name(name);
            self.vec(dims.len(), sizes::dim_spec);
            dims.iter().filter_map(|dim| dim.name.as_ref()).for_each(|name| self.name(name));
        }
        self.vec(plan.inputs.len(), sizes::tensor_spec);
        self.vec(plan.outputs.len(), sizes::tensor_spec);
        self.vec(plan.values.len(), sizes::value_type);
        for ValueType { nesting, dims, .. } in &plan.values {
            self.flat(nesting.len(), 1);
            self.flat(dims.as_ref().map_or(0, alloc::vec::Vec::len), 16);
        }
        for specs in [&plan.value_inputs, &plan.value_outputs] {
            self.vec(specs.len(), sizes::value_spec);
            specs.iter().for_each(|spec| self.name(&spec.name));
        }
        self.vec(plan.instrs.len(), sizes::instr);
        for instr in &plan.instrs {
            match &instr.op {
                PlanOp::Call { buffers, sizes, .. } => {
                    self.flat(buffers.len(), 4);
                    self.flat(sizes.len(), 4);
                }
                PlanOp::Host { attrs, inputs, outputs, sizes_out, .. } => {
                    self.flat(attrs.len(), 1);
                    [inputs, outputs].into_iter().for_each(|list| self.vec(list.len(), sizes::operand));
                    self.flat(sizes_out.len(), 4);
                }
                _ => {}
            }
        }
        self.vec(if self.names { plan.texts.len() } else { 0 }, sizes::vec);
        plan.texts.iter().for_each(|text| self.name(text));
    }

    /// What [`Plan::validate`] takes of a sound plan.
    fn validation(&mut self, plan: &Plan) {
        self.flat(plan.sizes.len(), 1);
        self.flat(plan.buffers.len(), 2 * self.address);
        self.flat(plan.buffers.len(), 4);
        let names = [
            plan.kernels.len(),
            plan.inputs.len() + plan.value_inputs.len(),
            plan.outputs.len() + plan.value_outputs.len(),
        ];
        names.into_iter().for_each(|n| self.grown(n, 3 * self.address));
    }

    /// The model of the level that runs, and a session of it.
    fn model(&mut self, open: &Plan, specialised: &[Plan]) {
        self.vec(specialised.len(), sizes::parts);
        self.flat(specialised.len(), self.address);
        for plan in core::iter::once(open).chain(specialised) {
            self.vec(plan.kernels.len(), sizes::code);
            self.validation(plan);
            self.facts(plan);
            self.add(2 * self.address + sizes::program(self.address));
            self.frame(plan);
        }
        self.add(2 * self.address + sizes::model(self.address));
        // The bytes' owner.
        self.add(4 * self.address);
        self.session(open);
    }

    fn facts(&mut self, plan: &Plan) {
        let n_buffers = plan.buffers.len();
        self.flat(n_buffers, 4);
        self.flat(n_buffers, 1);
        self.flat(n_buffers, 2 * self.address);
        self.flat(plan.sizes.len(), 1);
        self.grown(plan.sizes.len(), 4);
        let n_dims: usize = plan.inputs.iter().map(|spec| spec.dims.len()).sum();
        self.flat(plan.inputs.len(), self.address);
        self.flat(plan.outputs.len(), 1);
        self.grown(n_dims, 16);
    }

    /// What a session has for a program.
    fn frame(&mut self, plan: &Plan) {
        let n_buffers = plan.buffers.len();
        let n_owned =
            plan.buffers.iter().filter(|def| matches!(def.place, Place::Output(_) | Place::Dynamic)).count();
        self.grown(n_owned, sizes::buf(self.address));
        self.vec(n_owned, sizes::buf);
        self.flat(n_buffers, 2 * self.address);
        self.flat(n_buffers, 3 * self.address);
        self.flat(plan.values.len(), 4 * self.address);
        let params = plan.kernels.iter().map(|kernel| kernel.params.len()).max().unwrap_or(0);
        self.flat(params.max(4), self.address);
        let n_sizes = plan.kernels.iter().map(|kernel| kernel.n_sizes as usize).max().unwrap_or(0);
        self.flat(n_sizes.max(4), 8);
        self.flat(plan.sizes.len().max(4), 16);
        self.flat(plan.arena.blocks.len(), 2 * self.address);
    }

    /// What a session has once, and what an error about its inputs takes.
    fn session(&mut self, plan: &Plan) {
        let n_dims: usize = plan.inputs.iter().map(|spec| spec.dims.len()).sum();
        self.flat(n_dims, self.address);
        self.vec(plan.inputs.len(), sizes::buf);
        self.vec(plan.outputs.len(), sizes::vec);
        let n_specs = plan.inputs.len() + plan.outputs.len();
        plan.outputs.iter().for_each(|spec| self.flat(spec.dims.len(), self.address));
        let n_errors = n_specs + n_dims + plan.bounds.len();
        self.grown(n_errors, sizes::input_error(self.address));
        for spec in plan.inputs.iter().chain(&plan.outputs) {
            (0..=spec.dims.len()).for_each(|_| self.name(&spec.name));
            spec.dims.iter().filter_map(|dim| dim.name.as_ref()).for_each(|name| self.name(name));
        }
        let longest = plan.texts.iter().map(alloc::string::String::len).max().unwrap_or(0);
        self.flat(if self.names { 2 * longest } else { 0 }, 1);
    }
}
