//! A function as a model of its own: an artifact without inputs that runs the function's kernels on made-up data.

use std::ops::Range;

use tilewright_dtype::DType;
use tilewright_graph::{Bytes as GraphBytes, Tensor};
use tilewright_lower::evaluate::pack;
use tilewright_runtime::Bytes;
use tilewright_runtime::artifact::{Contents, Level, Manifest, ProgramDef};
use tilewright_runtime::plan::{
    ALIGN, BufferDef, BufferId, DimSpec, Instr, KernelId, Op, Place, Plan, SizeDef, SizeId, TensorSpec,
    TextId,
};
use tilewright_te::kernel::Kernel;
use tilewright_te::{Buffer, Func};
use tilewright_tune::Task;

use crate::autoschedule::Kernels;
use crate::codegen;
use crate::compile::image_def;
use crate::error::CompileError;
use crate::units::kernel_def;

/// Bytes of an element of an input: only functions of 32-bit floats are tasks.
const F32_BYTES: u64 = 4;

/// What constant inputs hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// Noise, wherever the schedule wants it: enough to measure.
    Anywhere,
    /// Noise that is laid out as the schedule wants it: results of several schedules can be compared.
    InPlace,
}

/// A function's kernels as machine code.
pub(super) struct Probe {
    kernels: Kernels,
    image: tilewright_image::Image,
}

impl Probe {
    /// Generates the code.
    pub(super) fn new(task: &Task, kernels: Kernels) -> Result<Probe, CompileError> {
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

    /// Copies of the constant inputs that together no second-level cache holds.
    pub(super) fn copies(&self, task: &Task) -> Result<usize, CompileError> {
        let func = &self.kernels.func;
        let mut bytes = 0;
        for (n, &param) in func.params[..func.n_inputs].iter().enumerate() {
            if task.computation.constant_inputs.get(n) == Some(&true) {
                bytes += extents(func, param)?.iter().product::<i64>().unsigned_abs() * F32_BYTES;
            }
        }
        Ok(if bytes > 0 { (2 * task.target.machine.caches.l2).div_ceil(bytes) as usize } else { 1 })
    }

    /// An artifact that runs the function `repeat` times in each of its runs, each time with constants that were not
    /// used for as long as possible: in a model, too, many others were used since the last run.
    pub(super) fn artifact(&self, task: &Task, data: Data, repeat: usize) -> Result<Bytes, CompileError> {
        let func = &self.kernels.func;
        let copies = self.copies(task)?.clamp(1, repeat.max(1));
        let places = vec![Vec::new(); copies];
        let mut builder = Builder { func, plan: Plan::default(), weights: Vec::new(), places };
        builder.plan.texts.push(String::new());
        for (n, &param) in func.params[..func.n_inputs].iter().enumerate() {
            let bytes = self.input(task, n, data)?;
            let is_constant = task.computation.constant_inputs.get(n) == Some(&true);
            for copy in 0..if is_constant { copies } else { 1 } {
                let place = Place::Weight { offset: builder.weights.len() as u64, len: bytes.len() as u64 };
                builder.weights.extend(&bytes);
                builder.weights.resize(builder.weights.len().next_multiple_of(ALIGN), 0);
                let copies = if is_constant { copy..copy + 1 } else { 0..copies };
                builder.add(param, place, copies)?;
            }
        }
        for (n, &param) in func.params[func.n_inputs..].iter().enumerate() {
            let buffer = builder.add(param, Place::Output(n as u32), 0..copies)?;
            let BufferDef { dtype, shape, .. } = builder.plan.buffers[buffer.index()].clone();
            let dims = shape.into_iter().map(|size| DimSpec { name: None, size }).collect();
            builder.plan.outputs.push(TensorSpec { name: format!("out{n}"), dtype, dims, buffer });
        }
        for buffer in func.workspaces() {
            let place = Place::Arena { offset: builder.plan.arena_bytes };
            let id = builder.add(buffer, place, 0..copies)?;
            let bytes = builder.constant(builder.plan.buffers[id.index()].size_bytes);
            builder.plan.arena_bytes += (bytes as u64).next_multiple_of(ALIGN as u64);
        }
        builder.calls(&self.kernels, repeat)?;
        builder.plan.weight_bytes = builder.weights.len() as u64;
        let program = ProgramDef { entries: self.image.entries.clone(), ..ProgramDef::default() };
        let manifest = Manifest {
            model: func.name.clone(),
            images: vec![image_def(&task.target, program)],
            ..Manifest::default()
        };
        let levels = [Level { plan: &builder.plan, specialised: &[], image: &self.image.bytes }];
        let contents =
            Contents { manifest: &manifest, levels: &levels, weights: &[builder.weights.as_slice()] };
        contents.to_bytes().map(Bytes::new).map_err(|e| CompileError::Limit(e.to_string()))
    }

    /// Tells of the elements of an output, by their places in memory, which are padding of its layout.
    pub(super) fn padding_of(
        &self,
        task: &Task,
        output: usize,
    ) -> Result<impl Fn(usize) -> bool + use<>, CompileError> {
        let param = task.computation.func.n_inputs + output;
        let logical = extents(&task.computation.func, task.computation.func.params[param])?;
        let physical = extents(&self.kernels.func, self.kernels.func.params[param])?;
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

    /// The bytes of an input.
    fn input(&self, task: &Task, n: usize, data: Data) -> Result<Vec<u8>, CompileError> {
        let packing = self.kernels.packing.get(n).filter(|packing| !packing.is_empty());
        match (data, packing) {
            (Data::InPlace, Some(packing)) => {
                let param = task.computation.func.params[n];
                let dims: Vec<usize> =
                    extents(&task.computation.func, param)?.iter().map(|&e| e as usize).collect();
                let bytes = GraphBytes::new(noise(n, dims.iter().product()));
                let tensor = Tensor::from_bytes(DType::F32, dims, bytes);
                let tensor = tensor.map_err(|e| CompileError::internal("probe", e))?;
                pack(packing, &tensor).map_err(|e| CompileError::internal("probe", e))
            }
            (Data::InPlace, None) | (Data::Anywhere, _) => {
                let func = &self.kernels.func;
                Ok(noise(n, extents(func, func.params[n])?.iter().product::<i64>() as usize))
            }
        }
    }
}

/// A plan while it is made.
struct Builder<'a> {
    func: &'a Func,
    plan: Plan,
    weights: Vec<u8>,
    /// Where the function's buffers are, for each copy of the constants.
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

    /// Gives a buffer of the function a place, the same for these copies of the constants.
    fn add(&mut self, buffer: Buffer, place: Place, copies: Range<usize>) -> Result<BufferId, CompileError> {
        let extents = extents(self.func, buffer)?;
        let dtype = self.func.buffers[buffer].dtype;
        let bytes = extents.iter().product::<i64>() * dtype.bytes().max(1) as i64;
        let size_bytes = self.size(bytes);
        let shape = extents.into_iter().map(|extent| self.size(extent)).collect();
        let id = BufferId(self.plan.buffers.len() as u32);
        self.plan.buffers.push(BufferDef { dtype, size_bytes, shape, place });
        self.places[copies].iter_mut().for_each(|places| places.push((buffer, id)));
        Ok(id)
    }

    /// The kernels and their calls.
    fn calls(&mut self, kernels: &Kernels, repeat: usize) -> Result<(), CompileError> {
        self.plan.kernels = kernels.kernels.iter().map(|flat| kernel_def(&flat.kernel)).collect();
        for n in 0..repeat {
            let copy = n % self.places.len();
            for (n, flat) in kernels.kernels.iter().enumerate() {
                let places = &self.places[copy];
                let place = |b: &Buffer| places.iter().find(|(known, _)| known == b).map(|&(_, id)| id);
                let buffers: Option<Vec<BufferId>> = flat.buffers.iter().map(place).collect();
                let (Some(buffers), Some((rounds, per_round))) = (buffers, tasks_of(&flat.kernel)) else {
                    return Err(CompileError::internal(
                        "probe",
                        "a kernel without a place or with open tasks",
                    ));
                };
                let (rounds, per_round) = (self.size(rounds), self.size(per_round));
                let op =
                    Op::Call { kernel: KernelId(n as u32), buffers, sizes: Vec::new(), rounds, per_round };
                self.plan.instrs.push(Instr { op, provenance: TextId(0) });
            }
        }
        Ok(())
    }
}

/// Rounds of a kernel and tasks of a round, if they are known.
fn tasks_of(kernel: &Kernel) -> Option<(i64, i64)> {
    Some((kernel.grid.rounds.as_int()?, kernel.grid.per_round.as_int()?))
}

/// The extents of a buffer, all known.
fn extents(func: &Func, buffer: Buffer) -> Result<Vec<i64>, CompileError> {
    let extents = func.buffers[buffer].shape.iter().map(|e| e.as_int()).collect::<Option<Vec<i64>>>();
    extents.ok_or_else(|| CompileError::internal("probe", "an open extent"))
}

/// Elements between -0.5 and 0.5, the same for every schedule of a function.
fn noise(input: usize, n: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(input as u64);
    (0..n).flat_map(|_| (random.f32() - 0.5).to_le_bytes()).collect()
}
