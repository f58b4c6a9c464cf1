//! Functions with threads, run: by the interpreter, and as kernels by the evaluator.

#[path = "../../../../crates/te/tests/common/mod.rs"]
pub(crate) mod common;

use common::{Random, random_inputs, random_sizes, run};
use tilewright_target_suite::eval;
use tilewright_te::Func;
use tilewright_te::flatten::{FlatKernel, FlattenError, FlattenOptions, Made, flatten_watched};
use tilewright_te::interp::evaluate_index;
use tilewright_te::kernel::{Inst, Kernel};

/// The kernels of a finished schedule, for warps of so many lanes; each pass makes what it must. The function itself may be legal
/// without a proof.
pub(crate) fn kernels(func: &Func, lanes: u32) -> Result<Vec<FlatKernel>, FlattenError> {
    let options = FlattenOptions { masked_access: None, buffer_align: 64, lanes: Some(lanes) };
    flatten_watched(func, &options, &mut |pass, made| match made {
        Made::Func(_) => Ok(()),
        Made::Nest(..) | Made::Kernel(_) => made.check(func, pass),
    })
}

/// Runs kernels one after the other, by the evaluator. Gives the outputs.
pub(crate) fn evaluate(
    func: &Func,
    kernels: &[FlatKernel],
    sizes: &[i64],
    inputs: &[Vec<u8>],
) -> Result<Vec<Vec<u8>>, String> {
    let size_of = |v| func.sizes.iter().position(|s| *s == v).map(|at| sizes[at]);
    let index = |e| evaluate_index(e, &size_of).expect("an extent");
    let bytes = |buffer| {
        let data = &func.buffers[buffer];
        let elements: i64 = data.shape.iter().map(index).product();
        // A guarded load may read the first element of a buffer that has none.
        (elements.max(1) as usize) * data.dtype.bytes()
    };
    let mut memory: Vec<Vec<u8>> = func.buffers.keys().map(|buffer| vec![0xa5; bytes(buffer)]).collect();
    for (param, input) in func.params.iter().zip(inputs) {
        memory[param.as_u32() as usize][..input.len()].copy_from_slice(input);
    }
    for FlatKernel { kernel, buffers } in kernels {
        let mut places: Vec<Vec<u8>> =
            buffers.iter().map(|buffer| std::mem::take(&mut memory[buffer.as_u32() as usize])).collect();
        let tasks = index(&kernel.grid.rounds) * index(&kernel.grid.per_round);
        let result = eval::run(kernel, &mut places, sizes, 0..tasks);
        for (buffer, bytes) in buffers.iter().zip(places) {
            memory[buffer.as_u32() as usize] = bytes;
        }
        result?;
    }
    Ok(func.params[func.n_inputs..].iter().map(|param| memory[param.as_u32() as usize].clone()).collect())
}

/// Demands the interpreter's bits of the kernels of a scheduled function, or says what the evaluator found.
pub(crate) fn compare(func: &Func, kernels: &[FlatKernel], seed: u64) -> Result<(), String> {
    let mut random = Random(seed);
    let sizes = random_sizes(func, &mut random);
    let inputs = random_inputs(func, &sizes, &mut random);
    let expected = run(func, &sizes, &inputs);
    let found = evaluate(func, kernels, &sizes, &inputs)?;
    for (n, (expected, found)) in expected.iter().zip(&found).enumerate() {
        let differs = expected.bytes.chunks(4).zip(found.chunks(4)).position(|(a, b)| a != b);
        if let Some(element) = differs {
            return Err(format!("element {element} of output {n} differs at sizes {sizes:?}"));
        }
    }
    Ok(())
}

/// The kernel without each of its barriers in turn.
pub(crate) fn without_a_barrier(kernel: &Kernel) -> Vec<Kernel> {
    /// Takes out the `n`-th barrier; gives how many there are before it otherwise.
    fn take(insts: &mut Vec<Inst>, n: &mut usize) -> bool {
        let mut found = None;
        for (at, inst) in insts.iter_mut().enumerate() {
            match inst {
                Inst::Barrier if *n == 0 => found = Some(at),
                Inst::Barrier => *n -= 1,
                Inst::Loop { body, .. } => {
                    if take(body, n) {
                        return true;
                    }
                }
                Inst::If { then_body, else_body, .. } => {
                    if take(then_body, n) || take(else_body, n) {
                        return true;
                    }
                }
                Inst::Let { .. }
                | Inst::Store { .. }
                | Inst::Scatter { .. }
                | Inst::Prefetch { .. }
                | Inst::CopyAsync { .. }
                | Inst::CommitCopies
                | Inst::WaitCopies { .. } => {}
            }
            if found.is_some() {
                break;
            }
        }
        found.inspect(|at| drop(insts.remove(*at))).is_some()
    }
    let mut all = Vec::new();
    loop {
        let (mut kernel, mut n) = (kernel.clone(), all.len());
        if !take(&mut kernel.body, &mut n) {
            return all;
        }
        all.push(kernel);
    }
}

/// Demands that without any one of its barriers a race is found in each kernel. Gives how many there are.
pub(crate) fn check_barriers(func: &Func, kernels: &[FlatKernel], seed: u64) -> usize {
    let mut barriers = 0;
    for (n, flat) in kernels.iter().enumerate() {
        for (at, kernel) in without_a_barrier(&flat.kernel).into_iter().enumerate() {
            let mut all = kernels.to_vec();
            all[n].kernel = kernel;
            let found = compare(func, &all, seed);
            let is_race = found.as_ref().is_err_and(|error| error.starts_with("race"));
            assert!(is_race, "without barrier {at}: {found:?}\n{func}\n{}", flat.kernel);
            barriers += 1;
        }
    }
    barriers
}
