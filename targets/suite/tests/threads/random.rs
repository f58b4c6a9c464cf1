//! Random schedules for threads: kernels by the evaluator, with races watched, against the interpreter.
//!
//! What lowering refuses says why; what it accepts has the interpreter's bits, and no barrier too few.

use tilewright_te::flatten::FlattenError;
use tilewright_te::kernel::Threads;
use tilewright_te::math::expand_func;
use tilewright_te::schedule::Schedule;
use tilewright_te::schedule::compact::compact;
use tilewright_te::{Func, Scope, ThreadLevel};

use crate::running::common::*;
use crate::running::{compare, kernels};

/// Schedules to try for each function, 600 in all; `TILEWRIGHT_SCHEDULES` in the environment overrides it.
const SCHEDULES: usize = 75;

const LANES: u32 = 8;

fn some<'a>(random: &mut Random, of: &'a [String]) -> &'a str {
    random.pick(of).map_or("", String::as_str)
}

/// Binds some loops of a block inside a task to threads; what does not go is left.
fn bind_some(s: &mut Schedule, block: &str, inside: usize, random: &mut Random) {
    let own: Vec<String> = s.loop_names(block).unwrap().into_iter().skip(inside).collect();
    if own.len() > 1 && random.below(2) == 0 {
        let names: Vec<&str> = own.iter().map(String::as_str).collect();
        drop(s.fuse(&names[..2]));
    }
    for (level, most) in [(ThreadLevel::Lane, LANES as usize), (ThreadLevel::Warp, 3)] {
        let own: Vec<String> = s.loop_names(block).unwrap().into_iter().skip(inside).collect();
        let name = some(random, &own).to_string();
        let threads = 1 + random.below(most) as i64;
        match random.below(5) {
            0 => {}
            1 if s.extent(&name).is_some_and(|extent| extent <= most as i64) => drop(s.bind(&name, level)),
            2 => {
                if let Ok(split) = s.split(&name, &[Some(threads), None]) {
                    drop(s.bind(&split[0], level));
                }
            }
            _ => {
                if let Ok(split) = s.split(&name, &[None, Some(threads)]) {
                    drop(s.bind(&split[1], level));
                }
            }
        }
    }
    let own: Vec<String> = s.loop_names(block).unwrap().into_iter().skip(inside).collect();
    let name = some(random, &own).to_string();
    match random.below(4) {
        0 => drop(s.unroll(&name)),
        1 => drop(s.vectorize(&name)),
        _ => {}
    }
}

/// The loop of tasks of the last block, where there is one.
fn tasks(s: &mut Schedule, block: &str, random: &mut Random) -> Option<String> {
    let loops = s.loop_names(block).unwrap();
    let mut outer = loops.first()?.clone();
    if random.below(3) > 0 {
        outer = s.split(&outer, &[None, Some([2, 3, 4, 8][random.below(4)])]).ok()?.remove(0);
    }
    if loops.len() > 1 && random.below(2) == 0 {
        let columns = s.split(&loops[1], &[None, Some([2, 4, 8][random.below(3)])]).ok()?;
        let own = s.loop_names(block).unwrap();
        if own.len() > 2 {
            drop(s.reorder(&[&outer, &columns[0], &own[1]]));
        }
        outer = s.fuse(&[&outer, &columns[0]]).unwrap_or(outer);
    }
    s.parallel(&outer).ok().map(|()| outer)
}

fn random_schedule(original: &Func, random: &mut Random) -> Schedule {
    let scopes = [Scope::Shared, Scope::Shared, Scope::Shared, Scope::Register, Scope::Global, Scope::Stack];
    let mut s = Schedule::new(original.clone());
    let mut blocks = s.blocks();
    let last = blocks.pop().expect("a block");
    if random.below(2) == 0 {
        let scope = scopes[random.below(5)];
        drop(s.cache_write(&last, scope));
    }
    let mut blocks = s.blocks();
    let last = blocks.pop().expect("a block");
    let Some(task) = tasks(&mut s, &last, random) else { return s };
    for block in blocks.iter().rev() {
        if random.below(6) == 0 {
            drop(s.compute_inline(block));
            continue;
        }
        let around = s.loop_names(&last).unwrap();
        let at = if random.below(4) == 0 { some(random, &around).to_string() } else { task.clone() };
        let buffer = block.clone();
        if let Ok(own) = s.compute_at(block, &at) {
            drop(s.set_scope(&buffer, scopes[random.below(6)]));
            drop(s.storage_align(&buffer, 32, random.below(8) as i64));
            let is_reduction = s.block_info(block).is_ok_and(|info| info.is_reduction);
            if is_reduction && random.below(3) > 0 {
                let steps = own.last().expect("a loop over steps").clone();
                let steps = s.split(&steps, &[None, Some([2, 4][random.below(2)])]).unwrap();
                let order: Vec<&str> =
                    [&steps[0]].into_iter().chain(&own[..own.len() - 1]).map(String::as_str).collect();
                drop(s.reorder(&order));
                if random.below(2) == 0 {
                    drop(s.decompose_reduction(block, &steps[0]));
                }
                let inputs: Vec<String> = original.params[..original.n_inputs]
                    .iter()
                    .map(|&param| original.buffers[param].name.clone())
                    .collect();
                if let Ok(fetch) = s.cache_read(block, some(random, &inputs), scopes[random.below(5)]) {
                    drop(s.compute_at(&fetch, &steps[0]));
                }
            }
        }
    }
    for block in s.blocks() {
        let loops = s.loop_names(&block).unwrap();
        let inside = loops.iter().position(|name| *name == task).map_or(0, |at| at + 1);
        bind_some(&mut s, &block, inside, random);
    }
    for block in s.blocks() {
        for name in s.loop_names(&block).unwrap() {
            if random.below(2) == 0 {
                drop(s.pipeline(&name, [2, 4][random.below(2)]));
            }
        }
    }
    s
}

/// What became of a random schedule.
enum Outcome {
    /// It has no threads.
    Plain,
    /// Lowering says why not.
    Refused,
    /// It agrees, with so many barriers and waits for copies.
    Agrees(usize, usize),
}

fn check_seed(original: &Func, seed: u64) -> Outcome {
    let mut random = Random(seed);
    let schedule = random_schedule(original, &mut random);
    let trace = schedule.trace().to_vec();
    let mut func = schedule.func().clone();
    if compact(&mut func).is_err() {
        return Outcome::Refused;
    }
    expand_func(&mut func);
    let all = match kernels(&func, LANES) {
        Ok(all) => all,
        Err(FlattenError::Refused { reason, .. }) => {
            assert!(!reason.is_empty());
            return Outcome::Refused;
        }
        Err(error) => panic!("seed {seed}: {error}\n{func}"),
    };
    let text: String = all.iter().map(|flat| flat.kernel.to_string()).collect();
    for inputs in 0..2 {
        let result = compare(&func, &all, seed + inputs);
        assert_eq!(result, Ok(()), "seed {seed}, trace {trace:#?}\n{func}\n{text}");
    }
    match all.iter().all(|flat| flat.kernel.threads == Threads::ONE) {
        true => Outcome::Plain,
        false => Outcome::Agrees(text.matches("barrier\n").count(), text.matches("wait_copies").count()),
    }
}

fn check(original: Func) {
    let schedules = std::env::var("TILEWRIGHT_SCHEDULES").map_or(SCHEDULES, |n| n.parse().expect("a number"));
    let (mut plain, mut refused, mut agree, mut barriers, mut waits) = (0, 0, 0, 0, 0);
    for seed in 0..schedules as u64 {
        match check_seed(&original, seed) {
            Outcome::Plain => plain += 1,
            Outcome::Refused => refused += 1,
            Outcome::Agrees(own_barriers, own_waits) => {
                agree += 1;
                barriers += own_barriers;
                waits += own_waits;
            }
        }
    }
    println!(
        "{agree} agree with {barriers} barriers and {waits} waits, {refused} are refused, {plain} have no threads"
    );
    assert!(agree * 10 > schedules, "{agree} agree, {refused} are refused, {plain} have no threads");
}

#[test]
fn matmul() {
    check(matmul_bias_relu(Dim::Fixed(9), Dim::Fixed(16), Dim::Fixed(6)));
}

#[test]
fn matmul_of_symbolic_extents() {
    check(matmul_bias_relu(Dim::Open, Dim::Open, Dim::Fixed(7)));
}

#[test]
fn convolution() {
    check(conv2d(1, 2, 5, 6, 3, 1, 1));
}

#[test]
fn row_softmax() {
    check(softmax(4, 19));
}

#[test]
fn row_norm() {
    check(layer_norm(Dim::Open, 16));
}

#[test]
fn pooling() {
    check(max_pool(5, 9, 3, 2));
}

#[test]
fn gathered_rows() {
    check(gather(10, 12, 7));
}

#[test]
fn transposition() {
    check(transpose(4, 9, 5));
}
