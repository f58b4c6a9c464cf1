//! Accumulators stay in registers: no innermost loop of products touches the stack, in the assembly that LLVM makes of convolutions and
//! products of many shapes, for vectors of 8 and of 16 lanes, and of 4 where a multiply-add takes one lane of a vector.

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
        let is_product = |i: &&String| ["vfmadd", "vfnmadd", "fmla"].iter().any(|name| i.starts_with(name));
        self.instructions.iter().filter(is_product).count()
    }

    /// The instructions that access the stack.
    fn on_stack(&self) -> Vec<&String> {
        self.instructions.iter().filter(|i| i.contains("(%rsp") || i.contains("[sp")).collect()
    }
}

/// The loops of a listing, of x86 in AT&T syntax or of AArch64, that consist of one basic block.
fn loops(assembly: &str) -> Vec<Loop> {
    let mut found = Vec::new();
    let (mut function, mut label) = (String::new(), String::new());
    let mut block: Vec<String> = Vec::new();
    for line in assembly.lines() {
        // Numbers of AArch64 begin with the sign that comments of x86 have a space behind.
        let code = ["//", "# "].iter().fold(line, |line, sign| line.split(sign).next().unwrap_or_default());
        let line = code.trim();
        if let Some(name) = line.strip_suffix(':') {
            if !name.starts_with('.') {
                function = name.to_string();
            }
            label = name.to_string();
            block.clear();
        } else if !line.is_empty() && !line.starts_with('.') {
            let jumps = ["j", "b.", "cb"].iter().any(|name| line.starts_with(name));
            let goes_back = jumps && line.split_whitespace().last() == Some(&label);
            if goes_back {
                found.push(Loop { function: function.clone(), instructions: block.clone() });
            }
            block.push(line.to_string());
        }
    }
    found
}

/// Asserts for every width of vectors that the products of a graph run in loops on registers.
fn check(name: &str, graph: &str) {
    let graph = text::parse(graph).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    let model = export(&graph).expect("an ONNX model").encode_to_vec();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("registers_{name}.onnx"));
    std::fs::write(&path, model).expect("a file");
    for machine in ["x86-64-v3", "x86-64-v4", "cortex-a53", "cortex-a72", "neoverse-n1"] {
        let target = Target::parse(machine, CodegenKind::Llvm).expect("a known target");
        let options = Options { target: target.clone(), ..Options::host(CodegenKind::Llvm) };
        let kernels = kernels(&path, &options, &mut ()).expect("kernels");
        let assembly = codegen::listing(&kernels, &target, Listing::Assembly).expect("a listing");
        let loops = loops(&assembly);
        let tiles: Vec<&Loop> = loops.iter().filter(|l| l.products() >= MIN_PRODUCTS).collect();
        assert!(!tiles.is_empty(), "{machine}: no loop of products\n{assembly}");
        for tile in tiles {
            let Loop { function, instructions } = tile;
            assert!(
                tile.on_stack().is_empty(),
                "{machine}, {function}: {:?}\n{instructions:#?}",
                tile.on_stack()
            );
            // Elements come from memory into lanes of vectors: nothing copies them to all lanes of another one.
            let copies = |i: &&String| i.starts_with("dup") || i.starts_with("ld1r");
            assert_eq!(
                instructions.iter().filter(copies).count(),
                0,
                "{machine}, {function}: {instructions:#?}"
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
    assert_eq!(found[0].on_stack().len(), 1);
    let assembly = "f:\n.L1:\n\tldr\tq1, [sp, #32] // 16-byte Folded Reload\n\tfmla\tv2.4s, v0.4s, v1.s[0]\n\tb.ne\t.L1\n\tret";
    let found = loops(assembly);
    assert_eq!((found.len(), found[0].products(), found[0].on_stack().len()), (1, 1, 1));
}
