//! `tilewright rpc`: this machine for others, and what machines there are.

use std::path::{Path, PathBuf};

use serde_json::json;
use tilewright_driver::{LoadOptions, Model, Trust, devices, load};
use tilewright_run::remote::{self, Access, JobFailure, Remote, RemoteError, Serve, Status};

use crate::failure::{Exit, Failure};
use crate::load::bytes;
use crate::options::seconds;
use crate::output;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

/// What to do with other machines.
#[derive(clap::Subcommand)]
enum What {
    /// Let other machines run, time and profile models here, and measure schedules, until this is interrupted
    ///
    /// Whoever reaches the server can run any code on this machine, with all that its user may do: an artifact is a program. So
    /// it listens on the loopback interface alone, unless it has a token. What goes over the wire is not encrypted: use a tunnel
    /// (docs/remote.md).
    Serve(ServeArgs),
    /// Ask servers what machines they are, and who uses them
    List(ListArgs),
    /// Do what a server asks for
    #[command(hide = true)]
    Work,
}

/// How to serve.
#[derive(clap::Args)]
struct ServeArgs {
    /// Where to listen; where other machines reach it, a token is needed
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 picks one and prints it
    #[arg(long, value_name = "PORT", default_value_t = remote::PORT)]
    port: u16,
    /// File with the token, a text of 16 bytes or more that clients must know [default: $TILEWRIGHT_RPC_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// What to call the machine [default: its host name]
    #[arg(long)]
    name: Option<String>,
    /// Most seconds of a job; then its process is killed
    #[arg(long, value_name = "S", default_value = "600", value_parser = seconds)]
    limit: f64,
    /// Most bytes of uploads to keep, as `512MiB`; the least recently used make room
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = bytes)]
    store: u64,
    /// Most clients that may wait for the machine
    #[arg(long, value_name = "N", default_value = "16")]
    queue: usize,
}

/// Whom to ask.
#[derive(clap::Args)]
struct ListArgs {
    /// Servers
    #[arg(value_name = "HOST:PORT", required = true)]
    servers: Vec<String>,
    /// File with their token [default: $TILEWRIGHT_RPC_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::Serve(args) => serve(args),
        What::List(args) => list(args),
        What::Work => work(),
    }
}

fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let ServeArgs { host, port, token_file, name, limit, store, queue } = args;
    let serve = Serve {
        host: host.clone(),
        port: *port,
        token_file: token_file.clone(),
        name: name.clone(),
        seconds: *limit,
        store: *store,
        waiting: *queue,
        devices: devices::list().into_iter().filter_map(|device| device.name).collect(),
        work: &["rpc", "work"],
    };
    let mut printed = Ok(());
    let ready = |address| printed = output::print(&format!("serving on {address}\n"));
    remote::serve(serve, ready, |line| output::note(&format!("{line}\n")))?;
    printed
}

fn work() -> Result<(), Failure> {
    // A server's clients are trusted with all that it may do.
    let open = |path: &Path, options: LoadOptions, device: Option<&str>| -> Result<Model, Failure> {
        let options = match device {
            None => options,
            Some("cpu") => options.on_host(),
            Some(name) => options.device(devices::open(name)?),
        };
        Ok(load::file(path, Trust::Origin, &options)?)
    };
    let open = |path: &Path, options: LoadOptions, device: Option<&str>| {
        open(path, options, device).map_err(|Failure { code, message }| JobFailure { code, message })
    };
    remote::work(&open).map_err(|error| Failure::new(Exit::Io, error))
}

/// A server, and what it says of itself.
type Answer = (String, Result<Status, RemoteError>);

fn list(args: &ListArgs) -> Result<(), Failure> {
    let ask = |server: &str| {
        let access = Access { server: server.to_string(), token_file: args.token_file.clone() };
        Remote::connect(&access).and_then(|mut remote| remote.status())
    };
    let answers: Vec<Answer> = args.servers.iter().map(|server| (server.clone(), ask(server))).collect();
    if args.json {
        let servers: Vec<_> = answers.iter().map(|(server, answer)| status_json(server, answer)).collect();
        output::print_json(&json!({ "servers": servers }))?;
    } else {
        output::print(&table(&answers))?;
    }
    // All were asked; the first that gave no answer is the failure.
    answers.into_iter().try_for_each(|(_, answer)| answer.map(drop).map_err(Failure::from))
}

fn status_json(server: &str, answer: &Result<Status, RemoteError>) -> serde_json::Value {
    match answer {
        Err(error) => json!({ "server": server, "error": error.to_string() }),
        Ok(Status { machine, is_leased, is_busy, waiting, jobs, stored }) => json!({
            "server": server, "name": machine.name, "arch": machine.arch, "features": machine.features,
            "cores": machine.cores, "devices": machine.devices, "jobs_of": machine.kinds, "leased": is_leased,
            "busy": is_busy, "waiting": waiting, "jobs": jobs, "stored_bytes": stored,
        }),
    }
}

/// A line a server, for people; features last, since there may be many.
fn table(answers: &[Answer]) -> String {
    let head =
        ["server", "name", "machine", "cores", "state", "jobs", "devices", "features"].map(String::from);
    let row = |(server, answer): &Answer| {
        let Ok(Status { machine, is_leased, is_busy, waiting, jobs, .. }) = answer else {
            return [server.as_str(), "no answer", "", "", "", "", "", ""].map(String::from);
        };
        let state = match (is_busy, is_leased) {
            (true, _) => "busy",
            (false, true) => "leased",
            (false, false) => "idle",
        };
        let state = if *waiting > 0 { format!("{state}, {waiting} wait") } else { state.to_string() };
        let (cores, jobs) = (machine.cores.to_string(), jobs.to_string());
        let (name, arch, server) = (machine.name.clone(), machine.arch.clone(), server.clone());
        [server, name, arch, cores, state, jobs, machine.devices.join(" "), machine.features.join(" ")]
    };
    let rows: Vec<[String; 8]> = std::iter::once(head).chain(answers.iter().map(row)).collect();
    let widths: [usize; 8] =
        std::array::from_fn(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
