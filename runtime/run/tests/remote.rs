//! `tilewright-run serve`, and the same program as its client.
#![cfg(target_os = "linux")]

#[path = "../../tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{demo_artifact, demo_manifest, demo_plan, demo_weights};
use tempfile::TempDir;
use tilewright_run::measure::{self, Bench, BlobId, Effort, Request, Schedule};
use tilewright_run::remote::{Access, Remote};
use tilewright_run::{Tensor, files};
use tilewright_runtime::Bytes;
use tilewright_runtime::artifact::{Contents, Level};

const TOKEN: &str = "TILEWRIGHT_RPC_TOKEN";

/// The program in a folder, without a token.
fn program(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright-run"));
    command.current_dir(folder).args(args).env_remove(TOKEN);
    command
}

/// A server on a port of its own; it ends with this.
struct Served {
    address: String,
    child: Child,
}

impl Served {
    fn new(folder: &Path, args: &[&str], token: Option<&str>) -> Served {
        let mut command = program(folder, &["serve", "--port", "0", "--name", "board"]);
        // It is killed in the end, and leaves what was sent to it.
        let command = command.args(args).envs(token.map(|token| (TOKEN, token))).env("TMPDIR", folder);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a server");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("serving on ").expect("an address").to_string();
        Served { address, child }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have been ended.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Exit code, output, and messages.
fn said(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("a run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("demo.twm"), &demo_artifact()[..]).expect("a file");
    let x = Tensor::new(&[2, 3], [0f32, 1.0, 2.0, 3.0, 4.0, 5.0]).expect("a tensor");
    files::write_outputs(&folder.path().join("x.npz"), &vec![("x".to_string(), x.into())]).expect("a file");
    folder
}

#[test]
fn verbs_say_what_they_say_here() {
    let folder = folder();
    let folder = folder.path();
    let served = Served::new(folder, &[], None);
    let run = |args: &[&str]| said(&mut program(folder, args));
    let here = run(&["run", "demo.twm", "--inputs", "x.npz"]);
    assert_eq!(here.0, Some(0), "{}", here.2);
    assert_eq!(run(&["run", "demo.twm", "--inputs", "x.npz", "--remote", &served.address]), here);
    for (outputs, remote) in [("here.npz", &[][..]), ("there.npz", &["--remote", &served.address])] {
        let args = [&["run", "demo.twm", "--inputs", "x.npz", "--outputs", outputs], remote].concat();
        assert_eq!(run(&args), (Some(0), String::new(), String::new()));
    }
    let bytes = |name: &str| std::fs::read(folder.join(name)).expect("a file");
    assert_eq!(bytes("here.npz"), bytes("there.npz"));
    let names =
        |text: &str| text.lines().map(|line| line.chars().take(15).collect::<String>()).collect::<Vec<_>>();
    for verb in ["bench", "profile"] {
        let here = run(&[verb, "demo.twm", "--seconds", "0"]);
        for inputs in [&[][..], &["--inputs", "x.npz"]] {
            let args = [&[verb, "demo.twm", "--seconds", "0", "--remote", &served.address], inputs].concat();
            let there = run(&args);
            assert_eq!((there.0, there.2.as_str()), (Some(0), ""), "{args:?}");
            assert_eq!(names(&there.1)[..3], names(&here.1)[..3], "{}", there.1);
        }
    }
    // What is wrong is told with the same code and message, behind the server's name.
    for args in [&["run", "demo.twm"][..], &["run", "demo.twm", "--inputs", "y.npz"]] {
        let [here, there] =
            [args.to_vec(), [args, &["--remote", &served.address]].concat()].map(|args| run(&args));
        assert_eq!(there, here);
    }
    let y = Tensor::new(&[2, 4], [0f32; 8]).expect("a tensor");
    files::write_outputs(&folder.join("y.npz"), &vec![("x".to_string(), y.into())]).expect("a file");
    let args = ["run", "demo.twm", "--inputs", "y.npz", "--remote", &served.address];
    let (here, there) = (run(&args[..4]), run(&args));
    let message = here.2.strip_prefix("error: ").expect("an error");
    assert_eq!((there.0, there.2), (here.0, format!("error: {}: {message}", served.address)));
}

#[test]
fn an_artifact_for_another_machine_is_not_uploaded() {
    let folder = folder();
    let served = Served::new(folder.path(), &[], None);
    let mut manifest = demo_manifest();
    manifest.images[0].triple = "vax-dec-vms".to_string();
    manifest.images[0].features = vec!["ffh".to_string()];
    let (plan, weights) = (demo_plan().plan, demo_weights());
    let levels = [Level { plan: &plan, specialised: &[], image: &[0; 64], device_code: None }];
    let weights = weights.split_at(8);
    let contents = Contents { manifest: &manifest, levels: &levels, weights: &[weights.0, weights.1] };
    std::fs::write(folder.path().join("vax.twm"), &contents.to_bytes().expect("an artifact")[..])
        .expect("a file");
    let args = ["bench", "vax.twm", "--remote", &served.address];
    let (code, _, message) = said(&mut program(folder.path(), &args));
    assert_eq!(code, Some(5), "{message}");
    let arch = std::env::consts::ARCH;
    let start = format!("error: {} is {arch}", served.address);
    let end = "vax.twm is for vax with ffh: compile it with --target for that machine\n";
    assert!(message.starts_with(&start) && message.ends_with(end), "{message}");
}

/// What comes of a measurement follows from the request and the bytes that it names, wherever it is made.
#[test]
fn schedules_are_measured_there() {
    let folder = folder();
    let served = Served::new(folder.path(), &[], None);
    let bytes = Bytes::new(demo_artifact());
    let artifact = BlobId::of(&bytes);
    let blobs = BTreeMap::from([(artifact, bytes)]);
    let schedule = Schedule { artifact, constants: vec![false], work: vec![] };
    let request = Request {
        version: measure::request::VERSION,
        name: "demo".to_string(),
        reference: schedule.clone(),
        candidate: schedule,
        span: 0,
        threads: 1,
        shared_by: None,
        effort: Effort::Trial,
        check: None,
    };
    let here = Bench::default().measure(&request, &blobs);
    let access = Access { server: served.address.clone(), token_file: None };
    let mut remote = Remote::connect(&access).expect("a server");
    let there = remote.measure(&request, &blobs).expect("an answer").result;
    assert_eq!(there.map(|_| "times"), here.map(|_| "times"));
    let missing = remote.measure(&request, &BTreeMap::new()).expect_err("no artifact").to_string();
    assert_eq!(missing, format!("the bytes of {artifact} are missing: they must come with the request"));
}

#[test]
fn tokens_come_from_files_or_the_environment() {
    let folder = folder();
    let folder = folder.path();
    std::fs::write(folder.join("token"), "0123456789abcdef0123\n").expect("a file");
    let served = Served::new(folder, &["--token-file", "token"], None);
    let args = ["run", "demo.twm", "--inputs", "x.npz", "--remote", &served.address];
    let with_file = said(program(folder, &args).args(["--token-file", "token"]));
    assert_eq!(with_file.0, Some(0), "{}", with_file.2);
    assert_eq!(said(program(folder, &args).env(TOKEN, "0123456789abcdef0123")), with_file);
    let (code, _, message) = said(&mut program(folder, &args));
    assert_eq!(code, Some(2));
    assert!(message.contains("the server has a token, this client has none"), "{message}");
    let (code, _, message) = said(program(folder, &args).env(TOKEN, "0123456789abcdef0124"));
    assert_eq!(code, Some(2));
    assert!(message.contains("the server's token is not the one that this client has"), "{message}");
    // Others than this machine are served with a token alone.
    let (code, out, message) = said(&mut program(folder, &["serve", "--host", "0.0.0.0", "--port", "0"]));
    assert_eq!((code, out.as_str()), (Some(2), ""), "{message}");
    assert!(message.contains("0.0.0.0:0 is reached from other machines"), "{message}");
    let (code, _, message) = said(program(folder, &["serve", "--port", "0"]).env(TOKEN, "short"));
    assert_eq!(code, Some(2), "{message}");
}

#[test]
fn a_server_ends_when_it_is_asked_to_and_leaves_nothing() {
    let (folder, temporary) = (folder(), tempfile::tempdir().expect("a folder"));
    let mut command = program(folder.path(), &["serve", "--port", "0"]);
    let mut child = command.env("TMPDIR", temporary.path()).stdout(Stdio::piped()).spawn().expect("a server");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("serving on ").expect("an address").to_string();
    let args = ["run", "demo.twm", "--inputs", "x.npz", "--remote", &address];
    assert_eq!(said(&mut program(folder.path(), &args)).0, Some(0));
    let files = || std::fs::read_dir(temporary.path()).expect("a folder").count();
    assert_eq!(files(), 1);
    let killed = Command::new("kill").arg(child.id().to_string()).status().expect("a signal");
    assert!(killed.success());
    assert_eq!(child.wait().expect("an end").code(), Some(0));
    assert_eq!(files(), 0);
    let (code, _, message) = said(&mut program(folder.path(), &args));
    assert_eq!(code, Some(6));
    assert!(message.contains(&format!("cannot reach {address}")), "{message}");
}
