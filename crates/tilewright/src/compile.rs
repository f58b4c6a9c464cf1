//! The driver: the road of a model as one straight function.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tilewright_graph::{Graph, Range, passes};
use tilewright_lower::evaluate::{Interpret, pack};
use tilewright_lower::plan::{self, CompiledFunc, CompiledKernel};
use tilewright_lower::{LoweredFunc, Program};
use tilewright_machine::{Arch, Target};
use tilewright_onnx::import::{self, DimOption, ImportOptions};
use tilewright_onnx::{ImportErrors, OnnxModel};
use tilewright_runtime::artifact::{ImageDef, Manifest, ScheduleDef};
use tilewright_runtime::plan::{Access, KernelDef, KernelId, KernelParam};
use tilewright_te::kernel::{self, Kernel};
use tilewright_te::schedule::Piece;
use tilewright_tune::database::decisions_digest;

use crate::artifact::Artifact;
use crate::autoschedule::{Kernels, to_kernels};
use crate::codegen;
use crate::error::CompileError;
use crate::options::{Observer, Options};

/// A compiled model with what the compiler knows of it.
#[derive(Debug)]
pub struct Compiled {
    /// The artifact.
    pub artifact: Artifact,
    /// The optimised graph.
    pub graph: Graph,
    /// The kernels, in the order of the plan.
    pub kernels: Vec<Kernel>,
    /// Bytes of the arena that no plan could do without.
    pub arena_lower_bound: u64,
}

/// Compiles an ONNX file.
///
/// # Errors
/// [`CompileError`], by whose fault it is; nothing is written.
pub fn compile(
    path: &Path,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Compiled, CompileError> {
    let model = timed("load", observer, |_| Ok(OnnxModel::load(path)?))?;
    compile_model(&model, options, observer)
}

/// Compiles a loaded ONNX model.
///
/// # Errors
/// As [`compile`].
pub fn compile_model(
    model: &OnnxModel,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Compiled, CompileError> {
    let mut graph = timed("import", observer, |_| import(model, options))?;
    show_graph(observer, "import", &graph);
    timed("simplify", observer, |_| simplify(&mut graph, options))?;
    show_graph(observer, "simplify", &graph);
    let program = timed("lower", observer, |_| Ok(tilewright_lower::lower(&graph, block_lanes(options))?))?;
    observer.stage("lower", &|| funcs_text(program.funcs.iter().map(|f| &f.func)));
    let scheduled = timed("schedule", observer, |_| {
        let kernels = program.funcs.iter().map(|f| to_kernels(f, &options.target, &options.records));
        kernels.collect::<Result<Vec<Kernels>, _>>()
    })?;
    observer.stage("rules", &|| rules_text(&scheduled));
    observer.stage("schedule", &|| funcs_text(scheduled.iter().map(|k| &k.func)));
    let records = decisions_digest(scheduled.iter().map(|k| (k.func.name.as_str(), &k.decisions)));
    let schedules = program.funcs.iter().zip(&scheduled).flat_map(|(f, k)| schedule_defs(f, k)).collect();
    let (kernels, compiled) = collect_kernels(scheduled);
    observer.stage("kernels", &|| kernels.iter().map(Kernel::to_string).collect());
    let image =
        timed("codegen", observer, |o| codegen::generate(&kernels, &options.target, options.jobs, o))?;
    let defs = kernels.iter().map(kernel_def).collect();
    let planned = timed("plan", observer, |_| Ok(plan::build(&graph, &program, &compiled, defs, &pack)?))?;
    let manifest =
        Manifest { records, schedules, steps: planned.steps, ..manifest(&graph, options, &image.entries) };
    let artifact = Artifact { manifest, plan: planned.plan, code: image.bytes, weights: planned.weights };
    Ok(Compiled { artifact, graph, kernels, arena_lower_bound: planned.arena_lower_bound })
}

/// The simplified graph of a model, as the compiler lowers it.
///
/// # Errors
/// As [`compile`].
pub fn load_graph(path: &Path, options: &Options) -> Result<Graph, CompileError> {
    let model = OnnxModel::load(path)?;
    let mut graph = import(&model, options)?;
    simplify(&mut graph, options)?;
    Ok(graph)
}

/// The functions of a model and the steps that call them, as the compiler schedules them.
///
/// # Errors
/// As [`compile`].
pub fn load_program(path: &Path, options: &Options) -> Result<Program, CompileError> {
    let graph = load_graph(path, options)?;
    Ok(tilewright_lower::lower(&graph, block_lanes(options))?)
}

fn timed<T>(
    name: &'static str,
    observer: &mut dyn Observer,
    run: impl FnOnce(&mut dyn Observer) -> Result<T, CompileError>,
) -> Result<T, CompileError> {
    observer.step(name);
    let start = Instant::now();
    let result = run(observer);
    observer.step_done(name, start.elapsed());
    result
}

fn import(model: &OnnxModel, options: &Options) -> Result<Graph, CompileError> {
    let dims = options.dims.iter().map(|d| {
        let option = match d.lo == d.hi {
            true => DimOption::Fixed(d.lo),
            false => DimOption::Range(Range { lo: d.lo, hi: Some(d.hi), step: d.step }),
        };
        (d.name.clone(), option)
    });
    let import_options = ImportOptions { dims: dims.collect(), ..ImportOptions::default() };
    import::import(model, &import_options).map_err(|errors| blame(model, options, errors))
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

fn simplify(graph: &mut Graph, options: &Options) -> Result<(), CompileError> {
    let mut pipeline = passes::simplify(Arc::new(Interpret));
    if options.verify_passes {
        pipeline.set_verify(true);
    }
    pipeline.run(graph).map(drop).map_err(|e| CompileError::internal("simplify", e))
}

fn show_graph(observer: &mut dyn Observer, stage: &str, graph: &Graph) {
    observer.stage(stage, &|| tilewright_graph::text::print(graph));
}

fn funcs_text<'a>(funcs: impl Iterator<Item = &'a tilewright_te::Func>) -> String {
    funcs.map(|f| format!("{f}\n")).collect()
}

/// Which rule scheduled each block of each function.
fn rules_text(scheduled: &[Kernels]) -> String {
    let line = |k: &Kernels| {
        let rulings: Vec<String> = k.rulings.iter().map(|r| format!("  {r}\n")).collect();
        let recorded = match k.decisions.is_empty() {
            true => String::new(),
            false => format!("  by a record: {}\n", k.decisions),
        };
        format!("{}\n{}{recorded}", k.func.name, rulings.concat())
    };
    scheduled.iter().map(line).collect()
}

/// Numbers the kernels of all functions.
fn collect_kernels(scheduled: Vec<Kernels>) -> (Vec<Kernel>, Vec<CompiledFunc>) {
    let mut kernels = Vec::new();
    let mut compiled = Vec::new();
    for Kernels { func, kernels: flat, packing, .. } in scheduled {
        let mut numbered = Vec::new();
        for flat in flat {
            let kernel = KernelId(kernels.len() as u32);
            numbered.push(CompiledKernel { kernel, buffers: flat.buffers, tasks: flat.kernel.tasks.clone() });
            kernels.push(flat.kernel);
        }
        compiled.push(CompiledFunc { func, kernels: numbered, packing });
    }
    (kernels, compiled)
}

/// How each kernel of a function was scheduled.
fn schedule_defs(lowered: &LoweredFunc, scheduled: &Kernels) -> Vec<ScheduleDef> {
    let mut rules: Vec<&str> = Vec::new();
    for ruling in &scheduled.rulings {
        if !rules.contains(&ruling.rule) {
            rules.push(ruling.rule);
        }
    }
    let mut layouts: Vec<String> = Vec::new();
    for layout in &lowered.layouts[lowered.func.n_inputs..] {
        let name = layout.as_ref().map_or_else(|| "row-major".to_string(), |pieces| layout_name(pieces));
        if !layouts.contains(&name) {
            layouts.push(name);
        }
    }
    vec![ScheduleDef { rules: rules.join(" "), layout: layouts.join(" ") }; scheduled.kernels.len()]
}

/// A layout as `aBcd16b`: a letter a piece, the outer ones capital where the axis has inner pieces.
fn layout_name(pieces: &[Piece]) -> String {
    let letter = |dim: usize| char::from(b'a' + (dim % 26) as u8);
    let is_split = |dim: usize| pieces.iter().any(|p| p.dim == dim && p.factor.is_some());
    let piece = |p: &Piece| match p.factor {
        Some(factor) => format!("{factor}{}", letter(p.dim)),
        None if is_split(p.dim) => letter(p.dim).to_uppercase().to_string(),
        None => letter(p.dim).to_string(),
    };
    pieces.iter().map(piece).collect()
}

pub(crate) fn kernel_def(kernel: &Kernel) -> KernelDef {
    let params = kernel.buffers.iter().map(|b| KernelParam {
        align: b.align,
        access: match b.access {
            kernel::Access::Read => Access::Read,
            kernel::Access::Write | kernel::Access::ReadWrite => Access::Write,
        },
    });
    KernelDef { name: kernel.name.clone(), params: params.collect(), n_sizes: kernel.sizes.len() as u32 }
}

fn manifest(graph: &Graph, options: &Options, entries: &[u64]) -> Manifest {
    let target: &Target = &options.target;
    let dims: Vec<String> = options.dims.iter().map(ToString::to_string).collect();
    Manifest {
        model: graph.name.clone(),
        compiler: format!("tilewright {}", env!("CARGO_PKG_VERSION")),
        target: target.to_string(),
        options: vec![
            ("numerics".to_string(), options.numerics.to_string()),
            ("dims".to_string(), dims.join(" ")),
        ],
        metadata: graph.metadata.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        images: vec![image_def(target, entries)],
        ..Manifest::default()
    }
}

/// What the loader is told of an image.
pub(crate) fn image_def(target: &Target, entries: &[u64]) -> ImageDef {
    ImageDef {
        triple: triple(target.machine.arch).to_string(),
        features: target.machine.features.iter().map(|f| f.name().to_string()).collect(),
        entries: entries.to_vec(),
    }
}

/// The target triple that an image is tagged with.
fn triple(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "x86_64-unknown-linux-gnu",
        Arch::Aarch64 => "aarch64-unknown-linux-gnu",
    }
}

/// Lanes of f32 by which activations are blocked on the target.
fn block_lanes(options: &Options) -> Option<i64> {
    let lanes = i64::from(options.target.lanes(4));
    (lanes >= 4).then_some(lanes)
}
