//! Models of several programs: which one a run takes, and what they share.

mod common;

use std::sync::Arc;

use common::{Builder, DOUBLE, demo_manifest, demo_plan, demo_plan_for, demo_weights, one_kernel};
use tilewright_runtime::artifact::{
    Artifact, ArtifactError, Contents, ImageDef, Level, Manifest, ProgramDef,
};
use tilewright_runtime::plan::{Place, Plan, SizeDef};
use tilewright_runtime::{
    AlignedBuf, Bytes, Kernels, LoadError, Model, ModelError, NoHostOps, ProgramParts, RunError, Session,
    SessionOptions, TensorView, TensorViewMut, Trust,
};

/// A program for a batch of `n`, whose temporary lies in memory that the open one has no use for.
fn specialised(n: i64) -> Plan {
    let mut b = demo_plan_for(SizeDef::Const(n));
    b.plan.arena.blocks.clear();
    b.plan.arena.bytes = 64 * n as u64;
    for buffer in &mut b.plan.buffers {
        if let Place::Block(_) = buffer.place {
            buffer.place = Place::Arena { offset: 0 };
        }
    }
    b.plan
}

fn contents<T>(
    specialised: &[Plan],
    edit: impl Fn(&mut Manifest),
    write: impl FnOnce(&Contents<'_>) -> T,
) -> T {
    let of = |plan: &Plan| {
        let batch =
            plan.sizes.first().map_or(0, |def| if let SizeDef::Const(n) = *def { n as u64 } else { 0 });
        ProgramDef { extents: vec![("batch".into(), batch)], ..one_kernel() }
    };
    let image =
        ImageDef { specialised: specialised.iter().map(of).collect(), ..demo_manifest().images[0].clone() };
    let mut manifest = Manifest { images: vec![image], ..demo_manifest() };
    edit(&mut manifest);
    let (plan, weights) = (demo_plan().plan, demo_weights());
    let levels = [Level { plan: &plan, specialised, image: DOUBLE, device_code: None }];
    write(&Contents { manifest: &manifest, levels: &levels, weights: &[&weights] })
}

fn bytes(specialised: &[Plan], edit: impl Fn(&mut Manifest)) -> AlignedBuf {
    contents(specialised, edit, |contents| contents.to_bytes().unwrap())
}

fn model(batches: &[i64]) -> Model {
    let plans: Vec<Plan> = batches.iter().map(|&n| specialised(n)).collect();
    Model::from_bytes(Bytes::new(bytes(&plans, |_| {})), Trust::Origin).unwrap()
}

/// Runs a batch of `n`; the batch that the program was made for, 0 where it is the open one.
fn run(session: &mut Session, n: usize) -> u64 {
    let x: Vec<f32> = (0..n * 3).map(|i| i as f32 + n as f32).collect();
    let dims = [n, 3];
    let outputs = session.run(&[TensorView::of(&dims, &x)]).unwrap();
    let expect: Vec<f32> = x.iter().map(|x| 4.0 * x).collect();
    let y = outputs.by_name("y").unwrap();
    assert_eq!((y.dims, y.to_vec::<f32>()), (&dims[..], Some(expect)));
    assert_eq!(outputs.get(1).and_then(|w| w.to_vec::<f32>()), Some(vec![1.0, 2.0, 3.0]));
    session.program().extents().first().map_or(0, |(_, batch)| *batch)
}

#[test]
fn runs_take_the_program_whose_extents_they_have() {
    let model = model(&[2, 4, 0]);
    assert_eq!(model.specialised().len(), 3);
    assert!(model.program().extents().is_empty());
    let mut session = model.session();
    for n in [2, 3, 4, 4, 0, 2, 1, 0, 7, 2] {
        let expect = if [2, 4].contains(&n) { n as u64 } else { 0 };
        assert_eq!(run(&mut session, n), expect, "{n}");
        let is_open = Arc::ptr_eq(session.program(), model.program());
        assert_eq!(is_open, ![0, 2, 4].contains(&n), "{n}");
    }
    // In memory of the caller, too.
    for n in [4usize, 5, 4] {
        let (x, mut y, mut w) = (vec![1f32; 3 * n], vec![0f32; 3 * n], [0f32; 3]);
        let dims = [n, 3];
        let mut outputs = [TensorViewMut::of(&dims, &mut y), TensorViewMut::of(&[3], &mut w)];
        session.run_into(&[TensorView::of(&dims, &x)], &mut outputs).unwrap();
        assert_eq!((y, w), (vec![4.0; 3 * n], [1.0, 2.0, 3.0]));
    }
}

#[test]
fn programs_share_the_memory_of_a_session() {
    let model = model(&[2, 64, 100]);
    let mut session = model.session();
    let sizes = [100, 2, 64, 90, 1, 100, 33];
    for n in sizes {
        run(&mut session, n);
    }
    let memory = session.memory();
    for round in 0..200 {
        run(&mut session, sizes[round * 5 % sizes.len()]);
        assert_eq!(session.memory(), memory, "round {round}");
    }
    // As much as the largest needs, not the sum of all: its arena and two outputs, and what aligns them.
    let mut largest = model.session();
    run(&mut largest, 100);
    assert_eq!(memory, largest.memory());
}

#[test]
fn a_failed_run_leaves_the_session_usable() {
    let model = model(&[2]);
    let mut session = model.session_with(SessionOptions { memory_limit: 4096, ..SessionOptions::default() });
    assert_eq!(run(&mut session, 2), 2);
    let x = vec![0f32; 3000];
    let error = session.run(&[TensorView::of(&[1000, 3], &x)]).map(drop).unwrap_err();
    assert!(matches!(error, RunError::Limit { .. }), "{error}");
    assert_eq!(run(&mut session, 2), 2);
    assert!(session.run(&[TensorView::of(&[2, 4], &x[..8])]).is_err());
    assert_eq!((run(&mut session, 3), run(&mut session, 2)), (0, 2));
}

#[test]
fn programs_that_contradict_the_model_are_refused() {
    let read = |edit: fn(&mut Manifest)| Artifact::read(&bytes(&[specialised(2)], edit)).unwrap_err();
    assert_eq!(
        read(|manifest| manifest.images[0].specialised.clear()),
        ArtifactError::Mismatch("number of programs")
    );
    assert_eq!(
        read(|manifest| manifest.images[0].specialised[0].entries.clear()),
        ArtifactError::Mismatch("number of kernels")
    );
    assert_eq!(
        read(|manifest| manifest.images[0].specialised[0].entries[0] = 1 << 20),
        ArtifactError::Mismatch("entry of a kernel")
    );
    let load = |edit: fn(&mut Plan)| {
        let mut plan = specialised(2);
        edit(&mut plan);
        Model::from_bytes(Bytes::new(bytes(&[plan], |_| {})), Trust::Origin).unwrap_err()
    };
    for (error, expect) in [
        (load(|plan| plan.inputs[0].name = "z".into()), "inputs"),
        (load(|plan| plan.outputs[1].name = "z".into()), "outputs"),
    ] {
        assert!(matches!(error, LoadError::Model(ModelError::Program(what)) if what == expect), "{error}");
    }
    let unsound = load(|plan| plan.buffers[0].size_bytes.0 = 99);
    assert!(unsound.to_string().contains("plan of the artifact is invalid"), "{unsound}");
}

#[test]
fn programs_come_together_without_an_artifact() {
    let parts = |b: Builder| ProgramParts {
        plan: b.plan,
        kernels: Kernels::new(b.kernels, None),
        def: ProgramDef::default(),
    };
    let of_batch = |n: i64| vec![parts(demo_plan_for(SizeDef::Const(n)))];
    let weights = Bytes::new(demo_weights());
    #[allow(unsafe_code, reason = "takes kernels")]
    // SAFETY: the kernels do what the plans say.
    let model = unsafe {
        Model::of_programs(
            Manifest::default(),
            parts(demo_plan()),
            of_batch(3),
            weights,
            Arc::new(NoHostOps),
            None,
        )
    }
    .unwrap();
    let mut session = model.session();
    for n in [3, 1, 3] {
        run(&mut session, n);
        assert_eq!(Arc::ptr_eq(session.program(), model.program()), n != 3);
    }
}
