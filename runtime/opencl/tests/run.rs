//! The interface to devices on a real one, with kernels written by hand.
//!
//! Needs an OpenCL device (`cargo xtask setup` installs PoCL, which makes one of the processor); without it the tests count as
//! ignored.
#![allow(unsafe_code, reason = "kernels run on a device")]

#[path = "../../../tools/conditional_tests.rs"]
mod conditional;

use std::process::ExitCode;
use std::ptr;
use std::sync::Arc;

use conditional::Conditional;
use tilewright_runtime::artifact::{DeviceDef, DeviceKernel, Manifest, ProgramDef};
use tilewright_runtime::device::{DEVICE_ALIGN, Device, DeviceError, DeviceModule, Launch, Stream};
use tilewright_runtime::plan::Plan;
use tilewright_runtime::{
    Bytes, DeviceTensor, KernelCode, Kernels, Model, NoHostOps, Output, OwnedDeviceTensor, Placed,
    ProgramParts, TensorView, TensorViewMut,
};
use tilewright_runtime_opencl::{OpenCl, OpenClDevice, OpenClError};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let lacking = OpenClDevice::first()
        .err()
        .map(|error| format!("{error} (`cargo xtask setup` installs PoCL, which is one)"));
    type Test = fn() -> Outcome;
    let tests: [(&str, Test); 13] = [
        ("devices_are_listed", devices_are_listed),
        ("kernels_run_in_ranges_of_tasks", kernels_run_in_ranges_of_tasks),
        ("copies_are_made_in_order", copies_are_made_in_order),
        ("many_commands_wait_for_themselves", many_commands_wait_for_themselves),
        ("streams_of_threads_do_not_disturb_each_other", streams_of_threads_do_not_disturb_each_other),
        ("a_stream_outlives_its_module", a_stream_outlives_its_module),
        ("code_that_does_not_build_is_refused", code_that_does_not_build_is_refused),
        ("kernels_that_are_not_as_described_are_refused", kernels_that_are_not_as_described_are_refused),
        ("code_for_others_is_unfit", code_for_others_is_unfit),
        ("memory_that_is_not_there_is_an_error", memory_that_is_not_there_is_an_error),
        ("times_are_of_commands", times_are_of_commands),
        ("launches_that_do_not_fit_the_kernel_fail", launches_that_do_not_fit_the_kernel_fail),
        ("inputs_and_outputs_lie_on_the_device", inputs_and_outputs_lie_on_the_device),
    ];
    conditional::run(tests.map(|(name, test)| {
        Conditional::new(name, lacking.clone(), move || test().map_err(|error| error.to_string()))
    }))
}

/// `sum[i] = a[i] + b[63 - i]` within each task of 2 warps of 32 lanes, the second operand by way of local memory; beyond `n`
/// nothing is written.
const CODE: &str = "
__kernel __attribute__((reqd_work_group_size(32, 2, 1)))
void add(__global const float *a, __global const float *b, __global float *sum, long n, long first) {
  __local float turned[64];
  const long task = first + (long)get_group_id(0);
  const long i = get_local_id(1) * 32 + get_local_id(0);
  turned[63 - i] = task * 64 + i < n ? b[task * 64 + i] : 0.0f;
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (task * 64 + i < n) sum[task * 64 + i] = a[task * 64 + i] + turned[i];
}
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void increment(__global int *x, long first) {
  x[first + (long)get_group_id(0)] += 1;
}
";

const ADD: usize = 0;
const INCREMENT: usize = 1;

fn kernel(symbol: &str, threads: [u32; 2]) -> DeviceKernel {
    DeviceKernel { symbol: symbol.to_owned(), threads, dynamic_shared: 0 }
}

/// Code with another part before it, and what is said of it.
fn code(source: &str, kernels: &[DeviceKernel]) -> (DeviceDef, Vec<u8>) {
    let other = b"not for OpenCL";
    let parts = [("other", other.len()), ("opencl-c", source.len())];
    let parts = parts.map(|(format, bytes)| (format.to_owned(), bytes as u64)).to_vec();
    let def =
        DeviceDef { kind: "opencl".to_owned(), parts, kernels: kernels.to_vec(), ..DeviceDef::default() };
    (def, [other, source.as_bytes()].concat())
}

fn load(source: &str, kernels: &[DeviceKernel]) -> Result<Arc<dyn DeviceModule>, DeviceError> {
    let device = OpenClDevice::first().expect("a device, as there was one");
    let (def, bytes) = code(source, kernels);
    device.load(&def, &bytes)
}

fn module() -> Result<Arc<dyn DeviceModule>, DeviceError> {
    load(CODE, &[kernel("add", [2, 32]), kernel("increment", [1, 1])])
}

/// The message of code that must not load.
fn refused(source: &str, kernels: &[DeviceKernel]) -> Result<String, String> {
    match load(source, kernels) {
        Err(DeviceError::Code { reason, .. }) => Ok(reason),
        Err(error) => Err(format!("{error:?}")),
        Ok(_) => Err("the code was loaded".to_owned()),
    }
}

fn expect(found: &str, part: &str) -> Outcome {
    match found.contains(part) {
        true => Ok(()),
        false => Err(format!("no {part:?} in {found:?}").into()),
    }
}

fn upload<T>(stream: &mut dyn Stream, from: &[T], to: u64) -> Result<(), DeviceError> {
    // SAFETY: the tests wait while the slice lives, and allocate as much.
    unsafe { stream.upload(from.as_ptr().cast(), to, size_of_val(from)) }
}

fn download<T: Copy + Default>(stream: &mut dyn Stream, from: u64, n: usize) -> Result<Vec<T>, DeviceError> {
    let mut to = vec![T::default(); n];
    // SAFETY: it is waited for here; numbers of any bits are numbers.
    unsafe { stream.download(from, to.as_mut_ptr().cast(), n * size_of::<T>()) }?;
    stream.wait()?;
    Ok(to)
}

/// Times are there when they are asked for, as often as they are, and work goes on as before without them.
fn times_are_of_commands() -> Outcome {
    let kernels = [kernel("add", [2, 32]), kernel("increment", [1, 1])];
    let module = load(CODE, &kernels)?;
    let mut stream = module.stream()?;
    let memory = module.allocate(4)?;
    upload(&mut *stream, &[0i32], memory)?;
    let launch = Launch { kernel: INCREMENT, buffers: &[memory], sizes: &[], first: 0, tasks: 1 };
    for _ in 0..2 {
        assert!(stream.set_timing(true)?);
        let begin = stream.mark()?;
        for _ in 0..3 {
            // SAFETY: the kernel increments one number, which there is room for.
            unsafe { stream.launch(&launch) }?;
        }
        stream.wait()?;
        let end = stream.mark()?;
        assert!(stream.elapsed(begin, end)? > 0.0);
        assert_eq!(stream.elapsed(end, end)?, 0.0);
        let unknown = stream.elapsed(begin, end + 1).expect_err("no such mark").to_string();
        expect(&unknown, "not marked")?;
        assert!(!stream.set_timing(false)?);
        // SAFETY: as above.
        unsafe { stream.launch(&launch) }?;
    }
    assert_eq!(download::<i32>(&mut *stream, memory, 1)?, [8]);
    // SAFETY: the stream has been waited for.
    unsafe { module.free(memory) };
    Ok(())
}

fn devices_are_listed() -> Outcome {
    let OpenCl { usable, unusable } = OpenCl::find()?;
    assert!(!usable.is_empty() && usable.len() == OpenCl::devices()?.len());
    assert!(unusable.iter().all(|device| !device.name.is_empty() && !device.reason.is_empty()));
    assert_eq!((usable[0].kind(), usable[0].name()), ("opencl", OpenClDevice::first()?.name()));
    let missing = OpenClDevice::by_index(usable.len()).expect_err("one too many");
    assert_eq!(missing, OpenClError::NoSuchDevice { index: usable.len(), usable: usable.len() });
    Ok(())
}

/// Buffers are parts of one allocation; of 150 elements the last task has only some.
fn adds(module: &dyn DeviceModule, stream: &mut dyn Stream, by: f32) -> Outcome {
    const N: usize = 150;
    const AT: [u64; 3] = [0, 1024, 2048 + 4];
    let memory = module.allocate(4096)?;
    assert_eq!(memory % DEVICE_ALIGN as u64, 0);
    let a: Vec<f32> = (0..N).map(|i| i as f32 * by).collect();
    let b: Vec<f32> = (0..N).map(|i| 1000.0 + i as f32).collect();
    upload(stream, &a, memory + AT[0])?;
    upload(stream, &b, memory + AT[1])?;
    upload(stream, &[-1.0f32; N + 1], memory + AT[2])?;
    let buffers = AT.map(|at| memory + at);
    for (first, tasks) in [(1, 2), (0, 1)] {
        let launch = Launch { kernel: ADD, buffers: &buffers, sizes: &[N as i64], first, tasks };
        // SAFETY: the buffers have `N` elements, and live until the download is waited for.
        unsafe { stream.launch(&launch) }?;
    }
    let found: Vec<f32> = download(stream, memory + AT[2], N + 1)?;
    // SAFETY: all was waited for.
    unsafe { module.free(memory) };
    let expect = |i: usize| match i / 64 * 64 + 63 - i % 64 {
        _ if i == N => -1.0,
        other => a[i] + b.get(other).copied().unwrap_or(0.0),
    };
    assert_eq!(found, (0..=N).map(expect).collect::<Vec<_>>());
    Ok(())
}

fn kernels_run_in_ranges_of_tasks() -> Outcome {
    let module = module()?;
    assert_eq!(module.device(), OpenClDevice::first()?.name());
    let mut stream = module.stream()?;
    adds(&*module, &mut *stream, 1.0)?;
    adds(&*module, &mut *stream, 2.0)
}

fn copies_are_made_in_order() -> Outcome {
    let module = module()?;
    let mut stream = module.stream()?;
    let (from, to) = (module.allocate(1000)?, module.allocate(1000)?);
    let bytes: Vec<u8> = (0..1000).map(|i| (i % 251) as u8).collect();
    upload(&mut *stream, &bytes, from)?;
    // SAFETY: both are allocated and different; nothing is copied beyond their ends.
    unsafe {
        stream.copy(from, to, 1000)?;
        stream.copy(from + 100, to + 3, 500)?;
        stream.copy(from, to, 0)?;
    }
    let found: Vec<u8> = download(&mut *stream, to, 1000)?;
    let expect = [&bytes[..3], &bytes[100..600], &bytes[503..]].concat();
    assert_eq!(found, expect);
    // SAFETY: all was waited for. What is not given back goes with the module.
    unsafe { module.free(from) };
    Ok(())
}

/// More commands than a stream keeps in mind.
fn many_commands_wait_for_themselves() -> Outcome {
    let module = module()?;
    let mut stream = module.stream()?;
    let memory = module.allocate(8)?;
    upload(&mut *stream, &[5, 7], memory)?;
    for _ in 0..2500 {
        let launch = Launch { kernel: INCREMENT, buffers: &[memory], sizes: &[], first: 0, tasks: 2 };
        // SAFETY: the buffer has two elements, and lives until the download is waited for.
        unsafe { stream.launch(&launch) }?;
    }
    assert_eq!(download::<i32>(&mut *stream, memory, 2)?, [2505, 2507]);
    Ok(())
}

fn streams_of_threads_do_not_disturb_each_other() -> Outcome {
    let module = module()?;
    std::thread::scope(|scope| {
        let run = |by: f32| {
            let module = &*module;
            scope.spawn(move || {
                let mut stream = module.stream().map_err(|error| error.to_string())?;
                (0..50).try_for_each(|_| adds(module, &mut *stream, by).map_err(|error| error.to_string()))
            })
        };
        let threads = [run(1.0), run(3.0)];
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok(())
}

fn a_stream_outlives_its_module() -> Outcome {
    let module = module()?;
    let mut stream = module.stream()?;
    let memory = module.allocate(4)?;
    drop(module);
    upload(&mut *stream, &[3], memory)?;
    assert_eq!(download::<i32>(&mut *stream, memory, 1)?, [3]);
    Ok(())
}

fn code_that_does_not_build_is_refused() -> Outcome {
    let reason = refused("__kernel void add(__global float *a, long first) { nonsense }", &[])?;
    expect(&reason, "clBuildProgram: CL_BUILD_PROGRAM_FAILURE: ")?;
    expect(&reason, "nonsense")?;
    let long = "nonsense ".repeat(5000);
    assert!(refused(&format!("__kernel void add(long first) {{ {long} }}"), &[])?.len() < 2000);
    let (mut def, mut bytes) = code(CODE, &[]);
    let device = OpenClDevice::first()?;
    bytes[20] = 0xff;
    let reason = device.load(&def, &bytes).err().ok_or("code was loaded that is no text")?.to_string();
    expect(&reason, "invalid utf-8")?;
    def.parts[1].1 += 1;
    let reason = device.load(&def, &bytes).err().ok_or("code was loaded that is cut short")?.to_string();
    expect(&reason, "does not load the code: it is cut short")
}

fn kernels_that_are_not_as_described_are_refused() -> Outcome {
    let reason = refused(CODE, &[kernel("add", [2, 32]), kernel("subtract", [2, 32])])?;
    expect(&reason, "kernel `subtract`: clCreateKernel: CL_INVALID_KERNEL_NAME")?;
    let reason = refused(CODE, &[kernel("add\0", [2, 32])])?;
    expect(&reason, "kernel `add\0`: nul byte")?;
    let reason = refused(CODE, &[DeviceKernel { dynamic_shared: 16, ..kernel("add", [2, 32]) }])?;
    expect(&reason, "kernel `add` asks for 16 bytes of local memory at launch")?;
    let reason = refused("__kernel void nothing() {}", &[kernel("nothing", [1, 1])])?;
    expect(&reason, "kernel `nothing` has no argument")
}

/// The reason why code is unfit, which must be the same for both who can tell.
fn unfit(def: &DeviceDef, bytes: &[u8]) -> Result<String, String> {
    let device = OpenClDevice::first().expect("a device, as there was one");
    match (device.suits(def), device.load(def, bytes).map(|_| ())) {
        (Err(told), Err(error)) if told == error => match told {
            DeviceError::Unfit { reason, .. } => Ok(reason),
            other => Err(format!("{other:?}")),
        },
        other => Err(format!("{other:?}")),
    }
}

fn code_for_others_is_unfit() -> Outcome {
    let (def, bytes) = code(CODE, &[kernel("add", [2, 32])]);
    OpenClDevice::first()?.suits(&def)?;
    let other = DeviceDef { kind: "cuda".to_owned(), ..def.clone() };
    expect(&unfit(&other, &bytes)?, "it runs code of kind opencl")?;
    let other = DeviceDef { parts: vec![("ptx".to_owned(), 1), ("cubin".to_owned(), 1)], ..def.clone() };
    expect(&unfit(&other, &bytes)?, "it takes the format opencl-c, there is ptx, cubin")?;
    for (threads, count) in [([1 << 12, 1 << 20], 1u64 << 32), ([0, 32], 0), ([u32::MAX, u32::MAX], 0)] {
        let count = if threads[0] == u32::MAX { u64::from(u32::MAX).pow(2) } else { count };
        let other = DeviceDef { kernels: vec![kernel("add", threads)], ..def.clone() };
        let reason = unfit(&other, &bytes)?;
        expect(&reason, &format!("kernel `add` has {count} threads a task, the device 1 to "))?;
    }
    // More local memory than any processor has: PoCL and drivers for graphics cards refuse it when they build or when they are asked.
    let greedy = "__kernel void greedy(__global int *x, long first) {
      __local int h[1 << 28]; h[x[0]] = x[1]; barrier(CLK_LOCAL_MEM_FENCE); x[2] = h[x[3]]; }";
    match load(greedy, &[kernel("greedy", [1, 1])]) {
        Err(DeviceError::Unfit { reason, .. }) => {
            expect(&reason, "kernel `greedy` has 1073741824 bytes of local memory")
        }
        Err(DeviceError::Code { .. }) => Ok(()),
        other => Err(format!("{:?}", other.map(|_| ())).into()),
    }
}

fn memory_that_is_not_there_is_an_error() -> Outcome {
    let module = module()?;
    for bytes in [usize::MAX, usize::MAX / 2, 1 << 46] {
        let error = module.allocate(bytes).err().ok_or("there is memory without end")?;
        let device = module.device();
        expect(&error.to_string(), &format!("{device} is out of memory: {bytes} bytes asked for"))?;
        assert_eq!(error, DeviceError::Memory { device, bytes: bytes as u64, free: None });
    }
    let mut stream = module.stream()?;
    adds(&*module, &mut *stream, 1.0)
}

fn launches_that_do_not_fit_the_kernel_fail() -> Outcome {
    let module = module()?;
    let mut stream = module.stream()?;
    let memory = module.allocate(4096)?;
    let mut fault = |kernel: usize, buffers: &[u64], sizes: &[i64]| {
        // SAFETY: it is refused before it runs.
        match unsafe { stream.launch(&Launch { kernel, buffers, sizes, first: 0, tasks: 1 }) } {
            Err(DeviceError::Fault { reason, .. }) => Ok(reason),
            other => Err(format!("{other:?}")),
        }
    };
    let reason = fault(ADD, &[memory; 2], &[64])?;
    expect(&reason, "kernel `add` takes 5 arguments, 4 are given")?;
    let reason = fault(ADD, &[memory; 3], &[64, 64])?;
    expect(&reason, "kernel `add` takes 5 arguments, 6 are given")?;
    expect(&fault(2, &[memory], &[])?, "no kernel 2, there are 2")?;
    // A copy onto itself is an error of OpenCL.
    // SAFETY: it is refused.
    let error = unsafe { stream.copy(memory, memory + 4, 100) }.err().ok_or("copied onto itself")?;
    expect(&error.to_string(), "failed: a transfer: clEnqueueSVMMemcpy: CL_MEM_COPY_OVERLAP")?;
    // A kernel that was built for other groups.
    let other = load(CODE, &[kernel("add", [1, 32])])?;
    let mut stream = other.stream()?;
    let memory = other.allocate(4096)?;
    let launch = Launch { kernel: ADD, buffers: &[memory; 3], sizes: &[64], first: 0, tasks: 1 };
    // SAFETY: it is refused.
    let error = unsafe { stream.launch(&launch) }.err().ok_or("ran with other groups")?;
    expect(&error.to_string(), "failed: kernel `add`: clEnqueueNDRangeKernel: CL_INVALID_WORK_GROUP_SIZE")
}

/// Adds 4 to each element. The plan asks for graphs, which streams of OpenCL do not have.
const ADDS: &str = r#"
arena 0 bytes, weights 0 bytes
threads stay awake
device arena 0 bytes
input "x": i32[n = s0] in b0
output "y": i32[s0] in b1
s0 = dim 0 of input 0
s1 = 4
s2 = s0 * s1
s3 = 1
device block 0: s2 bytes
b0: i32[s0], s2 bytes, input 0
b1: i32[s0], s2 bytes, output 0
b2: i32[s0], s2 bytes, device block 0
k0: increment(write align 4; 0 sizes) on device
0: copy b0 to b2
1: call k0(b2) tasks s3 x s0
2: call k0(b2) tasks s3 x s0
3: call k0(b2) tasks s3 x s0
4: call k0(b2) tasks s3 x s0
5: copy b2 to b1
"#;

/// Each output is the next input, beside runs on the host's memory; memory of the device that lies inside other memory too.
fn inputs_and_outputs_lie_on_the_device() -> Outcome {
    let plan: Plan = ADDS.parse()?;
    let kernels = Kernels::of(vec![KernelCode::Device(INCREMENT)], None);
    let open = ProgramParts { plan, kernels, def: ProgramDef::default() };
    let (manifest, weights, host) = (Manifest::default(), Bytes::new([0u8; 0]), Arc::new(NoHostOps));
    // SAFETY: the kernel does what the plan says.
    let model = unsafe { Model::of_programs(manifest, open, Vec::new(), weights, host, Some(module()?)) }?;
    let mut session = model.session();
    for n in [3usize, 500, 2] {
        let x: Vec<i32> = (0..n as i32).collect();
        let dims = [n];
        let mut state = Some(OwnedDeviceTensor::upload(&model, &TensorView::of(&dims, &x))?);
        for turn in 1..5 {
            let last = state.take().ok_or("no output")?;
            // SAFETY: the tensor is the test's.
            unsafe { session.run_placed(&[Placed::Device(last.view())], &mut [Output::New(&mut state)]) }?;
            let bytes = state.as_ref().ok_or("no output")?.download()?;
            let found = TensorView::new(last.dtype(), &dims, &bytes).to_vec::<i32>();
            assert_eq!(found, Some(x.iter().map(|x| x + 4 * turn).collect()));
            let outputs = session.run(&[TensorView::of(&dims, &x)])?;
            let found = outputs.get(0).and_then(|y| y.to_vec::<i32>());
            assert_eq!(found, Some(x.iter().map(|x| x + 4).collect()));
        }
        let whole = state.ok_or("no output")?;
        let part = DeviceTensor { dims: &[1], address: whole.address() + 4, bytes: 4, ..whole.view() };
        let mut y = [0i32];
        let mut outputs = [Output::Host(TensorViewMut::of(&[1], &mut y))];
        // SAFETY: as above.
        unsafe { session.run_placed(&[Placed::Device(part)], &mut outputs) }?;
        assert_eq!(y, [21]);
    }
    // SAFETY: it is refused.
    let told = unsafe { session.use_stream(ptr::null_mut()) }.expect_err("a stream of a caller");
    expect(&told.to_string(), "takes no stream of a caller")
}
