//! Models on other machines, as verbs that run models are told.

use std::path::{Path, PathBuf};

use tilewright_run::remote::{Access, How, Remote, RemoteModel};

use crate::failure::{Exit, Failure};
use crate::load::LoadArgs;
use crate::machines::best_machine;
use crate::model::{self, Source};
use crate::options::CompileArgs;
use crate::output;
use crate::progress::Progress;

/// Where to run.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct RemoteArgs {
    /// Run on the machine of a server there, which `tilewright rpc serve` or `tilewright-run serve` is; an ONNX file is compiled
    /// here, for the best machine with a name whose code runs there, if --target names none
    #[arg(long, value_name = "HOST:PORT")]
    remote: Option<String>,
    /// File with the token of the server [default: $TILEWRIGHT_RPC_TOKEN]
    #[arg(long, value_name = "FILE", requires = "remote")]
    token_file: Option<PathBuf>,
}

/// A model on a server.
pub(crate) struct Opened {
    pub(crate) remote: Remote,
    pub(crate) model: RemoteModel,
    /// How long it took to compile, if it was.
    pub(crate) compile_s: Option<f64>,
}

impl RemoteArgs {
    /// What the user named on the server that they named, if they named one.
    pub(crate) fn open(
        &self,
        path: &Path,
        options: &CompileArgs,
        load: &LoadArgs,
        seed: u64,
    ) -> Result<Option<Opened>, Failure> {
        let Some(server) = &self.remote else { return Ok(None) };
        // What is wrong here is told before the server is asked.
        let source = Source::of(path)?;
        match &source {
            Source::Artifact(path) => options.refuse(&format!("{} is compiled already", path.display()))?,
            Source::Onnx(_) if options.interpret() => {
                return Err(Failure::usage("--remote is for compiled models: the interpreter runs here"));
            }
            Source::Onnx(_) => {}
        }
        let access = Access { server: server.clone(), token_file: self.token_file.clone() };
        let name = server.clone();
        let LoadArgs { threads, memory_limit, device } = load.clone();
        let remote = Remote::connect(&access)?
            .loading(How { threads, memory_limit, seed, device })
            .waiting(move |ahead| output::note(&format!("waiting for {name}: {ahead} before this\n")));
        let (model, compile_s) = match source {
            Source::Artifact(path) => (RemoteModel::read(&path)?, None),
            Source::Onnx(path) => {
                let options = for_server(options, load, &remote, server)?;
                let mut progress = Progress::new(&options.dump_after);
                let compiled = model::compile(&path, &options, &mut progress)?;
                let bytes = compiled.artifact.to_bytes()?.to_vec();
                (RemoteModel::of(bytes, &path)?, Some(progress.elapsed().as_secs_f64()))
            }
        };
        Ok(Some(Opened { remote, model, compile_s }))
    }
}

/// The options of a compilation for a server's machine.
fn for_server(
    options: &CompileArgs,
    load: &LoadArgs,
    remote: &Remote,
    server: &str,
) -> Result<CompileArgs, Failure> {
    if options.has_target() {
        return Ok(options.clone());
    }
    if let Some(device) = load.device.as_ref().filter(|device| *device != "cpu") {
        let message = format!(
            "--device {device} of {server}: say what that is by --target, as cuda:sm_80/x86-64-v3 or opencl/x86-64-v3"
        );
        return Err(Failure::usage(message));
    }
    match best_machine(&[remote.isa()]) {
        Some(name) => Ok(options.clone().or_target(name)),
        None => Err(Failure::new(
            Exit::Unsupported,
            format!(
                "{server} is {}, and no machine with a name runs there: give --target",
                remote.isa().arch
            ),
        )),
    }
}
