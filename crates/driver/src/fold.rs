//! Operators on constants, for constant folding: small ones are interpreted, large ones compiled and run in this process.
//!
//! Both give the same bits. Generated code computes what the interpreter does, intrinsics included, and the schedule here only
//! distributes results over threads and lanes, so that every sum has its terms in the order of its definition. So what is folded, and
//! with it the bytes of an artifact, does not depend on the machine that compiles.

use std::sync::{Arc, Mutex};

use tilewright_autosched::{Decisions, flatten_options};
use tilewright_dtype::DType;
use tilewright_graph::passes::Evaluate;
use tilewright_graph::{Bytes, Op, Tensor, TensorType};
use tilewright_lower::evaluate::Application;
use tilewright_machine::{CodegenKind, Target};
use tilewright_runtime::pool::{Pool, TaskGrid};
use tilewright_runtime::threads::{ThreadPool, available_threads};
use tilewright_runtime::{Cancel, Model, Session, SessionOptions, TensorView, Trust};
use tilewright_te::computation::DIRECT;
use tilewright_te::flatten::flatten;
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Block, Computation, Func, IterKind, math};
use tilewright_tune::Task;

use crate::autoschedule::{Kernels, flatten_error};
use crate::error::CompileError;
use crate::tuning::probe::Probe;

/// Operations from which on an operator is compiled: the interpreter takes about as long for them (3 ms) as code generation for a function.
pub(crate) const COMPILED_FROM: u64 = 1 << 22;

/// Operations from which on an operator is left to be computed when the model runs: about half a minute of compiled code.
const NOT_FOLDED_FROM: u64 = 1 << 36;

/// Bytes of vectors: two registers of the code generator. Longer ones are more code for each lane, and take longer to compile.
const VECTOR_BYTES: usize = 32;

/// Evaluates operators on constants for constant folding.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    /// Operations from which on an operator is compiled.
    compiled_from: u64,
    /// Operations from which on an operator is not folded.
    not_folded_from: u64,
    /// Asks to stop: what is not computed by then is left as it is.
    cancel: Cancel,
}

impl Fold {
    /// An evaluator until it is asked to stop.
    pub(crate) fn until(cancel: Cancel) -> Fold {
        Fold { compiled_from: COMPILED_FROM, not_folded_from: NOT_FOLDED_FROM, cancel }
    }
}

impl Evaluate for Fold {
    fn evaluate(
        &self,
        op: &Op,
        inputs: &[Option<&Tensor>],
        outputs: &[TensorType],
    ) -> Result<Vec<Tensor>, String> {
        if self.cancel.is_cancelled() {
            return Err(CompileError::Cancelled.to_string());
        }
        let application = Application::of(op, inputs, outputs)?;
        let operations = application.operations();
        if operations >= self.not_folded_from {
            return Err(format!("{} would take {operations} operations", op.name()));
        }
        match operations < self.compiled_from {
            true => application.interpret(),
            false => run_compiled(application, inputs, outputs, &self.cancel).map_err(|e| e.to_string()),
        }
    }
}

fn run_compiled(
    application: Application<'_>,
    inputs: &[Option<&Tensor>],
    outputs: &[TensorType],
    cancel: &Cancel,
) -> Result<Vec<Tensor>, CompileError> {
    let operands = inputs.iter().flatten().zip(&application.inputs);
    let views: Vec<TensorView<'_>> =
        operands.map(|(tensor, bytes)| TensorView::new(tensor.dtype(), tensor.dims(), bytes)).collect();
    let compiled = Compiled::new(application.func)?;
    let threads = ThreadPool::new(available_threads());
    let pool: Arc<dyn Pool> = Arc::new(Until { threads, cancel: cancel.clone() });
    let results =
        compiled.run(&views, &pool, |results| results.iter().map(|bytes| bytes.to_vec()).collect())?;
    if cancel.is_cancelled() {
        return Err(CompileError::Cancelled);
    }
    let tensor = |(bytes, ty): (Vec<u8>, &TensorType)| {
        let dims = ty.shape.as_fixed().ok_or_else(|| internal(&"a result of open extents"))?;
        Tensor::from_bytes(ty.dtype, dims, Bytes::new(bytes)).map_err(|e| internal(&e))
    };
    Vec::into_iter(results).zip(outputs).map(tensor).collect()
}

/// Threads that leave out tasks once they are asked to stop. The results are to be thrown away then: one kernel may take half a minute.
struct Until {
    threads: ThreadPool,
    cancel: Cancel,
}

impl Pool for Until {
    fn threads(&self) -> usize {
        self.threads.threads()
    }

    fn run(&self, grid: TaskGrid, job: &(dyn Fn(i64, i64) + Sync)) {
        let one = |task| {
            if !self.cancel.is_cancelled() {
                job(task, task + 1);
            }
        };
        self.threads.run(grid, &|begin, end| (begin..end).for_each(one));
    }
}

fn internal(error: &dyn std::fmt::Display) -> CompileError {
    CompileError::internal("fold", error.to_string())
}

/// A function of constant extents as machine code for this process. It gives the bits that the interpreter does.
pub(crate) struct Compiled {
    model: Model,
    /// Sessions that no thread runs: memory that a run has touched serves the next.
    idle: Mutex<Vec<Session>>,
}

impl Compiled {
    /// Compiles a function whose intrinsics are not expanded and which has no schedule yet.
    ///
    /// # Errors
    /// A defect of code generation.
    pub(crate) fn new(func: Func) -> Result<Compiled, CompileError> {
        let target = Target::host(CodegenKind::Cranelift);
        let task = Task { computation: Computation::of(func), target, calls: 1, constant_bytes: 0 };
        let probe = Probe::new(&task, kernels(&task)?)?;
        let model =
            crate::loader(Trust::Origin).from_bytes(probe.artifact(&task)?).map_err(|e| internal(&e))?;
        Ok(Compiled { model, idle: Mutex::new(Vec::new()) })
    }

    /// What `take` makes of the bytes of the results.
    ///
    /// # Errors
    /// Inputs that are not the function's.
    pub(crate) fn run<T>(
        &self,
        inputs: &[TensorView<'_>],
        pool: &Arc<dyn Pool>,
        take: impl FnOnce(&[&[u8]]) -> T,
    ) -> Result<T, CompileError> {
        let idle = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        let options = || SessionOptions { pool: pool.clone(), ..SessionOptions::default() };
        let mut session = idle.unwrap_or_else(|| self.model.session_with(options()));
        let results = session.run(inputs).map_err(|e| internal(&e))?;
        let bytes: Vec<&[u8]> = results.iter().map(|(_, view)| view.bytes).collect();
        let taken = take(&bytes);
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(session);
        }
        Ok(taken)
    }
}

/// The kernels of a function by a schedule that keeps the order of sums.
fn kernels(task: &Task) -> Result<Kernels, CompileError> {
    let mut schedule = Schedule::new(task.computation.func.clone());
    for block in schedule.blocks() {
        let mut vectors = schedule.clone();
        if vectorize(&mut vectors, &block).is_ok() {
            schedule = vectors;
        }
        let outermost = schedule.loops(&block).ok().and_then(|loops| loops.into_iter().next());
        if let Some(outermost) = outermost.filter(|l| l.iter_kind == Some(IterKind::Spatial)) {
            // Where iterations are no tasks the loop stays serial.
            let _ = schedule.parallel(&outermost.name);
        }
    }
    let mut func = schedule.finish().map_err(|e| CompileError::internal("fold", e))?;
    math::expand_func(&mut func);
    math::narrow_floats(&mut func);
    let options = flatten_options(&task.target);
    let kernels = flatten(&func, &options).map_err(flatten_error)?;
    let packing = vec![Vec::new(); func.n_inputs];
    Ok(Kernels {
        func,
        kernels,
        packing,
        algorithm: DIRECT.to_string(),
        rulings: Vec::new(),
        strategy: String::new(),
        decisions: Decisions::default(),
        estimate_ns: None,
    })
}

/// Makes vectors of the last data-parallel loop, inside of those of the reduction.
fn vectorize(schedule: &mut Schedule, block: &str) -> Result<(), ScheduleError> {
    let loops = schedule.loops(block)?;
    let of_kind = |kind: IterKind| {
        let loops = loops.iter().filter(move |l| l.iter_kind == Some(kind));
        loops.map(|l| l.name.clone()).collect::<Vec<String>>()
    };
    let (mut order, reduced) = (of_kind(IterKind::Spatial), of_kind(IterKind::Reduce));
    let is_known = order.len() + reduced.len() == loops.len();
    let Some(last) = order.pop().filter(|_| is_known) else {
        return Err(ScheduleError::new("fold", block, "no data-parallel loop"));
    };
    let lanes = VECTOR_BYTES / schedule.func().block(block).map_or(VECTOR_BYTES, widest);
    let parts = schedule.split(&last, &[None, Some(lanes as i64)])?;
    order.push(parts[0].clone());
    order.extend(reduced);
    order.push(parts[1].clone());
    let order: Vec<&str> = order.iter().map(String::as_str).collect();
    schedule.reorder(&order)?;
    schedule.vectorize(&parts[1])
}

/// Bytes of the widest type of floats that a block computes in, and of floats of single precision at least.
fn widest(block: &Block) -> usize {
    let mut bytes = DType::F32.bytes();
    block.for_each_node(|e| {
        if e.dtype().is_float() {
            bytes = bytes.max(e.dtype().bytes());
        }
    });
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_graph::Dim;
    use tilewright_graph::op::{ReduceAttrs, ReduceKind, SoftmaxAttrs, UnaryOp};

    fn noise(dims: &[usize]) -> Tensor {
        let mut random = fastrand::Rng::with_seed(dims.iter().sum::<usize>() as u64);
        let n = dims.iter().product();
        let elements: Vec<f32> = (0..n).map(|_| random.f32() * 2.0 - 1.0).collect();
        Tensor::from_elements(dims, &elements).unwrap()
    }

    /// Compiled and interpreted, results have the same bits.
    fn check(op: Op, inputs: &[&Tensor], dims: &[i64]) {
        let ty = TensorType::new(DType::F32, dims.iter().map(|&d| Dim::new(d)).collect::<Vec<_>>());
        let inputs: Vec<Option<&Tensor>> = inputs.iter().map(|tensor| Some(*tensor)).collect();
        let types = [ty];
        let evaluate = |compiled_from| {
            Fold { compiled_from, ..Fold::until(Cancel::new()) }.evaluate(&op, &inputs, &types).unwrap()
        };
        assert_eq!(evaluate(0), evaluate(u64::MAX), "{}", op.name());
    }

    #[test]
    fn compiled_operators_give_the_bits_of_the_interpreter() {
        let (a, b) = (noise(&[13, 37]), noise(&[37, 21]));
        check(Op::matmul(), &[&a, &b], &[13, 21]);
        check(Op::Unary(UnaryOp::Tanh), &[&a], &[13, 37]);
        let mean = ReduceAttrs { kind: ReduceKind::Mean, axes: vec![1], keep_dims: false };
        check(Op::Reduce(mean), &[&a], &[13]);
        check(Op::Softmax(SoftmaxAttrs { axis: 1, log: false }), &[&a], &[13, 37]);
    }

    #[test]
    fn what_would_take_too_long_is_left_to_the_run() {
        let a = noise(&[64]);
        let ty = [a.tensor_type()];
        let fold = Fold { not_folded_from: 64, ..Fold::until(Cancel::new()) };
        assert!(fold.evaluate(&Op::Unary(UnaryOp::Relu), &[Some(&a)], &ty).is_err());
    }
}
