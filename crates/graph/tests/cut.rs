//! Parts of graphs left out: what becomes of the rest.

use tilewright_graph::cut::cut;
use tilewright_graph::text::{parse, print};
use tilewright_graph::verify::verify;
use tilewright_graph::{Graph, NodeId, ValueId};

/// Cuts the nodes of these provenances and the values of these names; the rest must be as expected, and legal.
fn check(text: &str, nodes: &[&str], values: &[&str], expect: &str) {
    let mut graph = parse(text).unwrap();
    let nodes: Vec<NodeId> = nodes.iter().map(|name| node(&graph, name)).collect();
    let values: Vec<ValueId> = values.iter().map(|name| value(&graph, name)).collect();
    assert!(cut(&mut graph, &nodes, &values));
    assert_eq!(verify(&graph), []);
    let tidy = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(tidy(&print(&graph)), tidy(&print(&parse(expect).unwrap())));
    assert!(!cut(&mut graph, &nodes, &values), "nothing is left to cut");
}

fn node(graph: &Graph, name: &str) -> NodeId {
    graph.live_nodes().into_iter().find(|&node| graph.node_name(node) == name).unwrap()
}

fn value(graph: &Graph, name: &str) -> ValueId {
    let made = graph.live_nodes().into_iter().flat_map(|node| graph.node(node).outputs.clone());
    let named = |value: &ValueId| graph.value(*value).name.as_deref() == Some(name);
    graph.inputs().to_vec().into_iter().chain(made).find(named).unwrap()
}

const CHAIN: &str = r#"graph g {
  sym n input 0..*:1
  region0(%0 x: f32[n]) {
    %1 a: f32[n] = Unary[exp](%0) @ "a"
    %2 b: f32[n] = Unary[log](%1) @ "b"
    %3 c: f32[n] = Unary[neg](%2) @ "c"
    return %3 as c, %2 as b
  }
}"#;

#[test]
fn results_become_inputs_and_operands_outputs() {
    check(
        CHAIN,
        &["b"],
        &[],
        r#"graph g {
          sym n input 0..*:1
          region0(%0 x: f32[n], %1 v2: f32[n]) {
            %2 a: f32[n] = Unary[exp](%0) @ "a"
            %3 c: f32[n] = Unary[neg](%1) @ "c"
            return %3 as c, %2 as v1
          }
        }"#,
    );
}

#[test]
fn a_value_goes_with_all_that_touches_it() {
    check(
        CHAIN,
        &[],
        &["b"],
        r#"graph g {
          sym n input 0..*:1
          region0(%0 x: f32[n]) {
            %1 a: f32[n] = Unary[exp](%0) @ "a"
            return %1 as v1
          }
        }"#,
    );
    check(
        CHAIN,
        &[],
        &["x"],
        r#"graph g {
          sym n input 0..*:1
          region0(%0 v1: f32[n]) {
            %1 b: f32[n] = Unary[log](%0) @ "b"
            %2 c: f32[n] = Unary[neg](%1) @ "c"
            return %2 as c, %1 as b
          }
        }"#,
    );
}

#[test]
fn of_control_flow_the_outermost_node_goes() {
    check(
        r#"graph g {
          region0(%0 c: bool[], %1 x: f32[2]) {
            %2 y: f32[2] = If[then_region=region1, else_region=region2](%0, %1) @ "choice"
            %3 z: f32[2] = Unary[neg](%2) @ "z"
            return %3 as z
          }
          region1(%4: f32[2]) {
            %5: f32[2] = Unary[exp](%4) @ "inside"
            return %5
          }
          region2(%6: f32[2]) {
            return %6
          }
        }"#,
        &["inside"],
        &[],
        r#"graph g {
          region0(%0 c: bool[], %1 x: f32[2], %2 v2: f32[2]) {
            %3 z: f32[2] = Unary[neg](%2) @ "z"
            return %3 as z
          }
        }"#,
    );
}
