//! What runs of models and of sessions have in common: inputs as C programs give them, and outputs that they get.
#![allow(unsafe_code, reason = "arrays of C")]

use std::ffi::c_char;

use tilewright_run::{Input, Model, RunError, Spec, TensorView, Value};
use tilewright_runtime::dlpack::{DLManagedTensorVersioned, DLTensor};

use crate::failure::{Failure, Kind, Problem, Status};
use crate::options::text;
use crate::tensors::{Few, Lent, export, lent};

/// Inputs as a C program gives them: checked by themselves, and their names where it names them.
pub(crate) struct Inputs<'a> {
    pub(crate) lent: Few<Lent>,
    names: Option<Few<&'a str>>,
}

/// Reads inputs; their extents come behind those in `dims`.
///
/// # Safety
/// As `tilewright.h` has it, for the length of the run.
pub(crate) unsafe fn inputs<'a>(
    n: usize,
    names: *const *const c_char,
    tensors: *const DLTensor,
    specs: &[Spec],
    dims: &mut Vec<usize>,
) -> Result<Inputs<'a>, Failure> {
    let names = match names.is_null() {
        true => None,
        // SAFETY: by the caller's word: as many names as tensors.
        false => {
            Some((0..n).map(|i| unsafe { text(*names.add(i), "names") }).collect::<Result<Few<_>, _>>()?)
        }
    };
    let name = |i: usize| match &names {
        Some(names) => names[i].to_string(),
        None => specs.get(i).map_or_else(|| format!("input {i}"), |spec| spec.name.clone()),
    };
    // SAFETY: by the caller's word.
    let lent = unsafe { lent(tensors, n, &name, dims) }?;
    Ok(Inputs { lent, names })
}

/// What runs a model on tensors and other values in its order.
pub(crate) type Run<'r> = dyn FnMut(&[TensorView<'_>], &[Value]) -> Result<(), RunError> + 'r;

impl Inputs<'_> {
    /// Gives a run the tensors, and the values that are not tensors in buffers, both in the model's order.
    ///
    /// # Safety
    /// The tensors' memory stays and is not written meanwhile.
    pub(crate) unsafe fn arranged(
        &self,
        model: &Model,
        dims: &[usize],
        run: &mut Run<'_>,
    ) -> Result<(), Failure> {
        // SAFETY: by the caller's word.
        let views: Few<TensorView<'_>> = self.lent.iter().map(|lent| unsafe { lent.view(dims) }).collect();
        let plan = model.inner().plan();
        if plan.value_inputs.is_empty() {
            let Some(names) = &self.names else { return Ok(run(&views, &[])?) };
            let find = |name: &String| Some(views[names.iter().position(|other| other == name)?]);
            let sorted: Option<Few<TensorView<'_>>> =
                plan.inputs.iter().map(|spec| find(&spec.name)).collect();
            // Names of a model differ, so of as many inputs none is left.
            if let Some(sorted) = sorted.filter(|sorted| sorted.len() == views.len()) {
                return Ok(run(&sorted, &[])?);
            }
        }
        let named = self.named(model, &views)?;
        let inputs = model.inner().arrange(&named)?;
        Ok(run(inputs.tensors(), inputs.values())?)
    }

    /// The inputs by name: by position they have those of the model.
    pub(crate) fn named<'v>(
        &'v self,
        model: &'v Model,
        views: &[TensorView<'v>],
    ) -> Result<Few<(&'v str, Input<'v>)>, Failure> {
        let specs = model.inputs();
        if self.names.is_none() && views.len() > specs.len() {
            let text = format!("{} inputs given, the model has {}", views.len(), specs.len());
            let problem = Problem::new(Kind::TooMany, "", &text).with(specs.len(), views.len());
            return Err(Failure::of_problems(vec![problem]));
        }
        let name = |i: usize| match &self.names {
            Some(names) => names[i],
            None => specs[i].name.as_str(),
        };
        Ok(views.iter().enumerate().map(|(i, &view)| (name(i), Input::View(view))).collect())
    }
}

/// Holds the room for outputs to what the model has, and puts null everywhere.
///
/// # Safety
/// `outputs` is null or has room for `n` pointers.
pub(crate) unsafe fn clear(
    n: usize,
    outputs: *mut *mut DLManagedTensorVersioned,
    model: &Model,
) -> Result<(), Failure> {
    let expected = model.outputs().len();
    if outputs.is_null() && expected > 0 {
        return Err(Failure::null("outputs"));
    }
    for i in 0..if outputs.is_null() { 0 } else { n } {
        // SAFETY: by the caller's word.
        unsafe { outputs.add(i).write(std::ptr::null_mut()) };
    }
    if n != expected {
        let text = format!("room for {n} outputs, the model has {expected}");
        return Err(Failure::new(Status::Argument, text));
    }
    for spec in model.outputs() {
        // Before the run and not behind it: nobody waits for what is thrown away.
        if !spec.nesting.is_empty() || spec.dtype == tilewright_dtype::DType::String {
            let text = format!("output `{spec}` is no tensor of numbers, and C programs get no others");
            return Err(Failure::new(Status::Unsupported, text));
        }
    }
    Ok(())
}

/// Gives outputs away: all or none.
///
/// # Safety
/// `outputs` has room for as many pointers as there are values.
pub(crate) unsafe fn give<'n>(
    values: impl Iterator<Item = (&'n str, Value)>,
    outputs: *mut *mut DLManagedTensorVersioned,
) -> Result<(), Failure> {
    let mut made = Few::new();
    for (name, value) in values {
        match export(name, value) {
            Ok(tensor) => made.push(tensor.as_ptr()),
            Err(failure) => {
                // SAFETY: made just now, and given to nobody.
                made.into_iter().for_each(|tensor| unsafe { crate::tensors::tw_tensor_free(tensor) });
                return Err(failure);
            }
        }
    }
    for (i, tensor) in made.into_iter().enumerate() {
        // SAFETY: by the caller's word.
        unsafe { outputs.add(i).write(tensor) };
    }
    Ok(())
}
