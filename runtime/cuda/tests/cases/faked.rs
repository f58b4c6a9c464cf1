//! Tests with the driver of ours.

use tilewright_runtime::artifact::DeviceDef;
use tilewright_runtime::device::{Device, DeviceError, DeviceModule, Stream};
use tilewright_runtime_cuda::{Cuda, CudaDevice, CudaError, CudaModule};

use super::help::*;

/// The tests by name.
pub(crate) fn find(name: &str) -> Option<fn() -> Outcome> {
    Some(match name {
        "kernels_run_and_all_is_given_back" => kernels,
        "addresses_inside_allocations" => offsets,
        "many_tasks_are_split" => split,
        "shared_memory_is_asked_for" => shared,
        "machine_code_is_taken_before_ptx" => cubin,
        "machine_code_that_the_driver_does_not_run" => cubin_of_another,
        "code_is_ranked_and_refused" => ranks,
        "kernels_that_the_device_cannot_run" => limits,
        "damaged_code_is_refused" => damaged,
        "memory_runs_out_and_comes_back" => memory,
        "faults_are_named_and_stay" => faults,
        "faults_of_other_kinds" => launch_failed,
        "results_that_only_newer_drivers_have" => unknown_result,
        "streams_of_the_caller" => callers_stream,
        "times_are_told_by_events" => times,
        "threads_share_a_module" => threads,
        "the_threads_own_context_stays" => own_context,
        "drivers_too_old_for_ptx" => old_for_ptx,
        "drivers_too_old_at_all" => {
            || devices_fail("the driver is of CUDA 10.2, and CUDA 11.0 is needed: install a newer driver")
        }
        "no_device_by_count" | "no_device_by_init" => || devices_fail("the CUDA driver has no device"),
        "drivers_that_do_not_start" => || devices_fail("the CUDA driver does not work: cuInit: error 803"),
        "devices_out_of_range" => out_of_range,
        "one_device" => one_device,
        _ => return None,
    })
}

fn devices_fail(expect: &str) -> Outcome {
    let errors =
        [Cuda::devices().err(), CudaDevice::by_index(0).err()].map(|error| error.map(|e| e.to_string()));
    ensure_eq(&errors, &[Some(expect.into()), Some(expect.into())])
}

pub(crate) const PTX: &[u8] = b"//\n.version 8.0\n.entry add_one(\n.entry count(\n.entry bad(\n";

/// A header without tables, and a text.
fn machine_code(text: &str) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01".to_vec();
    file.resize(64, 0);
    file.extend(text.bytes());
    file
}

fn good_machine_code() -> Vec<u8> {
    machine_code("fake cubin .entry add_one(\n.entry count(\n.entry bad(\n")
}

pub(crate) const ADD_ONE: usize = 0;
const COUNT: usize = 1;
pub(crate) const BAD: usize = 2;

fn device() -> CudaDevice {
    CudaDevice::by_index(0).expect("a device")
}

fn load(def: &DeviceDef, parts: &[&[u8]]) -> Result<CudaModule, DeviceError> {
    device().load_module(def, &parts.concat())
}

pub(crate) fn module() -> Result<CudaModule, DeviceError> {
    load(&def("sm_80", &[("ptx", PTX)]), &[PTX])
}

fn kernels() -> Outcome {
    let devices = Cuda::devices()?;
    ensure_eq(
        &devices.iter().map(Device::name).collect::<Vec<_>>(),
        &vec!["Fake GPU (CUDA device 0)".to_owned(), "Fake GPU (CUDA device 1)".to_owned()],
    )?;
    let second = &devices[1];
    ensure_eq(&(second.kind(), second.index(), second.compute_capability()), &("cuda", 1, (8, 6)))?;
    ensure(log_is_empty(), &"devices are only listed")?;
    {
        let module = second.load(&def("sm_80", &[("ptx", PTX)]), PTX)?;
        ensure_eq(module.device().as_str(), "Fake GPU (CUDA device 1)")?;
        let mut stream = module.stream()?;
        let address = module.allocate(16)?;
        ensure(address % 256 == 0, &address)?;
        upload(&mut *stream, &[1.0, 2.0, 3.0, 4.0], address)?;
        launch(&mut *stream, ADD_ONE, address, 4, 1, 2)?;
        ensure_eq(&floats(&mut *stream, address, 4)?, &vec![1.0, 3.0, 4.0, 4.0])?;
        launch(&mut *stream, ADD_ONE, address, 4, 0, 9)?;
        ensure_eq(&floats(&mut *stream, address, 4)?, &vec![2.0, 4.0, 5.0, 5.0])?;
        let told = logged("launch").concat();
        ensure(told.contains("add_one: grid 2, block 32 2, shared 0, extent 4, first 1"), &told)?;
        // SAFETY: the work is done.
        unsafe { module.free(address) };
        // A stream keeps the code, and waits for its work before both go.
        launch(&mut *stream, COUNT, 0, 0, 0, 1)?;
        drop(module);
        ensure(logged("-module").is_empty(), &log())?;
    }
    let mut last = log();
    let last = last.split_off(last.len() - 4);
    ensure(last[0].starts_with("wait") && last[1..] == ["-stream", "-module", "-context 1"], &last)?;
    ensure_balance()
}

fn offsets() -> Outcome {
    let module = module()?;
    let mut stream = module.stream()?;
    let address = module.allocate(64)?;
    upload(&mut *stream, &[0.0; 16], address)?;
    upload(&mut *stream, &[1.0, 2.0, 3.0], address + 8)?;
    // SAFETY: both are inside the allocation.
    unsafe { stream.copy(address + 8, address + 32, 12) }?;
    launch(&mut *stream, ADD_ONE, address + 36, 1, 0, 1)?;
    ensure_eq(
        &floats(&mut *stream, address + 4, 10)?,
        &vec![0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0, 3.0, 3.0],
    )?;
    // Nothing is copied of nothing, wherever it lies; and memory of no bytes has an address.
    // SAFETY: no bytes are touched.
    unsafe {
        stream.upload(std::ptr::null(), 0, 0)?;
        stream.download(0, std::ptr::null_mut(), 0)?;
        stream.copy(0, 0, 0)?;
    }
    let other = module.allocate(0)?;
    // SAFETY: the work is done.
    [address, other].into_iter().for_each(|address| unsafe { module.free(address) });
    drop((stream, module));
    ensure_balance()
}

fn split() -> Outcome {
    let module = module()?;
    let mut stream = module.stream()?;
    let most = i64::from(i32::MAX);
    launch(&mut *stream, COUNT, 0, 7, 10, 2 * most + 5)?;
    launch(&mut *stream, COUNT, 0, 7, -3, most)?;
    let shape = |line: &String| {
        let fields: Vec<&str> = line.split(", ").collect();
        format!("{}, {}", fields[0], fields[4])
    };
    let launches: Vec<String> = logged("launch").iter().map(shape).collect();
    let expect = [
        "launch count: grid 2147483647, first 10",
        "launch count: grid 2147483647, first 2147483657",
        "launch count: grid 5, first 4294967304",
        "launch count: grid 2147483647, first -3",
    ];
    ensure_eq(&launches, &expect.map(String::from).to_vec())?;
    let told = launch(&mut *stream, 3, 0, 7, 0, 1);
    fails(told, "Fake GPU (CUDA device 0) failed: the code has 3 kernels, none is number 3")
}

fn shared() -> Outcome {
    let mut def = def("sm_80", &[("ptx", PTX)]);
    def.kernels[COUNT].dynamic_shared = 65536;
    let module = load(&def, &[PTX])?;
    let mut stream = module.stream()?;
    launch(&mut *stream, COUNT, 0, 0, 0, 1)?;
    launch(&mut *stream, ADD_ONE, 0, 0, 0, 1)?;
    ensure_eq(&logged("attribute"), &vec!["attribute of count: 65536".to_owned()])?;
    let told = logged("launch");
    ensure(told[0].contains("shared 65536,") && told[1].contains("shared 0,"), &told)
}

fn cubin() -> Outcome {
    let code = good_machine_code();
    let both = def("sm_80", &[("ptx", PTX), ("cubin", &code)]);
    let module = load(&both, &[PTX, &code])?;
    ensure(!module.assembled_by_driver() && logged("ptx").is_empty(), &log())?;
    // Of another generation: PTX, of which all is there.
    let older = def("sm_75", &[("ptx", PTX), ("cubin", &code)]);
    let module = load(&older, &[PTX, &code])?;
    ensure(module.assembled_by_driver(), &log())?;
    ensure_eq(&logged("ptx"), &vec![format!("ptx of {} bytes", PTX.len())])
}

fn cubin_of_another() -> Outcome {
    let code = machine_code("other driver");
    let both = def("sm_80", &[("ptx", PTX), ("cubin", &code)]);
    ensure(load(&both, &[PTX, &code])?.assembled_by_driver(), &log())?;
    let alone = load(&def("sm_80", &[("cubin", &code)]), &[&code]);
    fails(
        alone,
        "Fake GPU (CUDA device 0) cannot run code for cuda:sm_80: the driver, of CUDA 12.4, does not run its machine code, and there is no PTX",
    )
}

fn ranks() -> Outcome {
    let code = good_machine_code();
    let device = device();
    let rank = |arch, formats: &[&str]| {
        let parts: Vec<(&str, &[u8])> = formats.iter().map(|format| (*format, &code[..])).collect();
        device.suits(&def(arch, &parts))
    };
    let ranks = [
        rank("sm_75", &["ptx", "cubin"])?,
        rank("sm_80", &["ptx"])?,
        rank("sm_80", &["ptx", "cubin"])?,
        rank("sm_85", &["ptx", "cubin"])?,
        rank("sm_86", &["ptx"])?,
    ];
    ensure(ranks.is_sorted_by(|a, b| a < b), &ranks)?;
    let unfit = |arch: &str, reason: &str| {
        format!("Fake GPU (CUDA device 0) cannot run code for cuda:{arch}: {reason}")
    };
    fails(rank("sm_90", &["ptx", "cubin"]), &unfit("sm_90", "the device is sm_86, and the code of sm_90"))?;
    fails(rank("sm_89", &["cubin"]), &unfit("sm_89", "the device is sm_86, and the code of sm_89"))?;
    let reason = "the device is sm_86, and the code machine code of sm_75 without PTX";
    fails(rank("sm_75", &["cubin"]), &unfit("sm_75", reason))?;
    fails(rank("sm_80", &["opencl-c"]), &unfit("sm_80", "it has neither PTX nor machine code"))?;
    fails(
        rank("ampere", &["ptx"]),
        &unfit("ampere", "`ampere` is no generation of GPUs that this runtime knows"),
    )?;
    let other = DeviceDef { kind: "opencl".into(), ..DeviceDef::default() };
    let reason = "Fake GPU (CUDA device 0) cannot run code for opencl: it is code for another kind of device";
    fails(device.suits(&other), reason)?;
    // What is unfit is not loaded either.
    fails(
        load(&def("sm_90", &[("ptx", PTX)]), &[PTX]),
        &unfit("sm_90", "the device is sm_86, and the code of sm_90"),
    )?;
    ensure(log_is_empty(), &log())
}

fn limits() -> Outcome {
    let load_with = |threads: [u32; 2], dynamic_shared: u32| {
        let mut def = def("sm_80", &[("ptx", PTX)]);
        def.kernels[COUNT].threads = threads;
        def.kernels[COUNT].dynamic_shared = dynamic_shared;
        load(&def, &[PTX])
    };
    load_with([32, 32], 101376)?;
    let unfit = |reason: &str| {
        format!("Fake GPU (CUDA device 0) cannot run code for cuda:sm_80: kernel `count` {reason}")
    };
    fails(load_with([33, 32], 0), &unfit("has 1056 threads a task, and the device 1 to 1024"))?;
    fails(load_with([0, 32], 0), &unfit("has 0 threads a task, and the device 1 to 1024"))?;
    let reason = "asks for 101377 bytes of shared memory a task, and the device has 101376";
    fails(load_with([1, 32], 101377), &unfit(reason))
}

fn damaged() -> Outcome {
    let refused = |reason: &str| format!("Fake GPU (CUDA device 0) does not load the code: {reason}");
    let said = "CUDA_ERROR_INVALID_PTX: what the driver says of it";
    let nonsense = b".version 8.0\nnonsense";
    let lines = "ptxas application ptx input, line 3; fatal   : nonsense; ptxas fatal";
    fails(
        load(&def("sm_80", &[("ptx", nonsense)]), &[nonsense]),
        &refused(&format!("PTX: {said}; {lines}")),
    )?;
    for text in [&b""[..], b"no version", b".version 8.0\n\0.entry add_one("] {
        fails(load(&def("sm_80", &[("ptx", text)]), &[text]), &refused("its PTX is damaged"))?;
    }
    let good = good_machine_code();
    // PTX beside it does not hide that.
    for code in [&b""[..], b"text", &good[..63]] {
        let both = def("sm_80", &[("ptx", PTX), ("cubin", code)]);
        fails(load(&both, &[PTX, code]), &refused("its machine code is damaged"))?;
    }
    let other = machine_code("other");
    let reason = "machine code: CUDA_ERROR_INVALID_IMAGE: what the driver says of it";
    fails(load(&def("sm_80", &[("cubin", &other)]), &[&other]), &refused(reason))?;
    for code in [&PTX[1..], &[PTX, b" "].concat()] {
        let reason = "it is not as long as it is said to be";
        fails(load(&def("sm_80", &[("ptx", PTX)]), &[code]), &refused(reason))?;
    }
    let mut absent = def("sm_80", &[("ptx", PTX)]);
    absent.kernels[BAD].symbol = "absent".into();
    let reason = "kernel `absent`: CUDA_ERROR_NOT_FOUND: what the driver says of it (cuModuleGetFunction)";
    fails(load(&absent, &[PTX]), &refused(reason))?;
    absent.kernels[BAD].symbol = "b\0d".into();
    fails(load(&absent, &[PTX]), &refused("kernel `b\0d`: a zero byte in its name"))?;
    // What was loaded of it is unloaded.
    let count = |what| logged(what).len();
    ensure(count("+module") == count("-module") && count("+context") == count("-context"), &log())
}

fn memory() -> Outcome {
    let module = module()?;
    let mut stream = module.stream()?;
    let first = module.allocate(3000)?;
    let told = module.allocate(2000);
    fails(told, "Fake GPU (CUDA device 0) is out of memory: 2000 bytes asked for, 1096 are free")?;
    // What was there before works, and memory that comes back is given again.
    upload(&mut *stream, &[1.0], first)?;
    launch(&mut *stream, ADD_ONE, first, 1, 0, 1)?;
    ensure_eq(&floats(&mut *stream, first, 1)?, &vec![2.0])?;
    // SAFETY: the work is done.
    unsafe { module.free(first) };
    let second = module.allocate(4000)?;
    // SAFETY: no work has it.
    unsafe { module.free(second) };
    drop((stream, module));
    ensure_balance()
}

fn faults() -> Outcome {
    let module = module()?;
    let address = module.allocate(4)?;
    let mut stream = module.stream()?;
    launch(&mut *stream, BAD, address, 1, 0, 1)?;
    let told = "Fake GPU (CUDA device 0) failed: CUDA_ERROR_ILLEGAL_ADDRESS: what the driver says of it \
                (cuStreamSynchronize); its context is lost, and only a new process can use it";
    fails(stream.wait(), told)?;
    fails(stream.wait(), told)?;
    fails(launch(&mut *stream, ADD_ONE, address, 1, 0, 1), told)?;
    fails(upload(&mut *stream, &[1.0], address), told)?;
    fails(module.allocate(4), told)?;
    fails(module.stream(), told)?;
    // Another module of the same context hears it from the driver.
    let other = load(&def("sm_80", &[("ptx", PTX)]), &[PTX]);
    fails(other, &told.replace("cuStreamSynchronize", "cuModuleLoadDataEx"))?;
    // SAFETY: no work has it.
    unsafe { module.free(address) };
    drop((stream, module));
    // A device of its own is not touched.
    CudaDevice::by_index(1)?.load_module(&def("sm_80", &[("ptx", PTX)]), PTX)?;
    Ok(())
}

fn launch_failed() -> Outcome {
    let module = module()?;
    let mut stream = module.stream()?;
    launch(&mut *stream, BAD, 0, 1, 0, 1)?;
    let told = stream.wait().map_err(|error| error.to_string()).expect_err("a fault");
    ensure(told.contains("CUDA_ERROR_LAUNCH_FAILED") && told.contains("lost"), &told)
}

fn unknown_result() -> Outcome {
    let module = module()?;
    let mut stream = module.stream()?;
    launch(&mut *stream, BAD, 0, 1, 0, 1)?;
    fails(stream.wait(), "Fake GPU (CUDA device 0) failed: error 4711 (cuStreamSynchronize)")
}

fn callers_stream() -> Outcome {
    let module = module()?;
    let own = module.stream()?;
    let raw = std::ptr::without_provenance_mut(0x5ee);
    // SAFETY: the driver of ours takes any stream for one.
    let mut stream = unsafe { module.stream_on(raw) };
    ensure(stream.raw() == raw, &stream.raw())?;
    launch(&mut stream, COUNT, 0, 0, 0, 1)?;
    let told = logged("launch").concat();
    ensure(told.ends_with("stream 5ee"), &told)?;
    drop(stream);
    ensure_eq(&logged("wait"), &vec!["wait 5ee".to_owned()])?;
    ensure(logged("-stream").is_empty(), &log())?;
    drop(own);
    ensure_eq(&logged("-stream").len(), &1)
}

/// A stream that was made on this thread goes to another; the module is used by both at once.
fn threads() -> Outcome {
    let module = module()?;
    let work = |stream: &mut dyn Stream, rounds: usize| -> Outcome {
        let address = module.allocate(8)?;
        upload(stream, &[0.0, 10.0], address)?;
        (0..rounds).try_for_each(|_| launch(stream, ADD_ONE, address, 2, 0, 2))?;
        let found = floats(stream, address, 2)?;
        // SAFETY: the work is done.
        unsafe { module.free(address) };
        ensure_eq(&found, &vec![rounds as f32, 10.0 + rounds as f32])
    };
    let streams = [module.stream()?, module.stream()?, module.stream()?];
    std::thread::scope(|scope| {
        let threads = streams.map(|mut stream| scope.spawn(move || work(&mut *stream, 100)));
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a panic")?)
    })?;
    drop(module);
    ensure_balance()
}

/// The context that a thread has is there after each call; a module of the second device is used meanwhile.
fn own_context() -> Outcome {
    use cudarc::driver::sys;
    let module = module()?;
    let other = CudaDevice::by_index(1)?.load_module(&def("sm_80", &[("ptx", PTX)]), PTX)?;
    let mut own = std::ptr::null_mut();
    // SAFETY: the library is there, and a context is retained and made the thread's.
    unsafe {
        sys::cuDevicePrimaryCtxRetain(&mut own, 0).result().map_err(|error| format!("{:?}", error.0))?;
        sys::cuCtxSetCurrent(own).result().map_err(|error| format!("{:?}", error.0))?;
    }
    for module in [&module, &other] {
        let address = module.allocate(4)?;
        let mut stream = module.stream()?;
        upload(&mut *stream, &[1.0], address)?;
        let mut now = std::ptr::null_mut();
        // SAFETY: a pointer is written.
        let got = unsafe { sys::cuCtxGetCurrent(&mut now) }.result();
        ensure(got.is_ok() && now == own, &"the thread has another context")?;
    }
    Ok(())
}

fn old_for_ptx() -> Outcome {
    let told = load(&def("sm_80", &[("ptx", PTX)]), &[PTX]);
    fails(
        told,
        "Fake GPU (CUDA device 0) cannot run code for cuda:sm_80: its PTX is of version 8.0, and the driver, of CUDA 11.4, reads up to 7.4: install a newer driver",
    )?;
    // Machine code asks nothing of the driver's assembler.
    let code = good_machine_code();
    let both = def("sm_80", &[("ptx", PTX), ("cubin", &code)]);
    ensure(!load(&both, &[PTX, &code])?.assembled_by_driver(), &log())?;
    let older = PTX
        .strip_prefix(b"//\n.version 8.0")
        .map(|rest| [b".version 7.4", rest].concat())
        .unwrap_or_default();
    ensure(load(&def("sm_80", &[("ptx", &older)]), &[&older])?.assembled_by_driver(), &log())
}

fn out_of_range() -> Outcome {
    for index in [2, 3, usize::MAX] {
        let found = CudaDevice::by_index(index).err();
        ensure_eq(&found, &Some(CudaError::NoSuchDevice { index, count: 2 }))?;
    }
    let told = CudaDevice::by_index(2).err().map(|error| error.to_string()).unwrap_or_default();
    ensure_eq(&*told, "there is no CUDA device 2: devices are counted from 0, and there are 2")
}

fn one_device() -> Outcome {
    let told = CudaDevice::by_index(1).err().map(|error| error.to_string()).unwrap_or_default();
    ensure_eq(&*told, "there is no CUDA device 1: devices are counted from 0, and there is 1")
}

/// The driver of ours counts a millisecond for each event that is recorded.
fn times() -> Outcome {
    {
        let module = module()?;
        let mut stream = module.stream()?;
        let address = module.allocate(16)?;
        upload(&mut *stream, &[1.0; 4], address)?;
        for _ in 0..2 {
            ensure(stream.set_timing(true)?, &"times are there")?;
            let marks = [stream.mark()?, stream.mark()?, stream.mark()?];
            launch(&mut *stream, ADD_ONE, address, 4, 0, 4)?;
            stream.wait()?;
            ensure_eq(&marks, &[0, 1, 2])?;
            ensure_eq(&[stream.elapsed(0, 1)?, stream.elapsed(0, 2)?], &[1e6, 2e6])?;
            fails(
                stream.elapsed(0, 3),
                "Fake GPU (CUDA device 0) failed: there is no such mark (cuEventElapsedTime)",
            )?;
            ensure(!stream.set_timing(false)?, &"times are off")?;
        }
        ensure_eq(&logged("+event").len(), &3)?;
        // SAFETY: the stream has been waited for.
        unsafe { module.free(address) };
    }
    ensure_eq(&logged("-event").len(), &3)?;
    ensure_balance()
}
