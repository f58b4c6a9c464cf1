//! Who may talk to whom, and whose turn it is.

use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tilewright_rpc::{Client, ClientError, Fault, HandshakeError, Limits, ServeError, Server};

use super::support::{CHILD, Served, VERSION, config, run, token, wait_until};

const SECRET: &str = "a secret that both sides know";
const OTHER: &str = "a secret that nobody else knows";

/// A client without this crate's code: it sends what it likes, and no heartbeats.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    /// Behind the handshake with a server without a token.
    pub(crate) fn new(served: &Served) -> Raw {
        let mut raw = Raw(served.stream());
        raw.send(b"TWRPC\0\x01\0");
        raw.hear(8);
        raw.frame(0, &Raw::hello());
        raw.answer();
        raw.frame(0, &[0]);
        raw.answer();
        raw
    }

    /// That has the machine.
    pub(crate) fn leased(served: &Served) -> Raw {
        let mut raw = Raw::new(served);
        raw.frame(0, &[LEASE]);
        assert_eq!(raw.answer(), [GRANTED]);
        raw
    }

    /// Version, nonce, and no token.
    pub(crate) fn hello() -> Vec<u8> {
        let mut hello = vec![VERSION.len() as u8];
        hello.extend_from_slice(VERSION.as_bytes());
        hello.extend_from_slice(&[9; 32]);
        hello.push(0);
        hello
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("a server that listens");
    }

    pub(crate) fn frame(&mut self, kind: u8, bytes: &[u8]) {
        self.send(&frame(kind, bytes));
    }

    /// Asks for a job without blobs that may take a minute.
    pub(crate) fn job(&mut self, kind: &str, request: &[u8]) {
        let mut message = vec![6, kind.len() as u8];
        message.extend_from_slice(kind.as_bytes());
        message.push(request.len() as u8);
        message.extend_from_slice(request);
        // No blobs; 60,000 ms as a number of variable length.
        message.extend_from_slice(&[0, 0xe0, 0xd4, 0x03]);
        self.frame(0, &message);
    }

    fn hear(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        self.0.read_exact(&mut bytes).expect("an answer");
        bytes
    }

    /// The bytes of the next frame.
    pub(crate) fn answer(&mut self) -> Vec<u8> {
        let header = self.hear(5);
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        self.hear(length as usize)
    }
}

/// A frame as it goes over the wire.
pub(crate) fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut frame = (bytes.len() as u32).to_le_bytes().to_vec();
    frame.push(kind);
    frame.extend_from_slice(bytes);
    frame
}

/// The places of messages in their enumerations: this is the protocol, and changes with its version.
pub(crate) const LEASE: u8 = 2;
const GRANTED: u8 = 3;

fn refusal(result: Result<Client, ClientError>) -> HandshakeError {
    match result {
        Err(ClientError::Handshake { error, .. }) => error,
        Err(other) => panic!("a handshake that fails, and not {other}"),
        Ok(_) => panic!("a handshake that fails"),
    }
}

pub(crate) fn tokens_are_proven_both_ways() {
    let guarded = Served::with(config(Some(SECRET), Limits::default()));
    let connect = |served: &Served, secret: Option<&str>| {
        Client::connect(&served.address, VERSION, secret.map(token).as_ref())
    };
    let mut client = connect(&guarded, Some(SECRET)).expect("the same token");
    assert_eq!(run(&mut client, "reverse", b"yes", &[]).expect("an answer").answer, b"yes");
    assert!(matches!(refusal(connect(&guarded, Some(OTHER))), HandshakeError::WrongToken));
    assert!(matches!(refusal(connect(&guarded, None)), HandshakeError::NoClientToken));
    wait_until(|| guarded.log.lock().expect("a log").len() == 2);
    assert!(guarded.log.lock().expect("a log").iter().all(|line| line.contains("token")));
    // Who asks for a token wants to know who answers.
    let open = Served::new(Limits::default());
    assert!(matches!(refusal(connect(&open, Some(SECRET))), HandshakeError::NoServerToken));
    // A server that only says that it knows the token.
    let impostor = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = impostor.local_addr().expect("an address").to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut raw = Raw(impostor.accept().expect("a client").0);
            raw.send(b"TWRPC\0\x01\0");
            raw.hear(8);
            raw.answer();
            let mut ready = vec![0];
            ready.extend_from_slice(&Raw::hello());
            *ready.last_mut().expect("whether there is a token") = 1;
            raw.frame(0, &ready);
            let proof = raw.answer();
            // The client's own proof, and a machine without anything.
            let mut welcome = vec![0];
            welcome.extend_from_slice(&proof);
            welcome.extend_from_slice(&[0; 7]);
            raw.frame(0, &welcome);
        });
        let error = refusal(Client::connect(&address, VERSION, Some(&token(SECRET))));
        assert!(matches!(error, HandshakeError::Impostor), "{error}");
    });
}

pub(crate) fn no_server_is_open_without_a_token() {
    for host in ["0.0.0.0", "::"] {
        let refused = Server::bind(host, 0, config(None, Limits::default())).err();
        assert!(matches!(refused, Some(ServeError::Open { .. })), "{refused:?}");
    }
    assert!(Server::bind("0.0.0.0", 0, config(Some(SECRET), Limits::default())).is_ok());
}

pub(crate) fn versions_must_be_the_same() {
    let served = Served::new(Limits::default());
    let error = refusal(Client::connect(&served.address, "1.2.4", None));
    let expected = "this is tilewright 1.2.4, the other side is 1.2.3: use the same version";
    assert_eq!(error.to_string(), expected);
    wait_until(|| !served.log.lock().expect("a log").is_empty());
    let line = served.log.lock().expect("a log")[0].clone();
    assert!(
        line.ends_with("this is tilewright 1.2.3, the other side is 1.2.4: use the same version"),
        "{line}"
    );
    // Another version of the protocol, and another protocol.
    for (said, expected) in [
        (&b"TWRPC\0\x07\0"[..], "this program speaks version 1 of the protocol, the other side 7"),
        (b"GET / HTTP/1.1\r\n\r\n", "no server of tilewright, or no client"),
    ] {
        let mut raw = Raw(served.stream());
        raw.send(said);
        assert_eq!(raw.hear(8), b"TWRPC\0\x01\0", "who is wrong is told what would be right");
        wait_until(|| served.log.lock().expect("a log").iter().any(|line| line.contains(expected)));
    }
}

pub(crate) fn one_client_at_a_time_has_the_machine() {
    let served = Served::new(Limits { waiting: 1, ..Limits::default() });
    let (mut first, mut watching) = (served.client(), served.client());
    let lease = first.lease(&mut |_| panic!("nobody is before it")).expect("a lease");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            let (mut places, mut second) = (Vec::new(), served.client());
            let made = second
                .lease(&mut |ahead| places.push(ahead))
                .and_then(|mut lease| {
                    let job = tilewright_rpc::Job {
                        kind: "reverse",
                        request: b"second",
                        blobs: &[],
                        limit: super::support::LONG,
                    };
                    lease.run(&job)
                })
                .expect("an answer");
            (places, made.answer)
        });
        wait_until(|| watching.status().expect("a status").waiting == 1);
        assert!(watching.status().expect("a status").is_leased);
        match watching.lease(&mut |_| {}) {
            Err(ClientError::Fault { fault, .. }) => assert_eq!(fault, Fault::QueueFull { waiting: 1 }),
            _ => panic!("a queue that is full"),
        }
        drop(lease);
        assert_eq!(second.join().expect("a client"), (vec![1], b"second".to_vec()));
    });
    // What needs the machine is refused without it.
    let mut raw = Raw::new(&served);
    raw.job("reverse", b"");
    let fault_no_lease = raw.answer();
    assert_eq!(fault_no_lease.len(), 2);
    assert_eq!(fault_no_lease[1], 0, "the first of the faults");
}

pub(crate) fn a_silent_client_loses_the_machine() {
    let served = Served::new(Limits { silence: Duration::from_millis(600), ..Limits::default() });
    let mut silent = Raw::leased(&served);
    silent.job("hang", b"");
    // It waits until the silence is over: the one before it says nothing.
    let made = run(&mut served.client(), "reverse", b"mine", &[]);
    assert_eq!(made.expect("an answer").answer, b"mine");
    wait_until(|| served.log.lock().expect("a log").iter().any(|line| line.contains("is silent")));
    // Also one that does not even finish its handshake.
    let served =
        Served::new(Limits { handshake: Duration::from_millis(100), connections: 1, ..Limits::default() });
    let mut slow = Raw(served.stream());
    slow.send(b"TW");
    wait_until(|| served.log.lock().expect("a log").iter().any(|line| line.contains("is silent")));
    wait_until(|| Client::connect(&served.address, VERSION, None).is_ok());
}

pub(crate) fn there_are_so_many_connections() {
    let served = Served::new(Limits { connections: 2, ..Limits::default() });
    let (first, _second) = (served.client(), served.client());
    let error = refusal(Client::connect(&served.address, VERSION, None));
    assert!(matches!(error, HandshakeError::Full { connections: 2 }), "{error}");
    drop(first);
    wait_until(|| Client::connect(&served.address, VERSION, None).is_ok());
}

/// How often the threads of a process have gone to sleep.
fn sleeps(process: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("threads");
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
        let status =
            std::fs::read_to_string(thread.expect("a thread").path().join("status")).expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.expect("a count").trim().parse::<u64>().expect("a number")
    };
    threads.map(of_thread).sum()
}

/// Counted by what its threads do, not by the clock: who looks around now and then wakes up. Heartbeats, one in five seconds, wake two threads.
pub(crate) fn an_idle_server_sleeps() {
    // It is killed in the end, and leaves what was sent to it.
    let left = tempfile::tempdir().expect("a folder");
    let mut server = std::process::Command::new(std::env::current_exe().expect("this program"));
    let server = server.env("TMPDIR", left.path());
    let mut server =
        server.env(CHILD, "serve").stdout(std::process::Stdio::piped()).spawn().expect("a server");
    let mut address = String::new();
    let stdout = server.stdout.take().expect("a pipe");
    std::io::BufReader::new(stdout).read_line(&mut address).expect("an address");
    let mut client = Client::connect(address.trim(), VERSION, None).expect("a connection");
    assert_eq!(run(&mut client, "reverse", b"yes", &[]).expect("an answer").answer, b"yes");
    wait_until(|| !client.status().expect("a status").is_leased);
    // The last answer's thread goes to sleep, too.
    std::thread::sleep(Duration::from_millis(100));
    let before = sleeps(server.id());
    std::thread::sleep(Duration::from_secs(1));
    let after = sleeps(server.id());
    server.kill().expect("a server");
    server.wait().expect("a server");
    assert!(after - before <= 4, "its threads woke up {} times in a second", after - before);
}
