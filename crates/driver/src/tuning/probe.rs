//! A function as a model of its own: an artifact that runs the function's kernels on what it is given.

use tilewright_dtype::DType;
use tilewright_graph::{Bytes as GraphBytes, Tensor};
use tilewright_lower::evaluate::pack;
use tilewright_run::measure::made_up::noise;
use tilewright_run::measure::{Padding, Work};
use tilewright_runtime::Bytes;
use tilewright_runtime::artifact::{Contents, Level, Manifest, ProgramDef};
use tilewright_runtime::plan::{
    ALIGN, BufferDef, BufferId, DimSpec, Instr, KernelId, Place, Plan, PlanOp, SizeDef, SizeId, Space,
    TensorSpec, TextId,
};
use tilewright_te::kernel::Kernel;
use tilewright_te::{Buffer, Func};
use tilewright_tune::Task;

use crate::autoschedule::Kernels;
use crate::codegen;
use crate::error::CompileError;
use crate::units::{image_def, kernel_def};

/// A function's kernels as machine code.
pub(crate) struct Probe {
    kernels: Kernels,
    image: tilewright_image::Image,
}

impl Probe {
    /// Generates the code.
    pub(crate) fn new(task: &Task, kernels: Kernels) -> Result<Probe, CompileError> {
        let flat: Vec<_> = kernels.kernels.iter().map(|k| k.kernel.clone()).collect();
        let image = codegen::generate(&flat, &task.target)?;
        Ok(Probe { kernels, image })
    }

    /// What each kernel has to do, as far as its tasks are known.
    pub(super) fn work(&self) -> Vec<Work> {
        let work = |kernel: &Kernel| {
            let (rounds, per_round) = tasks_of(kernel)?;
            let tasks = (rounds * per_round).unsigned_abs();
            Some(Work { tasks, instructions: kernel.instructions_of_task() })
        };
        self.kernels.kernels.iter().filter_map(|flat| work(&flat.kernel)).collect()
    }

    /// The scheduled function.
    pub(super) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// An artifact that runs the function once, with an input for each of its own.
    pub(crate) fn artifact(&self, task: &Task) -> Result<Bytes, CompileError> {
        let func = &self.kernels.func;
        let mut builder = Builder { func, plan: Plan::default(), places: Vec::new() };
        builder.plan.texts.push(String::new());
        for (n, &param) in func.params[..func.n_inputs].iter().enumerate() {
            let buffer = builder.add(param, Place::Input(n as u32))?;
            let spec = builder.spec(format!("in{n}"), buffer);
            builder.plan.inputs.push(spec);
        }
        for (n, &param) in func.params[func.n_inputs..].iter().enumerate() {
            let buffer = builder.add(param, Place::Output(n as u32))?;
            let spec = builder.spec(format!("out{n}"), buffer);
            builder.plan.outputs.push(spec);
        }
        for buffer in func.workspaces() {
            let place = Place::Arena { offset: builder.plan.arena.bytes };
            let id = builder.add(buffer, place)?;
            let bytes = builder.constant(builder.plan.buffers[id.index()].size_bytes);
            builder.plan.arena.bytes += (bytes as u64).next_multiple_of(ALIGN as u64);
        }
        builder.calls(&self.kernels)?;
        let program = ProgramDef { entries: self.image.entries.clone(), ..ProgramDef::default() };
        let manifest = Manifest {
            model: func.name.clone(),
            images: vec![image_def(&task.target, program)],
            ..Manifest::default()
        };
        let levels =
            [Level { plan: &builder.plan, specialised: &[], image: &self.image.bytes, device_code: None }];
        let contents = Contents { manifest: &manifest, levels: &levels, weights: &[[0u8; 0]] };
        contents.to_bytes().map(Bytes::new).map_err(|e| CompileError::Limit(e.to_string()))
    }
}

/// Which elements of an output are padding of its layout.
pub(super) fn padding_of(task: &Task, kernels: &Kernels, output: usize) -> Result<Padding, CompileError> {
    let param = task.computation.func.n_inputs + output;
    let logical = extents(&task.computation.func, task.computation.func.params[param])?;
    let physical = extents(&kernels.func, kernels.func.params[param])?;
    let pieces = task.computation.layouts.get(param).cloned().flatten().unwrap_or_default();
    let pieces = pieces.iter().map(|piece| (piece.dim, piece.factor)).collect();
    Ok(Padding { logical, physical, pieces })
}

/// Noise for an input, laid out as the schedule wants it.
pub(super) fn input_data(task: &Task, kernels: &Kernels, n: usize) -> Result<Vec<u8>, CompileError> {
    let noise = |func: &Func| -> Result<(Vec<usize>, Vec<u8>), CompileError> {
        let dims: Vec<usize> = extents(func, func.params[n])?.iter().map(|&e| e as usize).collect();
        let bytes = noise(n as u64, dims.iter().product());
        Ok((dims, bytes))
    };
    let Some(packing) = kernels.packing.get(n).filter(|packing| !packing.is_empty()) else {
        return Ok(noise(&kernels.func)?.1);
    };
    let (dims, bytes) = noise(&task.computation.func)?;
    let tensor = Tensor::from_bytes(DType::F32, dims, GraphBytes::new(bytes));
    let tensor = tensor.map_err(|e| CompileError::internal("probe", e))?;
    pack(packing, &tensor).map_err(|e| CompileError::internal("probe", e))
}

/// A plan while it is made.
struct Builder<'a> {
    func: &'a Func,
    plan: Plan,
    /// Where the function's buffers are.
    places: Vec<(Buffer, BufferId)>,
}

impl Builder<'_> {
    /// The slot of a number.
    fn size(&mut self, value: i64) -> SizeId {
        let known = self.plan.sizes.iter().position(|size| *size == SizeDef::Const(value));
        let place = known.unwrap_or_else(|| {
            self.plan.sizes.push(SizeDef::Const(value));
            self.plan.sizes.len() - 1
        });
        SizeId(place as u32)
    }

    /// The number in a slot.
    fn constant(&self, size: SizeId) -> i64 {
        match self.plan.sizes[size.index()] {
            SizeDef::Const(value) => value,
            SizeDef::InputDim { .. }
            | SizeDef::Add(..)
            | SizeDef::Sub(..)
            | SizeDef::Mul(..)
            | SizeDef::FloorDiv(..)
            | SizeDef::CeilDiv(..)
            | SizeDef::Mod(..)
            | SizeDef::Min(..)
            | SizeDef::Max(..)
            | SizeDef::Computed => 0,
        }
    }

    /// The form of a buffer.
    fn spec(&self, name: String, buffer: BufferId) -> TensorSpec {
        let BufferDef { dtype, shape, .. } = &self.plan.buffers[buffer.index()];
        let dims = shape.iter().map(|&size| DimSpec { name: None, size }).collect();
        TensorSpec { name, dtype: *dtype, dims, buffer }
    }

    /// Gives a buffer of the function a place.
    fn add(&mut self, buffer: Buffer, place: Place) -> Result<BufferId, CompileError> {
        let extents = extents(self.func, buffer)?;
        let dtype = self.func.buffers[buffer].dtype;
        let bytes = extents.iter().product::<i64>() * dtype.bytes().max(1) as i64;
        let size_bytes = self.size(bytes);
        let shape = extents.into_iter().map(|extent| self.size(extent)).collect();
        let id = BufferId(self.plan.buffers.len() as u32);
        self.plan.buffers.push(BufferDef { dtype, size_bytes, shape, space: Space::Host, place });
        self.places.push((buffer, id));
        Ok(id)
    }

    /// The kernels and their calls.
    fn calls(&mut self, kernels: &Kernels) -> Result<(), CompileError> {
        self.plan.kernels = kernels.kernels.iter().map(|flat| kernel_def(&flat.kernel)).collect();
        for (n, flat) in kernels.kernels.iter().enumerate() {
            let place = |b: &Buffer| self.places.iter().find(|(known, _)| known == b).map(|&(_, id)| id);
            let buffers: Option<Vec<BufferId>> = flat.buffers.iter().map(place).collect();
            let (Some(buffers), Some((rounds, per_round))) = (buffers, tasks_of(&flat.kernel)) else {
                return Err(CompileError::internal("probe", "a kernel without a place or with open tasks"));
            };
            let (rounds, per_round) = (self.size(rounds), self.size(per_round));
            let (kernel, in_order) = (KernelId(n as u32), flat.kernel.grid.in_order);
            let op = PlanOp::Call { kernel, buffers, sizes: Vec::new(), rounds, per_round, in_order };
            self.plan.instrs.push(Instr { op, provenance: TextId(0) });
        }
        Ok(())
    }
}

/// Rounds of a kernel and tasks of a round, if they are known.
pub(super) fn tasks_of(kernel: &Kernel) -> Option<(i64, i64)> {
    Some((kernel.grid.rounds.as_int()?, kernel.grid.per_round.as_int()?))
}

/// The extents of a buffer, all known.
pub(super) fn extents(func: &Func, buffer: Buffer) -> Result<Vec<i64>, CompileError> {
    let extents = func.buffers[buffer].shape.iter().map(|e| e.as_int()).collect::<Option<Vec<i64>>>();
    extents.ok_or_else(|| CompileError::internal("probe", "an open extent"))
}
