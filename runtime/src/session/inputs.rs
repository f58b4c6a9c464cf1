//! Inputs of a run: put into the model's order by name, and all that is wrong with them told at once.
//!
//! A run tests inputs as it goes, without a list; only where something does not fit are the problems looked for here.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::error::{InputError, InputErrors, RunError};
use crate::model::{Model, Program};
use crate::placed::Placed;
use crate::plan::{Plan, SizeBounds, SizeDef, TensorSpec, ValueSpec};
use crate::sizes::Sizes;
use crate::tensor::{Tensor, TensorError, TensorView, byte_len};
use crate::value::Value;

/// An input as a caller has it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// Memory of the caller, read where it is.
    View(TensorView<'a>),
    /// A tensor, read where it is; strings are copied.
    Tensor(&'a Tensor),
    /// A value of any type, which is shared.
    Value(&'a Value),
    /// A value that was made for the run, or why there is none.
    Owned(Result<Value, TensorError>),
}

impl<'a> From<TensorView<'a>> for Input<'a> {
    fn from(view: TensorView<'a>) -> Input<'a> {
        Input::View(view)
    }
}

impl<'a> From<&'a Tensor> for Input<'a> {
    fn from(tensor: &'a Tensor) -> Input<'a> {
        Input::Tensor(tensor)
    }
}

impl<'a> From<&'a Value> for Input<'a> {
    fn from(value: &'a Value) -> Input<'a> {
        Input::Value(value)
    }
}

impl From<Tensor> for Input<'_> {
    fn from(tensor: Tensor) -> Self {
        Input::Owned(Ok(tensor.into()))
    }
}

impl From<Value> for Input<'_> {
    fn from(value: Value) -> Self {
        Input::Owned(Ok(value))
    }
}

impl From<Result<Tensor, TensorError>> for Input<'_> {
    fn from(made: Result<Tensor, TensorError>) -> Self {
        Input::Owned(made.map(Value::from))
    }
}

impl Input<'_> {
    /// The input where the model takes a tensor in a buffer.
    fn view(&self) -> Option<TensorView<'_>> {
        match self {
            Input::View(view) => Some(*view),
            Input::Tensor(tensor) => tensor.view(),
            Input::Value(value) => value.as_tensor()?.view(),
            Input::Owned(Ok(value)) => value.as_tensor()?.view(),
            Input::Owned(Err(_)) => None,
        }
    }

    /// The input where the model takes a value.
    fn value(&self) -> Result<Value, TensorError> {
        match self {
            Input::View(view) => Tensor::from_bytes(view.dtype, view.dims, view.bytes).map(Value::from),
            Input::Tensor(tensor) => Ok(Value::from(Tensor::clone(tensor))),
            Input::Value(value) => Ok(Value::clone(value)),
            Input::Owned(made) => made.clone(),
        }
    }
}

/// Inputs in a model's order, as [`Session::run_values`](crate::Session::run_values) takes them.
#[derive(Clone, Debug, Default)]
pub struct Inputs<'a> {
    tensors: Views<'a>,
    values: Vec<Value>,
}

/// Tensors of a run, without an allocation where they are as few as most models take.
type Views<'a> = SmallVec<[TensorView<'a>; 2]>;

impl<'a> Inputs<'a> {
    /// Those that are tensors.
    pub fn tensors(&self) -> &[TensorView<'a>] {
        &self.tensors
    }

    /// Those that are not.
    pub fn values(&self) -> &[Value] {
        &self.values
    }
}

impl Model {
    /// Puts named inputs, in any order, into the model's.
    ///
    /// # Errors
    /// When names are missing, unknown or given twice, or one names a value of another kind than the model's: then all
    /// problems with the inputs. Where types or extents alone do not fit, the run tells it.
    pub fn arrange<'a, N: AsRef<str>>(&self, inputs: &'a [(N, Input<'_>)]) -> Result<Inputs<'a>, RunError> {
        if let Some(tensors) = self.arrange_tensors(inputs) {
            return Ok(Inputs { tensors, values: Vec::new() });
        }
        let plan = self.plan();
        let mut errors = Vec::new();
        let mut given: Vec<Given<'a>> = plan.inputs.iter().map(|_| Given::Nothing).collect();
        let mut values: Vec<Option<Result<Value, InputError>>> = vec![None; plan.value_inputs.len()];
        for (name, input) in inputs {
            let name = name.as_ref();
            let was_given = if let Some(i) = plan.inputs.iter().position(|spec| spec.name == name) {
                let new = match input.view() {
                    Some(view) => Given::Tensor(Placed::Host(view)),
                    None => Given::Other(other(&plan.inputs[i], input)),
                };
                !matches!(core::mem::replace(&mut given[i], new), Given::Nothing)
            } else if let Some(i) = plan.value_inputs.iter().position(|spec| spec.name == name) {
                let value = input.value().map_err(|error| InputError::Tensor { name: name.into(), error });
                values[i].replace(value).is_some()
            } else {
                errors.push(InputError::Unknown { name: name.into(), known: known_names(plan) });
                false
            };
            if was_given {
                errors.push(InputError::Duplicate { name: name.into() });
            }
        }
        let views = given.iter().map_while(Given::view).collect::<Views<'_>>();
        let is_whole = views.len() == given.len() && values.iter().all(|value| matches!(value, Some(Ok(_))));
        if !errors.is_empty() || !is_whole {
            let value = |i: usize| values[i].as_ref().map(Result::as_ref);
            return Err(problems(self.program(), &given, value, errors));
        }
        Ok(Inputs { tensors: views, values: values.into_iter().flatten().flatten().collect() })
    }
}

impl Model {
    /// Tensors in the model's order, where it takes nothing else, and each is given and nothing beside them.
    fn arrange_tensors<'a, N: AsRef<str>>(&self, inputs: &'a [(N, Input<'_>)]) -> Option<Views<'a>> {
        let plan = self.plan();
        if inputs.len() != plan.inputs.len() || !plan.value_inputs.is_empty() {
            return None;
        }
        let mut tensors = Views::new();
        for spec in &plan.inputs {
            // Names of a model differ, so of as many inputs none is left.
            let (_, input) = inputs.iter().find(|(name, _)| name.as_ref() == spec.name)?;
            tensors.push(input.view()?);
        }
        Some(tensors)
    }
}

/// What was given for an input of the model that is a tensor.
pub(super) enum Given<'a> {
    Tensor(Placed<'a>),
    /// Something else, and what is to be said of it.
    Other(InputError),
    Nothing,
}

impl<'a> Given<'a> {
    /// The tensor, where it is one in memory of the host.
    fn view(&self) -> Option<TensorView<'a>> {
        match self {
            Given::Tensor(Placed::Host(view)) => Some(*view),
            #[cfg(feature = "devices")]
            Given::Tensor(Placed::Device(_)) => None,
            Given::Other(_) | Given::Nothing => None,
        }
    }

    /// The extents of a tensor, where there are as many as there should be.
    fn dims(&self, spec: &TensorSpec) -> Option<&'a [usize]> {
        match self {
            Given::Tensor(tensor) => Some(tensor.dims()).filter(|dims| dims.len() == spec.dims.len()),
            Given::Other(_) | Given::Nothing => None,
        }
    }
}

impl<'a> From<Option<Placed<'a>>> for Given<'a> {
    fn from(given: Option<Placed<'a>>) -> Given<'a> {
        given.map_or(Given::Nothing, Given::Tensor)
    }
}

/// Everything that is wrong with inputs, after the `errors` found already. Extents are held against the model as far
/// as those given say what they must be.
pub(super) fn problems<'v>(
    program: &Program,
    given: &[Given<'_>],
    values: impl Fn(usize) -> Option<Result<&'v Value, &'v InputError>>,
    mut errors: Vec<InputError>,
) -> RunError {
    if !cfg!(feature = "messages") {
        errors.push(InputError::Unfit);
        return RunError::Inputs(InputErrors(errors));
    }
    let plan = &program.plan;
    let dims = |input: usize| given[input].dims(&plan.inputs[input]);
    let is_whole = (0..given.len()).all(|input| dims(input).is_some());
    let sizes = sizes_of(plan, dims);
    for (spec, given) in plan.inputs.iter().zip(given) {
        match given {
            Given::Nothing => errors.push(InputError::Missing { name: spec.name.clone() }),
            Given::Other(error) => errors.push(error.clone()),
            Given::Tensor(tensor) => {
                check_form(spec, tensor, &mut errors);
                let dims = given.dims(spec).unwrap_or_default();
                check_dims(spec, dims, &sizes, is_whole, &mut errors);
            }
        }
    }
    for (i, spec) in plan.value_inputs.iter().enumerate() {
        errors.extend(value_problem(plan, spec, values(i)));
    }
    for bounds in &plan.bounds {
        let outside = sizes.get(bounds.size).filter(|&got| !is_inside(bounds, got));
        errors.extend(outside.map(|got| outside_of(plan, bounds, got)));
    }
    RunError::Inputs(InputErrors(errors))
}

/// The sizes that follow from the extents of those inputs that have any.
fn sizes_of<'a>(plan: &Plan, dims: impl Fn(usize) -> Option<&'a [usize]>) -> Sizes {
    let mut sizes = Sizes::default();
    sizes.evaluate(&plan.sizes, |input, axis| {
        let (input, axis) = (input as usize, axis as usize);
        let size = plan.inputs[input].dims[axis].size;
        // Another input may have the same extent.
        let same = |other: usize| {
            let axis = plan.inputs[other].dims.iter().position(|dim| dim.size == size)?;
            Some(dims(other)?[axis])
        };
        let own = dims(input).map(|dims| dims[axis]);
        i64::try_from(own.or_else(|| (0..plan.inputs.len()).find_map(same))?).ok()
    });
    sizes
}

/// What is wrong with a value.
fn value_problem(
    plan: &Plan,
    spec: &ValueSpec,
    value: Option<Result<&Value, &InputError>>,
) -> Option<InputError> {
    let ty = &plan.values[spec.value.index()];
    match value {
        None => Some(InputError::Missing { name: spec.name.clone() }),
        Some(Err(error)) => Some(error.clone()),
        Some(Ok(value)) if !value.is(ty) => {
            Some(InputError::Value { name: spec.name.clone(), expected: ty.to_string() })
        }
        Some(Ok(_)) => None,
    }
}

/// Whether inputs' values are as many as the plan's, and of their types.
pub(super) fn fit_values(plan: &Plan, values: &[Value]) -> bool {
    let is = |(spec, value): (&ValueSpec, &Value)| value.is(&plan.values[spec.value.index()]);
    values.len() == plan.value_inputs.len() && plan.value_inputs.iter().zip(values).all(is)
}

/// Whether a tensor is what its spec says, without regard to the values of sizes.
pub(super) fn has_form(spec: &TensorSpec, given: &Placed<'_>) -> bool {
    let mut errors = Vec::new();
    check_form(spec, given, &mut errors);
    errors.is_empty()
}

/// Checks what does not depend on the values of sizes.
pub(super) fn check_form(spec: &TensorSpec, given: &Placed<'_>, errors: &mut Vec<InputError>) {
    let name = || spec.name.clone();
    let (dtype, dims, bytes) = (given.dtype(), given.dims(), given.len());
    if dtype != spec.dtype {
        errors.push(InputError::DType { name: name(), expected: spec.dtype, got: dtype });
    }
    if dims.len() != spec.dims.len() {
        errors.push(InputError::Rank { name: name(), expected: spec.dims.len(), got: dims.len() });
    }
    let expected = byte_len(dtype, dims);
    if expected != Some(bytes) {
        let expected = expected.map_or(u64::MAX, |bytes| bytes as u64);
        errors.push(InputError::Bytes { name: name(), expected, got: bytes });
    }
    #[cfg(feature = "devices")]
    errors.extend(given.misaligned(&spec.name));
}

/// Checks the extents of an input or output. An extent that is undefined is wrong only where all inputs are known.
pub(super) fn check_dims(
    spec: &TensorSpec,
    dims: &[usize],
    sizes: &Sizes,
    is_whole: bool,
    errors: &mut Vec<InputError>,
) {
    for (axis, (dim, &got)) in spec.dims.iter().zip(dims).enumerate() {
        let expected = sizes.get(dim.size);
        let is_unknown = expected.is_none() && !is_whole;
        if !is_unknown && (expected.is_none() || expected != i64::try_from(got).ok()) {
            let (name, symbol) = (spec.name.clone(), dim.name.clone());
            errors.push(InputError::Dim { name, axis, symbol, expected, got });
        }
    }
}

/// Whether the extents of all inputs are what the sizes say, and these inside of their bounds. `dims` has them all, those
/// of each input from where `starts` says.
pub(crate) fn fit_sizes(plan: &Plan, sizes: &Sizes, starts: &[usize], dims: &[usize]) -> bool {
    let fits = |(spec, &start): (&TensorSpec, &usize)| {
        let is =
            |(size, &got): (_, &usize)| sizes.get(size).is_some_and(|want| i64::try_from(got) == Ok(want));
        spec.dims.iter().map(|dim| dim.size).zip(&dims[start..]).all(is)
    };
    let holds = |bounds: &SizeBounds| sizes.get(bounds.size).is_none_or(|got| is_inside(bounds, got));
    plan.inputs.iter().zip(starts).all(fits) && plan.bounds.iter().all(holds)
}

fn is_inside(bounds: &SizeBounds, got: i64) -> bool {
    // Of two numbers the larger less the smaller is a `u64`, whatever their signs.
    let above = got.wrapping_sub(bounds.min) as u64;
    got >= bounds.min && above % bounds.step as u64 == 0 && bounds.max.is_none_or(|max| got <= max)
}

/// The error for an extent that the model was not compiled for.
fn outside_of(plan: &Plan, bounds: &SizeBounds, got: i64) -> InputError {
    let SizeBounds { size, name, min, max, step } = bounds;
    let input = match plan.sizes[size.index()] {
        SizeDef::InputDim { input, axis } => Some((plan.inputs[input as usize].name.clone(), axis)),
        _ => None,
    };
    InputError::Bounds { name: name.clone(), input, min: *min, max: *max, step: *step, got }
}

/// What is said of an input that is no tensor in memory, where the model takes one.
fn other(spec: &TensorSpec, input: &Input<'_>) -> InputError {
    let (name, expected) = (spec.name.clone(), spec.dtype);
    let value = match input {
        Input::View(TensorView { dtype: got, .. }) => {
            return InputError::DType { name, expected, got: *got };
        }
        Input::Tensor(tensor) => return InputError::DType { name, expected, got: tensor.dtype() },
        Input::Owned(Err(error)) => return InputError::Tensor { name, error: error.clone() },
        Input::Value(value) => value,
        Input::Owned(Ok(value)) => value,
    };
    match value.as_tensor() {
        Some(tensor) => InputError::DType { name, expected, got: tensor.dtype() },
        None => {
            let expected = format!("a tensor of {expected} with {} axes", spec.dims.len());
            InputError::Value { name, expected }
        }
    }
}

fn known_names(plan: &Plan) -> String {
    let tensors = plan.inputs.iter().map(|spec| spec.name.as_str());
    let values = plan.value_inputs.iter().map(|spec| spec.name.as_str());
    tensors.chain(values).collect::<Vec<_>>().join(", ")
}
