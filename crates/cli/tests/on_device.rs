//! Models on devices: profiles by the device's events, tuning in place and by rounds, and kernels from files.
//!
//! On an OpenCL device, which `cargo xtask setup` makes of the processor; and on CUDA's driver as the runtime's tests fake it, which
//! needs a C compiler. Without them tests count as ignored.

mod common;
#[path = "../../../tools/conditional_tests.rs"]
mod conditional;

use std::path::Path;
use std::process::{Command, ExitCode};

use common::{Run, fail, folder, model, node, run, save, succeed, value, with_lists};
use conditional::Conditional;
use prost::Message;
use tilewright_driver::graph::Tensor;
use tilewright_driver::kernel_file::{self, Contents, KernelEntry, OutputDef};
use tilewright_driver::onnx::tensor::to_proto;
use tilewright_driver::runtime::artifact::{DeviceDef, DeviceKernel};
use tilewright_driver::runtime::kernel_run::{KernelProgram, ProgramBuffer, ProgramCall, Role};
use tilewright_driver::tune::{Database, Finding, Journal, Round, TaskKey, Trial};

fn main() -> ExitCode {
    let no_opencl = tilewright_driver::devices::open("opencl").err().map(|error| error.to_string());
    let no_compiler = match Command::new("cc").arg("--version").output() {
        Ok(_) if cfg!(all(target_os = "linux", target_pointer_width = "64")) => None,
        Ok(_) => Some("the fake driver is for 64-bit Linux".to_string()),
        Err(error) => Some(format!("no C compiler: {error}")),
    };
    type Test = fn();
    let opencl: [(&str, Test); 8] = [
        ("tasks_may_run_in_any_ranges", tasks_may_run_in_any_ranges),
        ("attention_of_any_length", attention_of_any_length),
        ("reductions_over_open_rows_and_columns", reductions_over_open_rows_and_columns),
        ("strides_over_open_images", strides_over_open_images),
        ("profiles_have_the_devices_times", profiles_have_the_devices_times),
        (
            "a_search_on_a_device_leaves_records_that_are_used",
            a_search_on_a_device_leaves_records_that_are_used,
        ),
        ("rounds_go_from_machine_to_machine", rounds_go_from_machine_to_machine),
        ("kernels_of_a_file_are_held_against_it", kernels_of_a_file_are_held_against_it),
    ];
    let cuda: [(&str, Test); 1] =
        [("a_fault_costs_one_result_and_not_the_round", a_fault_costs_one_result_and_not_the_round)];
    let conditional = |lacking: Option<String>| {
        move |(name, test): (&'static str, Test)| {
            Conditional::new(name, lacking.clone(), move || {
                test();
                Ok::<(), String>(())
            })
        }
    };
    let tests =
        opencl.into_iter().map(conditional(no_opencl)).chain(cuda.into_iter().map(conditional(no_compiler)));
    conditional::run(tests)
}

/// A product with a constant, which tiles divide and rules for GPUs have many schedules for.
fn product(dir: &Path) {
    let inputs = vec![value("a", &["96", "80"]), value("b", &["80", "256"])];
    let nodes = vec![node("MatMul", &["a", "b"], &["c"])];
    save(dir, "product.onnx", &model(17, nodes, inputs, vec![value("c", &["96", "256"])]));
}

fn records(dir: &Path) -> Database {
    Journal::read(&dir.join("t.jsonl")).unwrap().0
}

fn profiles_have_the_devices_times() {
    let dir = folder();
    let dir = dir.path();
    let run = succeed(dir, &["profile", "digits.onnx", "--device", "opencl", "--seconds", "0", "--json"]);
    let report = run.json();
    let figure = |value: &serde_json::Value| value.as_f64().unwrap_or_else(|| panic!("{report}"));
    let device = &report["device"];
    assert!(figure(&device["kernels_ms"]) > 0.0 && figure(&device["copies_ms"]) > 0.0, "{report}");
    let rows = report["rows"].as_array().unwrap();
    let of_rows: f64 = rows.iter().map(|row| figure(&row["device_ms"])).sum();
    let told = figure(&device["kernels_ms"]) + figure(&device["copies_ms"]);
    assert!((of_rows - told).abs() <= 1e-9 * told, "{of_rows} of {told}");
    // The processor's ceilings say nothing of what a device does.
    let is_kernel = |row: &&serde_json::Value| !row["rules"].as_array().unwrap().is_empty();
    assert!(rows.iter().filter(is_kernel).all(|row| row["roofline"].is_null()), "{report}");
    let text = succeed(dir, &["profile", "digits.onnx", "--device", "opencl", "--seconds", "0"]).out;
    assert!(text.contains("ms in kernels"), "{text}");
    let host = succeed(dir, &["profile", "digits.onnx", "--seconds", "0", "--json"]).json();
    assert!(host["device"].is_null());
}

fn tasks_may_run_in_any_ranges() {
    let dir = folder();
    let dir = dir.path();
    let verify = ["verify", "digits.onnx", "--ranges", "--runs", "5"];
    succeed(dir, &[&verify[..], &["--device", "opencl"]].concat());
    fail(dir, &verify, 2, &["--device"]);
    fail(dir, &[&verify[..], &["--device", "cpu"]].concat(), 2, &["--ranges", "device"]);
}

/// Writes a folder of inputs of such extents.
fn inputs(folder: &Path, extents: &[&[usize]]) {
    std::fs::create_dir(folder).unwrap();
    for (j, dims) in extents.iter().enumerate() {
        let n: usize = dims.iter().product();
        let numbers: Vec<f32> = (0..n).map(|i| ((i * (j + 3)) % 17) as f32 / 9.0 - 1.0).collect();
        let tensor = Tensor::from_elements(dims, &numbers).unwrap();
        std::fs::write(folder.join(format!("input_{j}.pb")), to_proto(&tensor, "").encode_to_vec()).unwrap();
    }
}

/// Blocks of keys in a loop of open extent: part of one, whole ones, and both.
fn attention_of_any_length() {
    let dir = folder();
    let dir = dir.path();
    let heads = |name: &str| value(name, &["batch", "2", "length", "16"]);
    let nodes = vec![node("Attention", &["q", "k", "v"], &["y"])];
    save(
        dir,
        "attention.onnx",
        &model(23, nodes, vec![heads("q"), heads("k"), heads("v")], vec![heads("y")]),
    );
    for (batch, length) in [(1, 1), (2, 63), (1, 64), (3, 130), (1, 0)] {
        let given = format!("in{length}");
        inputs(&dir.join(&given), &[&[batch, 2, length, 16][..]; 3]);
        succeed(dir, &["verify", "attention.onnx", "--target", "opencl", "--inputs", &given]);
    }
}

/// Reductions over two dimensions of open extents, which lanes go through as one: to a result for each channel, and in a norm.
fn reductions_over_open_rows_and_columns() {
    let dir = folder();
    let dir = dir.path();
    let image = |name: &str| value(name, &["batch", "5", "height", "width"]);
    let nodes = vec![
        node("InstanceNormalization", &["x", "scale", "bias"], &["normal"]),
        node("GlobalAveragePool", &["normal"], &["mean"]),
        node("GlobalMaxPool", &["normal"], &["max"]),
        node("Sub", &["max", "mean"], &["y"]),
    ];
    let given = vec![image("x"), value("scale", &["5"]), value("bias", &["5"])];
    save(dir, "norm.onnx", &model(17, nodes, given, vec![value("y", &["batch", "5", "1", "1"])]));
    for (batch, height, width) in [(1, 1, 1), (2, 5, 7), (1, 33, 40), (0, 4, 4)] {
        let given = format!("in{height}");
        inputs(&dir.join(&given), &[&[batch, 5, height, width][..], &[5], &[5]]);
        succeed(dir, &["verify", "norm.onnx", "--target", "opencl", "--inputs", &given]);
    }
}

/// Windows with strides and without padding over images of open rows and columns, whose number is a quotient and a constant.
fn strides_over_open_images() {
    let dir = folder();
    let dir = dir.path();
    let halves = |node| with_lists(node, &[("strides", &[2, 2])]);
    let nodes = vec![
        halves(node("Conv", &["x", "w", "b"], &["first"])),
        halves(node("Conv", &["first", "v"], &["second"])),
        with_lists(halves(node("MaxPool", &["second"], &["y"])), &[("kernel_shape", &[3, 3])]),
    ];
    let image = value("x", &["batch", "3", "height", "width"]);
    let weights =
        [value("w", &["16", "3", "3", "3"]), value("b", &["16"]), value("v", &["16", "16", "3", "3"])];
    let given = [vec![image], weights.to_vec()].concat();
    save(
        dir,
        "strides.onnx",
        &model(17, nodes, given, vec![value("y", &["batch", "16", "rows", "columns"])]),
    );
    for (batch, height, width) in [(1, 15, 15), (2, 23, 31), (1, 40, 17), (0, 16, 16)] {
        let given = format!("in{height}");
        inputs(&dir.join(&given), &[&[batch, 3, height, width][..], &[16, 3, 3, 3], &[16], &[16, 16, 3, 3]]);
        succeed(dir, &["verify", "strides.onnx", "--target", "opencl", "--inputs", &given]);
    }
}

fn a_search_on_a_device_leaves_records_that_are_used() {
    let dir = folder();
    let dir = dir.path();
    product(dir);
    let tune =
        ["tune", "product.onnx", "--target", "opencl", "--database", "t.jsonl", "--trials", "5", "--json"];
    let figures = succeed(dir, &tune).json();
    assert_eq!((figures["trials"].as_u64(), figures["failed"].as_u64()), (Some(5), Some(0)), "{figures}");
    assert!(figures["unmeasured"].as_array().is_some_and(Vec::is_empty), "{figures}");
    let known = records(dir);
    assert!(known.iter().all(|entry| entry.task.family == "opencl:sm_80"), "{known:?}");
    let mut best = known.iter().find(|entry| entry.finding == Finding::Trial).unwrap().clone();
    (best.finding, best.ratio) = (Finding::Best, 0.01);
    Journal::append_to(&dir.join("t.jsonl")).unwrap().append(&best).unwrap();
    let compile = |records: &[&str]| {
        let args = ["compile", "product.onnx", "--target", "opencl", "--dump-after", "rules"];
        succeed(dir, &[&args, records].concat()).err.contains("by a record")
    };
    assert!(compile(&["--database", "t.jsonl"]) && !compile(&["--no-database"]));
    let verify =
        ["verify", "product.onnx", "--target", "opencl", "--device", "opencl", "--database", "t.jsonl"];
    succeed(dir, &verify);
    fail(
        dir,
        &["tune", "product.onnx", "--device", "opencl", "--trials", "1"],
        2,
        &["a target that has one"],
    );
    let other = ["tune", "product.onnx", "--target", "opencl", "--device", "cuda", "--trials", "1"];
    fail(dir, &other, 2, &["does not run code for opencl"]);
    let missing = ["tune", "product.onnx", "--target", "opencl", "--device", "opencl:99", "--trials", "1"];
    fail(dir, &missing, 3, &["OpenCL"]);
}

fn rounds_go_from_machine_to_machine() {
    let dir = folder();
    let dir = dir.path();
    product(dir);
    let tune = |args: &[&str]| {
        let all = ["tune", "product.onnx", "--target", "opencl", "--database", "t.jsonl", "--json"];
        succeed(dir, &[&all, args].concat()).json()
    };
    let measure = |round: &str| succeed(dir, &["measure", round, "--device", "opencl", "--json"]).json();
    assert_eq!(tune(&["--candidates-to", "first", "--trials", "4"])["candidates"], 4);
    let again =
        ["tune", "product.onnx", "--target", "opencl", "--database", "t.jsonl", "--candidates-to", "first"];
    fail(dir, &again, 2, &["first", "already"]);
    // Another folder stands for another machine.
    std::fs::rename(dir.join("first"), dir.join("there")).unwrap();
    let first = Round::read(&dir.join("there")).unwrap();
    assert_eq!(measure("there")["measured"], 4);
    // A measurement that was cut in the middle of a line goes on where it was.
    let results = dir.join("there/results.jsonl");
    let text = std::fs::read_to_string(&results).unwrap();
    std::fs::write(&results, &text[..text.len() * 3 / 5]).unwrap();
    assert!(first.results(&dir.join("there")).unwrap().0.len() < 4);
    let figures = measure("there");
    assert_eq!((figures["measured"].as_u64(), figures["failed"].as_u64()), (Some(4), Some(0)), "{figures}");
    let figures = tune(&["--measured", "there", "--candidates-to", "second", "--trials", "4"]);
    assert_eq!((figures["results"].as_u64(), figures["wrong"].as_u64()), (Some(4), Some(0)), "{figures}");
    let trials = records(dir).iter().filter(|entry| entry.finding == Finding::Trial).count();
    assert_eq!(trials, 4);
    let second = Round::read(&dir.join("second")).unwrap();
    let is_new = |trial: &Trial| first.trials.iter().all(|known| known.decisions != trial.decisions);
    assert!(second.trials.len() == 4 && second.trials.iter().all(is_new), "{second:?}");
    assert_eq!(tune(&["--measured", "there"])["faster"], 0, "what is known is recorded once");

    let file = dir.join("second/0.twk");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let figures = measure("second");
    assert_eq!((figures["measured"].as_u64(), figures["failed"].as_u64()), (Some(4), Some(1)), "{figures}");
    std::fs::copy(&results, dir.join("second/results.jsonl")).unwrap();
    fail(dir, &["measure", "second", "--device", "opencl"], 5, &["results of another round"]);
    std::fs::write(dir.join("second/round.json"), "{}").unwrap();
    fail(dir, &["measure", "second", "--device", "opencl"], 5, &["no round of schedules"]);
    fail(dir, &["measure", "nowhere", "--device", "opencl"], 6, &["nowhere"]);
    std::fs::remove_file(&results).unwrap();
    fail(dir, &["measure", "there"], 2, &["the schedules are for opencl", "--device"]);
}

/// `x[task] += 1` for four tasks, from zeros.
fn increments(expected: [i32; 4]) -> KernelEntry {
    let code = b"__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void increment(__global int *x, long first) { x[first + (long)get_group_id(0)] += 1; }";
    let kernel = DeviceKernel { symbol: "increment".into(), threads: [1, 1], dynamic_shared: 0 };
    let parts = vec![("opencl-c".to_string(), code.len() as u64)];
    let device = DeviceDef { kind: "opencl".into(), parts, kernels: vec![kernel], ..DeviceDef::default() };
    let program = KernelProgram {
        name: "increments".into(),
        device,
        code: code.to_vec(),
        buffers: vec![ProgramBuffer { bytes: 16, role: Role::Output }],
        calls: vec![ProgramCall { kernel: 0, buffers: vec![0], sizes: vec![], tasks: 4 }],
    };
    let expected = Some(expected.iter().flat_map(|x| x.to_le_bytes()).collect());
    let outputs = vec![OutputDef { what: "x".into(), dtype: "i32".into(), expected, padding: vec![] }];
    KernelEntry { program, contents: vec![Contents::Nothing], outputs }
}

fn kernels_of_a_file_are_held_against_it() {
    let dir = folder();
    let dir = dir.path();
    kernel_file::write(&dir.join("good.twk"), &[increments([1; 4])]).unwrap();
    let figures = succeed(dir, &["kernels", "good.twk", "--device", "opencl", "--json"]).json();
    assert_eq!((figures["run"].as_u64(), figures["failed"].as_u64()), (Some(1), Some(0)));
    kernel_file::write(&dir.join("bad.twk"), &[increments([1; 4]), increments([1, 1, 2, 1])]).unwrap();
    let run = common::tilewright(dir, &["kernels", "bad.twk", "--device", "opencl"]);
    assert!(run.code == Some(1) && run.out.contains("x: element 2 is another"), "{}", run.out);
    std::fs::write(dir.join("foreign.twk"), "a shopping list").unwrap();
    fail(dir, &["kernels", "foreign.twk", "--device", "opencl"], 5, &["no file of kernels"]);
    fail(dir, &["kernels", "none.twk", "--device", "opencl"], 6, &["none.twk"]);
}

/// A kernel of the faked driver on four floats.
fn faked(symbol: &str) -> KernelEntry {
    let code = b"//\n.version 8.0\n.entry add_one(\n.entry bad(\n";
    let kernel = DeviceKernel { symbol: symbol.into(), threads: [2, 32], dynamic_shared: 0 };
    let parts = vec![("ptx".to_string(), code.len() as u64)];
    let (kind, arch) = ("cuda".into(), "sm_80".into());
    let device = DeviceDef { kind, arch, parts, kernels: vec![kernel], ..DeviceDef::default() };
    let program = KernelProgram {
        name: symbol.into(),
        device,
        code: code.to_vec(),
        buffers: vec![ProgramBuffer { bytes: 16, role: Role::Output }],
        calls: vec![ProgramCall { kernel: 0, buffers: vec![0], sizes: vec![4], tasks: 4 }],
    };
    let outputs = vec![OutputDef { what: "x".into(), dtype: "f32".into(), expected: None, padding: vec![] }];
    KernelEntry { program, contents: vec![Contents::Nothing], outputs }
}

/// The faked driver keeps to what a fault does to a context: it fails every call from then on, in that process.
fn a_fault_costs_one_result_and_not_the_round() {
    let dir = folder();
    let dir = dir.path();
    let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/cuda/tests/fake_cuda/fake.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(dir.join("libcuda.so")).arg(fake).arg("-lpthread");
    let Run { code, err, .. } = run(&mut compiler);
    assert_eq!(code, Some(0), "{err}");
    let round = dir.join("round");
    std::fs::create_dir(&round).unwrap();
    kernel_file::write(&round.join("rules.twk"), &[faked("add_one")]).unwrap();
    let symbols = ["add_one", "bad", "add_one"];
    let trial = |n: usize| Trial {
        task: TaskKey { function: "f".into(), family: "cuda:sm_80".into() },
        name: symbols[n].into(),
        baseline: "b".into(),
        decisions: Default::default(),
        candidate: format!("{n}.twk"),
        reference: "rules.twk".into(),
        far: 0,
    };
    for (n, symbol) in symbols.iter().enumerate() {
        kernel_file::write(&round.join(format!("{n}.twk")), &[faked(symbol)]).unwrap();
    }
    let round = Round { target: "cuda:sm_80".into(), trials: (0..3).map(trial).collect() };
    round.write(&dir.join("round")).unwrap();
    let mut measure = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    measure.current_dir(dir).env("LD_LIBRARY_PATH", dir).env("FAKE_CUDA_LOG", dir.join("log"));
    let Run { code, err, .. } = run(measure.args(["measure", "round", "--device", "cuda"]));
    assert_eq!(code, Some(0), "{err}");
    let (results, damaged) = round.results(&dir.join("round")).unwrap();
    assert_eq!((results.len(), damaged), (3, 0));
    let error = results[1].error.as_deref().unwrap_or_default();
    assert!(error.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
    assert!(results[0].times.is_some() && results[1].times.is_none() && results[2].times.is_some());
    // What was asked for before the fault is given back; a context that is lost gives nothing.
    let log = std::fs::read_to_string(dir.join("log")).unwrap();
    let count = |what: &str| log.lines().filter(|line| *line == what).count();
    assert!(count("+event") > 0 && count("-event") > 0, "{log}");
}
