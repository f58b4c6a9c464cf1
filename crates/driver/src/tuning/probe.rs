//! A function as a model of its own: an artifact that runs the function's kernels on made-up data.

use std::ops::Range;

use tilewright_dtype::DType;
use tilewright_graph::{Bytes as GraphBytes, Tensor};
use tilewright_lower::evaluate::pack;
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

use super::noise::noise;

/// What inputs hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// What each run is given, wherever the schedule wants it: enough to measure.
    Given,
    /// Noise in the artifact that is laid out as the schedule wants it: results of several schedules can be compared.
    InPlace,
}

/// An input of an artifact whose data are given: 32-bit floats, as only functions of these are tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Input {
    /// Extents.
    pub dims: Vec<usize>,
    /// Whether it is a constant of the function.
    pub is_constant: bool,
}

impl Input {
    /// Bytes of it.
    pub(super) fn bytes(&self) -> usize {
        self.dims.iter().product::<usize>() * DType::F32.bytes()
    }

    /// Bytes that it takes where the next begins at a multiple of [`ALIGN`].
    pub(super) fn room(&self) -> usize {
        self.bytes().next_multiple_of(ALIGN)
    }
}

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

    /// For the threads given, how much longer the kernels take than evenly shared work would: instructions of all of them
    /// together, where each thread waits for those with the most tasks of a kernel.
    pub(super) fn imbalance(&self, threads: usize) -> f64 {
        let threads = threads as i64;
        let (mut even, mut uneven) = (0.0, 0.0);
        for kernel in self.kernels.kernels.iter().map(|k| &k.kernel) {
            let Some(tasks) = tasks_of(kernel).map(|(rounds, per_round)| rounds * per_round) else {
                continue;
            };
            let instructions = kernel.instructions_of_task();
            even += tasks as f64 * instructions;
            uneven += ((tasks + threads - 1) / threads * threads) as f64 * instructions;
        }
        if even > 0.0 { uneven / even } else { 1.0 }
    }

    /// The inputs of an artifact that runs the function `repeat` times on what it is given: each run of the function has constants of
    /// its own.
    pub(super) fn inputs(&self, task: &Task, repeat: usize) -> Result<Vec<Input>, CompileError> {
        let func = &self.kernels.func;
        let mut inputs = Vec::new();
        for (n, &param) in func.params[..func.n_inputs].iter().enumerate() {
            let dims = extents(func, param)?.into_iter().map(|extent| extent as usize).collect();
            let is_constant = task.computation.constant_inputs.get(n) == Some(&true);
            let input = Input { dims, is_constant };
            inputs.extend(std::iter::repeat_n(input, if is_constant { repeat } else { 1 }));
        }
        Ok(inputs)
    }

    /// An artifact that runs the function `repeat` times in each of its runs; on data that are given it has the [inputs](Self::inputs) of
    /// so many.
    pub(crate) fn artifact(&self, task: &Task, data: Data, repeat: usize) -> Result<Bytes, CompileError> {
        let func = &self.kernels.func;
        let places = vec![Vec::new(); repeat];
        let mut builder = Builder { func, plan: Plan::default(), weights: Vec::new(), places };
        builder.plan.texts.push(String::new());
        for (n, &param) in func.params[..func.n_inputs].iter().enumerate() {
            let is_constant = task.computation.constant_inputs.get(n) == Some(&true);
            match data {
                Data::InPlace => {
                    let bytes = input_data(task, &self.kernels, n)?;
                    let offset = builder.weights.len() as u64;
                    builder.weights.extend(&bytes);
                    builder.weights.resize(builder.weights.len().next_multiple_of(ALIGN), 0);
                    builder.add(param, Place::Weight { offset, len: bytes.len() as u64 }, 0..repeat)?;
                }
                Data::Given if is_constant => {
                    (0..repeat).try_for_each(|run| builder.add_input(param, run..run + 1))?;
                }
                Data::Given => builder.add_input(param, 0..repeat)?,
            }
        }
        for (n, &param) in func.params[func.n_inputs..].iter().enumerate() {
            let buffer = builder.add(param, Place::Output(n as u32), 0..repeat)?;
            let spec = builder.spec(format!("out{n}"), buffer);
            builder.plan.outputs.push(spec);
        }
        for buffer in func.workspaces() {
            let place = Place::Arena { offset: builder.plan.arena.bytes };
            let id = builder.add(buffer, place, 0..repeat)?;
            let bytes = builder.constant(builder.plan.buffers[id.index()].size_bytes);
            builder.plan.arena.bytes += (bytes as u64).next_multiple_of(ALIGN as u64);
        }
        builder.calls(&self.kernels, repeat)?;
        builder.plan.weight_bytes = builder.weights.len() as u64;
        let program = ProgramDef { entries: self.image.entries.clone(), ..ProgramDef::default() };
        let manifest = Manifest {
            model: func.name.clone(),
            images: vec![image_def(&task.target, program)],
            ..Manifest::default()
        };
        let levels =
            [Level { plan: &builder.plan, specialised: &[], image: &self.image.bytes, device_code: None }];
        let contents = Contents { manifest: &manifest, levels: &levels, weights: &[&builder.weights] };
        contents.to_bytes().map(Bytes::new).map_err(|e| CompileError::Limit(e.to_string()))
    }

    /// Tells of the elements of an output which are padding; see [`padding_of`].
    pub(super) fn padding_of(
        &self,
        task: &Task,
        output: usize,
    ) -> Result<impl Fn(usize) -> bool + use<>, CompileError> {
        padding_of(task, &self.kernels, output)
    }
}

/// Tells of the elements of an output, by their places in memory, which are padding of its layout.
pub(super) fn padding_of(
    task: &Task,
    kernels: &Kernels,
    output: usize,
) -> Result<impl Fn(usize) -> bool + use<>, CompileError> {
    let param = task.computation.func.n_inputs + output;
    let logical = extents(&task.computation.func, task.computation.func.params[param])?;
    let physical = extents(&kernels.func, kernels.func.params[param])?;
    let pieces = task.computation.layouts.get(param).cloned().flatten().unwrap_or_default();
    Ok(move |place: usize| {
        let mut rest = place as i64;
        let mut indices = vec![0; physical.len()];
        for (index, extent) in indices.iter_mut().zip(&physical).rev() {
            (*index, rest) = (rest % extent, rest / extent);
        }
        // The index of a dimension is made of its pieces, outermost first.
        let mut of_dims = vec![0; logical.len()];
        for (piece, index) in pieces.iter().zip(indices) {
            of_dims[piece.dim] = of_dims[piece.dim] * piece.factor.unwrap_or(1) + index;
        }
        of_dims.iter().zip(&logical).any(|(index, extent)| index >= extent)
    })
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
    weights: Vec<u8>,
    /// Where the function's buffers are, for each of its runs.
    places: Vec<Vec<(Buffer, BufferId)>>,
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

    /// Adds an input of the artifact for a buffer, the same for these runs.
    fn add_input(&mut self, buffer: Buffer, runs: Range<usize>) -> Result<(), CompileError> {
        let n = self.plan.inputs.len();
        let id = self.add(buffer, Place::Input(n as u32), runs)?;
        let spec = self.spec(format!("in{n}"), id);
        self.plan.inputs.push(spec);
        Ok(())
    }

    /// Gives a buffer of the function a place, the same for these runs.
    fn add(&mut self, buffer: Buffer, place: Place, runs: Range<usize>) -> Result<BufferId, CompileError> {
        let extents = extents(self.func, buffer)?;
        let dtype = self.func.buffers[buffer].dtype;
        let bytes = extents.iter().product::<i64>() * dtype.bytes().max(1) as i64;
        let size_bytes = self.size(bytes);
        let shape = extents.into_iter().map(|extent| self.size(extent)).collect();
        let id = BufferId(self.plan.buffers.len() as u32);
        self.plan.buffers.push(BufferDef { dtype, size_bytes, shape, space: Space::Host, place });
        self.places[runs].iter_mut().for_each(|places| places.push((buffer, id)));
        Ok(id)
    }

    /// The kernels and their calls.
    fn calls(&mut self, kernels: &Kernels, repeat: usize) -> Result<(), CompileError> {
        self.plan.kernels = kernels.kernels.iter().map(|flat| kernel_def(&flat.kernel)).collect();
        for run in 0..repeat {
            for (n, flat) in kernels.kernels.iter().enumerate() {
                let places = &self.places[run];
                let place = |b: &Buffer| places.iter().find(|(known, _)| known == b).map(|&(_, id)| id);
                let buffers: Option<Vec<BufferId>> = flat.buffers.iter().map(place).collect();
                let (Some(buffers), Some((rounds, per_round))) = (buffers, tasks_of(&flat.kernel)) else {
                    return Err(CompileError::internal(
                        "probe",
                        "a kernel without a place or with open tasks",
                    ));
                };
                let (rounds, per_round) = (self.size(rounds), self.size(per_round));
                let (kernel, in_order) = (KernelId(n as u32), flat.kernel.grid.in_order);
                let op = PlanOp::Call { kernel, buffers, sizes: Vec::new(), rounds, per_round, in_order };
                self.plan.instrs.push(Instr { op, provenance: TextId(0) });
            }
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
