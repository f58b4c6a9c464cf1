//! Accumulators stay in registers: no innermost loop of products touches the stack, in the assembly that LLVM makes of convolutions and
//! products of many shapes, for vectors of 8 and of 16 lanes.

use std::path::PathBuf;

use prost::Message as _;
use tilewright_driver::graph::text;
use tilewright_driver::onnx::export;
use tilewright_driver::{CodegenKind, Listing, Options, Target, codegen, kernels};

/// Products of a loop from which on it counts as that of a register tile.
const MIN_PRODUCTS: usize = 8;

/// An innermost loop without branches.
struct Loop {
    function: String,
    instructions: Vec<String>,
}

impl Loop {
    fn products(&self) -> usize {
        self.instructions.iter().filter(|i| i.starts_with("vfmadd") || i.starts_with("vfnmadd")).count()
    }
}

/// The loops of a listing in AT&T syntax that consist of one basic block.
fn loops(assembly: &str) -> Vec<Loop> {
    let mut found = Vec::new();
    let (mut function, mut label) = (String::new(), String::new());
    let mut block: Vec<String> = Vec::new();
    for line in assembly.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_suffix(':') {
            if !name.starts_with('.') {
                function = name.to_string();
            }
            label = name.to_string();
            block.clear();
        } else if !line.is_empty() && !line.starts_with('.') {
            let goes_back = line.starts_with('j') && line.split_whitespace().nth(1) == Some(&label);
            if goes_back {
                found.push(Loop { function: function.clone(), instructions: block.clone() });
            }
            block.push(line.to_string());
        }
    }
    found
}

/// Asserts for both widths of vectors that the products of a graph run in loops on registers.
fn check(name: &str, graph: &str) {
    let graph = text::parse(graph).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    let model = export(&graph).expect("an ONNX model").encode_to_vec();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("registers_{name}.onnx"));
    std::fs::write(&path, model).expect("a file");
    for machine in ["x86-64-v3", "x86-64-v4"] {
        let target = Target::parse(machine, CodegenKind::Llvm).expect("a known target");
        let options = Options { target: target.clone(), ..Options::host(CodegenKind::Llvm) };
        let kernels = kernels(&path, &options, &mut ()).expect("kernels");
        let assembly = codegen::listing(&kernels, &target, Listing::Assembly).expect("a listing");
        let loops = loops(&assembly);
        let tiles: Vec<&Loop> = loops.iter().filter(|l| l.products() >= MIN_PRODUCTS).collect();
        assert!(!tiles.is_empty(), "{machine}: no loop of products\n{assembly}");
        for tile in tiles {
            let spilled: Vec<&String> = tile.instructions.iter().filter(|i| i.contains("(%rsp")).collect();
            assert!(
                spilled.is_empty(),
                "{machine}, {}: {spilled:?}\n{:#?}",
                tile.function,
                tile.instructions
            );
        }
    }
}

/// A pointwise convolution with ReLU, by which the second reads blocks of channels: one from `channels[0]` to `channels[1]` with a window.
fn convolutions(channels: [usize; 2], size: usize, kernel: usize, stride: usize) -> String {
    let ([a, b], pad, after) = (channels, kernel / 2, size.div_ceil(stride));
    let plain = "strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1], group=1";
    format!(
        "graph convolutions {{
          region0(%x x: f32[1, {a}, {size}, {size}], %v v: f32[{a}, {a}, 1, 1], %w w: f32[{b}, {a}, {kernel}, {kernel}]) {{
            %c: f32[1, {a}, {size}, {size}] = Conv[{plain}](%x, %v)
            %d: f32[1, {a}, {size}, {size}] = Unary[relu](%c)
            %e: f32[1, {b}, {after}, {after}] = Conv[strides=[{stride}, {stride}], pads=[{pad}, {pad}, {pad}, {pad}], dilations=[1, 1], group=1](%d, %w)
            %f: f32[1, {b}, {after}, {after}] = Unary[relu](%e)
            %m: f32[1, {b}, 1, 1] = Reduce[kind=mean, axes=[2, 3], keep_dims=true](%f)
            return %m as m
          }}
        }}"
    )
}

#[test]
#[cfg_attr(not(feature = "llvm"), ignore = "only LLVM makes the assembly that is looked at")]
fn pointwise_convolutions() {
    for (n, (channels, size)) in
        [([64, 256], 56), ([512, 128], 28), ([96, 24], 19), ([1024, 256], 14)].into_iter().enumerate()
    {
        check(&format!("pointwise_{n}"), &convolutions(channels, size, 1, 1));
    }
}

#[test]
#[cfg_attr(not(feature = "llvm"), ignore = "only LLVM makes the assembly that is looked at")]
fn convolutions_with_windows() {
    for (n, (size, kernel, stride)) in
        [(28, 3, 2), (17, 5, 1), (30, 7, 2), (15, 3, 2)].into_iter().enumerate()
    {
        check(&format!("window_{n}"), &convolutions([64, 64], size, kernel, stride));
    }
}

#[test]
#[cfg_attr(not(feature = "llvm"), ignore = "only LLVM makes the assembly that is looked at")]
fn products() {
    for (n, (rows, depth, columns)) in
        [(197, 768, 768), (49, 384, 1536), (128, 64, 128), (6, 512, 96)].into_iter().enumerate()
    {
        let graph = format!(
            "graph product {{
              region0(%x x: f32[1, {rows}, {depth}], %w w: f32[{depth}, {columns}]) {{
                %y: f32[1, {rows}, {columns}] = MatMul[](%x, %w)
                return %y as y
              }}
            }}"
        );
        check(&format!("product_{n}"), &graph);
    }
}

#[test]
fn a_loop_that_spills_is_seen() {
    let assembly =
        "f:\n.L1:\n\tvmovups\t32(%rsp), %ymm1\n\tvfmadd231ps\t%ymm0, %ymm1, %ymm2\n\tjb\t.L1\n\tret";
    let found = loops(assembly);
    assert_eq!((found.len(), found[0].products(), found[0].function.as_str()), (1, 1, "f"));
    assert!(found[0].instructions.iter().any(|i| i.contains("(%rsp")));
}
