//! `--dim`: bounds, steps, and what the verbs tell of the programs that come of them.

mod common;

use std::path::Path;

use common::{fail, model, node, save, succeed, value};
use prost::Message;
use tempfile::TempDir;
use tilewright_driver::graph::Tensor;
use tilewright_driver::onnx::tensor::to_proto;

/// A folder with a model that sums up the products of two inputs, and inputs of some lengths.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let nodes = vec![node("MatMul", &["x", "y"], &["xy"]), node("Tanh", &["xy"], &["z"])];
    let inputs = vec![value("x", &["batch", "n"]), value("y", &["n", "33"])];
    save(dir.path(), "m.onnx", &model(17, nodes, inputs, vec![value("z", &["batch", "33"])]));
    for n in [5, 16, 64, 70] {
        inputs_of(&dir.path().join(format!("in{n}")), n);
    }
    dir
}

fn inputs_of(folder: &Path, n: usize) {
    std::fs::create_dir(folder).unwrap();
    for (j, dims) in [[3, n], [n, 33]].iter().enumerate() {
        let numbers: Vec<f32> = (0..dims[0] * dims[1]).map(|i| (i % 17) as f32 / 9.0 - 1.0).collect();
        let tensor = Tensor::from_elements(dims, &numbers).unwrap();
        std::fs::write(folder.join(format!("input_{j}.pb")), to_proto(&tensor, "").encode_to_vec()).unwrap();
    }
}

const STEPPED: [&str; 2] = ["--dim", "n=1..64:16"];

#[test]
fn what_is_wrong_with_dims_is_a_usage_error_that_tells_all() {
    let dir = folder();
    let dir = dir.path();
    for verb in ["compile", "run", "bench", "verify", "profile", "inspect"] {
        let dims = ["--dim", "n=9..1", "--dim", "batch=1..4:0", "--dim", "n=1..8:9"];
        let said = [
            "`n=9..1`: the lower bound 9 is above the upper bound 1",
            "`batch=1..4:0`: the step must be at least 1",
            "`n=1..8:9`: no multiple of 9 lies from 1 to 8: give a smaller step, or none",
        ];
        fail(dir, &[&[verb, "m.onnx"][..], &dims].concat(), 2, &said);
    }
    let twice = ["compile", "m.onnx", "--dim", "n=1..8", "--dim", "n=8", "--dim", "batch"];
    fail(dir, &twice, 2, &["--dim n is given twice", "`batch` is not NAME=N or NAME=LO..HI[:STEP]"]);
    fail(dir, &["compile", "m.onnx", "--dim", "k=1..8:4"], 2, &["`k`", "the open ones are: `batch`, `n`"]);
    let many = ["compile", "m.onnx", "--dim", "n=1..8:1", "--dim", "batch=1..5:1"];
    fail(dir, &many, 4, &["40 programs would be specialised, 32 at most are", "larger step, closer bounds"]);
    fail(dir, &[&["compile", "m.onnx", "--emit", "asm"][..], &STEPPED].concat(), 2, &["one program"]);
}

#[test]
fn figures_tell_of_the_programs() {
    let dir = folder();
    let dir = dir.path();
    let compiled = succeed(dir, &[&["compile", "m.onnx", "--json"][..], &STEPPED].concat()).json();
    assert_eq!(compiled["variants"], 4);
    let inspected = succeed(dir, &["inspect", "m.twm", "--json"]).json();
    let variants = inspected["levels"][0]["variants"].as_array().unwrap();
    let extents: Vec<i64> = variants.iter().map(|v| v["extents"]["n"].as_i64().unwrap()).collect();
    assert_eq!(extents, [16, 32, 48, 64]);
    let text = succeed(dir, &["inspect", "m.twm"]).out;
    assert!(text.contains("n = 48: "), "{text}");
    for (inputs, variant) in [("in16", Some("n = 16")), ("in5", None), ("in64", Some("n = 64"))] {
        for model in [&["m.twm"][..], &["m.onnx", "--dim", "n=1..64:16"]] {
            let rest = ["--inputs", inputs, "--seconds", "0", "--json"];
            let bench = succeed(dir, &[&["bench"][..], model, &rest].concat()).json();
            assert_eq!(bench["variant"].as_str(), variant, "{model:?} {inputs}");
        }
        let profile = succeed(dir, &["profile", "m.twm", "--inputs", inputs, "--seconds", "0", "--json"]);
        assert_eq!(profile.json()["variant"].as_str(), variant);
        succeed(dir, &[&["verify", "m.onnx", "--inputs", inputs][..], &STEPPED].concat());
    }
    let by_turns =
        ["--inputs", "in5", "--inputs", "in64", "--outputs", "out.npz", "--seconds", "0", "--json"];
    assert!(succeed(dir, &[&["bench", "m.twm"][..], &by_turns].concat()).json()["runs"].as_u64() >= Some(5));
    succeed(dir, &["verify", "m.twm", "--inputs", "in5", "--against", "out.npz"]);
    let plain = succeed(dir, &["compile", "m.onnx", "--json", "--dim", "n=1..64"]).json();
    assert_eq!(plain["variants"], 0);
}

#[test]
fn inputs_outside_of_the_bounds_are_refused() {
    let dir = folder();
    let dir = dir.path();
    let said = ["\"x\": axis 1, n is 70, but the model was compiled for 1 to 64", "as --dim n=1..70"];
    fail(dir, &[&["run", "m.onnx", "--inputs", "in70"][..], &STEPPED].concat(), 5, &said);
    fail(dir, &["run", "m.onnx", "--inputs", "in70", "--dim", "n=1..64"], 5, &said);
    succeed(dir, &["run", "m.onnx", "--inputs", "in70", "--dim", "n=1..70"]);
}
