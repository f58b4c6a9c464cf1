//! Sessions: the state of one caller of a model.
#![allow(unsafe_code, reason = "lends the caller's tensors to the executor")]

mod inputs;
#[cfg(feature = "devices")]
mod on_device;
mod owned;

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::cancel::Cancel;
use crate::error::{ExecFault, InputError, InputErrors, RunError};
use crate::exec::{Draws, Exec, Frame, RunObserver, Spot};
use crate::memory::{AlignedBuf, Allocator};
use crate::model::{Model, Program};
use crate::placed::Placed;
use crate::plan::{ALIGN, TensorSpec, ValueSpec};
use crate::pool::Pool;
use crate::tensor::{TensorView, TensorViewMut, byte_len};
use crate::value::Value;

pub(crate) use inputs::fit_sizes;
use inputs::{Given, check_dims, check_form, fit_values, has_form, problems};
pub use inputs::{Input, Inputs};
pub use owned::Room;

/// How a session works.
#[derive(Clone)]
pub struct SessionOptions {
    /// The threads it uses. Default: the pool shared by the process; without `std`, the calling thread.
    pub pool: Arc<dyn Pool>,
    /// Most bytes it may hold for arena, outputs and run-time buffers; host values are not counted. Default: no limit
    /// but the machine's.
    pub memory_limit: u64,
    /// Where arena, run-time buffers, and copies of inputs come from. Default: Rust's allocator. Memory of devices, host values and
    /// weights are not asked for there.
    pub allocator: Option<Arc<dyn Allocator>>,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        #[cfg(feature = "std")]
        let pool = crate::threads::ThreadPool::global();
        #[cfg(not(feature = "std"))]
        let pool = Arc::new(crate::pool::Serial);
        SessionOptions { pool, memory_limit: u64::MAX, allocator: None }
    }
}

/// The state of one caller of a model: its memory, kept from run to run.
///
/// When the dims of the inputs repeat, [`Session::run`] and [`Session::run_into`] allocate nothing. Where the model has
/// specialised programs, a run takes one whose extents the inputs have; all of them share the session's memory.
pub struct Session {
    model: Model,
    /// What runs for the dims at hand.
    program: Arc<Program>,
    pool: Arc<dyn Pool>,
    frame: Frame,
    /// The dims that memory is laid out for: those of all inputs, concatenated.
    dims: Vec<usize>,
    prepared: bool,
    /// Aligned copies of inputs that are not.
    input_copies: Vec<AlignedBuf>,
    output_dims: Vec<Vec<usize>>,
}

impl Model {
    /// A session on the pool shared by the process (without `std`: on the calling thread).
    pub fn session(&self) -> Session {
        self.session_with(SessionOptions::default())
    }

    /// A session with its own pool or limits.
    pub fn session_with(&self, options: SessionOptions) -> Session {
        Session::new(self.clone(), options)
    }
}

impl Session {
    pub(crate) fn new(model: Model, options: SessionOptions) -> Session {
        let program = model.program().clone();
        let frame = Frame::new(&program, options.memory_limit, options.allocator.clone());
        let n_dims = model.inputs().iter().map(|spec| spec.dims.len()).sum();
        Session {
            pool: options.pool,
            frame,
            dims: vec![0; n_dims],
            prepared: false,
            input_copies: model.inputs().iter().map(|_| AlignedBuf::of(options.allocator.clone())).collect(),
            output_dims: model.outputs().iter().map(|spec| Vec::with_capacity(spec.dims.len())).collect(),
            model,
            program,
        }
    }

    /// The model it runs.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The program that the last run took: that for all extents, or a specialised one.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Bytes it holds for arena, outputs and run-time buffers.
    pub fn memory(&self) -> u64 {
        self.frame.reserved()
    }

    /// Sets what nodes without a seed of their own draw random numbers by, 0 in a new session, and begins all streams
    /// of random numbers anew. Sessions of one seed give the same numbers run by run; in a session, each run of a node
    /// gives the next ones.
    pub fn set_seed(&mut self, seed: u64) {
        self.frame.draws = Draws::of_seed(seed);
    }

    /// Lets runs be stopped, from the next one on: before each instruction a run asks whether it is to go on, and what works on a
    /// device is waited for. A graph of a device is one instruction. `None`, as in a new session, asks nothing.
    ///
    /// A session that was stopped runs again, with another request or none.
    pub fn set_cancel(&mut self, cancel: Option<Cancel>) {
        self.frame.cancel = cancel;
    }

    /// Runs a model whose inputs are all tensors on inputs in its order. The outputs stay in the session until the
    /// next run.
    ///
    /// # Errors
    /// All problems with the inputs at once, or what stopped the run.
    pub fn run(&mut self, inputs: &[TensorView<'_>]) -> Result<Outputs<'_>, RunError> {
        self.run_observed(inputs, &[], &mut ())
    }

    /// Runs the model on named inputs in any order.
    ///
    /// # Errors
    /// As [`Session::run`]; also for names that the model does not have, or that occur twice.
    pub fn run_named<'a, N: AsRef<str>, I: Into<Input<'a>>>(
        &mut self,
        inputs: impl IntoIterator<Item = (N, I)>,
    ) -> Result<Outputs<'_>, RunError> {
        let inputs: SmallVec<[(N, Input<'_>); 2]> =
            inputs.into_iter().map(|(name, input)| (name, input.into())).collect();
        let inputs = self.model.arrange(&inputs)?;
        self.run_values(inputs.tensors(), inputs.values())
    }

    /// Runs the model on its inputs that are tensors and those that are not, each in the model's order.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_values(
        &mut self,
        tensors: &[TensorView<'_>],
        values: &[Value],
    ) -> Result<Outputs<'_>, RunError> {
        self.run_observed(tensors, values, &mut ())
    }

    /// [`Session::run_values`] under the eyes of an observer.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_observed<O: RunObserver + ?Sized>(
        &mut self,
        tensors: &[TensorView<'_>],
        values: &[Value],
        observer: &mut O,
    ) -> Result<Outputs<'_>, RunError> {
        let errors = self.too_many("inputs", tensors.len(), self.model.inputs().len());
        self.start(&|i| tensors.get(i).copied().map(Placed::Host), values, errors)?;
        self.finish(observer)?;
        Ok(Outputs { session: self })
    }

    /// Runs the model and writes the outputs to the caller's memory, without a copy where that is aligned to
    /// [`ALIGN`] bytes and the output's extents follow from the inputs'. Outputs that are no tensors are not given.
    ///
    /// # Errors
    /// As [`Session::run`]; also when an output's type or extents are not those of the memory given.
    pub fn run_into(
        &mut self,
        inputs: &[TensorView<'_>],
        outputs: &mut [TensorViewMut<'_>],
    ) -> Result<(), RunError> {
        let mut errors = self.too_many("inputs", inputs.len(), self.model.inputs().len());
        errors.extend(self.too_many("outputs", outputs.len(), self.model.outputs().len()));
        let specs = self.model.outputs();
        errors.extend(
            specs.iter().skip(outputs.len()).map(|spec| InputError::Missing { name: spec.name.clone() }),
        );
        for (spec, view) in specs.iter().zip(outputs.iter()) {
            check_form(spec, &host_view(view), &mut errors);
        }
        self.start(&|i| inputs.get(i).copied().map(Placed::Host), &[], errors)?;

        let program = &*self.program;
        let mut errors = Vec::new();
        for (i, (spec, view)) in program.plan.outputs.iter().zip(outputs.iter_mut()).enumerate() {
            if !program.facts.late_outputs[i] {
                self.check_dims(spec, view.dims, &mut errors);
                // SAFETY: the view is borrowed mutably until this function returns.
                unsafe { lend_output(program, &mut self.frame, spec, view) };
            }
        }
        fail(errors)?;
        self.finish(&mut ())?;
        let mut errors = Vec::new();
        for (i, (spec, view)) in self.program.plan.outputs.iter().zip(outputs).enumerate() {
            self.check_dims(spec, view.dims, &mut errors);
            self.copy_output(i, view);
        }
        fail(errors)
    }

    /// Copies an output to the caller's memory, of the same extents, unless it was lent.
    fn copy_output(&self, index: usize, view: &mut TensorViewMut<'_>) {
        let result = Outputs { session: self }.view(index);
        // Where the memory was lent, the result is in its place.
        if result.bytes.len() == view.bytes.len() && result.bytes.as_ptr() != view.bytes.as_ptr() {
            view.bytes.copy_from_slice(result.bytes);
        }
    }

    fn too_many(&self, what: &'static str, given: usize, expected: usize) -> Vec<InputError> {
        if given > expected { vec![InputError::TooMany { what, given, expected }] } else { Vec::new() }
    }

    /// Checks the inputs, lays out memory if their dims are new, and lends them to the frame. One copy for all kinds of runs: programs for
    /// boards are small.
    fn start<'v>(
        &mut self,
        given: &dyn Fn(usize) -> Option<Placed<'v>>,
        values: &[Value],
        mut errors: Vec<InputError>,
    ) -> Result<(), RunError> {
        // No count of the model's or a program's owners changes in a run: threads of a model would wait for one another at it.
        let model = &self.model;
        let mut same = self.prepared;
        let mut fit = errors.is_empty() && fit_values(model.plan(), values);
        for (i, spec) in model.inputs().iter().enumerate() {
            let input = given(i).filter(|input| has_form(spec, input));
            fit &= input.is_some();
            if let Some(input) = input {
                let start = model.program().facts.dim_starts[i];
                let dims = &mut self.dims[start..start + spec.dims.len()];
                same &= dims == input.dims();
                dims.copy_from_slice(input.dims());
            }
        }
        let problems = |program: &Program, errors| {
            let given: Vec<Given<'_>> = (0..model.inputs().len()).map(|i| given(i).into()).collect();
            problems(program, &given, |i| values.get(i).map(Ok), errors)
        };
        if !fit {
            self.prepared = false;
            errors.extend(self.too_many("values", values.len(), model.plan().value_inputs.len()));
            return Err(problems(model.program(), errors));
        }
        if !same {
            self.prepared = false;
            let program = model.choose(&self.dims);
            if !Arc::ptr_eq(program, &self.program) {
                self.frame.switch(&self.program, program);
                self.program = program.clone();
            }
            if !evaluate_sizes(&self.program, &mut self.frame, &self.dims) {
                return Err(problems(&self.program, errors));
            }
        }
        let program = &*self.program;
        self.frame.values.fill(None);
        for (spec, value) in program.plan.value_inputs.iter().zip(values) {
            self.frame.values[spec.value.index()] = Some(value.clone());
        }
        #[cfg(feature = "devices")]
        self.frame.all_are_here();
        for (i, spec) in program.plan.inputs.iter().enumerate() {
            let view = match given(i) {
                None => continue,
                Some(Placed::Host(view)) => view,
                #[cfg(feature = "devices")]
                Some(Placed::Device(tensor)) => {
                    let copy = &mut self.input_copies[i];
                    Session::lend_from_device(program, &mut self.frame, copy, i, &tensor)?;
                    continue;
                }
            };
            let mut ptr = view.bytes.as_ptr().cast_mut();
            if ptr.addr() % ALIGN != 0 {
                let copy = &mut self.input_copies[i];
                copy.reset(view.bytes.len())?;
                copy.copy_from_slice(view.bytes);
                ptr = copy.as_mut_ptr();
            }
            // SAFETY: aligned, initialised, only read (validation), and borrowed by the caller of the run, or a copy
            // that the session owns.
            unsafe { self.frame.lend(spec.buffer, ptr, view.bytes.len()) };
        }
        if same {
            self.frame.sizes.forget(&program.facts.late_sizes);
        } else {
            Exec { program, frame: &mut self.frame, pool: &*self.pool }.head_guards()?;
            self.frame.lay_out(program)?;
            self.prepared = true;
        }
        self.frame.reset_storage(program);
        Ok(())
    }

    /// Holds the extents of an output against those it has.
    fn check_dims(&self, spec: &TensorSpec, dims: &[usize], errors: &mut Vec<InputError>) {
        check_dims(spec, dims, &self.frame.sizes, true, errors);
    }

    /// Executes the plan and evaluates the dims of the outputs.
    fn finish<O: RunObserver + ?Sized>(&mut self, observer: &mut O) -> Result<(), RunError> {
        let program = &*self.program;
        let _awake = program.plan.keep_awake.then(|| Awake::new(&self.pool));
        Exec { program, frame: &mut self.frame, pool: &*self.pool }.run(observer)?;
        for (spec, dims) in program.plan.outputs.iter().zip(&mut self.output_dims) {
            let fault = |fault: ExecFault| RunError::Plan { fault, nodes: spec.name.clone() };
            output_spot(program, &self.frame, spec, dims).map_err(fault)?;
        }
        for spec in &program.plan.value_outputs {
            let fault = |fault: ExecFault| RunError::Plan { fault, nodes: spec.name.clone() };
            self.frame.value(spec.value).map_err(fault)?;
        }
        Ok(())
    }
}

/// Evaluates the extents of an output, and gives the memory it lies in, which is not too small for them.
fn output_spot(
    program: &Program,
    frame: &Frame,
    spec: &TensorSpec,
    dims: &mut Vec<usize>,
) -> Result<Spot, ExecFault> {
    dims.clear();
    for dim in &spec.dims {
        dims.push(frame.count(dim.size)?);
    }
    let spot = frame.spot(program, spec.buffer)?;
    match byte_len(spec.dtype, dims) {
        Some(bytes) if bytes <= spot.bytes => Ok(spot),
        _ => Err(ExecFault::Shape(spec.buffer)),
    }
}

/// Evaluates the sizes for new dims; whether those of all inputs are what the sizes say.
fn evaluate_sizes(program: &Program, frame: &mut Frame, dims: &[usize]) -> bool {
    let (plan, starts) = (&program.plan, &program.facts.dim_starts);
    let dim = |input: u32, axis: u32| i64::try_from(dims[starts[input as usize] + axis as usize]).ok();
    frame.sizes.evaluate(&plan.sizes, dim);
    fit_sizes(plan, &frame.sizes, starts, dims)
}

/// Lets a run write an output whose place is known to the caller's memory, if that will do.
///
/// # Safety
/// `view` stays borrowed until the run ends.
unsafe fn lend_output(program: &Program, frame: &mut Frame, spec: &TensorSpec, view: &mut TensorViewMut<'_>) {
    let needed = frame.spot(program, spec.buffer).map(|spot| spot.bytes);
    if needed == Ok(view.bytes.len()) && view.bytes.as_ptr().addr() % ALIGN == 0 {
        // SAFETY: aligned, initialised, and borrowed mutably until the run ends.
        unsafe { frame.lend(spec.buffer, view.bytes.as_mut_ptr(), view.bytes.len()) };
    }
}

/// Keeps the threads of a pool awake while it lives.
struct Awake(Arc<dyn Pool>);

impl Awake {
    fn new(pool: &Arc<dyn Pool>) -> Awake {
        pool.keep_awake(true);
        Awake(pool.clone())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.keep_awake(false);
    }
}

fn fail(errors: Vec<InputError>) -> Result<(), RunError> {
    if errors.is_empty() { Ok(()) } else { Err(RunError::Inputs(InputErrors(errors))) }
}

/// Memory for an output as it is checked.
fn host_view<'a>(view: &'a TensorViewMut<'_>) -> Placed<'a> {
    Placed::Host(TensorView::new(view.dtype, view.dims, view.bytes))
}

/// The outputs of a run, in the memory of the session.
#[derive(Clone, Copy)]
pub struct Outputs<'s> {
    session: &'s Session,
}

impl<'s> Outputs<'s> {
    /// Number of outputs that are tensors.
    pub fn len(&self) -> usize {
        self.session.output_dims.len()
    }

    /// Whether no output is a tensor.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Output `index` of those that are tensors, in the model's order.
    pub fn get(&self, index: usize) -> Option<TensorView<'s>> {
        (index < self.len()).then(|| self.view(index))
    }

    /// The output of a name.
    pub fn by_name(&self, name: &str) -> Option<TensorView<'s>> {
        let specs = self.session.model.outputs();
        specs.iter().position(|spec| spec.name == name).map(|i| self.view(i))
    }

    /// Names and tensors in the model's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'s str, TensorView<'s>)> + use<'s> {
        let outputs = *self;
        let specs = outputs.session.model.outputs();
        specs.iter().enumerate().map(move |(i, spec)| (spec.name.as_str(), outputs.view(i)))
    }

    /// Names and values of the outputs that are no tensors, in the model's order.
    pub fn values(&self) -> impl Iterator<Item = (&'s ValueSpec, &'s Value)> + use<'s> {
        let session = self.session;
        let specs = session.program.plan.value_outputs.iter();
        // `Session::finish` has seen all of them.
        specs.filter_map(|spec| Some((spec, session.frame.value(spec.value).ok()?)))
    }

    fn view(&self, index: usize) -> TensorView<'s> {
        let session = self.session;
        let spec = &session.program.plan.outputs[index];
        let dims = &session.output_dims[index];
        let bytes = match (session.frame.spot(&session.program, spec.buffer), byte_len(spec.dtype, dims)) {
            // SAFETY: located and initialised memory of the session, which is not written while it is borrowed;
            // `Session::finish` checked that the extents fit.
            (Ok(spot), Some(bytes)) => unsafe {
                core::slice::from_raw_parts(spot.ptr, bytes.min(spot.bytes))
            },
            _ => &[],
        };
        TensorView { dtype: spec.dtype, dims, bytes }
    }
}
