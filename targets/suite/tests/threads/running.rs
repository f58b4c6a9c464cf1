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
    let options = FlattenOptions { lanes: Some(lanes), ..FlattenOptions::PLAIN };
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

/// Tells the instructions that are taken out.
type Wanted = fn(&Inst) -> bool;

/// The kernel without each of the wanted instructions in turn.
pub(crate) fn without_one(kernel: &Kernel, wanted: Wanted) -> Vec<Kernel> {
    /// Takes out the `n`-th; gives whether there is one.
    fn take(insts: &mut Vec<Inst>, n: &mut usize, wanted: Wanted) -> bool {
        for at in 0..insts.len() {
            if wanted(&insts[at]) {
                if *n == 0 {
                    insts.remove(at);
                    return true;
                }
                *n -= 1;
            }
            let is_taken = match &mut insts[at] {
                Inst::Loop { body, .. } => take(body, n, wanted),
                Inst::If { then_body, else_body, .. } => {
                    take(then_body, n, wanted) || take(else_body, n, wanted)
                }
                Inst::Let { .. }
                | Inst::Store { .. }
                | Inst::Scatter { .. }
                | Inst::Prefetch { .. }
                | Inst::Barrier
                | Inst::CopyAsync { .. }
                | Inst::CommitCopies
                | Inst::WaitCopies { .. } => false,
            };
            if is_taken {
                return true;
            }
        }
        false
    }
    let mut all = Vec::new();
    loop {
        let (mut kernel, mut n) = (kernel.clone(), all.len());
        if !take(&mut kernel.body, &mut n, wanted) {
            return all;
        }
        all.push(kernel);
    }
}

/// Demands that each barrier, and each wait for copies, of the kernels is needed: without it the evaluator finds a race, or the missing wait. Gives
/// how many there are of either.
pub(crate) fn check_needed(func: &Func, kernels: &[FlatKernel], seed: u64) -> [usize; 2] {
    let is_barrier = |inst: &Inst| matches!(inst, Inst::Barrier);
    let is_wait = |inst: &Inst| matches!(inst, Inst::WaitCopies { .. });
    let kinds = [(is_barrier as Wanted, "race"), (is_wait as Wanted, "missing wait")];
    kinds.map(|(wanted, fault)| {
        let mut found = 0;
        for (n, flat) in kernels.iter().enumerate() {
            for (at, kernel) in without_one(&flat.kernel, wanted).into_iter().enumerate() {
                let mut all = kernels.to_vec();
                all[n].kernel = kernel;
                let result = compare(func, &all, seed);
                let is_caught = result.as_ref().is_err_and(|error| error.starts_with(fault));
                assert!(is_caught, "without number {at}, no {fault}: {result:?}\n{func}\n{}", flat.kernel);
                found += 1;
            }
        }
        found
    })
}
