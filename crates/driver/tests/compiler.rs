//! The compiler as a value: ways in, and what is said of options that make no sense.

#[path = "compiler/checks.rs"]
mod checks;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ndarray::{Array2, ArrayD};
use prost::Message as _;
use tilewright_autosched::{Decisions, plan};
use tilewright_driver::graph::op::{Op, UnaryOp};
use tilewright_driver::graph::pass::{FnPass, Pass, PassError};
use tilewright_driver::graph::{Graph, NodeId, text};
use tilewright_driver::onnx::{OnnxModel, export};
use tilewright_driver::search::Found;
use tilewright_driver::tune::task::strategy_digest;
use tilewright_driver::tune::{Database, Entry, Finding, TaskKey};
use tilewright_driver::tuning::Tasks;
use tilewright_driver::{
    Cache, Cancel, CodegenKind, CompileError, CompileObserver, Compiler, Mode, Source, Tensor, WholeModel,
};

const DIGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");

/// A compiler that is fast.
fn compiler() -> Compiler {
    Compiler::new().codegen(CodegenKind::Cranelift)
}

/// As many additions, one after the other.
fn graph(additions: usize) -> Graph {
    let mut nodes = String::new();
    for n in 0..additions {
        let of = if n == 0 { "x".to_string() } else { format!("y{}", n - 1) };
        nodes += &format!("%y{n}: f32[batch, 4] = Binary[add](%{of}, %x)\n");
    }
    let last = additions - 1;
    let text = format!(
        "graph sums {{\n sym batch input 0..1000:1\n region0(%x x: f32[batch, 4]) {{\n {nodes} return %y{last} as y\n }}\n}}"
    );
    text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn bytes_of(source: impl Into<Source>) -> Vec<u8> {
    let artifact = compiler().dim("batch", 1..=8).compile(source).expect("an artifact");
    artifact.to_bytes().expect("bytes").to_vec()
}

#[test]
fn a_model_is_the_same_whichever_way_it_comes_in() {
    let proto = export(&graph(3)).expect("a model");
    let encoded = proto.encode_to_vec();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(&encoded).expect("a file");
    let expected = bytes_of(graph(3));
    assert_eq!(bytes_of(OnnxModel::from_proto(proto).expect("a model")), expected);
    assert_eq!(bytes_of(&encoded[..]), expected);
    assert_eq!(bytes_of(encoded), expected);
    assert_eq!(bytes_of(file.path()), expected);
    assert_eq!(bytes_of(file.path().to_str().expect("a name")), expected);
}

#[test]
fn a_model_runs_in_a_few_lines() -> Result<(), tilewright_driver::Error> {
    let artifact = Compiler::new().target("cpu")?.dim("batch", 1).mode(Mode::Default).compile(graph(3))?;
    let model = artifact.load()?;
    let x = Tensor::new(&[1, 4], [1f32, 2.0, 3.0, -4.0])?;
    let outputs = model.run([("x", &x)])?;
    assert_eq!(outputs.tensor("y").and_then(Tensor::as_slice), Some(&[4f32, 8.0, 12.0, -16.0][..]));
    let other = Tensor::new(&[4], [true; 4])?;
    let error = model.run([("z", &other), ("x", &other)]).expect_err("inputs that do not fit");
    let error = tilewright_driver::Error::from(error).to_string();
    for part in ["no input \"z\"", "expected element type f32, got bool", "2 axes"] {
        assert!(error.contains(part), "{error}");
    }
    Ok(())
}

#[test]
fn arrays_go_in_and_come_out() -> Result<(), tilewright_driver::Error> {
    let model = compiler().dim("batch", 1..=8).compile(graph(1))?.load()?;
    let x = Array2::from_shape_fn((4, 3), |(row, column)| (10 * row + column) as f32);
    let outputs = model.run([("x", &x.t())])?;
    let doubled = x.t().mapv(|x| 2.0 * x).into_dyn();
    assert_eq!(outputs.tensor("y").and_then(Tensor::array), Some(doubled.view()));
    let y = outputs.tensor("y").cloned().expect("an output");
    assert_eq!(ArrayD::<f32>::try_from(y)?, doubled);
    Ok(())
}

#[test]
fn what_is_unknown_is_said() {
    let error = compiler().target("z80").expect_err("no such target");
    assert!(error.to_string().contains("unknown target `z80`; known are"), "{error}");
    assert_eq!(error.exit_code(), 2);
    let error = "fast".parse::<Mode>().expect_err("no such mode");
    assert_eq!(error.to_string(), "unknown mode `fast`: default, reduce-overhead or max-autotune");
    assert_eq!("max-autotune".parse::<Mode>().expect("a mode"), Mode::MaxAutotune { time: Mode::SEARCH });
}

#[test]
fn all_that_is_wrong_with_dimensions_is_said_at_once() {
    let (most, least) = (5, 1);
    let error =
        compiler().dim("batch", most..=least).dim("", -1).compile(graph(3)).expect_err("no such extents");
    assert_eq!(
        error.to_string(),
        "dimension `batch=5..1`: the lower bound 5 is above the upper bound 1\n\
         dimension `=-1`: the dimension has no name; an extent cannot be negative"
    );
    let error = compiler().dim("rows", 3).compile(graph(3)).expect_err("no such dimension");
    assert!(error.to_string().contains("rows"), "{error}");
}

#[test]
fn the_last_word_on_a_dimension_counts() {
    let compiler = compiler().dim("batch", 3).dim("batch", 0..=8).dim("batch", 2);
    let artifact = compiler.compile(graph(3)).expect("an artifact");
    assert_eq!(artifact.manifest.images.len(), 1);
    assert_eq!(compiler.options().dims.len(), 1);
    assert_eq!(compiler.options().dims[0].to_string(), "batch=2");
}

#[test]
fn bytes_that_are_no_model_are_refused() {
    let mut encoded = export(&graph(3)).expect("a model").encode_to_vec();
    encoded.truncate(encoded.len() / 2);
    for bytes in [encoded, Vec::new(), b"PK\x03\x04".to_vec()] {
        let error = compiler().compile(bytes).expect_err("no model");
        assert!(matches!(error, CompileError::Model(_)), "{error}");
    }
    let error = compiler().compile("no/such.onnx").expect_err("no file");
    assert!(error.to_string().contains("no/such.onnx"), "{error}");
    assert_eq!(error.exit_code(), 6);
}

/// The compiler recurses as deeply as models nest, on a stack of its own.
#[test]
fn a_caller_may_have_a_small_stack() {
    let compile = || compiler().compile(graph(400)).map(|artifact| artifact.levels.len());
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(compile).expect("a thread");
    assert_eq!(thread.join().expect("no panic").expect("an artifact"), 1);
}

#[test]
fn several_targets_are_levels_of_one_artifact() {
    let compiler = compiler().target("x86-64-v3, x86-64-v4").expect("targets");
    assert_eq!(compiler.compile(graph(3)).expect("an artifact").levels.len(), 2);
    let error = compiler.target("x86-64-v3,x86-64-v3;l2=1").expect_err("the same twice");
    assert!(error.to_string().contains("has the features of another one"), "{error}");
}

/// Asks to stop as soon as a kernel is generated, and counts how many are.
struct Impatient {
    cancel: Cancel,
    kernels: usize,
}

impl CompileObserver for Impatient {
    fn kernels(&mut self, done: usize, _total: usize) {
        self.cancel.cancel();
        self.kernels = done;
    }
}

#[test]
fn a_compilation_stops_before_its_next_function_and_keeps_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let cancel = Cancel::new();
    let compiler = compiler().cancel(cancel.clone()).jobs(1).cache(Cache::at(folder.path(), 1 << 30));
    let mut observer = Impatient { cancel, kernels: 0 };
    let error = compiler.compile_with(DIGITS, &mut observer).expect_err("it was stopped");
    assert!(matches!(error, CompileError::Cancelled), "{error}");
    assert_eq!((observer.kernels, error.exit_code()), (1, 130));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    // A request cannot be taken back.
    assert!(matches!(compiler.compile(DIGITS), Err(CompileError::Cancelled)));
    compiler.cancel(Cancel::new()).compile(DIGITS).expect("an artifact");
}

/// Weights are packed while they are written.
#[test]
fn nothing_is_left_of_an_artifact_whose_writing_was_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let cancel = Cancel::new();
    let artifact = compiler().cancel(cancel.clone()).compile(DIGITS).expect("an artifact");
    cancel.cancel();
    let error = artifact.write(folder.path().join("digits.twm")).expect_err("it was stopped");
    assert!(matches!(error, CompileError::Cancelled), "{error}");
    assert!(matches!(artifact.to_bytes(), Err(CompileError::Cancelled)));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn a_search_stops_when_it_is_asked_to() {
    let cancel = Cancel::new();
    let mode = Mode::MaxAutotune { time: Duration::from_secs(3600) };
    // Functions of open extents are not searched for.
    let compiler = compiler().dim("batch", 64).mode(mode).cancel(cancel.clone());
    let search = std::thread::spawn(move || compiler.compile(DIGITS).map(drop));
    std::thread::sleep(Duration::from_millis(300));
    cancel.cancel();
    let result = search.join().expect("no panic");
    assert!(matches!(result, Err(CompileError::Cancelled)), "{result:?}");
}

/// A search is made here, on this machine's processor.
#[test]
fn a_search_comes_before_compiling_for_this_processor() {
    let mode = Mode::MaxAutotune { time: Duration::from_millis(300) };
    let compiler = compiler().dim("batch", 64);
    let compiled = compiler.clone().mode(mode).compile_with(graph(3), &mut ()).expect("an artifact");
    assert_eq!(compiled.artifact.levels.len(), 1);
    let search = compiled.search.expect("a search");
    assert!(!search.outcome.tasks.is_empty() && search.whole.gain() >= Some(1.0), "{search:?}");
    // Of nothing found nothing has to be timed.
    let found =
        Found { outcome: Default::default(), records: Default::default(), left_out: Default::default() };
    let compiled = compiler.clone().found(found).compile_with(graph(3), &mut ()).expect("an artifact");
    assert_eq!(compiled.search.expect("a search").whole, WholeModel::Same);
    assert!(compiler.compile_with(graph(3), &mut ()).expect("an artifact").search.is_none());
    let on_gpu = Compiler::new().target("opencl").expect("a target").mode(mode).compile(graph(3));
    let error = on_gpu.expect_err("another process measures there");
    assert!(error.to_string().contains("functions for opencl are measured by another process"), "{error}");
    assert_eq!(error.exit_code(), 3);
}

/// A record that makes a product go by the tile that the cost model holds for the worst one. Whether the model is slower with it, the machine
/// says: what is kept must be what its times say (`search_report` has the tests of what they say).
#[test]
fn of_what_a_search_found_and_the_default_the_faster_model_is_kept() {
    let text = "graph product { region0(%a a: f32[240, 240], %b b: f32[240, 240]) {
        %c: f32[240, 240] = MatMul[](%a, %b)
        return %c as c
    } }";
    let graph = text::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let model = OnnxModel::from_proto(export(&graph).expect("a model")).expect("a model");
    let compiler = compiler();
    let mut tasks = Tasks::default();
    tasks.add(&model, compiler.options()).expect("tasks");
    let [task] = &tasks.tasks[..] else { panic!("a task: {:?}", tasks.tasks) };
    let by_rules = plan(&task.computation, &task.target, &Decisions::default()).expect("a plan");
    let decision = by_rules.decisions.iter().find(|d| d.point.ends_with("/tile")).expect("a choice of tiles");
    let worst = decision.candidates.iter().max_by(|a, b| a.cost.total_cmp(&b.cost)).expect("a tile");
    let mut decisions = Decisions::default();
    decisions.set(&decision.point, &worst.value);
    let mut records = Database::default();
    records.insert(Entry {
        task: TaskKey::new(&task.computation, &task.target),
        baseline: strategy_digest(&by_rules.strategy),
        finding: Finding::Best,
        decisions,
        ratio: 0.5,
        baseline_ns: 1.0,
        compiler: "a test".to_string(),
    });
    let found = Found { outcome: Default::default(), records, left_out: Default::default() };
    let compiled = compiler.clone().found(found).compile_with(graph.clone(), &mut ()).expect("an artifact");
    let whole = &compiled.search.as_ref().expect("a search").whole;
    assert!(matches!(whole, WholeModel::Timed { .. }), "{whole}");
    let by_default = compiler.compile(graph).expect("an artifact");
    let [kept, default] = [&compiled.artifact, &by_default].map(|a| a.to_bytes().expect("bytes"));
    assert_eq!(*kept == *default, !whole.keeps_found(), "{worst:?}: {whole}");
}

/// Makes every `relu` a `sigmoid`, and counts its runs.
struct SoftenRelus(Arc<AtomicUsize>);

impl Pass for SoftenRelus {
    fn name(&self) -> &str {
        "soften_relus"
    }

    fn run(&self, graph: &mut Graph) -> Result<bool, PassError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let is_relu = |&id: &NodeId| matches!(graph.node(id).op, Op::Unary(UnaryOp::Relu));
        let relus: Vec<NodeId> = graph.live_nodes().into_iter().filter(is_relu).collect();
        relus.iter().for_each(|&id| graph.set_op(id, Op::Unary(UnaryOp::Sigmoid)));
        Ok(!relus.is_empty())
    }
}

#[test]
fn a_users_pass_runs_where_it_was_put() {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = |compiler: &Compiler| {
        let graph = compiler.simplify(DIGITS).expect("a graph");
        let n =
            |of: UnaryOp| graph.live_nodes().iter().filter(|&&id| graph.node(id).op == Op::Unary(of)).count();
        (n(UnaryOp::Relu), n(UnaryOp::Sigmoid))
    };
    let (relus, sigmoids) = count(&compiler());
    assert!(relus > 0 && sigmoids == 0);
    for with in [Compiler::first_pass, Compiler::last_pass] {
        let compiler = with(compiler(), SoftenRelus(Arc::clone(&runs)));
        assert_eq!(count(&compiler), (0, relus));
        assert_eq!(count(&compiler.clone().select_passes("-soften_relus")), (relus, 0));
        compiler.compile(DIGITS).expect("an artifact").load().expect("a model");
    }
    assert_eq!(runs.load(Ordering::Relaxed), 4, "a run a compilation");
}

#[test]
fn a_users_pass_that_breaks_the_graph_is_the_users() {
    let breaks: fn(&mut Graph) -> Result<bool, PassError> = |graph| {
        graph.set_result_names(graph.main(), Vec::new());
        Ok(true)
    };
    let error = compiler().last_pass(FnPass::new("breaks", breaks)).compile(DIGITS).expect_err("no graph");
    assert!(error.to_string().starts_with("pass `breaks`: it leaves a graph that is not valid"), "{error}");
    assert_eq!(error.exit_code(), 2);
    let error = compiler().select_passes("-nothing").compile(DIGITS).expect_err("no such pass");
    assert!(error.to_string().contains("unknown pass `nothing`; known are: regions, "), "{error}");
}

/// Keeps warnings.
#[derive(Default)]
struct Warnings(Vec<String>);

impl CompileObserver for Warnings {
    fn warning(&mut self, text: &str) {
        self.0.push(text.to_string());
    }
}

#[test]
fn passes_for_which_there_is_no_time_are_left_out_and_told() {
    let mut warnings = Warnings::default();
    let hurried = compiler().pass_timeout(Duration::ZERO);
    hurried.compile_with(DIGITS, &mut warnings).expect("an artifact");
    assert!(
        warnings.0.iter().any(|w| w.contains("`sink`") && w.contains("the 0 s for passes")),
        "{:?}",
        warnings.0
    );
}
