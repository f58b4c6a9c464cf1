//! Servers that measure schedules for a search.

use std::path::PathBuf;
use std::time::Duration;

use tilewright_driver::tune::{Job, Lost, MeasureError, Patience, Runner, Runners, Times};
use tilewright_driver::tuning::{Compiled, Requests};
use tilewright_driver::{Options, Target};
use tilewright_run::remote::{Access, ClientError, Fault, Remote, RemoteError};

use crate::failure::{Exit, Failure};
use crate::machines::{best_machine, runs_code_for};
use crate::options::CompileArgs;
use crate::output;

/// Which servers measure.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ServersArgs {
    /// Measure on the machines of these servers, all at once, which `tilewright rpc serve` or `tilewright-run serve` are. Schedules are
    /// compiled here, for the best machine with a name whose code runs on all of them, if --target names none
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',',
          conflicts_with_all = ["device", "candidates_to", "measured"])]
    remote: Vec<String>,
    /// File with the token of the servers [default: $TILEWRIGHT_RPC_TOKEN]
    #[arg(long, value_name = "FILE", requires = "remote")]
    token_file: Option<PathBuf>,
}

/// A server, as a search sees it.
pub(crate) struct Server {
    access: Access,
    /// Nothing where the connection does not hold.
    remote: Option<Remote>,
}

impl ServersArgs {
    /// Connects to the servers, if there are any. All must answer: who is missing from the beginning was misspelt.
    pub(crate) fn connect(&self) -> Result<Option<Vec<Server>>, Failure> {
        if self.remote.is_empty() {
            return Ok(None);
        }
        let connect = |server: &String| {
            let access = Access { server: server.clone(), token_file: self.token_file.clone() };
            Ok(Server { remote: Some(connect(&access)?), access })
        };
        self.remote.iter().map(connect).collect::<Result<Vec<_>, Failure>>().map(Some)
    }
}

/// Connects, and tells where others are served first.
fn connect(access: &Access) -> Result<Remote, RemoteError> {
    let name = access.server.clone();
    let told = move |ahead| output::note(&format!("waiting for {name}: {ahead} before this\n"));
    Ok(Remote::connect(access)?.waiting(told))
}

/// Options of a compilation for all of these servers.
pub(crate) fn options_for(servers: &[Server], options: &CompileArgs) -> Result<CompileArgs, Failure> {
    if options.has_target() {
        return Ok(options.clone());
    }
    let isas: Vec<_> = servers.iter().filter_map(|server| Some(server.remote.as_ref()?.isa())).collect();
    match best_machine(&isas) {
        Some(name) => Ok(options.clone().or_target(name)),
        None => Err(Failure::new(
            Exit::Unsupported,
            "no machine with a name runs on all of these servers: give --target, or tune on fewer at once",
        )),
    }
}

/// What measures on servers, whose machines must run code for the target.
pub(crate) fn measure(
    servers: Vec<Server>,
    options: &Options,
    threads: usize,
    limit: Duration,
) -> Result<Runners<Server>, Failure> {
    if let Target { device: Some(kind), .. } = &options.target {
        return Err(Failure::usage(format!(
            "--remote measures on processors: schedules for {kind} are measured where it is, by --candidates-to and `measure`"
        )));
    }
    for Server { access, remote } in &servers {
        let Some(isa) = remote.as_ref().map(Remote::isa) else { continue };
        if !runs_code_for(&isa, &options.target.machine) {
            let (server, target) = (&access.server, &options.target);
            let message =
                format!("{server} is {} and does not run code for {target}: give another --target", isa.arch);
            return Err(Failure::new(Exit::Unsupported, message));
        }
    }
    let requests = Requests::new(threads, None);
    let compile = move |job: &Job<'_>| requests.compile(job.task, &job.candidate, job.effort);
    let patience = Patience { answer: limit, ..Patience::default() };
    Ok(Runners::new(servers, patience, options.jobs, compile).until(options.cancel.clone()))
}

impl Runner for Server {
    type Request = Compiled;

    fn name(&self) -> String {
        self.access.server.clone()
    }

    fn measure(&mut self, compiled: &Compiled) -> Result<Result<Times, MeasureError>, Lost> {
        let Some(remote) = &mut self.remote else { return Err(Lost("it is not connected".to_string())) };
        match remote.measure(&compiled.request, &compiled.blobs) {
            Ok(answer) => Ok(answer.result),
            Err(RemoteError::Client(ClientError::Fault { fault, .. })) => of_fault(fault),
            Err(error) => Err(Lost(error.to_string())),
        }
    }

    fn reconnect(&mut self) -> Result<(), Lost> {
        // The lease of the old connection goes first.
        self.remote = None;
        self.remote = Some(connect(&self.access).map_err(|error| Lost(error.to_string()))?);
        Ok(())
    }
}

/// Whether what a server says is the schedule's fault, the server's, or passes.
fn of_fault(fault: Fault) -> Result<Result<Times, MeasureError>, Lost> {
    let message = fault.to_string();
    match fault {
        Fault::Failed { .. } | Fault::Died(_) | Fault::Hung { .. } => Ok(Err(MeasureError::Failed(message))),
        Fault::NoKind { .. } | Fault::NoRoom { .. } => Ok(Err(MeasureError::Unavailable(message))),
        Fault::NoLease
        | Fault::Busy
        | Fault::QueueFull { .. }
        | Fault::WrongDigest { .. }
        | Fault::LacksBlob(_)
        | Fault::Store(_)
        | Fault::Start(_)
        | Fault::Cancelled => Err(Lost(message)),
    }
}
