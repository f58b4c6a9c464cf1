//! Models on the machine of a server: the command compiles for it, and prints what it prints of this machine.
#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{fail, folder, image, succeed, tilewright};

/// `tilewright rpc serve` on a port of its own; it ends with this.
struct Served {
    address: String,
    child: Child,
}

impl Served {
    fn new(folder: &Path) -> Served {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        // It is killed in the end, and leaves what was sent to it.
        let command = command.current_dir(folder).env("TMPDIR", folder);
        let command = command.args(["rpc", "serve", "--port", "0", "--name", "board"]);
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
        // It may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn models_are_compiled_for_the_server_and_run_there() {
    let dir = folder();
    let (dir, image) = (dir.path(), image());
    let served = Served::new(dir);
    let remote = ["--remote", served.address.as_str()];
    let compile = ["--codegen", "cranelift"];
    let target = [&compile[..], &["--target", "x86-64-v2"]].concat();
    let run = |args: &[&[&str]]| succeed(dir, &args.concat()).out;
    for options in [&compile[..], &target] {
        for json in [&[][..], &["--json"]] {
            let verb: [&[&str]; 4] = [&["run", "digits.onnx", "--inputs", &image], json, options, &remote];
            let (here, there) = (run(&verb[..3]), run(&verb));
            // The best code for any machine like this one may order sums as that for this very one, or not.
            let place = |text: &str| text.split("min").next().map(str::to_string);
            assert_eq!(place(&there), place(&here));
            if options.len() > 2 {
                assert_eq!(there, here);
            }
        }
    }
    succeed(dir, &["compile", "digits.onnx", "--codegen", "cranelift", "-o", "digits.twm"]);
    for outputs in ["a.npz", "b.npz"] {
        let remote = if outputs == "b.npz" { &remote[..] } else { &[] };
        run(&[&["run", "digits.twm", "--inputs", &image, "--outputs", outputs], remote]);
    }
    let bytes = |name: &str| std::fs::read(dir.join(name)).expect("a file");
    assert_eq!(bytes("a.npz"), bytes("b.npz"));
    let args: [&[&str]; 3] = [
        &["bench", "digits.onnx", "--seconds", "0", "--inputs", &image, "--outputs", "c.npz", "--json"],
        &compile,
        &remote,
    ];
    let bench = succeed(dir, &args.concat());
    let figures = bench.json();
    assert!(figures["runs"].as_u64() >= Some(5) && figures["artifact_mib"].as_f64() > Some(0.0), "{figures}");
    assert!(figures["compile_s"].is_f64() && figures["peak_mib"].is_f64(), "{figures}");
    assert!(dir.join("c.npz").exists());
    let profile =
        succeed(dir, &[&["profile", "digits.twm", "--seconds", "0", "--json"], &remote[..]].concat());
    let report = profile.json();
    assert!(report["rows"].as_array().is_some_and(|rows| !rows.is_empty()), "{report}");
    assert!(report["ceilings"].is_null() && report["rows"][0]["roofline"].is_null(), "{report}");
}

#[test]
fn servers_are_listed() {
    let dir = folder();
    let dir = dir.path();
    let served = Served::new(dir);
    let list = succeed(dir, &["rpc", "list", &served.address, "--json"]).json();
    let server = &list["servers"][0];
    assert_eq!(
        (server["name"].as_str(), server["arch"].as_str()),
        (Some("board"), Some(std::env::consts::ARCH))
    );
    assert_eq!((server["busy"].as_bool(), server["jobs"].as_u64()), (Some(false), Some(0)));
    let nobody = tilewright(dir, &["rpc", "list", "127.0.0.1:1", &served.address]);
    assert_eq!(nobody.code, Some(6), "{}", nobody.err);
    assert!(nobody.err.starts_with("error: cannot reach 127.0.0.1:1"), "{}", nobody.err);
    let lines: Vec<&str> = nobody.out.lines().collect();
    assert_eq!(lines.len(), 3, "{}", nobody.out);
    assert!(lines[1].contains("no answer") && lines[2].contains("board") && lines[2].contains("idle"));
}

#[test]
fn what_makes_no_sense_there_is_told_here() {
    let dir = folder();
    let dir = dir.path();
    let remote = ["--remote", "127.0.0.1:1"];
    let args = |args: &[&'static str]| [args, &remote[..]].concat();
    fail(dir, &args(&["run", "digits.onnx", "--codegen", "interpreter"]), 2, &["the interpreter runs here"]);
    fail(dir, &args(&["profile", "digits.onnx", "--trace", "t.json"]), 2, &["--trace", "--remote"]);
    fail(dir, &args(&["run", "digits.onnx"]), 6, &["cannot reach 127.0.0.1:1"]);
    fail(dir, &["run", "digits.onnx", "--token-file", "t"], 2, &["--remote"]);
    let open = ["rpc", "serve", "--host", "0.0.0.0", "--port", "0"];
    fail(dir, &open, 2, &["0.0.0.0:0 is reached from other machines", "--token-file"]);
    let served = Served::new(dir);
    let device = ["run", "digits.onnx", "--device", "cuda", "--remote", &served.address];
    fail(dir, &device, 2, &["--device cuda of", "cuda:sm_80/x86-64-v3"]);
}
