//! What the compiler tells of a model: whether it is right, and what it is made of.

use tilewright_driver::graph::text;
use tilewright_driver::onnx::export;
use tilewright_driver::onnx::proto::{FunctionProto, StringStringEntryProto, TrainingInfoProto};
use tilewright_driver::run::Named;
use tilewright_driver::run::compare::Tolerance;
use tilewright_driver::{Engine, Error, Interpreter, ModelReport, Tensor, VerifyOptions};

use super::{compiler, graph};

const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 0.0 };

fn named(name: &str, elements: [f32; 4]) -> Named {
    vec![(name.to_string(), Tensor::new(&[1, 4], elements).expect("a tensor").into())]
}

#[test]
fn a_model_is_held_against_the_interpreter_and_against_outputs() -> Result<(), Error> {
    let compiler = compiler().dim("batch", 1..=8);
    let options = VerifyOptions::new().tolerance(EXACT).runs(3);
    let found = compiler.verify(graph(3), &options)?;
    assert!(found.agrees() && found.outputs.len() == 1, "{found:?}");
    let options = options.inputs(named("x", [1.0, 2.0, 3.0, -4.0]));
    // Names that are others do not matter where there are as many.
    let found = compiler.verify(graph(3), &options.clone().against(named("z", [4.0, 8.0, 12.0, -16.0])))?;
    assert!(found.agrees(), "{found:?}");
    let found = compiler.verify(graph(3), &options.against(named("y", [4.0, 8.0, 12.5, -16.0])))?;
    let fault = found.outputs[0].result.as_ref().expect_err("another number");
    assert!(fault.contains("1 of 4 elements differ") && !found.agrees(), "{fault}");
    // Where it came from only the interpreter tells.
    assert_eq!((found.first_difference, found.other_run), (None, None));
    Ok(())
}

/// Sums in another order round otherwise, so of exact comparison the first sum is the first that differs.
#[test]
fn the_first_tensor_that_differs_is_named() -> Result<(), Error> {
    let text = "graph sums {
  region0(%x x: f32[4, 4096]) {
    %a: f32[4, 4096] = Unary[neg](%x) @ \"a\"
    %s: f32[4] = Reduce[kind=sum, axes=[1], keep_dims=false](%a) @ \"s\"
    %y: f32[4] = Unary[abs](%s) @ \"y\"
    return %y as y
  }
}
";
    let graph = text::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let found = compiler().verify(graph.clone(), &VerifyOptions::new().tolerance(EXACT))?;
    assert!(found.outputs[0].result.is_err(), "{found:?}");
    let first = found.first_difference.expect("a tensor that differs");
    let proto = export(&graph).expect("a model").graph.expect("a graph");
    let sum = proto.node.iter().find(|node| node.op_type() == "ReduceSum").expect("a sum");
    assert!(first.result.is_err() && first.name == sum.output[0], "{first:?}");
    assert!(compiler().verify(graph, &VerifyOptions::new())?.agrees());
    Ok(())
}

#[test]
fn a_loaded_model_is_held_against_another_one() -> Result<(), Error> {
    let compiler = compiler().dim("batch", 2);
    let ours = Engine::Compiled(compiler.compile(graph(3))?.load()?);
    assert!(matches!(VerifyOptions::new().verify(&ours), Err(Error::NoReference)));
    let against = |additions| {
        let other = compiler.compile_with(graph(additions), &mut ())?;
        let other = Engine::Interpreter(Interpreter::new(other.graph, 0));
        VerifyOptions::new().against_model(other).verify(&ours)
    };
    assert!(against(3)?.agrees());
    assert!(!against(2)?.agrees());
    Ok(())
}

#[test]
fn outputs_that_pair_with_nothing_are_an_error() {
    let mut outputs = named("z", [0.0; 4]);
    outputs.extend(named("w", [0.0; 4]));
    let error = compiler().dim("batch", 1).verify(graph(1), &VerifyOptions::new().against(outputs));
    assert!(matches!(error, Err(Error::Unpaired { output }) if output == "y"));
}

/// Inputs that do not fit are told of by the interpreter as by a session.
#[test]
fn engines_refuse_inputs_alike() -> Result<(), Error> {
    let compiler = compiler().dim("batch", 1);
    let compiled = compiler.compile_with(graph(2), &mut ())?;
    let engines = [
        Engine::Compiled(compiled.artifact.load()?),
        Engine::Interpreter(Interpreter::new(compiled.graph, 0)),
    ];
    let [specs, others] = [engines[0].inputs(), engines[1].inputs()];
    assert_eq!((&specs, specs[0].to_string().as_str()), (&others, "x: f32[1, 4]"));
    let errors = engines.map(|engine| engine.run(&named("z", [0.0; 4])).expect_err("no such input"));
    assert!(errors.iter().all(|error| matches!(error, Error::Run(_))), "{errors:?}");
    assert_eq!(errors[0].to_string(), errors[1].to_string());
    Ok(())
}

#[test]
fn a_report_tells_what_a_model_is_made_of() {
    let mut proto = export(&graph(3)).expect("a model");
    let entry = |key: &str, value: &str| StringStringEntryProto {
        key: Some(key.to_string()),
        value: Some(value.to_string()),
    };
    proto.metadata_props = vec![entry("author", "somebody"), entry("license", "none")];
    let node = proto.graph.as_ref().expect("a graph").node[0].clone();
    proto.functions.push(FunctionProto {
        name: Some("Twice".to_string()),
        domain: Some("my".to_string()),
        node: vec![node.clone(), node],
        ..FunctionProto::default()
    });
    let model = |proto| tilewright_driver::onnx::OnnxModel::from_proto(proto).expect("a model");
    let report = |proto| -> ModelReport { compiler().inspect(model(proto)).expect("a report") };
    let plain = report(proto.clone());
    proto.training_info.push(TrainingInfoProto::default());
    let trained = report(proto);
    assert_eq!((plain.has_training_info, trained.has_training_info), (false, true));
    assert_eq!(plain.metadata[0], ("author".to_string(), "somebody".to_string()));
    assert_eq!(plain.metadata.len(), 2);
    let function = &plain.functions[0];
    assert_eq!((function.domain.as_str(), function.name.as_str(), function.nodes), ("my", "Twice", 2));
    // Bodies of functions count.
    assert_eq!((plain.nodes, plain.operators[0].clone()), (5, ("Add".to_string(), 5)));
    assert!(plain.gaps.is_empty());
    let simplified = plain.simplified.expect("a graph");
    assert_eq!(simplified.inputs[0].to_string(), "x: f32[batch, 4]");
    assert_eq!((simplified.cost.flops, &simplified.cost.open[..]), (12.0, &["batch".to_string()][..]));
}

#[test]
fn a_report_has_the_gaps_of_the_model() {
    let mut proto = export(&graph(2)).expect("a model");
    proto.graph.as_mut().expect("a graph").node[0].op_type = Some("Frobnicate".to_string());
    let model = tilewright_driver::onnx::OnnxModel::from_proto(proto).expect("a model");
    let report = compiler().inspect(model).expect("a report");
    assert_eq!((report.gaps.len(), report.gaps[0].operator.as_str()), (1, "Frobnicate"));
    assert!(report.simplified.is_none());
}
