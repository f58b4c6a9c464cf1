//! Sessions on a device that lacks memory or has faults.

use std::sync::Arc;

use cudarc::driver::sys;
use tilewright_runtime::artifact::{Contents, ImageDef, Level, Manifest, ProgramDef};
use tilewright_runtime::device::{DeviceError, DeviceModule};
use tilewright_runtime::{
    Bytes, DeviceTensor, Loader, Model, ModelError, NoHostOps, Output, OwnedDeviceTensor, Placed, RunError,
    Session, TensorView, Trust,
};
use tilewright_runtime_cuda::CudaDevice;

use super::faked::{ADD_ONE, BAD, PTX, module};
use super::graphs::{ADDS, adds, model, program};
use super::help::*;

/// The tests by name.
pub(crate) fn find(name: &str) -> Option<fn() -> Outcome> {
    Some(match name {
        "artifacts_run_or_say_why_not" => artifacts,
        "memory_for_a_session_runs_out" => memory,
        "memory_for_weights_is_lacking" => weights,
        "memory_for_outputs_runs_out" => outputs,
        "faults_end_with_the_context" => let_go,
        "faults_end_when_the_context_is_reset" => reset,
        _ => return None,
    })
}

/// An artifact of a plan with code for a device.
fn artifact(arch: &str, format: &str, code: &[u8]) -> Result<Bytes, Failed> {
    let plan = ADDS.parse()?;
    let device = Some(def(arch, &[(format, code)]));
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let program = ProgramDef { entries: vec![ADD_ONE as u64], ..ProgramDef::default() };
    let image = ImageDef { triple, program, device, ..ImageDef::default() };
    let manifest = Manifest { images: vec![image], ..Manifest::default() };
    let levels = [Level { plan: &plan, specialised: &[], image: &[], device_code: Some(code) }];
    let contents = Contents { manifest: &manifest, levels: &levels, weights: &[[0u8; 0]; 0] };
    Ok(Bytes::new(contents.to_bytes()?))
}

/// From the bytes of a file to an answer, and what stands in the way.
fn artifacts() -> Outcome {
    let load = |bytes: Bytes| {
        let device = CudaDevice::by_index(0).expect("a device");
        Loader::new(Trust::Origin).device(Arc::new(device)).from_bytes(bytes)
    };
    run(&mut load(artifact("sm_80", "ptx", PTX)?)?.session(), 5)?;
    for (arch, format, code, message) in [
        ("sm_90", "ptx", PTX, "the device is sm_86, and the code of sm_90"),
        ("sm_12345", "ptx", PTX, "`sm_12345` is no generation of GPUs that this runtime knows"),
        ("sm_80", "spirv", PTX, "it has neither PTX nor machine code"),
        ("sm_80", "ptx", &PTX[3..], "kernel `bad`: CUDA_ERROR_NOT_FOUND"),
        ("sm_80", "ptx", b"nonsense", "its PTX is damaged"),
        ("sm_80", "cubin", b"\x7fELF\x02\x01", "its machine code is damaged"),
    ] {
        let code = if message.contains("bad") { &code[..code.len() - 12] } else { code };
        let told = load(artifact(arch, format, code)?).err().map(|error| error.to_string());
        ensure(told.as_ref().is_some_and(|told| told.contains(message)), &told)?;
    }
    ensure_balance()
}

/// What is said of memory of this device that is lacking.
fn lacking(bytes: u64, free: u64) -> DeviceError {
    DeviceError::Memory { device: "Fake GPU (CUDA device 0)".into(), bytes, free: Some(free) }
}

fn run(session: &mut Session, n: usize) -> Result<(), RunError> {
    let x = vec![1.5f32; n];
    let outputs = session.run(&[TensorView::of(&[n], &x)])?;
    let found = outputs.get(0).and_then(|y| y.to_vec::<f32>());
    assert_eq!(found, Some(vec![5.5; n]));
    Ok(())
}

/// A run for which there is no room says how much is lacking; smaller ones before and after it go well, also as graphs.
fn memory() -> Outcome {
    let mut session = adds()?.session();
    for _ in 0..2 {
        for _ in 0..3 {
            run(&mut session, 600)?;
        }
        // Two blocks, of which the second begins at a multiple of 64 bytes. What the session had is given back first.
        let told = run(&mut session, 1000);
        ensure_eq(&told, &Err(RunError::Device(lacking(8032, 8192 - 512))))?;
        let text = told.map_err(|error| error.to_string());
        let expect = "Fake GPU (CUDA device 0) is out of memory: 8032 bytes asked for, 7680 are free";
        ensure_eq(&text, &Err(expect.to_owned()))?;
    }
    for n in [0, 1, 950] {
        run(&mut session, n)?;
    }
    // Another session of the model has no room beside it, until it goes.
    let mut other = session.model().session();
    ensure(matches!(run(&mut other, 950), Err(RunError::Device(DeviceError::Memory { .. }))), &log())?;
    drop(session);
    run(&mut other, 950)?;
    drop(other);
    ensure_balance()
}

/// A model whose weights do not fit is not made, and leaves nothing.
fn weights() -> Outcome {
    let text = ADDS.replace("weights 0 bytes", "weights 9000 bytes");
    let open = program(&text, ADD_ONE, Vec::new());
    let module: Arc<dyn DeviceModule> = Arc::new(module()?);
    let weights = Bytes::new(vec![0u8; 9000]);
    let (manifest, host) = (Manifest::default(), Arc::new(NoHostOps));
    // SAFETY: the kernels do what the plan says.
    let made = unsafe { Model::of_programs(manifest, open, Vec::new(), weights, host, Some(module)) };
    match made {
        Err(ModelError::Device(error)) => ensure_eq(&error, &lacking(9000, 8192))?,
        other => return Err(format!("{other:?}").into()),
    }
    let mut session = adds()?.session();
    run(&mut session, 100)?;
    let told = OwnedDeviceTensor::upload(session.model(), &TensorView::of(&[2000], &[0.0f32; 2000]));
    ensure_eq(&told.err(), &Some(RunError::Device(lacking(8000, 8192 - 512 - 848))))?;
    run(&mut session, 100).map_err(Failed::from)
}

/// The session has room, and the output that it is to allocate has none.
fn outputs() -> Outcome {
    let model = adds()?;
    let mut session = model.session();
    let x = OwnedDeviceTensor::upload(&model, &TensorView::of(&[500], &[1.0f32; 500]))?;
    let mut new = None;
    // SAFETY: the tensor is the test's.
    let told = unsafe { session.run_placed(&[Placed::Device(x.view())], &mut [Output::New(&mut new)]) };
    ensure_eq(&told, &Err(RunError::Device(lacking(2000, 8192 - 512 - 2000 - 4048))))?;
    ensure(new.is_none(), &new)?;
    let few = DeviceTensor { dims: &[50], bytes: 200, ..x.view() };
    // SAFETY: as above.
    unsafe { session.run_placed(&[Placed::Device(few)], &mut [Output::New(&mut new)]) }?;
    ensure_eq(&new.as_ref().map(|new| new.dims().to_vec()), &Some(vec![50]))?;
    drop((new, x, session, model));
    ensure_balance()
}

/// A session whose kernel faults, in a run that says so.
fn faulted() -> Result<Session, Failed> {
    let mut session = model(program(ADDS, BAD, Vec::new()), Vec::new())?.session();
    ensure_lost(&mut session)?;
    Ok(session)
}

/// That a session says what the context was lost by, whatever it is asked for.
fn ensure_lost(session: &mut Session) -> Outcome {
    for n in [1, 2, 2] {
        let told = session.run(&[TensorView::of(&[n], &vec![1.0f32; n])]).err();
        let told = told.map(|error| error.to_string()).unwrap_or_default();
        ensure(told.contains("CUDA_ERROR_ILLEGAL_ADDRESS") && told.contains("its context is lost"), &told)?;
    }
    Ok(())
}

/// Where all that was made in the context goes, the context does, and a new one is sound.
fn let_go() -> Outcome {
    let session = faulted()?;
    ensure(adds().is_err(), &"a model was loaded into a lost context")?;
    drop(session);
    let mut session = adds()?.session();
    for _ in 0..3 {
        run(&mut session, 3)?;
    }
    Ok(())
}

/// The process resets the context while a session has a share of it: new ones work, and that one stays lost.
fn reset() -> Outcome {
    let mut old = faulted()?;
    let told =
        CudaDevice::by_index(0)?.load_module(&def("sm_80", &[("ptx", b".version 8.0")]), b".version 8.0");
    let told = told.err().map(|error| error.to_string()).unwrap_or_default();
    ensure(told.contains("its context is lost"), &told)?;
    // SAFETY: the device is there, and what is in its context is of no more use.
    let done = unsafe { sys::cuDevicePrimaryCtxReset_v2(0) }.result();
    done.map_err(|error| format!("{:?}", error.0))?;
    let mut new = adds()?.session();
    for _ in 0..3 {
        run(&mut new, 3)?;
        ensure_lost(&mut old)?;
    }
    drop(old);
    Ok(run(&mut new, 3)?)
}
