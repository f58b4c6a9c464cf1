//! Patches: what rules may replace, and what the driver refuses.

use std::time::Duration;

use tilewright_graph::op::{BinaryOp, Op, UnaryOp};
use tilewright_graph::pass::{FnPass, Pass, PassError, PassManager, UserPass};
use tilewright_graph::patch::{Patch, Rule, Source, View, rewrite};
use tilewright_graph::verify::verify;
use tilewright_graph::{Graph, NodeId, text};

fn graph(body: &str, result: &str) -> Graph {
    let text =
        format!("graph g {{\n  region0(%x: f32[4], %y: f32[4]) {{\n{body}    return {result}\n  }}\n}}\n");
    text::parse(&text).unwrap()
}

/// The graph after one sweep of a rule, without what is dead.
fn rewritten(mut graph: Graph, apply: fn(&View<'_>, NodeId) -> Option<Patch>) -> Result<String, PassError> {
    let changed = rewrite(&mut graph, &[Rule { name: "test", apply }], 1)?;
    assert!(changed);
    tilewright_graph::passes::dead_code::dead_code(&mut graph)?;
    assert!(verify(&graph).is_empty(), "{}", text::print(&graph));
    Ok(text::print(&graph))
}

/// A subtraction and the addition of the same operands become the parts of one node.
fn split_sum_and_difference(view: &View<'_>, node: NodeId) -> Option<Patch> {
    let data = view.graph.node(node);
    let Op::Binary(BinaryOp::Sub) = data.op else { return None };
    let is_sum = |&other: &NodeId| {
        let other = view.graph.node(other);
        matches!(other.op, Op::Binary(BinaryOp::Add)) && other.inputs == data.inputs
    };
    let sum = view.graph.live_nodes().into_iter().find(is_sum)?;
    let operands: Vec<Source> = data.inputs.iter().flatten().map(|&value| value.into()).collect();
    let mut patch = Patch::new().absorb([sum]);
    let negated = patch.add(Op::Unary(UnaryOp::Neg), [operands[1]]);
    let difference = patch.add(Op::Binary(BinaryOp::Add), [operands[0], negated]);
    let doubled = patch.add(Op::Binary(BinaryOp::Add), [operands[1], operands[1]]);
    let total = patch.add(Op::Binary(BinaryOp::Add), [difference, doubled]);
    Some(patch.replace(difference).replace_result(view.graph.node(sum).output()?, total))
}

/// The sum stands before the difference at which the rule matches, and is used in between.
#[test]
fn a_patch_replaces_results_of_several_nodes() {
    let body = r#"    %s: f32[4] = Binary[add](%x, %y) @ "sum"
    %r: f32[4] = Unary[relu](%s)
    %d: f32[4] = Binary[sub](%x, %y) @ "difference"
    %m: f32[4] = Binary[mul](%r, %d)
"#;
    let text = rewritten(graph(body, "%m as m, %s as s"), split_sum_and_difference).unwrap();
    let expected = r#"graph g {
  region0(%0: f32[4], %1: f32[4]) {
    %2: f32[4] = Unary[neg](%1) @ "sum", "difference"
    %3: f32[4] = Binary[add](%0, %2) @ "sum", "difference"
    %4: f32[4] = Binary[add](%1, %1) @ "sum", "difference"
    %5: f32[4] = Binary[add](%3, %4) @ "sum", "difference"
    %6: f32[4] = Unary[relu](%5)
    %7: f32[4] = Binary[mul](%6, %3)
    return %7 as m, %5 as s
  }
}
"#;
    assert_eq!(text, expected);
}

/// The difference is computed from the sum: what replaces the sum would be, too.
#[test]
fn a_replacement_that_depends_on_what_it_replaces_is_a_cycle() {
    fn sum_by_difference(view: &View<'_>, node: NodeId) -> Option<Patch> {
        let data = view.graph.node(node);
        let Op::Binary(BinaryOp::Sub) = data.op else { return None };
        let mut patch = Patch::new();
        let copy = patch.add(Op::Unary(UnaryOp::Abs), [data.output()?.into()]);
        let same = patch.add(Op::Binary(BinaryOp::Sub), data.inputs.iter().flatten().map(|&v| v.into()));
        Some(patch.replace(same).replace_result(data.input(0)?, copy))
    }
    let body = "    %s: f32[4] = Binary[add](%x, %y)\n    %d: f32[4] = Binary[sub](%s, %y)\n";
    let error = rewritten(graph(body, "%d as d, %s as s"), sum_by_difference).unwrap_err();
    assert!(error.to_string().contains("nodes form a cycle: "), "{error}");
}

#[test]
fn a_replacement_of_another_type_is_refused() {
    fn widened(view: &View<'_>, node: NodeId) -> Option<Patch> {
        let data = view.graph.node(node);
        let Op::Binary(BinaryOp::Sub) = data.op else { return None };
        let mut patch = Patch::new();
        let wide = patch.add(Op::cast(tilewright_graph::DType::F64), [data.input(0)?.into()]);
        let sum = view.graph.live_nodes().first().copied()?;
        Some(patch.replace(data.input(0)?).replace_result(view.graph.node(sum).output()?, wide))
    }
    let body = "    %s: f32[4] = Binary[add](%x, %y)\n    %d: f32[4] = Binary[sub](%x, %y) @ \"d\"\n";
    let error = rewritten(graph(body, "%d as d, %s as s"), widened).unwrap_err();
    assert_eq!(error.to_string(), "rule `test` at `d`: replaces f32[4] by f64[4]");
}

/// A pass that negates an input twice as often each time it runs has no end.
#[test]
fn a_pipeline_says_which_passes_had_no_end() {
    fn restless(graph: &mut Graph) -> Result<bool, PassError> {
        graph.name.push('x');
        Ok(true)
    }
    let quiet = |_: &mut Graph| Ok(false);
    let passes = || -> Vec<Box<dyn Pass>> {
        vec![Box::new(FnPass::new("restless", restless)), Box::new(FnPass::new("quiet", quiet))]
    };
    let mut pipeline = PassManager::new("test").until_stable(passes(), 3);
    let mut graph = graph("", "%x as x");
    assert!(pipeline.run(&mut graph).unwrap());
    assert_eq!(graph.name, "gxxx");
    let unfinished: Vec<String> = pipeline.unfinished().iter().map(ToString::to_string).collect();
    assert_eq!(unfinished, ["`restless` still changed the graph in round 3, the last"]);
    let mut stable = PassManager::new("test").until_stable(vec![Box::new(FnPass::new("quiet", quiet))], 3);
    stable.run(&mut graph).unwrap();
    assert!(stable.unfinished().is_empty());
    pipeline = pipeline.then(FnPass::new("late", restless)).then_off(FnPass::new("off", restless));
    pipeline.set_limit(Duration::ZERO);
    graph.name = "g".into();
    assert!(pipeline.run(&mut graph).unwrap());
    assert_eq!(graph.name, "gx", "a round of those that others rely on, none of the others");
    let unfinished: Vec<String> = pipeline.unfinished().iter().map(ToString::to_string).collect();
    assert_eq!(unfinished, ["`restless`, `late` did not run to the end: the 0 s for passes were over"]);
}

/// A pass that names the graph after itself.
struct Named(&'static str);

impl Pass for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn run(&self, graph: &mut Graph) -> Result<bool, PassError> {
        graph.name.push_str(self.0);
        Ok(true)
    }
}

#[test]
fn passes_are_selected_by_name_and_seen_by_a_watch() {
    let mut seen = Vec::new();
    let mut pipeline = PassManager::new("test").then(Named("b")).then_off(Named("c")).first(Named("a"));
    pipeline.set_watch(|pass, changed, graph| seen.push(format!("{pass} {changed} {}", graph.name)));
    let mut graph = graph("", "%x as x");
    pipeline.run(&mut graph).unwrap();
    pipeline.select("-b, +c").unwrap();
    pipeline.run(&mut graph).unwrap();
    let error = pipeline.select("+c,-d").unwrap_err().to_string();
    assert_eq!(error, "unknown pass `d`; known are: a, b, c");
    drop(pipeline);
    assert_eq!(seen, ["a true ga", "b true gab", "a true gaba", "c true gabac"]);
}

#[test]
fn what_a_users_pass_leaves_is_verified() {
    fn forgets_results(graph: &mut Graph) -> Result<bool, PassError> {
        graph.set_result_names(graph.main(), Vec::new());
        Ok(true)
    }
    let run = |function| {
        let mut pipeline = PassManager::new("test").then(UserPass::new(FnPass::new("mine", function)));
        pipeline.run(&mut graph("", "%x as x")).map_err(|error| error.to_string())
    };
    let error = run(forgets_results).unwrap_err();
    assert!(error.starts_with("pass `mine`: it leaves a graph that is not valid\n  "), "{error}");
    assert_eq!(run(|_| Ok(false)), Ok(false));
    let error = run(|_| Err(PassError::Unknown("a".into(), "b".into()))).unwrap_err();
    assert_eq!(error, "pass `mine`: unknown pass `a`; known are: b");
}
