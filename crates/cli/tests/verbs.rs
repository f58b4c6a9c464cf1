//! What each verb does with a sound model.

mod common;

use std::process::{Command, Stdio};

use common::{digits, fail, folder, image, model, node, save, sequence, succeed, value};
use prost::Message;
use tilewright_driver::graph::Tensor;
use tilewright_driver::onnx::proto::{
    FunctionProto, SequenceProto, StringStringEntryProto, TrainingInfoProto,
};
use tilewright_driver::onnx::tensor::to_proto;
use tilewright_driver::run::files;
use tilewright_driver::runtime;

#[test]
fn compile_then_run_gives_what_run_gives_at_once() {
    let dir = folder();
    let dir = dir.path();
    let run = succeed(dir, &["compile", "digits.onnx", "--json"]);
    let figures = run.json();
    assert_eq!(figures["artifact"], "digits.twm");
    assert_eq!(figures["artifact_bytes"], std::fs::metadata(dir.join("digits.twm")).unwrap().len());
    assert!(figures["kernels"].as_u64() > Some(0) && figures["steps"]["codegen"].as_f64() > Some(0.0));

    let inputs = image();
    succeed(dir, &["run", "digits.twm", "--inputs", &inputs, "--outputs", "a", "--threads", "2"]);
    succeed(
        dir,
        &["run", "digits.onnx", "--inputs", &inputs, "--outputs", "b", "--threads", "1", "--no-cache"],
    );
    let outputs = |name: &str| std::fs::read(dir.join(name).join("output_0.pb")).unwrap();
    assert_eq!(outputs("a"), outputs("b"));
}

#[test]
fn the_same_model_compiles_to_the_same_bytes() {
    let dir = folder();
    for name in ["a.twm", "b.twm"] {
        succeed(dir.path(), &["compile", "digits.onnx", "-o", name]);
    }
    assert!(
        std::fs::read(dir.path().join("a.twm")).unwrap() == std::fs::read(dir.path().join("b.twm")).unwrap()
    );
}

#[test]
fn verify_agrees_with_the_interpreter_and_tells_where_it_does_not() {
    let dir = folder();
    let dir = dir.path();
    let inputs = image();
    let run = succeed(dir, &["verify", "digits.onnx", "--inputs", &inputs, "--json"]);
    assert_eq!(run.json()["agrees"], true);
    succeed(dir, &["verify", "digits.onnx", "--inputs", &inputs, "--runs", "3"]);
    fail(dir, &["verify", "digits.onnx", "--inputs", &inputs, "--runs", "0"], 2, &["--runs"]);
    succeed(
        dir,
        &["run", "digits.onnx", "--codegen", "interpreter", "--inputs", &inputs, "--outputs", "out.npz"],
    );
    succeed(dir, &["verify", "digits.onnx", "--inputs", &inputs, "--against", "out.npz"]);
    let other = digits().join("images/7").display().to_string();
    fail(
        dir,
        &["verify", "digits.onnx", "--inputs", &other, "--against", "out.npz"],
        1,
        &["does not agree with out.npz"],
    );
}

#[test]
fn bench_tells_people_or_programs() {
    let dir = folder();
    for model in ["digits.onnx", "digits.twm"] {
        if model == "digits.twm" {
            succeed(dir.path(), &["compile", "digits.onnx"]);
        }
        let inputs = image();
        let args = [
            "bench",
            model,
            "--seconds",
            "0.1",
            "--inputs",
            &inputs,
            "--outputs",
            "out.npz",
            "--threads",
            "1",
        ];
        let text = succeed(dir.path(), &args).out;
        let is_time =
            |line: &str| line.contains("median") && (line.ends_with(" us") || line.ends_with(" ms"));
        assert!(text.lines().any(is_time) && !text.contains('{'), "{text}");
        let figures = succeed(dir.path(), &[&args[..], &["--json"]].concat()).json();
        for key in ["median_ms", "min_ms", "p90_ms", "load_s", "artifact_mib"] {
            assert!(figures[key].as_f64() > Some(0.0), "{key} in {figures}");
        }
        assert!(figures["runs"].as_u64() >= Some(5));
        assert_eq!(figures["compile_s"].is_null(), model == "digits.twm");
        assert!(dir.path().join("out.npz").exists());
    }
}

#[test]
fn inspect_knows_models_and_artifacts() {
    let dir = folder();
    let facts = succeed(dir.path(), &["inspect", "digits.onnx", "--json"]).json();
    assert_eq!(facts["supported"], true);
    assert_eq!(facts["inputs"][0]["dtype"], "f32");
    assert!(facts["flops"].as_f64() > Some(1000.0) && facts["parameters"].as_u64() > Some(100), "{facts}");
    assert!(facts["operators"].as_array().unwrap().iter().any(|row| row["operator"] == "Conv"));
    succeed(dir.path(), &["compile", "digits.onnx"]);
    let facts = succeed(dir.path(), &["inspect", "digits.twm", "--json"]).json();
    assert_eq!(facts["weights_sound"], true);
    assert!(facts["kernels"].as_u64() > Some(0));
    let text = succeed(dir.path(), &["inspect", "digits.twm"]).out;
    assert!(text.contains("weights sound") && text.contains("inputs:"), "{text}");
}

#[test]
fn inspect_tells_what_a_model_says_of_itself() {
    let dir = folder();
    let dir = dir.path();
    let mut odd =
        model(17, vec![node("Neg", &["x"], &["y"])], vec![value("x", &["2"])], vec![value("y", &["2"])]);
    let entry = StringStringEntryProto { key: Some("author".into()), value: Some("somebody".into()) };
    odd.metadata_props.push(entry);
    odd.functions.push(FunctionProto {
        name: Some("Twist".into()),
        domain: Some("my.domain".into()),
        node: vec![node("Neg", &["a"], &["b"])],
        ..FunctionProto::default()
    });
    odd.training_info.push(TrainingInfoProto::default());
    save(dir, "odd.onnx", &odd);
    let facts = succeed(dir, &["inspect", "odd.onnx", "--json"]).json();
    assert_eq!(facts["training_info"], true);
    assert_eq!(facts["metadata"], serde_json::json!([{"key": "author", "value": "somebody"}]));
    let function = serde_json::json!({"domain": "my.domain", "name": "Twist", "nodes": 1});
    assert_eq!(facts["functions"], serde_json::json!([function]));
    let text = succeed(dir, &["inspect", "odd.onnx"]).out;
    for part in ["training info", "author: somebody", "my.domain.Twist: 1 nodes"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_run_keeps_to_its_memory_limit() {
    let dir = folder();
    let dir = dir.path();
    let inputs = image();
    for (verb, options) in
        [("run", &[][..]), ("bench", &["--seconds", "0"]), ("profile", &["--seconds", "0"]), ("verify", &[])]
    {
        let args = |limit| {
            let fixed = [verb, "digits.onnx", "--inputs", &inputs, "--memory-limit", limit];
            fixed.into_iter().chain(options.iter().copied()).collect::<Vec<_>>()
        };
        succeed(dir, &args("64MiB"));
        fail(dir, &args("1KiB"), 4, &["the run needs", "the limit is 1024"]);
    }
    fail(dir, &["run", "digits.onnx", "--memory-limit", "1GB"], 2, &["512MiB"]);
    let interpreted = ["run", "digits.onnx", "--codegen", "interpreter", "--memory-limit", "1GiB"];
    fail(dir, &interpreted, 2, &["--memory-limit is for compiled models"]);
}

#[test]
fn inspect_lists_what_is_unsupported() {
    let dir = folder();
    let nodes = vec![node("Frobnicate", &["x"], &["y"]), node("my.domain.Twist", &["y"], &["z"])];
    save(dir.path(), "odd.onnx", &model(17, nodes, vec![value("x", &["2"])], vec![value("z", &["2"])]));
    let facts = succeed(dir.path(), &["inspect", "odd.onnx", "--json"]).json();
    assert_eq!(facts["supported"], false);
    let text = facts["unsupported"].to_string();
    assert!(text.contains("Frobnicate") && text.contains("Twist"), "{text}");
}

#[test]
fn targets_and_doctor_speak_of_this_machine() {
    let dir = folder();
    let targets = succeed(dir.path(), &["targets", "--json"]).json();
    assert!(
        targets["targets"].as_array().unwrap().iter().any(|t| t["name"] == "cpu" && t["runs_here"] == true)
    );
    assert!(succeed(dir.path(), &["targets"]).out.contains("cranelift"));
    assert!(succeed(dir.path(), &["doctor", "--json"]).json()["threads"].as_u64() >= Some(1));
    assert!(succeed(dir.path(), &["doctor"]).out.contains("processor"));
}

#[test]
fn stages_can_be_shown_and_texts_emitted() {
    let dir = folder();
    let run = succeed(dir.path(), &["compile", "digits.onnx", "--dump-after", "import,lower"]);
    assert!(run.err.contains("==== after import") && run.err.contains("==== after lower"), "{}", run.err);
    assert!(!run.err.contains("==== after schedule"));
    // Passes over functions that the cache has by now.
    let run = succeed(dir.path(), &["compile", "digits.onnx", "--dump-after", "unroll,hoist"]);
    assert!(run.err.contains("==== after unroll\nnest "), "{}", run.err);
    assert!(run.err.contains("==== after hoist\nkernel "), "{}", run.err);
    let run = succeed(dir.path(), &["compile", "digits.onnx", "--dump-after", "canonicalize,sink,plan"]);
    assert!(run.err.contains("==== after canonicalize\ngraph "), "{}", run.err);
    assert!(run.err.contains("==== after sink\nno change\n"), "{}", run.err);
    assert!(run.err.contains("==== after plan\n"), "{}", run.err);
    let graph = succeed(dir.path(), &["compile", "digits.onnx", "--emit", "graph"]).out;
    // Of large constants there is no element.
    assert!(graph.contains("Conv") && graph.contains("{...}") && graph.len() < 10_000, "{graph}");
    assert!(!succeed(dir.path(), &["compile", "digits.onnx", "--emit", "loops"]).out.is_empty());
    let args = ["compile", "digits.onnx", "--emit", "asm", "--codegen", "cranelift", "-o", "digits.s"];
    assert_eq!(succeed(dir.path(), &args).out, "");
    assert!(std::fs::metadata(dir.path().join("digits.s")).unwrap().len() > 100);
}

/// A graph pass that is left out shows in the graph; time for none leaves out those that nothing relies on.
#[test]
fn passes_are_left_out_by_name_and_by_time() {
    let dir = folder();
    let graph = |options: &[&str]| {
        let args = [&["compile", "digits.onnx", "--emit", "graph"], options].concat();
        succeed(dir.path(), &args).out
    };
    let all = graph(&[]);
    assert_ne!(graph(&["--pass", "-constant_folding,-canonicalize"]), all);
    assert_eq!(graph(&["--pass", "-constant_folding", "--pass", "+constant_folding"]), all);
    let run = succeed(dir.path(), &["compile", "digits.onnx", "--pass-timeout", "0"]);
    assert!(run.err.contains("`sink`") && run.err.contains("the 0 s for passes were over"), "{}", run.err);
    succeed(dir.path(), &["verify", "digits.onnx", "--inputs", &image(), "--pass", "-raise,-batch_norm"]);
}

#[test]
fn the_simplified_graph_is_a_model_too() {
    let dir = folder();
    let dir = dir.path();
    let run = succeed(dir, &["compile", "digits.onnx", "--emit", "onnx"]);
    assert!(run.out.starts_with("digits.onnx -> digits.simplified.onnx: "), "{}", run.out);
    let inputs = image();
    succeed(dir, &["verify", "digits.simplified.onnx", "--inputs", &inputs, "--against", "digits.onnx"]);
    fail(dir, &["compile", "digits.onnx", "--emit", "onnx", "-o", "digits.onnx"], 2, &["overwritten"]);
}

#[test]
fn the_version_is_the_commands() {
    let run = succeed(folder().path(), &["--version"]);
    assert!(run.out.starts_with("tilewright "), "{}", run.out);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let dir = folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.current_dir(dir.path()).args(["compile", "digits.onnx", "--emit", "graph"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn sequences_go_through_folders() {
    let dir = folder();
    let dir = dir.path();
    let nodes = vec![node("SequenceInsert", &["s", "x"], &["t"]), node("SequenceLength", &["t"], &["n"])];
    let mut count = value("n", &[]);
    count.r#type = None;
    let inputs = vec![sequence("s", &["k"]), value("x", &["2"])];
    save(dir, "m.onnx", &model(17, nodes, inputs, vec![count, sequence("t", &["k"])]));

    let (a, x) = (Tensor::vector(&[1f32, 2.0, 3.0]), Tensor::vector(&[4f32, 5.0]));
    let list = |tensors: &[&Tensor]| SequenceProto {
        tensor_values: tensors.iter().map(|tensor| to_proto(tensor, "")).collect(),
        ..SequenceProto::default()
    };
    std::fs::create_dir(dir.join("in")).unwrap();
    std::fs::write(dir.join("in/input_0.pb"), list(&[&a]).encode_to_vec()).unwrap();
    std::fs::write(dir.join("in/input_1.pb"), to_proto(&x, "x").encode_to_vec()).unwrap();
    succeed(dir, &["compile", "m.onnx"]);
    succeed(dir, &["run", "m.twm", "--inputs", "in", "--outputs", "out"]);
    let bytes = std::fs::read(dir.join("out/output_1.pb")).unwrap();
    let result = SequenceProto::decode(bytes.as_slice()).unwrap();
    assert_eq!(result.tensor_values, list(&[&a, &x]).tensor_values);
    let said = succeed(dir, &["run", "m.onnx", "--inputs", "in"]).out;
    assert!(said.starts_with("n: i64[] min 2") && said.ends_with("t: a sequence of 2\n"), "{said}");
    let said = succeed(dir, &["inspect", "m.twm"]).out;
    assert!(said.contains("s: seq(f32[?])") && said.contains("x: f32[2]"), "{said}");
    succeed(dir, &["bench", "m.twm", "--inputs", "in", "--seconds", "0"]);

    fail(
        dir,
        &["run", "m.twm", "--inputs", "in", "--outputs", "out.npz"],
        3,
        &["a sequence of 2", "give a folder"],
    );
    fail(dir, &["bench", "m.twm"], 2, &["no noise for input s: seq(f32[?])"]);
    fail(dir, &["verify", "m.onnx", "--inputs", "in"], 3, &["the interpreter has only tensors of numbers"]);
}

#[test]
fn one_array_is_enough_for_one_input() {
    let dir = folder();
    let dir = dir.path();
    let io = |names: &[&str]| names.iter().map(|name| value(name, &["2"])).collect();
    save(dir, "neg.onnx", &model(17, vec![node("Neg", &["x"], &["y"])], io(&["x"]), io(&["y"])));
    save(dir, "sum.onnx", &model(17, vec![node("Add", &["x", "z"], &["y"])], io(&["x", "z"]), io(&["y"])));
    let x = runtime::Tensor::new(&[2], [1f32, -2.5]).unwrap();
    files::write_outputs(&dir.join("x.npy"), &vec![("x".to_string(), x.into())]).unwrap();
    succeed(dir, &["run", "neg.onnx", "--inputs", "x.npy", "--outputs", "y.npy"]);
    let array = std::fs::read(dir.join("y.npy")).unwrap();
    assert!(array.ends_with(&[-1f32, 2.5].map(f32::to_le_bytes).concat()));
    succeed(dir, &["verify", "neg.onnx", "--inputs", "x.npy", "--against", "y.npy"]);
    let refusal = "x.npy: one array without a name, for 2 tensors: give an .npz";
    fail(dir, &["run", "sum.onnx", "--inputs", "x.npy"], 5, &[refusal]);
}

/// Threads that wait awake change when a run ends, and nothing that it computes.
#[test]
fn less_overhead_gives_the_same_bits() {
    let dir = folder();
    let dir = dir.path();
    let outputs = |mode: &str, threads: &str| {
        succeed(dir, &["compile", "digits.onnx", "--mode", mode, "-o", "m.twm"]);
        let inspected = succeed(dir, &["inspect", "m.twm", "--json"]).json();
        let options = inspected["options"].to_string();
        assert_eq!(options.contains("keep_awake=true"), mode == "reduce-overhead", "{options}");
        let out = format!("out-{mode}-{threads}");
        succeed(dir, &["run", "m.twm", "--inputs", &image(), "--outputs", &out, "--threads", threads]);
        std::fs::read(dir.join(out).join("output_0.pb")).unwrap()
    };
    let expected = outputs("default", "1");
    for threads in ["1", "2", "4"] {
        assert_eq!(outputs("reduce-overhead", threads), expected, "{threads} threads");
    }
}
