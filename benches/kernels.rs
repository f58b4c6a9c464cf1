//! Generated kernels on one thread, as parts of what the machine can do at most, measured in the same process.
//!
//! `cargo bench -p tilewright-benches --features llvm [-- FILTER]`. Criterion tells the times and how they changed since the last run; the
//! table after it tells the best time of each kernel as parts of the ceilings.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::cell::Cell;
use std::time::{Duration, Instant};

use criterion::Criterion;
use tilewright_benches::{Case, Kernel};
use tilewright_driver::machine::Ceilings;

fn conv(channels: usize, size: usize, kernel: usize, outputs: usize, group: usize) -> Case {
    Case {
        op: "Conv",
        lists: vec![("pads", vec![kernel as i64 / 2; 4])],
        integers: vec![("group", group as i64)],
        inputs: vec![vec![1, channels, size, size]],
        constants: vec![vec![outputs, channels / group, kernel, kernel]],
    }
}

fn matmul(m: usize, k: usize, n: usize) -> Case {
    Case { op: "MatMul", inputs: vec![vec![m, k]], constants: vec![vec![k, n]], ..Case::default() }
}

fn on(op: &'static str, inputs: &[&[usize]]) -> Case {
    Case { op, inputs: inputs.iter().map(|dims| dims.to_vec()).collect(), ..Case::default() }
}

/// Sizes that lie in the first, the second and the last level of memory, as networks have them.
fn cases() -> Vec<(&'static str, Case)> {
    let axis = |case: Case, axis: i64| Case { integers: vec![("axis", axis)], ..case };
    let norm =
        Case { constants: vec![vec![768], vec![768]], ..axis(on("LayerNormalization", &[&[128, 768]]), -1) };
    vec![
        ("matmul 512x512x512", matmul(512, 512, 512)),
        ("matmul 128x768x3072", matmul(128, 768, 3072)),
        ("matmul 1x1280x1000", matmul(1, 1280, 1000)),
        ("conv 3x3 64ch 56x56", conv(64, 56, 3, 64, 1)),
        ("conv 3x3 256ch 14x14", conv(256, 14, 3, 256, 1)),
        ("conv 1x1 256ch 56x56 to 64", conv(256, 56, 1, 64, 1)),
        ("conv 1x1 64ch 56x56 to 256", conv(64, 56, 1, 256, 1)),
        ("conv 1x1 1024ch 14x14 to 256", conv(1024, 14, 1, 256, 1)),
        ("depthwise 3x3 144ch 56x56", conv(144, 56, 3, 144, 144)),
        ("depthwise 7x7 96ch 56x56", conv(96, 56, 7, 96, 96)),
        ("softmax 1536x128", axis(on("Softmax", &[&[1536, 128]]), -1)),
        ("layer norm 128x768", norm),
        ("relu 64 Ki", on("Relu", &[&[1 << 16]])),
        ("relu 16 Mi", on("Relu", &[&[1 << 24]])),
        ("add 64 Ki", on("Add", &[&[1 << 16], &[1 << 16]])),
        ("sigmoid 1 Mi", on("Sigmoid", &[&[1 << 20]])),
        ("copy 64 Ki", axis(on("Concat", &[&[1 << 15], &[1 << 15]]), 0)),
        ("copy 16 Mi", axis(on("Concat", &[&[1 << 23], &[1 << 23]]), 0)),
        ("transpose 1024x1024", on("Transpose", &[&[1024, 1024]])),
    ]
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .configure_from_args();
    let before = Ceilings::measure(1);
    let mut measured: Vec<(&str, Kernel, Duration)> = Vec::new();
    for (name, case) in cases() {
        let mut kernel = match Kernel::new(&case) {
            Ok(kernel) => kernel,
            Err(error) => {
                eprintln!("{name}: {error:#}");
                continue;
            }
        };
        let best = Cell::new(Duration::MAX);
        criterion.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                let start = Instant::now();
                for _ in 0..iterations {
                    kernel.run().expect("it ran before");
                }
                let time = start.elapsed();
                best.set(best.get().min(time.div_f64(iterations as f64)));
                time
            });
        });
        // What the filter leaves out never ran.
        if best.get() < Duration::MAX {
            measured.push((name, kernel, best.get()));
        }
    }
    criterion.final_summary();
    let ceilings = before.or_better(Ceilings::measure(1));
    println!("FMA ceiling {:.1} GFLOP/s; memory:", ceilings.flops / 1e9);
    for level in &ceilings.levels {
        println!("  {:8}{:>8.1} GB/s", level.name, level.bytes_per_s / 1e9);
    }
    for (name, kernel, time) in &measured {
        println!("{}", kernel.line(name, *time, &ceilings));
    }
}
