//! From a scheduled function to kernels: the last step before code generation.
//!
//! Every top-level parallel loop becomes a kernel whose tasks are its iterations, or those of the parallel loop alone inside
//! it, round by round; what lies between such loops becomes a kernel of one task. Inside a kernel indices become flat element offsets, vectorized
//! loops become vector values, unrolled loops are repeated, and register buffers become SSA values that
//! loops carry.
//!
//! It leaves alone what a schedule has decided: no loop is reordered, split or vectorized here. Operations that
//! only compute are shared with equal ones in scope and stand outside the loops that they do not change in;
//! loads and stores stay where the schedule has them, under their guards. The body of a tile whose loads are clamped is there
//! twice: once for where all of it lies inside. Loops that move elements and padding are parted where one ends and the other begins.

mod emit;
mod expr;
mod partition;
mod poly;
mod stmt;
mod whole;

pub use stmt::masks;

use tilewright_dtype::DType;

use crate::expr::{Buffer, Expr};
use crate::func::{Func, Loop, LoopKind, Scope, Stmt};
use crate::kernel::{Access, Kernel, KernelBuffer, KernelLocal, KernelSize, TaskGrid};
use crate::schedule::start_apart;

/// What the code generator can take.
#[derive(Clone, Copy, Debug)]
pub struct FlattenOptions {
    /// Bytes from which on an element may be of masked loads and stores, which are to be used where only some lanes of
    /// a vector are in bounds; without them such vectors are computed lane by lane.
    pub masked_access: Option<u32>,
    /// Alignment in bytes that the caller guarantees for the first element of every buffer.
    pub buffer_align: u32,
}

/// A kernel with the buffers of the function that it takes, in the order of its parameters.
#[derive(Clone, Debug)]
pub struct FlatKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// What the caller passes.
    pub buffers: Vec<Buffer>,
}

/// Why a function cannot be turned into kernels: the schedule broke a rule of the flattened stage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("function `{func}`, block `{block}`: {reason}")]
pub struct FlattenError {
    /// The function.
    pub func: String,
    /// The block being lowered, empty outside blocks.
    pub block: String,
    /// What is wrong.
    pub reason: String,
}

/// The kernels of a function, in the order in which they must run.
///
/// The function must be in *scheduled* form with intrinsics expanded (`crate::math`).
///
/// # Errors
/// Where a vectorized or unrolled loop has no constant extent, a register is indexed by a variable or read
/// before it is written, or a parallel loop is not outermost.
pub fn flatten(func: &Func, options: &FlattenOptions) -> Result<Vec<FlatKernel>, FlattenError> {
    let func = &*start_apart(func).map_err(|error| FlattenError {
        func: func.name.clone(),
        block: String::new(),
        reason: error.to_string(),
    })?;
    let mut phases: Vec<Phase<'_>> = Vec::new();
    for stmt in &func.body {
        match stmt {
            Stmt::Loop(l) if l.kind == LoopKind::Parallel => phases.push(match &l.body[..] {
                [Stmt::Loop(inner)] if inner.kind == LoopKind::Parallel => {
                    Phase::Parallel { rounds: Some(l), shared: inner }
                }
                _ => Phase::Parallel { rounds: None, shared: l },
            }),
            Stmt::Loop(_) | Stmt::Block(_) => match phases.last_mut() {
                Some(Phase::Serial(stmts)) => stmts.push(stmt),
                _ => phases.push(Phase::Serial(vec![stmt])),
            },
        }
    }
    let single = phases.len() == 1;
    let mut kernels = Vec::new();
    for (n, phase) in phases.iter().enumerate() {
        let name = if single { func.name.clone() } else { format!("{}_{n}", func.name) };
        kernels.push(flatten_phase(func, name, phase, options)?);
    }
    Ok(kernels)
}

/// One kernel's worth of a function's body.
enum Phase<'a> {
    /// Tasks: the iterations of a loop, or of two.
    Parallel {
        rounds: Option<&'a Loop>,
        shared: &'a Loop,
    },
    Serial(Vec<&'a Stmt>),
}

fn flatten_phase(
    func: &Func,
    name: String,
    phase: &Phase<'_>,
    options: &FlattenOptions,
) -> Result<FlatKernel, FlattenError> {
    let stmts: Vec<&Stmt> = match phase {
        Phase::Parallel { shared, .. } => shared.body.iter().collect(),
        Phase::Serial(stmts) => stmts.clone(),
    };
    let mut used = UsedBuffers::default();
    stmts.iter().for_each(|s| used.visit(s));

    let mut buffers = Vec::new();
    let mut kernel_buffers = Vec::new();
    let mut locals = Vec::new();
    let mut places = rustc_hash::FxHashMap::default();
    for (buffer, data) in func.buffers.iter() {
        let (read, written) = (used.read.contains(&buffer), used.written.contains(&buffer));
        if !read && !written {
            continue;
        }
        match data.scope {
            Scope::Global => {
                let access = match (read, written) {
                    (true, false) => Access::Read,
                    (false, _) => Access::Write,
                    (true, true) => Access::ReadWrite,
                };
                places.insert(buffer, crate::kernel::Place::Param(buffers.len() as u32));
                buffers.push(buffer);
                let align = options.buffer_align.max(data.dtype.bytes() as u32);
                kernel_buffers.push(KernelBuffer {
                    name: data.name.clone(),
                    dtype: data.dtype,
                    access,
                    align,
                });
            }
            Scope::Stack => {
                let len = data.shape.iter().try_fold(1u64, |n, e| Some(n * u64::try_from(e.as_int()?).ok()?));
                let len = len.ok_or_else(|| FlattenError {
                    func: func.name.clone(),
                    block: String::new(),
                    reason: format!("stack buffer `{}` has no constant size", data.name),
                })?;
                places.insert(buffer, crate::kernel::Place::Local(locals.len() as u32));
                locals.push(KernelLocal { name: data.name.clone(), dtype: data.dtype, len: len.max(1) });
            }
            Scope::Register => {}
            Scope::Shared => {
                return Err(FlattenError {
                    func: func.name.clone(),
                    block: String::new(),
                    reason: format!("buffer `{}` is in shared memory, which this target has not", data.name),
                });
            }
        }
    }

    let sizes: Vec<KernelSize> =
        func.sizes.iter().map(|&var| KernelSize { var, name: func.vars[var].name.clone() }).collect();
    let mut kernel = Kernel {
        name,
        buffers: kernel_buffers,
        locals,
        sizes,
        grid: match phase {
            Phase::Parallel { rounds, shared } => TaskGrid {
                rounds: rounds.map_or(Expr::int(1), |l| l.extent.clone()),
                per_round: shared.extent.clone(),
            },
            Phase::Serial(_) => TaskGrid::single(),
        },
        values: cranelift_entity::PrimaryMap::new(),
        task: crate::kernel::Value::from_u32(0),
        body: Vec::new(),
    };
    kernel.task = kernel.values.push(crate::kernel::Type::scalar(DType::I64));
    let task = kernel.task;
    let mut emitter = emit::Emitter::new(func, &mut kernel, places, used.written, *options);
    match phase {
        Phase::Parallel { rounds: None, shared } => emitter.bind_scalar(shared.var, &shared.extent, task),
        Phase::Parallel { rounds: Some(rounds), shared } => emitter.bind_task(task, rounds, shared)?,
        Phase::Serial(_) => {}
    }
    emitter.stmts(&stmts)?;
    let body = emitter.finish();
    kernel.body = body;
    Ok(FlatKernel { kernel, buffers })
}

/// Which buffers statements read and write.
#[derive(Default)]
struct UsedBuffers {
    read: rustc_hash::FxHashSet<Buffer>,
    written: rustc_hash::FxHashSet<Buffer>,
}

impl UsedBuffers {
    fn visit(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Loop(l) => {
                self.visit_expr(&l.extent);
                l.body.iter().for_each(|s| self.visit(s));
            }
            Stmt::Block(b) => {
                b.for_each_expr(|e| self.visit_expr(e));
                b.iters.iter().for_each(|i| self.visit_expr(&i.value));
                b.predicate.iter().for_each(|p| self.visit_expr(p));
                b.init.iter().chain(&b.body).for_each(|s| {
                    self.written.insert(s.buffer);
                });
            }
        }
    }

    fn visit_expr(&mut self, expr: &Expr) {
        expr.walk(&mut |e| {
            if let crate::expr::ExprKind::Load(buffer, _) = e.kind() {
                self.read.insert(*buffer);
            }
        });
    }
}
