//! Graphs: what a session records, replays, and records anew.

use std::sync::Arc;

use tilewright_runtime::artifact::{Manifest, ProgramDef};
use tilewright_runtime::device::DeviceModule;
use tilewright_runtime::plan::{Instr, Plan, Space};
use tilewright_runtime::{
    Bytes, Inspect, KernelCode, Kernels, Model, NoHostOps, ProgramParts, RunObserver, Session, TensorView,
};

use super::faked::{ADD_ONE, BAD, module};
use super::help::*;

/// The tests by name.
pub(crate) fn find(name: &str) -> Option<fn() -> Outcome> {
    Some(match name {
        "graphs_of_a_stream" => of_a_stream,
        "graphs_replace_launches" => replaced,
        "graphs_are_for_extents" => extents,
        "graphs_on_a_callers_stream" => callers_stream,
        "graphs_with_the_host_between" => host_between,
        "graphs_and_observers" => observers,
        "graphs_of_programs" => programs,
        "graphs_and_faults" => faults,
        "no_graphs_by_default" => || plain(&ADDS.replace("threads stay awake\n", ""), PLAIN),
        "no_graphs_in_old_drivers"
        | "recordings_that_do_not_begin"
        | "recordings_that_break"
        | "recordings_that_do_not_end"
        | "recordings_that_make_no_graph" => || plain(ADDS, PLAIN),
        "graphs_that_do_not_start" => || plain(ADDS, [4, 1, 0]),
        _ => return None,
    })
}

/// Adds 4 to each element: two kernels, a copy, and two more, between a copy there and a copy back.
pub(crate) const ADDS: &str = r#"
arena 0 bytes, weights 0 bytes
threads stay awake
device arena 0 bytes
input "x": f32[n = s0] in b0
output "y": f32[s0] in b1
s0 = dim 0 of input 0
s1 = 4
s2 = s0 * s1
s3 = 1
device block 0: s2 bytes
device block 1: s2 bytes
b0: f32[s0], s2 bytes, input 0
b1: f32[s0], s2 bytes, output 0
b2: f32[s0], s2 bytes, device block 0
b3: f32[s0], s2 bytes, device block 1
k0: add_one(write align 4; 1 sizes) on device
0: copy b0 to b2
1: call k0(b2; s0) tasks s3 x s0
2: call k0(b2; s0) tasks s3 x s0
3: copy b2 to b3
4: call k0(b3; s0) tasks s3 x s0
5: call k0(b3; s0) tasks s3 x s0
6: copy b3 to b1
"#;

/// Adds 4 to each element as often as an input says, which the host reads; then the host doubles them.
const TURNS: &str = r#"
arena 0 bytes, weights 0 bytes
threads stay awake
device arena 0 bytes
input "x": f32[n = s0] in b0
input "turns": i64[s3] in b5
output "y": f32[s0] in b1
s0 = dim 0 of input 0
s1 = 4
s2 = s0 * s1
s3 = 1
s4 = 8
s5 = computed
s6 = s5 - s3
s7 = computed
device block 0: s2 bytes
block 0: s2 bytes
b0: f32[s0], s2 bytes, input 0
b1: f32[s0], s2 bytes, output 0
b2: f32[s0], s2 bytes, device block 0
b3: f32[s0], s2 bytes, block 0
b4: i64[s3], s4 bytes, block 0
b5: i64[s3], s4 bytes, input 1
k0: add_one(write align 4; 1 sizes) on device
k1: double(write align 4; 0 sizes)
0: s5 = b5[0]
1: copy b0 to b2
2: branch if s5 == 0 to 11
3: call k0(b2; s0) tasks s3 x s0
4: call k0(b2; s0) tasks s3 x s0
5: guard s3 <= s0 "an element"
6: s7 = s0
7: call k0(b2; s0) tasks s3 x s0
8: call k0(b2; s0) tasks s3 x s0
9: s5 = s6
10: jump to 2
11: copy b2 to b3
12: call k1(b3) tasks s3 x s0
13: copy b3 to b2
14: guard s7 == s0 "the last of the stretches set it"
15: copy b2 to b1
"#;

/// `double` on the host, an element a task.
unsafe extern "C" fn double(buffers: *const *mut u8, _sizes: *const i64, begin: i64, end: i64) {
    for i in begin as usize..end as usize {
        // SAFETY: by the plan, the buffer has an element for each task.
        unsafe { *(*buffers).cast::<f32>().add(i) *= 2.0 }
    }
}

/// A program of a plan, for extents of these names.
pub(crate) fn program(plan: &str, kernel: usize, extents: Vec<(String, u64)>) -> ProgramParts {
    let plan: Plan = plan.parse().expect("a plan");
    let code = plan.kernels.iter().map(|def| match def.space {
        Space::Host => KernelCode::Host(double),
        Space::Device => KernelCode::Device(kernel),
    });
    let kernels = Kernels::of(code.collect(), None);
    ProgramParts { kernels, plan, def: ProgramDef { extents, ..ProgramDef::default() } }
}

pub(crate) fn model(open: ProgramParts, specialised: Vec<ProgramParts>) -> Result<Model, Failed> {
    let module: Arc<dyn DeviceModule> = Arc::new(module()?);
    let (manifest, weights, host) = (Manifest::default(), Bytes::new([0u8; 0]), Arc::new(NoHostOps));
    // SAFETY: the kernels do what the plans say.
    Ok(unsafe { Model::of_programs(manifest, open, specialised, weights, host, Some(module)) }?)
}

pub(crate) fn adds() -> Result<Model, Failed> {
    model(program(ADDS, ADD_ONE, Vec::new()), Vec::new())
}

/// Numbers of launches, of recordings that became graphs, and of replays.
fn counts(lines: &[String]) -> [usize; 3] {
    ["launch", "+exec", "replay"].map(|word| lines.iter().filter(|line| line.starts_with(word)).count())
}

/// Runs a session, checks that it adds 4 to each, and gives the counts of the run.
fn run(session: &mut Session, x: &[f32]) -> Result<[usize; 3], Failed> {
    let before = log().len();
    let outputs = session.run(&[TensorView::of(&[x.len()], x)])?;
    let found = outputs.get(0).and_then(|y| y.to_vec::<f32>()).unwrap_or_default();
    ensure_eq(&found, &x.iter().map(|x| x + 4.0).collect())?;
    let lines = log().split_off(before);
    let count = |word: &str| lines.iter().filter(|line| line.as_str() == word).count();
    ensure((count("upload"), count("download")) == (1, 1), &lines)?;
    Ok(counts(&lines))
}

/// Runs are plain.
const PLAIN: [usize; 3] = [4, 0, 0];
/// A run that records one stretch, and what comes after it.
const RECORDS: [usize; 3] = [0, 1, 1];
const REPLAYS: [usize; 3] = [0, 0, 1];

fn replaced() -> Outcome {
    let mut session = adds()?.session();
    ensure_eq(&run(&mut session, &[1.0, 2.0, 3.0])?, &PLAIN)?;
    ensure_eq(&run(&mut session, &[5.0, 6.0, 7.0])?, &RECORDS)?;
    let [add, copy] = ["record add_one", "record copy"].map(String::from);
    ensure_eq(&logged("record"), &vec![add.clone(), add.clone(), copy, add.clone(), add])?;
    for first in [0.5, -8.0, 100.0] {
        ensure_eq(&run(&mut session, &[first, 0.0, 1.5])?, &REPLAYS)?;
    }
    ensure_eq(&logged("+graph"), &vec!["+graph of 5".to_owned()])?;
    drop(session);
    ensure_balance()
}

fn extents() -> Outcome {
    let mut session = adds()?.session();
    let expect = [PLAIN, RECORDS, REPLAYS, REPLAYS];
    // The memory of the second is larger, so it lies elsewhere than that of the first; that of the third does not.
    for n in [2, 300, 2] {
        for counts in &expect {
            ensure_eq(&run(&mut session, &vec![n as f32; n])?, counts)?;
        }
    }
    // In turns nothing comes twice, so nothing is recorded.
    for n in [3, 4, 3, 4] {
        ensure_eq(&run(&mut session, &vec![1.0; n])?, &PLAIN)?;
    }
    ensure_eq(&logged("-exec").len(), &3)?;
    // Without elements there is nothing to launch, and a graph of a copy of nothing is none.
    for _ in 0..3 {
        session.run(&[TensorView::of::<f32>(&[0], &[])])?;
    }
    for counts in &expect {
        ensure_eq(&run(&mut session, &[1.0, 2.0])?, counts)?;
    }
    drop(session);
    ensure_balance()
}

fn callers_stream() -> Outcome {
    let model = adds()?;
    let mut session = model.session();
    let raw = std::ptr::without_provenance_mut(0x5ee);
    // SAFETY: the driver of ours takes any pointer for a stream.
    unsafe { session.use_stream(raw) }?;
    for counts in [PLAIN, RECORDS, REPLAYS] {
        ensure_eq(&run(&mut session, &[1.0])?, &counts)?;
    }
    let on_it = |word: &str| logged(word).iter().all(|line| line.ends_with("stream 5ee"));
    ensure(on_it("launch") && on_it("replay") && logged("-stream").len() == 1, &log())?;
    // Another one begins anew; the default stream records nothing.
    let other = std::ptr::without_provenance_mut(0x7ee);
    for (raw, expect) in [(other, [PLAIN, RECORDS, REPLAYS]), (std::ptr::null_mut(), [PLAIN; 3])] {
        // SAFETY: as above.
        unsafe { session.use_stream(raw) }?;
        for counts in expect {
            ensure_eq(&run(&mut session, &[2.0])?, &counts)?;
        }
    }
    drop((session, model));
    ensure_balance()
}

fn host_between() -> Outcome {
    let mut session = model(program(TURNS, ADD_ONE, Vec::new()), Vec::new())?.session();
    for (i, turns) in [1i64, 3, 2, 0, 5].into_iter().enumerate() {
        let (x, turns_given) = ([i as f32, 7.0], [turns]);
        let before = log().len();
        let inputs = [TensorView::of(&[2], &x), TensorView::of(&[1], &turns_given)];
        let outputs = session.run(&inputs).map(|outputs| outputs.get(0).and_then(|y| y.to_vec::<f32>()));
        if turns == 0 {
            // What a stretch sets is not set where it does not run.
            ensure(outputs.is_err(), &outputs.map(|_| ()))?;
            continue;
        }
        ensure_eq(&outputs?.unwrap_or_default(), &x.map(|x| 2.0 * (x + 4.0 * turns as f32)).to_vec())?;
        let counts = counts(&log()[before..]);
        let turns = turns as usize;
        let expect = match i {
            0 => [4 * turns, 0, 0],
            1 => [0, 1, turns],
            _ => [0, 0, turns],
        };
        ensure_eq(&counts, &expect)?;
    }
    drop(session);
    ensure_balance()
}

/// Counts instructions.
struct Watch(usize);

impl RunObserver for Watch {
    fn end(&mut self, _: usize, _: &Instr, _: &Inspect<'_>) {
        self.0 += 1;
    }
}

/// What is watched runs instruction by instruction, and disturbs nothing.
fn observers() -> Outcome {
    let mut session = adds()?.session();
    for counts in [PLAIN, RECORDS] {
        ensure_eq(&run(&mut session, &[1.0])?, &counts)?;
    }
    let (before, mut watch) = (log().len(), Watch(0));
    session.run_observed(&[TensorView::of(&[1], &[1.0f32])], &[], &mut watch)?;
    ensure_eq(&(watch.0, counts(&log()[before..])), &(7, PLAIN))?;
    ensure_eq(&run(&mut session, &[3.0])?, &REPLAYS)
}

fn programs() -> Outcome {
    let two = ADDS.replace("s0 = dim 0 of input 0", "s0 = 2");
    let special = program(&two, ADD_ONE, vec![("n".into(), 2)]);
    let mut session = model(program(ADDS, ADD_ONE, Vec::new()), vec![special])?.session();
    for n in [2, 3, 2] {
        for counts in [PLAIN, RECORDS, REPLAYS] {
            ensure_eq(&run(&mut session, &vec![1.0; n])?, &counts)?;
        }
        ensure_eq(&session.program().extents().len(), &usize::from(n == 2))?;
    }
    Ok(())
}

/// A kernel that faults in a graph: the run tells it, and so do all after it.
fn faults() -> Outcome {
    let mut session = model(program(ADDS, BAD, Vec::new()), Vec::new())?.session();
    let mut run = || {
        let error = session.run(&[TensorView::of(&[1], &[1.0f32])]).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    ensure_eq(&[run(), run(), run()], &[const { String::new() }; 3])?;
    // SAFETY: no other thread reads or writes the environment: the plan has no tasks of the host.
    unsafe { std::env::remove_var("FAKE_CUDA_FAULT") };
    for _ in 0..3 {
        let told = run();
        ensure(told.contains("CUDA_ERROR_ILLEGAL_ADDRESS") && told.contains("lost"), &told)?;
    }
    ensure_eq(&logged("replay").len(), &3)
}

/// Nothing is replayed, and every run is right: the plan does not ask for it, or recording fails. That is tried once.
fn plain(plan: &str, second: [usize; 3]) -> Outcome {
    let mut session = model(program(plan, ADD_ONE, Vec::new()), Vec::new())?.session();
    for (first, counts) in [(1.0, PLAIN), (2.0, second), (3.0, PLAIN), (4.0, PLAIN)] {
        ensure_eq(&run(&mut session, &[first, 0.0])?, &counts)?;
    }
    ensure(logged("record").len() <= 5, &log())?;
    drop(session);
    ensure_balance()
}

/// Without a session: a stream's own graphs, which it keeps apart.
fn of_a_stream() -> Outcome {
    let module = module()?;
    let mut stream = module.stream()?;
    let address = module.allocate(8)?;
    upload(&mut *stream, &[1.0, 2.0], address)?;
    let mut graphs = Vec::new();
    for launches in [1, 2] {
        ensure(stream.begin_capture()?, &"no capture")?;
        for _ in 0..launches {
            launch(&mut *stream, ADD_ONE, address, 2, 0, 2)?;
        }
        graphs.extend(stream.end_capture()?);
    }
    ensure_eq(&floats(&mut *stream, address, 2)?, &vec![1.0, 2.0])?;
    for graph in [graphs[0], graphs[1], graphs[0]] {
        // SAFETY: the memory is there.
        unsafe { stream.replay(graph) }?;
    }
    ensure_eq(&floats(&mut *stream, address, 2)?, &vec![5.0, 6.0])?;
    // What may not be asked for while it records: it breaks the recording, and the stream goes on.
    ensure(stream.begin_capture()?, &"no capture")?;
    ensure(stream.wait().is_err(), &"waited while it records")?;
    let told = stream.end_capture();
    fails(
        told,
        "Fake GPU (CUDA device 0) failed: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: what the driver says of it \
         (cuStreamEndCapture)",
    )?;
    fails(stream.end_capture(), "Fake GPU (CUDA device 0) failed: error 1 (cuStreamEndCapture)")?;
    stream.forget_graphs();
    ensure_eq(&logged("-exec").len(), &2)?;
    // SAFETY: it is refused.
    let told = unsafe { stream.replay(graphs[0]) };
    fails(told, "Fake GPU (CUDA device 0) failed: there are 0 graphs, none is number 0")?;
    ensure_eq(&floats(&mut *stream, address, 2)?, &vec![5.0, 6.0])?;
    // SAFETY: the work is done.
    unsafe { module.free(address) };
    drop((stream, module));
    ensure_balance()
}
