//! Plans with a device, on one made of the host's memory that puts everything off until it is waited for.

#[path = "common/lazy.rs"]
mod lazy;

use std::sync::Arc;

use lazy::{THERE_AND_BACK, fake, model};
use tilewright_runtime::artifact::{DeviceDef, DeviceKernel, Manifest, ProgramDef};
use tilewright_runtime::device::{Device, DeviceError, DeviceModule};
use tilewright_runtime::plan::{BufferId, Fault, Instr, Plan};
use tilewright_runtime::{Bytes, Inspect, RunError, RunObserver, SessionOptions, TensorView, Trust};

fn run(session: &mut tilewright_runtime::Session, x: &[f32]) -> Result<Vec<f32>, RunError> {
    let outputs = session.run(&[TensorView::of(&[x.len()], x)])?;
    Ok(outputs.get(0).and_then(|output| output.to_vec::<f32>()).expect("an output"))
}

#[test]
fn work_of_host_and_device_is_in_order() {
    let memory = fake(1 << 20);
    let model = model(THERE_AND_BACK, &memory).expect("a model");
    assert_eq!(memory.0.lock().unwrap().used(), 16 + 512, "the weights, and what stands for nothing");
    let mut session = model.session();
    for n in [1, 5, 3, 0, 700] {
        let x: Vec<f32> = (0..n).map(|i| i as f32 - 2.0).collect();
        let expect: Vec<f32> = x.iter().map(|x| 8.0 * x).collect();
        assert_eq!(run(&mut session, &x).unwrap(), expect, "{n} elements");
    }
    let held = memory.0.lock().unwrap().used();
    memory.0.lock().unwrap().waits = 0;
    assert!(run(&mut session, &[1.0; 700]).is_ok());
    assert_eq!(memory.0.lock().unwrap().waits, 2, "before the host's kernel, and at the end");
    assert_eq!(memory.0.lock().unwrap().used(), held, "runs that repeat allocate nothing");
    drop((session, model));
    assert_eq!(memory.0.lock().unwrap().used(), 0);
}

/// Waits for every instruction, and sees what it downloaded.
struct Watch(Vec<usize>);

impl RunObserver for Watch {
    fn waits(&self) -> bool {
        true
    }

    fn end(&mut self, index: usize, _: &Instr, state: &Inspect<'_>) {
        // The buffer of the host that the device's first results are copied to, and one of the device.
        assert!(state.bytes(BufferId(2)).is_none());
        if index == 3 {
            let bytes = state.bytes(BufferId(4)).expect("it is there");
            assert_eq!(bytes, [2.0f32, 4.0].map(f32::to_le_bytes).concat());
        }
        self.0.push(index);
    }
}

#[test]
fn an_observer_may_wait_for_each_instruction() {
    let memory = fake(1 << 20);
    let model = model(THERE_AND_BACK, &memory).expect("a model");
    let mut session = model.session();
    assert!(run(&mut session, &[1.0, 2.0]).is_ok());
    memory.0.lock().unwrap().waits = 0;
    let mut watch = Watch(Vec::new());
    let x = [1.0f32, 2.0];
    session.run_observed(&[TensorView::of(&[2], &x)], &[], &mut watch).expect("a run");
    assert_eq!(watch.0, (0..10).collect::<Vec<_>>());
    assert_eq!(memory.0.lock().unwrap().waits, 8, "all but an allocation and a kernel of the host");
}

/// Asks for the device's times.
#[derive(Default)]
struct Clock(Vec<(usize, f64)>);

impl RunObserver for Clock {
    fn times_device(&self) -> bool {
        true
    }

    fn device_time(&mut self, index: usize, nanoseconds: f64) {
        self.0.push((index, nanoseconds));
    }
}

#[test]
fn what_a_device_does_is_timed_by_its_events() {
    let memory = fake(1 << 20);
    let model = model(THERE_AND_BACK, &memory).expect("a model");
    let mut session = model.session();
    assert!(run(&mut session, &[1.0, 2.0]).is_ok(), "memory is there from now on");
    let mut observed = |has_events: bool| {
        let x = [1.0f32, 2.0];
        let mut clock = Clock::default();
        memory.0.lock().unwrap().waits = 0;
        memory.0.lock().unwrap().has_events = has_events;
        session.run_observed(&[TensorView::of(&[2], &x)], &[], &mut clock).expect("a run");
        (clock.0, memory.0.lock().unwrap().waits)
    };
    let of_device = [0, 2, 3, 5, 6, 7, 8, 9].map(|index| (index, 1.0)).to_vec();
    assert_eq!(observed(true), (of_device, 2), "before the host's kernel, and at the end");
    assert_eq!(observed(false), (Vec::new(), 8), "without events all is waited for");
}

#[test]
fn memory_that_is_not_there_costs_one_run() {
    let memory = fake(4096);
    let model = model(THERE_AND_BACK, &memory).expect("a model");
    let mut session = model.session();
    let error = run(&mut session, &[1.0; 5000]).expect_err("no memory");
    assert!(matches!(&error, RunError::Device(DeviceError::Memory { .. })), "{error}");
    assert_eq!(run(&mut session, &[1.0, 2.0]).unwrap(), [8.0, 16.0]);
    let mut limited = model.session_with(SessionOptions { memory_limit: 1000, ..SessionOptions::default() });
    assert!(matches!(run(&mut limited, &[1.0; 400]), Err(RunError::Limit { .. })));
    assert_eq!(run(&mut limited, &[1.0]).unwrap(), [8.0]);
}

#[test]
fn a_fault_is_an_error_of_the_run() {
    let memory = fake(1 << 20);
    let model = model(THERE_AND_BACK, &memory).expect("a model");
    let mut session = model.session();
    memory.0.lock().unwrap().fails = true;
    assert_eq!(run(&mut session, &[1.0]).unwrap_err().to_string(), "fake failed: it was told to");
    memory.0.lock().unwrap().fails = false;
    assert_eq!(run(&mut model.session(), &[1.0]).unwrap(), [8.0]);
}

/// A buffer on the device that grows by a row a turn and keeps what it has.
const GROWS: &str = r#"
arena 0 bytes, weights 0 bytes
input "x": f32[n = s0] in b0
output "y": f32[s0] in b1
s0 = dim 0 of input 0
s1 = 4
s2 = s0 * s1
s3 = 1
s4 = computed
s5 = s4 * s1
s6 = s4 + s3
s7 = s0 - s4
b0: f32[s0], s2 bytes, input 0
b1: f32[s0], s2 bytes, output 0
b2: f32[s4], s5 bytes, device dynamic
b3: f32[s3], s1 bytes, device alias of b2 at s9
b4: f32[s3], s1 bytes, alias of b0 at s9
s8 = s4 - s3
s9 = s8 * s1
s10 = 0
0: s4 = s10
1: branch if s7 == 0 to 6
2: s4 = s6
3: grow b2
4: copy b4 to b3
5: jump to 1
6: copy b2 to b1
"#;

#[test]
fn what_grows_keeps_its_elements() {
    let memory = fake(1 << 20);
    let model = model(GROWS, &memory).expect("a model");
    let mut session = model.session();
    for n in [9, 40, 3] {
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        assert_eq!(run(&mut session, &x).unwrap(), x);
    }
}

#[test]
fn a_plan_keeps_to_the_spaces_of_its_buffers() {
    let faults = |from: &str, to: &str| {
        let text = THERE_AND_BACK.replace(from, to);
        assert_ne!(text, THERE_AND_BACK);
        let plan: Plan = text.parse().expect("a plan");
        let errors = plan.validate().expect_err("no sound plan");
        errors.into_iter().map(|error| (error.to_string(), error.fault)).collect::<Vec<_>>()
    };
    for (from, to, message) in [
        ("call k0(b2, b3)", "call k0(b4, b3)", "instruction 2: b4 is not in the memory of the device"),
        ("call k1(b4, b5)", "call k1(b4, b3)", "instruction 4: b3 is not in the memory of the host"),
        (
            "f32[s0], s2 bytes, output 0",
            "f32[s0], s2 bytes, device output 0",
            "buffer 1: b1 is not in the memory of the host",
        ),
        ("device dynamic", "device alias of b4 at s3", "buffer 3: b4 is not in the memory of the device"),
    ] {
        let faults = faults(from, to);
        assert!(
            faults.iter().any(|(text, fault)| text == message && matches!(fault, Fault::Space { .. })),
            "{faults:?}"
        );
    }
    let in_order = |kernel: &str| {
        let call = THERE_AND_BACK.lines().find(|line| line.contains(kernel)).expect("a call");
        let tasks = call.split(" @").next().expect("its tasks").trim_end();
        (tasks.to_string(), format!("{tasks} in order"))
    };
    let (from, to) = in_order("call k0(b2, b3)");
    let faults = faults(&from, &to);
    assert!(faults.iter().any(|(_, fault)| matches!(fault, Fault::InOrder)), "{faults:?}");
    let (from, to) = in_order("call k1(b4, b5)");
    for text in [THERE_AND_BACK.to_string(), THERE_AND_BACK.replace(&from, &to)] {
        let plan: Plan = text.parse().expect("a plan");
        plan.validate().expect("a sound plan");
        assert_eq!(plan.to_string().parse::<Plan>().expect("its own text"), plan);
    }
}

#[test]
fn code_is_found_by_its_format() {
    let parts = vec![("ptx".to_string(), 3), ("cubin".to_string(), 2)];
    let kernels = vec![DeviceKernel { symbol: "k".into(), threads: [1, 32], dynamic_shared: 0 }];
    let def = DeviceDef { kind: "cuda".into(), arch: "sm_80".into(), parts, kernels, ..DeviceDef::default() };
    assert_eq!(def.target(), "cuda:sm_80");
    assert_eq!(def.part("cubin", b"abcde"), Some(&b"de"[..]));
    assert_eq!(def.part("cubin", b"abcd"), None);
    assert_eq!(def.part("opencl-c", b"abcde"), None);
}

/// An artifact whose manifest and code for a device contradict each other, behind sound checksums.
#[test]
fn contradictions_about_devices_are_found() {
    use tilewright_runtime::artifact::{Artifact, Contents, ImageDef, Level};
    let plan: Plan =
        "arena 0 bytes, weights 0 bytes\nk0: far(; 0 sizes) on device\n".parse().expect("a plan");
    let kernel = DeviceKernel { symbol: "far".into(), threads: [1, 32], dynamic_shared: 0 };
    let read = |entry: u64, bytes: u64, device: bool, code: Option<&[u8]>| {
        let parts = vec![("opencl-c".to_string(), bytes)];
        let def = DeviceDef { parts, kernels: vec![kernel.clone()], ..DeviceDef::default() };
        let program = ProgramDef { entries: vec![entry], ..ProgramDef::default() };
        let image = ImageDef { program, device: device.then_some(def), ..ImageDef::default() };
        let manifest = Manifest { images: vec![image], ..Manifest::default() };
        let levels = [Level { plan: &plan, specialised: &[], image: &[], device_code: code }];
        let contents = Contents { manifest: &manifest, levels: &levels, weights: &[[0u8; 0]; 0] };
        let bytes = contents.to_bytes().expect("an artifact");
        Artifact::read(&bytes).map(drop).map_err(|error| error.to_string())
    };
    let size = "the artifact contradicts itself: size of the code for a device".to_string();
    let entry = "the artifact contradicts itself: entry of a kernel".to_string();
    assert_eq!(read(0, 3, true, Some(b"abc")), Ok(()));
    assert_eq!(read(0, 4, true, Some(b"abc")), Err(size.clone()));
    assert_eq!(read(0, u64::MAX, true, Some(b"abc")), Err(size.clone()));
    assert_eq!(read(0, 3, true, None), Err(size.clone()));
    assert_eq!(read(0, 3, false, Some(b"abc")), Err(size));
    assert_eq!(read(1, 3, true, Some(b"abc")), Err(entry.clone()));
    assert_eq!(read(0, 0, false, None), Err(entry));
}

/// Only its kind and what it says of code matter here.
struct Picky;

impl Device for Picky {
    fn kind(&self) -> &str {
        "picky"
    }

    fn name(&self) -> String {
        "Picky".into()
    }

    fn suits(&self, def: &DeviceDef) -> Result<u32, DeviceError> {
        match def.arch.strip_prefix("p").and_then(|n| n.parse().ok()) {
            Some(n) if n < 5 => Ok(n),
            _ => {
                let reason = "it is too new".to_string();
                Err(DeviceError::Unfit { device: self.name(), code: def.target(), reason })
            }
        }
    }

    fn load(&self, def: &DeviceDef, _code: &[u8]) -> Result<Arc<dyn DeviceModule>, DeviceError> {
        Err(DeviceError::Code { device: self.name(), reason: format!("chose {}", def.target()) })
    }
}

#[test]
fn the_loader_takes_the_level_that_suits_the_device_best() {
    use tilewright_runtime::artifact::{Contents, ImageDef, Level};
    use tilewright_runtime::{LoadError, Loader};
    let text = "arena 0 bytes, weights 0 bytes\ndevice arena 0 bytes\n";
    let plan: Plan = text.parse().expect("a plan");
    let load = |archs: &[&str], wanted: &str| {
        let image = |arch: &&str| {
            let device = DeviceDef { kind: "picky".into(), arch: (*arch).into(), ..DeviceDef::default() };
            let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
            ImageDef { triple, device: (!arch.is_empty()).then_some(device), ..ImageDef::default() }
        };
        let manifest = Manifest { images: archs.iter().map(image).collect(), ..Manifest::default() };
        let level = |arch: &&str| Level {
            plan: &plan,
            specialised: &[],
            image: &[],
            device_code: (!arch.is_empty()).then_some(&[][..]),
        };
        let levels: Vec<Level<'_>> = archs.iter().map(level).collect();
        let contents = Contents { manifest: &manifest, levels: &levels, weights: &[[0u8; 0]; 0] };
        let bytes = Bytes::new(contents.to_bytes().expect("an artifact"));
        let loader = match wanted {
            "device" => Loader::new(Trust::Origin).device(Arc::new(Picky)),
            "host" => Loader::new(Trust::Origin).on_host(),
            _ => Loader::new(Trust::Origin),
        };
        loader.from_bytes(bytes).map(|model| model.manifest().images[0].device.is_some())
    };
    let message = |result: Result<bool, LoadError>| result.expect_err("an error").to_string();
    assert!(message(load(&["p1", "p3", "p2", "", "p9"], "device")).ends_with("chose picky:p3"));
    assert!(message(load(&["p9"], "device")).contains("Picky cannot run code for picky:p9: it is too new"));
    assert!(!load(&["p1", ""], "host").expect("the processor's"));
    assert!(!load(&[""], "any").expect("the processor's"));
    assert!(message(load(&["p1", ""], "any")).contains("code for picky and the processor: name one"));
    assert!(message(load(&["p1"], "host")).contains("code for picky alone"));
    assert!(message(load(&["p1"], "any")).contains("code for picky alone"));
    assert!(message(load(&[""], "device")).contains("no code for picky; it has code for the processor"));
}
