//! A loaded model: plan, kernels, weights and host operators, ready to run.
#![allow(unsafe_code, reason = "takes kernels as machine code, which nothing can check")]

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use tilewright_dtype::{DType, Kind};

use crate::artifact::{Manifest, ProgramDef, ScheduleDef, StepDef};
use crate::device::{DeviceError, DeviceModule};
use crate::exec::{DEVICES, ModelDevice};
use crate::host::HostOps;
use crate::memory::{Bytes, OutOfMemory};
use crate::plan::{
    BufferId, KernelDef, Place, Plan, PlanError, PlanOp, SizeDef, SizeId, Space, TensorSpec, ValueSpec,
};

/// Machine code of one kernel: `(buffers, sizes, task_begin, task_end)`.
///
/// `buffers[i]` is the i-th buffer parameter, `sizes[j]` the j-th symbolic extent; the tasks
/// `task_begin..task_end` are run. Kernels are pure: they call nothing and touch nothing but their buffers.
pub type KernelFn = unsafe extern "C" fn(*const *mut u8, *const i64, i64, i64);

/// The code of one kernel.
#[derive(Clone, Copy, Debug)]
pub enum KernelCode {
    /// On the host.
    Host(KernelFn),
    /// On the device: index into [`DeviceDef::kernels`](crate::artifact::DeviceDef::kernels).
    Device(usize),
}

/// The kernels of a program in the order of [`Plan::kernels`], and what keeps their code in memory.
pub struct Kernels {
    table: Vec<KernelCode>,
    _code: Option<Arc<dyn Any + Send + Sync>>,
}

impl Kernels {
    /// Kernels whose code lives as long as `code`; `None` for code that is linked into the program.
    pub fn new(table: Vec<KernelFn>, code: Option<Arc<dyn Any + Send + Sync>>) -> Kernels {
        Kernels::of(table.into_iter().map(KernelCode::Host).collect(), code)
    }

    /// As [`Kernels::new`], also of kernels on the device.
    pub fn of(table: Vec<KernelCode>, code: Option<Arc<dyn Any + Send + Sync>>) -> Kernels {
        Kernels { table, _code: code }
    }
}

/// The parts of one program of a model.
pub struct ProgramParts {
    /// The plan.
    pub plan: Plan,
    /// Its kernels.
    pub kernels: Kernels,
    /// What is known of it beside the plan.
    pub def: ProgramDef,
}

/// Parts that do not make a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The plan is not consistent.
    #[error("invalid plan: {}", First(.0))]
    Plan(Vec<PlanError>),
    /// The number of kernels is not the plan's.
    #[error("the plan calls {expected} kernels, the code has {got}")]
    Kernels {
        /// By the plan.
        expected: usize,
        /// In the code.
        got: usize,
    },
    /// A kernel that runs elsewhere than the plan says.
    #[error("kernel {0} and the plan disagree about whether a device runs it")]
    Space(usize),
    /// A plan that needs a device, and none was given.
    #[error("the plan needs a device")]
    NoDevice,
    /// The device has no memory for the weights, or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The number of bytes of weights is not the plan's.
    #[error("the plan needs {expected} bytes of weights, given {got}")]
    Weights {
        /// By the plan.
        expected: u64,
        /// As given.
        got: u64,
    },
    /// A specialised program that does not take the inputs or give the outputs of the model.
    #[error("a specialised program has other {0} than the model")]
    Program(&'static str),
    /// Host operators that the registry does not have.
    #[error("host operators {0:?} are not in the registry")]
    HostOps(Vec<u16>),
    /// An element type that inputs and outputs cannot have: strings have no flat memory form.
    #[error("{name:?} has element type {dtype}, which has no memory form")]
    DType {
        /// The input or output.
        name: String,
        /// Its type.
        dtype: DType,
    },
    /// No memory for an aligned copy of the weights.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

struct First<'a>(&'a [PlanError]);

impl fmt::Display for First<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            [only] => write!(f, "{only}"),
            [first, rest @ ..] => write!(f, "{first} (and {} more)", rest.len()),
        }
    }
}

/// What the executor needs beside the plan and can be known before any size is.
pub(crate) struct Facts {
    /// Slots that depend on computed slots, ascending.
    pub(crate) late_sizes: Vec<SizeId>,
    /// The buffer at the end of each buffer's alias chain.
    pub(crate) roots: Vec<BufferId>,
    /// Buffers whose place is only known when they are used.
    pub(crate) late: Vec<bool>,
    /// Outputs, of those that are tensors, whose place or extents are only known after a run.
    pub(crate) late_outputs: Vec<bool>,
    /// Index of the memory of buffers that are allocated by themselves: outputs and dynamic buffers.
    pub(crate) storage: Vec<Option<usize>>,
    /// Entries of `storage`.
    pub(crate) n_storage: usize,
    /// Guards at the head of the instruction list.
    pub(crate) n_head_guards: usize,
    /// Where the dims of each input start in the concatenation of all.
    pub(crate) dim_starts: Vec<usize>,
    /// The instructions that may run as graphs of the device, in order; none unless the plan is to be kept awake.
    #[cfg(feature = "devices")]
    pub(crate) stretches: Vec<core::ops::Range<usize>>,
    /// By buffer at the end of an alias chain: whether the host does anything with it but copy it.
    #[cfg(feature = "devices")]
    pub(crate) touched_by_host: Vec<bool>,
    /// Extents of inputs that are constants, by their places in that concatenation.
    constant_dims: Vec<(usize, i64)>,
}

impl Facts {
    fn of(plan: &Plan) -> Facts {
        let late_size = plan.late_sizes();
        let is_late = |id: SizeId| late_size[id.index()];
        let mut roots = Vec::with_capacity(plan.buffers.len());
        let mut late = Vec::with_capacity(plan.buffers.len());
        let mut storage = Vec::with_capacity(plan.buffers.len());
        let mut n_storage = 0;
        for (i, def) in plan.buffers.iter().enumerate() {
            let mut at = BufferId(i as u32);
            let mut is = is_late(def.size_bytes);
            while let Place::Alias { buffer, byte_offset } = plan.buffers[at.index()].place {
                at = buffer;
                is |= is_late(byte_offset) || is_late(plan.buffers[at.index()].size_bytes);
            }
            roots.push(at);
            late.push(is || plan.buffers[at.index()].place == Place::Dynamic);
            let owns = match def.place {
                Place::Output(_) | Place::Dynamic => true,
                Place::Input(_)
                | Place::Weight { .. }
                | Place::Arena { .. }
                | Place::Block(_)
                | Place::Alias { .. } => false,
            };
            storage.push(owns.then_some(n_storage));
            n_storage += usize::from(owns);
        }
        let mut dim_starts = Vec::with_capacity(plan.inputs.len());
        let mut n_dims = 0;
        let mut constant_dims = Vec::new();
        for input in &plan.inputs {
            dim_starts.push(n_dims);
            for dim in &input.dims {
                if let SizeDef::Const(extent) = plan.sizes[dim.size.index()] {
                    constant_dims.push((n_dims, extent));
                }
                n_dims += 1;
            }
        }
        let is_late_output =
            |spec: &TensorSpec| late[spec.buffer.index()] || spec.dims.iter().any(|dim| is_late(dim.size));
        Facts {
            #[cfg(feature = "devices")]
            stretches: crate::exec::stretches(plan, &late_size, &late),
            #[cfg(feature = "devices")]
            touched_by_host: crate::exec::touched_by_host(plan, &roots),
            late_sizes: (0..plan.sizes.len() as u32).map(SizeId).filter(|&id| is_late(id)).collect(),
            late_outputs: plan.outputs.iter().map(is_late_output).collect(),
            roots,
            late,
            storage,
            n_storage,
            n_head_guards: plan
                .instrs
                .iter()
                .take_while(|instr| matches!(instr.op, PlanOp::Guard { .. }))
                .count(),
            dim_starts,
            constant_dims,
        }
    }
}

/// What a model runs for inputs of some extents: a plan with its kernels.
pub struct Program {
    pub(crate) plan: Plan,
    pub(crate) facts: Facts,
    pub(crate) weights: Bytes,
    pub(crate) host: Arc<dyn HostOps>,
    pub(crate) device: Option<Arc<ModelDevice>>,
    kernels: Kernels,
    def: ProgramDef,
}

impl Program {
    /// # Safety
    /// As [`Model::assemble`].
    unsafe fn new(
        parts: ProgramParts,
        weights: Bytes,
        host: Arc<dyn HostOps>,
        device: Option<Arc<ModelDevice>>,
    ) -> Result<Program, ModelError> {
        let ProgramParts { plan, kernels, def } = parts;
        plan.validate().map_err(ModelError::Plan)?;
        let (expected, got) = (plan.kernels.len(), kernels.table.len());
        if expected != got {
            return Err(ModelError::Kernels { expected, got });
        }
        let in_space = |(def, code): (&KernelDef, &KernelCode)| match code {
            KernelCode::Host(_) => def.space == Space::Host,
            KernelCode::Device(_) => def.space == Space::Device,
        };
        if let Some(kernel) = plan.kernels.iter().zip(&kernels.table).position(|pair| !in_space(pair)) {
            return Err(ModelError::Space(kernel));
        }
        if plan.needs_device() && device.is_none() {
            return Err(ModelError::NoDevice);
        }
        let (expected, got) = (plan.weight_bytes, weights.len() as u64);
        if expected != got {
            return Err(ModelError::Weights { expected, got });
        }
        let mut missing: Vec<u16> = Vec::new();
        for instr in &plan.instrs {
            if let PlanOp::Host { op, .. } = instr.op {
                let supported = cfg!(feature = "host-operators") && host.supports(op);
                if !supported && !missing.contains(&op) {
                    missing.push(op);
                }
            }
        }
        if !missing.is_empty() {
            return Err(ModelError::HostOps(missing));
        }
        for spec in plan.inputs.iter().chain(&plan.outputs) {
            if spec.dtype.kind() == Kind::String {
                return Err(ModelError::DType { name: spec.name.clone(), dtype: spec.dtype });
            }
        }
        let facts = Facts::of(&plan);
        Ok(Program { plan, facts, weights, host, device, kernels, def })
    }

    pub(crate) fn kernel(&self, index: usize) -> KernelCode {
        self.kernels.table[index]
    }

    /// Where the weights are on the device; nowhere without one.
    pub(crate) fn device_weights(&self) -> *mut u8 {
        self.device().map_or(core::ptr::null_mut(), |device| device.weights())
    }

    /// What it has on a device.
    pub(crate) fn device(&self) -> Option<&ModelDevice> {
        self.device.as_deref().filter(|_| DEVICES)
    }

    /// Whether it is for inputs whose dims are these, those of all of them concatenated.
    fn fits(&self, dims: &[usize]) -> bool {
        let fits = |&(place, extent): &(usize, i64)| {
            dims.get(place).is_some_and(|&dim| i64::try_from(dim) == Ok(extent))
        };
        self.facts.constant_dims.iter().all(fits)
    }

    /// The execution plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The open dimensions that it is specialised for, by name, and their extents; none for the program for all extents.
    pub fn extents(&self) -> &[(String, u64)] {
        &self.def.extents
    }

    /// How each kernel of the plan was scheduled; nothing where the compiler does not tell.
    pub fn schedules(&self) -> &[ScheduleDef] {
        &self.def.schedules
    }

    /// What the instructions of the plan compute in terms of the user's operators.
    pub fn steps(&self) -> &[StepDef] {
        &self.def.steps
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({:?}, {} instructions)", self.def.extents, self.plan.instrs.len())
    }
}

pub(crate) struct Inner {
    manifest: Manifest,
    open: Arc<Program>,
    specialised: Vec<Arc<Program>>,
}

/// A model ready to run. Cheap to clone; may be shared by threads, each of which has its own [`Session`](crate::Session).
#[derive(Clone)]
pub struct Model(Arc<Inner>);

impl Model {
    /// Puts a model of one program together from its parts, for programs that link ahead-of-time kernels.
    ///
    /// # Errors
    /// When the parts do not fit each other.
    ///
    /// # Safety
    /// Each kernel must have the signature and the behaviour that `plan` states: it stays within the bytes of its
    /// buffers, writes only what the plan says it writes, and its tasks may run at the same time.
    pub unsafe fn assemble(
        manifest: Manifest,
        plan: Plan,
        kernels: Kernels,
        weights: Bytes,
        host: Arc<dyn HostOps>,
    ) -> Result<Model, ModelError> {
        let open = ProgramParts { plan, kernels, def: ProgramDef::default() };
        // SAFETY: by the caller's word.
        unsafe { Model::of_programs(manifest, open, Vec::new(), weights, host, None) }
    }

    /// Puts a model together from a program for all extents of the inputs and specialised ones: runs take the first of
    /// these whose constant extents the inputs have, else that for all. `device` has the kernels of plans that need one; the
    /// weights are copied there, once.
    ///
    /// # Errors
    /// When the parts do not fit each other.
    ///
    /// # Safety
    /// As [`Model::assemble`], for each program; and where a specialised program fits, it computes what the other one does.
    pub unsafe fn of_programs(
        manifest: Manifest,
        open: ProgramParts,
        specialised: Vec<ProgramParts>,
        weights: Bytes,
        host: Arc<dyn HostOps>,
        device: Option<Arc<dyn DeviceModule>>,
    ) -> Result<Model, ModelError> {
        let weights = weights.aligned()?;
        let device = device.filter(|_| DEVICES);
        let device = device.map(|module| ModelDevice::new(module, &weights).map(Arc::new)).transpose()?;
        let program = |parts: ProgramParts| {
            // SAFETY: by the caller's word.
            unsafe { Program::new(parts, weights.clone(), host.clone(), device.clone()) }.map(Arc::new)
        };
        let open = program(open)?;
        let specialised = specialised.into_iter().map(program).collect::<Result<Vec<_>, _>>()?;
        for program in &specialised {
            same_face(&open.plan, &program.plan)?;
        }
        Ok(Model(Arc::new(Inner { manifest, open, specialised })))
    }

    /// The program for inputs whose dims are these, those of all of them concatenated.
    pub(crate) fn choose(&self, dims: &[usize]) -> &Arc<Program> {
        self.0.specialised.iter().find(|program| program.fits(dims)).unwrap_or(&self.0.open)
    }

    /// The program for all extents of the inputs, which is the only one of most models.
    pub fn program(&self) -> &Arc<Program> {
        &self.0.open
    }

    /// The programs that are specialised for some extents.
    pub fn specialised(&self) -> &[Arc<Program>] {
        &self.0.specialised
    }

    /// The inputs that are tensors, in the model's order.
    pub fn inputs(&self) -> &[TensorSpec] {
        &self.0.open.plan.inputs
    }

    /// The outputs that are tensors, in the model's order.
    pub fn outputs(&self) -> &[TensorSpec] {
        &self.0.open.plan.outputs
    }

    /// The inputs that are host values, in the model's order.
    pub fn value_inputs(&self) -> &[ValueSpec] {
        &self.0.open.plan.value_inputs
    }

    /// The outputs that are host values, in the model's order.
    pub fn value_outputs(&self) -> &[ValueSpec] {
        &self.0.open.plan.value_outputs
    }

    /// The execution plan for all extents of the inputs.
    pub fn plan(&self) -> &Plan {
        &self.0.open.plan
    }

    /// What the compiler recorded about the model; of the images, the one that runs, and nothing of its programs.
    pub fn manifest(&self) -> &Manifest {
        &self.0.manifest
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Model({:?}, {} instructions)", self.0.manifest.model, self.0.open.plan.instrs.len())
    }
}

/// Checks that two plans have the same inputs and outputs, but for their extents.
fn same_face(open: &Plan, specialised: &Plan) -> Result<(), ModelError> {
    fn same(a: &[TensorSpec], b: &[TensorSpec]) -> bool {
        let same = |(a, b): (&TensorSpec, &TensorSpec)| {
            (&a.name, a.dtype, a.dims.len()) == (&b.name, b.dtype, b.dims.len())
        };
        a.len() == b.len() && a.iter().zip(b).all(same)
    }
    fn same_values(a: &[ValueSpec], b: &[ValueSpec]) -> bool {
        let same = |(a, b): (&ValueSpec, &ValueSpec)| (&a.name, a.position) == (&b.name, b.position);
        a.len() == b.len() && a.iter().zip(b).all(same)
    }
    let inputs =
        same(&open.inputs, &specialised.inputs) && same_values(&open.value_inputs, &specialised.value_inputs);
    let outputs = same(&open.outputs, &specialised.outputs)
        && same_values(&open.value_outputs, &specialised.value_outputs);
    match (inputs, outputs) {
        (true, true) => Ok(()),
        (false, _) => Err(ModelError::Program("inputs")),
        (true, false) => Err(ModelError::Program("outputs")),
    }
}
