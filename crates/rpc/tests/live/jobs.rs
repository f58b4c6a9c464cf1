//! Jobs: their blobs, their answers, and how they end.

use std::path::Path;
use std::time::Duration;

use tilewright_rpc::{Blob, ClientError, Fault, Job, Limits};

use super::support::{LONG, Served, run, run_within, wait_until};

fn fault(result: Result<tilewright_rpc::Made, ClientError>) -> Fault {
    match result {
        Err(ClientError::Fault { fault, .. }) => fault,
        other => panic!("a fault, and not {other:?}"),
    }
}

pub(crate) fn a_job_gets_its_blobs_and_answers() {
    let served = Served::new(Limits::default());
    let mut client = served.client();
    assert_eq!((client.machine().name.as_str(), client.machine().arch.as_str()), ("board", "x86_64"));
    // More than a piece, one byte, and nothing.
    let bytes = [(0..3_000_000u32).map(|i| (i % 251) as u8).collect(), vec![7], vec![]];
    let blobs = bytes.clone().map(Blob::new);
    let made = run(&mut client, "reverse", b"which", &blobs).expect("an answer");
    assert_eq!(made.answer, b"which");
    let reversed = bytes.map(|mut bytes: Vec<u8>| {
        bytes.reverse();
        bytes
    });
    assert_eq!(made.blobs, reversed);
    // The process knows no token.
    assert_eq!(run(&mut client, "token", b"", &[]).expect("an answer").answer, [0]);
    assert_eq!(client.status().expect("a status").jobs, 2);
}

pub(crate) fn blobs_are_uploaded_once() {
    let served = Served::new(Limits { store: 10, ..Limits::default() });
    let mut client = served.client();
    let [model, x, y] = [&b"model"[..], b"xxxx", b"yyyy"].map(|bytes| Blob::new(bytes.to_vec()));
    for (input, stored) in [(&x, 9), (&x, 9), (&y, 9)] {
        let blobs = [model.clone(), input.clone()];
        assert_eq!(run(&mut client, "reverse", b"", &blobs).expect("an answer").blobs[0], b"ledom");
        // `x` made room for `y`, and the model stayed.
        assert_eq!(client.status().expect("a status").stored, stored);
    }
    let large = Blob::new(vec![0; 11]);
    let expected = Fault::NoRoom { bytes: 11, limit: 10, used: 9 };
    assert_eq!(fault(run(&mut client, "reverse", b"", &[large])), expected);
    // A client that says nothing of what it needs is told what lacks.
    let mut lease = client.lease(&mut |_| {}).expect("a lease");
    let job = Job { kind: "what", request: b"", blobs: &[], limit: LONG };
    let known = ["reverse", "large", "fail", "token", "crash", "nonsense", "hang"].map(String::from).to_vec();
    assert_eq!(fault(lease.run(&job)), Fault::NoKind { kind: "what".to_string(), known });
}

pub(crate) fn what_a_job_says_of_its_failure_is_told() {
    let served = Served::new(Limits::default());
    let mut client = served.client();
    let error = run(&mut client, "fail", b"", &[]).expect_err("a failure");
    assert_eq!(error.to_string(), format!("{}: the model is damaged", served.address));
    let expected = Fault::Failed { code: 5, message: "the model is damaged".to_string() };
    assert_eq!(fault(Err(error)), expected);
    let message = "the answer of a job has 2097152 bytes, and 1047552 are the most".to_string();
    assert_eq!(fault(run(&mut client, "large", b"", &[])), Fault::Failed { code: 70, message });
    assert!(matches!(fault(run(&mut client, "nonsense", b"", &[])), Fault::Died(_)));
    // The connection is as good as before.
    assert_eq!(run(&mut client, "reverse", b"still", &[]).expect("an answer").answer, b"still");
}

pub(crate) fn a_job_that_crashes_costs_its_process() {
    let served = Served::new(Limits::default());
    let mut client = served.client();
    for _ in 0..2 {
        let crashed = fault(run(&mut client, "crash", b"", &[])).to_string();
        assert!(crashed.contains("signal: 6") && crashed.ends_with("an illegal instruction"), "{crashed}");
    }
    assert_eq!(run(&mut client, "reverse", b"still", &[]).expect("an answer").answer, b"still");
}

/// Whether a process lives.
fn lives(process: &str) -> bool {
    Path::new("/proc").join(process).exists()
}

/// The process of a job that writes its number to a file.
fn process(file: &Path) -> String {
    wait_until(|| file.exists());
    std::fs::read_to_string(file).expect("a number")
}

pub(crate) fn a_job_that_hangs_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("process");
    let name = file.to_str().expect("a name").as_bytes();
    let served = Served::new(Limits { job: Duration::from_millis(1500), ..Limits::default() });
    let mut client = served.client();
    // The server's limit, and the client's own.
    for (limit, limit_ms) in [(LONG, 1500), (Duration::from_millis(700), 700)] {
        let hung = fault(run_within(&mut client, "hang", name, &[], limit));
        assert_eq!(hung, Fault::Hung { limit_ms });
    }
    assert!(!lives(&process(&file)));
    assert_eq!(run(&mut client, "reverse", b"still", &[]).expect("an answer").answer, b"still");
}

pub(crate) fn a_client_that_goes_takes_its_job_along() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("process");
    let served = Served::new(Limits::default());
    std::thread::scope(|scope| {
        let mut leaving = super::parties::Raw::leased(&served);
        leaving.job("hang", file.to_str().expect("a name").as_bytes());
        let process = process(&file);
        assert!(lives(&process));
        let next = scope.spawn(|| run(&mut served.client(), "reverse", b"mine", &[]));
        let mut watching = served.client();
        wait_until(|| watching.status().expect("a status").waiting == 1);
        assert!(watching.status().expect("a status").is_busy);
        drop(leaving);
        assert_eq!(next.join().expect("a client").expect("an answer").answer, b"mine");
        assert!(!lives(&process));
    });
}

pub(crate) fn a_server_that_stops_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("process");
    let mut served = Served::new(Limits::default());
    let mut client = served.client();
    let name = file.to_str().expect("a name").as_bytes().to_vec();
    let waiting = std::thread::spawn(move || run(&mut client, "hang", &name, &[]));
    let process = process(&file);
    served.stop();
    let error = waiting.join().expect("a client").expect_err("no answer");
    assert!(matches!(error, ClientError::Frame { .. } | ClientError::Fault { .. }), "{error}");
    assert!(!lives(&process));
}
