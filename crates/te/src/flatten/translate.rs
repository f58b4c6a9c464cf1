//! From a nest to a kernel. Nothing is decided or proven here.
//!
//! Indices become flat element offsets, vectorized loops vector values, and register buffers SSA values that loops carry
//! and branches join (scalar replacement). Expressions that are equal and in scope are computed once; operations stand
//! where they are first needed. Loops of threads become branches where they have fewer iterations than there are threads.

mod address;
mod emit;
mod expr;
mod registers;
mod stmt;
mod threads;

use rustc_hash::FxHashMap;
use tilewright_dtype::DType;

use self::emit::{Binding, Emitter};
use super::deal::deal;
use super::error::FlattenError;
use super::nest::{Nest, Tasks};
use super::options::FlattenOptions;
use super::threads::threads_of;
use crate::expr::Buffer;
use crate::func::Scope;
use crate::kernel::uniform::divergent;
use crate::kernel::{
    Access, Kernel, KernelBuffer, KernelLocal, KernelSize, MemRef, TaskGrid, Threads, Type, Value,
};

/// A kernel with the buffers of the function that it takes, in the order of its parameters.
#[derive(Clone, Debug)]
pub struct FlatKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// What the caller passes.
    pub buffers: Vec<Buffer>,
}

/// The kernel of a nest whose blocks are bound.
///
/// # Errors
/// Where a register is indexed by a variable or read before it is written, or a local buffer has no constant size.
pub fn translate(nest: &Nest<'_>, options: &FlattenOptions) -> Result<FlatKernel, FlattenError> {
    let func = nest.func;
    let threads = threads_of(nest, options)?;
    let deal = deal(nest, threads)?;
    let Signature { buffers, params, locals, shared, places } = signature(nest, options)?;
    let sizes = func.sizes.iter().map(|&var| KernelSize { var, name: func.vars[var].name.clone() });
    let mut kernel = Kernel {
        name: nest.name.clone(),
        buffers: params,
        locals,
        threads,
        shared,
        sizes: sizes.collect(),
        grid: match &nest.tasks {
            Tasks::Single => TaskGrid::single(),
            Tasks::Shared(shared) => TaskGrid { per_round: shared.extent.clone(), ..TaskGrid::single() },
            Tasks::Rounds { rounds, shared, in_order } => TaskGrid {
                rounds: rounds.extent.clone(),
                per_round: shared.extent.clone(),
                in_order: *in_order,
            },
        },
        values: cranelift_entity::PrimaryMap::new(),
        task: Value::from_u32(0),
        body: Vec::new(),
    };
    kernel.task = kernel.values.push(Type::scalar(DType::I64));
    let task = kernel.task;
    let mut emitter = Emitter::new(func, &mut kernel, places, nest.written.clone(), *options, deal);
    match &nest.tasks {
        Tasks::Single => {}
        Tasks::Shared(shared) => {
            emitter.bindings.insert(shared.var, Binding::Scalar(task));
        }
        Tasks::Rounds { rounds, shared, .. } => emitter.bind_task(task, rounds, shared)?,
    }
    emitter.stmts(&nest.body)?;
    let body = emitter.finish();
    kernel.body = body;
    if threads != Threads::ONE
        && let Some(fault) = divergent(&kernel).into_iter().next()
    {
        return Err(FlattenError::of(func, "", fault));
    }
    Ok(FlatKernel { kernel, buffers })
}

/// What a kernel takes and what it has of its own.
#[derive(Default)]
struct Signature {
    /// Buffers of the function, in the order of `params`.
    buffers: Vec<Buffer>,
    params: Vec<KernelBuffer>,
    locals: Vec<KernelLocal>,
    shared: Vec<KernelLocal>,
    places: FxHashMap<Buffer, MemRef>,
}

fn signature(nest: &Nest<'_>, options: &FlattenOptions) -> Result<Signature, FlattenError> {
    let func = nest.func;
    let mut signature = Signature::default();
    for (buffer, data) in &func.buffers {
        let access = match (nest.read.contains(&buffer), nest.written.contains(&buffer)) {
            (false, false) => continue,
            (true, false) => Access::Read,
            (false, true) => Access::Write,
            (true, true) => Access::ReadWrite,
        };
        let Signature { buffers, params, locals, shared, places } = &mut signature;
        match data.scope {
            Scope::Global => {
                places.insert(buffer, MemRef::Param(buffers.len() as u32));
                buffers.push(buffer);
                let align = options.buffer_align.max(data.dtype.bytes() as u32);
                params.push(KernelBuffer { name: data.name.clone(), dtype: data.dtype, access, align });
            }
            Scope::Shared if options.lanes.is_none() => {
                let reason = format!("buffer `{}` is in shared memory, which this target has not", data.name);
                return Err(FlattenError::of(func, "", reason));
            }
            Scope::Shared | Scope::Stack => {
                let len = data.shape.iter().try_fold(1u64, |n, e| {
                    let extent = u64::try_from(e.as_int()?).ok()?;
                    n.checked_mul(extent)
                });
                let reason = || format!("local buffer `{}` has no constant size", data.name);
                let len = len.ok_or_else(|| FlattenError::of(func, "", reason()))?;
                let len = len.saturating_mul(nest.versions.get(&buffer).copied().unwrap_or(1).into());
                let array = KernelLocal { name: data.name.clone(), dtype: data.dtype, len: len.max(1) };
                if data.scope == Scope::Shared {
                    places.insert(buffer, MemRef::Shared(shared.len() as u32));
                    shared.push(array);
                } else {
                    places.insert(buffer, MemRef::Local(locals.len() as u32));
                    locals.push(array);
                }
            }
            Scope::Register => {}
        }
    }
    Ok(signature)
}
