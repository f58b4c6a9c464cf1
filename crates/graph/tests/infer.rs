//! Inference: result types, guards and errors of single operators, written in the text form.

use tilewright_graph::op::{Op, SplitAttrs};
use tilewright_graph::text::{Reader, Writer};
use tilewright_graph::{Dim, Graph, Provenance, Tensor, infer};

/// Applies `op` (in text form) to operands (types, or constants where there is a brace) and shows the result types.
fn apply(op: &str, operands: &[&str], n_outputs: usize) -> (Graph, Result<String, String>) {
    let mut graph = Graph::new("test");
    let mut symbols = std::mem::take(&mut graph.symbols);
    let mut inputs = Vec::new();
    for (index, operand) in operands.iter().enumerate() {
        let mut reader = Reader::new(operand, &mut symbols);
        inputs.push(if *operand == "_" {
            None
        } else if operand.contains('{') {
            let tensor = <Tensor as tilewright_graph::op::Attr>::read(&mut reader).unwrap();
            Some(graph.append_constant(graph.main(), tensor, Provenance::default()))
        } else {
            let ty = reader.ty().unwrap();
            Some(graph.add_input(&format!("x{index}"), ty))
        });
    }
    let op = Op::read(&mut Reader::new(op, &mut symbols)).unwrap_or_else(|error| panic!("{op}: {error}"));
    graph.symbols = symbols;
    let region = graph.main();
    let result = infer::append_n(&mut graph, region, op, inputs, n_outputs, Provenance::named("node"));
    let shown = result.map_err(|error| error.to_string()).map(|node| {
        let mut writer = Writer::new(&graph.symbols);
        for (index, &value) in graph.node(node).outputs.iter().enumerate() {
            writer.put(if index == 0 { "" } else { "; " });
            writer.put(graph.ty(value).display(&graph.symbols));
        }
        writer.out
    });
    (graph, shown)
}

#[track_caller]
fn check(op: &str, operands: &[&str], expected: &str) {
    let n_outputs = expected.matches(';').count() + 1;
    let (_, got) = apply(op, operands, n_outputs);
    assert_eq!(got.as_deref(), Ok(expected), "{op}");
}

#[track_caller]
fn check_error(op: &str, operands: &[&str], expected: &str) {
    let (_, got) = apply(op, operands, 1);
    assert_eq!(got, Err(expected.to_owned()), "{op}");
}

#[test]
fn matrices_have_two_dimensions() {
    check("Eye[dims=[n, 3], diagonal=1, dtype=f32]", &[], "f32[n, 3]");
    check_error(
        "Eye[dims=[3], diagonal=0, dtype=f32]",
        &[],
        "Eye `node`: a result of extents [3], which is no matrix",
    );
}

#[test]
fn elementwise() {
    check("Binary[add]", &["f32[n, 1, 4]", "f32[3, 4]"], "f32[n, 3, 4]");
    check("Binary[less]", &["f32[n]", "f32[]"], "bool[n]");
    check("Binary[pow]", &["f32[n]", "i64[]"], "f32[n]");
    check("Where", &["bool[n, 1]", "f32[1, m]", "f32[]"], "f32[n, m]");
    check("Cast[to=f16]", &["f32[*]"], "f16[*]");
    check_error("Binary[add]", &["f32[2, 3]", "f32[2]"], "Binary `node`: [2, 3] and [2] do not broadcast");
    check_error(
        "Binary[add]",
        &["f32[2]", "i64[2]"],
        "Binary `node`: element types of operands 0 and 1 differ: f32 and i64",
    );
    check_error(
        "Unary[exp]",
        &["i64[2]"],
        "Unary `node`: exp takes f16, bf16, f32, f64 as operand 0, not i64: convert it",
    );
    check_error(
        "Binary[and]",
        &["f32[2]", "f32[2]"],
        "Binary `node`: and takes bool as operand 0, not f32: convert it",
    );
    check_error("BitCast[i64]", &["f32[2]"], "BitCast `node`: f32 and i64 have different widths");
}

#[test]
fn undecided_equalities_become_guards() {
    let (graph, got) = apply("Binary[add]", &["f32[n]", "f32[m]"], 1);
    assert_eq!(got.as_deref(), Ok("f32[n]"));
    let guards: Vec<String> =
        graph.guards.iter().map(|guard| guard.display(&graph.symbols).to_string()).collect();
    assert_eq!(guards, ["n == m"]);
    assert_eq!(graph.guards[0].region, graph.main());
    assert_eq!(graph.guards[0].message, "Binary `node`: broadcast extents must be equal");
}

#[test]
fn products() {
    check("MatMul[]", &["f32[b, 1, m, k]", "f32[h, k, n]"], "f32[b, h, m, n]");
    check("MatMul[]", &["f32[k]", "f32[b, k, n]"], "f32[b, n]");
    check("MatMul[]", &["f32[m, k]", "f32[k]"], "f32[m]");
    check("MatMul[transpose_a=true]", &["f32[k, m]", "f32[k, n]"], "f32[m, n]");
    check("Gemm[alpha=1.0, beta=1.0, transpose_b=true]", &["f32[m, 8]", "f32[5, 8]", "f32[5]"], "f32[m, 5]");
    check("Einsum[equation=\"bij,bjk->bik\"]", &["f32[b, 2, 3]", "f32[b, 3, 4]"], "f32[b, 2, 4]");
    check("Einsum[equation=\"...ij->...ji\"]", &["f32[a, b, 2, 3]"], "f32[a, b, 3, 2]");
    check_error("MatMul[]", &["f32[2, 3]", "f32[4, 5]"], "MatMul `node`: summed extents differ: 3 and 4");
}

#[test]
fn windows() {
    let conv = "Conv[strides=[2, 2], pads=[1, 1, 1, 1], dilations=[1, 1], group=1]";
    check(conv, &["f32[n, 3, 224, 224]", "f32[64, 3, 3, 3]", "f32[64]"], "f32[n, 64, 112, 112]");
    check(
        conv,
        &["f32[n, 3, h, w]", "f32[64, 3, 3, 3]"],
        "f32[n, 64, floordiv(h + 1, 2), floordiv(w + 1, 2)]",
    );
    let pool = "Pool[kind=max, kernel=[3], strides=[2], pads=[0, 0], dilations=[1], ceil_mode=true]";
    check(pool, &["f32[1, 1, 6]"], "f32[1, 1, 3]");
    check(pool, &["f32[1, 1, 7]"], "f32[1, 1, 3]");
    let transposed = "ConvTranspose[strides=[2], pads=[1, 1], dilations=[1], group=2, output_padding=[1]]";
    check(transposed, &["f32[n, 4, l]", "f32[4, 3, 3]"], "f32[n, 6, 2*l]");
    check_error(
        conv,
        &["f32[1, 4, 8, 8]", "f32[64, 3, 3, 3]"],
        "Conv `node`: input channels differ: 4 and 3",
    );
    check_error(conv, &["f32[1, 3, 8]", "f32[64, 3, 3]"], "Conv `node`: `strides` has 2 entries, not 1");
}

#[test]
fn movement() {
    check("ReshapeDynamic[]", &["f32[b, s, 768]", "i64[4]{0, 0, -1, 64}"], "f32[b, s, 12, 64]");
    check("ReshapeDynamic[]", &["f32[b, s, 12]", "i64[2]{-1, 12}"], "f32[b*s, 12]");
    check("ReshapeDynamic[]", &["f32[4]", "i64[2]"], "f32[\"reshaped@node\", \"reshaped@node_1\"]");
    check("SliceDynamic", &["f32[8, n]", "i64[1]{-3}", "i64[1]{9223372036854775807}"], "f32[3, n]");
    check(
        "SliceDynamic",
        &["f32[8]", "i64[1]{-1}", "i64[1]{-9223372036854775807}", "i64[1]{0}", "i64[1]{-2}"],
        "f32[4]",
    );
    check("SliceDynamic", &["f32[n]", "i64[1]{1}", "i64[1]{9223372036854775807}"], "f32[max(n - 1, 0)]");
    check("Concat[axis=1]", &["f32[n, a]", "f32[n, 3]", "f32[n, b]"], "f32[n, a + b + 3]");
    check("Split[axis=0, sizes=[n, 2]]", &["f32[n + 2, 4]"], "f32[n, 4]; f32[2, 4]");
    check("PadDynamic[mode=constant]", &["f32[n, 4]", "i64[4]{1, 0, 2, 3}"], "f32[n + 3, 7]");
    check("Gather[axis=1]", &["f32[a, b, c]", "i64[p, q]"], "f32[a, p, q, c]");
    check("GatherNd[batch_dims=1]", &["f32[b, 3, 4]", "i64[b, 5, 1]"], "f32[b, 5, 4]");
    check("ExpandDynamic", &["f32[3, 1]", "i64[3]{2, 1, 6}"], "f32[2, 3, 6]");
    check("TileDynamic", &["f32[n, 2]", "i64[2]{3, 4}"], "f32[3*n, 8]");
    let resize =
        "ResizeDynamic[mode=nearest, coordinates=asymmetric, nearest=floor, policy=stretch, axes=[2]]";
    check(resize, &["f32[1, 3, n]", "_", "f32[1]{2.5}"], "f32[1, 3, floordiv(5*n, 2)]");
    check_error("Concat[axis=1]", &["f32[2, 3]", "f32[4, 3]"], "Concat `node`: extents differ: 2 and 4");
    check_error(
        "ReshapeDynamic[]",
        &["f32[6]", "i64[2]{-1, -1}"],
        "ReshapeDynamic `node`: more than one extent is -1",
    );
    check_error(
        "ReshapeDynamic[]",
        &["f32[6]", "i64[1]{5}"],
        "ReshapeDynamic `node`: numbers of elements differ: 6 and 5",
    );
}

#[test]
fn reductions_and_selections() {
    check("Reduce[kind=mean, axes=[1, 2], keep_dims=true]", &["f32[n, 3, 4]"], "f32[n, 1, 1]");
    check("ReduceDynamic[kind=sum]", &["f32[n, 3, 4]", "i64[1]{-1}"], "f32[n, 3]");
    check("ReduceDynamic[kind=sum]", &["f32[n, 3]", "i64[1]"], "f32[\"reduced@node\"]");
    check("ArgReduce[extreme=max, axis=1]", &["f32[n, 3]"], "i64[n]");
    check("TopK[axis=1, largest=true, sorted=true]", &["f32[n, 9]", "i64[1]{5}"], "f32[n, 5]; i64[n, 5]");
    check("NonZero", &["f32[n, 3]"], "i64[2, \"nonzero@node\"]");
    check(
        "LayerNorm[axis=2, epsilon=1e-5]",
        &["f32[b, s, 8]", "f32[8]"],
        "f32[b, s, 8]; f32[b, s, 1]; f32[b, s, 1]",
    );
}

#[test]
fn composites() {
    let attention = "Attention[q_num_heads=4, kv_num_heads=2]";
    let operands =
        ["f32[b, s, 32]", "f32[b, t, 16]", "f32[b, t, 20]", "_", "f32[b, 2, p, 8]", "f32[b, 2, p, 10]"];
    check(
        attention,
        &operands,
        "f32[b, s, 40]; f32[b, 2, t + p, 8]; f32[b, 2, t + p, 10]; f32[b, 4, s, t + p]",
    );
    let lstm = "Lstm[direction=bidirectional, hidden_size=5]";
    let operands = ["f32[t, b, 3]", "f32[2, 20, 3]", "f32[2, 20, 5]"];
    check(lstm, &operands, "f32[t, 2, b, 5]; f32[2, b, 5]; f32[2, b, 5]");
    check("Stft[onesided=true, frame_step=4]", &["f32[b, 128, 1]", "_", "f32[16]"], "f32[b, 29, 9, 2]");
}

#[test]
fn append_takes_the_number_of_results_from_attributes() {
    let mut graph = Graph::new("test");
    let ty = Reader::new("f32[6]", &mut graph.symbols).ty().unwrap();
    let x = graph.add_input("x", ty);
    let op = Op::Split(SplitAttrs { axis: 0, sizes: vec![Dim::new(2), Dim::new(4)] });
    let region = graph.main();
    let node = infer::append(&mut graph, region, op, vec![Some(x)], Provenance::default()).unwrap();
    assert_eq!(graph.node(node).outputs.len(), 2);
}

/// An operand whose extents contradict the others' would be read outside its memory.
#[test]
fn recurrent_layers_hold_every_operand_against_the_input() {
    let op = "Lstm[direction=forward, hidden_size=3, activations=[sigmoid, tanh, tanh], \
              activation_alpha=[0.0, 0.0, 0.0], activation_beta=[0.0, 0.0, 0.0]]";
    let operands = [
        "f32[t, n, 2]",
        "f32[1, 12, 2]",
        "f32[1, 12, 3]",
        "f32[1, 24]",
        "i32[n]",
        "f32[1, b, 3]",
        "_",
        "f32[1, 9]",
    ];
    let (graph, types) = apply(op, &operands, 3);
    assert_eq!(types.as_deref(), Ok("f32[t, 1, n, 3]; f32[1, n, 3]; f32[1, n, 3]"));
    let guards: Vec<String> =
        graph.guards.iter().map(|guard| guard.display(&graph.symbols).to_string()).collect();
    assert_eq!(guards, ["n == b"]);
    for (position, wrong, expected) in [
        (1, "f32[1, 11, 2]", "extents of the weights differ: 11 and 12"),
        (2, "f32[1, 9, 3]", "extents of the recurrence weights differ: 9 and 12"),
        (3, "f32[1, 12]", "extents of the biases differ: 12 and 24"),
        (5, "f32[2, n, 3]", "extents of the initial state and the state differ: 2 and 1"),
        (6, "f32[1, n, 4]", "extents of the initial cell state and the state differ: 4 and 3"),
        (7, "f32[1, 3]", "extents of the peephole weights differ: 3 and 9"),
        (4, "i32[n, 1]", "operand 4 must have rank 1, not [n, 1]"),
    ] {
        let mut operands = operands;
        operands[position] = wrong;
        let (_, got) = apply(op, &operands, 3);
        assert_eq!(got, Err(format!("Lstm `node`: {expected}")));
    }
}

/// What kernels would index by, or what they would be sized by, is refused before there is one.
#[test]
fn operands_that_no_kernel_could_read_are_refused() {
    let grid = "GridSample[mode=linear, padding=zeros]";
    let attention = "Attention[q_num_heads=0, kv_num_heads=0]";
    let narrow = ["f8e8m0[1, 1, 2, 4]"; 3];
    let conv = "Conv[strides=[1], pads=[0, 0], dilations=[1], group=1]";
    let pool = "Pool[kind=max, kernel=[4611686018427387904], strides=[1], pads=[0, 0], dilations=[1]]";
    for (op, operands, part) in [
        (
            "ScatterNd[reduction=none]",
            &["f32[4, 5]", "i64[2, 3]", "f32[2]"][..],
            "indices of 3 entries reach deeper than [4, 5]",
        ),
        ("GatherNd[batch_dims=0]", &["f32[4, 5]", "i64[2, 3]"], "operand 0 must have rank 3 or more"),
        (grid, &["i4[1, 1, 4, 4]", "f32[1, 2, 2, 2]"], "as operand 0, not i4: convert it"),
        (attention, &narrow, "takes f16, bf16, f32, f64 as operand 0, not f8e8m0: convert it"),
        ("Cast[to=f64]", &["f32[1099511627776, 32]"], "more than 70368744177664 bytes"),
        (conv, &["f32[1, 1, 8]", "f32[1, 1, 4611686018427387904]"], "more than 70368744177664 bytes"),
        (pool, &["f32[1, 1, 8]"], "must be below 2147483648"),
        ("ReduceDynamic[kind=sum]", &["f32[n, 3]", "i64[1099511627776]"], "1099511627776"),
        ("ReshapeDynamic[]", &["f32[24]", "i64[255]"], "would have 255 axes, more than 64"),
    ] {
        let error = apply(op, operands, 1).1.expect_err(op);
        let name = op.split('[').next().expect("a name");
        assert!(error.starts_with(&format!("{name} `node`: ")) && error.contains(part), "{error}");
    }
}
