//! A program as a server: its machine, its child processes, and its end.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tilewright_rpc::{Config, Limits, Machine, ServeError, Server, Token, TokenError};
use tilewright_runtime::isa::Isa;
use tilewright_runtime::threads::available_threads;

use super::VERSION;
use super::jobs::KINDS;
use crate::exit::Exit;

/// The port of a server, unless told otherwise.
pub const PORT: u16 = 7391;

/// How a program serves.
#[derive(Clone, Debug)]
pub struct Serve {
    /// Where it listens.
    pub host: String,
    /// Its port; 0 is one that the system picks.
    pub port: u16,
    /// The file with the token; the variable [`super::TOKEN_VARIABLE`] has it where no file is named.
    pub token_file: Option<PathBuf>,
    /// What its owner calls the machine; the system's name for it where nothing is said.
    pub name: Option<String>,
    /// Longest seconds of a job.
    pub seconds: f64,
    /// Most bytes of uploads that are kept.
    pub store: u64,
    /// Most clients that wait for the machine.
    pub waiting: usize,
    /// Devices beside the processor.
    pub devices: Vec<String>,
    /// The arguments of this program that make it call [`super::work`].
    pub work: &'static [&'static str],
}

impl Default for Serve {
    fn default() -> Serve {
        let limits = Limits::default();
        Serve {
            host: "127.0.0.1".to_string(),
            port: PORT,
            token_file: None,
            name: None,
            seconds: limits.job.as_secs_f64(),
            store: limits.store,
            waiting: limits.waiting,
            devices: Vec::new(),
            work: &[],
        }
    }
}

/// Why a program does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeFailure {
    /// The token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The server.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// This program cannot be found, which child processes are.
    #[error("cannot find this program, which runs the jobs: {0}")]
    Program(std::io::Error),
    /// The system's signals to end it cannot be heard.
    #[error("cannot wait for signals: {0}")]
    Signals(ctrlc::Error),
}

impl From<&ServeFailure> for Exit {
    fn from(failure: &ServeFailure) -> Exit {
        match failure {
            ServeFailure::Token(TokenError::Length { .. }) => Exit::Usage,
            ServeFailure::Serve(error) => error.into(),
            ServeFailure::Token(TokenError::Read { .. })
            | ServeFailure::Program(_)
            | ServeFailure::Signals(_) => Exit::Io,
        }
    }
}

/// Serves until the system asks the program to end (SIGINT, SIGTERM, SIGHUP). `ready` is told where it listens, `log` what happens.
///
/// # Errors
/// When it cannot listen.
pub fn serve(
    serve: Serve,
    ready: impl FnOnce(std::net::SocketAddr),
    log: impl Fn(&str) + Send + Sync + 'static,
) -> Result<(), ServeFailure> {
    let program = std::env::current_exe().map_err(ServeFailure::Program)?;
    let Isa { arch, features } = Isa::native();
    let job = Duration::try_from_secs_f64(serve.seconds).unwrap_or(Duration::MAX);
    let work = serve.work;
    let config = Config {
        limits: Limits { waiting: serve.waiting, store: serve.store, job, ..Limits::default() },
        token: Token::given(serve.token_file.as_deref())?,
        machine: Machine {
            name: serve.name.unwrap_or_else(name_of_machine),
            arch,
            features,
            cores: u32::try_from(available_threads()).unwrap_or(u32::MAX),
            devices: serve.devices,
            kinds: KINDS.map(String::from).to_vec(),
        },
        version: VERSION.to_string(),
        command: Box::new(move || {
            let mut command = Command::new(&program);
            command.args(work);
            command
        }),
        log: Box::new(log),
    };
    let server = Server::bind(&serve.host, serve.port, config)?;
    let stopper = server.stopper();
    ctrlc::set_handler(move || stopper.stop()).map_err(ServeFailure::Signals)?;
    ready(server.address());
    server.run();
    Ok(())
}

/// The system's name for the machine.
fn name_of_machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "unnamed".to_string(),
        name => name.to_string(),
    }
}
