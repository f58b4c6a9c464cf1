//! A server in this process, whose child processes are this program.

use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tilewright_rpc::worker::{Call, Failure, Reply, work};
use tilewright_rpc::{Blob, Client, ClientError, Config, Job, Limits, Machine, Made, Server, Stopper, Token};

/// Variable that makes this program a child process, or a server.
pub(crate) const CHILD: &str = "TILEWRIGHT_RPC_TEST_CHILD";

/// The version of the tests' programs.
pub(crate) const VERSION: &str = "1.2.3";

/// Longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// What a child process does.
pub(crate) fn child() {
    work(|call| {
        let read = |path| std::fs::read(path).map_err(|error| failure(6, &error.to_string()));
        match call.kind.as_str() {
            "reverse" => {
                let mut blobs = call.blobs.iter().map(read).collect::<Result<Vec<_>, _>>()?;
                blobs.iter_mut().for_each(|blob| blob.reverse());
                Ok(Reply { answer: call.request.clone(), blobs })
            }
            "large" => Ok(Reply { answer: vec![1; 2 << 20], blobs: vec![] }),
            "fail" => Err(failure(5, "the model is damaged")),
            "token" => Ok(Reply { answer: vec![u8::from(has_token())], blobs: vec![] }),
            "crash" => crash(call),
            "nonsense" => {
                println!("what a library prints");
                std::process::exit(0);
            }
            _ => hang(call),
        }
    })
    .expect("a server listens");
}

fn has_token() -> bool {
    std::env::var_os(tilewright_rpc::TOKEN_VARIABLE).is_some()
}

fn failure(code: u8, message: &str) -> Failure {
    Failure { code, message: message.to_string() }
}

fn crash(_: &Call) -> Result<Reply, Failure> {
    eprintln!("an illegal instruction");
    std::process::abort()
}

/// Says which process it is, and does nothing more.
fn hang(call: &Call) -> Result<Reply, Failure> {
    let file = String::from_utf8_lossy(&call.request).into_owned();
    if !file.is_empty() {
        // Whole or not there.
        std::fs::write(format!("{file}.new"), std::process::id().to_string()).expect("a file");
        std::fs::rename(format!("{file}.new"), file).expect("a file");
    }
    loop {
        std::thread::park();
    }
}

/// Serves and says where, until it is killed.
pub(crate) fn serve() {
    let server = Server::bind("127.0.0.1", 0, config(None, Limits::default())).expect("a port");
    println!("{}", server.address());
    server.run();
}

/// A server on a port of its own; it ends with this.
pub(crate) struct Served {
    pub(crate) address: String,
    pub(crate) log: Arc<Mutex<Vec<String>>>,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

pub(crate) fn config(token: Option<&str>, limits: Limits) -> Config {
    let kinds = ["reverse", "large", "fail", "token", "crash", "nonsense", "hang"];
    Config {
        limits,
        token: token.map(self::token),
        machine: Machine {
            name: "board".to_string(),
            arch: "x86_64".to_string(),
            features: vec!["avx2".to_string()],
            cores: 2,
            devices: vec![],
            kinds: kinds.map(String::from).to_vec(),
        },
        version: VERSION.to_string(),
        command: Box::new(|| {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.env(CHILD, "1").env(tilewright_rpc::TOKEN_VARIABLE, "nothing for jobs");
            command
        }),
        log: Box::new(|_| {}),
    }
}

pub(crate) fn token(text: &str) -> Token {
    Token::new(text).expect("a token")
}

impl Served {
    pub(crate) fn new(limits: Limits) -> Served {
        Served::with(config(None, limits))
    }

    pub(crate) fn with(mut config: Config) -> Served {
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let lines = log.clone();
        config.log = Box::new(move |line| lines.lock().expect("a log").push(line.to_string()));
        let server = Server::bind("127.0.0.1", 0, config).expect("a port");
        let (address, stopper) = (server.address().to_string(), server.stopper());
        Served { address, log, stopper, thread: Some(std::thread::spawn(move || server.run())) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.address, VERSION, None).expect("a connection")
    }

    pub(crate) fn stream(&self) -> TcpStream {
        TcpStream::connect(&self.address).expect("a connection")
    }

    /// Stops the server and waits for its threads.
    pub(crate) fn stop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a server that ends well");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What becomes of a job of a client that waits for the machine.
pub(crate) fn run(
    client: &mut Client,
    kind: &str,
    request: &[u8],
    blobs: &[Blob],
) -> Result<Made, ClientError> {
    run_within(client, kind, request, blobs, LONG)
}

pub(crate) fn run_within(
    client: &mut Client,
    kind: &str,
    request: &[u8],
    blobs: &[Blob],
    limit: Duration,
) -> Result<Made, ClientError> {
    client.lease(&mut |_| {})?.run(&Job { kind, request, blobs, limit })
}

/// Waits until something holds; a test that waits for ever is ended by its runner.
pub(crate) fn wait_until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        std::thread::sleep(Duration::from_millis(5));
    }
}
