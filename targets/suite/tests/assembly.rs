//! What the code of LLVM looks like where speed depends on it.
#![cfg(feature = "llvm")]

use tilewright_machine::{CodegenKind, Listing, Target};
use tilewright_target_suite::kernels::Convolution;

/// The instructions of the innermost loop: the block with the most multiply-adds, which ends with a jump back.
fn innermost_loop(assembly: &str) -> Vec<&str> {
    let mut blocks: Vec<Vec<&str>> = vec![Vec::new()];
    for line in assembly.lines() {
        let code = line.split('#').next().unwrap_or_default().trim();
        if code.ends_with(':') {
            blocks.push(Vec::new());
        } else if !code.is_empty() && !code.starts_with('.') {
            blocks.last_mut().expect("one block at least").push(code);
            if code.starts_with('j') {
                blocks.push(Vec::new());
            }
        }
    }
    blocks.into_iter().max_by_key(|block| count(block, "vfmadd")).expect("one block at least")
}

fn count(block: &[&str], what: &str) -> usize {
    block.iter().filter(|line| line.contains(what)).count()
}

/// A register tile that fills the register file stays in it, and broadcasts come straight from memory.
#[track_caller]
fn check(machine: &str, tile: i64, vectors: i64) {
    let target = Target::parse(machine, CodegenKind::Llvm).expect("a known machine");
    let lanes = target.lanes(4);
    let k = 4 * vectors * i64::from(lanes);
    let shape = Convolution { c: 64, k, h: 56, w: 56, r: 3, tile, vectors, lanes };
    let assembly = tilewright_llvm::emit(&[shape.kernel()], &target, Listing::Assembly).expect("it compiles");
    let block = innermost_loop(&assembly);
    let text = block.join("\n");
    let per_step = (tile * vectors) as usize;
    assert!(count(&block, "vfmadd") >= per_step, "{text}");
    assert_eq!(count(&block, "vfmadd") % per_step, 0, "{text}");
    assert_eq!(count(&block, "%rsp"), 0, "stack accesses in the inner loop:\n{text}");
    let steps = count(&block, "vfmadd") / per_step;
    assert!(block.len() <= steps * (per_step + vectors as usize + tile as usize) + 6, "{text}");
}

#[test]
fn full_tiles_stay_in_registers_with_512_bits() {
    check("x86-64-v4", 14, 2);
    check("x86-64-v4", 8, 3);
    check("x86-64-v4", 4, 4);
}

#[test]
fn full_tiles_stay_in_registers_with_256_bits() {
    check("x86-64-v3", 4, 3);
    check("x86-64-v3", 4, 2);
    check("x86-64-v3", 14, 1);
}
