//! Schedules for a processor that another process measures: rounds, requests, and servers.
#![cfg(target_os = "linux")]

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{fail, folder, model, node, save, succeed, value};
use tilewright_driver::run::measure::{Answer, BlobId, Effort, Request};
use tilewright_driver::tune::{Database, Entry, Finding, Journal, Round};

/// Two products of matrices, which are two functions.
fn products(dir: &Path) {
    let inputs = vec![value("a", &["96", "80"]), value("b", &["80", "256"]), value("d", &["256", "64"])];
    let nodes = vec![node("MatMul", &["a", "b"], &["c"]), node("MatMul", &["c", "d"], &["e"])];
    save(dir, "products.onnx", &model(17, nodes, inputs, vec![value("e", &["96", "64"])]));
}

fn records(dir: &Path, name: &str) -> Database {
    Journal::read(&dir.join(name)).unwrap().0
}

#[test]
fn rounds_for_a_processor_need_no_compiler_to_be_measured() {
    let dir = folder();
    let dir = dir.path();
    products(dir);
    let tune = |args: &[&str]| {
        succeed(dir, &[&["tune", "products.onnx", "--database", "t.jsonl", "--json"], args].concat()).json()
    };
    assert_eq!(tune(&["--candidates-to", "first", "--trials", "8"])["candidates"], 8);
    let first = Round::read(&dir.join("first")).unwrap();
    fail(dir, &["measure", "first", "--device", "opencl"], 2, &["leave --device out"]);
    let measure = || succeed(dir, &["measure", "first", "--json"]).json();
    let figures = measure();
    assert_eq!((figures["measured"].as_u64(), figures["failed"].as_u64()), (Some(8), Some(0)), "{figures}");
    // A measurement that was cut in the middle of a line goes on where it was.
    let results = dir.join("first/results.jsonl");
    let text = std::fs::read_to_string(&results).unwrap();
    std::fs::write(&results, &text[..text.len() * 3 / 5]).unwrap();
    assert!(first.results(&dir.join("first")).unwrap().0.len() < 8);
    assert_eq!(measure()["measured"], 8);
    let figures = tune(&["--measured", "first", "--candidates-to", "second", "--trials", "8"]);
    assert_eq!((figures["results"].as_u64(), figures["wrong"].as_u64()), (Some(8), Some(0)), "{figures}");
    let is_trial = |entry: &&Entry| entry.finding == Finding::Trial;
    assert_eq!(records(dir, "t.jsonl").iter().filter(is_trial).count(), 8);
    let second = Round::read(&dir.join("second")).unwrap();
    // Functions may have decisions in common.
    let of = |round: &Round| -> Vec<_> {
        round.trials.iter().map(|trial| (trial.task.clone(), trial.decisions.clone())).collect()
    };
    let measured = of(&first);
    assert!(of(&second).iter().all(|trial| !measured.contains(trial)));
    // The rules' own schedules of both functions are there once.
    let references: BTreeSet<&str> = second.trials.iter().map(|trial| &*trial.reference).collect();
    assert!(references.len() <= 2 && references.iter().all(|name| dir.join("second").join(name).exists()));
}

#[test]
fn a_request_in_a_file_is_answered_with_its_digest() {
    let dir = folder();
    let dir = dir.path();
    products(dir);
    succeed(
        dir,
        &["tune", "products.onnx", "--database", "t.jsonl", "--candidates-to", "r", "--trials", "2"],
    );
    let path = dir.join("r/0.json");
    let bytes = std::fs::read(&path).unwrap();
    let answered = succeed(dir, &["measure", "r/0.json"]).out;
    let answer = Answer::from_bytes(answered.as_bytes(), &bytes).unwrap();
    assert_eq!(answer.request, BlobId::of(&bytes));
    let times = answer.result.unwrap();
    assert!(times.candidate.len() >= 15 && times.candidate.len() == times.baseline.len(), "{times:?}");

    let request = Request::from_bytes(&bytes).unwrap();
    assert_eq!(request.effort, Effort::Confirm);
    // A folder has all that its request names, and one without a part of it is told.
    let blob = dir.join("r").join(request.candidate.artifact.to_string());
    let artifact = std::fs::read(&blob).unwrap();
    std::fs::write(&blob, &artifact[1..]).unwrap();
    fail(dir, &["measure", "r/0.json"], 3, &["is damaged", &request.candidate.artifact.to_string()]);
    std::fs::remove_file(&blob).unwrap();
    fail(dir, &["measure", "r/0.json"], 3, &["are missing", &request.candidate.artifact.to_string()]);
    fail(dir, &["measure", "r/round.json"], 5, &["no measurement of this version"]);
    fail(dir, &["measure", "r/0.json", "--device", "opencl"], 2, &["--device is for a round"]);
    fail(dir, &["measure", "nowhere"], 6, &["nowhere"]);
    fail(dir, &["measure"], 2, &["DIR|REQUEST.json"]);
}

/// Artifacts that run, and are no function's.
#[test]
fn what_is_no_schedule_fails_and_harms_nobody() {
    let dir = folder();
    let dir = dir.path();
    products(dir);
    succeed(
        dir,
        &["tune", "products.onnx", "--database", "t.jsonl", "--candidates-to", "r", "--trials", "2"],
    );
    let bytes = std::fs::read(dir.join("r/0.json")).unwrap();
    let sound = Request::from_bytes(&bytes).unwrap();
    succeed(dir, &["compile", "digits.onnx", "-o", "digits.twm"]);
    let artifact = std::fs::read(dir.join("digits.twm")).unwrap();
    let id = BlobId::of(&artifact);
    std::fs::write(dir.join("r").join(id.to_string()), artifact).unwrap();
    let failure = |change: &dyn Fn(&mut Request)| {
        let mut request = sound.clone();
        change(&mut request);
        let bytes = request.to_bytes().unwrap();
        std::fs::write(dir.join("r/other.json"), &bytes).unwrap();
        let answered = succeed(dir, &["measure", "r/other.json"]).out;
        Answer::from_bytes(answered.as_bytes(), &bytes).unwrap().result.unwrap_err().to_string()
    };
    let message = failure(&|request| request.candidate.artifact = id);
    assert!(message.contains("inputs"), "{message}");
    let message = failure(&|request| request.candidate.constants.clear());
    assert!(message.contains("inputs"), "{message}");
    let message = failure(&|request| {
        (request.candidate.artifact, request.candidate.constants) = (id, vec![false]);
    });
    assert!(message.contains("known extents"), "{message}");
}

/// `tilewright rpc serve` on a port of its own; it ends with this.
struct Served {
    address: String,
    child: Child,
}

impl Served {
    fn new(dir: &Path, port: &str) -> Served {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        // It is killed in the end, and leaves what was sent to it.
        let command = command.current_dir(dir).env("TMPDIR", dir);
        let command = command.args(["rpc", "serve", "--port", port]).stderr(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("serving on ").unwrap().to_string();
        Served { address, child }
    }

    fn port(&self) -> String {
        self.address.rsplit(':').next().unwrap().to_string()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn length(path: &Path) -> usize {
    std::fs::read(path).map_or(0, |bytes| bytes.len())
}

#[test]
fn servers_that_come_and_go_cost_no_record_and_make_none_twice() {
    let dir = folder();
    let dir = dir.path();
    products(dir);
    let [stays, goes] = [(); 2].map(|()| Served::new(dir, "0"));
    let remote = format!("{},{}", stays.address, goes.address);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.current_dir(dir).args(["tune", "products.onnx", "--database", "t.jsonl", "--trials", "60"]);
    let mut search = command.args(["--remote", &remote]).stdout(Stdio::null()).spawn().unwrap();
    // It goes each time that some records more are there, and comes back.
    let (port, file) = (goes.port(), dir.join("t.jsonl"));
    let (mut goes, mut n_kills) = (Some(goes), 0);
    let mut seen = 0;
    while search.try_wait().unwrap().is_none() {
        if length(&file) > seen + 2000 {
            seen = length(&file);
            n_kills += 1;
            drop(goes.take());
            goes = Some(Served::new(dir, &port));
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(search.wait().unwrap().success());
    assert!(n_kills > 0, "no server was killed");
    let text = std::fs::read_to_string(&file).unwrap();
    let entries: Vec<Entry> = text.lines().filter_map(Entry::parse).collect();
    let trials: Vec<&Entry> = entries.iter().filter(|entry| entry.finding != Finding::Best).collect();
    assert_eq!(trials.len(), 60);
    assert!(
        trials.iter().all(|entry| entry.finding == Finding::Trial),
        "a lost server is no failed schedule"
    );
    let schedules: BTreeSet<String> =
        trials.iter().map(|entry| format!("{} {}", entry.task, entry.decisions)).collect();
    assert_eq!(schedules.len(), 60, "a record is there twice");
}

#[test]
fn what_servers_cannot_measure_is_told() {
    let dir = folder();
    let dir = dir.path();
    products(dir);
    let served = Served::new(dir, "0");
    let tune = ["tune", "products.onnx", "--database", "t.jsonl", "--trials", "1", "--remote"];
    let with =
        |more: &[&str]| -> Vec<String> { [&tune, more].concat().into_iter().map(String::from).collect() };
    let check = |more: &[&str], code: i32, part: &str| {
        let args = with(more);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        fail(dir, &args, code, &[part]);
    };
    check(&["127.0.0.1:1"], 6, "cannot reach 127.0.0.1:1");
    check(&[&served.address, "--target", "opencl/x86-64-v3"], 2, "--remote measures on processors");
    check(&[&served.address, "--target", "riscv64"], 3, "does not run code for riscv64");
    check(&[&served.address, "--candidates-to", "r"], 2, "--remote");
    fail(dir, &["tune", "products.onnx", "--token-file", "t"], 2, &["--remote"]);
}
