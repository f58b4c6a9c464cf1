//! Algorithms that are forced as a record of tuning forces them, so that what is compiled is what a user could get, and the
//! errors of their results.

use std::sync::Arc;

use tilewright_autosched::{Decisions, plan};
use tilewright_driver::graph::text;
use tilewright_driver::onnx::proto::TensorProto;
use tilewright_driver::onnx::proto::tensor_proto::DataType;
use tilewright_driver::onnx::{OnnxModel, export};
use tilewright_driver::runtime::threads::ThreadPool;
use tilewright_driver::runtime::{Model, SessionOptions, TensorView, Trust};
use tilewright_driver::tune::task::strategy_digest;
use tilewright_driver::tune::{Database, Entry, Finding, Lookup, TaskKey};
use tilewright_driver::{CodegenKind, Compiled, Machine, Options, Target, compile_model};
use tilewright_lower::{LowerOptions, lower};

/// The numerics contract: an error over the largest magnitude of the result.
pub(crate) const CONTRACT: f64 = 1e-5;

/// The point at which the algorithm is decided on.
pub(crate) const ALGORITHM: &str = "function/algorithm";

pub(crate) const DIRECT: &str = "direct";

/// A model of a graph in text form, some of whose inputs become constants: their names, extents and elements.
pub(crate) fn model(text: &str, constants: &[(&str, &[usize], &[f32])]) -> OnnxModel {
    let graph = text::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut proto = export(&graph).expect("an ONNX model");
    let graph = proto.graph.as_mut().expect("a graph");
    for (name, dims, values) in constants {
        graph.input.retain(|input| input.name.as_deref() != Some(name));
        graph.initializer.push(TensorProto {
            name: Some(name.to_string()),
            dims: dims.iter().map(|&d| d as i64).collect(),
            data_type: Some(DataType::Float as i32),
            raw_data: Some(values.iter().flat_map(|x| x.to_le_bytes()).collect()),
            ..TensorProto::default()
        });
    }
    OnnxModel::from_proto(proto).expect("a model")
}

/// Runs a compiled model: its result, which must have the same bits on two threads as on one.
pub(crate) fn run(compiled: &Compiled, inputs: &[TensorView<'_>]) -> Vec<f32> {
    let model =
        Model::from_bytes(compiled.artifact.to_bytes().expect("bytes"), Trust::Origin).expect("a model");
    let [one, two] = [1, 2].map(|threads| {
        let pool = Arc::new(ThreadPool::new(threads));
        let mut session = model.session_with(SessionOptions { pool, ..SessionOptions::default() });
        let outputs = session.run(inputs).expect("a run");
        outputs.get(0).and_then(|view| view.to_vec::<f32>()).expect("an F32 output")
    });
    let differs = one.iter().zip(&two).position(|(one, two)| one.to_bits() != two.to_bits());
    assert_eq!(differs, None, "an element has other bits on two threads");
    one
}

/// Numbers between -1 and 1 without a pattern.
pub(crate) fn noise(n: usize, seed: u64) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| random.f32() * 2.0 - 1.0).collect()
}

/// Targets of different vectors: sixteen, eight and four lanes. What does not run here is left out.
pub(crate) fn targets() -> Vec<Target> {
    runnable(&[
        ("x86-64-v4", CodegenKind::Llvm),
        ("x86-64-v3", CodegenKind::Llvm),
        ("x86-64-v3", CodegenKind::Cranelift),
    ])
}

/// Those of the targets that run here, else this machine.
pub(crate) fn runnable(named: &[(&str, CodegenKind)]) -> Vec<Target> {
    let host = Machine::host();
    let has_llvm = Options::best_codegen() == CodegenKind::Llvm;
    let runs = |target: &Target| {
        let Machine { arch, features, .. } = &target.machine;
        *arch == host.arch && features.iter().all(|feature| host.has(feature))
    };
    let mut targets: Vec<Target> = named
        .iter()
        .filter(|(_, codegen)| *codegen != CodegenKind::Llvm || has_llvm)
        .map(|&(machine, codegen)| Target::parse(machine, codegen).expect("a known target"))
        .filter(runs)
        .collect();
    if targets.is_empty() {
        targets.push(Target::host(Options::best_codegen()));
    }
    targets
}

/// The algorithm that the contractions of a compiled model, or its attention, are computed by, as its schedules tell: one for all.
pub(crate) fn algorithm(compiled: &Compiled) -> String {
    let schedules = compiled.artifact.manifest.images.iter().flat_map(|image| &image.program.schedules);
    let is_algorithm = |rule: &str| {
        rule.starts_with("winograd") || rule.starts_with("blocks") || ["strassen", "phases"].contains(&rule)
    };
    let products = schedules.filter(|schedule| {
        schedule.rules.contains("contraction") || schedule.rules.split(' ').next().is_some_and(is_algorithm)
    });
    let first = |rules: &str| rules.split(' ').next().filter(|rule| is_algorithm(rule)).map(str::to_string);
    let mut found: Vec<String> =
        products.map(|schedule| first(&schedule.rules).unwrap_or_else(|| DIRECT.to_string())).collect();
    found.dedup();
    let [only] = &found[..] else { panic!("not one algorithm: {found:?}") };
    only.clone()
}

/// Records that make every function with a choice of algorithms take decisions, by their points, and what algorithms the rules
/// would choose among, the one that they choose first; that is empty where there is no choice.
pub(crate) fn records(
    compiled: &Compiled,
    target: &Target,
    decided: &[(&str, &str)],
) -> (Lookup, Vec<String>) {
    let options = LowerOptions {
        block_lanes: Some(i64::from(target.lanes(4))),
        variants: true,
        ..LowerOptions::default()
    };
    let program = lower(&compiled.graph, options).expect("a program");
    let mut database = Database::default();
    let mut offered = Vec::new();
    for computation in program.funcs.iter().map(|lowered| &lowered.computation) {
        let by_rules = plan(computation, target, &Decisions::default()).expect("a plan");
        let Some(choice) = by_rules.decisions.iter().find(|d| d.point == ALGORITHM) else {
            continue;
        };
        offered = choice.candidates.iter().map(|c| c.value.clone()).collect();
        let mut decisions = Decisions::default();
        decided.iter().for_each(|(point, value)| decisions.set(point, value));
        database.insert(Entry {
            task: TaskKey::new(computation, target),
            baseline: strategy_digest(&by_rules.strategy),
            finding: Finding::Best,
            decisions,
            ratio: 0.5,
            baseline_ns: 1.0,
            compiler: "a test".to_string(),
        });
    }
    (Lookup::new([database]), offered)
}

/// The largest error over the largest magnitude of the result. What is to be no number must be none.
pub(crate) fn error(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    let error = |(&found, expected): (&f32, &f64)| match found.is_nan() && expected.is_nan() {
        true => 0.0,
        false => (f64::from(found) - expected).abs(),
    };
    let errors = found.iter().zip(expected).map(error);
    // `max` would pass over what is no number.
    let worst = errors.fold(0.0, |worst: f64, error| if error <= worst { worst } else { error });
    worst / largest.max(f64::MIN_POSITIVE)
}

/// Runs what is made of a model by each algorithm that the rules offer for it, the first of which they must take; gives those
/// with the results.
pub(crate) fn by_every_algorithm<T>(
    model: &OnnxModel,
    target: &Target,
    run: impl Fn(&Compiled) -> T,
) -> Vec<(String, T)> {
    let options = Options { jobs: 1, ..Options::for_target(target.clone()) };
    let compile = |options: &Options| compile_model(model, options, &mut ()).expect("an artifact");
    let by_rules = compile(&options);
    let (_, offered) = records(&by_rules, target, &[(ALGORITHM, DIRECT)]);
    let Some((first, others)) = offered.split_first() else {
        assert_eq!(algorithm(&by_rules), DIRECT, "{target}");
        return vec![(DIRECT.to_string(), run(&by_rules))];
    };
    assert_eq!(algorithm(&by_rules), *first, "{target}");
    let mut results = vec![(first.clone(), run(&by_rules))];
    for name in others {
        let records = Arc::new(records(&by_rules, target, &[(ALGORITHM, name)]).0);
        let compiled = compile(&Options { records, ..options.clone() });
        assert_eq!(algorithm(&compiled), *name, "{target}");
        results.push((name.clone(), run(&compiled)));
    }
    results
}
