//! What comes before functions, as the options want it: import, the graph passes, and what lowering may do.

use std::sync::Arc;

use tilewright_graph::pass::{PassError, PassManager, Unfinished};
use tilewright_graph::{Graph, Range, passes};
use tilewright_lower::LowerOptions;
use tilewright_lower::host::is_host_value;
use tilewright_machine::Target;
use tilewright_onnx::import::{self, DimOption, Fault, ImportOptions};
use tilewright_onnx::{ImportErrors, OnnxModel};

use crate::error::CompileError;
use crate::fold::Fold;
use crate::options::{CompileObserver, Numerics, Options, Passes};

/// Imports a model; what is odd about it goes to `warnings`.
///
/// # Errors
/// Gaps, and faults by whose they are.
pub(crate) fn import(
    model: &OnnxModel,
    options: &Options,
    warnings: &mut Vec<Fault>,
) -> Result<Graph, CompileError> {
    import::import_noting(model, &import_options(options), warnings)
        .map_err(|errors| blame(model, options, errors))
}

/// What the options say of a model's extents.
pub(crate) fn import_options(options: &Options) -> ImportOptions {
    let dims = options.dims.iter().map(|d| {
        let option = match d.lo == d.hi {
            true => DimOption::Fixed(d.lo),
            false => DimOption::Range(Range { lo: d.lo, hi: Some(d.hi), step: 1 }),
        };
        (d.name.clone(), option)
    });
    ImportOptions { dims: dims.collect(), ..ImportOptions::default() }
}

/// Whose fault the errors of an import are: the model's, or that of what the options say of its extents.
fn blame(model: &OnnxModel, options: &Options, errors: ImportErrors) -> CompileError {
    let is_sound = || import::import(model, &ImportOptions::default()).is_ok();
    let blames_dims =
        errors.is_option() || !(options.dims.is_empty() || errors.is_unsupported()) && is_sound();
    if !blames_dims {
        return errors.into();
    }
    let dims: Vec<String> = options.dims.iter().map(ToString::to_string).collect();
    CompileError::Option(format!("{errors}\n(with {})", dims.join(", ")))
}

/// Checks that a run can choose among programs: that tensors tell the extents that they are specialised for.
pub(crate) fn check_choice(graph: &Graph, options: &Options) -> Result<(), CompileError> {
    let inputs = graph.inputs().iter().filter(|value| !is_host_value(graph, **value));
    let dims = inputs.filter_map(|value| graph.tensor_type(*value)?.shape.dims()).flatten();
    let told: Vec<&str> =
        dims.filter_map(|dim| Some(graph.symbols[dim.as_symbol()?].name.as_str())).collect();
    let untold = options.dims.iter().filter(|dim| dim.n_specialised() > 0 && !told.contains(&&*dim.name));
    let untold: Vec<String> = untold.map(|dim| format!("--dim {dim}")).collect();
    if untold.is_empty() {
        return Ok(());
    }
    let reason = "no input that is a tensor has this extent, so runs cannot choose by it: leave the step out";
    Err(CompileError::Option(format!("{}: {reason}", untold.join(", "))))
}

/// Runs the graph passes, which `observer` hears of; gives what they left undone.
pub(crate) fn simplify(
    graph: &mut Graph,
    options: &Options,
    observer: &mut dyn CompileObserver,
) -> Result<Vec<Unfinished>, CompileError> {
    let Passes { selection, limit, first, last } = &options.passes;
    let cancel = &options.cancel;
    let fold = Arc::new(Fold::until(cancel.clone()));
    let mut pipeline = passes::simplify(fold.clone());
    for pass in first.iter().rev() {
        pipeline = pipeline.first(pass.clone());
    }
    if !last.is_empty() {
        pipeline = last.iter().cloned().fold(pipeline, PassManager::then);
        pipeline = passes::cleaned(pipeline, fold);
    }
    let strict = (options.numerics == Numerics::Strict).then_some("-common_factors");
    for selected in strict.into_iter().chain(selection.iter().map(String::as_str)) {
        pipeline.select(selected).map_err(|error| CompileError::Option(error.to_string()))?;
    }
    limit.iter().for_each(|limit| pipeline.set_limit(*limit));
    pipeline.set_stop(|| cancel.is_cancelled());
    pipeline.set_watch(|pass, changed, graph| {
        observer.pass(pass, changed, &|| tilewright_graph::text::print(graph));
    });
    pipeline.run(graph).map_err(|error| match error {
        PassError::Misfits(_) => CompileError::Invalid(error.to_string()),
        PassError::Stopped => CompileError::Cancelled,
        PassError::User { pass, message } => CompileError::Pass { pass, message },
        _ => CompileError::internal("simplify", error),
    })?;
    Ok(pipeline.unfinished().to_vec())
}

/// What lowering may do for the target.
pub(crate) fn lower_options(target: &Target, options: &Options) -> LowerOptions {
    let lanes = i64::from(target.lanes(4));
    LowerOptions {
        // A GPU's threads have an element each; their factors are laid out where they are fetched.
        block_lanes: (lanes >= 4 && target.gpu.is_none()).then_some(lanes),
        variants: options.numerics == Numerics::Default,
        parts: true,
        device: target.device.is_some(),
    }
}
