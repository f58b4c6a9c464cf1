//! Golden tests: each file under `tests/golden` holds a pass to run, a graph, and the expected result.
//!
//! The first line is `test: PASS` (a pass of the table below, `print`, `verify`, `fuse`, `layouts` or `parse-error`), then the
//! input, a line `----`, and the expectation. `BLESS=1` rewrites expectations.

#[path = "../../../tools/golden_files.rs"]
mod golden_files;

use std::fmt::Write;
use std::sync::Arc;

use tilewright_graph::pass::{FnPass, Pass, PassError};
use tilewright_graph::passes::constant_folding::NoEvaluator;
use tilewright_graph::passes::*;
use tilewright_graph::{Graph, text, verify::verify};

type PassFn = fn(&mut Graph) -> Result<bool, PassError>;

const PASSES: &[(&str, PassFn)] = &[
    ("dead_code", dead_code::dead_code),
    ("common_subexpressions", common_subexpressions::common_subexpressions),
    ("canonicalize", canonicalize::canonicalize),
    ("resolve", resolve::resolve),
    ("batch_norm", batch_norm::batch_norm),
    ("raise", raise::raise),
    ("decompose", |graph| decompose::decompose(graph, &|_| true)),
    ("raise_attention", raise::raise_attention),
    ("regions", regions::regions),
    ("common_factors", common_factors::common_factors),
    ("least_extents", least_extents::least_extents),
    ("loop_invariants", loop_invariants::loop_invariants),
    ("sink", sink::sink),
    ("scale_weights", scale_weights::scale_weights),
    ("padding_bands", padding_bands::padding_bands),
    ("constant_folding", |graph| ConstantFolding::new(Arc::new(NoEvaluator)).run(graph)),
    ("simplify", |graph| simplify(Arc::new(NoEvaluator)).run(graph)),
];

fn run(test: &str, input: &str) -> String {
    let mut graph = match text::parse(input) {
        Ok(graph) => graph,
        Err(error) if test == "parse-error" => return format!("{error}\n"),
        Err(error) => panic!("the input does not parse: {error}"),
    };
    let report = |violations: &[tilewright_graph::verify::Violation]| {
        violations.iter().map(|violation| format!("{violation}\n")).collect::<String>()
    };
    if test == "verify" {
        return report(&verify(&graph));
    }
    assert_eq!(report(&verify(&graph)), "", "the input is not valid");
    let printed = text::print(&graph);
    assert_eq!(text::print(&text::parse(&printed).unwrap()), printed, "the text form does not round-trip");
    match test {
        "print" => text::print(&graph),
        "layouts" => {
            let plan = fuse::fuse(&graph, graph.main());
            let layouts = layouts::layouts(&graph, graph.main(), &plan, 8);
            let mut lines = String::new();
            for node in graph.live_nodes() {
                for &value in &graph.node(node).outputs {
                    let name = value;
                    let blocks = layouts.get(&value).and_then(tilewright_graph::Layout::innermost_block);
                    let layout =
                        blocks.map_or("row-major".to_string(), |n| format!("blocks of {n} channels"));
                    writeln!(lines, "{name} ({}): {layout}", graph.node(node).op.name()).unwrap();
                }
            }
            lines
        }
        "fuse" => {
            let plan = fuse::fuse(&graph, graph.main());
            let names = |nodes: &[tilewright_graph::NodeId]| {
                let name = |&node: &tilewright_graph::NodeId| graph.node(node).op.name();
                nodes.iter().map(name).collect::<Vec<_>>().join(" ")
            };
            plan.groups.iter().fold(String::new(), |mut out, group| {
                let (class, anchor) = (group.class, graph.node(group.anchor).op.name());
                let (n, m) = (group.inputs.len(), group.outputs.len());
                writeln!(out, "{class:?} {anchor}: {} ({n} in, {m} out)", names(&group.nodes)).unwrap();
                out
            })
        }
        _ => {
            let (name, function) = PASSES.iter().find(|(name, _)| *name == test).expect("a known test");
            FnPass::new(name, *function).run(&mut graph).expect("the pass succeeds");
            assert_eq!(report(&verify(&graph)), "", "the result is not valid:\n{}", text::print(&graph));
            text::print(&graph)
        }
    }
}

#[test]
fn files() {
    golden_files::check("tests/golden", 1, |input, _| {
        let (header, input) = input.split_once('\n').expect("a header line");
        run(header.strip_prefix("test: ").expect("`test: PASS` in the first line"), input)
    });
}
