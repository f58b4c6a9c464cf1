//! Models as the user names them: ONNX files, which are compiled, and artifacts, which are loaded.

use std::path::Path;

use tilewright_driver::{
    Artifact, Compiled, Compiler, Engine, Error, Interpreter, LoadOptions, Model, Trust, load,
};

use crate::failure::Failure;
use crate::load::LoadArgs;
use crate::options::CompileArgs;
use crate::progress::Progress;
pub(crate) use crate::source::Source;

/// The compiler that the options tell, after a search where they ask for one.
pub(crate) fn compiler(path: &Path, args: &CompileArgs) -> Result<Compiler, Failure> {
    let options = args.options()?;
    let found = match args.search_time() {
        Some(time) => Some(crate::tune::before_compiling(path, &options, args, time)?),
        None => None,
    };
    let compiler = Compiler::from(options);
    Ok(match found {
        Some(found) => compiler.found(found),
        None => compiler,
    })
}

/// Compiles a model under the eyes of `progress`.
pub(crate) fn compile(path: &Path, args: &CompileArgs, progress: &mut Progress) -> Result<Compiled, Failure> {
    let compiled = compiler(path, args)?.compile_with(path, progress);
    let finished = progress.finish();
    let compiled = compiled.map_err(|error| Failure::from(error).about(path))?;
    finished?;
    Ok(compiled)
}

/// Loads an artifact file. Who names one to the command would run it as they would the command.
pub(crate) fn load(path: &Path, options: &LoadOptions) -> Result<Model, Failure> {
    load::file(path, Trust::Origin, options).map_err(|error| of_model(error, path))
}

/// Loads what was compiled of a file.
pub(crate) fn load_compiled(
    artifact: &Artifact,
    path: &Path,
    options: &LoadOptions,
) -> Result<Model, Failure> {
    artifact.load_with(options).map_err(|error| of_model(error, path))
}

/// The failure of an error, which names the model where the error is about it.
pub(crate) fn of_model(error: Error, path: &Path) -> Failure {
    let is_about_model = matches!(error, Error::Compile(_) | Error::Load(_));
    let failure = Failure::from(error);
    if is_about_model { failure.about(path) } else { failure }
}

/// Loads or compiles what the user named; random numbers are drawn by `seed`.
pub(crate) fn engine(
    source: &Source,
    args: &CompileArgs,
    load_args: &LoadArgs,
    seed: u64,
) -> Result<Engine, Failure> {
    match source {
        Source::Artifact(path) => {
            args.refuse(&format!("{} is compiled already", path.display()))?;
            Ok(Engine::Compiled(load(path, &load_args.options()?.seed(seed))?))
        }
        Source::Onnx(path) if args.interpret() => interpreter(path, args, load_args, seed),
        Source::Onnx(path) => {
            let (args, options) = (load_args.target_of(args), load_args.options()?.seed(seed));
            let compiled = compile(path, &args, &mut Progress::new(&args.dump_after))?;
            Ok(Engine::Compiled(load_compiled(&compiled.artifact, path, &options)?))
        }
    }
}

/// The interpreter for an ONNX file.
pub(crate) fn interpreter(
    path: &Path,
    args: &CompileArgs,
    load_args: &LoadArgs,
    seed: u64,
) -> Result<Engine, Failure> {
    if load_args.memory_limit.is_some() {
        return Err(Failure::usage(
            "--memory-limit is for compiled models: the interpreter counts no memory",
        ));
    }
    let graph = tilewright_driver::load_graph(path, &args.options()?);
    let graph = graph.map_err(|error| Failure::from(error).about(path))?;
    Ok(Engine::Interpreter(Interpreter::new(graph, seed)))
}
