//! A model without a compiler: its types, a run on noise, where the time goes, and what its artifact is made of.

#[path = "../../tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use common::{demo_artifact, demo_plan, demo_weights};
use tilewright_run::inspect::inspect;
use tilewright_run::noise::noise;
use tilewright_run::profile::{self, By, TracePool};
use tilewright_run::{LoadOptions, Model, spec, values};
use tilewright_runtime::isa::Isa;
use tilewright_runtime::threads::ThreadPool;
use tilewright_runtime::{NoHostOps, SessionOptions};

#[test]
fn noise_goes_in_and_named_outputs_come_out() {
    let model = demo_plan().model_with(&demo_weights(), Arc::new(NoHostOps));
    let texts = |specs: Vec<spec::Spec>| specs.iter().map(|spec| spec.to_string()).collect::<Vec<_>>();
    assert_eq!(texts(spec::inputs(model.plan())), ["x: f32[batch, 3]"]);
    assert_eq!(texts(spec::outputs(model.plan())), ["y: f32[?, 3]", "w: f32[3]"]);
    let inputs = noise(&spec::inputs(model.plan())).unwrap();
    let model = Model::of(model, &LoadOptions::new());
    let outputs: Vec<_> =
        model.run(inputs.iter().map(|(name, value)| (name, value))).unwrap().into_iter().collect();
    let numbers = |value: &tilewright_runtime::Value| value.as_tensor().and_then(values::to_f64s).unwrap();
    let expect: Vec<f64> = numbers(&inputs[0].1).iter().map(|x| 4.0 * x).collect();
    assert_eq!((&*outputs[0].0, numbers(&outputs[0].1)), ("y", expect));
    assert_eq!((&*outputs[1].0, numbers(&outputs[1].1)), ("w", vec![1.0, 2.0, 3.0]));
}

#[test]
fn profiles_sum_instructions_up_and_traces_have_every_task() {
    let model = demo_plan().model_with(&demo_weights(), Arc::new(NoHostOps));
    let pool = Arc::new(TracePool::new(Arc::new(ThreadPool::new(2))));
    let mut session = model.session_with(SessionOptions { pool: pool.clone(), ..SessionOptions::default() });
    let noise = noise(&spec::inputs(model.plan())).unwrap();
    let inputs = values::inputs(&noise);
    let inputs = model.arrange(&inputs).unwrap();
    let profile = profile::measure(&mut session, &inputs, 0.0).unwrap();
    assert_eq!((profile.calls.as_slice(), profile.extents.len()), (&[1.0; 3][..], 0));
    let grouped = profile::grouped(session.program(), &profile, None, By::Kernel);
    let rows: Vec<_> = grouped.rows.iter().map(|row| (row.kernels.join(" "), row.calls)).collect();
    assert_eq!(rows, [("double".to_string(), 2.0), ("copy".to_string(), 1.0)]);
    assert_eq!(grouped.row_of, [0, 0, 1]);
    // Each instruction by itself: the second reads what the first wrote, the copy reads weights.
    assert_eq!(profile::edges(model.plan(), &[0, 1, 2]), [(0, 1)]);

    let trace = profile::trace(&mut session, &inputs, &pool).unwrap();
    assert_eq!(trace.spans.iter().map(|span| span.instr).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(trace.spans.is_sorted_by_key(|span| span.begin) && trace.shares.iter().all(|s| s.begin <= s.end));
    assert!(trace.shares.iter().all(|share| share.thread < trace.threads));
    for instr in [0, 1] {
        let of_instr = trace.shares.iter().filter(|share| share.instr == instr);
        assert_eq!(of_instr.map(|share| share.tasks.1 - share.tasks.0).sum::<i64>(), 3, "{trace:?}");
    }
}

#[test]
fn artifacts_are_told_with_the_level_that_is_taken() {
    let mut bytes = demo_artifact();
    let report = inspect(&bytes, &Isa::native()).unwrap();
    assert_eq!((report.kernels, report.instructions, report.weight_bytes), (1, 3, 12));
    assert_eq!((report.file_bytes, report.weights_sound), (bytes.len() as u64, true));
    assert_eq!((report.inputs[0].name.as_str(), report.outputs.len()), ("x", 2));
    let [level] = &report.levels[..] else { panic!("{report:?}") };
    assert!(level.is_chosen && level.specialised.is_empty() && level.device.is_none());
    assert_eq!(level.code_bytes, report.code_bytes);
    let other = Isa { arch: "another".to_string(), features: vec![] };
    assert!(!inspect(&bytes, &other).unwrap().levels[0].is_chosen);
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    assert!(!inspect(&bytes, &Isa::native()).unwrap().weights_sound);
}
