//! `tilewright compile`: a model to an artifact, or to a text form on the way there.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ValueEnum;
use serde_json::json;
use tilewright_driver::graph::Graph;
use tilewright_driver::runtime::artifact::ImageDef;
use tilewright_driver::runtime::plan::Space;
use tilewright_driver::{
    Artifact, CodegenKind, CompileError, CompileObserver, Compiled, Level, Listing, codegen, onnx,
};

use crate::failure::{Exit, Failure};
use crate::library;
use crate::model::{self, Source};
use crate::options::CompileArgs;
use crate::output;
use crate::progress::Progress;
use crate::source::is_same_file;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model to compile
    #[arg(value_name = "MODEL.onnx")]
    model: PathBuf,
    /// File to write [default: MODEL.twm in the current folder, MODEL.simplified.onnx there for `--emit onnx`, libNAME.a, libNAME.so,
    /// NAME.c or NAME.h for libraries; texts go to standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What to make of the model
    #[arg(long, value_enum, default_value = "artifact")]
    emit: Emit,
    /// What the function and constants of a library begin with [default: the model's file name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The runtime for a static or shared library of a model with open extents or decisions, as `cargo xtask cross` made it [default:
    /// ../runtimes/MACHINE.o from the folder of this program, or MACHINE.o in $TILEWRIGHT_RUNTIMES]
    #[arg(long, value_name = "FILE")]
    runtime: Option<PathBuf>,
    /// Print figures as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: CompileArgs,
}

/// What a compilation makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Emit {
    /// The artifact that runs
    Artifact,
    /// The simplified graph, as text
    Graph,
    /// The simplified graph, as an ONNX model
    Onnx,
    /// The scheduled loop nests, as text
    Loops,
    /// LLVM IR of the kernels
    Llvm,
    /// Assembly of the kernels
    Asm,
    /// PTX of the kernels for `--target cuda`, a module a level
    Ptx,
    /// OpenCL C of the kernels for `--target opencl`, a program a level
    OpenclC,
    /// A static library for C programs: libNAME.a with the function NAME_run, and NAME.h beside it; with a runtime inside where the
    /// model has open extents or decisions
    Static,
    /// The same as a shared library: libNAME.so
    Shared,
    /// The same as the text of a C99 program: NAME.c
    C,
    /// The header of these libraries alone: NAME.h
    CHeader,
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Source::Artifact(path) = Source::of(&args.model)? {
        return Err(Failure::usage(format!("{} is a compiled artifact already", path.display())));
    }
    if args.options.interpret() {
        return Err(Failure::usage("--codegen interpreter makes no code: it is for run, bench and verify"));
    }
    if args.name.is_some() && !matches!(args.emit, Emit::Static | Emit::Shared | Emit::C | Emit::CHeader) {
        return Err(Failure::usage("--name is for libraries: --emit static, shared, c or c-header"));
    }
    if args.runtime.is_some() && !matches!(args.emit, Emit::Static | Emit::Shared) {
        return Err(Failure::usage("--runtime is for libraries: --emit static or shared"));
    }
    match args.emit {
        Emit::Artifact => artifact(args),
        Emit::Graph => text(args, &tilewright_driver::graph::text::print_short(&simplified(args)?)),
        Emit::Onnx => onnx(args),
        Emit::Loops => {
            let mut progress = Progress::new(&args.options.dump_after).keeping("schedule");
            model::compile(&args.model, &args.options, &mut progress)?;
            text(args, &progress.kept().unwrap_or_default())
        }
        Emit::Llvm => listing(args, Listing::Ir),
        Emit::Asm => listing(args, Listing::Assembly),
        Emit::Ptx => device_code(args, "ptx", "cuda"),
        Emit::OpenclC => device_code(args, "opencl-c", "opencl"),
        Emit::Static => library::write(&request(args), library::Form::Static),
        Emit::Shared => library::write(&request(args), library::Form::Shared),
        Emit::C => library::write(&request(args), library::Form::C),
        Emit::CHeader => library::write(&request(args), library::Form::Header),
    }
}

/// The model's graph as the compiler lowers it.
fn simplified(args: &Args) -> Result<Graph, Failure> {
    let graph = tilewright_driver::load_graph(&args.model, &args.options.options()?);
    graph.map_err(|error| Failure::from(error).about(&args.model))
}

fn onnx(args: &Args) -> Result<(), Failure> {
    let path = output_path(args, "simplified.onnx")?;
    let model = onnx::export(&simplified(args)?).map_err(|error| Failure::new(Exit::Unsupported, error))?;
    let bytes =
        onnx::encode(&model).map_err(|error| Failure::from(CompileError::from(error)).about(&path))?;
    output::write_file(&path, &bytes)?;
    let text =
        format!("{} -> {}: {}\n", args.model.display(), path.display(), output::bytes(bytes.len() as u64));
    output::print(&text)
}

fn request(args: &Args) -> library::Request<'_> {
    library::Request {
        model: &args.model,
        options: &args.options,
        output: args.output.as_deref(),
        name: args.name.as_deref(),
        runtime: args.runtime.as_deref(),
        json: args.json,
    }
}

fn listing(args: &Args, listing: Listing) -> Result<(), Failure> {
    let options = args.options.options()?;
    if !options.more_targets.is_empty() {
        return Err(Failure::usage("a listing is of the code for one target"));
    }
    if options.dims.iter().any(|dim| dim.step.is_some()) {
        return Err(Failure::usage(
            "a listing is of the code of one program: leave the step of --dim out, or fix the dimension",
        ));
    }
    let target = options.target.clone();
    if let Some(device) = target.device {
        let formats = "--emit ptx is for --target cuda, --emit opencl-c for --target opencl";
        return Err(Failure::usage(format!("code for {device} devices has listings of its own: {formats}")));
    }
    if listing == Listing::Ir && target.codegen.kind != CodegenKind::Llvm {
        return Err(Failure::usage("--emit llvm needs --codegen llvm"));
    }
    let mut progress = Progress::new(&args.options.dump_after);
    let kernels = tilewright_driver::kernels(&args.model, &options, &mut progress);
    let finished = progress.finish();
    let kernels = kernels.map_err(|error| Failure::from(error).about(&args.model))?;
    finished?;
    text(args, &codegen::listing(&kernels, &target, listing)?)
}

/// The code for devices in one of its formats, that of each level under a line that names it where there are several.
fn device_code(args: &Args, format: &str, kind: &str) -> Result<(), Failure> {
    let mut progress = Progress::new(&args.options.dump_after);
    let artifact = model::compile(&args.model, &args.options, &mut progress)?.artifact;
    let levels = artifact.levels.iter().zip(&artifact.manifest.images).filter_map(|(level, image)| {
        let def = image.device.as_ref()?;
        let code = def.part(format, level.device_code.as_deref()?)?;
        Some((def.target(), String::from_utf8_lossy(code)))
    });
    let levels: Vec<(String, _)> = levels.collect();
    match &levels[..] {
        [] => Err(Failure::usage(format!("--emit {format} needs --target {kind}"))),
        [(_, code)] => text(args, code),
        several => text(
            args,
            &several.iter().map(|(target, code)| format!("// {target}\n{code}")).collect::<String>(),
        ),
    }
}

fn text(args: &Args, text: &str) -> Result<(), Failure> {
    match &args.output {
        Some(path) => output::write_file(path, text.as_bytes()),
        None => output::print(text),
    }
}

fn artifact(args: &Args) -> Result<(), Failure> {
    let path = output_path(args, "twm")?;
    let mut progress = Progress::new(&args.options.dump_after);
    let compiled = model::compile(&args.model, &args.options, &mut progress)?;
    let start = Instant::now();
    let bytes = compiled.artifact.write(&path)?;
    progress.step_done("write", start.elapsed());
    if args.json {
        return output::print_json(&figures(args, &path, bytes, &compiled, &progress));
    }
    output::print(&report(args, &path, bytes, &compiled, &progress))
}

/// The file to write: that which was named, else one of the model's name with that ending in the current folder.
fn output_path(args: &Args, ending: &str) -> Result<PathBuf, Failure> {
    let default = || PathBuf::from(args.model.file_name().unwrap_or_default()).with_extension(ending);
    let path = args.output.clone().unwrap_or_else(default);
    if is_same_file(&path, &args.model) {
        let message = format!("{} would be overwritten by what is made of it", args.model.display());
        return Err(Failure::usage(message));
    }
    Ok(path)
}

fn figures(
    args: &Args,
    path: &Path,
    bytes: u64,
    compiled: &Compiled,
    progress: &Progress,
) -> serde_json::Value {
    let artifact = &compiled.artifact;
    let steps: serde_json::Map<String, serde_json::Value> =
        progress.steps().iter().map(|(name, time)| (name.to_string(), time.as_secs_f64().into())).collect();
    json!({
        "model": args.model.display().to_string(),
        "artifact": path.display().to_string(),
        "artifact_bytes": bytes,
        "levels": artifact.levels.len(),
        "variants": variants(artifact),
        "code_bytes": code_bytes(artifact),
        "weight_bytes": weight_bytes(artifact),
        "arena_bytes": arena_bytes(artifact, Space::Host),
        "arena_lower_bound_bytes": compiled.arena_lower_bound,
        "memory_bytes": artifact.needs(true).map(|needs| needs.total()),
        "memory_without_names_bytes": artifact.needs(false).map(|needs| needs.total()),
        "tensor_bytes": artifact.needs(true).and_then(|needs| needs.tensors),
        "device_code_bytes": device_code_bytes(artifact),
        "device_arena_bytes": arena_bytes(artifact, Space::Device),
        "device_arena_lower_bound_bytes": compiled.device_arena_lower_bound,
        "kernels": kernels(artifact),
        "functions": compiled.functions,
        "cached_functions": compiled.cached_functions,
        "tuned_functions": compiled.tuned_functions,
        "gain": compiled.search.as_ref().and_then(|search| search.whole.gain()),
        "target": artifact.manifest.target,
        "compile_s": progress.elapsed().as_secs_f64(),
        "steps": steps,
    })
}

/// Code of all levels.
fn code_bytes(artifact: &Artifact) -> u64 {
    artifact.levels.iter().map(|level| level.code.len() as u64).sum()
}

/// Code of all levels for devices.
fn device_code_bytes(artifact: &Artifact) -> u64 {
    let code = artifact.levels.iter().filter_map(|level| level.device_code.as_ref());
    code.map(|code| code.len() as u64).sum()
}

/// Programs for some extents, beside that for all.
fn variants(artifact: &Artifact) -> usize {
    artifact.levels.first().map_or(0, |level| level.specialised.len())
}

/// Kernels of all levels and programs; what several programs call counts once.
fn kernels(artifact: &Artifact) -> usize {
    let different = |(image, level): (&ImageDef, &Level)| {
        let programs = image.programs().zip(level.plans());
        let kernels = programs.flat_map(|(program, plan)| program.entries.iter().zip(&plan.kernels));
        kernels.map(|(entry, kernel)| (entry, kernel.space)).collect::<HashSet<_>>().len()
    };
    artifact.manifest.images.iter().zip(&artifact.levels).map(different).sum()
}

/// The weights, which levels share.
fn weight_bytes(artifact: &Artifact) -> u64 {
    artifact.levels.first().map_or(0, |level| level.plan.weight_bytes)
}

/// The arena in a space, of the level and program that need most.
fn arena_bytes(artifact: &Artifact, space: Space) -> u64 {
    artifact.levels.iter().flat_map(Level::plans).map(|plan| plan.arena_in(space).bytes).max().unwrap_or(0)
}

fn report(args: &Args, path: &Path, bytes: u64, compiled: &Compiled, progress: &Progress) -> String {
    let artifact = &compiled.artifact;
    let mut text = format!(
        "{} -> {}: {}, {} kernels of {} functions ({} cached{}), {:.2} s\n",
        args.model.display(),
        path.display(),
        output::bytes(bytes),
        kernels(artifact),
        compiled.functions,
        compiled.cached_functions,
        match compiled.tuned_functions {
            0 => String::new(),
            tuned => format!(", {tuned} by records of tuning"),
        },
        progress.elapsed().as_secs_f64(),
    );
    // Writing to a string cannot fail.
    _ = writeln!(
        text,
        "code {}, weights {}, arena {}",
        output::bytes(code_bytes(artifact)),
        output::bytes(weight_bytes(artifact)),
        output::bytes(arena_bytes(artifact, Space::Host)),
    );
    if let (Some(needs), Some(nameless)) = (artifact.needs(true), artifact.needs(false)) {
        let of_tensors = match needs.tensors {
            Some(tensors) => format!("{tensors} of them for tensors"),
            None => "and those of tensors, which the inputs decide".to_string(),
        };
        let (all, least) = (needs.total(), nameless.total());
        _ = writeln!(
            text,
            "the no_std core needs {all} bytes of memory ({least} without names), {of_tensors}"
        );
    }
    if let (code @ 1.., arena) = (device_code_bytes(artifact), arena_bytes(artifact, Space::Device)) {
        _ = writeln!(text, "on the device: code {}, arena {}", output::bytes(code), output::bytes(arena));
    }
    if variants(artifact) > 0 {
        _ = writeln!(text, "{} programs for some extents, beside that for all", variants(artifact));
    }
    let row = |(name, time): &(&str, std::time::Duration)| {
        (name.to_string(), format!("{:8.3} s", time.as_secs_f64()))
    };
    let rows: Vec<_> = progress.steps().iter().map(row).collect();
    text + &output::table(&rows)
}
