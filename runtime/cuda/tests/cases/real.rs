//! Tests on a real device.

use tilewright_runtime::artifact::DeviceKernel;
use tilewright_runtime::device::{DeviceError, DeviceModule, Launch};
use tilewright_runtime_cuda::{CudaDevice, CudaModule};

use super::help::{Outcome, def, ensure, floats, upload};
use crate::fake_cuda::Case;

pub(crate) const CASES: &[Case] = &[
    Case { name: "a_real_device_runs_kernels", settings: &[] },
    Case { name: "a_real_device_has_shared_memory", settings: &[] },
    Case { name: "a_real_device_runs_out_of_memory", settings: &[] },
    Case { name: "a_real_device_refuses_damaged_code", settings: &[] },
    Case { name: "a_real_device_replays_graphs", settings: &[] },
    Case { name: "a_real_device_faults", settings: &[] },
];

const PTX: &[u8] = include_bytes!("kernels.ptx");

fn module() -> Result<CudaModule, DeviceError> {
    let mut def = def("sm_80", &[("ptx", PTX)]);
    def.kernels = [("add_one", 0), ("through_shared", 65536)]
        .map(|(symbol, dynamic_shared)| DeviceKernel {
            symbol: symbol.into(),
            threads: [2, 32],
            dynamic_shared,
        })
        .into();
    CudaDevice::by_index(0).expect("a device").load_module(&def, PTX)
}

/// The tests by name.
pub(crate) fn find(name: &str) -> Option<fn() -> Outcome> {
    Some(match name {
        "a_real_device_runs_kernels" => kernels,
        "a_real_device_has_shared_memory" => shared,
        "a_real_device_runs_out_of_memory" => memory,
        "a_real_device_refuses_damaged_code" => damaged,
        "a_real_device_replays_graphs" => graphs,
        "a_real_device_faults" => faults,
        _ => return None,
    })
}

/// Tasks 1 and 2 of 64 elements, of 150 in all.
fn kernels() -> Outcome {
    let module = module()?;
    let mut stream = module.stream()?;
    let address = module.allocate(600)?;
    upload(&mut *stream, &[1.0; 150], address)?;
    // SAFETY: the buffer is as large as its extent says.
    unsafe { stream.launch(&Launch { kernel: 0, buffers: &[address], sizes: &[150], first: 1, tasks: 2 }) }?;
    let found = floats(&mut *stream, address, 150)?;
    let expect: Vec<f32> = (0..150).map(|n| if n < 64 { 1.0 } else { 2.0 }).collect();
    // SAFETY: the work is done.
    unsafe { module.free(address) };
    ensure(module.assembled_by_driver() && found == expect, &found)
}

fn shared() -> Outcome {
    let module = module()?;
    let mut stream = module.stream()?;
    let address = module.allocate(4)?;
    // SAFETY: the buffer has one element.
    unsafe { stream.launch(&Launch { kernel: 1, buffers: &[address], sizes: &[1], first: 0, tasks: 1 }) }?;
    let found = floats(&mut *stream, address, 1)?;
    ensure(found == [2.5], &found)
}

fn memory() -> Outcome {
    let module = module()?;
    match module.allocate(1 << 50) {
        Err(DeviceError::Memory { free: Some(1..), .. }) => {}
        other => return Err(format!("{other:?}").into()),
    }
    let address = module.allocate(1)?;
    ensure(address % 256 == 0, &address)
}

fn damaged() -> Outcome {
    let text = String::from_utf8_lossy(PTX).replace("mad.lo.s64", "mud.lo.s64");
    let device = CudaDevice::by_index(0)?;
    match device.load_module(&def("sm_80", &[("ptx", text.as_bytes())]), text.as_bytes()) {
        Err(DeviceError::Code { reason, .. }) => ensure(reason.contains("ptxas"), &reason),
        other => Err(format!("{:?}", other.err()).into()),
    }
}

/// A kernel and a copy, recorded and replayed twice.
fn graphs() -> Outcome {
    let module = module()?;
    let mut stream = module.stream()?;
    let (from, to) = (module.allocate(256)?, module.allocate(256)?);
    upload(&mut *stream, &[1.0; 64], from)?;
    let add = Launch { kernel: 0, buffers: &[from], sizes: &[64], first: 0, tasks: 1 };
    // SAFETY: the buffers are as large as their extents say. The first launch is no part of the graph: the driver may load the kernel.
    let graph = unsafe {
        stream.launch(&add)?;
        if !stream.begin_capture()? {
            // A driver of before CUDA 11.4.
            return Ok(());
        }
        stream.launch(&add)?;
        stream.copy(from, to, 256)?;
        stream.end_capture()?
    };
    let graph = graph.ok_or("no graph")?;
    ensure(floats(&mut *stream, from, 64)? == [2.0; 64], &"the recording ran")?;
    for expect in [3.0, 4.0] {
        // SAFETY: the memory is there.
        unsafe { stream.replay(graph) }?;
        let found = floats(&mut *stream, to, 64)?;
        ensure(found == [expect; 64], &found)?;
    }
    // SAFETY: the work is done.
    [from, to].into_iter().for_each(|address| unsafe { module.free(address) });
    Ok(())
}

fn faults() -> Outcome {
    let module = module()?;
    let mut stream = module.stream()?;
    // SAFETY: the address is of nothing, which the device finds.
    unsafe { stream.launch(&Launch { kernel: 0, buffers: &[1 << 60], sizes: &[64], first: 0, tasks: 1 }) }?;
    for result in [stream.wait(), stream.wait(), module.allocate(1).map(drop)] {
        let told = format!("{result:?}");
        ensure(told.contains("CUDA_ERROR_ILLEGAL_ADDRESS") && told.contains("lost"), &told)?;
    }
    Ok(())
}
