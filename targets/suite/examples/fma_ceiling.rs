//! How close compiled convolutions come to the processor's multiply-add ceiling, on one core.
//!
//! `cargo run --release -p tilewright-target-suite --features llvm --example fma_ceiling`

use std::time::Instant;

use tilewright_machine::{CodegenError, CodegenKind, ObjectCode, Target};
use tilewright_target_suite::kernels::{Convolution, ceiling};
use tilewright_target_suite::run::{AlignedBytes, Loaded};
use tilewright_te::kernel::Kernel;

fn main() {
    let shapes = [
        (64, 64, 56, 3),
        (128, 128, 28, 3),
        (256, 256, 14, 3),
        (512, 128, 28, 1),
        (1024, 256, 14, 1),
        (64, 256, 56, 1),
    ];
    measure(CodegenKind::Llvm, tilewright_llvm::compile_kernel, &shapes, &[(14, 2), (7, 4)]);
    measure(
        CodegenKind::Cranelift,
        tilewright_cranelift::compile_kernel,
        &shapes,
        &[(7, 2), (7, 1), (4, 3), (14, 1), (2, 4)],
    );
}

type Compile = fn(&Kernel, &Target) -> Result<ObjectCode, CodegenError>;

/// Measures shapes `(c, k, size, r)` with register tiles `(columns, vectors)`.
fn measure(codegen: CodegenKind, compile: Compile, shapes: &[(i64, i64, i64, i64)], tiles: &[(i64, i64)]) {
    const ITERATIONS: i64 = 1_000_000;
    const ACCUMULATORS: usize = 12;
    let target = Target::host(codegen);
    let lanes = target.lanes(4);
    let flops = 2.0 * f64::from(lanes) * ACCUMULATORS as f64 * ITERATIONS as f64;
    let Some((ceiling, _)) =
        speed(&ceiling(lanes, ACCUMULATORS, ITERATIONS), compile, &target, flops, &[3 * lanes as usize], 1)
    else {
        return;
    };
    println!("{codegen}: ceiling with {lanes} lanes {ceiling:.1} GFLOP/s");
    for (c, k, size, r) in shapes {
        for (tile, vectors) in tiles {
            let shape = Convolution {
                c: *c,
                k: *k,
                h: *size,
                w: *size,
                r: *r,
                tile: *tile,
                vectors: *vectors,
                lanes,
            };
            if shape.w % tile != 0 || shape.k % (vectors * i64::from(lanes)) != 0 {
                continue;
            }
            let kernel = shape.kernel();
            let measured = speed(&kernel, compile, &target, shape.flops(), &shape.elements(), shape.tasks());
            let Some((speed, compile_ms)) = measured else { return };
            println!(
                "{c:5}ch {size}x{size} {r}x{r} -> {k:4}, tile {tile:2} x {vectors}: {speed:6.1} GFLOP/s, {:5.1} % \
                 (compiled in {compile_ms:.0} ms)",
                100.0 * speed / ceiling,
            );
        }
    }
}

/// GFLOP/s of the best of some runs, and the milliseconds it took to compile.
fn speed(
    kernel: &Kernel,
    compile: Compile,
    target: &Target,
    flops: f64,
    elements: &[usize],
    tasks: i64,
) -> Option<(f64, f64)> {
    let begin = Instant::now();
    let code = match compile(kernel, target) {
        Ok(code) => code,
        Err(error) => {
            println!("{error}");
            return None;
        }
    };
    let compile_ms = begin.elapsed().as_secs_f64() * 1e3;
    let loaded = Loaded::new(&code).expect("compiled code links");
    let mut buffers: Vec<AlignedBytes> =
        elements.iter().map(|n| AlignedBytes::new(&vec![0; 4 * n])).collect();
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let begin = Instant::now();
        loaded.call(0, &mut buffers, &[], 0..tasks);
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Some((flops / best / 1e9, compile_ms))
}
