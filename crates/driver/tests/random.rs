//! Random numbers of compiled models: what repeats, what goes on, and that threads make no difference.

use tilewright_driver::graph::text;
use tilewright_driver::onnx::{OnnxModel, export};
use tilewright_driver::reference::Reference;
use tilewright_driver::runtime::threads::ThreadPool;
use tilewright_driver::runtime::{Model, Session, SessionOptions};
use tilewright_driver::{CodegenKind, Compiled, Options, Trust, compile_model, loader};

/// A seeded and an unseeded node, each followed by a kernel, and one in a loop.
const GRAPH: &str = "graph noise {
  sym trips computed 0..*:1
  region0() {
    %a: f32[40, 50] = Random[distribution=normal, b=1.0, seed=3.5, dtype=f32, dims=[40, 50]]()
    %b: f32[40, 50] = Random[distribution=uniform, a=-1.0, b=1.0, dtype=f32, dims=[40, 50]]()
    %c: f32[40, 50] = Random[distribution=normal, b=1.0, seed=3.5, dtype=f32, dims=[40, 50]]()
    %s: f32[40, 50] = Binary[add](%a, %b)
    %n: i64[] = Constant[i64[]{3}]()
    %l: f32[3, 8] = Loop[body=region1](%n, _)
    return %a as a, %b as b, %c as c, %s as s, %l as l
  }
  region1(%i: i64[], %k: bool[]) {
    %r: f32[8] = Random[distribution=uniform, b=1.0, dtype=f32, dims=[8]]()
    %m: f32[8] = Unary[neg](%r)
    return %k, %m
  }
}";

fn compiled() -> Compiled {
    let graph = text::parse(GRAPH).expect("a graph");
    let model = OnnxModel::from_proto(export(&graph).expect("an ONNX model")).expect("a model");
    compile_model(&model, &Options::host(CodegenKind::Cranelift), &mut ()).expect("an artifact")
}

fn session(model: &Model, threads: usize) -> Session {
    let pool = std::sync::Arc::new(ThreadPool::new(threads));
    model.session_with(SessionOptions { pool, ..SessionOptions::default() })
}

fn run(session: &mut Session) -> Vec<Vec<f32>> {
    let outputs = session.run(&[]).expect("a run");
    (0..5).map(|i| outputs.get(i).and_then(|y| y.to_vec()).expect("a tensor of f32")).collect()
}

#[test]
fn a_session_goes_on_and_a_new_one_repeats() {
    let compiled = compiled();
    let model =
        loader(Trust::Origin).from_bytes(compiled.artifact.to_bytes().expect("bytes")).expect("a model");
    let mut one = session(&model, 1);
    let (first, second) = (run(&mut one), run(&mut one));
    let [a, b, c, s, l] = first.as_slice() else { panic!("five outputs") };
    assert_eq!(a, c, "nodes of one seed draw the same");
    assert_ne!(a, b);
    assert_eq!(s, &a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<_>>());
    assert!(
        first.iter().zip(&second).all(|(first, second)| first != second),
        "each run draws the next numbers"
    );
    assert!(l[..8] != l[8..16] && l[8..16] != l[16..], "each iteration draws the next numbers");

    let mut four = session(&model, 4);
    assert_eq!(
        [run(&mut four), run(&mut four)],
        [first.clone(), second.clone()],
        "a new session, four threads"
    );
    one.set_seed(0);
    assert_eq!(run(&mut one), first, "streams begin anew");
    one.set_seed(1);
    let other = run(&mut one);
    assert_eq!(other[0], first[0], "a node's own seed holds");
    assert!((other[1] != first[1]) && (other[4] != first[4]), "the session's seed is for the others");
}

#[test]
fn the_reference_draws_what_a_new_session_does() {
    let compiled = compiled();
    let model =
        loader(Trust::Origin).from_bytes(compiled.artifact.to_bytes().expect("bytes")).expect("a model");
    let expect = run(&mut session(&model, 2));
    let reference = Reference::new(&compiled.graph).expect("a reference");
    let outputs = reference.run(&[], &mut |_, _| {}).expect("a run");
    for (output, expect) in outputs.iter().zip(expect) {
        let bytes: Vec<u8> = expect.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(output.bytes, bytes);
    }
}
