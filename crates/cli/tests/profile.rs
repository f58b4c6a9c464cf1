//! Profiles name what takes long, by the names of the model, and account for the whole run.

mod common;

use std::path::Path;

use common::{fail, folder, model, node, save, succeed, value};
use serde_json::Value;

/// A chain of cheap operators around one product that takes nearly all of the time.
fn planted(dir: &Path) {
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("Transpose", &["a"], &["b"]),
        node("MatMul", &["b", "w"], &["slow"]),
        node("Softmax", &["slow"], &["y"]),
    ];
    let inputs = vec![value("x", &["512", "96"]), value("w", &["512", "512"])];
    save(dir, "planted.onnx", &model(17, nodes, inputs, vec![value("y", &["96", "512"])]));
}

fn names(row: &Value, key: &str) -> String {
    let list = row[key].as_array().unwrap_or_else(|| panic!("{key}: {row}"));
    list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_slow_operator_is_named_first_and_the_rows_add_up() {
    let dir = folder();
    let dir = dir.path();
    planted(dir);
    succeed(dir, &["compile", "planted.onnx"]);
    let mut estimates = Vec::new();
    for file in ["planted.onnx", "planted.twm"] {
        let run = succeed(dir, &["profile", file, "--seconds", "0.2", "--threads", "1", "--json"]);
        let report = run.json();
        let first = &report["rows"][0];
        assert!(names(first, "nodes").contains("node_slow"), "{report}");
        assert!(names(first, "operators").starts_with("MatMul"), "{first}");
        assert!(!names(first, "rules").is_empty() && !names(first, "layouts").is_empty(), "{first}");
        // The product alone is 2 * 96 * 512 * 512 operations; what is computed along with it adds its elements.
        let product = 2.0 * 96.0 * 512.0 * 512.0;
        let flops = first["flops"].as_f64().unwrap();
        assert!((product..1.01 * product).contains(&flops), "{flops}");
        let figure = |key: &str| report[key].as_f64().unwrap();
        let sum: f64 = report["rows"].as_array().unwrap().iter().map(|row| row["ms"].as_f64().unwrap()).sum();
        // Both are of the same runs, so that a busy machine slows them alike.
        let part = sum / figure("wall_ms");
        assert!((0.95..=1.0).contains(&part), "rows are {part} of the time of a run: {report}");
        estimates.push(first["estimate_ms"].as_f64().expect("the model has a price for products"));
    }
    // An artifact has what the compiler expects.
    assert!(estimates[0] > 0.0 && estimates[0] == estimates[1], "{estimates:?}");
    let text = succeed(dir, &["profile", "planted.twm", "--seconds", "0"]).out;
    assert!(text.contains("model ms") && text.contains(&format!(" {:.4} ", estimates[0])), "{text}");
}

#[test]
fn rows_stand_for_nodes_kernels_or_operators() {
    let dir = folder();
    let dir = dir.path();
    let shares = |by: &str| {
        let run = succeed(dir, &["profile", "digits.onnx", "--seconds", "0", "--by", by, "--json"]);
        let report = run.json();
        let rows = report["rows"].as_array().unwrap().clone();
        let total: f64 = rows.iter().map(|row| row["share"].as_f64().unwrap()).sum();
        assert!((total - 1.0).abs() < 1e-9, "{total}");
        rows
    };
    for row in shares("kernel") {
        assert_eq!(row["kernels"].as_array().map(Vec::len), Some(1), "{row}");
    }
    let operators: Vec<String> = shares("op").iter().map(|row| names(row, "operators")).collect();
    assert!(operators.iter().any(|names| names.starts_with("Conv")), "{operators:?}");
    assert!(shares("node").len() >= operators.len());
}

#[test]
fn a_trace_has_a_track_for_each_thread() {
    let dir = folder();
    let dir = dir.path();
    planted(dir);
    succeed(dir, &["profile", "planted.onnx", "--seconds", "0", "--threads", "2", "--trace", "t.json"]);
    let trace: Value = serde_json::from_slice(&std::fs::read(dir.join("t.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |key: &str, is: &str| events.iter().filter(|event| event[key] == is).count();
    assert!(count("cat", "instruction") >= 3 && count("cat", "tasks") >= 2, "{trace}");
    let named = |event: &&Value| event["name"] == "thread_name";
    let tracks: Vec<(&Value, &Value)> =
        events.iter().filter(named).map(|event| (&event["tid"], &event["args"]["name"])).collect();
    assert!(
        tracks[0].1 == "caller" && tracks[1..].iter().all(|(_, name)| **name == "worker 1"),
        "{tracks:?}"
    );
    for event in events.iter().filter(|event| event["ph"] == "X") {
        assert!(tracks.iter().any(|(track, _)| **track == event["tid"]), "{event}");
        assert!(event["ts"].as_f64() >= Some(0.0) && event["dur"].as_f64() >= Some(0.0), "{event}");
    }
    assert!(
        events.iter().any(|event| event["args"]["nodes"].as_str().is_some_and(|n| n.contains("node_slow")))
    );
}

#[test]
fn the_page_holds_the_graph() {
    let dir = folder();
    let dir = dir.path();
    planted(dir);
    succeed(dir, &["profile", "planted.onnx", "--seconds", "0", "--html", "p.html"]);
    let page = std::fs::read_to_string(dir.join("p.html")).unwrap();
    let data = page.split_once("id=\"figures\">").unwrap().1.split_once("</script>").unwrap().0;
    let figures: Value = serde_json::from_str(data).unwrap();
    let nodes = figures["nodes"].as_array().unwrap();
    let slow = nodes.iter().position(|node| names(node, "nodes").contains("node_slow")).unwrap();
    let edges = figures["edges"].as_array().unwrap();
    assert!(nodes[slow]["estimate_ms"].as_f64() > Some(0.0), "{figures}");
    assert!(edges.iter().any(|edge| edge[1] == slow), "something feeds the product: {figures}");
    assert!(nodes.iter().all(|node| node["layer"].is_u64() && node["x"].is_f64()));
}

#[test]
fn only_compiled_models_have_profiles() {
    let dir = folder();
    fail(dir.path(), &["profile", "digits.onnx", "--codegen", "interpreter"], 2, &["no kernels"]);
}
