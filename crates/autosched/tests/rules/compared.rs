//! Scheduled functions compared with unscheduled ones.

use tilewright_autosched::{Decisions, Scheduled, flatten_options, schedule};
use tilewright_dtype::DType;
use tilewright_machine::{CodegenKind, Gpu, Target};
use tilewright_te::flatten::{FlattenOptions, flatten};
use tilewright_te::interp::{Mode, Program};
use tilewright_te::schedule::Piece;
use tilewright_te::{Computation, Expr, Func, Layout};

pub(crate) fn noise(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 40) as f32 / (1 << 24) as f32) - 0.5
        })
        .collect()
}

pub(crate) fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub(crate) fn extents(func: &Func, buffer: tilewright_te::Buffer, sizes: &[i64]) -> Vec<i64> {
    let size = |v| func.sizes.iter().position(|&s| s == v).map(|at| sizes[at]);
    func.buffers[buffer]
        .shape
        .iter()
        .map(|e| tilewright_te::interp::evaluate_index(e, &size).expect("an extent"))
        .collect()
}

pub(crate) fn computation(func: &Func, constants: &[bool], layouts: &[Layout]) -> Computation {
    let (constant_inputs, layouts) = (constants.to_vec(), layouts.to_vec());
    Computation { constant_inputs, layouts, ..Computation::of(func.clone()) }
}

/// Schedules for AVX-512 and for 128-bit vectors, and compares with the unscheduled function.
pub(crate) fn check(func: &Func, constants: &[bool], layouts: &[Layout], sizes: &[i64], rule: &str) {
    for (machine, codegen) in [("x86-64-v4", CodegenKind::Llvm), ("x86-64-v3", CodegenKind::Cranelift)] {
        let target = Target::parse(machine, codegen).expect("a known target");
        let scheduled = schedule(&computation(func, constants, layouts), &target, &Decisions::default())
            .expect("schedules");
        let Scheduled { func: fast, rulings, .. } = &scheduled;
        assert!(rulings.iter().any(|r| r.rule == rule), "expected {rule}, got {rulings:#?}\n{fast}");
        compare(func, layouts, sizes, &scheduled, &target);
    }
}

/// Compares a scheduled function with the unscheduled one.
pub(crate) fn compare(
    func: &Func,
    layouts: &[Layout],
    sizes: &[i64],
    scheduled: &Scheduled,
    target: &Target,
) {
    let Scheduled { func: fast, packing, .. } = scheduled;
    let machine = target.machine.level();
    let inputs: Vec<Vec<u8>> = func.params[..func.n_inputs]
        .iter()
        .enumerate()
        .map(|(i, &p)| {
            let n = extents(func, p, sizes).iter().product::<i64>() as usize;
            bytes(&noise(n, i as u64 + 1))
        })
        .collect();
    let relaid = |i: usize, input: &Vec<u8>| match packing.get(i).and_then(|packing| packing.first()) {
        Some(pack) => {
            let program = Program::compile(pack).expect("packing compiles");
            program.run(&[], &[input], Mode::Exact).expect("packs").remove(0).bytes
        }
        None => match layouts.get(i).and_then(Option::as_ref) {
            Some(pieces) => relay(func, i, pieces, input, sizes),
            None => input.clone(),
        },
    };
    let packed: Vec<Vec<u8>> = inputs.iter().enumerate().map(|(i, x)| relaid(i, x)).collect();
    let run = |f: &Func, inputs: &[Vec<u8>]| {
        let program = Program::compile(f).expect("compiles");
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        program.run(sizes, &inputs, Mode::Exact).unwrap_or_else(|e| panic!("{e}\n{f}")).remove(0)
    };
    let mut expected = run(func, &inputs).bytes;
    let got = run(fast, &packed).bytes;
    if let Some(Some(pieces)) = layouts.get(func.n_inputs) {
        expected = relay(func, func.n_inputs, pieces, &expected, sizes);
    }
    let floats = |b: &[u8]| -> Vec<f32> {
        b.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
    };
    for (i, (e, g)) in floats(&expected).iter().zip(floats(&got)).enumerate() {
        assert!((e - g).abs() <= 1e-5 * (1.0 + e.abs()), "{machine}: element {i}: {e} and {g}\n{fast}");
    }
    let lanes = target.gpu.map(|_| Gpu::LANES);
    let options = FlattenOptions { lanes, ..flatten_options(target) };
    flatten(fast, &options).unwrap_or_else(|e| panic!("{e}\n{fast}"));
}

/// Takes every decision otherwise, one at a time, and compares each with the unscheduled function. Gives the
/// choice points that were there.
pub(crate) fn check_candidates(func: &Func, constants: &[bool], layouts: &[Layout]) -> Vec<String> {
    check_candidates_for("x86-64-v3", func, constants, layouts)
}

pub(crate) fn check_candidates_for(
    machine: &str,
    func: &Func,
    constants: &[bool],
    layouts: &[Layout],
) -> Vec<String> {
    let target = Target::parse(machine, CodegenKind::Llvm).expect("a known target");
    let by_default =
        schedule(&computation(func, constants, layouts), &target, &Decisions::default()).expect("schedules");
    for decision in &by_default.decisions {
        assert_eq!(decision.chosen, 0, "{}", decision.point);
        for (n, candidate) in decision.candidates.iter().enumerate() {
            let mut decisions = Decisions::default();
            decisions.set(&decision.point, &candidate.value);
            let scheduled =
                schedule(&computation(func, constants, layouts), &target, &decisions).expect("as decided");
            let taken = scheduled.decisions.iter().find(|d| d.point == decision.point).expect("taken");
            assert_eq!(taken.chosen, n, "{decisions}");
            // Another decision is another schedule; only of grains several may come to the same tasks.
            let may_equal = n == 0 || decision.point.ends_with("/grain");
            assert!(may_equal || scheduled.trace != by_default.trace, "{decisions} changes nothing");
            compare(func, layouts, &[], &scheduled, &target);
        }
    }
    by_default.decisions.into_iter().map(|d| d.point).collect()
}

/// A parameter's bytes in a layout.
pub(crate) fn relay(func: &Func, param: usize, pieces: &[Piece], input: &[u8], sizes: &[i64]) -> Vec<u8> {
    let shape: Vec<Expr> = extents(func, func.params[param], sizes).into_iter().map(Expr::int).collect();
    let mut copy = Func::new("relay");
    let source = copy.add_input("source", DType::F32, shape.clone());
    let target = copy.compute("target", DType::F32, shape, |f, i| f.load(source, i.to_vec()));
    copy.promote_to_output(target);
    let mut s = tilewright_te::schedule::Schedule::new(copy);
    s.transform_layout("target", pieces, tilewright_te::schedule::Padding::Zero).expect("lays out");
    let program = Program::compile(&s.finish().expect("finishes")).expect("compiles");
    program.run(&[], &[input], Mode::Exact).expect("runs").remove(0).bytes
}
