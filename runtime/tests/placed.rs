//! Inputs and outputs that lie on the device, beside those on the host.
#![allow(unsafe_code, reason = "names memory of a device")]

#[path = "common/lazy.rs"]
mod lazy;

use lazy::{Fake, THERE_AND_BACK, fake, model};
use tilewright_dtype::DType;
use tilewright_runtime::device::DeviceError;
use tilewright_runtime::{
    DeviceTensor, InputError, Model, Output, OwnedDeviceTensor, Placed, RunError, Session, TensorView,
    TensorViewMut,
};

fn upload(model: &Model, x: &[f32]) -> OwnedDeviceTensor {
    OwnedDeviceTensor::upload(model, &TensorView::of(&[x.len()], x)).expect("room")
}

fn numbers(tensor: &OwnedDeviceTensor) -> Vec<f32> {
    let bytes = tensor.download().expect("a copy");
    TensorView::new(DType::F32, tensor.dims(), &bytes).to_vec().expect("numbers")
}

fn run(session: &mut Session, inputs: &[Placed<'_>], outputs: &mut [Output<'_>]) -> Result<(), RunError> {
    // SAFETY: the tests name memory that they hold.
    unsafe { session.run_placed(inputs, outputs) }
}

/// Uploads, downloads and copies on the device since the last call.
fn moves(memory: &Fake) -> [usize; 3] {
    std::mem::take(&mut memory.0.lock().unwrap().moves)
}

/// The plan itself copies 1 buffer there and 2 back, beside its input and its output.
#[test]
fn each_tensor_lies_where_it_lies() {
    let memory = fake(1 << 20);
    let model = model(THERE_AND_BACK, &memory).expect("a model");
    let mut session = model.session();
    for n in [3, 700, 2, 2, 1] {
        let x: Vec<f32> = (0..n).map(|i| i as f32 - 2.0).collect();
        let expect: Vec<f32> = x.iter().map(|x| 8.0 * x).collect();
        let dims = [n];
        let (on_host, on_device) = (TensorView::of(&dims, &x), upload(&model, &x));
        let there = upload(&model, &vec![0.0; n]);
        for (input, up) in [(Placed::Host(on_host), 1), (Placed::Device(on_device.view()), 0)] {
            let mut y = vec![0.0f32; n];
            moves(&memory);
            run(&mut session, &[input], &mut [Output::Host(TensorViewMut::of(&dims, &mut y))])
                .expect("a run");
            assert_eq!((&y, moves(&memory)), (&expect, [1 + up, 3, 1 - up]), "{n}");
            run(&mut session, &[input], &mut [Output::Device(there.view())]).expect("a run");
            assert_eq!(moves(&memory), [1 + up, 2, 2 - up], "{n}");
            assert_eq!(numbers(&there), expect);
            let mut new = None;
            moves(&memory);
            run(&mut session, &[input], &mut [Output::New(&mut new)]).expect("a run");
            assert_eq!(moves(&memory), [1 + up, 2, 2 - up], "{n}");
            let new = new.expect("an output");
            assert_eq!((new.dtype(), new.dims(), numbers(&new)), (DType::F32, &dims[..], expect.clone()));
        }
        // What lies on the host runs as ever between.
        let outputs = session.run(&[on_host]).expect("a run");
        assert_eq!(outputs.get(0).and_then(|y| y.to_vec::<f32>()), Some(expect));
    }
    drop((session, model));
    assert_eq!(memory.0.lock().unwrap().used(), 0);
}

#[test]
fn an_output_is_the_next_input() {
    let memory = fake(1 << 20);
    let model = model(THERE_AND_BACK, &memory).expect("a model");
    let mut session = model.session();
    let mut state = Some(upload(&model, &[1.0, -3.0]));
    for expect in [8.0, 64.0, 512.0] {
        let last = state.take().expect("a state");
        run(&mut session, &[Placed::Device(last.view())], &mut [Output::New(&mut state)]).expect("a run");
        assert_eq!(numbers(state.as_ref().expect("a state")), [expect, -3.0 * expect]);
    }
}

#[test]
fn tensors_without_elements() {
    let memory = fake(1 << 20);
    let model = model(THERE_AND_BACK, &memory).expect("a model");
    let mut session = model.session();
    let none = upload(&model, &[]);
    let mut new = None;
    run(&mut session, &[Placed::Device(none.view())], &mut [Output::New(&mut new)]).expect("a run");
    let new = new.expect("an output");
    assert_eq!((new.dims(), new.address(), numbers(&new)), (&[0][..], 0, Vec::new()));
}

/// The host reads an input, sets an extent by another, and writes an output; a third output has that extent, and a fourth is an
/// input as it is. The second comes from inside of the fourth.
const ON_HOST: &str = r#"
arena 0 bytes, weights 0 bytes
device arena 0 bytes
input "x": f32[s0] in b0
input "n": i64[s3] in b1
output "doubled": f32[s0] in b2
output "tail": f32[s3] in b3
output "late": f32[s5] in b4
output "same": f32[s0] in b5
s0 = 4
s1 = 4
s2 = 16
s3 = 1
s4 = 8
s5 = computed
s6 = s5 * s1
s7 = 12
s8 = s3 * s1
device block 0: s8 bytes
b0: f32[s0], s2 bytes, input 0
b1: i64[s3], s4 bytes, input 1
b2: f32[s0], s2 bytes, output 0
b3: f32[s3], s8 bytes, output 1
b4: f32[s5], s6 bytes, output 2
b5: f32[s0], s2 bytes, output 3
b6: f32[s3], s8 bytes, alias of b9 at s7
b7: f32[s3], s8 bytes, device block 0
b8: f32[s5], s6 bytes, alias of b0 at s9
b9: f32[s0], s2 bytes, alias of b5 at s9
s9 = 0
k0: double(read align 4, write align 4; 0 sizes)
0: copy b0 to b5
1: s5 = b1[0]
2: call k0(b0, b2) tasks s3 x s0
3: copy b6 to b7
4: copy b7 to b3
5: alloc b4
6: copy b8 to b4
"#;

#[test]
fn what_the_host_needs_comes_to_it() {
    let memory = fake(1 << 20);
    let model = model(ON_HOST, &memory).expect("a model");
    let mut session = model.session();
    let x = [1.0f32, 2.0, 3.0, 4.0];
    let on_device = upload(&model, &x);
    for n in [2i64, 4, 0] {
        let count = [n];
        let there = OwnedDeviceTensor::upload(&model, &TensorView::of(&[1], &count)).expect("room");
        let inputs = [Placed::Device(on_device.view()), Placed::Device(there.view())];
        let (same, doubled) = (upload(&model, &[0.0; 4]), upload(&model, &[0.0; 4]));
        let (mut tail, mut late) = (None, None);
        let mut outputs = [
            Output::Device(doubled.view()),
            Output::New(&mut tail),
            Output::New(&mut late),
            Output::Device(same.view()),
        ];
        run(&mut session, &inputs, &mut outputs).expect("a run");
        assert_eq!(numbers(&doubled), [2.0, 4.0, 6.0, 8.0]);
        assert_eq!(numbers(&same), x);
        assert_eq!(numbers(&tail.expect("an output")), [4.0]);
        let late = late.expect("an output");
        assert_eq!((late.dims(), numbers(&late)), (&[n as usize][..], x[..n as usize].to_vec()));
    }
    // Extents of the caller's that the data do not give.
    let two = [2i64];
    let inputs = [Placed::Host(TensorView::of(&[4], &x)), Placed::Host(TensorView::of(&[1], &two))];
    let wrong = upload(&model, &[7.0; 3]);
    let (mut doubled, mut tail, mut same) = (None, None, None);
    let error = run(
        &mut session,
        &inputs,
        &mut [
            Output::New(&mut doubled),
            Output::New(&mut tail),
            Output::Device(wrong.view()),
            Output::New(&mut same),
        ],
    );
    assert_eq!(error.expect_err("extents").to_string(), r#""late": axis 0 must be 2, got 3"#);
    assert_eq!(numbers(&wrong), [7.0; 3]);
}

/// All that is wrong with tensors on a device, each with its message; the session lives on.
#[test]
fn tensors_that_do_not_fit_are_refused() {
    let memory = fake(1 << 20);
    let model = model(THERE_AND_BACK, &memory).expect("a model");
    let mut session = model.session();
    let x = upload(&model, &[1.0, 2.0]);
    let good = x.view();
    let mut refused = |input: DeviceTensor<'_>, output: Option<DeviceTensor<'_>>| {
        let mut new = None;
        let output = output.map_or(Output::New(&mut new), Output::Device);
        match run(&mut session, &[Placed::Device(input)], &mut [output]) {
            Err(RunError::Inputs(errors)) => errors.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let of = |dtype, dims: &'static [usize], address, bytes| DeviceTensor { dtype, dims, address, bytes };
    let at = good.address;
    let cases = [
        (of(DType::I32, &[2], at, 8), r#""x": expected element type f32, got i32"#),
        (of(DType::F32, &[2, 1], at, 8), r#""x": expected 1 axes, got 2"#),
        (of(DType::F32, &[2], at, 12), r#""x": type and extents need 8 bytes, got 12"#),
    ];
    for (input, message) in cases {
        assert_eq!(refused(input, None), message);
    }
    let odd = of(DType::F32, &[1], at + 2, 4);
    let message = format!(r#""x": address {:#x} is not a multiple of 4, as elements of f32 need"#, at + 2);
    assert_eq!(refused(odd, None), message);
    let odd = DeviceTensor { address: at + 1026, ..odd };
    let message = format!(r#""y": address {:#x} is not a multiple of 4, as elements of f32 need"#, at + 1026);
    assert_eq!(refused(good, Some(odd)), message);
    let other = of(DType::F32, &[2], at + 4, 8);
    assert_eq!(refused(good, Some(other)), r#"output "y" shares memory on the device with "x""#);
    let far = of(DType::F32, &[3], at + 1024, 12);
    assert_eq!(refused(good, Some(far)), r#""y": axis 0 must be 2, got 3"#);
    let (mut a, mut b) = (None, None);
    let error =
        run(&mut session, &[], &mut [Output::New(&mut a), Output::New(&mut b)]).expect_err("too many");
    assert_eq!(error.to_string(), "2 outputs given, the model has 1");
    let error = run(&mut session, &[Placed::Device(good)], &mut []).expect_err("too few");
    assert_eq!(error.to_string(), r#"input "y" is missing"#);
    run(&mut session, &[Placed::Device(good)], &mut [Output::New(&mut a)]).expect("a run");
    assert_eq!(numbers(&a.expect("an output")), [8.0, 16.0]);
}

#[test]
fn a_model_of_the_processor_has_none() {
    let plan = r#"
arena 0 bytes, weights 0 bytes
input "x": f32[s0] in b0
output "y": f32[s0] in b1
s0 = 1
s1 = 4
b0: f32[s0], s1 bytes, input 0
b1: f32[s0], s1 bytes, output 0
0: copy b0 to b1
"#;
    let on_host: Model = {
        use tilewright_runtime::artifact::Manifest;
        use tilewright_runtime::{Bytes, Kernels, NoHostOps};
        let (manifest, weights) = (Manifest::default(), Bytes::new([0u8; 0]));
        let plan = plan.parse().expect("a plan");
        // SAFETY: there are no kernels.
        unsafe {
            Model::assemble(
                manifest,
                plan,
                Kernels::new(Vec::new(), None),
                weights,
                std::sync::Arc::new(NoHostOps),
            )
        }
        .expect("a model")
    };
    let mut session = on_host.session();
    let x = [2.0f32];
    let tensor = DeviceTensor { dtype: DType::F32, dims: &[1], address: 4096, bytes: 4 };
    let mut new = None;
    let error =
        run(&mut session, &[Placed::Device(tensor)], &mut [Output::New(&mut new)]).expect_err("no device");
    let message = r#""x" is on a device, and the model runs on the processor; "y" is on a device, and the model runs on the processor"#;
    assert_eq!(error.to_string(), message);
    let error = OwnedDeviceTensor::upload(&on_host, &TensorView::of(&[1], &x)).expect_err("no device");
    assert!(
        matches!(&error, RunError::Inputs(errors) if matches!(errors.0[..], [InputError::NoDevice { .. }]))
    );
    // SAFETY: it is refused.
    let error = unsafe { session.use_stream(std::ptr::null_mut()) }.expect_err("no device");
    assert_eq!(error.to_string(), "the processor takes no stream of a caller");
    let mut y = [0.0f32];
    let mut outputs = [Output::Host(TensorViewMut::of(&[1], &mut y))];
    run(&mut session, &[Placed::Host(TensorView::of(&[1], &x))], &mut outputs).expect("a run");
    assert_eq!(y, x);
}

/// No room for an output costs one run, and leaves what the caller had.
#[test]
fn memory_for_an_output_may_be_lacking() {
    let memory = fake(1 << 20);
    let model = model(THERE_AND_BACK, &memory).expect("a model");
    let mut session = model.session();
    let x = upload(&model, &[1.0; 300]);
    let mut new = None;
    run(&mut session, &[Placed::Device(x.view())], &mut [Output::New(&mut new)]).expect("a run");
    let used = memory.0.lock().unwrap().used();
    memory.0.lock().unwrap().limit = used + 100;
    let error = run(&mut session, &[Placed::Device(x.view())], &mut [Output::New(&mut new)]);
    let expect = DeviceError::Memory { device: "fake".into(), bytes: 1200, free: Some(100) };
    assert_eq!(error, Err(RunError::Device(expect)));
    assert_eq!(numbers(new.as_ref().expect("the last output")), [8.0; 300]);
    assert_eq!(memory.0.lock().unwrap().used(), used);
    let few = DeviceTensor { dims: &[2], bytes: 8, ..x.view() };
    run(&mut session, &[Placed::Device(few)], &mut [Output::New(&mut new)]).expect("a run");
    assert_eq!(numbers(new.as_ref().expect("an output")), [8.0; 2]);
    // A fault of the device is told, and the memory of the output that was made comes back.
    memory.0.lock().unwrap().fails = true;
    let held = memory.0.lock().unwrap().used();
    assert!(matches!(
        run(&mut session, &[Placed::Device(few)], &mut [Output::New(&mut new)]),
        Err(RunError::Device(DeviceError::Fault { .. }))
    ));
    assert_eq!(memory.0.lock().unwrap().used(), held);
}
