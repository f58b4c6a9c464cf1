//! Whatever is wrong with what the user gives is said, with the right exit code, and nothing is written.

mod common;

use common::{fail, folder, image, model, node, save, succeed, tilewright, value};
use prost::Message;
use tilewright_driver::graph::Tensor;
use tilewright_driver::onnx::proto::tensor_proto::DataLocation;
use tilewright_driver::onnx::proto::{ModelProto, StringStringEntryProto, TensorProto};
use tilewright_driver::onnx::tensor::to_proto;

#[test]
fn command_lines_that_make_no_sense_are_told_what_is_possible() {
    let dir = folder();
    let dir = dir.path();
    fail(dir, &["frobnicate"], 2, &["frobnicate"]);
    fail(dir, &["compile"], 2, &["MODEL.onnx"]);
    fail(dir, &["compile", "digits.onnx", "--codegen", "gcc"], 2, &["llvm", "cranelift", "interpreter"]);
    fail(dir, &["compile", "digits.onnx", "--codegen", "interpreter"], 2, &["makes no code"]);
    fail(dir, &["compile", "digits.onnx", "--numerics", "loose"], 2, &["default or strict"]);
    fail(dir, &["compile", "digits.onnx", "--target", "z80"], 2, &["unknown target `z80`", "x86-64-v3"]);
    fail(dir, &["compile", "digits.onnx", "--dim", "batch"], 2, &["NAME=N or NAME=LO..HI[:STEP]"]);
    fail(dir, &["compile", "digits.onnx", "--dim", "n=1", "--dim", "n=2"], 2, &["--dim n is given twice"]);
    fail(dir, &["compile", "digits.onnx", "--dump-after", "nowhere"], 2, &["no stage `nowhere`", "import"]);
    fail(dir, &["compile", "digits.onnx", "--pass", "-nothing"], 2, &["unknown pass `nothing`", "dead_code"]);
    fail(dir, &["compile", "digits.onnx", "--pass-timeout=-1"], 2, &["--pass-timeout"]);
    fail(dir, &["compile", "digits.onnx", "-o", "digits.onnx"], 2, &["would be overwritten"]);
    fail(
        dir,
        &["compile", "digits.onnx", "--emit", "llvm", "--codegen", "cranelift"],
        2,
        &["needs --codegen llvm"],
    );
    fail(dir, &["run", "digits.onnx", "--threads", "0"], 2, &["number from 1"]);
}

#[test]
fn devices_that_are_not_there() {
    let dir = folder();
    let dir = dir.path();
    fail(dir, &["compile", "digits.onnx", "--emit", "ptx"], 2, &["needs --target cuda"]);
    fail(dir, &["compile", "digits.onnx", "--target", "opencl", "--emit", "asm"], 2, &["--emit opencl-c"]);
    fail(dir, &["compile", "digits.onnx", "--target", "cuda:sm_12"], 2, &["unknown GPU `sm_12`", "sm_90"]);
    let same = ["compile", "digits.onnx", "--target", "opencl,opencl"];
    fail(dir, &same, 2, &["the features of another one"]);
    succeed(dir, &["compile", "digits.onnx", "--target", "opencl,cpu"]);
    fail(
        dir,
        &["bench", "digits.twm", "--seconds", "0"],
        2,
        &["code for opencl and the processor", "name one"],
    );
    succeed(dir, &["bench", "digits.twm", "--seconds", "0", "--device", "cpu"]);
    fail(dir, &["bench", "digits.twm", "--device", "gpu"], 2, &["`gpu` is no device", "opencl"]);
    // With a driver there is no such device, without one there is none at all.
    fail(dir, &["bench", "digits.twm", "--device", "opencl:999"], 3, &["OpenCL"]);
    fail(dir, &["bench", "digits.twm", "--device", "cuda:999"], 3, &["CUDA"]);
    succeed(dir, &["compile", "digits.onnx", "--target", "opencl"]);
    fail(dir, &["bench", "digits.twm", "--device", "cpu"], 3, &["code for opencl alone"]);
}

#[test]
fn options_of_compilation_on_an_artifact_are_usage_errors() {
    let dir = folder();
    let dir = dir.path();
    succeed(dir, &["compile", "digits.onnx"]);
    for verb in ["run", "bench", "verify"] {
        let args = [verb, "digits.twm", "--codegen", "cranelift", "--no-cache"];
        fail(dir, &args, 2, &["--codegen, --no-cache", "digits.twm is compiled already"]);
    }
    fail(dir, &["compile", "digits.twm"], 2, &["compiled artifact already"]);
}

#[test]
fn files_that_are_no_models() {
    let dir = folder();
    let dir = dir.path();
    fail(dir, &["compile", "missing.onnx"], 6, &["missing.onnx", "No such file"]);
    fail(dir, &["compile", "."], 5, &["not a regular file"]);
    std::fs::write(dir.join("text.onnx"), "hello, this is no model").unwrap();
    fail(dir, &["compile", "text.onnx"], 5, &["text.onnx", "not an ONNX model", "text file"]);
    std::fs::write(dir.join("empty.onnx"), "").unwrap();
    fail(dir, &["inspect", "empty.onnx"], 5, &["the file is empty"]);
    let whole = std::fs::read(dir.join("digits.onnx")).unwrap();
    std::fs::write(dir.join("cut.onnx"), &whole[..whole.len() / 2]).unwrap();
    fail(dir, &["run", "cut.onnx", "--inputs", "x.npz"], 5, &["cut.onnx"]);
    std::fs::write(dir.join("text.twm"), "no artifact").unwrap();
    fail(dir, &["run", "text.twm"], 5, &["not a Tilewright artifact"]);
}

#[test]
fn every_gap_of_a_model_is_listed_at_once() {
    let dir = folder();
    let nodes = vec![node("Frobnicate", &["x"], &["y"]), node("my.domain.Twist", &["y"], &["z"])];
    save(dir.path(), "odd.onnx", &model(17, nodes, vec![value("x", &["2"])], vec![value("z", &["2"])]));
    fail(dir.path(), &["compile", "odd.onnx"], 3, &["Frobnicate", "node_y", "my.domain", "Twist"]);
    let nodes = vec![node("Relu", &["x"], &["y"])];
    save(dir.path(), "new.onnx", &model(999, nodes, vec![value("x", &["2"])], vec![value("y", &["2"])]));
    fail(dir.path(), &["compile", "new.onnx"], 3, &["999"]);
    let nodes = vec![
        node("Frobnicate", &["x"], &["y"]),
        node("my.domain.Twist", &["y"], &["z"]),
        node("Relu", &["z"], &["u"]),
    ];
    save(dir.path(), "both.onnx", &model(999, nodes, vec![value("x", &["2"])], vec![value("u", &["2"])]));
    let gaps = [
        "for 4 reasons",
        "opset 999 is not known",
        "Frobnicate (opset 999) `node_y`",
        "my.domain::Twist `node_z`",
        "Relu (opset 999) `node_u`",
    ];
    fail(dir.path(), &["compile", "both.onnx"], 3, &gaps);
    // To `inspect`, gaps are what it was asked for.
    let report = succeed(dir.path(), &["inspect", "both.onnx", "--json"]).json();
    assert_eq!(report["supported"], false);
    assert_eq!(report["unsupported"].as_array().map(Vec::len), Some(4));
    let text = succeed(dir.path(), &["inspect", "both.onnx"]).out;
    assert!(gaps[1..].iter().all(|gap| text.contains(gap)), "{text}");
}

#[test]
fn graphs_that_do_not_hang_together() {
    let dir = folder();
    let cycle = vec![node("Add", &["x", "b"], &["a"]), node("Relu", &["a"], &["b"])];
    save(dir.path(), "cycle.onnx", &model(17, cycle, vec![value("x", &["2"])], vec![value("b", &["2"])]));
    fail(
        dir.path(),
        &["compile", "cycle.onnx"],
        5,
        &["cycle.onnx", "2 nodes form a cycle: `node_a`, `node_b`"],
    );
    let dangling = vec![node("Add", &["x", "nowhere"], &["y"])];
    save(
        dir.path(),
        "dangling.onnx",
        &model(17, dangling, vec![value("x", &["2"])], vec![value("y", &["2"])]),
    );
    fail(dir.path(), &["compile", "dangling.onnx"], 5, &["nowhere"]);
}

#[test]
fn inputs_that_do_not_fit_are_all_named() {
    let dir = folder();
    let dir = dir.path();
    let nodes = vec![node("Add", &["x", "y"], &["s"]), node("Add", &["s", "z"], &["t"])];
    let inputs = vec![value("x", &["2", "3"]), value("y", &["2", "3"]), value("z", &["2", "3"])];
    save(dir, "sum.onnx", &model(17, nodes, inputs, vec![value("t", &["2", "3"])]));
    fail(dir, &["run", "sum.onnx"], 2, &["give --inputs", "x: f32[2, 3]", "z: f32[2, 3]"]);
    fail(dir, &["run", "sum.onnx", "--inputs", "missing.npz"], 6, &["missing.npz"]);

    std::fs::create_dir(dir.join("in")).unwrap();
    let put = |j: usize, tensor: Tensor| {
        std::fs::write(dir.join(format!("in/input_{j}.pb")), to_proto(&tensor, "").encode_to_vec()).unwrap();
    };
    put(0, Tensor::from_elements(&[2, 4], &[0f32; 8]).unwrap());
    put(1, Tensor::from_elements(&[2, 3], &[0i64; 6]).unwrap());
    put(7, Tensor::scalar(1f32));
    let wrong = [
        "\"x\": axis 1 must be 3, got 4",
        "\"y\": expected element type f32, got i64",
        "input_7.pb",
        "\"z\" is missing",
    ];
    for codegen in ["cranelift", "interpreter"] {
        fail(
            dir,
            &["run", "sum.onnx", "--codegen", codegen, "--inputs", "in", "--outputs", "out"],
            5,
            &wrong,
        );
    }
    succeed(dir, &["compile", "sum.onnx"]);
    fail(dir, &["verify", "sum.twm", "--inputs", "in"], 2, &["give --against"]);
    for verb in [&["run"][..], &["bench"], &["verify", "--against", "sum.onnx"]] {
        fail(dir, &[verb, &["sum.twm", "--inputs", "in"]].concat(), 5, &wrong);
    }
}

#[test]
fn a_dimension_that_contradicts_the_model_is_refused() {
    let dir = folder();
    let dir = dir.path();
    let nodes = vec![node("MatMul", &["x", "y"], &["z"])];
    let inputs = vec![value("x", &["2", "k"]), value("y", &["3", "2"])];
    save(dir, "product.onnx", &model(17, nodes, inputs, vec![value("z", &["2", "2"])]));
    for verb in ["compile", "verify"] {
        fail(dir, &[verb, "product.onnx", "--dim", "k=4"], 2, &["extents differ: 4 and 3", "(with k=4)"]);
    }
    fail(
        dir,
        &["compile", "product.onnx", "--dim", "k=4..8"],
        2,
        &["extents differ: k and 3", "(with k=4..8)"],
    );
    fail(
        dir,
        &["compile", "product.onnx", "--dim", "nothing=4"],
        2,
        &["`nothing`", "the open ones are: `k`"],
    );
    // What is wrong whatever the extents are is the model's fault.
    let nodes = vec![node("MatMul", &["x", "x"], &["z"]), node("Relu", &["nowhere"], &["y"])];
    save(dir, "wrong.onnx", &model(17, nodes, vec![value("x", &["2", "k"])], vec![value("z", &["2", "2"])]));
    fail(dir, &["compile", "wrong.onnx", "--dim", "k=4"], 5, &["nowhere"]);
}

/// A model that adds two external numbers, at `offset` of the file at `location`, to its input.
fn external(location: &str, offset: u64) -> ModelProto {
    let entry =
        |key: &str, value: &str| StringStringEntryProto { key: Some(key.into()), value: Some(value.into()) };
    let weights = TensorProto {
        name: Some("w".to_string()),
        dims: vec![2],
        data_type: Some(1),
        data_location: Some(DataLocation::External as i32),
        external_data: vec![
            entry("location", location),
            entry("offset", &offset.to_string()),
            entry("length", "8"),
        ],
        ..TensorProto::default()
    };
    let nodes = vec![node("Add", &["x", "w"], &["y"])];
    let mut model = model(17, nodes, vec![value("x", &["2"])], vec![value("y", &["2"])]);
    if let Some(graph) = &mut model.graph {
        graph.initializer.push(weights);
    }
    model
}

#[test]
fn external_data_outside_the_folder_or_too_small_is_refused() {
    let outer = folder();
    let dir = outer.path().join("model");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(outer.path().join("secret.bin"), [0; 64]).unwrap();
    std::fs::write(dir.join("small.bin"), [0; 12]).unwrap();
    let absolute = outer.path().join("secret.bin").display().to_string();
    let mut refused = vec![
        ("../secret.bin", 0, "outside the model's folder"),
        ("../../../../../../etc/passwd", 0, "outside the model's folder"),
        (&absolute, 0, "outside the model's folder"),
        ("small.bin", 8, "bytes 8..16 are needed, but the file has 12"),
        ("missing.bin", 0, "No such file"),
        (".", 0, "not a regular file"),
    ];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../secret.bin", dir.join("link.bin")).unwrap();
        refused.push(("link.bin", 0, "symbolic link leads outside the model's folder"));
    }
    for (location, offset, expected) in refused {
        save(&dir, "external.onnx", &external(location, offset));
        for verb in ["compile", "inspect"] {
            fail(&dir, &[verb, "external.onnx"], 5, &["external.onnx", "`w`", expected]);
        }
    }
    save(&dir, "external.onnx", &external("small.bin", 4));
    succeed(&dir, &["compile", "external.onnx"]);
}

#[test]
fn artifacts_for_another_machine_are_refused() {
    let dir = folder();
    let (target, here) =
        if cfg!(target_arch = "x86_64") { ("aarch64", "x86_64") } else { ("x86-64", "aarch64") };
    succeed(
        dir.path(),
        &["compile", "digits.onnx", "--target", target, "--codegen", "cranelift", "-o", "other.twm"],
    );
    let inputs = image();
    fail(dir.path(), &["run", "other.twm", "--inputs", &inputs], 5, &["another instruction set", here]);
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Files with flipped bits end with an answer or an error of the data, never with a bug or a signal.
fn check_damaged(name: &str, args: &[&str], allowed: &[i32]) {
    let dir = folder();
    let dir = dir.path();
    succeed(dir, &["compile", "digits.onnx", "--codegen", "cranelift"]);
    let whole = std::fs::read(dir.join(name)).unwrap();
    let mut state = 7;
    for round in 0..40 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random(&mut state) % 4 {
            let at = random(&mut state) as usize % bytes.len();
            bytes[at] ^= 1 << (random(&mut state) % 8);
        }
        if round % 4 == 0 {
            bytes.truncate(random(&mut state) as usize % whole.len());
        }
        std::fs::write(dir.join(name), &bytes).unwrap();
        let run = tilewright(dir, args);
        assert!(
            run.code.is_some_and(|code| allowed.contains(&code)),
            "round {round}: {:?} {}",
            run.code,
            run.err
        );
    }
}

#[test]
fn damaged_artifacts() {
    let inputs = image();
    check_damaged("digits.twm", &["run", "digits.twm", "--inputs", &inputs], &[0, 5]);
}

#[test]
fn damaged_models() {
    let inputs = image();
    check_damaged(
        "digits.onnx",
        &["run", "digits.onnx", "--codegen", "cranelift", "--inputs", &inputs],
        &[0, 3, 5],
    );
}
